"""Devices: their names, their limits and whether one can be used."""

from __future__ import annotations

from typing import Any

from patrac_native.engine import _core

# Prefix of devices emulated by host threads, for tests: "emulated:4" has blocks of four threads.
EMULATED = "emulated:"
# The largest number of layers of weights that a device runs.
MAX_DEVICE_LAYERS: int = _core.MAX_DEVICE_LAYERS


def device_status(device: str = "cuda") -> dict[str, Any]:
    """Report whether a device can be used, and its properties.

    Parameters
    ----------
    device : str
        "cuda", the default.

    Returns
    -------
    dict
        usable (bool); reason (str: why it cannot be used, such as a build without CUDA, no driver or no device; empty
        if it can); name (str); multiprocessors (int); memory_bytes (int); shared_bytes (int, the shared memory that
        one block of threads may use).

    Raises
    ------
    ValueError
        If there is no device of that name.
    """
    status: dict[str, Any] = _core.device_status(device)
    return status
