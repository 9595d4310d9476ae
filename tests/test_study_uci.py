"""The UCI study: its models' scores, its tables and files, and that it goes on from finished pieces."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from patrac_native.cli.main import main
from patrac_native.fit.model_settings import ModelSettings
from patrac_native.studies.uci import UciOptions, mean_se, run_uci, table
from patrac_native.studies.uci_models import GROUPS, Rows, heteroscedastic_ensemble, networks, run_group, score_mixture
from patrac_native.studies.uci_sets import SETS, Split, load_split

SETTINGS = ModelSettings(hidden=(8,), epochs=100, draws=20, thin=5, progress=False, l2=0.1)


def write_set(data: Path, name: str, n: int = 120, splits: int = 2) -> None:
    """A set of the layout of the standard ones, invented here: column 2 is constant."""
    folder = data / SETS[name]
    folder.mkdir(parents=True)
    rng = np.random.default_rng(len(name))
    x = rng.normal(size=(n, 2))
    y = 10 + 3 * np.sin(x[:, 0]) + rng.normal(size=n)
    np.savetxt(folder / "data.txt", np.column_stack([x, np.full(n, 7.0), y]))
    np.savetxt(folder / "index_features.txt", np.arange(3), fmt="%d")
    np.savetxt(folder / "index_target.txt", [3], fmt="%d")
    for split in range(splits):
        order = rng.permutation(n)
        np.savetxt(folder / f"index_train_{split}.txt", order[: n * 9 // 10], fmt="%d")
        np.savetxt(folder / f"index_test_{split}.txt", order[n * 9 // 10 :], fmt="%d")


@pytest.fixture
def split(tmp_path: Path) -> Split:
    write_set(tmp_path, "yacht")
    return load_split(tmp_path, "yacht", 1)


def test_rows_are_standardised_by_the_training_rows(split: Split) -> None:
    rows = Rows.of(split)
    assert rows.X.shape == (108, 2) and rows.X_test.shape == (12, 2)
    assert np.abs(rows.X.mean(axis=0)).max() < 1e-12 and np.abs(rows.y.mean()) < 1e-12
    np.testing.assert_allclose(rows.inverse_target(rows.y_test), split.y_test, rtol=1e-13)


def test_scores_of_a_mixture_are_in_the_units_of_the_target(split: Split) -> None:
    """One normal distribution: closed forms of density, interval and CRPS (Gneiting & Raftery 2007)."""
    rows = Rows.of(split)
    found = score_mixture(rows, np.zeros((1, 12)), 1.0)
    mean, sd = rows.mean, rows.scale
    y = split.y_test
    assert found["nlpd"] == pytest.approx(-stats.norm.logpdf(y, mean, sd).mean(), rel=1e-12)
    assert found["rmse"] == pytest.approx(np.sqrt(((y - mean) ** 2).mean()), rel=1e-12)
    assert found["width"] == pytest.approx(2 * stats.norm.isf(0.025) * sd, rel=1e-9)
    assert found["coverage"] == (np.abs(y - mean) <= stats.norm.isf(0.05) * sd).mean()
    z = (y - mean) / sd
    crps = sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    # 1,000 draws of each row: the standard error of E|X - y| - E|X - X'| / 2 is about 0.03 a row.
    assert found["crps"] == pytest.approx(crps.mean(), abs=4.5 * 0.03 * sd / np.sqrt(12))


def test_models_of_a_split(split: Split) -> None:
    rows = Rows.of(split)
    found = networks(rows, SETTINGS)
    assert list(found) == ["network", "Laplace", "ensemble"]
    for group in ("full", "mix"):
        found |= run_group(group, split, SETTINGS)
    constant = score_mixture(rows, np.zeros((1, 12)), 1.0)
    for model, scores in found.items():
        judged = ["do_not_use"] if model in ("Full", "Mix(5)") else []
        assert list(scores) == ["rmse", "nlpd", "crps", "coverage", "width", "seconds", *judged]
        assert np.isfinite(list(scores.values())).all()
        # The sine is found by every model.
        assert scores["rmse"] < 0.7 * constant["rmse"]
    # Uncertainty of the weights widens the network's intervals.
    assert found["Laplace"]["width"] > found["network"]["width"]


def test_the_rival_is_the_tuned_ensemble(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patrac_native.studies.deep_ensemble.MAX_UPDATES", 60)
    scores = heteroscedastic_ensemble(Rows.of(split), SETTINGS)["ensemble, noise of each row"]
    assert np.isfinite(list(scores.values())).all() and scores["width"] > 0


def fake(name: str) -> Any:
    """Scores that are numbers of the rows, without a fit."""

    def run(rows: Rows, settings: ModelSettings) -> dict[str, dict[str, float]]:
        value = float(rows.X_test[0, 0]) + settings.seed
        metrics = ("rmse", "nlpd", "crps", "coverage", "width", "seconds")
        models = {"networks": ["network", "Laplace", "ensemble"], "ensemble": ["ensemble, noise of each row"]}
        return {
            model: dict.fromkeys(metrics, value - (model == "auto"))
            for model in models.get(name, [{"full": "Full", "mix": "Mix(5)", "auto": "auto"}.get(name, name)])
        }

    return run


def test_the_study_writes_its_files_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in GROUPS:
        monkeypatch.setitem(GROUPS, group, fake(group))
    data, out = tmp_path / "data", tmp_path / "out"
    for name in ("yacht", "boston"):
        write_set(data, name)
    words = ["study", "uci", "--data", str(data), "--sets", "yacht", "boston", "--splits", "2", "--out", str(out)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "0 of 20 pieces were finished before." in printed
    assert "auto: NLPD not above that of the ensemble, noise of each row on 2 of 2 sets (yacht, boston)" in printed
    assert "by more than two standard errors lower on 2 and higher on 0" in printed
    assert "1.18 (0.21)" in printed
    with open(out / "results.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * 2 * 7 * 6 and {row["study"] for row in rows} == {"uci/yacht", "uci/boston"}
    assert json.loads((out / "summary.json").read_text())["splits"] == 2
    assert "Full, Mix(5) and auto are those of patrac fit" in (out / "report.html").read_text()

    next((out / "pieces").glob("boston-*-1-mix.json")).unlink()
    assert main(words) == 0
    again = capsys.readouterr().out
    assert "19 of 20 pieces were finished before." in again
    assert again.split("finished before.")[1] == printed.split("finished before.")[1]

    # Other data are other pieces; those of the other set stay.
    with open(data / "yacht" / "data.txt", "a") as stream:
        stream.write(" \n")
    assert main(words) == 0
    assert "10 of 20 pieces were finished before." in capsys.readouterr().out


def test_tables_pair_the_splits() -> None:
    metrics = ("rmse", "nlpd", "crps", "coverage", "width", "seconds")
    values = {("yacht", s, m): dict.fromkeys(metrics, v) for m, pair in {
        "auto": (1.0, 2.0), "ensemble, noise of each row": (1.5, 2.7)}.items() for s, v in enumerate(pair)}  # fmt: skip
    headers, rows = table(values, "yacht")
    assert headers[-1] == "NLPD less rival's" and rows[1][-1] == "-0.600 (0.100)" and rows[0][-1] == ""
    assert rows[1][:3] == ["auto", "1.5000 (0.5000)", "1.500 (0.500)"]
    assert mean_se([2.0], 1) == "2.0"


def test_bad_options_are_refused_before_any_work(tmp_path: Path) -> None:
    write_set(tmp_path / "data", "yacht")
    options: dict[str, Any] = {"data": tmp_path / "data", "out": tmp_path / "out", "sets": ["yacht"]}
    with pytest.raises(ValueError, match="--splits must be from 1 to 20, the number of standard splits; got 21"):
        run_uci(UciOptions(**options, splits=21))
    with pytest.raises(ValueError, match="minutes must be positive and finite; got -1"):
        run_uci(UciOptions(**options, splits=1, minutes=-1))
    with pytest.raises(FileNotFoundError, match=r"--data: there is no folder .*energy; give the folder that holds"):
        run_uci(UciOptions(tmp_path / "data", tmp_path / "out", ["energy"], splits=1))
    assert not (tmp_path / "out").exists()
