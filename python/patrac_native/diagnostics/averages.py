"""Means over draws, in the same order of additions for any number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from patrac_native.diagnostics._arrays import FloatArray


def mean_over_draws(values: NDArray[Any], weights: FloatArray | None = None) -> FloatArray:
    """Return the mean of values (M, ...) over M draws, whose weights are (M,) or of the shape of the values.

    NumPy adds a single column pairwise, and several draw by draw. A single one is computed twice, so that the bits of a
    row's prediction do not depend on the number of rows.
    """
    if values[0].size != 1:
        return np.asarray(np.average(values, axis=0, weights=weights))

    def twice(column: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(column.reshape(-1, 1), 2, axis=1)

    both = weights if weights is None or weights.ndim == 1 else twice(weights)
    return np.asarray(np.average(twice(values), axis=0, weights=both)[:1].reshape(values.shape[1:]))
