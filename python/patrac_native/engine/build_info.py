"""How this copy of the package was built and what it runs on, as `patrac info` prints it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from patrac_native.engine import _core


def _cuda() -> str:
    """Describe CUDA support: whether it was built in, and the GPU or why none can be used."""
    if not _core.CUDA:
        return "no (built without)"
    status = _core.device_status("cuda")
    return f"built with {_core.CUDA}, " + (status["name"] if status["usable"] else f"not usable: {status['reason']}")


def build_info() -> dict[str, str]:
    """Return versions, compiler, flags, instruction-set levels and CUDA support.

    Returns
    -------
    dict of str to str
        One entry for each line of `patrac info`, in its order.
    """
    info = {
        "patrac_native": version("patrac_native"),
        "python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        "compiler": _core.COMPILER,
        "flags": _core.FLAGS,
        "SIMD levels": ", ".join(_core.simd_levels()),
        "SIMD level in use": _core.default_simd_level() + (" (PATRAC_SIMD)" if os.environ.get("PATRAC_SIMD") else ""),
        "CUDA": _cuda(),
    }
    for name in ("numpy", "scipy", "torch", "arviz-stats", "matplotlib", "xarray"):
        try:
            info[name] = version(name)
        except PackageNotFoundError:
            info[name] = "not installed"
    return info
