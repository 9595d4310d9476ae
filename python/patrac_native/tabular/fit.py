"""Fits a table: trains a network, samples its partial posterior, scores held-out rows, writes report and draws."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from patrac_native.draws.calibration import Calibration
from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.draws.findings import CALIBRATION_ROWS
from patrac_native.model.likelihoods import Categorical, Gaussian, Likelihood
from patrac_native.model.posterior import Posterior
from patrac_native.network.network import Network
from patrac_native.sampling.warmup import Warmup
from patrac_native.tabular.candidates import Candidate, affordable_candidates, possible_candidates, share_left
from patrac_native.tabular.evaluation import (
    HELD_OUT,
    LEAVE_ONE_OUT,
    Evaluation,
    evaluate_classes,
    evaluate_regression,
)
from patrac_native.tabular.fit_data import FitData, spread_rows
from patrac_native.tabular.fit_report import printed, write_results
from patrac_native.tabular.fit_result import (
    FitResult,
    describe_noise,
    describe_prior,
    describe_training,
)
from patrac_native.tabular.fit_settings import DRAWS, MINUTES, PREPROCESSING, REPORT, SUMMARY, FitSettings
from patrac_native.tabular.pilots import Trial, best_of, describe_choice, run_pilots
from patrac_native.tabular.preprocessing import Preprocessor, check_target, guess_task
from patrac_native.tabular.tables import find_column, read_table
from patrac_native.tabular.tuning import train_networks
from patrac_native.training.folds import split_rows

if TYPE_CHECKING:
    import pandas as pd

# Maximum number of rows at which convergence is checked, and for which leave-one-out predictions are made.
_GRID_ROWS, _LOO_ROWS = 100, 1_000


def fit_table(settings: FitSettings) -> FitResult:
    """Train a network on a table, sample its posterior, score held-out rows and write everything to `settings.out`.

    Progress and scores are printed.

    Parameters
    ----------
    settings : FitSettings

    Returns
    -------
    FitResult

    Raises
    ------
    TypeError, ValueError, OSError
        If a setting or the table is invalid; settings are checked before any work.
    RuntimeError
        If the run was interrupted before each chain had enough draws for the scores.
    """
    settings.check()
    seconds: dict[str, float] = {}
    clock = time.perf_counter()

    frame, table = read_table(settings.data, header=settings.header, separator=settings.separator)
    data = _prepare(frame, settings)
    regression = data.preprocessor.task == "regression"

    sizes = [data.X.shape[1], *settings.hidden, data.preprocessor.n_outputs]
    print(f"training {sizes} {settings.activation} ...", flush=True)
    likelihood = _likelihood(data, settings)
    possible = possible_candidates(settings, likelihood.targets)
    for one in possible:
        one.check(settings)
    nets = train_networks(
        sizes,
        data.X,
        data.y,
        likelihood,
        networks=max(candidate.trained for candidate in possible),
        settings=settings,
        l2=settings.l2,
    )
    _check_noise_is_known(nets[0], likelihood, data)
    print(f"  {describe_training(nets[0], data.preprocessor)}")
    candidates, reason = affordable_candidates(possible, nets, likelihood, data.X, data.y, settings)
    seconds["training"] = time.perf_counter() - clock

    clock = time.perf_counter()
    trials = []
    if len(candidates) > 1:
        print(f"choosing among {len(candidates)} posteriors by short runs, scored on validation rows ...", flush=True)
        trials = run_pilots(candidates, nets[0], likelihood, data, settings)
        reason = describe_choice(trials)
    best = best_of(trials) if trials else None
    candidate = candidates[0] if best is None else best.candidate
    print(f"  {candidate}: {reason}")
    seconds["choice"] = time.perf_counter() - clock

    posts = candidate.posteriors(nets, likelihood, data.X, data.y, settings)
    print(f"  prior: {describe_prior(posts[0].network.prior, settings.alpha)}")
    minutes = (settings.minutes or MINUTES) * share_left(candidates, len(trials))
    draws = _sample(candidate, posts, nets, minutes, settings, None if best is None else best.draws)
    print(f"  {describe_noise(draws, data.preprocessor)}".rstrip())
    seconds["sampling"] = draws.members[0].settings["seconds"]

    clock = time.perf_counter()
    X, y = data.scored(_LOO_ROWS)
    kind = HELD_OUT if len(data.X_test) else LEAVE_ONE_OUT
    started = nets[: candidate.trained]
    evaluation = (
        evaluate_regression(draws, data.preprocessor, X, y, kind=kind, nets=started)
        if regression
        else evaluate_classes(draws, X, y, kind=kind, nets=started)
    )
    grid = X[spread_rows(len(X), _GRID_ROWS)]
    summary = draws.summary(grid).with_calibration(_evidence(evaluation, trials, candidate))
    seconds["evaluation"] = time.perf_counter() - clock
    result = FitResult(settings, data, posts[0].describe(), draws, evaluation, summary, grid, seconds, trials)

    print()
    print(printed(result))
    os.makedirs(settings.out, exist_ok=True)
    write_results(result, table)
    print(f"\nwrote {', '.join(os.path.join(settings.out, name) for name in (REPORT, SUMMARY, DRAWS, PREPROCESSING))}")
    return result


def _sample(
    candidate: Candidate,
    posts: Sequence[Posterior],
    nets: Sequence[Network],
    minutes: float,
    settings: FitSettings,
    pilot: Draws | DrawsMixture | None,
) -> Draws | DrawsMixture:
    """Sample the posteriors, and print how."""
    schedule = candidate.schedule(posts[0], settings, minutes)
    warmup = settings.warmup_of(schedule.warmup)
    of_networks = f" of each of {len(posts)} networks" if len(posts) > 1 else ""
    print(
        f"sampling {candidate.architecture.label()}, {posts[0].dim} parameters: {candidate.chains} chains{of_networks} "
        f"x {candidate.draws} draws, thin {schedule.thin}, warm-up "
        f"{warmup.steps if isinstance(warmup, Warmup) else warmup:,} steps ...",
        flush=True,
    )
    return candidate.sample(posts, nets, schedule, settings, pilot=pilot)


def _evidence(evaluation: Evaluation, trials: Sequence[Trial], chosen: Candidate) -> Calibration:
    """Return the scores on which the verdict rests.

    Those of validation rows are better evidence than leave-one-out predictions, which importance sampling makes
    unreliable where a posterior follows single rows, and which do not undo that networks were trained on a row.
    """
    for trial in trials:
        found = trial.evaluation.calibration
        if (
            trial.candidate == chosen
            and evaluation.calibration.kind == LEAVE_ONE_OUT
            and found.rows >= CALIBRATION_ROWS
        ):
            return found
    return evaluation.calibration


def _prepare(frame: pd.DataFrame, settings: FitSettings) -> FitData:
    """Split the rows and convert them to arrays; print what was found in the table."""
    target = find_column(frame, settings.target)
    drop = [find_column(frame, column, "--drop") for column in settings.drop]
    categorical = [find_column(frame, column, "--categorical") for column in settings.categorical]
    task, reason = guess_task(frame[target])
    if settings.task is not None:
        task, reason = settings.task, "as asked"
    check_target(frame[target])
    labels = frame[target].astype(str).to_numpy() if task == "classification" else None
    shares = [settings.test_fraction] if settings.test_fraction else []
    try:
        *held, rows = split_rows(len(frame), shares, seed=settings.seed, labels=labels)
    except ValueError as error:
        raise ValueError(
            f"--test-fraction {settings.test_fraction:g} of {len(frame)} rows leaves none to hold out or none to train "
            "on; give a table of more rows, or another --test-fraction."
        ) from error
    test = held[0] if held else rows[:0]
    preprocessor = Preprocessor.fit(
        frame, target, task=task, rows=rows, impute=settings.impute, drop=drop, categorical=categorical
    )
    X, y = preprocessor.transform(frame), preprocessor.transform_target(frame)
    print(f"{settings.data}: {len(frame)} rows, {frame.shape[1]} columns; target {target!r}: {task} ({reason})")
    if task == "classification":
        counts = np.bincount(y, minlength=len(preprocessor.classes))
        print("  classes: " + ", ".join(f"{c} ({n})" for c, n in zip(preprocessor.classes, counts, strict=True)))
    print(f"  {preprocessor.n_inputs} inputs, {len(rows)} training rows, {len(test)} held out (seed {settings.seed})")
    for note in preprocessor.notes:
        print(f"  note: {note}")
    return FitData(preprocessor, X[rows], y[rows], X[test], y[test])


def _likelihood(data: FitData, settings: FitSettings) -> Likelihood:
    """Return the likelihood of the posterior."""
    if data.preprocessor.task == "classification":
        return Categorical()
    if settings.noise_variance is None:
        return Gaussian("sampled")
    return Gaussian(settings.noise_variance / data.preprocessor.target_scale**2)


def _check_noise_is_known(net: Network, likelihood: Likelihood, data: FitData) -> None:
    """Raise ValueError if a sampled noise variance has no validation residuals for its prior."""
    assert net.history is not None
    if isinstance(likelihood, Gaussian) and likelihood.is_sampled and net.history.validation_mse is None:
        raise ValueError(
            f"{len(data.X)} training rows are too few to estimate the noise on a fifth of them; give --noise-variance, "
            "or more rows."
        )
