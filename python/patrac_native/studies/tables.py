"""Tables of records: their columns, for aligned text on the terminal and for cells of the report."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from patrac_native.studies.baselines import NetworkScores
from patrac_native.studies.experiment import Record

Row = list[str]


class Column(NamedTuple):
    """A column of a table of records: its heading, its text for a record and, optionally, for the trained network."""

    header: str
    of_record: Callable[[Record], str]
    of_network: Callable[[NetworkScores], str] | None = None


def number(value: float, digits: int = 3) -> str:
    """Format a number with `digits` significant digits and thousands separators; NaN becomes "-".

    Examples
    --------
    >>> number(1234567.0), number(0.01234), number(float("nan"))
    ('1,230,000', '0.0123', '-')
    """
    if not np.isfinite(value):
        return "-" if np.isnan(value) else str(value)
    if value == 0 or abs(value) < 1e-4:
        return f"{value:.{digits}g}"
    decimals = digits - 1 - int(np.floor(np.log10(abs(value))))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def mean_sd(values: Sequence[float], decimals: int) -> str:
    """Format mean and standard deviation over replicates as "571.8 (31.6)", or the mean alone if all are equal.

    NaN, such as the step size of independent draws, becomes "-".

    Examples
    --------
    >>> mean_sd([1.0, 3.0], 1)
    '2.0 (1.4)'
    """
    array = np.asarray(values, dtype=np.float64)
    if np.isnan(array).all():
        return "-"
    mean = f"{array.mean():,.{decimals}f}"
    return mean if array.size < 2 or np.ptp(array) == 0 else f"{mean} ({array.std(ddof=1):,.{decimals}f})"


def percent(value: float) -> str:
    """Format a share of rows as 95.1%."""
    return f"{100 * value:.1f}%"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: "1 thread", "2 threads"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def coverage_columns(levels: Sequence[str]) -> list[Column]:
    """Return a column of the observed coverage for each nominal level, such as "0.95"."""

    def column(level: str) -> Column:
        return Column(f"in {100 * float(level):g}%", lambda r: percent(r.coverage[level]))

    return [column(level) for level in levels]


ARCHITECTURE = Column("model", lambda r: r.architecture, lambda s: "network")
SCORES = [
    Column("NLL", lambda r: f"{r.nll:.1f}", lambda s: f"{s.nll:.1f}"),
    Column("NLPD", lambda r: f"{r.nlpd:.4f}", lambda s: f"{s.nlpd:.4f}"),
    Column("RMSE", lambda r: number(r.rmse), lambda s: number(s.rmse)),
]
DIM = Column("K", lambda r: str(r.dim))
MIXING = [
    Column("R-hat", lambda r: f"{r.max_rhat:.3f}"),
    Column("ESS", lambda r: f"{r.ess:,.0f}"),
    Column("ESS/s", lambda r: number(r.ess_per_second)),
    Column("accept", lambda r: f"{r.acceptance_rate:.2f}"),
    Column("steps/s", lambda r: number(r.steps_per_second)),
    Column("seconds", lambda r: f"{r.seconds:.1f}"),
]


def run_columns(levels: Sequence[str]) -> list[Column]:
    """Return all columns of a table with one row for each run."""
    return [ARCHITECTURE, DIM, *SCORES, *coverage_columns(levels), *MIXING]


def record_rows(
    columns: Sequence[Column], records: Sequence[Record], network: NetworkScores | None = None
) -> tuple[Row, list[Row]]:
    """Return headers and rows; the row of the trained network, if it is given, is the first."""
    rows = [[column.of_record(record) for column in columns] for record in records]
    if network is not None:
        rows.insert(0, [column.of_network(network) if column.of_network else "" for column in columns])
    return [column.header for column in columns], rows


def wrapped(text: str) -> str:
    """Wrap text for the terminal into lines of at most 110 characters."""
    return "\n".join(textwrap.fill(paragraph, 110) for paragraph in text.split("\n"))


def format_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text for the terminal; the first column is left-aligned, the others are right-aligned.

    Examples
    --------
    >>> print(format_table(["model", "K"], [["Full", "2701"], ["Mix(5)", "46"]]))
    model      K
    ------  ----
    Full    2701
    Mix(5)    46
    """
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *rest = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        return "  ".join([cells[0].ljust(widths[0]) if first is not None else "", *rest]).rstrip()

    return "\n".join([line(headers), "  ".join("-" * width for width in widths), *(line(row) for row in rows)])
