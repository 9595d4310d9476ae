"""The harness of the benchmarks: options, alternating timings and their paired ratios, tables, JSON files."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cases import ARCHITECTURES, NETWORKS, REQUIRED, Key

import patrac_native as pn
from patrac_native.studies.tables import number

CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}
Times = dict[str, dict[str, list[float]]]  # {clock: {side: [repeat]}}, microseconds a step of one chain


@dataclass(frozen=True)
class Side:
    """Something that runs chains: `run(steps, seed)` returns the acceptance rate; steps come in whole chunks."""

    run: Callable[[int, int], float]
    chunk: int = 1
    chains: int = 1


def steps_for(side: Side, seconds: float) -> int:
    """How many steps take about this much processor time, in whole chunks; also the warm-up of the timing."""
    now = time.process_time
    side.run(side.chunk, 0)
    chunks = 1
    while True:
        started = now()
        side.run(chunks * side.chunk, 0)
        taken = now() - started
        if taken > seconds / 4:
            return max(1, round(chunks * seconds / taken)) * side.chunk
        chunks *= 2 if taken > seconds / 16 else 8


def time_sides(sides: Mapping[str, Side], repeats: int, seconds: float) -> Times:
    """Time each side `repeats` times for about this long, all sides in turn."""
    steps = {name: steps_for(side, seconds) for name, side in sides.items()}
    found: Times = {clock: {name: [] for name in sides} for clock in CLOCKS}
    for repeat in range(repeats):
        for name, side in sides.items():
            before = {clock: now() for clock, now in CLOCKS.items()}
            side.run(steps[name], repeat)
            for clock, now in CLOCKS.items():
                found[clock][name].append((now() - before[clock]) / (steps[name] * side.chains) * 1e6)
    return found


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Median of the repeats' ratios."""
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))


def time_beside_native(sides: Mapping[str, Side], repeats: int, seconds: float, clock: str) -> dict[str, Any]:
    """Time the sides, one of them "native": all timings, and on one clock medians and what the others take of it."""
    found = time_sides(sides, repeats, seconds)
    times = found[clock]
    return {
        "microseconds": found,
        "median": {name: statistics.median(values) for name, values in times.items()},
        "ratios": {name: paired_ratio(times[name], times["native"]) for name in times if name != "native"},
    }


def verdict(value: float | None, required: float | None) -> str:
    """Return a value as text, with the required minimum and whether it is met.

    Examples
    --------
    >>> verdict(2.456, 2.0), verdict(0.5, 0.7), verdict(1.0, None), verdict(None, 2.0)
    ('2.46 (>= 2 ok)', '0.500 (>= 0.7 NOT MET)', '1.00', '-')
    """
    if value is None:
        return "-"
    shown = number(value)
    return shown if required is None else f"{shown} (>= {required:g} {'ok' if value >= required else 'NOT MET'})"


class Table:
    """A table of fixed column widths that is printed row by row, so that a long run shows its progress."""

    def __init__(self, headers: Sequence[str], widths: Sequence[int]) -> None:
        self._widths = widths
        self.row(headers)

    def row(self, cells: Sequence[str]) -> None:
        """Print one row: the first cell is left-aligned, the others are right-aligned."""
        first, *rest = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, self._widths, strict=True))
        )
        print("  ".join([first, *rest]).rstrip(), flush=True)


def about() -> dict[str, Any]:
    """Return the machine and the versions with which a table was measured."""
    return {
        "core": getattr(sys.modules.get("one_core"), "CORE", None),  # None if the process is not pinned
        "machine": platform.machine(),
        "processor": processor(),
        "jax": version("jax") if find_spec("jax") else None,
        "build": pn.build_info(),
    }


def processor() -> str:
    """Return the processor's name as the operating system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def print_about() -> None:
    """Print a line with core, processor, level and the version of JAX."""
    found = about()
    level = found["build"]["SIMD level in use"]
    print(f"core {found['core']} of {found['processor']}, level {level}, jax {found['jax']}")


def write_json(path: Path | None, results: Mapping[str, Any], **more: Any) -> None:
    """Write the results, with `about`, if a path is given."""
    if path:
        path.write_text(json.dumps({"about": about() | more, "cases": results}, indent=1, default=str) + "\n")


def script_parser(doc: str | None, *, repeats: int | None = None) -> argparse.ArgumentParser:
    """Return the parser of a script with its description, `--json` and, with a default, `--repeats`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results here")
    if repeats is not None:
        parser.add_argument("--repeats", type=int, default=repeats, help=f"timings of each side; default {repeats}")
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the cases and the timings."""
    parser.add_argument("--cases", nargs="+", choices=list(ARCHITECTURES), help="architectures; default: the table")
    parser.add_argument("--rows", nargs="+", type=int, metavar="N", help="numbers of rows")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS))
    parser.add_argument("--dtypes", nargs="+", choices=["float32", "float64"], default=["float32"])
    parser.add_argument("--seconds", type=float, default=0.3, help="processor time of one timing")
    parser.add_argument("--clock", choices=list(CLOCKS), default="cpu", help="cpu: unmoved by other processes")


def chosen(options: argparse.Namespace) -> list[Key]:
    """Return the selected cases of the acceptance table; with --rows or --networks, the grid that they span.

    For float64, JAX's x64 mode is enabled, which must happen before it computes anything.
    """
    if "float64" in options.dtypes:
        import jax

        jax.config.update("jax_enable_x64", True)
    architectures = options.cases or list(ARCHITECTURES)
    if options.rows is None and options.networks is None:
        keys = [key for key in REQUIRED if key.architecture in architectures]
        return [key._replace(dtype=dtype) for dtype in options.dtypes for key in keys]
    return [
        Key(architecture, network, rows, dtype)
        for dtype in options.dtypes
        for network in options.networks or ["1-50-50-1"]
        for rows in options.rows or [100]
        for architecture in architectures
    ]
