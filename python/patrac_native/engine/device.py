"""Devices: which ones can be used."""

from __future__ import annotations

from typing import Any

from patrac_native.engine import _core

# Devices of host threads, for tests: "emulated:4" has blocks of four.
EMULATED = "emulated:"
MAX_DEVICE_LAYERS: int = _core.MOST_DEVICE_LAYERS


def device_status(device: str = "cuda") -> dict[str, Any]:
    """Say whether a device can be used.

    Parameters
    ----------
    device : "cuda"

    Returns
    -------
    dict
        usable (bool); reason (str, empty if usable: built without CUDA, no driver, no device); name; multiprocessors;
        memory_bytes; shared_bytes (of a block of threads).
    """
    status: dict[str, Any] = _core.device_status(device)
    return status
