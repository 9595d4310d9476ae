"""Principal components of the inputs: their algebra, the process that leaves out rows, and when a fit takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from patrac_native import Note, PatracClassifier, PatracRegressor
from patrac_native.fit.components import Components, choose_components, left_out_nlpd
from patrac_native.fit.preprocessor import Preprocessor

QUICK: dict[str, Any] = {"architecture": "full", "thin": 5, "draws": 20, "chains": 2, "max_iter": 50}
QUICK |= {"hidden_layer_sizes": 8, "l2": 1.0, "random_state": 0, "n_jobs": 1}


def spectra(n: int, d: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return n smooth curves at d places, sums of six shapes, and a target that depends on the third largest."""
    rng = np.random.default_rng(seed)
    shapes = np.array([np.sin((k + 1) * np.linspace(0, 3, d)) for k in range(6)])
    amounts = rng.normal(size=(n, 6))
    X = (amounts * 3.0 ** -np.arange(6)) @ shapes + 1e-3 * rng.normal(size=(n, d))
    return X, np.sin(1.5 * amounts[:, 2]) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("weighted", [False, True])
def test_components_by_numpy(weighted: bool) -> None:
    """Scores are uncorrelated, with standard deviations as the roots of those of the projections."""
    X, _ = spectra(80, 12)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 80) if weighted else None
    every = Components.fit(X, weights)
    covariance = np.cov(X.T, bias=True, aweights=weights)
    variances = np.linalg.eigvalsh(covariance)[::-1]
    for count in (1, 3, every.number):
        made = every.first(count)
        found = np.cov(made.transform(X).T, bias=True, aweights=weights).reshape(count, count)
        sd = np.sqrt(variances[:count])
        # Directions and scales are rounded to float32.
        assert found == pytest.approx(np.diag(sd / sd.mean()), abs=1e-4)
        assert np.trace(found) == pytest.approx(count, rel=1e-4)
    assert every.inverse(every.transform(X)) == pytest.approx(X, abs=1e-4)
    # A row's components do not depend on the others, to the bit.
    assert np.array_equal(every.transform(X)[7:9], every.transform(X[7:9]))
    assert (every.directions[np.abs(every.directions).argmax(axis=0), np.arange(every.number)] > 0).all()


def test_components_of_more_columns_than_rows_and_of_equal_columns() -> None:
    X = np.random.default_rng(0).normal(size=(20, 90))
    assert Components.fit(X, None).number == 19
    assert Components.fit(np.repeat(X[:, :3], 4, axis=1), None).number == 3


def test_left_out_rows_by_brute_force() -> None:
    """The closed form equals processes that are conditioned on the other rows."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(25, 2)), rng.normal(size=(25, 1))
    Y = (Y - Y.mean()) / Y.std()
    found = left_out_nlpd(X, Y)
    distances = ((X[:, None] - X) ** 2).sum(axis=2)
    typical = np.median(distances[np.triu_indices(25, 1)])
    best = np.full(25, np.inf)
    for length in typical * 4.0 ** np.arange(-1, 4):
        for noise in 10.0 ** np.arange(-4, 1.1, 0.5):
            C = np.exp(-distances / (2 * length)) + noise * np.eye(25)
            mean, variance = np.empty(25), np.empty(25)
            for i in range(25):
                others = np.delete(np.arange(25), i)
                solved = np.linalg.solve(C[np.ix_(others, others)], C[others, i])
                mean[i], variance[i] = solved @ Y[others, 0], C[i, i] - solved @ C[others, i]
            scale = np.mean((Y[:, 0] - mean) ** 2 / variance)
            nlpd = -norm.logpdf(Y[:, 0], mean, np.sqrt(scale * variance))
            best = nlpd if nlpd.mean() < best.mean() else best
    assert found == pytest.approx(best, rel=1e-6)


def test_collinear_columns_are_replaced_and_others_stay() -> None:
    X, y = spectra(150)
    standardised = (X - X.mean(axis=0)) / X.std(axis=0)
    made, text = choose_components(standardised, y[:, None], None, "auto")
    assert made is not None and made.number < 60 and text.endswith("they are taken") and "lower by" in text
    labels = (y > 0).astype(np.int64)
    assert choose_components(standardised, labels, None, "auto")[0] is not None
    rng = np.random.default_rng(0)
    alone = rng.normal(size=(150, 12))
    assert choose_components(alone, alone[:, :1] + rng.normal(size=(150, 1)), None, "auto") == (None, "")
    # A target that the columns do not tell is no reason to take components.
    made, text = choose_components(standardised, rng.normal(size=(150, 1)), None, "auto")
    assert made is None and text.endswith("they are not taken")
    assert choose_components(standardised, y[:, None], None, 0) == (None, "")
    assert choose_components(standardised[:40], y[:40, None], None, "auto") == (None, "")


def test_more_inputs_than_rows_become_components_that_predict_no_worse() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8)) @ rng.normal(size=(8, 200)) + 0.5 * rng.normal(size=(60, 200))
    made, text = choose_components(X, X[:, :1] + rng.normal(size=(60, 1)), None, "auto")
    assert made is not None and made.number < 60 and "more inputs than rows" in text


def test_copies_of_rows_are_no_evidence() -> None:
    X, y = spectra(150)
    standardised = (X - X.mean(axis=0)) / X.std(axis=0)
    once = choose_components(standardised, y[:, None], None, "auto")
    twice = choose_components(np.repeat(standardised, 2, axis=0), np.repeat(y, 2)[:, None], None, "auto")
    assert once[1] == twice[1]


@pytest.mark.parametrize("made", [PatracRegressor, PatracClassifier])
def test_a_fit_with_components_is_saved_and_speaks_of_columns(made: type, tmp_path: Path) -> None:
    X, y = spectra(100, 20)
    y = y if made is PatracRegressor else np.where(y > 0, "high", "low")
    with Note.collect():  # chains this short have not converged
        est = made(pca=4, **QUICK).fit(X, y)
    before = est.preprocessor_
    assert est.draws_.predict(before.transform(X)).shape[2] == 100 and est.posterior_.network.net.layer_sizes[0] == 4
    assert before.names == [str(i) for i in range(20)] and before.n_inputs == 4
    assert "the first 4 of 20 principal components of the inputs are taken, as asked" in est.report_.lines
    # What four of six shapes leave out of the columns is small beside them.
    assert np.abs(before.in_units(before.transform(X)) - X).std() < 0.1 * X.std()
    far = X[:1] + np.eye(20)[:1] * 100
    assert before.remarks(far)[0].startswith("0=") and "is outside" in before.remarks(far)[0]
    est.save(tmp_path / "est.npz")
    again = made.load(tmp_path / "est.npz")
    assert np.array_equal(again.predict(X), est.predict(X))
    content = json.loads(json.dumps(before.to_dict()))
    for name, values in (("scale", [1.0] * 3), ("mean", [float("nan")] * 20), ("scale", [0.0] * 4)):
        components = content["encoding"]["components"]
        damaged = {**content, "encoding": {"components": {**components, name: values}}}
        with pytest.raises(ValueError, match="preprocessing is damaged"):
            Preprocessor.from_dict(damaged)


def test_a_fit_takes_components_by_itself_unless_told_otherwise() -> None:
    X, y = spectra(120)
    with Note.collect():  # chains this short have not converged
        for given in ({}, {"pca": 0}, {"pca": False}, {"standardize": False}):
            reg = PatracRegressor(**QUICK, **given).fit(X, y)
            assert (reg.preprocessor_.encoding is None) == bool(given)
    with pytest.raises(ValueError, match="'pca' parameter"):
        PatracRegressor(pca=-1, **QUICK).fit(X, y)
