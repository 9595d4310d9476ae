"""Random splits of rows, which keep copies of a row in one part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

IndexArray = npt.NDArray[np.intp]

# Pairs of equal rows are copies if they are more than this many times as many as columns that are independent of each
# other would make equal by chance. Correlated columns make more equal than that.
_BEYOND_CHANCE = 100.0


def copy_groups(targets: Any, *inputs: Any) -> IndexArray | None:
    """Return the group of each row, which rows with equal inputs share, if rows of the data were copied.

    A network that has learned a row by heart scores well on its copy, so a split must not divide copies. Rows count as
    copied if the pairs of rows that agree in all inputs and targets are more than 100 times as many as independent
    columns would give by chance. Rows of a few columns with few values agree by chance, and new rows will as well. The
    groups depend on the inputs alone: groups of inputs and targets would reveal that no row of another part with the
    same inputs has the same target.

    Parameters
    ----------
    targets : DataFrame, Series or ndarray, shape (n,) or (n, c)
    *inputs : DataFrame, Series, ndarray or None
        As `targets`; None is left out.

    Returns
    -------
    integer array, shape (n,), or None
        Numbers of the groups, from 0; None if no rows were copied.
    """
    import pandas as pd

    tables = [pd.DataFrame(part, copy=False) for part in (targets, *inputs) if part is not None]
    hashes = [pd.util.hash_pandas_object(table, index=False).to_numpy() for table in tables]
    groups = _numbered(hashes[1:])
    n, pairs = len(groups), _equal_pairs(_numbered(hashes))
    if not pairs:
        return None
    chance = n * (n - 1) / 2
    for table in tables:
        for column in range(table.shape[1]):
            chance *= _equal_pairs(pd.factorize(table.iloc[:, column], use_na_sentinel=False)[0]) / (n * (n - 1) / 2)
            if pairs > _BEYOND_CHANCE * chance:
                return groups
    return None


def _numbered(keys: Sequence[npt.NDArray[Any]]) -> IndexArray:
    """Return the number of each combination of keys (n,), counted from 0 in the order of their first rows."""
    import pandas as pd

    frame = pd.DataFrame(dict(enumerate(keys)))
    found: IndexArray = frame.groupby(list(frame.columns), sort=False).ngroup().to_numpy(dtype=np.intp)
    return found


def _equal_pairs(numbers: IndexArray) -> float:
    """Return how many pairs of entries are equal."""
    counts = np.bincount(numbers).astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())


def check_groups(groups: npt.ArrayLike, n: int) -> IndexArray:
    """Return the numbers of groups that are given by labels of any kind.

    Parameters
    ----------
    groups : array_like, shape (n,)
        A label for each row; none may be missing.
    n : int
        Number of rows.

    Returns
    -------
    ndarray of intp, shape (n,)
        The number of each row's group, counted from 0 in the order of their first rows.

    Raises
    ------
    ValueError
        If `groups` has another shape, or a label is missing.
    """
    import pandas as pd

    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"groups must have shape ({n},), one label for each row; got {labels.shape}.")
    numbers = np.asarray(pd.factorize(labels)[0], dtype=np.intp)
    if (gone := np.flatnonzero(numbers < 0)).size:
        raise ValueError(
            f"groups has no label at row {gone[0]} (counted from 0; {gone.size} in all); a row that belongs to no "
            "other needs a label of its own."
        )
    return numbers


def split_rows(
    n: int,
    fractions: Sequence[float],
    *,
    seed: int,
    labels: npt.ArrayLike | None = None,
    groups: IndexArray | None = None,
    whole: bool = False,
) -> list[IndexArray]:
    """Split rows at random into parts of these shares and a last one; by class, and by groups, if given.

    A group that is larger than a part is divided, unless `whole` forbids it: then it is one of the last part where that
    is possible, and each part has a group or more. Whole groups are shared out class by class as nearly as they allow.
    """
    rng = np.random.default_rng(seed)
    strata = np.zeros(n, dtype=np.intp) if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]
    first = np.arange(n) if groups is None else _first_of_group(groups)
    strata, shares = strata[first], np.cumsum(fractions)
    parts: list[list[IndexArray]] = [[] for _ in range(len(fractions) + 1)]
    seen, taken = 0, np.zeros(len(fractions), dtype=np.intp)  # rows of the classes so far, and of them in the parts
    for stratum in range(int(strata.max()) + 1 if n else 0):
        rows = rng.permutation(np.flatnonzero(strata == stratum))
        ends = np.round(shares * len(rows)).astype(int)
        if whole:  # what one class has too much of, the next ones have less of
            seen += len(rows)
            wanted = np.round(shares * seen).astype(int) - taken
            ends = np.maximum.accumulate(np.clip(wanted, 0, len(rows)))
        elif labels is not None and len(rows) <= len(fractions):
            ends[:] = 0
        if groups is not None:
            most = np.diff([0, *shares, 1]).min() * n if whole else np.diff([0, *ends, len(rows)]).min()
            rows, ends = _keep_together(rows, ends, first, float(most), whole=whole, fill=whole and labels is None)
            taken += ends
        for part, piece in zip(parts, np.split(rows, ends), strict=True):
            part.append(piece)
    found = [np.sort(np.concatenate(part)) if part else np.empty(0, dtype=np.intp) for part in parts]
    if any(len(part) == 0 for part in found):
        if whole and labels is not None:
            return split_rows(n, fractions, seed=seed, groups=groups, whole=True)
        of_groups = f" in {len(np.unique(first))} groups" if whole else ""
        raise ValueError(
            f"{n} rows{of_groups} are too few to be split into {len(found)} parts: with the shares "
            f"{', '.join(f'{share:g}' for share in fractions)} and the rest, one would be empty. Give more rows."
        )
    return found


def _first_of_group(groups: IndexArray) -> IndexArray:
    """Return for each row the first row of its group."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    found: IndexArray = first[inverse]
    return found


def _keep_together(
    rows: IndexArray, ends: IndexArray, first: IndexArray, most: float, *, whole: bool, fill: bool
) -> tuple[IndexArray, IndexArray]:
    """Order permuted rows by groups, each at the place of its first row, and move ends of parts to ends of groups.

    A group of more than `most` rows is divided or, if `whole`, comes last. With `fill` each part has a group.
    """
    is_large = np.bincount(first[rows], minlength=len(first))[first[rows]] > most
    leader = np.where(is_large, rows, first[rows]) if not whole else first[rows]
    place = np.empty(len(first), dtype=np.intp)
    place[rows] = np.arange(len(rows))
    order = np.argsort(place[leader] + (len(rows) * is_large if whole else 0), kind="stable")
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(leader[order])) + 1, [len(rows)]])
    above = np.searchsorted(bounds, ends)
    below = np.maximum(above - 1, 0)
    at = np.where(bounds[above] - ends < ends - bounds[below], above, below)
    count, groups = np.arange(len(ends)), len(bounds) - 1
    if fill and groups > len(ends):
        at = np.maximum.accumulate(np.maximum(at - count, 1)) + count
        at = np.minimum(at, groups - len(ends) + count)
    return rows[order], bounds[at]
