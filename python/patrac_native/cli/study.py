"""`patrac study`: the paper's experiments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from patrac_native.cli.options import TRACEBACK
from patrac_native.studies import abalone, cifar10, sine
from patrac_native.studies.options import PAPER_WARMUP, StudyOptions, StudySize


def configure(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each study."""
    studies = parser.add_subparsers(metavar="STUDY", required=True)

    def study(name: str, text: str, run: Callable[[argparse.Namespace], None]) -> Any:
        """Add a study and return the function that adds its options."""

        def finished(args: argparse.Namespace) -> int:
            run(args)
            return 0

        leaf = studies.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        leaf.set_defaults(run=finished, words=leaf.prog)
        folder = "folder for report.html, summary.json and results.csv; finished pieces there are not run again"
        out = Path(f"patrac-study-{name}")
        leaf.add_argument("--out", type=Path, default=out, metavar="DIR", help=f"{folder} (default: %(default)s)")
        return leaf.add_argument

    text = "the sine study of the paper's section 4"
    add = study("sine", text, lambda a: sine.run_sine(_given(StudyOptions, a), a.l2))
    penalty = "penalty of the trained networks: 1 is a standard normal prior on every parameter; 0.5 comes nearer to"
    add("--l2", type=float, default=sine.L2, help=f"{penalty} the scores of the paper (default: %(default)g)")
    _add_study_options(add, sine.SIZE)

    text = "the abalone study of the paper's section 5.2"
    add = study("abalone", text, lambda a: abalone.run_abalone(a.data, _given(StudyOptions, a), a.sex))
    add("--data", required=True, metavar="PATH", help="the file abalone.data of the UCI repository")
    sex = "Sex as three columns, or as one: then Mix(5) has the paper's 81 parameters (default: %(default)s)"
    add("--sex", choices=("onehot", "coded"), default="onehot", help=sex)
    _add_study_options(add, abalone.SIZE)

    text = "the CIFAR-10 study of the paper's section 5.1"
    add = study("cifar10", text, lambda a: cifar10.run_cifar10(_given(cifar10.CifarOptions, a)))
    data = "the folder of the binary batches (.bin or .bin.xz), or cifar-10-binary.tar.gz"
    add("--data", type=Path, required=True, metavar="DIR", help=data)
    add("--rows", type=int, metavar="N", help="training images (default: all)")
    models = list(cifar10.MODELS)
    all_of_them = "default: all of " + "; ".join(models)
    add("--models", nargs="+", choices=models, default=models, metavar="MODEL", help=all_of_them)
    widths = "widths of the hidden layers (default: 50 50)"
    add("--hidden", nargs="+", type=int, default=list(cifar10.HIDDEN), help=widths)
    kernels = "auto: the package's choice for each posterior; pcnl: the paper's (default: %(default)s)"
    add("--kernel", choices=("auto", "pcnl"), default="auto", help=kernels)
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where the chains run (default: %(default)s)")
    _add_run_options(add, steps="2,000 for Full, Sep and Mix, 20,000 for Out", threads=1)


def _given(kind: type[Any], args: argparse.Namespace) -> Any:
    """Return the options of a study from parsed arguments."""
    return kind(**{field.name: getattr(args, field.name) for field in fields(kind)})


def _add_study_options(add: Any, size: StudySize) -> None:
    """Add the options of `StudyOptions`, with the defaults of one study."""
    of_sets = "independent data sets (default: %(default)s)"
    add("--replicates", type=int, default=size.replicates, metavar="R", help=of_sets)
    add(
        "--quick",
        action="store_true",
        help=f"shorter chains: {size.quick_steps:,} steps in place of {size.steps:,}, after about "
        f"{PAPER_WARMUP * size.quick_warmup:,.0f} of warm-up in place of {PAPER_WARMUP:,}; "
        "shows the pattern, but chains may not settle",
    )
    _add_run_options(add, steps=f"{size.steps:,}, or {size.quick_steps:,} with --quick", threads=None)
    add(
        "--quantiles",
        choices=("weibull", "paper"),
        default="weibull",
        help="ends of intervals: weibull, at position b (M + 1) of M sorted draws; or paper, the estimator of its "
        "section 4.2, at position b M rounded up (default: %(default)s)",
    )
    add("--paper-training", action="store_true", help="Adam at 1e-6, patience 20: the paper's; very slow")
    by_model = size.auto_steps_by_model.values() or [size.auto_steps]
    auto_steps = " to ".join(f"{steps:,}" for steps in sorted({min(by_model), max(by_model)}))
    add(
        "--kernel",
        choices=("pcnl", "auto"),
        default="pcnl",
        help="pcnl: the paper's, with its warm-up; auto: the package's choice for each posterior, with "
        f"{auto_steps} steps ({size.quick_auto_steps:,} with --quick) after a warm-up that ends by itself "
        "(default: %(default)s)",
    )
    adapt = "keep adapting the step size while sampling, as the paper does"
    add("--adapt-always", action="store_true", help=adapt)
    # Hidden option, for short tests.
    add("--warmup-factor", type=float, help=argparse.SUPPRESS)


def _add_run_options(add: Any, *, steps: str, threads: int | None) -> None:
    """Add the options that all studies share; `steps` is the default number of steps in words."""
    add("--seed", type=int, default=0, help="of data, training and chains (default: %(default)s)")
    side_by_side = f"chains run side by side (default: {'all processors' if threads is None else threads})"
    add("--threads", type=int, default=threads, help=side_by_side)
    where = "threads, processes or dask://host:port, the scheduler of a Dask cluster (default: %(default)s)"
    add("--scheduler", default="threads", metavar="WHERE", help=where)
    length = f"steps of each chain after warm-up, a multiple of --draws (default: {steps})"
    add("--steps", type=int, help=length)
    add("--draws", type=int, default=500, help="draws used for scores (default: %(default)s)")
    # Hidden option, for short tests.
    add("--max-epochs", type=int, help=argparse.SUPPRESS)
    add("--traceback", action="store_true", help=TRACEBACK)
