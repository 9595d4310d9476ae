"""Bins of inputs: their algebra, when a fit takes them, and what it saves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from patrac_native import Gaussian, Note, PatracClassifier, PatracRegressor
from patrac_native.fit import bins_choice
from patrac_native.fit.bins import Bins, knots_of
from patrac_native.fit.bins_choice import choose_bins
from patrac_native.fit.noise import LeftOut
from patrac_native.fit.preprocessor import Preprocessor
from patrac_native.fit.report import _curve, report_of
from patrac_native.fit.rows import FitData, Rows, TargetScaling
from patrac_native.fit.settings import Settings

QUICK: dict[str, Any] = {"architecture": "full", "thin": 5, "draws": 20, "chains": 2, "max_iter": 50}
QUICK |= {"hidden_layer_sizes": 8, "l2": 1.0, "random_state": 0, "n_jobs": 1}


def steps(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return n rows of two inputs, and a target that jumps twenty times along the first."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, (np.floor(X[:, 0] * 10) % 2) * 2 - 1 + 0.2 * X[:, 1] + 0.1 * rng.normal(size=n)


def test_bins_by_their_formula() -> None:
    """The formula by a loop over rows and bins, the moments of the rows, and the inverse, within and beyond them."""
    rng = np.random.default_rng(0)
    x = rng.gamma(2.0, size=(200, 2))
    inputs = np.column_stack([x[:, 0], rng.integers(0, 2, 200), x[:, 1]])
    made = Bins.fit(inputs, knots_of(inputs, 4))
    assert [len(knots) for knots in made.knots] == [5, 0, 5] and (made.number, made.n_binned) == (9, 2)
    assert np.allclose(made.knots[0], np.quantile(inputs[:, 0], [0, 0.25, 0.5, 0.75, 1]), rtol=1e-15)
    encoded = made.transform(inputs)
    for column, first in ((0, 0), (2, 5)):
        knots = made.knots[column]
        for t in range(4):
            raw = (inputs[:, column] - knots[t]) / (knots[t + 1] - knots[t])
            raw = np.array([min(max(one, 0.0), 1.0) for one in raw])
            assert np.allclose(encoded[:, first + t], (raw - raw.mean()) / raw.std(), rtol=1e-12, atol=1e-12)
    assert np.array_equal(encoded[:, 4], inputs[:, 1])
    # Beyond the rows the outermost inputs change by one for each mean width of a bin, and the others do not.
    beyond = np.array([[-5.0, 0.0, 40.0], [30.0, 1.0, -2.0]])
    raw = made.transform(beyond) * made.scale + made.mean
    low, high = made.knots[0][[0, -1]]
    width = (high - low) / 4
    assert np.allclose(raw[:, :4], [[(-5 - low) / width, 0, 0, 0], [1, 1, 1, 1 + (30 - high) / width]], atol=1e-12)
    for rows in (inputs, beyond):
        assert np.allclose(made.inverse(made.transform(rows)), rows, rtol=1e-12, atol=1e-12)
    # A row's inputs do not depend on the others, to the bit.
    assert np.array_equal(made.transform(inputs[7:8]), encoded[7:8])
    assert Bins.from_dict(json.loads(json.dumps(made.to_dict())), 3).to_dict() == made.to_dict()


def test_equal_values_share_a_bin_and_few_values_are_the_knots() -> None:
    """Most values are equal: fewer knots, all increasing; few values are knots, of which two make no bins."""
    rng = np.random.default_rng(1)
    mostly_zero = np.where(rng.uniform(size=500) < 0.8, 0.0, rng.uniform(size=500))
    months = rng.choice([1.0, 2.0, 4.0, 7.0], 500, p=[0.9, 0.05, 0.03, 0.02])
    nine, ten = (np.where(np.arange(500) < most, np.arange(500), 0) for most in (9, 10))
    inputs = np.column_stack([mostly_zero, months, rng.integers(0, 2, 500), nine, ten])
    made = Bins.fit(inputs, knots_of(inputs, 8))
    # As many values as knots are knots; of one more, hardly any row has another than the first.
    assert [len(knots) for knots in made.knots] == [3, 4, 0, 9, 0] and made.knots[0][0] == 0
    assert (np.diff(made.knots[0]) > 0).all() and made.knots[1].tolist() == [1, 2, 4, 7]
    # Each value of four is an input of 0 and 1 up to its scale: steps that add up.
    steps_of = made.transform(np.array([[0.0, 4.0, 0.0, 0.0, 0.0]])) * made.scale + made.mean
    assert np.allclose(steps_of[0, 2:5], [1, 1, 0])


def chosen(X: np.ndarray, y: np.ndarray, bins: int | str, **parameters: Any) -> tuple[Bins | None, str]:
    """Choose bins for the rows of a regression with normal noise."""
    units = TargetScaling.fit(y[:, None], None, standardize=True)
    data = FitData(Rows(X, units.transform(y[:, None])), None, 1, units)
    settings = Settings.of(PatracRegressor(random_state=0, n_jobs=1, **parameters).get_params(), "PatracRegressor")
    return choose_bins(data, Gaussian("sampled"), settings, bins)


@pytest.mark.slow
def test_bins_are_taken_where_they_predict_left_out_rows_better() -> None:
    """A target that jumps takes them; a smooth one does not, nor do too few rows or a fit without validation."""
    X, y = steps(1_000)
    made, text = chosen(X, y, "auto", max_iter=200)
    assert made is not None and made.n_binned == 2 and made.number == 32
    assert "left-out rows with an NLPD lower by" in text and text.endswith("and they are taken")
    smooth = X[:, 0] + 0.5 * X[:, 1] + 0.3 * np.random.default_rng(2).normal(size=1_000)
    made, text = chosen(X, smooth, "auto", max_iter=200)
    assert made is None and text.endswith("not taken")
    assert chosen(X[:999], y[:999], "auto") == (None, "")
    assert chosen(X, y, "auto", validation_fraction=0) == (None, "") == chosen(X, y, 0)


@pytest.mark.parametrize(("errors", "is_taken"), [(1.9, False), (2.1, True), (-2.1, False)])
def test_bins_must_gain_two_standard_errors(errors: float, is_taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 rows whose squared residuals differ by so many standard errors of their mean difference."""
    gains = np.random.default_rng(6).normal(size=1_000)
    gains += errors * gains.std(ddof=1) / np.sqrt(1_000) - gains.mean()
    y = np.full((1_000, 1), 10.0)
    residuals = iter([np.full(1_000, 5.0), np.sqrt(25.0 - 2 * gains)])  # of unit variance: half of the squares

    def fake(*_: Any) -> LeftOut:
        return LeftOut(Gaussian(1.0), y - next(residuals)[:, None], y, np.ones(1_000), 0.0)

    monkeypatch.setattr(bins_choice, "predict_left_out", fake)
    assert (chosen(*steps(1_000), "auto")[0] is not None) == is_taken


def test_bins_are_fewer_where_inputs_are_many() -> None:
    """Of 20 inputs 8 bins are tried, of 400 none; of categories there are none."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=1_000)
    assert "by at most 8 bins of each of 20 inputs" in chosen(rng.normal(size=(1_000, 20)), y, "auto", max_iter=2)[1]
    assert chosen(rng.normal(size=(1_000, 400)), y, "auto") == (None, "")
    assert chosen(rng.integers(0, 2, (1_000, 3)) * 1.0, y, "auto") == (None, "")
    assert chosen(rng.integers(0, 2, (50, 3)) * 1.0, y[:50], 4)[1].startswith("no input has more than two values")


def test_rows_that_agree_by_chance_are_no_copies() -> None:
    """Of two columns with few values many rows agree: their bins must neither hide nor make copies."""
    rng = np.random.default_rng(4)
    X, y = rng.integers(0, 12, (1_000, 2)) * 1.0, rng.integers(0, 5, 1_000) * 1.0
    rows = Rows(X, y)
    made = Bins.fit(X, knots_of(X, 16))
    binned = rows.binned(made)
    assert rows.copies() is None is binned.copies() and binned._replace(may_be_copies=True).copies() is not None
    twice = Rows(np.repeat(rng.normal(size=(500, 2)), 2, axis=0), np.repeat(rng.normal(size=500), 2))
    again = twice.binned(Bins.fit(twice.X, knots_of(twice.X, 16)))
    assert np.array_equal(twice.copies(), again.copies())
    # The comparison is of the same rows.
    assert "1,000 left-out rows" in chosen(X, y, "auto", max_iter=2)[1]


@pytest.mark.parametrize("made", [PatracRegressor, PatracClassifier])
def test_a_fit_by_default_compares_bins(made: type) -> None:
    """With weights, with few values of inputs and target, and with groups, of which two are too few to compare by."""
    rng = np.random.default_rng(5)
    X, y = rng.integers(0, 12, (1_000, 2)) * 1.0, rng.integers(0, 3, 1_000)
    quick = {**QUICK, "max_iter": 3}
    for given, lines in (({"sample_weight": rng.uniform(1, 2, 1_000)}, 1), ({"groups": np.arange(1_000) % 2}, 0)):
        with Note.collect():  # chains this short have not converged
            est = made(**quick).fit(X, y, **given)
        assert sum("bins of inputs" in line for line in est.report_.lines) == lines


@pytest.mark.parametrize("made", [PatracRegressor, PatracClassifier])
def test_a_fit_with_bins_is_saved_and_speaks_of_columns(made: type, tmp_path: Path) -> None:
    X, y = steps(120)
    y = y if made is PatracRegressor else np.where(y > 0, "high", "low")
    with Note.collect():  # chains this short have not converged
        est = made(bins=4, **QUICK).fit(X, y)
    before = est.preprocessor_
    assert before.names == ["0", "1"] and before.n_inputs == 8 == est.posterior_.network.net.layer_sizes[0]
    assert "at most 4 bins of each of 2 inputs, as asked" in est.report_.lines
    assert np.allclose(before.in_units(before.transform(X)), X)
    est.save(tmp_path / "est.npz")
    again = made.load(tmp_path / "est.npz")
    assert np.array_equal(again.predict(X), est.predict(X))
    content = json.loads(json.dumps(before.to_dict()))
    bins = content["encoding"]["bins"]
    first, second = bins["knots"]
    wrong = [("knots", [first]), ("knots", [first[::-1], second]), ("knots", [first[:2], second])]
    wrong += [("mean", bins["mean"][1:]), ("scale", [0.0] * 8), ("scale", [float("nan")] * 8)]
    for name, values in wrong:
        with pytest.raises(ValueError, match="preprocessing is damaged"):
            Preprocessor.from_dict({**content, "encoding": {"bins": {**bins, name: values}}})


def test_bins_and_components_exclude_each_other() -> None:
    """Both asked for is an error that names them; bins that are asked for go without a comparison of components."""
    X, y = steps(60)
    with pytest.raises(ValueError, match="pca=2 and bins=4 both take the place"):
        PatracRegressor(pca=2, bins=4, **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="'bins' parameter"):
        PatracRegressor(bins=1, **QUICK).fit(X, y)
    with Note.collect():  # chains this short have not converged
        collinear = np.column_stack([X[:, 0], X[:, 0] + 1e-3 * X[:, 1], X[:, 0] - 1e-3 * X[:, 1]])
        reg = PatracRegressor(bins=4, **QUICK).fit(collinear, y)
    assert isinstance(reg.preprocessor_.encoding, Bins)


def test_a_report_shows_columns_and_not_bins() -> None:
    """Effects, residuals and, of one input, the curve are over the columns of the table, in their units."""
    X, y = steps(120)
    X = 100 + 10 * X
    with Note.collect():  # chains this short have not converged
        one, two = (
            PatracRegressor(bins=4, **QUICK).fit(inputs[:90], y[:90], held_out=(inputs[90:], y[90:]))
            for inputs in (X[:, :1], X)
        )
    ((figure, text),) = _curve(one, "y")
    low, high = figure.axes[0].lines[0].get_xdata()[[0, -1]]
    assert np.allclose([low, high], [X[:90, 0].min(), X[:90, 0].max()]) and "over 0, the only input" in text
    shown = report_of(two, two.result_.evaluation, name="steps", target="y").html()
    assert "exchanging the values of a column between rows" in shown and "at most 4 bins" in shown
