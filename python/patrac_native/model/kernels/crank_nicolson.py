"""The Crank-Nicolson family: pCN without the gradient, pCNL and mGrad with it (docs/method.md, section 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from patrac_native.model.kernels.base import Kernel
from patrac_native.validation.checks import check_nonnegative, check_positive


@dataclass(frozen=True)
class PCN(Kernel):
    """Preconditioned Crank-Nicolson: v = sqrt(1 - beta^2) u + beta w, w ~ N(0, C); gradient-free.

    Parameters
    ----------
    beta : float, optional
        Step size, 0 < beta <= 1; at 1 every proposal is a draw from the prior. None: found in warm-up.

    References
    ----------
    Cotter, Roberts, Stuart & White (2013), MCMC methods for functions. Statistical Science 28, 424-446.
    """

    beta: float | None = None
    name: ClassVar[str] = "pcn"
    runs_on_devices: ClassVar[bool] = True
    is_independent: ClassVar[bool] = False
    is_rotation_invariant: ClassVar[bool] = True
    is_slow: ClassVar[bool] = True
    step_size_name: ClassVar[str | None] = "beta"
    step_size_max: ClassVar[float] = 1.0
    default_step_size: ClassVar[float | None] = 0.01

    def __post_init__(self) -> None:
        _check_step_size(self.beta, "beta", "PCN", self.step_size_max)

    @property
    def accept_target(self) -> float:
        """0.3."""
        return 0.3

    @property
    def persistence(self) -> float:
        """0."""
        return 0.0

    @property
    def adapt_always(self) -> bool:
        """False."""
        return False

    @property
    def collapse(self) -> bool:
        """False: without gradients there is nothing to collapse for."""
        return False


@dataclass(frozen=True)
class _GradientKernel(Kernel, abstract=True):
    """What the kernels with a gradient share: delta, the collapsed output layer and the adaptation while sampling."""

    delta: float | None = None
    collapse: bool = False
    adapt: str = "warmup"
    runs_on_devices: ClassVar[bool] = True
    is_independent: ClassVar[bool] = False
    step_size_name: ClassVar[str | None] = "delta"

    def __post_init__(self) -> None:
        owner = type(self).__name__
        _check_step_size(self.delta, "delta", owner, self.step_size_max)
        if not isinstance(self.collapse, bool):
            raise TypeError(f"collapse of {owner} must be True or False; got {self.collapse!r}.")
        if self.adapt not in ("warmup", "always"):
            raise ValueError(f'adapt of {owner} must be "warmup" or "always"; got {self.adapt!r}.')

    @property
    def adapt_always(self) -> bool:
        """Whether adapt is "always"."""
        return self.adapt == "always"


@dataclass(frozen=True)
class PCNL(_GradientKernel):
    """Preconditioned Crank-Nicolson Langevin, the paper's kernel, with the sign of its rho corrected.

    v = ((2 - delta) u + 2 delta C grad l(u) + sqrt(8 delta) w) / (2 + delta), w ~ N(0, C).

    Parameters
    ----------
    delta : float, optional
        Step size, 0 < delta <= 2. None: found in warm-up.
    collapse : bool
        Integrate the Bayesian output weights out (Gaussian likelihoods): the chain runs on the parameters below them,
        and each kept draw gets output weights from their exact conditional law.
    adapt : {"warmup", "always"}
        "always" is the paper's setting: the step size keeps adapting to acceptance rates in (0.4, 0.9) while sampling;
        the chain is then not exactly invariant, and `sample` warns.

    References
    ----------
    Cotter, Roberts, Stuart & White (2013), MCMC methods for functions. Statistical Science 28, 424-446.
    """

    name: ClassVar[str] = "pcnl"
    is_rotation_invariant: ClassVar[bool] = True
    is_slow: ClassVar[bool] = True
    step_size_max: ClassVar[float] = 2.0
    default_step_size: ClassVar[float | None] = 1e-4

    @property
    def accept_target(self) -> float:
        """0.6."""
        return 0.6

    @property
    def persistence(self) -> float:
        """0."""
        return 0.0


@dataclass(frozen=True)
class MGrad(_GradientKernel):
    """Marginal gradient sampler: an auxiliary-variable Langevin step that knows the prior, at the cost of pCNL.

    v ~ N(A ((2/delta) u + grad l(u)), A + (2/delta) A^2), A = (C^-1 + (2/delta) I)^-1. Directions whose prior variance
    is far below delta are redrawn every step, the others move by about sqrt(delta).

    Parameters
    ----------
    delta : float, optional
        Step size, > 0, in units of a variance. None: found in warm-up.
    collapse : bool
        Integrate the Bayesian output weights out (Gaussian likelihoods), as for `PCNL`.
    adapt : {"warmup", "always"}
        As for `PCNL`.
    persistence : float
        Share of the noise that a step keeps of the step before, 0 <= persistence < 1. At 0, the published kernel, a
        chain diffuses. Near 1 it walks on until a rejection turns it round, and so does not undo its own steps: 0.9
        made an effective draw of f take half as many steps in the networks tried (docs/tried.md). With it the accept
        threshold persists too, and the warm-up aims at an acceptance of 0.85 in place of 0.55.

    References
    ----------
    Titsias & Papaspiliopoulos (2018), Auxiliary gradient-based sampling algorithms. JRSS B 80, 749-767.
    Ottobre, Pillai, Pinski & Stuart (2016), A function space HMC algorithm with second order Langevin diffusion limit.
    Bernoulli 22, 60-106.
    Neal (2020), Non-reversibly updating a uniform [0,1] value for Metropolis accept/reject decisions. arXiv:2001.11950.
    """

    persistence: float = 0.0
    name: ClassVar[str] = "mgrad"
    is_rotation_invariant: ClassVar[bool] = False
    is_slow: ClassVar[bool] = False
    step_size_max: ClassVar[float] = math.inf
    default_step_size: ClassVar[float | None] = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= check_nonnegative(self.persistence, "persistence of MGrad") < 1:
            raise ValueError(f"persistence of MGrad must be in [0, 1); got {self.persistence:g}.")

    @property
    def accept_target(self) -> float:
        """0.55, with persistence 0.85."""
        return 0.85 if self.persistence else 0.55


def _check_step_size(value: float | None, name: str, owner: str, max_value: float) -> None:
    """Raise unless value is None or in (0, max_value]."""
    if value is None:
        return
    if not 0 < check_positive(value, f"{name} of {owner}") <= max_value:
        raise ValueError(f"{name} of {owner} must be in (0, {max_value:g}]; got {value:g}.")
