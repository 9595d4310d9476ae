"""The machine as the core sees it: the number of native threads, devices, and how this copy was built."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from patrac_native.engine import _core
from patrac_native.validation.checks import check_count

# More than any processor has: larger numbers mean this one.
_MAX_THREADS = 4096
# Prefix of devices emulated by host threads, for tests: "emulated:4" has blocks of four threads.
EMULATED = "emulated:"
# The largest number of layers of weights that a device runs.
MAX_DEVICE_LAYERS: int = _core.MAX_DEVICE_LAYERS


def thread_count(threads: int | None) -> int:
    """Return the given number of threads, at most 4096, or that of the processors that this process may use."""
    if threads is None:
        affinity = getattr(os, "sched_getaffinity", None)
        threads = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(check_count(threads, "threads"), _MAX_THREADS)


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


def build_info() -> dict[str, str]:
    """Return versions, compiler, flags, instruction-set levels and CUDA support.

    Returns
    -------
    dict of str to str
        One entry for each line of `patrac info`, in its order.
    """
    cuda = "no (built without)"
    if _core.CUDA:
        status = _core.device_status("cuda")
        found = status["name"] if status["usable"] else f"not usable: {status['reason']}"
        cuda = f"built with {_core.CUDA}, {found}"
    info = {
        "patrac_native": version("patrac_native"),
        "python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        "compiler": _core.COMPILER,
        "flags": _core.FLAGS,
        "SIMD levels": ", ".join(_core.simd_levels()),
        "SIMD level in use": _core.default_simd_level() + (" (PATRAC_SIMD)" if os.environ.get("PATRAC_SIMD") else ""),
        "CUDA": cuda,
    }
    for name in ("numpy", "scipy", "torch", "arviz-stats", "matplotlib", "xarray"):
        try:
            info[name] = version(name)
        except PackageNotFoundError:
            info[name] = "not installed"
    return info
