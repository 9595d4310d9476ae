"""Floors of a step on a device: bytes over the measured bandwidth, multiply-adds over measured rates."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from cases import Case

from patrac_native.studies.floor import MULTIPLY_ADD


@dataclass(frozen=True)
class Rates:
    """Rates of the whole device, measured with torch."""

    where: str  # torch's name of the device; "cpu" if torch finds no GPU, so that the script can be tested
    bytes: float  # a second, that a copy much larger than any cache reads and writes
    fma: float  # multiply-adds a second of a large float32 matrix product
    tensor: float  # the same with TF32


def measure_rates(device: str, quick: bool) -> Rates:
    """Measure the GPU with torch; for an emulated device measure the host, whose floors have no meaning."""
    import torch

    on_gpu = device == "cuda" and torch.cuda.is_available()
    where = "cuda" if on_gpu else "cpu"
    n_bytes, side = (2**24, 256) if quick or not on_gpu else (2**30, 8192)
    before, rates = torch.get_float32_matmul_precision(), {}
    for name, precision in (("fma", "highest"), ("tensor", "high")):
        torch.set_float32_matmul_precision(precision)
        rates[name] = side**3 / product_seconds(where, side)
    torch.set_float32_matmul_precision(before)
    bandwidth = 2 * n_bytes / copy_seconds(where, n_bytes)
    if on_gpu:
        torch.cuda.empty_cache()
    return Rates(torch.cuda.get_device_name() if on_gpu else "cpu", bandwidth, rates["fma"], rates["tensor"])


def copy_seconds(where: str, n_bytes: int) -> float:
    """Return the seconds of a copy of `n_bytes` bytes within the device's memory."""
    import torch

    source = torch.ones(n_bytes // 4, device=where)
    target = torch.empty_like(source)
    return best_seconds(lambda: target.copy_(source), where)


def product_seconds(where: str, side: int) -> float:
    """Return the seconds of a product of two float32 matrices with `side` rows and columns."""
    import torch

    a, b = torch.randn(side, side, device=where), torch.randn(side, side, device=where)
    product = torch.empty_like(a)
    return best_seconds(lambda: torch.mm(a, b, out=product), where)


def best_seconds(work: Callable[[], object], where: str) -> float:
    """Return the shortest of seven timings after one for warming up, because a floor assumes an undisturbed machine."""
    import torch

    wait = torch.cuda.synchronize if where == "cuda" else lambda: None
    found = []
    for _ in range(8):
        wait()
        started = time.perf_counter()
        work()
        wait()
        found.append(time.perf_counter() - started)
    return min(found[1:])


def small_floor(case: Case, chains: int, rates: Rates, multiprocessors: int) -> float:
    """Return the floor of a step of all chains in microseconds: the multiply-adds over the rate of the busy part.

    The busy part of the device are the multiprocessors that have a chain. tanh, noise and everything else are left out,
    because their rates cannot be measured separately with torch.
    """
    busy = min(1.0, chains / multiprocessors)
    return 1e6 * chains * case.post.plan().operations[MULTIPLY_ADD] / (rates.fma * busy)


def large_floor(case: Case, rates: Rates) -> dict[str, float]:
    """Return floors of a step of one chain on the whole device in microseconds, by the resource that could bound it.

    "memory" counts what the model reads of each row, once: inputs as bytes, other constants and offsets as floats.
    "fma" and "tensor" count its multiply-adds on either kind of unit; a product with the accuracy of float32 takes
    several products in TF32 or BF16.
    """
    n, layers = len(case.post.data.X), case.post.plan().layers
    of_a_row = 4  # the label
    for position, layer in enumerate(layers):
        of_a_row += layer["constant_sources"] * (1 if position == 0 else 4) + 4 * layer["offsets"]
    count = case.post.plan().operations[MULTIPLY_ADD]
    return {
        "memory": 1e6 * n * of_a_row / rates.bytes,
        "fma": 1e6 * count / rates.fma,
        "tensor": 1e6 * count / rates.tensor,
    }
