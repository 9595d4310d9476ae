"""Student-t noise: what it refuses, its noise against scipy, and predictions of real data with outliers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, stats

import patrac_native as pn
import problems
from patrac_native import diagnostics
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


def test_a_scale_for_another_number_of_outputs_is_refused() -> None:
    net = problems.random_network(problems.rng_of("t"), (2, 3, 1))
    with pytest.raises(ValueError, match="scale has 2 entries, but the network has 1 outputs"):
        pn.Posterior(net, pn.Full(), problems.PRIOR, pn.StudentT(3.0, [1.0, 2.0]), np.ones((4, 2)), np.ones(4))


@pytest.mark.parametrize(("df", "scale"), [(1.0, 0.3), (2.5, 1.0), (30.0, 2.0)])
def test_noise_is_that_of_scipy(df: float, scale: float) -> None:
    noise, expected = pn.StudentT(df, scale).noise(), stats.t(df)
    u = np.array([-9.0, -1.0, 0.0, 0.4, 30.0])
    np.testing.assert_allclose(noise.cdf(u), expected.cdf(u), rtol=1e-12)
    np.testing.assert_allclose(np.exp(noise.log_density(u)), expected.pdf(u), rtol=1e-12)
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


def test_as_df_grows_it_is_gaussian() -> None:
    y, f = np.linspace(-1, 1, 5)[:, None], np.zeros((5, 1))
    np.testing.assert_allclose(
        pn.StudentT(1e8, 0.5).log_likelihood_rows(f, y), pn.Gaussian(0.25).log_likelihood_rows(f, y), rtol=1e-6
    )


def outlying(n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (n, 1))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_t(3.0, n)


@pytest.fixture(scope="module")
def fitted() -> tuple[pn.Draws, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    pytest.importorskip("torch")
    likelihood = pn.StudentT(3.0, 0.1)
    X, y = outlying(150)
    net = pn.train(
        [1, 10, 10, 1],
        X,
        y,
        likelihood=likelihood,
        l2=0.1,
        validation_fraction=0,
        seed=0,
        max_epochs=400,
        progress=False,
    )
    post = pn.Posterior(net, pn.Mix(3), pn.TraceClassPrior.fit(net), likelihood, X, y)
    draws = pn.sample(post, chains=2, draws=300, thin=5, warmup=3000, seed=1, progress=False)
    return draws, *outlying(300)


def test_predictions(fitted: tuple[pn.Draws, np.ndarray[Any, Any], np.ndarray[Any, Any]]) -> None:
    """Predictive draws, intervals, CRPS and the predictive density go with the heavy tails of the noise."""
    draws, X, y = fitted
    f, noisy = draws.predict(X), draws.predictive(X, seed=2)
    assert noisy.shape == (2, 300, 300, 1)
    residuals = (noisy - f).ravel() / 0.1
    # A correct sampler fails one time in a million; every 37th residual, so that none are of one draw.
    assert stats.kstest(residuals[::37], stats.t(3.0).cdf).pvalue > 1e-6
    covered = diagnostics.coverage(noisy, y, coverage=0.9)
    # The noise is that of the model: 90% of 300 rows, within five standard errors.
    assert abs(float(np.mean(covered)) - 0.9) <= 5 * np.sqrt(0.9 * 0.1 / 300)
    assert 0 < float(np.mean(diagnostics.crps(noisy, y))) < 0.5
    rows = draws.distribution(X).nlpd(y, per_row=True)
    pointwise = stats.t.logpdf(y[0], 3.0, f[:, :, 0, 0], 0.1)
    assert rows[0] == pytest.approx(-np.log(np.mean(np.exp(pointwise))), rel=1e-6)
    with pytest.raises(TypeError, match="student-t likelihood has no class probabilities"):
        draws.predict_proba(X)


def test_the_density_integrates_to_one() -> None:
    likelihood = pn.StudentT(2.5, 0.4)
    total, _ = integrate.quad(lambda v: np.exp(likelihood.log_likelihood_rows([[0.3]], np.array([[v]]))[0]), -200, 200)
    assert total == pytest.approx(1.0, abs=1e-4)


def test_stored_draws_know_it(fitted: Any, tmp_path: Any) -> None:
    draws, X, _ = fitted
    draws.save(tmp_path / "draws.npz")
    loaded = pn.Draws.load(tmp_path / "draws.npz")
    assert loaded.likelihood == pn.StudentT(3.0, 0.1)
    np.testing.assert_array_equal(loaded.predictive(X[:3], seed=4), draws.predictive(X[:3], seed=4))
    assert draws.summary(X[:10]).verdict is not None


def test_the_median_of_predictions_is_finite_without_a_variance() -> None:
    """df = 1 has no variance; the mixture of two components at -1 and 1 is symmetric about 0."""
    noise = pn.StudentT(1.0, 0.5).noise()
    assert noise.variance == np.inf
    medians = PredictiveMixture(np.array([[-1.0, 0.0], [1.0, 2.0]]), noise).quantile(0.5)
    np.testing.assert_allclose(medians, [0.0, 1.0], atol=1e-9)
