"""Rank tests of what a step is composed of: collapsed output weights, a sampled noise variance, and exact draws.

They are those of rank_test.py, which says why a composed step may be tested so; the noise variance given theta is
tested by its own distribution in tests/test_sampled_variance.py.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from rank_test import LEVEL, Problem, native_chain, native_variance_chain, network, smallest_p
from twins import NO_DETERMINANT, NOT_REFRESHED, STALE_WEIGHTS, Twin

import patrac_native as pn
from problems import balanced

# sigma^2 has the inverse-gamma prior with density x^(-a - 1) exp(-b / x).
NOISE, MORE_NOISE = (2.5, 0.5), (2.5, 2.0)
X = np.linspace(-2, 2, 8)[:, None]
POINT = np.array([[0.7]])


def full(dtype: str, variance: float = 0.2) -> Problem:
    """All 10 parameters of 1-3-1, 8 rows. With little noise the determinant of Sigma counts."""
    prior = pn.TraceClassPrior(1.2, 1.0, 0.5)
    return Problem(network([1, 3, 1], 1), pn.Full(), prior, pn.Gaussian(variance), X, POINT, dtype)


def mix(dtype: str) -> Problem:
    """Mix(2) on 2-4-4-2, 10 rows, outputs of unequal noise: offsets that depend on theta_h, several determinants."""
    rows, point = np.random.default_rng(0).uniform(-2, 2, (10, 2)), np.array([[0.7, -0.3]])
    prior, likelihood = pn.TraceClassPrior(1.5, 1.0, 0.5), pn.Gaussian([0.5, 2.0])
    return Problem(network([2, 4, 4, 2], 2), pn.Mix(2), prior, likelihood, rows, point, dtype)


def out(dtype: str) -> Problem:
    """Out(3) on 2-4-4-2: no Bayesian parameter below the last layer."""
    return dataclasses.replace(mix(dtype), architecture=pn.Out(3))


def sampled(problem: Problem, noise: tuple[float, Any] = NOISE, *, by_twin: bool = False) -> Problem:
    """The problem with the noise variance sampled; twins take a posterior of unit variance for it."""
    pooled = np.ndim(noise[1]) == 0
    native = pn.Gaussian(1.0) if by_twin else pn.Gaussian(variance="sampled", a=noise[0], b=noise[1], pooled=pooled)
    return dataclasses.replace(problem, likelihood=native, noise=noise)


# Compiled kernels

# Acceptance rates of 0.4 to 0.8.
COLLAPSED = {"collapsed pcnl": pn.PCNL(0.2, collapse=True), "collapsed mgrad": pn.MGrad(0.3, collapse=True)}
PLAIN = {"pcn": pn.PCN(0.15), "pcnl": pn.PCNL(0.03), "mgrad": pn.MGrad(0.04), "elliptical slice": pn.EllipticalSlice()}
SAMPLED = PLAIN | COLLAPSED
ON_THE_LAST_LAYER = PLAIN | {"mgrad": pn.MGrad(0.1), "exact": pn.Exact()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "name", "dtype"), balanced(itertools.product(COLLAPSED, ("full", "mix")), ("float32", "float64"))
)
def test_compiled_collapsed_kernels_pass(kernel: str, name: str, dtype: str) -> None:
    problem = full(dtype) if name == "full" else mix(dtype)
    assert smallest_p(problem, native_chain(COLLAPSED[kernel], 3), seed=21) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "mix"])
@pytest.mark.parametrize("kernel", SAMPLED)
def test_compiled_kernels_pass_with_a_sampled_variance(kernel: str, name: str) -> None:
    problem = sampled(full("float64")) if name == "full" else sampled(mix("float32"), MORE_NOISE)
    assert smallest_p(problem, native_variance_chain(SAMPLED[kernel], 3), seed=22) > LEVEL


# Of two outputs, each with a variance of its own. A step of Exact() draws the variances too.
BY_OUTPUT = (2.5, (0.5, 4.0))
OF_TWO_OUTPUTS = {name: SAMPLED[name] for name in ("pcn", "pcnl", "collapsed pcnl", "collapsed mgrad")}


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("kernel", OF_TWO_OUTPUTS)
def test_compiled_kernels_pass_with_a_variance_of_each_output(kernel: str, every: int) -> None:
    problem = sampled(mix("float32" if every == 1 else "float64"), BY_OUTPUT)
    assert smallest_p(problem, native_variance_chain(OF_TWO_OUTPUTS[kernel], 3, every=every), seed=31) > LEVEL


# On the last layer, with the noise fixed, sampled in common or by output, then in every or every third step.
LAST_LAYER_NOISE: dict[str, tuple[tuple[float, Any] | None, int]] = {
    "fixed": (None, 1),
    "sampled": (MORE_NOISE, 1),
    "by output": (BY_OUTPUT, 1),
    "by output, every third": (BY_OUTPUT, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("noise", LAST_LAYER_NOISE)
@pytest.mark.parametrize("kernel", ON_THE_LAST_LAYER)
def test_compiled_kernels_pass_on_sufficient_statistics(kernel: str, noise: str) -> None:
    problem, chosen, (law, every) = out("float32"), ON_THE_LAST_LAYER[kernel], LAST_LAYER_NOISE[noise]
    chain: Any = native_chain(chosen, 3)
    if law is not None:
        problem, chain = sampled(problem, law), native_variance_chain(chosen, 3, every=every)
    assert smallest_p(problem, chain, replicates=500, seed=23) > LEVEL


# Twins


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["pcnl", "collapsed mgrad"])
@pytest.mark.parametrize("fault", ["pooled", "swapped"])
def test_a_chain_with_the_variances_of_other_outputs_is_rejected(fault: str, kernel: str) -> None:
    """The compiled chain of a wrong model: one variance of both outputs, or each with the prior of the other."""
    problem = sampled(mix("float64"), BY_OUTPUT)
    wrong = (
        pn.Gaussian("sampled", a=2.5, b=2.0, pooled=True)
        if fault == "pooled"
        else pn.Gaussian("sampled", a=2.5, b=BY_OUTPUT[1][::-1])
    )
    inner = native_variance_chain(SAMPLED[kernel], 6, every=3)

    def chain(post: pn.Posterior, theta: Any, states: int, rng: np.random.Generator) -> Any:
        return inner(post.with_targets(post.data.y, likelihood=wrong), theta, states, rng)

    assert smallest_p(problem, chain, seed=33) < LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["pcnl", "mgrad"])
def test_right_collapsed_twins_pass(kernel: str) -> None:
    assert smallest_p(full("float64", 0.02), Twin(kernel, 0.3, 3, collapse=True), replicates=300, seed=24) > LEVEL


@pytest.mark.slow
def test_without_the_determinant_the_collapsed_twin_is_rejected() -> None:
    # Power, measured once: over 10 seeds the largest p-value was 1e-8.
    twin = Twin("mgrad", 0.3, 10, collapse=True, fault=NO_DETERMINANT)
    assert smallest_p(full("float64", 0.02), twin, replicates=600, seed=25) < LEVEL


# Two rows and a vague prior: sigma^2 moves by orders of magnitude, so that l at an old one is far off.
VAGUE, TWO_ROWS = (1.1, 0.02), np.linspace(-2, 2, 2)[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["pcn", "pcnl", "mgrad", "elliptical slice"])
def test_right_twins_pass_with_a_sampled_variance(kernel: str) -> None:
    problem = sampled(dataclasses.replace(full("float64"), X=TWO_ROWS), VAGUE, by_twin=True)
    step_size = {"pcn": 0.3, "pcnl": 0.05, "mgrad": 0.1, "elliptical slice": 0.0}[kernel]
    assert smallest_p(problem, Twin(kernel, step_size, 3, noise=VAGUE), replicates=300, seed=26) > LEVEL


@pytest.mark.slow
def test_a_twin_that_does_not_refresh_l_and_g_is_rejected() -> None:
    # Power, measured once: over 10 seeds the largest p-value was 7e-12.
    problem = sampled(dataclasses.replace(full("float64"), X=TWO_ROWS), VAGUE, by_twin=True)
    twin = Twin("mgrad", 0.1, 10, noise=VAGUE, fault=NOT_REFRESHED)
    assert smallest_p(problem, twin, replicates=800, seed=27) < LEVEL


@pytest.mark.slow
def test_the_right_partially_collapsed_twin_passes() -> None:
    problem = sampled(full("float64"), by_twin=True)
    assert smallest_p(problem, Twin("mgrad", 0.5, 3, collapse=True, noise=NOISE), replicates=300, seed=28) > LEVEL


@pytest.mark.slow
def test_the_wrong_gibbs_order_is_rejected() -> None:
    """The variance drawn from the new hidden parameters and the old output weights, which are redrawn after it."""
    # Power, measured once: over 10 seeds the largest p-value was 2e-10.
    problem = sampled(full("float64"), by_twin=True)
    twin = Twin("mgrad", 0.5, 3, collapse=True, noise=NOISE, fault=STALE_WEIGHTS)
    assert smallest_p(problem, twin, replicates=500, seed=29) < LEVEL
