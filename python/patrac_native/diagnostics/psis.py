"""Leave-one-out predictions by ArviZ's Pareto-smoothed importance sampling, and weights of models by them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from patrac_native.diagnostics._arrays import chain_draws
from patrac_native.diagnostics.averages import log_mean_over_draws, mean_over_draws
from patrac_native.validation.checks import FloatArray, as_real_array

# A shape of the tail above this, or above 1 - 1/log10(draws) if that is smaller, marks an unreliable estimate
# (Vehtari, Simpson, Gelman, Yao and Gabry 2024, Pareto smoothed importance sampling).
_KHAT = 0.7

# The smallest number of draws that have a tail to smooth.
_LEAST_DRAWS = 25
# Log densities that differ by less, as those of a bound far from all draws, are constant but for rounding.
_SAME = 1e-12

WeightMethod = Literal["stacking", "pseudo-bma+", "equal"]
# Bayesian bootstrap samples of pseudo-BMA+, and their seed.
_BOOTSTRAP_SAMPLES, _BOOTSTRAP_SEED = 1000, 0
# Least weight at which the log score is evaluated, so that an optimiser that touches a corner stays finite.
_LEAST_WEIGHT = 1e-15


@dataclass(frozen=True, eq=False)
class LeftOutRows:
    """Predictions of rows by draws that are reweighted as if each row had not been in the data."""

    elpd_rows: FloatArray
    khat: FloatArray
    n_draws: int

    @property
    def elpd(self) -> float:
        """Sum of `elpd_rows`: the expected log predictive density of Vehtari, Gelman and Gabry (2017)."""
        return float(self.elpd_rows.sum())

    @property
    def khat_limit(self) -> float:
        """Largest shape of the tail of a reliable estimate."""
        return float(min(_KHAT, 1 - 1 / np.log10(self.n_draws)))

    @property
    def is_unreliable(self) -> npt.NDArray[np.bool_]:
        """Whether the `khat` of each row is too large for its estimate to be trusted, shape (n,)."""
        return np.asarray(self.khat > self.khat_limit)

    @property
    def unreliable(self) -> int:
        """Number of rows whose estimate is unreliable."""
        return int(self.is_unreliable.sum())


@dataclass(frozen=True, eq=False)
class LeaveOneOut(LeftOutRows):
    """Predictions of each row by draws that are reweighted as if the row had not been in the data.

    Attributes
    ----------
    weights : ndarray of float64, shape (chain * draw, n)
        Weights of the draws for each row; each column sums to one.
    elpd_rows : ndarray of float64, shape (n,)
        Log predictive density of each row given all others.
    khat : ndarray of float64, shape (n,)
        Shape of the tail of each row's importance ratios.
    n_draws : int
        Number of draws of all chains.
    """

    weights: FloatArray


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
    if len(flat) < _LEAST_DRAWS:
        raise ValueError(
            f"log_likelihood has {len(flat)} draws in all; leave-one-out predictions need at least {_LEAST_DRAWS}."
        )
    smoothed = [_smoothed(column) for column in flat.T]
    log_weights = np.stack([weights for weights, _ in smoothed], axis=1)
    weights = np.exp(log_weights - log_weights.max(axis=0))
    weights /= len(weights) * mean_over_draws(weights)
    khat = np.array([khat for _, khat in smoothed])
    return LeaveOneOut(log_mean_over_draws(flat, weights), khat, len(flat), weights)


def _smoothed(log_likelihood: FloatArray) -> tuple[FloatArray, float]:
    """Return the log weights of draws (M,) for one row, and the shape of their tail; -inf if they do not vary."""
    if np.ptp(log_likelihood) <= _SAME:
        return np.zeros_like(log_likelihood), -np.inf
    array_stats: Any = import_module("arviz_stats.base").array_stats
    # ArviZ fits no tail to equal values, as chains leave them that stand still, and overflows at tiny ones; nothing is
    # known about the ratios.
    try:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            log_weights, khat = array_stats.psislw(log_likelihood)
    except ValueError:
        return -log_likelihood, np.inf
    if not np.isfinite(log_weights).any() or np.isnan(log_weights).any():
        return -log_likelihood, np.inf
    return np.asarray(log_weights, dtype=np.float64), float(khat)


def model_weights(elpd_rows: ArrayLike, method: WeightMethod = "stacking") -> FloatArray:
    """Return the weights of models in a mixture of their predictive distributions.

    Parameters
    ----------
    elpd_rows : array_like, shape (models, n)
        Log predictive density of each row given all others under each model, such as `leave_one_out(...).elpd_rows`;
        the same rows for all models.
    method : {"stacking", "pseudo-bma+", "equal"}
        "stacking", the default, maximises the log score of the mixture on the left-out rows. "pseudo-bma+" gives
        weights proportional to exp(elpd), averaged over Bayesian bootstrap samples of the rows, and keeps models that
        are about as good as each other. "equal" ignores the predictions.

    Returns
    -------
    ndarray of float64, shape (models,)
        Nonnegative, with a sum of one.

    Raises
    ------
    TypeError
        If `elpd_rows` does not hold real numbers.
    ValueError
        If it has another number of axes, a model or a row is missing, an entry is NaN or infinite, or the method is
        unknown.

    Notes
    -----
    Yao, Vehtari, Simpson and Gelman, Using stacking to average Bayesian predictive distributions, Bayesian Analysis 13,
    2018.

    Examples
    --------
    >>> rows = np.log([[0.4, 0.4, 0.1, 0.4], [0.1, 0.2, 0.4, 0.1]])
    >>> model_weights(rows).round(2), model_weights(rows, "equal")
    (array([0.88, 0.12]), array([0.5, 0.5]))
    """
    values = as_real_array(elpd_rows, "elpd_rows")
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"elpd_rows must have shape (models, n), both at least 1; got {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError("elpd_rows must be finite: a model gives a row a density of zero, or a chain has diverged.")
    count = len(values)
    if method == "equal" or count == 1:
        return np.full(count, 1.0 / count)
    if method not in ("stacking", "pseudo-bma+"):
        raise ValueError(f'method must be "stacking", "pseudo-bma+" or "equal"; got {method!r}.')
    return _stacked(values) if method == "stacking" else _pseudo_bma(values)


def _stacked(elpd_rows: FloatArray) -> FloatArray:
    """Return the weights that maximise the mean over rows of log sum_k w_k exp(elpd_kr), a concave function."""
    from scipy.optimize import Bounds, LinearConstraint, minimize

    count = len(elpd_rows)
    # What is common to all models changes no weight, and without it the densities neither overflow nor all underflow.
    density = np.exp(elpd_rows - elpd_rows.max(axis=0))

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        mixed = np.maximum(weights, _LEAST_WEIGHT) @ density
        return -float(np.log(mixed).mean()), -(density / mixed).mean(axis=1)

    found = minimize(
        loss,
        np.full(count, 1.0 / count),
        jac=True,
        method="SLSQP",
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(np.ones(count), 1.0, 1.0),
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    weights: FloatArray = np.maximum(found.x, 0.0)
    weights /= weights.sum()
    return weights


def _pseudo_bma(elpd_rows: FloatArray) -> FloatArray:
    """Return exp(elpd), normalised and averaged over Bayesian bootstrap samples of the rows."""
    from scipy.special import softmax

    count, n = elpd_rows.shape
    rng = np.random.default_rng(_BOOTSTRAP_SEED)
    relative = elpd_rows - elpd_rows.max(axis=0)
    total = np.zeros(count)
    for _ in range(_BOOTSTRAP_SAMPLES):
        shares: FloatArray = rng.standard_exponential((n,))  # Dirichlet(1, ..., 1), once they are divided by their sum
        total += softmax(n * (relative @ shares) / shares.sum())
    return total / _BOOTSTRAP_SAMPLES
