"""Replicates that are added to a fit until a rerun would move its predictions by no more than a precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import patrac_native as pn
from patrac_native.fit.budget import minutes_of
from patrac_native.fit.candidates import Candidate, RunInterrupted, Schedule
from patrac_native.fit.evaluation import AnyDraws, members_of, of_fits
from patrac_native.fit.rows import FloatArray, Rows
from patrac_native.fit.settings import Settings
from patrac_native.fit.training import Choice, nominal_seconds, seconds_of_more, train_networks
from patrac_native.report import RerunError

# Of the intervals whose ends are to be known, as in summaries.
_COVERAGE = 0.9


@dataclass(frozen=True)
class Reached:
    """The rerun error that a fit to a precision reached.

    Attributes
    ----------
    precision : float
        What was asked for: the median over rows of the rerun error, see `RerunError.of_predictions`.
    error : float or None
        What was reached; None if it is not known.
    is_reached : bool
    replicates : int
        Number of networks or, of one posterior, of chains.
    needed : int or None
        About how many of them would reach the precision; None if the error is not known.
    interrupted : bool
        Whether Ctrl-C ended the run before the budget did.
    text : str
        All of it in words.
    """

    precision: float
    error: float | None
    is_reached: bool
    replicates: int
    needed: int | None
    interrupted: bool
    text: str

    @classmethod
    def of(cls, error: RerunError, candidate: Candidate, settings: Settings, *, interrupted: bool) -> Reached:
        """Return what a fit of a candidate reached."""
        assert settings.precision is not None
        count, name = _replicates(candidate)
        found, asked = error.of_predictions.median, settings.precision
        known = not math.isnan(found)
        needed = max(2, math.ceil(count * (found / asked) ** 2)) if known else None
        is_reached = known and found <= asked
        text = f"precision {asked:g}: {'' if is_reached else 'not '}reached"
        if not is_reached:
            text += ", because the run was interrupted" if interrupted else f" within minutes={settings.minutes:g}"
        text += f"; {error.describe_predictions()}"
        if not is_reached and needed is not None:
            minutes = float(f"{settings.minutes * needed / count:.2g}")
            text += (
                f"; about {needed} {name} in place of {count} would reach it, as the error falls with the square root "
                f"of their number: {name}={needed}, minutes={minutes:g}"
            )
        return cls(asked, found if known else None, is_reached, count, needed, interrupted, text)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values."""
        return asdict(self)


def error_at(draws: AnyDraws, grid: FloatArray) -> RerunError:
    """Return the rerun error of a fit's draws at inputs, as its summary has it."""
    return of_fits(draws.rerun_error(grid, _COVERAGE))


@dataclass
class Replicated:
    """The replicates of a fit, to which others are added."""

    draws: AnyDraws
    candidate: Candidate  # with the numbers of networks and chains that there are
    posteriors: list[pn.Posterior]  # one, or one of each network of a mixture
    nets: list[pn.Network]  # trained alike, at least as many as are used
    rows: Rows
    settings: Settings

    def reach(self, minutes: float, grid: FloatArray, *, say: Callable[[str], None] = print) -> Reached:
        """Add replicates until the median rerun error at `grid` is at most the precision, or the minutes are spent.

        Each round adds as many as the square-root rule asks for, but no more than there are, since few replicates know
        their spread poorly, and no more than the rest of the minutes pays for.
        """
        asked, post = self.settings.precision, self.posteriors[0]
        assert asked is not None
        schedule = self.candidate.schedule(post, self.settings, minutes)
        steps = schedule.warmup + schedule.thin * self.draws.n_draws
        left = minutes - self.candidate.minutes_of(self.draws, post, self.settings)
        interrupted = not all(member.settings["completed"] for member in members_of(self.draws))
        self.candidate = replace(self.candidate, draws=self.draws.n_draws)
        error = error_at(self.draws, grid)
        while not interrupted and not error.of_predictions.median <= asked:
            count, name = _replicates(self.candidate)
            times = (error.of_predictions.median / asked) ** 2
            wanted = count if math.isnan(times) else min(count, max(1, math.ceil(count * (times - 1.0))))
            more = next((some for some in range(wanted, 0, -1) if self._cost(some, steps) <= left), 0)
            if not more:
                break
            say(f"  {_percent(error)} with {count} {name}, above precision={asked:g}: adding {more} ...")
            try:
                left -= self._add(more, schedule, steps)
            except (KeyboardInterrupt, RunInterrupted):
                interrupted = True
            else:
                error = error_at(self.draws, grid)
        reached = Reached.of(error, self.candidate, self.settings, interrupted=interrupted)
        say(f"  {_percent(error)} with {reached.replicates} {_replicates(self.candidate)[1]}")
        return reached

    @property
    def _takes_networks(self) -> bool:
        """Whether what is added has networks of its own."""
        return self.candidate.networks > 1 or self.candidate.starts_at_networks

    def _more(self, count: int) -> Candidate:
        """Return the candidate with the numbers of networks and chains that are added."""
        one = self.candidate
        return replace(one, networks=count) if one.networks > 1 else replace(one, chains=count)

    def _cost(self, count: int, steps: int) -> float:
        """Return the minutes of so many more replicates, the training of their networks included."""
        untrained = max(0, _replicates(self.candidate)[0] + count - len(self.nets)) if self._takes_networks else 0
        seconds = seconds_of_more(self.nets, len(self.rows.X), untrained)
        return seconds / 60.0 + self._chain_minutes(count, steps)

    def _chain_minutes(self, count: int, steps: int) -> float:
        """Return the minutes of the chains of so many more replicates."""
        chains = count * (self.candidate.chains if self.candidate.networks > 1 else 1)
        return minutes_of(steps, self.posteriors[0], chains, self.settings.kernel)

    def _add(self, count: int, schedule: Schedule, steps: int) -> float:
        """Add so many replicates and return their minutes; raise KeyboardInterrupt or RunInterrupted after Ctrl-C."""
        before, _ = _replicates(self.candidate)
        untrained, seconds = before + count - len(self.nets), 0.0
        if self._takes_networks and untrained > 0:
            # By the penalties of the first networks, which give their numbers of epochs too: all are those of one call.
            trained = train_networks(
                self.nets[0].layer_sizes,
                self.rows,
                self.candidate.likelihood,
                self.settings,
                networks=untrained,
                first=len(self.nets),
                l2=Choice.of(self.nets[0]).penalties,
            )
            self.nets += trained
            seconds = nominal_seconds(trained, len(self.rows.X))
        added, nets, posts = self._more(count), self.nets[before : before + count], self.posteriors
        if self.candidate.networks > 1:
            posts = added.posteriors(nets, self.rows, self.settings)
        self.draws = added.sample_more(self.draws, posts, nets, schedule, self.settings)
        if self.candidate.networks > 1:
            self.posteriors += posts
        self.candidate = self._more(before + count)
        return seconds / 60.0 + self._chain_minutes(count, steps)


def _replicates(candidate: Candidate) -> tuple[int, str]:
    """Return the number of what is added for a precision, and the parameter of an estimator that is this number."""
    return (candidate.networks, "networks") if candidate.networks > 1 else (candidate.chains, "chains")


def _percent(error: RerunError) -> str:
    """Return the median rerun error in words."""
    return f"rerun error {100 * error.of_predictions.median:.2g}{error.sign}"
