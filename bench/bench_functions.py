"""Nanoseconds of an elementary function, a normal and a multiply-add at every level, and of NumPy's functions.

`python bench/bench_functions.py` prints the table; `pytest bench/bench_functions.py` times the functions with
pytest-benchmark. Native functions run in a loop of their own over values in the first-level cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import one_core

# isort: split
import numpy as np
import numpy.typing as npt
import pytest
from harness import Table, script_parser, write_json

from patrac_native.engine import default_simd_level, simd_levels, testing
from patrac_native.studies.floor import MULTIPLY_ADD, NORMAL, measure_rate
from patrac_native.studies.tables import number

DTYPES = ("float32", "float64")
NUMPY_VALUES = 4096  # fit into the first-level cache; enough of them make the overhead of a call negligible
# (range of the argument, NumPy's way to compute the function)
NUMPY: dict[str, tuple[float, float, Callable[[npt.NDArray[Any]], Any]]] = {
    "exp": (-10, 10, np.exp),
    "log": (0.1, 10, np.log),
    "log1p": (0.1, 10, np.log1p),
    "softplus": (-10, 10, lambda x: np.logaddexp(x, x.dtype.type(0))),
    "tanh": (-4, 4, np.tanh),
    "sigmoid": (-10, 10, lambda x: 1 / (1 + np.exp(-x))),
    "gauss": (-3, 3, lambda x: np.exp(-x * x)),
    "log_unit": (0.001, 1, np.log),
    "sin_turn": (0, 1, lambda x: np.sin(x.dtype.type(2 * np.pi) * x)),
    "cos_turn": (0, 1, lambda x: np.cos(x.dtype.type(2 * np.pi) * x)),
    "sqrt": (0.1, 10, np.sqrt),
}
OPERATIONS = [MULTIPLY_ADD, NORMAL, *testing.elementary_functions()]


def numpy_nanoseconds(name: str, dtype: str) -> float | None:
    """Return the least nanoseconds an element of several timings; None if NumPy has no such function."""
    if name == NORMAL:
        rng = np.random.default_rng(0)
        kind: Any = np.float32 if dtype == "float32" else np.float64
        return _best(lambda: rng.standard_normal(NUMPY_VALUES, dtype=kind))
    if name not in NUMPY:
        return None
    low, high, function = NUMPY[name]
    x = np.linspace(low, high, NUMPY_VALUES, dtype=dtype)
    return _best(lambda: function(x))


def _best(call: Callable[[], Any], repeats: int = 200) -> float:
    """Return the nanoseconds an element of the fastest call."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds) / NUMPY_VALUES * 1e9


@pytest.mark.parametrize("level", simd_levels())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_function(benchmark: Any, name: str, dtype: str, level: str) -> None:
    """Time a hundred repetitions."""
    done = benchmark(testing.repeat_operation, name, dtype, 100, level)
    benchmark.extra_info["nanoseconds"] = benchmark.stats["min"] / done * 1e9


def main() -> None:
    """Print the table."""
    parser = script_parser(__doc__)
    parser.add_argument("--names", nargs="+", choices=OPERATIONS, default=OPERATIONS)
    options = parser.parse_args()
    levels, default = simd_levels(), default_simd_level()
    print(f"core {one_core.CORE}, nanoseconds an element, the best of several timings; default level {default}")
    results: dict[str, Any] = {}
    for dtype in DTYPES:
        print(f"\n{dtype}")
        table = Table(["", *levels, "NumPy"], [14, *(8 for _ in levels), 8])
        for name in options.names:
            found = {level: 1e9 / measure_rate(name, dtype, level) for level in levels}
            peer = numpy_nanoseconds(name, dtype)
            table.row([name, *(number(value) for value in found.values()), "-" if peer is None else number(peer)])
            results[f"{name}, {dtype}"] = {"nanoseconds": found, "numpy": peer}
    write_json(options.json, results)


if __name__ == "__main__":
    main()
