"""Floors of a step on a device: bytes over the measured bandwidth, multiply-adds over measured rates."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from cases import Case

from patrac_native.studies.floor import MULTIPLY_ADD, operations


@dataclass(frozen=True)
class Rates:
    """What the whole device does a second, measured with torch.

    Attributes
    ----------
    where : str
        torch's name of the device; "cpu" where torch sees no GPU, so that the script can be tried.
    bytes : float
        Read and written by a copy much larger than any cache.
    fma, tensor : float
        Multiply-adds of a large float32 product: as they are, and with TF32 allowed.
    """

    where: str
    bytes: float
    fma: float
    tensor: float

    def to_dict(self) -> dict[str, float | str]:
        """JSON-able content."""
        return asdict(self)


def measure_rates(device: str, quick: bool) -> Rates:
    """Measure the card with torch; on an emulated device the host, whose floors then mean nothing."""
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
    """Seconds of a copy of so many bytes from one place of the device's memory to another."""
    import torch

    source = torch.ones(n_bytes // 4, device=where)
    target = torch.empty_like(source)
    return best_seconds(lambda: target.copy_(source), where)


def product_seconds(where: str, side: int) -> float:
    """Seconds of a product of two float32 matrices with so many rows and columns."""
    import torch

    a, b = torch.randn(side, side, device=where), torch.randn(side, side, device=where)
    product = torch.empty_like(a)
    return best_seconds(lambda: torch.mm(a, b, out=product), where)


def best_seconds(work: Callable[[], object], where: str) -> float:
    """The best of seven, after one that warms up: a floor wants the undisturbed machine."""
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
    """Microseconds of a step of all chains: multiply-adds over the rate of as many multiprocessors as have a chain.

    tanh, the noise and everything else are left out: their rates alone cannot be measured from outside.
    """
    busy = min(1.0, chains / multiprocessors)
    return 1e6 * chains * operations(case.post)[MULTIPLY_ADD] / (rates.fma * busy)


def large_floor(case: Case, rates: Rates) -> dict[str, float]:
    """Microseconds of a step of one chain on the whole device, by what could bound it.

    memory: what the plan reads of each row, once: inputs as bytes, other constants and offsets as floats. fma and
    tensor: its multiply-adds on either kind of unit; a product of float32's accuracy takes several of TF32 or BF16.
    """
    n, layers = len(case.post.X), case.post.plan()
    of_a_row = 4  # the label
    for position, layer in enumerate(layers):
        of_a_row += layer["constant_sources"] * (1 if position == 0 else 4) + 4 * layer["offsets"]
    count = operations(case.post)[MULTIPLY_ADD]
    return {
        "memory": 1e6 * n * of_a_row / rates.bytes,
        "fma": 1e6 * count / rates.fma,
        "tensor": 1e6 * count / rates.tensor,
    }
