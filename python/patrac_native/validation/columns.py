"""Names of the columns of tables: kept by what a table trained, and matched by what predicts from another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any


def as_frame(X: Any, name: str = "X") -> Any:
    """Return an Arrow table, or another that only pandas can read, as a data frame; anything else as it is.

    Raises TypeError for a table that has names of columns but is no frame. Attributes are those of the class: a data
    frame's columns are attributes too.
    """
    if not hasattr(type(X), "column_names"):
        return X
    if not hasattr(type(X), "to_pandas"):
        raise TypeError(
            f"{name} is a {type(X).__name__}, whose columns cannot be read; give a pandas DataFrame or an array."
        )
    return X.to_pandas()


def column_names(X: Any, name: str = "X") -> tuple[str, ...] | None:
    """Return the names of a table's columns as text; None for an array, and where they are positions in any order.

    Raises ValueError if two names have the same text.
    """
    names = _texts(X, name)
    return None if names is None or set(names) == set(_positions(len(names))) else names


def in_order(X: Any, wanted: Sequence[str] | None, name: str = "X") -> Any:
    """Return a table with its columns in the order of the training; anything else as it is.

    Columns without names, and those of a training without names, are named by their positions. Where only one side has
    names, columns are in order.
    """
    given = _texts(X, name)
    if given is None:
        return X
    positions = _positions(len(given))
    wanted, of_training = positions if wanted is None else tuple(wanted), wanted is not None
    if given == wanted:
        return X
    place = {column: index for index, column in enumerate(given)}
    known = set(wanted)
    if place.keys() != known:
        if given == positions or not of_training:
            return X
        missing, extra = [one for one in wanted if one not in place], [one for one in given if one not in known]
        wrong = [f"lacks {_listed(missing)}"] * bool(missing) + [f"also has {_listed(extra)}"] * bool(extra)
        raise ValueError(
            f"{name} must have the columns of the training, {_listed(wanted)}; it {' and '.join(wrong)}. Select these "
            "columns, or pass an array whose columns are in their order."
        )
    X = as_frame(X, name)
    return X.iloc[:, [place[column] for column in wanted]] if hasattr(X, "iloc") else X[list(wanted)]


def _texts(X: Any, name: str) -> tuple[str, ...] | None:
    """Return the names of a table's columns as text, None for an array; raise ValueError if two are alike."""
    given = X.column_names if hasattr(type(X), "column_names") else getattr(X, "columns", None)
    if given is None:
        return None
    names = tuple(map(str, given))
    twice = [one for one, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{name} has two columns named {twice[0]!r}; rename one.")
    return names


def _positions(count: int) -> tuple[str, ...]:
    """Return the names of columns that have none: their positions."""
    return tuple(map(str, range(count)))


def _listed(names: Sequence[object]) -> str:
    """Return names in quotation marks, at most ten of them."""
    return ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
