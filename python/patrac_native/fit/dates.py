"""Dates as numbers: the days since 1970-01-01, with one layout for all entries of a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import pandas as pd

ISO = "ISO8601"
# Other layouts of the date; each may be followed by a time of day.
_LAYOUTS: tuple[str, ...] = (
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%Y%m%d",
    "%d %b %Y",
    "%b %d, %Y",
)
_LAYOUTS += ("%d %B %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y")
_TIMES = ("", " %H:%M", " %H:%M:%S")
_DAY = np.timedelta64(1, "D")


def date_layout(series: pd.Series) -> str:
    """Return the layout in which all entries are dates, in the notation of `datetime.strptime` or "ISO8601".

    Raises
    ------
    ValueError
        If no layout reads all entries, or both the day and the month may come first.
    """
    found = (
        [ISO]
        if _reads(series, ISO)
        else [f"{day}{time}" for day in _LAYOUTS for time in _TIMES if _reads(series, f"{day}{time}")]
    )
    if not found:
        first = series.dropna().astype(str)
        if first.empty:
            raise ValueError(f"--date {series.name!r}: the column has no entries.")
        raise ValueError(
            f"--date {series.name!r}: its entries, such as {first.iloc[0]!r}, are not dates of one layout; write them "
            "as YYYY-MM-DD."
        )
    if len(found) > 1:
        raise ValueError(
            f"--date {series.name!r}: its entries, such as {series.dropna().iloc[0]!r}, can be read as {found[0]} and "
            f"as {found[1]}; write them as YYYY-MM-DD."
        )
    return found[0]


def looks_like_dates(series: pd.Series) -> bool:
    """Return whether all entries of a column of text are dates of some layout."""
    try:
        date_layout(series)
    except ValueError as error:
        return "can be read as" in str(error)
    return True


def days(series: pd.Series, layout: str) -> FloatArray:
    """Return the days since 1970-01-01 of each entry (n,), with fractions; NaN where it is missing or no date."""
    import pandas as pd

    text = series.where(series.isna(), series.astype(str).str.strip())
    times = pd.to_datetime(text, format=layout, errors="coerce", utc=True)
    return np.asarray((times - pd.Timestamp(0, tz="UTC")) / _DAY, dtype=np.float64)


def _reads(series: pd.Series, layout: str) -> bool:
    known = series.dropna()
    return len(known) > 0 and bool(np.isfinite(days(known, layout)).all())
