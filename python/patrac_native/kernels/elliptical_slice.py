"""Elliptical slice sampling (docs/method.md, section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from patrac_native.kernels.base import UntunedKernel


@dataclass(frozen=True)
class EllipticalSlice(UntunedKernel):
    """Elliptical slice sampling, a kernel without gradients and step size; an alternative if tuning fails.

    Each step draws from the prior and searches the ellipse through that draw and the state for a point of the slice.
    Every step changes the state and evaluates the log-likelihood a few times.

    References
    ----------
    Murray, Adams & MacKay (2010), Elliptical slice sampling. AISTATS.
    """

    name: ClassVar[str] = "elliptical_slice"
    runs_on_devices: ClassVar[bool] = False
    is_independent: ClassVar[bool] = False
    is_rotation_invariant: ClassVar[bool] = True
    is_slow: ClassVar[bool] = False
