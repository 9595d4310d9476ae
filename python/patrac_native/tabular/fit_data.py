"""The rows of a fit as arrays, for training and scoring, and the units of their targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from patrac_native.tabular.preprocessing import Preprocessor
from patrac_native.validation.checks import FloatArray


class TargetUnits(Protocol):
    """How standardised targets are converted to their own units; `Preprocessor` is one."""

    @property
    def target_scale(self) -> Any:
        """Standard deviation of the target, or of each of several, shape (t,)."""

    def inverse_target(self, values: npt.ArrayLike) -> FloatArray:
        """Convert standardised targets, (n,) or of several (n, t), to the targets' own units."""


@dataclass(frozen=True)
class FitArrays:
    """Standardised training and held-out rows.

    Attributes
    ----------
    X, X_test : ndarray of float64, shape (n, d)
    y, y_test : ndarray, shape (n,) or (n, t)
        Standardised float64 targets, or int64 labels.
    n_outputs : int
        Number of outputs of the network.
    units : TargetUnits
        Not used for labels.
    sample_weight : ndarray of float64, shape (n,), optional
        Weight of each training row in everything that is computed from it; by default ones.
    """

    X: FloatArray
    y: Any
    X_test: FloatArray
    y_test: Any
    n_outputs: int
    units: TargetUnits
    sample_weight: FloatArray | None = None

    def scored(self, max_rows: int) -> tuple[FloatArray, Any, FloatArray | None]:
        """Return rows that are scored, with weights: the held-out ones or, if there are none, spread training rows."""
        if len(self.X_test):
            return self.X_test, self.y_test, None
        rows = spread_rows(len(self.X), max_rows)
        return self.X[rows], self.y[rows], self.weights_of(rows)

    def weights_of(self, rows: npt.NDArray[np.intp]) -> FloatArray | None:
        """Return the weights of training rows, None if all are one."""
        return None if self.sample_weight is None else self.sample_weight[rows]


@dataclass(frozen=True)
class FitData:
    """The rows of a table, and the preprocessor that converts them back.

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

    @property
    def arrays(self) -> FitArrays:
        """The rows without the table."""
        return FitArrays(self.X, self.y, self.X_test, self.y_test, self.preprocessor.n_outputs, self.preprocessor)


def spread_rows(n: int, max_rows: int) -> npt.NDArray[np.intp]:
    """Return up to `max_rows` indices that are spread evenly over n rows."""
    return np.linspace(0, n - 1, min(max_rows, n)).round().astype(np.intp)
