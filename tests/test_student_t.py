"""Student-t noise: what it refuses, its noise and its constant against scipy, and quantiles without a variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

import patrac_native as pn
from patrac_native.likelihoods import PredictiveMixture


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0.5, 1.0), ValueError, "df must be at least 1; got 0.5"),
        ((1.1e8, 1.0), ValueError, r"df must be at most 1e\+08; got 1.1e\+08. Use Gaussian"),
        ((np.inf, 1.0), ValueError, "df must be positive and finite"),
        ((np.nan, 1.0), ValueError, "df must be positive and finite"),
        ((3.0, 0.0), ValueError, "scale must be positive and finite"),
        ((3.0, [1.0, -1.0]), ValueError, "scale must be positive and finite; got -1.0 for output 1"),
        ((3.0, [[1.0]]), ValueError, r"scale must be a number or have shape \(m,\)"),
        (("heavy", 1.0), TypeError, "df"),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pn.StudentT(*arguments)


@pytest.mark.parametrize(("df", "scale"), [(1.0, 0.3), (2.0, 1.0), (2.5, 1.0), (4.0, 2.0), (16.0, 1.0), (30.0, 2.0)])
def test_noise_is_that_of_scipy(df: float, scale: float) -> None:
    noise, expected = pn.StudentT(df, scale).noise(), stats.t(df)
    u = np.array([-9.0, -1.0, 0.0, 0.4, 30.0])
    # Of even df a polynomial has the rounding error of one half.
    np.testing.assert_allclose(noise.cdf(u), expected.cdf(u), rtol=1e-12, atol=1e-15)
    far = [-1e200, -1e8, 1e8, 1e200]
    np.testing.assert_allclose(noise.cdf(np.array(far)), expected.cdf(far), atol=1e-15)
    np.testing.assert_allclose(np.exp(noise.log_density(u)), expected.pdf(u), rtol=1e-12)
    step = 1e-6 * np.maximum(1.0, np.abs(u))  # central differences have errors of its square and of rounding over it
    difference = (noise.log_density(u + step) - noise.log_density(u - step)) / (2 * step)
    np.testing.assert_allclose(noise.slope(u), difference, rtol=1e-7, atol=1e-8)
    assert noise.cdf(np.array([-np.inf, np.inf])).tolist() == [0.0, 1.0]
    assert noise.quantile(0.9) == pytest.approx(expected.ppf(0.9), rel=1e-9)
    assert noise.variance == pytest.approx(scale**2 * float(expected.var()) if df > 2 else np.inf)


def test_noise_is_drawn_with_the_right_distribution() -> None:
    likelihood = pn.StudentT(3.0, [0.5, 2.0])
    y = likelihood.sample(np.full((20_000, 2), 7.0), np.random.default_rng(0))
    for c, scale in enumerate((0.5, 2.0)):
        # A correct sampler fails one time in a million.
        assert stats.kstest(y[:, c], stats.t(3.0, 7.0, scale).cdf).pvalue > 1e-6


def test_the_constant_is_the_most_likely_one() -> None:
    y = np.concatenate([np.random.default_rng(1).normal(size=20), [40.0]])[:, None]
    likelihood = pn.StudentT(2.0, 0.7)
    best = optimize.minimize_scalar(lambda c: -stats.t.logpdf(y[:, 0], 2.0, c, 0.7).sum(), bounds=(-3, 3)).fun
    assert likelihood.constant_log_likelihood(y) == pytest.approx(-best, abs=1e-6)


def test_the_median_of_predictions_is_finite_without_a_variance() -> None:
    """df = 1 has no variance; the mixture of two components at -1 and 1 is symmetric about 0."""
    noise = pn.StudentT(1.0, 0.5).noise()
    assert noise.variance == np.inf
    medians = PredictiveMixture(np.array([[-1.0, 0.0], [1.0, 2.0]]), noise).quantile(0.5)
    np.testing.assert_allclose(medians, [0.0, 1.0], atol=1e-9)
