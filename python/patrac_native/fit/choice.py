"""Trains the networks of a fit and chooses the posterior: likelihood, architecture, prior and number of networks.

Candidates are tried by pilot runs: short runs on a share of the rows, scored on the others.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

import patrac_native as pn
from patrac_native.fit.budget import MIN_STEPS, chain_minutes
from patrac_native.fit.candidates import (
    GRID_ROWS,
    RHAT_USABLE,
    Candidate,
    Schedule,
    affordable_candidates,
    fewer_parameters,
    final_share,
    have_converged,
    possible_candidates,
)
from patrac_native.fit.evaluation import VALIDATION, Evaluation, evaluate, members_of, pooled
from patrac_native.fit.noise import best_noise, is_coarse, try_noise
from patrac_native.fit.rows import FitData
from patrac_native.fit.settings import Likelihood, Settings
from patrac_native.fit.training import (
    MIN_ROWS,
    PILOT_FRACTION,
    Choice,
    describe_training,
    nominal_seconds,
    pilot_parts,
    pilot_runs,
    train_networks,
)

# The first of two likelihoods is tried only if the budget, without any training, pays for so many steps of each of its
# final chains: otherwise the training of its networks takes what the chains need.
_FIRST_STEPS = 2 * MIN_STEPS
# Effective draws of f with which a pilot run ends: the scores of the validation rows have larger errors.
_PILOT_ESS = 100
# With fewer rows than this, the training has no validation rows by default.
_FEWEST_ROWS = 10


@dataclass(frozen=True)
class Trial:
    """A pilot run: what was tried, as the final run would be, steps of each chain, and scores of validation rows.

    Of several, which left out parts of few rows in turn, the steps are the first one's.
    """

    candidate: Candidate
    steps: int
    evaluation: Evaluation
    is_smaller: bool = False  # whether it was tried because another is worse than its networks

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

    Of few rows each fifth is left out in turn, and the scores are of all of them.

    Each pilot run has as many steps as the candidate's final run would have, of which the budget would pay for so many
    minutes, because chains that have not converged predict differently with every number of steps; those of one network
    end once they have. The first candidate is the only one to be tried if it is convincing, which leaves more of the
    budget for its final run. Networks are trained on the same four fifths, with the penalties of `net`. There are no
    trials if there are too few rows to tell.
    """
    likelihood = candidates[0].likelihood
    parts, settings = pilot_parts(data, by_class=likelihood.has_classes), settings.for_choices
    if not parts:
        return []
    pilots = [candidate.pilot() for candidate in candidates]
    trained = max(pilot.trained for pilot in pilots)
    penalties = Choice.of(net).penalties
    networks = [
        train_networks(net.layer_sizes, training, likelihood, settings, networks=trained, l2=penalties)
        for _, training in parts
    ]
    trials: list[Trial] = []
    may_end = settings.thin is None and settings.device in ("auto", "cpu")
    for candidate, pilot in zip(candidates, pilots, strict=True):
        # The number of steps follows from the final run: all rows, all chains.
        schedule = candidate.schedule(candidate.posteriors([net], data.training, settings)[0], settings, minutes)
        steps = schedule.thin * candidate.draws
        schedule = Schedule(max(1, steps // pilot.draws), schedule.warmup)
        scored: list[Evaluation] = []
        for (unseen, training), nets in zip(parts, networks, strict=True):
            with pn.Note.collect():  # notes on a run are about its use; this one is scored
                posts = pilot.posteriors(nets, training, settings)
                until = functools.partial(have_converged, unseen.spread(GRID_ROWS).X, rhat=RHAT_USABLE, ess=_PILOT_ESS)
                ended = until if may_end and len(posts) == 1 else None
                draws = pilot.sample(posts, nets, schedule, settings, until=ended, say=say)
            members = members_of(draws)
            if not all(one.settings["completed"] for one in members) or len(members) < pilot.networks:
                # Ctrl-C ended the run, with a note that is not shown here.
                raise KeyboardInterrupt
            if not scored:
                run = members[0].settings
                steps = run["warmup_steps"] + run["thin"] * draws.n_draws
            nets = nets[: pilot.trained]
            scored.append(evaluate(draws, data.units, unseen, kind=VALIDATION, nets=nets, details=False))
        trials.append(Trial(candidate, steps, pooled(scored)))
        say(f"    {trials[-1]}")
        if trials[0].is_convincing:
            break
    return trials


def best_of(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the lowest NLPD among the default and those that are better by more than a standard error.

    The default is the first trial that is not overconfident and no worse than its networks. If there is none, it is the
    first that is not overconfident, then the first that is no worse. Where smaller posteriors were tried because
    another is worse than its networks, the smallest comes first. One that is overconfident is taken only where the
    default is: a posterior that follows single rows follows them more closely in longer chains, whose intervals cover
    even less, and targets with few values reward noise that vanishes around them.
    """
    default = _default_of(trials)
    usable = [trial for trial in trials if default.is_overconfident or not trial.is_overconfident]
    better = [trial for trial in usable if trial is not default and np.subtract(*trial.gain_over(default)) > 0]
    return min([default, *better], key=lambda trial: trial.nlpd)


def _default_of(trials: Sequence[Trial]) -> Trial:
    """Return the trial that is taken unless another is better, see `best_of`."""
    smaller = [trial for trial in reversed(trials) if trial.is_smaller]
    order = [*smaller, *(trial for trial in trials if not trial.is_smaller)]
    return min(order, key=lambda trial: (trial.is_overconfident, trial.is_worse_than_networks))


def describe_choice(trials: Sequence[Trial]) -> str:
    """Return in words why a posterior was chosen."""
    if not trials:
        return "the default, because too few rows can be left out to choose by them"
    best, default, rows = best_of(trials), _default_of(trials), trials[0].evaluation.calibration.rows
    if len(trials) == 1:
        scores = best.evaluation.calibration
        if not best.is_convincing:
            return (
                f"the only one that the budget pays for; NLPD of {rows} validation rows {scores.nlpd:.3f}, of its "
                f"networks alone {scores.nlpd_network:.3f}"
            )
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
        others = [trial for trial in trials if not trial.is_smaller]
        worse = best_of(others) if default.is_smaller else trials[0]
        first, scores = worse.candidate, worse.evaluation.calibration
        if worse.is_overconfident:
            return f"90% intervals of {first} cover only {scores.coverage:.0%} of {rows} validation rows"
        return (
            f"NLPD of {first} on {rows} validation rows, {scores.nlpd:.3f}, is higher than that of its networks alone, "
            f"{scores.nlpd_network:.3f}"
        )
    return f"the default: on {rows} validation rows, no other candidate is better by more than a standard error"


@dataclass(frozen=True)
class Chosen:
    """The posterior that is to be sampled, and why."""

    candidate: Candidate
    reason: str
    nets: Sequence[pn.Network]  # trained by its likelihood, at least as many as it needs
    pilot: Trial | None  # its pilot run, if there was a choice
    trials: Sequence[Trial]  # the pilot runs by which it was chosen
    minutes: float  # what the budget leaves for its chains
    seconds: dict[str, float]  # wall-clock time of the training and of the choice


def choose_posterior(
    likelihoods: Sequence[Likelihood],
    data: FitData,
    settings: Settings,
    *,
    spent: float = 0.0,
    by_networks: Likelihood | None = None,
    say: Callable[[str], None] = print,
) -> Chosen:
    """Train networks by one or two likelihoods, and choose a posterior by pilot runs.

    The first of two is tried by one candidate, if the budget pays for it, and the second only if that one is not
    convincing, so that its networks need not be trained. If the budget does not pay, networks alone tell which of them
    is taken. Without a choice, it is the second, and so it is where a target takes few values. `spent` are nominal
    seconds of earlier training, which count in the budget; `by_networks` is what networks alone prefer, if it is known:
    then the default, unless another likelihood was convincing before.
    """
    if not may_choose(settings, len(data.training.X)):
        likelihoods = likelihoods[-1:]
    elif len(likelihoods) > 1 and is_coarse(data.training.y):
        say(
            f"{_noise(likelihoods[0])} is not tried: the target takes few values, and a density rewards noise that "
            "vanishes at them; likelihood='heteroscedastic' samples it all the same"
        )
        likelihoods = likelihoods[-1:]
    if settings.validation_fraction is None and len(data.training.X) < _FEWEST_ROWS:
        _check_noise_is_known(likelihoods[-1], data, settings)
    possible = possible_candidates(settings, likelihoods)
    choice = _Choice(data, settings, spent, say, likelihoods[-1].has_classes)
    possible = choice.with_more_chains(possible)
    for one in possible:
        least = one.least_draws(leaves_one_out=data.held_out is None)
        if one.draws < least:
            raise ValueError(
                f"draws must be at least {least} for {one.chains} chains of each network without held-out rows: "
                f"leave-one-out scores need 25 draws of each network; got {one.draws}."
            )
    if len(likelihoods) > 1:
        choice.try_first(possible)
        if choice.is_settled:
            return choice.chosen()
        if not choice.trials:
            likelihoods = [by_networks or choice.noise_by_networks(likelihoods)]
            possible = choice.with_more_chains(possible_candidates(settings, likelihoods))
    choice.try_all([one for one in possible if one.likelihood is likelihoods[-1]])
    if by_networks is likelihoods[-1]:
        choice.make_default(by_networks)
    return choice.chosen()


@dataclass
class _Choice:
    """A choice in progress: what was trained, tried and spent so far."""

    data: FitData
    settings: Settings
    spent: float  # nominal seconds of training
    say: Callable[[str], None]
    by_class: bool  # whether the targets are labels
    planned: float = 0.0  # minutes of the final chains for which the first pilot run was planned
    used: float = 0.0  # minutes of the chains of that run
    left: float = 0.0  # minutes for the final chains
    default: Candidate | None = None  # where nothing was tried
    reason: str = ""
    trials: list[Trial] = field(default_factory=list)
    nets: list[tuple[Likelihood, list[pn.Network]]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"training": 0.0, "choice": 0.0})

    @property
    def is_settled(self) -> bool:
        """Whether no other needs to be tried."""
        return bool(self.trials) and self.trials[0].is_convincing

    def with_more_chains(self, possible: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates with as many chains as the budget would pay for without any training."""
        minutes = self._minutes() * (final_share(possible, self._runs) if len(possible) > 1 else 1.0)
        rows, settings = self.data.training, self.settings
        return [one.with_more_chains(minutes, self._sketch(one), rows, settings) for one in possible]

    def try_first(self, possible: Sequence[Candidate]) -> None:
        """Train networks and run a pilot run of the first candidate, unless its final run would have too few steps.

        The budget is divided as if all possible candidates had a pilot run, and the other networks took as long to
        train.
        """
        candidate, share, rows = possible[0], final_share(possible, self._runs), self.data.training
        steps = candidate.steps_within(share * self._minutes(), self._sketch(candidate), rows, self.settings)
        if steps < _FIRST_STEPS:
            return
        nets, seconds = self._train([candidate], f" with {_noise(candidate.likelihood)}")
        minutes = share * self._minutes(seconds)
        if candidate.steps_within(minutes, nets[0], rows, self.settings) < MIN_STEPS:
            return
        self._run(possible[:1], nets, minutes, of=len(possible))
        self.planned, self.used = minutes, candidate.pilot_minutes(minutes, nets[0], rows, self.settings)
        self.left, self.reason = self._minutes() - self.used, describe_choice(self.trials)

    def noise_by_networks(self, likelihoods: Sequence[Likelihood]) -> Likelihood:
        """Return the last likelihood, or another one whose network predicts better.

        The budget of the chains does not pay for these seconds: which posterior it pays for stays the same.
        """
        self.say("choosing the noise by networks alone, because minutes do not pay for pilot runs of both kinds ...")
        clock, trials = time.perf_counter(), []
        for likelihood in reversed(likelihoods):
            trial = try_noise(likelihood, self.data, self.settings)
            assert trial is not None  # there are rows to leave out, or the likelihoods leave no choice
            trials.append(trial)
        self.seconds["choice"] += time.perf_counter() - clock
        found = best_noise(trials, self.say)
        return list(reversed(likelihoods))[trials.index(found)]

    def try_all(self, possible: Sequence[Candidate]) -> None:
        """Train networks by the last likelihood and choose among its candidates and what was tried before."""
        before = len(self.trials)
        likelihood = possible[0].likelihood
        known = [nets for of, nets in self.nets if of is likelihood]
        is_said = likelihood.noise_by_row or self.nets
        nets = known[0] if known else self._train(possible, f" with {_noise(likelihood)}" if is_said else "")[0]
        if nets[0].history is not None and nets[0].history.validation_mse is None:
            _check_noise_is_known(possible[0].likelihood, self.data, self.settings)
        # A training that takes longer than planned does not make the final run shorter than planned.
        minutes = max(self._minutes() - self.used, self.planned / final_share(possible, self._runs))
        candidates, self.reason = affordable_candidates(possible, nets[0], self.data.training, self.settings, minutes)
        # Classes have a pilot run without a choice too: leave-one-out scores of fixed nodes do not tell what it does.
        is_open = self.settings.given_architecture() is None and self.settings.thin is None
        if before or len(candidates) > 1 or (is_open and likelihood.has_classes):
            final = minutes * final_share(candidates, self._runs)
            self._run(candidates, nets, final, of=len(candidates))
            minutes -= self._cost(candidates[: len(self.trials) - before], nets[0], final)
            if (
                is_open
                and self.trials
                and best_of(self.trials).evaluation.calibration.is_worse_than_network_by(self._slack)
            ):
                minutes = self._try_smaller(minutes, final)
            if self.trials or len(candidates) > 1:
                self.reason = describe_choice(self.trials)
        self.default, self.left = candidates[0], minutes

    @property
    def _slack(self) -> float:
        """By how many standard errors a posterior is worse than its networks if smaller ones are to be tried.

        By all rows one is enough, since the standard error of few rows is large. Of classes any difference is: by one
        standard error, other folds of digits chose Out(50) or Out(1) (docs/rerun.md).
        """
        if self._runs == 1:
            return 2.0
        return 0.0 if self.by_class else 1.0

    def _try_smaller(self, minutes: float, final: float) -> float:
        """Run pilot runs of posteriors with fewer parameters than the best trial; return what they leave of `minutes`.

        The final run would have `final` minutes.
        """
        words = {2.0: " by more than two standard errors", 1.0: " by more than a standard error", 0.0: ""}
        self.say(f"  worse than the networks{words[self._slack]}: trying fewer Bayesian parameters")
        larger = best_of(self.trials).candidate
        nets = self._nets_of(larger)
        smaller, before = fewer_parameters(larger, self.settings, len(nets)), len(self.trials)
        if self._runs > 1:  # five times each: within what is left
            final = minutes * final_share(smaller, self._runs)
        self._run(smaller, nets, final, of=len(smaller))
        self.trials[before:] = [replace(trial, is_smaller=True) for trial in self.trials[before:]]
        return minutes - self._cost(smaller, nets[0], final)

    def _cost(self, candidates: Sequence[Candidate], net: pn.Network, final: float) -> float:
        """Return the minutes of pilot runs of candidates whose final runs would have so many."""
        return sum(one.pilot_minutes(final, net, self.data.training, self.settings) for one in candidates)

    def make_default(self, likelihood: Likelihood) -> None:
        """Let trials of a likelihood come first: another's must be better by more than a standard error."""
        self.trials.sort(key=lambda trial: trial.candidate.likelihood is not likelihood)
        if self.trials:
            self.reason = describe_choice(self.trials)

    def chosen(self) -> Chosen:
        """Return the result."""
        pilot = best_of(self.trials) if self.trials else None
        candidate = self.default if pilot is None else pilot.candidate
        assert candidate is not None  # all of the last likelihood were tried
        if self._is_worse_than_networks:
            assert pilot is not None
            scores = pilot.evaluation.calibration
            text = (
                f"{candidate} predicts {scores.rows} validation rows worse than its networks alone, by more than two "
                f"standard errors (NLPD {scores.nlpd:.3f} and {scores.nlpd_network:.3f}); "
                "give more minutes, another likelihood or prior, or more rows."
            )
            self.say(f"  {text}")
            pn.Note("worse than networks", text).give(stacklevel=2)
        return Chosen(candidate, self.reason, self._nets_of(candidate), pilot, self.trials, self.left, self.seconds)

    @property
    def _is_worse_than_networks(self) -> bool:
        """Whether the best trial predicts worse than its networks by more than two standard errors."""
        return bool(self.trials) and best_of(self.trials).evaluation.calibration.is_worse_than_network

    @property
    def _runs(self) -> int:
        """Number of pilot runs of each candidate."""
        return pilot_runs(len(self.data.training.X), by_class=self.by_class)

    def _nets_of(self, candidate: Candidate) -> list[pn.Network]:
        """Return the networks that were trained by the likelihood of a candidate."""
        return next(nets for likelihood, nets in self.nets if likelihood is candidate.likelihood)

    def _minutes(self, training: float = 0.0) -> float:
        """Return what the budget leaves for all chains after some more seconds of training."""
        return chain_minutes(self.settings.minutes, self.spent + training)

    def _train(self, candidates: Sequence[Candidate], noise: str) -> tuple[list[pn.Network], float]:
        """Return the networks that the candidates of a likelihood need, and nominal seconds of their training."""
        clock = time.perf_counter()
        likelihood, data = candidates[0].likelihood, self.data
        sizes = self._sizes(likelihood)
        self.say(f"training {sizes} {self.settings.activation}{noise} ...")
        networks = max(candidate.trained for candidate in candidates)
        nets = train_networks(sizes, data.training, likelihood, self.settings, networks=networks)
        self.say(f"  {describe_training(nets, data.units)}")
        self.nets.append((likelihood, nets))
        self.seconds["training"] += time.perf_counter() - clock
        nominal = nominal_seconds(nets, len(data.training.X))
        self.spent += nominal
        return nets, nominal

    def _run(self, candidates: Sequence[Candidate], nets: Sequence[pn.Network], minutes: float, *, of: int) -> None:
        """Run pilot runs of candidates of a likelihood, of whose final runs the budget would pay so many minutes."""
        clock = time.perf_counter()
        if not self.trials and self._runs:
            what = f"choosing among {of} posteriors by short runs" if of > 1 else "a short run of the posterior"
            self.say(f"{what}, scored on validation rows ...")
        self.trials += run_pilots(candidates, nets[0], self.data, self.settings, minutes, say=self.say)
        self.seconds["choice"] += time.perf_counter() - clock

    def _sizes(self, likelihood: Likelihood) -> list[int]:
        """Return the layer sizes of a network."""
        return self.data.layer_sizes(self.settings.hidden_layer_sizes, likelihood.outputs_per_target)

    def _sketch(self, candidate: Candidate) -> pn.Network:
        """Return a network of a candidate's sizes, of which only these matter; raise ValueError if none fits memory."""
        sizes = self._sizes(candidate.likelihood)
        try:
            weights = [np.ones((width, wide)) for wide, width in pairwise(sizes)]
            return pn.Network(weights, [np.ones(width) for width in sizes[1:]], self.settings.activation)
        except MemoryError as error:
            raise ValueError(
                f"hidden_layer_sizes={self.settings.hidden_layer_sizes} are too large for this machine: {error}"
            ) from error


def may_choose(settings: Settings, rows: int) -> bool:
    """Return whether there are likelihoods to choose from: the settings leave a choice, and rows tell them apart.

    Devices, and most kernels, do not integrate the output weights of the means out under heteroscedastic noise.
    """
    is_open = settings.given_architecture() is None and settings.thin is None
    collapses = settings.device in ("auto", "cpu") and settings.kernel == "auto"
    return is_open and collapses and PILOT_FRACTION * rows >= MIN_ROWS


def _noise(likelihood: Likelihood) -> str:
    """Return which noise a likelihood of real targets has, in words."""
    return "heteroscedastic noise" if likelihood.noise_by_row else "the same noise for all rows"


def _check_noise_is_known(likelihood: Likelihood, data: FitData, settings: Settings) -> None:
    """Raise ValueError if a noise variance is to be sampled: its prior rests on validation rows, and there are none."""
    if settings.validation_fraction == 0 or not likelihood.lacks_prior:
        return
    rows = len(data.training.X)
    raise ValueError(
        f"{rows} training row{'s are' if rows > 1 else ' is'} too few to estimate the noise on a fifth of them; give a "
        "known noise_variance, validation_fraction=0, or more rows."
    )
