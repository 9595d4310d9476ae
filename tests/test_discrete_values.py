"""The likelihood of numbers of which few differ: its law, refused and unseen values, fits and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import patrac_native as pn
from fits import quietly
from patrac_native.cli.main import main
from patrac_native.fit.noise import best_noise, noise_trials, takes_few_values
from patrac_native.fit.rows import Rows, TargetScaling
from patrac_native.fit.settings import NOISE_CHOICES, Settings

Array = np.ndarray[Any, Any]
VALUES = np.array([0.0, 0.5, 3.0, 12.0])
M, N = 40, 6


def softmax(f: Array) -> Array:
    return np.exp(f) / np.exp(f).sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([1.0], ValueError, r"values must be at least two finite numbers, of shape \(m,\); got \[1.0\]"),
        ([[1.0, 2.0]], ValueError, "values must be at least two finite numbers"),
        ([1.0, np.nan], ValueError, "values must be at least two finite numbers"),
        ([1.0, 1e39], ValueError, "values must be at least two finite numbers"),
        ([2.0, 1.0, 2.0], ValueError, "values must differ in single precision; two are 2 there"),
        ([1e9, 0.0, 1e9 + 1], ValueError, "two are 1000000000 there. Leave one out, or subtract a constant"),
        (["few", "many"], TypeError, "values must hold real numbers"),
    ],
)
def test_bad_values_are_refused(values: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pn.DiscreteValues(values)


def test_targets_must_be_values_where_they_are_fitted_and_numbers_where_they_are_scored() -> None:
    likelihood, rng = pn.DiscreteValues(VALUES), np.random.default_rng(0)
    net = pn.Network([rng.normal(size=(4, 2))], [np.zeros(4)])
    X, y = rng.normal(size=(3, 2)), [12.0, 0.5, 7.0]
    message = r"y must hold values of DiscreteValues.* where it is fitted; got 7 at row 2, output 0 \(1 bad"
    with pytest.raises(ValueError, match=message):
        pn.Posterior(net, pn.Full(), pn.GaussianPrior(), likelihood, X, y)
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match=message):
        pn.train([2, 4], X, y, likelihood=likelihood, l2=1.0, validation_fraction=0)
    checked = likelihood.check_targets(y, 3, 4)
    assert likelihood.is_possible(checked)[:, 0].tolist() == [True, True, False]
    f = rng.normal(size=(3, 4))
    p = softmax(f)
    expected = np.log([p[0, 3], p[1, 1], 1e-3])
    np.testing.assert_allclose(likelihood.log_likelihood_rows(f, checked), expected, rtol=1e-12)
    for bad, m, words in (
        ([0, 1, np.nan], 4, "y must be finite; got nan at row 2"),
        ([0, 1, 2], 3, "for each value, 4"),
    ):
        with pytest.raises(ValueError, match=words):
            likelihood.check_targets(bad, 3, m)
    with pytest.raises(ValueError, match="leaves its values to the estimators"):
        pn.DiscreteValues().check_targets(y, 3, 4)
    with pytest.raises(ValueError, match=r"takes one target, y of shape \(n,\); got shape \(3, 2\)"):
        pn.DiscreteValues().for_training_targets(np.zeros((3, 2)))
    for y, words in ((np.ones((4, 1)), "1 values in 4 rows"), (np.arange(5.0)[:, None], "5 values in 5 rows")):
        with pytest.raises(ValueError, match=f"y takes {words}; .* needs at least two, each that of two rows or more"):
            pn.DiscreteValues().for_training_targets(y)


def test_values_that_were_stored_in_single_precision_are_the_same() -> None:
    likelihood = pn.DiscreteValues([0.1, 0.2, 0.7])
    y = np.array([[0.1], [0.2], [0.7]]).astype(np.float32).astype(np.float64)
    assert (y != likelihood.values[:, None]).all() and likelihood.is_possible(y).all()
    mixture = likelihood.mixture(np.zeros((1, 3, 3)))
    np.testing.assert_allclose(mixture.cdf(y[:, 0]), [1 / 3, 2 / 3, 1], rtol=1e-15)


def test_the_resolution_makes_log_probabilities_densities_in_any_unit() -> None:
    """Like a density, it falls by log c where y is c times as large: that of a cell of the smallest distance."""
    y = np.array([[0.5], [12.0]])
    of_y, of_tens = (pn.DiscreteValues(c * VALUES).log_units(c * y, np.ones((2, 1))) for c in (1.0, 10.0))
    np.testing.assert_allclose(of_y, np.log([0.5, 0.5]), rtol=1e-15)
    np.testing.assert_allclose(of_tens - of_y, np.log([10.0, 10.0]), rtol=1e-15)
    assert (pn.DiscreteValues([0, 1, 2, 3, 7, 12]).log_units(y, np.ones((2, 1))) == 0).all()


@pytest.mark.parametrize("weighted", ["equally", "draws", "draws of each input"])
def test_the_law_of_a_mixture_is_that_of_its_probabilities(weighted: str) -> None:
    """Against sums over values in NumPy; a sum of 40 draws and 4 values rounds by less than 1e-13."""
    rng = np.random.default_rng(1)
    f = 2 * rng.normal(size=(M, N, 4))
    shares = {
        "equally": None,
        "draws": rng.dirichlet(np.ones(M)),
        "draws of each input": rng.dirichlet(np.ones(M), N).T,
    }
    weights = shares[weighted]
    mixture = pn.DiscreteValues(VALUES[::-1]).mixture(f)
    if weights is not None:
        mixture = type(mixture).combined([mixture], weights)
    w = np.full((M, N), 1 / M) if weights is None else np.broadcast_to(weights.reshape(M, -1), (M, N))
    of_draws = softmax(f)
    p = (w[..., None] * of_draws).sum(axis=0)
    near = {"rtol": 1e-12, "atol": 1e-13}
    np.testing.assert_allclose(mixture.mean(), p @ VALUES, **near)
    np.testing.assert_allclose(mixture.sd() ** 2, p @ VALUES**2 - (p @ VALUES) ** 2, rtol=1e-10)
    spread = (w * (of_draws @ VALUES - p @ VALUES) ** 2).sum(axis=0)
    np.testing.assert_allclose(mixture.sd_f() ** 2, spread, **near)
    y = np.array([-1.0, 0.0, 0.4, 3.0, 11.0, 12.0])
    for at in (y, y[::-1]):
        np.testing.assert_allclose(mixture.cdf(at), (p * (at[:, None] >= VALUES)).sum(axis=1), **near)
        np.testing.assert_allclose(mixture.step(at)[0], (p * (at[:, None] > VALUES)).sum(axis=1), **near)
    upto = np.cumsum(p, axis=1)
    for probability in (0.05, 0.3, 0.5, 0.95, 0.999):
        expected = VALUES[[int(np.argmax(row >= probability)) if row[-2] >= probability else 3 for row in upto]]
        np.testing.assert_array_equal(mixture.quantile(probability), expected)
        # Linear between values, and from one resolution below the first: the way back, and NumPy's interpolation.
        knots = np.array([-0.5, *VALUES])
        found = mixture.continuous_quantile(probability)
        back = [np.interp(probability, [0.0, *row], knots) for row in upto]
        np.testing.assert_allclose(found, back, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose((w * mixture.continuous_cdf(found)).sum(axis=0), probability, rtol=1e-10)
    lower, upper = mixture.interval(0.9)
    np.testing.assert_array_equal([lower, upper], [mixture.quantile(0.05), mixture.quantile(0.95)])
    known = VALUES[[0, 1, 2, 3, 0, 1]]
    np.testing.assert_allclose(np.exp(mixture.log_density(known)), p[np.arange(N), [0, 1, 2, 3, 0, 1]], **near)
    np.testing.assert_allclose(np.exp(mixture.log_density(5.0)), 1e-3, rtol=1e-12)
    thin = mixture.thinned(2)
    half = w[::2] / w[::2].sum(axis=0)
    np.testing.assert_allclose(thin.mean(), (half[..., None] * of_draws[::2]).sum(axis=0) @ VALUES, **near)


def test_scores_of_draws_are_those_of_their_values() -> None:
    """CRPS, which draws values, against sum_c (P(Y <= v_c) - 1{y <= v_c})^2 (v_(c+1) - v_c), and samples against p."""
    rng = np.random.default_rng(2)
    net = pn.Network([[[2.0], [1.0], [0.0], [-1.0]]], [[0.0, 0.3, 0.1, -0.2]])
    X = np.linspace(-1, 1, 5)[:, None]
    y = VALUES[[0, 1, 2, 3, 0]]
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.DiscreteValues(VALUES), X, y, dtype="float64")
    count = 20_000
    theta = np.broadcast_to(post.theta_map, (2, count, post.dim)) + 0.1 * rng.normal(size=(2, count, post.dim))
    draws = pn.Draws.from_array(post, theta, sampler="none")
    at = draws.distribution(X)
    p = softmax(at.outputs()).mean(axis=0)
    np.testing.assert_allclose(at.probabilities(), p, rtol=1e-12)
    np.testing.assert_allclose(at.mean()[:, 0], p @ VALUES, rtol=1e-12)
    upto = np.cumsum(p, axis=1)[:, :-1]
    exact = ((upto - (y[:, None] <= VALUES[:-1])) ** 2 * np.diff(VALUES)).sum(axis=1)
    # A mean over 40,000 draws of distances up to 12: five standard errors.
    np.testing.assert_allclose(at.crps(y, per_row=True)[:, 0], exact, atol=5 * 12 / np.sqrt(2 * count))
    noisy = at.sample(seed=1)[..., 0]
    shares = np.stack([(noisy == value).mean(axis=0) for value in VALUES], axis=1)
    np.testing.assert_allclose(shares, p, atol=5 * 0.5 / np.sqrt(2 * count))
    np.testing.assert_allclose(at.nlpd(y, per_row=True), -np.log(p[np.arange(5), [0, 1, 2, 3, 0]]), rtol=1e-10)
    error = draws.rerun_error(X, replicates=np.arange(2))
    assert error.lower is not None and (error.mean < 0.1).all() and np.isfinite(error.lower).all()
    assert draws.summary(X).quantity == "probabilities of the values"
    assert [str(one) for one in draws.to_datatree(X, y, target_names=["mark"])["observed_data"]["y"].dims] == ["row"]


# -- fits --------------------------------------------------------------------------------------------------------------

QUICK: dict[str, Any] = {"hidden_layer_sizes": (6,), "max_iter": 150, "l2": 0.3, "n_jobs": 1, "random_state": 0}


def marks(n: int, seed: int) -> tuple[Array, Array]:
    """Numbers of which four differ, with probabilities that no noise around a mean has."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    f = np.stack([np.zeros(n), 1.5 * X[:, 0], 1.5 * X[:, 1], -X[:, 0]], axis=1)
    place = (rng.random((n, 1)) > np.cumsum(softmax(f), axis=1)[:, :-1]).sum(axis=1)
    return X, VALUES[place]


@pytest.fixture(scope="module")
def fitted() -> pn.PatracRegressor:
    """A fit that chooses by itself."""
    pytest.importorskip("torch")
    return quietly(pn.PatracRegressor(**QUICK, minutes=0.01), *marks(300, 0))


@pytest.mark.slow
def test_an_estimator_takes_few_values_as_they_are(fitted: pn.PatracRegressor, tmp_path: Path) -> None:
    X, y = marks(200, 1)
    likelihood = fitted.draws_.likelihood
    assert likelihood == pn.DiscreteValues(VALUES) and fitted.target_scaling_.scale.tolist() == [1.0]
    assert any("discrete-values is taken" in line for line in fitted.report_.lines)
    lower, upper = fitted.predict_interval(X, 0.9)
    quantiles, samples = fitted.predict_quantiles(X, (0.1, 0.5)), fitted.sample_y(X, 30)
    for ends in (lower, upper, quantiles, samples):
        assert np.isin(ends, VALUES).all()
    mean, sd = fitted.predict(X, return_std=True)
    assert mean.shape == (200,) and ((mean > 0) & (mean < 12) & (sd > 0)).all()
    later = fitted.predict_survival_function(X, (-1.0, 0.5, 0.6, 12.0))
    np.testing.assert_array_equal(later[:, 1], later[:, 2])
    np.testing.assert_allclose(later[:, [0, 3]], np.broadcast_to([1.0, 0.0], (200, 2)), atol=1e-12)
    found = fitted.evaluate(X, y)
    frequencies = np.array([(marks(300, 0)[1] == value).mean() for value in y])
    assert found.scores["nlpd"] < -np.log(frequencies).mean() - 0.05
    assert found.scores["nlpd_in_units"] == pytest.approx(found.scores["nlpd"] + np.log(0.5), rel=1e-12)
    assert "unseen_values" not in found.scores
    # Five standard errors of a share of 200 rows.
    assert abs(found.scores["coverage"]["0.9"] - 0.9) < 5 * np.sqrt(0.09 / 200)
    fitted.save(tmp_path / "fit.npz")
    again = pn.PatracRegressor.load(tmp_path / "fit.npz")
    assert again.draws_.likelihood == likelihood
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


@pytest.mark.slow
def test_a_value_that_no_training_row_has_is_scored_and_counted(fitted: pn.PatracRegressor) -> None:
    X, y = marks(100, 2)
    odd = y.copy()
    odd[[3, 8]] = 7.0
    plain, found = fitted.evaluate(X, y), fitted.evaluate(X, odd)
    assert found.scores["unseen_values"] == 2
    np.testing.assert_allclose(found.arrays["nlpd"][[3, 8]], -np.log(1e-3), rtol=1e-12)
    np.testing.assert_array_equal(np.delete(found.arrays["nlpd"], [3, 8]), np.delete(plain.arrays["nlpd"], [3, 8]))
    assert np.isfinite(list(found.scores["coverage"].values())).all()


def test_the_command_line_fits_predicts_and_shows_few_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    X, y = marks(120, 3)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "mark": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "mark", "--likelihood", "discrete-values", "--architecture", "out", "--thin", "2"]
    options += ["--hidden", "6", "--max-iter", "60", "--l2", "0.3", "--draws", "40", "--test-fraction", "0.2"]
    options += ["--store", str(tmp_path / "store")]
    assert main(["fit", str(tmp_path / "t.csv"), *options, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "one of the values 0, 0.5, 3, 12, each with a probability of its own" in said
    assert (
        "P(" in (tmp_path / "run" / "report.html").read_text()
        and "intervals end at its values" in (tmp_path / "run" / "report.html").read_text()
    )
    frame.loc[0, "mark"] = 7.0
    frame.to_csv(tmp_path / "new.csv", index=False)
    files = ["--out", str(tmp_path / "p.csv"), "--scores", str(tmp_path / "s.json")]
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new.csv"), *files]) == 0
    assert "rows whose target is none of the values" in capsys.readouterr().out
    predicted, scores = pd.read_csv(tmp_path / "p.csv"), json.loads((tmp_path / "s.json").read_text())
    assert predicted[["lower", "upper"]].isin(VALUES).all(axis=None) and scores["unseen_values"] == 1
    assert main(["show", str(tmp_path / "store")]) == 0
    assert "probabilities of the values at" in capsys.readouterr().out


# -- the choice --------------------------------------------------------------------------------------------------------

SETTINGS = Settings(hidden_layer_sizes=(6,), max_iter=150, l2=0.3, n_jobs=1, minutes=0.02)


def chosen(X: Array, y: Array) -> tuple[str, str]:
    """Return the kind of noise that networks choose, and what is said of it."""
    rows, lines = Rows(X, y[:, None]), []
    scaling = TargetScaling.fit(rows.y, None, standardize=True)
    with pn.Note.collect():
        trials = noise_trials(rows, [scaling], NOISE_CHOICES, None, SETTINGS)
    return best_noise(trials, lines.append).kind.label, lines[0]


def test_networks_choose_a_probability_for_each_value_where_it_predicts_better() -> None:
    pytest.importorskip("torch")
    found, said = chosen(*marks(300, 4))
    assert found == "discrete-values" and "gaussian" in said


def test_networks_choose_normal_noise_where_it_was_rounded() -> None:
    """Both predict as well; the one with fewer outputs is taken."""
    pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 2))
    y = np.round(2 * X[:, 0] + 1.2 * rng.normal(size=400)) / 2
    values, counts = np.unique(y, return_counts=True)
    usual = np.isin(y, values[counts >= 5])
    found, said = chosen(X[usual], y[usual])
    assert found == "gaussian" and "discrete-values" in said


def test_which_targets_take_few_values() -> None:
    rng = np.random.default_rng(0)
    assert takes_few_values(np.repeat([0.0, 0.1, 7.0], 5))
    assert takes_few_values(np.repeat(np.arange(20.0), 5)) and not takes_few_values(np.repeat(np.arange(21.0), 5))
    assert not takes_few_values(np.repeat([0.0, 1.0, 2.0], [50, 50, 4]))
    assert not takes_few_values(rng.normal(size=100)) and not takes_few_values(np.ones(100))
    assert not takes_few_values(np.repeat([1e9, 1e9 + 1], 50))  # one number in single precision
