"""`EllipticalSlice()`: invariance of the prior, a move at every step, and what its draws may depend on."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import chains
import patrac_native as pn
import problems
from problems import LIKELIHOODS
from rounding import assert_log_priors


def problem(architecture: str = "mix", likelihood: str = "gaussian", dtype: str = "float64") -> problems.Problem:
    rng = problems.rng_of("elliptical slice", architecture, likelihood)
    return problems.problem(rng, (2, 5, 4, 3), 15, architecture, likelihood, dtype=dtype)


def flat(dtype: str, architecture: pn.Architecture) -> pn.Posterior:
    """Return a posterior whose likelihood is constant, with a noise variance of 1e30."""
    found, noise = problem("full"), pn.Gaussian(1e30)
    net, data = found.post.network.net, found.data
    return pn.Posterior(net, architecture, problems.PRIOR, noise, data.X, data.y, dtype=dtype)


run = functools.partial(chains.run, kernel=pn.EllipticalSlice())


@pytest.mark.parametrize("architecture", [pn.Full(), pn.Out(4)], ids=str)  # on tiles, and in the basis of a last layer
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_flat_likelihood_keeps_the_prior(dtype: str, architecture: pn.Architecture) -> None:
    """u cos(t) + w sin(t), t uniform on the circle: normal again, uncorrelated with u, squares correlated by 1/2."""
    post = flat(dtype, architecture)
    chains, steps = 400, 40
    draws = run(post, chains=chains, draws=steps, init="prior")
    assert (draws.stats["acceptance_rate"] == 1).all()
    z = draws.theta.astype(np.float64) / np.sqrt(post.prior_variance)
    count, dim = chains * steps, post.dim
    # 4.5 standard errors, for dim numbers each; squares and products are worth count / 3 independent ones.
    assert np.abs(z.mean(axis=(0, 1))).max() < 4.5 / np.sqrt(count)
    assert np.abs((z**2).mean(axis=(0, 1)) - 1).max() < 4.5 * np.sqrt(2 * 3 / count)
    pairs = chains * (steps - 1)
    assert np.abs((z[:, 1:] * z[:, :-1]).mean(axis=(0, 1))).max() < 4.5 * np.sqrt(3 / pairs)
    # The mean over all coordinates sees angles that are not uniform: E cos(t) = 0, E cos(t)^2 = 1/2. One angle serves
    # all coordinates of a step, so the steps are what is counted.
    cosine = (z[:, 1:] * z[:, :-1]).mean(axis=2)
    assert abs(cosine.mean()) < 4.5 * cosine.std() / np.sqrt(pairs)
    # Mean over coordinates of u u' has variance E cos^2 + (2 E cos^2 + E sin^2) / dim of it about cos(t) E u^2.
    assert abs((cosine**2).mean() - (0.5 + 1.5 / dim)) < 4.5 * (cosine**2).std() / np.sqrt(pairs)


@pytest.mark.parametrize("architecture", problems.ARCHITECTURES)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_every_step_moves_every_parameter(likelihood: str, architecture: str) -> None:
    post = problem(architecture, likelihood).post
    draws = run(post)
    assert np.abs(np.diff(draws.theta, axis=1)).min() > 0
    rate = draws.stats["acceptance_rate"]
    # Steps over likelihood evaluations: at most one, and below it where the first angle is not always taken.
    assert (rate > 0).all() and (rate <= 1).all() and rate.mean() < 1
    assert np.isnan(draws.stats["step_size"]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("architecture", ["mix", "out"])
def test_stats_are_those_of_the_kept_states(architecture: str, dtype: str) -> None:
    post = problem(architecture, dtype=dtype).post
    draws = run(post)
    if architecture == "mix":
        expected = post.log_likelihood(draws.theta.reshape(-1, post.dim))
        np.testing.assert_array_equal(draws.stats["log_likelihood"].ravel(), expected)
    chains.assert_log_likelihoods(draws, post)  # Out runs on rotated statistics: theta is rounded after the rotation
    assert_log_priors(draws, post)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("architecture", ["mix", "out"])
def test_draws_depend_neither_on_thinning_length_chains_nor_threads(architecture: str, dtype: str) -> None:
    post = problem(architecture, dtype=dtype).post
    every = chains.assert_draws_depend_on_nothing_else(post, pn.EllipticalSlice())
    assert (run(post, chains=3, draws=60, seed=5).theta != every.theta).any(axis=-1).all()


def test_thinned_acceptance_rates_are_steps_over_evaluations() -> None:
    post = problem().post
    every, tenth = run(post, draws=60), run(post, draws=6, thin=10)
    evaluations = (1 / every.stats["acceptance_rate"]).reshape(2, 6, 10)
    np.testing.assert_allclose(evaluations, np.round(evaluations), rtol=1e-12)
    np.testing.assert_allclose(tenth.stats["acceptance_rate"], 10 / evaluations.sum(axis=-1), rtol=1e-12)


def test_it_needs_no_step_size() -> None:
    kernel = pn.EllipticalSlice()
    assert kernel.step_size is None or np.isnan(kernel.step_size)
    draws = pn.sample(problem().post, kernel, chains=1, draws=5, warmup=100, seed=1, progress=False)
    assert np.isnan(draws.stats["step_size"]).all()
