"""Leave-one-out around parameters that were trained on the rows: too good, and everything that rests on it says so."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from fits import quietly
from patrac_native.diagnostics.psis import LeftOutRows
from patrac_native.fit import fitting
from patrac_native.fit.evaluation import Evaluation
from patrac_native.fit.report import printed
from patrac_native.verdict.calibration import calibrate

N = 40
DATA = np.random.default_rng(0)
X = DATA.uniform(-2, 2, (N, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * DATA.normal(size=N)
NEW_X = DATA.uniform(-2, 2, (30, 2))
NEW_Y = np.sin(2 * NEW_X[:, 0]) + 0.3 * DATA.normal(size=30)
TOO_GOOD = "too good: the fixed parameters of {} were trained on the rows"


def sampled(seed: int, architecture: pn.Architecture, likelihood: pn.Likelihood | None = None) -> pn.Draws:
    """Return draws of a posterior of a network of a seed."""
    net = problems.random_network(np.random.default_rng(seed), (2, 6, 1))
    post = pn.Posterior(net, architecture, problems.PRIOR, likelihood or pn.Gaussian(0.09), X, Y)
    with warnings.catch_warnings(action="ignore"):
        return pn.sample(post, chains=2, draws=60, warmup=200, seed=seed, progress=False, threads=1)


def messages(call: Any) -> list[str]:
    """Return the warnings of a call on fixed parameters, each of which names this file's line."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        call()
    found = [one for one in caught if "too good" in str(one.message)]
    assert all(one.filename == __file__ for one in found)
    return [str(one.message) for one in found]


def last_layer_masks(keep: bool) -> pn.Custom:
    """Return Custom with the last layer or, if the others are kept too, all parameters."""
    return pn.Custom([np.full((6, 2), keep), np.full((1, 6), True)], [np.full(6, keep), np.full(1, True)])


@pytest.mark.parametrize(("n_draws", "limit"), [(100, 0.5), (1000, 2 / 3), (10_000, 0.7)])
def test_few_draws_need_lighter_tails(n_draws: int, limit: float) -> None:
    """Of S draws k is to be below 1 - 1 / log10(S) and 0.7 (Vehtari, Simpson, Gelman, Yao and Gabry 2024)."""
    found = LeftOutRows(np.zeros(2), np.array([limit - 1e-3, limit + 1e-3]), n_draws)
    assert found.is_unreliable.tolist() == [False, True]


@pytest.mark.parametrize(
    ("architecture", "fixes"),
    [
        (pn.Full(), False),
        (last_layer_masks(True), False),
        (last_layer_masks(False), True),
        (pn.Mix(2), True),
        (pn.Out(6), True),
        (pn.Sep(2), True),
    ],
    ids=["Full", "Custom of all", "Custom", "Mix", "Out", "Sep"],
)
def test_what_leaves_rows_out_says_first_that_it_is_too_good(architecture: pn.Architecture, fixes: bool) -> None:
    draws = sampled(1, architecture)
    with warnings.catch_warnings(action="ignore"):
        found, tree = draws.loo(X, Y), draws.to_datatree(X, Y, prior_draws=0)
        unseen = draws.loo(NEW_X, NEW_Y, row_weights=np.zeros(30))
    begins = TOO_GOOD.format(architecture.label()) if fixes else "leave-one-out of 40 rows"
    assert str(found).startswith(begins)
    assert tree["log_likelihood"].attrs.get("too_good") == (found.too_good or None)
    of_loo = messages(lambda: draws.loo(X, Y))
    of_tree = messages(lambda: draws.to_datatree(X, Y, prior_draws=0))
    assert (len(of_loo), len(of_tree)) == (fixes, fixes)
    for message in (*of_loo, *of_tree):
        assert begins in message and "draws.distribution(X_new).log_density(y_new)" in message
    # Rows that were in no data are predicted by all draws alike.
    assert not unseen.too_good and str(unseen).startswith("leave-one-out of 30 rows")
    np.testing.assert_allclose(unseen.elpd_rows, draws.distribution(NEW_X).log_density(NEW_Y), rtol=1e-10)
    assert messages(lambda: draws.to_datatree(X, prior_draws=0)) == []


def test_members_that_fix_different_parameters_are_weighted_by_unseen_rows_alone() -> None:
    mix, other_start, out = sampled(1, pn.Mix(2)), sampled(2, pn.Mix(2)), sampled(1, pn.Out(6))
    full, noisier = sampled(1, pn.Full()), sampled(1, pn.Mix(2), pn.Gaussian(0.3))
    weighted = pn.DrawsMixture.weighted
    for members in ([mix, other_start], [mix, out], [mix, full]):
        with pytest.raises(ValueError, match=r"fix different parameters .*row_weights=np\.zeros\(len\(X\)\).*equal"):
            weighted(members, X, Y)
        one_seen = np.zeros((2, N))
        one_seen[:, 3] = 1.0
        with pytest.raises(ValueError, match="fix different parameters"):
            weighted(members, X, Y, row_weights=one_seen)
        assert len(messages(lambda members=members: weighted(members, X, Y, method="equal"))) == 1
        with warnings.catch_warnings(action="error"):
            found = weighted(members, NEW_X, NEW_Y, row_weights=np.zeros(30))
        rows = [one.distribution(NEW_X).log_density(NEW_Y) for one in members]
        np.testing.assert_allclose(found.weights, pn.diagnostics.model_weights(rows), atol=1e-9)
        assert found.comparison is not None
        np.testing.assert_allclose(found.comparison.elpd, np.sum(rows, axis=1), rtol=1e-10)
    # Two posteriors around the same fixed parameters: a comparison of what is Bayesian, whose densities are too good.
    assert len(messages(lambda: weighted([mix, noisier], X, Y))) == 1
    separate = [sampled(1, pn.Sep(1)), sampled(1, pn.Sep(2))]  # all of the network is fixed in both
    assert len(messages(lambda: weighted(separate, X, Y))) == 1
    assert messages(lambda: weighted([full, sampled(2, pn.Full())], X, Y)) == []


def fitted(architecture: str) -> pn.PatracRegressor:
    """Return a fit of 50 draws to all rows."""
    size = {"hidden_layer_sizes": 6, "max_iter": 50, "chains": 2, "draws": 50, "thin": 5}
    return quietly(pn.PatracRegressor(**size, architecture=architecture, l2=1.0, random_state=0), X, Y)


@pytest.mark.parametrize("architecture", ["mix", "full"])
def test_a_fit_without_unseen_rows_is_not_judged_by_its_training_rows(architecture: str) -> None:
    reg = fitted(architecture)
    fixed, findings = architecture == "mix", reg.report_.verdict.findings
    kinds = {one.kind: one.remedy for one in findings}
    assert reg.report_.scores["kind"] == "leave one out"
    assert reg.report_.results().startswith("scores that are too good: fixed") == fixed
    assert ("fixed parameters" in reg.evaluate().scores.get("too_good", "")) == fixed
    # Chains that have not met need unseen rows to vouch for them, too.
    assert any("were trained on the" in one.what for one in findings) == fixed
    if fixed:
        remedy = kinds["unscored predictions"]
        assert "held_out=(X, y)" in remedy and "test_fraction" in remedy
        quietly(reg, X, Y, held_out=(NEW_X, NEW_Y))
        unscored = [one.what for one in reg.report_.verdict.findings if one.kind == "unscored predictions"]
        # 30 rows are too few to vouch for chains that have not met.
        assert all("30 unseen rows are too few" in what for what in unscored)
        assert "too_good" not in reg.report_.scores


def test_the_rows_of_a_pilot_run_are_scored_and_judged_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The few validation rows of a pilot run take the place of scores that are too good, in the verdict too."""
    rows, choose = np.full(20, 0.75), fitting.choose_posterior
    scored = Evaluation({"kind": "validation", "nlpd": 0.75}, {}, calibrate("validation", rows, rows, np.full(20, 0.9)))

    def choose_with_pilot(*arguments: Any, **named: Any) -> Any:
        return replace(choose(*arguments, **named), pilot=SimpleNamespace(draws=None, evaluation=scored))

    monkeypatch.setattr(fitting, "choose_posterior", choose_with_pilot)
    reg = fitted("mix")
    assert reg.report_.scores == scored.scores
    assert "NLPD of 20 validation rows of a shorter run" in str(reg.report_.verdict)


def test_unreliable_weights_are_no_headline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores by importance sampling were printed as any others, though 40% of their rows were marked unreliable."""
    reg = fitted("full")
    for count, is_shown in ((N // 20, True), (N // 20 + 1, False)):
        marks = property(lambda _, count=count: np.arange(N) < count)
        monkeypatch.setattr("patrac_native.draws.distribution.PredictiveDistribution.is_unreliable", marks)
        found = reg.evaluate()
        assert ("too_good" not in found.scores) == is_shown
        assert printed(reg, found).startswith("leave-one-out predictions" if is_shown else "no scores of unseen rows: ")
        assert (found.calibration.too_good == "") == is_shown
    quietly(reg, X, Y)  # whose verdict does not rest on such scores either
    unscored = [one.what for one in reg.report_.verdict.findings if one.kind == "unscored predictions"]
    assert any(f"unreliable for {N // 20 + 1} of {N} rows" in what for what in unscored)
    monkeypatch.undo()
    quietly(reg, X, Y, groups=np.arange(N) // 2)
    unscored = [one.what for one in reg.report_.verdict.findings if one.kind == "unscored predictions"]
    assert any("others of their group stay" in what for what in unscored) and "group" in reg.report_.scores["too_good"]


@pytest.mark.slow
def test_leave_one_out_of_mix_is_above_held_out_rows_and_says_so(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boston housing, 60% of the rows: the network follows its rows, and leave-one-out does not see it."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "bench"))
    from uci_sets import Split, load_split, standardised

    whole = load_split(data_dir / "uci", "boston", 0)
    inputs, targets = np.concatenate([whole.X, whole.X_test]), np.concatenate([whole.y, whole.y_test])
    order = np.random.default_rng(0).permutation(len(targets))
    seen, unseen = np.split(order, [int(0.6 * len(order))])
    rows = standardised(Split(inputs[seen], targets[seen], inputs[unseen], targets[unseen]))
    likelihood, sizes = pn.Gaussian("sampled"), (rows.X.shape[1], 50, 50, 1)
    net = pn.train(sizes, rows.X, rows.y, likelihood=likelihood, seed=0, progress=False)
    post = pn.Posterior(net, pn.Mix(1), pn.TraceClassPrior.fit(net), likelihood, rows.X, rows.y)
    draws = pn.sample(post, chains=2, draws=250, thin=4, warmup=2000, seed=0, progress=False, threads=1)
    with pytest.warns(UserWarning, match="too good: the fixed parameters of Mix"):
        loo = draws.loo(rows.X, rows.y)
    held_out = draws.distribution(rows.X_test).log_density(rows.y_test)
    difference = loo.elpd_rows.mean() - held_out.mean()
    error = np.hypot(loo.se / len(seen), held_out.std(ddof=1) / np.sqrt(len(unseen)))
    assert difference > 2 * error, (difference, error)
    assert loo.unreliable < 0.05 * len(seen)  # importance sampling is not the reason
    assert str(loo).startswith("too good")
