"""`patrac study`: the paper's experiments."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from patrac_native.cli.options import add_traceback
from patrac_native.studies import abalone, cifar10, k_study, sine, uci
from patrac_native.studies.cifar10_models import MODELS
from patrac_native.studies.options import PAPER_WARMUP, StudyOptions, StudySize
from patrac_native.studies.uci_sets import SETS


def configure(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each study."""
    studies = parser.add_subparsers(metavar="STUDY", required=True)
    text = "the sine study of the paper's section 4"
    leaf = studies.add_parser("sine", help=text, description=f"T{text[1:]}.")
    leaf.add_argument(
        "--l2",
        type=float,
        default=sine.L2,
        help="penalty of the trained networks: 1 is a standard normal prior on every parameter; 0.5 comes nearer to "
        "the scores of the paper (default: %(default)g)",
    )
    _add_study_options(leaf, "sine", sine.SIZE)
    leaf.set_defaults(run=_run_sine, words=leaf.prog)
    text = "the abalone study of the paper's section 5.2"
    leaf = studies.add_parser("abalone", help=text, description=f"T{text[1:]}.")
    leaf.add_argument("--data", required=True, metavar="PATH", help="the file abalone.data of the UCI repository")
    leaf.add_argument(
        "--sex",
        choices=("onehot", "coded"),
        default="onehot",
        help="Sex as three columns, or as one: then Mix(5) has the paper's 81 parameters (default: %(default)s)",
    )
    _add_study_options(leaf, "abalone", abalone.SIZE)
    leaf.set_defaults(run=_run_abalone, words=leaf.prog)
    text = "the CIFAR-10 study of the paper's section 5.1"
    leaf = studies.add_parser("cifar10", help=text, description=f"T{text[1:]}.")
    _add_cifar10_options(leaf)
    leaf.set_defaults(run=_run_cifar10, words=leaf.prog)
    text = "how much k, the number of Bayesian nodes of each layer, matters"
    leaf = studies.add_parser("k", help=text, description=f"H{text[1:]}: Mix(k) and Sep(k) from k = 1 to all nodes.")
    leaf.add_argument(
        "--sets",
        nargs="+",
        choices=[k_study.SINE, *SETS],
        default=[k_study.SINE],
        help="the sine problem and UCI sets (default: sine)",
    )
    leaf.add_argument("--data", type=Path, default=None, metavar="DIR", help="the folder of the UCI sets")
    _add_study_options(leaf, "k", k_study.SIZE)
    leaf.set_defaults(run=_run_k, words=leaf.prog, kernel="auto")
    text = "UCI sets: this package's models beside a network, Laplace and ensembles"
    leaf = studies.add_parser("uci", help=text, description=f"{text}.")
    _add_uci_options(leaf)
    leaf.set_defaults(run=_run_uci, words=leaf.prog)


def _run_sine(args: argparse.Namespace) -> int:
    """Run `patrac study sine` with parsed arguments; return the exit code."""
    sine.run_sine(_options(args), args.l2)
    return 0


def _run_abalone(args: argparse.Namespace) -> int:
    """Run `patrac study abalone` with parsed arguments; return the exit code."""
    abalone.run_abalone(args.data, _options(args), args.sex)
    return 0


def _run_cifar10(args: argparse.Namespace) -> int:
    """Run `patrac study cifar10` with parsed arguments; return the exit code."""
    cifar10.run_cifar10(
        cifar10.CifarOptions(**{field.name: getattr(args, field.name) for field in fields(cifar10.CifarOptions)})
    )
    return 0


def _run_k(args: argparse.Namespace) -> int:
    """Run `patrac study k` with parsed arguments; return the exit code."""
    k_study.run_k(_options(args), args.sets, args.data)
    return 0


def _run_uci(args: argparse.Namespace) -> int:
    """Run `patrac study uci` with parsed arguments; return the exit code."""
    uci.run_uci(uci.UciOptions(**{field.name: getattr(args, field.name) for field in fields(uci.UciOptions)}))
    return 0


def _add_uci_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the UCI study."""
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="the folder that holds a folder for each set"
    )
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="default: all")
    parser.add_argument(
        "--splits",
        type=int,
        default=uci.SPLITS,
        metavar="N",
        help="splits of each set, up to 20 (default: %(default)s)",
    )
    parser.add_argument(
        "--minutes", type=float, default=None, metavar="M", help="budget of each of patrac fit's models (default: 2)"
    )
    _add_out(parser, "uci")
    parser.add_argument("--seed", type=int, default=0, help="added to the number of the split (default: %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=1, help="pieces side by side; a fit uses all processors itself (default: 1)"
    )
    _add_scheduler(parser)
    add_traceback(parser)


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
        choices=list(MODELS),
        default=list(MODELS),
        metavar="MODEL",
        help="default: all of " + "; ".join(MODELS),
    )
    parser.add_argument(
        "--hidden",
        nargs="+",
        type=int,
        default=list(cifar10.HIDDEN),
        help="widths of the hidden layers (default: 50 50)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=None,
        help="steps of each chain after warm-up, a multiple of --draws (default: 2,000 for Full, Sep and Mix, "
        "20,000 for Out)",
    )
    parser.add_argument("--draws", type=int, default=500, help="draws used for scores (default: %(default)s)")
    parser.add_argument(
        "--kernel",
        choices=("auto", "pcnl"),
        default="auto",
        help="auto: the package's choice for each posterior; pcnl: the paper's (default: %(default)s)",
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where the chains run (default: %(default)s)"
    )
    _add_out(parser, "cifar10")
    parser.add_argument("--seed", type=int, default=0, help="of training and chains (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="chains run side by side (default: %(default)s)")
    _add_scheduler(parser)
    # Hidden option, for short tests.
    parser.add_argument("--max-epochs", type=int, default=None, help=argparse.SUPPRESS)
    add_traceback(parser)


def _add_out(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(f"patrac-study-{name}"),
        metavar="DIR",
        help="folder for report.html, summary.json and results.csv; finished pieces there are not run again "
        "(default: %(default)s)",
    )


def _add_scheduler(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler",
        default="threads",
        metavar="WHERE",
        help="threads, processes or dask://host:port, the scheduler of a Dask cluster (default: %(default)s)",
    )


def _options(args: argparse.Namespace) -> StudyOptions:
    """Return the options of a study from parsed arguments."""
    return StudyOptions(**{field.name: getattr(args, field.name) for field in fields(StudyOptions)})


def _auto_steps(size: StudySize) -> str:
    """Return the default numbers of steps with the kernel "auto", which may differ among the models."""
    steps = size.auto_steps_by_model.values() or [size.auto_steps]
    least, most = min(steps), max(steps)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _add_study_options(parser: argparse.ArgumentParser, name: str, size: StudySize) -> None:
    """Add the options that the studies have in common, with the defaults of one study."""
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
    _add_out(parser, name)
    parser.add_argument("--seed", type=int, default=0, help="of data, training and chains (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=None, help="chains run side by side (default: all processors)")
    _add_scheduler(parser)
    parser.add_argument(
        "--steps",
        type=int,
        default=None,
        help=f"steps of each chain after warm-up, a multiple of --draws (default: {size.steps:,}, or "
        f"{size.quick_steps:,} with --quick)",
    )
    parser.add_argument("--draws", type=int, default=500, help="draws used for scores (default: %(default)s)")
    parser.add_argument(
        "--quantiles",
        choices=("weibull", "paper"),
        default="weibull",
        help="ends of intervals: weibull, or paper, the estimator of its section 4.2 (default: %(default)s)",
    )
    parser.add_argument(
        "--paper-training", action="store_true", help="Adam at 1e-6, patience 20: the paper's; very slow"
    )
    parser.add_argument(
        "--kernel",
        choices=("pcnl", "auto"),
        default="pcnl",
        help="pcnl: the paper's, with its warm-up; auto: the package's choice for each posterior, with "
        f"{_auto_steps(size)} steps ({size.quick_auto_steps:,} with --quick) after a warm-up that ends by itself "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--adapt-always", action="store_true", help="keep adapting the step size while sampling, as the paper does"
    )
    # Hidden options, for short tests.
    parser.add_argument("--warmup-factor", type=float, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--max-epochs", type=int, default=None, help=argparse.SUPPRESS)
    add_traceback(parser)
