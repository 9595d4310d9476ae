"""The floor of a step: the time that its operations take at the peak rates of one core."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache

import patrac_native as pn
from patrac_native.engine import testing

MULTIPLY_ADD, NORMAL = "multiply_add", "normal"
# Minimum processor time of one timing in seconds, far above the cost of a call and of reading the clock.
_TIMING_SECONDS = 0.01
_TIMINGS = 7


@cache
def measure_rate(name: str, dtype: str, level: str) -> float:
    """Measure, once in a process, how many operations of one kind this core executes in a second from the first cache.

    The kinds are "multiply_add", "normal" and elementary functions such as "tanh". It is the largest rate of several
    timings of processor time, because a floor assumes an undisturbed machine.
    """
    repeats, seconds = 1, 0.0
    while True:
        started = time.process_time()
        testing.repeat_operation(name, dtype, repeats, level)
        seconds = time.process_time() - started
        if seconds >= _TIMING_SECONDS / 2:
            break
        repeats *= 4 if seconds < _TIMING_SECONDS / 16 else 2
    best = 0.0
    for _ in range(_TIMINGS):
        started = time.process_time()
        done = testing.repeat_operation(name, dtype, repeats, level)
        best = max(best, done / (time.process_time() - started))
    return best


def nanoseconds(names: Sequence[str], dtype: str, level: str) -> dict[str, float]:
    """Return the time of one operation of each kind at its peak rate."""
    return {name: 1e9 / measure_rate(name, dtype, level) for name in names}


def floor_microseconds(post: pn.Posterior) -> float:
    """Return a lower estimate of the time of one pCNL step of one chain on this core, in microseconds.

    It assumes that operations of different kinds do not overlap: a core that executes, for example, the integer
    instructions of the normals in parallel with multiply-adds can be faster. Loads, sums over rows, padding to whole
    vectors, and the algebra of proposal and acceptance are left out.
    """
    counts = post.plan().operations
    each = nanoseconds(list(counts), post.network.dtype.name, post.network.level)
    return sum(count * each[name] for name, count in counts.items()) / 1e3
