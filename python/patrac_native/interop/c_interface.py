"""A density as C functions: capsules for extension modules, addresses for ctypes, numba, Julia and R."""

from __future__ import annotations

from pathlib import Path

from patrac_native.engine.density import Density
from patrac_native.engine.foreign import capsule_pointer


def include_dir() -> str:
    """Return the folder of the installed C header, `patrac_density.h`."""
    return str(Path(__file__).resolve().parent / "include")


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
        self.function_address = capsule_pointer(self.function)
        self.batched_address = capsule_pointer(self.batched)
        self.context_address = capsule_pointer(self.context)
        self.dim = density.dim
        self.include_dir = include_dir()

    def __repr__(self) -> str:
        return f"CDensity(dim={self.dim}, function_address={self.function_address:#x})"
