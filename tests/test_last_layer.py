"""The quadratic log-likelihood of a last layer with a Gaussian likelihood, and the chain that runs on it."""

from __future__ import annotations

import numpy as np
import pytest

import patrac_native as pn
import problems
from chains import assert_draws_depend_on_nothing_else, assert_log_likelihoods


def last_layer(dtype: str = "float64", n: int = 37) -> pn.Posterior:
    """Out(3) with two outputs of different variances and with sample weights."""
    rng = problems.rng_of("last layer", n)
    net = problems.random_network(rng, (2, 5, 4, 2))
    X, y, weights = rng.normal(size=(n, 2)), rng.normal(size=(n, 2)), rng.uniform(0.2, 2.0, n)
    prior = pn.TraceClassPrior(1.4, 2.0, 0.7)
    likelihood = pn.Gaussian([0.3, 0.8])
    return pn.Posterior(net, pn.Out(3), prior, likelihood, X, y, sample_weight=weights, dtype=dtype)


def test_the_quadratic_is_the_log_likelihood() -> None:
    post = last_layer()
    form = post.sampled.quadratic
    assert form is not None
    z = problems.rng_of("z").normal(size=(20, post.dim))
    quadratic = form.constant + z @ form.slope - 0.5 * z**2 @ form.curvature
    expected, gradient = post.log_likelihood_and_grad(z @ form.to_theta.T)
    # Both sum K terms no larger than the largest |l|: a few roundings each.
    scale = np.abs(expected).max()
    np.testing.assert_allclose(quadratic, expected, rtol=0, atol=1e-13 * scale)
    slope = form.slope - z * form.curvature
    np.testing.assert_allclose(gradient @ form.to_theta, slope, rtol=0, atol=1e-12 * np.abs(slope).max())


def test_whitening_has_the_prior_as_its_covariance_and_an_inverse() -> None:
    post = last_layer()
    form = post.sampled.quadratic
    assert form is not None
    C = form.to_theta @ form.to_theta.T
    np.testing.assert_allclose(C, np.diag(post.prior_variance), rtol=0, atol=1e-14 * post.prior_variance.max())
    np.testing.assert_allclose(form.to_theta @ form.from_theta, np.eye(post.dim), rtol=0, atol=1e-13)
    assert (form.curvature >= 0).all()


def test_statistics_of_blocks_of_rows_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = last_layer().sampled.quadratic
    monkeypatch.setattr("patrac_native.posterior.last_layer._ROWS_AT_A_TIME", 10)
    blocks = last_layer().sampled.quadratic
    assert whole is not None and blocks is not None
    np.testing.assert_allclose(blocks.curvature, whole.curvature, rtol=1e-12, atol=1e-12 * whole.curvature.max())
    assert blocks.constant == pytest.approx(whole.constant, rel=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reported_log_likelihoods_are_those_of_the_returned_draws(dtype: str) -> None:
    post = last_layer(dtype)
    draws = pn.sample(post, pn.PCNL(0.3), chains=2, draws=40, warmup=200, seed=3)
    assert_log_likelihoods(draws, post)  # the draws are rounded to dtype after the rotation


def test_starting_points_are_kept_by_a_step_that_hardly_moves() -> None:
    post = last_layer()
    start = problems.rng_of("start").normal(size=(2, post.dim))
    draws = pn.sample(post, pn.PCN(1e-12), chains=2, draws=1, warmup=None, init=start, seed=1)
    np.testing.assert_allclose(draws.theta[:, 0], start, rtol=0, atol=1e-10)


def test_only_a_gaussian_last_layer_is_quadratic() -> None:
    rng = problems.rng_of("not quadratic")
    for architecture, likelihood in (("mix", "gaussian"), ("sep", "gaussian"), ("out", "categorical")):
        problem = problems.problem(rng, (2, 5, 4, 3), 9, architecture, likelihood)
        assert problem.post.sampled.quadratic is None
    # Linear regression: a network without hidden layer.
    net = pn.Network([[[0.3, 0.1]]], [[0.0]])
    X = rng.normal(size=(6, 2))
    post = pn.Posterior(net, pn.Full(), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
    assert post.sampled.quadratic is not None


def test_describe_says_that_a_step_needs_no_data() -> None:
    assert "sufficient statistics" in last_layer().describe()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_depend_neither_on_the_length_of_the_run_nor_on_the_number_of_chains(dtype: str) -> None:
    net, X, y = problems.regression(problems.rng_of("shape of the run"), (2, 9, 23, 2), 15)
    post = pn.Posterior(net, pn.Out(23), pn.TraceClassPrior(1.5, 2.0, 0.5), pn.Gaussian(1.0), X, y, dtype=dtype)
    assert_draws_depend_on_nothing_else(post, pn.PCNL(0.1))
