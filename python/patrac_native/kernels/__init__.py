"""The transition kernels that `sample` supports (docs/method.md, section 6).

Public: Kernel, PCN, PCNL, MGrad, EllipticalSlice, Exact, the registry KERNELS, `kernel_from_dict` and `short_name`.
"""

from collections.abc import Mapping
from dataclasses import fields
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
    "short_name",
]

# All kernels by their names in the compiled core and in files.
KERNELS: dict[str, type[Kernel]] = by_name((PCN, PCNL, MGrad, EllipticalSlice, Exact))


def kernel_from_dict(content: Mapping[str, Any]) -> Kernel:
    """Rebuild a kernel from what its `to_dict` returned."""
    entry, arguments = entry_of(KERNELS, content, "kernel")
    return entry(**arguments)


def short_name(content: Mapping[str, Any]) -> str:
    """Return the constructor call of a kernel given by its `to_dict`, without defaults: "MGrad(collapse=True)"."""
    kernel = kernel_from_dict(content)
    given = {field.name: getattr(kernel, field.name) for field in fields(kernel)}
    defaults = type(kernel)()
    shown = [f"{key}={value!r}" for key, value in given.items() if value != getattr(defaults, key)]
    return f"{type(kernel).__name__}({', '.join(shown)})"
