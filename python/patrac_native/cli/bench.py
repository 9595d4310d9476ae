"""`patrac bench`: times of a step on this machine, its theoretical floor, instruction-set levels and devices."""

from __future__ import annotations

import argparse

from patrac_native.studies.bench import run_bench


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `patrac bench`."""
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32", help="default: float32")
    parser.add_argument("--seconds", type=float, default=0.2, help="duration of one timing; default: 0.2")
    parser.add_argument("--repeats", type=int, default=5, help="timings for each median; default: 5")
    parser.add_argument("--device", default="cuda", help="device to compare with the CPU; default: cuda")


def run(args: argparse.Namespace) -> int:
    """Run `patrac bench` with parsed arguments; return the exit code."""
    run_bench(dtype=args.dtype, seconds=args.seconds, repeats=args.repeats, device=args.device)
    return 0
