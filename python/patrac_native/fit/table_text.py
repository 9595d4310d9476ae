"""The text of a table: read once from a file, a pipe or standard input, and split into records with their lines."""

from __future__ import annotations

import csv
import os
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Separators in the order in which they are tried: a file with decimal commas has both semicolons and commas, one with
# quoted text both commas and spaces.
SEPARATORS = {"semicolon": ";", "tab": "\t", "comma": ",", "bar": "|", "whitespace": r"\s+"}
# Number of records from which the separator is found.
_SNIFFED = 200
# Number of records of another length that an error lists.
_LISTED = 10
_STDIN = "-"


@dataclass(frozen=True)
class TableText:
    """The records of a table: its lines without blank ones, comments and the byte-order mark.

    Attributes
    ----------
    name : str
        What the text was read from, for messages.
    records : list of str
        A quoted field with line breaks makes one record of several lines.
    lines : ndarray of int
        Line of the file in which each record begins, counted from 1.
    comments : int
        Number of lines left out because they begin with # and are no rows.
    """

    name: str
    records: list[str]
    lines: npt.NDArray[np.intp]
    comments: int


def name_of(path: str) -> str:
    """Return what a table is read from, in words: its path, or standard input."""
    return "standard input" if path == _STDIN else path


def check_readable(path: str, argument: str) -> None:
    """Raise OSError unless a path is a file, a pipe or "-", standard input."""
    if path == _STDIN:
        return
    if os.path.isdir(path):
        raise IsADirectoryError(f"{argument} must be a file of rows and columns; {path!r} is a folder.")
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path!r}.")


def read_text(path: str | os.PathLike[str]) -> TableText:
    """Read a text file, a pipe, or standard input for "-", and split it into records.

    Raises
    ------
    ValueError
        If it is empty or not UTF-8 text.
    OSError
        If it cannot be read.
    """
    target = os.fspath(path)
    name = name_of(target)
    if target == _STDIN:
        content = sys.stdin.buffer.read()
    else:
        with open(target, "rb") as stream:
            content = stream.read()
    if content.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise ValueError(f"{name} is not UTF-8 text but a workbook or an archive; save its table as CSV.")
    if content.startswith(b"\x1f\x8b"):
        raise ValueError(f"{name} is not UTF-8 text but compressed; read it through a pipe: gzip -dc {name} | ... -")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text ({error}); convert it to a text file first.") from error
    records, lines = _records(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    if not records:
        raise ValueError(f"{name} is empty.")
    return _without_comments(name, records, lines)


def _records(lines: list[str]) -> tuple[list[str], list[int]]:
    """Join lines whose quoted fields hold line breaks, without blank ones; return records and their first lines."""
    records: list[str] = []
    starts: list[int] = []
    open_from: int | None = None
    for number, line in enumerate(lines, start=1):
        if open_from is not None:
            records[-1] += "\n" + line
            if line.count('"') % 2:
                open_from = None
        elif line.strip():
            records.append(line)
            starts.append(number)
            if line.count('"') % 2:
                open_from = len(records) - 1
    if open_from is None:
        return records, starts
    # A quotation mark that is never closed is no quotation: inches, for example.
    first = starts[open_from]
    rest = [(number, line) for number, line in enumerate(lines[first - 1 :], start=first) if line.strip()]
    return records[:open_from] + [line for _, line in rest], starts[:open_from] + [number for number, _ in rest]


def _without_comments(name: str, records: list[str], lines: list[int]) -> TableText:
    """Leave out records that begin with #, unless they have as many fields as the rows.

    The last one before the rows then has names, and those among them are rows, such as of "#N/A" or an identifier "#1":
    a comment that looks like a row is better refused as one than a row is lost.
    """
    kept = [index for index, record in enumerate(records) if not record.lstrip().startswith("#")]
    if kept:
        widths = _widths(records[kept[0]])
        marked = [index for index in range(kept[0] + 1, len(records)) if records[index].lstrip().startswith("#")]
        rows = [i for i in marked if any(len(split(records[i], mark)) == width for mark, width in widths.items())]
        kept = sorted([*kept, *rows])
    if kept and kept[0] > 0:
        header, row = records[kept[0] - 1], records[kept[0]]
        if any(
            1 < len(split(header, separator)) == len(split(row, separator)) and not split(header, separator)[0] == "#"
            for separator in SEPARATORS.values()
            if separator != r"\s+"
        ):
            kept.insert(0, kept[0] - 1)
    if not kept:
        raise ValueError(f"{name} has only comments, lines that begin with #.")
    chosen = np.asarray(lines, dtype=np.intp)[kept]
    return TableText(name, [records[index] for index in kept], chosen, len(records) - len(kept))


def _widths(record: str) -> dict[str, int]:
    """Return the numbers of fields, at least two, into which separators split a record; whitespace if no other does."""
    widths = {mark: len(split(record, mark)) for mark in SEPARATORS.values()}
    others = {mark: width for mark, width in widths.items() if width > 1 and mark != SEPARATORS["whitespace"]}
    return others or {mark: width for mark, width in widths.items() if width > 1}


def named_separator(separator: str) -> str:
    """Return a separator given by name or as a character, in the notation of pandas."""
    if separator in SEPARATORS:
        return SEPARATORS[separator]
    if separator in (r"\t", r"\s+"):
        return "\t" if separator == r"\t" else separator
    if len(separator) != 1:
        raise ValueError(f"--sep must be one character or one of {', '.join(SEPARATORS)}; got {separator!r}.")
    return r"\s+" if separator == " " else separator


def find_separator(text: TableText) -> str:
    """Return the first separator that splits all of the first records, or most of them, into as many fields, >= 2.

    Raises
    ------
    ValueError
        If there is none.
    """
    records = text.records[:_SNIFFED]
    counts = {name: [len(split(record, separator)) for record in records] for name, separator in SEPARATORS.items()}
    for name, found in counts.items():
        if len(set(found)) == 1 and found[0] > 1:
            return SEPARATORS[name]
    # Some rows are ragged, which `check_rectangular` reports by line.
    usual = {name: Counter(found).most_common(1)[0] for name, found in counts.items()}
    best = max(usual, key=lambda name: (usual[name][0] > 1, usual[name][1]))
    if usual[best][0] > 1 and 2 * usual[best][1] > len(records):
        return SEPARATORS[best]
    seen = "; ".join(f"{name}: {min(c)} to {max(c)}" for name, c in counts.items() if max(c) > 1)
    raise ValueError(
        f"no separator splits the first {len(records)} lines of {text.name} into equally many fields, at least two "
        f"({seen or 'none occurs'}). Mend the rows, or give the separator with --sep."
    )


def check_rectangular(text: TableText, separator: str) -> None:
    """Raise ValueError if records have different numbers of fields; the message lists their lines."""
    counts = np.array([_count(record, separator) for record in text.records])
    wanted = int(counts[0])
    wrong = np.flatnonzero(counts != wanted)
    if not len(wrong):
        return
    if len(wrong) == len(counts) - 1 and len(set(counts[1:].tolist())) == 1:
        raise ValueError(
            f"the first line of {text.name} has {wanted} fields and every other {counts[1]}, with the separator "
            f"{separator!r}. Name each column in the first line, or give another separator with --sep."
        )
    listed = ", ".join(f"line {text.lines[index]} has {counts[index]}" for index in wrong[:_LISTED])
    more = f" and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else ""
    raise ValueError(
        f"{text.name} has {len(wrong)} of {len(counts)} rows that do not have the {wanted} fields of the first, with "
        f"the separator {separator!r}: {listed}{more}. Mend them (put text that holds the separator in quotation "
        "marks), or give another separator with --sep."
    )


def _count(record: str, separator: str) -> int:
    """Return the number of fields of a record."""
    if '"' in record or separator == r"\s+":
        return len(split(record, separator))
    return record.count(separator) + 1


def split(record: str, separator: str) -> list[str]:
    """Return the fields of a record."""
    if separator == r"\s+":
        return record.split()
    if '"' not in record:
        return [field.strip() for field in record.split(separator)]
    options: dict[str, Any] = {"delimiter": separator, "skipinitialspace": True}
    return [field.strip() for field in next(csv.reader(record.splitlines(keepends=True), **options))]
