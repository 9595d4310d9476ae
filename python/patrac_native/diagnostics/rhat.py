"""Convergence in function space: R-hat, bulk and tail ESS and Monte Carlo standard errors, as ArviZ defines them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from patrac_native.diagnostics._arrays import FloatArray, chain_draws, processors, row_slices
from patrac_native.diagnostics.rank_statistics import rank_statistics, split_chains
from patrac_native.validation.checks import check_probabilities

# ArviZ splits each chain into halves, which requires four draws.
_MIN_DRAWS = 4


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
        return _worst(self.rhat, largest=True)

    @property
    def min_ess_bulk(self) -> float:
        """Smallest bulk ESS; NaN only if no point has one."""
        return _worst(self.ess_bulk, largest=False)

    @property
    def min_ess_tail(self) -> float:
        """Smallest tail ESS; NaN only if no point has one."""
        return _worst(self.ess_tail, largest=False)

    @property
    def max_mcse(self) -> float:
        """Largest Monte Carlo standard error of a mean; NaN only if no point has one."""
        return _worst(self.mcse_mean, largest=True)

    def worst(self) -> dict[str, float]:
        """Return the four worst values by name, for reports and JSON files."""
        return {
            "max_rhat": self.max_rhat,
            "min_ess_bulk": self.min_ess_bulk,
            "min_ess_tail": self.min_ess_tail,
            "max_mcse": self.max_mcse,
        }


def convergence(f: ArrayLike, *, quantiles: float | Sequence[float] = ()) -> ConvergenceSummary:
    """Evaluate R-hat, bulk and tail ESS and MCSE at each row and output, as `arviz_stats` does for one quantity.

    Function values are identified, network weights are not. So convergence should be checked on a grid of inputs and on
    the log-likelihood, not on the weights (docs/method.md, section 8). The memory is bounded, whatever the number of
    points; quantiles take longer than the rest.

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
    draws = chain_draws("f", f, min_draws=_MIN_DRAWS)
    levels = tuple(check_probabilities(quantiles, "quantiles", may_be_empty=True))
    n_chains, n_draws = draws.shape[:2]
    shape = draws.shape[2:]
    x = draws.reshape(n_chains, n_draws, -1)
    n_points = x.shape[2]
    found = {name: np.full(n_points, np.nan) for name in ("rhat", "ess_bulk", "ess_tail", "mcse_mean", "mean", "sd")}
    at_quantiles = np.full((len(levels), n_points), np.nan)
    moves = np.zeros(n_points, dtype=bool)

    def evaluate(points: slice) -> None:
        block = np.ascontiguousarray(np.moveaxis(x[:, :, points], 2, 0), dtype=np.float64)
        found["mean"][points] = block.mean(axis=(1, 2))
        found["sd"][points] = block.std(axis=(1, 2), ddof=1)
        moves[points] = np.ptp(block, axis=(1, 2)) > 0
        rows = np.arange(n_points)[points][moves[points]]
        if not len(rows):
            return
        moving = block[moves[points]]
        halves = moving if n_chains > 1 else split_chains(moving)
        statistics = rank_statistics(moving, halves if halves.shape[2] >= _MIN_DRAWS else None)
        for name, values in vars(statistics).items():
            found[name][rows] = values
        for index, level in enumerate(levels):
            at_quantiles[index, rows] = _mcse_quantile(moving, level)

    # About a dozen temporary arrays have the size of the draws of a slice, in float64. Sorts and Fourier transforms run
    # without the interpreter's lock; two threads at most, because each has these arrays.
    with ThreadPoolExecutor(min(2, processors())) as pool:
        list(pool.map(evaluate, row_slices(n_points, 12 * n_chains * n_draws * 8)))
    return ConvergenceSummary(
        **{name: values.reshape(shape) for name, values in found.items()},
        mcse_quantiles=at_quantiles.reshape((len(levels), *shape)),
        quantiles=levels,
        n_chains=n_chains,
        n_draws=n_draws,
        n_constant=int((~moves).sum()),
    )


def joined(parts: Sequence[ConvergenceSummary]) -> ConvergenceSummary:
    """Return the statistics of blocks of grid points, each of shape (rows, ...), as those of all points."""
    first = parts[0]
    names = ("rhat", "ess_bulk", "ess_tail", "mcse_mean", "mean", "sd")
    return ConvergenceSummary(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
        mcse_quantiles=np.concatenate([part.mcse_quantiles for part in parts], axis=1),
        quantiles=first.quantiles,
        n_chains=first.n_chains,
        n_draws=first.n_draws,
        n_constant=sum(part.n_constant for part in parts),
    )


def _mcse_quantile(x: FloatArray, level: float) -> FloatArray:
    """Monte Carlo standard error of a quantile of each of p quantities (p, chain, draw)."""
    array_stats: Any = import_module("arviz_stats.base").array_stats
    found: FloatArray = array_stats.mcse(np.moveaxis(x, 0, 2), chain_axis=0, draw_axis=1, method="quantile", prob=level)
    return found


def _worst(values: FloatArray, *, largest: bool) -> float:
    """Return the largest or smallest entry that is not NaN; NaN if there is none."""
    known = values[~np.isnan(values)]
    if known.size == 0:
        return float("nan")
    return float(known.max() if largest else known.min())
