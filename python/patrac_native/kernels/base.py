"""The base class of the kernels, with the traits that every kernel declares."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from patrac_native.validation.complete import Complete


@dataclass(frozen=True)
class Kernel(Complete, abstract=True):
    """Base class of the kernels; defining a subclass without one of its attributes or properties raises TypeError.

    Attributes
    ----------
    name : str
        Name of the kernel in the compiled core and in files.
    runs_on_devices : bool
        Whether CUDA devices support the kernel, besides the CPU.
    is_independent : bool
        Whether the draws are independent, so that there is neither a warm-up nor a chain that has to converge.
    is_rotation_invariant : bool
        Whether a rotation of the whitened coordinates leaves the law of the chain unchanged, so that it may run in the
        eigenbasis of a quadratic log-likelihood.
    is_slow : bool
        Whether `kernel="auto"` makes more progress in a step; the verdict then recommends it if chains mix badly.
    gradients_per_step : int
        Number of gradients of the log-likelihood that a step evaluates, which counts the cost of a chain.
    step_size_name : str or None
        The argument that gives the step size, such as "delta"; None for a kernel without a step size, whose acceptance
        rate the verdict does not check either.
    step_size_max : float
        The largest step size that the adaptation may reach.
    default_step_size : float or None
        Step size of the first step if none is given; None for a kernel without a step size.
    """

    name: ClassVar[str]
    runs_on_devices: ClassVar[bool]
    is_independent: ClassVar[bool]
    is_rotation_invariant: ClassVar[bool]
    is_slow: ClassVar[bool]
    gradients_per_step: ClassVar[int]
    step_size_name: ClassVar[str | None]
    step_size_max: ClassVar[float]
    default_step_size: ClassVar[float | None]

    @property
    @abstractmethod
    def accept_target(self) -> float:
        """Mean acceptance probability that the default warm-up targets; NaN for a kernel without a step size."""

    @property
    def persistence(self) -> float:
        """Correlation of the noise of one step with that of the step before, in [0, 1); here 0."""
        return 0.0

    @property
    def adapt_always(self) -> bool:
        """Whether the step size is adapted while sampling, not only during the warm-up; here False."""
        return False

    @property
    def collapse(self) -> bool:
        """Whether the Bayesian output weights are integrated out; here False."""
        return False

    @property
    def metric(self) -> str:
        """What the step sizes of coordinates follow: "prior", here, "inputs" or "curvature", see `MGrad`."""
        return "prior"

    @property
    def gradient(self) -> str:
        """How the gradient of a wide first layer is computed on a device: "exact", here, or "coarse", see `PCNL`."""
        return "exact"

    @property
    def step_size(self) -> float | None:
        """The given step size; None if the warm-up finds it or the kernel has none."""
        return None if self.step_size_name is None else getattr(self, self.step_size_name)

    @property
    def adapts(self) -> bool:
        """Whether the warm-up has to find a step size."""
        return self.step_size_name is not None and self.step_size is None

    @property
    def starting_step_size(self) -> float:
        """Step size of the first step; NaN for a kernel without a step size."""
        if self.step_size is not None:
            return self.step_size
        return math.nan if self.default_step_size is None else self.default_step_size

    def label(self) -> str:
        """Return the constructor call without arguments that have their default, such as "MGrad(collapse=True)"."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def to_dict(self) -> dict[str, Any]:
        """Return name and arguments as JSON-able values, from which `kernel_from_dict` rebuilds the kernel."""
        return {"name": self.name, **asdict(self)}
