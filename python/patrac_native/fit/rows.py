"""The rows of a fit as arrays, and the units of their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.files import check_entries, check_numbers
from patrac_native.fit.preprocessor import mean_and_scale

FloatArray = npt.NDArray[np.float64]
# Scales of targets whose squares, by a factor of 1e8 to either side, are normal numbers of float64.
_SMALLEST, _LARGEST = 1e-150, 1e150


@dataclass(frozen=True)
class TargetScaling:
    """The conversion of the targets y to those of the network, (y - mean) / scale, and back.

    Attributes
    ----------
    mean, scale : ndarray of float64, shape (t,)
        One for each target; 0 and 1 for counts and classes, which stay as they are.
    """

    mean: FloatArray
    scale: FloatArray

    @classmethod
    def identity(cls, targets: int = 1) -> TargetScaling:
        """Return the conversion that leaves targets as they are."""
        return cls(np.zeros(targets), np.ones(targets))

    @classmethod
    def fit(cls, y: FloatArray, weights: FloatArray | None, *, standardize: bool) -> TargetScaling:
        """Compute the moments of the columns of y (n, t); raise ValueError if one is constant."""
        names = ["y"] if y.shape[1] == 1 else [f"y[:, {index}]" for index in range(y.shape[1])]
        moments = np.array([mean_and_scale(column, weights) for column in y.T])
        for name, column, (_, scale) in zip(names, y.T, moments, strict=True):
            if scale == 0:
                raise ValueError(f"{name} is {column[0]:g} in every row; give rows in which it varies.")
            # Variances are in the square of its units.
            if not _SMALLEST <= scale <= _LARGEST:
                raise ValueError(f"{name} varies by {scale:.3g}, whose square float64 cannot hold; change its unit.")
        return cls(*moments.T) if standardize else cls.identity(y.shape[1])

    @property
    def target_scale(self) -> Any:
        """The scale, as a number if there is one target."""
        return float(self.scale[0]) if len(self.scale) == 1 else self.scale

    def transform(self, y: FloatArray) -> FloatArray:
        """Return the targets of the network for y (n, t), (n,) for one target; or, of q numbers each, (n, t, q)."""
        if y.ndim == 3:
            return np.ascontiguousarray((y - self.mean[:, None]) / self.scale[:, None])
        values: FloatArray = (y - self.mean) / self.scale
        return np.ascontiguousarray(values[:, 0] if len(self.scale) == 1 else values)

    def inverse_target(self, values: npt.ArrayLike) -> FloatArray:
        """Convert targets of the network, (n,) or (n, 1) of one target or (n, t), to the units of y."""
        mean = self.mean[0] if len(self.scale) == 1 else self.mean
        return np.asarray(np.asarray(values, dtype=np.float64) * self.target_scale + mean)

    def describe(self) -> str:
        """Return the conversion in words."""
        if (self.scale == 1).all() and (self.mean == 0).all():
            return f"y: {len(self.scale)} targets, as they are" if len(self.scale) > 1 else "y: as it is"
        shown = [f"mean {m:.5g}, standard deviation {sd:.5g}" for m, sd in zip(self.mean, self.scale, strict=True)]
        return f"y: standardised by {'; '.join([*shown[:5], *(['...'] if len(shown) > 5 else [])])}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values, whose numbers are exact."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> TargetScaling:
        """Rebuild from what `to_dict` returned."""
        check_entries(content, {"mean": list, "scale": list}, "the scaling of the targets")
        for name, values in content.items():
            check_numbers(values, f"{name} of the targets")
        if len(content["mean"]) != len(content["scale"]) or not all(scale > 0 for scale in content["scale"]):
            raise ValueError("the scales of the targets are not one positive number for each mean")
        return cls(np.array(content["mean"], dtype=np.float64), np.array(content["scale"], dtype=np.float64))


class Rows(NamedTuple):
    """Rows of a fit: inputs (n, d), targets (n,) or (n, t), and weights and log exposures (n,) if there are any."""

    X: FloatArray
    y: Any
    sample_weight: FloatArray | None = None
    offset: FloatArray | None = None

    def take(self, rows: npt.NDArray[np.intp]) -> Rows:
        """Return some of the rows."""
        weights, offset = (None if part is None else part[rows] for part in (self.sample_weight, self.offset))
        return Rows(self.X[rows], self.y[rows], weights, offset)

    def spread(self, max_rows: int) -> Rows:
        """Return at most `max_rows` of the rows, evenly spread."""
        return self.take(np.linspace(0, len(self.X) - 1, min(max_rows, len(self.X))).round().astype(np.intp))


@dataclass(frozen=True)
class FitData:
    """What a fit is made from: standardised targets, counts, or labels 0..m-1 (int64).

    Attributes
    ----------
    training : Rows
    held_out : Rows or None
        Rows that are not trained on.
    n_targets : int
        Number of targets, or of classes.
    units : TargetScaling
    """

    training: Rows
    held_out: Rows | None
    n_targets: int
    units: TargetScaling

    @property
    def copies(self) -> npt.NDArray[np.intp] | None:
        """The groups of equal training rows, which splits keep together, if rows were copied."""
        y = np.reshape(self.training.y, (len(self.training.y), -1))
        return diagnostics.copy_groups(y, self.training.X, self.training.offset)

    def layer_sizes(self, hidden: Sequence[int], outputs_per_target: int) -> list[int]:
        """Return the layer sizes of a network."""
        return [self.training.X.shape[1], *hidden, outputs_per_target * self.n_targets]


def hold_out(
    inputs: Any, y: Any, fraction: float, *, seed: int, labels: npt.ArrayLike | None = None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], str]:
    """Return training and held-out rows of a table, each sorted, and a note if rows were copied, which stay together.

    `labels` (n,) are classes, of which each part gets its share. Raises ValueError if a part would be empty.
    """
    groups = diagnostics.copy_groups(y, inputs)
    *held, rows = diagnostics.split_rows(
        len(y), [fraction] if fraction else [], seed=seed, labels=labels, groups=groups
    )
    note = ""
    if groups is not None:
        count = len(groups) - len(np.unique(groups))
        what = f"{count} rows have the inputs of others, and some were" if count > 1 else "a row was"
        note = f"{what} copied; rows with equal inputs are trained on, held out or validated together"
    return rows, (held[0] if held else rows[:0]), note
