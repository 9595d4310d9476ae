"""The conversion of tables to inputs: types, categories, dates, missing values, and what is refused."""

from __future__ import annotations

import datetime
import json
import time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from patrac_native.fit.preprocessor import Preprocessor, mean_and_scale

DAYS = ["2020-01-01", "2020-03-01T12:00", "1969-12-31"]


def a_table(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(40, 9, n),
            "rooms": rng.integers(1, 6, n),
            "town": rng.choice(["Bonn", "Kiel", "Ulm"], n),
            "open": rng.random(n) < 0.5,
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "zip": rng.choice(["007", "7", "1E1"], n),
        }
    )


def fitted(values: Any, **options: Any) -> np.ndarray:
    """Return the inputs that a single column of values becomes beside one of numbers."""
    frame = pd.DataFrame({"x": values, "other": np.arange(len(values))})
    return Preprocessor.fit(frame, **options).transform(frame)[:, :-1]


def test_inputs_by_hand() -> None:
    made = Preprocessor.fit(a_table(), dates=["sold"])
    inputs, table = made.transform(a_table()), a_table()
    assert made.names == [
        "age", "rooms", "town=Bonn", "town=Kiel", "town=Ulm", "open", "sold", "zip=007", "zip=1E1", "zip=7"
    ]  # fmt: skip
    assert inputs.dtype == np.float64 and inputs.flags.c_contiguous
    for name, at in (("age", 0), ("rooms", 1), ("open", 5)):
        values = table[name].to_numpy(np.float64)
        assert np.array_equal(inputs[:, at], (values - values.mean()) / values.std())
    assert np.array_equal(inputs[:, 2:5], np.array(table["town"])[:, None] == ["Bonn", "Kiel", "Ulm"])
    assert np.array_equal(inputs[:, 7:], np.array(table["zip"])[:, None] == ["007", "1E1", "7"])
    days = (table["sold"] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    assert made.in_units(inputs)[:, 6] == pytest.approx(days.to_numpy(), abs=1e-9)
    assert made.in_units(inputs)[:, 3] == pytest.approx(inputs[:, 3])
    assert made.table()[2] == ["town", "categories", "Bonn, Kiel, Ulm"]


def test_json_rows_alone_and_any_order_of_columns_give_the_same_bits() -> None:
    table = a_table()
    made = Preprocessor.fit(table, dates=["sold"], drop=["rooms"])
    read = Preprocessor.from_dict(json.loads(json.dumps(made.to_dict())))
    inputs = made.transform(table)
    assert np.array_equal(read.transform(table[table.columns[::-1]].drop(columns="rooms")), inputs)
    for row in range(len(table)):
        assert np.array_equal(read.transform(table.iloc[[row]]), inputs[[row]])
    assert read.notes == made.notes and read.names == made.names
    assert list(read.text_columns) == ["town", "zip"]


COLUMNS = st.sampled_from(
    [
        st.floats(-1e6, 1e6),
        st.integers(-(2**40), 2**40),
        st.booleans(),
        st.sampled_from(["a", "b ", "007", "7", "1E1"]),
        st.one_of(st.none(), st.floats(-5, 5)),
        st.one_of(st.none(), st.sampled_from(["x", "NA", ""])),
        st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)),
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_tables_give_the_same_row_alone(data: Any) -> None:
    n = data.draw(st.integers(2, 12))
    columns = [data.draw(st.lists(data.draw(COLUMNS), min_size=n, max_size=n)) for _ in range(3)]
    table = pd.DataFrame({f"c{i}": column for i, column in enumerate(columns)} | {"last": np.arange(n)})
    dates = [name for name in table if table[name].dtype.kind == "M"]
    empty = [name for name in table if table[name].isna().all()]
    made = Preprocessor.fit(table, dates=dates, drop=empty, impute="median", indicator=True)
    inputs = made.transform(table)
    rows = [made.transform(table.iloc[[row]]) for row in range(n)]
    assert np.isfinite(inputs).all() and np.array_equal(np.concatenate(rows), inputs)


NUMBERS = [1.0, 2.0, 4.0, 9.0]


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(NUMBERS, dtype="Float32"),
        pd.Series([1, 2, 4, 9], dtype="Int64"),
        pd.Series([1, 2, 4, 9], dtype=object),
        pd.Series([1, 2.0, np.int8(4), 9], dtype=object),
        pd.Series(NUMBERS, dtype="double[pyarrow]"),
        pd.Series(NUMBERS, dtype=pd.SparseDtype(float)),
        np.array([1, 2, 4, 9], dtype=np.uint8),
        np.array(NUMBERS, dtype=np.float16),
    ],
    ids=lambda values: str(values.dtype),
)
def test_numbers_of_any_type_are_numbers(values: Any) -> None:
    assert np.array_equal(fitted(values), fitted(np.array(NUMBERS)))


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1, None, 4, 9], dtype="Int64"),
        pd.Series([1, None, 4, 9], dtype=object),
        pd.Series([1, pd.NA, 4, 9], dtype="int64[pyarrow]"),
        pd.Series([1, np.nan, 4, 9]),
        np.ma.MaskedArray([1.0, 999.0, 4.0, 9.0], [0, 1, 0, 0]),
    ],
    ids=lambda values: str(values.dtype) + type(values).__name__,
)
def test_missing_values_of_any_type_are_missing(values: Any) -> None:
    table = pd.DataFrame({"x": values, "y": range(4)}) if isinstance(values, pd.Series) else values[:, None]
    with pytest.raises(ValueError, match=r"has 1 missing value, at row 1; remove .* drop, or set impute"):
        Preprocessor.fit(table)
    made = Preprocessor.fit(table, impute="median")
    assert made.in_units(made.transform(table))[:, 0] == pytest.approx([1, 4, 4, 9])
    assert made.notes[0].endswith("1 missing value imputed by 4") and made.remarks(table)[1].endswith("is missing")


def test_imputation_with_weights_is_that_of_repeated_rows() -> None:
    table = pd.DataFrame({"x": [1.0, 5.0, np.nan, 2.0, 7.0], "c": ["a", None, "b", "b", "a"]})
    weights = np.array([1.0, 3.0, 2.0, 1.0, 2.0])
    repeated = table.loc[np.repeat(table.index, weights.astype(int))]
    for impute in ("mean", "median"):
        by_weight = Preprocessor.fit(table, impute=impute, sample_weight=weights).transform(table)
        by_rows = Preprocessor.fit(repeated, impute=impute).transform(table)
        assert by_weight == pytest.approx(by_rows, abs=1e-12)
    assert by_weight[1, 1:].tolist() == [0.0, 0.0, 1.0]  # a missing category is one of its own


def test_indicators_mark_missing_values_even_of_constant_columns() -> None:
    table = pd.DataFrame({"x": [1.0, np.nan, 3.0], "same": [2.0, 2.0, np.nan], "c": ["a", None, "b"], "z": [1, 2, 4]})
    made = Preprocessor.fit(table, impute="mean", indicator=True)
    assert made.names == ["x", "x is missing", "same is missing", "c=a", "c=b", "c is missing", "z"]
    assert np.array_equal(made.transform(table)[:, [1, 2, 5]], table[["x", "same", "c"]].isna())
    assert np.array_equal(made.transform(table)[1, 3:5], [0.0, 0.0])


def test_missing_and_unknown_categories_are_states_of_their_own_and_need_no_imputation() -> None:
    table = pd.DataFrame(
        {"c": ["a", None, "b"], "same": ["u", None, "u"], "whole": ["v", "w", "v"], "x": [1.0, 2.0, 4.0]}
    )
    made = Preprocessor.fit(table)
    assert made.names == ["c=a", "c=b", "c is missing", "same is missing", "whole=v", "whole=w", "x"]
    assert made.transform(table)[:, :4].tolist() == [[1, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 0]]
    own = "1 missing value: a category of its own"
    assert made.notes[0] == f"2 columns have missing values: 'c' ({own}), 'same' ({own})"
    assert made.facts == {"missing": {"c": own, "same": own}, "constant": {"same": "u"}}
    new = table.assign(c=["z", None, "a"], whole=["v", None, "x"])
    assert made.transform(new)[:, :3].tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
    assert not made.transform(new)[1:, 4:6].any()
    assert made.remarks(new) == [
        "c=z is unknown",
        "c is missing; same is missing; whole is missing",
        "whole=x is unknown",
    ]
    read = Preprocessor.from_dict(json.loads(json.dumps(made.to_dict())))
    assert np.array_equal(read.transform(new), made.transform(new))


def test_only_the_rows_that_cannot_be_read_are_told() -> None:
    table = pd.DataFrame({"x": [1.0, 2.0, 4.0, 5.0, 7.0], "day": pd.date_range("2020-01-01", periods=5).astype(str)})
    made = Preprocessor.fit(table, dates=["day"])
    new = pd.DataFrame({"x": [1.0, "odd", np.nan, np.inf, 3.0], "day": ["2020-01-02"] * 4 + ["soon"]}, dtype=object)
    problems = made.problems(new)
    assert problems[0] == "" and "text such as 'odd' at row 1" in problems[1] and "is missing at row 2" in problems[2]
    assert "must be finite; got inf at row 3" in problems[3] and "got 'soon' at row 4" in problems[4]
    assert made.transform(new[:1]).shape == (1, 2) and made.problems(table) == [""] * 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([f"id{i}" for i in range(60)], r"'x' holds text of 60 different values, such as 'id0', 'id1', 'id2'; name it"),
        ([*map(str, range(59)), "?"], r"such as '\?', '0', '1'; .* in drop or categorical, in dates .* or convert it"),
        ([None] * 60, "has no values; name it in drop"),
        ([np.inf, *range(59)], "must be finite; got inf at row 0"),
        (pd.to_timedelta(range(60), unit="D"), "holds timedelta64 values such as .*; convert them"),
        (pd.Timestamp("2020-01-01") + pd.to_timedelta(range(60), unit="D"), "holds dates; name it in dates"),
        (pd.period_range("2020-01", periods=60, freq="M"), "holds period values"),
        ([1j] * 60, "holds complex values"),
        ([1, "a"] * 30, "holds mixed-integer values such as 1 at rows 0, 1, 2 and 57 more"),
        ([b"a", b"b"] * 30, "holds bytes values"),
        ([2**60 + i for i in range(60)], "whole numbers such as 1152921504606846976, some of which are equal"),
        ([10**400, *range(59)], "beyond the range of float64"),
    ],
    ids=lambda values: values if isinstance(values, str) else "",
)
def test_what_cannot_be_read_is_named(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(pd.Series(values) if not isinstance(values, list) else pd.Series(values, dtype=object))


def test_all_problems_come_together() -> None:
    table = a_table().assign(key=[f"k{i}" for i in range(60)], gap=np.nan)
    with pytest.raises(ValueError) as caught:
        Preprocessor.fit(table)
    assert [line.split("'")[1] for line in str(caught.value).split("\n")] == ["sold", "key", "gap"]


@pytest.mark.parametrize(("rows", "distinct", "is_category"), [(30, 20, True), (30, 21, False), (1000, 50, True)])
def test_the_rule_of_categories(rows: int, distinct: int, is_category: bool) -> None:
    values = [f"v{i % distinct}" for i in range(rows)]
    if is_category:
        assert fitted(values).shape == (rows, distinct)
    else:
        with pytest.raises(ValueError, match="different values"):
            fitted(values)
        assert fitted(values, categorical=["x"]).shape == fitted(pd.Categorical(values)).shape == (rows, distinct)


def test_more_than_a_hundred_categories_are_refused_in_any_table() -> None:
    with pytest.raises(ValueError, match="text of 101 different values"):
        fitted([f"v{i % 101}" for i in range(5000)])


def test_codes_are_categories_as_they_are_written() -> None:
    table = pd.DataFrame({"text": ["007", "7", "1.10", "1.1", "1E5", "100000"], "code": [1, 2, 10, 1, 2, 10]})
    made = Preprocessor.fit(table, categorical=["text", "code"])
    assert np.linalg.matrix_rank(made.transform(table)[:, :6]) == 6
    assert made.names[6:] == ["code=1", "code=2", "code=10"]
    as_floats = table.assign(code=table["code"].astype(float))
    assert np.array_equal(made.transform(as_floats), made.transform(table))
    with pytest.raises(ValueError, match="'text' holds text in the training rows, and now number such as 7 at rows 0"):
        made.transform(table.assign(text=7))
    with pytest.raises(
        ValueError, match="'code' holds number in the training rows, and now text such as 'x' at rows 0"
    ):
        made.transform(table.assign(code="x"))


def test_unknown_categories_and_values_outside_the_range_are_marked() -> None:
    made, new = Preprocessor.fit(a_table(), dates=["sold"]), a_table().iloc[:4].copy()
    new.loc[0, "town"] = "Rom"
    new.loc[1, "age"] = 200.0
    new.loc[2, "sold"] = pd.Timestamp("2031-05-05")
    new.loc[2, "rooms"] = 9
    remarks = made.remarks(new)
    assert remarks[0] == "town=Rom is unknown" and remarks[3] == ""
    assert remarks[1].startswith("age=200 is outside ")
    assert remarks[2].startswith("rooms=9 is outside 1 to 5; sold=2031-05-05 is outside 2020-01-")
    assert not made.transform(new)[0, 2:5].any()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_of_any_unit_zone_and_type_are_the_same_numbers(unit: str) -> None:
    text = pd.Series(DAYS)
    table = pd.DataFrame({"t": text, "x": [1.0, 2.0, 3.0]})
    made = Preprocessor.fit(table, dates=["t"])
    wanted = made.transform(table)
    assert made.in_units(wanted)[:, 0] == pytest.approx([18262, 18322.5, -1])
    moments = pd.to_datetime(text, format="ISO8601").astype(f"datetime64[{unit}]")
    for values in (moments, moments.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"), moments.astype(object)):
        frame = table.assign(t=values)
        of_moments = Preprocessor.fit(frame, dates=["t"])
        assert np.array_equal(of_moments.transform(frame), wanted)
        gap = frame.assign(t=frame["t"].where(frame.index != 1))
        with pytest.raises(ValueError, match="'t' is missing at row 1"):
            of_moments.transform(gap)


def test_dates_far_away_are_numbers() -> None:
    for values in (["1066-10-14", "9999-12-31", "0001-01-01"], np.array(["1066-10-14", "9999-12-31"], "datetime64[s]")):
        table = pd.DataFrame({"t": values, "x": range(len(values))})
        made = Preprocessor.fit(table, dates=["t"])
        wanted = [datetime.date.fromisoformat(str(value)[:10]).toordinal() - 719163 for value in values]
        assert made.in_units(made.transform(table))[:, 0] == pytest.approx(wanted, abs=1e-6)
        assert "column 't' is 9999-12-31 at row 1, which sets its scale; make that a missing value" in made.notes[0]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["01/02/2020", "03/04/2020"], "can be read with the day or the month first"),
        (["01/02/99", "13/02/99"], "has '01/02/99' at rows 0, 1, no date with a year of four digits; write"),
        (["2020-01-01", "yesterday"], "has 'yesterday' at row 1, no date .*; others are, such as '2020-01-01'"),
        (["31.12.1999", "30.02.2020", "01.01.2000"], "has '30.02.2020' at row 1, no .* others .* '31.12.1999'"),
        ([1.0, 2.0], "holds numbers, not dates"),
    ],
)
def test_doubtful_dates_are_refused(texts: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"dates names 'x'.*{message}"):
        fitted(texts, dates=["x"])


@pytest.mark.parametrize("texts", [["0,5", "1", "-2,25"], ["1,024", "2,048,000"], ["1.024,5", "512"]])
def test_numbers_with_commas_are_no_categories(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"'x' holds numbers with a comma, such as '.*,.*' at row.* name it in categ"):
        fitted(texts)
    assert fitted(texts, categorical=["x"]).shape == (len(texts), len(texts))
    assert fitted(["a, b", "1,5"]).shape == (2, 2)  # other text


def test_the_layout_of_the_fit_reads_new_dates() -> None:
    table = pd.DataFrame({"t": ["13/02/2020", "01/02/2020"], "x": [1, 2]})
    made = Preprocessor.fit(table, dates=["t"])
    assert made.in_units(made.transform(table))[:, 0] == pytest.approx([18305, 18293])
    with pytest.raises(ValueError, match=r"dates of the layout %d/%m/%Y, as in the fit; got '2020-02-01' at row 1"):
        made.transform(table.assign(t=["02/01/2020", "2020-02-01"]))


@pytest.mark.parametrize("scale", [1e-290, 1e-165, 1.0, 1e160, 1e300])
def test_moments_do_not_depend_on_the_unit(scale: float) -> None:
    x = np.random.default_rng(1).normal(3, 2, 100)
    mean, spread = mean_and_scale(x * scale)
    assert mean == pytest.approx(x.mean() * scale, rel=1e-13) and spread == pytest.approx(x.std() * scale, rel=1e-13)
    if scale == 1:
        assert (mean, spread) == (x.mean(), x.std())


@pytest.mark.parametrize("n", [20, 21, 50, 137, 500, 1001, 5000])
def test_a_standardised_column_with_few_ones_is_no_constant(n: int) -> None:
    """Once standardised, equal numbers differ by rounding, and 95 of 141 shapes were refused as one extreme value."""
    for ones in {*range(1, min(n, 21)), n // 4, n // 3, n // 2, n - 2, n - 1}:
        values = np.zeros(n)
        values[np.random.default_rng(ones).permutation(n)[:ones]] = 1.0
        values = (values - values.mean()) / values.std()
        made = Preprocessor.fit(pd.DataFrame({"flag": values, "other": np.arange(n)}))
        assert made.names == ["flag", "other"] and made.notes == []
        inputs = made.transform(pd.DataFrame({"flag": values, "other": np.arange(n)}))
        assert inputs[:, 0] == pytest.approx(values, abs=1e-9)


def test_a_column_that_is_constant_but_for_rounding_is_dropped_with_a_note() -> None:
    table = pd.DataFrame({"r": [0.3, 0.1 + 0.2] * 10, "k": ["a"] * 20, "rare": [1.0] + [0.0] * 19, "x": range(20)})
    made = Preprocessor.fit(table)
    assert made.names == ["rare", "x"]
    assert made.notes == ["2 columns have one value in every training row and were dropped: 'r' (0.3), 'k' (a)"]
    assert made.facts == {"missing": {}, "constant": {"r": "0.3", "k": "a"}}
    one = Preprocessor.fit(table.drop(columns="k"))
    assert one.notes == ["column 'r' is 0.3 in every training row and was dropped"]
    assert mean_and_scale(np.array([0.3, 0.1 + 0.2] * 10))[1] == 0
    assert mean_and_scale(1.7e9 + np.arange(1000.0))[1] == pytest.approx(np.arange(1000.0).std())
    kept = Preprocessor.fit(table, standardize=False)
    assert kept.names == ["r", "k=a", "rare", "x"] and np.array_equal(kept.transform(table)[:, 3], table["x"])
    with pytest.raises(ValueError, match="no column is left"):
        Preprocessor.fit(table[["r", "k"]])


def test_many_columns_of_a_kind_are_one_line_and_all_are_in_the_facts() -> None:
    values = np.random.default_rng(0).normal(size=(30, 12))
    table = pd.DataFrame(values, columns=[f"x{j}" for j in range(12)])
    for j in range(8):
        table.loc[j : 2 * j, f"x{j}"] = np.nan
    table = table.assign(**{f"c{j}": j for j in range(57)}, **{f"t{j}": ["u", "v"] * 15 for j in range(7)})
    made = Preprocessor.fit(table, impute="mean")
    missing, constant, texts = made.notes
    assert missing.startswith("8 columns have missing values: 'x0' (1 missing value imputed by ")
    assert constant == (
        "57 columns have one value in every training row and were dropped: 'c0' (0), 'c1' (1), 'c2' (2), 'c3' (3), "
        "'c4' (4) and 52 more"
    )
    assert texts.endswith("t3 (u, v); t4 (u, v) and 2 more") and missing.endswith(" and 3 more")
    assert made.facts["constant"] == {f"c{j}": str(j) for j in range(57)} and [*made.facts["missing"]] == [
        f"x{j}" for j in range(8)
    ]
    assert made.facts["missing"]["x7"].startswith("8 missing values imputed by ")
    rows = {row[0]: row[1:] for row in made.table()}
    assert rows["c56"] == ["constant, dropped", "56"] and "8 missing values imputed by" in rows["x7"][1]
    read = Preprocessor.from_dict(json.loads(json.dumps(made.to_dict())))
    assert read.facts == made.facts
    for wrong in ({}, {"missing": {}, "constant": {"c": 1}}):
        with pytest.raises(ValueError, match="the preprocessing is damaged"):
            Preprocessor.from_dict({**made.to_dict(), "facts": wrong})


def test_a_value_beyond_float32_is_refused() -> None:
    made = Preprocessor.fit(pd.DataFrame({"x": [1.0, 2.0]}))
    with pytest.raises(ValueError, match=r"'x' has 1e\+200 at row 0, too far from the mean"):
        made.transform(pd.DataFrame({"x": [1e200]}))


def test_pixels_share_one_scale() -> None:
    pixels = load_digits().data
    made = Preprocessor.fit(pixels)
    kept = pixels[:, pixels.std(axis=0) > 0]
    shared = np.sqrt(np.mean(kept.std(axis=0) ** 2))
    assert made.transform(pixels) == pytest.approx((kept - kept.mean(axis=0)) / shared)
    assert any("share a unit" in note for note in made.notes) and "one scale" in made.describe()
    assert not any("share a unit" in note for note in Preprocessor.fit(pixels + 0.5).notes)


def test_columns_of_any_names_are_matched() -> None:
    names = [2019, "town", ("a", 1), b"raw", datetime.date(2020, 1, 1), 1.5, None]
    table = pd.DataFrame(np.random.default_rng(2).normal(size=(9, len(names))))
    table.columns = pd.Index(names, dtype=object)
    made = Preprocessor.fit(table, drop=["town"])
    read = Preprocessor.from_dict(json.loads(json.dumps(made.to_dict())))
    assert np.array_equal(read.transform(table[table.columns[::-1]]), made.transform(table))
    assert made.names == ["2019", "('a', 1)", "b'raw'", "2020-01-01", "1.5", "None"]


def test_tables_of_other_columns_are_refused() -> None:
    table = a_table()
    made = Preprocessor.fit(table, dates=["sold"])
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- Age\n.*yet now missing:\n- age\n"):
        made.transform(table.rename(columns={"age": "Age"}))
    with pytest.raises(ValueError, match="X is an array of 6 columns, and the fit had age, rooms, town"):
        made.transform(table.to_numpy())
    with pytest.raises(ValueError, match="unseen at fit time:\n- age"):
        Preprocessor.fit(table[["age", "rooms"]].to_numpy()).transform(table[["age", "rooms"]])
    twice = pd.concat([table, table[["age"]]], axis=1)
    with pytest.raises(ValueError, match="two columns named 'age'"):
        made.transform(twice)

    odd_names = pd.DataFrame({"to_pandas": [1.0, 2.0], "column_names": [0, 1]})
    assert Preprocessor.fit(odd_names).transform(odd_names).shape == (2, 2)

    class Other:
        columns = ("age",)

    with pytest.raises(TypeError, match="X is a Other, whose columns cannot be read"):
        made.transform(Other())


def test_arrow_tables_are_matched_by_name() -> None:
    table = a_table().drop(columns="sold")
    made = Preprocessor.fit(table)
    arrow = pyarrow.Table.from_pandas(table[table.columns[::-1]])
    assert np.array_equal(made.transform(arrow), made.transform(table))


def test_arrays_are_matched_by_position() -> None:
    X = np.random.default_rng(3).normal(size=(20, 3))
    made = Preprocessor.fit(X, drop=[1])
    assert made.names == ["0", "2"] and made.describe().startswith("X: 2 inputs from 2 columns, each number minus")
    assert np.array_equal(made.transform(pd.DataFrame(X)), made.transform(X.tolist()))
    mixed = np.array([[1.0, "a"], [2.0, "b"], [4.0, "a"]], dtype=object)
    assert Preprocessor.fit(mixed).names == ["0", "1=a", "1=b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop": ["agee"]}, r"drop names 'agee', and the columns are age, rooms"),
        ({"drop": ["age"], "dates": ["age"]}, "dates names 'age', which drop names too"),
        ({"drop": "age"}, r"drop must be a sequence of columns; got 'age': write \['age'\]"),
        ({"impute": "zero"}, "impute must be one of mean, median or None; got 'zero'"),
    ],
)
def test_options_that_fit_no_column_are_refused(options: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Preprocessor.fit(a_table(), **options)
    if "dates" not in options:
        assert Preprocessor.fit(a_table(), drop=[-2, 0]).names[0] == "rooms"


@pytest.mark.parametrize(
    "change",
    [
        {"scale": float("nan")},
        {"scale": -1.0},
        {"kind": "pickle"},
        {"mean": "x"},
        {"unknown": 1},
        {"fill": float("inf")},
    ],
)
def test_damaged_files_are_refused(change: Any) -> None:
    content = Preprocessor.fit(a_table(), dates=["sold"]).to_dict()
    content["columns"][0] |= change
    with pytest.raises(ValueError, match=r"the preprocessing is damaged: .*; fit again"):
        Preprocessor.from_dict(content)
    with pytest.raises(ValueError, match="damaged"):
        Preprocessor.from_dict({**content, "format": 7})


def test_ten_thousand_columns_take_seconds() -> None:
    wide = pd.DataFrame(np.random.default_rng(4).normal(size=(500, 10_000))).rename(columns=str)
    clock = time.process_time()
    Preprocessor.fit(wide).transform(wide)
    assert time.process_time() - clock < 10
