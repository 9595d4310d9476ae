"""`patrac fit`: trains a network on a table, samples its partial posterior, scores held-out rows, writes a report."""

from __future__ import annotations

import argparse
from dataclasses import fields

from patrac_native.cli.options import add_table_arguments
from patrac_native.fit.candidates import RunInterrupted
from patrac_native.fit.fit import fit_table
from patrac_native.fit.fit_settings import FitSettings
from patrac_native.fit.model_settings import ARCHITECTURES, PRIORS
from patrac_native.fit.noise_settings import DF, LIKELIHOODS
from patrac_native.fit.preprocessing import IMPUTATIONS, TASKS
from patrac_native.network.activations import ACTIVATIONS


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `patrac fit`."""
    add = parser.add_argument
    add(
        "data",
        metavar="DATA",
        help="text file of rows and columns: CSV, or separated by whitespace and the like; - is standard input",
    )
    add("--target", required=True, metavar="COL", help="column to predict: its name, or its number from 0")
    add("--task", choices=TASKS, help="default: guessed from the target, and said")
    add_table_arguments(
        parser, default="found", beside="columns that are no inputs and stand beside predictions, such as a key"
    )
    add("--drop", nargs="+", default=[], metavar="COL", help="columns to leave out")
    add(
        "--categorical", nargs="+", default=[], metavar="COL", help="columns of codes, or of text however rare: one-hot"
    )
    add("--date", dest="dates", nargs="+", default=[], metavar="COL", help="columns of dates: days since 1970-01-01")
    add("--impute", choices=IMPUTATIONS, help="fill missing numbers so, and categories by the most frequent")
    add(
        "--architecture",
        choices=ARCHITECTURES,
        default="auto",
        help="default auto: full or mix, for classes full or out, by short runs scored on validation rows",
    )
    add("--k", type=int, nargs="+", metavar="K", help="Bayesian nodes a layer: 5 for mix and sep, up to 45 for out")
    add("--hidden", type=int, nargs="+", default=[50, 50], metavar="N", help="hidden widths; default 50 50")
    add("--activation", choices=list(ACTIVATIONS), default="tanh", help="default tanh")
    add("--l2", type=float, help="penalty of the training; default: chosen on validation rows")
    add("--epochs", type=int, help="largest number of training epochs; default by the number of rows")
    add(
        "--likelihood",
        choices=LIKELIHOODS,
        help="of a target of numbers: heteroscedastic for noise that depends on the inputs, gaussian for the same "
        "noise in all rows, student-t for outliers; of counts poisson, or negative-binomial for counts that vary more; "
        "default heteroscedastic or gaussian, chosen with the architecture, and gaussian without a choice",
    )
    add("--noise-variance", type=float, metavar="V", help="gaussian: in the target's units squared; default: sampled")
    add("--df", type=float, metavar="DF", help=f"student-t: degrees of freedom, at least 1; default {DF:g}")
    add(
        "--dispersion",
        type=float,
        metavar="D",
        help="negative-binomial: the variance is mean + D mean^2; default: estimated on a fifth of the training rows",
    )
    add("--exposure", metavar="COL", help="counts: column of the time or population that they are counts of")
    add("--test-fraction", type=float, default=0.3, metavar="F", help="share of rows held out; default 0.3, 0 for none")
    add(
        "--prior",
        choices=PRIORS,
        default="auto",
        help="default auto: chosen with the architecture; else gaussian, with sampled variances, for full and classes",
    )
    add(
        "--alpha", type=float, metavar="A", help="decay of the prior, above 1; default: fitted to the network's weights"
    )
    add(
        "--networks",
        type=int,
        metavar="N",
        help="networks whose posteriors predict as a mixture; default by choice",
    )
    add("--chains", type=int, help="of each network; default 4, or 8 with noise of each row, of several networks 2")
    add("--draws", type=int, help="kept draws of each chain; default 500, of 8 chains and of several networks 250")
    add("--minutes", type=float, help="budget on two cores, by counted operations, not by a clock; default 2")
    add("--thin", type=int, help="steps for each kept draw, in place of --minutes")
    add("--warmup", metavar="N|paper", help="warm-up steps; default at most a quarter, with --thin half of the rest")
    add("--seed", type=int, default=0, help="of split, training and chains; default 0")
    add("--dtype", choices=("float32", "float64"), default="float32", help="of the chains; default float32")
    add("--threads", type=int, help="native threads; default all")
    add("--out", default="patrac-fit", metavar="DIR", help="where the results go; default ./patrac-fit")
    add("--overwrite", action="store_true", help="replace the results of an earlier run")


def run(args: argparse.Namespace) -> int:
    """Run `patrac fit` with parsed arguments; return the exit code.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C ended the run, after the results of the draws so far are written, if there are enough.
    """
    # Kernel, device and the like have no option.
    given = {field.name: getattr(args, field.name) for field in fields(FitSettings) if hasattr(args, field.name)}
    try:
        result = fit_table(FitSettings(**given))
    except RunInterrupted as error:
        raise KeyboardInterrupt(f"before there was anything to write: {error}") from None
    if result.interruption:
        raise KeyboardInterrupt(f"{result.interruption}, which the results in {args.out} rest on")
    return 0
