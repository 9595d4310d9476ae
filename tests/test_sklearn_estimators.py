"""The estimators of scikit-learn: frames and arrays, predictions, files, messages, and what its users expect."""

from __future__ import annotations

import pickle
import warnings
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import patrac_native as pn
from fits import quietly
from patrac_native.cli.main import main
from patrac_native.diagnostics import split_rows
from patrac_native.fit import base
from patrac_native.fit.evaluation import members_of
from patrac_native.training import penalty_search

SMALL: dict[str, Any] = {
    "hidden_layer_sizes": (6,),
    "max_iter": 150,
    "l2": 0.3,
    "chains": 2,
    "draws": 60,
    "thin": 10,
    "warmup": 1000,
    "random_state": 3,
}
FULL = {**SMALL, "architecture": "full"}
Array = npt.NDArray[Any]


def rows(n: int = 90) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(n, 3)) * [1, 10, 0.1] + [0, 50, 2], 3)
    return X, np.round(20 + 4 * np.sin(X[:, 0]) + 0.3 * X[:, 1] + rng.normal(size=n), 3)


@pytest.fixture(scope="module")
def fitted() -> pn.PatracRegressor:
    return quietly(pn.PatracRegressor(**FULL), *rows())


@pytest.fixture(scope="module")
def labelled() -> tuple[pn.PatracClassifier, pd.DataFrame]:
    X, y = rows(120)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    labels = np.array(["low", "middle", "high"], dtype=object)[np.digitize(y, [33, 37])]
    return quietly(pn.PatracClassifier(**{**SMALL, "k": 3}), frame, labels), frame.assign(y=labels)


def test_intervals_quantiles_and_moments_are_those_of_one_distribution(fitted: pn.PatracRegressor) -> None:
    X, y = rows()
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_array_equal(fitted.predict(X), mean)
    lower, upper = fitted.predict_interval(X, coverage=0.8)
    quantiles = fitted.predict_quantiles(X, [0.1, 0.5, 0.9])
    # The search for a quantile ends with steps below 1e-10 of the scale of the noise.
    np.testing.assert_allclose(quantiles[:, [0, 2]], np.stack([lower, upper], axis=1), rtol=0, atol=1e-10 * y.std())
    assert (np.diff(quantiles, axis=1) > 0).all()
    parts = fitted.predict_uncertainty(X)
    np.testing.assert_allclose(parts.total, std**2, rtol=1e-12)
    np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total, rtol=1e-12)
    assert (parts.epistemic > 0).all()
    # The mean noise variance is that of the draws in the units of y: one number for all rows.
    noise = fitted.draws_.stats["variance"].mean() * np.std(y) ** 2
    np.testing.assert_allclose(parts.aleatoric, noise, rtol=1e-6)
    # Samples: each standard error is that of independent noise around the draws, of which 120 are used once each.
    samples = fitted.sample_y(X, 120, random_state=1)
    assert samples.shape == (len(X), 120)
    assert stats.kstest((samples.mean(axis=1) - mean) / std * np.sqrt(120), "norm").statistic < 0.25
    below = (samples < quantiles[:, [0]]).mean()
    assert abs(below - 0.1) < 4 * np.sqrt(0.1 * 0.9 / 120)
    np.testing.assert_array_equal(fitted.sample_y(X, 2, random_state=1), samples[:, :2])
    many = fitted.sample_y(X[:2], 300)
    # A draw that is used again has noise of its own.
    assert many.shape == (2, 300) and all(len(np.unique(row)) == 300 for row in many)
    assert 0.7 < fitted.score(X, y) < 1
    with pytest.raises(ValueError, match="coverage must be between 0 and 1; got 90"):
        fitted.predict_interval(X, 90)
    with pytest.raises(ValueError, match="quantiles must be between 0 and 1; got 5"):
        fitted.predict_quantiles(X, 5)


def test_string_labels_and_data_frames(labelled: tuple[pn.PatracClassifier, pd.DataFrame]) -> None:
    clf, table = labelled
    X = table[["a", "b", "c"]]
    assert clf.classes_.tolist() == ["high", "low", "middle"] and clf.feature_names_in_.tolist() == ["a", "b", "c"]
    p = clf.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert (clf.predict(X) == clf.classes_[p.argmax(axis=1)]).all() and clf.score(X, table.y) > 0.7
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X)), p, rtol=1e-12)
    total, aleatoric, epistemic = clf.predict_uncertainty(X)
    np.testing.assert_allclose(total, aleatoric + epistemic, atol=1e-12)
    np.testing.assert_allclose(total, stats.entropy(p, axis=1), atol=1e-6)
    drawn = clf.sample_y(X, 120)
    share = (drawn == "low").mean()
    assert drawn.shape == (120, 120) and abs(share - p[:, 1].mean()) < 0.02
    scores = clf.evaluate(X, table.y).scores
    assert scores["accuracy"] == pytest.approx(clf.score(X, table.y)) and scores["nlpd"] <= scores["nll"]
    # Columns are matched by name.
    np.testing.assert_array_equal(clf.predict_proba(X[["b", "a", "c"]]), p)
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(X.rename(columns={"b": "d"}))
    with pytest.raises(ValueError, match="y has the unknown class 'huge' in row 3"):
        clf.evaluate(X, table.y.mask(table.index == 3, "huge"))


def frame_of(n: int = 150) -> tuple[pd.DataFrame, Array]:
    """A table with a key, a category, a code, missing values and a constant column."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"key": [f"k{i:04d}" for i in range(n)], "width": rng.normal(size=n).round(3)})
    frame["colour"] = rng.choice(["red", "green", "blue"], n)
    frame["code"] = rng.integers(1, 4, n)
    frame["depth"] = np.where(rng.uniform(size=n) < 0.2, np.nan, rng.normal(size=n).round(3))
    frame["one"] = 1.0
    level = (frame.colour == "red") - 2.0 * (frame.code == 2) + np.sin(frame.width)
    return frame, (level + 0.2 * rng.normal(size=n)).to_numpy().round(3)


TABLE: dict[str, Any] = {"ids": ["key"], "categorical": ["code"], "impute": "median", "missing_indicator": True}


def test_frames_with_categories_and_missing_values(tmp_path: Path) -> None:
    frame, y = frame_of()
    reg = quietly(pn.PatracRegressor(**FULL, **TABLE), frame, y)
    names = reg.preprocessor_.names
    assert [n for n in names if "colour" in n or "code" in n] == [
        *(f"colour={c}" for c in ("blue", "green", "red")),
        *(f"code={c}" for c in (1, 2, 3)),
    ]
    assert not any("key" in n or "one" in n for n in names) and len(names) == 9
    mean = reg.predict(frame)
    assert np.corrcoef(mean, y)[0, 1] > 0.8
    reg.save(tmp_path / "t")
    np.testing.assert_array_equal(pn.PatracRegressor.load(tmp_path / "t").predict(frame), mean)
    # An unknown category, and values outside of what the fit has seen, are remarked on.
    new = frame.head(3).assign(colour=["pink", "red", "red"], width=[0.0, 99.0, 0.0])
    remarks = reg.preprocessor_.remarks(new)
    assert "colour" in remarks[0] and "width" in remarks[1] and not remarks[2]
    assert np.isfinite(reg.predict(new)).all()
    with pytest.raises(ValueError, match="depth"):
        quietly(pn.PatracRegressor(**FULL, ids=["key"]), frame, y)
    with pytest.raises(ValueError, match="key"):
        quietly(pn.PatracRegressor(**FULL, impute="median"), frame, y)
    with pytest.raises(ValueError, match="NaN"):
        quietly(pn.PatracRegressor(**FULL), frame[["depth"]].to_numpy(), y)
    array = quietly(pn.PatracRegressor(**FULL, impute="mean", categorical=[1]), frame[["depth", "code"]].to_numpy(), y)
    assert array.posterior_.data.X.shape == (150, 4)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_fit_has_the_draws_of_the_command(task: str, tmp_path: Path) -> None:
    """The automatic choice, categories and missing values included: the same networks and draws, to the bit."""
    frame, y = frame_of()
    target = y if task == "regression" else np.where(y > 0, "up", "down")
    frame.assign(y=target).to_csv(tmp_path / "t.csv", index=False)
    command = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--task", task, "--test-fraction", "0"]
    columns = ["--ids", "key", "--categorical", "code", "--impute", "median", "--missing-indicator"]
    size = "--hidden-layer-sizes 8 --max-iter 60 --l2 1 --minutes 0.001 --chains 2 --draws 60 --random-state 5".split()
    assert main([*command, *columns, *size, "--out", str(tmp_path / "run")]) == 0
    kind = pn.PatracRegressor if task == "regression" else pn.PatracClassifier
    given = {"hidden_layer_sizes": 8, "max_iter": 60, "l2": 1, "minutes": 0.001, "chains": 2, "draws": 60}
    est = quietly(kind(**given, **TABLE, random_state=5), frame, target)
    of_command = kind.load(tmp_path / "run" / "estimator.npz")
    assert members_of(est.draws_)[0].network.net.layer_sizes[0] == 9
    for one, other in zip(members_of(of_command.draws_), members_of(est.draws_), strict=True):
        np.testing.assert_array_equal(one.theta, other.theta)
    assert of_command.report_.verdict == est.report_.verdict
    read = pd.read_csv(tmp_path / "t.csv", dtype={"key": str, "code": str}).drop(columns="y")
    np.testing.assert_array_equal(of_command.predict(read), est.predict(frame))


@pytest.mark.parametrize("kind", ["held out", "validation", "leave one out"])
def test_scores_are_of_rows_that_were_left_out(kind: str) -> None:
    X, y = rows(120 if kind != "validation" else 600)
    size = {**FULL, "thin": 2, "max_iter": 30}
    if kind == "validation":
        size = {"hidden_layer_sizes": 3, "max_iter": 20, "l2": 1.0, "minutes": 0.003, "random_state": 0, "draws": 40}
    held_out = (X[:40], y[:40]) if kind == "held out" else None
    reg = quietly(pn.PatracRegressor(**size), X[40:], y[40:], held_out=held_out)
    assert reg.report_.scores["kind"] == kind
    if kind == "held out":
        again = reg.evaluate(*held_out)
        # The networks at which the chains started are an ensemble in the report.
        same = [name for name in again.scores if not name.endswith("network")]
        assert [again.scores[name] for name in same] == [reg.report_.scores[name] for name in same]
        assert again.arrays["y"] == pytest.approx(y[:40])
        assert again.scores["rmse"] == pytest.approx(np.sqrt(np.mean((reg.predict(X[:40]) - y[:40]) ** 2)))
        lower, upper = reg.predict_interval(X[:40], 0.9)
        assert again.scores["coverage"]["0.9"] == np.mean((lower <= y[:40]) & (y[:40] <= upper))
        weighted = reg.evaluate(*held_out, sample_weight=np.where(np.arange(40) < 20, 1.0, 1e-9)).scores["rmse"]
        assert weighted == pytest.approx(reg.evaluate(X[:20], y[:20]).scores["rmse"], rel=1e-6)
    else:
        scores = reg.evaluate().scores
        assert scores["kind"] == "leave one out" and scores["unreliable_rows"] >= 0
    with pytest.raises(ValueError, match="y must have 1 targets, as in the fit; got 2"):
        reg.evaluate(X, np.stack([y, y], axis=1))


def test_several_targets_have_their_own_units_and_noise() -> None:
    X, y = rows()
    rng = np.random.default_rng(1)
    Y = np.column_stack([y, 1000 * (X[:, 0] + rng.normal(size=len(y)))])
    reg = quietly(pn.PatracRegressor(**FULL), X, Y)
    mean, std = reg.predict(X, return_std=True)
    assert mean.shape == std.shape == Y.shape and reg.n_outputs_ == 2
    lower, upper = reg.predict_interval(X, 0.9)
    inside = ((lower <= Y) & (Y <= upper)).mean(axis=0)
    # Three standard errors of the coverage of 90 rows.
    assert (np.abs(inside - 0.9) < 3 * np.sqrt(0.09 / len(y))).all()
    noise = reg.predict_uncertainty(X).aleatoric.mean(axis=0)
    assert 0.5 < noise[0] < 2 and 0.5e6 < noise[1] < 2e6
    assert reg.predict_quantiles(X, [0.5]).shape == (len(y), 2, 1)
    assert reg.sample_y(X, 4).shape == (len(y), 2, 4)
    assert len(reg.evaluate(X, Y).scores["rmse"]) == 2
    column = quietly(pn.PatracRegressor(**FULL), X, y[:, None])
    assert column.predict(X).shape == (len(y), 1)
    assert "coverage of 90% intervals" in str(reg.report_)


def test_files_and_pickles_predict_to_the_bit(
    fitted: pn.PatracRegressor, labelled: tuple[pn.PatracClassifier, pd.DataFrame], tmp_path: Path
) -> None:
    X, y = rows()
    fitted.save(tmp_path / "reg")
    assert b"pickle" not in (tmp_path / "reg").read_bytes()
    for loaded in (pn.PatracRegressor.load(tmp_path / "reg"), pickle.loads(pickle.dumps(fitted))):
        for one, other in zip(fitted.predict_interval(X), loaded.predict_interval(X), strict=True):
            np.testing.assert_array_equal(one, other)
        assert str(loaded.report_) == str(fitted.report_) and str(loaded) == str(fitted)
        assert loaded.get_params() == fitted.get_params() and loaded.n_iter_ == fitted.n_iter_
        assert loaded.evaluate(X, y).scores == fitted.evaluate(X, y).scores
        with pytest.raises(AttributeError, match=r"posterior_ is not part of the files and pickles.*fit again"):
            _ = loaded.posterior_
    assert len(fitted.posterior_.data.X) == len(X)
    clf, table = labelled
    clf.save(tmp_path / "clf")
    loaded = pn.PatracClassifier.load(tmp_path / "clf")
    np.testing.assert_array_equal(loaded.predict(table[["a", "b", "c"]]), clf.predict(table[["a", "b", "c"]]))
    with pytest.raises(ValueError, match=r"holds a PatracClassifier; read it with PatracClassifier\.load"):
        pn.PatracRegressor.load(tmp_path / "clf")
    with pytest.raises(ValueError):
        pn.Draws.load(tmp_path / "clf")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        clf.save(tmp_path / "clf")
    for method in ("predict", "predict_interval", "predict_quantiles", "sample_y", "predict_uncertainty", "evaluate"):
        with pytest.raises(NotFittedError):
            getattr(pn.PatracRegressor(), method)(X)
    for method in ("predict", "predict_proba", "sample_y", "predict_uncertainty"):
        with pytest.raises(NotFittedError):
            getattr(pn.PatracClassifier(), method)(X)
    with pytest.raises(NotFittedError):
        pn.PatracRegressor().save(tmp_path / "no")


def test_parameters_that_are_objects_are_part_of_files(tmp_path: Path) -> None:
    X, y = rows()
    given = {**FULL, "likelihood": pn.StudentT(4.0, 2.0), "kernel": pn.PCNL(0.1), "warmup": pn.paper_warmup()}
    reg = quietly(pn.PatracRegressor(**{**given, "warmup": 500}), X, y)
    assert reg.draws_.settings["kernel"]["name"] == "pcnl" and reg.draws_.settings["warmup_steps"] == 500
    # The scale is given in the units of y.
    assert reg.draws_.likelihood.scale == pytest.approx(2.0 / np.std(y))
    reg.set_params(**given).save(tmp_path / "t")
    copy = pn.PatracRegressor.load(tmp_path / "t")
    assert {name: str(value) for name, value in copy.get_params().items()} == {
        name: str(value) for name, value in reg.get_params().items()
    }


def test_likelihoods_by_name_and_as_objects() -> None:
    X, y = rows()
    named = quietly(pn.PatracRegressor(noise_variance=4.0, **FULL), X, y)
    np.testing.assert_allclose(named.predict_uncertainty(X).aleatoric, 4.0, rtol=1e-9)
    given = quietly(pn.PatracRegressor(likelihood=pn.Gaussian(4.0), **FULL), X, y)
    np.testing.assert_array_equal(named.predict(X), given.predict(X))
    varying = quietly(pn.PatracRegressor(likelihood="heteroscedastic", **FULL), X, y)
    assert np.ptp(varying.predict_uncertainty(X).aleatoric) > 0
    two = np.column_stack([y, 1000 * y])
    with pytest.raises(ValueError, match="one variance for targets that are standardised by different scales"):
        pn.PatracRegressor(likelihood=pn.Gaussian("sampled", pooled=True), **FULL).fit(X, two)
    with pytest.raises(TypeError, match=r"likelihood must be one of numbers.*PatracClassifier"):
        pn.PatracRegressor(likelihood=pn.Categorical(), **FULL).fit(X, y)
    with pytest.raises(TypeError, match=r"likelihood must be Categorical\(\)"):
        pn.PatracClassifier(likelihood=pn.Gaussian(1.0), **FULL).fit(X, y > 35)


def test_targets_of_which_bounds_are_known(tmp_path: Path) -> None:
    X, t = rows()
    end = np.random.default_rng(1).normal(37, 4, len(t))
    bounds = np.stack([np.minimum(t, end), np.where(t < end, t, np.inf)], axis=1)
    reg = quietly(pn.PatracRegressor(likelihood="censored", **FULL), X, bounds)
    # As where all are known, and better than where the ends are taken for the targets.
    errors = [
        np.sqrt(np.mean((one.predict(X) - t) ** 2))
        for one in (reg, *(quietly(pn.PatracRegressor(likelihood="gaussian", **FULL), X, y) for y in (t, bounds[:, 0])))
    ]
    assert errors[0] < 1.7 * errors[1] and errors[0] < 0.8 * errors[2]
    scores = reg.evaluate(X, bounds).scores
    assert 0.8 < scores["coverage"]["0.9"] < 1 and np.isfinite(scores["nlpd"])
    reg.save(tmp_path / "c")
    assert pn.PatracRegressor.load(tmp_path / "c").evaluate(X, bounds).scores == scores
    with pytest.raises(
        ValueError, match=r"y must have shape \(n, 2\), or \(n, t, 2\) for t targets; got \(90,\); of times"
    ):
        pn.PatracRegressor(likelihood="censored", **FULL).fit(X, t)


def test_missing_labels_of_groups_are_no_group() -> None:
    X, y = rows(20)
    for groups in ([*"ab" * 9, None, np.nan], pd.Series([*"ab" * 9, pd.NA, None]), np.r_[np.ones(18), np.nan, np.nan]):
        with pytest.raises(ValueError, match=r"groups has no label at row 18 \(counted from 0; 2 in all\)"):
            pn.PatracRegressor(**FULL).fit(X, y, groups=groups)


def test_times_with_events(tmp_path: Path) -> None:
    """They are fitted by their bounds, in log y; every faulty event is refused by name."""
    X, t = rows()
    t, end = np.exp(t / 20), np.exp(np.random.default_rng(1).normal(37, 4, len(t)) / 20)
    time, event = np.minimum(t, end), t < end
    bounds = np.stack([time, np.where(event, time, np.inf)], axis=1)
    reg = quietly(
        pn.PatracRegressor(**FULL), X[:70], time[:70], event=event[:70], held_out=(X[70:], time[70:], event[70:])
    )
    same = pn.PatracRegressor(likelihood="censored", log_target=True, **FULL)
    quietly(same, X[:70], bounds[:70], held_out=(X[70:], bounds[70:]))
    np.testing.assert_array_equal(reg.predict(X), same.predict(X))
    assert reg.report_.scores == same.report_.scores and reg.target_scaling_.log
    assert reg.score(X, time, event=event) == same.score(X, bounds) == -reg.evaluate(X, bounds).scores["nlpd_in_units"]
    assert any(f"; {(~event[:70]).sum()} of 70 are censored" in line for line in reg.report_.lines)
    reg.save(tmp_path / "t")
    assert pn.PatracRegressor.load(tmp_path / "t").score(X, time, event=event) == reg.score(X, time, event=event)
    later = reg.predict_survival_function(X, [1.0, 5.0, 50.0])
    assert later.shape == (len(t), 3) and (np.diff(later) < 0).all()
    median = reg.predict_quantiles(X[:5], 0.5)[:, 0]
    for row, value in enumerate(median):
        assert reg.predict_survival_function(X[[row]], value) == pytest.approx(0.5, abs=1e-9)
    grid = reg.predict_survival_function(X, np.linspace(-1.0, 50.0, 52))
    assert (grid[:, :2] == 1).all()  # every time is later than -1 and 0
    np.testing.assert_array_equal(grid[:, [2, 6, 51]], later)
    for wrong in ([1.0, np.nan], [], ["soon"]):
        with pytest.raises(ValueError, match="times must be finite numbers"):
            reg.predict_survival_function(X, wrong)
    given = (
        pn.PatracRegressor(noise_variance=9.0, **FULL),
        pn.PatracRegressor(likelihood=pn.CensoredGaussian(9.0), **FULL),
    )
    for one in given:  # in the units of y squared
        assert not quietly(one, X, time, event=event).target_scaling_.log
    zero = quietly(pn.PatracRegressor(**FULL), X, time - time.min(), event=np.ones(len(t)))
    assert not zero.target_scaling_.log  # log 0 is no time
    for arguments, message in (
        ({"event": np.where(event, 1, 3)}, r"event must be 1 or True .* got 3 at row"),
        ({"event": ["yes"] * len(t)}, r"event must be 1 or True .* got yes at rows 0, 1, 2 and 87 more"),
        ({"event": event[:5]}, r"event must have one entry for each of the times y, \(n,\); got shapes \(5,\)"),
        ({"event": np.zeros(len(t))}, r"y has no bound above in any row.*Give rows that are not censored, of times"),
        ({"event": event[:, None]}, r"event must have one entry .* got shapes \(90, 1\)"),
        ({"event": pd.DataFrame({"event": event})}, r"event must have one entry .* got shapes \(90, 1\)"),
        ({"event": event, "held_out": (X, time)}, r"held_out must be \(X, y, event\)"),
        ({"event": event, "held_out": (X, time, event + 2)}, r"held_out: event must be 1 or True .* got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            pn.PatracRegressor(**FULL).fit(X, time, **arguments)
    with pytest.raises(ValueError, match="event belongs to likelihood='censored', and likelihood is 'gaussian'"):
        pn.PatracRegressor(likelihood="gaussian", **FULL).fit(X, time, event=event)


def test_counts_are_in_proportion_to_their_exposure() -> None:
    X, _ = rows(120)
    days = np.random.default_rng(2).integers(1, 9, len(X)).astype(float)
    counts = np.random.default_rng(0).poisson(days * np.exp(0.2 * X[:, 1] - 10))
    reg = quietly(pn.PatracRegressor(likelihood="poisson", **FULL), X, counts, exposure=days)
    frame = pd.DataFrame(X, columns=[*"abc"]).assign(days=days)
    column = quietly(pn.PatracRegressor(likelihood="poisson", exposure="days", **FULL), frame, counts)
    np.testing.assert_array_equal(reg.draws_.theta, column.draws_.theta)
    np.testing.assert_allclose(column.predict(frame.assign(days=3 * days)), 3 * column.predict(frame), rtol=1e-6)
    more = reg.predict_survival_function(X, [0, 1e9, 0.5, -1], exposure=days)
    np.testing.assert_array_equal(more[:, 2:], np.stack([more[:, 0], np.ones(len(X))], axis=1))
    np.testing.assert_allclose(more[:, 0], 1 - reg._distribution(X, days).cdf(np.zeros((len(X), 1)))[:, 0], atol=1e-12)
    assert (more[:, 1] < 1e-6).all()
    lower, upper = reg.predict_interval(X, 0.9, exposure=days)
    assert (lower % 1 == 0).all() and ((lower <= counts) & (counts <= upper)).mean() > 0.8
    assert (reg.predict(X, exposure=days) > 0).all() and (reg.sample_y(X, 2, exposure=days) % 1 == 0).all()
    scores = [one.evaluate(rows, counts, exposure=given).scores for one, rows, given in (
        (reg, X, days), (column, frame, None))]  # fmt: skip
    assert scores[0] == scores[1]
    with pytest.raises(ValueError, match="exposure must be positive; got 0 in row 2"):
        reg.predict(X[:3], exposure=[1.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="exposure belongs to a likelihood of counts"):
        pn.PatracRegressor(**FULL).fit(X, counts, exposure=days)
    for method in (reg.score, reg.evaluate):
        with pytest.raises(ValueError, match="event belongs to a fit of likelihood='censored'"):
            method(X, counts, event=np.ones(len(X)))


def test_the_dispersion_of_counts_is_estimated() -> None:
    X, _ = rows(120)
    counts = np.random.default_rng(0).negative_binomial(2, 0.2, len(X))
    reg = quietly(pn.PatracRegressor(likelihood="negative-binomial", **FULL), X, counts)
    assert 0.1 < reg.draws_.likelihood.dispersion < 2
    assert "the most likely one on 120 training rows around networks of the others" in str(reg.report_)
    given = quietly(pn.PatracRegressor(likelihood="negative-binomial", dispersion=0.3, **FULL), X, counts)
    assert given.draws_.likelihood.dispersion == 0.3
    with pytest.raises(ValueError, match=r"80 training rows are too few to estimate the dispersion.*give dispersion"):
        quietly(pn.PatracRegressor(likelihood="negative-binomial", **FULL), X[:80], counts[:80])


def test_without_scaling_rows_reach_the_network_as_they_are() -> None:
    X, y = rows()
    reg = quietly(pn.PatracRegressor(standardize=False, **FULL), X, y)
    np.testing.assert_array_equal(reg.posterior_.data.X, X)
    np.testing.assert_array_equal(reg.posterior_.data.y[:, 0], y)
    assert "y: as it is" in str(reg.report_)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pipelines_grid_search_and_cross_validation() -> None:
    X, y = rows()
    model = make_pipeline(StandardScaler(), pn.PatracRegressor(**SMALL))
    search = GridSearchCV(model, {"patracregressor__k": [1, 3]}, cv=3).fit(X, y)
    best = search.best_estimator_[-1]
    assert best.posterior_.network.architecture == pn.Mix(search.best_params_["patracregressor__k"])
    assert search.best_score_ > 0.5
    scores = cross_val_score(pn.PatracRegressor(**FULL), X, y, cv=3)
    assert scores.shape == (3,) and (scores > 0.5).all()
    copy = clone(pn.PatracRegressor(likelihood=pn.Gaussian(4.0), **FULL))
    assert copy.likelihood == pn.Gaussian(4.0) and not hasattr(copy, "draws_")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_row_weights_are_routed() -> None:
    import sklearn

    X, y = rows()
    weights = np.where(np.arange(len(y)) < 60, 1.0, 1e-6)
    with sklearn.config_context(enable_metadata_routing=True):
        reg = pn.PatracRegressor(**FULL).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        fitted = make_pipeline(scaler, reg).fit(X, y, sample_weight=weights)[-1]
    assert fitted.result_.data.training.sample_weight.sum() == pytest.approx(weights.sum())


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_rows_of_a_group_are_in_one_part_of_every_split(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows of each patient, whose copies would else tell of the rows that are left out."""
    X, y = rows(300)
    groups = np.array([f"p{row % 30}" for row in range(300)])
    splits: list[Any] = []

    def split(n: int, *arguments: Any, **named: Any) -> Any:
        parts = split_rows(n, *arguments, **named)
        splits.append((n, [set(np.asarray(named["groups"])[part].tolist()) for part in parts]))
        return parts

    monkeypatch.setattr(pn.diagnostics, "split_rows", split)
    monkeypatch.setattr(penalty_search, "split_rows", split)
    kind = pn.PatracRegressor if task == "regression" else pn.PatracClassifier
    given = {"hidden_layer_sizes": 3, "max_iter": 5, "minutes": 0.002, "random_state": 0, "draws": 40}
    weights = np.where(np.arange(300) < 10, 0.0, 1.0)
    made = quietly(kind(**given), X, y if task == "regression" else y > np.median(y), weights, groups=groups)
    # Rows are left out for the penalty, in five parts, and for the noise or the posterior, in two.
    assert {n for n, _ in splits} >= {290} and {len(parts) for _, parts in splits} == {2, 5}
    assert all(sum(map(len, parts)) == len(set.union(*parts)) for _, parts in splits)
    assert made.evaluate().scores["too_good"]
    with pytest.raises(ValueError, match=r"groups must have shape \(300,\)"):
        kind(**given).fit(X, y > 0, groups=groups[:9])


def test_intervals_through_a_pipeline_and_a_transformed_target() -> None:
    """As docs/estimators.md has it: the last step of a pipeline, and the ends of intervals transformed back."""
    X, y = rows()
    cost = np.exp(y)
    pipe = quietly(make_pipeline(StandardScaler(), pn.PatracRegressor(**FULL)), X, y)
    mean, sd = pipe.predict(X, return_std=True)
    lower, upper = pipe[-1].predict_interval(pipe[:-1].transform(X), 0.9)
    assert ((lower < mean) & (mean < upper) & (sd > 0)).all() and 0.7 < ((lower <= y) & (y <= upper)).mean() <= 1
    of_log = TransformedTargetRegressor(pn.PatracRegressor(**FULL), func=np.log, inverse_func=np.exp)
    quietly(of_log, X, cost)
    ends = of_log.regressor_.predict_interval(X, 0.9)
    lower, upper = (of_log.transformer_.inverse_transform(end[:, None])[:, 0] for end in ends)
    assert (0 < lower).all() and 0.7 < ((lower <= cost) & (cost <= upper)).mean() <= 1
    median = np.exp(of_log.regressor_.predict_quantiles(X, [0.5])[:, 0])
    assert ((lower < median) & (median < upper)).all()


def test_a_fit_that_has_not_converged_warns_with_a_remedy() -> None:
    X, y = rows()
    short = pn.PatracRegressor((30, 30), architecture="full", l2=0.3, max_iter=50, minutes=0.0005, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"(?s)PatracRegressor: the chains have not converged.*minutes=0\.0"):
        short.fit(X, y)
    assert not short.report_.converged and "thin=" not in str(short.report_.verdict)
    given = clone(short).set_params(thin=1, draws=20)
    with pytest.warns(ConvergenceWarning, match=r"run longer, thin=\d+"):
        given.fit(X, y)


def test_a_poor_training_is_told_in_parameters_of_the_estimator() -> None:
    X, y = rows()
    y = np.random.default_rng(0).normal(size=len(y))
    with pytest.warns(UserWarning, match=r"constant predictor.* Raise max_iter, or lower l2\.$"):
        pn.PatracRegressor(**{**FULL, "l2": 1e6, "max_iter": 3, "validation_fraction": 0}).fit(X, y)
    y = np.random.default_rng(1).normal(size=len(y))  # of which validation rows learn nothing at either penalty
    for given, words in (
        ({"l2": 1e3}, "Lower l2, or leave it out"),
        ({"l2": None}, "Give inputs that say more about y."),
    ):
        with pn.Note.collect() as notes:
            pn.PatracRegressor(**{**FULL, **given}).fit(X, y)
        told = [str(note) for note in notes if note.kind == "poor fit"]
        assert told and all(words in text for text in told), given


def test_a_fit_prints_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = rows()
    reg = quietly(pn.PatracRegressor(**FULL), X, y)
    assert capsys.readouterr() == ("", "")
    quietly(pn.PatracRegressor(verbose=True, **FULL), X, y)
    said = capsys.readouterr().out
    assert "training [3, 6, 1] tanh" in said and "sampling Full" in said
    # The wall-clock times of the two fits differ.
    told = [
        line
        for line in said.splitlines()
        if not any(word in line for word in ("time:", "steps/s", "per second")) and " s" not in line[-2:]
    ]
    assert set(told) <= set(str(reg.report_).splitlines()) and "verdict: " in said
    assert reg._repr_html_() if hasattr(reg, "_repr_html_") else reg._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"minutes": 0}, ValueError, r"'minutes' .*range \(0.*Got 0"),
        ({"max_iter": 0}, ValueError, r"'max_iter' .*\[1, inf\).*Got 0"),
        ({"hidden_layer_sizes": ()}, ValueError, r"^hidden_layer_sizes must be a positive integer, or one for each"),
        ({"hidden_layer_sizes": "50"}, TypeError, r"'hidden_layer_sizes' .*Got '50'"),
        ({"hidden_layer_sizes": (10**12, 10**12)}, ValueError, r"hidden_layer_sizes=.* are too large"),
        ({"k": 9, "hidden_layer_sizes": 6}, ValueError, r"^k must be .*got 9 for .* 6 nodes.*hidden_layer_sizes"),
        ({"k": (1, 2, 3)}, ValueError, r"^k must be one number, or one for each of the 2 .*got \[1, 2, 3\]"),
        ({"architecture": "full", "k": 3}, ValueError, r"^k has no meaning for architecture='full'"),
        ({"architecture": "all"}, ValueError, r"'architecture' .*Got 'all'"),
        ({"prior": "gaussian", "prior_alpha": 2.0}, ValueError, r"^prior_alpha=2.0 is the decay of prior='trace-cl"),
        ({"draws": 2.5}, TypeError, r"'draws' .*Got 2.5"),
        ({"draws": 10, "chains": 2, "k": 1}, ValueError, r"^draws must be at least 13 for 2 chains of each network"),
        ({"l2": "1"}, TypeError, r"'l2' .*Got '1'"),
        ({"warmup": "long"}, ValueError, r"'warmup' .*Got 'long'"),
        ({"n_jobs": 0}, ValueError, r"'n_jobs' .*Got 0"),
        ({"kernel": "nuts"}, ValueError, r"'kernel' .*Got 'nuts'"),
        ({"standardize": "X"}, TypeError, r"'standardize' .*Got 'X'"),
        ({"random_state": -1}, ValueError, r"'random_state' .*Got -1"),
        ({"likelihood": "laplace"}, ValueError, r"^likelihood must be one of .*gaussian.*got 'laplace'"),
        ({"df": 3.0}, ValueError, r"^df belongs to likelihood='student-t', and likelihood is None"),
        ({"dispersion": 1.0, "likelihood": "poisson"}, ValueError, r"^dispersion belongs to .*'negative-binomial'"),
        ({"impute": "mode"}, ValueError, r"'impute' .*Got 'mode'"),
        ({"drop": ["z"]}, ValueError, "z"),
    ],
)  # fmt: skip
def test_messages_name_parameters(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        pn.PatracRegressor(**{"l2": 1.0, "max_iter": 5, **given}).fit(*rows())
    assert "--" not in str(raised.value)


def test_refused_rows() -> None:
    X, y = rows()
    with pytest.raises(ValueError, match=r"8 training rows are too few to estimate the noise.*noise_variance"):
        pn.PatracRegressor(**FULL).fit(X[:8], y[:8])
    with pytest.raises(ValueError, match="y is 2 in every row"):
        pn.PatracRegressor(**FULL).fit(X, np.full(len(X), 2.0))
    for unit in (4.7e-201, 1e200):
        with pytest.raises(ValueError, match=r"y varies by .*, whose square float64 cannot hold; change its unit"):
            pn.PatracRegressor(**FULL).fit(X, unit * y)
        wide = quietly(pn.PatracRegressor(**FULL, noise_variance=1.0), X * unit, y)
        assert np.isfinite(wide.predict(X * unit)).all()
    with pytest.raises(ValueError, match="constant"):
        pn.PatracRegressor(**FULL).fit(np.ones((len(X), 2)), y)
    with pytest.raises(ValueError, match="y has one class only, 'a'"):
        pn.PatracClassifier(**SMALL).fit(X, np.full(len(X), "a"))


class Failing:
    """An array of another library, whose conversion fails."""

    def __array__(self, *_: object, **__: object) -> Any:
        raise KeyError("of its own")


def test_arrays_whose_conversion_fails_are_named(fitted: pn.PatracRegressor) -> None:
    X, y = rows()
    for made in (pn.PatracRegressor, pn.PatracClassifier):
        with pytest.raises(TypeError, match=r"^X must be an array of numbers; .*of its own"):
            made(**FULL).fit(Failing(), y)
        with pytest.raises(TypeError, match=r"^y must be an array of numbers; .*of its own"):
            made(**FULL).fit(X, Failing())
        with pytest.raises(TypeError, match=r"^y must be an array of numbers"):
            made(**FULL).fit(X, y > y.mean(), held_out=(X, Failing()))
    with pytest.raises(TypeError, match=r"^sample_weight must be an array of numbers"):
        pn.PatracRegressor(**FULL).fit(X, y, sample_weight=Failing())
    with pytest.raises(TypeError, match=r"^X must be an array of numbers"):
        fitted.predict(Failing())
    with pytest.raises(TypeError, match=r"^y must be an array of numbers"):
        fitted.evaluate(X, Failing())


def test_masked_entries_are_refused(fitted: pn.PatracRegressor) -> None:
    """scikit-learn would use the values behind a mask."""
    X, y = rows()
    hidden = np.ma.masked_array(X, X > 60)
    for call in (lambda: pn.PatracRegressor(**FULL).fit(hidden, y), lambda: fitted.predict(hidden)):
        with pytest.raises(ValueError, match=r"^X must not have masked entries; got \d+, the first at \["):
            call()
    with pytest.raises(ValueError, match=r"^y must not have masked entries"):
        pn.PatracRegressor(**FULL).fit(X, np.ma.masked_array(y, y > 36))
    with pytest.raises(ValueError, match=r"^sample_weight must not have masked entries"):
        pn.PatracRegressor(**FULL).fit(X, y, sample_weight=np.ma.masked_array(np.ones(len(y)), y > 36))


@pytest.mark.parametrize("likelihood", ["gaussian", "student-t", "heteroscedastic", "poisson", "classes"])
def test_the_bits_of_a_row_do_not_depend_on_the_others(likelihood: str) -> None:
    """One row, several and all: NumPy adds one column of draws in another order, and quantiles end each by itself."""
    X, y = rows()
    parameters = {**FULL, "max_iter": 20, "draws": 150, "thin": 1, "warmup": 50, "networks": 1, "prior": "gaussian"}
    if likelihood == "classes":
        made = quietly(pn.PatracClassifier(**parameters), X, y > 35)
        methods = [made.predict_proba, made.predict_uncertainty]
    else:
        targets = y.round() if likelihood == "poisson" else y
        made = quietly(pn.PatracRegressor(**parameters, likelihood=likelihood), X, targets)
        methods = [lambda X: made.predict(X, return_std=True), made.predict_interval, made.predict_uncertainty]
    for method in methods:
        together = np.stack(method(X))
        for rows_at_once in (1, 2, 7):
            for first in range(0, len(X), 13):
                part = slice(first, first + rows_at_once)
                of_part = np.stack(method(X[part]))
                wanted = together[part] if likelihood == "classes" and method == methods[0] else together[:, part]
                np.testing.assert_array_equal(of_part, wanted)


DAYS = np.datetime64("2020-01-01") + np.arange(90)
TIMES: dict[str, Any] = {
    **{unit: DAYS.astype(f"datetime64[{unit}]") for unit in ("D", "us", "ns")},
    "spans": DAYS - DAYS[0],
    "with a zone": pd.Series(DAYS).dt.tz_localize("UTC"),
    "stamps": pd.Series(DAYS).astype(object).to_numpy(),
    "dates": [day.date() for day in pd.Series(DAYS)],
    "periods": pd.Series(DAYS).dt.to_period("D"),
    "frame": pd.DataFrame({"day": DAYS}),
    "missing": np.array([pd.NaT, *range(89)], dtype=object),
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_dates_are_no_numbers(times: Any, fitted: pn.PatracRegressor) -> None:
    """As numbers they depend on their unit, which differs by a thousand between two tables; NaT is -9.2e18."""
    X, y = rows()
    column = times if isinstance(times, pd.DataFrame) else np.asarray(times).reshape(-1, 1)
    as_X = np.asarray(column) if isinstance(times, pd.DataFrame) else column
    made = pn.PatracRegressor(**FULL)
    for argument, call in (
        ("X", lambda: made.fit(as_X, y)),
        ("X", lambda: pn.PatracClassifier(**SMALL).fit(as_X, y > 35)),
        ("X", lambda: fitted.predict(np.repeat(as_X, 3, axis=1))),
        ("y", lambda: made.fit(X, times)),
        ("y", lambda: made.fit(X, y, held_out=(X, times))),
        ("y", lambda: fitted.evaluate(X, times)),
        ("sample_weight", lambda: made.fit(X, y, sample_weight=column[:, 0] if times is not TIMES["frame"] else times)),
        ("exposure", lambda: pn.PatracRegressor(**FULL, likelihood="poisson").fit(X, y.round(), exposure=times)),
    ):
        with pytest.raises(ValueError, match=f"^{argument}.* holds dates or times; give "):
            call()
    if times is not TIMES["missing"]:
        with pytest.raises(ValueError, match=r"^y holds dates or times; labels are numbers or text"):
            pn.PatracClassifier(**SMALL).fit(X, times)


@pytest.mark.parametrize("kind", [object, "U10", "string"])
def test_text_is_no_target(kind: Any) -> None:
    X, y = rows()
    texts = pd.Series(["2020-01-01"] * len(y), dtype=kind if kind == "string" else object)
    with pytest.raises(ValueError, match=r"^y must hold numbers: .*'2020-01-01'.*make numbers of text, such as days"):
        pn.PatracRegressor(**FULL).fit(X, texts if kind == "string" else texts.to_numpy(dtype=kind))


def test_tables_of_other_packages_are_frames() -> None:
    """Arrow tables are matched by name, in any order, with their categories; what cannot be read is refused."""
    X, y = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(town=np.where(X[:, 0] > 0, "Bonn", "Ulm"))
    made = quietly(pn.PatracRegressor(**FULL), frame, y)
    swapped = frame[frame.columns[::-1]]
    for as_table in (pyarrow.Table.from_pandas, pyarrow.RecordBatch.from_pandas):
        other = quietly(pn.PatracRegressor(**FULL), as_table(frame), y)
        assert other.preprocessor_.names == ["a", "b", "c", "town=Bonn", "town=Ulm"]
        for table in (as_table(frame), as_table(swapped), swapped):
            assert np.array_equal(other.predict(table), made.predict(frame))
            assert np.array_equal(made.predict(table), made.predict(frame))

    class Unreadable:
        columns = ("a", "b", "c")

        def __array__(self, *given: Any, **named: Any) -> Array:
            return X

    for call in (lambda: pn.PatracRegressor(**FULL).fit(Unreadable(), y), lambda: made.predict(Unreadable())):
        with pytest.raises(TypeError, match="X is a Unreadable, whose columns cannot be read"):
            call()


def test_a_fit_that_fails_changes_nothing() -> None:
    X, y = rows(60)
    fit = quietly(pn.PatracRegressor(**FULL), X, y)
    before = fit.predict(X)
    with pytest.raises(ValueError, match="held_out must be"):
        fit.fit(100 * X, 1e6 * y, held_out=(X, y, y))
    np.testing.assert_array_equal(fit.predict(X), before)
    with pytest.raises(NotFittedError):
        unfitted = pn.PatracRegressor(**FULL)
        with pytest.raises(ValueError, match="held_out must be"):
            unfitted.fit(X, y, held_out=X)
        unfitted.predict(X)


def test_the_exposure_of_new_frames_is_found_by_name() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=80), "hours": rng.uniform(1, 9, 80)})
    y = rng.poisson(frame["hours"] * np.exp(0.3 * frame["a"]))
    fit = quietly(pn.PatracRegressor(**FULL, likelihood="poisson", exposure=1), frame, y)
    np.testing.assert_array_equal(fit.predict(frame[["hours", "a"]]), fit.predict(frame))
    with pytest.raises(ValueError, match="exposure names 'hours', and the columns of X are a"):
        fit.predict(frame[["a"]])


def test_class_scores_count_rows_by_their_weight(labelled: tuple[pn.PatracClassifier, pd.DataFrame]) -> None:
    fit, frame = labelled[0], labelled[1][["a", "b", "c"]]
    y, weight = fit.predict(frame)[::-1], np.arange(len(frame)) % 3
    weighted = fit.evaluate(frame, y, sample_weight=weight).scores
    repeated = fit.evaluate(frame.loc[np.repeat(frame.index, weight)], np.repeat(y, weight)).scores
    for name in ("nlpd", "nll", "brier", "accuracy"):
        assert weighted[name] == pytest.approx(repeated[name], rel=1e-10)
    assert weighted["entropy"] == pytest.approx(repeated["entropy"], rel=1e-10)


@pytest.mark.parametrize(("name", "value"), [("minutes", "xxx"), ("hidden_layer_sizes", -5), ("df", 0.5)])
def test_files_with_parameters_that_no_fit_takes_are_refused(
    name: str, value: Any, fitted: pn.PatracRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = copy(fitted).set_params(**{name: value})
    with pytest.raises(ValueError, match=f"'{name}' parameter"):
        changed.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with monkeypatch.context() as patch:
        patch.setattr(base, "check_parameters", lambda *_: None)
        changed.save(tmp_path / "model")
    with pytest.raises(ValueError, match=rf"model is damaged .*'{name}' parameter"):
        pn.PatracRegressor.load(tmp_path / "model")


def test_a_tail_at_the_end_of_float64_is_no_warning_of_numpy() -> None:
    """ArviZ's fit of the tail of importance ratios overflows where log-likelihoods differ by millions."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 1)), rng.normal(size=60)
    given = {**FULL, "hidden_layer_sizes": (8, 8), "max_iter": 2, "l2": 1.0, "chains": 4, "draws": 8, "thin": 1}
    with warnings.catch_warnings(action="error", category=RuntimeWarning), pn.Note.collect():
        pn.PatracRegressor(**{**given, "warmup": 1, "random_state": 0}, likelihood=pn.Gaussian(1e-6)).fit(X, y)


def test_files_have_the_mode_of_other_files(fitted: pn.PatracRegressor, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    fitted.save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", None, "b", "a"], "y is missing in row 1"),
        (["a", "b", float("nan"), "a"], "y is missing in row 2"),
        (["a", 1, "b", "a"], "y mixes text with int"),
    ],
)
def test_labels_that_are_none_or_mixed_are_refused(y: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pn.PatracClassifier(**FULL).fit(np.arange(4.0)[:, None], pd.Series(y, dtype=object))
