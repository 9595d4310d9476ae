"""Warm-up schedules: phases of steps with their adaptation rule (docs/method.md, section 7; paper, Appendix B)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from patrac_native.kernels import PCNL, Kernel
from patrac_native.validation.checks import check_count, check_positive

# Numbers of steps after which the step size is adapted: to a band of acceptance rates, and to a target.
WINDOW, TARGET_WINDOW = 200, 10
# In the default warm-up the chains are compared after FIRST_COMPARISON steps, after twice as many and so on; the
# adaptive phase ends after MAX_ADAPTIVE_STEPS at the latest; in deep narrow networks, where the log-likelihood often
# has not settled by then, after DEEP_ADAPTIVE_STEPS.
FIRST_COMPARISON, MAX_ADAPTIVE_STEPS, DEEP_ADAPTIVE_STEPS = 1_000, 64_000, 16_000
# Steps with the adapted step size between the adaptive phase and the first draw.
SETTLE_STEPS = 500
# The same in the warm-up of many chains.
FIRST_NESTED_COMPARISON, MAX_NESTED_STEPS = 400, 16_000
# Of a warm-up with steps without the accept test: the shares of adapting steps before them and of these steps
# themselves, and the squared log acceptance ratio per dimension that they aim at (docs/tried.md).
_TRANSIENT_SHARES, TRANSIENT_ERROR = (0.05, 0.65), 0.1


@dataclass(frozen=True)
class Phase:
    """A phase of the warm-up: a number of steps with one rule for the step size.

    With `accept`, the step size is adapted every 200 steps by their acceptance rate p: p <= low halves it,
    p >= high multiplies it by 4/3 up to the kernel's maximum, and otherwise it stays. With `target`, every 10 steps
    a decreasing gain times (p - target) is added to the logarithm of the step size, where p is the mean acceptance
    probability of these steps. With `energy_error` p is the mean of e/(e + r²) and the target 1/2, where r is the log
    acceptance ratio of a step and e = `energy_error` times the dimension; the step size stays below 16 times that at
    which the phase began. With none of them, the step size stays fixed.

    Parameters
    ----------
    steps : int
        Number of steps, at least 0; with `first_look` the maximum number of steps.
    accept : (float, float), optional
        The band (low, high) of acceptance rates, 0 <= low < high <= 1.
    accept_all : bool
        Whether every finite proposal is accepted: the chain then follows the discretised diffusion and leaves bad
        starting points quickly. Default False.
    average : bool
        Whether the phase ends with the geometric mean of the step sizes of its second half instead of the last step
        size. Default False.
    target : float, optional
        Target of the mean acceptance probability, in (0, 1); excludes `accept` and `accept_all`.
    energy_error : float, optional
        Target of the squared log acceptance ratio per dimension, > 0 and finite; needs `accept_all`. A tenth gives
        steps a few times as large as those that would be accepted, with which a chain comes from a trained network into
        the posterior quickly. Moves whose log acceptance ratio is below minus 100 times the root of this target times
        the dimension keep the accept test.
    persistence : float, optional
        Persistence of the noise during the phase, in (0, 1), in place of the kernel's; without effect on kernels
        whose noise does not persist.
    travel : float, optional
        Distance after which the phase ends, > 0 and finite: the sum of the step sizes of a chain's accepted moves, for
        `MGrad` in units of the mean prior variance. It is checked for all chains when `first_look` says, in place of
        the comparison. With `energy_error`, it also ends at the first check if the step sizes at its beginning lead as
        far in 1,000 steps. If the next phase has a fixed length, it takes the steps that are left.
    first_look : int, optional
        Number of steps before the chains are first compared, a multiple of 8, at least 8. They are compared again
        after twice as many steps and so on, and the phase ends for all chains once step sizes and log-likelihoods are
        stable (docs/method.md, section 7). By default the phase has a fixed length.
    superchains : int, optional
        Number of groups of consecutive chains that begin at one point each, at least 2, for many chains: a divisor of
        the number of chains, at most half of it. With `first_look`, the chains are compared by the nested R-hat of one
        value of each, which needs fewer steps than a comparison chain by chain. With `average`, chains that agree go on
        with one step size.

    Raises
    ------
    TypeError
        If `steps`, `first_look` or `superchains` is not an integer.
    ValueError
        If a parameter is outside its range, `accept`, `accept_all` and `target` are combined, or `energy_error` is
        given without `accept_all` or `travel` or `superchains` without `first_look`.
    """

    steps: int
    accept: tuple[float, float] | None = None
    accept_all: bool = False
    average: bool = False
    target: float | None = None
    first_look: int | None = None
    energy_error: float | None = None
    persistence: float | None = None
    travel: float | None = None
    superchains: int | None = None

    def __post_init__(self) -> None:
        check_count(self.steps, "steps of Phase", least=0)
        if self.target is not None:
            if not 0 < self.target < 1:
                raise ValueError(f"target of Phase must be in (0, 1); got {self.target}.")
            if self.accept is not None or self.accept_all:
                raise ValueError("target of Phase must be None when accept or accept_all is given.")
        if self.energy_error is not None:
            check_positive(self.energy_error, "energy_error of Phase")
            if not self.accept_all:
                raise ValueError("energy_error of Phase needs accept_all=True: an accept test limits the error itself.")
        if self.persistence is not None and not 0 < self.persistence < 1:
            raise ValueError(f"persistence of Phase must be in (0, 1); got {self.persistence}.")
        if self.travel is not None:
            check_positive(self.travel, "travel of Phase")
            if self.first_look is None:
                raise ValueError("travel of Phase needs first_look, the number of steps before it is first checked.")
        if self.superchains is not None:
            check_count(self.superchains, "superchains of Phase", least=2)
            if self.first_look is None:
                raise ValueError(
                    "superchains of Phase needs first_look, the number of steps before they are first compared."
                )
            if self.travel is not None:
                raise ValueError("superchains of Phase must be None when travel is given, in place of a comparison.")
        if self.first_look is not None and check_count(self.first_look, "first_look of Phase") % 8:
            raise ValueError(f"first_look of Phase must be a multiple of 8; got {self.first_look}.")
        if self.accept is not None:
            low, high = self.accept
            if not 0 <= low < high <= 1:
                raise ValueError(f"accept of Phase must be (low, high) with 0 <= low < high <= 1; got {self.accept}.")
            if self.accept_all:
                raise ValueError("accept of Phase must be None when accept_all is set: there is no rate to adapt to.")


_Phase = Phase  # inside the class below, the name means its attribute


@dataclass(frozen=True)
class Warmup:
    """A warm-up schedule: phases that are run one after the other before the first draw.

    Parameters
    ----------
    phases : tuple of Phase
        The phases in order, each a `Warmup.Phase`; an empty tuple means no warm-up.
    step_size : float, optional
        Step size of the first step, > 0, for a kernel without a step size of its own; by default the kernel's
        `starting_step_size`.
    only_for : str, optional
        Name of the only kernel for which the schedule is meant, such as "pcnl"; by default any kernel.

    Raises
    ------
    TypeError
        If `phases` holds something other than Phase objects, or `step_size` is not a number.
    ValueError
        If `step_size` is not positive and finite, or phases have different numbers of superchains.
    """

    Phase: ClassVar[type[_Phase]] = _Phase
    phases: tuple[_Phase, ...]
    step_size: float | None = None
    only_for: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.phases, Iterable):
            got = (
                "one Phase. Write Warmup((Warmup.Phase(...),))" if isinstance(self.phases, Phase) else repr(self.phases)
            )
            raise TypeError(f"phases of Warmup must be a tuple of Phase; got {got}.")
        object.__setattr__(self, "phases", tuple(self.phases))
        for phase in self.phases:
            if not isinstance(phase, Phase):
                raise TypeError(f"phases of Warmup must hold Phase objects; got {type(phase).__name__}.")
        if len(found := {phase.superchains for phase in self.phases if phase.superchains}) > 1:
            raise ValueError(f"phases of Warmup must have one number of superchains; got {sorted(found)}.")
        if self.step_size is not None:
            check_positive(self.step_size, "step_size of Warmup")

    @property
    def steps(self) -> int:
        """Maximum number of steps of all phases together; a phase with `first_look` may take fewer."""
        return sum(phase.steps for phase in self.phases)

    def scaled(self, factor: float) -> Warmup:
        """Return the schedule with the length of every phase multiplied by `factor`.

        Parameters
        ----------
        factor : float
            Positive and finite.

        Returns
        -------
        Warmup
            The length of each phase is rounded to a multiple of 200 steps, at least 200; empty phases stay empty.

        Raises
        ------
        TypeError, ValueError
            If `factor` is not a positive finite number.
        """
        check_positive(factor, "factor")
        phases = tuple(
            replace(phase, steps=max(1, round(phase.steps * factor / WINDOW)) * WINDOW) if phase.steps else phase
            for phase in self.phases
        )
        return replace(self, phases=phases)

    @property
    def adapts(self) -> bool:
        """Whether at least one phase is long enough to adapt the step size once."""
        return any(
            (phase.accept is not None and phase.steps >= WINDOW)
            or ((phase.target or phase.energy_error) is not None and phase.steps >= TARGET_WINDOW)
            for phase in self.phases
        )

    @classmethod
    def default(cls, kernel: Kernel, steps: int | None = None, *, at_most: int | None = None) -> Warmup:
        """Return the default warm-up of a kernel.

        Its first phase adapts the step size to the kernel's `accept_target`. The chains are compared after 1,000 steps,
        2,000 and so on, and the phase ends when they agree. The step size is then the geometric mean over the second
        half of the phase. A second phase of 500 steps keeps it.

        Parameters
        ----------
        kernel : Kernel
            The kernel; one with a step size of its own is not adapted, and `Exact()` needs no warm-up.
        steps : int, optional
            Number of steps, at least 1, for a warm-up of fixed length: three quarters of the steps adapt.
        at_most : int, optional
            Number of steps of both phases, at least 1, after which the warm-up ends even if the chains do not agree;
            default 64,500. Below 1,500 it is the fixed length. Without effect if `steps` is given.

        Returns
        -------
        Warmup

        Raises
        ------
        TypeError, ValueError
            If `kernel` is no kernel, or `steps` or `at_most` is not an integer of at least 1.
        """
        _check_kernel(kernel)
        if at_most is not None and check_count(at_most, "at_most") < FIRST_COMPARISON + SETTLE_STEPS and steps is None:
            steps = at_most
        if kernel.is_independent and steps is None:
            return cls(())
        target = kernel.accept_target if kernel.adapts else None
        if steps is None:
            longest = MAX_ADAPTIVE_STEPS if at_most is None else at_most - SETTLE_STEPS
            adaptive = Phase(longest, target=target, average=kernel.adapts, first_look=FIRST_COMPARISON)
            return cls((adaptive, Phase(SETTLE_STEPS)))
        check_count(steps, "steps")
        if target is None:
            return cls((Phase(steps),))
        settle = steps // 4
        return cls((Phase(steps - settle, target=target, average=True), Phase(settle)))

    @classmethod
    def many_chains(cls, kernel: Kernel, superchains: int = 16, *, at_most: int = MAX_NESTED_STEPS) -> Warmup:
        """Return a short warm-up for hundreds or thousands of chains, a few draws of each of which are wanted.

        The default warm-up compares each chain with itself, which takes long chains. Here groups of chains, the
        *superchains*, start at one point each, and the warm-up ends once their means differ no more than those of
        independent chains would (nested R-hat, Margossian et al. 2024). They are compared after 400 steps, 800 and so
        on, by the log-likelihood of each chain, as it is and as it was at half of the steps. The first draw follows at
        once. `Draws.summary` then takes the chains of a superchain as one chain.

        Parameters
        ----------
        kernel : Kernel
            The kernel of the chains. Each chain adapts its step size to the kernel's `accept_target`; at the end all
            chains take the geometric mean. A step size of its own is not adapted.
        superchains : int
            Number of starting points, at least 2: a divisor of the number of chains, at most half of it; default 16.
            With `init="auto"` or "prior", `sample` draws that many points for as many groups of consecutive chains.
            An array `init` must have that many, each repeated. Superchains should have 16 chains or more, and 64 for
            R-hat to show it: of independent draws of 1,024 chains R-hat of f is about 1.01, of 256 chains 1.04.
        at_most : int
            Number of steps, at least 400, after which the warm-up ends even if the chains do not agree, with a warning;
            default 16,000.

        Returns
        -------
        Warmup

        Raises
        ------
        TypeError, ValueError
            If `superchains` or `at_most` is not an integer in its range, or `kernel` is `Exact()` or no kernel.

        References
        ----------
        Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari & Gelman (2024), Nested R-hat: assessing the convergence of
        Markov chain Monte Carlo when running many short chains. Bayesian Analysis.

        Examples
        --------
        >>> import patrac_native as pn
        >>> pn.Warmup.many_chains(pn.PCNL(), 32).phases[0].superchains
        32
        """
        _check_kernel(kernel)
        if kernel.is_independent:
            raise ValueError(f"kernel must be one of a Markov chain; {kernel} needs no warm-up.")
        check_count(at_most, "at_most", least=FIRST_NESTED_COMPARISON)
        target = kernel.accept_target if kernel.adapts else None
        return cls(
            (
                Phase(
                    at_most,
                    target=target,
                    average=kernel.adapts,
                    first_look=FIRST_NESTED_COMPARISON,
                    superchains=superchains,
                ),
            )
        )

    @property
    def superchains(self) -> int | None:
        """Number of groups of chains that begin at one point; None if each chain begins at its own."""
        return next((phase.superchains for phase in self.phases if phase.superchains), None)

    @classmethod
    def transient(cls, kernel: Kernel, steps: int) -> Warmup:
        """Return a warm-up most of whose steps have no accept test, for chains that start far from the posterior.

        A trained network can lie far from the bulk of its posterior: at low noise, or where the network is deep and
        narrow, the log-likelihood of chains that start there rises for tens of thousands of steps. Steps without the
        accept test are several times as large, and chains come in sooner (docs/tried.md). Where chains start in the
        bulk they bring nothing, and they can carry a chain into a region that it leaves slowly, so no default of
        `sample` has them.

        Parameters
        ----------
        kernel : MGrad or PCNL
            A kernel with gradients whose step size is adapted.
        steps : int
            Number of steps, at least 1: a twentieth adapts, thirteen twentieths follow without the accept test and find
            their step size by their energy error, three quarters of the others adapt again, and the rest keep the step
            size.

        Returns
        -------
        Warmup

        Raises
        ------
        TypeError, ValueError
            If `steps` is not an integer of at least 1, or `kernel` has no gradient or a step size of its own.

        Examples
        --------
        >>> import patrac_native as pn
        >>> [phase.steps for phase in pn.Warmup.transient(pn.MGrad(), 10_000).phases]
        [500, 6500, 2250, 750]
        """
        check_count(steps, "steps")
        _check_kernel(kernel)
        if not (kernel.gradients_per_step > 0 and kernel.adapts):
            raise ValueError(f"kernel must be MGrad() or PCNL(), whose step size the warm-up finds; got {kernel}.")
        target = kernel.accept_target
        first, free = (int(share * steps) for share in _TRANSIENT_SHARES)
        settle = (steps - first - free) // 4
        return cls(
            (
                Phase(first, target=target),
                Phase(free, accept_all=True, energy_error=TRANSIENT_ERROR),
                Phase(steps - first - free - settle, target=target, average=True),
                Phase(settle),
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Warmup:
        """Rebuild from `to_dict`."""
        phases = [{**one, "accept": one["accept"] and tuple(one["accept"])} for one in content["phases"]]
        return cls(tuple(Phase(**one) for one in phases), content["step_size"], content["only_for"])


def _check_kernel(kernel: Kernel) -> None:
    """Raise TypeError if `kernel` is no kernel."""
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a kernel such as PCNL() or MGrad(); got {kernel!r}.")


def paper_warmup() -> Warmup:
    """Return the paper's burn-in for pCNL (Appendix B): 650,000 steps from delta = 1e-4.

    Its phases are 50,000 steps that adapt to acceptance rates in (0.85, 0.95), 100,000 steps that accept every
    proposal, and 500,000 steps that adapt to (0.4, 0.9).
    """
    return Warmup(
        (Phase(50_000, (0.85, 0.95)), Phase(100_000, accept_all=True), Phase(500_000, (0.4, 0.9))),
        step_size=1e-4,
        only_for=PCNL.name,
    )
