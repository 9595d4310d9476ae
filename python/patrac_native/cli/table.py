"""Tables of data from files: `pandas.read_csv`, once the separator is found and every row has as many fields."""

from __future__ import annotations

import argparse
import bz2
import codecs
import csv
import gzip
import io
import lzma
import os
import string
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd

from patrac_native.fit.preprocessor import column_named

SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "whitespace": r"\s+"}
# Read by the function of pandas that has this name, where its engine is installed.
_OTHERS = {".parquet": "parquet", ".feather": "feather", ".orc": "orc", ".xlsx": "excel", ".xls": "excel"}
_OTHERS |= {".ods": "excel", ".dta": "stata", ".sas7bdat": "sas", ".sav": "spss"}
_LINES_LOOKED_AT = 100
# Characters that may stand between fields, or before decimals.
_MARKS = string.punctuation.replace('"', "") + " \t"
# Words of a missing number, which are those of pandas, and the words of Booleans.
WORDS = ["NA", "N/A", "n/a", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None", "<NA>", "#N/A", "#NA"]
WORDS += ["#N/A N/A", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"]
_BOOLEANS = {word: value for value in (False, True) for word in (str(value), str(value).lower(), str(value).upper())}


@dataclass(frozen=True)
class Layout:
    """How a text file holds a table: separator, names in the first line, decimal mark, texts of missing values.

    Raises ValueError for a separator or a decimal mark that is none.
    """

    sep: str | None = None
    header: bool | None = None
    decimal: str = "."
    missing: Sequence[str] = ("?",)

    def __post_init__(self) -> None:
        for what, given in (("sep", SEPARATORS.get(self.sep or "", self.sep)), ("decimal", self.decimal)):
            if given not in (None, r"\s+") and not (len(given) == 1 and given in _MARKS):
                raise ValueError(f"{what} must be one character that is no letter, digit or quote; got {given!r}.")


def add_layout(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the options that describe the layout of a table; `default` says where it is taken from."""
    group = parser.add_argument_group("layout of the file", f"By default {default}.")
    add = group.add_argument
    add("--sep", metavar="S", help=f"separator: {', '.join(SEPARATORS)} or one character")
    add("--header", action=argparse.BooleanOptionalAction, help="whether the first line holds the columns' names")
    add("--decimal", metavar="C", help="decimal mark of numbers")
    add(
        "--missing",
        nargs="+",
        metavar="TEXT",
        help="texts of a missing value beside empty fields and, in columns of numbers, NA and the like; default ?",
    )


def layout_of(args: argparse.Namespace, default: Layout) -> Layout:
    """Return the layout that the options ask for; those of `default` where they say nothing."""
    given = {name: getattr(args, name) for name in ("sep", "header", "decimal", "missing")}
    return Layout(**{name: getattr(default, name) if value is None else value for name, value in given.items()})


class TableFile:
    """A file with a table, read once: its column names and layout, and from `frame` its rows.

    Raises ValueError or OSError, with the file and its line, if there is no such file or table. Without header the
    columns have the names that `named` returns for their number, by default their positions.
    """

    def __init__(self, path: str, layout: Layout, named: Callable[[int], Sequence[str]] | None = None) -> None:
        self.path, self.name = path, "standard input" if path == "-" else path
        self._frame: pd.DataFrame | None = None
        kind = _OTHERS.get(os.path.splitext(path)[1].lower())
        if kind is not None:
            open(path, "rb").close()  # raises OSError where there is no file to read
            try:
                # Cells of sheets have types, which pandas would guess again of each file.
                options = {"dtype": object} if kind == "excel" else {}
                frame: pd.DataFrame = getattr(pd, f"read_{kind}")(path, **options)
                _check_arrow(frame)
                frame = frame.infer_objects().rename(columns=str)
            except ImportError as error:
                raise ValueError(f"{path} needs another package: {error}") from None
            except MemoryError:
                raise MemoryError(f"{path} needs more memory than there is: it is too large, or damaged.") from None
            except Exception as error:  # each package has its own for damaged files
                raise ValueError(f"{path} cannot be read by pandas.read_{kind}: {error}") from None
            self._frame, self.names, self.layout = frame, [str(name) for name in frame.columns], layout
        else:
            self._content = _text(path, self.name)
            sep = SEPARATORS.get(layout.sep or "", layout.sep) or _separator(self._content)
            fields, self._lines = _check_rows(self._content, sep, self.name)
            header = layout.header
            if header is None:
                header = 2 * sum(map(_is_number, fields)) < len(fields)
                if not header:
                    some = ", ".join(fields[:4])
                    raise ValueError(
                        f"the first line of {self.name} looks like data, not like names ({some}); give --no-header, or "
                        "--header if these are names."
                    )
            if header:
                self.names = [field.strip() or f"Unnamed: {position}" for position, field in enumerate(fields)]
                self._lines = self._lines[1:]
            else:
                self.names = [*map(str, range(len(fields)))] if named is None else [*named(len(fields))]
            self.layout = replace(layout, sep=sep, header=header)
        twice = [one for one, count in Counter(self.names).items() if count > 1]
        if twice:
            raise ValueError(f"{self.name} has two columns named {twice[0]!r}; rename one.")
        if not len(self._lines if self._frame is None else self._frame):
            raise ValueError(f"{self.name} has names of columns but no rows.")

    def column(self, given: str, option: str) -> str:
        """Return the name of a column that is given by name or by number, from 0 or, negative, from the end."""
        is_place = given not in self.names and given.lstrip("-").isdecimal()
        return column_named(self.names, int(given) if is_place else given, option, f" of {self.name}")

    def frame(
        self, text: Iterable[str] | Mapping[str, Sequence[str] | None], numbers: Iterable[str] = ()
    ) -> pd.DataFrame:
        """Return the rows, with the lines of the file as index; the columns `text` as they are written.

        A column holds numbers if every field is one, Booleans if every field is one, else text. In the columns
        `numbers` Booleans are numbers too and only other fields are text, so that what a field is does not depend on
        the others. Words such as NA are missing values, but in a column that holds other text they are text like any
        other; where `text` gives the categories of a column, those words that are among them.
        """
        if self._frame is not None:
            return self._frame
        numbers, missing = set(numbers), {"", *self.layout.missing}
        text = dict(text) if isinstance(text, Mapping) else dict.fromkeys(text)
        options: dict[str, Any] = {
            "sep": self.layout.sep,
            "header": 0 if self.layout.header else None,
            "names": self.names,
            "index_col": False,
            "keep_default_na": False,
            "skipinitialspace": True,
            "low_memory": False,
        }
        frame = pd.read_csv(
            io.StringIO(self._content),
            dtype=dict.fromkeys(text.keys() & set(self.names), str),
            na_values=[*missing, *WORDS],
            decimal=self.layout.decimal,
            **options,
        )
        if len(frame) != len(self._lines):
            raise ValueError(
                f"{self.name} has {len(frame)} rows to pandas, but {len(self._lines)} to the module csv: a line of "
                "blanks in quotes, or a quote inside a field; save it as CSV again."
            )
        unlike = frame.select_dtypes(include=["object", "string"]).columns.tolist()
        if unlike:
            written = pd.read_csv(io.StringIO(self._content), dtype=str, na_filter=False, usecols=unlike, **options)
        # pandas has read as text what a blank, or a number of more than 64 bits, stands in.
        for column in unlike:
            fields = [None if field in missing else field for field in map(str.strip, written[column])]
            values = [
                None if field is None or field in WORDS else _value(field, self.layout.decimal) for field in fields
            ]
            kinds = {*map(type, values)} - {NoneType}
            is_text = str in kinds or len(kinds) > 1
            if column in text or (is_text and column not in numbers):
                categories = text.get(column)
                kept = categories if categories is not None else WORDS if is_text else ()
                frame[column] = [None if field in WORDS and field not in kept else field for field in fields]
            elif kinds == {bool} and column not in numbers:
                frame[column] = values
            else:
                frame[column] = [
                    np.nan if one is None else one if isinstance(one, str) else float(one) for one in values
                ]
        frame.index = pd.Index(self._lines, name="line")
        return frame


def _check_arrow(frame: pd.DataFrame) -> None:
    """Raise ValueError if a damaged file gave columns of Arrow that reach beyond their memory, which ends a process."""
    for _, column in frame.items():
        if hasattr(column.array, "__arrow_array__"):
            import pyarrow

            pyarrow.array(column.array).validate(full=True)


def _text(path: str, name: str) -> str:
    """Return the text of a file with lines that end with a line feed; "-" is standard input.

    The file is decompressed by the end of its name.
    """
    if path == "-":
        raw = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as stream:
            raw = stream.read()
    names = [""]
    try:
        if path.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                names = archive.namelist()
                raw = archive.read(names[0]) if len(names) == 1 else raw
        for ending, module in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)):
            raw = module.decompress(raw) if path.endswith(ending) else raw
    except MemoryError:
        raise
    except Exception as error:  # for damaged and encrypted archives these modules raise about ten kinds of exceptions
        raise ValueError(f"{name} cannot be decompressed: {error}.") from None
    if len(names) != 1:
        raise ValueError(f"{path} holds {len(names)} files; give an archive of one.")
    encoding = "utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        content = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{name} is no {encoding.removesuffix('-sig').upper()} text (line {line}); save it as CSV in UTF-8."
        ) from None
    # As in files that Python opens as text. Where lines end with "\r", pandas loses a separator that begins the line
    # after a blank one, so that fields move to other columns.
    content = content.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in content:
        raise ValueError(f"{name} is a binary file, not a table as text; save it as CSV in UTF-8.")
    if not content.strip():
        raise ValueError(f"{name} is empty.")
    return content


def _rows(content: str, separator: str) -> Any:
    """Return an iterator over the fields of each record, with the attribute `line_num` that readers of csv have."""
    if separator == SEPARATORS["whitespace"]:
        # pandas separates at blanks and tabs alone, not at all that Unicode calls space.
        lines = (" ".join(filter(None, line.replace("\t", " ").split(" "))) for line in content.split("\n"))
        content = "\n".join(lines)
        separator = " "
    return csv.reader(io.StringIO(content, newline=""), delimiter=separator, skipinitialspace=True, strict=True)


def _separator(content: str) -> str:
    """Return the separator by which most of the first rows have the same number of fields, at least two."""
    first = "".join(line for _, line in zip(range(_LINES_LOOKED_AT), io.StringIO(content, newline=""), strict=False))

    def alike(separator: str) -> tuple[float, int]:
        try:
            counts = Counter(len(row) for row in _rows(first, separator) if row)
        except csv.Error:
            return 0.0, 0
        fields, rows = counts.most_common(1)[0]
        return (rows / counts.total(), fields) if fields > 1 else (0.0, 0)

    # Of equals the first: commas may be decimal marks, and blanks stand in text.
    found = max("\t;|,", key=alike)
    return found if alike(found) > (0.5, 1) else (SEPARATORS["whitespace"] if alike(r"\s+") > (0.5, 1) else ",")


def _check_rows(content: str, separator: str, name: str) -> tuple[list[str], list[int]]:
    """Return the fields of the first row, and the line of each; raise ValueError if rows are of unequal length."""
    reader, first = _rows(content, separator), None
    lines, odd = [], []
    try:
        for row in reader:
            # Blank lines are no rows, to pandas those of blanks and tabs.
            if len(row) > 1 or (row and row[0].strip(" \t")):
                first = row if first is None else first
                lines.append(reader.line_num)
                odd += [(reader.line_num, len(row))] if len(row) != len(first) else []
    except csv.Error as error:
        raise ValueError(f"{name}, line {reader.line_num}: {error}.") from None
    if first is None:
        raise ValueError(f"{name} has no rows: all its fields are empty.")
    if odd:
        shown = ", ".join(f"line {line} ({count})" for line, count in odd[:5]) + (", ..." if len(odd) > 5 else "")
        raise ValueError(
            f"{name} has rows of unequal length: {len(first)} fields in line {lines[0]}, but others in {shown}. "
            f"Correct them, or give another separator than {separator!r} with --sep."
        )
    return first, lines


def _is_number(field: str) -> bool:
    """Return whether a field is a number, with a decimal point or comma."""
    return isinstance(_value(field.strip().replace(",", "."), "."), float)


def _value(field: str, decimal: str) -> float | bool | str:
    """Return the number or Boolean that a field is by the rules of pandas, else the field."""
    if field in _BOOLEANS:
        return _BOOLEANS[field]
    # Python's own rules allow underscores and the digits of all scripts.
    if not field.isascii() or "_" in field or (decimal != "." and "." in field):
        return field
    try:
        return float(field.replace(decimal, "."))
    except ValueError:
        return field
