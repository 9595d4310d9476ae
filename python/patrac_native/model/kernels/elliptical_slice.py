"""Elliptical slice sampling (docs/method.md, section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from patrac_native.model.kernels.base import UntunedKernel


@dataclass(frozen=True)
class EllipticalSlice(UntunedKernel):
    """Elliptical slice sampling: gradient-free and without a step size, the fallback where tuning fails.

    Moves along the ellipse through the state and a prior draw; every step moves and evaluates l a few times.

    References
    ----------
    Murray, Adams & MacKay (2010), Elliptical slice sampling. AISTATS.
    """

    name: ClassVar[str] = "elliptical_slice"
    runs_on_devices: ClassVar[bool] = False
    is_independent: ClassVar[bool] = False
    is_rotation_invariant: ClassVar[bool] = True
    is_slow: ClassVar[bool] = False
