"""Names of the columns of data frames: kept by what a frame trained, and matched by what predicts from another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def column_names(X: Any, name: str = "X") -> tuple[str, ...] | None:
    """Return the names of a data frame's columns."""
    columns = getattr(X, "columns", None)
    if columns is None:
        return None
    names = list(columns)
    others = [column for column in names if not isinstance(column, str)]
    if len(others) == len(names):
        return None
    if others:
        raise TypeError(
            f"{name} must have columns that are all named by text, or none of them; got {_listed(names)}. Rename them, "
            "such as by X.columns = X.columns.astype(str)."
        )
    if len(set(names)) < len(names):
        twice = next(column for column in names if names.count(column) > 1)
        raise ValueError(f"{name} has two columns named {twice!r}; rename one.")
    return tuple(str(column) for column in names)


def in_order(X: Any, wanted: Sequence[str] | None, name: str = "X") -> Any:
    """Return a data frame with its columns in the order of the training; anything else as it is."""
    given = column_names(X, name)
    if wanted is None or given is None or list(given) == list(wanted):
        return X
    missing = [column for column in wanted if column not in given]
    extra = [column for column in given if column not in wanted]
    if missing or extra:
        wrong = [f"lacks {_listed(missing)}"] * bool(missing) + [f"also has {_listed(extra)}"] * bool(extra)
        raise ValueError(
            f"{name} must have the columns of the training, {_listed(wanted)}; it {' and '.join(wrong)}. Select these "
            "columns, or pass an array whose columns are in their order."
        )
    return X[list(wanted)]


def _listed(names: Sequence[object]) -> str:
    """Return names in quotation marks, at most ten of them."""
    return ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
