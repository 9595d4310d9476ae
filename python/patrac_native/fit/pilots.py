"""Short runs on a share of the rows, scored on the others, by which `patrac fit` chooses a posterior."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.fit.budget import Schedule
from patrac_native.fit.candidates import PILOT_FRACTION, Candidate
from patrac_native.fit.evaluation import Evaluation, evaluate
from patrac_native.fit.fit_data import FitArrays
from patrac_native.fit.model_settings import ModelSettings
from patrac_native.fit.tuning import Choice, train_networks
from patrac_native.network.network import Network
from patrac_native.training.folds import split_rows
from patrac_native.verdict.calibration import VALIDATION, mean_with_error
from patrac_native.verdict.findings import COVERAGE_LOOK

# Fewer validation rows than this say too little about which posterior predicts better.
MIN_ROWS = 20


@dataclass(frozen=True)
class Trial:
    """A pilot run.

    Attributes
    ----------
    candidate : Candidate
        What was tried, as the final run would be.
    steps : int
        Number of steps of each chain.
    evaluation : Evaluation
        Scores of the validation rows.
    draws : Draws or DrawsMixture
    """

    candidate: Candidate
    steps: int
    evaluation: Evaluation
    draws: Draws | DrawsMixture

    @property
    def nlpd(self) -> float:
        """Mean over the validation rows of the negative log predictive density of the standardised target or class."""
        return self.evaluation.calibration.nlpd

    @property
    def is_convincing(self) -> bool:
        """Whether it predicts better than its networks by more than two standard errors, and its intervals cover."""
        scores = self.evaluation.calibration
        gain = scores.nlpd_network - scores.nlpd
        return gain > 2 * scores.nlpd_difference_se and not scores.misses_coverage_by(COVERAGE_LOOK)

    @property
    def is_overconfident(self) -> bool:
        """Whether its intervals cover too few of the validation rows."""
        return self.evaluation.calibration.is_overconfident(COVERAGE_LOOK)

    @property
    def is_worse_than_networks(self) -> bool:
        """Whether it predicts worse than its networks, by however little."""
        scores = self.evaluation.calibration
        return scores.nlpd > scores.nlpd_network

    def gain_over(self, other: Trial) -> tuple[float, float]:
        """Return by how much the NLPD is lower than another's on the same rows, and the standard error of that."""
        mine, others = self.evaluation, other.evaluation
        return mean_with_error(others.arrays["nlpd"] - mine.arrays["nlpd"], mine.arrays.get("weight"))

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
    net: Network,
    data: FitArrays,
    settings: ModelSettings,
    minutes: float,
    *,
    say: Callable[[str], None] = print,
) -> list[Trial]:
    """Run the candidates of one likelihood on four fifths of the training rows and score them on the others.

    Each pilot run has as many steps as the candidate's final run would have, because chains that have not converged
    predict differently with every number of steps. The first candidate is the only one to be tried if it is
    convincing, which leaves more of the budget for its final run. Networks are trained on the same four fifths.

    Parameters
    ----------
    candidates : sequence of Candidate
    net : Network
        The network of all training rows, whose penalty is used.
    data : FitArrays
    settings : ModelSettings
    minutes : float
        What the budget would leave for the final run after pilot runs of all candidates.
    say : callable
        Receives a line for each run; default `print`.

    Returns
    -------
    list of Trial
        One for each candidate that was tried; empty if there are too few rows to tell.

    Raises
    ------
    KeyboardInterrupt, RuntimeError
        If a run was interrupted.
    """
    likelihood = candidates[0].likelihood
    is_class = likelihood.targets == "class"
    try:
        labels = data.y if is_class else None
        held, rows = split_rows(len(data.X), [PILOT_FRACTION], seed=settings.seed, labels=labels, groups=data.copies())
    except ValueError:  # too few rows of each class to leave any out
        return []
    if len(held) < MIN_ROWS:
        return []
    training, unseen = data.rows(rows), data.rows(held)
    pilots = [candidate.pilot() for candidate in candidates]
    nets = train_networks(
        net.layer_sizes,
        training,
        likelihood,
        networks=max(pilot.trained for pilot in pilots),
        settings=settings,
        l2=Choice.of(net).l2,
    )
    trials = []
    for candidate, pilot in zip(candidates, pilots, strict=True):
        # The number of steps follows from the final run: all rows, all chains.
        schedule = candidate.schedule(candidate.posteriors([net], data.training, settings)[0], settings, minutes)
        steps = schedule.thin * candidate.draws
        schedule = Schedule(max(1, steps // pilot.draws), schedule.warmup)
        with warnings.catch_warnings():
            # Warnings about a run are about its use; this one is scored.
            warnings.simplefilter("ignore", UserWarning)
            posts = pilot.posteriors(nets, training, settings)
            draws = pilot.sample(posts, nets, schedule, settings, say=say)
        if draws.n_draws < pilot.draws or len(draws.members) < pilot.networks:
            # Ctrl-C ended the run, with a warning that is not shown here.
            raise KeyboardInterrupt
        evaluation = evaluate(draws, data.units, unseen, kind=VALIDATION, nets=nets[: pilot.trained], details=False)
        run = draws.members[0].settings
        trials.append(Trial(candidate, run["warmup_steps"] + run["thin"] * draws.n_draws, evaluation, draws))
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
