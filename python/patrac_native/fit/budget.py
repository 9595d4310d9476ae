"""The number of steps that a budget in minutes pays for, from counted operations.

No clock is read, so a fit has the same draws on every machine; on a machine other than the nominal one it takes longer
or less than the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

import patrac_native as pn
from patrac_native.fit.settings import Kernel

# The nominal machine: two cores, each of which executes this many multiply-adds in a second. Measured for one chain of
# Full and Mix on 277 to 7,000 rows and networks of one and two hidden layers of 50 nodes, 4e10 is within 30% on a 2023
# x86-64 core with 256-bit vectors. float64 takes twice as long.
_CORES, _RATE = 2, {"float32": 4.0e10, "float64": 2.0e10}
# The share of the budget that the chains get if training and scoring take no more than the rest, and the number of
# minutes of a budget of which they get that share in any case: a shorter budget would all go to the training.
_SAMPLING_SHARE, _LEAST_MINUTES = 0.75, 0.1
# Nominal seconds of the scores; and of an update of a network in training, the part that does not depend on its size
# and the part for each parameter and row of the batch. Fitted to the processor time of the trainings of yacht and
# concrete, halved because the chains took twice their nominal time on the same machine.
_SCORING_SECONDS = 2.0
_UPDATE_SECONDS, _PARAMETER_ROW_SECONDS = 1.4e-4, 3.5e-10
# The share of a chain's steps that are warm-up, and the multiple to which their number is rounded; bounds of the number
# of warm-up steps where the number of steps is given.
_WARMUP_SHARE, _WARMUP_MULTIPLE = 0.25, 200
_WARMUP_BOUNDS = (4_000, 20_000)
# Fewer steps of a chain than this leave no time to converge: a smaller model is better then.
MIN_STEPS = 5_000


@dataclass(frozen=True)
class Schedule:
    """Lengths of the chains: number of steps for each draw, and of warm-up steps."""

    thin: int
    warmup: int


def training_seconds(nets: Sequence[pn.Network], rows: int, batch_rows: int) -> float:
    """Return the time that the training of networks, the choice of penalty and epochs included, nominally took."""
    epochs = 0.0
    for net in nets:
        assert net.history is not None
        epochs += len(net.history.loss) / min(_CORES, len(nets))
    assert nets[0].history is not None
    validation = nets[0].history.settings["validation"]
    epochs += 0 if validation is None else validation["network_epochs"]
    parameters = sum((wide + 1) * width for wide, width in pairwise(nets[0].layer_sizes))
    return epochs * (math.ceil(rows / batch_rows) * _UPDATE_SECONDS + parameters * rows * _PARAMETER_ROW_SECONDS)


def chain_minutes(minutes: float, training: float) -> float:
    """Return what a budget of the whole fit leaves for the chains after so many nominal seconds of training."""
    rest = minutes - (training + _SCORING_SECONDS) / 60.0
    return max(_SAMPLING_SHARE * min(minutes, _LEAST_MINUTES), min(_SAMPLING_SHARE * minutes, rest))


def steps_within(minutes: float, post: pn.Posterior, chains: int, kernel: str | Kernel = "auto") -> int:
    """Return the number of steps of each chain that take so many minutes on the nominal machine."""
    cores = min(_CORES, chains)
    operations = 60.0 * minutes * cores * _RATE[post.network.dtype.name] / chains
    return int(operations / post.plan(kernel).step_cost)


def schedule_within(
    minutes: float,
    post: pn.Posterior,
    *,
    chains: int,
    draws: int,
    warmup: int | None = None,
    kernel: str | Kernel = "auto",
) -> Schedule:
    """Return the lengths of chains that take so many minutes: a quarter is warm-up, the rest is divided among draws."""
    steps = steps_within(minutes, post, chains, kernel)
    if warmup is None:
        warmup = max(_WARMUP_MULTIPLE, int(_WARMUP_SHARE * steps) // _WARMUP_MULTIPLE * _WARMUP_MULTIPLE)
    return Schedule(thin=max(1, (steps - warmup) // draws), warmup=warmup)


def schedule_given(thin: int, draws: int) -> Schedule:
    """Return the lengths of chains with a given number of steps for each draw: half as many steps are warm-up."""
    half = thin * draws // 2 // _WARMUP_MULTIPLE * _WARMUP_MULTIPLE
    return Schedule(thin, int(np.clip(half, *_WARMUP_BOUNDS)))
