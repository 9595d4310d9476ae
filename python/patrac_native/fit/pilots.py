"""Short runs on a share of the rows, scored on the others, by which a fit chooses a posterior."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import patrac_native as pn
from patrac_native.fit.budget import Schedule
from patrac_native.fit.candidates import Candidate
from patrac_native.fit.evaluation import VALIDATION, Evaluation, evaluate, members_of
from patrac_native.fit.rows import FitData
from patrac_native.fit.settings import Settings
from patrac_native.fit.training import Choice, left_out, train_networks


@dataclass(frozen=True)
class Trial:
    """A pilot run: what was tried, as the final run would be, steps of each chain, and scores of validation rows."""

    candidate: Candidate
    steps: int
    evaluation: Evaluation
    draws: pn.Draws | pn.DrawsMixture

    @property
    def nlpd(self) -> float:
        """Mean over the validation rows of the negative log predictive density of the standardised target or class."""
        return float(self.evaluation.calibration.nlpd)

    @property
    def is_convincing(self) -> bool:
        """Whether it predicts better than its networks by more than two standard errors, and its intervals cover."""
        scores = self.evaluation.calibration
        gain = scores.nlpd_network - scores.nlpd
        return bool(gain > 2 * scores.nlpd_difference_se and not scores.misses_coverage_by())

    @property
    def is_overconfident(self) -> bool:
        """Whether its intervals cover too few of the validation rows."""
        return bool(self.evaluation.calibration.is_overconfident())

    @property
    def is_worse_than_networks(self) -> bool:
        """Whether it predicts worse than its networks, by however little."""
        scores = self.evaluation.calibration
        return bool(scores.nlpd > scores.nlpd_network)

    def gain_over(self, other: Trial) -> tuple[float, float]:
        """Return by how much the NLPD is lower than another's on the same rows, and the standard error of that."""
        mine, others = self.evaluation, other.evaluation
        return pn.diagnostics.mean_with_error(others.arrays["nlpd"] - mine.arrays["nlpd"], mine.arrays.get("weight"))

    def to_dict(self) -> dict[str, Any]:
        """Return candidate and scores as JSON-able values."""
        return {
            "likelihood": self.candidate.likelihood.to_dict(),
            "architecture": self.candidate.architecture.to_dict(),
            "prior": self.candidate.prior,
            "networks": self.candidate.networks,
            "steps": self.steps,
            "rows": self.evaluation.calibration.rows,
            "nlpd": self.nlpd,
            "coverage": self.evaluation.calibration.coverage,
        }

    def __str__(self) -> str:
        scores = self.evaluation.calibration
        coverage = "" if math.isnan(scores.coverage) else f", 90% intervals cover {scores.coverage:.0%}"
        return f"{self.candidate}: NLPD {self.nlpd:.3f}{coverage} (its networks alone: {scores.nlpd_network:.3f})"


def run_pilots(
    candidates: Sequence[Candidate],
    net: pn.Network,
    data: FitData,
    settings: Settings,
    minutes: float,
    *,
    say: Callable[[str], None] = print,
) -> list[Trial]:
    """Run the candidates of one likelihood on four fifths of the training rows and score them on the others.

    Each pilot run has as many steps as the candidate's final run would have, of which the budget would pay for so many
    minutes, because chains that have not converged predict differently with every number of steps. The first candidate
    is the only one to be tried if it is convincing, which leaves more of the budget for its final run. Networks are
    trained on the same four fifths, with the penalty of `net`. There are no trials if there are too few rows to tell.
    """
    likelihood = candidates[0].likelihood
    parts = left_out(data, settings, by_class=likelihood.targets == "class")
    if parts is None:
        return []
    unseen, training = parts
    pilots = [candidate.pilot() for candidate in candidates]
    trained = max(pilot.trained for pilot in pilots)
    nets = train_networks(net.layer_sizes, training, likelihood, settings, networks=trained, l2=Choice.of(net).l2)
    trials: list[Trial] = []
    for candidate, pilot in zip(candidates, pilots, strict=True):
        # The number of steps follows from the final run: all rows, all chains.
        schedule = candidate.schedule(candidate.posteriors([net], data.training, settings)[0], settings, minutes)
        steps = schedule.thin * candidate.draws
        schedule = Schedule(max(1, steps // pilot.draws), schedule.warmup)
        with warnings.catch_warnings():
            # Warnings about a run are about its use; this one is scored.
            warnings.simplefilter("ignore", UserWarning)
            draws = pilot.sample(pilot.posteriors(nets, training, settings), nets, schedule, settings, say=say)
        if draws.n_draws < pilot.draws or len(members_of(draws)) < pilot.networks:
            # Ctrl-C ended the run, with a warning that is not shown here.
            raise KeyboardInterrupt
        scored = evaluate(draws, data.units, unseen, kind=VALIDATION, nets=nets[: pilot.trained], details=False)
        run = members_of(draws)[0].settings
        trials.append(Trial(candidate, run["warmup_steps"] + run["thin"] * draws.n_draws, scored, draws))
        say(f"    {trials[-1]}")
        if trials[0].is_convincing:
            break
    return trials


def best_of(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the lowest NLPD among the default and those that are better by more than a standard error.

    The default is the first trial that is not overconfident and no worse than its networks. If there is none, it is the
    first that is not overconfident, then the first that is no worse. One that is overconfident is taken only where the
    default is: a posterior that follows single rows follows them more closely in longer chains, whose intervals cover
    even less, and targets with few values reward noise that vanishes around them.
    """
    default = _default_of(trials)
    usable = [trial for trial in trials if default.is_overconfident or not trial.is_overconfident]
    better = [trial for trial in usable if trial is not default and np.subtract(*trial.gain_over(default)) > 0]
    return min([default, *better], key=lambda trial: trial.nlpd)


def _default_of(trials: Sequence[Trial]) -> Trial:
    """Return the trial that is taken unless another is better, see `best_of`."""
    return min(trials, key=lambda trial: (trial.is_overconfident, trial.is_worse_than_networks))


def describe_choice(trials: Sequence[Trial]) -> str:
    """Return in words why a posterior was chosen."""
    if not trials:
        return "the default, because too few rows can be left out to choose by them"
    best, default, rows = best_of(trials), _default_of(trials), trials[0].evaluation.calibration.rows
    if len(trials) == 1:
        scores = best.evaluation.calibration
        return (
            f"NLPD of {rows} validation rows {scores.nlpd:.3f}, lower by more than two standard errors than of its "
            f"networks alone, {scores.nlpd_network:.3f}; so no other was tried"
        )
    if best is not default:
        gain, error = best.gain_over(default)
        return (
            f"NLPD of {rows} validation rows lower by {gain:.3f} (standard error {error:.3f}) than of "
            f"{default.candidate}"
        )
    if default is not trials[0]:
        first, scores = trials[0].candidate, trials[0].evaluation.calibration
        if trials[0].is_overconfident:
            return f"90% intervals of {first} cover only {scores.coverage:.0%} of {rows} validation rows"
        return (
            f"NLPD of {first} on {rows} validation rows, {scores.nlpd:.3f}, is higher than that of its networks alone, "
            f"{scores.nlpd_network:.3f}"
        )
    return f"the default, than which no other is better on {rows} validation rows by more than a standard error"
