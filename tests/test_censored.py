"""Censored targets: what is refused, the engine's terms against many digits, scores of bounds, fitted variances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import integrate, optimize, stats

import patrac_native as pn
import problems
from fits import quietly
from patrac_native import diagnostics
from patrac_native.fit.evaluation import evaluate
from patrac_native.fit.rows import Rows, TargetScaling

mp = pytest.importorskip("mpmath")
FloatArray = npt.NDArray[np.float64]
INF = np.inf


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (np.zeros(3), ValueError, r"y must have shape \(3, 2\), the lower and the upper bound .*; got \(3,\)"),
        (
            [[0.0, 1.0], [2.0, 1.0], [0.0, 0.0]],
            ValueError,
            r"lower bound above the upper one; got 2, 1 at row 1",
        ),
        ([[0.0, 1.0], [0.0, 0.0], [-INF, INF]], ValueError, r"at least one finite bound.*got -inf, inf at row 2"),
        ([[INF, INF], [0.0, 0.0], [1.0, 1.0]], ValueError, r"at least one finite bound.* at row 0"),
        ([[0.0, np.nan], [0.0, 0.0], [1.0, 1.0]], ValueError, r"must not be NaN.*at row 0, output 0 \(1 bad"),
        ([["a", "b"]] * 3, TypeError, "lower and the upper bound"),
    ],
)
def test_bad_targets_are_refused(y: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pn.CensoredGaussian(1.0).check_targets(y, 3, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), "variance must be positive and finite"),
        (("fitted",), "or \"sampled\"; got 'fitted'"),
        (([1.0, -1.0],), "got -1.0 for output 1"),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pn.CensoredGaussian(*arguments)
    with pytest.raises(ValueError, match="a and b are the prior of a sampled variance"):
        pn.CensoredGaussian(1.0, a=2.0)


# The terms


def exact(lower: float, upper: float, f: float, sd: float) -> tuple[float, float]:
    """The term and its derivative by f, with 400 digits."""
    with mp.workdps(400):
        u, v = ((mp.mpf(bound) - mp.mpf(f)) / mp.mpf(sd) for bound in (lower, upper))
        if lower == upper:
            return float(-u * u / 2 - mp.log(2 * mp.pi) / 2 - mp.log(mp.mpf(sd))), float(u / sd)
        tails = [mp.mpf(0) if mp.isinf(t) and t > 0 else mp.erfc(t / mp.sqrt(2)) / 2 for t in (u, v)]
        p = tails[0] - tails[1]
        slope = sum(sign * (0 if mp.isinf(t) else mp.npdf(t)) for sign, t in ((1, u), (-1, v))) / p / mp.mpf(sd)
        return float(mp.log(p)), float(slope)


def bounds_to_forty_deviations(dtype: str, sd: float) -> list[tuple[float, float]]:
    """Bounds around 0 that are known, open on either side, or an interval of any width."""
    rng = problems.rng_of("censored", dtype, sd)
    found = [(0.0, 0.0), (0.0, INF), (-INF, 0.0), (-1e-3 * sd, 1e-3 * sd), (-40 * sd, 40 * sd)]
    for scale in (40.0, 40.0, 5.0, 1.0, 0.1):
        for at in scale * sd * rng.uniform(-1, 1, 4):
            width = sd * 10 ** rng.uniform(-3, 1.6)
            found += [(at, at), (at, INF), (-INF, at), (at, at + width), (at - width, at)]
    as_held = np.array(found).astype(dtype).astype(np.float64)
    return [(low, high) for low, high in as_held.tolist()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_terms_are_accurate_to_forty_standard_deviations(dtype: str) -> None:
    """Value and slope of the engine and of NumPy, within 8 units in the last place of their size, or of 1."""
    sd = 0.75
    likelihood = pn.CensoredGaussian(sd**2)
    net = pn.Network([np.zeros((1, 1))], [np.zeros(1)])
    worst: dict[str, float] = {}
    for bounds in bounds_to_forty_deviations(dtype, sd):
        y = np.array([bounds])
        post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), likelihood, np.zeros((1, 1)), y, dtype=dtype)
        value, gradient = post.log_likelihood_and_grad(np.zeros(2))
        loss = likelihood.log_likelihood_rows(np.zeros((1, 1)), y[:, None])[0]
        expected, slope = exact(*bounds, 0.0, sd)
        errors = {
            "value": abs(float(value) - expected) / max(1.0, abs(expected)) / np.finfo(dtype).eps,
            "slope": abs(float(gradient[1]) - slope) / max(1.0, abs(slope)) / np.finfo(dtype).eps,
            "numpy": abs(loss - expected) / max(1.0, abs(expected)) / np.finfo(np.float64).eps,
        }
        for name, error in errors.items():
            worst[name] = max(worst.get(name, 0.0), error)
    assert max(worst.values()) < 8.0, worst


def test_a_slope_far_inside_its_bound_keeps_its_relative_accuracy() -> None:
    """phi(8): 1 - Phi would be 0 in float32."""
    net = pn.Network([np.zeros((1, 1))], [np.zeros(1)])
    post = pn.Posterior(
        net, pn.Full(), pn.GaussianPrior(), pn.CensoredGaussian(1.0), np.zeros((1, 1)), np.array([[-8.0, INF]])
    )
    assert post.log_likelihood_and_grad(np.zeros(2))[1][1] == pytest.approx(stats.norm.pdf(8.0), rel=1e-5)


def test_moments_between_bounds() -> None:
    """Mean and mean square of a truncated normal variate, on which the EM algorithm and the information rest."""
    f, sd = np.array([[0.3]]), 0.7
    likelihood = pn.CensoredGaussian(sd**2)
    for lower, upper in ((0.5, 0.9), (-3.0, 4.0), (1.5, INF), (-INF, -1.0), (0.29, 0.3), (6.0, INF)):
        y = np.array([[[lower, upper]]])
        terms = likelihood._at(f, y)
        law = stats.truncnorm((lower - 0.3) / sd, (upper - 0.3) / sd)
        assert terms.slope.item() == pytest.approx(law.mean(), rel=1e-6)
        assert terms.square.item() == pytest.approx(law.moment(2), rel=1e-6)
        root = likelihood.information_root(f, y).item()
        assert root**2 * sd**2 == pytest.approx(law.var(), abs=1e-6) or root**2 * sd**2 == pytest.approx(
            1 - law.var(), rel=1e-5
        )
    assert likelihood.information_root(f).item() == pytest.approx(1 / sd)


# Variances and constants


def censored(n: int, m: int = 1, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Inputs (n, 2), targets (n, m) of standard deviation 0.3 around a smooth function, and right-censored bounds."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    t = np.sin(X[:, :1]) * np.arange(1, m + 1) + 0.3 * rng.normal(size=(n, m))
    end = rng.normal(0.5, 0.7, size=(n, m))
    lower = np.minimum(t, end)
    return X, t, np.stack([lower, np.where(t <= end, lower, INF)], axis=-1)


def test_a_typical_value_is_the_middle_of_the_bounds_or_the_finite_one() -> None:
    y = np.array([[[1.0, 4.0]], [[2.0, 2.0]], [[3.0, INF]], [[-INF, 5.0]]])
    assert pn.CensoredGaussian(1.0).typical(y).ravel().tolist() == [2.5, 2.0, 3.0, 5.0]


def test_fitted_variances_are_the_modes() -> None:
    X, _, y = censored(80, 2)
    f, weights = np.sin(X[:, :1]) * [1.0, 2.0], problems.rng_of("weights").uniform(0.2, 2.0, 80)
    a, b = 3.0, np.array([0.2, 1.5])
    fitted = pn.CensoredGaussian("sampled", a=a, b=b).fitted(f, y, weights).variance_vector(2)
    for output in range(2):

        def loss(log_variance: float, output: int = output) -> float:
            rows = pn.CensoredGaussian(np.exp(log_variance)).log_likelihood_rows(f[:, [output]], y[:, [output]])
            return float(-(weights @ rows) + (a + 1) * log_variance + b[output] / np.exp(log_variance))

        best = optimize.minimize_scalar(loss, bounds=(-5, 3), method="bounded", options={"xatol": 1e-10})
        assert np.log(fitted[output]) == pytest.approx(best.x, abs=1e-5)


def test_expected_squares_average_to_the_most_likely_variance() -> None:
    X, t, y = censored(4000)
    squares = pn.CensoredGaussian("sampled").squared_residuals(np.sin(X[:, :1]), y, np.ones(len(y)))
    # The variance of the targets themselves, within five standard errors of all of them, is 0.09.
    assert squares.mean() == pytest.approx(0.09, rel=5 * np.sqrt(2 / 4000) * 1.5)
    known = y[..., 0] == y[..., 1]
    np.testing.assert_allclose(squares[known], ((t - np.sin(X[:, :1])) ** 2)[known], rtol=1e-9)


# Scores and predictions


@pytest.fixture(scope="module")
def draws() -> pn.Draws:
    pytest.importorskip("torch")
    X, _, y = censored(150)
    net = pn.train([2, 6, 1], X, y, likelihood=pn.CensoredGaussian(0.1), l2=0.5, validation_fraction=0, max_epochs=200)
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.CensoredGaussian("sampled"), X, y)
    return pn.sample(post, chains=2, draws=200, thin=5, warmup=1000, seed=1, progress=False)


@pytest.mark.filterwarnings("ignore:.*rests on the trained network's residuals")
def test_predictions_are_of_the_targets_themselves(draws: pn.Draws) -> None:
    X, t, y = censored(400, seed=9)
    assert 0.06 < draws.stats["variance"].mean() < 0.16
    distribution = draws.distribution(X)
    lower, upper = distribution.interval(0.9)
    covered = float(((lower <= t) & (t <= upper)).mean())
    # Of targets that censoring hides from the score; five binomial standard errors and the error of the fit.
    assert abs(covered - 0.9) < 5 * np.sqrt(0.09 / 400) + 0.03
    assert abs(distribution.coverage(y, 0.9) - 0.9) < 5 * np.sqrt(0.09 / 400) + 0.03
    assert draws.predictive(X, seed=2).shape == (2, 200, 400, 1)
    pit = distribution.pit(y, ties=np.random.default_rng(3).random((400, 1))).ravel()
    assert stats.kstest(pit, "uniform").pvalue > 1e-4
    known = np.stack([t, t], axis=-1)
    np.testing.assert_allclose(distribution.cdf(known), distribution.pit(known), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*rests on the trained network's residuals", "ignore:Draws.loo")
def test_log_densities_of_bounds(draws: pn.Draws) -> None:
    X, _, y = censored(20, seed=4)
    f, sd = draws.predict(X)[..., 0], np.sqrt(draws.stats["variance"])[..., None]
    law, (lower, upper) = stats.norm(f, sd), y[:, 0].T
    rows = np.where(lower == upper, law.pdf(lower), law.cdf(upper) - law.cdf(lower)).mean(axis=(0, 1))
    np.testing.assert_allclose(draws.distribution(X).nlpd(y, per_row=True), -np.log(rows), rtol=1e-6)
    inputs, _, bounds = censored(150)
    own = draws.log_likelihood_rows(inputs, bounds).sum(axis=-1)
    np.testing.assert_allclose(own, draws.stats["log_likelihood"], rtol=2e-4)
    loo = draws.loo(inputs, bounds)
    assert loo.unreliable <= 5 and loo.elpd < own.mean() - 1


def test_the_crps_of_known_targets_is_that_of_numbers() -> None:
    rng = np.random.default_rng(0)
    noisy, t = rng.normal(size=(50, 8, 2)), rng.normal(size=(8, 2))
    score = pn.CensoredGaussian(1.0).crps_rows(noisy, np.stack([t, t], axis=-1))
    np.testing.assert_allclose(score, diagnostics.crps(noisy[None], t, per_row=True), rtol=1e-10)


def test_the_crps_of_bounds_integrates_over_what_they_say() -> None:
    noisy = np.random.default_rng(1).normal(size=(20_000, 1, 1))
    score = pn.CensoredGaussian(1.0).crps_rows(noisy, np.array([[[0.4, INF]]])).item()
    expected, _ = integrate.quad(lambda x: stats.norm.cdf(x) ** 2, -np.inf, 0.4)
    assert score == pytest.approx(expected, rel=0.05)
    score = pn.CensoredGaussian(1.0).crps_rows(noisy, np.array([[[-0.2, 0.3]]])).item()
    above, _ = integrate.quad(lambda x: stats.norm.sf(x) ** 2, 0.3, np.inf)
    below, _ = integrate.quad(lambda x: stats.norm.cdf(x) ** 2, -np.inf, -0.2)
    assert score == pytest.approx(above + below, rel=0.05)


def test_sampled_variances_run_only_on_the_cpu() -> None:
    with pytest.raises(ValueError, match=r'device="emulated:4" samples the variance of Gaussian noise alone'):
        pn.sample(_posterior(), draws=1, device="emulated:4", progress=False)


def _posterior(**settings: Any) -> pn.Posterior:
    X, _, y = censored(30, 2)
    net = problems.random_network(problems.rng_of("censored net"), (2, 4, 2))
    return pn.Posterior(net, pn.Full(), problems.PRIOR, pn.CensoredGaussian("sampled", a=3.0, b=1.0), X, y, **settings)


def test_the_density_by_the_logarithm_of_the_variance() -> None:
    """What other samplers are given: l and its slope by log variances, against difference quotients."""
    post = _posterior(dtype="float64")
    theta, step = post.theta_map, 1e-5
    density = post.density(coordinates="theta+log_variance")
    point = np.concatenate([theta, np.log([0.2, 1.7])])
    _, gradient = density.value_and_grad(point)
    for index in (-2, -1):
        moved = np.repeat(point[None], 2, axis=0)
        moved[:, index] += [step, -step]
        above, below = density.value(moved)
        assert gradient[index] == pytest.approx((above - below) / (2 * step), rel=1e-5)


def test_densities_have_units_and_probabilities_have_none() -> None:
    X, _, y = censored(12, 2)
    likelihood, scale = pn.CensoredGaussian([0.5, 2.0]), np.array([3.0, 0.1])
    f = np.sin(X)
    scaled = likelihood.for_scaled_targets(scale)
    rows = scaled.log_likelihood_rows(f / scale, y / scale[:, None]) - scaled.log_units(y, scale)
    np.testing.assert_allclose(rows, likelihood.log_likelihood_rows(f, y), rtol=1e-9)


# The estimator and the command line

QUICK: dict[str, Any] = {
    "hidden_layer_sizes": (4,), "l2": 1.0, "max_iter": 40, "chains": 2, "draws": 30, "thin": 2, "warmup": 400,
    "n_jobs": 1, "random_state": 0,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_censored_counts_rows_of_several_targets() -> None:
    pytest.importorskip("torch")
    X, _, y = censored(40, 2)
    net = pn.train([2, 2, 2], X, y, likelihood=pn.CensoredGaussian(0.1), l2=0.5, validation_fraction=0, max_epochs=2)
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.CensoredGaussian(0.1), X, y)
    made = pn.sample(post, chains=1, draws=2, thin=1, warmup=10, seed=1, progress=False)
    found = evaluate(made, TargetScaling.identity(2), Rows(X, y)).scores["censored"]
    assert found == np.isinf(y).any(axis=(1, 2)).sum() < np.isinf(y).sum()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_estimator_takes_bounds() -> None:
    pytest.importorskip("torch")
    X, t, y = censored(120)
    made = pn.PatracRegressor(likelihood="censored", **QUICK).fit(X, 10.0 + 5.0 * y[:, 0])
    assert made.draws_.likelihood.label == "censored" and made.draws_.likelihood.is_sampled
    mean, sd = made.predict(X, return_std=True)
    lower, upper = made.predict_interval(X, coverage=0.9)
    assert (lower < mean).all() and (mean < upper).all() and (sd > 0).all()
    assert np.corrcoef(mean, t[:, 0])[0, 1] > 0.8
    with pytest.raises(ValueError, match="at least one finite bound"):
        made.fit(X, np.repeat([[-INF, INF]], 120, axis=0))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_command_line_reads_an_upper_bound(tmp_path: Path) -> None:
    """An empty upper bound is open; held-out rows are scored by what their bounds say."""
    pytest.importorskip("torch")
    import json

    import pandas as pd

    from patrac_native.cli.main import main

    X, _, y = censored(120)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "time": y[:, 0, 0]})
    frame["until"] = np.where(np.isinf(y[:, 0, 1]), np.nan, y[:, 0, 1])
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = [f"--{name.replace('_', '-')}={value}" for name, value in QUICK.items() if name != "hidden_layer_sizes"]
    fit = ["fit", str(tmp_path / "t.csv"), "--target", "time", "--upper", "until", "--likelihood", "censored"]
    assert main([*fit, "--hidden-layer-sizes", "4", *options, "--out", str(tmp_path / "out")]) == 0
    made = pn.PatracRegressor.load(tmp_path / "out" / "estimator.npz")
    assert made.draws_.likelihood.label == "censored"
    text = (tmp_path / "out" / "summary.json").read_text()
    assert "nlpd_in_units" in text and json.loads(text)


def test_bounds_whose_width_float32_loses_are_refused() -> None:
    """They would count as known, without the factor 1 / sd of a density."""
    y = np.array([[5000.0 - 5e-6, 5000.0 + 5e-6], [5001.0, np.inf], [4999.0, 4999.0]])
    net = pn.Network([[[0.0]]], [[5000.0]])
    parts = (net, pn.Full(), pn.GaussianPrior(), pn.CensoredGaussian(1.0), np.zeros((3, 1)), y)
    with pytest.raises(ValueError, match=r"y at row 0, output 0 are 1e-05 apart, which float32 does not hold at 5000"):
        pn.Posterior(*parts)
    assert np.isfinite(pn.Posterior(*parts, dtype="float64").log_likelihood([0.0, 5000.0]))


def test_rows_without_weight_do_not_decide_the_prior_of_the_variance() -> None:
    rng = np.random.default_rng(4)
    X, known = rng.normal(size=(30, 2)), rng.normal(size=30)
    y = np.stack([known, np.where(known > 0.5, np.inf, known)], axis=1)
    net = pn.Network([np.zeros((1, 2))], [[0.0]])

    def rate(X: npt.NDArray[Any], y: npt.NDArray[Any], weight: npt.NDArray[Any] | None = None) -> Any:
        post = pn.Posterior(
            net, pn.Full(), pn.GaussianPrior(), pn.CensoredGaussian("sampled"), X, y, sample_weight=weight
        )
        return post.likelihood.variance_prior(1)[1]

    more = np.concatenate([X, X]), np.concatenate([y, np.full((30, 2), 50.0)])
    np.testing.assert_allclose(rate(*more, np.repeat([1.0, 0.0], 30)), rate(X, y), rtol=1e-6)


def test_score_of_bounds_is_their_log_density() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 1))
    y = X[:, 0] + rng.normal(size=60)
    bounds = np.stack([y, np.where(y > 1.0, np.inf, y)], axis=1)
    settings = {"likelihood": "censored", "architecture": "full", "thin": 2, "draws": 30, "max_iter": 50, "l2": 1.0}
    fit = quietly(pn.PatracRegressor(3, random_state=0, **settings), X, bounds)
    assert fit.score(X, bounds) == -fit.evaluate(X, bounds).scores["nlpd_in_units"]
