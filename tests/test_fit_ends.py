"""Fits whose chains end once f has converged, before the budget is spent, and what their verdict advises."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
from patrac_native.fit.candidates import Candidate, have_converged
from patrac_native.fit.choice import best_of
from patrac_native.fit.fitting import with_advice
from patrac_native.fit.rows import hold_out
from patrac_native.fit.settings import Settings
from patrac_native.fit.training import pilot_parts
from patrac_native.posterior.sampled_density import FitQuality

FIT: dict[str, Any] = {
    "architecture": "full",
    "likelihood": "gaussian",
    "hidden_layer_sizes": 8,
    "max_iter": 300,
    "l2": 0.1,
    "random_state": 5,
}


def rows() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 150)
    return x[:, None], np.sin(x) + 0.3 * rng.normal(size=150)


def fitted(**given: Any) -> tuple[pn.PatracRegressor, str]:
    """Return a fit with 45 rows held out, and its report and warnings."""
    X, y = rows()
    train, test, _ = hold_out(X, y, 0.3, seed=5)
    reg = pn.PatracRegressor(**{**FIT, **given})
    with warnings.catch_warnings(record=True, action="always") as caught:
        reg.fit(X[train], y[train], held_out=(X[test], y[test]))
    return reg, "\n".join([str(reg.report_), *(str(one.message) for one in caught)])


def test_a_fit_ends_once_f_has_converged() -> None:
    reg, said = fitted(minutes=0.03)
    found = re.search(r"the chains have converged: the run ended after (\d+) of 500 draws of each chain", said)
    assert found, said
    # Four chains have 400 effective draws at the second check at the earliest, after 100 draws each.
    assert reg.draws_.n_draws == int(found[1]) in range(100, 500, 50)
    at_most = re.search(r"warm-up at most ([\d,]+) steps", said)
    assert at_most and reg.draws_.settings["warmup_steps"] < int(at_most[1].replace(",", "")) / 2
    evidence = reg.result_.summary.evidence
    assert evidence.max_rhat <= 1.01 and evidence.min_ess_bulk >= 400
    assert reg.report_.converged and reg.result_.interruption == ""


def test_pilot_runs_of_one_network_end_once_f_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []
    sample = Candidate.sample

    def record(self: Candidate, *arguments: Any, **named: Any) -> Any:
        runs.append(sample(self, *arguments, **named))
        return runs[-1]

    monkeypatch.setattr(Candidate, "sample", record)
    reg, _ = fitted(minutes=0.03, architecture="auto")
    tried = list(zip(reg.result_.trials, runs, strict=False))  # the last run is the fit's own
    assert len(runs) == len(tried) + 1
    ended = [(trial, draws) for trial, draws in tried if trial.candidate.networks == 1 and draws.n_draws < 100]
    assert ended
    ((unseen, _),) = pilot_parts(reg.result_.data)
    for trial, draws in ended:
        assert isinstance(draws, pn.Draws)
        assert have_converged(unseen.X, draws, rhat=1.05, ess=100)
        assert trial.steps == draws.settings["warmup_steps"] + draws.settings["thin"] * draws.n_draws
    assert all(draws.n_draws == 100 for trial, draws in tried if trial.candidate.networks > 1)


def test_a_given_number_of_steps_is_kept() -> None:
    reg, said = fitted(thin=50)
    assert "have converged: the run" not in said and re.search(r"warm-up [\d,]+ steps", said)
    assert reg.draws_.n_draws == 500


def test_a_warmup_that_did_not_settle_is_a_finding_and_no_warning() -> None:
    # 2,000 steps are too few for 2,701 parameters.
    _, said = fitted(hidden_layer_sizes=(50, 50), max_iter=100, l2=1.0, minutes=0.03, draws=40)
    assert "not yet stable when the warm-up ended" in said and "warm up longer, warmup=20000" in said
    assert "the warm-up ended after" not in said


def test_remedies_of_a_fit_are_its_parameters() -> None:
    """By chains that are too short with the rounding of every level of instructions."""
    _, said = fitted(architecture="sep", k=2, max_iter=60, l2=1.0, minutes=0.003, random_state=2)
    assert "the trained network fits the training data far worse than the draws do" in said
    assert "Remedy: train longer, max_iter, or with a smaller penalty, l2." in said
    assert "the frozen nodes have fitted noise" in said and "minutes=0.0" in said
    for word in ("init=", "learning_rate", "TraceClassPrior", "Gaussian(", "thin=", "max_epochs", "--"):
        assert word not in said


def test_no_smaller_penalty_is_advised_where_the_fit_chose_it() -> None:
    summary = fitted(architecture="sep", k=2, max_iter=60, l2=1.0, minutes=0.003, draws=40)[0].result_.summary
    poor = replace(summary, evidence=replace(summary.evidence, fit=FitQuality(-1e6, -1e5, 100.0, 100.0)))
    candidate = Candidate(pn.Gaussian("sampled"), pn.Sep(2), "trace-class", 1, 4, 40)
    remedies = []
    for l2 in (None, 0.1):
        findings = with_advice(poor, Settings(l2=l2), candidate, [], 100).verdict().findings
        remedies += [one.remedy for one in findings if one.kind in ("undertrained network", "poor network", "poor fit")]
    assert "smaller penalty" not in remedies[0] and "smaller penalty" in remedies[1]


@pytest.mark.parametrize(
    ("minutes", "advised"),
    [(0.003, "run longer, minutes=0.3."), (2.0, "fewer Bayesian parameters, architecture='mix'")],
)
def test_a_hundred_times_the_budget_is_no_advice(minutes: float, advised: str) -> None:
    summary = fitted(architecture="full", max_iter=60, l2=1.0, minutes=0.003, draws=40)[0].result_.summary
    few = replace(summary, evidence=replace(summary.evidence, max_rhat=1.03, min_ess_bulk=4.0, rhat_log_likelihood=1.0))
    candidate = Candidate(pn.Gaussian("sampled"), pn.Full(), "gaussian", 1, 4, 40)
    findings = with_advice(few, Settings(minutes=minutes), candidate, [], 100).verdict().findings
    (remedy,) = (one.remedy for one in findings if one.kind == "few draws")
    assert advised in remedy and ("minutes=200" in remedy) == (minutes == 2.0)


def test_few_held_out_rows_are_judged_with_the_validation_rows() -> None:
    """45 rows are no evidence that predictions can be used; with a fifth of the 105 others they are 66."""
    size = {"architecture": "auto", "likelihood": None, "max_iter": 60, "l2": 1.0, "chains": 2, "draws": 60}
    reg, _ = fitted(**size, minutes=0.01)
    pilot, held_out = best_of(reg.result_.trials).evaluation.calibration, reg.result_.evaluation.calibration
    judged = reg.result_.summary.evidence.calibration
    assert judged == held_out.with_validation(pilot)
    assert (held_out.rows, pilot.rows, judged.rows) == (45, 21, 66)
    assert reg.report_.scores == reg.result_.evaluation.scores and reg.report_.scores["kind"] == "held out"


@pytest.mark.parametrize(
    ("likelihood", "given", "narrow", "wide"),
    [
        ("gaussian", {}, "heteroscedastic'; or predict by several networks, networks=4", "likelihood='student-t'"),
        ("gaussian", {"noise_variance": 0.1}, "sample the variance of the noise", "sample the variance of the noise"),
        ("student-t", {}, "likelihood='heteroscedastic'", "likelihood='heteroscedastic'"),
        ("heteroscedastic", {}, "predict by several networks, networks=8.", "likelihood='student-t'"),
        ("heteroscedastic", {"networks": 2}, "take more rows.", "likelihood='student-t'"),
        ("gaussian", {"k": 3}, "take a larger architecture, architecture='full'", "likelihood='student-t'"),
    ],
)
def test_remedies_for_intervals_name_what_is_not_there_already(
    likelihood: str, given: dict[str, Any], narrow: str, wide: str
) -> None:
    size = {"architecture": "auto" if "k" in given else "full", "max_iter": 30, "draws": 25, "thin": 2, "warmup": 100}
    reg, _ = fitted(likelihood=likelihood, **size, **given)
    summary = reg.result_.summary
    advice = (summary.members[0] if hasattr(summary, "members") else summary).advice
    assert narrow in advice["narrow intervals"] and wide in advice["wide intervals"]
    assert f"likelihood='{likelihood}'" not in advice["wide intervals"] or given
