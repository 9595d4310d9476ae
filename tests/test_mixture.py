"""Tests of the posterior predictive mixture: quantiles, densities and moments against scipy, and weights."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import patrac_native as pn
from patrac_native.likelihoods import PredictiveMixture


def components() -> tuple[np.ndarray, np.ndarray]:
    """Wide, narrow, two-humped and constant components, with one noise scale for each draw."""
    rng = np.random.default_rng(5)
    f = np.stack([rng.normal(0, 2, 80), rng.normal(4, 0.01, 80), rng.choice([-5.0, 5.0], 80), np.full(80, 1.5)], axis=1)
    return f, rng.uniform(0.1, 0.5, (80, 1))


@pytest.mark.parametrize("probability", [0.005, 0.025, 0.5, 0.9, 0.995])
@pytest.mark.parametrize("kind", ["one scale", "a scale for each draw", "weights"])
def test_quantiles_against_a_root_finder(kind: str, probability: float) -> None:
    f, scales = components()
    scale = np.full_like(scales, 0.3) if kind == "one scale" else scales
    weights = np.random.default_rng(6).dirichlet(np.ones(80)) if kind == "weights" else None
    noise = pn.Gaussian(0.09).noise()
    if kind != "one scale":
        noise = replace(noise, scale=scale, variance=scale**2)
    found = PredictiveMixture(f, noise, weights).quantile(probability)
    for column in range(4):

        def excess(x: float, column: int = column) -> float:
            inside = norm.cdf((x - f[:, column]) / scale[:, 0])
            return float(np.average(inside, weights=weights)) - probability

        # Compared as probabilities: between two humps the quantile itself is all but undetermined.
        exact = brentq(excess, -20, 20, xtol=1e-13)
        assert excess(float(found[column])) == pytest.approx(excess(exact), abs=1e-10)


def test_moments_and_density_of_weighted_components() -> None:
    f, scales = components()
    weights = np.random.default_rng(6).dirichlet(np.ones(80))
    mixture = PredictiveMixture(f, replace(pn.Gaussian(1.0).noise(), scale=scales, variance=scales**2), weights)
    y = np.array([0.3, 4.0, -4.9, 1.0])
    density = (weights[:, None] * norm.pdf(y, f, scales)).sum(axis=0)
    np.testing.assert_allclose(mixture.log_density(y), np.log(density), rtol=1e-12)
    np.testing.assert_allclose(mixture.cdf(y), (weights[:, None] * norm.cdf(y, f, scales)).sum(axis=0), rtol=1e-12)
    mean = weights @ f
    np.testing.assert_allclose(mixture.mean(), mean, rtol=1e-12)
    second = weights @ (f**2 + scales**2)
    # Cancellation of squares of size 25 in float64.
    np.testing.assert_allclose(mixture.sd(), np.sqrt(second - mean**2), rtol=1e-9)
    np.testing.assert_allclose(mixture.sd_f(), np.sqrt(weights @ f**2 - mean**2), rtol=1e-9, atol=1e-7)


def test_a_sampled_variance_gives_each_draw_its_own_noise() -> None:
    f = np.random.default_rng(0).normal(size=(5, 3, 2))
    variance = np.linspace(0.1, 2.0, 5)
    likelihood = pn.Gaussian("sampled", a=2.0, b=1.0)
    location, noise = likelihood.located_noise(f, variance, output=1)
    np.testing.assert_array_equal(location, f[..., 1])
    np.testing.assert_allclose(np.broadcast_to(noise.variance, (5, 3)), np.tile(variance[:, None], 3))
    with pytest.raises(ValueError, match=r"variance: the likelihood samples it; give its draws, shape \(M,\)"):
        likelihood.located_noise(f)


def test_classes_have_no_such_mixture() -> None:
    net = pn.Network([[[1.0], [2.0]], [[1.0, 0.0], [0.0, 1.0]]], [[0.0, 0.5], [0.0, 0.0]])
    X = np.linspace(-1, 1, 12)[:, None]
    post = pn.Posterior(net, pn.Full(), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Categorical(), X, np.arange(12) % 2)
    draws = pn.sample(post, chains=1, draws=4, warmup=10, seed=0, progress=False)
    with pytest.raises(TypeError, match="must be one of real numbers or counts, such as Gaussian; got Categorical"):
        draws.distribution(X).mean()


def test_quantiles_of_draws_are_those_of_each_target() -> None:
    net = pn.Network([[[1.0], [2.0]], [[1.0, 0.0], [0.0, 1.0]]], [[0.0, 0.5], [0.0, 0.0]])
    X = np.linspace(-1, 1, 12)[:, None]
    prior, noise = pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(0.1)
    post = pn.Posterior(net, pn.Full(), prior, noise, X, np.c_[X[:, 0], 3 + X[:, 0] ** 2])
    draws = pn.sample(post, chains=2, draws=40, seed=0, progress=False)
    found = draws.quantiles(X, (0.05, 0.5, 0.95))
    assert found.shape == (12, 2, 3)
    np.testing.assert_array_equal(draws.quantiles(X, 0.5), found[..., 1:2])
    np.testing.assert_array_equal(draws.quantiles(X, np.array(0.5)), found[..., 1:2])
    lower, upper = draws.interval(X, 0.9)
    # The ends of the interval have 0.5 * (1 - 0.9) for 0.05, a rounding apart.
    np.testing.assert_allclose(found[..., 0], lower, rtol=1e-12)
    np.testing.assert_allclose(found[..., 2], upper, rtol=1e-12)
    f = draws.predict(X).reshape(80, 12, 2).astype(np.float64)
    for index, probability in enumerate((0.05, 0.5, 0.95)):
        # The distribution function at the quantile is the probability, up to the steps of the search.
        np.testing.assert_allclose(norm.cdf((found[..., index] - f) / 0.1**0.5).mean(axis=0), probability, atol=1e-9)
