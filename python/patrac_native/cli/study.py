"""`patrac study`: the paper's experiments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from patrac_native.cli.options import add_traceback
from patrac_native.studies import abalone, cifar10, k_study, sine
from patrac_native.studies.options import PAPER_WARMUP, StudyOptions, StudySize
from patrac_native.studies.problems import SETS


def configure(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each study."""
    studies = parser.add_subparsers(metavar="STUDY", required=True)

    def add(name: str, text: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        leaf = studies.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        leaf.set_defaults(run=partial(_run, run), words=leaf.prog)
        leaf.add_argument(
            "--out",
            type=Path,
            default=Path(f"patrac-study-{name}"),
            metavar="DIR",
            help="folder for report.html, summary.json and results.csv; finished pieces there are not run again "
            "(default: %(default)s)",
        )
        return leaf

    leaf = add(
        "sine", "the sine study of the paper's section 4", lambda a: sine.run_sine(_given(StudyOptions, a), a.l2)
    )
    leaf.add_argument(
        "--l2",
        type=float,
        default=sine.L2,
        help="penalty of the trained networks: 1 is a standard normal prior on every parameter; 0.5 comes nearer to "
        "the scores of the paper (default: %(default)g)",
    )
    _add_study_options(leaf, sine.SIZE)
    leaf = add(
        "abalone",
        "the abalone study of the paper's section 5.2",
        lambda a: abalone.run_abalone(a.data, _given(StudyOptions, a), a.sex),
    )
    leaf.add_argument("--data", required=True, metavar="PATH", help="the file abalone.data of the UCI repository")
    leaf.add_argument(
        "--sex",
        choices=("onehot", "coded"),
        default="onehot",
        help="Sex as three columns, or as one: then Mix(5) has the paper's 81 parameters (default: %(default)s)",
    )
    _add_study_options(leaf, abalone.SIZE)
    leaf = add(
        "cifar10",
        "the CIFAR-10 study of the paper's section 5.1",
        lambda a: cifar10.run_cifar10(_given(cifar10.CifarOptions, a)),
    )
    _add_cifar10_options(leaf)
    leaf = add(
        "k",
        "how much k, the number of Bayesian nodes of each layer, matters: Mix(k) and Sep(k) from k = 1 to all nodes",
        lambda a: k_study.run_k(_given(StudyOptions, a), a.sets, a.data),
    )
    leaf.add_argument(
        "--sets",
        nargs="+",
        choices=[k_study.SINE, *SETS],
        default=[k_study.SINE],
        help="the sine problem and UCI sets (default: sine)",
    )
    leaf.add_argument("--data", type=Path, default=None, metavar="DIR", help="the folder of the UCI sets")
    _add_study_options(leaf, k_study.SIZE)
    leaf.set_defaults(kernel="auto")


def _run(study: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> int:
    """Run a study with parsed arguments; return the exit code."""
    study(args)
    return 0


def _given(kind: type[Any], args: argparse.Namespace) -> Any:
    """Return the options of a study from parsed arguments."""
    return kind(**{field.name: getattr(args, field.name) for field in fields(kind)})


def _add_cifar10_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the CIFAR-10 study."""
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder of the binary batches (.bin or .bin.xz), or cifar-10-binary.tar.gz",
    )
    parser.add_argument("--rows", type=int, default=None, metavar="N", help="training images (default: all)")
    parser.add_argument(
        "--models",
        nargs="+",
        choices=list(cifar10.MODELS),
        default=list(cifar10.MODELS),
        metavar="MODEL",
        help="default: all of " + "; ".join(cifar10.MODELS),
    )
    parser.add_argument(
        "--hidden",
        nargs="+",
        type=int,
        default=list(cifar10.HIDDEN),
        help="widths of the hidden layers (default: 50 50)",
    )
    parser.add_argument(
        "--kernel",
        choices=("auto", "pcnl"),
        default="auto",
        help="auto: the package's choice for each posterior; pcnl: the paper's (default: %(default)s)",
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where the chains run (default: %(default)s)"
    )
    _add_run_options(parser, steps="2,000 for Full, Sep and Mix, 20,000 for Out", threads=1)


def _add_study_options(parser: argparse.ArgumentParser, size: StudySize) -> None:
    """Add the options of `StudyOptions`, with the defaults of one study."""
    parser.add_argument(
        "--replicates",
        type=int,
        default=size.replicates,
        metavar="R",
        help="independent data sets (default: %(default)s)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"shorter chains: {size.quick_steps:,} steps in place of {size.steps:,}, after about "
        f"{PAPER_WARMUP * size.quick_warmup:,.0f} of warm-up in place of {PAPER_WARMUP:,}; "
        "shows the pattern, but chains may not settle",
    )
    _add_run_options(parser, steps=f"{size.steps:,}, or {size.quick_steps:,} with --quick", threads=None)
    parser.add_argument(
        "--quantiles",
        choices=("weibull", "paper"),
        default="weibull",
        help="ends of intervals: weibull, at position b (M + 1) of M sorted draws; or paper, the estimator of its "
        "section 4.2, at position b M rounded up (default: %(default)s)",
    )
    parser.add_argument(
        "--paper-training", action="store_true", help="Adam at 1e-6, patience 20: the paper's; very slow"
    )
    by_model = size.auto_steps_by_model.values() or [size.auto_steps]
    auto_steps = " to ".join(f"{steps:,}" for steps in sorted({min(by_model), max(by_model)}))
    parser.add_argument(
        "--kernel",
        choices=("pcnl", "auto"),
        default="pcnl",
        help="pcnl: the paper's, with its warm-up; auto: the package's choice for each posterior, with "
        f"{auto_steps} steps ({size.quick_auto_steps:,} with --quick) after a warm-up that ends by itself "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--adapt-always", action="store_true", help="keep adapting the step size while sampling, as the paper does"
    )
    # Hidden option, for short tests.
    parser.add_argument("--warmup-factor", type=float, default=None, help=argparse.SUPPRESS)


def _add_run_options(parser: argparse.ArgumentParser, *, steps: str, threads: int | None) -> None:
    """Add the options that all studies share; `steps` is the default number of steps in words."""
    parser.add_argument("--seed", type=int, default=0, help="of data, training and chains (default: %(default)s)")
    parser.add_argument(
        "--threads",
        type=int,
        default=threads,
        help=f"chains run side by side (default: {'all processors' if threads is None else threads})",
    )
    parser.add_argument(
        "--scheduler",
        default="threads",
        metavar="WHERE",
        help="threads, processes or dask://host:port, the scheduler of a Dask cluster (default: %(default)s)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=None,
        help=f"steps of each chain after warm-up, a multiple of --draws (default: {steps})",
    )
    parser.add_argument("--draws", type=int, default=500, help="draws used for scores (default: %(default)s)")
    # Hidden option, for short tests.
    parser.add_argument("--max-epochs", type=int, default=None, help=argparse.SUPPRESS)
    add_traceback(parser)
