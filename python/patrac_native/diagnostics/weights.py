"""Weights of several models by their leave-one-out predictions: stacking and pseudo-BMA+."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from patrac_native.validation.checks import FloatArray, as_real_array

WeightMethod = Literal["stacking", "pseudo-bma+", "equal"]
# Bayesian bootstrap samples of pseudo-BMA+, and their seed.
_BOOTSTRAP_SAMPLES, _BOOTSTRAP_SEED = 1000, 0
# Least weight at which the log score is evaluated, so that an optimiser that touches a corner stays finite.
_LEAST = 1e-15


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
        mixed = weights @ density
        return -float(np.log(mixed).mean()), -(density / mixed).mean(axis=1)

    def clipped(weights: FloatArray) -> tuple[float, FloatArray]:
        return loss(np.maximum(weights, _LEAST))

    found = minimize(
        clipped,
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
