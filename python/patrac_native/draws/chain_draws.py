"""The kept states of chains and their statistics, whatever density the chains sample."""

from __future__ import annotations

import copy
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics import convergence
from patrac_native.diagnostics.function_moments import MOMENTS
from patrac_native.draws.run_folder import RunFolder, StoredTheta
from patrac_native.engine.device_array import DeviceArray
from patrac_native.files.archive import (
    PathOrStream,
    check_arrays,
    check_entries,
    check_written_again,
    load_arrays,
    rebuilding,
    save_arrays,
)
from patrac_native.kernels import kernel_from_dict
from patrac_native.plots.table import html_table
from patrac_native.posterior.sampled_density import FitQuality

# Statistics with one value for each draw; the others have one value for each chain or each warm-up phase of a chain.
PER_DRAW = ("log_likelihood", "log_prior", "acceptance_rate", "step_size", "variance", "prior_scales")
# Statistics that enter predictions and scores, and whether they are variances.
_USED = {"log_likelihood": False, "log_prior": False, "variance": True, "prior_scales": True}
# R-hat of split chains needs this many draws of each.
_LEAST_FOR_RHAT = 4
# Numbers of more chains are given as a range.
_MAX_LISTED = 16
# Entries of the header of a file that any draws have.
ENTRIES: dict[str, Any] = {"settings": dict, "stats": list}
# Entries of the settings: those of every run, those of some, and those of draws of another sampler.
_OF_RUNS: dict[str, Any] = {
    "kernel": dict,
    "kernel_reason": str,
    "warmup": dict,
    "warmup_steps": int,
    "warmup_stable": (bool, NoneType),
}
_OF_RUNS |= {"seed": int, "thin": int, "draws_asked": int, "init": str, "seconds": float, "completed": bool}
_OF_RUNS |= {"device": str, "device_reason": str, "fit": (dict, NoneType)}
_OF_SOME: dict[str, Any] = {"batched": bool, "has_offset": bool, "variance_every": int, "moments_every": int}
_OF_SOME |= {"noise_prior": str, "fitted_noise": dict, "starts": list, "seeds": list}
# Entries of the warm-up of a run, and of its phases.
_WARMUP: dict[str, Any] = {"phases": (list, tuple), "step_size": (float, NoneType), "only_for": (str, NoneType)}
_PHASE: dict[str, Any] = dict.fromkeys(("target", "energy_error", "persistence", "travel"), (float, NoneType))
_PHASE |= {"steps": int, "accept": (list, tuple, NoneType), "accept_all": bool, "average": bool}
_PHASE |= {"first_look": (int, NoneType), "superchains": (int, NoneType)}
# Settings that two runs must share for their chains to be those of one.
_SHARED = ("kernel", "warmup", "thin", "init", "device", "variance_every", "noise_prior", "has_offset", "sampler")
_OF_OTHERS: dict[str, Any] = {"sampler": str, "thin": int, "fit": (dict, NoneType)}

Stats = Mapping[str, npt.NDArray[Any]]
# The states of draws: in memory, on a device, or in the folder of a run.
Theta: TypeAlias = npt.NDArray[Any] | DeviceArray | StoredTheta


class ChainDraws(ABC):
    """Base class of `Draws` and `TargetDraws`: states (chain, draw, K) with statistics and JSON-able settings."""

    # What a file of these draws holds, in words, by which files of one class are told from those of another.
    _KIND: ClassVar[str]

    def __init__(self, theta: Theta, stats: Stats, settings: Mapping[str, Any]) -> None:
        self._elsewhere = None if isinstance(theta, np.ndarray) else theta
        self._theta = theta if isinstance(theta, np.ndarray) else None
        self._shape = theta.shape
        self.stats = dict(stats)
        self.settings = dict(settings)

    def _with(self, theta: npt.NDArray[Any], stats: Stats, settings: Mapping[str, Any]) -> Self:
        """Return draws of the same density with other states."""
        found = copy.copy(self)
        ChainDraws.__init__(found, theta, stats, settings)
        return found

    @classmethod
    @abstractmethod
    def _from_arrays(cls, header: Mapping[str, Any], arrays: Stats) -> Self:
        """Rebuild draws from what `_to_arrays` returned."""

    @classmethod
    @abstractmethod
    def _from_run(cls, folder: RunFolder) -> Self:
        """Return the draws so far of the run in a folder."""

    @property
    def theta(self) -> npt.NDArray[Any]:
        """The kept states, shape (chain, draw, K); in memory, to which their first use brings them from elsewhere."""
        if self._theta is None:
            self._theta = np.asarray(self._elsewhere)
        return self._theta

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return int(self._shape[0])

    @property
    def n_draws(self) -> int:
        """Number of draws (kept states) of each chain."""
        return int(self._shape[1])

    def __getitem__(self, index: tuple[slice, slice]) -> Self:
        """Return some draws of some chains, with their share of the seconds of a complete run; see the class."""
        if not isinstance(index, tuple) or [type(one) for one in index] != [slice, slice]:
            raise TypeError(f"draws are indexed by two slices, draws[chains, draws]; got {index!r}.")
        chains, draws = (range(size)[one] for one, size in zip(index, self._shape, strict=False))
        if chains.step != 1 or draws.step < 1:
            raise TypeError(
                "draws are indexed by a slice of consecutive chains and one of draws in order, such as [:, 9::10]."
            )
        if not len(chains) or not len(draws):
            raise ValueError(f"draws[...] must leave a chain and a draw; there are {self.n_chains} x {self.n_draws}.")
        settings, every = dict(self.settings), draws.step
        # Between two draws lie the steps of those that are left out.
        covered = draws[-1] + 1 - max(0, draws[0] + 1 - every)
        if "seconds" in settings and self.settings.get("completed"):
            # Chains cost alike, and draws their steps.
            steps = [
                of_chains * (settings["warmup_steps"] + count * settings["thin"])
                for of_chains, count in ((len(chains), covered), (self.n_chains, self.n_draws))
            ]
            settings["seconds"] *= steps[0] / steps[1]
        for name in ("starts", "seeds"):
            if name in settings:
                settings[name] = settings[name][index[0]]
        stats = self._stats_of(*index, covered)
        if every > 1:
            settings["thin"] *= every
            if "acceptance_rate" in stats:  # of all steps since the draw before
                rates = self.stats["acceptance_rate"][index[0]]
                parts = [rates[:, max(0, draw + 1 - every) : draw + 1].mean(axis=1) for draw in draws]
                stats["acceptance_rate"] = np.stack(parts, axis=1)
        return self._with(self.theta[index].copy(), stats, settings)

    def __add__(self, other: Self) -> Self:
        """Return the chains of two runs of one density, which differ in their seeds, as those of one run.

        Starting points that chains share are taken for different ones in the two runs. `settings` has the seed of each
        chain under "seeds", the larger number of warm-up steps, and the seconds of both. The moments of f are left out
        unless both runs have them at the same inputs, with the same `moments_every`.
        """
        if type(other) is not type(self):
            return NotImplemented
        mine, others = self.settings, other.settings
        reason = self._unlike(other)
        if reason is None and self.n_draws != other.n_draws:
            reason = f"{self.n_draws} and {other.n_draws} draws of each chain; draws[:, :n] shortens one"
        for name in _SHARED:
            # As in files, where sequences are lists.
            if reason is None and json.dumps(mine.get(name)) != json.dumps(others.get(name)):
                reason = f"{name} {mine.get(name)} and {others.get(name)}"
        seeds = [_of_each_chain(one, "seeds", "seed") for one in (self, other)]
        if reason is None and "seed" in mine and set(seeds[0]) & set(seeds[1]):
            reason = f"the seed {mine['seed']} in common, and with it their noise"
        kinds = [one.stats.keys() - MOMENTS.keys() for one in (self, other)]
        if reason is None and kinds[0] != kinds[1]:
            reason = f"different statistics, of which one alone has {', '.join(sorted(kinds[0] ^ kinds[1]))}"
        if reason is not None:
            raise ValueError(f"two runs of which one becomes a part of the other must be alike; they have {reason}.")
        settings = dict(mine)
        if "seed" in mine:
            stable = [one["warmup_stable"] for one in (mine, others)]
            settings |= {
                "seeds": seeds[0] + seeds[1],
                "warmup_steps": max(mine["warmup_steps"], others["warmup_steps"]),
                "warmup_stable": None if None in stable else all(stable),
                "seconds": mine["seconds"] + others["seconds"],
                "completed": mine["completed"] and others["completed"],
            }
        if "starts" in mine or "starts" in others:
            first, second = (one.settings.get("starts", list(range(one.n_chains))) for one in (self, other))
            settings["starts"] = [*first, *(max(first) + 1 + start for start in second)]
        names = kinds[0]
        if self._watches_as(other):
            names = names | MOMENTS.keys()
        else:  # f of other states, or at other inputs, of which there are no moments over all chains
            settings.pop("moments_every", None)
        stats = {name: np.concatenate([self.stats[name], other.stats[name]]) for name in self.stats if name in names}
        return self._with(np.concatenate([self.theta, other.theta]), stats, settings)

    def _watches_as(self, other: Self) -> bool:
        """Return whether both runs watched f, at the same inputs and every so many steps."""
        both = self.settings.get("moments_every"), other.settings.get("moments_every")
        if both[0] != both[1] or not all(MOMENTS.keys() <= one.stats.keys() for one in (self, other)):
            return False
        return np.array_equal(self.stats["moments_at"][0], other.stats["moments_at"][0])

    def _unlike(self, other: Self) -> str | None:
        """Return in words how the densities of two runs differ; None if they may be one."""
        sizes = self._shape[-1], other._shape[-1]
        return None if sizes[0] == sizes[1] else f"{sizes[0]} and {sizes[1]} parameters"

    def _stats_of(self, chains: slice, keep: slice, covered: int) -> dict[str, npt.NDArray[Any]]:
        """Return the statistics of draws of some chains, which cost the steps of `covered` draws of each."""
        stats = {
            name: values[chains, keep].copy() if name in PER_DRAW else values[chains].copy()
            for name, values in self.stats.items()
        }
        if "gradients" in stats and self.n_draws:
            stats["gradients"] = stats["gradients"] // self.n_draws * covered
        return stats

    def save(self, path: PathOrStream, *, overwrite: bool = False) -> None:
        """Write everything but the data in the format .npz (no pickle), which `load` reads.

        Parameters
        ----------
        path : path-like or binary stream
            Path of the file, used as given; no file name extension is added.
        overwrite : bool
            Whether an existing file may be replaced; default False.

        Raises
        ------
        FileExistsError
            If the file exists and overwrite is False.
        OSError
            If the file cannot be written.
        """
        save_arrays(path, self._KIND, *self._to_arrays(), overwrite=overwrite)

    @classmethod
    def load(cls, path: PathOrStream) -> Self:
        """Read draws written by `save`, or open those so far of a run with a store, `sample(..., store=path)`.

        Parameters
        ----------
        path : path-like or binary stream
            The file, which is read into memory, or the folder of a store: `Draws.open` of it.

        Returns
        -------
        draws of this class

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged, holds something else or numbers that are not finite, or has another version of the
            format.
        """
        if isinstance(path, str | os.PathLike) and os.path.isdir(path):
            return cls._from_run(RunFolder(path))
        header, arrays = load_arrays(path, cls._KIND)
        with rebuilding(path):
            made = cls._from_arrays(header, arrays)
            check_arrays(arrays, made._to_arrays()[1])
        return made

    def _to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the draws as JSON-able values, of the names `ENTRIES`, and arrays by name, as in files."""
        check_settings(self.settings)
        header = {"settings": self.settings, "stats": list(self.stats)}
        return header, {"theta": self.theta, **{f"stat_{name}": values for name, values in self.stats.items()}}

    def _overview(self) -> list[tuple[str, str]]:
        """Return labels and values of the table for notebooks."""
        known = self.settings
        steps = f"{self.n_chains} chains x {self.n_draws} draws (thin {known['thin']})"
        if "warmup_steps" in known:
            steps += f" after {known['warmup_steps']} warm-up steps"
        rows = [("sampler", sampler_of(known)), ("draws", steps)]
        if "seed" in known:
            rows.append(("seed", str(known["seed"])))
        if "seconds" in known:
            cut = "" if known.get("completed", True) else ", interrupted"
            rows.append(("run", f"{known['seconds']:.1f} s on {known.get('device', 'cpu')}{cut}"))
        if "acceptance_rate" in self.stats and self.n_draws:
            rows.append(("acceptance by chain", listed(self.stats["acceptance_rate"].mean(axis=1))))
        if self.n_draws >= _LEAST_FOR_RHAT:
            found = convergence(self.stats["log_likelihood"])
            rows.append(("log-likelihood", f"R-hat {found.max_rhat:.3f}, bulk ESS {found.min_ess_bulk:.0f}"))
        return rows

    def _repr_html_(self) -> str:
        """Return a table of what the draws are, for notebooks; whether they serve is what `summary` says."""
        return html_table(repr(self), self._overview())

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, which hold the draws on the host only."""
        return {**self.__dict__, "_theta": self.theta, "_elsewhere": None}

    def __dlpack__(self, **arguments: Any) -> Any:
        """Export theta, from the device's memory if it is there; see `DeviceArray.__dlpack__`."""
        return self._exported().__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where `__dlpack__` finds theta: DLPack's device type and the device's index."""
        kind, index = self._exported().__dlpack_device__()
        return int(kind), index

    def _exported(self) -> npt.NDArray[Any] | DeviceArray:
        """Return what DLPack exports: theta on its device, if it is on one."""
        return self._elsewhere if isinstance(self._elsewhere, DeviceArray) else self.theta

    def _check_drawn(self) -> None:
        """Raise ValueError if the run was interrupted before its first draw."""
        if self.n_draws == 0:
            raise ValueError("there are no draws: the run was interrupted before the first. Run `sample` again.")

    def _flat_theta(self) -> npt.NDArray[Any]:
        """Return theta with shape (chain * draw, K); ValueError if the run was interrupted before its first draw."""
        self._check_drawn()
        return self.theta.reshape(-1, self.theta.shape[-1])


def _of_each_chain(draws: ChainDraws, name: str, of_all: str) -> list[Any]:
    """Return a setting of each chain, which may be that of all chains."""
    found: list[Any] = draws.settings.get(name, [draws.settings.get(of_all)] * draws.n_chains)
    return found


def listed(values: Sequence[float] | npt.NDArray[Any], form: str = ".2f") -> str:
    """Return numbers of chains in words: all of few, the range of many."""
    if len(values) <= _MAX_LISTED:
        return ", ".join(f"{value:{form}}" for value in values)
    return f"{min(values):{form}} to {max(values):{form}}, median {np.median(values):.2f}"


def sampler_of(settings: Mapping[str, Any]) -> str:
    """Return what made the draws: the kernel of the run, as "MGrad(persistence=0.9)", or another sampler's name."""
    kernel = settings.get("kernel")
    return str(settings["sampler"]) if kernel is None else kernel_from_dict(kernel).label()


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise ValueError unless settings of draws have the known entries with values that a run can have."""
    known = _OF_OTHERS if "sampler" in settings else _OF_RUNS
    check_entries(settings, known | _OF_SOME, "the settings of the draws", optional=_OF_SOME)
    if "kernel" in settings:
        check_written_again(settings["kernel"], kernel_from_dict(settings["kernel"]).to_dict())
        check_entries(settings["warmup"], _WARMUP, "the warm-up of the draws")
        for phase in settings["warmup"]["phases"]:
            check_entries(phase, _PHASE, "a phase of the warm-up of the draws")
    least = {
        "thin": 1,
        "variance_every": 1,
        "moments_every": 1,
        "draws_asked": 0,
        "warmup_steps": 0,
        "seconds": 0,
        "seed": 0,
    }
    for name in least.keys() & settings.keys():
        if settings[name] < least[name]:
            raise ValueError(f"the settings of the draws have {name} = {settings[name]}, below {least[name]}")
        if settings[name] >= 2**64 or (name == "seconds" and settings[name] == 0):
            raise ValueError(f"the settings of the draws have {name} = {settings[name]}, which no run has")
    if settings.get("fit") is not None:
        FitQuality.from_dict(settings["fit"])
    if "fitted_noise" in settings:
        known = {"variance": float, "unseen": float, "output": (int, NoneType)}
        check_entries(settings["fitted_noise"], known, "the fitted noise of the draws")


def read_states(
    header: Mapping[str, Any], arrays: Stats, dim: int | None = None, dtype: np.dtype[Any] | None = None
) -> tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any]]]:
    """Return theta and statistics of a file, finite and of matching shapes; K and dtype are None where any will do."""
    check_settings(header["settings"])
    theta, stats = arrays["theta"], {name: arrays[f"stat_{name}"] for name in header["stats"]}
    if theta.ndim != 3 or (dim is not None and theta.shape[-1] != dim):
        raise ValueError(f"its theta has shape {theta.shape}, not (chain, draw, {'K' if dim is None else dim})")
    if theta.dtype.kind != "f" or (dtype is not None and theta.dtype != dtype):
        raise ValueError(f"its theta has dtype {theta.dtype}, not {'a real one' if dtype is None else dtype}")
    if not np.isfinite(theta).all():
        raise ValueError("its theta holds NaN or infinity")
    for name, values in stats.items():
        axes, kinds = 2 if name in PER_DRAW else 1, "f" if name in _USED else "fiu"
        if values.dtype.kind not in kinds or values.shape[:axes] != theta.shape[:axes]:
            raise ValueError(
                f"its {name} has shape {values.shape} and dtype {values.dtype}, not real numbers of theta {theta.shape}"
            )
        if name in ("acceptance_rate", "step_size") and (values < 0).any():
            raise ValueError(f"its {name} holds negative numbers")
        if name in _USED and (not np.isfinite(values).all() or (_USED[name] and not (values > 0).all())):
            raise ValueError(f"its {name} holds numbers that are not finite{' and positive' * _USED[name]}")
    return theta, stats
