"""The kernels without a step size: elliptical slice sampling and independent draws (docs/method.md, section 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from patrac_native.kernels.base import Kernel


@dataclass(frozen=True)
class _UntunedKernel(Kernel, abstract=True):
    """Base class of the kernels without a step size, which evaluate no gradient either."""

    runs_on_devices: ClassVar[bool] = False
    is_rotation_invariant: ClassVar[bool] = True
    is_slow: ClassVar[bool] = False
    gradients_per_step: ClassVar[int] = 0
    step_size_name: ClassVar[str | None] = None
    step_size_max: ClassVar[float] = math.inf
    default_step_size: ClassVar[float | None] = None

    @property
    def accept_target(self) -> float:
        """NaN, because nothing is adapted."""
        return math.nan


@dataclass(frozen=True)
class EllipticalSlice(_UntunedKernel):
    """Elliptical slice sampling, a kernel without gradients and step size; an alternative if tuning fails.

    Each step draws from the prior and searches the ellipse through that draw and the state for a point of the slice.
    Every step changes the state and evaluates the log-likelihood a few times.

    References
    ----------
    Murray, Adams & MacKay (2010), Elliptical slice sampling. AISTATS.
    """

    name: ClassVar[str] = "elliptical_slice"
    is_independent: ClassVar[bool] = False


@dataclass(frozen=True)
class Exact(_UntunedKernel):
    """Independent draws, for a Gaussian likelihood without Bayesian parameters below the last layer.

    The posterior is then that of Bayesian linear regression. With `Gaussian("sampled")` draws of theta and of the
    variance alternate, each from its exact conditional distribution: a Gibbs chain with very little autocorrelation.
    """

    name: ClassVar[str] = "exact"
    is_independent: ClassVar[bool] = True
