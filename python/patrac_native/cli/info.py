"""`patrac info`: versions, compiler, flags, SIMD level, CUDA."""

from __future__ import annotations

import argparse

from patrac_native import build_info


def configure(parser: argparse.ArgumentParser) -> None:
    """Add no arguments: the command has none."""


def run(args: argparse.Namespace) -> int:
    """Run `patrac info`; return the exit code."""
    info = build_info()
    width = max(map(len, info))
    for name, value in info.items():
        print(f"{name:<{width}}  {value}")
    return 0
