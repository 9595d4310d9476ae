"""Warm-up schedules: phases of steps with their adaptation rule (docs/method.md, section 7; paper, Appendix B)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from patrac_native.model.kernels import PCNL, Kernel
from patrac_native.validation.checks import check_count, check_positive

# Steps between two looks at the acceptance rate, of a band and of a target.
WINDOW, TARGET_WINDOW = 200, 10
# The default warm-up: chains are compared after so many steps, twice as many and so on, up to the most.
FIRST_LOOK, MOST_STEPS = 1_000, 64_000
# Steps run as sampled before the first draw, at the step size that was found.
SETTLE_STEPS = 500


@dataclass(frozen=True)
class Phase:
    """A stretch of warm-up.

    With `accept`, every 200 steps the acceptance rate p of these steps is looked at: p <= accept_low halves the step
    size, p >= accept_high multiplies it by 4/3 up to the kernel's largest, otherwise it stays. With `target`, every 10
    steps the logarithm of the step size moves by a falling gain times (p - target), p the mean acceptance probability.
    With neither the step size stays fixed.

    Parameters
    ----------
    steps : int
        At least 0; with `first_look` the most steps that the phase takes.
    accept : (float, float), optional
        (accept_low, accept_high), 0 <= low < high <= 1.
    average : bool
        Let the phase end with the geometric mean of the step sizes of its second half, instead of the last of them.
    accept_all : bool
        Take every finite proposal: the chain then moves by the discretised diffusion and leaves bad starts quickly.
    target : float, optional
        Mean acceptance probability to approach, in (0, 1).
    first_look : int, optional
        After this many steps, twice as many and so on, the chains are compared, and the phase ends for all of them once
        step sizes and log-likelihoods stand still (docs/method.md, section 7). A multiple of 8.
    """

    steps: int
    accept: tuple[float, float] | None = None
    accept_all: bool = False
    average: bool = False
    target: float | None = None
    first_look: int | None = None

    def __post_init__(self) -> None:
        check_count(self.steps, "steps of Phase", least=0)
        if self.target is not None:
            if not 0 < self.target < 1:
                raise ValueError(f"target of Phase must be in (0, 1); got {self.target}.")
            if self.accept is not None or self.accept_all:
                raise ValueError("target of Phase must be None when accept or accept_all is given.")
        if self.first_look is not None and check_count(self.first_look, "first_look of Phase") % 8:
            raise ValueError(f"first_look of Phase must be a multiple of 8; got {self.first_look}.")
        if self.accept is not None:
            low, high = self.accept
            if not 0 <= low < high <= 1:
                raise ValueError(f"accept of Phase must be (low, high) with 0 <= low < high <= 1; got {self.accept}.")
            if self.accept_all:
                raise ValueError("accept of Phase must be None when accept_all is set: there is no rate to adapt to.")


@dataclass(frozen=True)
class Warmup:
    """Phases run one after the other before the first draw.

    Parameters
    ----------
    phases : tuple of Phase
        An empty tuple means none.
    step_size : float, optional
        Step size of the first step where the kernel names none.
    only_for : str, optional
        Name of the only kernel that the schedule is meant for.
    """

    phases: tuple[Phase, ...]
    step_size: float | None = None
    only_for: str | None = None

    def __post_init__(self) -> None:
        for phase in self.phases:
            if not isinstance(phase, Phase):
                raise TypeError(f"phases of Warmup must hold Phase objects; got {type(phase).__name__}.")
        if self.step_size is not None:
            check_positive(self.step_size, "step_size of Warmup")

    @property
    def steps(self) -> int:
        """All steps together, at most: a phase with `first_look` may take fewer."""
        return sum(phase.steps for phase in self.phases)

    def scaled(self, factor: float) -> Warmup:
        """Return the same schedule with every phase's length multiplied by `factor`, in whole windows of 200 steps."""
        check_positive(factor, "factor")
        phases = tuple(
            replace(phase, steps=max(1, round(phase.steps * factor / WINDOW)) * WINDOW) if phase.steps else phase
            for phase in self.phases
        )
        return replace(self, phases=phases)

    @property
    def adapts(self) -> bool:
        """Whether a phase is long enough to change the step size at all."""
        return any(
            (phase.accept is not None and phase.steps >= WINDOW)
            or (phase.target is not None and phase.steps >= TARGET_WINDOW)
            for phase in self.phases
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Warmup:
        """Rebuild from `to_dict`."""
        phases = tuple(
            Phase(**{**p, "accept": None if p["accept"] is None else tuple(p["accept"])}) for p in content["phases"]
        )
        return cls(phases, content["step_size"], content["only_for"])


def paper_warmup() -> Warmup:
    """Return the paper's burn-in for pCNL (Appendix B): 650,000 steps from delta = 1e-4.

    50,000 steps adapting to acceptance in (0.85, 0.95), 100,000 steps with every move accepted, 500,000 adapting to
    (0.4, 0.9).
    """
    return Warmup(
        (Phase(50_000, (0.85, 0.95)), Phase(100_000, accept_all=True), Phase(500_000, (0.4, 0.9))),
        step_size=1e-4,
        only_for=PCNL.name,
    )


def default_warmup(kernel: Kernel, steps: int | None = None) -> Warmup:
    """Return the default warm-up of a kernel.

    It ends by itself: the step size approaches the kernel's `accept_target`, the chains are compared after 1,000 steps,
    2,000 and so on, and it ends when they agree, at the latest after 64,000. The step size is then the geometric mean
    of the second half, and 500 steps are run with it before the first draw.

    Parameters
    ----------
    kernel : Kernel
        With a step size of its own nothing is adapted; `Exact()` needs no warm-up.
    steps : int, optional
        Run exactly this many steps instead, three quarters of them adapting; at least 1.
    """
    if kernel.is_independent and steps is None:
        return Warmup(())
    target = kernel.accept_target if kernel.adapts else None
    if steps is None:
        return Warmup(
            (Phase(MOST_STEPS, target=target, average=kernel.adapts, first_look=FIRST_LOOK), Phase(SETTLE_STEPS))
        )
    check_count(steps, "steps")
    if target is None:
        return Warmup((Phase(steps),))
    settle = steps // 4
    return Warmup((Phase(steps - settle, target=target, average=True), Phase(settle)))
