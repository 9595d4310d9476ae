"""Convergence in function space: R-hat, bulk and tail ESS and Monte Carlo standard errors, by ArviZ's functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from patrac_native.diagnostics._arrays import FloatArray, chain_draws
from patrac_native.validation.checks import check_probabilities

# ArviZ splits each chain into halves, which requires four draws.
_MIN_DRAWS = 4
# Tail ESS is the smaller ESS of the 5% and 95% quantiles (Vehtari et al., Bayesian Analysis 2021, section 4.3).
_TAIL = (0.05, 0.95)
_STATISTICS = ("rhat", "ess_bulk", "ess_tail", "mcse_mean", "mean", "sd")


@dataclass(frozen=True)
class ConvergenceSummary:
    """Convergence statistics at each grid point, and the worst value of each.

    Attributes
    ----------
    rhat, ess_bulk, ess_tail, mcse_mean, mean, sd : ndarray
        Rank-normalised split R-hat, bulk and tail effective sample size, Monte Carlo standard error of the mean,
        mean and standard deviation of the pooled draws. The shape is that of the draws without (chain, draw):
        (n, m) for function draws, () for a scalar such as the log-likelihood.
    mcse_quantiles : ndarray, shape (len(quantiles), ...)
        Monte Carlo standard error of each requested quantile.
    quantiles : tuple of float
        The requested quantiles.
    n_chains, n_draws : int
        Number of chains, and of draws in each.
    n_constant : int
        Number of grid points at which all draws of all chains are equal. There all statistics except mean and sd are
        NaN, because draws that never change contain no information about convergence.
    """

    rhat: FloatArray
    ess_bulk: FloatArray
    ess_tail: FloatArray
    mcse_mean: FloatArray
    mean: FloatArray
    sd: FloatArray
    mcse_quantiles: FloatArray
    quantiles: tuple[float, ...]
    n_chains: int
    n_draws: int
    n_constant: int

    @property
    def max_rhat(self) -> float:
        """Largest R-hat; NaN only if no point has one."""
        return _worst(self.rhat, np.max)

    @property
    def min_ess_bulk(self) -> float:
        """Smallest bulk ESS; NaN only if no point has one."""
        return _worst(self.ess_bulk, np.min)

    @property
    def min_ess_tail(self) -> float:
        """Smallest tail ESS; NaN only if no point has one."""
        return _worst(self.ess_tail, np.min)

    @property
    def max_mcse(self) -> float:
        """Largest Monte Carlo standard error of a mean; NaN only if no point has one."""
        return _worst(self.mcse_mean, np.max)

    def worst(self) -> dict[str, float]:
        """Return the four worst values by name, for reports and JSON files."""
        return {
            "max_rhat": self.max_rhat,
            "min_ess_bulk": self.min_ess_bulk,
            "min_ess_tail": self.min_ess_tail,
            "max_mcse": self.max_mcse,
        }


def convergence(f: ArrayLike, *, quantiles: float | Sequence[float] = ()) -> ConvergenceSummary:
    """Evaluate R-hat, bulk and tail ESS and MCSE at each row and output, as `arviz_stats` does.

    Function values are identified, network weights are not. So convergence should be checked on a grid of inputs and on
    the log-likelihood, not on the weights (docs/method.md, section 8). The memory is bounded, whatever the number of
    points.

    Parameters
    ----------
    f : array_like, shape (chain, draw, ...)
        Function draws (chain, draw, n, m), or a scalar of each draw such as the log-likelihood, (chain, draw). Each
        chain has at least 4 draws.
    quantiles : sequence of float in (0, 1), default ()
        Quantiles whose Monte Carlo standard errors are to be computed too.

    Returns
    -------
    ConvergenceSummary
        R-hat needs two chains and splits each. A single chain is first cut into two halves, without the middle draw of
        an odd number; so for one chain R-hat compares quarters, and it is NaN below 8 draws.

    Raises
    ------
    TypeError
        If `f` or `quantiles` are no real numbers.
    ValueError
        If `f` has fewer than two axes or fewer than 4 draws, holds NaN or infinity, or a quantile lies outside (0, 1).

    Notes
    -----
    Vehtari, Gelman, Simpson, Carpenter and Bürkner, Rank-normalization, folding, and localization, Bayesian Analysis
    16(2), 2021.
    """
    array_stats: Any = import_module("arviz_stats.base").array_stats
    draws = chain_draws("f", f, min_draws=_MIN_DRAWS)
    levels = tuple(check_probabilities(quantiles, "quantiles", may_be_empty=True))
    n_chains, n_draws = draws.shape[:2]
    shape, half = draws.shape[2:], n_draws // 2
    points = np.moveaxis(draws.reshape(n_chains, n_draws, -1), 2, 0)
    found = {name: np.full(len(points), np.nan) for name in _STATISTICS}
    at_quantiles = np.full((len(levels), len(points)), np.nan)
    n_constant = 0
    for index, point in enumerate(points):
        one = np.ascontiguousarray(point, dtype=np.float64)
        found["mean"][index], found["sd"][index] = one.mean(), one.std(ddof=1)
        if np.ptp(one) == 0:
            n_constant += 1
            continue
        # Chains that are constant but differ have the variance zero within them and an infinite R-hat, which is right.
        with np.errstate(divide="ignore", invalid="ignore"):
            compared = one if n_chains > 1 else np.concatenate([one[:, :half], one[:, n_draws - half :]])
            if compared.shape[1] >= _MIN_DRAWS:
                found["rhat"][index] = array_stats.rhat(compared)
            found["ess_bulk"][index] = array_stats.ess(one, method="bulk")
            found["ess_tail"][index] = array_stats.ess(one, method="tail", prob=_TAIL)
            found["mcse_mean"][index] = array_stats.mcse(one, method="mean")
            for row, level in enumerate(levels):
                at_quantiles[row, index] = array_stats.mcse(one, method="quantile", prob=level)
    return ConvergenceSummary(
        **{name: values.reshape(shape) for name, values in found.items()},
        mcse_quantiles=at_quantiles.reshape((len(levels), *shape)),
        quantiles=levels,
        n_chains=n_chains,
        n_draws=n_draws,
        n_constant=n_constant,
    )


def joined(parts: Sequence[ConvergenceSummary]) -> ConvergenceSummary:
    """Return the statistics of blocks of grid points, each of shape (rows, ...), as those of all points."""
    points: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _STATISTICS}
    return replace(
        parts[0],
        **points,
        mcse_quantiles=np.concatenate([part.mcse_quantiles for part in parts], axis=1),
        n_constant=sum(part.n_constant for part in parts),
    )


def _worst(values: FloatArray, worst_of: Callable[[FloatArray], Any]) -> float:
    """Return the largest or smallest entry that is not NaN; NaN if there is none."""
    known = values[~np.isnan(values)]
    return float(worst_of(known)) if known.size else math.nan
