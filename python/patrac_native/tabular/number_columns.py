"""Columns of text that hold numbers: marks of missing values, amounts of money, percentages, digits in groups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

# Entries that count as missing in any column, beside those of pandas: the question mark of many UCI files.
MISSING = ("?",)
# Entries that count as missing where the others are numbers; in a column of text they may be categories.
MARKS = frozenset({"-", "--", "---", ".", "..", "*", "**", "\N{EN DASH}", "\N{EM DASH}", "n.a.", "none", "missing"})
MARKS |= {"unknown", "nil", "(null)", "not available", "#ref!", "#div/0!", "#value!", "#num!", "#name?"}

# Beyond it, floats do not represent every whole number.
_EXACT = 2.0**53
# Signs of currencies as a class of a regular expression (the cent and the generic sign are none), and codes.
CURRENCIES = r"$\u00a3\u00a5\u0e3f\u20a0-\u20c0"
CODES = (
    "USD|EUR|GBP|CHF|JPY|CNY|INR|KRW|TWD|THB|IDR|MYR|PHP|VND|SGD|HKD|AUD|NZD|CAD|MXN|BRL|ARS|CLP|COP|ZAR|EGP|NGN|KES"
)
CODES += "|PLN|CZK|HUF|RON|BGN|SEK|NOK|DKK|ISK|UAH|RUB|TRY|ILS|AED|SAR"
_UNIT = f"[{CURRENCIES}%]|{CODES}"
# A sign or an opening bracket, a unit before or after, and digits alone or in groups of three.
_AMOUNT = re.compile(
    rf"(?P<bracket>\()?(?P<sign>[-+])?\s*(?P<before>{_UNIT})?\s*(?P<inner>[-+])?"
    rf"(?P<digits>\d{{1,3}}(?:(?P<group>[,.' \u00a0\u202f])\d{{3}})(?:(?P=group)\d{{3}})*|\d+|(?=[.,]\d))"
    rf"(?P<rest>[.,]\d+)?\s*(?P<after>{_UNIT})?(?(bracket)\))",
    re.IGNORECASE,
)


class NumberColumn(NamedTuple):
    """A column as it was read.

    Attributes
    ----------
    series : pandas Series
        Numbers, with NaN for marks of missing values; or the column as it is, if an entry is something else.
    note : str or None
        What was read; None if nothing was converted.
    unit : str
        The currency or "%" of amounts; empty for other numbers and text.
    """

    series: pd.Series
    note: str | None = None
    unit: str = ""


def read_numbers(series: pd.Series, decimal: str) -> NumberColumn:
    """Return a column of text as numbers, if that is what its entries are, and a note on what was read.

    Parameters
    ----------
    series : pandas Series
        A column as pandas has read it; one that holds no text is returned as it is.
    decimal : {".", ","}
        The decimal separator of the table.

    Returns
    -------
    NumberColumn

    Raises
    ------
    ValueError
        If entries are amounts of several currencies, or percentages beside other numbers.
    """
    import pandas as pd

    if pd.api.types.is_numeric_dtype(series):
        return NumberColumn(series)
    text = series.dropna().astype(str).str.strip()
    marks = text.str.lower().isin(MARKS)
    values = text[~marks]
    if values.empty:
        return NumberColumn(series)
    plain = pd.to_numeric(_with_points(values) if decimal == "," else values, errors="coerce")
    if plain.notna().all():
        if _loses_digits(values, plain):
            return NumberColumn(series)
        if not marks.any():
            return NumberColumn(_placed(series, plain))  # such as integers beyond 64 bits
        note = f"column {series.name!r}: {int(marks.sum())} entries {_shown(text[marks])} count as missing"
        return NumberColumn(_placed(series, plain), note)
    found = [_amount(value, decimal) for value in values.tolist()]
    if any(amount is None for amount in found):
        return NumberColumn(series)
    units = {unit for _, unit in found if unit}  # type: ignore[misc]  # none is None
    if len(units) > 1:
        raise ValueError(
            f"column {series.name!r} holds amounts in several units ({', '.join(sorted(units))}); convert them to one."
        )
    if "%" in units and any(unit != "%" for _, unit in found):  # type: ignore[misc]  # likewise
        raise ValueError(
            f"column {series.name!r} holds percentages and numbers without %, such as {values.iloc[0]!r}; write all of "
            "them in one way."
        )
    parsed = pd.Series([number for number, _ in found], index=values.index, dtype=float)  # type: ignore[misc]  # likewise
    example = values.iloc[0]
    note = f"column {series.name!r}: text such as {example!r} was read as {parsed.iloc[0]:g}"
    return NumberColumn(_placed(series, parsed), note, next(iter(units), ""))


def _loses_digits(values: pd.Series, plain: pd.Series) -> bool:
    """Return whether numbers of text are whole ones of which floats make some equal, such as long identifiers."""
    whole = values.str.fullmatch(r"[+-]?\d+")
    return bool(whole.all()) and plain.nunique() < values.nunique() and float(plain.abs().max()) > _EXACT


def _with_points(values: pd.Series) -> pd.Series:
    """Return text with decimal commas as text with decimal points; missing where points group digits, as in 1.234."""
    return values.str.replace(",", ".").where(~values.str.contains(".", regex=False))


def _placed(series: pd.Series, values: pd.Series) -> pd.Series:
    """Return a column of floats with NaN wherever `values` has no entry."""
    import pandas as pd

    out = pd.Series(float("nan"), index=series.index, name=series.name, dtype=float)
    out.loc[values.index] = values.astype(float)
    return out


def _amount(text: str, decimal: str) -> tuple[float, str] | None:
    """Return number and unit of an amount such as "$1,234.50", "(12)" or "45 %"; None if it is none."""
    found = _AMOUNT.fullmatch(text)
    if found is None or (found["before"] and found["after"]) or (found["sign"] and found["inner"]):
        return None
    group, rest = found["group"], found["rest"] or ""
    if group == decimal or (rest and rest[0] != decimal):
        return None
    value = float((re.sub(r"\D", "", found["digits"]) or "0") + rest.replace(",", "."))
    negative = "-" in (found["sign"], found["inner"]) or found["bracket"]
    return (-value if negative else value), (found["before"] or found["after"] or "").upper()


def _shown(marks: Any) -> str:
    """Return the distinct marks in quotation marks."""
    return ", ".join(sorted({repr(mark) for mark in marks.tolist()}))
