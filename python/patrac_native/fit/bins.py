"""A piecewise linear encoding of inputs: an input for each bin of a column of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.files import check_entries

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bins:
    """Inputs of the network that are linear within a bin of one of d inputs, and constant beside it.

    An input x with knots b_0 < ... < b_T becomes T inputs, t = 1, ..., T,

        e_t = (x - b_(t-1)) / (b_t - b_(t-1)), at least 0 and at most 1,

    each of which is standardised (Gorishniy, Rubachev & Babenko 2022, section 3.2). So a network can bend at each knot
    by its first layer alone, where it lacks most beside trees. The knots are quantiles of the training rows, or all of
    an input's values if there are at most T + 1. Below b_0 the first input goes on falling, and above b_T the last one
    rising, by one for each (b_T - b_0) / T, whatever the width of the outermost bins. Inputs of two values, such as
    categories, stay as they are.

    Attributes
    ----------
    knots : tuple of ndarray of float64, one for each of d inputs
        Increasing, at least three; none where the input stays as it is.
    mean, scale : ndarray of float64, shape (k,)
        Of the inputs of the network over the training rows, whatever their weights; 0 and 1 where an input stays.
    """

    knots: tuple[FloatArray, ...]
    mean: FloatArray
    scale: FloatArray

    @classmethod
    def fit(cls, inputs: FloatArray, knots: Sequence[FloatArray]) -> Bins:
        """Compute the moments of inputs (n, d) with these knots, which `knots_of` returns."""
        k = number_of_inputs(knots)
        raw = cls(tuple(knots), np.zeros(k), np.ones(k)).transform(inputs)
        mean, scale = np.zeros(k), np.ones(k)
        for of_input, own in zip(knots, _spans(knots), strict=True):
            if len(of_input):
                mean[own], scale[own] = raw[:, own].mean(axis=0), raw[:, own].std(axis=0)
        return cls(tuple(knots), mean, scale)

    @property
    def number(self) -> int:
        """How many inputs the network has."""
        return len(self.mean)

    @property
    def n_binned(self) -> int:
        """How many of the inputs have bins."""
        return sum(len(of_input) > 0 for of_input in self.knots)

    def transform(self, inputs: FloatArray) -> FloatArray:
        """Return the inputs of the network (n, k) for inputs (n, d)."""
        found = np.empty((len(inputs), self.number))
        for x, knots, own in zip(inputs.T, self.knots, _spans(self.knots), strict=True):
            if not len(knots):
                found[:, own.start] = x
                continue
            steps = np.clip((x[:, None] - knots[:-1]) / np.diff(knots), 0.0, 1.0)
            steps[:, 0] += np.minimum(x - knots[0], 0.0) / _width(knots)
            steps[:, -1] += np.maximum(x - knots[-1], 0.0) / _width(knots)
            found[:, own] = (steps - self.mean[own]) / self.scale[own]
        return found

    def inverse(self, encoded: FloatArray) -> FloatArray:
        """Return the inputs (n, d) for which the network has the inputs (n, k)."""
        inputs = []
        for knots, own in zip(self.knots, _spans(self.knots), strict=True):
            if not len(knots):
                inputs.append(encoded[:, own.start])
                continue
            steps = encoded[:, own] * self.scale[own] + self.mean[own]
            beyond = np.minimum(steps[:, 0], 0.0) + np.maximum(steps[:, -1] - 1.0, 0.0)
            inputs.append(knots[0] + np.clip(steps, 0.0, 1.0) @ np.diff(knots) + beyond * _width(knots))
        return np.stack(inputs, axis=1)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values, whose numbers are exact."""
        knots = [of_input.tolist() for of_input in self.knots]
        return {"knots": knots, "mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], inputs: int) -> Bins:
        """Rebuild from what `to_dict` returned, of so many inputs; raise ValueError if it is damaged."""
        check_entries(content, dict.fromkeys(("knots", "mean", "scale"), list), "its bins")
        knots = tuple(np.array(of_input, dtype=np.float64) for of_input in content["knots"])
        mean, scale = (np.array(content[name], dtype=np.float64) for name in ("mean", "scale"))
        are_knots = all(
            of_input.ndim == 1 and len(of_input) not in (1, 2) and (np.diff(of_input) > 0).all() for of_input in knots
        )
        is_finite = all(np.isfinite(part).all() for part in (*knots, mean, scale))
        shape = (number_of_inputs(knots),)
        if len(knots) != inputs or not are_knots or not is_finite or {mean.shape, scale.shape} != {shape}:
            raise ValueError("its bins are not those of its inputs")
        if not (scale > 0).all():
            raise ValueError("its bins have a scale that is not positive")
        return cls(knots, mean, scale)


def knots_of(inputs: FloatArray, bins: int) -> list[FloatArray]:
    """Return the knots of at most so many bins of each of the inputs (n, d), none of an input of two values."""
    quantiles = np.linspace(0, 1, min(bins, len(inputs)) + 1)
    found = []
    for x in inputs.T:
        values = np.unique(x)
        knots = values if len(values) <= len(quantiles) else np.unique(np.quantile(x, quantiles))
        found.append(knots if len(knots) > 2 else values[:0])
    return found


def number_of_inputs(knots: Sequence[FloatArray]) -> int:
    """Return how many inputs the network has with these knots."""
    return sum(max(1, len(of_input) - 1) for of_input in knots)


def _spans(knots: Sequence[FloatArray]) -> Iterator[slice]:
    """Yield the places of the network's inputs that belong to each input."""
    first = 0
    for of_input in knots:
        last = first + max(1, len(of_input) - 1)
        yield slice(first, last)
        first = last


def _width(knots: FloatArray) -> float:
    """Return the mean width of the bins."""
    return float((knots[-1] - knots[0]) / (len(knots) - 1))
