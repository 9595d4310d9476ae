"""Runs that are kept in a folder while they go on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from patrac_native.draws.arviz_groups import PosteriorGroups, library_attributes, posterior_attributes
from patrac_native.draws.draws import Draws
from patrac_native.draws.run_folder import Checkpoint, RunFolder
from patrac_native.draws.stored_states import read_checkpoint, stored_states
from patrac_native.files.archive import check_entries, contents_hash, rebuilding
from patrac_native.kernels import kernel_from_dict
from patrac_native.likelihoods import likelihood_from_dict
from patrac_native.network.network import Network, network_digest
from patrac_native.posterior.posterior import Posterior, rebuild
from patrac_native.sampling.preparation import PreparedRun
from patrac_native.sampling.results import assemble
from patrac_native.sampling.settings import OneRunSettings
from patrac_native.sampling.stretches import Arrays, Outcome, check_moments
from patrac_native.sampling.warmup import Warmup
from patrac_native.validation.memory import release_memory

# Settings of a run on which its draws depend, beside the starting points.
_PLAIN = ("chains", "thin", "scales_every", "variance_every", "device", "moments_every")
# Arrays of the data, and what their names begin with in the file.
_ROWS, _DATA = ("X", "y", "sample_weight", "offset"), "data_"
_ENTRIES: dict[str, Any] = {"net": dict, "weights": str, "network": dict, "likelihood": dict, "given": dict}
_ENTRIES |= {"data": str, "settings": dict, "version": str, "chunk": int}
_ENTRIES |= {"resolved": dict, "store_dtype": str}


def create_store(run: PreparedRun, asked: OneRunSettings) -> tuple[RunFolder, int, str]:
    """Make the folder of a run; return it with the number of draws in a chunk and the type of theta in it."""
    assert asked.store is not None
    post, folder = check_storable(run), RunFolder(asked.store)
    dtype = asked.store_dtype or run.density.dtype.name
    if np.dtype(dtype).itemsize > run.density.dtype.itemsize:
        raise ValueError(
            f"store_dtype={dtype!r} has more digits than the posterior, {run.density.dtype}; leave it out."
        )
    header, arrays = _given_to(post)
    given = run.settings
    settings = {
        **{name: getattr(given, name) for name in _PLAIN},
        "kernel": given.kernel if isinstance(given.kernel, str) else given.kernel.to_dict(),
        "warmup": given.warmup.to_dict() if isinstance(given.warmup, Warmup) else given.warmup,
        "seed": run.seed,
    }
    if isinstance(given.init, str):
        settings["init"] = given.init
    else:
        arrays["init"] = np.asarray(given.init)
    if not asked.store_data:
        arrays = {name: values for name, values in arrays.items() if not name.startswith(_DATA)}
    if run.moments_at is not None:
        arrays["moments_at"] = run.moments_at
    chunk = folder.chunk_draws(len(run.start), run.density.dim * run.density.dtype.itemsize)
    of_run = {"settings": settings, "resolved": _resolved(run), "version": version("patrac_native")}
    folder.create({**header, **of_run, "chunk": chunk, "store_dtype": dtype}, arrays)
    return folder, chunk, dtype


def check_storable(run: PreparedRun) -> Posterior:
    """Return the posterior of a run; TypeError or ValueError if a store cannot keep it."""
    if not isinstance(run.post, Posterior):
        raise TypeError(
            "store keeps runs on a Posterior; a Target is a function, which no file holds. Leave store out."
        )
    if run.choice.device != "cpu":
        raise ValueError(f'store needs device="cpu"; the run is on {run.choice.device}. Leave one of them out.')
    return run.post


def check_exact(header: Mapping[str, Any], post: Posterior, path: str) -> None:
    """Raise ValueError if a run would go on with other bits: at another level, or by another version of the package."""
    level, made_by = header["network"]["level"], header["version"]
    if post.network.level != level:
        raise ValueError(
            f"{path} was made at the instruction-set level {level}, and this posterior has {post.network.level}: set "
            f"PATRAC_SIMD={level} where the machine supports it, or go on without equal bits, exact=False."
        )
    if made_by != version("patrac_native"):
        raise ValueError(
            f"{path} was made by patrac_native {made_by}, and this is {version('patrac_native')}: go on with that "
            "version, or without equal bits, exact=False."
        )


def check_resolved(header: Mapping[str, Any], run: PreparedRun, path: str) -> None:
    """Raise ValueError if what was "auto" in the settings of a run is not what it was when the run began."""
    found, before = json.loads(json.dumps(_resolved(run))), header["resolved"]
    names = [name for name in found if name != "level" and not name.endswith("_reason")]
    different = [f"{name} {before.get(name)}, now {found[name]}" for name in names if found[name] != before.get(name)]
    if different:
        raise ValueError(
            f"{path} was begun with the {'; '.join(different)}: go on where the same is chosen, or without equal bits, "
            "exact=False."
        )


def _resolved(run: PreparedRun) -> dict[str, Any]:
    """Return the settings of a run as it has them, where "auto" was asked for too; JSON-able."""
    return {
        "kernel": run.kernel.to_dict(),
        "kernel_reason": run.kernel_reason,
        "warmup": run.schedule.to_dict(),
        "variance_every": run.variance_every,
        "device": run.choice.device,
        "device_reason": run.choice.reason,
        "level": check_storable(run).network.level,
    }


def stored_posterior(header: Mapping[str, Any], arrays: Arrays, given: Posterior | None, path: str) -> Posterior:
    """Return the posterior of a store, or the given one if it is the same; ValueError that says what differs."""
    check_entries(header, _ENTRIES, "its header")
    if given is None:
        data = {name: arrays.get(f"{_DATA}{name}") for name in _ROWS}
        X, y = data["X"], data["y"]
        if X is None or y is None:
            raise ValueError(f"{path} holds only a hash of its data (store_data=False): give post, its posterior.")
        net, likelihood = Network.from_arrays(header["net"], arrays), likelihood_from_dict(header["given"])
        return rebuild(
            Posterior, net, header["network"], X, False, likelihood, y, data["sample_weight"], data["offset"]
        )
    own, found = json.loads(json.dumps(_given_to(given)[0])), dict(header)
    for content in (own, found):
        content.update(content.pop("network"))
        for name in ("settings", "resolved", "version", "chunk", "store_dtype", "level", "input_names", "likelihood"):
            content.pop(name, None)
    words = {"net": "network", "weights": "weights of the network", "given": "likelihood"}
    different = [words.get(name, name) for name in found if own.get(name) != found[name]]
    if different:
        raise ValueError(f"post is another posterior than that of {path}: they differ in {', '.join(different)}.")
    return given


def stored_settings(header: Mapping[str, Any], arrays: Arrays, **changes: Any) -> OneRunSettings:
    """Return the settings of a stored run, with changes on which no draw depends."""
    content = dict(header["settings"])
    kernel, warmup, init = content.pop("kernel"), content.pop("warmup"), content.pop("init", None)
    return OneRunSettings(
        kernel if isinstance(kernel, str) else kernel_from_dict(kernel),
        warmup=Warmup.from_dict(warmup) if isinstance(warmup, dict) else warmup,
        init=arrays["init"] if init is None else init,
        moments_at=arrays.get("moments_at"),
        **content,
        **changes,
    )


class KeptInFolder:
    """The draws of a run in its folder: chunks of arrays, and a checkpoint about every two seconds."""

    stretch_seconds: float = 2.0
    keeps_cut: bool = False

    def __init__(self, run: PreparedRun, folder: RunFolder, chunk: int, dtype: str) -> None:
        """Read the last checkpoint; one whose draws end within a chunk takes these draws back from the arrays."""
        self._post = check_storable(run)
        self._run, self._folder, self._chunk = run, folder, chunk  # number of draws in a chunk of the arrays
        self._dtype = np.dtype(dtype)  # of theta in the arrays
        self.max_steps = chunk * run.stride
        self._is_over = False  # which the number of draws does not tell where `until` ended the run
        self._is_ahead = False  # whether there were stretches after the last checkpoint
        network, likelihood = self._post.network, self._post.likelihood
        self.at = self._confirmed = at = read_checkpoint(folder, network, likelihood) or Checkpoint()
        now = len(run.start), len(run.schedule.phases)
        if at.states and (len(at.states), len(at.settings["warmup"]["phases"])) != now:
            raise ValueError(f"{folder.checkpoint_path} belongs to a run of other chains or another warm-up.")
        if at.states:
            with rebuilding(folder.checkpoint_path):
                check_moments(run, at)
        over = at.written % chunk
        if over and at.draws < run.settings.draws:
            assert at.theta is not None
            theta, stats = stored_states(folder, at, network, likelihood)
            first = at.written - over
            at.theta = np.asarray(theta)[:, first:]
            at.stats = {name: stats[name][:, first:] for name in at.stats}
            at.written = first
            folder.save(at)  # before the chunk is written again

    @property
    def kill_costs(self) -> int:
        """Draws of each chain after the last checkpoint and before the next, at most."""
        at, settings = self._confirmed, self._run.settings
        left = settings.draws - at.draws
        return min(left, -(-at.next_steps // settings.thin)) if at.states else left

    def add(self, at: Checkpoint, theta: npt.NDArray[Any], stats: Arrays) -> None:
        """Add draws to those since the last whole chunk, with as many digits as the arrays keep."""
        if theta.dtype != self._dtype:
            with np.errstate(over="ignore"):
                theta = theta.astype(self._dtype).astype(theta.dtype)
            if not np.isfinite(theta).all():
                raise OverflowError(
                    f"{self._dtype} of the store {self._folder.path} does not hold the states of this run, of which "
                    f"some are above {np.finfo(self._dtype).max:g}: sample with another store_dtype, or none."
                )
        if at.theta is not None:
            theta = np.concatenate([at.theta, theta], axis=1)
            stats = {name: np.concatenate([at.stats[name], values], axis=1) for name, values in stats.items()}
        at.theta, at.stats = theta, stats
        self.at, self._is_ahead = at, True

    def confirm(self) -> None:
        """Write a checkpoint if the next stretch could end after it is due, a chunk is full, or the run ends."""
        at, last = self.at, self._confirmed
        assert at.theta is not None
        is_due = at.step + min(at.next_steps, self.max_steps) > last.step + last.next_steps
        if is_due or at.theta.shape[1] >= self._chunk or at.draws == self._run.settings.draws:
            self._confirm()

    def _confirm(self) -> None:
        """Write whole chunks, all draws at the end of the run, and the checkpoint."""
        try:
            self._write(whole=self.at.draws == self._run.settings.draws)
        except OSError as error:
            if error.errno is None or not os.path.exists(self._folder.checkpoint_path):
                raise
            reason = f"{error.strerror}; the run has ended, and what its last checkpoint counts stays: resume goes on"
            raise OSError(error.errno, reason, error.filename) from error

    def so_far(self, *, completed: bool) -> Outcome:
        """Return the draws so far, of which theta is read at its first use."""
        run, at = self._run, self.at
        theta, all_stats = stored_states(self._folder, at, self._post.network, self._post.likelihood)
        per_draw = {name: all_stats[name] for name in at.stats}
        return assemble(run, run.choice, theta, per_draw, at.totals | {"completed": completed}, at.seconds)

    def peek(self) -> Draws | None:
        """Return the draws of the last checkpoint; None if it has none."""
        at = self._folder.checkpoint()
        return Draws.load(self._folder.path) if at is not None and at.draws else None

    def end(self, *, completed: bool) -> Outcome:
        """Return the draws, after an interruption those of all whole stretches, in a last checkpoint."""
        if not completed:
            if self._is_ahead:
                self._confirm()
            last = self._folder.checkpoint()
            if last is None:
                raise KeyboardInterrupt
            self.at = last
        elif self.at.theta is not None and self.at.theta.shape[1]:  # a run that ended before its last draw
            self._is_over = True
            self._write(whole=True)
        draws, notes = self.so_far(completed=completed)
        if completed:
            self.at.settings = draws.settings
            self._folder.save(self.at)
        return draws, notes

    def _write(self, *, whole: bool) -> None:
        """Write the whole chunks of the draws that the checkpoint holds, or all of them, and then the checkpoint."""
        at, chunk, self._is_ahead = self.at, self._chunk, False  # where Ctrl-C ends this, the last checkpoint counts
        assert at.theta is not None
        while (count := at.theta.shape[1]) >= chunk or (whole and count):
            size = min(chunk, count)
            self._write_chunk(size, is_last=whole and count <= chunk)
            at.written += size
            at.theta = at.theta[:, size:].copy()  # a view would keep what is written in memory
            at.stats = {name: values[:, size:].copy() for name, values in at.stats.items()}
            release_memory()  # the C library would keep that of each chunk and stretch for others of its size
        at.settings = self._part(at.theta, at.stats).settings
        self._folder.save(at)
        self._confirmed = at

    def _write_chunk(self, size: int, *, is_last: bool) -> None:
        """Write the first of the draws that the checkpoint holds to the arrays."""
        at = self.at
        assert at.theta is not None
        draws = self._part(at.theta[:, :size], {name: values[:, :size] for name, values in at.stats.items()})
        made = PosteriorGroups.labelled(draws.network, draws.likelihood, draws.network.input_names, None)
        theta = draws.theta.astype(self._dtype, copy=False)
        # No DataTree, whose cycles of references would keep the draws in memory.
        groups = made.of_run(theta, draws.stats) | made.data(theta.shape[:2], None, None, 0)
        attributes = posterior_attributes(draws.network, draws.likelihood, draws.settings)
        self._folder.append(groups, attributes, library_attributes(), at.written, self._chunk, is_last=is_last)

    def _part(self, theta: npt.NDArray[Any], per_draw: Arrays) -> Draws:
        """Return some draws of the run with its settings so far."""
        run, at = self._run, self.at
        totals = at.totals | {"completed": self._is_over or at.draws == run.settings.draws}
        draws, _ = assemble(run, run.choice, theta, per_draw, totals, at.seconds)
        draws.stats["gradients"] = at.totals["gradients"]
        draws.settings.pop("fitted_noise", None)  # which all draws tell, at the end of the run
        return cast("Draws", draws)


def _given_to(post: Posterior) -> tuple[dict[str, Any], Arrays]:
    """Return what a posterior was given, as JSON-able values with hashes of its arrays, and these arrays."""
    _, (_, net, network, X, _, likelihood, y, sample_weight, offset) = post.__reduce__()
    net_header, net_arrays = net.to_arrays()
    rows = {"X": X, "y": y, "sample_weight": sample_weight, "offset": offset}
    data = {f"{_DATA}{name}": values for name, values in rows.items() if values is not None}
    header = {
        "net": net_header,
        "weights": network_digest(net),
        "network": network,
        "likelihood": post.likelihood.to_dict(),
        "given": likelihood.to_dict(),
        "data": contents_hash(data).tobytes().hex(),
    }
    return header, {**net_arrays, **data}
