"""The conversion of one column of a table: standardised numbers, one-hot categories, imputed missing values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.fit.dates import date_layout, days, looks_like_dates
from patrac_native.fit.moments import common_scale, extremes, mean_and_scale
from patrac_native.fit.number_columns import CURRENCIES, MARKS
from patrac_native.fit.quantities import numbers_with_units
from patrac_native.fit.tables import place, places
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import pandas as pd

# A text column with more distinct values than this is taken for an identifier or free text and rejected.
MAX_CATEGORIES = 100
# So many categories of one row each are taken in a small table, whose rows are nearly all different.
_FEW_CATEGORIES = 20
# Text that looks like a number of another notation, a date, a time such as 05:30 or 5:30 pm, a share such as 3 of 5, or
# an amount such as US$5 or $1.2M.
_LIKE_NUMBERS = re.compile(
    r"[-+(]?\s*([^\w\s]?\s*\d[\d.,'/:\s]*(?:[^\w\s]|\s*(?:out\s+)?of\s*\d[\d.,]*|[ap]\.?m\.?)?"
    rf"|[a-z]{{0,3}}[{CURRENCIES}]\s*\d[\d.,\s]*[a-z]{{0,2}})\)?",
    re.IGNORECASE,
)


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
    low, high : float or None
        Smallest and largest value of a numeric column in the training rows; None for categories and earlier fits.
    date : str or None
        The layout of a column of dates (`dates.date_layout`), whose values are days since 1970-01-01; None for others.
    unseen : list of str
        The categories that no training row has; empty for numbers and earlier fits.
    """

    name: str
    categories: list[str] | None
    mean: float = 0.0
    scale: float = 1.0
    fill: float | str | None = None
    low: float | None = None
    high: float | None = None
    date: str | None = None
    unseen: list[str] = field(default_factory=list)

    def values(self, series: pd.Series) -> FloatArray:
        """Return the numbers of a numeric column (n,), NaN where they are missing.

        Raises
        ------
        ValueError
            If an entry is neither missing nor a finite number, or no date of the column's layout.
        """
        if self.date is not None:
            found = days(series, self.date)
            bad = np.isnan(found) & series.notna().to_numpy()
            if bad.any():
                raise ValueError(
                    f"column {self.name!r} must hold dates of the layout {self.date}, as in the fit; got "
                    f"{series.iloc[first(bad)]!r} at {places(series, bad)}."
                )
            return found
        return numbers(series, f"column {self.name!r}", missing=True)

    def outside(self, series: pd.Series) -> npt.NDArray[np.bool_] | None:
        """Return which entries (n,) are numbers outside the range of the training rows, or categories that none has.

        None if that is not known.
        """
        if self.categories is not None:
            return np.array([_category(value) in self.unseen for value in series.tolist()], dtype=np.bool_)
        values = self.values(series)
        if self.low is None or self.high is None:
            return None
        return np.asarray((values < self.low) | (values > self.high), dtype=np.bool_)

    def shown(self, value: float) -> str:
        """Return a number of the column, or its date, as text."""
        return f"{value:g}" if self.date is None else str(np.datetime64(int(np.floor(value)), "D"))

    @property
    def is_constant(self) -> bool:
        """Whether the column has only one value in the training rows, so that it contains no information."""
        return self.scale == 0 if self.categories is None else len(self.categories) < 2


def holds_numbers(series: pd.Series) -> bool:
    """Return whether the column holds numbers; Booleans count as categories."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(series) and not is_bool_dtype(series))


def fit_numeric(series: pd.Series, train: npt.NDArray[Any], impute: str | None, date: str | None = None) -> Column:
    """Compute mean, scale, range and imputed value of a numeric column, or one of dates, from its training rows."""
    name = str(series.name)
    everywhere = Column(name, None, date=date).values(series)
    values = everywhere[train]
    known = values[~np.isnan(values)]
    check_spread(series, everywhere, train, f"column {name!r}")
    fill = None if impute is None else float(known.mean() if impute == "mean" else np.median(known))
    filled = known if fill is None else np.where(np.isnan(values), fill, values)
    mean, scale = mean_and_scale(filled)
    # The imputed mean of equal numbers may differ from them by rounding.
    scale = 0.0 if np.ptp(known) == 0 else scale
    return Column(name, None, mean, scale, fill, float(known.min()), float(known.max()), date)


def fit_column(
    series: pd.Series, train: npt.NDArray[Any], impute: str | None, is_category: bool, is_date: bool
) -> Column:
    """Determine the conversion of a column; raise ValueError if it has none."""
    missing = int(series.isna().sum())
    if missing and impute is None:
        raise ValueError(
            f"column {series.name!r} has {missing} missing values, the first at {places(series, series.isna())}; "
            "remove those rows, drop the column (--drop), or impute them (--impute mean or --impute median)."
        )
    if missing == len(series) or series.iloc[train].isna().all():
        raise ValueError(f"column {series.name!r} has no values in the training rows; drop it (--drop).")
    if is_date:
        return fit_numeric(series, train, impute, date_layout(series))
    if not is_category:
        check_told_apart(series, f"column {series.name!r}", "drop it (--drop) or keep it beside the predictions (--id)")
    if is_category or not holds_numbers(series):
        if not is_category:
            check_not_numbers(series)
        return fit_categorical(series, train, impute, asked=is_category)
    return fit_numeric(series, train, impute)


def imputation_note(column: Column, count: int) -> str:
    """Return a note on how many values of a column were missing, and by which value they were replaced."""
    fill = f"{column.fill:.6g}" if isinstance(column.fill, float) else repr(column.fill)
    return f"column {column.name!r}: {count} missing value{'s' if count > 1 else ''} imputed by {fill}"


def with_common_scale(columns: Sequence[Column], frame: pd.DataFrame, train: npt.NDArray[Any]) -> list[Column]:
    """Return columns of counts or intensities of one unit, such as pixels, with one scale (`common_scale`); others not.

    Columns of categories stay as they are.
    """
    numeric = [column for column in columns if column.categories is None]
    names = [str(name) for name in frame.columns]
    values = frame.iloc[train, [names.index(column.name) for column in numeric]].to_numpy(dtype=np.float64)
    scale = common_scale(values, [column.scale for column in numeric])
    if scale is None:
        return list(columns)
    return [replace(column, scale=scale) if column.categories is None else column for column in columns]


def fit_categorical(series: pd.Series, train: npt.NDArray[Any], impute: str | None, *, asked: bool = False) -> Column:
    """Find the categories of a column in all rows, and the imputed category in its training rows.

    Parameters
    ----------
    series : pandas Series
    train : ndarray of int
        The training rows.
    impute : str, optional
        Whether missing values are imputed.
    asked : bool
        Whether the user says that they are categories, however rare; default False.

    Raises
    ------
    ValueError
        If there are more than `MAX_CATEGORIES` categories, or most rows have a category of their own.
    """
    counts = Counter(_category(value) for value in series.dropna().tolist())
    categories = sorted(counts)
    if len(categories) > MAX_CATEGORIES:
        raise ValueError(
            f"column {series.name!r} has {len(categories)} different values, such as {categories[0]!r}, more than the "
            f"{MAX_CATEGORIES} that are one-hot encoded; {_other_uses(series)}."
        )
    alone = sum(count == 1 for count in counts.values())
    if not asked and alone > max(_FEW_CATEGORIES, len(series) // 2):
        raise ValueError(
            f"column {series.name!r} has a text in {alone} of {len(series)} rows that no other row has, such as "
            f"{categories[0]!r}, from which nothing can be learned; {_other_uses(series)}. --categorical takes it as "
            "it is."
        )
    if not asked and looks_like_dates(series):
        known = series.notna()
        raise ValueError(
            f"column {series.name!r} holds text such as {series[known].iloc[0]!r} at {place(series, first(known))}; "
            f"{_other_uses(series)}. --categorical takes it as it is."
        )
    present = [_category(value) for value in series.iloc[train].dropna().tolist()]
    if len(set(present)) < 2:
        return Column(str(series.name), categories[:1])
    fill = None if impute is None else max(categories, key=present.count)
    unseen = sorted(set(categories) - set(present))
    return Column(str(series.name), categories, fill=fill, unseen=unseen)


def check_not_numbers(series: pd.Series) -> None:
    """Raise ValueError if a text column holds mostly numbers, with or without units: one-hot they would be nonsense."""
    import pandas as pd

    known = series.dropna()
    if holds_numbers(series) or pd.api.types.is_bool_dtype(known.infer_objects()):
        return
    check_units(series, f"column {series.name!r}", "name the column in --categorical; or leave it out with --drop")
    check_notation(
        series,
        f"column {series.name!r}",
        "name dates in --date and categories in --categorical, or leave it out with --drop",
    )
    check_misprints(series, f"column {series.name!r}", "name the column in --categorical")


def check_units(series: pd.Series, what: str, instead: str) -> None:
    """Raise ValueError if most entries of a column of text are numbers with a unit, such as "3.5 kg" or "5k".

    Parameters
    ----------
    series : pandas Series
    what : str
        Name of the column, for the error message.
    instead : str
        What to do if all entries are labels.
    """
    known = series.notna().to_numpy()
    found = numbers_with_units(series[known].astype(str).tolist())
    if found is None:
        return
    row, others = int(np.flatnonzero(known)[found.first]), known.copy()
    others[known] = ~found.mask
    beside = f", but also {series.iloc[first(others)]!r} at {places(series, others)}" if others.any() else ""
    raise ValueError(
        f"{what} holds numbers with units, such as {series.iloc[row]!r} at {place(series, row)}{beside}. Convert them "
        f"to plain numbers of one unit; if all entries are labels, {instead}."
    )


def check_notation(series: pd.Series, what: str, instead: str) -> None:
    """Raise ValueError if all entries of a column of text look like numbers of another notation, times or dates.

    Parameters
    ----------
    series : pandas Series
    what : str
        Name of the column, for the error message.
    instead : str
        What to do otherwise.
    """
    import pandas as pd

    known = series.dropna()
    alike = known.astype(str).str.fullmatch(_LIKE_NUMBERS).to_numpy(dtype=bool)
    if alike.all() and not pd.to_numeric(known, errors="coerce").notna().all():
        raise ValueError(
            f"{what} holds text that looks like numbers, times or dates, such as {known.iloc[0]!r} at "
            f"{place(series, first(series.notna()))}. Write them as numbers with a decimal point, such as hours or "
            f"fractions; {instead}."
        )


def check_misprints(series: pd.Series, what: str, instead: str) -> None:
    """Raise ValueError if a column of text holds mostly numbers.

    Parameters
    ----------
    series : pandas Series
    what : str
        Name of the column, for the error message.
    instead : str
        What to do if all entries are text.
    """
    import pandas as pd

    known = series.dropna()
    number = pd.to_numeric(known.astype(str), errors="coerce").notna().to_numpy()
    if not number.all() and 2 * number.sum() > len(known):
        bad = series.notna().to_numpy() & pd.to_numeric(series, errors="coerce").isna().to_numpy()
        raise ValueError(
            f"{what} holds mostly numbers, but {series.iloc[first(bad)]!r} at {places(series, bad)}; "
            f"{int((~number).sum())} such rows in all. Correct them, or {instead}."
        )


def check_told_apart(series: pd.Series, what: str, instead: str) -> None:
    """Raise ValueError if whole numbers are so large that floats make some of them equal.

    Parameters
    ----------
    series : pandas Series
    what : str
        Name of the column, for the error message.
    instead : str
        What to do if the numbers are identifiers.
    """
    known = series.dropna()
    whole = known.dtype.kind in "iu" or (
        not holds_numbers(series) and len(known) > 0 and known.astype(str).str.fullmatch(r"[+-]?\d{16,}").all()
    )
    if whole and known.astype(np.float64).nunique() < known.nunique():
        raise ValueError(
            f"{what} holds whole numbers such as {known.iloc[0]}, some of which are equal as floating-point numbers; "
            f"if they are identifiers, {instead}, else subtract a common number."
        )


def encode(series: pd.Series, column: Column) -> FloatArray:
    """Return the inputs of a column: float64 of shape (n, 1) if it is numeric, else (n, number of categories).

    Raises
    ------
    ValueError
        If a value is missing and the fit imputed none, is not a number, or is an unknown category.
    """
    values = column.values(series) if column.categories is None else np.empty(0)
    missing = series.isna().to_numpy() if column.categories is not None else np.isnan(values)
    if missing.any() and column.fill is None:
        raise ValueError(
            f"column {column.name!r} has {int(missing.sum())} missing values, the first at "
            f"{places(series, missing)}; the fit had none to impute. Remove those rows, or fit with --impute."
        )
    if column.categories is None:
        if column.fill is not None:
            values = np.where(missing, column.fill, values)
        return standardised(series, values, column.mean, column.scale, f"column {column.name!r}")[:, None]
    labels = [column.fill if gone else _category(value) for value, gone in zip(series.tolist(), missing, strict=True)]
    code = {label: index for index, label in enumerate(column.categories)}
    out = np.zeros((len(labels), len(code)))
    unknown = np.array([label not in code for label in labels])
    if unknown.any():
        found = list(dict.fromkeys(repr(label) for label in labels if label not in code))
        what = "category" if len(found) == 1 else "categories"
        raise ValueError(
            f"column {column.name!r} has the unknown {what} {', '.join(found[:5])}{', ...' if len(found) > 5 else ''} "
            f"at {places(series, unknown)}; the fit saw {', '.join(column.categories)}. Correct it, or fit with rows "
            "that have it."
        )
    out[np.arange(len(labels)), [code[str(label)] for label in labels]] = 1.0
    return out


def standardised(series: pd.Series, values: FloatArray, mean: float, scale: float, what: str) -> FloatArray:
    """Return (values - mean) / scale of a column (n,); raise ValueError where float32 cannot hold a result."""
    with np.errstate(over="ignore"):
        found = np.asarray((values - mean) / scale)
    beyond = np.abs(found) > np.finfo(np.float32).max
    if beyond.any():
        raise ValueError(
            f"{what} has {values[first(beyond)]:g} at {places(series, beyond)}, too far from the mean of the training "
            f"rows, {mean:g}, to compute with. Correct or remove that row."
        )
    return found


def _other_uses(series: pd.Series) -> str:
    """Return what to do with a text column that is no category."""
    if looks_like_dates(series):
        return "they are dates: make them numbers (--date), or drop the column (--drop)"
    return "drop it (--drop), keep it beside the predictions (--id) or group them"


def check_spread(series: pd.Series, values: FloatArray, train: npt.NDArray[Any], what: str) -> None:
    """Raise ValueError if a few values decide mean and scale (`moments.extremes`).

    Parameters
    ----------
    series : pandas Series
    values : ndarray, shape (n,)
        Its numbers, NaN where they are missing.
    train : ndarray of int
        The training rows.
    what : str
        Name of the column, for the error message.
    """
    known = train[~np.isnan(values[train])]
    found = extremes(values[known])
    if found is not None:
        bad = np.zeros(len(series), dtype=bool)
        bad[known[found]] = True
        raise ValueError(
            f"{what} has {values[first(bad)]:g} at {places(series, bad)}, beside which the other values are all alike, "
            f"so the column would say nothing. Correct or remove {'that row' if len(found) == 1 else 'those rows'}, or "
            "take the logarithm."
        )


def _category(value: Any) -> str:
    """Return the name of a category; 1.0 becomes "1", because pandas reads codes as floats if one is missing."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def numbers(series: pd.Series, what: str, *, missing: bool = False) -> FloatArray:
    """Return a column as float64 (n,); raise ValueError if a value is not a finite number or, by default, missing."""
    import pandas as pd

    values: FloatArray = pd.to_numeric(series, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    # In a column of text, a mark such as "-" is a missing number; a table may hold nothing else in it.
    gone = (series.isna() | series.astype(str).str.strip().str.lower().isin(MARKS)).to_numpy()
    for bad, problem in (
        (np.isnan(values) & ~gone, "must hold numbers"),
        (np.isinf(values), "must be finite"),
        (gone & (not missing), "must not be missing"),
    ):
        if bad.any():
            value = _plain(series.iloc[first(bad)])
            raise ValueError(
                f"{what} {problem}; got {value!r} at {places(series, bad)}; {int(bad.sum())} such rows in all."
            )
    return values


def _plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, whose text is the number alone."""
    return value.item() if isinstance(value, np.generic) else value


def first(mask: Any) -> int:
    """Return the position of the first true entry."""
    return int(np.argmax(np.asarray(mask)))
