"""Tables from files: separators, headers, compression, what is refused with its line, and random tables fitted."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import patrac_native as pn
from patrac_native.cli import fit, predict
from patrac_native.cli.main import _parser
from patrac_native.cli.table import Layout, TableFile
from patrac_native.fit.preprocessor import Preprocessor


def write(folder: Path, content: str | bytes, name: str = "t.csv") -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def frame_of(folder: Path, content: str | bytes, *, text: Any = (), name: str = "t.csv", **layout: Any) -> pd.DataFrame:
    return TableFile(write(folder, content, name), Layout(**layout)).frame(text)


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a,b,c\n1,2,x\n3,4,y\n", ","),
        ("a;b;c\n1;2;x\n3;4;y\n", ";"),
        ("a;b;c\n1,5;2,5;x\n3,5;4,5;y\n", ";"),
        ("a\tb\tc\n1\t2\tx\n3\t4\ty\n", "\t"),
        ("a|b|c\n1|2|x\n3|4|y\n", "|"),
        ("a  b c\n 1 2   x\n3 4 y \n", r"\s+"),
        ('a,b,c\n1,2,"x; y, z"\n3,4,"u; v, w"\n', ","),
        ('"a b",c\n1,2\n3,4\n', ","),
    ],
)
def test_separators_are_found(tmp_path: Path, text: str, separator: str) -> None:
    file = TableFile(write(tmp_path, text), Layout())
    assert file.layout.sep == separator and file.layout.header and file.frame(()).shape[0] == 2
    named = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", r"\s+": "whitespace"}[separator]
    assert TableFile(write(tmp_path, text), Layout(sep=named)).names == file.names


def test_rows_have_the_lines_of_the_file(tmp_path: Path) -> None:
    frame = frame_of(tmp_path, 'a,b\n1,"x\ny"\n\n2,z\n   \n3,w\n')
    assert frame.index.name == "line" and frame.index.tolist() == [3, 5, 7]
    assert frame["b"].tolist() == ["x\ny", "z", "w"]


def test_values_are_read_as_they_are_written(tmp_path: Path) -> None:
    """Commas are no thousands; blanks around text do not count; a field may hold any character; codes stay codes."""
    content = "id\tn\tc\td\n007\t0,512\t a \t1.5\n7\t1,024\ta\u2028b\t ?\n1E5\t2,5\ta\tNA\n"
    frame = frame_of(tmp_path, content, text=["id"])
    assert frame["id"].tolist() == ["007", "7", "1E5"]
    assert frame["n"].tolist() == ["0,512", "1,024", "2,5"]
    assert frame["c"].tolist() == ["a", "a\u2028b", "a"]
    assert frame["d"].isna().tolist() == [False, True, True] and frame["d"].dtype == np.float64
    assert frame_of(tmp_path, content, decimal=",")["n"].tolist() == [0.512, 1.024, 2.5]
    assert frame_of(tmp_path, "a,b\n1,-\n2,3\n", missing=["-"])["b"].isna().tolist() == [True, False]
    assert frame_of(tmp_path, 'a,b\n1,"  "\n2,x\n')["b"].isna().tolist() == [True, False]


def test_blanks_are_no_part_of_any_field(tmp_path: Path) -> None:
    """A missing mark, a number or a Boolean with blanks around it, in quotes or not, is what it is without them."""
    content = 'm,n,b,c\n1,"5 "," TRUE ",x\n"? ","+6", false , NA \n3,"1e1 ",,"y "\n'
    frame = frame_of(tmp_path, content)
    assert frame["m"].tolist()[::2] == [1, 3] and frame["m"].isna().tolist() == [False, True, False]
    assert frame["n"].tolist() == [5, 6, 10] and frame["b"].tolist()[:2] == [True, False]
    assert frame["c"].tolist() == ["x", "NA", "y"]  # a word beside other text, as a missing number elsewhere
    assert frame_of(tmp_path, content, text=["m"])["m"].tolist()[::2] == ["1", "3"]
    decimal = frame_of(tmp_path, 'a;b\n"0,5 ";x\n1;y\n', decimal=",")["a"]
    assert decimal.tolist() == [0.5, 1.0] and frame_of(tmp_path, 'a;b\n"0,5 ";x\n1.5;y\n', decimal=",")["a"][2] == "0,5"


def test_words_such_as_none_are_missing_in_numbers_and_values_in_text(tmp_path: Path) -> None:
    """A garage of the kind None was a missing value, and a whole table was refused for it."""
    content = "n,c,code,day\n1,None,1,01.02.2020\nNA,NA,null,NA\nnull,brick,3,02.02.2020\n,,NaN,\n"
    file = TableFile(write(tmp_path, content), Layout())
    frame = file.frame({"code": None, "day": ()}).fillna({"c": "", "code": "", "day": ""})
    assert frame["n"].isna().tolist() == [False, True, True, True]
    assert frame["c"].tolist() == ["None", "NA", "brick", ""]
    # Codes are numbers, and dates are no words, though both are kept as they are written.
    assert frame["code"].tolist() == ["1", "", "3", ""] and frame["day"].tolist()[1:4:2] == ["", ""]
    assert frame_of(tmp_path, content, missing=["None"])["c"].isna().tolist() == [True, False, False, True]
    # The categories of the fit say what a word is in new rows, where it may stand alone.
    alone = TableFile(write(tmp_path, "c,code\nNA,NA\n"), Layout()).frame({"c": ("NA", "brick"), "code": ("1", "3")})
    assert alone["c"].tolist() == ["NA"] and alone["code"].isna().all()


def test_numbers_of_rows_may_have_gaps() -> None:
    """Rows that were left out of a table leave gaps in their numbers, which were then inputs."""
    rows = np.arange(1, 101)
    for numbering in (rows, rows - 1, rows.astype(float), np.delete(np.arange(1, 104), [0, 50, 77])):
        assert fit._numbers_rows(pd.Series(numbering))
    gap, swapped = np.where(rows > 50, rows + 20, rows), np.r_[rows[1], rows[0], rows[2:]]
    for other in (
        rows + 1950,
        gap,
        swapped,
        rows + 0.5,
        rows // 2,
        rows > 50,
        np.where(rows > 4, rows, np.nan),
        rows - 5,
    ):
        assert not fit._numbers_rows(pd.Series(other))


HUGE = "123456789012345678901234567890"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("TRUE", 1.0), ("false", 0.0), ("007", 7.0), ("1E1", 10.0), (HUGE, float(HUGE)),
        ("12345678901234567", 1.2345678901234568e16),
        ("0.1234567890123456789", 0.12345678901234568), ("1e400", np.inf), ("?", np.nan), ("NA ", np.nan),
        ("yes", None), ("1_000", None), ("\u0661", None), ("0x10", None), ("1,5", None), ("$5", None), ("5%", None),
    ],
)  # fmt: skip
def test_a_field_of_a_column_of_numbers_is_what_it_is_alone(field: str, value: float | None, tmp_path: Path) -> None:
    """As the fit has numbers there: beside any other number, Boolean or missing value, and never a traceback."""
    for others in ([], ["3"], ["1.5"], ["TRUE"], [""], [HUGE], ["2", "FALSE", "1e-3"]):
        rows = "".join(f'1,"{one}"\n' for one in (field, *others))
        read = frame_of(tmp_path, f"x,c\n{rows}")["c"] if value is None else None
        numbers = TableFile(write(tmp_path, f"x,c\n{rows}"), Layout()).frame((), ["c"])["c"]
        if value is None:
            assert numbers[2] == field and read is not None and read[2] == field
        else:
            np.testing.assert_equal(float(numbers[2]), value)
    with pytest.raises(
        ValueError, match=r"'c' holds number in the training rows, and now text such as '\$5' at line 3"
    ):
        made = Preprocessor.fit(pd.DataFrame({"c": [1.0, 2.0]}))
        made.transform(TableFile(write(tmp_path, f"c\n{HUGE}\n$5\n"), Layout()).frame((), ["c"]))


@pytest.mark.parametrize(
    ("content", "layout", "message"),
    [
        ("c\nTRUE\n2\nmaybe\n\nFALSE\n", {}, r"now text such as 'maybe' at line 4; give it the same type"),
        ("c;d\n0,5;x\n1.234;x\n3;x\n", {"decimal": ","}, r"now text such as '1\.234' at line 3; give"),
        ("c\n1\n1,5\n2\n2,5\n", {"sep": ";"}, r"now text such as '1,5' at lines 3, 5; give"),
    ],
)
def test_only_the_fields_that_are_no_numbers_are_blamed(
    content: str, layout: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """TRUE and 0,5 were blamed as well, which the fit had in this column."""
    frame = TableFile(write(tmp_path, content), Layout(**layout)).frame((), ["c"])
    with pytest.raises(ValueError, match=rf"^column 'c' holds number in the training rows, and {message}"):
        Preprocessor.fit(pd.DataFrame({"c": [1.0, 2.0]})).transform(frame[["c"]])


def test_headers(tmp_path: Path) -> None:
    content = "M,0.5,15\nF,0.25,7\n"
    with pytest.raises(ValueError, match=r"the first line of .* looks like data, .* \(M, 0.5, 15\); give --no-header"):
        TableFile(write(tmp_path, content), Layout())
    assert TableFile(write(tmp_path, content), Layout(header=True)).names == ["M", "0.5", "15"]
    file = TableFile(write(tmp_path, content), Layout(header=False))
    assert file.names == ["0", "1", "2"] and file.frame(()).shape == (2, 3)
    named = TableFile(write(tmp_path, content), Layout(header=False), lambda count: list("xyz")[:count])
    assert named.frame(()).columns.tolist() == ["x", "y", "z"]
    assert TableFile(write(tmp_path, ",b\n0,x\n1,y\n"), Layout()).names == ["Unnamed: 0", "b"]


def test_columns_are_found_by_name_before_number(tmp_path: Path) -> None:
    file = TableFile(write(tmp_path, "b,0,c\n1,2,3\n"), Layout(header=True))
    assert [file.column(given, "target") for given in ("c", "0", "1", "-1")] == ["c", "0", "0", "c"]
    with pytest.raises(ValueError, match=r"drop names '3', and the columns of .*t.csv are b, 0, c"):
        file.column("3", "drop")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"a,b\n", "has names of columns but no rows"),
        (b"a,b\n1,2\n3\n4,5,6\n", r"2 fields in line 1, but others in line 3 \(1\), line 4 \(3\). Correct them"),
        (b'a,b\n1,"2\n3,4\n', "line 3: unexpected end of data"),
        (b"a,b,a\n1,2,3\n", "has two columns named 'a'; rename one"),
        (b"a,b\n1,\xff\n", r"is no UTF-8 text \(line 2\); save it as CSV in UTF-8"),
        ("a,é\n1,2\n".encode("latin-1"), r"is no UTF-8 text \(line 1\); save it as CSV in UTF-8"),
        ("a,é\n1,2\n".encode("utf-16")[:-1], r"is no UTF-16 text \(line \d\); save it as CSV in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "is a binary file"),
        ("a,b\n1,2\n".encode("utf-32"), "is a binary file"),
        (b"a,b\n1,\0\n", "is a binary file"),
        (b"a,b\n1," + b"x" * 200_000 + b"\n", "line 2: field larger than field limit"),
    ],
)
def test_what_is_no_table_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        TableFile(write(tmp_path, content), Layout())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_field_stays_in_its_column_after_a_blank_line(end: str, tmp_path: Path) -> None:
    file = TableFile(write(tmp_path, end.join(["a,b", "1,2", "", ",5", "6,7"])), Layout())
    frame = file.frame([])
    np.testing.assert_array_equal(frame[["a", "b"]], [[1, 2], [np.nan, 5], [6, 7]])
    assert frame.index.tolist() == [2, 4, 5]


def test_rows_that_pandas_counts_otherwise_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^\S+t\.csv has 3 rows to pandas, but 2 to the module csv: a line of blanks"):
        frame_of(tmp_path, 'a\n" "\n1\n2\n', header=True)


@pytest.mark.parametrize("given", ["xx", "", "x", "1", '"', "\n", "\0", "\xe9"])
@pytest.mark.parametrize("what", ["sep", "decimal"])
def test_what_is_no_mark_is_refused(what: str, given: str) -> None:
    with pytest.raises(ValueError, match=rf"^{what} must be one character that is no letter, digit or quote; got"):
        Layout(**{what: given})


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TableFile(str(tmp_path / "absent.csv"), Layout())
    with pytest.raises(IsADirectoryError):
        TableFile(str(tmp_path), Layout())


def test_compressed_files_are_read_by_their_name(tmp_path: Path) -> None:
    content = b"a,b\n1,x\n2,y\n"
    for ending, packed in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)):
        assert frame_of(tmp_path, packed(content), name=f"t.csv{ending}")["a"].tolist() == [1, 2]
        with pytest.raises((ValueError, OSError), match=r"cannot be decompressed|Invalid data stream"):
            TableFile(write(tmp_path, content, f"u.csv{ending}"), Layout())
    for names in (["t.csv"], ["t.csv", "u.csv"]):
        packed_files = io.BytesIO()
        with zipfile.ZipFile(packed_files, "w") as archive:
            for name in names:
                archive.writestr(name, content)
        path = write(tmp_path, packed_files.getvalue(), "t.zip")
        if len(names) == 1:
            assert TableFile(path, Layout()).frame(())["b"].tolist() == ["x", "y"]
        else:
            with pytest.raises(ValueError, match="holds 2 files; give an archive of one"):
                TableFile(path, Layout())


def test_other_formats_keep_their_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.DataFrame({"x": [1.5, 2.5], "c": ["007", "7"], "t": pd.to_datetime(["2020-01-01", "2021-01-01"])})
    path = str(tmp_path / "t.parquet")
    table.to_parquet(path)
    file = TableFile(path, Layout())
    pd.testing.assert_frame_equal(file.frame(["x"]), table)
    assert file.names == ["x", "c", "t"]
    monkeypatch.setattr(pd, "read_parquet", lambda path: (_ for _ in ()).throw(ImportError("no engine")))
    with pytest.raises(ValueError, match=r"t.parquet needs another package: no engine"):
        TableFile(path, Layout())


def test_labels_of_mixed_types_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sheet has cells of numbers beside cells of text."""
    table = pd.DataFrame({"x": np.arange(30) % 7 + 0.5, "y": [[1, "a", 2.5][row % 3] for row in range(30)]})
    path = tmp_path / "t.xlsx"
    path.touch()
    monkeypatch.setattr(pd, "read_excel", lambda path, **options: table)
    found = []

    def spied(classifier: Any, X: Any, y: Any, **named: Any) -> None:
        found.append({*y, *named["held_out"][1]})
        raise ValueError("seen")

    monkeypatch.setattr(pn.PatracClassifier, "fit", spied)
    args = _parser(["fit"]).parse_args(["fit", str(path), "--target", "y", "--out", str(tmp_path / "out")])
    with pytest.raises(ValueError, match="seen"):
        fit.run(args)
    assert found == [{"1", "a", "2.5"}]


WRITERS: dict[str, Callable[[pd.DataFrame, str], object]] = {
    ".parquet": lambda frame, path: frame.to_parquet(path),
    ".feather": lambda frame, path: frame.to_feather(path),
    ".orc": lambda frame, path: frame.to_orc(path),
    ".xlsx": lambda frame, path: frame.to_excel(path, index=False),
    ".ods": lambda frame, path: frame.to_excel(path, index=False),
    ".dta": lambda frame, path: frame.to_stata(path, write_index=False),
}


@pytest.mark.parametrize("ending", WRITERS)
def test_rows_of_other_formats_are_predicted_alone_as_together(ending: str, tmp_path: Path) -> None:
    rng, codes = np.random.default_rng(0), [["007", "7", "e"][row % 3] for row in range(30)]
    table = pd.DataFrame({"x": rng.normal(size=30), "n": np.arange(30) % 7, "code": codes})
    table["y"] = table["x"] + rng.normal(size=30)

    def written(rows: pd.DataFrame, name: str) -> str:
        WRITERS[ending](rows.reset_index(drop=True), str(tmp_path / f"{name}{ending}"))
        return str(tmp_path / f"{name}{ending}")

    try:
        path = written(table, "t")
    except ImportError:
        pytest.skip(f"no engine for {ending}")
    args = _parser(["fit"]).parse_args(["fit", path, "--target", "y", "--noise-variance", "1", *TINY.split()])
    file, estimator, frame, targets, task = fit.rows_of(args)
    target = targets["target"]
    estimator.set_params(verbose=False)
    with pn.Note.collect():
        X, of_rows = frame.drop(columns=target), fit.target_values(frame, targets, task)
        estimator.fit(X, **of_rows, held_out=(X, *of_rows.values()))
    together = estimator.predict(predict.rows_of(file, estimator, [target]).drop(columns=target))
    for row in range(len(table)):
        alone = TableFile(written(table[row : row + 1], "one"), file.layout)
        rows = predict.rows_of(alone, estimator, [target]).drop(columns=target)
        np.testing.assert_array_equal(estimator.predict(rows), together[row : row + 1])


OTHERS = [".parquet", ".feather", ".orc", ".xlsx", ".xls", ".ods", ".dta", ".sas7bdat", ".sav"]


@pytest.mark.parametrize("ending", OTHERS)
def test_other_formats_that_cannot_be_read_are_named(ending: str, tmp_path: Path) -> None:
    path = write(tmp_path, "a,b\n1,2\n", f"t{ending}")
    with pytest.raises(ValueError, match=rf"t{ending} (needs another package|cannot be read by pandas\.read_\w+): "):
        TableFile(path, Layout())


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\ufeffa,b\n01,x\n2,y\n".encode())))
    file = TableFile("-", Layout())
    assert file.frame(())["a"].tolist() == [1, 2] and file.frame(["a"])["a"].tolist() == ["01", "2"]


def test_whitespace_files_of_the_uci_collection(data_dir: Path) -> None:
    frame = TableFile(str(data_dir / "uci" / "yacht" / "data.txt"), Layout(header=False)).frame(())
    assert frame.shape == (308, 7) and frame.to_numpy().dtype == np.float64 and frame.iloc[0, 6] == 0.11
    abalone = TableFile(str(data_dir / "abalone" / "abalone.data"), Layout(header=False)).frame(())
    assert abalone.shape == (4177, 9) and abalone["0"].value_counts().to_dict() == {"M": 1528, "I": 1342, "F": 1307}


@pytest.mark.slow
def test_ten_thousand_columns_of_a_file_take_seconds(tmp_path: Path) -> None:
    cells = np.random.default_rng(0).normal(size=(500, 10_000)).round(3).astype(str)
    header = ",".join(f"c{column}" for column in range(10_000))
    path = write(tmp_path, "\n".join([header, *map(",".join, cells.tolist())]))
    clock = time.process_time()
    file = TableFile(path, Layout())
    frame = file.frame(())
    assert not any(fit._numbers_rows(frame[name]) for name in file.names)
    made = Preprocessor.fit(frame)
    made.transform(file.frame(made.text_columns, made.table_columns))
    assert time.process_time() - clock < 10


FIELDS = st.sampled_from(
    [
        ["1E1", "10", "A1", "B2"],
        ["007", "7", "0712", "x"],
        ["1.10", "1.1", "2.5", "-3"],
        ["TRUE", "FALSE"],
        ["TRUE ", "0", "1 ", "NA "],
        ["TRUE", "FALSE", "", "maybe"],
        ["0,5", "1,5", "a b", 'say "x"', " a b"],
        ["NA", "x", "?", "y", "  "],
        ["1", "2", "NA", "?", "3e300", "12345678901234567"],
        ["2020-01-01", "1999-12-31", "0099-01-01"],
        ["\u2028", "a\u2028b", "\xa0", "é"],
    ]
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from([",", ";", "\t", "|"]))
def test_rows_of_random_files_are_read_alone_as_together(
    tmp_path_factory: pytest.TempPathFactory, data: Any, separator: str
) -> None:
    """What a row becomes does not depend on the other rows of its file, to the bit, where the table is accepted."""
    folder, rows = tmp_path_factory.mktemp("files"), data.draw(st.integers(2, 8))
    fields = [data.draw(FIELDS) for _ in range(3)]
    table = [[data.draw(st.sampled_from(field)) for field in fields] for _ in range(rows)]

    def written(part: list[list[str]]) -> str:
        with open(folder / "t.csv", "w", newline="", encoding="utf-8") as stream:
            csv.writer(stream, delimiter=separator).writerows([["a", "b", "c", "n"], *part])
        return str(folder / "t.csv")

    table = [[*row, str(number)] for number, row in enumerate(table)]
    file = TableFile(written(table), Layout(sep=separator))
    try:
        made = Preprocessor.fit(file.frame(()), impute="mean", indicator=True)
    except ValueError as error:
        assert any(part in str(error) for part in ("has no values", "no column is left", "numbers with a comma"))
        return
    names = made.table_columns
    inputs = made.transform(file.frame(made.text_columns, names))
    assert np.array_equal(made.transform(file.frame(())), inputs)
    for number, row in enumerate(table):
        alone = TableFile(written([row]), file.layout)
        assert np.array_equal(made.transform(alone.frame(made.text_columns, names)), inputs[[number]])


NAMES = [
    "a",
    "b c",
    "1",
    "-3",
    "\u00e4 \u798f",
    "=x",
    "None",
    'say "x"',
    "p,q;r|s",
    "Unnamed: 0",
    "mean",
    "to_pandas",
    "",
]
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16"]


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("t.csv", content)
    return stream.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zip": zipped,
}
# Smallest fits: these tests are about what becomes of the rows, not about how well they are fitted.
TINY = "--hidden-layer-sizes 3 --max-iter 2 --l2 1 --validation-fraction 0 --chains 1 --draws 20 --thin 1 --warmup 2"
TINY += " --n-jobs 1 --architecture full --prior gaussian --networks 1 --impute mean --missing-indicator"


@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_random_tables_are_fitted_and_predicted_row_by_row_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    """Types, encodings, separators, missing marks and names: a row alone, the whole table and the fit agree.

    The rows are read as `patrac fit` and `patrac predict` read them. What is compared are the inputs and all that the
    command writes of a prediction.
    """
    folder, draw = tmp_path_factory.mktemp("tables"), data.draw
    count, rows = draw(st.integers(1, 3)), draw(st.integers(12, 16))
    # pandas gives a column without a name that of its position.
    unlike = st.lists(
        st.sampled_from(NAMES), min_size=count, max_size=count, unique_by=lambda name: name or "Unnamed: 0"
    )
    names = [*draw(unlike), "x", "y"]
    mark, decimal = draw(st.sampled_from(["?", "-", "n.a.", "-999"])), draw(st.sampled_from([".", ","]))
    fields = [draw(FIELDS) + [mark, ""][: draw(st.integers(0, 2))] for _ in range(count)]
    numbers = [f"{0.37 * row:.2f}".replace(".", decimal) for row in range(1, rows + 1)]
    of_classes = draw(st.booleans())
    targets = [("007", "7", "1E1")[row % 3] for row in range(rows)] if of_classes else numbers
    cells = [draw(st.lists(st.sampled_from(one), min_size=rows, max_size=rows)) for one in fields]
    table = [list(row) for row in zip(*cells, numbers[::-1], targets, strict=True)]
    separator, encoding = draw(st.sampled_from([*",;\t| ", "whitespace"])), draw(st.sampled_from(ENCODINGS))
    header, ending, packed = (
        draw(st.booleans()),
        draw(st.sampled_from(["\n", "\r\n"])),
        draw(st.sampled_from([*PACKED])),
    )
    new = str(folder / f"new.csv{packed}")

    def written(path: str, part: list[list[str]]) -> str:
        stream, blank = io.StringIO(newline=""), separator in (" ", "whitespace")
        quoting = csv.QUOTE_ALL if blank else csv.QUOTE_MINIMAL
        writer = csv.writer(stream, delimiter=" " if blank else separator, lineterminator=ending, quoting=quoting)
        writer.writerows([*([names] if header else []), *part])
        Path(path).write_bytes(PACKED[packed](stream.getvalue().encode(encoding)))
        return path

    options = ["--header" if header else "--no-header", "--sep", separator, "--decimal", decimal, f"--missing={mark}"]
    options += ["--task", "classification"] if of_classes else ["--noise-variance", "1"]
    path = written(str(folder / f"t.csv{packed}"), table)
    args = _parser(["fit"]).parse_args(["fit", path, "--target", "y" if header else "-1", *options, *TINY.split()])
    file, estimator, frame, targets, task = fit.rows_of(args)
    target = targets["target"]
    estimator.set_params(verbose=False)
    X, y = frame.drop(columns=target), fit.target_values(frame, targets, task)["y"]
    try:
        with pn.Note.collect():
            estimator.fit(X, y, held_out=(X, y))
    except ValueError as error:
        assert any(part in str(error) for part in ("has no values", "numbers with a comma", "some of which are equal"))
        return

    def predicted(frame: pd.DataFrame) -> list[Any]:
        X = frame.drop(columns=target, errors="ignore")
        inputs, remarks = estimator.preprocessor_.transform(X), estimator.preprocessor_.remarks(X)
        if of_classes:
            return [inputs, remarks, estimator.predict_proba(X), *estimator.predict_uncertainty(X)]
        intervals = estimator.predict_interval(X, 0.9)
        return [inputs, remarks, *estimator.predict(X, return_std=True), *intervals, *estimator.predict_uncertainty(X)]

    together = predicted(frame)
    whole = predict.rows_of(TableFile(path, file.layout, lambda count: file.names), estimator, [target])
    for one, other in zip(predicted(whole), together, strict=True):
        np.testing.assert_array_equal(one, other)
    for number, row in enumerate(table):
        alone = TableFile(written(new, [row]), file.layout, lambda count: file.names)
        for one, other in zip(predicted(predict.rows_of(alone, estimator, [target])), together, strict=True):
            np.testing.assert_array_equal(one, other[number : number + 1])
