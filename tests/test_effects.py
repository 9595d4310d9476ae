"""What drives a fit's predictions: the effect of exchanging a column's values, and the report's summary of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import patrac_native as pn
from patrac_native.fit.effects import Effect, permutation_effects, summary_words
from patrac_native.fit.preprocessor import Preprocessor
from patrac_native.fit.rows import Rows, TargetScaling

N = 60


@pytest.fixture(scope="module")
def linear() -> tuple[pn.Draws, Rows, Preprocessor]:
    """Draws of f = slope * size + shift of a kind, whose slopes are 1 and 3, and a column that f does not read."""
    rng = np.random.default_rng(0)
    kinds = np.array(["a", "b", "c"])[np.arange(N) % 3]
    frame = pd.DataFrame({"other": rng.normal(size=N), "kind": kinds, "size": rng.normal(size=N)})
    preprocessor = Preprocessor.fit(frame)
    X = preprocessor.transform(frame)
    assert preprocessor.names == ["other", "kind=a", "kind=b", "kind=c", "size"]
    net = pn.Network([[[0.0, 0.0, 0.0, 0.0, 1.0]]], [[0.0]])
    y = X[:, 4]
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), X, y)
    theta = np.array([[0.0, 0.0, 0.0, 0.6, slope, 0.0] for slope in (1.0, 3.0)])
    return pn.Draws.from_array(post, theta[None], sampler="by hand"), Rows(X, y), preprocessor


def test_effects_are_mean_changes_and_their_intervals(linear: Any) -> None:
    draws, rows, preprocessor = linear
    effects = permutation_effects(draws, rows, preprocessor, TargetScaling(np.zeros(1), np.array([10.0])), seed=3)
    assert [one.column for one in effects] == ["size", "kind", "other"]
    size, kind, other = effects
    # Values are exchanged along one cycle through all rows, in a random order.
    order = np.random.default_rng(3).permutation(N)
    change = np.abs(np.diff(rows.X[order][:, 4], append=rows.X[order][0, 4])).mean()
    # float32: six digits of sums of a few terms.
    assert size.size == pytest.approx(10 * 2.0 * change, rel=1e-5)
    assert (size.lower, size.upper) == pytest.approx((10 * 1.1 * change, 10 * 2.9 * change), rel=1e-5)
    assert (other.size, other.lower, other.upper) == (0.0, 0.0, 0.0)
    # The three inputs of a category are exchanged together: f changes by 0.6 where c comes or goes, 0 elsewhere.
    is_c = preprocessor.in_units(rows.X)[:, 3][order]
    assert kind.size == pytest.approx(10 * 0.6 * np.abs(np.diff(is_c, append=is_c[0])).mean(), rel=1e-5)


@pytest.mark.parametrize("grade", ["good", "look"])
def test_the_summary_says_what_is_predicted_how_sure_what_drives_it_and_what_next(grade: str) -> None:
    scores = {"kind": "held out", "rmse": 2.0, "interval_width": 8.0, "coverage": {"0.95": 0.94}}
    evaluation: Any = SimpleNamespace(
        scores=scores, arrays={"y": np.array([1.0, 5.0]), "epistemic": np.array([0.1, 0.3])}
    )
    findings = [] if grade == "good" else [SimpleNamespace(remedy="run longer, thin=20.")]
    effects = [Effect(name, 1.0, 0.5, 1.5) for name in ("a", "b", "c", "d")]
    what, sure, drives, after = summary_words(evaluation, SimpleNamespace(findings=findings), effects, "price", None)
    assert "predicts 'price'. On 2 rows that it had not seen" in what and "off by 2 " in what and "off by 2." in what
    assert "8 wide on average and hold 94%" in sure and "20% of their variance" in sure
    assert "a (1, 0.5 to 1.5)" in drives and " d (" not in drives and "the others less" in drives
    assert after == (
        "Next: run longer, thin=20."
        if findings
        else "Next: nothing is wrong; report the predictions with their intervals."
    )
    for share, said in ((0.0, "It predicts 0% of the pairs"), (0.625, "It predicts 62% of the pairs"), (None, None)):
        scores |= {"censored": 1, "concordance": share, "rmse": None}
        what = summary_words(evaluation, SimpleNamespace(findings=findings), effects, "price", None)[0]
        assert "1 are censored." in what and ("pairs" not in what if said is None else said in what)
