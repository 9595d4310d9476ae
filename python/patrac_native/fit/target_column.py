"""The target's column of a table: its task, its class labels, and checks of counts and exposures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native.fit.columns import check_misprints, check_notation, check_units, first, holds_numbers, numbers
from patrac_native.fit.tables import places
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import pandas as pd

# Whole numbers with at most so many different ones may be labels.
_FEW_LABELS = 10


def check_target(series: pd.Series) -> None:
    """Raise ValueError if a target column has missing values; the message gives their number and the first row."""
    missing = series.isna().to_numpy()
    if missing.any():
        raise ValueError(
            f"the target {series.name!r} has {int(missing.sum())} missing values, the first at "
            f"{places(series, missing)}; remove those rows."
        )


def check_counts(series: pd.Series, values: FloatArray) -> None:
    """Raise ValueError if a number (n,) of a target is no count; the message gives the first one and the rows."""
    bad = (values < 0) | (values % 1 != 0)
    if bad.any():
        raise ValueError(
            f"the target {series.name!r} must hold counts 0, 1, 2, ... for a likelihood of counts; got "
            f"{values[first(bad)]:g} at {places(series, bad)}; {int(bad.sum())} such rows in all. Give another "
            "--likelihood, such as gaussian, or leave it out."
        )


def exposures(series: pd.Series) -> FloatArray:
    """Return a column of exposures (n,); raise ValueError if one is missing or not positive."""
    what = f"the exposure {series.name!r}"
    values = numbers(series, what)
    bad = values <= 0
    if bad.any():
        raise ValueError(
            f"{what} must be positive; got {values[first(bad)]:g} at {places(series, bad)}; {int(bad.sum())} such rows "
            "in all. Remove them: nothing can be counted there."
        )
    return values


def guess_task(series: pd.Series) -> tuple[str, str]:
    """Return the task that the values of a target column suggest, and the reason in words.

    Text, Booleans and numbers with two distinct values suggest classification, other numbers regression.

    Raises
    ------
    ValueError
        If most entries are numbers, and some are not or have units: neither a misprint nor "kg" makes labels of them.
    """
    distinct = int(series.nunique())
    if not holds_numbers(series):
        what, instead = f"the target {series.name!r}", "give --task classification"
        check_units(series, what, instead)
        check_notation(series, what, f"{instead} if all are labels")
        check_misprints(series, what, f"{instead} if all are labels")
        return "classification", f"it holds {distinct} different labels"
    if distinct == 2:
        return "classification", "it holds two different numbers"
    if distinct <= _FEW_LABELS and (series.dropna() % 1 == 0).all():
        return "regression", f"it holds numbers, {distinct} different ones; --task classification if they are labels"
    return "regression", f"it holds numbers, {distinct} different ones"


def plain_label(value: Any) -> Any:
    """Return a class label in a type that JSON supports; whole floats become int, so that 1.0 and 1 are one class."""
    item = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, float) and item.is_integer():
        return int(item)
    return item if isinstance(item, bool | int | float) else str(item)


def label_order(label: Any) -> tuple[bool, Any]:
    """Return a sort key that puts numbers before text."""
    return (True, label) if isinstance(label, str) else (False, label)
