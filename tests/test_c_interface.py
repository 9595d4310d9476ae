"""The C interface: capsules, ctypes, numba and compiled C; return values, threads and lifetime."""

from __future__ import annotations

import ctypes
import gc
import itertools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from patrac_native.interop.c_interface import CDensity, include_dir

DOUBLES = ctypes.POINTER(ctypes.c_double)
SINGLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p)
BATCHED = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p
)  # fmt: skip

Array = npt.NDArray[np.float64]
Evaluated = tuple[Array, Array]


def problem(dtype: str = "float64") -> pn.Posterior:
    return problems.problem(problems.rng_of("c"), (3, 6, 5, 2), 30, "mix", dtype=dtype).post


def pointer(array: Array) -> Any:
    return array.ctypes.data_as(DOUBLES)


def call(density: CDensity, x: Array) -> tuple[int, float, Array]:
    """Call the function of one point; return its status, value and gradient."""
    value, gradient = np.full(1, 7.0), np.full(x.size, 7.0)
    function = SINGLE(density.function_address)
    status = function(x.size, pointer(x), pointer(gradient), pointer(value), density.context_address)
    return status, value[0], gradient


def call_batched(density: CDensity, x: Array) -> tuple[int, Any, Any]:
    """Call the batched function; return its status, values and gradients."""
    values, gradients = np.full(len(x), 7.0), np.full(x.shape, 7.0)
    function = BATCHED(density.batched_address)
    status = function(len(x), x.shape[1], pointer(x), pointer(gradients), pointer(values), density.context_address)
    return status, values, gradients


def by_ctypes(density: CDensity, x: Array) -> Evaluated:
    """Values (batch,) and gradients (batch, n) by calls of single points through ctypes."""
    found = [call(density, point) for point in x]
    assert [status for status, _, _ in found] == [0] * len(x)
    return np.array([value for _, value, _ in found]), np.stack([gradient for _, _, gradient in found])


def by_batches(density: CDensity, x: Array) -> Evaluated:
    """The same by one call of the batched function."""
    status, values, gradients = call_batched(density, x)
    assert status == 0
    return values, gradients


@cache
def compiled() -> ctypes.CDLL:
    """Return the functions of density_calls.c."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "calls.so"
        options = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I", include_dir()]
        source = Path(__file__).with_name("density_calls.c")
        subprocess.run([compiler, *options, str(source), "-o", str(library)], check=True, timeout=60)
        return ctypes.CDLL(str(library))


def by_c(density: CDensity, x: Array, *, batched: bool = False) -> Evaluated:
    """The same by compiled C."""
    function = compiled().call_together if batched else compiled().call_singly
    function.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t] * 2 + [DOUBLES] * 3
    values, gradients = np.full(len(x), 7.0), np.full(x.shape, 7.0)
    address = density.batched_address if batched else density.function_address
    arrays = pointer(x), pointer(gradients), pointer(values)
    assert function(address, density.context_address, *x.shape, *arrays) == 0
    return values, gradients


def by_numba(density: CDensity, x: Array) -> Evaluated:
    """The same by a compiled function of numba, which has the address in its machine code."""
    numba = pytest.importorskip("numba", reason="numba is not installed")
    pointers = [ctypes.c_void_p] * 4
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, *pointers)(density.function_address)
    context = density.context_address

    @numba.njit  # type: ignore[untyped-decorator, unused-ignore]
    def evaluate(x: Any, values: Any, gradients: Any) -> Any:
        status = 0
        for point in range(len(x)):
            grad, logp = gradients[point].ctypes.data, values[point:].ctypes.data
            status |= function(x.shape[1], x[point].ctypes.data, grad, logp, context)
        return status

    values, gradients = np.full(len(x), 7.0), np.full(x.shape, 7.0)
    assert evaluate(x, values, gradients) == 0
    return values, gradients


CALLERS: dict[str, Callable[[CDensity, Array], Evaluated]] = {
    "ctypes": by_ctypes,
    "ctypes, batched": by_batches,
    "C": by_c,
    "C, batched": partial(by_c, batched=True),
    "numba": by_numba,
}


@pytest.mark.parametrize(
    ("architecture", "likelihood", "dtype", "caller"),
    problems.balanced(
        itertools.product(problems.ARCHITECTURES, problems.LIKELIHOODS), ("float32", "float64"), list(CALLERS)
    ),
)
def test_values_and_gradients_are_those_of_the_posterior(
    architecture: str, likelihood: str, dtype: str, caller: str
) -> None:
    rng = problems.rng_of("c", architecture, likelihood)
    post = problems.problem(rng, (3, 6, 5, 2), 30, architecture, likelihood, dtype=dtype).post
    points = post.theta_map + 0.3 * rng.normal(size=(3, post.dim))
    wanted, slopes = post.log_likelihood_and_grad(points.astype(dtype))
    for threads in (1, 2) if "batched" in caller else (1,):
        values, gradients = CALLERS[caller](post.c_api(threads=threads), points)
        np.testing.assert_array_equal(values, wanted)
        np.testing.assert_array_equal(gradients, slopes)


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic_gaussian"])
def test_other_densities(likelihood: str) -> None:
    rng = problems.rng_of("c, other densities", likelihood)
    post = problems.problem(rng, (3, 6, 5, 2), 30, "mix", likelihood).post
    native = post.density("collapsed_posterior", "whitened")
    point = problems.rng_of("point").normal(size=native.dim)
    status, value, gradient = call(post.c_api("collapsed_posterior", "whitened"), point)
    wanted, slope = native.value_and_grad(point)
    assert (status, value) == (0, wanted)
    np.testing.assert_array_equal(gradient, slope)


def test_capsules_have_the_names_of_the_header() -> None:
    density = problem().c_api()
    header = (Path(density.include_dir) / "patrac_density.h").read_text()
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    for part in ("function", "batched", "context"):
        defined = re.search(rf'#define PATRAC_{part.upper()}_CAPSULE "(\w+)"', header)
        assert defined and valid(getattr(density, part), defined[1].encode())
        assert not valid(getattr(density, part), b"another")


def status_codes() -> dict[str, int]:
    header = (Path(problem().c_api().include_dir) / "patrac_density.h").read_text()
    return {name: int(number) for name, number in re.findall(r"PATRAC_(\w+) = (-?\d+)", header)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_status_of_points(dtype: str) -> None:
    post, codes = problem(dtype), status_codes()
    density = post.c_api("posterior")
    for bad in (np.nan, np.inf, -np.inf, *([1e60] if dtype == "float32" else [])):
        x = np.zeros(post.dim)
        x[2] = bad
        status, value, gradient = call(density, x)
        assert status == codes["POINT_NOT_FINITE"]
        assert np.isnan(value) and np.isnan(gradient).all()
    huge = np.full(post.dim, 1e30 if dtype == "float32" else 1e300)  # whose squares overflow
    assert call(density, huge)[0] == codes["DENSITY_NOT_FINITE"]
    points = np.zeros((3, post.dim))
    points[1, 0] = np.nan
    status, values, gradients = call_batched(density, points)
    assert status == codes["POINT_NOT_FINITE"]
    assert values[0] == values[2] == post.density("posterior").value(points[0])
    assert np.isfinite(gradients[[0, 2]]).all()


def test_status_of_calls() -> None:
    post, codes = problem(), status_codes()
    density = post.c_api()
    status, value, gradient = call(density, np.zeros(post.dim + 1))
    assert (status, value) == (codes["WRONG_SIZE"], 7.0) and (gradient == 7.0).all()
    function, x, value = SINGLE(density.function_address), np.zeros(post.dim), np.zeros(1)
    context = density.context_address
    assert function(post.dim, None, None, pointer(value), context) == codes["NULL_POINTER"]
    assert function(post.dim, pointer(x), None, None, context) == codes["NULL_POINTER"]
    assert function(post.dim, pointer(x), None, pointer(value), None) == codes["NULL_POINTER"]
    assert function(post.dim, pointer(x), None, pointer(value), context) == codes["OK"]
    assert value[0] == post.log_likelihood(x)


def test_threads_call_at_the_same_time() -> None:
    post = problem()
    density, points = post.c_api(), problems.rng_of("threads").normal(size=(64, post.dim))
    wanted = [call(density, x) for x in points]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for (_, value, gradient), (status, found, slope) in zip(
                wanted, pool.map(lambda x: call(density, x), points), strict=True
            ):
                assert (status, found) == (0, value)
                np.testing.assert_array_equal(slope, gradient)


def test_the_context_keeps_the_posterior_alive() -> None:
    post = problem()
    density, x = post.c_api(), np.zeros(post.dim)
    value = post.log_likelihood(x)
    del post
    gc.collect()
    assert call(density, x)[:2] == (0, value)


@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_header_compiles_without_warnings(language: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc" if language == "c" else "c++")
    if compiler is None:
        pytest.skip(f"no compiler of {language}")
    source = tmp_path / "only.c"
    source.write_text("#include <patrac_density.h>\npatrac_density_function f;\npatrac_density_batched g;\n")
    options = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-x", language]
    done = subprocess.run(
        [compiler, *options, "-I", problem().c_api().include_dir, str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
