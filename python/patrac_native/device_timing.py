"""What device="auto" means for a run: the faster of the CPU and a device, timed on the run's own first steps."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from patrac_native import _core
from patrac_native.execution import execute
from patrac_native.posterior import Posterior
from patrac_native.prepared_run import PreparedRun

# A run that the CPU ends within this many seconds stays there: it is not worth the start of a GPU.
WORTH_TRYING = 1.0
# What is timed takes at least this many seconds, or is the whole run.
TIMED = 0.05

# Seconds a step of posteriors that are sampled again, by device, kernel, chains and threads.
_known: WeakKeyDictionary[Posterior, dict[Hashable, float]] = WeakKeyDictionary()


def settle_device(runs: Sequence[PreparedRun]) -> list[PreparedRun]:
    """Give runs that either may do, `rival` of them not None, to the CPU or to that device.

    Both are timed from the runs' own starting points, on steps that are thrown away: what is drawn does not depend on
    it but for the device's rounding. Timings of one posterior are remembered.
    """
    rivals = [run.rival for run in runs]
    if not any(rivals):
        return list(runs)
    if None in rivals:  # those of one call go together
        reason = next(run.device_reason for run in runs if run.rival is None)
        return [replace(run, rival=None, device_reason=reason) for run in runs]
    rival = str(rivals[0])
    device, reason = _faster(runs, rival)
    return [replace(run, device=device, device_reason=reason, rival=None) for run in runs]


def _faster(runs: Sequence[PreparedRun], rival: str) -> tuple[str, str]:
    """Return the faster device and the reason in words."""
    steps = runs[0].steps // len(runs[0].start)
    own = _seconds_a_step(runs[:1]) * len(runs)
    if own * steps < WORTH_TRYING:
        return "cpu", (
            f"the run takes about {own * steps:.1g} s there, and {rival} is tried for runs of {WORTH_TRYING:g} s or "
            "more"
        )
    try:
        other = _seconds_a_step([replace(run, device=rival) for run in runs])
    except (RuntimeError, ValueError) as error:
        return "cpu", f"{rival} does not run it: {error}"
    name = _core.device_status(rival)["name"]
    times = f"a step of all chains took {own:.2g} s on the CPU and {other:.2g} s on {rival} ({name})"
    return (rival if other < own else "cpu"), f"timed on the run's first steps: {times}"


def _seconds_a_step(runs: Sequence[PreparedRun]) -> float:
    """Time steps of all chains of runs on their device, remembered where there is one run."""
    first = runs[0]
    known = _known.setdefault(first.post, {}) if len(runs) == 1 else {}
    key = (first.device, repr(first.kernel), len(first.start), first.threads)
    if key not in known:
        most = first.steps // len(first.start)
        steps, seconds = 1, _seconds(runs, 1)  # lays the model out, and is not what a step takes
        while True:
            seconds = _seconds(runs, steps)
            if seconds >= TIMED or steps == most:
                break
            steps = min(most, int(steps * min(16.0, max(2.0, 1.5 * TIMED / seconds))))
        known[key] = seconds / steps
    return known[key]


def _seconds(runs: Sequence[PreparedRun], steps: int) -> float:
    """Time `steps` steps of every chain; a Ctrl-C ends them as it would end the run."""
    trials = [run.trial(steps) for run in runs]
    started = time.perf_counter()
    results = execute(trials)
    seconds = time.perf_counter() - started
    if not all(result["completed"] for result in results):
        raise KeyboardInterrupt
    return seconds
