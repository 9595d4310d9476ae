"""Runs that are kept in a folder while they go on: executed stretch by stretch, each from the end of the one before."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from patrac_native.draws.arviz_groups import PosteriorGroups, library_attributes, posterior_attributes
from patrac_native.draws.draws import Draws
from patrac_native.draws.run_folder import Checkpoint, RunFolder
from patrac_native.draws.stored_states import stored_states
from patrac_native.files.archive import check_entries, contents_hash
from patrac_native.kernels import kernel_from_dict
from patrac_native.likelihoods import likelihood_from_dict
from patrac_native.network.network import Network, network_digest
from patrac_native.posterior.posterior import Posterior, rebuild
from patrac_native.sampling.execution import run_stretch
from patrac_native.sampling.preparation import PreparedRun
from patrac_native.sampling.progress import Report
from patrac_native.sampling.results import assemble, kept_states
from patrac_native.sampling.settings import RunSettings
from patrac_native.sampling.warmup import Warmup
from patrac_native.validation.notes import Note

# A stretch, which a checkpoint ends, takes about so long. Its length follows the clock, on which no draw depends.
_STRETCH_SECONDS, _FIRST_STEPS = 2.0, 16
# Settings of a run on which its draws depend, beside the starting points.
_PLAIN = ("chains", "thin", "scales_every", "variance_every", "device")
# Arrays of the data, and what their names begin with in the file.
_ROWS, _DATA = ("X", "y", "sample_weight", "offset"), "data_"
# Statistics of a whole run, and where a stretch knows those that belong to a phase.
_TOTALS: dict[str, Callable[[Any], npt.NDArray[np.bool_]] | None] = {
    "warmup_acceptance_rate": np.isfinite,
    "warmup_step_size": np.isfinite,
    "warmup_steps": lambda found: np.asarray(found > 0),
    "warmup_stable": lambda found: np.asarray(found >= 0),
    "nonfinite": None,
    "warmup_nonfinite": None,
}
_ENTRIES: dict[str, Any] = {"net": dict, "weights": str, "network": dict, "likelihood": dict, "given": dict}
_ENTRIES |= {"data": str, "settings": dict, "version": str, "chunk": int}
Arrays = dict[str, npt.NDArray[Any]]


def create_store(run: PreparedRun, path: str | os.PathLike[str], *, store_data: bool) -> tuple[RunFolder, int]:
    """Make the folder of a run; return it with the number of draws in a chunk."""
    post, folder = check_storable(run), RunFolder(path)
    if run.settings.until is not None:
        raise ValueError("store keeps a run of a given number of draws, and until may end it; leave one of them out.")
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
    if not store_data:
        arrays = {name: values for name, values in arrays.items() if not name.startswith(_DATA)}
    chunk = folder.chunk_draws(len(run.start), run.density.dim * run.density.dtype.itemsize)
    folder.create({**header, "settings": settings, "version": version("patrac_native"), "chunk": chunk}, arrays)
    return folder, chunk


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
        for name in ("settings", "version", "chunk", "level", "input_names", "likelihood"):
            content.pop(name, None)
    words = {"net": "network", "weights": "weights of the network", "given": "likelihood"}
    different = [words.get(name, name) for name in found if own.get(name) != found[name]]
    if different:
        raise ValueError(f"post is another posterior than that of {path}: they differ in {', '.join(different)}.")
    return given


def stored_settings(header: Mapping[str, Any], arrays: Arrays, **changes: Any) -> RunSettings:
    """Return the settings of a stored run, with changes on which no draw depends."""
    content = dict(header["settings"])
    kernel, warmup, init = content.pop("kernel"), content.pop("warmup"), content.pop("init", None)
    return RunSettings(
        kernel if isinstance(kernel, str) else kernel_from_dict(kernel),
        warmup=Warmup.from_dict(warmup) if isinstance(warmup, dict) else warmup,
        init=arrays["init"] if init is None else init,
        **content,
        **changes,
    )


def run_stored(run: PreparedRun, folder: RunFolder, chunk: int, report: Report | None) -> tuple[Draws, list[Note]]:
    """Execute a run from its last checkpoint to its number of draws; Ctrl-C leaves what the last checkpoint has.

    `chunk` is the number of draws in a chunk of the arrays.
    """
    asked, thin, post = run.settings.draws, run.settings.thin, check_storable(run)
    at = _reopened(folder, chunk, run)
    steps, completed = at.next_steps or _FIRST_STEPS, True
    try:
        while at.draws < asked and completed:
            began = time.perf_counter()
            # More room than these steps fill: a stretch ends at its last step, or with the last draw of the run.
            last_step, room = at.step + steps, min(asked - at.draws, steps // thin + 2)
            result = run_stretch(run, room, last_step, at.states, _of_whole(report, run, at))
            if completed := result["completed"]:
                _take(run, at, result, last_step)
                at.seconds += time.perf_counter() - began
                steps = min(_next_steps(steps, time.perf_counter() - began), chunk * thin)
                at.next_steps = steps
                _write(run, folder, at, chunk, whole=at.draws == asked)
    except KeyboardInterrupt:  # between two stretches
        completed = False
    if not completed:
        last = folder.checkpoint()
        if last is None:
            raise KeyboardInterrupt
        at = last
    elif at.theta is not None and at.theta.shape[1]:  # of an interrupted run that needs no more draws than it had
        _write(run, folder, at, chunk, whole=True)
    theta_so_far, all_stats = stored_states(folder, at, post.network, post.likelihood)
    per_draw = {name: all_stats[name] for name in at.stats}
    draws, notes = assemble(run, run.choice, theta_so_far, per_draw, at.totals | {"completed": completed}, at.seconds)
    if completed:
        at.settings = draws.settings
        folder.save(at)
    return cast("Draws", draws), notes


def _next_steps(steps: int, elapsed: float) -> int:
    """Return the steps of the next stretch after one of `steps` steps."""
    return max(1, int(steps * min(8.0, _STRETCH_SECONDS / elapsed)))


def _take(run: PreparedRun, at: Checkpoint, result: dict[str, Any], last_step: int) -> None:
    """Bring a checkpoint to the end of a stretch."""
    at.totals = _merged(at.totals, result)
    theta, stats = kept_states(run, result)
    assert isinstance(theta, np.ndarray)
    if at.theta is not None:
        theta = np.concatenate([at.theta, theta], axis=1)
        stats = {name: np.concatenate([at.stats[name], values], axis=1) for name, values in stats.items()}
    at.theta, at.stats, at.states = theta, stats, result["states"]
    at.draws = at.written + theta.shape[1]
    whole = at.draws == run.settings.draws
    at.step = int(at.totals["warmup_steps"].sum()) + at.draws * run.settings.thin if whole else last_step
    steps_of_all = at.draws * run.settings.thin * run.kernel.gradients_per_step
    at.totals["gradients"] = np.full(len(theta), steps_of_all, np.int64)


def _write(run: PreparedRun, folder: RunFolder, at: Checkpoint, chunk: int, *, whole: bool) -> None:
    """Write the whole chunks of the draws that a checkpoint holds, or all of them, and then the checkpoint."""
    assert at.theta is not None
    while (count := at.theta.shape[1]) >= chunk or (whole and count):
        part = slice(0, min(chunk, count))
        states = {name: values[:, part] for name, values in at.stats.items()}
        draws = _draws(run, at, at.theta[:, part], states)
        made = PosteriorGroups.labelled(draws.network, draws.likelihood, draws.network.input_names, None)
        groups = made.of_run(draws.theta, draws.stats) | made.data(draws.theta.shape[:2], None, None, 0)
        attributes = posterior_attributes(draws.network, draws.likelihood, draws.settings)
        # No DataTree, whose cycles of references would keep the draws in memory.
        folder.append(groups, attributes, library_attributes(), at.written, chunk, is_last=whole and count <= chunk)
        at.written += min(chunk, count)
        at.theta = at.theta[:, part.stop :]
        at.stats = {name: values[:, part.stop :] for name, values in at.stats.items()}
    at.settings = _draws(run, at, at.theta, at.stats).settings
    folder.save(at)


def _draws(run: PreparedRun, at: Checkpoint, theta: npt.NDArray[Any], per_draw: Arrays) -> Draws:
    """Return some draws of a run with its settings so far."""
    totals = at.totals | {"completed": at.draws == run.settings.draws}
    draws, _ = assemble(run, run.choice, theta, per_draw, totals, at.seconds)
    draws.stats["gradients"] = at.totals["gradients"]
    draws.settings.pop("fitted_noise", None)  # which all draws tell, at the end of the run
    return cast("Draws", draws)


def _reopened(folder: RunFolder, chunk: int, run: PreparedRun) -> Checkpoint:
    """Return the last checkpoint; one whose draws end within a chunk takes these draws back from the arrays."""
    at = folder.checkpoint()
    if at is None:
        return Checkpoint()
    over = at.written % chunk
    if over and at.draws < run.settings.draws:
        assert isinstance(run.post, Posterior) and at.theta is not None
        network, first = run.post.network, at.written - over
        theta, stats = stored_states(folder, at, network, run.post.likelihood)
        at.theta = np.asarray(theta)[:, first:]
        at.stats = {name: stats[name][:, first:] for name in at.stats}
        at.written = first
        folder.save(at)  # before the chunk is written again
    return at


def _merged(before: Arrays, result: Mapping[str, Any]) -> Arrays:
    """Return the totals of a run after a stretch, whose result is empty where phases ended before or did not end."""
    return {
        name: np.where(is_known(result[name]), result[name], before[name]) if is_known and before else result[name]
        for name, is_known in _TOTALS.items()
    }


def _of_whole(report: Report | None, run: PreparedRun, at: Checkpoint) -> Report | None:
    """Return a progress callback of a stretch that reports the share of the whole run."""
    if report is None:
        return None
    warmup = int(at.totals["warmup_steps"].sum()) if at.draws else run.schedule.steps
    total = len(run.start) * (warmup + run.settings.draws * run.settings.thin)

    def of_stretch(done: int, _: int, rate: float) -> None:
        report(done, max(done, total), rate)

    return of_stretch


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
