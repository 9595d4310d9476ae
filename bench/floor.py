"""The floor of a step: multiply-adds over the core's measured rate, plus tanh and normals over theirs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import patrac_native as pn
from patrac_native import _core

TANH_BLOCK = 4096  # float32 values in the first-level cache


@dataclass(frozen=True)
class Rates:
    """Of one core, in millions a second, float32: multiply-adds in a matrix product, tanh, standard normals."""

    multiply_adds: float
    tanh: float
    normals: float


def measure_rates() -> Rates:
    """Measure in a second; the best of several, since a floor wants the undisturbed machine."""
    size = 512
    a = np.ones((size, size), np.float32)
    x = np.linspace(-4, 4, TANH_BLOCK, dtype=np.float32)
    level = _core.default_simd_level()
    stream: dict[str, Any] = {
        "seed": 0,
        "chain": 0,
        "step": 0,
        "steps": 1,
        "purpose": _core.Purpose.proposal,
        "level": level,
    }
    return Rates(
        size**3 / _best(lambda: a @ a, 5) / 1e6,
        TANH_BLOCK / _best(lambda: _core.testing.elementary("tanh", x, level), 200) / 1e6,
        TANH_BLOCK / _best(lambda: _core.standard_normals32(count=TANH_BLOCK, **stream), 200) / 1e6,
    )


def _best(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest call."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def counts(post: pn.Posterior) -> tuple[int, int, int]:
    """Multiply-adds, tanh and normals of one pCNL step as the plan needs them."""
    n, multiply_adds, tanh = len(post.X), 0, 0
    layers = post.plan()
    for layer in layers:
        through = layer["varying"] * layer["varying_sources"]
        # Forward, reverse to the varying sources, and the gradient; weights that read constants are forward work too.
        multiply_adds += n * (2 * through + layer["gradient_block"] + (0 if through else layer["gradient_block"]))
    tanh = n * sum(layer["varying"] for layer in layers[:-1])
    return multiply_adds, tanh, post.dim


def floor_microseconds(post: pn.Posterior, rates: Rates) -> float:
    """Microseconds a step at the measured rates, none of them overlapping."""
    multiply_adds, tanh, normals = counts(post)
    return multiply_adds / rates.multiply_adds + tanh / rates.tanh + normals / rates.normals
