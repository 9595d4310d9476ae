"""Targets: chains on functions are those on the posterior behind them and reach known densities; errors, refusals."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from chains import assert_same_draws
from patrac_native.draws.target_draws import TargetDraws
from statistical.monte_carlo import batch_means, bound, largest_z

Array = npt.NDArray[Any]
KERNELS = (pn.PCN(), pn.PCNL(), pn.MGrad(), pn.MGrad(persistence=0.9), pn.EllipticalSlice())
SLOPES, CENTRES = np.array([4.0, 1.0, 0.25]), np.array([1.0, -2.0, 0.5])
VARIANCE = np.array([1.0, 0.5, 2.0])


def quadratic(theta: Array) -> tuple[Any, Array]:
    """Log-likelihood of the Gaussian problem at theta (K,) or (B, K), with its gradient."""
    gradient = -SLOPES * (theta - CENTRES)
    return 0.5 * (gradient * (theta - CENTRES)).sum(axis=-1), gradient


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return the compiled C functions of foreign_functions.c."""
    target = tmp_path_factory.mktemp("foreign") / "functions.so"
    source = Path(__file__).with_name("foreign_functions.c")
    subprocess.run(["cc", "-std=c11", "-O1", "-shared", "-fPIC", str(source), "-o", str(target), "-lm"], check=True)
    return ctypes.CDLL(str(target))


# Chains on the function of a posterior


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_chains_are_those_of_the_posterior_to_the_bit(kernel: pn.Kernel, likelihood: str, batched: bool) -> None:
    """The steps are the same code on the same noise, and the function gives the posterior's own numbers."""
    problem = problems.problem(problems.rng_of("target", likelihood), (2, 6, 5, 2), 14, "mix", likelihood)
    post = problem.post
    settings: dict[str, Any] = {
        "chains": 3,
        "draws": 20,
        "thin": 3,
        "warmup": 400,
        "init": np.stack([factor * post.theta_map for factor in (1.0, 0.9, 0.8)]),
        "seed": 3,
        "threads": 2,
    }
    own = pn.sample(post, kernel, **settings)
    target = pn.Target(
        lambda theta: post.log_likelihood_and_grad(theta, threads=1), post.prior_variance, batched=batched
    )
    draws = pn.sample(target, kernel, **settings)
    assert_same_draws(draws, own)
    assert np.ptp(draws.theta, axis=(0, 1)).min() > 0


def test_a_warmup_that_ends_when_the_chains_agree_ends_at_the_same_step() -> None:
    """Chains wait for each other at comparisons, also while one call evaluates all of them."""
    post = problems.problem(problems.rng_of("target, warm-up"), (1, 3, 1), 20).post
    settings: dict[str, Any] = {"chains": 3, "draws": 10, "init": np.zeros((3, post.dim)), "seed": 1, "threads": 2}
    own = pn.sample(post, pn.PCNL(), **settings)
    for batched in (False, True):
        target = pn.Target(
            lambda theta: post.log_likelihood_and_grad(theta, threads=1), post.prior_variance, batched=batched
        )
        draws = pn.sample(target, pn.PCNL(), **settings)
        np.testing.assert_array_equal(draws.theta, own.theta)
        assert draws.settings["warmup_steps"] == own.settings["warmup_steps"]


def test_draws_do_not_depend_on_threads_or_on_how_the_function_is_called(library: ctypes.CDLL) -> None:
    numbers = np.concatenate([SLOPES, CENTRES, [1.0, 1.0]])
    context = numbers.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    settings: dict[str, Any] = {"chains": 3, "draws": 50, "warmup": 200, "seed": 5}

    def in_c_order(theta: Array) -> tuple[float, list[float]]:
        """Sum as the C function does."""
        slopes = [-a * (x - b) for a, b, x in zip(SLOPES.tolist(), CENTRES.tolist(), theta.tolist(), strict=True)]
        value = 0.0
        for slope, b, x in zip(slopes, CENTRES.tolist(), theta.tolist(), strict=True):
            value += 0.5 * slope * (x - b)
        return value, slopes

    address = ctypes.cast(library.quadratic, ctypes.c_void_p).value
    targets = [
        pn.Target(in_c_order, VARIANCE),
        pn.Target(library.quadratic, VARIANCE, context=context),
        pn.Target(address, VARIANCE, context=numbers.ctypes.data),
        pn.Target(library.batched_quadratic, VARIANCE, batched=True, context=context),
    ]
    first = pn.sample(targets[0], threads=1, **settings)
    for target in targets:
        for threads in (1, 3):
            np.testing.assert_array_equal(pn.sample(target, threads=threads, **settings).theta, first.theta)


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
def test_the_c_functions_of_a_posterior(batched: bool) -> None:
    """Capsules of `post.c_api()`: again the chains of the posterior, now without Python."""
    post = problems.problem(problems.rng_of("target, capsules"), (2, 5, 1), 14).post
    settings: dict[str, Any] = {"chains": 3, "draws": 30, "warmup": 300, "init": np.zeros((3, post.dim)), "seed": 2}
    own = pn.sample(post, pn.MGrad(persistence=0.9), threads=2, **settings)
    api = post.c_api()
    target = pn.Target(
        api.batched if batched else api.function, post.prior_variance, batched=batched, context=api.context
    )
    del api
    draws = pn.sample(target, threads=2, **settings)
    np.testing.assert_array_equal(draws.theta, own.theta)


def test_functions_of_numba() -> None:
    numba = pytest.importorskip("numba")
    pointer = numba.types.CPointer(numba.types.float64)
    signature = numba.types.int32(numba.types.uintp, pointer, pointer, pointer, numba.types.voidptr)

    @numba.cfunc(signature)
    def compiled(n: Any, x: Any, grad: Any, logp: Any, context: Any) -> int:
        logp[0] = 0.0
        for i in range(n):
            grad[i] = -2.0 * (x[i] - 1.0)
            logp[0] += 0.5 * grad[i] * (x[i] - 1.0)
        return 0

    target = pn.Target(compiled, np.ones(3))
    value, gradient = target.log_likelihood_and_grad([0.0, 1.0, 3.0])
    assert value == -5.0 and gradient.tolist() == [2.0, -0.0, -4.0]
    draws = pn.sample(target, chains=2, draws=200, warmup=500, seed=1)
    assert abs(draws.theta.mean() - 2 / 3) < 0.2  # the posterior is N(2/3, 1/3) for each entry


def test_c_functions_run_on_several_threads_at_once(library: ctypes.CDLL) -> None:
    """Two chains meet in the function: neither holds the GIL. The starting points are evaluated one after the other."""
    counts = (ctypes.c_int * 3)()
    target = pn.Target(library.meeting, np.ones(2), context=ctypes.cast(counts, ctypes.c_void_p))
    pn.sample(target, pn.PCN(0.5), chains=2, draws=10, warmup=None, seed=1, threads=2)
    assert counts[2] == 2


def test_threads_of_a_batched_function_are_those_asked_for() -> None:
    """Chains that wait for each other wait in no thread of their own, and each call evaluates all of them anew."""
    running: set[int] = set()
    calls = 0

    def function(theta: Array) -> tuple[Any, Array]:
        nonlocal calls
        calls += 1
        running.add(len(list(Path("/proc/self/task").iterdir())))
        return quadratic(theta)

    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads are counted in /proc")
    before = len(list(Path("/proc/self/task").iterdir()))
    target = pn.Target(function, VARIANCE, batched=True)
    settings: dict[str, Any] = {"draws": 5, "thin": 2, "warmup": None, "init": "prior", "seed": 1}
    draws = pn.sample(target, pn.MGrad(1.0), chains=3000, threads=2, **settings)
    assert max(running) <= before + 3
    # One for the starting points and one for each step; more only where a thread began its chains late.
    assert 11 <= calls < 40
    for threads in (1, 3):
        again = pn.sample(
            pn.Target(quadratic, VARIANCE, batched=True), pn.MGrad(1.0), chains=3000, threads=threads, **settings
        )
        np.testing.assert_array_equal(again.theta, draws.theta)


def test_an_error_code_of_a_c_function(library: ctypes.CDLL) -> None:
    calls = ctypes.c_int(0)
    target = pn.Target(library.failing, np.ones(2), context=ctypes.pointer(calls))
    with pytest.raises(RuntimeError, match="the function returned the error code 7"):
        pn.sample(target, chains=2, draws=1_000, threads=2, seed=1)


# Known densities


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_moments_of_a_gaussian(kernel: pn.Kernel, library: ctypes.CDLL) -> None:
    """Means and mean squares of theta against the closed form."""
    assert moments_z(kernel, library) < bound(6, 2 * 40 - 1)


@pytest.mark.parametrize("kernel", [pn.PCN(), pn.MGrad(persistence=0.9), pn.EllipticalSlice()], ids=str)
def test_a_wrong_value_is_rejected(kernel: pn.Kernel, library: ctypes.CDLL) -> None:
    assert moments_z(kernel, library, value=0.8) > bound(6, 2 * 40 - 1)


@pytest.mark.parametrize("kernel", [pn.PCNL(), pn.MGrad(persistence=0.9)], ids=str)
def test_a_wrong_gradient_leaves_the_density_as_it_is(kernel: pn.Kernel, library: ctypes.CDLL) -> None:
    """The accept test corrects any gradient that is a function of theta."""
    assert moments_z(kernel, library, gradient=0.7) < bound(6, 2 * 40 - 1)


def moments_z(kernel: pn.Kernel, library: ctypes.CDLL, value: float = 1.0, gradient: float = 1.0) -> float:
    """Largest |z| of the moments, by means of batches of 2,000 steps, with value and gradient times given factors."""
    numbers = np.concatenate([SLOPES, CENTRES, [value, gradient]])
    target = pn.Target(library.quadratic, VARIANCE, context=numbers.ctypes.data)
    draws = pn.sample(target, kernel, chains=2, draws=20_000, thin=4, warmup=1_000, seed=7)
    precision = SLOPES + 1 / VARIANCE
    mean = SLOPES * CENTRES / precision
    values = np.concatenate([draws.theta, draws.theta**2], axis=-1)
    return largest_z(batch_means(values, 40), np.concatenate([mean, mean**2 + 1 / precision]))


def test_log_densities_of_the_draws() -> None:
    draws = pn.sample(pn.Target(quadratic, VARIANCE), pn.MGrad(), chains=2, draws=20, warmup=100, seed=1)
    np.testing.assert_array_equal(draws.stats["log_likelihood"], quadratic(draws.theta)[0])
    target = pn.Target(quadratic, VARIANCE)
    expected = -0.5 * (draws.theta**2 / VARIANCE + np.log(2 * np.pi * VARIANCE)).sum(axis=-1)
    np.testing.assert_allclose(draws.stats["log_prior"], expected, rtol=1e-13)
    np.testing.assert_allclose(target.log_prior(draws.theta), expected, rtol=1e-13)


@pytest.mark.parametrize("where", ["value", "gradient"])
def test_points_that_are_not_finite_are_rejected_and_counted(where: str) -> None:
    """Flat below 1 and not finite above: the prior N(0, 1) truncated there."""

    def truncated(theta: Array) -> tuple[float, Array]:
        bad = np.nan if theta[0] > 1.0 else 0.0
        return (bad, np.zeros(1)) if where == "value" else (0.0, np.full(1, bad))

    with pytest.warns(UserWarning, match="find where the function is not finite"):
        draws = pn.sample(
            pn.Target(truncated, [1.0]),
            pn.MGrad(1.0),
            chains=2,
            draws=8_000,
            warmup=None,
            init=np.zeros((2, 1)),
            seed=1,
        )
    assert draws.theta.max() <= 1.0 and draws.stats["nonfinite"].min() > 100
    # Mean of the truncated normal: -phi(1) / Phi(1).
    assert largest_z(batch_means(draws.theta, 40), np.array([-0.28760])) < bound(1, 79)
    verdict = draws.summary().verdict()
    assert verdict.grade == "do not use" and "where the function is not finite" in str(verdict)


# Settings


def test_defaults_are_mgrad_with_persistence_from_draws_of_the_prior() -> None:
    target = pn.Target(quadratic, VARIANCE)
    draws = pn.sample(target, chains=2, draws=5, warmup=100, seed=4)
    assert draws.summary().sampler == "MGrad(persistence=0.9)" and draws.settings["device"] == "cpu"
    assert draws.settings["fit"] is None
    given = pn.sample(
        target,
        chains=2,
        draws=5,
        warmup=100,
        seed=4,
        init=np.stack([target.sampled.prior_start(4, chain) for chain in (0, 1)]),
    )
    np.testing.assert_array_equal(draws.theta, given.theta)
    starts = np.stack([pn.Target(quadratic, VARIANCE).sampled.prior_start(seed, 0) for seed in range(4_000)])
    # The mean square of 4,000 normals has a standard error of sqrt(2 / 4000) of their variance.
    assert (np.abs((starts**2).mean(axis=0) / VARIANCE - 1) < 5 * np.sqrt(2 / 4000)).all()


# Draws


def test_predictions_summary_and_files(tmp_path: Path) -> None:
    X = np.linspace(0, 1, 4)
    single = pn.Target(quadratic, VARIANCE, predict=lambda theta, x: theta[0] + theta[1] * x)
    batched = pn.Target(quadratic, VARIANCE, batched=True, predict=lambda theta, x: theta[:, :1] + theta[:, 1:2] * x)
    draws = pn.sample(single, chains=4, draws=600, thin=3, seed=2)
    together = pn.sample(batched, chains=4, draws=600, thin=3, seed=2)
    expected = draws.theta[..., :1] + draws.theta[..., 1:2] * X
    np.testing.assert_array_equal(draws.predict(X), expected)
    np.testing.assert_array_equal(together.predict(X), together.theta[..., :1] + together.theta[..., 1:2] * X)
    summary = draws.summary()
    assert summary.mean.shape == (3, 1) and summary.verdict().grade == "good"
    assert "theta at 3 entries: posterior sd" in str(summary) and "ESS averaged over entries" in str(summary)
    of_predictions = draws.summary(X)
    np.testing.assert_allclose(of_predictions.mean[:, 0], expected.mean(axis=(0, 1)))
    assert "predictions at 4 inputs" in str(of_predictions)
    draws.save(tmp_path / "draws.npz")
    loaded = TargetDraws.load(tmp_path / "draws.npz")
    np.testing.assert_array_equal(loaded.theta, draws.theta)
    assert str(loaded.summary()) == str(summary)
    with pytest.raises(ValueError, match="these draws have no predict"):
        loaded.predict(X)
    with pytest.raises(ValueError, match="holds draws of a target, not draws"):
        pn.Draws.load(tmp_path / "draws.npz")
    np.testing.assert_array_equal(draws[:, 1::2].predict(X), expected[:, 1::2])
    uneven = pn.Target(quadratic, VARIANCE, predict=lambda theta, x: np.zeros(1 + int(theta[0] > 0)))
    with pytest.raises(TypeError, match=r"predict of the Target must be a rectangular array.*"):
        pn.sample(uneven, chains=1, draws=50, seed=2).predict(X)
    assert repr(draws[:, :7]) == "TargetDraws(K=3, chains=4, draws=7, thin=3, seed=2)"


def test_chains_far_apart_get_a_remedy_that_fits_a_function() -> None:
    """Two modes a hundred deviations apart, with a chain in each."""

    def two_modes(theta: Array) -> tuple[float, Array]:
        near = np.where(theta > 0, 10.0, -10.0)
        return float(-50.0 * ((theta - near) ** 2).sum()), -100.0 * (theta - near)

    target = pn.Target(two_modes, [100.0])
    draws = pn.sample(target, chains=2, draws=200, warmup=400, init=[[10.0], [-10.0]], seed=1)
    verdict = draws.summary().verdict()
    assert verdict.grade == "do not use" and "the chains disagree" in str(verdict)
    assert "theta_map" not in str(verdict) and "inputs" not in str(verdict)
