"""Columns of text that hold numbers: marks of missing values, amounts of money, percentages, digits in groups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from patrac_native.fit.problems import Problems

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
# Signs of one currency, and the codes of currencies whose sign is $.
_CODE_OF = {"\u20ac": "EUR", "\u00a3": "GBP", "\u20b9": "INR", "\u20a9": "KRW", "\u0e3f": "THB", "\u20ab": "VND"}
_CODE_OF |= {"\u20b1": "PHP", "\u20ba": "TRY", "\u20b4": "UAH", "\u20aa": "ILS", "\u20bd": "RUB", "\u20a6": "NGN"}
_DOLLARS = frozenset("$ USD CAD AUD NZD SGD HKD TWD MXN ARS CLP COP".split())
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
        The currency, by its code where the sign tells it, or "%" of amounts; empty for other numbers and text.
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
    unit = (found["before"] or found["after"] or "").upper()
    return (-value if negative else value), _CODE_OF.get(unit, unit)


def check_same_units(columns: Sequence[str], fitted: Mapping[str, str] | None, new: Mapping[str, str] | None) -> None:
    """Raise ValueError if a column of new rows holds amounts of another unit than in the fitted table.

    A currency that only one of the tables names is ignored, and $ may be any dollar or peso. Percentages are other
    numbers without their sign.

    Parameters
    ----------
    columns : sequence of str
        The columns that are compared.
    fitted, new : mapping of str to str, or None
        The units of columns of amounts, as in `TableFormat`; nothing is compared with None.
    """
    if fitted is None or new is None:
        return
    pairs = [(name, new.get(name, ""), fitted.get(name, "")) for name in columns]
    problems = [
        f"column {name!r} holds {_amounts_in(here)}, and in the fitted table {_amounts_in(there)}; convert them."
        for name, here, there in pairs
        if here != there
        and ("%" in (here, there) or (here and there))
        and not ("$" in (here, there) and {here, there} <= _DOLLARS)
    ]
    if problems:
        raise Problems(problems)


def _amounts_in(unit: str) -> str:
    """Return what a column of numbers of a unit holds, in words."""
    return {"": "numbers without a unit", "%": "percentages"}.get(unit, f"amounts in {unit}")


def _shown(marks: Any) -> str:
    """Return the distinct marks in quotation marks."""
    return ", ".join(sorted({repr(mark) for mark in marks.tolist()}))
