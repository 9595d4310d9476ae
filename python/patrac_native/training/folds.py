"""Splits of the rows: into parts at random that no row has a copy across, and into validation rows of a training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.training.descent import Problem

if TYPE_CHECKING:
    import pandas as pd

IndexArray = npt.NDArray[np.intp]

# With at least this many rows one part of them is used for validation, with fewer each part in turn.
CROSS_VALIDATED_ROWS = 1_000
# With fewer rows than this there is no validation by default.
FEWEST_ROWS = 10


def copy_groups(*columns: pd.DataFrame | npt.NDArray[Any]) -> IndexArray | None:
    """Return a number for each row that equal rows, copies of each other, have in common.

    Parameters
    ----------
    *columns : DataFrame or ndarray, shape (n, c) or (n,)
        Inputs and targets. Rows with equal inputs and different targets are replicates, not copies.

    Returns
    -------
    integer array, shape (n,), or None
        None if no row has a copy, or if the distinct rows are fewer than half of all: columns of few values then make
        rows equal, and new rows will equal them as well.
    """
    import pandas as pd

    rows = pd.concat([pd.DataFrame(part) for part in columns], axis="columns")
    groups, distinct = pd.factorize(pd.util.hash_pandas_object(rows, index=False).to_numpy())
    n = len(rows)
    return None if len(distinct) == n or 2 * len(distinct) < n else groups


def split_rows(
    n: int,
    fractions: Sequence[float],
    *,
    seed: int,
    labels: npt.ArrayLike | None = None,
    groups: IndexArray | None = None,
) -> list[IndexArray]:
    """Split rows at random into parts, the last of which gets the rows that the fractions leave.

    Parameters
    ----------
    n : int
        Number of rows.
    fractions : sequence of float
        Share of each part except the last; positive, with a sum below 1.
    seed : int
        Seed of the permutation.
    labels : array_like, shape (n,), optional
        Class of each row. If it is given, each part gets its share of every class, and a class with no more rows than
        there are fractions is assigned to the last part.
    groups : integer array, shape (n,), optional
        As of `copy_groups`: rows of the same number (and class) are put into the same part, because a network that
        has learned a row by heart scores well on its copy. A part grows by at most a quarter of the smallest part for
        it; a larger group is divided.

    Returns
    -------
    list of integer arrays, each sorted
        The rows of each part, one part more than there are fractions; each row is in exactly one part.

    Raises
    ------
    ValueError
        If a part would be empty.
    """
    rng = np.random.default_rng(seed)
    strata = np.zeros(n, dtype=np.intp) if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]
    parts: list[list[IndexArray]] = [[] for _ in range(len(fractions) + 1)]
    for stratum in range(int(strata.max()) + 1 if n else 0):
        rows = rng.permutation(np.flatnonzero(strata == stratum))
        ends = np.round(np.cumsum(fractions) * len(rows)).astype(int)
        if labels is not None and len(rows) <= len(fractions):
            ends[:] = 0
        if groups is not None:
            rows, ends = _keep_together(rows, ends, groups[rows])
        for part, piece in zip(parts, np.split(rows, ends), strict=True):
            part.append(piece)
    whole = [np.sort(np.concatenate(part)) if part else np.empty(0, dtype=np.intp) for part in parts]
    if any(len(part) == 0 for part in whole):
        raise ValueError(
            f"{n} rows are too few to be split into {len(whole)} parts: with the shares "
            f"{', '.join(f'{share:g}' for share in fractions)} and the rest, one would be empty. Give more rows."
        )
    return whole


def _keep_together(rows: IndexArray, ends: IndexArray, groups: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Move rows up to the first one of their group, and ends of parts to the end of the group that they divide."""
    import pandas as pd

    place = pd.factorize(groups)[0]  # of groups, in the order of their first rows
    order = np.argsort(place, kind="stable")
    last = np.cumsum(np.bincount(place))[place[order]]  # for each row, the end of its group
    bounds = np.concatenate([[0], ends, [len(rows)]])
    farthest = np.diff(bounds).min() // 4
    moved = np.array([end if end == 0 else last[end - 1] for end in ends], dtype=np.intp)
    return rows[order], np.where(moved - ends <= farthest, moved, ends)


def validation_folds(problem: Problem, fraction: float) -> list[IndexArray]:
    """Return the validation rows of each network.

    With 1,000 rows or more there is one set of validation rows, the given share of all rows. With fewer, the rows are
    split into about 1 / fraction parts, at least two, and each part is the validation set of one network. Classes are
    divided among the parts in proportion; a class with fewer rows than there are parts, and rows of weight zero, are in
    none of them. Copies of a row are in the same part (`copy_groups`).

    Raises
    ------
    ValueError
        If there are too few rows.
    """
    too_few = (
        f"validation_fraction={fraction:g} of {problem.n_rows} rows leaves too few to choose the training by: "
        "give more rows, or train on all of them with validation_fraction=0 and your own l2."
    )
    if fraction * problem.n_rows < 0.5:
        raise ValueError(too_few)
    rows = np.flatnonzero(problem.row_weights > 0)
    labels = _labels(problem)
    kept = labels
    if labels is not None:
        parts = max(2, round(1 / fraction))
        _, group, counts = np.unique(labels[rows], return_inverse=True, return_counts=True)
        rows = rows[counts[group] >= parts]
        kept = labels[rows]
    if len(rows) >= CROSS_VALIDATED_ROWS:
        shares, used = [fraction], 1
    else:
        used = max(2, round(1 / fraction))
        shares = [1 / used] * (used - 1)
    groups = copy_groups(problem.inputs[rows], problem.targets[rows])
    try:
        split = split_rows(len(rows), shares, seed=problem.seed + 1, labels=kept, groups=groups)
    except ValueError as few:
        raise ValueError(too_few) from few
    return [rows[part] for part in split[:used]]


def _labels(problem: Problem) -> npt.NDArray[Any] | None:
    """Return the class of each row (n,), or None if the targets are no classes."""
    if problem.likelihood.targets == "class":
        return problem.targets
    if problem.likelihood.targets == "binary" and problem.targets.shape[1] == 1:
        return problem.targets[:, 0]
    return None
