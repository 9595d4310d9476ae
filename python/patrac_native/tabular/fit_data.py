"""The rows of a table as arrays, for training and scoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.tabular.preprocessing import Preprocessor
from patrac_native.validation.checks import FloatArray


@dataclass(frozen=True)
class FitData:
    """Standardised training and held-out rows, and the preprocessor that converts them back.

    Attributes
    ----------
    preprocessor : Preprocessor
    X, X_test : ndarray of float64, shape (n, d)
    y, y_test : ndarray, shape (n,)
        Standardised float64 targets, or int64 labels.
    """

    preprocessor: Preprocessor
    X: FloatArray
    y: Any
    X_test: FloatArray
    y_test: Any

    def scored(self, max_rows: int) -> tuple[FloatArray, Any]:
        """Return the rows that are scored: the held-out ones or, where there are none, up to `max_rows` of training."""
        if len(self.X_test):
            return self.X_test, self.y_test
        rows = spread_rows(len(self.X), max_rows)
        return self.X[rows], self.y[rows]


def spread_rows(n: int, max_rows: int) -> npt.NDArray[np.intp]:
    """Return up to `max_rows` indices that are spread evenly over n rows."""
    return np.linspace(0, n - 1, min(max_rows, n)).round().astype(np.intp)
