"""Independent draws of Bayesian linear regression (docs/method.md, section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from patrac_native.model.kernels.base import UntunedKernel


@dataclass(frozen=True)
class Exact(UntunedKernel):
    """Independent draws, no chain: for a Gaussian likelihood with no Bayesian parameter below the last layer.

    The posterior is then that of Bayesian linear regression. With `Gaussian(variance="sampled")` the draws alternate
    with those of the variance, each from its exact conditional law: a chain, with hardly any memory.
    """

    name: ClassVar[str] = "exact"
    runs_on_devices: ClassVar[bool] = False
    is_independent: ClassVar[bool] = True
    is_rotation_invariant: ClassVar[bool] = True
    is_slow: ClassVar[bool] = False
