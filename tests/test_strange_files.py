"""`patrac fit` and `predict` in the first hour: paths, pipes, full disks, marks, messages and exit codes."""

from __future__ import annotations

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
from patrac_native.cli.main import main
from patrac_native.fit.descriptions import describe_prior
from patrac_native.fit.fit_settings import FitSettings
from patrac_native.training.folds import split_rows
from patrac_native.validation import output

QUICK = "--hidden 4 --epochs 40 --l2 1 --chains 2 --draws 20 --thin 2 --warmup 400 --threads 1".split()
KNOWN = [*QUICK, "--noise-variance", "0.1", "--architecture", "mix", "--k", "2"]


def table(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"name": [f"sample {row}" for row in range(n)], "cement": rng.uniform(100, 500, n)})
    frame["day"] = pd.date_range("2024-01-01", periods=n).strftime("%Y-%m-%d")
    frame["cost"] = [f"${1000 + 10 * row:,}" for row in range(n)]
    frame["strength"] = frame["cement"] / 100 + 0.1 * rng.normal(size=n)
    return frame


FIT = ["--target", "strength", "--id", "name", "--date", "day", *KNOWN]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("strange")
    table().to_csv(place / "t.csv")  # with the index of pandas
    assert main(["fit", str(place / "t.csv"), *FIT, "--out", str(place / "fit")]) == 0
    return place


def predict(fitted: Path, frame: pd.DataFrame, folder: Path, *options: str) -> int:
    frame.to_csv(folder / "new.csv", index=False)
    return main(["predict", str(fitted / "fit"), str(folder / "new.csv"), "--out", str(folder / "p.csv"), *options])


def test_a_table_as_people_have_it(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Index, identifier, dates and amounts: what was done is said, and predictions carry the identifier."""
    assert main(["fit", str(fitted / "t.csv"), *FIT, "--out", str(tmp_path / "fit")]) == 0
    said = capsys.readouterr().out
    assert "note: the first column has no name and numbers the rows" in said
    assert "note: column 'cost': text such as '$1,000' was read as 1000" in said
    assert "3 inputs" in said
    new = table().drop(columns="strength").iloc[[5, 3]]
    assert predict(fitted, new[["cost", "day", "cement", "name"]], tmp_path) == 0
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found.columns) == ["name", "mean", "sd", "lower", "upper", "sd_f", "outside"]
    assert found["name"].tolist() == ["sample 5", "sample 3"]
    # Reordered columns give the numbers of the fitted order.
    assert predict(fitted, new, tmp_path, "--overwrite") == 0
    assert pd.read_csv(tmp_path / "p.csv").equals(found)


def test_rows_outside_the_training_range_are_marked(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = table().drop(columns="strength").iloc[:4].copy()
    new.loc[1, "cement"] = 9e9
    new.loc[3, "cement"], new.loc[3, "day"] = 1.0, "2030-01-01"
    assert predict(fitted, new, tmp_path) == 0
    outside = pd.read_csv(tmp_path / "p.csv", keep_default_na=False)["outside"].tolist()
    assert outside == ["", "cement", "", "cement; day"]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith(
        "patrac predict: warning: 2 of 4 rows are outside the range of the training rows, where intervals may be too "
        "narrow; the column `outside` marks them (cement = 9e+09 at data row 1 (counted from 0; line 3 of the file), "
    )
    assert "day = 2030-01-01 at" in lines[0] and "training 2024-01-" in lines[0]


def test_categories_that_no_training_row_has_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All rows name the categories, so that one that is only held out predicts, but nothing was learned of it."""
    frame = table().drop(columns=["name", "day"]).assign(kind=["a", "b"] * 30)
    held_out, training = split_rows(60, [0.3], seed=0)
    frame.loc[held_out[0], "kind"] = "rare"
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit = [*FIT[:2], *KNOWN, "--out", str(tmp_path / "fit")]
    assert main(["fit", str(tmp_path / "t.csv"), *fit]) == 0
    new = frame.drop(columns="strength").iloc[training[:3]].assign(kind=["a", "rare", "b"])
    capsys.readouterr()
    assert predict(tmp_path, new, tmp_path) == 0
    assert pd.read_csv(tmp_path / "p.csv", keep_default_na=False)["outside"].tolist() == ["", "kind", ""]
    (line,) = capsys.readouterr().err.splitlines()
    assert "1 of 3 rows are outside the range of the training rows" in line
    assert "(kind = 'rare' at data row 1 (counted from 0; line 3 of the file), which no training row has)" in line


def test_identifiers_keep_their_zeros(fitted: Path, tmp_path: Path) -> None:
    new = table().drop(columns="strength").head(2).assign(name=["007", "10000000000000000000000001"], more=["01", "NA"])
    assert predict(fitted, new, tmp_path, "--id", "more") == 0
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[1].startswith("007,01,") and lines[2].startswith("10000000000000000000000001,NA,")


def test_identifiers_of_tables_without_header_keep_their_zeros(tmp_path: Path) -> None:
    """The identifier stands behind the target, so that its number changes where the target is missing."""
    frame = table()[["cement", "strength"]].assign(key=[f"{row:05d}" for row in range(60)])
    frame.to_csv(tmp_path / "t.csv", index=False, header=False)
    fit = ["--no-header", "--target", "1", "--id", "2", *KNOWN, "--out", str(tmp_path / "fit")]
    assert main(["fit", str(tmp_path / "t.csv"), *fit]) == 0
    for columns in (["cement", "strength", "key"], ["cement", "key"]):
        frame[columns].to_csv(tmp_path / "new.csv", index=False, header=False)
        command = ["predict", str(tmp_path / "fit"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv")]
        assert main([*command, "--overwrite"]) == 0
        assert (tmp_path / "p.csv").read_text().splitlines()[1].startswith("00000,")


def test_amounts_in_another_currency_are_refused(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = table().head(3)
    assert predict(fitted, new.assign(cost=["€1,000", "€1,010", "€1,020"]), tmp_path) == 2
    assert "column 'cost' holds amounts in EUR, and in the fitted table amounts in $; convert them" in (
        capsys.readouterr().err
    )
    # Neither the dropped target nor a plain number has a unit to compare.
    assert predict(fitted, new.assign(cost=[1000, 1010, 1020], strength="45%"), tmp_path) == 0


def test_all_columns_that_options_name_wrongly_are_reported(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--target", "strength", "--id", "nowhere", "strength", "--drop", "cos", "--out", str(tmp_path / "fit")]
    assert main(["fit", str(fitted / "t.csv"), *options]) == 2
    err = capsys.readouterr().err
    assert "--drop must be a column's name or its number in 0..5; got 'cos'" in err
    assert "--id must be a column's name or its number in 0..5; got 'nowhere'" in err
    assert "--id names 'strength', which --target names too; name it in one of them" in err


def test_a_column_that_is_left_out_may_be_dropped(fitted: Path, tmp_path: Path) -> None:
    assert main(["fit", str(fitted / "t.csv"), *FIT, "--drop", "0", "--out", str(tmp_path / "fit")]) == 0


def test_identifiers_named_as_predictions_are_renamed(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two columns `mean` would leave it to the reader's program which of them it takes."""
    assert predict(fitted, table().assign(mean="a", outside="b"), tmp_path, "--id", "mean", "outside") == 0
    assert list(pd.read_csv(tmp_path / "p.csv").columns)[:4] == ["name", "id_mean", "id_outside", "mean"]
    assert "note: the column 'mean' of the table is 'id_mean' in the result, whose" in capsys.readouterr().out


def test_missing_and_unknown_columns_are_named(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = table().drop(columns="strength").rename(columns={"cement": "Cement"})
    assert predict(fitted, new, tmp_path) == 2
    err = capsys.readouterr().err
    assert "columns that the fitted one had not: 'Cement', and it lacks 'cement'. Correct their names" in err
    assert predict(fitted, table().drop(columns="cement"), tmp_path) == 2
    assert "the table lacks the columns 'cement'" in capsys.readouterr().err
    assert not (tmp_path / "p.csv").exists()
    assert predict(fitted, table().assign(batch=3), tmp_path, "--id", "batch") == 0
    assert list(pd.read_csv(tmp_path / "p.csv").columns)[:2] == ["name", "batch"]


def test_files_of_different_fits_are_refused(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(fitted / "fit", tmp_path / "fit")
    other = tmp_path / "other"
    assert main(["fit", str(fitted / "t.csv"), *FIT, "--seed", "1", "--out", str(other)]) == 0
    for name in ("draws.npz", "preprocessing.json"):
        shutil.copy(fitted / "fit" / "draws.npz", tmp_path / "fit" / "draws.npz")
        shutil.copy(fitted / "fit" / "preprocessing.json", tmp_path / "fit" / "preprocessing.json")
        assert main(["predict", str(tmp_path / "fit"), str(fitted / "t.csv"), "--out", str(tmp_path / "a.csv")]) == 0
        (tmp_path / "a.csv").unlink()
        shutil.copy(other / name, tmp_path / "fit" / name)
        capsys.readouterr()
        assert main(["predict", str(tmp_path / "fit"), str(fitted / "t.csv"), "--out", str(tmp_path / "a.csv")]) == 2
        assert "draws.npz and preprocessing.json in" in (err := capsys.readouterr().err) and "different fits" in err
    # Draws that were thinned are still those of the fit.
    shutil.copytree(fitted / "fit", tmp_path / "thin")
    pn.Draws.load(fitted / "fit" / "draws.npz").thinned(2).save(tmp_path / "thin" / "draws.npz", overwrite=True)
    assert main(["predict", str(tmp_path / "thin"), str(fitted / "t.csv"), "--out", str(tmp_path / "a.csv")]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drop", "strength"], "--drop names 'strength', which --target names too"),
        (["--categorical", "strength"], "--categorical names 'strength', which --target names too"),
        (["--drop", "day"], "--date names 'day', which --drop names too"),
        (["--task", "classification"], "--noise-variance is the variance of the noise of a regression"),
        (["--target", "name"], "--id names 'name', which --target names too"),
        (["--out", ""], "--out must be the path of a folder; got ''"),
        (["--out", "x" * 300], "--out cannot be written: File name too long"),
        (["--hidden", "1000000000000", "1000000000000"], "of memory; this machine has"),
        (["--draws", "1000000000000000"], "or store less than 2 chains of 1000000000000000 draws of "),
        (["--chains", "1000000000000"], "1000000000000 chains of 20 draws of 1 parameters (--chains, --draws)"),
        (["--seed", "1" * 30], "--seed must be below 2^64"),
        (["--thin", "1" * 40], "ask for fewer than 2^62"),
    ],
)
def test_settings_that_cannot_be_meant_are_one_line(
    options: list[str], message: str, fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = [] if "--out" in options else ["--out", str(tmp_path / "run")]
    assert main(["fit", str(fitted / "t.csv"), *FIT, *out, *options]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("patrac fit: warning: ")]
    assert len(lines) == 1 and message in lines[0]
    assert not (tmp_path / "run").exists()


def test_a_class_target_refuses_a_noise_variance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table().drop(columns=["name", "day"]).assign(grade=lambda t: np.where(t["cement"] > 300, "a", "b"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert main(["fit", str(tmp_path / "t.csv"), "--target", "grade", *KNOWN, "--out", str(tmp_path / "run")]) == 2
    assert "--noise-variance is the variance of the noise of a regression" in capsys.readouterr().err


def test_all_problems_of_a_table_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table()
    frame.loc[[2, 9], "cement"] = None
    frame.loc[4, "day"] = "yesterday"
    frame.loc[7, "strength"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert main(["fit", str(tmp_path / "t.csv"), *FIT, "--out", str(tmp_path / "run")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "patrac fit: error: 3 problems:" and len(lines) == 4
    assert (
        "column 'cement' has 2 missing values, the first at data row 2 (counted from 0; line 4 of the file), al"
        in lines[1]
    )
    assert "--date 'day'" in lines[2] and "line 9 of the file" in lines[3]


def test_all_rows_are_used_without_held_out_ones(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*FIT, "--test-fraction", "0", "--draws", "30"]
    assert main(["fit", str(fitted / "t.csv"), *options, "--out", str(tmp_path / "run")]) == 0
    assert "60 training rows, 0 held out" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rows"] == {"training": 60, "held_out": 0}


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"strength": [f"s{row}" for row in range(60)]}, [], "the target 'strength' has 60 classes in 60 rows, too m"),
        ({}, ["--task", "classification"], "has 60 classes in 60 rows, too many to learn; use --task regression"),
        ({}, ["--test-fraction", "0.99"], "--test-fraction 0.99 of 60 rows leaves 1 to train on; give a table"),
        ({}, ["--test-fraction", "0.9"], "6 training rows are too few to estimate the noise on a fifth of them; give"),
    ],
)
def test_too_few_rows_are_said_before_the_training(
    change: dict[str, list[str]], options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table().drop(columns=["name", "day"]).assign(**change).to_csv(tmp_path / "t.csv", index=False)
    arguments = ["--target", "strength", *options, "--out", str(tmp_path / "run")]
    assert main(["fit", str(tmp_path / "t.csv"), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_warnings_of_the_training_name_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table().drop(columns=["name", "day"]).assign(strength=np.random.default_rng(5).normal(size=60))
    frame.to_csv(tmp_path / "t.csv", index=False)
    arguments = ["--target", "strength", *KNOWN, "--l2", "1000", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(["fit", str(tmp_path / "t.csv"), *arguments]) == 0
    err = capsys.readouterr().err
    assert "the fit is poor" in err and "Raise --epochs, or lower --l2, if X should tell y." in err
    assert "max_epochs" not in err and "learning_rate" not in err and "train:" not in err


# Output


@pytest.mark.parametrize("name", ["draws.npz", "report.html"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_results_that_no_file_can_replace_are_refused_before_the_training(
    name: str, make: Callable[[Path], None], fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / name)
    assert main(["fit", str(fitted / "t.csv"), *FIT, "--out", str(tmp_path), "--overwrite"]) == 2
    said = capsys.readouterr()
    assert name in said.err and ("is a folder" in said.err or "is a device or a pipe" in said.err)
    assert "training [" not in said.out and "rows" not in said.out


def test_outputs_that_would_harm_are_refused(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = tmp_path / "new.csv"
    table().to_csv(new, index=False)
    before = new.read_bytes()
    fit = str(fitted / "fit")
    os.mkfifo(tmp_path / "pipe")
    for options, message in (
        (["--out", str(new), "--overwrite"], "is the table of new rows itself"),
        (["--out", str(tmp_path / "pipe"), "--overwrite"], "is a device or a pipe, which a file cannot replace"),
        (["--out", "/dev/null", "--overwrite"], "/dev/null is a device or a pipe"),
        (["--out", str(tmp_path / "s"), "--scores", str(tmp_path / "s")], "--out and --scores are the same file"),
        (["--out", str(fitted / "fit" / "draws.npz"), "--overwrite"], "is a file of the fit itself; give another"),
        (["--scores", str(fitted / "fit" / "summary.json"), "--overwrite"], "--scores"),
        (["--out", "-"], "--out must be the path of a file; got '-'"),
    ):
        assert main(["predict", fit, str(new), *options]) == 2
        assert message in capsys.readouterr().err
    assert new.read_bytes() == before and not (tmp_path / "s").exists()


def full_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every rename to a file in `folder` fail as it does where a quota is exhausted."""
    replace = os.replace

    def failing(source: str, target: str) -> None:
        if str(target).startswith(str(folder)):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(output.os, "replace", failing)


def test_a_full_disk_loses_no_draws(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the file and the folder to which draws and preprocessing were saved instead."""
    out, spare = tmp_path / "run", tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spare))
    full_below(out, monkeypatch)
    assert main(["fit", str(fitted / "t.csv"), *FIT, "--out", str(out)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "no room on the disk for" in last and f"The draws are not lost: predict with {spare}" in last
    assert last.endswith(f": {out / 'draws.npz'}")
    assert list(out.iterdir()) == []
    (kept,) = spare.iterdir()
    assert main(["predict", str(kept), str(fitted / "t.csv"), "--out", str(tmp_path / "p.csv")]) == 0
    same = pn.Draws.load(fitted / "fit" / "draws.npz").theta
    np.testing.assert_array_equal(pn.Draws.load(kept / "draws.npz").theta, same)


def test_a_disk_without_room_is_noticed_before_the_training(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    assert main(["fit", str(fitted / "t.csv"), *FIT, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr()
    assert "--out needs up to 2.097 MB, and its disk has 1 bytes left; free some, choose another folder" in said.err
    assert "training [" not in said.out


def test_a_file_that_may_not_grow_leaves_no_part_behind(fitted: Path, tmp_path: Path) -> None:
    """With a real limit on the size of files, in a process of its own."""
    code = (
        "import resource, sys; from patrac_native.cli.main import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)); sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["predict", str(fitted / "fit"), str(fitted / "t.csv"), "--out", str(tmp_path / "p.csv")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "no room on the disk for what is to be written; free" in done.stderr
    assert str(tmp_path / "p.csv") in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


# Pipes and interrupts, in processes of their own


def run_patrac(arguments: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "patrac_native.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, timeout=120, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "fifo"])
def test_tables_come_through_pipes(name: str, fitted: Path, tmp_path: Path) -> None:
    content = (fitted / "t.csv").read_bytes()
    out = tmp_path / "p.csv"
    if name == "fifo":
        os.mkfifo(tmp_path / "fifo")
        writer = subprocess.Popen(["cp", str(fitted / "t.csv"), str(tmp_path / "fifo")])
        done = run_patrac(["predict", str(fitted / "fit"), str(tmp_path / "fifo"), "--out", str(out)])
        assert writer.wait(timeout=20) == 0
    else:
        done = run_patrac(["predict", str(fitted / "fit"), name, "--out", str(out)], input=content)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(out)) == 60


def test_a_fit_of_standard_input_says_so(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((fitted / "t.csv").read_bytes())))
    leave = ["--id", "name", "--drop", "day"]
    assert main(["fit", "-", "--target", "strength", *leave, *KNOWN, "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.startswith("standard input: 60 rows")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["data"] == "standard input"
    assert "<title>standard input: " in (tmp_path / "run" / "report.html").read_text()


def test_a_full_standard_output_loses_no_draws(tmp_path: Path) -> None:
    table().drop(columns=["name", "day"]).to_csv(tmp_path / "t.csv", index=False)
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    command = [sys.executable, "-m", "patrac_native.cli.main", "fit", str(tmp_path / "t.csv"), "--target", "strength"]
    with open("/dev/full", "w") as full:
        subprocess.run(
            [*command, *KNOWN, "--out", str(tmp_path / "run")],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    assert pn.Draws.load(tmp_path / "run" / "draws.npz").n_draws > 0
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize("damage", [lambda table: table.pop("separator"), lambda table: table.update(separator=3)])
def test_a_damaged_layout_is_named(
    damage: Callable[[dict[str, Any]], Any], fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(fitted / "fit", tmp_path / "fit")
    path = tmp_path / "fit" / "preprocessing.json"
    content = json.loads(path.read_text())
    damage(content["table"])
    path.write_text(json.dumps(content))
    assert main(["predict", str(tmp_path / "fit"), str(fitted / "t.csv"), "--out", str(tmp_path / "p.csv")]) == 2
    assert "preprocessing.json is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content["preprocessor"]["columns"][0].update(mean=0.0),
        lambda content: content["preprocessor"].update(target_scale=2.0),
        lambda content: content["preprocessor"]["columns"].reverse(),
        lambda content: content["table"].update(separator=";"),
        lambda content: content.pop("digest"),
        lambda content: content.update(weird=1),
    ],
)
def test_an_edited_preprocessing_is_refused(
    edit: Callable[[dict[str, Any]], Any], fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed mean gives other predictions without a word."""
    shutil.copytree(fitted / "fit", tmp_path / "fit")
    path = tmp_path / "fit" / "preprocessing.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content, indent=4))  # another layout of the same content is no change
    assert main(["predict", str(tmp_path / "fit"), str(fitted / "t.csv"), "--out", str(tmp_path / "p.csv")]) == 0
    edit(content)
    path.write_text(json.dumps(content))
    assert main(["predict", str(tmp_path / "fit"), str(fitted / "t.csv"), "--out", str(tmp_path / "q.csv")]) == 2
    message = "preprocessing.json is damaged or was edited: it does not hold what `patrac fit` wrote, so predictions"
    assert message in capsys.readouterr().err and not (tmp_path / "q.csv").exists()


def test_ctrl_c_while_sampling_exits_130_and_the_report_says_so(tmp_path: Path) -> None:
    table().drop(columns=["name", "day"]).to_csv(tmp_path / "t.csv", index=False)
    model = [*KNOWN, "--draws", "20000", "--thin", "2000"]
    command = [
        sys.executable,
        "-u",
        "-m",
        "patrac_native.cli.main",
        "fit",
        str(tmp_path / "t.csv"),
        "--target",
        "strength",
    ]
    with subprocess.Popen(
        [*command, *model, "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell in the background leaves it ignored
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        while "sampling Mix(2)" not in (line := process.stdout.readline()):
            assert line
        time.sleep(3.0)  # a draw takes some 20 ms, all of them minutes
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=60)
        errors = process.stderr.read()
    assert code == 130 and "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("patrac fit: interrupted after ")
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    draws = pn.Draws.load(tmp_path / "run" / "draws.npz")
    assert f"Interrupted after {draws.n_draws} of 20000 draws of each chain" in report
    assert 4 <= draws.n_draws < 20000 and not draws.settings["completed"]


def test_help_says_what_the_separator_is_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--help"]) == 0
    assert "default: that of the fitted table" in " ".join(capsys.readouterr().out.split())
    assert main(["fit", "--help"]) == 0
    assert "default: found" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("alpha", "noted"), [(1.001, False), (3.0, False), (8.0, True)])
def test_the_note_on_alpha_says_what_it_changes(alpha: float, noted: bool) -> None:
    """Only the upper bound changes variances much: the second node has 2^-8 of those of the first."""
    settings = FitSettings("t.csv", "y")
    text = describe_prior(pn.TraceClassPrior(alpha, 1.0, 1.0), settings)
    note = "the second node have 0.4% of the prior variance of the first, and the others less; --alpha 2 gives them 25%"
    assert (note in text) == noted and ("note" in text) == noted
    assert "note" not in describe_prior(pn.TraceClassPrior(alpha, 1.0, 1.0), replace(settings, alpha=alpha))
