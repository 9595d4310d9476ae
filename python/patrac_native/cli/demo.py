"""`patrac demo`: a real table and the paper's sine problem from data to posterior, with a report, in two minutes."""

from __future__ import annotations

import argparse
from pathlib import Path

from patrac_native.studies.demo import DRAWS, STEPS, run_demo


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `patrac demo`."""
    folder = "folder of the report (default: %(default)s)"
    parser.add_argument("--out", type=Path, default=Path("patrac-demo"), metavar="DIR", help=folder)
    parser.add_argument("--seed", type=int, default=0, help="of data, training and chains (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=None, help="native threads (default: all processors)")
    # Hidden options for tests, which make the same output with a hundredth of the work.
    parser.add_argument("--steps", type=int, default=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--draws", type=int, default=DRAWS, help=argparse.SUPPRESS)
    parser.add_argument("--warmup", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--max-epochs", type=int, default=None, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Run `patrac demo` with parsed arguments; return the exit code."""
    run_demo(
        args.out,
        seed=args.seed,
        threads=args.threads,
        steps=args.steps,
        draws=args.draws,
        warmup=args.warmup,
        max_epochs=args.max_epochs,
    )
    return 0
