"""Tests of reading and preprocessing tables: what is found, what is rejected, and the error messages."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import patrac_native as pn
from patrac_native.fit import dispersion, pilots
from patrac_native.fit.candidates import possible_candidates
from patrac_native.fit.fit import _prepare
from patrac_native.fit.fit_data import DataRows, FitArrays
from patrac_native.fit.fit_settings import FitSettings
from patrac_native.fit.noise_settings import NoiseSettings
from patrac_native.fit.preprocessing import Preprocessor
from patrac_native.fit.tables import TableFormat, find_column, read_table
from patrac_native.fit.target_column import guess_task
from patrac_native.training.folds import copy_groups, split_rows


def write(tmp_path: Path, text: str, name: str = "table.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def mixed_table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "size": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            "sex": ["M", "F", "I", "M", "F", "M"],
            "wild": [True, False, True, True, False, False],
            "same": [7, 7, 7, 7, 7, 7],
            "rings": [3, 5, 7, 9, 11, 13],
        }
    )


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a,b,c\n1,2,x\n3,4,y\n", ","),
        ("a;b;c\n1;2;x\n3;4;y\n", ";"),
        ("a\tb\tc\n1\t2\tx\n3\t4\ty\n", "\t"),
        ("a|b|c\n1|2|x\n3|4|y\n", "|"),
        ("a  b c\n 1 2   x\n3 4 y \n", r"\s+"),
        ('a,b,c\n1,2,"x; y, z"\n3,4,"u; v, w"\n', ","),
    ],
)
def test_separators_are_found(tmp_path: Path, text: str, separator: str) -> None:
    frame, table = read_table(write(tmp_path, text))
    assert table == TableFormat(separator, True, units={})
    assert list(frame.columns) == ["a", "b", "c"]
    assert frame["b"].tolist() == [2, 4]


def test_without_a_header_columns_are_numbered(tmp_path: Path) -> None:
    frame, table = read_table(write(tmp_path, "M,0.5,15\nF,0.25,7\n\n"), header=False)
    assert list(frame.columns) == ["0", "1", "2"] and not table.header
    assert frame["0"].tolist() == ["M", "F"] and frame["2"].tolist() == [15, 7]


def test_a_forgotten_no_header_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path, "M,0.5,15\nF,0.25,7\n")
    with pytest.raises(ValueError, match=r"looks like data, not like names.*--no-header"):
        read_table(path)
    frame, _ = read_table(path, header=True)
    assert list(frame.columns) == ["M", "0.5", "15"]


def test_messages_give_data_row_and_line_of_the_file(tmp_path: Path) -> None:
    # A header, and a blank line before the third row of data: row 2 from 0 is line 5.
    frame, _ = read_table(write(tmp_path, "a,b,y\n1,x,1\n2,y,2\n\n,x,3\n4,y,4\n"))
    with pytest.raises(ValueError, match=r"'a' has 1 missing values, the first at data row 2 .*; line 5 of the file"):
        Preprocessor.fit(frame, "y", task="regression")
    prep = Preprocessor.fit(frame, "y", task="regression", drop=["a"])
    new, _ = read_table(write(tmp_path, "x\nz\n".replace("\n", ",1\n")), header=False)
    with pytest.raises(ValueError, match=r"unknown category 'z' at data row 1 \(counted from 0; line 2 of the file\)"):
        prep.transform(new.set_axis(["b", "y"], axis=1))
    # A quoted field with a line break makes one row of two lines.
    broken, _ = read_table(write(tmp_path, 'a,b\n1,"x\ny"\n,z\n'), separator=",")
    with pytest.raises(ValueError, match=r"first at data row 1 \(counted from 0; line 4 of the file\); remove"):
        Preprocessor.fit(broken, "b", task="classification")


def test_decimal_commas(tmp_path: Path) -> None:
    frame, table = read_table(write(tmp_path, "a;b\n1,5;2\n-0,25;3\n"))
    assert table.decimal == "," and frame["a"].tolist() == [1.5, -0.25]


def test_missing_values_are_recognised(tmp_path: Path) -> None:
    frame, _ = read_table(write(tmp_path, "a,b,c\n1,?,x\n,2,NA\n3,4,z\n"))
    assert frame.isna().sum().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "is empty"),
        ("a,b\n", {}, "has a header but no rows"),
        ("a\nx\ny\n", {}, "no separator splits the first 3 lines"),
        ("a,b\n1,2\n1,2,3\n", {}, "line 3 has 3"),
        ("a,b\n1,2\n1,2,3\n", {"separator": "comma"}, "1 of 3 rows that do not have the 2 fields"),
        ("a,b\nx,2\n", {"separator": "tab"}, "has one column with the separator"),
        ("a,b\nx,2\n", {"separator": "colon"}, "--sep must be one character or one of semicolon, tab"),
        ("a,a\nx,2\n", {}, "two columns named 'a'"),
    ],
)
def test_unreadable_files_are_refused(tmp_path: Path, text: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path, text), separator=options.get("separator"))


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"\xff\xfe\x00\x01,\n")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        read_table(path)


def test_columns_are_found_by_name_before_number() -> None:
    frame = pd.DataFrame([[1, 2, 3]], columns=["b", "0", "c"])
    assert find_column(frame, "0") == "0"
    assert find_column(frame, "2") == "c"
    assert find_column(frame, "-1") == "c"
    with pytest.raises(ValueError, match=r"--target must be a column's name or its number in 0..2; got 'd'.*b, 0, c"):
        find_column(frame, "d")
    with pytest.raises(ValueError, match="--drop must be"):
        find_column(frame, "3", "--drop")


def test_split_takes_each_row_once_and_depends_on_the_seed_alone() -> None:
    parts = split_rows(101, [0.3, 0.2], seed=4)
    assert [len(part) for part in parts] == [30, 20, 51]
    assert sorted(np.concatenate(parts).tolist()) == list(range(101))
    for part, again, other in zip(
        parts, split_rows(101, [0.3, 0.2], seed=4), split_rows(101, [0.3, 0.2], seed=5), strict=True
    ):
        assert np.array_equal(part, again) and not np.array_equal(part, other)


def test_split_shares_every_class() -> None:
    labels = np.array(["a"] * 90 + ["b"] * 10 + ["c"])
    test, train = split_rows(101, [0.3], seed=0, labels=labels)
    assert [(labels[test] == c).sum() for c in "abc"] == [27, 3, 0]
    assert [(labels[train] == c).sum() for c in "abc"] == [63, 7, 1]


@pytest.mark.parametrize("fractions", [[0.3], [0.2] * 4])
def test_copies_of_a_row_are_in_one_part(fractions: list[float]) -> None:
    groups = np.concatenate([np.arange(80), np.arange(30), np.arange(10), [0]])
    parts = split_rows(121, fractions, seed=3, groups=groups)
    assert sorted(np.concatenate(parts).tolist()) == list(range(121))
    assert sum(len(set(groups[part].tolist())) for part in parts) == 80  # each number in one part only
    for part, share in zip(parts, [*fractions, 1 - sum(fractions)], strict=True):
        assert abs(len(part) - share * 121) <= 4  # each end moves by half of the largest group, of four rows
    divided = split_rows(121, fractions, seed=3)
    assert sum(len(set(groups[part].tolist())) for part in divided) > 80


def test_groups_of_one_row_change_nothing() -> None:
    parts = zip(
        split_rows(121, [0.3, 0.2], seed=3, groups=np.arange(121)), split_rows(121, [0.3, 0.2], seed=3), strict=True
    )
    assert all(np.array_equal(part, alone) for part, alone in parts)


def test_copies_are_as_frequent_in_each_part() -> None:
    """A group whose place is that of whichever of its rows comes first would crowd into the first part."""
    groups = np.concatenate([np.arange(300), np.arange(100)])
    copied = groups < 100
    shares = [copied[part].mean() for seed in range(200) for part in split_rows(400, [0.3], seed=seed, groups=groups)]
    held, rest = np.reshape(shares, (200, 2)).T
    assert abs((held - rest).mean()) < 4 * (held - rest).std() / np.sqrt(200)
    assert 4 * (held - rest).std() / np.sqrt(200) < 0.02  # the place of the first row makes a difference of 0.2


def test_pairs_stay_together_in_small_parts_and_classes() -> None:
    pairs = np.repeat(np.arange(8), 2)[:15]
    for seed in range(50):
        parts = split_rows(15, [0.2] * 4, seed=seed, groups=pairs)
        assert sum(len(set(pairs[part].tolist())) for part in parts) == 8
    groups, labels = np.r_[np.repeat(np.arange(9), 2), np.arange(9, 90)], np.repeat([0, 1], [18, 81])
    for seed in range(50):
        held, rest = split_rows(99, [0.3], seed=seed, labels=labels, groups=groups)
        assert not set(groups[held].tolist()) & set(groups[rest].tolist())
        assert 4 <= (labels[held] == 0).sum() <= 6


def test_a_group_larger_than_a_part_is_divided() -> None:
    groups = np.r_[np.zeros(60, int), np.arange(1, 61)]
    parts = split_rows(120, [0.2] * 4, seed=0, groups=groups)
    assert [len(part) for part in parts] == [24] * 5


def test_what_counts_as_a_copy() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 2)), rng.standard_normal(30)
    assert copy_groups(y, X) is None
    # Replicates: equal inputs with targets of their own. No row was copied.
    assert copy_groups(rng.standard_normal(60), np.concatenate([X, X])) is None
    for times in (2, 3, 5):  # however many there are
        groups = copy_groups(np.tile(y, times), np.tile(X, (times, 1)))
        assert groups is not None and np.array_equal(groups, np.tile(groups[:30], times))
    # One row was copied: the groups are of the inputs, whatever the targets.
    groups = copy_groups(np.r_[y, y[:1], 7.0], np.concatenate([X, X[:1], X[1:2]]))
    assert groups is not None and groups[[0, 1]].tolist() == groups[[30, 31]].tolist()
    # Few values in few columns: rows are equal by chance.
    codes, labels = rng.integers(0, 60, (160, 1)), rng.integers(0, 2, 160)
    assert copy_groups(labels, codes) is None
    assert copy_groups(labels, rng.integers(0, 4, (160, 3)).astype(float)) is None


def test_copies_in_tables_with_text_and_missing_values() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": [*"xyzuvw", None, None], "b": [*rng.standard_normal(7), np.nan]}, dtype=object)
    twice = pd.concat([table, table], ignore_index=True)
    y = pd.Series(np.tile(rng.standard_normal(8), 2))
    groups = copy_groups(y, twice)
    assert groups is not None and np.array_equal(groups, np.tile(np.arange(8), 2))


@pytest.mark.parametrize("where", ["choice", "dispersion"])
def test_splits_of_a_fit_keep_copies_together(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 2)), rng.poisson(1000, 200)
    X, y = np.concatenate([X, X]), np.concatenate([y, y])
    data = FitArrays(X, y, X[:0], y[:0], 1, Preprocessor("regression", "y", [], []))
    module = pilots if where == "choice" else dispersion
    seen = []

    def trained(sizes: object, rows: DataRows, *_: object, **__: object) -> None:
        seen.append(rows)
        raise InterruptedError

    net = pn.train([2, 1], X, X[:, 0], l2=1.0, validation_fraction=0, max_epochs=50, progress=False)
    monkeypatch.setattr(module, "train_networks", trained)
    settings = NoiseSettings()
    with pytest.raises(InterruptedError):
        if where == "choice":
            candidates = possible_candidates(settings, [pn.Gaussian(1.0)])
            pilots.run_pilots(candidates, net, data, settings, 1.0)
        else:
            dispersion.estimate_dispersion(data, settings)
    rows = {tuple(row) for row in seen[0].X.tolist()}
    assert 2 * len(rows) == len(seen[0].X) < 400  # both of a pair or neither


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_no_copy_of_a_held_out_row_is_trained_on(tmp_path: Path, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.standard_normal((120, 2)), columns=["a", "b"])
    frame["y"] = rng.permutation(120) if task == "regression" else rng.permutation(["u", "v"] * 60)
    frame = pd.concat([frame, frame[:60]], ignore_index=True)
    frame.loc[179, "y"] = "u" if task == "classification" else 7  # the inputs alone decide
    frame["row"] = range(180)
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    settings = FitSettings(data=str(path), target="y", ids=("row",), test_fraction=0.3, seed=2)
    data = _prepare(read_table(str(path))[0], [], settings)
    held = {tuple(row) for row in data.X_test.tolist()}
    assert held and not held & {tuple(row) for row in data.X.tolist()}
    assert len(data.X) + len(data.X_test) == 180 and abs(len(data.X_test) - 54) <= 2
    assert "note: 60 rows have the inputs of others, and some were copied" in capsys.readouterr().out


def test_split_refuses_an_empty_part() -> None:
    with pytest.raises(ValueError, match="2 rows are too few"):
        split_rows(2, [0.2], seed=0)


def test_inputs_by_hand() -> None:
    frame = mixed_table()
    prep = Preprocessor.fit(frame, "rings", task="regression", rows=[0, 1, 2, 3])
    assert prep.names == ["size", "sex=F", "sex=I", "sex=M", "wild=False", "wild=True"]
    assert prep.notes == ["column 'same' is 7 in every training row and was dropped"]
    # Training rows hold sizes 1, 2, 3, 4: mean 2.5, variance 1.25.
    expected = np.zeros((6, 6))
    expected[:, 0] = (np.arange(1, 7) - 2.5) / np.sqrt(1.25)
    for row, (sex, wild) in enumerate(zip([3, 1, 2, 3, 1, 3], [5, 4, 5, 5, 4, 4], strict=True)):
        expected[row, sex] = expected[row, wild] = 1.0
    # One subtraction and one division round, from a mean and a standard deviation of a few roundings.
    np.testing.assert_allclose(prep.transform(frame), expected, rtol=8 * np.finfo(float).eps, atol=0)


def test_target_standardised_and_back() -> None:
    frame = mixed_table()
    prep = Preprocessor.fit(frame, "rings", task="regression", rows=[0, 1, 2, 3])
    y = prep.transform_target(frame)
    eps = np.finfo(float).eps
    # Training targets 3, 5, 7, 9: mean 6, variance 5.
    np.testing.assert_allclose(y, (np.arange(3, 14, 2) - 6.0) / np.sqrt(5.0), rtol=4 * eps)
    np.testing.assert_allclose(prep.inverse_target(y), frame["rings"], rtol=8 * eps)
    assert prep.variance_in_units(0.5) == pytest.approx(2.5, rel=4 * eps)
    assert prep.n_targets == 1


def test_statistics_come_from_the_training_rows_alone() -> None:
    frame = mixed_table()
    changed = frame.copy()
    changed.loc[4:, "size"] = 1e6
    one = Preprocessor.fit(frame, "rings", task="regression", rows=[0, 1, 2, 3])
    two = Preprocessor.fit(changed, "rings", task="regression", rows=[0, 1, 2, 3])
    assert one.to_dict() == two.to_dict()


@pytest.mark.parametrize(
    "labels", [["x", "y", "x", "z"], [3, 1, 3, 2], [True, False, True, False], [0.5, 1.0, 0.5, 2.0]]
)
def test_classes_of_any_kind_are_remembered(labels: list[object]) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 5.0], "label": labels})
    prep = Preprocessor.fit(frame, "label", task="classification")
    again = Preprocessor.from_dict(json.loads(json.dumps(prep.to_dict())))
    assert again.classes == sorted(set(labels), key=lambda label: label)  # type: ignore[arg-type,return-value]  # of one kind
    codes = again.transform_target(frame)
    assert [again.classes[code] for code in codes] == labels
    assert again.n_targets == len(set(labels))


def test_json_round_trip_transforms_alike() -> None:
    frame = mixed_table().astype({"size": float})
    frame.loc[1, "size"] = np.nan
    prep = Preprocessor.fit(frame, "rings", task="regression", impute="median")
    again = Preprocessor.from_dict(json.loads(json.dumps(prep.to_dict())))
    assert np.array_equal(prep.transform(frame), again.transform(frame))
    assert np.array_equal(prep.transform_target(frame), again.transform_target(frame))
    with pytest.raises(ValueError, match="has format 99"):
        Preprocessor.from_dict({**prep.to_dict(), "format": 99})
    damaged = prep.to_dict()
    del damaged["columns"]
    with pytest.raises(ValueError, match="is damaged"):
        Preprocessor.from_dict(damaged)


def test_missing_values_are_refused_by_column_count_and_row() -> None:
    frame = mixed_table()
    frame.loc[[2, 5], "sex"] = None
    with pytest.raises(ValueError, match=r"column 'sex' has 2 missing values, the first at data row 2 .*--impute"):
        Preprocessor.fit(frame, "rings", task="regression")
    prep = Preprocessor.fit(mixed_table(), "rings", task="regression")
    with pytest.raises(ValueError, match="column 'sex' has 2 missing values, the first at data row 2"):
        prep.transform(frame)


@pytest.mark.parametrize(("impute", "fill"), [("mean", 10.0 / 3.0), ("median", 3.0)])
def test_imputation(impute: str, fill: float) -> None:
    frame = mixed_table()
    frame["size"] = [1.0, np.nan, 3.0, 6.0, 100.0, 100.0]
    frame.loc[4, "sex"] = None
    prep = Preprocessor.fit(frame, "rings", task="regression", rows=[0, 1, 2, 3], impute=impute)
    X = prep.transform(frame)
    size = prep.columns[0]
    assert X[1, 0] * size.scale + size.mean == pytest.approx(fill, rel=1e-14)  # a handful of roundings
    # Of the training rows' M, F, I, M the most frequent is M.
    assert X[4, 1:4].tolist() == [0.0, 0.0, 1.0]
    assert prep.notes[0] == f"column 'size': 1 missing value imputed by {fill:.6g}"
    assert prep.imputed(frame) == prep.notes[:2]


def test_unknown_categories_are_refused_by_column_row_and_value() -> None:
    prep = Preprocessor.fit(mixed_table(), "rings", task="regression")
    new = mixed_table()
    new.loc[3, "sex"] = "X"
    with pytest.raises(
        ValueError, match=r"column 'sex' has the unknown category 'X' at data row 3 .*; the fit saw F, I, M"
    ):
        prep.transform(new)


def test_new_tables_may_lack_the_target_but_no_input() -> None:
    frame = mixed_table()
    prep = Preprocessor.fit(frame, "rings", task="regression")
    shuffled = frame[["wild", "sex", "size"]]
    assert np.array_equal(prep.transform(shuffled), prep.transform(frame))
    with pytest.raises(ValueError, match="the table lacks the columns 'size', 'sex'; it has 'wild'"):
        prep.transform(frame[["wild"]])


def test_columns_without_names_are_placed_with_and_without_the_target() -> None:
    frame = pd.DataFrame([["M", 15, 0.5], ["F", 7, 0.25], ["I", 9, 1.0]], columns=["0", "1", "2"])
    prep = Preprocessor.fit(frame, "1", task="regression")
    without = pd.DataFrame([["M", 0.5], ["F", 0.25]], columns=prep.column_names(2))
    assert np.array_equal(prep.transform(without), prep.transform(frame)[:2])
    assert prep.column_names(3) == ["0", "1", "2"]
    with pytest.raises(ValueError, match="the table has 1 column; the one that was fitted had 3, or 2 without"):
        prep.column_names(1)


def test_codes_are_the_same_category_as_whole_floats() -> None:
    frame = pd.DataFrame({"code": [1, 2, 3, 1], "x": [0.1, 0.2, 0.3, 0.5], "y": [1.0, 2.0, 3.0, 4.0]})
    prep = Preprocessor.fit(frame, "y", task="regression", categorical=["code"])
    assert prep.names == ["code=1", "code=2", "code=3", "x"]
    assert np.array_equal(prep.transform(frame.astype({"code": float})), prep.transform(frame))


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (
            "size",
            [1.0, np.inf, 3.0, 4.0, 5.0, 6.0],
            "column 'size' must be finite; got .*inf.* at data row 1 .*; 1 such rows in all",
        ),
        ("size", ["1", "2", "3", "oops", "5", "6"], "column 'size' holds mostly numbers, but 'oops' at data row 3"),
        (
            "rings",
            [1.0, 2.0, np.nan, 4.0, 5.0, 6.0],
            "the target 'rings' has 1 missing values, the first at data row 2",
        ),
        ("rings", ["a", "b", "c", "d", "e", "f"], "the target 'rings' must hold numbers; got 'a' at data row 0"),
        ("rings", [4, 4, 4, 4, 4, 4], "the target 'rings' is 4 in every training row"),
        ("size", [np.nan] * 6, "column 'size' has no values in the training rows"),
    ],
)
def test_what_cannot_be_used_is_named(column: str, values: list[object], message: str) -> None:
    frame = mixed_table()
    frame[column] = values
    impute = "mean" if values[0] is np.nan else None
    with pytest.raises(ValueError, match=message):
        Preprocessor.fit(frame, "rings", task="regression", impute=impute)


def test_identifiers_and_tables_without_inputs_are_refused() -> None:
    rows = 150
    frame = pd.DataFrame({"id": [f"row-{row}" for row in range(rows)], "y": np.arange(rows, dtype=float)})
    with pytest.raises(ValueError, match=r"column 'id' has 150 different values.*--drop"):
        Preprocessor.fit(frame, "y", task="regression")
    with pytest.raises(ValueError, match="no column is left"):
        Preprocessor.fit(frame, "y", task="regression", drop=["id"])
    with pytest.raises(ValueError, match="has one class only, 'row'"):
        Preprocessor.fit(frame.assign(y="row", x=frame["y"]), "y", task="classification", drop=["id"])


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b"], "classification"),
        ([True, False], "classification"),
        ([0, 1], "classification"),
        ([1, 2, 3], "regression"),
    ],
)
def test_guessed_tasks(values: list[object], task: str) -> None:
    assert guess_task(pd.Series(values))[0] == task


def test_abalone_is_read_as_it_is(data_dir: Path) -> None:
    frame, table = read_table(data_dir / "abalone" / "abalone.data", header=False)
    assert table == TableFormat(",", False, units={}) and frame.shape == (4177, 9)
    prep = Preprocessor.fit(frame, "8", task="regression")
    X = prep.transform(frame)
    assert prep.names[:3] == ["0=F", "0=I", "0=M"] and X.shape == (4177, 10)
    # The counts and the mean that the data's own description gives.
    assert X[:, :3].sum(axis=0).tolist() == [1307, 1342, 1528]
    assert prep.target_mean == pytest.approx(9.93368, abs=5e-6)


def test_whitespace_files_of_the_uci_collection(data_dir: Path) -> None:
    frame, table = read_table(data_dir / "uci" / "yacht" / "data.txt", header=False)
    assert table.separator == r"\s+" and frame.shape == (308, 7) and not frame.isna().any().any()
