"""Sampled noise variances on a device: the CPU's chains state by state, blocks alone and together; refused draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
import test_device_chains
from conftest import Interrupt, one_thread_and_cuda, two_threads_and_cuda
from patrac_native.sampling.warmup import Phase
from test_device_chains import ERROR_32, ERROR_64, WARMUPS, assert_same_chains
from test_low_noise import LowNoise


def kernels(n: int) -> dict[str, pn.Kernel]:
    """Kernels that take some of their moves and reject others on n rows of unit variance."""
    step = 0.6 / n
    return {
        "pcn": pn.PCN(float(np.sqrt(step))),
        "pcnl": pn.PCNL(step),
        "mgrad": pn.MGrad(step, persistence=0.9),
        "collapsed pcnl": pn.PCNL(5 * step, collapse=True),
        "collapsed mgrad": pn.MGrad(5 * step, collapse=True, persistence=0.9),
    }


KERNELS = kernels(30)


def posterior(
    n: int = 30,
    *,
    pooled: bool = False,
    dtype: str = "float64",
    architecture: str = "mix",
    sizes: tuple[int, ...] = (3, 9, 6, 3),
    index: int = 0,
    a: float = 2.5,
) -> pn.Posterior:
    """Unequal row weights, and a prior of each output's variance of its own."""
    rng = problems.rng_of("device variance", n, architecture, index)
    net = problems.random_network(rng, sizes)
    d, m = sizes[0], sizes[-1]
    X, y = rng.normal(size=(n, d)), rng.normal(size=(n, m))
    b: Any = 0.4 + index if pooled else 0.4 + index + np.arange(m)
    likelihood = pn.Gaussian("sampled", a=a, b=b, pooled=pooled)
    chosen = problems.architecture(architecture, problems.rng_of("masks", architecture), net)
    weight = rng.uniform(0.3, 2.0, n)
    return pn.Posterior(net, chosen, problems.PRIOR, likelihood, X, y, sample_weight=weight, dtype=dtype)


def run(post: pn.Posterior, kernel: pn.Kernel, device: str, **more: Any) -> pn.Draws:
    """Three chains without a warm-up, variances drawn every third step, every second state kept."""
    return test_device_chains.run(post, kernel, device, **({"variance_every": 3} | more))


@pytest.mark.parametrize("n", [30, 300])
@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "by output"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_chains_are_the_cpus(kernel: str, pooled: bool, n: int, device: str) -> None:
    """In one tile or several. Kept draws lie on steps that draw the variances and on steps that do not."""
    post, chosen = posterior(n, pooled=pooled), kernels(n)[kernel]
    found, expected = (run(post, chosen, where) for where in (device, "cpu"))
    assert expected.stats["variance"].shape == ((3, 12) if pooled else (3, 12, 3))
    assert len(np.unique(expected.stats["variance"])) >= 3 * 8
    assert 0 < expected.stats["acceptance_rate"].mean() < 1
    assert_same_chains(found, expected, ERROR_64)


@pytest.mark.parametrize("architecture", ["full", "sep", "custom"])
@pytest.mark.parametrize("kernel", ["mgrad", "collapsed mgrad"])
def test_every_architecture(kernel: str, architecture: str, device: str) -> None:
    post = posterior(architecture=architecture)
    assert_same_chains(run(post, KERNELS[kernel], device), run(post, KERNELS[kernel], "cpu"), ERROR_64)


@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "by output"])
@pytest.mark.parametrize("kernel", ["mgrad", "collapsed mgrad"])
def test_float32_chains_follow_the_cpus(kernel: str, pooled: bool, device: str) -> None:
    """In four steps all decisions are equal, unless one depends on the last bits."""
    post, few = posterior(pooled=pooled, dtype="float32"), {"draws": 4, "thin": 1, "variance_every": 2}
    assert_same_chains(run(post, KERNELS[kernel], device, **few), run(post, KERNELS[kernel], "cpu", **few), ERROR_32)


@pytest.mark.parametrize(
    ("kernel", "warmup"),
    [
        ("mgrad", "average"),
        ("mgrad", "ends by itself"),
        ("collapsed mgrad", "accept all"),
        ("collapsed mgrad", "short"),
    ],
)
def test_warm_ups_are_the_cpus(kernel: str, warmup: str, device: str) -> None:
    """What the schedule compares is l at the variances of the end of a step. Collapsed chains with noise that persists
    part after some 150 steps, with sampled variances and with fixed ones: rounding grows by that time.
    """
    phases = pn.Warmup((Phase(60, target=0.6, average=True),)) if warmup == "short" else WARMUPS[warmup]
    post, more = posterior(pooled=True), {"warmup": phases, "draws": 4, "variance_every": 7}
    assert_same_chains(run(post, KERNELS[kernel], device, **more), run(post, KERNELS[kernel], "cpu", **more), ERROR_64)


@two_threads_and_cuda
@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("kernel", ["pcn", "pcnl", "mgrad"])
def test_blocks_that_share_evaluations(kernel: str, every: int, device: str) -> None:
    """One variance only rescales l and g, so blocks still share the evaluations of many rows."""
    post = posterior(1100, pooled=True)
    assert post.sampled.compiled.on_device(device).layout(False, 2)["blocks_of_chain"] > 1
    more: dict[str, Any] = {"chains": 2, "draws": 24, "variance_every": every}
    found, expected = (run(post, kernels(1100)[kernel], where, **more) for where in (device, "cpu"))
    assert 0 < expected.stats["acceptance_rate"].mean() < 1
    assert_same_chains(found, expected, ERROR_64)


@two_threads_and_cuda
@pytest.mark.parametrize("m", [1, 2])
def test_a_wide_first_layer(m: int, device: str) -> None:
    """Sums on the matrix units: the first steps equal the CPU's as far as float32 allows."""
    post = posterior(600, dtype="float32", sizes=(300, 12, m))
    if m == 1:
        assert post.sampled.compiled.on_device(device).layout(False, 1)["wide_inputs"] == "floats"
    kernel, few = pn.PCNL(1e-4), {"chains": 1, "draws": 4, "thin": 1, "variance_every": 1 if m == 1 else 3}
    assert_same_chains(run(post, kernel, device, **few), run(post, kernel, "cpu", **few), ERROR_32)


@two_threads_and_cuda
def test_many_rows_with_a_variance_of_each_output(device: str) -> None:
    """Each chain is then one block, which evaluates l and g again after a draw."""
    post, few = posterior(1100), {"chains": 1, "draws": 6, "variance_every": 2}
    kernel = pn.PCNL(0.002)
    assert_same_chains(run(post, kernel, device, **few), run(post, kernel, "cpu", **few), ERROR_64)


@pytest.mark.parametrize("kernel", ["mgrad", "collapsed mgrad"])
def test_thinned_draws_are_every_so_manieth_state(kernel: str, device: str) -> None:
    whole = run(posterior(), KERNELS[kernel], device, draws=30, thin=1)
    thinned = run(posterior(), KERNELS[kernel], device, draws=10, thin=3)
    np.testing.assert_array_equal(thinned.theta, whole.theta[:, 2::3])
    for name in ("log_likelihood", "log_prior", "variance"):
        np.testing.assert_array_equal(thinned.stats[name], whole.stats[name][:, 2::3])


@one_thread_and_cuda
@pytest.mark.parametrize("n", [30, 1100])
def test_a_longer_run_begins_as_the_shorter_one(n: int, device: str) -> None:
    """More steps than one launch runs at first: the variances go from launch to launch."""
    post, more = posterior(n, pooled=True), {"chains": 1, "thin": 1, "variance_every": 5}
    short, long = (run(post, KERNELS["mgrad"], device, draws=draws, **more) for draws in (20, 150))
    np.testing.assert_array_equal(long.theta[:, :20], short.theta)
    np.testing.assert_array_equal(long.stats["variance"][:, :20], short.stats["variance"])


def test_draws_that_stay_on_the_device_have_their_variances(device: str) -> None:
    stayed, copied = (run(posterior(), KERNELS["mgrad"], device, keep_on_device=keep) for keep in (True, False))
    np.testing.assert_array_equal(stayed.theta, copied.theta)
    np.testing.assert_array_equal(stayed.stats["variance"], copied.stats["variance"])


def test_an_interrupted_run_has_the_variances_of_its_draws(device: str, interrupt: Interrupt) -> None:
    interrupt(2)
    with pytest.warns(UserWarning, match="interrupted"):
        draws = pn.sample(posterior(), KERNELS["mgrad"], draws=10**6, warmup=None, seed=4, device=device, progress=True)
    assert draws.stats["variance"].shape == (*draws.theta.shape[:2], 3)
    assert (draws.stats["variance"] > 0).all()


@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "by output"])
@pytest.mark.parametrize("kernel", ["pcnl", "collapsed mgrad"])
def test_posteriors_run_together_as_alone(kernel: str, pooled: bool, device: str) -> None:
    """Each with its own prior of the variances, and its own start of them."""
    posts = [posterior(pooled=pooled, index=index) for index in range(3)]
    more: dict[str, Any] = {"chains": 2, "draws": 6, "thin": 2, "warmup": WARMUPS["fixed"], "variance_every": 3}
    together = pn.sample_many(posts, KERNELS[kernel], seed=7, device=device, progress=False, **more)
    for draws, post in zip(together, posts, strict=True):
        alone = run(post, KERNELS[kernel], "cpu", seed=draws.settings["seed"], **more)
        assert_same_chains(draws, alone, ERROR_64)


@pytest.mark.parametrize(
    "other", [posterior(pooled=True), posterior(a=3.0), "fixed"], ids=["pooled", "another shape", "fixed"]
)
def test_posteriors_with_other_laws_of_variances_do_not_run_together(other: Any) -> None:
    first = posterior()
    if other == "fixed":
        other = pn.Posterior(
            first.network.net,
            first.network.architecture,
            problems.PRIOR,
            pn.Gaussian(1.0),
            first.data.X,
            first.data.y,
            dtype="float64",
        )
    with pytest.raises(ValueError, match=r"^posts must have as many sampled noise .* posts\[1\] has Gaussian"):
        pn.sample_many([first, other], pn.PCNL(0.1), draws=1, warmup=None, device="emulated:1", progress=False)


# States that are not finite


@pytest.mark.parametrize("n", [2, 1100])
@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "by output"])
@one_thread_and_cuda
@pytest.mark.parametrize("kernel", [pn.PCN(0.3), pn.MGrad(0.3), pn.MGrad(0.3, collapse=True)], ids=str)
def test_a_variance_at_which_the_density_is_not_finite_is_not_kept(
    kernel: pn.Kernel, pooled: bool, n: int, device: str
) -> None:
    """A vague prior near the largest number: many draws are infinite. Such a draw is refused and counted, and the chain
    goes on with the variance that it had, as on the CPU. One row has weight, so that blocks which share the evaluations
    of many rows draw from as vague a conditional.
    """
    rng = problems.rng_of("overflow of variances")
    net = problems.random_network(rng, (1, 3, 2))
    weight = np.zeros(n)
    weight[0] = 1.0
    X, y = rng.normal(size=(n, 1)), rng.normal(size=(n, 2))
    likelihood = pn.Gaussian("sampled", a=0.02, b=1e307, pooled=pooled)
    prior = pn.TraceClassPrior(1.5, 1.0, 1.0)
    post = pn.Posterior(net, pn.Full(), prior, likelihood, X, y, sample_weight=weight, dtype="float64")
    found, expected = (run(post, kernel, where, chains=2, draws=60, variance_every=1) for where in (device, "cpu"))
    assert (expected.stats["nonfinite"] > 10).all()
    assert len(np.unique(expected.stats["variance"])) > 20
    assert all(np.isfinite(values).all() for values in found.stats.values())
    assert_same_chains(found, expected, ERROR_64)


@one_thread_and_cuda
@pytest.mark.parametrize("n", [1, 1100])
def test_a_variance_at_which_the_gradient_overflows_is_not_kept(n: int, device: str) -> None:
    """As on the CPU (test_low_noise.py): rows that any network fits, and variances near which g overflows float32."""
    net = problems.random_network(problems.rng_of("overflow"), (1, 3, 1))
    X = np.full((n, 1), 0.3)
    weight = np.zeros(n)
    weight[0] = 1.0
    likelihood = pn.Gaussian("sampled", a=0.02, b=1e-36)
    prior = pn.TraceClassPrior(1.5, 1.0, 1.0)
    post = pn.Posterior(net, pn.Full(), prior, likelihood, X, net.predict(X), sample_weight=weight)
    kernel = pn.MGrad(0.5)
    draws = run(post, kernel, device, chains=2, draws=500 if n == 1 else 200, thin=1, variance_every=1, seed=2)
    assert np.isfinite(draws.theta).all()
    assert all(np.isfinite(values).all() for values in draws.stats.values())
    assert draws.stats["nonfinite"].sum() > 0
    assert len(np.unique(draws.stats["variance"])) > 2


@one_thread_and_cuda
@pytest.mark.parametrize("variance", [1e-2, 1e-6])
def test_float32_chains_with_low_noise_stay_finite(variance: float, device: str) -> None:
    """The Gram matrix of a draw's precision is summed in float64 where float32 would lose its definiteness."""
    post = LowNoise(variance).posterior(pn.Gaussian("sampled", a=2.0, b=variance), "float32")
    kernel, more = pn.MGrad(variance, collapse=True), {"chains": 2, "draws": 60, "init": "map", "variance_every": 2}
    draws = run(post, kernel, device, **more)
    assert np.isfinite(draws.theta).all() and all(np.isfinite(values).all() for values in draws.stats.values())
    assert (draws.stats["nonfinite"] == 0).all() and draws.stats["acceptance_rate"].mean() > 0.1
    assert (draws.stats["variance"] < 5 * variance + 1e-3).all()


@one_thread_and_cuda
@pytest.mark.parametrize("n", [2, 1100])
@pytest.mark.parametrize("variance", [1.0, "sampled"])
def test_a_draw_that_is_not_finite_ends_the_run(variance: Any, n: int, device: str) -> None:
    """The guard of the host, which reads every draw that a device has written: here a log prior of minus infinity,
    under prior variances that are zero in float32.
    """
    net = problems.random_network(problems.rng_of("guard"), (1, 3, 1))
    X = np.linspace(-1, 1, n)[:, None]
    likelihood = pn.Gaussian("sampled", a=2.0, b=1.0) if variance == "sampled" else pn.Gaussian(variance)
    post = pn.Posterior(net, pn.Full(), pn.TraceClassPrior(1.5, 1e-60, 1e-60), likelihood, X, X[:, 0])
    more = {} if variance == "sampled" else {"variance_every": "auto"}
    with pytest.raises(RuntimeError, match=r"^chain 0: .* not finite in a draw; use dtype=\"float64\"$"):
        run(post, pn.PCN(0.1), device, init="map", **more)
