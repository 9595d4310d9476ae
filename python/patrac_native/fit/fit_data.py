"""The rows of a fit as arrays, for training and scoring, and the units of their targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from patrac_native.fit.preprocessing import Preprocessor
from patrac_native.training.folds import IndexArray, copy_groups
from patrac_native.validation.checks import FloatArray


class TargetUnits(Protocol):
    """How standardised targets are converted to their own units; `Preprocessor` is one."""

    @property
    def target_scale(self) -> Any:
        """Standard deviation of the target, or of each of several, shape (t,)."""

    def inverse_target(self, values: npt.ArrayLike) -> FloatArray:
        """Convert standardised targets, (n,) or of several (n, t), to the targets' own units."""


class DataRows(NamedTuple):
    """Some rows of `FitArrays`: inputs, targets and, where they are not ones and zeros, weights and offsets."""

    X: FloatArray
    y: Any
    sample_weight: FloatArray | None = None
    offset: FloatArray | None = None


@dataclass(frozen=True)
class FitArrays:
    """Standardised training and held-out rows.

    Attributes
    ----------
    X, X_test : ndarray of float64, shape (n, d)
    y, y_test : ndarray, shape (n,) or (n, t)
        Standardised float64 targets, counts, or int64 labels.
    n_targets : int
        Number of targets, or of classes.
    units : TargetUnits
        Not used for labels.
    sample_weight : ndarray of float64, shape (n,), optional
        Weight of each training row in everything that is computed from it; by default ones.
    offset, offset_test : ndarray of float64, shape (n,), optional
        Logarithm of the exposure of each row of counts; by default zeros.
    """

    X: FloatArray
    y: Any
    X_test: FloatArray
    y_test: Any
    n_targets: int
    units: TargetUnits
    sample_weight: FloatArray | None = None
    offset: FloatArray | None = None
    offset_test: FloatArray | None = None

    def scored(self, max_rows: int) -> DataRows:
        """Return the rows that are scored: the held-out ones or, if there are none, spread training rows."""
        if len(self.X_test):
            return DataRows(self.X_test, self.y_test, None, self.offset_test)
        return self.rows(spread_rows(len(self.X), max_rows))

    @property
    def training(self) -> DataRows:
        """All training rows."""
        return DataRows(self.X, self.y, self.sample_weight, self.offset)

    def copies(self) -> IndexArray | None:
        """Return the `copy_groups` of the training rows."""
        return copy_groups(self.y, self.X, self.offset)

    def rows(self, rows: npt.NDArray[np.intp]) -> DataRows:
        """Return training rows."""
        weight, offset = (None if part is None else part[rows] for part in (self.sample_weight, self.offset))
        return DataRows(self.X[rows], self.y[rows], weight, offset)


@dataclass(frozen=True)
class FitData:
    """The rows of a table, and the preprocessor that converts them back.

    Attributes
    ----------
    preprocessor : Preprocessor
    X, X_test : ndarray of float64, shape (n, d)
    y, y_test : ndarray, shape (n,)
        Standardised float64 targets, counts, or int64 labels.
    offset, offset_test : ndarray of float64, shape (n,), optional
        Logarithm of the exposure of each row of counts; by default zeros.
    """

    preprocessor: Preprocessor
    X: FloatArray
    y: Any
    X_test: FloatArray
    y_test: Any
    offset: FloatArray | None = None
    offset_test: FloatArray | None = None

    @property
    def arrays(self) -> FitArrays:
        """The rows without the table."""
        return FitArrays(
            self.X,
            self.y,
            self.X_test,
            self.y_test,
            self.preprocessor.n_targets,
            self.preprocessor,
            offset=self.offset,
            offset_test=self.offset_test,
        )


def spread_rows(n: int, max_rows: int) -> npt.NDArray[np.intp]:
    """Return up to `max_rows` indices that are spread evenly over n rows."""
    return np.linspace(0, n - 1, min(max_rows, n)).round().astype(np.intp)
