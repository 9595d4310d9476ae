"""The processor and the versions on which the tests run, on which stored numbers may depend."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np

import patrac_native as pn


def processor() -> dict[str, str]:
    """Return family and model of the processor and the version of NumPy.

    Draws of one level are the same within a family; where BLAS or LAPACK takes part, for one model and NumPy.

    The family is the manufacturer with the widest vectors, which NumPy's elementary functions use where there are any.
    """
    fields = _first_processor()
    flags = fields.get("flags", "").split()
    vectors = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    return {
        "family": f"{fields.get('vendor_id', platform.machine())}, {vectors}",
        "model": f"family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}",
        "numpy": np.__version__,
    }


def about() -> dict[str, str]:
    """Return the relevant versions, for the reader of a file."""
    info = pn.build_info()
    return processor() | {name: info[name] for name in ("python", "compiler", "flags", "SIMD levels", "scipy")}


def _first_processor() -> dict[str, str]:
    """Return the first entry of /proc/cpuinfo, or an empty mapping if there is no such file."""
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return {}
    lines = path.read_text().split("\n\n")[0].splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
