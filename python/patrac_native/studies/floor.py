"""The floor of a step: the time that its operations take at the peak rates of one core."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from patrac_native.engine import _core

if TYPE_CHECKING:
    from patrac_native.posterior.posterior import Posterior

MULTIPLY_ADD, NORMAL = "multiply_add", "normal"
# Minimum processor time of one timing in seconds, far above the cost of a call and of reading the clock.
_TIMING_SECONDS = 0.01
_TIMINGS = 7


@dataclass(frozen=True)
class Rates:
    """The peak rate of each kind of operation on one core, with data in the first-level cache.

    Attributes
    ----------
    level : str
        Instruction-set level.
    dtype : str
        "float32" or "float64".
    per_second : mapping of str to float
        Operations a second, by name: "multiply_add", "normal" and elementary functions.
    """

    level: str
    dtype: str
    per_second: Mapping[str, float]

    def nanoseconds(self, name: str) -> float:
        """Return the time of one operation in nanoseconds."""
        return 1e9 / self.per_second[name]


def measure_rate(name: str, dtype: str, level: str) -> float:
    """Measure how many operations of one kind this core executes in a second.

    Parameters
    ----------
    name : str
        "multiply_add", "normal" or an elementary function such as "tanh".
    dtype : {"float32", "float64"}
    level : str
        Instruction-set level.

    Returns
    -------
    float
        The largest rate of several timings of processor time, because a floor assumes an undisturbed machine.
    """
    testing: Any = _core.testing
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


@cache
def _rate(name: str, dtype: str, level: str) -> float:
    """Return `measure_rate`, measured once in a process."""
    return measure_rate(name, dtype, level)


def measure_rates(names: Sequence[str], dtype: str, level: str) -> Rates:
    """Measure several kinds of operations, each once in a process, which takes a tenth of a second."""
    return Rates(level, dtype, {name: _rate(name, dtype, level) for name in names})


def operations(post: Posterior) -> dict[str, int]:
    """Count the operations of one gradient step of a posterior, see `patrac_native.posterior.plan.Plan`."""
    return post.plan().operations


def floor_microseconds(post: Posterior) -> float:
    """Return a lower estimate of the time of one pCNL step of one chain on this core, in microseconds.

    It is the number of multiply-adds over the peak rate of fused multiply-adds, plus elementary functions and normals
    over their own rates, all measured at the posterior's level and dtype. The floor assumes that they do not overlap:
    a core that executes, for example, the integer instructions of the normals in parallel with multiply-adds can be
    faster. Loads, sums over rows, padding to whole vectors, and the algebra of proposal and acceptance are left out.
    """
    counts = operations(post)
    rates = measure_rates(list(counts), post.dtype.name, post.level)
    return sum(count * rates.nanoseconds(name) for name, count in counts.items()) / 1e3
