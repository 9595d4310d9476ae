"""Densities in JAX: values and gradients, transformations, one native call for a batch, lifetime and messages."""

from __future__ import annotations

import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems

jax = pytest.importorskip("jax", reason="jax is not installed")


@pytest.fixture(autouse=True)
def wide() -> Any:
    """Switch JAX to 64 bits for one test."""
    with jax.enable_x64(True):
        yield


def problem(dtype: str = "float64", n: int = 30) -> pn.Posterior:
    return problems.problem(problems.rng_of("jax"), (3, 6, 5, 2), n, "mix", dtype=dtype).post


def points_of(post: pn.Posterior, count: int = 3) -> npt.NDArray[Any]:
    return (post.theta_map + 0.3 * problems.rng_of("points").normal(size=(count, post.dim))).astype(post.network.dtype)


@pytest.mark.parametrize(
    ("likelihood", "architecture", "dtype"),
    problems.balanced([(name,) for name in problems.LIKELIHOODS * 2], problems.ARCHITECTURES, ("float32", "float64")),
)
def test_values_and_gradients_are_those_of_the_posterior(likelihood: str, architecture: str, dtype: str) -> None:
    """Bit for bit in float64, and after rounding the value to float32 in float32."""
    rng = problems.rng_of("jax", architecture, likelihood)
    post = problems.problem(rng, (3, 6, 5, 2), 30, architecture, likelihood, dtype=dtype).post
    points = points_of(post)
    value, gradient = post.log_likelihood_and_grad(points)
    found, slope = jax.vmap(jax.value_and_grad(post.to_jax()))(points)
    assert found.dtype == slope.dtype == post.network.dtype
    np.testing.assert_array_equal(found, np.asarray(value).astype(dtype))
    np.testing.assert_array_equal(slope, gradient)


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic_gaussian"])
@pytest.mark.parametrize("kind", ["posterior", "collapsed_posterior"])
@pytest.mark.parametrize("coordinates", ["theta", "whitened"])
def test_other_densities(kind: Any, coordinates: Any, likelihood: str) -> None:
    rng = problems.rng_of("jax, other densities", likelihood)
    post = problems.problem(rng, (3, 6, 5, 2), 30, "mix", likelihood).post
    native = post.density(kind, coordinates)
    point = problems.rng_of(kind).normal(size=native.dim)
    value, gradient = native.value_and_grad(point)
    found, slope = jax.jit(jax.value_and_grad(post.to_jax(kind, coordinates)))(point)
    np.testing.assert_array_equal(found, value)
    np.testing.assert_array_equal(slope, gradient)


def test_jit_scan_and_nested_vmap() -> None:
    post = problem()
    function, points = post.to_jax(), points_of(post, 6)
    value, gradient = post.log_likelihood_and_grad(points)
    np.testing.assert_array_equal(jax.jit(function)(points[0]), value[0])
    _, scanned = jax.lax.scan(lambda carry, x: (carry, jax.grad(function)(x)), 0.0, points)
    np.testing.assert_array_equal(scanned, gradient)
    grid = points.reshape(2, 3, -1)
    np.testing.assert_array_equal(jax.vmap(jax.vmap(function))(grid), np.reshape(value, (2, 3)))
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.vmap(jax.grad(function))))(grid), gradient.reshape(2, 3, -1))
    np.testing.assert_array_equal(function(grid), np.reshape(value, (2, 3)))


def test_gradients_pass_through_other_functions() -> None:
    """The chain rule around the foreign function, with a cotangent other than 1."""
    post = problem()
    function, point = post.to_jax(), points_of(post)[0]
    slope = jax.grad(lambda x: -2.0 * function(3.0 * x))(point)
    _, gradient = post.log_likelihood_and_grad(3.0 * point)
    np.testing.assert_array_equal(slope, -6.0 * gradient)


@pytest.mark.parametrize("derivative", [lambda f: f, jax.grad, jax.value_and_grad])
def test_vmap_makes_one_native_call(derivative: Any) -> None:
    post = problem()
    function = derivative(post.to_jax())
    text = jax.jit(jax.vmap(function)).lower(points_of(post, 7)).as_text()
    assert text.count("custom_call") == 1
    assert f"tensor<7x{post.dim}xf64>" in text
    assert "while" not in text


@pytest.mark.parametrize("threads", [1, 3, None])
def test_threads_share_a_batch(threads: int | None) -> None:
    post = problem(n=200)
    points = points_of(post, 32)
    value, gradient = post.log_likelihood_and_grad(points)
    found, slope = jax.vmap(jax.value_and_grad(post.to_jax(threads=threads)))(points)
    np.testing.assert_array_equal(found, value)
    np.testing.assert_array_equal(slope, gradient)


def test_points_are_converted() -> None:
    """A float32 posterior rounds float64 points, and gradients have the dtype of the points."""
    post = problem("float32")
    function, point = post.to_jax(), points_of(post)[0]
    found, slope = jax.value_and_grad(function)(point.astype(np.float64))
    value, gradient = post.log_likelihood_and_grad(point)
    assert (found.dtype, slope.dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(found, np.float32(value))
    np.testing.assert_array_equal(slope, gradient)
    np.testing.assert_array_equal(function(list(map(float, point))), np.float32(value))


def test_sampled_variances() -> None:
    rng = problems.rng_of("jax sampled")
    net, X, y = problems.regression(rng, (2, 5, 1), 30)
    noise = pn.Gaussian("sampled", a=2.0, b=1.0)
    post = pn.Posterior(net, pn.Full(), problems.PRIOR, noise, X, y, dtype="float64")
    with pytest.raises(ValueError, match="variance must be given, since it is sampled"):
        post.to_jax("posterior")
    theta = rng.normal(size=post.dim)
    assert post.to_jax(variance=0.4)(theta) == post.log_likelihood(theta, variance=0.4)
    joint, point = post.to_jax("posterior", "whitened+log_variance"), np.append(theta, -0.3)
    value, gradient = post.density("posterior", "whitened+log_variance").value_and_grad(point)
    found, slope = jax.value_and_grad(joint)(point)
    assert found == value
    np.testing.assert_array_equal(slope, gradient)


def test_programs_keep_the_density_alive() -> None:
    """The posterior and the function may go; what was compiled, and what is under way, still evaluates."""
    post = problem()
    point, value = points_of(post)[0], post.log_likelihood(points_of(post)[0])
    function = post.to_jax()
    program = jax.jit(function).lower(point).compile()
    del post, function
    gc.collect()
    assert program(point) == value

    def pending() -> Any:
        """Return the result of a computation that outlives every name that this function has."""
        function = problem(n=2000).to_jax()
        walk = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda _, at: at + 1e-9 * jax.grad(function)(at), x))
        return walk(point)

    results = [pending() for _ in range(3)]
    gc.collect()
    assert np.isfinite(results).all()


@pytest.mark.slow
def test_the_density_is_freed_with_its_last_program() -> None:
    """A loop that makes posteriors and compiles them does not keep their data."""
    resource = pytest.importorskip("resource", reason="no memory figures on this system")
    point = np.zeros(problem().dim)

    def peak() -> float:
        """Return the largest resident memory so far in MiB."""
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024

    def compile_and_forget() -> None:
        post = problem(n=100_000)  # some MiB of cached data
        function = post.to_jax()
        jax.jit(function)(point).block_until_ready()
        del function
        jax.clear_caches()
        gc.collect()

    for _ in range(2):
        compile_and_forget()
    before = peak()
    size = problem(n=100_000).sampled.compiled.host.cached_bytes / 2**20
    for _ in range(6):
        compile_and_forget()
    assert size > 5
    assert peak() - before < 4 * size


def test_a_function_deleted_before_compilation_is_named() -> None:
    post = problem()
    point = points_of(post)[0]
    function = post.to_jax()
    lowered = jax.jit(lambda x: function(x)).lower(point)
    core = type(post.density().core)
    for number in range(10_000):  # as the end of every function that holds them does
        core.withdraw(number)
    with pytest.raises(Exception, match="the function that to_jax returned has been deleted"):
        lowered.compile()


def test_points_without_a_density_are_nan() -> None:
    post = problem()
    found, slope = jax.value_and_grad(post.to_jax())(np.full(post.dim, np.inf))
    assert np.isnan(found) and np.isnan(slope).all()


def test_second_derivatives_are_refused_by_name() -> None:
    post = problem()
    function, point = post.to_jax(), points_of(post)[0]
    for second in (
        jax.jacrev(jax.grad(function)),
        jax.hessian(function),
        jax.jit(jax.grad(lambda x: jax.grad(function)(x)[0])),
    ):
        with pytest.raises(TypeError, match="to_jax: the log density has first derivatives only"):
            second(point)


def test_bad_points_are_refused() -> None:
    """A conversion of complex ones would drop the imaginary parts."""
    post, point = problem(), points_of(problem())[0]
    for function in (post.to_jax(), jax.jit(post.to_jax())):
        with pytest.raises(TypeError, match="x must be real; got complex128"):
            function(point + 1j)
        with pytest.raises(ValueError, match=f"x must have {post.dim} entries on its last axis; got shape \\(2,\\)"):
            function(np.zeros(2))
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        post.to_jax()(point)


def test_several_threads_register_the_handlers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first calls of to_jax may come from several threads at the same time."""
    from patrac_native.interop import jax_function

    names: list[str] = []

    def register(name: str, *_: Any, **__: Any) -> None:
        time.sleep(0.01)  # other threads look for the name meanwhile
        names.append(name)

    monkeypatch.setattr(jax_function, "_registered", {})
    monkeypatch.setattr(jax.ffi, "register_ffi_type", register)
    monkeypatch.setattr(jax.ffi, "register_ffi_target", register)
    density = problem().density()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: jax_function.to_jax(density, 1), range(4)))
    assert len(names) == len(set(names)) == 3


def test_a_missing_jax_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match=r"to_jax needs jax, .* pip install 'patrac_native\[jax\]'"):
        problem().to_jax()
