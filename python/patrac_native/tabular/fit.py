"""Fits a table: trains a network, samples its partial posterior, scores held-out rows, writes report and draws."""

from __future__ import annotations

import os
import time
import warnings
from typing import TYPE_CHECKING

import numpy as np

from patrac_native.model.choice import choose_kernel
from patrac_native.model.likelihoods import Categorical, Gaussian, Likelihood
from patrac_native.model.posterior import Posterior
from patrac_native.model.priors.trace_class import ALPHA_BOUNDS, TraceClassPrior
from patrac_native.network.network import Network
from patrac_native.sampling.sampler import sample
from patrac_native.sampling.warmup import Warmup
from patrac_native.tabular.evaluation import evaluate_classes, evaluate_regression
from patrac_native.tabular.fit_report import printed, write_results
from patrac_native.tabular.fit_result import FitData, FitResult, describe_choice
from patrac_native.tabular.fit_settings import DRAWS, PREPROCESSING, REPORT, SUMMARY, FitSettings
from patrac_native.tabular.preprocessing import Preprocessor, check_target, guess_task
from patrac_native.tabular.tables import find_column, read_table
from patrac_native.tabular.tuning import Choice, choose, default_thin, torch_threads, training_settings
from patrac_native.training.folds import split_rows
from patrac_native.training.training import train

if TYPE_CHECKING:
    import pandas as pd

# Maximum number of held-out rows at which convergence is checked.
_GRID_ROWS = 100


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
        If the run was interrupted before each chain had four draws.
    """
    settings.check()
    seconds: dict[str, float] = {}
    clock = time.perf_counter()

    frame, table = read_table(settings.data, header=settings.header, separator=settings.separator)
    data = _prepare(frame, settings)
    regression = data.preprocessor.task == "regression"

    sizes = [data.X.shape[1], *settings.hidden, data.preprocessor.n_outputs]
    print(f"training {sizes} {settings.activation} ...", flush=True)
    training = training_settings(len(data.X), settings.epochs)
    with torch_threads(len(data.X), sizes, settings.threads):
        choice = _choose(sizes, data, settings)
        likelihood: Likelihood = Categorical() if choice.variance is None else Gaussian(choice.variance)
        net = train(
            sizes,
            data.X,
            data.y,
            likelihood=likelihood,
            l2=choice.l2,
            validation_fraction=0,  # `choose` has had its validation rows
            activation=settings.activation,
            seed=settings.seed,
            **training,
        )
    print(f"  {describe_choice(choice, data.preprocessor)}")
    seconds["training"] = time.perf_counter() - clock

    architecture = settings.bayesian()
    prior = _fit_prior(net, settings.alpha)
    post = Posterior(net, architecture, prior, likelihood, data.X, data.y, dtype=settings.dtype)
    independent = choose_kernel(post.facts)[0].is_independent
    thin = settings.thin or (1 if independent else default_thin(post))
    warmup = Warmup(()) if independent and settings.warmup is None else settings.warmup_of(thin)
    steps = warmup.steps if isinstance(warmup, Warmup) else warmup
    print(
        f"sampling {architecture.label()}, {post.dim} parameters: {settings.chains} chains x {settings.draws} draws, "
        f"thin {thin}, warm-up {steps:,} steps ...",
        flush=True,
    )
    draws = sample(
        post,
        chains=settings.chains,
        draws=settings.draws,
        thin=thin,
        warmup=warmup,
        seed=settings.seed,
        threads=settings.threads,
    )
    seconds["sampling"] = draws.settings["seconds"]
    if draws.n_draws < 4:
        raise RuntimeError("the run was interrupted before there were four draws of each chain; nothing was written.")

    clock = time.perf_counter()
    evaluation = (
        evaluate_regression(draws, data.preprocessor, data.X_test, data.y_test)
        if regression
        else evaluate_classes(draws, data.X_test, data.y_test)
    )
    grid = data.X_test[np.linspace(0, len(data.X_test) - 1, min(_GRID_ROWS, len(data.X_test))).round().astype(int)]
    summary = draws.summary(grid)
    seconds["evaluation"] = time.perf_counter() - clock
    result = FitResult(settings, data, choice, post.describe(), draws, evaluation, summary, grid, seconds)

    print()
    print(printed(result))
    os.makedirs(settings.out, exist_ok=True)
    write_results(result, table)
    print(f"\nwrote {', '.join(os.path.join(settings.out, name) for name in (REPORT, SUMMARY, DRAWS, PREPROCESSING))}")
    return result


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
    try:
        test, rows = split_rows(len(frame), [settings.test_fraction], seed=settings.seed, labels=labels)
    except ValueError as error:
        raise ValueError(
            f"--test-fraction {settings.test_fraction:g} of {len(frame)} rows leaves none to hold out or none to train "
            "on; give a table of more rows, or another --test-fraction."
        ) from error
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


def _choose(sizes: list[int], data: FitData, settings: FitSettings) -> Choice:
    """Choose noise variance and penalty on validation rows, which are split off from the training rows."""
    regression = data.preprocessor.task == "regression"
    if regression and settings.noise_variance is not None:
        variance = settings.noise_variance / data.preprocessor.target_scale**2
    else:
        variance = None
    return choose(
        sizes,
        data.X,
        data.y,
        regression=regression,
        l2=settings.l2,
        variance=variance,
        activation=settings.activation,
        seed=settings.seed,
        epochs=settings.epochs,
    )


def _fit_prior(net: Network, alpha: float | None) -> TraceClassPrior:
    """Fit the prior and print it; an alpha at a bound is common and no error, so it becomes a note, not a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TraceClassPrior.fit: alpha ended at")
        prior = TraceClassPrior.fit(net, alpha=alpha)
    source = "as asked" if alpha is not None else "fitted"
    print(
        f"  prior: alpha {prior.alpha:.4g} ({source}), sigma_w^2 {prior.sigma2_w:.3g}, sigma_b^2 {prior.sigma2_b:.3g}"
    )
    if alpha is None and prior.alpha in ALPHA_BOUNDS:
        what = (
            "many networks end so, and sampling is as correct as with any other; --alpha 2 puts more of the prior "
            "variance on the top nodes"
            if prior.alpha == ALPHA_BOUNDS[0]
            else "nearly all weight sits at the first nodes; --alpha 2 spreads the prior variance over more"
        )
        print(f"  note: alpha is at the bound of its search: {what}")
    return prior
