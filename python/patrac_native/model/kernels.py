"""The transition kernels (docs/method.md, section 6): what `sample` may be asked to run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from patrac_native.validation.checks import check_nonnegative, check_positive


@dataclass(frozen=True)
class Kernel:
    """Base class of the kernels.

    Attributes
    ----------
    name : str
        As the compiled core knows it.
    step_size_max : float
        Largest step size that the adaptation may reach.
    default_step_size : float or None
        Step size of the first step where none is given; None for a kernel without one.
    """

    name: ClassVar[str]
    step_size_max: ClassVar[float] = math.inf
    default_step_size: ClassVar[float | None] = None

    @property
    def accept_target(self) -> float:
        """Mean acceptance probability that the default warm-up aims at; NaN for a kernel without a step size."""
        return math.nan

    @property
    def persistence(self) -> float:
        """Share of the noise that a step keeps of the step before."""
        return 0.0

    @property
    def adapt_always(self) -> bool:
        """Whether the step size keeps adapting while sampling."""
        return False

    @property
    def collapse(self) -> bool:
        """Whether the output weights are integrated out."""
        return False

    @property
    def step_size(self) -> float | None:
        """The given step size, or None for one found in warm-up or a kernel without one."""
        return None

    @property
    def adapts(self) -> bool:
        """Whether warm-up has a step size to find."""
        return self.default_step_size is not None and self.step_size is None

    @property
    def starting_step_size(self) -> float:
        """Step size of the first step; NaN for a kernel without one."""
        if self.step_size is not None:
            return self.step_size
        return math.nan if self.default_step_size is None else self.default_step_size

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content."""
        return {"name": self.name, **asdict(self)}


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
    step_size_max: ClassVar[float] = 1.0
    default_step_size: ClassVar[float | None] = 0.01

    def __post_init__(self) -> None:
        _check_step_size(self.beta, "beta", "PCN", self.step_size_max)

    @property
    def step_size(self) -> float | None:
        """beta."""
        return self.beta

    @property
    def accept_target(self) -> float:
        """0.3."""
        return 0.3


@dataclass(frozen=True)
class _GradientKernel(Kernel):
    """What the kernels with a gradient share: delta, the collapsed output layer and the adaptation while sampling."""

    delta: float | None = None
    collapse: bool = False
    adapt: str = "warmup"

    def __post_init__(self) -> None:
        owner = type(self).__name__
        _check_step_size(self.delta, "delta", owner, self.step_size_max)
        if not isinstance(self.collapse, bool):
            raise TypeError(f"collapse of {owner} must be True or False; got {self.collapse!r}.")
        if self.adapt not in ("warmup", "always"):
            raise ValueError(f'adapt of {owner} must be "warmup" or "always"; got {self.adapt!r}.')

    @property
    def step_size(self) -> float | None:
        """delta."""
        return self.delta

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
    step_size_max: ClassVar[float] = 2.0
    default_step_size: ClassVar[float | None] = 1e-4

    @property
    def accept_target(self) -> float:
        """0.6."""
        return 0.6


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
    default_step_size: ClassVar[float | None] = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= check_nonnegative(self.persistence, "persistence of MGrad") < 1:
            raise ValueError(f"persistence of MGrad must be in [0, 1); got {self.persistence:g}.")

    @property
    def accept_target(self) -> float:
        """0.55, with persistence 0.85."""
        return 0.85 if self.persistence else 0.55


@dataclass(frozen=True)
class EllipticalSlice(Kernel):
    """Elliptical slice sampling: gradient-free and without a step size, the fallback where tuning fails.

    Moves along the ellipse through the state and a prior draw; every step moves and evaluates l a few times.

    References
    ----------
    Murray, Adams & MacKay (2010), Elliptical slice sampling. AISTATS.
    """

    name: ClassVar[str] = "elliptical_slice"


@dataclass(frozen=True)
class Exact(Kernel):
    """Independent draws, no chain: for a Gaussian likelihood with no Bayesian parameter below the last layer.

    The posterior is then that of Bayesian linear regression. With `Gaussian(variance="sampled")` the draws alternate
    with those of the variance, each from its exact conditional law: a chain, with hardly any memory.
    """

    name: ClassVar[str] = "exact"


_KERNELS: dict[str, type[Kernel]] = {kernel.name: kernel for kernel in (PCN, PCNL, MGrad, EllipticalSlice, Exact)}


def kernel_from_dict(content: Mapping[str, Any]) -> Kernel:
    """Rebuild a kernel from what its `to_dict` returned; ValueError for an unknown name."""
    name = content.get("name")
    if name not in _KERNELS:
        raise ValueError(f"kernel name must be one of {', '.join(_KERNELS)}; got {name!r}.")
    return _KERNELS[name](**{key: value for key, value in content.items() if key != "name"})


def short_name(content: Mapping[str, Any]) -> str:
    """How a kernel's `to_dict` would be written, defaults left out: "MGrad(collapse=True)"."""
    kernel = kernel_from_dict(content)
    given = {field.name: getattr(kernel, field.name) for field in fields(kernel)}
    defaults = type(kernel)()
    shown = [f"{key}={value!r}" for key, value in given.items() if value != getattr(defaults, key)]
    return f"{type(kernel).__name__}({', '.join(shown)})"


def _check_step_size(value: float | None, name: str, owner: str, most: float) -> None:
    """Raise unless value is None or in (0, most]."""
    if value is None:
        return
    if not 0 < check_positive(value, f"{name} of {owner}") <= most:
        raise ValueError(f"{name} of {owner} must be in (0, {most:g}]; got {value:g}.")
