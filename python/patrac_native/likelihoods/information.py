"""Roots of Fisher information matrices."""

from __future__ import annotations

import numpy as np

from patrac_native.validation.checks import FloatArray


def diagonal_root(root: FloatArray) -> FloatArray:
    """Return diagonal matrices (n, m, m) of the roots (n, m) of the information of independent outputs."""
    return np.asarray(root, dtype=np.float64)[:, :, None] * np.eye(root.shape[1])
