"""Quantiles of the posterior predictive mixture; its moments and densities: test_distribution.py."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import patrac_native as pn
from patrac_native.likelihoods import PredictiveMixture


def components(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Wide, narrow, two-humped and constant components of n draws, with one noise scale for each draw."""
    rng = np.random.default_rng(5)
    f = np.stack([rng.normal(0, 2, n), rng.normal(4, 0.01, n), rng.choice([-5.0, 5.0], n), np.full(n, 1.5)], axis=1)
    return f, rng.uniform(0.1, 0.5, (n, 1))


# Of many draws the search starts at the quantile of some of them.
@pytest.mark.parametrize("n", [80, 450])
@pytest.mark.parametrize("probability", [0.005, 0.025, 0.5, 0.9, 0.995])
@pytest.mark.parametrize("kind", ["one scale", "a scale for each draw", "weights"])
def test_quantiles_against_a_root_finder(kind: str, probability: float, n: int) -> None:
    f, scales = components(n)
    scale = np.full_like(scales, 0.3) if kind == "one scale" else scales
    weights = np.random.default_rng(6).dirichlet(np.ones(n)) if kind == "weights" else None
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


def test_a_sampled_variance_gives_each_draw_its_own_noise() -> None:
    f = np.random.default_rng(0).normal(size=(5, 3, 2))
    variance = np.linspace(0.1, 2.0, 5)
    likelihood = pn.Gaussian("sampled", a=2.0, b=1.0)
    location, noise = likelihood.located_noise(f, variance, output=1)
    np.testing.assert_array_equal(location, f[..., 1])
    np.testing.assert_allclose(np.broadcast_to(noise.variance, (5, 3)), np.tile(variance[:, None], 3))
    with pytest.raises(ValueError, match=r"variance: the likelihood samples it; give its draws, shape \(M,\)"):
        likelihood.located_noise(f)
