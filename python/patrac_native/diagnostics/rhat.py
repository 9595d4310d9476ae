"""Convergence in function space: R-hat, bulk and tail ESS and Monte Carlo standard errors, computed by ArviZ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.diagnostics._arrays import FloatArray, chain_draws

# ArviZ splits each chain into halves, which requires four draws.
_MIN_DRAWS = 4
# Tail ESS is the smaller ESS of the 5% and 95% quantiles (Vehtari et al., Bayesian Analysis 2021, section 4.3).
_TAIL = (0.05, 0.95)


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


def convergence(f: ArrayLike, *, quantiles: Sequence[float] = ()) -> ConvergenceSummary:
    """Evaluate R-hat, bulk and tail ESS and MCSE at each row and output with `arviz_stats`.

    Function values are identified, network weights are not. So convergence should be checked on a grid of inputs and on
    the log-likelihood, not on the weights (docs/method.md, section 8). ArviZ takes a few milliseconds for each point
    and thousand draws, so the grid should have tens to hundreds of inputs rather than a whole data set.

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
        ArviZ needs two chains for R-hat and splits each. A single chain is passed to it as two halves, without the
        middle draw of an odd number; so for one chain R-hat compares quarters, and it is NaN below 8 draws.

    Raises
    ------
    TypeError
        If `f` does not hold real numbers.
    ValueError
        If `f` has fewer than two axes or fewer than 4 draws, holds NaN or infinity, or a quantile lies outside (0, 1).

    Notes
    -----
    Vehtari, Gelman, Simpson, Carpenter and Bürkner, Rank-normalization, folding, and localization, Bayesian Analysis
    16(2), 2021.
    """
    array_stats: Any = import_module("arviz_stats.base").array_stats

    draws = chain_draws("f", f, min_draws=_MIN_DRAWS)
    levels = tuple(float(q) for q in quantiles)
    if any(not 0.0 < q < 1.0 for q in levels):
        raise ValueError(f"quantiles must lie strictly between 0 and 1, got {levels}")
    n_chains, n_draws = draws.shape[:2]
    shape = draws.shape[2:]
    x = draws.reshape(n_chains, n_draws, -1).astype(np.float64)
    moves = np.ptp(x, axis=(0, 1)) > 0
    moving = x[:, :, moves]

    def at_points(values: NDArray[Any] | None) -> FloatArray:
        out = np.full(moves.shape, np.nan)
        if values is not None and moves.any():
            out[moves] = values
        return out.reshape(shape)

    def mcse_quantile(level: float) -> FloatArray:
        return at_points(array_stats.mcse(moving, chain_axis=0, draw_axis=1, method="quantile", prob=level))

    # If chains are constant but differ from each other, the within-chain variance is zero and R-hat is infinite. That
    # is the right answer, so NumPy's warning is silenced.
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = None
        halves = moving if n_chains > 1 else _halves(moving)
        if halves.shape[1] >= _MIN_DRAWS:
            rhat = array_stats.rhat(halves, chain_axis=0, draw_axis=1, method="rank")
        return ConvergenceSummary(
            rhat=at_points(rhat),
            ess_bulk=at_points(array_stats.ess(moving, chain_axis=0, draw_axis=1, method="bulk")),
            ess_tail=at_points(array_stats.ess(moving, chain_axis=0, draw_axis=1, method="tail", prob=_TAIL)),
            mcse_mean=at_points(array_stats.mcse(moving, chain_axis=0, draw_axis=1, method="mean")),
            mean=x.mean(axis=(0, 1)).reshape(shape),
            sd=x.std(axis=(0, 1), ddof=1).reshape(shape),
            mcse_quantiles=np.array([mcse_quantile(q) for q in levels]).reshape((len(levels), *shape)),
            quantiles=levels,
            n_chains=n_chains,
            n_draws=n_draws,
            n_constant=int((~moves).sum()),
        )


def _halves(x: FloatArray) -> FloatArray:
    """Split one chain (1, draw, points) into two chains (2, draw // 2, points)."""
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]], axis=0)


def _worst(values: FloatArray, *, largest: bool) -> float:
    """Return the largest or smallest entry that is not NaN; NaN if there is none."""
    known = values[~np.isnan(values)]
    if known.size == 0:
        return float("nan")
    return float(known.max() if largest else known.min())
