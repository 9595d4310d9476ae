"""Fits arrays: trains networks, chooses and samples their posterior, and scores it; what `patrac fit` does to a table.

The command and the estimators of scikit-learn call `fit_arrays`, so that their choices are the same.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from patrac_native.diagnostics import convergence
from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.draws.mixture_summary import MixtureSummary
from patrac_native.draws.summary import Summary
from patrac_native.fit.candidates import Candidate
from patrac_native.fit.descriptions import describe_noise, describe_prior
from patrac_native.fit.evaluation import Evaluation, evaluate
from patrac_native.fit.fit_data import FitArrays, spread_rows
from patrac_native.fit.model_settings import ModelSettings
from patrac_native.fit.pilots import Trial
from patrac_native.fit.posterior_choice import choose_posterior
from patrac_native.fit.remedies import FitRemedies
from patrac_native.likelihoods import Likelihood, RealLikelihood
from patrac_native.network.network import Network
from patrac_native.posterior.posterior import Posterior
from patrac_native.validation.checks import FloatArray
from patrac_native.verdict.calibration import HELD_OUT, LEAVE_ONE_OUT
from patrac_native.verdict.findings import CALIBRATION_ROWS, GOOD, RHAT_USABLE, convergence_grade

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
    likelihoods: Sequence[Likelihood],
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
    likelihoods : sequence of Likelihood
        Of the targets in their units; several to choose from, see `choose_posterior`.
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
    scaled = [
        one.for_scaled_targets(np.atleast_1d(data.units.target_scale)) if isinstance(one, RealLikelihood) else one
        for one in likelihoods
    ]
    chosen = choose_posterior(scaled, data, settings, spent=spent, say=say)
    candidate, nets, trials, seconds = chosen.candidate, chosen.nets, chosen.trials, dict(chosen.seconds)
    say(f"  {candidate}: {chosen.reason}")

    posts = candidate.posteriors(nets, data.training, settings)
    say(f"  prior: {describe_prior(posts[0].network.prior, settings)}")
    pilot = None if chosen.pilot is None else chosen.pilot.draws
    scored = data.scored(_LOO_ROWS)
    grid = scored.X[spread_rows(len(scored.X), _GRID_ROWS)]
    draws = _sample(candidate, posts, nets, chosen.minutes, settings, pilot, grid, say)
    say(f"  {describe_noise(draws, data.units)}".rstrip())
    seconds["sampling"] = draws.members[0].settings["seconds"]

    clock = time.perf_counter()
    kind = HELD_OUT if len(data.X_test) else LEAVE_ONE_OUT
    started = nets[: candidate.trained]
    validated = _enough_for_verdict(chosen.pilot) if kind == LEAVE_ONE_OUT else None
    if validated is not None and not details:
        evaluation = validated.evaluation
    else:
        evaluation = evaluate(draws, data.units, scored, kind=kind, nets=started, details=details)
    # Scores of validation rows are better evidence for the verdict than leave-one-out predictions.
    judged = (evaluation if validated is None else validated.evaluation).calibration
    if kind == HELD_OUT and judged.rows < CALIBRATION_ROWS and chosen.pilot is not None:
        judged = judged.with_validation(chosen.pilot.evaluation.calibration)
    summary = (
        draws.summary(grid)
        .with_calibration(judged)
        .with_remedies(FitRemedies(settings, candidate.likelihood, [trial.candidate.likelihood for trial in trials]))
    )
    seconds["evaluation"] = time.perf_counter() - clock
    return ArrayFit(posts, draws, candidate, chosen.reason, trials, evaluation, summary, grid, seconds)


def _sample(
    candidate: Candidate,
    posts: Sequence[Posterior],
    nets: Sequence[Network],
    minutes: float,
    settings: ModelSettings,
    pilot: Draws | DrawsMixture | None,
    grid: FloatArray,
    say: Callable[[str], None],
) -> Draws | DrawsMixture:
    """Sample the posteriors, and say how; where a budget gives the steps, a run ends once f at `grid` has converged."""
    schedule = candidate.schedule(posts[0], settings, minutes)
    warmup = candidate.warmup(posts[0], schedule, settings)
    at_most = "at most " if any(phase.first_look for phase in warmup.phases) else ""
    of_networks = f" of each of {len(posts)} networks" if len(posts) > 1 else ""
    say(
        f"sampling {candidate.architecture.label()}, {posts[0].dim} parameters: {candidate.chains} chains{of_networks} "
        f"x {candidate.draws} draws, thin {schedule.thin}, warm-up {at_most}{warmup.steps:,} steps ..."
    )
    # The inputs are on the host, so "auto" is the CPU.
    may_end = settings.thin is None and settings.device in ("auto", "cpu")
    stop_when = functools.partial(_is_enough, grid) if may_end else None
    draws = candidate.sample(posts, nets, schedule, settings, pilot=pilot, stop_when=stop_when, say=say)
    if draws.n_draws < candidate.draws and all(member.settings["completed"] for member in draws.members):
        say(
            f"  the chains have converged: the run ended after {draws.n_draws} of {candidate.draws} draws of each chain"
        )
    return draws


def _is_enough(grid: FloatArray, draws: Draws) -> bool:
    """Return whether R-hat and bulk ESS of f at `grid` are good; a log-likelihood that disagrees says no at once."""
    if not convergence(draws.stats["log_likelihood"]).max_rhat <= RHAT_USABLE:
        return False
    return convergence_grade(draws.summary(grid).evidence) == GOOD


def _enough_for_verdict(pilot: Trial | None) -> Trial | None:
    """Return the pilot run of the chosen posterior if it was scored on enough validation rows for a verdict.

    Those rows are better evidence than leave-one-out predictions, which importance sampling makes unreliable where a
    posterior follows single rows, and which do not undo that networks were trained on a row.
    """
    return pilot if pilot is not None and pilot.evaluation.calibration.rows >= CALIBRATION_ROWS else None
