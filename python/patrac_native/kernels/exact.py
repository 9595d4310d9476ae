"""Independent draws of Bayesian linear regression (docs/method.md, section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from patrac_native.kernels.base import UntunedKernel


@dataclass(frozen=True)
class Exact(UntunedKernel):
    """Independent draws, for a Gaussian likelihood without Bayesian parameters below the last layer.

    The posterior is then that of Bayesian linear regression. With `Gaussian("sampled")` draws of theta and of the
    variance alternate, each from its exact conditional distribution: a Gibbs chain with very little autocorrelation.
    """

    name: ClassVar[str] = "exact"
    runs_on_devices: ClassVar[bool] = False
    is_independent: ClassVar[bool] = True
    is_rotation_invariant: ClassVar[bool] = True
    is_slow: ClassVar[bool] = False
