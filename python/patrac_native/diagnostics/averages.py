"""Sums and means over draws, in the same order of additions for any number of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patrac_native.diagnostics._arrays import FloatArray


def over_draws(reduced: Callable[..., Any], *values: NDArray[Any]) -> FloatArray:
    """Return what a function reduces arrays (M, ...) to along their first axis, be it one number (...) or several.

    NumPy adds a single column pairwise, and several draw by draw. A single one is reduced twice, so that the bits of a
    row's prediction do not depend on the number of rows.
    """
    if values[0][0].size != 1:
        return np.asarray(reduced(*values))
    twice = [np.repeat(one.reshape(-1, 1), 2, axis=1) for one in values]
    once: FloatArray = np.asarray(reduced(*twice)[0])
    return once.reshape(values[0].shape[1:] + once.shape)


def mean_over_draws(values: NDArray[Any], weights: FloatArray | None = None) -> FloatArray:
    """Return the mean of values (M, ...) over M draws, whose weights are (M,) or of the shape of the values."""
    if weights is None or weights.ndim == 1:
        return over_draws(lambda each: np.average(each, axis=0, weights=weights), values)
    return over_draws(lambda each, shares: np.average(each, axis=0, weights=shares), values, weights)


def log_mean_over_draws(logarithms: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the log of the mean of exp(logarithms), (M, n), over M draws, whose weights, (M,) or (M, n), sum to 1."""
    if weights is not None:
        with np.errstate(divide="ignore"):  # a weight of zero
            shares = np.log(len(weights) * weights)
        logarithms = logarithms + (shares[:, None] if shares.ndim == 1 else shares)
    top = logarithms.max(axis=0)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):  # a density of zero in every draw
        return np.asarray(np.log(mean_over_draws(np.exp(logarithms - top))) + top)
