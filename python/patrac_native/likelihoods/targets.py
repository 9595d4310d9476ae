"""The common check of targets with one number for each output."""

from __future__ import annotations

import numpy.typing as npt

from patrac_native.validation.checks import FloatArray, as_real_array

ENCODE_LABELS = "Encode class names as whole numbers: names, y = np.unique(y, return_inverse=True)."


def matrix_targets(y: npt.ArrayLike, n: int, m: int, advice: str = "Encode it as numbers first.") -> FloatArray:
    """Return y as a C-contiguous float64 copy of shape (n, m); (n,) is accepted for one output."""
    values = as_real_array(y, "y", advice)
    if values.shape == (n,) and m == 1:
        values = values[:, None]
    if values.shape != (n, m):
        allowed = f"({n},) or ({n}, 1)" if m == 1 else f"({n}, {m})"
        raise ValueError(f"y must have shape {allowed}, one row for each row of X; got {values.shape}.")
    return values.copy()
