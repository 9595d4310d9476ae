"""Where arrays of any library are, as DLPack numbers it (https://dmlc.github.io/dlpack)."""

from __future__ import annotations

from typing import Any

import numpy as np

# Kinds of devices: the host, CUDA, and memory that both share.
HOST, CUDA, MANAGED = 1, 2, 13


def place_of(array: Any) -> tuple[int, int] | None:
    """Return kind and index of the array's device; None for what does not say."""
    if isinstance(array, np.ndarray):
        return HOST, 0
    if not (hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")):
        return None
    try:
        kind, index = array.__dlpack_device__()
    except (BufferError, ValueError, RuntimeError):  # a device that DLPack has no number for
        return None
    return int(kind), int(index)
