"""One side's count of effective draws: its plan from a pilot run, its rounds, and what they come to."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ess_measures import bulk, conditional_mean, geyer, longest_stay, paper
from ess_problems import Data
from ess_sides import MOST_BYTES, THINS, JaxSide, NativeSide, NutsSide, Stretch

import patrac_native as pn

FloatArray = npt.NDArray[Any]
Side = NativeSide | JaxSide | NutsSide

ROUNDS = 4
# States are kept so often that an effective draw spans twenty of them: what lies between is worth a twentieth at most.
KEPT_PER_DRAW = 20
# Enough effective draws: a side stops there, but not before so many seconds.
ENOUGH, LEAST_SECONDS = 1000, 0.4
# Kept states whose autocorrelation is taken, and those at which the conditional mean is computed.
MOST_MEASURED, MOST_CONDITIONAL, CONDITIONAL_PER_DRAW = 100_000, 2000, 4
# A chain that does not move for this share of its run is stuck. pCNL can be, where the curvature is much higher than at
# the typical state that its step size fits.
STUCK = 0.05
PILOT_KEPT, PILOT_SECONDS = 100, 0.3


@dataclass(frozen=True)
class Plan:
    """How long a side runs and what it keeps."""

    thin: int
    kept: int  # of a round
    conditional: int  # kept states from one conditional mean to the next
    per_state: float  # processor seconds of a kept state


def block_states(post: pn.Posterior) -> int:
    """Kept states that fit into memory at a time."""
    return max(1, MOST_BYTES // (post.dtype.itemsize * post.dim))


def pilot(side: Side, post: pn.Posterior, data: Data, thin: int | None, seconds: float) -> Plan:
    """Plan from a run of some tenths of a second; `thin` if it is not this side's to choose."""
    most = min(block_states(post), MOST_MEASURED)
    kept, stretch = PILOT_KEPT, side.run(PILOT_KEPT, thin or 1, 0)
    while stretch.seconds < PILOT_SECONDS and kept < most:
        times_as_long = 1.5 * PILOT_SECONDS / max(stretch.seconds, 1e-6)
        kept = min(most, int(kept * min(max(times_as_long, 2.0), 20.0)))
        stretch = side.run(kept, thin or 1, 0)
    values = next(iter(watched(post, data, stretch.theta[:MOST_MEASURED]).values()))
    # Kept states an effective draw; a pilot that never moved says nothing.
    span = len(values) / max(float(np.nan_to_num(geyer(values))), 1.0)
    if thin is None:
        thin = max(thin for thin in THINS if thin <= max(1.0, span / KEPT_PER_DRAW))
        # The pilot kept every state.
        span = max(1.0, span / thin)
        per_state = stretch.seconds / len(stretch.theta) * thin
    else:
        per_state = stretch.seconds / len(stretch.theta)
    total = min(max(ENOUGH * span, LEAST_SECONDS / per_state), seconds / per_state)
    return Plan(thin, max(1, int(total / ROUNDS)), max(1, int(span / CONDITIONAL_PER_DRAW)), per_state)


def watched(post: pn.Posterior, data: Data, theta: FloatArray) -> dict[str, FloatArray]:
    """What is watched of states, by name; the first is what claims rest on."""
    return data.watch(post.network.predict(theta, data.grid))


class Count:
    """A side with its plan and what it has given so far."""

    def __init__(self, side: Side, post: pn.Posterior, data: Data, plan: Plan) -> None:
        self.side, self.post, self.data, self.plan = side, post, data, plan
        self._rounds: list[tuple[int, float]] = []
        self._watched: list[dict[str, FloatArray]] = []
        self._theta: list[FloatArray] = []
        self._measured = self._measured_steps = self._conditional = self._stay = 0

    def go_on(self, number: int) -> None:
        """One round: timed runs of bounded memory, and what is watched on them, untimed."""
        blocks = -(-self.plan.kept // block_states(self.post))
        steps, seconds = 0, 0.0
        for block in range(blocks):
            # A seed for each block: a run counts its steps from zero.
            stretch = self.side.run(-(-self.plan.kept // blocks), self.plan.thin, 1 + number * 10_000 + block)
            steps, seconds = steps + stretch.steps, seconds + stretch.seconds
            self._look_at(stretch)
        self._rounds.append((steps, seconds))

    def _look_at(self, stretch: Stretch) -> None:
        """Keep what is watched, of as many states as are measured."""
        if self._measured >= MOST_MEASURED:
            return
        use = min(len(stretch.theta), MOST_MEASURED - self._measured)
        self._watched.append(watched(self.post, self.data, stretch.theta[:use]))
        self._stay = max(self._stay, longest_stay(stretch.theta[:use]))
        self._measured += use
        self._measured_steps += round(stretch.steps * use / len(stretch.theta))
        some = stretch.theta[: use : self.plan.conditional][: MOST_CONDITIONAL - self._conditional]
        self._theta.append(some.copy())
        self._conditional += len(some)

    def measure(self) -> dict[str, Any]:
        """Speed, the median of the rounds', and effective draws a step and a second."""
        series = {name: np.concatenate([part[name] for part in self._watched]) for name in self._watched[0]}
        main, *others = series
        f = series[main]
        ess = {"geyer": geyer(f), "paper": paper(f, self.plan.thin), "bulk": bulk(f)}
        ess |= {name: geyer(series[name]) for name in others}
        per_step = {name: value / self._measured_steps for name, value in ess.items()}
        if main == "f":
            means = conditional_mean(self.post, np.concatenate(self._theta), self.data.grid)
            steps_of_one = self._measured_steps / len(f) * self.plan.conditional
            per_step["conditional"] = geyer(means) / (len(means) * steps_of_one)
        speed = statistics.median(steps / seconds for steps, seconds in self._rounds)
        found: dict[str, Any] = {
            "steps_per_second": speed,
            "rounds": self._rounds,
            "thin": self.plan.thin,
            "kept": len(f),
            "draws": ess["geyer"],
            "stuck": self._stay > STUCK * len(f),
            "per_step": per_step,
            "per_second": {name: value * speed for name, value in per_step.items()},
        }
        if isinstance(self.side, NativeSide):
            found |= {"kernel": self.side.kernel.to_dict(), "warmup_stable": self.side.stable}
        if isinstance(self.side, NutsSide):
            found |= {"divergences": self.side.divergences, "gradients_per_draw": self._measured_steps / len(f)}
        return found
