"""The data of a posterior: inputs, targets, and the weight and offset of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine.inputs import Inputs
from patrac_native.likelihoods import Likelihood, Targets
from patrac_native.validation.checks import FloatArray, as_real_array
from patrac_native.validation.notes import Note

# Share of the standard deviation of a column, or of the noise, that the spacing of numbers may be.
_RESOLVED = 0.01


@dataclass(frozen=True)
class Data:
    """The rows that a posterior is given; `post.data`. All arrays are read-only.

    Attributes
    ----------
    inputs : Inputs
        X where it was given, on the host or on a device.
    y : ndarray
        Targets, as the likelihood's checks return them: float64 of shape (n, t), or int64 labels of shape (n,).
    row_weights : ndarray of float64, shape (n,)
        Factor of each row's term of the log-likelihood.
    offset : ndarray of float64, shape (n, m), or None
        What is added to the outputs of each row; None if there is no offset.
    sample_weight : ndarray of float64, shape (n,), or None
        The weights as given.
    """

    inputs: Inputs
    y: Targets
    row_weights: FloatArray
    offset: FloatArray | None
    sample_weight: FloatArray | None

    @classmethod
    def checked(
        cls,
        likelihood: Likelihood,
        inputs: Inputs,
        n_outputs: int,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None,
        offset: npt.ArrayLike | None,
        dtype: np.dtype[Any],
    ) -> Data:
        """Return the data after the likelihood's checks of all arrays but the inputs."""
        n = inputs.n_rows
        targets = likelihood.check_targets(y, n, n_outputs)
        weights = likelihood.row_weights(sample_weight, n)
        offsets = likelihood.check_offset(offset, n, n_outputs)
        given = None if sample_weight is None else as_real_array(sample_weight, "sample_weight").copy()
        for array in (targets, weights, offsets):
            if array is not None:
                array.flags.writeable = False
        made = cls(inputs, targets, weights, offsets, given)
        made._warn_of_rounding(likelihood, n_outputs, dtype)
        return made

    def _warn_of_rounding(self, likelihood: Likelihood, n_outputs: int, dtype: np.dtype[Any]) -> None:
        """Warn of numbers that lie so far from zero that the dtype of the arithmetic does not hold their variation."""
        noise = np.inf
        if likelihood.is_quadratic and not likelihood.is_sampled:
            noise = float(np.sqrt(np.min(likelihood.variance_vector(n_outputs))))
        given = [("y", likelihood.typical(self.y), noise)] if likelihood.targets == "real" else []
        if self.inputs.on_device is None and self.X.dtype.kind == "f":
            given.append(("X", self.X, np.inf))
        for name, values, smallest in given:
            columns = values.reshape(len(values), -1)
            low, high = columns.min(axis=0).astype(np.float64), columns.max(axis=0).astype(np.float64)
            spacing = float(np.finfo(dtype).eps) * np.maximum(np.abs(low), np.abs(high))
            # The range of a column is some times its standard deviation.
            needed = np.minimum((high - low) / 4, smallest)
            lost = np.isfinite(spacing) & (high > low) & (spacing > _RESOLVED * needed)
            if lost.any():
                column = int(np.argmax(lost))
                text = (
                    f"{name}, column {column}, lies between {low[column]:.6g} and {high[column]:.6g}: {dtype.name} "
                    f"resolves steps of {spacing[column]:.2g} there, too few for its variation or the noise. Give it "
                    "less its mean, or standardised"
                )
                advice = ', or compute with dtype="float64".' if dtype.itemsize < 8 else "."
                Note("far from zero", text + advice).give(stacklevel=5)

    @property
    def X(self) -> npt.NDArray[Any]:
        """The inputs on the host, shape (n, d); inputs on a device are copied at the first use."""
        return self.inputs.host

    @property
    def n_rows(self) -> int:
        """n, the number of rows."""
        return self.inputs.n_rows

    def subsample(self, max_rows: int) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Return X in float64, row weights and offset of at most so many rows, evenly spaced."""
        every = -(-self.n_rows // max_rows)
        weights = self.row_weights[::every]
        if not weights.any():  # all of the weight lies on the rows that were left out
            weights = np.ones(len(weights))
        return self.X[::every].astype(np.float64), weights, None if self.offset is None else self.offset[::every]
