"""Splits of rows: parts of given sizes and classes, and copies of rows that stay together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from patrac_native.diagnostics import check_groups, copy_groups, split_rows
from patrac_native.fit.rows import hold_out


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


@pytest.mark.parametrize("sizes", [[1] * 40, [3] * 12, [30, *[2] * 9], [50, 1, 1, 1, 1], [5, 40, 5, 5, 5, 5]])
def test_whole_groups_are_never_divided_and_no_part_is_empty(sizes: list[int]) -> None:
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    labels = groups % 2
    for seed in range(20):
        for fractions in ([0.3], [0.2] * 4):
            parts = split_rows(len(groups), fractions, seed=seed, groups=groups, whole=True)
            assert sorted(np.concatenate(parts).tolist()) == list(range(len(groups))) and all(map(len, parts))
            assert sum(len(set(groups[part].tolist())) for part in parts) == len(sizes)
        held, rest = split_rows(len(groups), [0.3], seed=seed, groups=groups, labels=labels, whole=True)
        assert not set(groups[held].tolist()) & set(groups[rest].tolist())
    with pytest.raises(ValueError, match="60 rows in 2 groups are too few to be split into 3 parts"):
        split_rows(60, [0.3, 0.3], seed=0, groups=np.arange(60) // 30, whole=True)


@pytest.mark.parametrize(
    ("sizes", "of_classes", "share", "bounds"),
    [
        ([700, 100, 100, 100], [0, 0, 0, 0], 0.2, (100, 300)),
        ([900, *[1] * 100], [0] * 101, 0.2, (100, 100)),  # nothing else is left
        ([10] * 20, np.repeat(np.arange(10), 2), 0.1, (10, 30)),
        ([10] * 30, np.repeat(np.arange(10), 3), 0.1, (20, 40)),
        ([10] * 20, np.repeat(np.arange(5), 4), 0.25, (40, 60)),
    ],
)
def test_whole_groups_have_their_share_though_they_are_uneven_or_of_one_class(
    sizes: list[int], of_classes: Any, share: float, bounds: tuple[int, int]
) -> None:
    groups, labels = np.repeat(np.arange(len(sizes)), sizes), np.repeat(of_classes, sizes)
    for seed in range(20):
        for given in (None, labels):
            held, rest = split_rows(len(groups), [share], seed=seed, labels=given, groups=groups, whole=True)
            assert bounds[0] <= len(held) <= bounds[1] and len(held) + len(rest) == len(groups)
            assert not set(groups[held]) & set(groups[rest])


def test_groups_have_labels_of_any_kind() -> None:
    assert check_groups(["b", "a", "b"], 3).tolist() == [0, 1, 0]
    for gone in (np.array([1.5, np.nan, np.nan]), ["a", None, None]):
        with pytest.raises(ValueError, match=r"groups has no label at row 1 \(counted from 0; 2 in all\)"):
            check_groups(gone, 3)
    for wrong in ([1, 2], [[1], [2], [3]]):
        with pytest.raises(ValueError, match=r"groups must have shape \(3,\), one label for each row; got"):
            check_groups(wrong, 3)


def test_the_latest_rows_are_held_out() -> None:
    times = np.random.default_rng(0).permutation(np.repeat(np.arange(50.0), 2))
    frame = pd.DataFrame({"a": np.arange(100.0)})
    train, test, note = hold_out(frame, frame["a"], 0.25, seed=0, times=times)
    assert times[train].max() < times[test].min() and len(test) == 26 and note == "the latest rows are held out"
    with pytest.raises(ValueError, match="time splits no rows: all 100 have the same one"):
        hold_out(frame, frame["a"], 0.25, seed=0, times=np.zeros(100))
    # Of the earliest time rows are trained on, however many they are.
    train, test, note = hold_out(frame[:4], frame["a"][:4], 0.6, seed=0, times=np.array([1.0, 1, 2, 1]))
    assert train.tolist() == [0, 1, 3] and test.tolist() == [2]
    assert note == "the latest rows are held out: 25% of all, as rows of one time are not divided"


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
    # Two pairs are equal in both columns, each of which has a share of 2 / (n (n - 1) / 2) equal pairs: more than 100
    # times as many as by chance from 21 rows on.
    for n, are_copies in ((20, False), (21, True)):
        column = np.r_[np.arange(n - 2.0), 0, 1]
        assert (copy_groups(column, column) is not None) == are_copies
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


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_no_copy_of_a_held_out_row_is_trained_on(task: str) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.standard_normal((120, 2)), columns=["a", "b"])
    frame["y"] = rng.permutation(120) if task == "regression" else rng.permutation(["u", "v"] * 60)
    frame = pd.concat([frame, frame[:60]], ignore_index=True)
    frame.loc[179, "y"] = "u" if task == "classification" else 7  # the inputs alone decide
    labels = frame["y"].to_numpy(str) if task == "classification" else None
    train, test, note = hold_out(frame[["a", "b"]], frame["y"], 0.3, seed=2, labels=labels)
    assert not set(frame["a"][test]) & set(frame["a"][train])
    assert sorted([*train, *test]) == list(range(180)) and abs(len(test) - 54) <= 2
    assert note == "60 rows have the inputs of others, and some were copied; rows with equal inputs are trained on, " \
        "held out or validated together"  # fmt: skip


def test_split_refuses_an_empty_part() -> None:
    with pytest.raises(ValueError, match="2 rows are too few"):
        split_rows(2, [0.2], seed=0)


def test_a_part_ends_at_the_nearest_end_of_a_group() -> None:
    groups = np.repeat(np.arange(10), 10)
    for share, size in ((0.32, 30), (0.38, 40)):
        assert len(split_rows(100, [share], seed=3, groups=groups)[0]) == size
