"""The device that holds an array of any library, by DLPack's numbering (https://dmlc.github.io/dlpack)."""

from __future__ import annotations

from typing import Any

import numpy as np

# DLPack's device types: host memory, CUDA device memory, and CUDA managed memory, which both can address.
HOST, CUDA, MANAGED = 1, 2, 13


def place_of(array: Any) -> tuple[int, int] | None:
    """Return the DLPack device type and index of an array's device, or None if the object does not report one."""
    if isinstance(array, np.ndarray):
        return HOST, 0
    if not (hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")):
        return None
    try:
        kind, index = array.__dlpack_device__()
    except (BufferError, ValueError, RuntimeError):  # DLPack has no number for this device
        return None
    return int(kind), int(index)
