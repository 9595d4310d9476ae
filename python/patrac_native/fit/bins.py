"""A piecewise linear encoding of inputs: an input for each bin of a column of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.files import check_entries

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bins:
    """Inputs of the network that are linear within bins of d inputs, and constant outside.

    An input x with knots b_0 < ... < b_T, quantiles of the training rows or, of few values, these, becomes T inputs,
    t = 1, ..., T,

        e_t = (x - b_(t-1)) / (b_t - b_(t-1)), at least 0 for t > 1 and at most 1 for t < T,

    each of which is standardised (Gorishniy, Rubachev & Babenko 2022, section 3.2). So a network can bend at each knot
    by its first layer alone, where it lacks most beside trees. Inputs of two values, such as
    categories, stay as they are.

    Attributes
    ----------
    knots : tuple of ndarray of float64, one of each of d inputs
        Increasing, at least three; empty where the input stays as it is.
    mean, scale : ndarray of float64, shape (k,)
        Of the encoded inputs, of those that stay 0 and 1.
    """

    knots: tuple[FloatArray, ...]
    mean: FloatArray
    scale: FloatArray

    @classmethod
    def fit(cls, inputs: FloatArray, weights: FloatArray | None, count: int) -> Bins:
        """Take up to `count` bins, at least two, of inputs (n, d) with row weights (n,), with as many rows in each."""
        quantiles = np.linspace(0, 1, count + 1)
        knots = []
        for x in inputs.T:
            values = np.unique(x)
            of_input = values if len(values) <= count + 1 else np.unique(np.quantile(x, quantiles))
            knots.append(of_input if len(of_input) > 2 else values[:0])
        k = sum(max(1, len(of_input) - 1) for of_input in knots)
        raw = cls(tuple(knots), np.zeros(k), np.ones(k)).transform(inputs)
        mean, scale, first = np.zeros(k), np.ones(k), 0
        for of_input in knots:
            own = slice(first, first + max(1, len(of_input) - 1))
            first = own.stop
            if len(of_input):
                mean[own] = np.average(raw[:, own], axis=0, weights=weights)
                # Positive: the rows at both ends of a bin differ by one.
                scale[own] = np.sqrt(np.average((raw[:, own] - mean[own]) ** 2, axis=0, weights=weights))
        return cls(tuple(knots), mean, scale)

    @property
    def number(self) -> int:
        """How many inputs the network has."""
        return len(self.mean)

    @property
    def encoded(self) -> int:
        """How many of the inputs have bins."""
        return sum(len(of_input) > 0 for of_input in self.knots)

    def transform(self, inputs: FloatArray) -> FloatArray:
        """Return the encoded inputs (n, k) of inputs (n, d)."""
        parts = []
        for x, knots in zip(inputs.T, self.knots, strict=True):
            if not len(knots):
                parts.append(x[:, None])
                continue
            low, high = np.zeros(len(knots) - 1), np.ones(len(knots) - 1)
            low[0], high[-1] = -np.inf, np.inf
            parts.append(np.clip((x[:, None] - knots[:-1]) / np.diff(knots), low, high))
        return np.ascontiguousarray((np.concatenate(parts, axis=1) - self.mean) / self.scale)

    def inverse(self, encoded: FloatArray) -> FloatArray:
        """Return the inputs (n, d) that have the encoded inputs (n, k)."""
        values, first, inputs = encoded * self.scale + self.mean, 0, []
        for knots in self.knots:
            own = slice(first, first + max(1, len(knots) - 1))
            first = own.stop
            inputs.append(knots[0] + values[:, own] @ np.diff(knots) if len(knots) else values[:, own.start])
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
        k = sum(max(1, len(of_input) - 1) for of_input in knots)
        are_knots = all(
            of_input.ndim == 1 and len(of_input) not in (1, 2) and (np.diff(of_input) > 0).all() for of_input in knots
        )
        is_finite = all(np.isfinite(part).all() for part in (*knots, mean, scale))
        if len(knots) != inputs or not are_knots or not is_finite or {mean.shape, scale.shape} != {(k,)}:
            raise ValueError("its bins are not those of its inputs")
        if not (scale > 0).all():
            raise ValueError("its bins have a scale that is not positive")
        return cls(knots, mean, scale)
