"""Tables that are printed row by row, verdicts on requirements, and the JSON file of a run."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cases import ARCHITECTURES, NETWORKS, REQUIRED, Key
from timing import CLOCKS

import patrac_native as pn
from patrac_native.studies.tables import number


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
    import jax
    import one_core  # imported here, because it pins the process to one core

    return {
        "core": one_core.CORE,
        "machine": platform.machine(),
        "processor": processor(),
        "jax": jax.__version__,
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the cases and the timings."""
    parser.add_argument("--cases", nargs="+", choices=list(ARCHITECTURES), help="architectures; default: the table")
    parser.add_argument("--rows", nargs="+", type=int, metavar="N", help="numbers of rows")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS))
    parser.add_argument("--dtypes", nargs="+", choices=["float32", "float64"], default=["float32"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="processor time of one timing")
    parser.add_argument("--clock", choices=list(CLOCKS), default="cpu", help="cpu: unmoved by other processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all timings here")


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
