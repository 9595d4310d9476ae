"""Leave-one-out predictions without refitting: Pareto-smoothed importance sampling of the draws, by ArviZ."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from patrac_native.diagnostics._arrays import chain_draws
from patrac_native.validation.checks import FloatArray

# A shape of the tail above this, or above 1 - 1/log10(draws) if that is smaller, marks an unreliable estimate
# (Vehtari, Simpson, Gelman, Yao and Gabry 2024, Pareto smoothed importance sampling).
_KHAT = 0.7

# The smallest number of draws that have a tail to smooth.
LEAST_DRAWS = 25
# Log densities that differ by less, as those of a bound far from all draws, are constant but for rounding.
_SAME = 1e-12


@dataclass(frozen=True)
class LeaveOneOut:
    """Predictions of each row by draws that are reweighted as if the row had not been in the data.

    Attributes
    ----------
    weights : ndarray of float64, shape (chain * draw, n)
        Weights of the draws for each row; each column sums to one.
    elpd_rows : ndarray of float64, shape (n,)
        Log predictive density of each row given all others.
    khat : ndarray of float64, shape (n,)
        Shape of the tail of each row's importance ratios.
    """

    weights: FloatArray
    elpd_rows: FloatArray
    khat: FloatArray

    @property
    def elpd(self) -> float:
        """Sum of `elpd_rows`: the expected log predictive density of Vehtari, Gelman and Gabry (2017)."""
        return float(self.elpd_rows.sum())

    @property
    def is_unreliable(self) -> npt.NDArray[np.bool_]:
        """Whether the `khat` of each row is too large for its estimate to be trusted, shape (n,)."""
        return np.asarray(self.khat > khat_limit(len(self.weights)))

    @property
    def unreliable(self) -> int:
        """Number of rows whose estimate is unreliable."""
        return int(self.is_unreliable.sum())


def khat_limit(draws: int) -> float:
    """Return the largest shape of the tail of reliable estimates from a number of draws."""
    return float(min(_KHAT, 1 - 1 / np.log10(draws)))


def leave_one_out(log_likelihood: ArrayLike) -> LeaveOneOut:
    """Reweight draws for leave-one-out predictions of the rows of the training data.

    Parameters
    ----------
    log_likelihood : array_like, shape (chain, draw, n)
        Log-likelihood of each row in each draw, of the data from which the draws were made; at least 25 draws in all,
        so that there is a tail to smooth.

    Returns
    -------
    LeaveOneOut

    Raises
    ------
    TypeError
        If `log_likelihood` does not hold real numbers.
    ValueError
        If it has another number of axes, too few draws, or holds NaN or infinity.

    Notes
    -----
    Vehtari, Gelman and Gabry, Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC,
    Statistics and Computing 27, 2017.
    """
    values = chain_draws("log_likelihood", log_likelihood, min_draws=1)
    if values.ndim != 3:
        raise ValueError(f"log_likelihood must have shape (chain, draw, n); got {values.shape}.")
    flat = values.reshape(-1, values.shape[2]).astype(np.float64)
    if len(flat) < LEAST_DRAWS:
        raise ValueError(
            f"log_likelihood has {len(flat)} draws in all; leave-one-out predictions need at least {LEAST_DRAWS}."
        )
    smoothed = [_smoothed(column) for column in flat.T]
    log_weights = np.stack([weights for weights, _ in smoothed], axis=1)
    weights = np.exp(log_weights - log_weights.max(axis=0))
    weights /= weights.sum(axis=0)
    return LeaveOneOut(weights, weighted_log_mean(flat, weights), np.array([khat for _, khat in smoothed]))


def weighted_log_mean(log_density: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the log of the weighted mean of densities over draws (n,), given logarithms (M, n)."""
    from scipy.special import logsumexp

    with np.errstate(divide="ignore"):  # a weight of zero
        mean: FloatArray = logsumexp(log_density + np.log(weights), axis=0)
    return mean


def _smoothed(log_likelihood: FloatArray) -> tuple[FloatArray, float]:
    """Return the log weights of draws (M,) for one row, and the shape of their tail; -inf if they do not vary."""
    if np.ptp(log_likelihood) <= _SAME:
        return np.zeros_like(log_likelihood), -np.inf
    array_stats: Any = import_module("arviz_stats.base").array_stats
    # ArviZ fits no tail to equal values, as chains leave them that stand still; nothing is known about the ratios.
    try:
        with np.errstate(invalid="ignore", divide="ignore"):
            log_weights, khat = array_stats.psislw(log_likelihood)
    except ValueError:
        return -log_likelihood, np.inf
    if not np.isfinite(log_weights).any() or np.isnan(log_weights).any():
        return -log_likelihood, np.inf
    return np.asarray(log_weights, dtype=np.float64), float(khat)
