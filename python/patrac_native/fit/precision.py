"""Replicates that are added to a fit until a rerun would move its predictions by no more than a precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import patrac_native as pn
from patrac_native.fit.budget import minutes_of
from patrac_native.fit.candidates import Candidate, RunInterrupted
from patrac_native.fit.evaluation import AnyDraws, of_fits
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


def add_replicates(
    draws: AnyDraws,
    candidate: Candidate,
    posts: Sequence[pn.Posterior],
    nets: Sequence[pn.Network],
    minutes: float,
    rows: Rows,
    settings: Settings,
    grid: FloatArray,
    *,
    say: Callable[[str], None] = print,
) -> tuple[AnyDraws, Candidate, list[pn.Posterior], list[pn.Network], Reached]:
    """Add replicates until the median rerun error at `grid` is at most the precision, or the minutes are spent.

    Each round adds as many as the square-root rule asks for, but no more than there are, since few replicates know
    their spread poorly, and no more than the rest of the minutes pays for. They are networks with chains of their own
    where chains start at networks or several posteriors predict as a mixture, else chains. Returns the draws, the
    candidate with its numbers of networks and chains, the posteriors, the networks, and what was reached.
    """
    asked, posts, nets = settings.precision, list(posts), list(nets)
    assert asked is not None
    schedule = candidate.schedule(posts[0], settings, minutes)
    left = minutes - candidate.minutes_of(draws, posts[0], settings)
    candidate, interrupted = replace(candidate, draws=draws.n_draws), not _is_complete(draws)
    steps = schedule.warmup + schedule.thin * draws.n_draws
    error = error_at(draws, grid)
    while not interrupted and not error.of_predictions.median <= asked:
        count, name = _replicates(candidate)
        of_one = candidate.chains if candidate.networks > 1 else 1
        takes_networks = candidate.networks > 1 or candidate.starts_at_networks

        def cost(more: int, used: int = count, chains: int = of_one, trains: bool = takes_networks) -> float:
            seconds = seconds_of_more(nets, len(rows.X), max(0, used + more - len(nets))) if trains else 0.0
            return seconds / 60.0 + minutes_of(steps, posts[0], more * chains, settings.kernel)

        times = (error.of_predictions.median / asked) ** 2
        wanted = count if math.isnan(times) else min(count, math.ceil(count * (times - 1.0)))
        more = next((some for some in range(max(1, wanted), 0, -1) if cost(some) <= left), 0)
        if not more:
            break
        say(f"  {_percent(error)} with {count} {name}, above precision={asked:g}: adding {more} ...")
        try:
            if takes_networks and count + more > len(nets):
                # The penalty of the first networks, and so their number of epochs: one larger training would return them.
                found = train_networks(
                    nets[0].layer_sizes,
                    rows,
                    candidate.likelihood,
                    settings,
                    networks=count + more - len(nets),
                    first=len(nets),
                    l2=Choice.of(nets[0]).l2,
                )
                nets += found
                left -= nominal_seconds(found, len(rows.X)) / 60.0
            new = nets[count : count + more]
            if candidate.networks > 1:
                added = replace(candidate, networks=more)
                of_new = added.posteriors(new, rows, settings)
            else:
                added, of_new = replace(candidate, chains=more), posts
            draws = added.sample_more(draws, of_new, new, schedule, settings)
        except (KeyboardInterrupt, RunInterrupted):
            interrupted = True
            break
        left -= minutes_of(steps, posts[0], added.n_chains, settings.kernel)
        if candidate.networks > 1:
            posts += of_new
            candidate = replace(candidate, networks=count + more)
        else:
            candidate = replace(candidate, chains=count + more)
        error = error_at(draws, grid)
    reached = Reached.of(error, candidate, settings, interrupted=interrupted)
    say(f"  {_percent(error)} with {reached.replicates} {_replicates(candidate)[1]}")
    return draws, candidate, posts, nets, reached


def _replicates(candidate: Candidate) -> tuple[int, str]:
    """Return the number of what is added for a precision, and the parameter of an estimator that is this number."""
    return (candidate.networks, "networks") if candidate.networks > 1 else (candidate.chains, "chains")


def _is_complete(draws: AnyDraws) -> bool:
    """Return whether the run has all draws that it was to have."""
    return all(member.settings["completed"] for member in getattr(draws, "members", (draws,)))


def _percent(error: RerunError) -> str:
    """Return the median rerun error in words."""
    return f"rerun error {100 * error.of_predictions.median:.2g}{error.sign}"
