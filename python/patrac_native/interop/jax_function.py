"""A density as a function of JAX: a foreign function of XLA on the CPU, which runs without Python."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from patrac_native.engine.density import Density
from patrac_native.validation.extras import import_extra


class _Published:
    """The number by which programs name a density until they are compiled, and hold it themselves."""

    def __init__(self, core: Any) -> None:
        self._withdraw = core.withdraw
        self.number = np.int64(core.publish())

    def __del__(self) -> None:
        self._withdraw(int(self.number))


def check_interface(include_dir: str, supported: tuple[int, int]) -> None:
    """Check the version of XLA's C interface in an installed jaxlib before a handler is given to it."""
    header = Path(include_dir) / "xla" / "ffi" / "api" / "c_api.h"
    text = header.read_text(encoding="utf-8") if header.is_file() else ""
    numbers = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    found = tuple(int(match[1]) for match in numbers if match)
    if len(found) != 2 or found[0] != supported[0] or found[1] < supported[1]:
        has = ".".join(map(str, found)) if len(found) == 2 else "an unknown version"
        raise ImportError(
            f"to_jax needs version {supported[0]}.{supported[1]} of XLA's foreign function interface, or a later one "
            f"of major version {supported[0]}; the installed jaxlib has {has}: pip install 'patrac_native[jax]'"
        )


_registered: dict[str, tuple[str, str]] = {}
_registering = threading.Lock()


def _register(jax: Any, density: Density) -> tuple[str, str]:
    """Register the handlers of the density's compiled type once; return the names of value, and value and gradient."""
    core = type(density.core)
    with _registering:  # XLA refuses a second registration of a name
        if core.__name__ not in _registered:
            if not _registered:
                check_interface(jax.ffi.include_dir(), density.xla_interface)
                jax.ffi.register_ffi_type("patrac_density", density.xla_state(), platform="cpu")
            names = (f"patrac_value_{core.__name__}", f"patrac_value_and_grad_{core.__name__}")
            for name, with_gradient in zip(names, (False, True), strict=True):
                stages = {"instantiate": core.xla_instantiate(), "execute": core.xla_handler(with_gradient)}
                jax.ffi.register_ffi_target(name, stages, platform="cpu")
            _registered[core.__name__] = names
    return _registered[core.__name__]


def to_jax(density: Density, threads: int) -> Callable[[Any], Any]:
    """Return a log density as a function of JAX."""
    jax = import_extra("jax", "jax", "to_jax")
    names = _register(jax, density)
    published = _Published(density.core)
    dim, dtype = density.dim, density.dtype

    def call(x: Any, with_gradient: bool) -> Any:
        value = jax.ShapeDtypeStruct(x.shape[:-1], dtype)
        results = (value, jax.ShapeDtypeStruct(x.shape, dtype)) if with_gradient else value
        foreign = jax.ffi.ffi_call(names[with_gradient], results, vmap_method="broadcast_all")
        return foreign(x, density=published.number, threads=np.int64(threads))

    value_of = jax.custom_vjp(lambda x: call(x, False))
    value_and_gradient = jax.custom_jvp(lambda x: call(x, True))

    def refuse(primals: Any, tangents: Any) -> Any:
        raise TypeError(
            "to_jax: the log density has first derivatives only; a Hessian or a derivative of the gradient needs "
            "another method, such as finite differences of the gradient."
        )

    value_and_gradient.defjvp(refuse)

    def forward(x: Any) -> tuple[Any, Any]:
        value, gradient = value_and_gradient(x)
        return value, gradient

    def reverse(gradient: Any, cotangent: Any) -> tuple[Any]:
        return (cotangent[..., None] * gradient,)

    value_of.defvjp(forward, reverse)

    def log_density(x: Any) -> Any:
        """Evaluate the log density at x (..., D); values have shape (...)."""
        if dtype == np.float64 and not jax.config.jax_enable_x64:
            raise ValueError(
                'the posterior has dtype float64, which JAX has off: jax.config.update("jax_enable_x64", True), or '
                'make the posterior with dtype="float32".'
            )
        if jax.numpy.iscomplexobj(x):
            raise TypeError(f"x must be real; got {jax.numpy.result_type(x)}.")
        points = jax.numpy.asarray(x, dtype=dtype)
        if points.ndim < 1 or points.shape[-1] != dim:
            raise ValueError(f"x must have {dim} entries on its last axis; got shape {points.shape}.")
        return value_of(points)

    return log_density
