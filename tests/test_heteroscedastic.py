"""A variance that depends on the inputs: outputs and targets, extreme variances, training, and predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import patrac_native as pn
import problems
from patrac_native import diagnostics
from patrac_native.training.descent import Problem

Array = np.ndarray[Any, Any]
LIKELIHOOD = pn.HeteroscedasticGaussian()


@pytest.mark.parametrize(
    ("beta", "error", "message"),
    [
        (-0.1, ValueError, "beta"),
        (1.5, ValueError, r"beta must be at most 1; got 1\.5"),
        (np.nan, ValueError, "beta"),
        ("half", TypeError, "beta"),
    ],
)
def test_bad_arguments_are_refused(beta: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pn.HeteroscedasticGaussian(beta)


def test_wrong_numbers_of_outputs_and_targets_are_refused() -> None:
    X, three, four = np.ones((5, 2)), (2, 3, 3), (2, 3, 4)
    net = problems.random_network(problems.rng_of("h"), three)
    with pytest.raises(ValueError, match=r"needs 2 outputs of the network for each target; got 3.*layer sizes"):
        pn.Posterior(net, pn.Full(), problems.PRIOR, LIKELIHOOD, X, np.ones((5, 3)))
    with pytest.raises(ValueError, match="needs 2 outputs of the network for each target; got 3"):
        pn.train(three, X, np.ones((5, 3)), likelihood=LIKELIHOOD)
    net = problems.random_network(problems.rng_of("h"), four)
    with pytest.raises(ValueError, match=r"y must have shape \(5, 2\).*got \(5, 4\)"):
        pn.Posterior(net, pn.Full(), problems.PRIOR, LIKELIHOOD, X, np.ones((5, 4)))


def test_the_variance_is_the_exponential_of_the_later_outputs() -> None:
    f = np.log([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    np.testing.assert_allclose(LIKELIHOOD.variance(f), [[3.0, 4.0], [7.0, 8.0]], rtol=1e-15)


@pytest.mark.parametrize("place", ["host", "emulated:2"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_variances_are_finite(dtype: str, place: str) -> None:
    """Without inputs, f and s are the biases: l at each s, also where e^-s is beyond float32, against float64."""
    net = pn.Network([np.zeros((2, 1))], [np.zeros(2)])
    biases = pn.Custom([np.zeros((2, 1), dtype=bool)], [np.ones(2, dtype=bool)])
    X, y = np.zeros((2, 1)), np.array([[0.0], [1e-20]])
    post = pn.Posterior(net, biases, problems.PRIOR, LIKELIHOOD, X, y, dtype=dtype)
    model = post.sampled.compiled.host if place == "host" else post.sampled.compiled.on_device(place)
    for s in (-100.0, -60.0, 0.0, 60.0, 100.0, 300.0):
        theta = np.array([[0.0, s]], dtype=dtype)
        expected = float(LIKELIHOOD.log_likelihood_rows(np.broadcast_to(theta[0], (2, 2)), y).sum())
        value = model.log_likelihood(theta, 1) if place == "host" else model.log_likelihood(theta)
        # The exponential's argument is exact, and its result within 2 roundings.
        assert float(value[0]) == pytest.approx(expected, rel=2e-6)


def test_proposals_with_an_infinite_precision_are_rejected_and_counted() -> None:
    """With a prior sd of 1e4 for s, half of the proposals of pCN have e^(-s / 2) beyond float32."""
    net = pn.Network([np.zeros((2, 1))], [np.zeros(2)])
    biases = pn.Custom([np.zeros((2, 1), dtype=bool)], [np.ones(2, dtype=bool)])
    wide = pn.GaussianPrior(sigma2_w=1.0, sigma2_b=1e8)
    post = pn.Posterior(net, biases, wide, LIKELIHOOD, np.zeros((2, 1)), np.array([0.0, 1.0]))
    for device in ("cpu", "emulated:2"):
        with pytest.warns(UserWarning, match="not finite"):
            draws = pn.sample(
                post, pn.PCN(1.0), chains=1, draws=200, warmup=None, init=np.zeros((1, 2)), seed=1, device=device
            )
        assert 50 <= int(draws.stats["nonfinite"][0]) < 200
        assert np.isfinite(draws.theta).all() and np.isfinite(draws.stats["log_likelihood"]).all()


def test_the_gradient_of_training_is_that_of_seitzer() -> None:
    rng = np.random.default_rng(0)
    outputs, y = rng.normal(size=(6, 4)), rng.normal(size=(6, 2))
    variance, residual = np.exp(outputs[:, 2:]), y - outputs[:, :2]
    # A linear network of unit vectors, whose weights are the outputs of its rows.
    theta = np.concatenate([outputs.T.ravel(), np.zeros(4)])
    for beta in (0.0, 0.5, 0.8, 1.0):
        likelihood = pn.HeteroscedasticGaussian(beta)
        ones = np.ones(6)
        problem = Problem((6, 4), "tanh", likelihood, np.eye(6), y, ones, "adam", 0.01, 6, 0, 0, "float64")
        value, gradient = problem.compiled(ones).log_likelihood_and_grad(theta[None], 1)
        assert value[0] == pytest.approx(likelihood.log_likelihood_rows(outputs, y).sum(), rel=1e-13)
        of_outputs = gradient[0, :24].reshape(4, 6).T
        np.testing.assert_allclose(of_outputs[:, :2], residual / variance * variance**beta, rtol=1e-13)
        np.testing.assert_allclose(of_outputs[:, 2:], 0.5 * (residual**2 / variance - 1), rtol=1e-12)


def test_the_constant_of_constant_targets_is_finite() -> None:
    for y in (np.zeros((4, 1)), np.full((4, 1), 3.0)):
        assert np.isfinite(LIKELIHOOD.constant_log_likelihood(y))
        assert np.isfinite(LIKELIHOOD.initial_outputs(y, np.ones(4))).all()


def rising_noise(n: int, seed: int = 3) -> tuple[Array, Array, Array]:
    """X in [-2, 2], y = sin 2x with a noise sd that rises from 0.02 to 0.8, and that sd."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 1))
    sd = 0.02 * 40 ** ((X[:, 0] + 2) / 4)
    return X, np.sin(2 * X[:, 0]) + sd * rng.standard_normal(n), sd


def test_training_finds_the_signal_better_than_by_the_plain_gradient() -> None:
    """Large values vary much and small ones little, as in yacht: noise explains that as well as a signal, at first."""
    pytest.importorskip("torch")
    X = np.random.default_rng(0).uniform(-1, 1, (200, 1))
    y = np.exp(3 * X[:, 0]) / 5 + 0.01 * np.random.default_rng(1).standard_normal(200)
    settings: dict[str, Any] = {"l2": 0.01, "max_epochs": 1500, "validation_fraction": 0, "seed": 0, "progress": False}
    net = pn.train([1, 20, 2], X, y, likelihood=LIKELIHOOD, **settings)
    plain = pn.train([1, 20, 2], X, y, likelihood=pn.HeteroscedasticGaussian(beta=0), **settings)
    error, plain_error = (np.sqrt(np.mean((y - one.predict(X)[:, 0]) ** 2)) for one in (net, plain))
    # Measured with three seeds: 0.013 to 0.018 of the standard deviation of y, and 0.17 to 0.31.
    assert error < 0.05 * y.std() and plain_error > 3 * error
    # The units do not matter much: training starts at mean and variance of y.
    shifted = pn.train([1, 20, 2], X, 100 + 10 * y, likelihood=LIKELIHOOD, **settings)
    residual = 100 + 10 * y - shifted.predict(X)[:, 0]
    assert np.sqrt(np.mean(residual**2)) < 0.2 * 10 * y.std()


@pytest.fixture(scope="module")
def fitted() -> tuple[pn.Draws, pn.Posterior]:
    pytest.importorskip("torch")
    X, y, _ = rising_noise(300)
    targets = np.stack([y, -y], axis=1)
    net = pn.train([1, 12, 4], X, targets, likelihood=LIKELIHOOD, l2=0.1, seed=0, max_epochs=1500, progress=False)
    post = pn.Posterior(net, pn.Mix(4), pn.TraceClassPrior(1.2, 1.0, 1.0), LIKELIHOOD, X, targets)
    return pn.sample(post, chains=2, draws=300, thin=10, warmup=4000, seed=1, progress=False), post


def test_predictions(fitted: tuple[pn.Draws, pn.Posterior]) -> None:
    """Means, predictive draws, intervals and scores have the noise of each row."""
    draws, _ = fitted
    X, y, sd = rising_noise(300, seed=4)
    targets = np.stack([y, -y], axis=1)
    mean, flat = draws.predict(X), draws.distribution(X).outputs()
    outputs = flat.reshape(2, 300, 300, 4)
    assert mean.shape == (2, 300, 300, 2)
    np.testing.assert_array_equal(mean, outputs[..., :2])
    noisy = draws.predictive(X, seed=2)
    residuals = ((noisy - mean) / np.exp(0.5 * outputs[..., 2:])).ravel()
    # A correct sampler fails one time in a million; every 37th residual, so that none are of one draw.
    assert stats.kstest(residuals[::37], stats.norm.cdf).pvalue > 1e-6
    for output, observed in enumerate((y, -y)):
        mixture = draws.likelihood.mixture(flat, output=output)
        lower, upper = mixture.interval(0.9)
        covered = (lower <= observed) & (observed <= upper)
        # The noise is that of the model: 90% of 300 rows within five standard errors, in either half of the inputs.
        for half in (X[:, 0] < 0, X[:, 0] >= 0):
            assert abs(covered[half].mean() - 0.9) <= 5 * np.sqrt(0.09 / half.sum())
        width = upper - lower
        assert np.median(width[X[:, 0] > 1.5]) > 8 * np.median(width[X[:, 0] < -1.5])
        pit = mixture.cdf(observed)
        assert stats.kstest(pit, "uniform").pvalue > 1e-4
    assert 0 < float(np.mean(diagnostics.crps(noisy, targets))) < 0.5
    rows = draws.distribution(X).nlpd(targets, per_row=True)
    of_row = stats.norm.logpdf(targets[0], mean[:, :, 0], np.exp(0.5 * outputs[:, :, 0, 2:])).sum(axis=-1)
    assert rows[0] == pytest.approx(-np.log(np.mean(np.exp(of_row))), rel=1e-6)
    # Beside the law of the data; two targets, each known from the other, do not matter to this mean.
    own = -stats.norm.logpdf(targets, np.stack([np.sin(2 * X[:, 0]), -np.sin(2 * X[:, 0])], axis=1), sd[:, None])
    assert rows.mean() < own.sum(axis=1).mean() + 0.3


def test_summary_and_report_are_of_all_outputs(fitted: tuple[pn.Draws, pn.Posterior]) -> None:
    draws, post = fitted
    summary = draws.summary(np.linspace(-2, 2, 5)[:, None])
    assert summary.quantity == "mean and log-variance" and summary.mean.shape == (5, 4)
    assert "mean and log-variance: max R-hat" in str(summary)
    assert post.sampled.fit_quality.network > post.sampled.fit_quality.constant
    # Sums of 300 rows, evaluated again from float32 outputs.
    of_rows = draws.log_likelihood_rows(post.data.X, post.data.y).sum(axis=-1).mean()
    assert of_rows == pytest.approx(float(draws.stats["log_likelihood"].mean()), rel=1e-4)
