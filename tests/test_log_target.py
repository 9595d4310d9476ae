"""Fits of the logarithm of positive targets: predictions and scores are in the units of y."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import patrac_native as pn
from fits import quietly
from patrac_native.fit.evaluation import evaluate
from patrac_native.fit.rows import Rows, TargetScaling

N = 160


def data(seed: int = 0, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and positive targets whose noise is a factor."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, 1000.0 * np.exp(0.8 * X[:, 0] + 0.4 * rng.normal(size=n))


@cache
def fitted(likelihood: str = "gaussian", log_target: bool | None = True) -> pn.PatracRegressor:
    """Return an estimator of the data."""
    given: dict[str, Any] = {} if likelihood == "open" else {"likelihood": likelihood}
    quick: dict[str, Any] = {"minutes": 0.02, "max_iter": 300, "n_jobs": 1, "random_state": 0}
    return quietly(pn.PatracRegressor((8,), **quick, log_target=log_target, **given), *data())


@pytest.mark.parametrize(
    "likelihood",
    ["gaussian", *(pytest.param(name, marks=pytest.mark.slow) for name in ("heteroscedastic", "student-t"))],
)
def test_predictions_are_those_of_exponentials_of_draws(likelihood: str) -> None:
    """Moments, quantiles and samples of y agree; the tails of exp(t) are left out of its moments."""
    est, X = fitted(likelihood), data(1, 12)[0]
    mean, sd = est.predict(X, return_std=True)
    samples = est.sample_y(X, 40_000, random_state=0)
    if likelihood == "student-t":  # whose exponential has no mean: no more than the size is compared
        np.testing.assert_allclose(mean, stats.trim_mean(samples, 0.0025, axis=1), rtol=0.05)
    else:
        error = samples.std(axis=1) / np.sqrt(samples.shape[1])
        assert (np.abs(mean - samples.mean(axis=1)) < 5 * error).all()
        np.testing.assert_allclose(sd, samples.std(axis=1), rtol=0.06)
    np.testing.assert_allclose(
        est.predict_quantiles(X, (0.1, 0.5, 0.9)), np.quantile(samples, (0.1, 0.5, 0.9), axis=1).T, rtol=0.03
    )
    lower, upper = est.predict_interval(X, 0.8)
    np.testing.assert_allclose(np.stack([lower, upper], 1), est.predict_quantiles(X, (0.1, 0.9)), rtol=1e-9)
    parts = est.predict_uncertainty(X)
    np.testing.assert_allclose(parts.total, sd**2, rtol=1e-9)
    assert (parts.epistemic > 0).all() and (parts.aleatoric > parts.epistemic).all()
    np.testing.assert_array_equal(est.predict(X), mean)


def test_the_variance_of_little_noise_keeps_its_digits() -> None:
    """Of y = exp(z) it is near (y sd)^2, whose difference of second and squared first moments is lost to rounding."""
    mixture = pn.Gaussian(1e-18).mixture(np.full((2, 3, 1), 0.5))
    part: Any = SimpleNamespace(mixtures=[mixture], blocks=lambda: [(slice(0, 3), part)])
    moments = TargetScaling(np.zeros(1), np.ones(1), log=True).moments(part)
    np.testing.assert_allclose(moments.noise_variance, np.exp(1.0) * 1e-18, rtol=1e-12)
    np.testing.assert_allclose(moments.mean, np.exp(0.5), rtol=1e-12)
    assert (moments.epistemic_variance == 0).all()


def test_densities_have_the_jacobian_and_integrate_to_one() -> None:
    est, x = fitted(), data(2, 1)[0]
    grid = np.exp(np.linspace(np.log(20.0), np.log(50_000.0), 800))
    inputs = np.repeat(x, len(grid), axis=0)
    rows = evaluate(
        est.draws_, est.target_scaling_, Rows(est.preprocessor_.transform(inputs), est._scaled(est._observed(grid)))
    )
    density = np.exp(-rows.arrays["nlpd"]) / (grid * est.target_scaling_.scale[0])
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    # The score in the units of y is the mean of these.
    assert rows.scores["nlpd_in_units"] == pytest.approx(-np.log(density).mean(), rel=1e-9)
    assert np.trapezoid(density * grid, grid) == pytest.approx(est.predict(x)[0], rel=2e-3)


def test_scores_are_in_the_units_of_y() -> None:
    est, (X, y) = fitted(), data(3, 300)
    found = est.evaluate(X, y)
    mean = est.predict(X)
    assert found.scores["rmse"] == pytest.approx(np.sqrt(((mean - y) ** 2).mean()))
    samples = est.sample_y(X, 2000)
    assert found.scores["crps"] == pytest.approx(pn.diagnostics.crps(samples.T[None, :, :, None], y), rel=0.02)
    lower, upper = est.predict_interval(X, 0.95)
    assert found.scores["interval_width"] == pytest.approx((upper - lower).mean())
    assert found.scores["coverage"]["0.95"] == pytest.approx(((lower <= y) & (y <= upper)).mean())
    np.testing.assert_allclose(found.arrays["y"], y)
    # A rerun error in the units of y moves with the ends.
    error = est.rerun_error(X[:20])
    of_log = est.draws_.rerun_error(est.preprocessor_.transform(X[:20]))
    _, upper = est.predict_interval(X[:20], 0.9)
    np.testing.assert_allclose(error.upper[:, 0], of_log.upper[:, 0] * est.target_scaling_.scale[0] * upper, rtol=1e-9)


@pytest.mark.slow
def test_the_choice_takes_the_logarithm_where_noise_is_a_factor_and_says_so() -> None:
    est = fitted("open", None)
    assert est.target_scaling_.log
    lines = est.report_.lines
    assert any("gaussian of log y is taken" in line for line in lines)
    assert any(line.startswith("log y: standardised by mean ") for line in lines)
    assert not fitted("open", False).target_scaling_.log


def test_files_keep_the_logarithm(tmp_path: Path) -> None:
    est, X = fitted(), data(4, 5)[0]
    est.save(tmp_path / "one.npz")
    np.testing.assert_array_equal(pn.PatracRegressor.load(tmp_path / "one.npz").predict(X), est.predict(X))
    scaling = est.target_scaling_
    assert TargetScaling.from_dict(json.loads(json.dumps(scaling.to_dict()))).log


def test_targets_that_are_not_positive_are_refused() -> None:
    X, y = data()
    y[3] = 0.0
    with pytest.raises(ValueError, match=r"y must be positive: the fit is one of log y; got 0 in row 3"):
        pn.PatracRegressor((8,), log_target=True, n_jobs=1).fit(X, y)
    with pytest.raises(ValueError, match=r"y must be positive"):
        fitted().evaluate(X, y)
    with pytest.raises(ValueError, match="log_target belongs to a likelihood of numbers"):
        pn.PatracRegressor((8,), log_target=True, likelihood="poisson", n_jobs=1).fit(X, np.round(y))


@pytest.mark.slow
def test_censored_times_are_those_of_their_logarithm() -> None:
    """Known and censored times alike: densities of known ones have the Jacobian, probabilities have none."""
    X, y = data(5)
    ends = np.stack([y, np.where(np.arange(N) % 3 == 0, np.inf, y)], axis=1)
    with warnings.catch_warnings(action="ignore"):
        arguments: dict[str, Any] = {"minutes": 0.02, "max_iter": 100, "n_jobs": 1, "random_state": 0}
        arguments |= {"likelihood": "censored", "hidden_layer_sizes": (8,), "architecture": "full"}
        warnings.simplefilter("error", RuntimeWarning)  # open bounds are no numbers to subtract
        own = pn.PatracRegressor(**arguments, log_target=True).fit(X, ends)
        by_hand = pn.PatracRegressor(**arguments).fit(X, np.log(ends))
    known = np.isfinite(ends[:, 1])
    difference = (
        own.evaluate(X, ends).scores["nlpd_in_units"] - by_hand.evaluate(X, np.log(ends)).scores["nlpd_in_units"]
    )
    assert difference == pytest.approx(np.where(known, np.log(y), 0.0).mean(), rel=1e-6)
    np.testing.assert_allclose(own.predict_quantiles(X, 0.5), np.exp(by_hand.predict_quantiles(X, 0.5)), rtol=1e-6)
