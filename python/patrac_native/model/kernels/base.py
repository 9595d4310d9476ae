"""What every kernel says of itself: its name in the compiled core, its step size, and where it serves."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from patrac_native.validation.complete import Complete


@dataclass(frozen=True)
class Kernel(Complete, abstract=True):
    """Base class of the kernels. A subclass that leaves out an attribute or abstract property cannot be defined.

    Attributes
    ----------
    name : str
        As the compiled core and files know it.
    runs_on_devices : bool
        Whether a CUDA device runs it too.
    is_independent : bool
        Whether the draws are independent: nothing to warm up, no chain to converge.
    is_rotation_invariant : bool
        Whether a rotation of the whitened coordinates leaves the chain the same in law, so that it may run in the
        eigenbasis of a quadratic log-likelihood.
    is_slow : bool
        Whether `kernel="auto"` goes further in a step: what the verdict advises where chains mix badly.
    step_size_name : str or None
        The argument that gives the step size, such as "delta"; None for a kernel without one, which has no acceptance
        rate to judge either.
    step_size_max : float
        Largest step size that the adaptation may reach.
    default_step_size : float or None
        Step size of the first step where none is given; None for a kernel without one.
    """

    name: ClassVar[str]
    runs_on_devices: ClassVar[bool]
    is_independent: ClassVar[bool]
    is_rotation_invariant: ClassVar[bool]
    is_slow: ClassVar[bool]
    step_size_name: ClassVar[str | None]
    step_size_max: ClassVar[float]
    default_step_size: ClassVar[float | None]

    @property
    @abstractmethod
    def accept_target(self) -> float:
        """Mean acceptance probability that the default warm-up aims at; NaN for a kernel without a step size."""

    @property
    @abstractmethod
    def persistence(self) -> float:
        """Share of the noise that a step keeps of the step before."""

    @property
    @abstractmethod
    def adapt_always(self) -> bool:
        """Whether the step size keeps adapting while sampling."""

    @property
    @abstractmethod
    def collapse(self) -> bool:
        """Whether the output weights are integrated out."""

    @property
    def step_size(self) -> float | None:
        """The given step size, or None for one found in warm-up or a kernel without one."""
        return None if self.step_size_name is None else getattr(self, self.step_size_name)

    @property
    def adapts(self) -> bool:
        """Whether warm-up has a step size to find."""
        return self.step_size_name is not None and self.step_size is None

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
class UntunedKernel(Kernel, abstract=True):
    """What the kernels without a step size share."""

    step_size_name: ClassVar[str | None] = None
    step_size_max: ClassVar[float] = math.inf
    default_step_size: ClassVar[float | None] = None

    @property
    def accept_target(self) -> float:
        """NaN: nothing is adapted."""
        return math.nan

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
        """False."""
        return False
