"""The number of steps that a budget in minutes pays for, from counted operations.

No clock is read, so a fit has the same draws on every machine; on a machine other than the nominal one it takes longer
or less than the budget.
"""

from __future__ import annotations

import patrac_native as pn
from patrac_native.fit.settings import Kernel

# The nominal machine: two cores, each of which executes this many multiply-adds in a second. Measured for one chain of
# Full and Mix on 277 to 7,000 rows and networks of one and two hidden layers of 50 nodes, 4e10 is within 30% on a 2023
# x86-64 core with 256-bit vectors. float64 takes twice as long.
CORES, _RATE = 2, {"float32": 4.0e10, "float64": 2.0e10}
# The share of the budget that the chains get if training and scoring take no more than the rest, and the number of
# minutes of a budget of which they get that share in any case: a shorter budget would all go to the training.
_SAMPLING_SHARE, _LEAST_MINUTES = 0.75, 0.1
# Nominal seconds of the scores.
_SCORING_SECONDS = 2.0
# Fewer steps of a chain than this leave no time to try several posteriors, or, of Mix, to converge.
MIN_STEPS = 5_000
# A chain takes at most so many steps for each of its parameters: those of few know their posterior long before. By
# operations, which are the least part of the time of their steps, a budget would pay for tens of millions. The longest
# chain of docs/tables.md that this leaves as it was took 28,600 for each.
_STEPS_OF_PARAMETER = 40_000


def chain_minutes(minutes: float, training: float) -> float:
    """Return what a budget of the whole fit leaves for the chains after so many nominal seconds of training."""
    rest = minutes - (training + _SCORING_SECONDS) / 60.0
    return max(_SAMPLING_SHARE * min(minutes, _LEAST_MINUTES), min(_SAMPLING_SHARE * minutes, rest))


def minutes_of(steps: float, post: pn.Posterior, chains: int, kernel: str | Kernel = "auto") -> float:
    """Return the minutes that so many steps of each chain take on the nominal machine."""
    operations = steps * chains * post.plan(kernel).step_cost
    return float(operations / (60.0 * min(CORES, chains) * _RATE[post.network.dtype.name]))


def steps_within(minutes: float, post: pn.Posterior, chains: int, kernel: str | Kernel = "auto") -> int:
    """Return the number of steps of each chain that take so many minutes on the nominal machine.

    Of few parameters they are fewer: at most 40,000 for each of them.
    """
    cores = min(CORES, chains)
    operations = 60.0 * minutes * cores * _RATE[post.network.dtype.name] / chains
    return min(_STEPS_OF_PARAMETER * post.dim, int(operations / post.plan(kernel).step_cost))
