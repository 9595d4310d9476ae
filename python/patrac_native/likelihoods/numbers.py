"""Numbers of likelihoods that are given once for all outputs or once for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.validation.checks import FloatArray, as_real_array, check_positive


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


def listed(values: Iterable[float]) -> str:
    """Return numbers in words."""
    return ", ".join(f"{float(value):.4g}" for value in values)
