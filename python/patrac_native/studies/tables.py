"""Tables of scores for the terminal and the report, and the numbers of which they are made."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Row = list[str]
Table = tuple[Row, list[Row]]
# Columns of a table: heading to (name of the score, number of decimals or None for three significant digits). The score
# "coverage:0.95" is that entry of `coverage`, in percent.
Columns = Mapping[str, tuple[str, int | None]]

MIXING: Columns = {
    "ESS (App. C)": ("ess_paper", 0),
    "ESS (Geyer)": ("ess", 0),
    "seconds": ("seconds", 1),
    "ESS/s (App. C)": ("ess_paper_per_second", 1),
    "ESS/s (Geyer)": ("ess_per_second", 1),
}
CHAINS: Columns = {
    "K": ("dim", 0),
    "R-hat": ("max_rhat", 3),
    "acceptance": ("acceptance_rate", 2),
    "step size": ("step_size", 4),
    "steps/s": ("steps_per_second", 0),
}
COVERAGE: Columns = {f"in {100 * level:g}%": (f"coverage:{level:g}", 1) for level in (0.99, 0.95, 0.65)}


def score_table(
    models: Mapping[str, Sequence[Mapping[str, Any]]],
    columns: Columns,
    paper: Mapping[str, Mapping[str, str]] | None = None,
) -> Table:
    """Return means and standard deviations over replicates, a row for each model, empty where it lacks a score.

    `paper` has further columns, heading to (label to text), with the paper's results.
    """
    further = {} if paper is None else paper
    rows = [
        [
            label,
            *(mean_sd([value_of(one, name) for one in scores], decimals) if _has(scores[0], name) else ""
              for name, decimals in columns.values()),
            *(figures.get(label, "") for figures in further.values()),
        ]
        for label, scores in models.items()
    ]  # fmt: skip
    return ["model", *columns, *further], rows


def _has(scores: Mapping[str, Any], name: str) -> bool:
    return name.partition(":")[0] in scores


def value_of(scores: Mapping[str, Any], name: str) -> float:
    """Return a score, or an entry of the coverage in percent."""
    field, _, level = name.partition(":")
    return 100 * scores[field][level] if level else float(scores[field])


def differences(
    models: Mapping[str, Sequence[Mapping[str, Any]]],
    name: str,
    paper: Mapping[str, tuple[float, float]],
    replicates: int,
) -> dict[str, str]:
    """Return our means less the paper's (mean, sd over `replicates`) in combined standard errors, as text by label.

    There are none with one replicate, whose spread is not known.
    """
    found = {}
    for label, (mean, sd) in paper.items():
        values = np.array([value_of(scores, name) for scores in models.get(label, [])])
        if len(values) > 1:
            error = math.hypot(values.std(ddof=1) / math.sqrt(len(values)), sd / math.sqrt(replicates))
            found[label] = f"{(values.mean() - mean) / error:+.1f}"
    return found


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


def mean_sd(values: Sequence[float], decimals: int | None) -> str:
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
    if decimals is None:
        return number(float(array.mean()))
    mean = f"{array.mean():,.{decimals}f}"
    return mean if array.size < 2 or np.ptp(array) == 0 else f"{mean} ({array.std(ddof=1):,.{decimals}f})"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: "1 thread", "2 threads"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    lines = [headers, ["-" * width for width in widths], *rows]
    first, *rest = widths
    return "\n".join(
        "  ".join([line[0].ljust(first), *(cell.rjust(w) for cell, w in zip(line[1:], rest, strict=True))]).rstrip()
        for line in lines
    )


def print_table(title: str, table: Table) -> None:
    """Print a table under its title."""
    print(f"\n{title}\n{format_table(*table)}", flush=True)
