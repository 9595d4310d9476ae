"""What device="auto" means for a run: the faster of the CPU and a device, timed on the run's own first steps."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from patrac_native.engine import _core
from patrac_native.model.posterior import Posterior
from patrac_native.sampling.execution import execute, joined_model
from patrac_native.sampling.prepared_run import PreparedRun

# A run that the CPU ends within this many seconds stays there: it is not worth the memory that a model takes on a GPU.
WORTH_TRYING = 1.0
# The steps that are timed take at least this many seconds, if the run has as many.
TIMED = 0.05


@dataclass(frozen=True)
class Pace:
    """Seconds of all chains of a run.

    Attributes
    ----------
    first : float
        With the first step: buffers, the starting points and what else is done once.
    step : float
        Of any other step, with its share of what draws cost.
    """

    first: float
    step: float

    def seconds(self, steps: int) -> float:
        """Of a run of so many steps."""
        return self.first + (steps - 1) * self.step


# Of posteriors that may be sampled again, by what the pace depends on; only where enough was timed.
_known: WeakKeyDictionary[Posterior, dict[Hashable, Pace]] = WeakKeyDictionary()


def settle_device(runs: Sequence[PreparedRun]) -> tuple[list[PreparedRun], Any]:
    """Give runs that either may do, `rival` of them not None, all to the CPU or all to that device.

    To the device where some of the inputs are there and it runs all; else both are timed from the runs' own starting
    points, on steps that are thrown away: what is drawn does not depend on it but for the device's rounding.

    Returns
    -------
    runs : list of PreparedRun
    model : object or None
        The device's model of all runs, where one was made, for `execute`.
    """
    rivals = [run.rival for run in runs]
    if not any(rivals):
        return list(runs), None
    if None in rivals:
        reason = next(run.device_reason for run in runs if run.rival is None)
        return _all_to(runs, "cpu", reason), None
    rival = str(rivals[0])
    preferred = next((run.device_reason for run in runs if run.device_reason), None)
    device, reason, model = _faster(runs, rival) if preferred is None else _preferred(runs, rival, preferred)
    return _all_to(runs, device, reason), model


def _all_to(runs: Sequence[PreparedRun], device: str, reason: str) -> list[PreparedRun]:
    return [replace(run, device=device, device_reason=reason, rival=None) for run in runs]


def _preferred(runs: Sequence[PreparedRun], rival: str, reason: str) -> tuple[str, str, Any]:
    """Return the device if it runs all, with its model, else the CPU; and the reason in words."""
    try:
        return rival, reason, joined_model(_all_to(runs, rival, reason))
    except (RuntimeError, ValueError) as error:
        return "cpu", f"{rival} does not run it: {error}", None


def _faster(runs: Sequence[PreparedRun], rival: str) -> tuple[str, str, Any]:
    """Return the faster device, the reason in words, and the device's model if it was made and is to be used."""
    steps = runs[0].steps_of_chain
    own = _pace(runs[:1], None)
    whole = own.seconds(steps) * len(runs)
    if whole < WORTH_TRYING:
        return (
            "cpu",
            f"the run takes about {whole:.2g} s there, and {rival} is tried for runs of {WORTH_TRYING:g} s or more",
            None,
        )
    there, post = _all_to(runs, rival, ""), runs[0].post
    had_model, model, wins = post.has_device_model(rival), None, False
    try:
        other = _remembered(there).get(_key(there))
        if other is None:
            model = joined_model(there)
            other = _pace(there, model)
        wins = other.seconds(steps) < whole
    except (RuntimeError, ValueError) as error:
        return "cpu", f"{rival} does not run it: {error}", None
    finally:
        if not (wins or had_model):
            post.forget_device_model(rival)
    reason = (
        f"by the time of its first steps, the run takes about {whole:.2g} s on the CPU and "
        f"{other.seconds(steps):.2g} s on {rival} ({_core.device_status(rival)['name']}), a step of all chains "
        f"{own.step * len(runs):.2g} s and {other.step:.2g} s"
    )
    return (rival, reason, model) if wins else ("cpu", reason, None)


def _remembered(runs: Sequence[PreparedRun]) -> dict[Hashable, Pace]:
    """What is known of the one run's posterior; of several together nothing is."""
    return _known.setdefault(runs[0].post, {}) if len(runs) == 1 else {}


def _key(runs: Sequence[PreparedRun]) -> Hashable:
    """What a pace depends on, beside the posterior."""
    first = runs[0]
    return first.device, repr(first.kernel), len(first.start), first.threads, first.thin


def _pace(runs: Sequence[PreparedRun], model: Any) -> Pace:
    """Time steps of all chains of runs on their device, as far as that is not known."""
    known, key = _remembered(runs), _key(runs)
    if key in known:
        return known[key]
    most = runs[0].steps_of_chain
    _seconds(runs, 1, model)  # lays out what is laid out at the first use
    start = _shorter_seconds(runs, 1, model)
    if most == 1:
        return Pace(start, start)
    steps, growth = 1, 2.0
    while True:
        wanted = min(most, int(steps * growth))
        steps = runs[0].trial(wanted).steps_of_chain
        more = _shorter_seconds(runs, steps, model) - start
        if more >= TIMED or wanted == most:
            break
        growth = min(16.0, max(2.0, 1.5 * TIMED / more)) if more > 0 else 16.0
    pace = Pace(start, max(0.0, more) / (steps - 1))
    if more >= TIMED:
        known[key] = pace
    return pace


def _shorter_seconds(runs: Sequence[PreparedRun], steps: int, model: Any) -> float:
    """Time the steps twice: what else the machine does makes a time longer, never shorter."""
    return min(_seconds(runs, steps, model) for _ in range(2))


def _seconds(runs: Sequence[PreparedRun], steps: int, model: Any) -> float:
    """Time `steps` steps of every chain; KeyboardInterrupt where a Ctrl-C ends them."""
    trials = [run.trial(steps) for run in runs]
    started = time.perf_counter()
    results = execute(trials, model=model)
    seconds = time.perf_counter() - started
    if not all(result["completed"] for result in results):
        raise KeyboardInterrupt
    return seconds
