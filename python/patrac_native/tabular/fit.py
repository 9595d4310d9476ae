"""`patrac fit`: from a table to a network, its partial posterior, scores on held-out rows, a report and draws."""

from __future__ import annotations

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native.model.architectures import Architecture, Full, Mix, Out, Sep
from patrac_native.model.choice import choose_kernel
from patrac_native.model.likelihoods import Categorical, Gaussian, Likelihood
from patrac_native.model.posterior import Posterior
from patrac_native.model.prior import ALPHA_BOUNDS, TraceClassPrior
from patrac_native.network.activations import ACTIVATIONS
from patrac_native.network.network import Network
from patrac_native.sampling.sampler import sample
from patrac_native.sampling.warmup import Warmup, paper_warmup
from patrac_native.tabular.preprocessing import IMPUTATIONS, TASKS, Preprocessor, check_target, guess_task
from patrac_native.tabular.tables import find_column, read_table, split_rows
from patrac_native.tabular.tuning import (
    Choice,
    choose,
    default_thin,
    default_warmup_steps,
    torch_threads,
    training_settings,
)
from patrac_native.training.training import train
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import pandas as pd

    from patrac_native.draws.draws import Draws
    from patrac_native.draws.summary import Summary
    from patrac_native.tabular.evaluation import Evaluation

REPORT, SUMMARY, DRAWS, PREPROCESSING = "report.html", "summary.json", "draws.npz", "preprocessing.json"
# Inputs at which convergence is looked at.
_GRID_ROWS = 100


@dataclass(frozen=True)
class FitData:
    """Standardised training and held-out rows, and how to get back."""

    preprocessor: Preprocessor
    X: FloatArray
    y: Any
    X_test: FloatArray
    y_test: Any


@dataclass(frozen=True)
class FitResult:
    """Everything that the report and the files hold."""

    arguments: argparse.Namespace
    data: FitData
    choice: Choice
    description: str
    draws: Draws
    evaluation: Evaluation
    summary: Summary
    grid: FloatArray
    seconds: dict[str, float]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `patrac fit`."""
    add = parser.add_argument
    add("data", metavar="DATA", help="text file of rows and columns: CSV, or separated by whitespace and the like")
    add("--target", required=True, metavar="COL", help="column to predict: its name, or its number from 0")
    add("--task", choices=TASKS, help="default: guessed from the target, and said")
    add_table_arguments(parser)
    add("--drop", nargs="+", default=[], metavar="COL", help="columns to leave out")
    add("--categorical", nargs="+", default=[], metavar="COL", help="columns of numbers that are codes: one-hot")
    add("--impute", choices=IMPUTATIONS, help="fill missing numbers so, and categories by the most frequent")
    add("--architecture", choices=("full", "mix", "out", "sep"), default="mix", help="default mix")
    add("--k", type=int, nargs="+", metavar="K", help="Bayesian nodes a layer: 5 for mix and sep, up to 45 for out")
    add("--hidden", type=int, nargs="+", default=[50, 50], metavar="N", help="hidden widths; default 50 50")
    add("--activation", choices=list(ACTIVATIONS), default="tanh", help="default tanh")
    add("--l2", type=float, help="penalty of the training; default: chosen on validation rows")
    add("--epochs", type=int, help="largest number of training epochs; default by the number of rows")
    add(
        "--noise-variance", type=float, metavar="V", help="in the target's units squared; default: from validation rows"
    )
    add("--test-fraction", type=float, default=0.3, metavar="F", help="share of rows held out; default 0.3")
    add(
        "--alpha", type=float, metavar="A", help="decay of the prior, above 1; default: fitted to the network's weights"
    )
    add("--chains", type=int, default=4, help="default 4")
    add("--draws", type=int, default=500, help="kept draws of each chain; default 500")
    add("--thin", type=int, help="steps for each kept draw; default: by the cost of a step, 10 to 1000")
    add("--warmup", metavar="N|paper", help="warm-up steps; default half the sampled steps, 4,000 to 20,000")
    add("--seed", type=int, default=0, help="of split, training and chains; default 0")
    add("--dtype", choices=("float32", "float64"), default="float32", help="of the chains; default float32")
    add("--threads", type=int, help="native threads; default all")
    add("--out", default="patrac-fit", metavar="DIR", help="where the results go; default ./patrac-fit")
    add("--overwrite", action="store_true", help="replace the results of an earlier run")


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says how a table is laid out, for `fit` and `predict` alike."""
    parser.add_argument(
        "--header", action=argparse.BooleanOptionalAction, help="whether the first line holds the columns' names"
    )
    parser.add_argument(
        "--sep", metavar="S", help="comma, semicolon, tab, bar, whitespace or one character; default: found"
    )


def run(args: argparse.Namespace) -> int:
    """Run `patrac fit` with parsed arguments; return the exit code."""
    _check_arguments(args)
    seconds: dict[str, float] = {}
    clock = time.perf_counter()

    frame, table = read_table(args.data, header=args.header, separator=args.sep)
    data = _prepare(frame, args)
    regression = data.preprocessor.task == "regression"

    sizes = [data.X.shape[1], *args.hidden, data.preprocessor.n_outputs]
    print(f"training {sizes} {args.activation} ...", flush=True)
    settings = training_settings(len(data.X), args.epochs)
    with torch_threads(len(data.X), sizes, args.threads):
        choice = _choose(sizes, data, args)
        likelihood: Likelihood = Categorical() if choice.variance is None else Gaussian(choice.variance)
        net = train(
            sizes,
            data.X,
            data.y,
            likelihood=likelihood,
            l2=choice.l2,
            activation=args.activation,
            seed=args.seed,
            **settings,
        )
    print(f"  {describe_choice(choice, data.preprocessor)}")
    seconds["training"] = time.perf_counter() - clock

    architecture = _architecture(args)
    prior = _fit_prior(net, args.alpha)
    post = Posterior(net, architecture, prior, likelihood, data.X, data.y, dtype=args.dtype)
    independent = choose_kernel(post.facts)[0].is_independent
    thin = args.thin or (1 if independent else default_thin(post))
    warmup = Warmup(()) if independent and args.warmup is None else _warmup(args.warmup, thin, args.draws)
    steps = warmup.steps if isinstance(warmup, Warmup) else warmup
    print(
        f"sampling {architecture.label()}, {post.dim} parameters: {args.chains} chains x {args.draws} draws, "
        f"thin {thin}, warm-up {steps:,} steps ...",
        flush=True,
    )
    draws = sample(
        post,
        chains=args.chains,
        draws=args.draws,
        thin=thin,
        warmup=warmup,
        seed=args.seed,
        threads=args.threads,
    )
    seconds["sampling"] = draws.settings["seconds"]
    if draws.n_draws < 4:
        raise RuntimeError("the run was interrupted before there were four draws of each chain; nothing was written.")

    from patrac_native.tabular.evaluation import evaluate_classes, evaluate_regression

    clock = time.perf_counter()
    evaluation = (
        evaluate_regression(draws, data.preprocessor, data.X_test, data.y_test)
        if regression
        else evaluate_classes(draws, data.X_test, data.y_test)
    )
    grid = data.X_test[np.linspace(0, len(data.X_test) - 1, min(_GRID_ROWS, len(data.X_test))).round().astype(int)]
    summary = draws.summary(grid)
    seconds["evaluation"] = time.perf_counter() - clock
    result = FitResult(args, data, choice, post.describe(), draws, evaluation, summary, grid, seconds)

    from patrac_native.tabular.fit_report import printed, write_results

    print()
    print(printed(result))
    os.makedirs(args.out, exist_ok=True)
    write_results(result, table)
    print(f"\nwrote {', '.join(os.path.join(args.out, name) for name in (REPORT, SUMMARY, DRAWS, PREPROCESSING))}")
    return 0


def describe_choice(choice: Choice, preprocessor: Preprocessor) -> str:
    """Return a line on noise variance and penalty and where they come from."""
    text = f"l2 {choice.l2:.3g}"
    if choice.variance is not None:
        units = preprocessor.variance_in_units(choice.variance)
        text = (
            f"noise variance {units:.4g} in the target's units squared (noise sd {units**0.5:.4g}; "
            f"{choice.variance:.4g} of the standardised target), {text}"
        )
    if choice.trials:
        text += f"; chosen on {choice.validation}"
    return text


def _check_arguments(args: argparse.Namespace) -> None:
    """Raise for what would fail after minutes of work."""
    if not 0 < args.test_fraction < 1:
        raise ValueError(f"--test-fraction must be between 0 and 1; got {args.test_fraction}.")
    for name, least in (("chains", 1), ("draws", 4), ("thin", 1), ("epochs", 1), ("seed", 0), ("threads", 1)):
        value = getattr(args, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} must be at least {least}; got {value}.")
    if min(args.hidden) < 1:
        raise ValueError(f"--hidden must hold positive widths; got {args.hidden}.")
    if args.l2 is not None and not 0 <= args.l2 < float("inf"):
        raise ValueError(f"--l2 must be at least 0; got {args.l2}.")
    if args.alpha is not None and not 1 < args.alpha < float("inf"):
        raise ValueError(f"--alpha must be greater than 1; got {args.alpha}.")
    if args.noise_variance is not None and not 0 < args.noise_variance < float("inf"):
        raise ValueError(f"--noise-variance must be positive; got {args.noise_variance}.")
    _architecture(args)
    _warmup(args.warmup, 1, args.draws)
    if os.path.isdir(args.data):
        raise IsADirectoryError(f"DATA must be a file of rows and columns; {args.data!r} is a folder.")
    if not os.path.isfile(args.data):
        raise FileNotFoundError(f"there is no file {args.data!r}.")
    _check_folder(args.out)
    existing = [
        name for name in (REPORT, SUMMARY, DRAWS, PREPROCESSING) if os.path.exists(os.path.join(args.out, name))
    ]
    if existing and not args.overwrite:
        raise FileExistsError(
            f"{args.out} holds the results of an earlier run ({', '.join(existing)}); pass --overwrite or another "
            "--out."
        )


def _check_folder(path: str) -> None:
    """Raise for an --out that could not be written; nothing is created before there are results."""
    at = os.path.abspath(path)
    while not os.path.exists(at):
        at = os.path.dirname(at)
    if not os.path.isdir(at):
        raise NotADirectoryError(f"--out must be a folder or a new one; {at!r} is a file.")
    if not os.access(at, os.W_OK | os.X_OK):
        raise PermissionError(f"--out {path!r} cannot be written: no permission for {at!r}.")


def _prepare(frame: pd.DataFrame, args: argparse.Namespace) -> FitData:
    """Split the rows and turn them into arrays, saying what was found."""
    target = find_column(frame, args.target)
    drop = [find_column(frame, column, "--drop") for column in args.drop]
    categorical = [find_column(frame, column, "--categorical") for column in args.categorical]
    task, reason = guess_task(frame[target])
    if args.task is not None:
        task, reason = args.task, "as asked"
    check_target(frame[target])
    labels = frame[target].astype(str).to_numpy() if task == "classification" else None
    try:
        test, rows = split_rows(len(frame), [args.test_fraction], seed=args.seed, labels=labels)
    except ValueError as error:
        raise ValueError(
            f"--test-fraction {args.test_fraction:g} of {len(frame)} rows leaves none to hold out or none to train on; "
            "give a table of more rows, or another --test-fraction."
        ) from error
    preprocessor = Preprocessor.fit(
        frame, target, task=task, rows=rows, impute=args.impute, drop=drop, categorical=categorical
    )
    X, y = preprocessor.transform(frame), preprocessor.transform_target(frame)
    print(f"{args.data}: {len(frame)} rows, {frame.shape[1]} columns; target {target!r}: {task} ({reason})")
    if task == "classification":
        counts = np.bincount(y, minlength=len(preprocessor.classes))
        print("  classes: " + ", ".join(f"{c} ({n})" for c, n in zip(preprocessor.classes, counts, strict=True)))
    print(f"  {preprocessor.n_inputs} inputs, {len(rows)} training rows, {len(test)} held out (seed {args.seed})")
    for note in preprocessor.notes:
        print(f"  note: {note}")
    return FitData(preprocessor, X[rows], y[rows], X[test], y[test])


def _choose(sizes: list[int], data: FitData, args: argparse.Namespace) -> Choice:
    """Find noise variance and penalty on validation rows, split off the training rows for that alone."""
    regression = data.preprocessor.task == "regression"
    if regression and args.noise_variance is not None:
        variance = args.noise_variance / data.preprocessor.target_scale**2
    else:
        variance = None
    return choose(
        sizes,
        data.X,
        data.y,
        regression=regression,
        l2=args.l2,
        variance=variance,
        activation=args.activation,
        seed=args.seed,
        epochs=args.epochs,
    )


def _fit_prior(net: Network, alpha: float | None) -> TraceClassPrior:
    """Fit the prior; a search that ends at a bound is common and no fault of the data, so it is a note."""
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


def _architecture(args: argparse.Namespace) -> Architecture:
    """Architecture from --architecture and --k."""
    name, k = args.architecture, args.k
    if name == "full":
        if k is not None:
            raise ValueError("--k has no meaning for --architecture full, where all nodes are Bayesian; leave it out.")
        return Full()
    if name == "out":
        if k is not None and len(k) != 1:
            raise ValueError(f"--k must be one number for --architecture out; got {k}.")
        _check_k(k or [], args.hidden[-1:])
        return Out(min(45, args.hidden[-1]) if k is None else k[0])
    nodes: list[int] = [min(5, width) for width in args.hidden] if k is None else k
    if len(nodes) not in (1, len(args.hidden)):
        raise ValueError(
            f"--k must be one number, or one for each of the {len(args.hidden)} widths of --hidden; got {k}."
        )
    _check_k(nodes, args.hidden)
    chosen = nodes[0] if len(set(nodes)) == 1 else nodes
    return Mix(chosen) if name == "mix" else Sep(chosen)


def _check_k(nodes: list[int], widths: list[int]) -> None:
    """Raise unless each number of nodes, or the one for all layers, is within its layer's width."""
    for layer, width in enumerate(widths):
        count = nodes[layer if len(nodes) > 1 else 0] if nodes else 1
        if not 1 <= count <= width:
            raise ValueError(
                f"--k must be from 1 to the width of the layer; got {count} for a hidden layer of {width} nodes. Give "
                "a smaller --k or a larger --hidden."
            )


def _warmup(text: str | None, thin: int, draws: int) -> Warmup | int:
    """Warm-up from --warmup."""
    if text is None:
        return default_warmup_steps(thin, draws)
    if text == "paper":
        return paper_warmup()
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f'--warmup must be a number of steps or "paper"; got {text!r}.')
    return int(text)
