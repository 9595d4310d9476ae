"""The C interface: capsules, ctypes, numba and compiled C; return values, threads and lifetime."""

from __future__ import annotations

import ctypes
import gc
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from patrac_native.bridges.c_interface import CDensity

DOUBLES = ctypes.POINTER(ctypes.c_double)
SINGLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p)
BATCHED = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p
)  # fmt: skip


def problem(dtype: str = "float64") -> pn.Posterior:
    return problems.problem(problems.rng_of("c"), (3, 6, 5, 2), 30, architecture_name="mix", dtype=dtype).post


def pointer(array: npt.NDArray[np.float64]) -> Any:
    return array.ctypes.data_as(DOUBLES)


def call(density: CDensity, x: npt.NDArray[np.float64]) -> tuple[int, float, npt.NDArray[np.float64]]:
    """Call the function of one point; return its status, value and gradient."""
    value, gradient = np.full(1, 7.0), np.full(x.size, 7.0)
    function = SINGLE(density.function_address)
    status = function(x.size, pointer(x), pointer(gradient), pointer(value), density.context_address)
    return status, value[0], gradient


def call_batched(density: CDensity, x: npt.NDArray[np.float64]) -> tuple[int, Any, Any]:
    """Call the batched function; return its status, values and gradients."""
    values, gradients = np.full(len(x), 7.0), np.full(x.shape, 7.0)
    function = BATCHED(density.batched_address)
    status = function(len(x), x.shape[1], pointer(x), pointer(gradients), pointer(values), density.context_address)
    return status, values, gradients


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("likelihood", problems.LIKELIHOODS)
@pytest.mark.parametrize("architecture", problems.ARCHITECTURES)
def test_values_and_gradients_are_those_of_the_posterior(architecture: str, likelihood: str, dtype: str) -> None:
    rng = problems.rng_of("c", architecture, likelihood)
    post = problems.problem(
        rng, (3, 6, 5, 2), 30, architecture_name=architecture, likelihood=likelihood, dtype=dtype
    ).post
    points = post.theta_map + 0.3 * rng.normal(size=(3, post.dim))
    wanted, slopes = post.log_likelihood_and_grad(points.astype(dtype))
    for threads in (1, 2):
        status, values, gradients = call_batched(post.c_api(threads=threads), points)
        assert status == 0
        np.testing.assert_array_equal(values, wanted)
        np.testing.assert_array_equal(gradients, slopes)
    status, value, gradient = call(post.c_api(), points[0])
    assert (status, value) == (0, np.asarray(wanted)[0])
    np.testing.assert_array_equal(gradient, slopes[0])


def test_other_densities() -> None:
    post = problem()
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


def test_numba_calls_it() -> None:
    numba = pytest.importorskip("numba", reason="numba is not installed")
    post = problem()
    density, x = post.c_api(), problems.rng_of("numba").normal(size=post.dim)
    pointers = [ctypes.c_void_p] * 4
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, *pointers)(density.function_address)
    context = density.context_address

    @numba.njit  # type: ignore[untyped-decorator, unused-ignore]
    def evaluate(x: Any, value: Any, gradient: Any) -> Any:
        return function(x.size, x.ctypes.data, gradient.ctypes.data, value.ctypes.data, context)

    value, gradient = np.zeros(1), np.zeros(post.dim)
    assert evaluate(x, value, gradient) == 0
    wanted, slope = post.log_likelihood_and_grad(x)
    assert value[0] == wanted
    np.testing.assert_array_equal(gradient, slope)


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
