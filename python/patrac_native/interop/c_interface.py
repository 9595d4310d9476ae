"""A density as C functions: capsules for extension modules, addresses for ctypes, numba, Julia and R."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from patrac_native.engine.density import Density

FUNCTION_CAPSULE = "patrac_density_function"
BATCHED_CAPSULE = "patrac_density_batched"
CONTEXT_CAPSULE = "patrac_density_context"


def include_dir() -> str:
    """Return the folder of the installed C header, `patrac_density.h`."""
    return str(Path(__file__).resolve().parent / "include")


def _address(capsule: Any, name: str) -> int:
    """Return the pointer in a capsule of this name."""
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    pointer: int = read(capsule, name.encode())
    return pointer


class CDensity:
    """A log density with its gradient as functions of the C interface that `patrac_density.h` documents.

    Any number of threads may call the functions with the context at the same time. The context keeps the compiled
    posterior alive: hold this object, or the capsule, for as long as something may call.

    Parameters
    ----------
    density : Density
    threads : int
        Native threads that share the points of a batched call.

    Attributes
    ----------
    function : PyCapsule named "patrac_density_function"
        ``int f(size_t n, const double *x, double *grad, double *logp, void *ctx)``; 0 means success.
    batched : PyCapsule named "patrac_density_batched"
        ``int f(size_t batch, size_t n, const double *x, double *grad, double *logp, void *ctx)``.
    context : PyCapsule named "patrac_density_context"
        What both take as ``ctx``.
    function_address, batched_address, context_address : int
        The pointers in the capsules.
    dim : int
        n, the number of coordinates.
    include_dir : str
        The folder of patrac_density.h.
    """

    def __init__(self, density: Density, threads: int) -> None:
        self.function, self.batched, self.context = density.c_capsules(threads)
        self.function_address = _address(self.function, FUNCTION_CAPSULE)
        self.batched_address = _address(self.batched, BATCHED_CAPSULE)
        self.context_address = _address(self.context, CONTEXT_CAPSULE)
        self.dim = density.dim
        self.include_dir = include_dir()

    def __repr__(self) -> str:
        return f"CDensity(dim={self.dim}, function_address={self.function_address:#x})"
