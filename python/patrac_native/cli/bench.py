"""`patrac bench`: microseconds a step beside the floor of this core, and what each instruction-set level does."""

from __future__ import annotations

import argparse

from patrac_native.studies.bench import run_bench


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32", help="default: float32")
    parser.add_argument("--seconds", type=float, default=0.2, help="time of one timing; default: 0.2")
    parser.add_argument("--repeats", type=int, default=5, help="timings of each row, the median counts; default: 5")
    parser.add_argument("--device", default="cuda", help="device to time beside the CPU; default: cuda")


def run(args: argparse.Namespace) -> int:
    """Run `patrac bench` with parsed arguments; return the exit code."""
    run_bench(dtype=args.dtype, seconds=args.seconds, repeats=args.repeats, device=args.device)
    return 0
