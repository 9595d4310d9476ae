"""The kept states of chains and their statistics, whatever density the chains sample."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics import convergence
from patrac_native.engine.device_array import DeviceArray
from patrac_native.kernels import short_name
from patrac_native.network.files import load_arrays, rebuilding, save_arrays
from patrac_native.plots.table import html_table
from patrac_native.validation.checks import check_count

# Statistics with one value for each draw; the others have one value for each chain or each warm-up phase of a chain.
PER_DRAW = ("log_likelihood", "log_prior", "acceptance_rate", "step_size", "variance", "prior_scales")

# R-hat of split chains needs this many draws of each.
_LEAST_FOR_RHAT = 4

# Entries of the header of a file that any draws have.
ENTRIES = ("settings", "stats")

Stats = Mapping[str, npt.NDArray[Any]]


class ChainDraws(ABC):
    """Base class of draws: states (chain, draw, K) with statistics and settings, which can be thinned and stored.

    Attributes
    ----------
    stats : dict of str to ndarray
        Statistics by name; those of `PER_DRAW` begin with the axes (chain, draw).
    settings : dict
        JSON-able values that describe the run.
    file_kind : str
        What a file of these draws holds, in words, by which files of one class are told from those of another.
    """

    file_kind: ClassVar[str]

    def __init__(self, theta: npt.NDArray[Any] | DeviceArray, stats: Stats, settings: Mapping[str, Any]) -> None:
        self._device_theta = theta if isinstance(theta, DeviceArray) else None
        self._theta = None if isinstance(theta, DeviceArray) else theta
        self._shape = theta.shape
        self.stats = dict(stats)
        self.settings = dict(settings)

    @property
    def sampler(self) -> str:
        """What made the draws: the kernel of the run, such as "MGrad(persistence=0.9)", or another sampler's name."""
        kernel = self.settings.get("kernel")
        return str(self.settings["sampler"]) if kernel is None else short_name(kernel)

    @abstractmethod
    def _with(self, theta: npt.NDArray[Any], stats: Stats, settings: Mapping[str, Any]) -> Self:
        """Return draws of the same density with other states."""

    @property
    def theta(self) -> npt.NDArray[Any]:
        """The kept states on the host, shape (chain, draw, K)."""
        if self._theta is None:
            self._theta = np.asarray(self._device_theta)
        return self._theta

    @property
    def device_theta(self) -> DeviceArray:
        """The kept states in the device's memory, shape (chain, draw, K).

        Raises
        ------
        ValueError
            If the draws are on the host only.
        """
        if self._device_theta is None:
            raise ValueError(
                'device_theta: these draws are on the host alone; run sample(..., device="cuda", keep_on_device=True).'
            )
        return self._device_theta

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return int(self._shape[0])

    @property
    def n_draws(self) -> int:
        """Number of draws (kept states) of each chain."""
        return int(self._shape[1])

    @property
    def steps_per_second(self) -> float:
        """Steps of all chains, warm-up included, for each second of the run's wall-clock time.

        NaN if the run was interrupted, or another sampler made the draws.
        """
        if not self.settings.get("completed"):
            return float("nan")
        steps = self.n_chains * (self.settings["warmup_steps"] + self.n_draws * self.settings["thin"])
        return float(steps / self.settings["seconds"])

    def thinned(self, every: int) -> Self:
        """Return every `every`-th draw, which are the draws of a run whose `thin` is `every` times as large.

        Parameters
        ----------
        every : int
            A number from 1 to `n_draws`. Of each `every` consecutive draws the last is kept.

        Returns
        -------
        draws of the same class
            On the host; acceptance rates are averaged over the steps between the kept draws.

        Raises
        ------
        TypeError, ValueError
            If `every` is not an integer from 1 to `n_draws`.
        """
        if check_count(every, "every") > self.n_draws:
            raise ValueError(f"every must be at most the number of draws, {self.n_draws}; got {every}.")
        keep = slice(every - 1, None, every)
        whole = self.n_draws // every * every
        stats = self._stats_of(keep, whole)
        if "acceptance_rate" in stats:
            rate = self.stats["acceptance_rate"][:, :whole].reshape(self.n_chains, -1, every)
            stats["acceptance_rate"] = rate.mean(axis=-1)
        settings = {**self.settings, "thin": self.settings["thin"] * every}
        return self._with(self.theta[:, keep].copy(), stats, settings)

    def head(self, draws: int) -> Self:
        """Return the first draws of each chain.

        Parameters
        ----------
        draws : int
            A number from 1 to `n_draws`.

        Returns
        -------
        draws of the same class
            On the host; of the seconds of a complete run it has the share of these steps.

        Raises
        ------
        TypeError, ValueError
            If `draws` is not an integer from 1 to `n_draws`.
        """
        if check_count(draws, "draws") > self.n_draws:
            raise ValueError(f"draws must be at most the number of draws, {self.n_draws}; got {draws}.")
        settings = dict(self.settings)
        if "seconds" in settings and self.settings.get("completed"):
            steps = [settings["warmup_steps"] + count * settings["thin"] for count in (draws, self.n_draws)]
            settings["seconds"] *= steps[0] / steps[1]
        return self._with(self.theta[:, :draws].copy(), self._stats_of(slice(draws), draws), settings)

    def _stats_of(self, keep: slice, covered: int) -> dict[str, npt.NDArray[Any]]:
        """Return the statistics of the draws `keep`, which cost the steps of the first `covered` draws."""
        stats = {name: values[:, keep].copy() if name in PER_DRAW else values for name, values in self.stats.items()}
        if "gradients" in stats and self.n_draws:
            stats["gradients"] = stats["gradients"] // self.n_draws * covered
        return stats

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write everything but the data to one .npz file (no pickle), which `load` reads.

        Parameters
        ----------
        path : path-like
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
        header, arrays = self.to_arrays()
        save_arrays(path, self.file_kind, header, arrays, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read draws written by `save`.

        Parameters
        ----------
        path : path-like

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
        content = load_arrays(path, cls.file_kind)
        with rebuilding(path):
            return cls.from_arrays(*content)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the draws as JSON-able values, of the names `ENTRIES`, and arrays by name, as in files."""
        header = {"settings": self.settings, "stats": list(self.stats)}
        return header, {"theta": self.theta, **{f"stat_{name}": values for name, values in self.stats.items()}}

    @classmethod
    @abstractmethod
    def from_arrays(cls, header: Mapping[str, Any], arrays: Stats) -> Self:
        """Rebuild draws from what `to_arrays` returned."""

    def _overview(self) -> list[tuple[str, str]]:
        """Return labels and values of the table for notebooks."""
        known = self.settings
        steps = f"{self.n_chains} chains x {self.n_draws} draws (thin {known['thin']})"
        if "warmup_steps" in known:
            steps += f" after {known['warmup_steps']} warm-up steps"
        rows = [("sampler", self.sampler), ("draws", steps)]
        if "seed" in known:
            rows.append(("seed", str(known["seed"])))
        if "seconds" in known:
            cut = "" if known.get("completed", True) else ", interrupted"
            rows.append(("run", f"{known['seconds']:.1f} s on {known.get('device', 'cpu')}{cut}"))
        if "acceptance_rate" in self.stats and self.n_draws:
            rates = self.stats["acceptance_rate"].mean(axis=1)
            rows.append(("acceptance by chain", ", ".join(f"{rate:.2f}" for rate in rates)))
        if self.n_draws >= _LEAST_FOR_RHAT:
            found = convergence(self.stats["log_likelihood"])
            rows.append(("log-likelihood", f"R-hat {found.max_rhat:.3f}, bulk ESS {found.min_ess_bulk:.0f}"))
        return rows

    def _repr_html_(self) -> str:
        """Return a table of what the draws are, for notebooks; whether they serve is what `summary` says."""
        return html_table(repr(self), self._overview())

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, which hold the draws on the host only."""
        return {**self.__dict__, "_theta": self.theta, "_device_theta": None}

    def _flat_theta(self) -> npt.NDArray[Any]:
        """Return theta with shape (chain * draw, K)."""
        return self.theta.reshape(-1, self.theta.shape[-1])

    def _require_draws(self) -> None:
        """Raise ValueError if the run was interrupted before its first draw."""
        if self.n_draws == 0:
            raise ValueError("there are no draws: the run was interrupted before the first. Run `sample` again.")


def stats_of_file(header: Mapping[str, Any], arrays: Stats) -> dict[str, npt.NDArray[Any]]:
    """Return the statistics that `ChainDraws.to_arrays` wrote, by name."""
    return {name: arrays[f"stat_{name}"] for name in header["stats"]}
