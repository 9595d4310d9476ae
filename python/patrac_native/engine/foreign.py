"""Log-likelihoods that are given as functions: C functions by their address, and Python callables."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.validation.checks import FloatArray

# The base class of all functions of ctypes.
_C_FUNCTION: type = ctypes.CFUNCTYPE(None).__mro__[1]


class ForeignModel:
    """A log-likelihood of the host that runs chains as a compiled model does."""

    def __init__(self, function: Any, context: int, *, batched: bool, level: str, keep_alive: object) -> None:
        self._function: dict[str, Any] = {"function": function, "context": context, "batched": batched}
        self.level = level
        self._keep_alive = keep_alive

    @property
    def host(self) -> ForeignModel:
        """Itself: there is nothing to build."""
        return self

    def evaluate(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values (B,) and gradients (B, K) at theta (B, K)."""
        return _core.evaluate_foreign(**self._function, theta=theta)

    def sample(
        self,
        config: _core.RunConfig,
        init: FloatArray,
        prior_variance: FloatArray,
        progress: Any,
        is_enough: Any,
        step_factor: None,
    ) -> dict[str, npt.NDArray[Any]]:
        """Run chains as `Model64.sample` does; no kernel of a function has step sizes of its own for coordinates."""
        assert step_factor is None
        return _core.sample_foreign(
            **self._function,
            config=config,
            init=init,
            prior_variance=prior_variance,
            progress=progress,
            is_enough=is_enough,
            level=self.level,
        )


def function_address(given: Any, name: str) -> int | None:
    """Return the address of a C function or context."""
    if isinstance(given, bool):
        return None
    if isinstance(given, int):
        address: Any = given
    elif isinstance(given, _C_FUNCTION):
        pointer: Any = given
        address = ctypes.cast(pointer, ctypes.c_void_p).value or 0
    elif type(given).__name__ == "PyCapsule":
        address = capsule_pointer(given)
    else:
        address = getattr(given, "address", None)
        if not isinstance(address, int):
            return None
    if address <= 0:
        raise ValueError(f"{name} must be the address of something; got {address}.")
    return int(address)


def capsule_pointer(capsule: object) -> int:
    """Return the pointer of a PyCapsule, whatever its name is."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)) or 0)
