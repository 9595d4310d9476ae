"""Fits whose chains end once f has converged, before the budget is spent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
from patrac_native.cli.main import main
from patrac_native.draws.summary import Summary
from patrac_native.fit.fit import fit_table
from patrac_native.fit.fit_settings import FitSettings
from patrac_native.fit.pilots import best_of

FIT = "--target y --architecture full --likelihood gaussian --hidden 8 --epochs 300 --l2 0.1 --seed 5".split()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 150)
    path = tmp_path_factory.mktemp("fit") / "table.csv"
    rows = np.column_stack([x, np.sin(x) + 0.3 * rng.normal(size=150)])
    np.savetxt(path, rows, delimiter=",", header="x,y", comments="")
    return path


def test_a_fit_ends_once_f_has_converged(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(table), *FIT, "--minutes", "0.03", "--out", str(tmp_path / "fit")]) == 0
    printed = capsys.readouterr().out
    found = re.search(r"the chains have converged: the run ended after (\d+) of 500 draws of each chain", printed)
    assert found, printed
    draws = pn.Draws.load(tmp_path / "fit" / "draws.npz")
    # Four chains have 400 effective draws at the second check at the earliest, after 100 draws each.
    assert draws.n_draws == int(found[1]) in range(100, 500, 50)
    at_most = re.search(r"warm-up at most ([\d,]+) steps", printed)
    assert at_most and draws.settings["warmup_steps"] < int(at_most[1].replace(",", "")) / 2
    convergence = json.loads((tmp_path / "fit" / "summary.json").read_text())["convergence"]["f"]
    assert convergence["max_rhat"] <= 1.01 and convergence["min_ess_bulk"] >= 400
    report = (tmp_path / "fit" / "report.html").read_text()
    assert "interrupted" not in printed + report
    assert "f over x, the only input, with its 95% interval" in report


def test_a_warmup_that_did_not_settle_is_a_finding_and_no_warning(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 2,000 steps are too few for 2,701 parameters.
    fit = ["fit", str(table), *FIT, "--hidden", "50", "50", "--epochs", "100", "--l2", "1", "--minutes", "0.06"]
    assert main([*fit, "--draws", "40", "--out", str(tmp_path / "fit")]) == 0
    out, err = capsys.readouterr()
    assert "not yet stable when the warm-up ended" in out and "warm up longer, --warmup 20000" in out
    assert "the warm-up ended" not in err


def test_remedies_of_a_fit_are_its_options(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit = "--target y --architecture sep --k 2 --likelihood gaussian --hidden 8 --epochs 60 --l2 1 --seed 5".split()
    assert main(["fit", str(table), *fit, "--minutes", "0.005", "--out", str(tmp_path / "fit")]) == 0
    out, err = capsys.readouterr()
    assert "the trained network fits the training data far worse than the draws do" in out
    assert "Remedy: train longer, --epochs, or with a smaller penalty, --l2: it is part of every draw" in out
    assert "the frozen nodes have fitted noise" in out and "fitted noise" not in err
    for word in ("init=", "learning_rate", "TraceClassPrior", "Gaussian(", "thin=", "warmup="):
        assert word not in out + err


def test_few_held_out_rows_are_judged_with_the_validation_rows(table: Path, tmp_path: Path) -> None:
    """45 rows are no evidence that predictions can be used; with a fifth of the 105 others they are 66."""
    size: dict[str, Any] = {"hidden": (8,), "epochs": 60, "l2": 1.0, "minutes": 0.01, "chains": 2, "draws": 60}
    fit = fit_table(FitSettings(str(table), target="y", out=str(tmp_path / "fit"), seed=5, **size))
    pilot, held_out = best_of(fit.trials).evaluation.calibration, fit.evaluation.calibration
    assert isinstance(fit.summary, Summary)
    judged = fit.summary.evidence.calibration
    assert judged == held_out.with_validation(pilot)
    assert (held_out.rows, pilot.rows, judged.rows) == (45, 21, 66)


def test_a_given_number_of_steps_is_kept(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(table), *FIT, "--thin", "50", "--out", str(tmp_path / "fit")]) == 0
    printed = capsys.readouterr().out
    assert "have converged: the run" not in printed and re.search(r"warm-up [\d,]+ steps", printed)
    assert pn.Draws.load(tmp_path / "fit" / "draws.npz").n_draws == 500
