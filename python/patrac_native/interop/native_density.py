"""What a bridge needs of a log density: its compiled form, its dtype, and the way back to theta."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class EvaluatedDensity(Protocol):
    """What a bridge that evaluates a log density of points (D,) needs of it.

    Attributes
    ----------
    core : object
        The compiled density: `value(points, threads)` and `value_and_grad(points, threads)` of a batch (B, D).
    dim : int
        D.
    dtype : dtype
        float32 or float64.
    """

    core: Any
    dim: int
    dtype: np.dtype[Any]


class NativeDensity(EvaluatedDensity, Protocol):
    """A compiled log density with the forms that other libraries call, such as `Posterior.density` returns.

    Attributes
    ----------
    core : object
        Besides, with `publish()`, `withdraw(number)`, `xla_handler(with_gradient)`, `xla_instantiate()` and
        `is_collapsed`.
    xla_interface : (int, int)
        The version of XLA's C interface for which the handlers are compiled.
    """

    xla_interface: tuple[int, int]

    def c_capsules(self, threads: int) -> tuple[Any, Any, Any]:
        """Return the capsules of the C function, of its batched form and of their context."""

    def xla_state(self) -> dict[str, Any]:
        """Return the registration of the state of compiled programs."""

    def theta(self, points: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return theta at points (..., D)."""

    def complete(self, points: npt.ArrayLike, seed: int | np.random.Generator = 0) -> npt.NDArray[Any]:
        """Return theta at points (..., D) of a collapsed density, with output weights drawn from their law."""

    def variance(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the noise variances at points (..., D); the last axis is empty if they are not coordinates."""
