"""Standardisation of the inputs and targets of an estimator, by the moments of its training rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.fit.moments import common_scale, extremes, mean_and_scale
from patrac_native.validation.checks import FloatArray


def _check_spread(values: FloatArray, what: str) -> None:
    """Raise ValueError if a few values decide mean and scale of a column (`moments.extremes`)."""
    found = extremes(values)
    if found is not None:
        more = f" and {len(found) - 1} more such" if len(found) > 1 else ""
        raise ValueError(
            f"{what} has {values[found[0]]:g}{more}, beside which the other values are all alike, so that they would "
            f"say nothing. Correct or remove {'those rows' if more else 'that row'}, or take the logarithm."
        )


@dataclass(frozen=True)
class InputScaling:
    """The conversion of the columns of X to inputs of the network.

    Attributes
    ----------
    kept : ndarray of int, shape (d,)
        The columns that become inputs; those that are constant in the training rows do not.
    mean, scale : ndarray of float64, shape (d,)
        Of the kept columns; an input is (x - mean) / scale.
    """

    kept: npt.NDArray[np.intp]
    mean: FloatArray
    scale: FloatArray

    @classmethod
    def fit(cls, X: FloatArray, weights: FloatArray | None, names: Sequence[str], *, standardize: bool) -> InputScaling:
        """Compute the moments of the columns of X (n, d); without `standardize` X stays as it is.

        Raises
        ------
        ValueError
            If every column is constant, or a single value decides the scale of one.
        """
        columns = X.shape[1]
        if not standardize:
            return cls(np.arange(columns), np.zeros(columns), np.ones(columns))
        for name, column in zip(names, X.T, strict=True):
            _check_spread(column, f"{name} of X")
        moments = np.array([mean_and_scale(column, weights) for column in X.T])
        kept = np.flatnonzero(moments[:, 1])
        if len(kept) == 0:
            raise ValueError(f"every column of X is constant ({', '.join(names[:5])}); give one that varies.")
        mean, scale = moments[kept].T
        shared = common_scale(X[:, kept], scale)
        return cls(kept, mean, scale if shared is None else np.full(len(kept), shared))

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Return the inputs of the network, shape (n, d), for rows of X."""
        inputs: FloatArray = (np.asarray(X, dtype=np.float64)[:, self.kept] - self.mean) / self.scale
        return np.ascontiguousarray(inputs)

    def describe(self, names: Sequence[str]) -> str:
        """Return the conversion in words, given the names of all columns."""
        if len(self.kept) == len(names) and (self.scale == 1).all() and (self.mean == 0).all():
            return f"X: {len(names)} columns, as they are"
        text = f"X: {len(self.kept)} columns, each minus its mean and divided by "
        one_unit = len(self.kept) > 1 and (self.scale == self.scale[0]).all()
        text += "one scale, because they share a unit, as pixels do" if one_unit else "its standard deviation"
        dropped = [name for index, name in enumerate(names) if index not in set(self.kept.tolist())]
        if dropped:
            text += f"; without {len(dropped)} constant columns, {_first(dropped, ', ')}"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values, whose numbers are exact."""
        return {"kept": self.kept.tolist(), "mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> InputScaling:
        """Rebuild from what `to_dict` returned."""
        return cls(np.array(content["kept"], dtype=np.intp), np.array(content["mean"]), np.array(content["scale"]))


@dataclass(frozen=True)
class TargetScaling:
    """The conversion of the targets y to those of the network, (y - mean) / scale, and back.

    Attributes
    ----------
    mean, scale : ndarray of float64, shape (t,)
        One for each target.
    """

    mean: FloatArray
    scale: FloatArray

    @classmethod
    def fit(cls, y: FloatArray, weights: FloatArray | None, *, standardize: bool) -> TargetScaling:
        """Compute the moments of the columns of y (n, t); without `standardize` y stays as it is.

        Raises
        ------
        ValueError
            If a target is constant, or a few values decide its scale.
        """
        for index, column in enumerate(y.T if standardize else ()):
            _check_spread(column, "y" if y.shape[1] == 1 else f"y[:, {index}]")
        moments = np.array([mean_and_scale(column, weights) for column in y.T])
        constant = np.flatnonzero(moments[:, 1] == 0)
        if len(constant):
            which = "y" if y.shape[1] == 1 else f"y[:, {constant[0]}]"
            raise ValueError(f"{which} is {y[0, constant[0]]:g} in every row; give rows in which it varies.")
        if not standardize:
            return cls(np.zeros(y.shape[1]), np.ones(y.shape[1]))
        mean, scale = moments.T
        return cls(mean, scale)

    @property
    def target_scale(self) -> Any:
        """The scale, as a number if there is one target."""
        return float(self.scale[0]) if len(self.scale) == 1 else self.scale

    def transform(self, y: FloatArray) -> FloatArray:
        """Return the targets of the network for y (n, t): (n,) for one target, else (n, t)."""
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
        moments = zip(self.mean, self.scale, strict=True)
        return f"y: standardised by {_first([f'mean {m:.5g}, standard deviation {sd:.5g}' for m, sd in moments], '; ')}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values, whose numbers are exact."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> TargetScaling:
        """Rebuild from what `to_dict` returned."""
        return cls(np.array(content["mean"]), np.array(content["scale"]))


def _first(words: Sequence[str], separator: str) -> str:
    """Return the first five words, and dots if there are more."""
    return separator.join([*words[:5], *(["..."] if len(words) > 5 else [])])
