"""Rows outside the range of the training rows: which columns they leave, and a line that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from patrac_native.fit.columns import first
from patrac_native.fit.preprocessing import Preprocessor
from patrac_native.fit.tables import place

if TYPE_CHECKING:
    import pandas as pd


def names_of(outside: Mapping[str, npt.NDArray[np.bool_]], rows: int) -> list[str]:
    """Return for each row the columns in which it is outside the training range, separated by "; "."""
    return ["; ".join(name for name, out in outside.items() if out[row]) for row in range(rows)]


def describe_outside(
    outside: Mapping[str, npt.NDArray[np.bool_]], frame: pd.DataFrame, preprocessor: Preprocessor
) -> str:
    """Return one line on the rows outside the range of the training rows, with the first value of each column."""
    columns = {column.name: column for column in preprocessor.columns}
    parts = []
    for name, out in outside.items():
        column, row = columns[name], first(out)
        if column.categories is not None:
            parts.append(f"{name} = {frame[name].iloc[row]!r} at {place(frame[name], row)}, which no training row has")
            continue
        assert column.low is not None and column.high is not None  # `outside` knows them
        value = column.shown(float(column.values(frame[name])[row]))
        parts.append(
            f"{name} = {value} at {place(frame[name], row)}, training {column.shown(column.low)} to "
            f"{column.shown(column.high)}"
        )
    count = int(np.any(list(outside.values()), axis=0).sum())
    more = f"; and {len(parts) - 3} more columns" if len(parts) > 3 else ""
    return (
        f"{count} of {len(frame)} rows are outside the range of the training rows, where intervals may be too narrow; "
        f"the column `outside` marks them ({'; '.join(parts[:3])}{more})"
    )
