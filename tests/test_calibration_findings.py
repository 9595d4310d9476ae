"""The verdict on the calibration of predictions: coverage and log density on rows that the draws have not seen."""

from dataclasses import replace

import numpy as np
import pytest

from patrac_native.draws.calibration import Calibration, calibrate
from patrac_native.draws.verdict import judge
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
    """The same R-hat is "do not use" without scores, or with bad ones."""
    apart = replace(SOUND, max_rhat=1.4, min_ess_bulk=9.0)
    assert judge(apart).grade == "do not use"
    verdict = judge(replace(apart, calibration=GOOD))
    assert verdict.grade == "look"
    assert "Predictions of y can be used, as scores show (NLPD of 400 held-out rows 1.000" in str(verdict)
    for bad in (replace(GOOD, nlpd=1.3), replace(GOOD, coverage=0.8), replace(GOOD, nlpd_network=np.nan)):
        assert judge(replace(apart, calibration=bad)).grade == "do not use"


def test_scores_of_rows_are_collected() -> None:
    nlpd, network = np.array([1.0, 2.0, 3.0, 2.0]), np.array([2.0, 2.0, 5.0, 3.0])
    found = calibrate("leave one out", nlpd, network, np.array([True, True, False, True]))
    assert (found.nlpd, found.nlpd_network, found.coverage) == (2.0, 3.0, 0.75)
    assert found.nlpd_difference_se == pytest.approx(np.std([1.0, 0.0, 2.0, 1.0], ddof=1) / 2)
    of_others = calibrate("leave one out", nlpd, 2.5)
    assert of_others.nlpd_difference_se == pytest.approx(nlpd.std(ddof=1) / 2) and np.isnan(of_others.coverage)
