"""Reading tables of data from text files: separators, headers, missing values, and the split of their rows."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.fit.number_columns import MISSING, read_numbers
from patrac_native.fit.problems import collected
from patrac_native.fit.table_text import (
    TableText,
    check_rectangular,
    find_separator,
    named_separator,
    read_text,
    split,
)

if TYPE_CHECKING:
    import pandas as pd

# Name of a data frame's index that holds the line numbers of the rows in their file, counted from 1.
LINES = "line of the file"
# Attribute of a data frame with the names of all columns of the file, by which numbers of columns count.
_IN_FILE = "columns of the file"


@dataclass(frozen=True)
class TableFormat:
    """The layout of a text file with a table.

    Attributes
    ----------
    separator : str
        The separator of fields in the notation of pandas; `\\s+` for whitespace.
    header : bool
        Whether the first line holds the names of the columns.
    decimal : str
        The decimal separator, "." or ",".
    notes : tuple of str
        What was left out or converted, for the user; not part of `to_dict`.
    units : mapping of str to str, or None
        The currency, or "%", of the columns of amounts, by their names; None of a fit of an earlier version, which did
        not record it.
    """

    separator: str
    header: bool
    decimal: str = "."
    notes: tuple[str, ...] = field(default=(), compare=False)
    units: Mapping[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values."""
        units = None if self.units is None else dict(self.units)
        return {"separator": self.separator, "header": self.header, "decimal": self.decimal, "units": units}


def read_table(
    path: str | os.PathLike[str],
    *,
    header: bool | None = None,
    separator: str | None = None,
    verbatim: Sequence[str] = (),
    least_columns: int = 2,
    column_names: Callable[[int], Sequence[str]] | None = None,
) -> tuple[pd.DataFrame, TableFormat]:
    """Read a text file of rows and columns.

    Parameters
    ----------
    path : path-like
        A file of UTF-8 text, a pipe such as /dev/stdin, or "-" for standard input. It is read once. Blank lines are
        left out, and so are lines that begin with # unless they have as many fields as the rows.
    header : bool, optional
        Whether the first line holds the names of the columns. By default it must, and a first line that looks like data
        is an error.
    separator : str, optional
        One character, or "comma", "semicolon", "tab", "bar" or "whitespace"; by default it is found from the first
        lines.
    verbatim : sequence of str
        Columns that are text as it stands, such as identifiers, whose leading zeros and digits beyond 64 bits count;
        names or numbers as for `find_column`, and those that the table does not have are ignored. Default none.
    least_columns : int
        Number of columns that there must be: 2, a target and an input, or 1 where there need be no target.
    column_names : callable, optional
        Returns the names of the columns of a table without header, given how many there are; by default their numbers.
        What it raises for a number of columns that it does not know is raised here.

    Returns
    -------
    frame : pandas DataFrame
        The table. Column names are str; empty fields, NA, NaN, null and "?" are missing, and in columns of numbers
        other usual marks too, such as "-". Amounts such as "$1,200" are numbers. A first column without a
        name that numbers the rows, as pandas writes it, is left out. The index holds the line of each row in the file.
    format : TableFormat
        The layout that was found; `decimal` is "," if the separator is a semicolon and fields such as 1,5 but none such
        as 1.5 occur.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the text is empty, is not UTF-8, has rows of unequal length (the message lists their lines) or only one
        column, two columns have the same name, the first line looks like data and `header` is None, or a column holds
        amounts in several units.
    """
    import pandas as pd

    text = read_text(path)
    found = named_separator(separator) if separator is not None else find_separator(text)
    check_rectangular(text, found)
    names = split(text.records[0], found)
    if header is None:
        if _looks_like_data(names):
            raise ValueError(
                f"the first line of {text.name} looks like data, not like names ({', '.join(names[:4])}, ...); pass "
                "--no-header, or --header if these are names."
            )
        header = True
    if header and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        if not twice:
            raise ValueError(
                f"{text.name} has {names.count('')} columns without a name; name them in its first line, or give "
                "another separator with --sep."
            )
        raise ValueError(f"{text.name} has two columns named {twice!r}; rename one.")
    if header and len(text.records) == 1:
        raise ValueError(f"{text.name} has a header but no rows.")
    if len(names) < least_columns:
        raise ValueError(
            f"{text.name} has one column with the separator {found!r}; a target and at least one input are needed. "
            "Give the separator with --sep (comma, semicolon, tab, bar, whitespace or one character)."
        )
    decimal = (
        "," if found == ";" and _has_decimal_commas([split(record, found) for record in text.records[:200]]) else "."
    )
    if not header:
        names = [str(at) for at in range(len(names))] if column_names is None else [*column_names(len(names))]
    as_it_is = {position for column in verbatim if (position := _position(names, column)) is not None}
    frame = _parse(text, found, header, decimal, as_it_is)
    frame.columns = names
    lines = text.lines[1 if header else 0 :]
    if len(lines) == len(
        frame
    ):  # otherwise pandas reads quotation marks in another way; better no lines than wrong ones
        frame.index = pd.Index(lines, name=LINES)
    in_file = [str(name) for name in frame.columns]
    frame, notes, units = _convert(frame, decimal, text.comments, {names[position] for position in as_it_is})
    frame.attrs[_IN_FILE] = in_file
    return frame, TableFormat(found, header, decimal, notes, units)


def _parse(text: TableText, separator: str, header: bool, decimal: str, verbatim: Set[int]) -> pd.DataFrame:
    """Return the records as a data frame with columns of numbers and of text; those at `verbatim` are text."""
    import pandas as pd

    try:
        frame = pd.read_csv(
            io.StringIO("\n".join(text.records)),
            sep=separator,
            header=0 if header else None,
            na_values=list(MISSING),
            # pandas takes what a converter returns for missing too; with a mark before it, NA is text.
            converters=dict.fromkeys(verbatim, lambda field: f"={field.strip()}"),
            decimal=decimal,
            skipinitialspace=True,
            index_col=False,
            low_memory=False,
        )
    except pd.errors.ParserError as error:
        raise ValueError(
            f"{text.name} could not be read as rows with the separator {separator!r}: {str(error).strip()}. Give every "
            "row the same number of fields, or another separator with --sep."
        ) from error
    for position in verbatim:
        frame.isetitem(position, frame.iloc[:, position].str[1:])
    return frame


def _convert(
    frame: pd.DataFrame, decimal: str, comments: int, verbatim: Set[str]
) -> tuple[pd.DataFrame, tuple[str, ...], dict[str, str]]:
    """Leave out a column that numbers the rows, and read text that holds numbers; return the frame, notes and units."""
    notes: list[str] = []
    units: dict[str, str] = {}
    if comments:
        notes.append(f"{comments} line{'s that begin' if comments > 1 else ' that begins'} with # left out")
    first = frame.iloc[:, 0]
    unnamed = str(frame.columns[0]) in ("", "Unnamed: 0")
    if unnamed and frame.shape[1] > 2 and first.dtype.kind in "iu" and first.is_unique:
        notes.append("the first column has no name and numbers the rows, as an index of pandas does; it is left out")
        frame = frame.iloc[:, 1:].copy()
    empty = [name for name in frame.columns if not name and frame[name].isna().all()]
    if empty:
        notes.append("a column without name and values, which a separator at the end of each line makes, is left out")
        frame = frame.drop(columns=empty)
    with collected() as attempt:
        for position, name in enumerate(frame.columns):
            if name in verbatim:
                continue
            with attempt:
                frame[name], note, unit = read_numbers(frame.iloc[:, position], decimal)
                notes += [] if note is None else [note]
                units |= {str(name): unit} if unit else {}
    return frame, tuple(notes), units


def place(series: pd.Series, row: int) -> str:
    """Return the position of a value in words: its data row and, if `read_table` recorded it, its line of the file.

    Parameters
    ----------
    series : pandas Series
        A column of the table.
    row : int
        The row, counted from 0.

    Returns
    -------
    str
    """
    where = f"data row {row} (counted from 0"
    return f"{where}; line {series.index[row]} of the file)" if series.index.name == LINES else f"{where})"


def places(series: pd.Series, mask: npt.ArrayLike) -> str:
    """Return the first of several positions as `place` does, and the lines or data rows of up to nine more."""
    rows = np.flatnonzero(np.asarray(mask))
    text = place(series, int(rows[0]))
    if len(rows) == 1:
        return text
    in_file = series.index.name == LINES
    more = [str(series.index[row] if in_file else row) for row in rows[1:10]]
    rest = f" and {len(rows) - 10} more" if len(rows) > 10 else ""
    return f"{text}, also {'lines' if in_file else 'rows'} {', '.join(more)}{rest}"


def find_column(frame: pd.DataFrame, column: str, argument: str = "--target") -> str:
    """Return the name of a column given by name or by number.

    Parameters
    ----------
    frame : pandas DataFrame
    column : str
        A name, or a number from 0 (negative numbers count from the end) among the columns of the file, those included
        that `read_table` left out. Names take precedence over numbers.
    argument : str
        The option by which the user gave the column, for the error message.

    Returns
    -------
    str
        With --drop, it may be a column that is left out already.

    Raises
    ------
    ValueError
        If there is no such column, or it was left out; the message lists the columns.
    """
    kept = [str(name) for name in frame.columns]
    names: list[str] = frame.attrs.get(_IN_FILE, kept)
    if column in kept:
        return column
    if (position := _position(names, column)) is not None:
        found = names[position]
        if found in kept or argument == "--drop":
            return found
        raise ValueError(
            f"{argument} {column} is the column {found!r}, which numbers the rows or is empty and was left out; give "
            "another column, or name it in the first line of the file."
        )
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    raise ValueError(
        f"{argument} must be a column's name or its number in 0..{len(names) - 1}; got {column!r}. The columns are: "
        f"{shown}."
    )


def _position(names: Sequence[str], column: str) -> int | None:
    """Return the position of a column given by name, or by number, which may count from the end; None if none is it."""
    if column in names:
        return names.index(column)
    if re.fullmatch(r"[+-]?\d+", column) and -len(names) <= int(column) < len(names):
        return int(column) % len(names)
    return None


def _looks_like_data(fields: list[str]) -> bool:
    """Return whether at least half of the fields are numbers."""
    return 2 * sum(_is_number(field) for field in fields) >= len(fields)


def _is_number(field: str) -> bool:
    """Return whether a field is a number, with a decimal point or comma."""
    try:
        float(field.replace(",", "."))
    except ValueError:
        return False
    return True


def _has_decimal_commas(fields: list[list[str]]) -> bool:
    """Return whether numbers with a decimal comma occur, and none with a decimal point."""
    flat = [field for line in fields for field in line]
    commas = any(re.fullmatch(r"[+-]?\d*,\d+", field) for field in flat)
    return commas and not any(re.fullmatch(r"[+-]?\d*\.\d+", field) for field in flat)
