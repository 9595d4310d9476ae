"""The conversion of one column of a table: standardised numbers, one-hot categories, imputed missing values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.tabular.tables import place
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import pandas as pd

# At least so many columns of whole numbers, half of which reach the same largest value, are taken to share a unit.
_COMMON_COLUMNS = 16
# A text column with more distinct values than this is taken for an identifier or free text and rejected.
MAX_CATEGORIES = 100


@dataclass(frozen=True)
class Column:
    """The conversion of one column of the table to inputs.

    Attributes
    ----------
    name : str
    categories : list of str, or None
        The categories, each of which becomes a 0/1 input; None for a numeric column.
    mean, scale : float
        Mean and standard deviation of a numeric column in the training rows, or the standard deviation of all columns
        that share a unit (`with_common_scale`); its input is (x - mean) / scale.
    fill : float, str or None
        The value that replaces missing values; None if missing values are an error.
    """

    name: str
    categories: list[str] | None
    mean: float = 0.0
    scale: float = 1.0
    fill: float | str | None = None

    @property
    def is_constant(self) -> bool:
        """Whether the column has only one value in the training rows, so that it contains no information."""
        return self.scale == 0 if self.categories is None else len(self.categories) < 2


def holds_numbers(series: pd.Series) -> bool:
    """Return whether the column holds numbers; Booleans count as categories."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(series) and not is_bool_dtype(series))


def fit_numeric(series: pd.Series, train: npt.NDArray[Any], impute: str | None) -> Column:
    """Compute mean, standard deviation and imputed value of a numeric column from its training rows."""
    values = numbers(series, f"column {series.name!r}", missing=True)[train]
    known = values[~np.isnan(values)]
    fill = None if impute is None else float(known.mean() if impute == "mean" else np.median(known))
    filled = known if fill is None else np.where(np.isnan(values), fill, values)
    # Because of rounding, equal numbers can have a standard deviation above zero.
    scale = 0.0 if np.ptp(known) == 0 else float(filled.std())
    return Column(str(series.name), None, float(filled.mean()), scale, fill)


def with_common_scale(columns: Sequence[Column], frame: pd.DataFrame, train: npt.NDArray[Any]) -> list[Column]:
    """Return columns of counts or intensities of one unit, such as pixels, with one scale; others as they are.

    Scaled each by itself, pixels that are nearly always 0 would reach tens of standard deviations where they are not.
    The columns are taken to share a unit if all numeric ones, at least 16, hold whole numbers from 0, at least half of
    them have the same largest value in the training rows, above 1, and the others reach half of it or are 0 in most
    rows.
    """
    numeric = [column for column in columns if column.categories is None]
    if len(numeric) < _COMMON_COLUMNS:
        return list(columns)
    names = [str(name) for name in frame.columns]
    values = frame.iloc[train, [names.index(column.name) for column in numeric]].to_numpy(dtype=np.float64)
    known = values[~np.isnan(values)]
    largest = np.nanmax(values, axis=0)
    alike = (2 * largest >= largest.max()) | (np.nanmedian(values, axis=0) == 0)
    if (known < 0).any() or (known % 1).any() or largest.max() <= 1:
        return list(columns)
    if 2 * (largest == largest.max()).sum() < len(numeric) or not alike.all():
        return list(columns)
    scale = float(np.sqrt(np.mean([column.scale**2 for column in numeric])))
    return [replace(column, scale=scale) if column.categories is None else column for column in columns]


def fit_categorical(series: pd.Series, train: npt.NDArray[Any], impute: str | None) -> Column:
    """Find the categories of a column in all rows, and the imputed category in its training rows.

    Raises
    ------
    ValueError
        If there are more than `MAX_CATEGORIES` categories.
    """
    categories = sorted({_category(value) for value in series.dropna().tolist()})
    if len(categories) > MAX_CATEGORIES:
        raise ValueError(
            f"column {series.name!r} has {len(categories)} different values, such as {categories[0]!r}, more than the "
            f"{MAX_CATEGORIES} that are one-hot encoded; drop it (--drop) or group them."
        )
    present = [_category(value) for value in series.iloc[train].dropna().tolist()]
    if len(set(present)) < 2:
        return Column(str(series.name), categories[:1])
    fill = None if impute is None else max(categories, key=present.count)
    return Column(str(series.name), categories, fill=fill)


def check_not_numbers(series: pd.Series) -> None:
    """Raise ValueError if a text column holds mostly numbers, because the other entries are then probably errors."""
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
    """Return the inputs of a column: float64 of shape (n, 1) if it is numeric, else (n, number of categories).

    Raises
    ------
    ValueError
        If a value is missing and the fit imputed none, is not a number, or is an unknown category.
    """
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
    """Return the name of a category; 1.0 becomes "1", because pandas reads codes as floats if one is missing."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def numbers(series: pd.Series, what: str, *, missing: bool = False) -> FloatArray:
    """Return a column as float64 (n,); raise ValueError if a value is not a finite number or, by default, missing."""
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
