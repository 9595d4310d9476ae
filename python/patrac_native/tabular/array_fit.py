"""Fits arrays: trains networks, chooses and samples their posterior, and scores it; what `patrac fit` does to a table.

The command and the estimators of scikit-learn call `fit_arrays`, so that their choices are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.draws.findings import CALIBRATION_ROWS
from patrac_native.draws.mixture_summary import MixtureSummary
from patrac_native.draws.summary import Summary
from patrac_native.model.likelihoods import Likelihood, RealLikelihood
from patrac_native.model.posterior import Posterior
from patrac_native.network.network import Network
from patrac_native.sampling.warmup import Warmup
from patrac_native.tabular.budget import chain_minutes
from patrac_native.tabular.candidates import Candidate, affordable_candidates, possible_candidates, share_left
from patrac_native.tabular.descriptions import describe_noise, describe_prior, describe_training
from patrac_native.tabular.evaluation import HELD_OUT, LEAVE_ONE_OUT, Evaluation, evaluate
from patrac_native.tabular.fit_data import FitArrays, spread_rows
from patrac_native.tabular.model_settings import MINUTES, ModelSettings
from patrac_native.tabular.pilots import Trial, best_of, describe_choice, run_pilots
from patrac_native.tabular.remedies import FitRemedies
from patrac_native.tabular.tuning import nominal_seconds, train_networks
from patrac_native.training.folds import FEWEST_ROWS
from patrac_native.validation.checks import FloatArray

# Maximum number of rows at which convergence is checked, and for which leave-one-out predictions are made.
_GRID_ROWS, _LOO_ROWS = 100, 1_000


@dataclass(frozen=True)
class ArrayFit:
    """The result of a fit to arrays.

    Attributes
    ----------
    posteriors : sequence of Posterior
        That of each network.
    draws : Draws or DrawsMixture
        A mixture if there are several networks.
    candidate : Candidate
        What was sampled.
    reason : str
        Why, in words.
    trials : sequence of Trial
        The pilot runs by which the posterior was chosen; empty if there was no choice.
    evaluation : Evaluation
        Scores of the held-out rows; if there are none, leave-one-out scores of training rows.
    summary : Summary or MixtureSummary
        Summary of the draws at the inputs `grid`, with its verdict.
    grid : ndarray of float64, shape (rows, d)
    seconds : dict of str to float
        Wall-clock time of each stage.
    """

    posteriors: Sequence[Posterior]
    draws: Draws | DrawsMixture
    candidate: Candidate
    reason: str
    trials: Sequence[Trial]
    evaluation: Evaluation
    summary: Summary | MixtureSummary
    grid: FloatArray
    seconds: dict[str, float]


def fit_arrays(
    data: FitArrays,
    likelihood: Likelihood,
    settings: ModelSettings,
    *,
    details: bool = True,
    spent: float = 0.0,
    say: Callable[[str], None] = print,
) -> ArrayFit:
    """Train networks on rows, choose a posterior, sample it, and score it.

    Parameters
    ----------
    data : FitArrays
    likelihood : Likelihood
        Of the targets in their units.
    settings : ModelSettings
        Checked by their `check_model`.
    details : bool
        Whether to compute all scores, see `evaluate_regression`; default True. Without, the scores of the pilot run on
        validation rows take the place of leave-one-out scores, if there are enough rows.
    spent : float
        Nominal seconds of earlier training, which count in the budget; default 0.
    say : callable
        Receives the lines that tell what is done and was chosen; default `print`.

    Returns
    -------
    ArrayFit

    Raises
    ------
    ValueError
        If there are too few rows to estimate the noise, or too few draws for the scores.
    RunInterrupted, a RuntimeError
        If the run was interrupted before each chain had enough draws for the scores.
    KeyboardInterrupt
        If the training or a run of the choice was interrupted.
    """
    seconds: dict[str, float] = {}
    clock = time.perf_counter()
    rows = data.training
    if isinstance(likelihood, RealLikelihood):
        likelihood = likelihood.for_scaled_targets(np.atleast_1d(data.units.target_scale))
    _check_rows_for_noise(likelihood, data, settings)
    sizes = [data.X.shape[1], *settings.hidden, likelihood.outputs_per_target * data.n_targets]
    say(f"training {sizes} {settings.activation} ...")
    possible = possible_candidates(settings, likelihood.targets)
    for one in possible:
        one.check(settings)
    nets = train_networks(
        sizes,
        rows,
        likelihood,
        networks=max(candidate.trained for candidate in possible),
        settings=settings,
        l2=settings.l2,
    )
    if any(net.history is not None and net.history.stopped == "interrupted" for net in nets):
        raise KeyboardInterrupt  # `train` returns its best parameters so far, which are not what was asked for
    _check_noise_is_known(nets[0], likelihood, data, settings)
    say(f"  {describe_training(nets[0], data.units)}")
    minutes = chain_minutes(settings.minutes or MINUTES, spent + nominal_seconds(nets, len(data.X)))
    candidates, reason = affordable_candidates(possible, nets, likelihood, rows, settings, minutes)
    seconds["training"] = time.perf_counter() - clock

    clock = time.perf_counter()
    trials = []
    if len(candidates) > 1:
        say(f"choosing among {len(candidates)} posteriors by short runs, scored on validation rows ...")
        trials = run_pilots(candidates, nets[0], likelihood, data, settings, minutes, say=say)
        reason = describe_choice(trials)
    best = best_of(trials) if trials else None
    candidate = candidates[0] if best is None else best.candidate
    say(f"  {candidate}: {reason}")
    seconds["choice"] = time.perf_counter() - clock

    posts = candidate.posteriors(nets, likelihood, rows, settings)
    say(f"  prior: {describe_prior(posts[0].network.prior, settings)}")
    minutes *= share_left(candidates, len(trials))
    draws = _sample(candidate, posts, nets, minutes, settings, None if best is None else best.draws, say)
    say(f"  {describe_noise(draws, data.units)}".rstrip())
    seconds["sampling"] = draws.members[0].settings["seconds"]

    clock = time.perf_counter()
    scored = data.scored(_LOO_ROWS)
    kind = HELD_OUT if len(data.X_test) else LEAVE_ONE_OUT
    started = nets[: candidate.trained]
    validated = _validation_of(candidate, trials) if kind == LEAVE_ONE_OUT else None
    if validated is not None and not details:
        evaluation = validated.evaluation
    else:
        evaluation = evaluate(draws, data.units, scored, kind=kind, nets=started, details=details)
    grid = scored.X[spread_rows(len(scored.X), _GRID_ROWS)]
    # Scores of validation rows are better evidence for the verdict than leave-one-out predictions.
    judged = evaluation if validated is None else validated.evaluation
    summary = draws.summary(grid).with_calibration(judged.calibration).with_remedies(FitRemedies(settings, likelihood))
    seconds["evaluation"] = time.perf_counter() - clock
    return ArrayFit(posts, draws, candidate, reason, trials, evaluation, summary, grid, seconds)


def _sample(
    candidate: Candidate,
    posts: Sequence[Posterior],
    nets: Sequence[Network],
    minutes: float,
    settings: ModelSettings,
    pilot: Draws | DrawsMixture | None,
    say: Callable[[str], None],
) -> Draws | DrawsMixture:
    """Sample the posteriors, and say how."""
    schedule = candidate.schedule(posts[0], settings, minutes)
    warmup = settings.warmup_of(schedule.warmup)
    of_networks = f" of each of {len(posts)} networks" if len(posts) > 1 else ""
    say(
        f"sampling {candidate.architecture.label()}, {posts[0].dim} parameters: {candidate.chains} chains{of_networks} "
        f"x {candidate.draws} draws, thin {schedule.thin}, warm-up "
        f"{warmup.steps if isinstance(warmup, Warmup) else warmup:,} steps ..."
    )
    return candidate.sample(posts, nets, schedule, settings, pilot=pilot, say=say)


def _validation_of(chosen: Candidate, trials: Sequence[Trial]) -> Trial | None:
    """Return the pilot run of the chosen posterior if it was scored on enough validation rows for a verdict.

    Those rows are better evidence than leave-one-out predictions, which importance sampling makes unreliable where a
    posterior follows single rows, and which do not undo that networks were trained on a row.
    """
    for trial in trials:
        if trial.candidate == chosen and trial.evaluation.calibration.rows >= CALIBRATION_ROWS:
            return trial
    return None


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
