"""Trains the networks of a fit and chooses the posterior: likelihood, architecture, prior and number of networks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from patrac_native.fit.budget import MIN_STEPS, chain_minutes
from patrac_native.fit.candidates import (
    PILOT_FRACTION,
    Candidate,
    affordable_candidates,
    final_share,
    pilot_cost,
    possible_candidates,
)
from patrac_native.fit.descriptions import describe_training
from patrac_native.fit.fit_data import FitArrays
from patrac_native.fit.model_settings import MINUTES, ModelSettings
from patrac_native.fit.pilots import MIN_ROWS, Trial, best_of, describe_choice, run_pilots
from patrac_native.fit.tuning import nominal_seconds, train_networks
from patrac_native.likelihoods import Likelihood
from patrac_native.network.network import Network
from patrac_native.training.folds import FEWEST_ROWS
from patrac_native.training.preparation import check_training_memory
from patrac_native.validation.checks import FloatArray

# The first of two likelihoods is tried only if the budget, without any training, pays for so many steps of each of its
# final chains: otherwise the training of networks by two likelihoods takes what the chains need.
_FIRST_STEPS = 2 * MIN_STEPS
# Noise of each row is not tried where values of a target stand further apart than this share of its standard deviation.
_COARSE_GAP = 0.5


@dataclass(frozen=True)
class Chosen:
    """The posterior that is to be sampled.

    Attributes
    ----------
    candidate : Candidate
    reason : str
        Why, in words.
    nets : sequence of Network
        Trained by its likelihood, at least as many as it needs.
    pilot : Trial, optional
        Its pilot run, if there was a choice.
    trials : sequence of Trial
        The pilot runs by which it was chosen; empty if there was no choice.
    minutes : float
        What the budget leaves for its chains.
    seconds : dict of str to float
        Wall-clock time of the training and of the choice.
    """

    candidate: Candidate
    reason: str
    nets: Sequence[Network]
    pilot: Trial | None
    trials: Sequence[Trial]
    minutes: float
    seconds: dict[str, float]


def choose_posterior(
    likelihoods: Sequence[Likelihood],
    data: FitArrays,
    settings: ModelSettings,
    *,
    spent: float = 0.0,
    say: Callable[[str], None] = print,
) -> Chosen:
    """Train networks by one or two likelihoods, and choose a posterior by pilot runs.

    The first of two is tried by one candidate, if the budget pays for it, and the second only if that one is not
    convincing, so that its networks need not be trained. Without a choice, the second is taken, and so it is where a
    target takes few values.

    Parameters
    ----------
    likelihoods : sequence of Likelihood
        One, or two to choose from, of standardised targets if they are of numbers, in the order in which they are
        tried.
    data : FitArrays
    settings : ModelSettings
    spent : float
        Nominal seconds of earlier training, which count in the budget; default 0.
    say : callable
        Receives the lines that tell what is done; default `print`.

    Returns
    -------
    Chosen

    Raises
    ------
    ValueError
        If there are too few rows to estimate the noise, or too few draws for the scores.
    KeyboardInterrupt, RuntimeError
        If the training or a run was interrupted.
    """
    if not _may_choose(settings, len(data.X)):
        likelihoods = likelihoods[-1:]
    elif len(likelihoods) > 1 and _is_coarse(data.y):
        say(
            f"{_noise(likelihoods[0])} is not tried: the target takes few values, and a density rewards noise that "
            f"vanishes at them; {settings.option('likelihood', 'heteroscedastic')} samples it all the same"
        )
        likelihoods = likelihoods[-1:]
    _check_rows_for_noise(likelihoods[-1], data, settings)
    possible = possible_candidates(settings, likelihoods)
    choice = _Choice(data, settings, spent, say)
    possible = choice.with_more_chains(possible)
    for one in possible:
        one.check(settings)
    if len(likelihoods) > 1:
        choice.try_first(possible)
        if choice.is_settled:
            return choice.chosen()
    choice.try_all([one for one in possible if one.likelihood is likelihoods[-1]])
    return choice.chosen()


@dataclass
class _Choice:
    """A choice in progress: what was trained, tried and spent so far."""

    data: FitArrays
    settings: ModelSettings
    spent: float  # nominal seconds of training
    say: Callable[[str], None]
    planned: float = 0.0  # minutes of the final chains for which the first pilot run was planned
    used: float = 0.0  # minutes of the chains of that run
    left: float = 0.0  # minutes for the final chains
    default: Candidate | None = None  # where nothing was tried
    reason: str = ""
    trials: list[Trial] = field(default_factory=list)
    nets: list[tuple[Likelihood, list[Network]]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"training": 0.0, "choice": 0.0})

    @property
    def is_settled(self) -> bool:
        """Whether no other needs to be tried."""
        return bool(self.trials) and self.trials[0].is_convincing

    def with_more_chains(self, possible: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates with as many chains as the budget would pay for without any training."""
        minutes = self._minutes() * (final_share(possible) if len(possible) > 1 else 1.0)
        return [one.with_more_chains(minutes, self._sketch(one), self.data.training, self.settings) for one in possible]

    def try_first(self, possible: Sequence[Candidate]) -> None:
        """Train networks and run a pilot run of the first candidate, unless its final run would have too few steps.

        The budget is divided as if all possible candidates had a pilot run, and the other networks took as long to
        train.
        """
        candidate, share, rows = possible[0], final_share(possible), self.data.training
        noise = _noise(candidate.likelihood)
        steps = candidate.steps_within(share * self._minutes(), self._sketch(candidate), rows, self.settings)
        if steps < _FIRST_STEPS:
            self.say(f"{noise} is not tried: networks of two kinds need a larger {self.settings.option('minutes')}")
            return
        nets, seconds = self._train([candidate], f" with {noise}")
        minutes = share * self._minutes(seconds)
        if candidate.steps_within(minutes, nets[0], rows, self.settings) < MIN_STEPS:
            self.say(f"{noise} is not tried: the training left too little of the budget")
            return
        self._run(possible[:1], nets, minutes, of=len(possible))
        self.planned, self.used = minutes, minutes * pilot_cost(candidate)
        self.left, self.reason = self._minutes() - self.used, describe_choice(self.trials)

    def try_all(self, possible: Sequence[Candidate]) -> None:
        """Train networks by the last likelihood and choose among its candidates and what was tried before."""
        before = len(self.trials)
        nets, _ = self._train(possible, f" with {_noise(possible[0].likelihood)}" if self.nets else "")
        _check_noise_is_known(nets[0], possible[0].likelihood, self.data, self.settings)
        # A training that takes longer than planned does not make the final run shorter than planned.
        minutes = max(self._minutes() - self.used, self.planned / final_share(possible))
        candidates, self.reason = affordable_candidates(possible, nets, self.data.training, self.settings, minutes)
        if before or len(candidates) > 1:
            final = minutes * final_share(candidates)
            self._run(candidates, nets, final, of=len(candidates))
            minutes -= final * sum(map(pilot_cost, candidates[: len(self.trials) - before]))
            self.reason = describe_choice(self.trials)
        self.default, self.left = candidates[0], minutes

    def chosen(self) -> Chosen:
        """Return the result."""
        pilot = best_of(self.trials) if self.trials else None
        candidate = self.default if pilot is None else pilot.candidate
        assert candidate is not None  # all of the last likelihood were tried
        nets = next(nets for likelihood, nets in self.nets if likelihood is candidate.likelihood)
        return Chosen(candidate, self.reason, nets, pilot, self.trials, self.left, self.seconds)

    def _minutes(self, training: float = 0.0) -> float:
        """Return what the budget leaves for all chains after some more seconds of training."""
        return chain_minutes(self.settings.minutes or MINUTES, self.spent + training)

    def _train(self, candidates: Sequence[Candidate], noise: str) -> tuple[list[Network], float]:
        """Return the networks that the candidates of a likelihood need, and nominal seconds of their training."""
        clock = time.perf_counter()
        likelihood, data, settings = candidates[0].likelihood, self.data, self.settings
        sizes = self._sizes(likelihood)
        self.say(f"training {sizes} {settings.activation}{noise} ...")
        nets = train_networks(
            sizes,
            data.training,
            likelihood,
            networks=max(candidate.trained for candidate in candidates),
            settings=settings,
            l2=settings.l2,
        )
        if any(net.history is not None and net.history.stopped == "interrupted" for net in nets):
            raise KeyboardInterrupt  # `train` returns its best parameters so far, which are not what was asked for
        self.say(f"  {describe_training(nets[0], data.units)}")
        self.nets.append((likelihood, nets))
        self.seconds["training"] += time.perf_counter() - clock
        nominal = nominal_seconds(nets, len(data.X))
        self.spent += nominal
        return nets, nominal

    def _run(self, candidates: Sequence[Candidate], nets: Sequence[Network], minutes: float, *, of: int) -> None:
        """Run pilot runs of candidates of a likelihood, of whose final runs the budget would pay so many minutes."""
        clock = time.perf_counter()
        if not self.trials and PILOT_FRACTION * len(self.data.X) >= MIN_ROWS:
            self.say(f"choosing among {of} posteriors by short runs, scored on validation rows ...")
        self.trials += run_pilots(candidates, nets[0], self.data, self.settings, minutes, say=self.say)
        self.seconds["choice"] += time.perf_counter() - clock

    def _sketch(self, candidate: Candidate) -> Network:
        """Return a network of a candidate's sizes, which has not been trained.

        Raises
        ------
        ValueError
            If the machine lacks the memory to train it.
        """
        sizes = self._sizes(candidate.likelihood)
        check_training_memory(sizes, "float32")
        return _untrained(sizes, self.settings)

    def _sizes(self, likelihood: Likelihood) -> list[int]:
        """Return the layer sizes of a network."""
        outputs = likelihood.outputs_per_target * self.data.n_targets
        return [self.data.X.shape[1], *self.settings.hidden, outputs]


def _may_choose(settings: ModelSettings, rows: int) -> bool:
    """Return whether there are likelihoods to choose from: the settings leave a choice, and rows tell them apart.

    Devices, and most kernels, do not integrate the output weights of the means out under heteroscedastic noise.
    """
    is_open = settings.bayesian() is None and settings.thin is None
    collapses = settings.device in ("auto", "cpu") and settings.kernel == "auto"
    return is_open and collapses and PILOT_FRACTION * rows >= MIN_ROWS


def _is_coarse(targets: FloatArray) -> bool:
    """Return whether a target, (n,) or one of several (n, t), takes few values, such as whole numbers from 3 to 8.

    On rows whose target the mean can meet exactly, noise of each row raises the density without bound.
    """
    columns = np.asarray(targets, dtype=np.float64).reshape(len(targets), -1).T
    gaps = [np.diff(np.unique(column)).min(initial=np.inf) for column in columns]
    return bool(np.any(np.array(gaps) > _COARSE_GAP * columns.std(axis=1)))


def _noise(likelihood: Likelihood) -> str:
    """Return which noise a likelihood of real targets has, in words."""
    return "heteroscedastic noise" if likelihood.outputs_per_target > 1 else "the same noise for all rows"


def _untrained(sizes: Sequence[int], settings: ModelSettings) -> Network:
    """Return a network of which only the sizes matter."""
    weights = [np.ones((width, wide)) for wide, width in pairwise(sizes)]
    return Network(weights, [np.ones(width) for width in sizes[1:]], settings.activation)


def _check_noise_is_known(net: Network, likelihood: Likelihood, data: FitArrays, settings: ModelSettings) -> None:
    """Raise ValueError if a sampled noise variance has no validation residuals for its prior, unless so asked."""
    assert net.history is not None
    if _samples_noise(likelihood, settings) and net.history.validation_mse is None:
        raise _too_few_for_noise(len(data.X), settings)


def _check_rows_for_noise(likelihood: Likelihood, data: FitArrays, settings: ModelSettings) -> None:
    """Raise ValueError before the training if there are so few rows that none will be left out of it."""
    if settings.validation_fraction is None and _samples_noise(likelihood, settings) and len(data.X) < FEWEST_ROWS:
        raise _too_few_for_noise(len(data.X), settings)


def _samples_noise(likelihood: Likelihood, settings: ModelSettings) -> bool:
    """Return whether a noise variance is sampled under a prior that rests on validation residuals."""
    return settings.validation_fraction != 0 and likelihood.lacks_prior


def _too_few_for_noise(rows: int, settings: ModelSettings) -> ValueError:
    """Return the error of a fit whose noise cannot be estimated."""
    return ValueError(
        f"{rows} training row{'s are' if rows > 1 else ' is'} too few to estimate the noise on a fifth of them; give "
        f"{settings.noise_option}, or more rows."
    )
