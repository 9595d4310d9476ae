"""Reading tables of data from text files: separators, headers, missing values, and the split of their rows."""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

IndexArray = npt.NDArray[np.intp]

# Name of a data frame's index that holds the line numbers of the rows in their file, counted from 1.
LINES = "line of the file"

# Separators in the order in which they are tried: a file with decimal commas has both semicolons and commas, one with
# quoted text both commas and spaces.
_SEPARATORS = {"semicolon": ";", "tab": "\t", "comma": ",", "bar": "|", "whitespace": r"\s+"}
# Entries that count as missing beside those of pandas: the question mark of many UCI files.
_MISSING = ["?"]
# Number of lines from which separator and header are found.
_SNIFFED_LINES = 200


@dataclass(frozen=True)
class TableFormat:
    """The layout of a text file with a table.

    Attributes
    ----------
    separator : str
        The separator of fields in the notation of pandas; `\\s+` for whitespace.
    header : bool
        Whether the first line holds the names of the columns; otherwise they are "0", "1", ...
    decimal : str
        The decimal separator, "." or ",".
    """

    separator: str
    header: bool
    decimal: str = "."

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values."""
        return {"separator": self.separator, "header": self.header, "decimal": self.decimal}


def read_table(
    path: str | os.PathLike[str], *, header: bool | None = None, separator: str | None = None
) -> tuple[pd.DataFrame, TableFormat]:
    """Read a text file of rows and columns.

    Parameters
    ----------
    path : path-like
        A file of UTF-8 text.
    header : bool, optional
        Whether the first line holds the names of the columns. By default it must, and a first line that looks like data
        is an error.
    separator : str, optional
        One character, or "comma", "semicolon", "tab", "bar" or "whitespace"; by default it is found from the first
        lines.

    Returns
    -------
    frame : pandas DataFrame
        The table. Column names are str; empty fields, NA, NaN, null and "?" are missing. The index holds the line
        number of each row in the file, unless a quoted field with a line break makes rows and lines differ.
    format : TableFormat
        The layout that was found; `decimal` is "," if the separator is a semicolon and fields such as 1,5 but none such
        as 1.5 occur.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is empty, is not UTF-8 text, has rows of unequal length or only one column, two columns have the
        same name, or the first line looks like data and `header` is None.
    """
    import pandas as pd

    target = os.fspath(path)
    lines = _first_lines(target)
    found = _named_separator(separator) if separator is not None else _sniff(lines, target)
    fields = [_split(line, found) for line in lines]
    if header is None:
        if _looks_like_data(fields[0]):
            raise ValueError(
                f"the first line of {target} looks like data, not like names ({', '.join(fields[0][:4])}, ...); pass "
                "--no-header, or --header if these are names."
            )
        header = True
    if header and len(set(fields[0])) < len(fields[0]):
        twice = next(name for name in fields[0] if fields[0].count(name) > 1)
        raise ValueError(f"{target} has two columns named {twice!r}; rename one.")
    decimal = "," if found == ";" and _has_decimal_commas(fields) else "."
    try:
        frame = pd.read_csv(
            target,
            sep=found,
            header=0 if header else None,
            na_values=_MISSING,
            decimal=decimal,
            skipinitialspace=True,
            index_col=False,
            low_memory=False,
            encoding="utf-8-sig",
        )
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{target} could not be read as rows with the separator {found!r}: {str(error).strip()}. Give every row "
            "the same number of fields, or another separator with --sep."
        ) from error
    if frame.empty:
        raise ValueError(f"{target} has a header but no rows.")
    if frame.shape[1] < 2:
        raise ValueError(
            f"{target} has one column with the separator {found!r}; a target and at least one input are needed. Give "
            "the separator with --sep (comma, semicolon, tab, bar, whitespace or one character)."
        )
    frame.columns = [str(name).strip() for name in frame.columns]
    numbers = _line_numbers(target)[1 if header else 0 :]
    if len(numbers) == len(frame):
        frame.index = pd.Index(numbers, name=LINES)
    return frame, TableFormat(found, header, decimal)


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


def find_column(frame: pd.DataFrame, column: str, argument: str = "--target") -> str:
    """Return the name of a column given by name or by number.

    Parameters
    ----------
    frame : pandas DataFrame
    column : str
        A name, or a number from 0 (negative numbers count from the end). Names take precedence over numbers.
    argument : str
        The option by which the user gave the column, for the error message.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If there is no such column; the message lists the columns.
    """
    names = [str(name) for name in frame.columns]
    if column in names:
        return column
    if re.fullmatch(r"[+-]?\d+", column) and -len(names) <= int(column) < len(names):
        return names[int(column)]
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    raise ValueError(
        f"{argument} must be a column's name or its number in 0..{len(names) - 1}; got {column!r}. The columns are: "
        f"{shown}."
    )


def _first_lines(path: str) -> list[str]:
    """Return the lines among the first `_SNIFFED_LINES` that are not blank; raise ValueError if there are none."""
    try:
        with open(path, encoding="utf-8-sig") as stream:
            lines = [line.rstrip("\n") for _, line in zip(range(_SNIFFED_LINES), stream, strict=False) if line.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}); convert it to a text file first.") from error
    if not lines:
        raise ValueError(f"{path} is empty.")
    return lines


def _line_numbers(path: str) -> IndexArray:
    """Return the numbers of the lines that are not blank, counted from 1."""
    with open(path, encoding="utf-8-sig") as stream:
        return np.array([number for number, line in enumerate(stream, start=1) if line.strip()], dtype=np.intp)


def _named_separator(separator: str) -> str:
    """Return a separator given by name or as a character, in the notation of pandas."""
    if separator in _SEPARATORS:
        return _SEPARATORS[separator]
    if separator in (r"\t", r"\s+"):
        return "\t" if separator == r"\t" else separator
    if len(separator) != 1:
        raise ValueError(f"--sep must be one character or one of {', '.join(_SEPARATORS)}; got {separator!r}.")
    return r"\s+" if separator == " " else separator


def _sniff(lines: list[str], path: str) -> str:
    """Return the first separator that splits every line into the same number of fields, at least two."""
    for separator in _SEPARATORS.values():
        counts = {len(_split(line, separator)) for line in lines}
        if len(counts) == 1 and counts != {1}:
            return separator
    counts_by_name = {
        name: sorted({len(_split(line, separator)) for line in lines}) for name, separator in _SEPARATORS.items()
    }
    seen = "; ".join(f"{name}: {min(c)} to {max(c)}" for name, c in counts_by_name.items() if max(c) > 1)
    raise ValueError(
        f"no separator splits the first {len(lines)} lines of {path} into equally many fields, at least two "
        f"({seen or 'none occurs'}). Mend the rows, or give the separator with --sep."
    )


def _split(line: str, separator: str) -> list[str]:
    """Return the fields of a line."""
    if separator == r"\s+":
        return line.split()
    return [field.strip() for field in next(csv.reader([line], delimiter=separator, skipinitialspace=True))]


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
