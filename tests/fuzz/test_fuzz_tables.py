"""Tables: damaged files of every kind, and text that is nearly a table."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fuzzing import Edit, damaged, edits, fuzz
from hypothesis import example, given
from hypothesis import strategies as st

from patrac_native.cli.table import WORDS, Layout, TableFile
from patrac_native.fit.preprocessor import Preprocessor

CSV = b'a,b c,"d,e",f\n1,x,2020-01-01,0.5\n2,"y ""z""",1999-12-31,NA\n-3e2,,2001-02-03,?\n4,x,2002-03-04,TRUE\n'


def frame() -> pd.DataFrame:
    return pd.DataFrame({"a": [1.0, 2, np.nan, 4], "b": list("xyzx"), "c": pd.date_range("2020", periods=4)})


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.csv", content)
    return stream.getvalue()


@cache
def whole(ending: str) -> bytes:
    """The bytes of a good file."""
    packed = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zip": zipped}
    if ending.removeprefix(".csv") in packed:
        return packed[ending.removeprefix(".csv")](CSV)
    stream = io.BytesIO()
    if ending == ".dta":
        frame().to_stata(stream)
    else:
        getattr(frame(), {".xlsx": "to_excel", ".parquet": "to_parquet", ".feather": "to_feather"}[ending])(stream)
    return stream.getvalue()


def read(path: Path, layout: Layout) -> None:
    """Read a file as `patrac fit` does; it is refused with its name, or gives rows that the preprocessor takes."""
    path.stat()
    try:
        file = TableFile(str(path), layout)
        rows = file.frame(())
    except (ValueError, OSError, MemoryError) as error:
        assert path.name in str(error), repr(error)
        return
    assert [str(name) for name in rows.columns] == file.names and len(rows)
    try:
        made = Preprocessor.fit(rows, impute="mean", indicator=True)
        inputs = made.transform(file.frame(made.text_columns, made.table_columns))
    except ValueError:  # names a column
        return
    assert len(inputs) == len(rows) and np.isfinite(inputs).all()


LAYOUTS = st.sampled_from(
    [Layout(), Layout(header=True), Layout(header=False), Layout(decimal=",", header=True), Layout(sep="whitespace")]
)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".csv.bz2", ".csv.xz", ".csv.zip"])
@fuzz()
@example(changes=[("replace", 0.25, b"\0")], layout=Layout())  # zlib has an exception of its own
@example(changes=[("replace", 0.0, b"\0")], layout=Layout())
@example(changes=[("delete", 0.0, b"\0")], layout=Layout())
@given(changes=edits(), layout=LAYOUTS)
def test_damaged_text(ending: str, changes: list[Edit], layout: Layout, tmp_path: Path) -> None:
    path = tmp_path / f"damaged{ending}"
    path.write_bytes(damaged(whole(ending), changes))
    read(path, layout)


@pytest.mark.parametrize("ending", [".xlsx", ".parquet", ".feather", ".dta"])
@fuzz(10)
@given(changes=edits())
def test_damaged_files_of_other_formats(ending: str, changes: list[Edit], tmp_path: Path) -> None:
    pytest.importorskip({".xlsx": "openpyxl", ".dta": "pandas"}.get(ending, "pyarrow"))
    path = tmp_path / f"damaged{ending}"
    path.write_bytes(damaged(whole(ending), changes))
    read(path, Layout())


CELLS = st.one_of(
    st.sampled_from(
        ["", "1", "-2.5", "1e400", "0x10", "1_0", "NA", "nan", "inf", "-Infinity", "TRUE", "yes", "?", '"']
    ),
    st.sampled_from(["2020-01-01", "31.12.1999", "9999-99-99", "99999999999999999999", "\u0661", "\xa0", "'", "a\rb"]),
    st.text(max_size=6),
    st.floats().map(repr),
)


@fuzz(100)
@example(rows=[["a"], ["1"]], separator=",", end="\r", layout=Layout(header=True))
@example(rows=[['""']], separator=",", end="\n", layout=Layout())  # not empty, but without a row
@example(rows=[["", ""], ["\xa0"]], separator=",", end="\n", layout=Layout(header=False))  # no blank line to pandas
@example(rows=[["a", "b"], ["1\xa0", "2"]], separator=" ", end="\n", layout=Layout(sep="whitespace"))
@example(rows=[[], ["", ""], ["", ""]], separator=",", end="\r", layout=Layout())  # pandas alone finds no row
@example(rows=[["a", "b"], ["1", "2"], [], ["", "5"]], separator=",", end="\r", layout=Layout())
@given(
    rows=st.lists(st.lists(CELLS, max_size=5), max_size=8),
    separator=st.sampled_from([",", ";", "\t", "|", " "]),
    end=st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
    layout=LAYOUTS,
)
def test_text_that_is_nearly_a_table(
    rows: list[list[str]], separator: str, end: str, layout: Layout, tmp_path: Path
) -> None:
    """What is read as text is what the module csv reads, in each row and column."""
    path = tmp_path / "text.csv"
    text = end.join(separator.join(row) for row in rows)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    read(path, layout)
    try:
        file = TableFile(str(path), layout)
        frame = file.frame(file.names)
    except ValueError:
        return
    if file.layout.sep == r"\s+":  # a run of blanks is one separator, which csv does not know
        return
    content = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=file.layout.sep, skipinitialspace=True, strict=True)
    fields = [row for row in reader if len(row) > 1 or (row and row[0].strip(" \t"))][bool(file.layout.header) :]
    assert len(fields) == len(frame)
    for row, found in zip(fields, frame.itertuples(index=False), strict=True):
        for field, value in zip(map(str.strip, row), found, strict=True):
            is_missing = field in {"", *layout.missing}
            assert pd.isna(value) if is_missing or (field in WORDS and pd.isna(value)) else value == field
