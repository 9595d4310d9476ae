"""One column of a table: numbers standardised, categories one-hot, missing values filled or refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.tabular.tables import place
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import pandas as pd

# A text column with more different values than this is an identifier or free text, not a category.
MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Column:
    """How one column of the table becomes inputs.

    Attributes
    ----------
    name : str
    categories : list of str, or None
        One 0/1 input for each; None for a numeric column.
    mean, scale : float
        A numeric column enters as (x - mean) / scale; the training rows' mean and standard deviation.
    fill : float, str or None
        What a missing value is replaced by; None refuses missing values.
    """

    name: str
    categories: list[str] | None
    mean: float = 0.0
    scale: float = 1.0
    fill: float | str | None = None

    @property
    def is_constant(self) -> bool:
        """Whether the training rows show one value only, so that there is nothing to learn from it."""
        return self.scale == 0 if self.categories is None else len(self.categories) < 2


def holds_numbers(series: pd.Series) -> bool:
    """Whether the column holds numbers; Booleans are categories."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(series) and not is_bool_dtype(series))


def fit_numeric(series: pd.Series, train: npt.NDArray[Any], impute: str | None) -> Column:
    """Learn mean, standard deviation and fill of a column of numbers from its training rows."""
    values = numbers(series, f"column {series.name!r}", missing=True)[train]
    known = values[~np.isnan(values)]
    fill = None if impute is None else float(known.mean() if impute == "mean" else np.median(known))
    filled = known if fill is None else np.where(np.isnan(values), fill, values)
    # Equal numbers have a standard deviation of rounding size, not zero.
    scale = 0.0 if np.ptp(known) == 0 else float(filled.std())
    return Column(str(series.name), None, float(filled.mean()), scale, fill)


def fit_categorical(series: pd.Series, train: npt.NDArray[Any], impute: str | None) -> Column:
    """Learn the categories of a column from all rows, the fill from its training rows."""
    categories = sorted({_category(value) for value in series.dropna().tolist()})
    if len(categories) > MOST_CATEGORIES:
        raise ValueError(
            f"column {series.name!r} has {len(categories)} different values, such as {categories[0]!r}, more than the "
            f"{MOST_CATEGORIES} that are one-hot encoded; drop it (--drop) or group them."
        )
    present = [_category(value) for value in series.iloc[train].dropna().tolist()]
    if len(set(present)) < 2:
        return Column(str(series.name), categories[:1])
    fill = None if impute is None else max(categories, key=present.count)
    return Column(str(series.name), categories, fill=fill)


def check_not_numbers(series: pd.Series) -> None:
    """Raise where a column read as text holds mostly numbers: the rest is more likely an error than a label."""
    import pandas as pd

    known = series.dropna()
    if holds_numbers(series) or pd.api.types.is_bool_dtype(known.infer_objects()):
        return
    number = pd.to_numeric(known.astype(str), errors="coerce").notna().to_numpy()
    if not number.all() and 2 * number.sum() > len(known):
        row = first(series.notna().to_numpy() & pd.to_numeric(series, errors="coerce").isna().to_numpy())
        raise ValueError(
            f"column {series.name!r} holds mostly numbers, but {series.iloc[row]!r} at {place(series, row)}; "
            f"{int((~number).sum())} such rows in all. Correct them, or name the column in --categorical."
        )


def encode(series: pd.Series, column: Column) -> FloatArray:
    """Return inputs (n, 1) of a numeric column or (n, categories) of another."""
    missing = series.isna().to_numpy()
    if missing.any() and column.fill is None:
        raise ValueError(
            f"column {column.name!r} has {int(missing.sum())} missing values, the first at "
            f"{place(series, first(missing))}; the fit had none to impute. Remove those rows, or fit with --impute."
        )
    if column.categories is None:
        values = numbers(series, f"column {column.name!r}", missing=True)
        if column.fill is not None:
            values = np.where(missing, column.fill, values)
        return ((values - column.mean) / column.scale)[:, None]
    labels = [column.fill if gone else _category(value) for value, gone in zip(series.tolist(), missing, strict=True)]
    code = {label: index for index, label in enumerate(column.categories)}
    out = np.zeros((len(labels), len(code)))
    for row, label in enumerate(labels):
        if label not in code:
            raise ValueError(
                f"column {column.name!r} has the unknown category {label!r} at {place(series, row)}; the "
                f"fit saw {', '.join(column.categories)}. Correct it, or fit with rows that have it."
            )
        out[row, code[str(label)]] = 1.0
    return out


def _category(value: Any) -> str:
    """Name of a category; codes read as 1 in one file are 1.0 in another that has a gap in the column."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def numbers(series: pd.Series, what: str, *, missing: bool = False) -> FloatArray:
    """Return a column as float64; a value that is no number, missing or infinite raises ValueError with its row."""
    import pandas as pd

    values: FloatArray = pd.to_numeric(series, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    gone = series.isna().to_numpy()
    for bad, problem in (
        (np.isnan(values) & ~gone, "must hold numbers"),
        (np.isinf(values), "must be finite"),
        (gone & (not missing), "must not be missing"),
    ):
        if bad.any():
            row = first(bad)
            raise ValueError(
                f"{what} {problem}; got {series.iloc[row]!r} at {place(series, row)}; {int(bad.sum())} such rows in "
                "all."
            )
    return values


def first(mask: Any) -> int:
    """Return the position of the first true entry."""
    return int(np.argmax(np.asarray(mask)))
