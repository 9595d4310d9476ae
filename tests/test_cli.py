"""The command line: fit and predict end to end on small tables, exit codes, messages, files, pipes and interrupts."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import patrac_native as pn
from patrac_native.cli import main as cli
from patrac_native.cli.main import main
from patrac_native.cli.predict import _shown
from patrac_native.cli.table import Layout, TableFile
from patrac_native.fit.preprocessor import Preprocessor
from patrac_native.report import Finding, Judgement
from scripts import output_of

pytestmark = pytest.mark.usefixtures("without_figures")

# Small enough for a second a run; nothing below is about how well it fits.
QUICK = "--hidden-layer-sizes 5 --max-iter 40 --l2 1 --chains 2 --draws 20 --thin 2 --warmup 400 --n-jobs 1".split()
# With the noise given, nothing is searched for.
KNOWN = [*QUICK, "--noise-variance", "9", "--architecture", "mix", "--k", "2"]
# Half a unit of the sixth digit is at most this share of the number; rounding errors before it do not count beside it.
SIX_DIGITS = 5.001e-6


def table(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": [f"{row:03}" for row in range(n)], "width": rng.uniform(-2, 2, n)})
    frame["kind"] = rng.choice(["a", "b", "NA!"], n)
    frame["day"] = pd.date_range("2024-01-01", periods=n).strftime("%d.%m.%Y")
    signal_ = np.sin(2 * frame["width"]) + (frame["kind"] == "b")
    frame["weight"] = 100.0 + 20.0 * (signal_ + 0.1 * rng.normal(size=n))
    frame["grade"] = np.where(signal_ > 0.8, "07", np.where(signal_ < -0.2, "7", "7.0"))
    return frame


FIT = {
    "numbers": ["--target", "weight", *KNOWN, "--ids", "id", "--dates", "day", "--drop", "grade"],
    "classes": ["--target", "grade", "--task", "classification", *QUICK, "--ids", "id", "--drop", "day", "weight"],
}
INPUTS = {"numbers": ["width", "kind", "day"], "classes": ["width", "kind"]}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and the runs "numbers" and "classes" on it, which several tests read."""
    place = tmp_path_factory.mktemp("fitted")
    table().to_csv(place / "t.csv", index=False)
    for name, arguments in FIT.items():
        assert main(["fit", str(place / "t.csv"), *arguments, "--out", str(place / name)]) == 0
    return place


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def estimator(folder: Path) -> Any:
    made = pn.PatracRegressor if folder.name != "classes" else pn.PatracClassifier
    return made.load(folder / "estimator.npz")


def predictions(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype={"id": str, "label": str}, keep_default_na=False)


def fit(frame: pd.DataFrame, folder: Path, *options: str) -> int:
    """Write a table and fit it; the run is the folder's "run"."""
    frame.to_csv(folder / "t.csv", index=False)
    return main(["fit", str(folder / "t.csv"), *options, "--out", str(folder / "run")])


def predict(run: Path, frame: pd.DataFrame, folder: Path, *options: str) -> int:
    frame.to_csv(folder / "new.csv", index=False)
    return main(["predict", str(run), str(folder / "new.csv"), "--out", str(folder / "p.csv"), *options])


# Fits


def test_fit_writes_everything_and_prints_the_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # with its figures
    table().drop(columns=["day", "grade", "id"]).to_csv(tmp_path / "t.csv", index=True)  # with the index of pandas
    out = tmp_path / "run"
    options = [*QUICK, "--architecture", "mix", "--k", "2", "--random-state", "7", "--out", str(out)]
    assert main(["fit", str(tmp_path / "t.csv"), "--target", "weight", *options]) == 0
    printed = capsys.readouterr().out
    for part in (
        "120 rows, 4 columns; target 'weight': regression (it holds numbers, 120 different ones)",
        "note: Unnamed: 0 numbers the rows and is left out; --keep takes it as an input",
        "84 training rows, 36 held out (random_state 7)",
        "X: 4 inputs from 2 columns",
        "read as categories, because they hold text: kind (NA!, a, b)",
        "validation rows, by 5 networks without them",
        "sampling Mix(2), 13 parameters: 2 chains x 20 draws, thin 2, warm-up 400 steps",
        "noise variance",
        "coverage of 95% intervals of y",
        "max R-hat",
    ):
        assert part in printed
    of_predictions, of_posterior = printed.splitlines()[-2:]
    assert of_predictions.startswith("predictions of y: ") and "a rerun of the chains" in of_predictions
    assert (
        of_posterior.startswith(("posterior of f: look; ", "posterior of f: do not use; ")) and "R-hat" in of_posterior
    )
    names = sorted(path.name for path in out.iterdir())
    assert names == ["estimator.npz", "report.html", "summary.json", "table.json"]
    summary = read_json(out / "summary.json")
    assert summary["rows"] == {"training": 84, "held_out": 36} and summary["random_state"] == 7
    assert summary["target"] == "weight" and summary["inputs"] == ["width", "kind=NA!", "kind=a", "kind=b"]
    verdict = summary["convergence"]["verdict"]
    assert verdict["grade"] in ("look", "do not use") and verdict["posterior"]["findings"][0]["remedy"]
    assert summary["convergence"]["rerun_error"]["replicates"] == 2
    assert set(summary["scores"]["coverage"]) == {"0.5", "0.8", "0.9", "0.95", "0.99"}
    assert estimator(out).draws_.theta.shape == (2, 20, 13)
    html = (out / "report.html").read_text(encoding="utf-8")
    assert "http:" not in html and "https:" not in html and "<script" not in html and "`" not in html
    assert html.count("data:image/png;base64,") == 9
    assert html.index("predictions of y: ") < html.index("<h2")


def test_the_command_is_the_estimator(fitted: Path) -> None:
    """The same training rows and options give the same draws to the bit, and the same scores of held-out rows."""
    from patrac_native.fit.rows import hold_out

    frame = table()
    X, y = frame.drop(columns="weight"), frame["weight"].to_numpy()
    train, test, _ = hold_out(X[INPUTS["numbers"]], frame["weight"], 0.3, seed=0)
    size = {"hidden_layer_sizes": 5, "max_iter": 40, "l2": 1, "chains": 2, "draws": 20, "thin": 2, "warmup": 400}
    columns = {"ids": ["id"], "dates": ["day"], "drop": ["grade"]}
    made = pn.PatracRegressor(
        **size, **columns, noise_variance=9, architecture="mix", k=2, n_jobs=1, random_state=0, minutes=2
    )
    with pytest.warns(UserWarning):
        made.fit(X.iloc[train], y[train], held_out=(X.iloc[test], y[test]))
    assert np.array_equal(made.draws_.theta, estimator(fitted / "numbers").draws_.theta)
    assert read_json(fitted / "numbers" / "summary.json")["scores"] == made.evaluate(X.iloc[test], y[test]).scores


def test_fit_of_classes_whose_labels_are_as_they_are_written(fitted: Path) -> None:
    summary = read_json(fitted / "classes" / "summary.json")
    assert summary["architecture"] == {"name": "out", "k": 5} and summary["prior"]["name"] == "gaussian"
    assert summary["task"] == "classification" and summary["classes"] == ["07", "7", "7.0"]
    scores = summary["scores"]
    assert set(scores) >= {"nll", "nlpd", "brier", "ece", "accuracy", "entropy", "network"}
    parts = scores["entropy"]
    assert parts["total"] == pytest.approx(parts["aleatoric"] + parts["epistemic"], rel=1e-12)
    # Three classes of which the table's rule is plain: better than guessing by class frequency.
    assert scores["nlpd"] < np.log(3.0)


def test_same_seed_same_run_and_another_seed_another(fitted: Path, tmp_path: Path) -> None:
    for name, seed in (("again", "0"), ("other", "1")):
        options = [*FIT["numbers"], "--random-state", seed, "--out", str(tmp_path / name)]
        assert main(["fit", str(fitted / "t.csv"), *options]) == 0
    folders = (fitted / "numbers", tmp_path / "again", tmp_path / "other")
    first, again, other = (estimator(path).draws_.theta for path in folders)
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.parametrize("target", ["weight", "grade"])
def test_a_fit_of_all_rows_is_scored_by_leaving_rows_out(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = table()[["width", "kind", target]]
    task = [] if target == "weight" else ["--task", "classification"]
    arguments = ["--target", target, *task, *QUICK, "--architecture", "out", "--test-fraction", "0"]
    assert fit(frame, tmp_path, *arguments) == 0
    printed = capsys.readouterr().out
    # Fixed parameters were trained on the rows: no headline.
    assert (
        "120 training rows, 0 held out" in printed and "no scores of unseen rows: leave-one-out scores, wh" in printed
    )
    assert "leave-one-out predictions of rows" not in printed
    summary = read_json(tmp_path / "run" / "summary.json")
    assert summary["rows"] == {"training": 120, "held_out": 0} and summary["scores"]["kind"] == "leave one out"
    # Leave-one-out predictions are worse than those of the rows themselves, which the draws have seen.
    made = (pn.PatracRegressor if target == "weight" else pn.PatracClassifier).load(tmp_path / "run" / "estimator.npz")
    seen = made.evaluate(frame[["width", "kind"]], frame[target])
    assert summary["scores"]["nlpd"] > seen.scores["nlpd"]
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Leave-one-out scores" in html and "held out at random" not in html


def test_counts_with_an_exposure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=90), "years": rng.uniform(1, 9, 90)})
    frame["n"] = rng.poisson(frame["years"] * np.exp(frame["x"] / 2))
    options = ["--target", "n", *QUICK, "--likelihood", "poisson", "--exposure", "years", "--architecture", "mix"]
    assert fit(frame, tmp_path, *options) == 0
    assert read_json(tmp_path / "run" / "summary.json")["inputs"] == ["x"]
    assert predict(tmp_path / "run", frame, tmp_path, "--scores", str(tmp_path / "s.json")) == 0
    found = predictions(tmp_path / "p.csv")
    assert found["lower"].dtype.kind == "i" and (found["lower"] <= found["mean"]).all()
    assert predict(tmp_path / "run", frame.assign(years=2 * frame["years"]), tmp_path, "--overwrite") == 0
    np.testing.assert_allclose(predictions(tmp_path / "p.csv")["mean"], 2 * found["mean"], rtol=2 * SIX_DIGITS)
    assert predict(tmp_path / "run", frame.assign(years=0), tmp_path, "--overwrite") == 2
    assert "exposure must be positive" in capsys.readouterr().err


def test_censored_targets_have_their_bounds_in_two_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=90)})
    frame["low"] = frame["up"] = frame["x"] + 0.3 * rng.normal(size=90)
    frame.loc[::4, "up"] = None
    frame.loc[2::9, "low"] = None
    frame = frame.dropna(subset=["low", "up"], how="all")
    options = ["--target", "low", "--upper", "up", "--likelihood", "censored", *QUICK, "--architecture", "out"]
    assert fit(frame, tmp_path, *options) == 0
    assert read_json(tmp_path / "run" / "summary.json")["inputs"] == ["x"]
    assert predict(tmp_path / "run", frame, tmp_path, "--scores", str(tmp_path / "s.json")) == 0
    bounds = np.column_stack([frame["low"].fillna(-np.inf), frame["up"].fillna(np.inf)])
    expected = estimator(tmp_path / "run").evaluate(frame[["x"]], bounds).scores
    assert read_json(tmp_path / "s.json")["nlpd"] == pytest.approx(expected["nlpd"], rel=1e-12)


def test_times_whose_event_was_seen_or_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=120)})
    time, end = np.exp(frame["x"] + 0.3 * rng.normal(size=120)), rng.uniform(0.5, 4, 120)
    frame["days"], frame["event"] = np.minimum(time, end), (time < end).astype(object)
    frame.loc[7, "event"] = None  # neither seen nor not
    options = ["--target", "days", "--event", "event", *QUICK, "--architecture", "out"]
    assert fit(frame, tmp_path, *options) == 0
    said = capsys.readouterr().out
    assert "a row without a target is left out (line 9)" in said and "(D-calibration)" in said
    assert "log y: standardised" in said and " are censored" in said
    written = read_json(tmp_path / "run" / "summary.json")
    assert written["inputs"] == ["x"] and written["likelihood"]["name"] == "censored_gaussian"
    # The same as of the times' bounds in two columns, and as of an estimator that gets the event.
    frame = frame.drop(index=7)
    assert predict(tmp_path / "run", frame, tmp_path, "--scores", str(tmp_path / "s.json")) == 0
    made, seen = estimator(tmp_path / "run"), frame["event"].to_numpy(bool)
    scores = made.evaluate(frame[["x"]], frame["days"], event=seen).scores
    bounds = np.column_stack([frame["days"], np.where(seen, frame["days"], np.inf)])
    assert scores == made.evaluate(frame[["x"]], bounds).scores
    assert read_json(tmp_path / "s.json")["nlpd"] == pytest.approx(scores["nlpd"], rel=1e-12)
    assert scores["censored"] == (~seen).sum() and scores["rmse"] is None and scores["concordance"] > 0.8
    lines = pd.read_csv(tmp_path / "t.csv").assign(event=2)
    capsys.readouterr()
    assert fit(lines, tmp_path, *options, "--overwrite") == 2
    assert "event must be 1 or True where y is the time of an event" in (said := capsys.readouterr().err)
    assert "got 2 at lines 2, " in said


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--target", "nothing"], "target names 'nothing', and the columns of"),
        (["--target", "weight", "--drop", "id", "width_of_none"], "drop names 'width_of_none', and the columns of"),
        (["--target", "weight", "--keep", "width_of_none"], "keep names 'width_of_none', and the columns of"),
        (["--target", "weight", "--likelihood", "censored"], "likelihood censored needs --event COL"),
        (["--target", "weight", "--event", "width", "--upper", "width"], "upper and event both tell which targets"),
        (
            ["--target", "weight", "--event", "width", "--likelihood", "gaussian"],
            "event belongs to likelihood censored",
        ),
        (["--target", "weight", "--event", "width"], "event must be 1 or True where y is the time of an event"),
        (["--target", "weight", "--upper", "id", "--likelihood", "gaussian"], "upper belongs to likelihood censored"),
        (["--target", "weight", "--group", "id", "--time", "width"], "give group or time, not both, and neither"),
        (["--target", "weight", "--group", "part"], "group names 'part', which is missing at line 4; remove those"),
        (["--target", "weight", "--time", "width", "--test-fraction", "0"], "time holds out the latest rows, and test"),
        (
            ["--target", "weight", "--time", "weight"],
            "give group or time, not both, and neither may be the target; got weight",
        ),
        (["--target", "weight", "--time", "kind"], "time names 'kind', which has '"),
        (["--target", "weight", "--ids", "weight"], "ids names 'weight', which target names too"),
        (["--target", "weight", "--ids", "id", "--drop", "id"], "ids names 'id', which drop names too; name it in one"),
        (["--target", "weight", "--test-fraction", "1.5"], "test_fraction must be at least 0 and below 1; got 1.5"),
        (["--target", "weight", "--architecture", "out", "--k", "3", "4"], "k must be one number"),
        (["--target", "weight", "--warmup", "long"], "warmup"),
        (["--target", "weight", "--minutes", "0"], "minutes"),
        (["--target", "weight", "--noise-variance", "-1"], "noise_variance"),
        (["--target", "kind", "--likelihood", "poisson"], "the target 'kind' holds text of 3 different values, such"),
        (["--target", "kind", "--task", "classification", "--likelihood", "poisson"], "likelihood belongs to a"),
        (["--target", "kind", "--noise-variance", "2"], "noise_variance belongs to a regression, and the task is"),
        (["--target", "id"], "the target 'id' holds text of 40 different values, such as 'x0', 'x1', 'x2'; convert it"),
        (["--target", "weight", "--task", "classification"], "the target 'weight' has 120 classes, more than 100"),
        (["--target", "gap"], "the target 'gap' is missing in every row"),
        (["--target", "weight", "--test-fraction", "0.999"], "rows"),
    ],
)
def test_errors_are_one_line_and_code_2(
    extra: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = table().assign(id=[f"x{row % 40}" for row in range(120)], gap=np.nan)
    frame["part"] = frame["id"].where(np.arange(120) != 2)
    gap = [] if "gap" in extra else ["gap"]
    drop = [] if "--drop" in extra or "--target" not in extra else ["--drop", "day", *gap]
    assert fit(frame, tmp_path, "--max-iter", "5", "--l2", "1", *drop, *extra) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("patrac fit: warning: ")]
    assert len(lines) == 1 and lines[0].startswith("patrac fit: error: ") and message in lines[0]
    assert not (tmp_path / "run").exists()


def test_a_nul_character_is_refused_with_the_argument(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, name in (
        (["fit", "a\0b.csv", "--target", "y"], "data"),
        (["fit", "t.csv", "--target", "y", "--out", "a\0b"], "out"),
        (["fit", "t.csv", "--target", "y", "--drop", "a", "a\0b"], "drop"),
        (["predict", "a\0b", "t.csv"], "directory"),
    ):
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"patrac {arguments[0]}: error: {name} must not hold a NUL character; got 'a\\x00b")


def test_all_problems_of_a_table_are_listed_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = table()
    frame.loc[4, "day"] = "yesterday"
    frame["id"] = "x" + frame["id"]
    options = ["--dates", "day", "--keep", "id", "--categorical", "kind", "--test-fraction", "0"]
    assert fit(frame, tmp_path, "--target", "weight", *KNOWN, *options) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("patrac fit: error: column 'id' holds text of 120 different values, such as '")
    assert lines[1].startswith("  dates names 'day', which has 'yesterday' at line 6, no date") and len(lines) == 2


@pytest.mark.parametrize("target", ["weight", "kind"])
def test_rows_without_a_target_are_left_out(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fit is that of a table without them, and a column that numbers all rows is still seen."""
    frame = table().drop(columns="day").assign(id=range(120))
    frame[target] = frame[target].astype(object).where(~frame.index.isin([3, 50, 80, 81]))
    ends = []
    for name, rows in (("gaps", frame), ("whole", frame.dropna(subset=[target]))):
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
        out = tmp_path / name
        extra = ["--drop", "id"] if name == "whole" else []
        assert main(["fit", str(tmp_path / f"{name}.csv"), "--target", target, *QUICK, *extra, "--out", str(out)]) == 0
        said = capsys.readouterr().out
        assert ("note: 4 rows without a target are left out (lines 5, 52, 82 and 1 more)" in said) == (name == "gaps")
        assert ("id numbers the rows" in said) == (name == "gaps")
        made = pn.PatracClassifier if target == "kind" else pn.PatracRegressor
        draws = made.load(out / "estimator.npz").draws_
        ends.append([member.theta for member in getattr(draws, "members", [draws])])
    for of_gaps, of_whole in zip(*ends, strict=True):
        np.testing.assert_array_equal(of_gaps, of_whole)


def test_a_column_that_numbers_the_rows_is_kept_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table()[["width", "weight"]].assign(row=np.arange(120.0), years=range(1, 121))
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "weight", *QUICK, "--architecture", "mix", "--likelihood", "poisson", "--exposure", "years"]
    frame.assign(weight=frame["weight"].round()).to_csv(tmp_path / "counts.csv", index=False)
    assert main(["fit", str(tmp_path / "counts.csv"), *options, "--out", str(tmp_path / "counts")]) == 0
    said = capsys.readouterr().out
    assert "note: row numbers the rows" in said and "years numbers" not in said and "row, years" not in said
    frame = frame.drop(columns="years")
    frame.to_csv(tmp_path / "t.csv", index=False)
    for name, options, inputs in (("without", [], ["width"]), ("kept", ["--keep", "row"], ["width", "row"])):
        arguments = ["--target", "weight", *KNOWN, *options, "--out", str(tmp_path / name)]
        assert main(["fit", str(tmp_path / "t.csv"), *arguments]) == 0
        assert read_json(tmp_path / name / "summary.json")["inputs"] == inputs
    # New rows may have it or not.
    assert predict(tmp_path / "without", frame, tmp_path) == 0
    assert predict(tmp_path / "without", frame.drop(columns="row"), tmp_path, "--overwrite") == 0
    assert predict(tmp_path / "kept", frame.drop(columns="row"), tmp_path, "--overwrite") == 2


@pytest.mark.slow
@pytest.mark.parametrize(("option", "column"), [("--group", "patient"), ("--time", "day"), ("--time", "year")])
def test_splits_by_group_and_by_time(
    option: str, column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = table()[["width", "weight"]]
    frame["patient"] = [f"patient {row % 40}" for row in range(120)]
    frame["day"] = pd.date_range("2024-01-01", periods=120).strftime("%Y-%m-%d")
    frame["year"] = 1900 + np.arange(120) // 2
    frame = frame.sample(frac=1, random_state=0)[["width", "weight", column]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    found: list[Any] = []
    made = pn.PatracRegressor.fit

    def spied(reg: Any, X: Any, y: Any, **named: Any) -> Any:
        found.append((y, named["groups"], named["held_out"][1]))
        return made(reg, X, y, **named)

    monkeypatch.setattr(pn.PatracRegressor, "fit", spied)
    arguments = ["fit", str(tmp_path / "t.csv"), "--target", "weight", option, column, *KNOWN]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert f"note: {column} splits the rows and is left out; --keep takes it as an input" in said
    assert read_json(tmp_path / "run" / "summary.json")["inputs"] == ["width"]
    trained, groups, unseen = found[0]
    of_rows = frame.set_index("weight")[column]
    seen, others = set(of_rows[trained]), set(of_rows[unseen])
    assert len(trained) + len(unseen) == 120 and len(unseen) == 36 and not seen & others
    if option == "--group":
        assert "rows of one of the 40 groups are trained on, held out or validated" in said
        assert groups.tolist() == of_rows[trained].tolist()
    else:
        assert "the latest rows are held out" in said and groups is None and max(seen) < min(others)
    if column == "year":
        assert main([*arguments, "--keep", "year", "--out", str(tmp_path / "kept")]) == 0
        assert read_json(tmp_path / "kept" / "summary.json")["inputs"] == ["width", "year"]
    # New rows may have the column or not.
    assert predict(tmp_path / "run", frame, tmp_path) == 0
    assert predict(tmp_path / "run", frame.drop(columns=column), tmp_path, "--overwrite") == 0


# Predictions


def test_predict_gives_what_the_estimator_gives(fitted: Path, tmp_path: Path) -> None:
    new = table(50)[["kind", "id", "day", "width"]]
    assert predict(fitted / "numbers", new, tmp_path, "--coverage", "0.9") == 0
    found = predictions(tmp_path / "p.csv")
    assert list(found.columns) == ["id", "mean", "sd", "lower", "upper", "sd_f", "remarks", "status", "verdict"]
    assert found["id"].tolist() == new["id"].tolist()
    made = estimator(fitted / "numbers")
    mean, sd = made.predict(new, return_std=True)
    lower, upper = made.predict_interval(new, 0.9)
    expected = {"mean": mean, "sd": sd, "lower": lower, "upper": upper}
    for name, values in {**expected, "sd_f": np.sqrt(made.predict_uncertainty(new).epistemic)}.items():
        np.testing.assert_allclose(found[name], values, rtol=SIX_DIGITS)
    assert found["remarks"].tolist() == made.preprocessor_.remarks(new)


def test_predict_gives_class_probabilities_and_entropies(fitted: Path, tmp_path: Path) -> None:
    new = table(40)
    assert predict(fitted / "classes", new, tmp_path) == 0
    found, made = predictions(tmp_path / "p.csv"), estimator(fitted / "classes")
    columns = [
        "id",
        "label",
        "p_07",
        "p_7",
        "p_7.0",
        "entropy",
        "aleatoric",
        "epistemic",
        "remarks",
        "status",
        "verdict",
    ]
    assert list(found.columns) == columns
    X = new.drop(columns="grade")
    np.testing.assert_allclose(found[["p_07", "p_7", "p_7.0"]], made.predict_proba(X), rtol=SIX_DIGITS)
    assert found["label"].tolist() == made.predict(X).tolist()
    np.testing.assert_allclose(found["entropy"], made.predict_uncertainty(X).total, rtol=SIX_DIGITS)


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_rows_are_predicted_alone_as_together(kind: str, fitted: Path, tmp_path: Path) -> None:
    """The prediction of a row does not depend on the other rows of its file, to the last digit that is written."""
    assert predict(fitted / kind, table(12), tmp_path) == 0
    together = (tmp_path / "p.csv").read_text().splitlines()
    for row in range(12):
        assert predict(fitted / kind, table(12).iloc[[row]], tmp_path, "--overwrite") == 0
        assert (tmp_path / "p.csv").read_text().splitlines() == [together[0], together[row + 1]]


def test_codes_alone_in_their_file_stay_categories(tmp_path: Path) -> None:
    """1E1 alone is no number, and neither is 007; TRUE is what it was in the fit."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"code": rng.choice(["1E1", "10", "A1", "007", "7", "1.10"], 90), "flag": "x", "y": 0.0})
    frame["flag"] = rng.choice(["TRUE", "FALSE", "maybe"], 90)
    frame["y"] = (frame["code"] == "1E1") + 2.0 * (frame["flag"] == "TRUE") + 0.1 * rng.normal(size=90)
    assert fit(frame, tmp_path, "--target", "y", *QUICK, "--noise-variance", "0.01") == 0
    distinct = frame.drop_duplicates(["code", "flag"]).drop(columns="y")
    assert predict(tmp_path / "run", distinct, tmp_path) == 0
    together = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert len(set(together)) == len(distinct) > 12
    for row in range(len(distinct)):
        assert predict(tmp_path / "run", distinct.iloc[[row]], tmp_path, "--overwrite") == 0
        assert (tmp_path / "p.csv").read_text().splitlines()[1] == together[row]


def test_rows_outside_the_training_rows_are_marked(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = table(5)
    new.loc[1, "width"] = 30.0
    new.loc[2, ["kind", "day"]] = ["zinc", "01.02.2031"]
    assert predict(fitted / "numbers", new, tmp_path) == 0
    remarks = predictions(tmp_path / "p.csv")["remarks"].tolist()
    assert remarks[0] == remarks[3] == "" and remarks[1].startswith("width=30 is outside -")
    assert remarks[2].startswith("kind=zinc is unknown; day=2031-02-01 is outside 2024-01-")
    assert "warning: 2 of 5 rows have a remark, such as: width=30 is outside" in capsys.readouterr().err


def test_imputed_values_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table()[["width", "kind", "weight"]]
    frame.loc[[3, 9], "width"] = None
    options = ["--target", "weight", *KNOWN, "--impute", "median", "--missing-indicator", "--test-fraction", "0"]
    assert fit(frame, tmp_path, *options) == 0
    assert "column 'width': 2 missing values imputed by " in capsys.readouterr().out
    assert "width is missing" in read_json(tmp_path / "run" / "summary.json")["inputs"]
    assert predict(tmp_path / "run", frame, tmp_path) == 0
    assert predictions(tmp_path / "p.csv")["remarks"].tolist()[3] == "width is missing"


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_predict_scores_a_table_with_targets(
    kind: str, fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, target = table(50), FIT[kind][1]
    assert predict(fitted / kind, new, tmp_path, "--scores", str(tmp_path / "s.json")) == 0
    assert "NLPD a row" in capsys.readouterr().out
    scores = read_json(tmp_path / "s.json")
    expected = estimator(fitted / kind).evaluate(new.drop(columns=target), new[target]).scores
    assert scores["rows"] == 50 and scores["nlpd"] == pytest.approx(expected["nlpd"], rel=1e-12)
    for unknown, message in (
        (new.drop(columns=target), f"scores needs observed targets, and the table has no column '{target}'"),
        (new.assign(**{target: None}), "scores needs observed targets, and no row has one"),
    ):
        assert predict(fitted / kind, unknown, tmp_path, "--scores", str(tmp_path / "t.json"), "--overwrite") == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()


def test_columns_beside_the_predictions(fitted: Path, tmp_path: Path) -> None:
    new = table(5).assign(mean=["00", "01", "02", "03", "04"])
    assert predict(fitted / "numbers", new.drop(columns="id"), tmp_path, "--ids", "mean") == 0
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0].startswith("id,id_mean,mean,") and lines[2].startswith(",01,")


def test_an_odd_row_costs_its_own_prediction_only(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A word in a column of numbers, an unknown category and a column more; the other rows are predicted as alone."""
    new = table(6)[["kind", "id", "day", "width", "weight"]].assign(extra="x")
    assert predict(fitted / "numbers", new, tmp_path) == 0
    whole = predictions(tmp_path / "p.csv")
    assert "note: extra is ignored: no column of the fitted table" in capsys.readouterr().out
    odd = new.astype({"width": object})
    odd.loc[1, "width"] = "wide"
    odd.loc[3, "kind"] = "unheard of"
    odd.loc[4, "weight"] = None
    assert predict(fitted / "numbers", odd, tmp_path, "--scores", str(tmp_path / "s.json"), "--overwrite") == 0
    found = predictions(tmp_path / "p.csv")
    out, err = capsys.readouterr()
    err = " ".join(err.split())
    assert "1 of 6 rows cannot be predicted, as their status says, such as: column 'width' holds number" in err
    assert "1 of 6 rows have a category that no training row has" in err
    assert "note: 1 of the predicted rows have no target and are not scored" in out
    assert read_json(tmp_path / "s.json")["rows"] == 4
    assert (found["mean"] == "").tolist() == [row == 1 for row in range(6)]
    assert (
        found["status"][1].startswith("column 'width' holds number") and (found["status"].drop(1) == "predicted").all()
    )
    assert "is unknown" in found["remarks"][3]
    same = [0, 2, 4, 5]
    np.testing.assert_array_equal(found["mean"][same].astype(float), whole["mean"][same])


def test_tables_of_other_columns_are_refused(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict(fitted / "numbers", table(5).rename(columns={"width": "Width"}), tmp_path) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert (
        "Feature names unseen at fit time: - Width Feature names seen at fit time, yet now missing: - width" in message
    )
    assert predict(fitted / "numbers", table(5).assign(kind=[1, 2, 3, 4, 5], width="x"), tmp_path) == 2
    assert "column 'width' holds number in the training rows, and now text such as 'x' at lines 2" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "p.csv").exists()


def test_headerless_files_with_and_without_the_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table()[["weight", "kind", "width"]]
    frame.to_csv(tmp_path / "t.data", index=False, header=False, sep=" ")
    out = tmp_path / "run"
    assert main(["fit", str(tmp_path / "t.data"), "--no-header", "--target", "0", *KNOWN, "--out", str(out)]) == 0
    new = frame.head(9)
    for name, part in (("with", new), ("without", new.drop(columns="weight"))):
        part.to_csv(tmp_path / f"{name}.data", index=False, header=False, sep=" ")
        assert main(["predict", str(out), str(tmp_path / f"{name}.data"), "--out", str(tmp_path / f"{name}.csv")]) == 0
    assert (tmp_path / "with.csv").read_text() == (tmp_path / "without.csv").read_text()
    (tmp_path / "other.data").write_text("a\nb\n")
    assert main(["predict", str(out), str(tmp_path / "other.data"), "--out", str(tmp_path / "o.csv")]) == 2
    assert "has 1 columns, and the fitted table has 3" in capsys.readouterr().err


def test_the_verdict_of_the_fit_is_not_forgotten(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(fitted / "numbers", tmp_path / "fit")
    made = estimator(tmp_path / "fit")
    for grade in ("do not use", "look"):
        finding = Finding("poor fit", grade, "The fit is poor.", "train again.")
        verdict = replace(made.report_.verdict, predictions=Judgement("predictions of y", (finding,), "facts"))
        made.report_ = replace(made.report_, verdict=verdict)
        made.save(tmp_path / "fit" / "estimator.npz", overwrite=True)
        scores = ["--scores", str(tmp_path / "s.json")]
        assert predict(tmp_path / "fit", table(3), tmp_path, "--overwrite", *scores) == 0
        assert predictions(tmp_path / "p.csv")["verdict"].tolist() == [grade] * 3
        assert read_json(tmp_path / "s.json")["verdict"] == grade
        assert ("the verdict on this fit was: predictions of y: do not use" in capsys.readouterr().err) == (
            grade == "do not use"
        )


def test_numbers_are_rounded_but_not_below_their_spread() -> None:
    assert _shown(9.933681234) == 9.93368 and _shown(123456.789) == 123457.0
    # A large mean with a small spread keeps digits down to a ten-thousandth of the spread at least.
    assert _shown(2001.123456789, 0.01) == 2001.123457


# Files


def test_files_that_are_not_there_and_results_that_are(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = str(fitted / "t.csv"), fitted / "numbers"
    assert main(["fit", str(tmp_path / "no.csv"), "--target", "y", "--out", str(tmp_path / "run")]) == 2
    assert "patrac fit: error: No such file or directory" in capsys.readouterr().err
    before = (run / "estimator.npz").read_bytes()
    assert main(["fit", data, *FIT["numbers"], "--out", str(run)]) == 2
    assert "report.html exists; give --overwrite" in capsys.readouterr().err
    assert (run / "estimator.npz").read_bytes() == before
    assert main(["predict", str(tmp_path), data]) == 2
    assert "holds no table.json" in capsys.readouterr().err
    (tmp_path / "p.csv").write_text("kept")
    assert main(["predict", str(run), data, "--out", str(tmp_path / "p.csv")]) == 2
    assert "exists; give --overwrite" in capsys.readouterr().err and (tmp_path / "p.csv").read_text() == "kept"
    (tmp_path / "file").write_text("kept")
    for out in (str(tmp_path / "file" / "run"), ""):
        assert main(["fit", data, *FIT["numbers"], "--out", out]) == 2


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_results_that_no_file_can_replace_are_refused_before_the_training(
    make: Callable[[Path], None], fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "estimator.npz")
    assert main(["fit", str(fitted / "t.csv"), *FIT["numbers"], "--out", str(tmp_path), "--overwrite"]) == 2
    said = capsys.readouterr()
    assert "estimator.npz exists" in said.err and "rows" not in said.out


def test_outputs_that_would_harm_are_refused(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = tmp_path / "new.csv"
    table().to_csv(new, index=False)
    before = new.read_bytes()
    os.mkfifo(tmp_path / "pipe")
    for options, message in (
        (["--out", str(new), "--overwrite"], "is a file that is read or is written already"),
        (["--out", str(tmp_path / "s"), "--scores", str(tmp_path / "s")], "is a file that is read or is written"),
        (["--out", str(fitted / "numbers" / "estimator.npz"), "--overwrite"], "is a file that is read"),
        (["--out", str(tmp_path / "pipe"), "--overwrite"], "pipe exists"),
        (["--out", "/dev/null", "--overwrite"], "/dev/null exists"),
        (["--out", str(tmp_path / "no" / "p.csv")], "No such file or directory"),
        (["--coverage", "1"], "coverage must be above 0 and below 1; got 1"),
    ):
        assert main(["predict", str(fitted / "numbers"), str(new), *options]) == 2
        assert message in capsys.readouterr().err
    assert new.read_bytes() == before and not (tmp_path / "s").exists()


def test_a_full_disk_loses_no_draws(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the file and the folder to which the results were saved instead."""
    out, spare, replace = tmp_path / "run", tmp_path / "spare", os.replace
    spare.mkdir()

    def failing(source: str, target: str) -> None:
        if str(target).startswith(str(out)):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr("tempfile.tempdir", str(spare))
    monkeypatch.setattr(os, "replace", failing)
    assert main(["fit", str(fitted / "t.csv"), *FIT["numbers"], "--out", str(out)]) == 2
    assert f"Nothing is lost: the results are in {spare}" in capsys.readouterr().err.splitlines()[-1]
    assert not out.exists()
    (kept,) = spare.iterdir()
    assert np.array_equal(estimator(kept).draws_.theta, estimator(fitted / "numbers").draws_.theta)
    assert predict(kept, table(5), tmp_path) == 0


@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content.pop("names"),
        lambda content: content.update({"class": "os.system"}),
        lambda content: content["layout"].update(sep=",NaN"),
    ],
)
def test_a_damaged_description_of_the_table_is_named(
    edit: Callable[[dict[str, Any]], Any], fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(fitted / "numbers", tmp_path / "fit")
    content = read_json(tmp_path / "fit" / "table.json")
    edit(content)
    (tmp_path / "fit" / "table.json").write_text(json.dumps(content))
    assert predict(tmp_path / "fit", table(5), tmp_path) == 2
    assert "table.json is damaged" in capsys.readouterr().err


# Pipes and interrupts, in processes of their own


def run_patrac(arguments: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "patrac_native.cli", *arguments]
    return subprocess.run(command, capture_output=True, timeout=300, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["-", "fifo"])
def test_tables_come_through_pipes(name: str, fitted: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    if name == "fifo":
        os.mkfifo(tmp_path / "fifo")
        writer = subprocess.Popen(["cp", str(fitted / "t.csv"), str(tmp_path / "fifo")])
        done = run_patrac(["predict", str(fitted / "numbers"), str(tmp_path / "fifo"), "--out", str(out)])
        assert writer.wait(timeout=20) == 0
    else:
        content = (fitted / "t.csv").read_bytes()
        done = run_patrac(["predict", str(fitted / "numbers"), name, "--out", str(out)], input=content)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(out)) == 120


def test_a_fit_of_standard_input_says_so(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((fitted / "t.csv").read_bytes())))
    assert main(["fit", "-", *FIT["numbers"], "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.startswith("standard input: 120 rows")
    assert read_json(tmp_path / "run" / "summary.json")["data"] == "standard input"
    assert "<title>standard input: " in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.slow
def test_a_full_standard_output_loses_no_draws(fitted: Path, tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    command = [sys.executable, "-m", "patrac_native.cli", "fit", str(fitted / "t.csv"), *FIT["numbers"]]
    with open("/dev/full", "w") as full:
        subprocess.run([*command, "--out", str(tmp_path / "run")], stdout=full, timeout=300, check=False)
    assert estimator(tmp_path / "run").draws_.n_draws > 0 and (tmp_path / "run" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_keeps_its_draws_and_the_report_says_so(
    sent: signal.Signals, exit_code: int, fitted: Path, tmp_path: Path
) -> None:
    """By Ctrl-C, or by SIGTERM, which schedulers send before they kill."""
    model = [*FIT["numbers"], "--draws", "20000", "--thin", "2000", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-u", "-m", "patrac_native.cli", "fit", str(fitted / "t.csv"), *model]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell in the background leaves it ignored
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        while "sampling Mix(2)" not in (line := process.stdout.readline()):
            assert line
        time.sleep(3.0)  # a draw takes some 20 ms, all of them minutes
        process.send_signal(sent)
        code = process.wait(timeout=120)
        errors = process.stderr.read()
    assert code == exit_code and "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("patrac fit: interrupted after ")
    draws = estimator(tmp_path / "run").draws_
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"Interrupted after {draws.n_draws} of 20000 draws of each chain" in report
    assert 4 <= draws.n_draws < 20000 and not draws.settings["completed"]


# Streams that are absent or take only ASCII, and text from strangers


@pytest.mark.slow
def test_without_standard_error_and_with_ascii_everything_is_done(fitted: Path, tmp_path: Path) -> None:
    """As services run it, and with names that the terminal cannot show."""
    frame = table(60).rename(columns={"weight": "Gewicht \u00e4\u20ac", "kind": "\u798f"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    code = "import os, sys; os.close(2); sys.stderr = None; from patrac_native.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code]
    model = ["fit", "t.csv", "--target", "Gewicht \u00e4\u20ac", *KNOWN, "--drop", "id", "day", "grade", "--out", "run"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*command, *model], cwd=tmp_path, env=ascii_only, timeout=300, check=False, stdout=-1)
    assert done.returncode == 0 and b"target 'Gewicht \\xe4\\u20ac'" in done.stdout
    # An error, which nobody reads, is no result: standard output stays empty.
    done = subprocess.run([*command, *model], cwd=tmp_path, env=ascii_only, timeout=300, check=False, stdout=-1)
    assert done.returncode == 2 and done.stdout == b""
    arguments = ["predict", "run", "t.csv", "--scores", "s.json"]
    done = subprocess.run([*command, *arguments], cwd=tmp_path, env=ascii_only, timeout=300, check=False, stdout=-1)
    assert done.returncode == 0 and len(predictions(tmp_path / "predictions.csv")) == 60


def test_no_name_or_label_moves_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences of columns, labels and file names are printed as text."""
    escape = "\x1b[2J\x07"
    frame = table(60).rename(columns={"width": f"w{escape}", "kind": f"k{escape}", "grade": f"g{escape}"})
    frame[f"g{escape}"] += escape
    frame[f"n{escape}"] = np.arange(60)
    frame.to_csv(tmp_path / f"t{escape}.csv", index=False)
    run = ["fit", str(tmp_path / f"t{escape}.csv"), "--target", f"g{escape}", "--out", str(tmp_path / "run")]
    assert main([*run, *QUICK, "--drop", "day", "weight", "id"]) == 0
    assert main([*run, *QUICK, "--drop", f"no{escape}", "--overwrite"]) == 2
    assert predict(tmp_path / "run", frame.assign(**{f"k{escape}": f"new{escape}"}), tmp_path) == 0
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err and "\x07" not in said.out + said.err
    assert "\\x1b[2J" in said.out and "\\x1b[2J" in said.err


def test_no_cell_of_the_predictions_is_a_formula(tmp_path: Path) -> None:
    """Names of columns, labels, keys and remarks; numbers stay numbers, also where they are text."""
    formulas = ["=1+1", "+1+1", "-1+1", "@SUM(1)", "=cmd|' /C calc'!A0", "-5"]
    frame = table(60).drop(columns=["day", "weight"])
    frame["id"] = [formulas[row % 6] for row in range(60)]
    frame["grade"] = np.where(frame["width"] > 0, "=HYPERLINK(1)", "@a")
    frame["kind"] = np.where(frame["kind"] == "a", "=a", "+b")
    frame = frame.rename(columns={"id": "=id", "kind": "=kind"})
    assert fit(frame, tmp_path, "--target", "grade", "--ids", "=id", *QUICK) == 0
    assert predict(tmp_path / "run", frame.assign(**{"=kind": "=new"}), tmp_path) == 0
    with open(tmp_path / "p.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    cells = [cell for row in rows for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@")) and cell != "-5"]
    assert rows[0][:2] == ["'=id", "label"] and [row[0] for row in rows[1:7]] == [f"'{one}" for one in formulas[:5]] + [
        "-5"
    ]
    assert {row[1] for row in rows[1:]} <= {"'=HYPERLINK(1)", "'@a"}


@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_a_long_field_of_blanks_costs_no_more_than_another(separator: str, tmp_path: Path) -> None:
    """Reading is linear in the length of a field: no pattern goes over it again for each of its characters."""
    field = "a" + " " * 100_000 + "b"
    rows = [f"{field}{separator}{row}{separator}01.02.2024{' ' * 50_000}" for row in range(5)]
    text = f"name{separator}x{separator}day\n" + "\n".join(rows)
    (tmp_path / "t.csv").write_text(text)
    started = time.process_time()
    frame = TableFile(str(tmp_path / "t.csv"), Layout()).frame([])
    found = Preprocessor.fit(frame, categorical=["name"], dates=["day"], standardize=False)
    assert found.transform(frame).shape[0] == 5 and frame["name"].iloc[0] == field
    assert time.process_time() - started < 2.0  # quadratic: minutes


def test_files_of_different_fits_are_told_apart(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report, the numbers and the layout say which draws they are of."""
    shutil.copytree(fitted / "numbers", tmp_path / "fit")
    identity = read_json(tmp_path / "fit" / "summary.json")["draws"]
    assert read_json(tmp_path / "fit" / "table.json")["draws"] == identity
    assert identity in (tmp_path / "fit" / "report.html").read_text() and len(identity) == 16
    content = read_json(tmp_path / "fit" / "table.json")
    (tmp_path / "fit" / "table.json").write_text(json.dumps({**content, "draws": identity[::-1]}))
    assert predict(tmp_path / "fit", table(5), tmp_path) == 2
    assert "table.json and estimator.npz are of different fits; fit again" in capsys.readouterr().err
    layout = {**content["layout"], "decimal": 1}
    (tmp_path / "fit" / "table.json").write_text(json.dumps({**content, "layout": layout}))
    assert predict(tmp_path / "fit", table(5), tmp_path) == 2
    assert "table.json is damaged" in capsys.readouterr().err


# The command itself


def test_traceback_is_shown_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(tmp_path / "no.csv"), "--target", "y", "--out", str(tmp_path), "--traceback"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_info_prints_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    for name, value in pn.build_info().items():
        assert f"{name} " in printed and str(value) in printed


@pytest.mark.parametrize(
    ("arguments", "code", "stream", "part"),
    [
        (["--version"], 0, "out", f"patrac_native {pn.__version__}"),
        (["--help"], 0, "out", "predict"),
        (["fit", "--help"], 0, "out", "--noise-variance"),
        ([], 2, "err", "COMMAND"),
        (["nonsense"], 2, "err", "nonsense"),
        (["fit"], 2, "err", "--target"),
        (["study"], 2, "err", "STUDY"),
    ],
)
def test_usage(arguments: list[str], code: int, stream: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == code
    assert part in getattr(capsys.readouterr(), stream)


def test_every_parameter_of_the_estimators_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for made in (pn.PatracRegressor, pn.PatracClassifier):
        for name in made().get_params():
            assert (f"--{name.replace('_', '-')}" in printed) == (name not in ("kernel", "verbose", "warm_start"))
    assert (
        "Widths of the hidden layers, at least one" in printed and "On the command line the default is 2.0" in printed
    )


def test_a_command_that_cannot_be_loaded_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "demo", ("patrac_native.studies.absent", "a demonstration"))
    assert main(["demo"]) == 2
    assert "this command cannot be loaded" in capsys.readouterr().err
    assert main(["info"]) == 0


def test_ctrl_c_while_a_command_loads_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a command needs takes seconds to load, on a busy machine or from a network's disk."""

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("patrac_native.cli.main.import_module", interrupted)
    assert main(["predict", "results", "new.csv"]) == 130
    assert capsys.readouterr().err == "patrac: interrupted\n"


def test_the_package_is_the_command_too(tmp_path: Path) -> None:
    """`python -m patrac_native.cli` prints and returns what `patrac` does."""
    done = run_patrac(["fit", str(tmp_path / "absent.csv"), "--target", "y"])
    assert done.returncode == 2 and done.stderr.startswith(b"patrac fit: error: ") and b"absent.csv" in done.stderr
    assert b"usage: patrac " in run_patrac(["--help"]).stdout


def test_help_and_info_load_nothing_heavy() -> None:
    code = (
        "import sys; from patrac_native.cli.main import main; main(['info']); main(['--help']); "
        "heavy = [m for m in ('torch', 'pandas', 'sklearn', 'matplotlib', 'scipy', 'jinja2') if m in sys.modules]; "
        "main(['fit', '--help']); print('heavy:', heavy, 'torch' in sys.modules)"
    )
    assert output_of(code).splitlines()[-1] == "heavy: [] False"


@pytest.mark.slow
def test_abalone_end_to_end(data_dir: Path, tmp_path: Path) -> None:
    """The real file, with a small network and few steps: intervals hold the held-out rows and nothing is lost."""
    out, data = tmp_path / "run", str(data_dir / "abalone" / "abalone.data")
    size = "--hidden-layer-sizes 10 10 --l2 10 --max-iter 150 --draws 50 --thin 20 --warmup 2000".split()
    model = "--no-header --target 8 --architecture mix --k 5".split()
    assert main(["fit", data, *model, *size, "--out", str(out)]) == 0
    scores = read_json(out / "summary.json")["scores"]
    # 1,253 held-out rows: a binomial standard error of 0.6%, and a noise variance known to some 6%.
    assert 0.92 <= scores["coverage"]["0.95"] <= 0.98
    assert scores["rmse"] <= 1.03 * scores["rmse_network"]
    with open(data, encoding="utf-8") as stream:
        rows = [row[:8] for _, row in zip(range(10), csv.reader(stream), strict=False)]
    (tmp_path / "new.data").write_text("\n".join(",".join(row) for row in rows))
    assert main(["predict", str(out), str(tmp_path / "new.data"), "--out", str(tmp_path / "p.csv")]) == 0
    found = pd.read_csv(tmp_path / "p.csv")
    assert len(found) == 10 and (found["lower"] < found["mean"]).all() and (found["mean"] < found["upper"]).all()
