"""Tables as people have them: comments, ragged rows, indices, amounts, dates, marks of missing values, extremes."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from patrac_native.fit.dates import date_layout, days
from patrac_native.fit.moments import extremes
from patrac_native.fit.number_columns import check_same_units, read_numbers
from patrac_native.fit.preprocessing import Preprocessor
from patrac_native.fit.problems import Problems
from patrac_native.fit.tables import find_column, read_table
from patrac_native.fit.target_column import guess_task


def read(tmp_path: Path, text: str, **options: Any) -> tuple[pd.DataFrame, tuple[str, ...]]:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    frame, table = read_table(path, **options)
    return frame, table.notes


def test_ragged_rows_are_listed_by_line(tmp_path: Path) -> None:
    rows = ["a,b,c", "# note", "", *["1,2,3"] * 6, "1,2", *["1,2,3"] * 3, "1,2,3,4", '"x,y",2,3']
    with pytest.raises(
        ValueError,
        match=r"t\.csv has 2 of 13 rows that do not have the 3 fields.*',': line 10 has 2, line 14 has 4\. Mend",
    ):
        read(tmp_path, "\n".join(rows))
    with pytest.raises(ValueError, match=r"the first line of .* has 2 fields and every other 3"):
        read(tmp_path, "a,b\nx,1,2\ny,3,4\n")


def test_comments_and_blank_lines_are_left_out_and_lines_still_count(tmp_path: Path) -> None:
    frame, notes = read(tmp_path, "# made by hand\n# 2024\na,b\n1,2\n\n# half\n3,4\n")
    assert frame["a"].tolist() == [1, 3] and frame.index.tolist() == [4, 7]
    assert notes == ("3 lines that begin with # left out",)
    # A first line that begins with # and has the fields of the rows holds names.
    frame, _ = read(tmp_path, "#id,b\n7,2\n8,4\n")
    assert list(frame.columns) == ["#id", "b"]
    with pytest.raises(ValueError, match="has only comments"):
        read(tmp_path, "# a\n# b\n")


@pytest.mark.parametrize("mark", ["#1 seller", "#N/A", "# 7"])
def test_rows_that_begin_with_a_hash_are_rows(mark: str, tmp_path: Path) -> None:
    """They have the fields of the others; a row that is lost would part predictions from their rows."""
    frame, notes = read(tmp_path, f"product,x\nplain,1\n{mark},2\n# half, or so, of them\nplain,3\n")
    assert frame["x"].tolist() == [1, 2, 3] and frame.index.tolist() == [2, 3, 5]
    assert frame["product"].tolist()[::2] == ["plain", "plain"]
    assert notes == ("1 line that begins with # left out",)
    everywhere, notes = read(tmp_path, "".join(["product,x\n", *(f"{mark},{row}\n" for row in range(3))]))
    assert everywhere["x"].tolist() == [0, 1, 2] and notes == ()
    # In a table of whitespace, too, what has the fields of the rows is one, and is refused if it is none.
    with pytest.raises(ValueError, match=r"column 'a' .*line 3"):
        Preprocessor.fit(read(tmp_path, "a b y\n1 2 3\n# made by\n4 5 6\n7 8 9\n")[0], "y", task="regression")


def test_a_table_of_new_rows_may_have_one_column(tmp_path: Path) -> None:
    frame, _ = read(tmp_path, "x\n1\n2\n", separator="comma", least_columns=1)
    assert frame["x"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="has one column with the separator"):
        read(tmp_path, "x\n1\n2\n", separator="comma")


def test_the_index_of_pandas_is_left_out(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [0.5, 1.5, 2.5], "b": ["x", "y", "z"]}, index=[4, 0, 9])
    read_back, notes = read(tmp_path, frame.to_csv())
    assert list(read_back.columns) == ["a", "b"] and "numbers the rows, as an index of pandas does" in notes[0]
    # Numbers count the columns of the file, so that they mean what they meant without the note.
    assert [find_column(read_back, number) for number in ("1", "2", "-1")] == ["a", "b", "b"]
    assert find_column(read_back, "0", "--drop") == ""
    with pytest.raises(
        ValueError, match="--target 0 is the column '', which numbers the rows or is empty and was left"
    ):
        find_column(read_back, "0")
    # A first column without a name that holds something else is a column.
    other, notes = read(
        tmp_path, pd.DataFrame({"": [0.5, 0.5, 1.0], "a": [1, 2, 3], "b": [4, 5, 6]}).to_csv(index=False)
    )
    assert list(other.columns) == ["", "a", "b"] and not notes


def test_marks_of_missing_values_count_beside_numbers_only(tmp_path: Path) -> None:
    frame, notes = read(tmp_path, "a,sign,c\n1.5,+,-\n-,-,2\nn.a.,+,3\n2.5,-,#N/A\n")
    assert np.array_equal(frame["a"], [1.5, np.nan, np.nan, 2.5], equal_nan=True)
    assert frame["sign"].tolist() == ["+", "-", "+", "-"]
    assert np.array_equal(frame["c"], [np.nan, 2, 3, np.nan], equal_nan=True)
    assert notes[0] == "column 'a': 2 entries '-', 'n.a.' count as missing"


@pytest.mark.parametrize(
    ("entries", "values"),
    [
        (["$1,234.50", "$12", "-$3.25", "($7)"], [1234.5, 12, -3.25, -7]),
        (["1,234", "1,234,567", "12", "3"], [1234, 1234567, 12, 3]),
        (["45%", "7.5 %", "100%", "-2%"], [45, 7.5, 100, -2]),
        (["€ 5", "6 €", "7.25 €", "EUR 8"], [5, 6, 7.25, 8]),
        (["€ 5", "6 €", "7.25 €", "USD 8"], None),
        (["USD 5", "6 usd", "7", "8"], [5, 6, 7, 8]),
        (["12 PLN", "PLN 1,250.50"], [12, 1250.5]),
        (["1 234", "5 678", "12", "3"], [1234, 5678, 12, 3]),
        (["12345678901234567890123", "2", "3", "4"], [12345678901234567890123.0, 2, 3, 4]),
    ],
)
def test_amounts_are_numbers(tmp_path: Path, entries: list[str], values: list[float] | None) -> None:
    text = "price,b\n" + "".join(f'"{entry}",{row}\n' for row, entry in enumerate(entries))
    if values is None:
        with pytest.raises(
            ValueError, match=r"column 'price' holds amounts in several units \(EUR, USD\); convert them"
        ):
            read(tmp_path, text)
        return
    frame, _ = read(tmp_path, text)
    np.testing.assert_allclose(frame["price"], values, rtol=1e-15)


@pytest.mark.parametrize(
    ("fitted", "new", "problem"),
    [
        ("$", "$", None),
        ("$", "", None),
        ("", "$", None),
        ("$", "USD", None),
        ("%", "%", None),
        ("$", "EUR", "column 'price' holds amounts in EUR, and in the fitted table amounts in $; convert them"),
        ("USD", "CAD", "column 'price' holds amounts in CAD, and in the fitted table amounts in USD; convert them"),
        ("%", "", "column 'price' holds numbers without a unit, and in the fitted table percentages; convert them"),
        ("", "%", "column 'price' holds percentages, and in the fitted table numbers without a unit; convert them"),
    ],
)
def test_amounts_have_the_unit_of_the_fit(fitted: str, new: str, problem: str | None) -> None:
    old, here = ({"price": unit} if unit else {} for unit in (fitted, new))
    if problem is None:
        check_same_units(["price"], old, here)
        return
    with pytest.raises(ValueError, match=re.escape(problem)):
        check_same_units(["price"], old, here)
    check_same_units(["price"], None, here)  # a fit of an earlier version
    check_same_units(["other"], old, here)


def test_amounts_with_decimal_commas(tmp_path: Path) -> None:
    frame, _ = read(tmp_path, "price;b\n1.234,50 €;1,5\n12 €;2,5\n")
    assert frame["price"].tolist() == [1234.5, 12.0] and frame["b"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    "entries",
    [
        ["1,5", "2,25", "7,0"],
        ["12.05.2024", "13.05.2024", "14.05.2024"],
        ["1/2", "3/4", "1/4"],
        ["05:30", "17:45", "23:59"],
        ["1:05:30", "0:59:59.5", "2:00:00"],
        ["5:30 pm", "11:00AM", "9:15 a.m."],
        ["3 of 5", "4 of 5.0", "1 out of 5", "2of5"],
    ],
)
def test_text_that_looks_like_numbers_is_refused_by_name(tmp_path: Path, entries: list[str]) -> None:
    """One-hot categories of numbers would be silent nonsense."""
    frame, _ = read(tmp_path, "x,y\n" + "".join(f'"{entry}",{row}\n' for row, entry in enumerate(entries)))
    with pytest.raises(
        ValueError, match=rf"column 'x' holds text that looks like numbers, times or dates, such as '{entries[0]}'"
    ):
        Preprocessor.fit(frame, "y", task="regression")
    Preprocessor.fit(frame, "y", task="regression", categorical=["x"])
    with pytest.raises(ValueError, match=r"the target 'x' holds text that looks like .*give --task classification if"):
        guess_task(frame["x"])


@pytest.mark.parametrize(
    ("entries", "layout", "first"),
    [
        (["2024-03-01", "2024-12-31"], "ISO8601", 19783.0),
        (["2024-03-01T12:00", "2024-12-31T00:00"], "ISO8601", 19783.5),
        (["01.03.2024", "31.12.2024"], "%d.%m.%Y", 19783.0),
        (["03/01/2024", "12/31/2024"], "%m/%d/%Y", 19783.0),
        (["1 Mar 2024", "31 Dec 2024"], "%d %b %Y", 19783.0),
    ],
)
def test_layouts_of_dates(entries: list[str], layout: str, first: float) -> None:
    series = pd.Series([*entries, None], name="day")
    assert date_layout(series) == layout
    values = days(series, layout)
    assert values[0] == first and np.isnan(values[-1])


def test_dates_of_two_layouts_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"--date 'day': .*'03/01/2024', can be read as %d/%m/%Y and as %m/%d/%Y; write"
    ):
        date_layout(pd.Series(["03/01/2024", "04/05/2024"], name="day"))
    with pytest.raises(ValueError, match="--date 'day': its entries, such as 'soon', are not dates of one layout"):
        date_layout(pd.Series(["soon", "2024-01-01"], name="day"))


def dated() -> pd.DataFrame:
    day = pd.date_range("2024-01-01", periods=40).strftime("%Y-%m-%d")
    return pd.DataFrame({"day": day, "x": np.arange(40.0), "y": np.sin(np.arange(40.0))})


def test_dates_become_days_and_come_back_from_the_file() -> None:
    frame = dated()
    prep = Preprocessor.fit(frame, "y", task="regression", dates=["day"])
    again = Preprocessor.from_dict(json.loads(json.dumps(prep.to_dict())))
    X = again.transform(frame)
    np.testing.assert_allclose(X[:, 0], X[:, 1], atol=1e-12)  # days and x both count rows
    with pytest.raises(ValueError, match=r"column 'day' must hold dates of the layout ISO8601, as in the fit; got 'x'"):
        again.transform(frame.assign(day="x"))
    new = pd.DataFrame({"day": ["2023-12-31", "2024-01-05"], "x": [3.0, 99.0]})
    outside = again.outside(new)
    assert outside is not None and {name: rows.tolist() for name, rows in outside.items()} == {
        "day": [True, False],
        "x": [False, True],
    }


def test_a_forgotten_date_is_named() -> None:
    frame = pd.concat([dated()] * 5, ignore_index=True)
    frame["day"] = pd.date_range("2024-01-01", periods=200).strftime("%Y-%m-%d")
    with pytest.raises(
        ValueError, match=r"column 'day' has 200 different values.*they are dates: make them numbers \(--dat"
    ):
        Preprocessor.fit(frame, "y", task="regression")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["2024-01-01", "2024-01-02"], r"column 'when' holds text such as '2024-01-01' .*they are dates: .*\(--date\)"),
        (["$1.2M", "$3M"], r"column 'when' holds numbers with units, such as '\$1.2M' at data row 0"),
        (["US$5", "US$7"], r"with units, such as 'US\$5'"),
        (["R$ 5.50", "R$ 7"], r"with units, such as 'R\$ 5.50'"),
    ],
)
def test_dates_and_amounts_that_repeat_are_no_categories(texts: list[str], message: str) -> None:
    frame = dated().drop(columns="day").assign(when=texts * 20)
    with pytest.raises(ValueError, match=message):
        Preprocessor.fit(frame, "y", task="regression")
    assert Preprocessor.fit(frame, "y", task="regression", categorical=["when"]).n_inputs == 3


@pytest.mark.parametrize(
    "texts",
    [
        ["5k", "10k"],
        ["3.5 kg", "4 kg"],
        ["500 g", "1.2 kg"],
        ["1.5M", "300K"],
        ["Rs. 500", "Rs. 1,200"],
        ["1,200 kr", "900 kr"],
        ["5 \N{DEGREE SIGN}C", "7 \N{DEGREE SIGN}C"],
        [f"{count} bedrooms" for count in range(6)],
        ["12 mg/l", "7 mg/l"],
        ["$1.2M", "US$5"],
    ],
)
def test_numbers_with_units_are_refused_by_name(texts: list[str]) -> None:
    """One-hot categories of them, or labels where they are the target, would be silent nonsense."""
    frame = dated().drop(columns="day").assign(size=(texts * 40)[:40])
    message = rf"holds numbers with units, such as '{re.escape(texts[0])}' at data row 0 .*Convert them to plain numb"
    with pytest.raises(ValueError, match=rf"column 'size' {message}.*--categorical; or leave it out with --drop"):
        Preprocessor.fit(frame, "y", task="regression")
    with pytest.raises(ValueError, match=rf"the target 'size' {message}.*labels, give --task classification"):
        guess_task(frame["size"])
    assert Preprocessor.fit(frame, "y", task="regression", categorical=["size"]).n_inputs == 1 + len(texts)


@pytest.mark.parametrize("texts", [["$12", "$13", "free"], ["12%", "13%", "soon"], ["12 PLN", "15 PLN", "15 ?"]])
def test_a_misprint_makes_no_categories_of_amounts(texts: list[str], tmp_path: Path) -> None:
    frame, _ = read(tmp_path, "size,y\n" + "".join(f"{texts[row % 3]},{row}\n" for row in range(40)))
    message = (
        rf"such as '{re.escape(texts[0])}' at .*line 2 of the file\), but also '{re.escape(texts[2])}' at .*lines 7, "
    )
    with pytest.raises(ValueError, match=message):
        Preprocessor.fit(frame, "y", task="regression")
    # An entry without a unit is a number as well; the example is one that has a unit.
    with pytest.raises(ValueError, match=r"column 'size' holds numbers with units, such as '15 kg' at data row 1"):
        Preprocessor.fit(frame.assign(size=["12", "15 kg"] * 20), "y", task="regression")


CODES = [["Q1", "Q2"], ["A$", "B$"], ["M-1", "M-2"], ["May", "Jan"], ["3A", "4A", "4B"], ["1st", "4th", "5th"]]
CODES += [["2WD", "4WD"], ["1 year", "2 years", "5 years"]]
CODES += [["18-25", "26-40"], ["v1.2", "v1.3"], ["Type 1", "Type 2"], ["<=50K", ">50K"], ["3-door", "5-door"]]


@pytest.mark.parametrize("texts", CODES)
def test_codes_are_categories(texts: list[str]) -> None:
    frame = dated().drop(columns="day").assign(code=(texts * 20)[:40])
    assert Preprocessor.fit(frame, "y", task="regression").n_inputs == 1 + len(texts)
    assert guess_task(frame["code"])[0] == "classification"


@pytest.mark.parametrize("value", [1e300, -1e300, 1e12, 1e7])
@pytest.mark.parametrize("column", ["x", "y"])
def test_a_single_extreme_value_does_not_remove_a_column(value: float, column: str) -> None:
    """Standardised, the other values would all be equal, or the standard deviation infinite."""
    frame = dated().drop(columns="day")
    frame.loc[7, column] = value
    what = "column 'x'" if column == "x" else "the target 'y'"
    with pytest.raises(
        ValueError,
        match=rf"{what} has {re.escape(format(value, 'g'))} at data row 7 .*beside which the other values are all",
    ):
        Preprocessor.fit(frame.rename_axis("row"), "y", task="regression")


@pytest.mark.parametrize("column", ["x", "y"])
def test_several_extreme_values_do_not_remove_a_column(column: str) -> None:
    frame = pd.concat([dated()] * 5, ignore_index=True).drop(columns="day")
    frame.loc[[7, 30], column] = 1e9
    message = r"has 1e\+09 at data row 7 .*also rows 30, beside which the other values are all alike.*remove those rows"
    with pytest.raises(ValueError, match=message):
        Preprocessor.fit(frame, "y", task="regression")
    frame.loc[8, column] = -2e6  # of another sign and size
    found = extremes(frame[column].to_numpy(dtype=np.float64))
    assert found is not None and found.tolist() == [7, 8, 30]


@pytest.mark.parametrize("n", [30, 300, 30_000])
def test_honest_tails_are_no_extreme_values(n: int) -> None:
    """Between neighbours of the largest 0.01 n of them, there is no gap of a thousand times."""
    rng = np.random.default_rng(n)
    for _ in range(20):
        mostly_zero = rng.random(n) < 0.02
        for values in (
            rng.lognormal(10, 2, n),
            rng.standard_t(2, n),
            rng.standard_cauchy(n),
            rng.negative_binomial(0.05, 0.001, n),
            np.where(mostly_zero, 1e6, 0.0),
            np.where(mostly_zero, rng.integers(1, 1000, n), 0),
        ):
            assert extremes(values.astype(np.float64)) is None


def test_columns_of_real_data_have_no_extreme_values(data_dir: Path) -> None:
    tables = [np.loadtxt(path) for path in sorted(data_dir.glob("uci/*/data.txt"))]
    for path, header in (("abalone/abalone.data", None), ("airfoil/airfoil.csv", 0), ("bikesharing/hour.csv", 0)):
        tables.append(pd.read_csv(data_dir / path, header=header).select_dtypes("number").to_numpy(dtype=np.float64))
    assert len(tables) > 8
    assert [extremes(column) for table in tables for column in table.T] == [None] * sum(t.shape[1] for t in tables)


@pytest.mark.parametrize("column", ["x", "y"])
def test_a_value_beyond_the_numbers_of_the_engine_is_named(column: str) -> None:
    """In a row that is held out or predicted, where it decides no mean."""
    frame = dated().drop(columns="day")
    prep = Preprocessor.fit(frame, "y", task="regression")
    frame.loc[7, column] = 1e300
    what = "column 'x'" if column == "x" else "the target 'y'"
    with pytest.raises(ValueError, match=rf"{what} has 1e\+300 at data row 7 .*, too far from the mean of the train"):
        (prep.transform if column == "x" else prep.transform_target)(frame)


def test_a_rare_indicator_is_no_extreme_value() -> None:
    frame = dated().drop(columns="day").assign(rare=[0.0] * 39 + [1.0])
    assert Preprocessor.fit(frame, "y", task="regression").names == ["x", "rare"]


def test_problems_of_all_columns_come_together() -> None:
    frame = dated().assign(z=1.0, text="a").astype({"text": object})
    frame.loc[[3, 5, 6], "x"] = np.nan
    frame.loc[8, "y"] = np.nan
    frame.loc[2, "text"] = None
    with pytest.raises(Problems) as caught:
        Preprocessor.fit(frame, "y", task="regression", drop=["day"])
    problems = caught.value.problems
    assert [problem.split(" has ")[0] for problem in problems] == ["column 'x'", "column 'text'", "the target 'y'"]
    assert "3 missing values, the first at data row 3 (counted from 0), also rows 5, 6" in problems[0]
    prep = Preprocessor.fit(
        dated().assign(kind="a", size=2.0).astype({"size": float}), "y", task="regression", drop=["day"]
    )
    with pytest.raises(ValueError, match="column 'x' must hold numbers; got 'many'"):
        prep.transform(dated().assign(x="many"))


def test_tables_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(b"\xef\xbb\xbfa,b\r\n1,2\r\n3,4\r\n")

    monkeypatch.setattr(sys, "stdin", Input)
    frame, _ = read_table("-")
    assert frame.to_numpy().tolist() == [[1, 2], [3, 4]] and list(frame.columns) == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04rest", "a workbook or an archive; save its table as CSV"),
        (b"\x1f\x8brest", "compressed; read it through a pipe"),
    ],
)
def test_workbooks_and_compressed_files_say_what_to_do(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "t")


def test_a_quotation_mark_that_is_never_closed_is_text(tmp_path: Path) -> None:
    frame, _ = read(tmp_path, 'pipe\tx\n5" wide\t1\n6 wide\t2\n')
    assert frame["x"].tolist() == [1, 2] and frame.index.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: c["columns"][0].update(scale=float("nan")),
            "column 'x' has mean .* and scale nan, which must be fin",
        ),
        (lambda c: c["columns"][0].update(mean=float("inf")), "column 'x' has mean inf"),
        (lambda c: c["columns"][0].update(scale=0.0), "column 'x' has mean .* and scale 0.0"),
        (lambda c: c.update(target_scale=float("nan")), "the target has mean .* and scale nan"),
        (lambda c: c["columns"][0].update(weird=1), "is damaged.*weird"),
        (lambda c: c["columns"][0].update(scale="1"), "is damaged"),
    ],
)
def test_a_stored_scaling_that_is_no_number_is_refused(change: Any, message: str) -> None:
    content = Preprocessor.fit(dated().drop(columns="day"), "y", task="regression").to_dict()
    change(content)
    with pytest.raises(ValueError, match=message):
        Preprocessor.from_dict(json.loads(json.dumps(content)))


def test_preprocessing_of_version_1_is_read_without_ranges() -> None:
    content = Preprocessor.fit(dated().drop(columns="day"), "y", task="regression").to_dict()
    content["format"] = 1
    for column in content["columns"]:
        for name in ("low", "high", "date"):
            del column[name]
    del content["ids"]
    prep = Preprocessor.from_dict(content)
    assert prep.outside(dated()) is None and prep.ids == []


def test_points_group_digits_where_commas_are_decimal() -> None:
    found, note, _ = read_numbers(pd.Series(["1.234", "2,5"], name="x"), ",")
    assert found.tolist() == [1234.0, 2.5] and note is not None
    untouched, note, _ = read_numbers(pd.Series(["1.5", "2,5"], name="x"), ",")
    assert untouched.tolist() == ["1.5", "2,5"] and note is None


def test_percentages_beside_other_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="column 'x' holds percentages and numbers without %, such as '12%'"):
        read_numbers(pd.Series(["12%", "0.3"], name="x"), ".")


def test_dates_with_dashes_may_have_the_month_first() -> None:
    with pytest.raises(ValueError, match=r"can be read as %d-%m-%Y and as %m-%d-%Y; write them as YYYY-MM-DD"):
        date_layout(pd.Series(["01-02-2020", "02-03-2020"], name="x"))
    assert date_layout(pd.Series(["01-13-2020"], name="x")) == "%m-%d-%Y"
    with pytest.raises(ValueError, match="--date 'x': the column has no entries"):
        date_layout(pd.Series([None, None], name="x"))


# Columns whose entries are identifiers, and numbers beyond what floats tell apart


def test_columns_are_kept_as_they_stand_on_request(tmp_path: Path) -> None:
    """Leading zeros, digits beyond 64 bits and amounts of several currencies stay text in columns that are no input."""
    text = "key,price,a\n007,$1,1\n10000000000000000000000001,\u20ac2,2\nNA,,3\n"
    frame, _ = read(tmp_path, text, verbatim=["key", "1", "absent"])
    assert frame["key"].tolist() == ["007", "10000000000000000000000001", "NA"]
    assert frame["price"].tolist() == ["$1", "\u20ac2", ""] and frame["a"].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="column 'price' holds amounts in several units"):
        read(tmp_path, text)


@pytest.mark.parametrize("start", [2**53, 2**60, 10**25])
def test_whole_numbers_that_floats_do_not_tell_apart_are_refused(start: int, tmp_path: Path) -> None:
    rows = "".join(f"{start + row},{row % 7}\n" for row in range(30))
    frame, _ = read(tmp_path, f"n,y\n{rows}")
    message = rf"column 'n' holds whole numbers such as {start}, some of which are equal as floating-point.*--id"
    with pytest.raises(ValueError, match=message):
        Preprocessor.fit(frame, "y", task="regression")
    with pytest.raises(ValueError, match=rf"the target 'n' holds whole numbers such as {start}.*--target"):
        Preprocessor.fit(frame, "n", task="regression")


def test_large_numbers_that_floats_tell_apart_are_numbers(tmp_path: Path) -> None:
    """Nanoseconds since 1970 of days, and multiples of 10^22, lose nothing that tells them apart."""
    days_apart = [1_700_000_000 * 10**9 + row * 86_400 * 10**9 for row in range(30)]
    rows = "".join(f"{value},{(row + 1) * 10**22},{row % 7}\n" for row, value in enumerate(days_apart))
    frame, _ = read(tmp_path, f"n,m,y\n{rows}")
    assert Preprocessor.fit(frame, "y", task="regression").names == ["n", "m"]


def test_text_that_differs_in_nearly_every_row_is_refused() -> None:
    """40 dates or names would be 40 inputs of one row each, from which nothing can be learned."""
    frame = pd.DataFrame({"x": np.arange(40.0), "name": [f"p{row}" for row in range(40)], "y": np.arange(40.0)})
    message = "column 'name' has a text in 40 of 40 rows that no other row has, such as 'p0'.*--id.*--categorical takes"
    with pytest.raises(ValueError, match=message):
        Preprocessor.fit(frame, "y", task="regression")
    assert Preprocessor.fit(frame, "y", task="regression", categorical=["name"]).n_inputs == 41
    dates = frame.assign(name=pd.date_range("2024-01-01", periods=40).strftime("%Y-%m-%d"))
    with pytest.raises(ValueError, match=r"such as '2024-01-01'.*they are dates: make them numbers \(--date\)"):
        Preprocessor.fit(dates, "y", task="regression")
    shared = frame.assign(name=[f"p{row // 2}" for row in range(40)])
    assert Preprocessor.fit(shared, "y", task="regression").n_inputs == 21


def test_columns_without_a_name_and_infinity_are_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has 2 columns without a name; name them .* or give another separator"):
        read(tmp_path, "a||b||y\n1||2||3\n", separator="bar")
    frame = pd.DataFrame({"x": [1.0, np.inf, 2.0], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match=r"column 'x' must be finite; got inf at data row 1"):
        Preprocessor.fit(frame, "y", task="regression")


def test_a_misprint_does_not_make_labels_of_numbers() -> None:
    series = pd.Series(["0", "1", "ugh", "2", "3"], name="y")
    with pytest.raises(
        ValueError, match=r"the target 'y' holds mostly numbers, but 'ugh' at data row 2 .*1 such rows .*--task"
    ):
        guess_task(series)
    assert guess_task(pd.Series(["1", "a", "b"]))[0] == "classification"
    assert guess_task(pd.Series([True, None, False], dtype=object))[0] == "classification"


def test_whole_numbers_may_be_labels() -> None:
    assert guess_task(pd.Series([1, 2, 3])) == (
        "regression",
        "it holds numbers, 3 different ones; --task classification if they are labels",
    )
    assert guess_task(pd.Series([0.5, 1, 2]))[1] == "it holds numbers, 3 different ones"
    assert guess_task(pd.Series(range(11)))[1] == "it holds numbers, 11 different ones"
