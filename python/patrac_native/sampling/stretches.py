"""Runs in stretches, each from the states in which the chains ended the one before.

Between two stretches a run is kept in a folder, looked at, held or ended. No draw depends on where the borders lie.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from patrac_native.draws.draws import Draws
from patrac_native.draws.moments import RunningMoments, states_at_once
from patrac_native.draws.run_folder import Checkpoint, RunFolder
from patrac_native.draws.target_draws import TargetDraws
from patrac_native.posterior.posterior import Posterior
from patrac_native.sampling.execution import run_stretch
from patrac_native.sampling.preparation import PreparedRun
from patrac_native.sampling.progress import Report
from patrac_native.sampling.results import assemble, kept_states
from patrac_native.validation.notes import Note

Arrays = dict[str, npt.NDArray[Any]]
Outcome = tuple[Draws | TargetDraws, list[Note]]

_FIRST_STEPS = 16
# Statistics of a whole run, and where a stretch knows those that belong to a phase.
_TOTALS: dict[str, Callable[[Any], npt.NDArray[np.bool_]] | None] = {
    "warmup_acceptance_rate": np.isfinite,
    "warmup_step_size": np.isfinite,
    "warmup_steps": lambda found: np.asarray(found > 0),
    "warmup_stable": lambda found: np.asarray(found >= 0),
    "nonfinite": None,
    "warmup_nonfinite": None,
}


class Kept(Protocol):
    """Where a run in stretches keeps its draws."""

    at: Checkpoint  # where the run is; replaced, not changed, by each stretch
    stretch_seconds: float  # a stretch takes about so long, or several of `max_steps` together
    max_steps: int  # of a stretch, whose states take memory
    keeps_cut: bool  # whether draws of an interrupted stretch are kept, which has no states to go on from

    @property
    def kill_costs(self) -> int | None:
        """Draws of each chain that a kill costs at most; None if it costs all."""

    def add(self, at: Checkpoint, theta: npt.NDArray[Any], stats: Arrays) -> None:
        """Add the draws of a stretch, after which the run is at `at`."""

    def confirm(self) -> None:
        """Called after each whole stretch."""

    def so_far(self, *, completed: bool) -> Outcome:
        """Return the draws so far, to the thread of the run."""

    def peek(self) -> Draws | TargetDraws | None:
        """Return the draws so far, to any thread; None before the first."""

    def end(self, *, completed: bool) -> Outcome:
        """Return the draws of a run that ended."""


class KeptInMemory:
    """The draws of a run in arrays that have room for all of them, and fill from the beginning."""

    # The seconds from a call of `pause` to the pause; the chains wait for each other at its end.
    stretch_seconds: float = 0.5
    kill_costs: int | None = None
    keeps_cut: bool = True

    def __init__(self, run: PreparedRun) -> None:
        self.at, self.max_steps = Checkpoint(), 1 << 62
        if run.moments_at is not None:  # states of a stretch, of which few may be draws, take memory beside the draws
            dim, dtype = run.density.dim, run.density.dtype
            self.max_steps = RunFolder.chunk_draws(len(run.start), dim * dtype.itemsize) * run.stride
        self._run = run
        self._theta: npt.NDArray[Any] = np.empty((0, 0, 0))
        self._stats: Arrays = {}

    def add(self, at: Checkpoint, theta: npt.NDArray[Any], stats: Arrays) -> None:
        """Write the draws of a stretch behind those before it."""
        if not self._stats:
            self._theta, *arrays = (
                np.empty((len(values), self._run.settings.draws, *values.shape[2:]), values.dtype)
                for values in (theta, *stats.values())
            )
            self._stats = dict(zip(stats, arrays, strict=True))
        part = slice(self.at.draws, at.draws)
        self._theta[:, part] = theta
        for name, values in stats.items():
            self._stats[name][:, part] = values
        self.at = at

    def confirm(self) -> None:
        """Nothing is to be done."""

    def so_far(self, *, completed: bool) -> Outcome:
        """Return views of the draws so far, which later stretches leave as they are."""
        at, run = self.at, self._run
        stats = {name: values[:, : at.draws] for name, values in self._stats.items()}
        totals = at.totals | {"completed": completed}
        return assemble(run, run.choice, self._theta[:, : at.draws], stats, totals, at.seconds)

    def peek(self) -> Draws | TargetDraws | None:
        """Return the draws so far; None before the first."""
        return self.so_far(completed=False)[0] if self.at.draws else None

    def end(self, *, completed: bool) -> Outcome:
        """Return the draws."""
        return self.so_far(completed=completed)


def run_stretches(
    run: PreparedRun, kept: Kept, report: Report | None, border: Callable[[], None] | None = None
) -> Outcome:
    """Execute a run from where it is to its number of draws, or to where `until` or Ctrl-C ends it.

    `border`, if there is one, is called between stretches; KeyboardInterrupt ends the run there.
    """
    asked, every, until = run.settings.draws, run.check_every, run.settings.until
    of_draw = run.settings.thin // run.stride  # states that are looked at for each draw
    steps, completed, judged = kept.at.next_steps or _FIRST_STEPS, True, 0
    try:
        while (at := kept.at).draws < asked:
            if until is not None and at.draws % every == 0 and at.draws != judged:
                judged = at.draws
                if until(kept.so_far(completed=True)[0]):
                    break
            began = time.perf_counter()
            # More room than these steps fill: a stretch ends at its last step or, with its last draw, where `until` is
            # to be called or the run ends.
            goal = asked if until is None else min(asked, (at.draws // every + 1) * every)
            steps = min(steps, kept.max_steps)
            last_step, room = at.step + steps, min(goal * of_draw - _states(run, at), steps // run.stride + 2)
            result = run_stretch(run, room, last_step, at.states, _of_whole(report, run, at))
            completed = bool(result["completed"])
            if completed or kept.keeps_cut:
                steps = _take(run, kept, result, room, last_step, began)
            del result  # before the next one needs as much memory
            if not completed:
                break
            kept.confirm()
            if border is not None and kept.at.draws < asked:
                border()
    except KeyboardInterrupt:  # between two stretches
        completed = False
    return kept.end(completed=completed)


def _next_steps(steps: int, asked: int, elapsed: float, seconds: float) -> int:
    """Return the steps that are to take so many seconds, after `steps` in a stretch, and `asked` before it."""
    return max(1, int(min(8 * max(steps, asked), steps * seconds / elapsed)))


def _take(run: PreparedRun, kept: Kept, result: dict[str, Any], room: int, last_step: int, began: float) -> int:
    """Bring what is kept to the end of a stretch, and return the number of steps of the next."""
    at = kept.at
    totals, moments = _merged(at.totals, result), at.moments
    theta, stats = kept_states(run, result)
    assert isinstance(theta, np.ndarray)
    # A stretch that has all its states ended before its last step.
    ended_before = theta.shape[1] == room
    steps_done = (_states(run, at) + theta.shape[1]) * run.stride
    step = int(totals["warmup_steps"].sum()) + steps_done if ended_before else last_step
    if run.moments_at is not None:
        theta, stats, moments = _watched(run, moments, theta, stats)
        totals |= moments.stats(run.moments_at)
    draws = at.draws + theta.shape[1]
    gradients = draws * run.settings.thin * run.kernel.gradients_per_step
    totals["gradients"] = np.full(len(theta), gradients, np.int64)
    elapsed = time.perf_counter() - began  # with the evaluation of f, so that checkpoints come as often
    next_steps = _next_steps(step - at.step, at.next_steps, elapsed, kept.stretch_seconds)
    now = replace(
        at,
        step=step,
        draws=draws,
        states=result["states"],
        totals=totals,
        moments=moments,
        seconds=at.seconds + elapsed,
        next_steps=next_steps,
    )
    kept.add(now, theta, stats)
    return next_steps


def _states(run: PreparedRun, at: Checkpoint) -> int:
    """Return the number of states of each chain that were looked at, those after the last draw included."""
    since_draw = 0 if at.moments is None else at.moments.rates.shape[1]
    return at.draws * (run.settings.thin // run.stride) + since_draw


def check_moments(run: PreparedRun, at: Checkpoint) -> None:
    """Raise ValueError unless a run watches f at as many inputs as before, and its counters fit each other."""
    moments, rows = at.moments, None if run.moments_at is None else len(run.moments_at)
    if rows != (None if moments is None else moments.mean.shape[1]) or (
        moments is not None and moments.states != _states(run, at)
    ):
        raise ValueError("its moments of f are those of another run")


def _watched(
    run: PreparedRun, moments: RunningMoments | None, theta: npt.NDArray[Any], stats: Arrays
) -> tuple[npt.NDArray[Any], Arrays, RunningMoments]:
    """Return those of the new states that are draws, their statistics, and the moments of f over all states."""
    post, at = cast(Posterior, run.post), cast("npt.NDArray[Any]", run.moments_at)
    network, (chains, states, dim) = post.network, theta.shape
    moments = moments or RunningMoments.none(chains, len(at), network.n_outputs)
    size = states_at_once(chains, len(at), network.n_outputs, theta.itemsize)
    for first in range(0, states, size):
        part = theta[:, first : first + size].reshape(-1, dim)
        f = post.likelihood.identified(network.predict(part, at, threads=run.threads))
        moments = moments.added(f.reshape(chains, -1, *f.shape[1:]))
    of_draw, rates = run.settings.thin // run.stride, np.concatenate([moments.rates, stats["acceptance_rate"]], axis=1)
    whole = rates.shape[1] // of_draw * of_draw
    draws = slice(of_draw - 1 - moments.rates.shape[1], None, of_draw)
    kept = {name: values[:, draws] for name, values in stats.items()}
    kept["acceptance_rate"] = _pooled(run, rates[:, :whole].reshape(chains, whole // of_draw, of_draw))
    return theta[:, draws], kept, replace(moments, rates=rates[:, whole:])


def _pooled(run: PreparedRun, rates: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return accepted over evaluated points of each draw, by the rates of its strides (chain, draw, stride)."""
    if run.kernel.step_size_name is None:  # each step accepts one of the points that it evaluates
        with np.errstate(divide="ignore"):
            return np.asarray(run.settings.thin / np.rint(run.stride / rates).sum(axis=2))
    return np.asarray(np.rint(run.stride * rates).sum(axis=2) / run.settings.thin)


def _merged(before: Arrays, result: Mapping[str, Any]) -> Arrays:
    """Return the totals of a run after a stretch, whose result is empty where phases ended before or did not end."""
    return {
        name: np.where(is_known(result[name]), result[name], before[name]) if is_known and before else result[name]
        for name, is_known in _TOTALS.items()
    }


def whole_steps(run: PreparedRun, at: Checkpoint) -> int:
    """Return the number of steps of all chains, fewer once a warm-up has ended early."""
    warmup = int(at.totals["warmup_steps"].sum()) if at.draws else run.schedule.steps
    return len(run.start) * (warmup + run.settings.draws * run.settings.thin)


def _of_whole(report: Report | None, run: PreparedRun, at: Checkpoint) -> Report | None:
    """Return a progress callback of a stretch that reports the share of the whole run."""
    if report is None:
        return None
    total = whole_steps(run, at)

    def of_stretch(done: int, _: int, rate: float) -> None:
        report(done, max(done, total), rate)

    return of_stretch
