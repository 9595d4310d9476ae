"""Warm-up schedules: phases of steps with their adaptation rule (docs/method.md, section 7; paper, Appendix B)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from patrac_native.kernels import PCNL, Kernel
from patrac_native.validation import check_count, check_positive

# Steps between two looks at the acceptance rate.
WINDOW = 200


@dataclass(frozen=True)
class Phase:
    """A stretch of warm-up.

    Every 200 steps the acceptance rate p of these steps is looked at: p <= accept_low halves the step size,
    p >= accept_high multiplies it by 4/3 up to the kernel's largest, otherwise it stays.

    Parameters
    ----------
    steps : int
        At least 0.
    accept : (float, float), optional
        (accept_low, accept_high), 0 <= low < high <= 1. None: the step size stays fixed.
    average : bool
        Let the phase end with the geometric mean of the step sizes of its second half, instead of the last of them.
    accept_all : bool
        Take every finite proposal: the chain then moves by the discretised diffusion and leaves bad starts quickly.
    """

    steps: int
    accept: tuple[float, float] | None = None
    accept_all: bool = False
    average: bool = False

    def __post_init__(self) -> None:
        check_count(self.steps, "steps of Phase", least=0)
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
        """All steps together."""
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
        return any(phase.accept is not None and phase.steps >= WINDOW for phase in self.phases)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Warmup:
        """Rebuild from `to_dict`."""
        phases = tuple(
            Phase(
                p["steps"],
                None if p["accept"] is None else (p["accept"][0], p["accept"][1]),
                accept_all=p["accept_all"],
                average=p["average"],
            )
            for p in content["phases"]
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


def default_warmup(kernel: Kernel, steps: int = 20_000) -> Warmup:
    """Return the default: three quarters of the steps adapt to the kernel's band, the last quarter is run as sampled.

    The step size after adaptation is the geometric mean over the second half of the adapting steps.

    Parameters
    ----------
    kernel : Kernel
        Its `accept_band` is aimed at; with a step size of its own nothing is adapted.
    steps : int
        At least 1.
    """
    check_count(steps, "steps")
    if kernel.step_size is not None:
        return Warmup((Phase(steps),))
    settle = steps // 4
    return Warmup((Phase(steps - settle, kernel.accept_band, average=True), Phase(settle)))
