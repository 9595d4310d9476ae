"""The count of effective draws of one side: a plan from a pilot run, timed rounds, and their evaluation."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ess_measures import bulk, conditional_mean, geyer, longest_stay, max_rhat, paper, root_mean_square_z
from ess_problems import Data
from ess_sides import MAX_BYTES, THINS, JaxSide, NativeSide, NutsSide, Stretch

import patrac_native as pn

FloatArray = npt.NDArray[Any]
Side = NativeSide | JaxSide | NutsSide

ROUNDS = 4
# Thinning leaves about twenty kept states for each effective draw, so that it costs at most a twentieth of them.
KEPT_PER_DRAW = 20
# A side stops after this many effective draws, but not before this many seconds.
ENOUGH, MIN_SECONDS = 1000, 0.4
# Maximum numbers of kept states whose autocorrelation is computed, and at which the conditional mean is computed.
MAX_MEASURED, MAX_CONDITIONAL, CONDITIONAL_PER_DRAW = 100_000, 2000, 4
# A chain that does not move for this share of its run is stuck. That can happen to pCNL where the curvature is much
# higher than at the typical states for which its step size was adapted.
STUCK = 0.05
PILOT_KEPT, PILOT_SECONDS = 100, 0.3
# Root mean square of the differences of means of f in standard errors that is too large to be chance; sides are held
# to it where both have at least so many effective draws and are settled.
WRONG, LEAST_ESS, SETTLED = 3.0, 100, 1.1


@dataclass(frozen=True)
class Plan:
    """The length and the thinning of a side's runs."""

    thin: int
    kept: int  # of a round
    conditional: int  # kept states from one conditional mean to the next
    per_state: float  # processor seconds of a kept state


def states_at_a_time(post: pn.Posterior) -> int:
    """Return the maximum number of kept states in memory."""
    return max(1, MAX_BYTES // (post.network.dtype.itemsize * post.dim))


def pilot(side: Side, post: pn.Posterior, data: Data, thin: int | None, seconds: float) -> Plan:
    """Plan the runs of a side from a pilot run of some tenths of a second; a given `thin` is kept."""
    max_kept = min(states_at_a_time(post), MAX_MEASURED)
    kept, stretch = PILOT_KEPT, side.run(PILOT_KEPT, thin or 1, 0)
    while stretch.seconds < PILOT_SECONDS and kept < max_kept:
        times_as_long = 1.5 * PILOT_SECONDS / max(stretch.seconds, 1e-6)
        kept = min(max_kept, int(kept * min(max(times_as_long, 2.0), 20.0)))
        stretch = side.run(kept, thin or 1, 0)
    values = next(iter(watched(post, data, stretch.theta[:MAX_MEASURED]).values()))
    # Number of kept states for each effective draw; a pilot chain that never moved counts as one effective draw.
    span = len(values) / max(float(np.nan_to_num(geyer(values))), 1.0)
    if thin is None:
        thin = max(thin for thin in THINS if thin <= max(1.0, span / KEPT_PER_DRAW))
        # The pilot run kept every state.
        span = max(1.0, span / thin)
        per_state = stretch.seconds / len(stretch.theta) * thin
    else:
        per_state = stretch.seconds / len(stretch.theta)
    total = min(max(ENOUGH * span, MIN_SECONDS / per_state), seconds / per_state)
    return Plan(thin, max(1, int(total / ROUNDS)), max(1, int(span / CONDITIONAL_PER_DRAW)), per_state)


def watched(post: pn.Posterior, data: Data, theta: FloatArray) -> dict[str, FloatArray]:
    """Return the watched quantities of states by name; speed claims use the first."""
    return data.watch(post.network.predict(theta, data.grid))


class Count:
    """A side with its plan and the results of its rounds so far."""

    def __init__(self, side: Side, post: pn.Posterior, data: Data, plan: Plan) -> None:
        self.side, self.post, self.data, self.plan = side, post, data, plan
        self._rounds: list[tuple[int, float]] = []
        self._watched: list[dict[str, FloatArray]] = []
        self._theta: list[FloatArray] = []
        self._measured = self._measured_steps = self._conditional = self._stay = 0

    def run_round(self, number: int) -> None:
        """Run one round: timed runs of bounded memory, and the evaluation of their states, which is not timed."""
        blocks = -(-self.plan.kept // states_at_a_time(self.post))
        steps, seconds = 0, 0.0
        for block in range(blocks):
            # Each run has its own seed, because it counts its steps from zero.
            stretch = self.side.run(-(-self.plan.kept // blocks), self.plan.thin, 1 + number * 10_000 + block)
            steps, seconds = steps + stretch.steps, seconds + stretch.seconds
            self._record(stretch)
        self._rounds.append((steps, seconds))

    def _record(self, stretch: Stretch) -> None:
        """Record the watched quantities of a run's states, up to MAX_MEASURED states in all."""
        if self._measured >= MAX_MEASURED:
            return
        use = min(len(stretch.theta), MAX_MEASURED - self._measured)
        self._watched.append(watched(self.post, self.data, stretch.theta[:use]))
        self._stay = max(self._stay, longest_stay(stretch.theta[:use]))
        self._measured += use
        self._measured_steps += round(stretch.steps * use / len(stretch.theta))
        some = stretch.theta[: use : self.plan.conditional][: MAX_CONDITIONAL - self._conditional]
        self._theta.append(some.copy())
        self._conditional += len(some)

    def measure(self) -> dict[str, Any]:
        """Return the median speed of the rounds, and effective draws for each step and each second."""
        series = {name: np.concatenate([part[name] for part in self._watched]) for name in self._watched[0]}
        main, *others = series
        f = self.f = series[main]
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


def compare(counts: dict[str, Count]) -> None:
    """Raise AssertionError if the watched means of a side differ from those of the last side, both being settled."""
    *others, reference = counts
    settled = {
        name: geyer(count.f) for name, count in counts.items() if max_rhat(count.f[None].astype(np.float64)) <= SETTLED
    }
    for name in others:
        if min(settled.get(name, 0.0), settled.get(reference, 0.0)) >= LEAST_ESS:
            z = root_mean_square_z(counts[name].f[None], counts[reference].f[None], (settled[name], settled[reference]))
            if z > WRONG:
                raise AssertionError(f"f of {name} is {z:.1f} standard errors off that of {reference}")
