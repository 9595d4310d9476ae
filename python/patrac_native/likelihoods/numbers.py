"""Checks of the numbers of a likelihood, given once for all outputs or once for each, and of targets of one number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.validation.checks import FloatArray, as_real_array, check_positive

ENCODE_LABELS = "Encode class names as whole numbers: names, y = np.unique(y, return_inverse=True)."


def plain_numbers(numbers: Any) -> Any:
    """Return an array as a list, and anything else as it is."""
    return numbers.tolist() if isinstance(numbers, np.ndarray) else numbers


def positive_numbers(value: float | npt.ArrayLike, name: str) -> float | FloatArray:
    """Return one positive finite number, or a read-only copy of a vector of them; raise if it is neither."""
    if np.ndim(value) == 0:
        return check_positive(np.asarray(value).item(), name)
    values = as_real_array(value, name).copy()
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{name} must be a number or have shape (m,); got shape {values.shape}.")
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        output = int(np.argmax(bad))
        raise ValueError(f"{name} must be positive and finite; got {values[output]} for output {output}.")
    values.flags.writeable = False
    return values


def of_outputs(numbers: float | FloatArray, m: int, name: str) -> FloatArray:
    """Return the number of each output, shape (m,); raise ValueError if there are some for another number of them."""
    if isinstance(numbers, np.ndarray) and numbers.shape != (m,):
        raise ValueError(f"{name} has {len(numbers)} entries, but the network has {m} outputs; give one number or {m}.")
    return np.full(m, numbers)


def listed(values: Iterable[float]) -> str:
    """Return numbers in words."""
    return ", ".join(f"{float(value):.4g}" for value in values)


def matrix_targets(y: npt.ArrayLike, n: int, m: int, advice: str = "Encode it as numbers first.") -> FloatArray:
    """Return y as a C-contiguous float64 copy of shape (n, m); (n,) is accepted for one output."""
    values = as_real_array(y, "y", advice)
    if values.shape == (n,) and m == 1:
        values = values[:, None]
    if values.shape != (n, m):
        allowed = f"({n},) or ({n}, 1)" if m == 1 else f"({n}, {m})"
        raise ValueError(f"y must have shape {allowed}, one row for each row of X; got {values.shape}.")
    return values.copy()


def refuse_targets(bad: npt.ArrayLike, y: FloatArray, problem: str) -> None:
    """Raise ValueError if an entry of `bad` (n, t) is True; the message names the first and their number."""
    found = np.argwhere(bad)
    if len(found):
        row, output = found[0]
        value = ", ".join(f"{number:g}" for number in y[row, output].reshape(-1))
        raise ValueError(f"{problem}; got {value} at row {row}, output {output} ({len(found)} bad values in all).")
