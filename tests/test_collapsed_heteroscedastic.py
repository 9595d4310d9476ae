"""Noise with a variance of each row, the output weights of the means integrated out, beside test_collapsed.py."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
import reference
import test_collapsed
from chains import assert_standard_normal, run
from problems import Problem
from test_collapsed import arguments, drawn, exact_gradient, exact_value, hidden, relative_rounding, value_tolerance

FloatArray = npt.NDArray[np.float64]
COLLAPSED = pn.MGrad(0.05, collapse=True)
LIKELIHOOD = pn.HeteroscedasticGaussian()


def case(architecture: str) -> Problem:
    """A random problem of two targets with unequal row weights."""
    return test_collapsed.case(architecture, "heteroscedastic_gaussian", (2, 5, 4, 2))


def test_the_gradient_is_the_slope_of_the_value() -> None:
    """Central differences of the compiled value itself, whose error is h^2 times a third derivative of order 100."""
    problem, h = case("mix"), 1e-5
    at = hidden(problem)
    _, gradient = problem.post.density("collapsed").value_and_grad(at)
    steps = h * np.eye(len(at))
    values = np.asarray(problem.post.density("collapsed").value(np.concatenate([at + steps, at - steps])))
    slope = (values[: len(at)] - values[len(at) :]) / (2 * h)
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=1e-6 * np.abs(slope).max())


def test_a_network_without_hidden_layers() -> None:
    """Features are the inputs, which no bound of an activation limits."""
    rng = problems.rng_of("no hidden layer")
    net = problems.random_network(rng, (3, 2))
    problem = problems.posed(net, pn.Full(), problems.random_data("heteroscedastic_gaussian", rng, 20, 3, 1), rng)
    value, gradient = problem.post.density("collapsed").value_and_grad(hidden(problem))
    assert abs(value - exact_value(problem)) <= value_tolerance(problem)
    exact = exact_gradient(problem)
    np.testing.assert_allclose(gradient, exact, rtol=0, atol=10 * relative_rounding(problem) * np.abs(exact).max())


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("n", [40, 700])
@pytest.mark.parametrize("log_variance", [-2.0, -9.0, -14.0])
def test_rows_of_low_variance_in_float32(log_variance: float, n: int, activation: str) -> None:
    """The variance of the first rows is up to e^18 times below that of the others, as one hidden node says.

    M then has entries up to 1e6 and more beside ones. The value differs by the rounding of the residuals of these rows
    alone, some u of the outputs' scale over their standard deviation; the gradient, where they are divided by the
    variance, by a few times what that of the full model errs by, at draws of the weights that are integrated out.
    """
    rng = problems.rng_of("low rows", activation, n)
    net = problems.random_network(rng, (2, 12, 2), activation)
    X = rng.uniform(-1, 1, (n, 2))
    X[:5, 0] += 4
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    weights[0][0], biases[0][0] = (3.0, 0.0), -6.0
    top = float(np.tanh(6.0)) if activation == "tanh" else 6.0
    weights[1][1], biases[1][1] = 0.0, log_variance / 2 if activation == "tanh" else 0.0
    weights[1][1, 0] = log_variance / 2 if activation == "tanh" else log_variance / top
    net = pn.Network(weights, biases, activation)
    y = net.predict(X)[:, 0] + 0.1 * np.exp(0.5 * net.predict(X)[:, 1]) * rng.normal(size=n)
    prior = pn.TraceClassPrior(1.5, 4.0, 4.0)
    posts = [pn.Posterior(net, pn.Full(), prior, LIKELIHOOD, X, y, dtype=dtype) for dtype in ("float32", "float64")]
    around = posts[0].theta_map[posts[0].density("collapsed").entries]
    points = (around + 1e-4 * rng.normal(size=(10, len(around)))).astype(np.float32)
    l32, g32 = posts[0].density("collapsed").value_and_grad(points)
    l64, g64 = posts[1].density("collapsed").value_and_grad(points.astype(np.float64))
    deviation = float(np.exp(0.5 * net.predict(X)[:, 1]).min())
    np.testing.assert_allclose(l32, l64, rtol=0, atol=64 * 2.0**-24 * n / deviation)
    theta = posts[1].density("collapsed").complete(points, seed=1).astype(np.float32)
    full = [
        post.log_likelihood_and_grad(theta.astype(post.network.dtype))[1][:, posts[0].density("collapsed").entries]
        for post in posts
    ]
    allowed = 8 * np.linalg.norm(full[0] - full[1], axis=1).max()
    assert np.linalg.norm(g32 - g64, axis=1).max() <= allowed


# Draws


@pytest.mark.parametrize("metric", ["inputs", "curvature"])
@pytest.mark.parametrize("architecture", ["full", "mix"])
def test_metrics_step_in_the_coordinates_of_theta_h(architecture: str, metric: str) -> None:
    """Steps of nothing keep theta_h; longer ones leave draws whose log-likelihood is the full model's."""
    problem = case(architecture)
    post, entries = problem.post, problem.post.density("collapsed").entries
    still = run(post, pn.MGrad(1e-20, collapse=True, metric=metric), init=np.stack([problem.theta] * 2), draws=10)
    np.testing.assert_allclose(still.theta[..., entries] - hidden(problem), 0.0, rtol=0, atol=1e-8)
    draws = run(post, pn.MGrad(0.02, collapse=True, metric=metric), init=np.stack([problem.theta] * 2))
    assert 0.2 < draws.stats["acceptance_rate"].mean() <= 1
    expected = post.log_likelihood(draws.theta.reshape(-1, post.dim)).reshape(2, 50)
    np.testing.assert_allclose(draws.stats["log_likelihood"], expected, rtol=1e-10)


def test_chains_with_and_without_collapsing_agree() -> None:
    """Means and spreads of f, s and l within 4.5 standard errors of batch means."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (30, 1))
    net = problems.random_network(problems.rng_of("agreement"), (1, 4, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * np.exp(0.5 * X[:, 0]) * rng.normal(size=30)
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(1.0, 1.0), LIKELIHOOD, X, y)
    estimates = []
    for kernel in (pn.MGrad(persistence=0.9), pn.MGrad(collapse=True, persistence=0.9)):
        draws = pn.sample(post, kernel, chains=2, draws=1000, thin=100, warmup=4000, seed=6, progress=False)
        outputs = draws.distribution(np.array([[-1.5], [0.0], [1.5]])).outputs().astype(float).reshape(2, 1000, -1)
        values = np.concatenate([outputs, outputs**2, draws.stats["log_likelihood"][..., None]], axis=-1)
        batches = values.reshape(2 * 10, 100, -1).mean(axis=1)
        estimates.append((batches.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(len(batches))))
    (mean, error), (collapsed_mean, collapsed_error) = estimates
    assert (np.abs(mean - collapsed_mean) < 4.5 * np.hypot(error, collapsed_error)).all()


@pytest.mark.parametrize("metric", ["prior", "curvature"])
@pytest.mark.parametrize("prior", [problems.PRIOR, pn.GaussianPrior(1.0, 0.5)], ids=["trace-class", "gaussian"])
def test_sampled_scales(prior: Any, metric: str) -> None:
    """The density follows the scales: a chain that draws them has the log prior and log-likelihood of its theta."""
    problem = case("mix")
    post = problem.again(prior=dataclasses.replace(prior, scales="sampled"))
    draws = run(post, pn.MGrad(0.05, collapse=True, metric=metric), scales_every=1, draws=100)
    assert 0.1 < draws.stats["acceptance_rate"].mean() < 1
    expected = post.log_likelihood(draws.theta.reshape(-1, post.dim)).reshape(2, 100)
    np.testing.assert_allclose(draws.stats["log_likelihood"], expected, rtol=1e-9)
    log_priors = [post.log_prior(draws.theta[c], scales=draws.stats["prior_scales"][c]) for c in range(2)]
    np.testing.assert_allclose(draws.stats["log_prior"], log_priors, rtol=1e-9)
    assert len(np.unique(draws.stats["prior_scales"][0, :, -1])) == 100


def test_a_proposal_beyond_the_range_is_rejected_and_counted() -> None:
    """Log-variances with a prior deviation of 500: e^-s overflows float32 in a third of the prior's draws."""
    net = pn.Network([np.zeros((2, 1))], [np.zeros(2)])
    post = pn.Posterior(
        net, pn.Full(), pn.GaussianPrior(1.0, 2.5e5), LIKELIHOOD, np.ones((3, 1)), np.array([0.0, 1.0, 2.0])
    )
    with pytest.warns(UserWarning, match="not finite"):
        draws = run(post, pn.MGrad(1e5, collapse=True), init=np.zeros((2, post.dim)), draws=300)
    assert np.isfinite(draws.theta).all() and np.isfinite(draws.stats["log_likelihood"]).all()


# The densities of other libraries


def test_completed_points_have_the_conditional_law() -> None:
    problem = case("mix")
    post, entries = problem.post, problem.post.density("collapsed").entries
    theta = post.density("collapsed").complete(np.tile(hidden(problem), (4000, 1)), seed=1)
    np.testing.assert_array_equal(theta[:, entries], np.tile(hidden(problem), (4000, 1)))
    mean, covariance = reference.output_conditional(problem.partial, hidden(problem), *arguments(problem))
    z = np.linalg.solve(np.linalg.cholesky(covariance), (theta[:, drawn(problem)] - mean).T)
    assert_standard_normal(z.T)


# What is chosen and what is refused


def test_the_automatic_kernel_collapses_on_the_cpu() -> None:
    chosen = {name: case(name).post for name in ("full", "mix", "sep", "out")}
    for post in chosen.values():
        assert "collapse=True" in post.describe().splitlines()[-1]
    assert "of the means in the output layer integrated out" in chosen["mix"].describe()
    draws = pn.sample(chosen["mix"], chains=1, draws=3, warmup=200, device="emulated:1", seed=1, progress=False)
    assert draws.settings["kernel"]["collapse"] is False


def test_devices_refuse_it() -> None:
    with pytest.raises(ValueError, match=r'device="emulated:1" integrates output weights out under a Gaussian'):
        run(case("mix").post, COLLAPSED, device="emulated:1")


def test_networks_without_the_weights_or_without_others_are_refused() -> None:
    rng = problems.rng_of("no means")
    net = problems.random_network(rng, (2, 4, 2))
    data = problems.random_data("heteroscedastic_gaussian", rng, 9, 2, 1)
    none = [np.zeros(w.shape, dtype=bool) for w in (*net.weights, *net.biases)]
    for row, message in (
        (1, "needs Bayesian output weights of the means"),
        (0, "beside the output weights of the means"),
    ):
        weights, biases = [none[0], none[1].copy()], none[2:]
        weights[1][row] = True
        post = pn.Posterior(net, pn.Custom(weights, biases), problems.PRIOR, LIKELIHOOD, data.X, data.y)
        with pytest.raises(ValueError, match=message):
            run(post, COLLAPSED)
        with pytest.raises(ValueError, match=message):
            post.density("collapsed")
        assert "collapse" not in post.describe().splitlines()[-1]


def test_exact_draws_stay_refused() -> None:
    with pytest.raises(ValueError, match=r"Exact\(\) needs a Gaussian likelihood"):
        run(case("out").post, pn.Exact())
