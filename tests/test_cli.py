"""Tests of the command line: fit and predict end to end on small tables, exit codes, messages, and what loads when."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import patrac_native as pn
from patrac_native.cli import main as cli
from patrac_native.cli.main import main
from patrac_native.draws.draws_mixture import load_predictions
from patrac_native.fit.budget import schedule_given, schedule_within, step_operations
from patrac_native.fit.evaluation import evaluate_classes, evaluate_regression
from patrac_native.fit.fit_data import FitData
from patrac_native.fit.predict import _shown, load_preprocessing

# Small enough for a second a run; nothing below is about how well it fits.
QUICK = ["--hidden", "6", "5", "--epochs", "60", "--l2", "1", "--chains", "2", "--draws", "20", "--thin", "5"]
QUICK += ["--warmup", "400", "--threads", "1"]
# With the noise given, nothing is searched for.
KNOWN = [*QUICK, "--noise-variance", "9"]


# Half a unit of the sixth digit is at most this share of the number; rounding errors before it do not count beside it.
SIX_DIGITS = 5.001e-6


def table(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"width": rng.uniform(-2, 2, n), "kind": rng.choice(["a", "b", "c"], n), "depth": rng.normal(size=n)}
    )
    signal = np.sin(2 * frame["width"]) + (frame["kind"] == "b")
    frame["weight"] = 100.0 + 20.0 * (signal + 0.1 * rng.normal(size=n))
    frame["grade"] = np.where(signal > 0.8, "high", np.where(signal < -0.2, "low", "middle"))
    return frame


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Regression and classification runs that several tests read."""
    place = tmp_path_factory.mktemp("fitted")
    frame = table()
    frame.drop(columns="grade").to_csv(place / "numbers.csv", index=False)
    frame.drop(columns="weight").to_csv(place / "classes.csv", index=False)
    assert main(["fit", str(place / "numbers.csv"), "--target", "weight", *KNOWN, "--out", str(place / "numbers")]) == 0
    assert main(["fit", str(place / "classes.csv"), "--target", "grade", *QUICK, "--out", str(place / "classes")]) == 0
    return {"place": place, "numbers": place / "numbers", "classes": place / "classes"}


def read_predictions(path: Path) -> pd.DataFrame:
    """The file's numbers, of six significant digits, without the marks of `outside`."""
    text = pd.read_csv(path, dtype=str).drop(columns="outside")
    return text.apply(lambda column: column if column.name == "label" else column.map(float))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_fit_writes_everything_and_prints_the_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table().drop(columns="grade").to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "run"
    assert main(["fit", str(tmp_path / "t.csv"), "--target", "weight", *QUICK, "--seed", "7", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for part in (
        "120 rows, 4 columns; target 'weight': regression (it holds numbers, 120 different ones)",
        "5 inputs, 84 training rows, 36 held out (seed 7)",
        "noise variance",
        "in the target's units squared",
        "validation rows, by 5 networks without them",
        "sampling Full, 77 parameters: 2 chains x 20 draws, thin 5, warm-up 400 steps",
        "coverage of 95% intervals of y",
        "max R-hat",
        "f and its widths are of the standardised target",
        # 40 draws are never enough for the verdict to be good, and its advice is in options of the command.
        "--thin ",
    ):
        assert part in printed
    last = printed.splitlines()[-1]
    assert last.startswith(("verdict: look; reached: ", "verdict: do not use; reached: ")) and "R-hat" in last
    assert last.endswith("(aims: R-hat 1.01, ESS 400)")
    assert sorted(path.name for path in out.iterdir()) == [
        "draws.npz",
        "preprocessing.json",
        "report.html",
        "summary.json",
    ]
    summary = read_json(out / "summary.json")
    verdict = summary["convergence"]["verdict"]
    assert verdict["grade"] in ("look", "do not use") and verdict["findings"][0]["remedy"]
    scale = read_json(out / "preprocessing.json")["preprocessor"]["target_scale"]
    assert summary["noise_variance"] == pytest.approx(summary["noise_variance_standardised"] * scale**2, rel=1e-14)
    assert set(summary["scores"]["coverage"]) == {"0.5", "0.8", "0.9", "0.95", "0.99"}
    assert pn.Draws.load(out / "draws.npz").theta.shape == (2, 20, 77)
    html = (out / "report.html").read_text(encoding="utf-8")
    assert "http:" not in html and "https:" not in html and "<script" not in html
    assert html.count("data:image/png;base64,") == 8
    assert "thin=" not in html and html.index("Verdict on the chains") < html.index("<h2")
    assert "`" not in html


def test_fit_of_classes(fitted: dict[str, Path]) -> None:
    summary = read_json(fitted["classes"] / "summary.json")
    assert summary["architecture"] == {"name": "out", "k": 5} and summary["prior"]["name"] == "gaussian"
    assert summary["task"] == "classification" and summary["classes"] == ["high", "low", "middle"]
    scores = summary["scores"]
    assert set(scores) >= {"nll", "nlpd", "brier", "ece", "accuracy", "entropy", "network"}
    parts = scores["entropy"]
    assert parts["total"] == pytest.approx(parts["aleatoric"] + parts["epistemic"], rel=1e-12)
    assert summary["noise_variance"] is None
    assert set(summary["convergence"]["class probabilities"]) == {
        "max_rhat",
        "min_ess_bulk",
        "min_ess_tail",
        "max_mcse",
    }
    # Three classes of which the table's rule is plain: better than guessing by class frequency.
    assert scores["nlpd"] < np.log(3.0)


def test_same_seed_same_run_and_another_seed_another(fitted: dict[str, Path], tmp_path: Path) -> None:
    data = str(fitted["place"] / "numbers.csv")
    for name, seed in (("again", "0"), ("other", "1")):
        assert main(["fit", data, "--target", "weight", *KNOWN, "--seed", seed, "--out", str(tmp_path / name)]) == 0
    first, again, other = (
        pn.Draws.load(path / "draws.npz").theta for path in (fitted["numbers"], tmp_path / "again", tmp_path / "other")
    )
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_predict_gives_what_the_draws_give(fitted: dict[str, Path], tmp_path: Path) -> None:
    new = table(50).drop(columns=["grade", "weight"])
    new[["kind", "depth", "width"]].to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "p.csv"
    assert (
        main(["predict", str(fitted["numbers"]), str(tmp_path / "new.csv"), "--out", str(out), "--coverage", "0.9"])
        == 0
    )
    read = read_predictions(out)
    assert list(read.columns) == ["mean", "sd", "lower", "upper", "sd_f"] and len(read) == 50

    prep, _ = load_preprocessing(str(fitted["numbers"]))
    draws = pn.Draws.load(fitted["numbers"] / "draws.npz")
    variance = draws.likelihood.variance_vector(1)[0]  # type: ignore[attr-defined]  # it is Gaussian
    # The rows went through a CSV file, whose numbers are exact.
    f = draws.predict(prep.transform(new)).reshape(-1, 50).astype(np.float64)
    scale = prep.target_scale
    np.testing.assert_allclose(read["mean"], prep.inverse_target(f.mean(axis=0)), rtol=SIX_DIGITS)
    np.testing.assert_allclose(read["sd_f"], f.std(axis=0) * scale, rtol=SIX_DIGITS)
    np.testing.assert_allclose(read["sd"], np.sqrt(f.var(axis=0) + variance) * scale, rtol=SIX_DIGITS)
    for column, probability in (("lower", 0.05), ("upper", 0.95)):
        u = (read[column].to_numpy() - prep.target_mean) / scale
        at = norm.cdf((u - f) / np.sqrt(variance)).mean(axis=0)
        # The density is at most 0.4 / noise sd, so a rounded quantile moves the probability by no more than this.
        tolerance = SIX_DIGITS * np.abs(read[column]).max() * 0.4 / (np.sqrt(variance) * scale)
        np.testing.assert_allclose(at, probability, atol=tolerance)


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_predict_scores_a_table_with_targets(
    kind: str, fitted: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scores are those of `evaluate_*` for the same rows."""
    frame = table(50).drop(columns="grade" if kind == "numbers" else "weight")
    frame.to_csv(tmp_path / "new.csv", index=False)
    arguments = ["predict", str(fitted[kind]), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv")]
    assert main([*arguments, "--scores", str(tmp_path / "s.json")]) == 0
    assert "NLPD a row" in capsys.readouterr().out
    scores = json.loads((tmp_path / "s.json").read_text())
    prep, _ = load_preprocessing(str(fitted[kind]))
    draws = load_predictions(fitted[kind] / "draws.npz")
    X, y = prep.transform(frame), prep.transform_target(frame)
    expected = (evaluate_regression(draws, prep, X, y) if kind == "numbers" else evaluate_classes(draws, X, y)).scores
    assert scores["rows"] == 50
    assert scores["nlpd"] == pytest.approx(expected["nlpd"], rel=1e-12)
    frame.drop(columns=["weight", "grade"], errors="ignore").to_csv(tmp_path / "new.csv", index=False)
    assert main([*arguments, "--scores", str(tmp_path / "t.json"), "--overwrite"]) == 2
    assert "--scores needs observed targets, but the table has no column" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()


def test_predict_gives_class_probabilities_and_entropies(fitted: dict[str, Path], tmp_path: Path) -> None:
    new = table(40).drop(columns=["grade", "weight"])
    new.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "p.csv"
    assert main(["predict", str(fitted["classes"]), str(tmp_path / "new.csv"), "--out", str(out)]) == 0
    read = read_predictions(out)
    assert list(read.columns) == ["label", "p_high", "p_low", "p_middle", "entropy", "aleatoric", "epistemic"]
    prep, _ = load_preprocessing(str(fitted["classes"]))
    p = load_predictions(fitted["classes"] / "draws.npz").predict_proba(prep.transform(new))
    mean = p.mean(axis=(0, 1))
    np.testing.assert_allclose(read[["p_high", "p_low", "p_middle"]], mean, rtol=SIX_DIGITS)
    assert read["label"].tolist() == [prep.classes[index] for index in mean.argmax(axis=1)]
    split = pn.diagnostics.entropy_decomposition(p)
    np.testing.assert_allclose(read["entropy"], split.total, rtol=SIX_DIGITS)
    np.testing.assert_allclose(read["epistemic"], split.epistemic, rtol=SIX_DIGITS)


def test_predictions_do_not_depend_on_the_blocks(
    fitted: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(33).drop(columns=["grade", "weight"]).to_csv(tmp_path / "new.csv", index=False)
    for name, block in (("a.csv", 2**26), ("b.csv", 4 * 40 * 7)):
        monkeypatch.setattr("patrac_native.draws.predictions._BLOCK_BYTES", block)  # 7 rows of 40 float32 draws
        assert main(["predict", str(fitted["numbers"]), str(tmp_path / "new.csv"), "--out", str(tmp_path / name)]) == 0
    a, b = (read_predictions(tmp_path / name).to_numpy() for name in ("a.csv", "b.csv"))
    # Means over draws are summed in another order for another block shape, which may turn over the last digit.
    np.testing.assert_allclose(a, b, rtol=2 * SIX_DIGITS)


def test_headerless_files_with_and_without_the_target(tmp_path: Path) -> None:
    frame = table().drop(columns="grade")[["weight", "kind", "width"]]
    frame.to_csv(tmp_path / "t.data", index=False, header=False, sep=" ")
    out = tmp_path / "run"
    assert main(["fit", str(tmp_path / "t.data"), "--no-header", "--target", "0", *KNOWN, "--out", str(out)]) == 0
    frame.head(9).to_csv(tmp_path / "with.data", index=False, header=False, sep=" ")
    frame.head(9).drop(columns="weight").to_csv(tmp_path / "without.data", index=False, header=False, sep=" ")
    for name in ("with", "without"):
        assert main(["predict", str(out), str(tmp_path / f"{name}.data"), "--out", str(tmp_path / f"{name}.csv")]) == 0
    assert (tmp_path / "with.csv").read_text() == (tmp_path / "without.csv").read_text()


def test_noise_variance_is_in_the_targets_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table().drop(columns="grade").to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "run"
    arguments = [
        "fit",
        str(tmp_path / "t.csv"),
        "--target",
        "weight",
        *KNOWN,
        "--out",
        str(out),
    ]
    assert main(arguments) == 0
    assert "noise variance 9 in the target's units squared (noise sd 3;" in capsys.readouterr().out
    prep, _ = load_preprocessing(str(out))
    draws = pn.Draws.load(out / "draws.npz")
    variance = draws.likelihood.variance_vector(1)[0]  # type: ignore[attr-defined]  # it is Gaussian
    assert variance * prep.target_scale**2 == pytest.approx(9.0, rel=1e-14)


@pytest.mark.parametrize(
    ("extra", "kind", "dim"),
    [
        # 5 inputs (two numbers, three kinds), hidden 6 and 5, one output.
        (["--architecture", "full"], pn.Full(), 6 * 6 + 7 * 5 + 6),
        (["--architecture", "mix", "--k", "2", "3"], pn.Mix([2, 3]), 2 * 6 + 3 * 3 + 4),
        (["--architecture", "sep", "--k", "2"], pn.Sep(2), 2 * 6 + 3 * 2 + 3),
        (["--architecture", "out"], pn.Out(5), 6),
    ],
)
def test_architectures_and_their_default_k(extra: list[str], kind: pn.Architecture, dim: int, tmp_path: Path) -> None:
    table(60).drop(columns="grade").to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "run"
    arguments = [
        "fit",
        str(tmp_path / "t.csv"),
        "--target",
        "weight",
        *KNOWN,
        "--out",
        str(out),
    ]
    assert main([*arguments, *extra]) == 0
    draws = pn.Draws.load(out / "draws.npz")
    assert draws.network.architecture == kind and draws.network.dim == dim


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--target", "nothing"], "--target must be a column's name or its number in 0..4; got 'nothing'"),
        (["--target", "weight", "--architecture", "full", "--k", "3"], "--k has no meaning for --architecture full"),
        (["--target", "weight", "--architecture", "out", "--k", "3", "4"], "--k must be one number"),
        (
            ["--target", "weight", "--k", "60"],
            "--k must be from 1 to the width of the layer; got 60 for a hidden layer of",
        ),
        (["--target", "weight", "--k", "2", "51"], "got 51 for a hidden layer of 50 nodes"),
        (["--target", "weight", "--k", "2", "3", "4"], "--k must be one number, or one for each of the 2 widths"),
        (["--target", "weight", "--architecture", "out", "--k", "99"], "got 99 for a hidden layer of 50 nodes"),
        (["--target", "weight", "--warmup", "long"], "--warmup must be a number of steps or \"paper\"; got 'long'"),
        (["--target", "weight", "--draws", "1"], "--draws must be at least 4; got 1"),
        (["--target", "weight", "--test-fraction", "1.5"], "--test-fraction must be at least 0 and below 1; got 1.5"),
        (["--target", "weight", "--minutes", "1e30"], "--minutes must be at most 1,000,000; got 1e+30"),
        (["--target", "weight", "--minutes", "0"], "--minutes must be positive and finite; got 0"),
        (["--target", "weight", "--minutes", "1", "--thin", "4"], "--minutes and --thin both set the number of steps"),
        (["--target", "weight", "--alpha", "1"], "--alpha must be greater than 1 and finite; got 1.0"),
        (["--target", "weight", "--noise-variance", "-1"], "--noise-variance must be positive and finite; got -1"),
        (["--target", "grade", "--task", "regression"], "the target 'grade' must hold numbers; got"),
    ],
)
def test_errors_are_one_line_and_code_2(
    extra: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(30).to_csv(tmp_path / "t.csv", index=False)
    quick = ["--epochs", "5", "--l2", "1", "--noise-variance", "4"] if "--noise-variance" not in extra else []
    assert main(["fit", str(tmp_path / "t.csv"), "--out", str(tmp_path / "run"), *quick, *extra]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("patrac fit: warning: ")]
    assert len(lines) == 1 and lines[0].startswith("patrac fit: error: ") and message in lines[0]
    assert not (tmp_path / "run").exists()


def test_a_text_target_with_gaps_is_refused_by_name_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = table(30)
    frame.loc[[4, 7], "grade"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert main(["fit", str(tmp_path / "t.csv"), "--target", "grade", *QUICK, "--out", str(tmp_path / "run")]) == 2
    where = "data row 4 (counted from 0; line 6 of the file)"
    assert (
        f"the target 'grade' has 2 missing values, the first at {where}, also lines 9; remove those"
        in capsys.readouterr().err
    )


def test_folders_and_tables_too_small_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(tmp_path), "--target", "y", "--out", str(tmp_path / "run")]) == 2
    assert "DATA must be a file of rows and columns" in capsys.readouterr().err
    (tmp_path / "t.csv").write_text("a,y\nx,1\n")
    assert main(["fit", str(tmp_path / "t.csv"), "--target", "y", "--out", str(tmp_path / "run")]) == 2
    message = "--test-fraction 0.3 of 1 rows leaves none to hold out or none to train on"
    assert message in capsys.readouterr().err
    (tmp_path / "file").write_text("kept")
    assert main(["fit", str(tmp_path / "t.csv"), "--target", "y", "--out", str(tmp_path / "file" / "run")]) == 2
    assert "--out must be a folder or a new one" in capsys.readouterr().err


def test_a_fit_of_all_rows_is_scored_by_leaving_rows_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without held-out rows, the noise is sampled and the verdict rests on leave-one-out predictions."""
    frame = table().drop(columns="grade")
    frame.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "run"
    arguments = ["fit", str(tmp_path / "t.csv"), "--target", "weight", *QUICK, "--architecture", "full"]
    assert main([*arguments, "--test-fraction", "0", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "120 training rows, 0 held out" in printed and "leave-one-out predictions of rows: 120" in printed
    assert "the mean of its draws" in printed
    summary = read_json(out / "summary.json")
    assert summary["rows"] == {"training": 120, "held_out": 0} and summary["scores"]["kind"] == "leave one out"
    assert summary["likelihood"]["variance"] == "sampled"
    # Leave-one-out predictions are worse than those of the rows themselves, which the draws have seen.
    prep, _ = load_preprocessing(str(out))
    draws = pn.Draws.load(out / "draws.npz")
    seen = evaluate_regression(draws, prep, prep.transform(frame), prep.transform_target(frame)).scores
    assert summary["scores"]["nlpd"] > seen["nlpd"]
    html = (out / "report.html").read_text(encoding="utf-8")
    assert "Leave-one-out scores" in html and "held out at random" not in html


def test_classes_without_held_out_rows(tmp_path: Path) -> None:
    table().drop(columns="weight").to_csv(tmp_path / "t.csv", index=False)
    arguments = ["fit", str(tmp_path / "t.csv"), "--target", "grade", *QUICK, "--test-fraction", "0"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0
    scores = read_json(tmp_path / "run" / "summary.json")["scores"]
    assert scores["network"] is None and scores["kind"] == "leave one out" and 0 < scores["nlpd"]


def test_alpha_is_taken_or_fitted_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(60).drop(columns="grade").to_csv(tmp_path / "t.csv", index=False)
    for alpha in (["--architecture", "mix"], ["--alpha", "3", "--prior", "auto"]):
        out = tmp_path / alpha[0].removeprefix("--")
        assert main(["fit", str(tmp_path / "t.csv"), "--target", "weight", *KNOWN, *alpha, "--out", str(out)]) == 0
        said = capsys.readouterr()
        prior = read_json(out / "summary.json")["prior"]
        assert f"prior: trace-class, alpha {prior['alpha']:g}" in said.out
        # A search that ends at its upper bound is a note in the output, not a warning beside it.
        assert ("note: alpha is at the upper bound" in said.out) == (prior["alpha"] == 8.0)
        assert "alpha" not in said.err
    assert prior["alpha"] == 3.0


def test_the_prior_of_full_has_sampled_scales(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(60).drop(columns="grade").to_csv(tmp_path / "t.csv", index=False)
    arguments = ["fit", str(tmp_path / "t.csv"), "--target", "weight", *KNOWN, "--architecture", "full"]
    for prior in ("auto", "trace-class"):
        assert main([*arguments, "--prior", prior, "--out", str(tmp_path / prior)]) == 0
    auto, paper = (read_json(tmp_path / prior / "summary.json")["prior"] for prior in ("auto", "trace-class"))
    assert auto["name"] == "gaussian" and auto["scales"] and paper["name"] == "trace_class" and not paper.get("scales")
    assert main([*arguments, "--prior", "gaussian", "--alpha", "2", "--out", str(tmp_path / "both")]) == 2
    assert "--alpha is a parameter of --prior trace-class" in capsys.readouterr().err


def test_predict_says_what_it_imputes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table(60).drop(columns="grade")
    frame.loc[[3, 9], "width"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "run"
    arguments = ["--target", "weight", *KNOWN, "--impute", "mean", "--out", str(out)]
    assert main(["fit", str(tmp_path / "t.csv"), *arguments]) == 0
    capsys.readouterr()
    assert main(["predict", str(out), str(tmp_path / "t.csv"), "--out", str(tmp_path / "p.csv")]) == 0
    fill = load_preprocessing(str(out))[0].columns[0].fill
    assert f"note: column 'width': 2 missing values imputed by {fill:.6g}\n" in capsys.readouterr().out


def test_numbers_are_rounded_but_not_below_their_spread() -> None:
    assert _shown(9.933681234) == 9.93368 and _shown(123456.789) == 123457.0
    # A large mean with a small spread keeps digits down to a ten-thousandth of the spread at least.
    assert _shown(2001.123456789, 0.01) == 2001.123457


def test_files_that_are_not_there_and_results_that_are(
    fitted: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(fitted["place"] / "numbers.csv")
    assert main(["fit", str(tmp_path / "no.csv"), "--target", "y", "--out", str(tmp_path / "run")]) == 2
    assert "patrac fit: error: there is no file" in capsys.readouterr().err
    before = (fitted["numbers"] / "draws.npz").read_bytes()
    assert main(["fit", data, "--target", "weight", *QUICK, "--out", str(fitted["numbers"])]) == 2
    assert "holds the results of an earlier run" in capsys.readouterr().err
    assert (fitted["numbers"] / "draws.npz").read_bytes() == before
    assert main(["predict", str(tmp_path), data]) == 2
    assert "patrac predict: error:" in (text := capsys.readouterr().err) and "holds no preprocessing.json" in text
    (tmp_path / "p.csv").write_text("kept")
    assert main(["predict", str(fitted["numbers"]), data, "--out", str(tmp_path / "p.csv")]) == 2
    assert "exists; pass --overwrite" in capsys.readouterr().err
    assert (tmp_path / "p.csv").read_text() == "kept"
    assert main(["predict", str(fitted["numbers"]), data, "--out", str(tmp_path / "p.csv"), "--overwrite"]) == 0


def test_predict_names_an_unknown_category(
    fitted: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = table(5).drop(columns=["grade", "weight"])
    new.loc[2, "kind"] = "z"
    new.to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(fitted["numbers"]), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv")]) == 2
    assert (
        "column 'kind' has the unknown category 'z' at data row 2 (counted from 0; line 4 of the file)"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "p.csv").exists()


def test_traceback_is_shown_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(tmp_path / "no.csv"), "--target", "y", "--out", str(tmp_path), "--traceback"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_info_prints_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    for name, value in pn.build_info().items():
        assert f"{name} " in printed and value in printed


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


def test_a_command_that_cannot_be_loaded_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "demo", ("patrac_native.studies.absent", "a demonstration"))
    assert main(["demo"]) == 2
    assert "this command cannot be loaded" in capsys.readouterr().err
    assert main(["info"]) == 0


def test_the_package_is_the_command_too(tmp_path: Path) -> None:
    """`python -m patrac_native.cli` prints and returns what `patrac` does."""
    run = [sys.executable, "-m", "patrac_native.cli"]
    done = subprocess.run([*run, "fit", str(tmp_path / "absent.csv"), "--target", "y"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("patrac fit: error: ") and "absent.csv" in done.stderr
    assert "usage: patrac " in subprocess.run([*run, "--help"], capture_output=True, text=True, check=True).stdout


def test_help_and_info_load_nothing_heavy() -> None:
    code = (
        "import sys; from patrac_native.cli.main import main; "
        "main(['info']); main(['--help']); main(['fit', '--help']); "
        "print('heavy:', [m for m in ('torch', 'pandas', 'matplotlib', 'scipy', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_scores_agree_with_the_diagnostics(fitted: dict[str, Path]) -> None:
    prep, _ = load_preprocessing(str(fitted["numbers"]))
    draws = pn.Draws.load(fitted["numbers"] / "draws.npz")
    frame = table(80)
    data = FitData(prep, np.empty((0, 5)), np.empty(0), prep.transform(frame), prep.transform_target(frame))
    scores = evaluate_regression(draws, prep, data.X_test, data.y_test).scores
    f = draws.predict(data.X_test)
    variance = draws.likelihood.variance_vector(1)[0]  # type: ignore[attr-defined]  # it is Gaussian
    # The same sums in another order.
    assert scores["nlpd"] == pytest.approx(pn.diagnostics.nlpd(f, data.y_test, variance), rel=1e-12)
    assert scores["rmse"] == pytest.approx(pn.diagnostics.rmse(f, data.y_test) * prep.target_scale, rel=1e-12)
    assert scores["rmse_network"] == pytest.approx(
        float(
            np.sqrt(np.mean((prep.inverse_target(draws.network.net.predict(data.X_test)[:, 0]) - frame["weight"]) ** 2))
        ),
        rel=1e-12,
    )
    # 400 noise draws for each of 40 function draws give the interval's ends a standard error of about 0.03 noise sds,
    # which moves a row in or out only if its y is that near to an end: some 80 x 2 x 0.1 x 0.03 = 0.5 rows, at most 3.
    rng = np.random.default_rng(0)
    y = np.concatenate([np.asarray(draws.likelihood.sample(f, rng)) for _ in range(400)], axis=1)
    sampled = pn.diagnostics.coverage(y, data.y_test, tau=[0.05])[0]
    assert abs(scores["coverage"]["0.95"] - sampled) <= 3 / 80


def test_the_budget_pays_for_more_steps_of_cheaper_models() -> None:
    rng = np.random.default_rng(0)
    net = pn.Network(
        [rng.normal(size=(50, 10)), rng.normal(size=(50, 50)), rng.normal(size=(1, 50))],
        [np.zeros(50), np.zeros(50), [0.0]],
    )
    prior = pn.TraceClassPrior(1.5, 1.0, 1.0)
    X, y = rng.normal(size=(3000, 10)), rng.normal(size=3000)
    posteriors = [pn.Posterior(net, kind, prior, pn.Gaussian(1.0), X, y) for kind in (pn.Full(), pn.Mix(5), pn.Sep(5))]
    schedules = [schedule_within(2.0, post, chains=4, draws=500) for post in posteriors]
    steps = [one.steps(500) for one in schedules]
    assert steps == sorted(steps)
    twice = schedule_within(4.0, posteriors[0], chains=4, draws=500)
    # Both are rounded down: warm-ups to multiples of 200, the rest to multiples of 500.
    assert abs(twice.steps(500) - 2 * steps[0]) <= 2 * 700
    collapsed, plain = (step_operations(posteriors[0], pn.MGrad(collapse=collapse)) for collapse in (True, False))
    assert collapsed > plain
    along = step_operations(posteriors[0], pn.MGrad(collapse=True, metric="curvature"))
    # Weights and gradient of layers of 10 x 50, 50 x 50 and 50 x 1, times the axes of both sides.
    assert along - collapsed == pytest.approx(2 * (500 * 60 + 2_500 * 100 + 50 * 51), rel=1e-6)
    assert schedule_given(10, 10).warmup == 4000 and schedule_given(1000, 500).warmup == 20_000
    assert schedule_given(40, 500).warmup == 10_000


@pytest.mark.slow
def test_abalone_end_to_end(data_dir: Path, tmp_path: Path) -> None:
    """The real file, with a small network and few steps: intervals hold the held-out rows and nothing is lost."""
    out = tmp_path / "run"
    data = str(data_dir / "abalone" / "abalone.data")
    size = "--hidden 10 10 --l2 10 --epochs 150 --draws 50 --thin 20 --warmup 2000".split()
    model = "--no-header --target 8 --architecture mix --k 5".split()
    assert main(["fit", data, *model, *size, "--out", str(out)]) == 0
    scores = read_json(out / "summary.json")["scores"]
    # 1,253 held-out rows: a binomial standard error of 0.6%, and a noise variance known to some 6%.
    assert 0.92 <= scores["coverage"]["0.95"] <= 0.98
    assert scores["rmse"] <= 1.03 * scores["rmse_network"]
    with open(data, encoding="utf-8") as stream:
        rows = [row[:8] for _, row in zip(range(10), csv.reader(stream), strict=False)]
    new = tmp_path / "new.data"
    new.write_text("\n".join(",".join(row) for row in rows))
    assert main(["predict", str(out), str(new), "--out", str(tmp_path / "p.csv")]) == 0
    read = pd.read_csv(tmp_path / "p.csv")
    assert len(read) == 10 and (read["lower"] < read["mean"]).all() and (read["mean"] < read["upper"]).all()
