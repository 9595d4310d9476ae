"""The transition kernels (docs/method.md, section 6): what `sample` may be asked to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from patrac_native.validation import check_positive


@dataclass(frozen=True)
class Kernel:
    """Base class of the kernels.

    Attributes
    ----------
    name : str
        As the compiled core knows it.
    step_size_max : float
        Largest step size that the adaptation may reach.
    accept_band : (float, float)
        Acceptance rates between which the default warm-up leaves the step size alone.
    """

    name: ClassVar[str]
    step_size_max: ClassVar[float]
    default_step_size: ClassVar[float]
    accept_band: ClassVar[tuple[float, float]]

    @property
    def adapt_always(self) -> bool:
        """Whether the step size keeps adapting while sampling."""
        return False

    @property
    def step_size(self) -> float | None:
        """The given step size, or None for one found in warm-up."""
        raise NotImplementedError

    @property
    def starting_step_size(self) -> float:
        """Step size of the first step."""
        return self.default_step_size if self.step_size is None else self.step_size

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content."""
        raise NotImplementedError


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
    default_step_size: ClassVar[float] = 0.01
    accept_band: ClassVar[tuple[float, float]] = (0.2, 0.4)

    def __post_init__(self) -> None:
        _check_step_size(self.beta, "beta", "PCN", self.step_size_max)

    @property
    def step_size(self) -> float | None:
        """beta."""
        return self.beta

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content."""
        return {"name": self.name, "beta": self.beta}


@dataclass(frozen=True)
class PCNL(Kernel):
    """Preconditioned Crank-Nicolson Langevin, the paper's kernel, with the sign of its rho corrected.

    v = ((2 - delta) u + 2 delta C grad l(u) + sqrt(8 delta) w) / (2 + delta), w ~ N(0, C).

    Parameters
    ----------
    delta : float, optional
        Step size, 0 < delta <= 2. None: found in warm-up.
    adapt : {"warmup", "always"}
        "always" is the paper's setting: the step size keeps adapting to acceptance rates in (0.4, 0.9) while sampling;
        the chain is then not exactly invariant, and `sample` warns.

    References
    ----------
    Cotter, Roberts, Stuart & White (2013), MCMC methods for functions. Statistical Science 28, 424-446.
    """

    delta: float | None = None
    adapt: str = "warmup"
    name: ClassVar[str] = "pcnl"
    step_size_max: ClassVar[float] = 2.0
    default_step_size: ClassVar[float] = 1e-4
    accept_band: ClassVar[tuple[float, float]] = (0.5, 0.7)

    def __post_init__(self) -> None:
        _check_step_size(self.delta, "delta", "PCNL", self.step_size_max)
        if self.adapt not in ("warmup", "always"):
            raise ValueError(f'adapt of PCNL must be "warmup" or "always"; got {self.adapt!r}.')

    @property
    def step_size(self) -> float | None:
        """delta."""
        return self.delta

    @property
    def adapt_always(self) -> bool:
        """Whether adapt is "always"."""
        return self.adapt == "always"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content."""
        return {"name": self.name, "delta": self.delta, "adapt": self.adapt}


def kernel_from_dict(content: Mapping[str, Any]) -> Kernel:
    """Rebuild a kernel from what its `to_dict` returned; ValueError for an unknown name."""
    name = content.get("name")
    if name == "pcn":
        return PCN(content["beta"])
    if name == "pcnl":
        return PCNL(content["delta"], content["adapt"])
    raise ValueError(f"kernel name must be one of pcn, pcnl; got {name!r}.")


def _check_step_size(value: float | None, name: str, owner: str, most: float) -> None:
    """Raise unless value is None or in (0, most]."""
    if value is None:
        return
    if not 0 < check_positive(value, f"{name} of {owner}") <= most:
        raise ValueError(f"{name} of {owner} must be in (0, {most:g}]; got {value:g}.")
