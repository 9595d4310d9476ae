"""Rank tests of what a step is composed of: collapsed output weights, a sampled noise variance, and exact draws.

They are those of rank_test.py, which says why a composed step may be tested so; the noise variance given theta is
tested by its own distribution.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from rank_test import QUANTITIES, Problem, native_chain, native_variance_chain, p_values, ranks
from twins import NO_DETERMINANT, NOT_REFRESHED, STALE_WEIGHTS, Twin

import patrac_native as pn

N_STATES = 16
# False-alarm probability of one test; shared among the test quantities (Bonferroni).
LEVEL = 1e-4 / len(QUANTITIES)
REPLICATES = 1000
# sigma^2 has the inverse-gamma prior with density x^(-a - 1) exp(-b / x).
NOISE = (2.5, 0.5)
X = np.linspace(-2, 2, 8)[:, None]
POINT = np.array([[0.7]])


def network(sizes: list[int], seed: int) -> pn.Network:
    """Network of standard normal weights and biases."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(shape) for shape in zip(sizes[1:], sizes[:-1], strict=True)]
    return pn.Network(weights, [rng.standard_normal(size) for size in sizes[1:]])


def full(dtype: str, variance: float = 0.2) -> Problem:
    """All 10 parameters of 1-3-1, 8 rows. With little noise the determinant of Sigma counts."""
    prior = pn.TraceClassPrior(1.2, 1.0, 0.5)
    return Problem(network([1, 3, 1], 1), pn.Full(), prior, pn.Gaussian(variance), X, POINT, dtype)


def mix(dtype: str) -> Problem:
    """Mix(2) on 2-4-4-2, 10 rows, outputs of unequal noise: offsets that depend on theta_h, several determinants."""
    rows, point = np.random.default_rng(0).uniform(-2, 2, (10, 2)), np.array([[0.7, -0.3]])
    prior, likelihood = pn.TraceClassPrior(1.5, 1.0, 0.5), pn.Gaussian([0.1, 0.4])
    return Problem(network([2, 4, 4, 2], 2), pn.Mix(2), prior, likelihood, rows, point, dtype)


def out(dtype: str) -> Problem:
    """Out(3) on 2-4-4-2: no Bayesian parameter below the last layer."""
    return dataclasses.replace(mix(dtype), architecture=pn.Out(3))


def sampled(problem: Problem, noise: tuple[float, float] = NOISE, *, by_twin: bool = False) -> Problem:
    """The problem with the noise variance sampled; twins take a posterior of unit variance for it."""
    native = pn.Gaussian(1.0) if by_twin else pn.Gaussian(variance="sampled", a=noise[0], b=noise[1])
    return dataclasses.replace(problem, likelihood=native, noise=noise)


def smallest_p(problem: Problem, chain: Any, *, replicates: int = REPLICATES, seed: int) -> float:
    """Smallest p-value of the rank test over the test quantities."""
    return float(p_values(ranks(problem, chain, replicates=replicates, n_states=N_STATES, seed=seed), N_STATES).min())


# Compiled kernels

COLLAPSED = {"pcnl": pn.PCNL(0.3, collapse=True), "mgrad": pn.MGrad(0.5, collapse=True)}
# Acceptance rates of 0.3 to 0.8.
SAMPLED = {
    "pcn": pn.PCN(0.2),
    "pcnl": pn.PCNL(0.05),
    "mgrad": pn.MGrad(0.1),
    "elliptical slice": pn.EllipticalSlice(),
    "collapsed pcnl": pn.PCNL(0.3, collapse=True),
    "collapsed mgrad": pn.MGrad(0.5, collapse=True),
}
ON_THE_LAST_LAYER = {
    "pcn": pn.PCN(0.2),
    "pcnl": pn.PCNL(0.05),
    "mgrad": pn.MGrad(0.1),
    "elliptical slice": pn.EllipticalSlice(),
    "exact": pn.Exact(),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["full", "mix"])
@pytest.mark.parametrize("kernel", COLLAPSED)
def test_compiled_collapsed_kernels_pass(kernel: str, name: str, dtype: str) -> None:
    problem = full(dtype) if name == "full" else mix(dtype)
    assert smallest_p(problem, native_chain(COLLAPSED[kernel], 3), seed=21) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "mix"])
@pytest.mark.parametrize("kernel", SAMPLED)
def test_compiled_kernels_pass_with_a_sampled_variance(kernel: str, name: str) -> None:
    problem = sampled(full("float64") if name == "full" else mix("float32"))
    assert smallest_p(problem, native_variance_chain(SAMPLED[kernel], 3), seed=22) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("noise", [None, NOISE], ids=["fixed", "sampled"])
@pytest.mark.parametrize("kernel", ON_THE_LAST_LAYER)
def test_compiled_kernels_pass_on_sufficient_statistics(kernel: str, noise: tuple[float, float] | None) -> None:
    problem, chosen = out("float32"), ON_THE_LAST_LAYER[kernel]
    chain = native_chain(chosen, 3)
    if noise is not None:
        problem, chain = sampled(problem, noise), native_variance_chain(chosen, 3)
    assert smallest_p(problem, chain, seed=23) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("kernel", SAMPLED)
@pytest.mark.parametrize("name", ["full", "mix", "out"])
def test_the_variance_is_inverse_gamma_given_its_theta(name: str, kernel: str) -> None:
    """Its distribution function, at each draw that of the theta kept with it, is uniform and independent over draws."""
    from scipy.stats import invgamma, kstest

    if name == "out" and kernel.startswith("collapsed"):
        kernel_object: pn.Kernel = pn.Exact()
    else:
        kernel_object = SAMPLED[kernel]
    problem = sampled({"full": full, "mix": mix, "out": out}[name]("float64"))
    _, targets = problem.simulate(1, 5, np.random.default_rng(5))
    post = problem.posterior(targets[0])
    draws = pn.sample(post, kernel_object, chains=2, draws=2000, warmup=None, seed=6, threads=1, progress=False)
    f = draws.predict(post.X).astype(np.float64)
    shape, scale = NOISE[0] + post.y.size / 2, NOISE[1] + 0.5 * ((post.y - f) ** 2).sum(axis=(2, 3))
    level = invgamma.cdf(draws.stats["variance"], shape, scale=scale)
    assert kstest(level.ravel(), "uniform").pvalue > LEVEL
    lag_one: npt.NDArray[Any] = 12 * ((level[:, 1:] - 0.5) * (level[:, :-1] - 0.5)).mean()
    # Products of independent standardised uniforms have variance 1; 4 standard errors.
    assert abs(lag_one) < 4 / np.sqrt(level.size)


# Twins


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["pcnl", "mgrad"])
def test_right_collapsed_twins_pass(kernel: str) -> None:
    assert smallest_p(full("float64", 0.02), Twin(kernel, 0.3, 3, collapse=True), seed=24) > LEVEL


@pytest.mark.slow
def test_without_the_determinant_the_collapsed_twin_is_rejected() -> None:
    # Power, measured once: over 10 seeds the largest p-value was 5e-12.
    twin = Twin("mgrad", 0.3, 10, collapse=True, fault=NO_DETERMINANT)
    assert smallest_p(full("float64", 0.02), twin, replicates=800, seed=25) < LEVEL


# Two rows and a vague prior: sigma^2 moves by orders of magnitude, so that l at an old one is far off.
VAGUE, TWO_ROWS = (1.1, 0.02), np.linspace(-2, 2, 2)[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["pcn", "pcnl", "mgrad", "elliptical slice"])
def test_right_twins_pass_with_a_sampled_variance(kernel: str) -> None:
    problem = sampled(dataclasses.replace(full("float64"), X=TWO_ROWS), VAGUE, by_twin=True)
    step_size = {"pcn": 0.3, "pcnl": 0.05, "mgrad": 0.1, "elliptical slice": 0.0}[kernel]
    assert smallest_p(problem, Twin(kernel, step_size, 3, noise=VAGUE), replicates=500, seed=26) > LEVEL


@pytest.mark.slow
def test_a_twin_that_does_not_refresh_l_and_g_is_rejected() -> None:
    # Power, measured once: over 10 seeds the largest p-value was 7e-12.
    problem = sampled(dataclasses.replace(full("float64"), X=TWO_ROWS), VAGUE, by_twin=True)
    twin = Twin("mgrad", 0.1, 10, noise=VAGUE, fault=NOT_REFRESHED)
    assert smallest_p(problem, twin, replicates=800, seed=27) < LEVEL


@pytest.mark.slow
def test_the_right_partially_collapsed_twin_passes() -> None:
    problem = sampled(full("float64"), by_twin=True)
    assert smallest_p(problem, Twin("mgrad", 0.5, 3, collapse=True, noise=NOISE), replicates=500, seed=28) > LEVEL


@pytest.mark.slow
def test_the_wrong_gibbs_order_is_rejected() -> None:
    """The variance drawn from the new hidden parameters and the old output weights, which are redrawn after it."""
    # Power, measured once: over 10 seeds the largest p-value was 2e-10.
    problem = sampled(full("float64"), by_twin=True)
    twin = Twin("mgrad", 0.5, 3, collapse=True, noise=NOISE, fault=STALE_WEIGHTS)
    assert smallest_p(problem, twin, replicates=500, seed=29) < LEVEL
