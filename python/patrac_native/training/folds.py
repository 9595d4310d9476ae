"""The validation rows of a training."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.splits import IndexArray, copy_groups, split_rows
from patrac_native.training.descent import Problem

# With at least this many rows one part of them is used for validation, with fewer each part in turn.
CROSS_VALIDATED_ROWS = 1_000
# With fewer rows than this there is no validation by default.
FEWEST_ROWS = 10


def problem_copies(problem: Problem) -> IndexArray | None:
    """Return the `copy_groups` of the rows of a training."""
    return copy_groups(problem.targets.reshape(problem.n_rows, -1), problem.inputs, problem.offset)


def validation_folds(problem: Problem, fraction: float) -> list[IndexArray]:
    """Return the validation rows of each network: of one network for 1,000 rows or more, else each part in turn."""
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
    groups = problem_copies(problem)
    if groups is not None:
        groups = groups[rows]
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
