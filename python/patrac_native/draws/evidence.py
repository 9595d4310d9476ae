"""The numbers of a run that determine its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics import ConvergenceSummary
from patrac_native.draws.calibration import Calibration
from patrac_native.model.architectures import Architecture
from patrac_native.model.fit_quality import FitQuality
from patrac_native.model.kernels import Kernel, kernel_from_dict
from patrac_native.validation.checks import FloatArray


@dataclass(frozen=True)
class Evidence:
    """The numbers of a run from which `judge` derives its verdict.

    Attributes
    ----------
    quantity : str
        "class probabilities", or what the likelihood calls the network's outputs, such as "f".
    architecture : type of Architecture
    kernel : Kernel
    n_draws, thin : int
        Number of draws of a chain, and of steps for each.
    max_rhat, min_ess_bulk, max_mcse : float
        Worst values over the summarised inputs; NaN if undefined.
    rhat_log_likelihood : float
    acceptance_rate, step_size, log_likelihood : ndarray, shape (chain,)
        Means over draws.
    longest_still : ndarray of int, shape (chain,)
        Largest number of consecutive steps, in multiples of `thin`, in which every proposal was rejected.
    spread : ndarray, shape (chain,)
        Variance of the quantity over the chain's own draws, averaged over inputs and outputs.
    nonfinite : ndarray, shape (chain,)
        Share of the proposals, without warm-up, that were rejected because a number was not finite.
    init : str
        Starting points: "auto", "map", "prior" or "given".
    warmup_steps : int
        Number of warm-up steps of each chain.
    warmup_stable : bool or None
        Whether the warm-up ended with a stable step size and log-likelihood; None if its length was fixed.
    fit : FitQuality or None
        Quality of the trained network's fit; None for draws of earlier versions, which do not contain it.
    calibration : Calibration or None
        Scores of predictions on rows that the draws have not seen, where there are any.
    """

    quantity: str
    architecture: type[Architecture]
    kernel: Kernel
    n_draws: int
    thin: int
    max_rhat: float
    min_ess_bulk: float
    max_mcse: float
    rhat_log_likelihood: float
    acceptance_rate: FloatArray
    step_size: FloatArray
    log_likelihood: FloatArray
    longest_still: npt.NDArray[np.int64]
    spread: FloatArray
    nonfinite: FloatArray
    init: str
    warmup_steps: int
    warmup_stable: bool | None
    fit: FitQuality | None
    calibration: Calibration | None = None

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return len(self.acceptance_rate)

    @property
    def steps(self) -> int:
        """Number of steps of each chain after the warm-up."""
        return self.n_draws * self.thin


def gather(
    values: npt.NDArray[Any],
    quantity: str,
    function: ConvergenceSummary,
    log_likelihood: float,
    *,
    architecture: Architecture,
    stats: Mapping[str, npt.NDArray[Any]],
    settings: Mapping[str, Any],
) -> Evidence:
    """Collect the evidence of a run.

    Parameters
    ----------
    values : ndarray, shape (chain, draw, n, m)
        Draws of the quantity.
    quantity : str
        Name of the quantity.
    function : ConvergenceSummary
        Convergence of `values`.
    log_likelihood : float
        R-hat of the log-likelihood.
    architecture : Architecture
    stats, settings : mapping
        As in `Draws`.

    Returns
    -------
    Evidence
    """
    n_draws = values.shape[1]
    thin = int(settings["thin"])
    fit = settings.get("fit")
    return Evidence(
        quantity=quantity,
        architecture=type(architecture),
        kernel=kernel_from_dict(settings["kernel"]),
        n_draws=n_draws,
        thin=thin,
        max_rhat=function.max_rhat,
        min_ess_bulk=function.min_ess_bulk,
        max_mcse=function.max_mcse,
        rhat_log_likelihood=log_likelihood,
        acceptance_rate=stats["acceptance_rate"].mean(axis=1),
        step_size=stats["step_size"].mean(axis=1),
        log_likelihood=stats["log_likelihood"].mean(axis=1),
        longest_still=thin * longest_run(stats["acceptance_rate"] == 0),
        spread=values.var(axis=1, dtype=np.float64).mean(axis=(1, 2)),
        nonfinite=stats["nonfinite"] / (n_draws * thin),
        init=settings["init"],
        warmup_steps=int(settings["warmup_steps"]),
        warmup_stable=settings["warmup_stable"],
        fit=None if fit is None else FitQuality.from_dict(fit),
    )


def longest_run(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the length of the longest sequence of consecutive True entries along the last axis.

    Examples
    --------
    >>> longest_run(np.array([[True, True, False, True], [False] * 4]))
    array([2, 0])
    """
    draws = np.arange(flags.shape[-1])
    # The position of the last False up to each entry, or -1 if there is none; the sequence begins just after it.
    last_false = np.maximum.accumulate(np.where(flags, -1, draws), axis=-1)
    runs: npt.NDArray[np.int64] = (draws - last_false).max(axis=-1, initial=0)
    return runs
