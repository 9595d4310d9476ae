"""What a metric of a kernel supplies to a run: coordinates in which chains step, and a step size for each of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy.typing as npt

from patrac_native.engine.models import CompiledModels
from patrac_native.kernels import Kernel
from patrac_native.validation.checks import FloatArray
from patrac_native.validation.complete import Complete


class RotationBlock(NamedTuple):
    """A block of the whitened parameters, rotated: X (rows, columns), row by row, stands for row_axes X column_axes'.

    `first` is the position of its first entry among the coordinates of the chain; both matrices are orthogonal.
    """

    first: int
    row_axes: FloatArray
    column_axes: FloatArray


class Metric(Complete, abstract=True):
    """Base class of the metrics."""

    @property
    @abstractmethod
    def compiled(self) -> CompiledModels:
        """The compiled models on which chains run."""

    @abstractmethod
    def step_factor(self, kernel: Kernel) -> FloatArray:
        """Return the factor of the step size of each coordinate, shape (K,), at its place in theta."""

    @abstractmethod
    def unit_steps(self, kernel: Kernel) -> FloatArray:
        """Return the step sizes at which mGrad's step of each coordinate is that of its prior, shape (K,)."""

    def rotation(self, kernel: Kernel) -> tuple[RotationBlock, ...]:
        """Return the rotation of the whitened parameters of a chain; empty if it steps in theta of `compiled`."""
        return ()

    def rotated(self, theta: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return theta (B, K) as parameters of `compiled`; here theta itself."""
        return theta

    def restore(self, theta: npt.NDArray[Any]) -> None:
        """Undo `rotated` in place, theta (B, K)."""
