"""The kind of noise that networks alone choose: counts or numbers, and noise of each row where runs would take long."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import patrac_native as pn
from fits import quietly
from patrac_native.fit import noise
from patrac_native.fit.noise import (
    NoiseTrial,
    are_counts,
    best_noise,
    heavier_tails,
    may_take_log,
    noise_trials,
    try_noise,
)
from patrac_native.fit.rows import FitData, Rows, TargetScaling
from patrac_native.fit.settings import NOISE_CHOICES, Settings
from patrac_native.fit.training import Choice, train_networks

SETTINGS = Settings(hidden_layer_sizes=(8,), max_iter=200, l2=0.3, n_jobs=1, minutes=0.02)
N = 400


def rows_of(kind: str) -> Rows:
    """Return rows whose targets (n, 1) are whole: counts of a rate, over-dispersed ones, marks, or rounded numbers."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 2))
    rate = np.exp(0.7 + 0.8 * X[:, 0])
    y = {
        "counts": rng.poisson(rate),
        "over-dispersed": rng.poisson(rate * rng.gamma(2.0, 0.5, N)),
        "marks": np.clip(np.round(5.6 + X[:, 0] + 0.4 * rng.normal(size=N)), 1, 9),
        "measured": np.round(5_000 + 300 * X[:, 0] + 20 * rng.normal(size=N)),
        "noise of each row": np.round(9_000 + 300 * X[:, 0] + np.exp(4 + 1.2 * X[:, 1]) * rng.normal(size=N)),
    }[kind]
    return Rows(X, y[:, None].astype(float))


@pytest.mark.parametrize(
    ("kind", "is_count"),
    [("counts", True), ("over-dispersed", True), ("marks", False), ("measured", False), ("noise of each row", False)],
)
def test_whole_numbers_are_counts_where_networks_of_counts_predict_them_better(kind: str, is_count: bool) -> None:
    rows, lines = rows_of(kind), []
    scaling = TargetScaling.fit(rows.y, None, standardize=True)
    with pn.Note.collect():
        trials = noise_trials(rows, [scaling], NOISE_CHOICES, pn.NegativeBinomial(1.0), SETTINGS)
    assert (best_noise(trials, lines.append).kind.targets == "count") is is_count
    # Marks, whose standard deviation hardly spans whole numbers, are not compared with noise that may vanish at them.
    assert ("heteroscedastic" in lines[0]) == (kind != "marks")
    assert lines[0].startswith(f"  NLPD of {N} left-out rows by networks alone: gaussian ")


def test_scores_are_log_densities_of_left_out_rows_in_the_units_of_y() -> None:
    """Of one variance, their mean is 0.5 log(2 pi e variance)."""
    rows = rows_of("measured")
    scaling = TargetScaling.fit(rows.y, None, standardize=True)
    data = FitData(rows._replace(y=scaling.transform(rows.y)), None, 1, scaling)
    with pn.Note.collect():
        trial = try_noise(NOISE_CHOICES[1].for_scaled_targets(scaling.scale), data, SETTINGS)
        counts = try_noise(pn.NegativeBinomial(1.0), FitData(rows_of("counts"), None, 1, scaling.identity()), SETTINGS)
    assert trial is not None and counts is not None
    # The variance is that of these rows, but for its prior.
    variance = trial.fitted.variance_vector(1)[0] * scaling.scale[0] ** 2
    assert len(trial.nlpd) == N
    assert trial.nlpd.mean() == pytest.approx(0.5 * np.log(2 * np.pi * np.e * variance), abs=0.05)
    # Log probabilities of some counts are compared with numbers of scipy elsewhere; here that they are of this network.
    assert 0 < counts.nlpd.mean() < 0.5 * np.log(2 * np.pi * np.e * rows_of("counts").y.var())
    assert counts.fitted.dispersion < 0.2
    few = FitData(rows_of("counts").spread(90), None, 1, scaling.identity())
    assert try_noise(pn.NegativeBinomial(1.0), few, SETTINGS) is None


def test_what_a_training_says_of_a_network_that_is_only_compared_is_no_warning() -> None:
    with pytest.warns(pn.Note, match="the fit is poor"):
        pn.train([2, 8, 1], rows_of("counts").X, rows_of("counts").y, likelihood=pn.Poisson(), max_epochs=1, l2=0.3)
    few, data = dataclasses.replace(SETTINGS, max_iter=1), FitData(rows_of("counts"), None, 1, TargetScaling.identity())
    with warnings.catch_warnings(action="error"):
        assert try_noise(pn.NegativeBinomial(1.0), data, few) is not None


def test_folds_share_what_the_first_one_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    """The penalty and the number of epochs: only the first network has a validation of its own."""
    found: list[pn.Network] = []

    def keep(*arguments: Any, **named: Any) -> list[pn.Network]:
        nets = train_networks(*arguments, **named)
        found.extend(nets)
        return nets

    monkeypatch.setattr(noise, "train_networks", keep)
    rows, settings = rows_of("measured"), dataclasses.replace(SETTINGS, l2=None)
    scaling = TargetScaling.fit(rows.y, None, standardize=True)
    data = FitData(rows._replace(y=scaling.transform(rows.y)), None, 1, scaling)
    with pn.Note.collect():
        try_noise(NOISE_CHOICES[1].for_scaled_targets(scaling.scale), data, settings)
    first, *others = map(Choice.of, found)
    assert first.trials and len(others) == 4
    assert all((one.l2, one.epochs, one.validation) == (first.l2, first.epochs, "") for one in others)


def test_a_scaling_that_is_clearly_worse_is_not_tried_with_other_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 2))
    tried: list[tuple[str, bool]] = []

    def fake(likelihood: Any, data: FitData, settings: Settings) -> NoiseTrial:
        tried.append((likelihood.label, data.units.log))
        return dataclasses.replace(
            scored(losses[data.units.log], tails), kind=likelihood, fitted=likelihood, of_log=data.units.log
        )

    monkeypatch.setattr(noise, "try_noise", fake)
    tails, base = rng.standard_t(2.0, size=N), rng.normal(size=N)
    y = np.exp(X[:, :1])
    scalings = [TargetScaling.fit(y, None, standardize=True, log=log) for log in (False, True)]
    for gain, scales in ((0.5, [True]), (-0.5, [False]), (0.0, [False, True])):
        losses = {False: base, True: base - gain + 0.5 * rng.permutation(np.linspace(-1, 1, N))}
        tried.clear()
        noise_trials(Rows(X, y), scalings, NOISE_CHOICES, None, SETTINGS)
        assert tried[:2] == [("gaussian", False), ("gaussian", True)]
        expected = [("student-t", log) for log in scales] + [("heteroscedastic", log) for log in scales]
        assert tried[2:] == expected


def test_the_first_kind_is_taken_that_is_no_worse_than_the_best_by_more_than_a_standard_error() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=100)

    def trial(gain: float) -> NoiseTrial:
        return scored(base - gain - 0.5 * rng.normal(size=100))

    first, hardly, best = scored(base), trial(0.02), trial(1.0)
    noise = rng.normal(size=100)
    better = scored(best.nlpd + 0.01 + 0.5 * (noise - noise.mean()))
    assert best_noise([first, hardly], print) is first
    assert best_noise([first, better, hardly], print) is better
    assert best_noise([first, better, best], print) is better
    assert best_noise([first, trial(0.5), best], print) is best


def scored(nlpd: np.ndarray, residuals: np.ndarray | None = None) -> NoiseTrial:
    """Return a trial with these scores, and residuals if they matter."""
    return NoiseTrial(pn.Poisson(), pn.Poisson(), False, nlpd, nlpd if residuals is None else residuals, None, 1.0)


def test_tails_are_tried_where_residuals_have_them() -> None:
    rng, n = np.random.default_rng(0), 600
    assert heavier_tails(scored(np.zeros(n), rng.normal(size=n))) is None
    assert heavier_tails(scored(np.zeros(n), 3.0 * rng.standard_t(2.5, size=n))) == 2.5
    # One row in fifty is far off.
    mixed = np.where(rng.uniform(size=n) < 0.02, 20.0, 1.0) * rng.normal(size=n)
    assert heavier_tails(scored(np.zeros(n), mixed)) in (2.5, 4.0, 8.0)


@pytest.mark.parametrize(
    ("kind", "taken"),
    [("factor", "gaussian of log y"), ("sum", "gaussian"), ("outliers", "student-t")],
)
def test_logarithm_and_tails_are_taken_where_the_noise_has_them(kind: str, taken: str) -> None:
    rng, lines = np.random.default_rng(1), []
    X = rng.normal(size=(N, 2))
    f = 2.0 + 0.7 * X[:, 0]
    y = {
        "factor": np.exp(f + 0.3 * rng.normal(size=N)),
        "sum": 20 + f + 0.3 * rng.normal(size=N),
        "outliers": f + 0.3 * rng.standard_t(2.0, size=N),
    }[kind][:, None]
    assert may_take_log(y) == (kind == "factor")
    logs = [False, True] if may_take_log(y) else [False]
    scalings = [TargetScaling.fit(y, None, standardize=True, log=log) for log in logs]
    with pn.Note.collect():
        trials = noise_trials(Rows(X, y), scalings, NOISE_CHOICES, None, SETTINGS)
    assert best_noise(trials, lines.append).label == taken
    # Without a rival, networks with noise of each row are not trained here.
    assert (len(trials) == 1) == (kind == "sum")


def test_are_counts() -> None:
    assert are_counts(np.array([[0.0], [3.0]])) and are_counts(np.array([[1e300]]))
    assert not are_counts(np.array([[0.5]])) and not are_counts(np.array([[-1.0]]))


@pytest.fixture(scope="module")
def of_counts() -> pn.PatracRegressor:
    rows = rows_of("over-dispersed")
    made = pn.PatracRegressor((8,), max_iter=200, minutes=0.02, n_jobs=1, random_state=0)
    return quietly(made, rows.X, rows.y[:, 0])


@pytest.mark.slow
def test_an_estimator_of_whole_numbers_predicts_counts(of_counts: pn.PatracRegressor) -> None:
    """As with likelihood="negative-binomial", whose parameters it does not take for its own."""
    rows = rows_of("over-dispersed")
    assert of_counts.draws_.likelihood.label == "negative-binomial" and of_counts.likelihood is None
    lower, upper = of_counts.predict_interval(rows.X, 0.9)
    assert (lower == np.floor(lower)).all() and (lower >= 0).all() and (lower <= upper).all()
    asked = clone(of_counts).set_params(likelihood="negative-binomial")
    quietly(asked, rows.X, rows.y[:, 0])
    assert asked.draws_.likelihood == of_counts.draws_.likelihood
    lines = of_counts.report_.lines
    assert any("negative-binomial is taken" in line for line in lines)
    # The dispersion is that of the comparison, whose networks are not trained again.
    assert sum("the most likely one on 400 training rows" in line for line in lines) == 1
    assert "estimating the dispersion ..." in asked.report_.lines and "estimating the dispersion ..." not in lines


@pytest.mark.parametrize("given", [{"thin": 5}, {"architecture": "out"}, {"likelihood": "gaussian"}, {"held": 0.5}])
def test_numbers_stay_numbers_where_there_is_no_choice(given: dict[str, Any]) -> None:
    """Where a setting takes the choice, or held-out targets are no counts."""
    rows, settings = rows_of("counts"), {k: v for k, v in given.items() if k != "held"}
    estimator = pn.PatracRegressor((8,), max_iter=50, minutes=0.01, draws=30, n_jobs=1, random_state=0, **settings)
    held_out = (rows.X[:30], rows.y[:30, 0] + given.get("held", 0.0))
    quietly(estimator, rows.X[30:], rows.y[30:, 0], held_out=held_out)
    assert estimator.draws_.likelihood.targets == "real"
