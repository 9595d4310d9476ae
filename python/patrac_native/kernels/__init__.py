"""The transition kernels that `sample` supports (docs/method.md, section 6).

Public: Kernel, PCN, PCNL, MGrad, EllipticalSlice, Exact, the registry KERNELS and `kernel_from_dict`.
"""

from collections.abc import Mapping
from typing import Any

from patrac_native.kernels.base import Kernel
from patrac_native.kernels.crank_nicolson import PCN, PCNL, MGrad
from patrac_native.kernels.untuned import EllipticalSlice, Exact
from patrac_native.validation.complete import by_name, entry_of

__all__ = [
    "KERNELS",
    "PCN",
    "PCNL",
    "EllipticalSlice",
    "Exact",
    "Kernel",
    "MGrad",
    "kernel_from_dict",
]

# All kernels by their names in the compiled core and in files.
KERNELS: dict[str, type[Kernel]] = by_name((PCN, PCNL, MGrad, EllipticalSlice, Exact))


def kernel_from_dict(content: Mapping[str, Any]) -> Kernel:
    """Rebuild a kernel from what its `to_dict` returned."""
    entry, arguments = entry_of(KERNELS, content, "kernel")
    return entry(**arguments)
