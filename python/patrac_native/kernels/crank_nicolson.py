"""The Crank-Nicolson family: pCN without the gradient, pCNL and mGrad with it (docs/method.md, section 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from patrac_native.kernels.base import Kernel
from patrac_native.validation.checks import check_nonnegative, check_positive

METRICS = ("prior", "inputs", "curvature")
GRADIENTS = ("exact", "coarse")


@dataclass(frozen=True)
class PCN(Kernel):
    """Preconditioned Crank-Nicolson, a kernel without gradients: v = sqrt(1 - beta^2) u + beta w, w ~ N(0, C).

    Parameters
    ----------
    beta : float, optional
        Step size, 0 < beta <= 1; with 1 every proposal is a draw from the prior. By default the warm-up finds it.

    Raises
    ------
    TypeError
        If beta is not a number.
    ValueError
        If beta is not in (0, 1].

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
    gradients_per_step: ClassVar[int] = 0
    step_size_name: ClassVar[str | None] = "beta"
    step_size_max: ClassVar[float] = 1.0
    default_step_size: ClassVar[float | None] = 0.01

    def __post_init__(self) -> None:
        _check_step_size(self.beta, "beta", "PCN", self.step_size_max)

    @property
    def accept_target(self) -> float:
        """Mean acceptance probability that the default warm-up targets, 0.3."""
        return 0.3


@dataclass(frozen=True)
class _GradientKernel(Kernel, abstract=True):
    """Base class of the kernels with gradients: delta, collapsing, adaptation while sampling, metric and gradient."""

    delta: float | None = None
    collapse: bool = False
    adapt: str = "warmup"
    metric: str = field(default="prior", kw_only=True)
    gradient: str = field(default="exact", kw_only=True)
    runs_on_devices: ClassVar[bool] = True
    is_independent: ClassVar[bool] = False
    gradients_per_step: ClassVar[int] = 1
    step_size_name: ClassVar[str | None] = "delta"

    def __post_init__(self) -> None:
        owner = type(self).__name__
        _check_step_size(self.delta, "delta", owner, self.step_size_max)
        if not isinstance(self.collapse, bool):
            raise TypeError(f"collapse of {owner} must be True or False; got {self.collapse!r}.")
        if self.adapt not in ("warmup", "always"):
            raise ValueError(f'adapt of {owner} must be "warmup" or "always"; got {self.adapt!r}.')
        if self.metric not in METRICS:
            raise ValueError(f'metric of {owner} must be "prior", "inputs" or "curvature"; got {self.metric!r}.')
        if self.gradient not in GRADIENTS:
            raise ValueError(f'gradient of {owner} must be "exact" or "coarse"; got {self.gradient!r}.')
        if self.gradient == "coarse" and self.collapse:
            raise ValueError(
                f'gradient of {owner} must be "exact" with collapse=True, which reads its inputs without matrix units; '
                'got "coarse". Leave one of them out.'
            )

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
        Step size, 0 < delta <= 2. By default the warm-up finds it.
    collapse : bool
        Whether the Bayesian output weights are integrated out, which needs a Gaussian likelihood. The chain then runs
        on the parameters below the output layer, and the output weights of each draw are sampled from their exact
        conditional distribution. With `HeteroscedasticGaussian`, on the CPU, those of the means are integrated out,
        and those of the log-variances are among the parameters on which the chain runs. With `StudentT(df, "sampled")`
        of one output, on the CPU, they are integrated out given a precision of each row, which is drawn with the scale.
        Default False.
    adapt : {"warmup", "always"}
        When the step size is adapted; default "warmup". "always" is the paper's setting, which keeps adapting to
        acceptance rates in (0.4, 0.9) while sampling; the posterior is then not exactly invariant, and `sample` warns.
    metric : {"prior", "inputs", "curvature"}
        What the step sizes of coordinates follow. With the default "prior" they are equal in units of the prior. With
        "inputs" the weights of the first layer move along the principal axes of the inputs, in larger steps along the
        axes on which the inputs vary less (docs/method.md, section 6). That pays where the second moment along one axis
        is several times the mean of all: correlated inputs, or a mean far from zero. It needs several inputs, whose
        weights into a node are all Bayesian or all fixed, and refuses draws that stay on a device.
        With "curvature" the weights of each layer move along the axes of its Kronecker-factored information at the
        trained network, in steps that are the smaller the stiffer an axis is. That pays where noise is low or the
        network deep and narrow; it runs on the CPU, and refuses `Sep` and masks that are no block of a layer.
    gradient : {"exact", "coarse"}
        How the gradient of a wide first layer is computed on a device: with the default "exact" to the accuracy of
        float32, with "coarse" from factors that are rounded to 8 significant bits (bfloat16), one product on the matrix
        units in place of three or six. The log-likelihood is the same to the bit, and the posterior is exactly as
        invariant, because a step uses the same rounded gradient in its proposal and in its acceptance probability
        (docs/gpu.md). "coarse" needs ``device="cuda"``, float32, a first layer of 256 inputs or more, 8,192 or more
        over all rows, at most 32 chains of one posterior, and a noise variance that is not sampled; `sample` raises
        ValueError otherwise. Its speed has not been measured on a card.

    Raises
    ------
    TypeError
        If delta is not a number, or collapse not a bool.
    ValueError
        If delta is not in (0, 2], if adapt, metric or gradient has another value, or if gradient is "coarse" and
        collapse True.

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
        """Mean acceptance probability that the default warm-up targets, 0.6."""
        return 0.6


@dataclass(frozen=True)
class MGrad(_GradientKernel):
    """Marginal gradient sampler: an auxiliary-variable Langevin step that uses the prior, at the cost of pCNL.

    v ~ N(A ((2/delta) u + grad l(u)), A + (2/delta) A^2), A = (C^-1 + (2/delta) I)^-1. Directions whose prior variance
    is far below delta are drawn anew in every step; the others change by about sqrt(delta).

    Parameters
    ----------
    delta : float, optional
        Step size, > 0, in units of a variance. By default the warm-up finds it.
    collapse : bool
        Whether the Bayesian output weights are integrated out, as for `PCNL`. Default False.
    adapt : {"warmup", "always"}
        When the step size is adapted, as for `PCNL`. Default "warmup".
    persistence : float
        Correlation of the noise of one step with that of the step before, 0 <= persistence < 1. With the default 0,
        the published kernel, the chain diffuses. With a value near 1 it keeps its direction until a rejection reverses
        it, and so does not undo its own steps: in the networks tried, 0.9 halved the number of steps for an effective
        draw of f (docs/tried.md). The acceptance threshold then persists too, and the default warm-up targets an
        acceptance probability of 0.85 instead of 0.55.
    metric : {"prior", "inputs", "curvature"}
        What the step sizes of coordinates follow. With the default "prior" they are equal for all parameters. "inputs"
        is as for `PCNL`, and the step size of every parameter has in addition the square root of its prior variance.
        "curvature" is as for `PCNL`.
    gradient : {"exact", "coarse"}
        How the gradient of a wide first layer is computed on a device, as for `PCNL`. Default "exact".

    Raises
    ------
    TypeError
        If delta or persistence is not a number, or collapse not a bool.
    ValueError
        If delta is not positive and finite, persistence is not in [0, 1), if adapt, metric or gradient has another
        value, or if gradient is "coarse" and collapse True.

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
        """Mean acceptance probability that the default warm-up targets: 0.55, or 0.85 with persistence."""
        return 0.85 if self.persistence else 0.55


def _check_step_size(value: float | None, name: str, owner: str, max_value: float) -> None:
    """Raise TypeError or ValueError unless value is None or a number in (0, max_value]."""
    if value is None:
        return
    if not 0 < check_positive(value, f"{name} of {owner}") <= max_value:
        raise ValueError(f"{name} of {owner} must be in (0, {max_value:g}]; got {value:g}.")
