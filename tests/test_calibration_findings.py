"""The verdict on the calibration of predictions: coverage and log density on rows that the draws have not seen."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import patrac_native as pn
from patrac_native.network.network import TrainingHistory
from patrac_native.verdict.calibration import Calibration, calibrate
from patrac_native.verdict.evidence import FittedNoise, fitted_noise
from patrac_native.verdict.verdict import judge
from test_verdict import SOUND

# 400 rows: the standard error of a coverage of 0.9 is 0.015.
GOOD = Calibration("held out", 400, nlpd=1.0, nlpd_network=1.2, nlpd_difference_se=0.05, coverage=0.9)


def grades(**changes: float) -> list[tuple[str, str]]:
    verdict = judge(replace(SOUND, calibration=replace(GOOD, **changes)))  # type: ignore[arg-type]
    return [(finding.grade, finding.what) for finding in verdict.findings]


def test_good_predictions_raise_no_finding() -> None:
    assert grades() == []


@pytest.mark.parametrize(
    ("coverage", "grade", "words"),
    [(0.70, "do not use", "overconfident"), (0.80, "look", "overconfident"), (0.97, "look", "too wide")],
)
def test_wrong_coverage_is_found(coverage: float, grade: str, words: str) -> None:
    ((found, what),) = grades(coverage=coverage)
    assert found == grade and words in what and f"{coverage:.1%} of 400 held-out rows" in what


def test_few_rows_say_little_about_coverage() -> None:
    """The coverage of 20 rows has a standard error of 0.067, so 0.8 is no evidence against 0.9."""
    assert grades(coverage=0.8, rows=20) == []


def test_a_posterior_that_predicts_worse_than_its_network_is_not_good() -> None:
    ((grade, what),) = grades(nlpd=1.35)
    assert grade == "look" and "predicts worse than its trained network alone" in what and "1.350" in what
    assert grades(nlpd=1.29) == []  # less than two standard errors


def test_chains_that_disagree_can_predict_well() -> None:
    """The posterior of f is one thing, predictions of y another: scores decide about these alone."""
    apart = replace(SOUND, max_rhat=1.4, min_ess_bulk=9.0)
    for quantity in ("f", "class probabilities"):
        verdict = judge(replace(apart, calibration=GOOD, quantity=quantity))
        assert verdict.predictions is not None and verdict.predictions.grade == "good"
        assert "NLPD of 400 held-out rows 1.000, of the trained network 1.200" in verdict.predictions.facts
        assert verdict.posterior.grade == "do not use" and verdict.posterior.subject == f"posterior of {quantity}"
        assert f"the chains disagree: the largest R-hat of {quantity} is 1.400" in str(verdict.posterior)
    for bad in (replace(GOOD, nlpd=1.3), replace(GOOD, coverage=0.8), replace(GOOD, coverage=0.97)):
        of_predictions = judge(replace(apart, calibration=bad)).predictions
        assert of_predictions is not None and of_predictions.grade == "look"
    left_out = replace(GOOD, kind="leave one out", unreliable=31)
    assert "31 of these predictions are unreliable" in str(judge(replace(apart, calibration=left_out)))


def test_held_out_and_validation_rows_are_evidence_together() -> None:
    """The scores are those of all rows in one sample; the error is that of two strata, whose means may differ."""
    rng = np.random.default_rng(1)
    nlpd, network = rng.normal(1.0, 0.5, 90), rng.normal(1.2, 0.5, 90)
    inside = rng.uniform(size=90) < 0.9
    held, left = slice(60), slice(60, 90)
    both = calibrate("held out", nlpd[held], network[held], inside[held]).with_validation(
        calibrate("validation", nlpd[left], network[left], inside[left])
    )
    whole = calibrate("held out", nlpd, network, inside)
    assert both.rows == 90
    for name in ("nlpd", "nlpd_network", "coverage"):
        assert getattr(both, name) == pytest.approx(getattr(whole, name), rel=1e-12)
    difference = nlpd - network
    error = np.sqrt(60 * difference[held].var(ddof=1) + 30 * difference[left].var(ddof=1)) / 90
    assert both.nlpd_difference_se == pytest.approx(error, rel=1e-12)
    apart = replace(SOUND, max_rhat=1.4, min_ess_bulk=9.0, calibration=replace(both, rows=120, coverage=0.9))
    verdict = judge(apart)
    assert verdict.predictions is not None and verdict.predictions.grade == "good"
    assert "NLPD of 120 held-out rows and validation rows of a shorter run, which also chose the model" in str(verdict)


NOISE = FittedNoise(variance=0.02, unseen=0.08)


def test_frozen_nodes_that_fitted_noise_are_found() -> None:
    (finding,) = judge(replace(SOUND, noise=NOISE)).findings
    assert finding.grade == "look" and "Full()" in finding.remedy
    assert finding.what.startswith(
        "the posterior mean of the noise variance is 0.02, 0.25 of the trained network's mean"
    )
    assert finding.what.endswith("0.08: the frozen nodes have fitted noise, and intervals of y are likely too narrow.")
    (of_output,) = judge(replace(SOUND, noise=replace(NOISE, output=1))).findings
    assert "the noise variance of output 1 is" in of_output.what


def test_coverage_of_unseen_rows_decides_whether_fitted_noise_matters() -> None:
    """Between several networks f can vary as much as the noise lacks."""
    scored = replace(SOUND, noise=NOISE, calibration=GOOD)
    assert judge(scored).grade == "good"
    for changes in ({"coverage": 0.8}, {"rows": 99}, {"kind": "leave one out"}):
        found = judge(replace(scored, calibration=replace(GOOD, **changes), fixes_parameters=True))
        assert found.grade == "look" and "have fitted noise" in str(found)
    assert judge(replace(scored, calibration=replace(GOOD, kind="validation"))).grade == "good"


@pytest.mark.parametrize("noise", [NOISE, None])
def test_left_out_rows_say_nothing_where_parameters_are_fixed(noise: FittedNoise | None) -> None:
    """They stay in the training of the network, whose noise need not show; rows that it did not see say something."""
    apart = replace(SOUND, max_rhat=1.4, min_ess_bulk=9.0, noise=noise, fixes_parameters=True)
    left_out, held_out = (replace(GOOD, kind=kind) for kind in ("leave one out", "held out"))
    found = judge(replace(apart, calibration=left_out)).predictions
    assert found is not None and found.grade == "look"
    assert "predictions were not scored on unseen rows" in str(found) and "90% intervals" not in str(found)
    assert judge(replace(apart, calibration=replace(left_out, coverage=0.5))).predictions == found
    unfixed = replace(SOUND, max_rhat=1.4, min_ess_bulk=9.0)
    for seen in (judge(replace(apart, calibration=held_out)), judge(replace(unfixed, calibration=left_out))):
        assert seen.predictions is not None and seen.predictions.grade == "good"
    doubted = judge(replace(unfixed, calibration=replace(left_out, too_good="others of their group stay"))).predictions
    assert doubted is not None and doubted.grade == "look"
    assert "not scored on unseen rows: others of their group stay." in str(doubted)
    assert f"NLPD of {GOOD.rows}" not in str(doubted)


@pytest.mark.parametrize("targets", [1, 2])
def test_a_run_whose_frozen_nodes_fitted_noise_is_not_good(targets: int, tmp_path: Path) -> None:
    """30 rows without any signal, a network that follows them, and validation residuals of the noise's own size."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.normal(size=(30, targets))
    net = pn.train([3, 30, targets], X, y, l2=1e-6, max_epochs=3000, validation_fraction=0, seed=0, progress=False)
    history = TrainingHistory(np.ones(1), 0, 1.0, 1.0, 2.0, "patience", validation_mse=np.ones(targets))
    net = pn.Network(net.weights, net.biases, history=history)
    settings: dict[str, Any] = {"chains": 2, "draws": 500, "seed": 1, "progress": False}
    posts = [
        pn.Posterior(net, architecture, pn.GaussianPrior(), pn.Gaussian("sampled"), X, y)
        for architecture in (pn.Out(30), pn.Full())
    ]
    with pytest.warns(UserWarning, match=r"of the trained network's mean squared residual on rows .* use Full\(\)"):
        draws = pn.sample(posts[0], **settings)
    draws.save(tmp_path / "draws.npz")
    for found in (draws, pn.Draws.load(tmp_path / "draws.npz"), draws[:, :200]):
        noise = found.summary(X).evidence.noise
        means = np.atleast_1d(draws.stats["variance"].mean(axis=(0, 1)))
        assert noise == FittedNoise(means.min(), 1.0, None if targets == 1 else int(means.argmin()))
        assert "have fitted noise" in str(found.summary(X).verdict())
    full = pn.sample(posts[1], warmup=1000, **settings)
    assert full.summary(X).evidence.noise is None


@pytest.mark.parametrize(("share", "is_low"), [(0.79, True), (0.81, False)])
def test_noise_is_low_below_four_fifths_of_unseen_residuals(share: float, is_low: bool) -> None:
    rng = np.random.default_rng(0)
    history = TrainingHistory(np.ones(1), 0, 1.0, 1.0, 2.0, "patience", validation_mse=np.array([2.0]))
    net = pn.Network([rng.normal(size=(3, 1)), rng.normal(size=(1, 3))], [np.zeros(3), np.zeros(1)], history=history)
    X = rng.normal(size=(9, 1))
    variance = np.full((2, 10), 2 * share)
    for architecture, expected in ((pn.Out(3), is_low), (pn.Sep(1), is_low), (pn.Full(), False)):
        post = pn.Posterior(net, architecture, pn.GaussianPrior(), pn.Gaussian("sampled"), X, X[:, 0])
        assert (fitted_noise(post, variance) is not None) == expected
        assert fitted_noise(post, None) is None


def test_scores_of_rows_are_collected() -> None:
    nlpd, network = np.array([1.0, 2.0, 3.0, 2.0]), np.array([2.0, 2.0, 5.0, 3.0])
    found = calibrate("leave one out", nlpd, network, np.array([True, True, False, True]))
    assert (found.nlpd, found.nlpd_network, found.coverage) == (2.0, 3.0, 0.75)
    assert found.nlpd_difference_se == pytest.approx(np.std([1.0, 0.0, 2.0, 1.0], ddof=1) / 2)
    of_others = calibrate("leave one out", nlpd, 2.5)
    assert of_others.nlpd_difference_se == pytest.approx(nlpd.std(ddof=1) / 2) and np.isnan(of_others.coverage)
    weights = np.array([1.0, 3.0, 3.0, 1.0])  # 64 / 20 effective rows
    weighted = calibrate("leave one out", nlpd, network, np.array([True, True, False, True]), weights=weights)
    assert (weighted.rows, weighted.nlpd, weighted.nlpd_network, weighted.coverage) == (3, 18 / 8, 26 / 8, 5 / 8)


@pytest.mark.parametrize("sampled", [False, True], ids=["fixed", "sampled"])
def test_a_summary_of_held_out_rows_judges_predictions(sampled: bool) -> None:
    """Scores agree with `nlpd` and `coverage`; the network's noise is that of its validation residuals."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=120)
    net = pn.train([2, 8, 1], X[:80], y[:80], max_epochs=200, seed=0)
    likelihood = pn.Gaussian("sampled") if sampled else pn.Gaussian(0.09)
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), likelihood, X[:80], y[:80])
    draws = pn.sample(post, chains=2, draws=100, thin=5, warmup=500, seed=1, progress=False)
    assert draws.summary(X[:9]).evidence.calibration is None
    found = draws.summary(X[80:], y[80:]).evidence.calibration
    assert found is not None and found.kind == "held out" and found.rows == 40
    assert found.nlpd == pytest.approx(draws.distribution(X[80:]).nlpd(y[80:]))
    assert found.coverage == draws.distribution(X[80:]).coverage(y[80:], 0.9)
    assert net.history is not None and net.history.validation_mse is not None
    noise = float(net.history.validation_mse[0]) if sampled else 0.09
    f = net.predict(X[80:])[:, 0]
    assert found.nlpd_network == pytest.approx(-norm.logpdf(y[80:], f, np.sqrt(noise)).mean())
    assert found.to_dict()["coverage"] == found.coverage


def test_classes_are_judged_by_their_log_probability() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    net = pn.train([2, 5, 2], X, y, likelihood=pn.Categorical(), max_epochs=50, validation_fraction=0)
    draws = pn.sample(
        pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Categorical(), X, y),
        chains=1, draws=50, warmup=200, seed=0, progress=False,
    )  # fmt: skip
    found = draws.distribution(X).calibration(y)
    assert np.isnan(found.coverage) and found.nlpd == pytest.approx(draws.distribution(X).nlpd(y))
    p = pn.Categorical().probabilities(net.predict(X))[np.arange(60), y]
    assert found.nlpd_network == pytest.approx(-np.log(p).mean())
