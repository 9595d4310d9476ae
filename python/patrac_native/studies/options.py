"""Command-line options that the studies share, and the sampling settings they stand for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from patrac_native.studies.experiment import SamplingSettings


# Steps of the paper's warm-up, of which --quick takes a share.
_PAPER_WARMUP = 650_000


def add_study_options(
    parser: argparse.ArgumentParser, name: str, *, replicates: int, steps: int, quick_steps: int, quick_warmup: float
) -> None:
    """Add the options that the studies share; the numbers are the study's own, for help and defaults."""
    parser.add_argument(
        "--replicates", type=int, default=replicates, metavar="R", help="independent data sets (default: %(default)s)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"shorter chains: {quick_steps:,} steps in place of {steps:,}, after about "
        f"{_PAPER_WARMUP * quick_warmup:,.0f} of warm-up in place of {_PAPER_WARMUP:,}; "
        "shows the pattern, but chains may not settle",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(f"patrac-study-{name}"),
        metavar="DIR",
        help="folder for report.html, summary.json and replicates.csv (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of data, training and chains (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=None, help="chains run side by side (default: all processors)")
    parser.add_argument(
        "--steps",
        type=int,
        default=None,
        help=f"steps of each chain after warm-up, a multiple of --draws (default: {steps:,}, or {quick_steps:,} "
        "with --quick)",
    )
    parser.add_argument("--draws", type=int, default=500, help="draws used for scores (default: %(default)s)")
    parser.add_argument(
        "--paper-training", action="store_true", help="Adam at 1e-6, patience 20: the paper's; very slow"
    )
    parser.add_argument(
        "--adapt-always", action="store_true", help="keep adapting the step size while sampling, as the paper does"
    )
    # For tests: one architecture is enough to see files and tables.
    parser.add_argument("--warmup-factor", type=float, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--max-epochs", type=int, default=None, help=argparse.SUPPRESS)


def sampling_settings(
    args: argparse.Namespace, *, steps: int, quick_steps: int, quick_warmup: float
) -> SamplingSettings:
    """Return the settings that the options ask for: the paper's, or with --quick a shorter form of them.

    Parameters
    ----------
    args : argparse.Namespace
        Of `add_study_options`.
    steps, quick_steps : int
        Steps of each chain where --steps is not given.
    quick_warmup : float
        Factor of the paper's warm-up with --quick.
    """
    from patrac_native.model.kernels import PCNL
    from patrac_native.sampling.warmup import paper_warmup
    from patrac_native.studies.experiment import SamplingSettings

    factor = args.warmup_factor or (quick_warmup if args.quick else 1.0)
    return SamplingSettings(
        steps=args.steps or (quick_steps if args.quick else steps),
        draws=args.draws,
        warmup=paper_warmup().scaled(factor),
        kernel=PCNL(adapt="always" if args.adapt_always else "warmup"),
    )
