"""bench/quality/uci.py: scores of the rival in closed form, its training, tables, and a run that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from scripts import process

FOLDER = Path(__file__).resolve().parents[1] / "bench" / "quality"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the modules of the folder be imported, which is no package."""
    monkeypatch.syspath_prepend(str(FOLDER))


def write_set(data: Path, n: int = 120) -> None:
    """A yacht of the layout of the standard sets, invented here: column 2 is constant."""
    folder = data / "yacht"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, 2))
    y = 10 + 3 * np.sin(x[:, 0]) + rng.normal(size=n)
    np.savetxt(folder / "data.txt", np.column_stack([x, np.full(n, 7.0), y]))
    np.savetxt(folder / "index_features.txt", np.arange(3), fmt="%d")
    np.savetxt(folder / "index_target.txt", [3], fmt="%d")
    for split in range(2):
        order = rng.permutation(n)
        np.savetxt(folder / f"index_train_{split}.txt", order[: n * 9 // 10], fmt="%d")
        np.savetxt(folder / f"index_test_{split}.txt", order[n * 9 // 10 :], fmt="%d")


def test_scores_of_a_mixture() -> None:
    """One normal distribution: closed forms of density, interval and CRPS (Gneiting & Raftery 2007)."""
    from forecasts import Normals
    from uci import mixture_scores

    y, mean, sd = np.array([9.0, 10.5, 14.0]), 10.0, 2.0
    found = mixture_scores(np.full((3, 3), mean), np.full((3, 3), sd), y)
    assert found["nlpd"] == pytest.approx(-stats.norm.logpdf(y, mean, sd).mean(), rel=1e-12)
    assert found["rmse"] == pytest.approx(np.sqrt(((y - mean) ** 2).mean()), rel=1e-12)
    assert found["width"] == pytest.approx(2 * stats.norm.isf(0.025) * sd, rel=1e-9)
    assert found["coverage"] == (np.abs(y - mean) <= stats.norm.isf(0.05) * sd).mean()
    z = (y - mean) / sd
    crps = sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert found["crps"] == pytest.approx(crps.mean(), rel=1e-12)
    # Two members: the distribution function at the quantile, and the CRPS by 200,000 draws.
    means, sds = np.array([[0.0], [3.0]]), np.array([[1.0], [0.5]])
    q = Normals(means, sds).quantile(0.8)
    assert stats.norm.cdf(q, means, sds).mean() == pytest.approx(0.8, abs=1e-12)
    draws = np.random.default_rng(0).normal(np.tile(means[:, 0], 100_000), np.tile(sds[:, 0], 100_000))
    by_draws = np.abs(draws - 1).mean() - 0.5 * np.abs(draws - np.random.default_rng(1).permutation(draws)).mean()
    # Standard deviations of both means are below 2 / sqrt(200,000).
    assert mixture_scores(means, sds, np.array([1.0]))["crps"] == pytest.approx(by_draws, abs=5 * 2 / np.sqrt(2e5))


@pytest.mark.slow
def test_the_rival_finds_the_sine_and_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import deep_ensemble
    import uci

    monkeypatch.setattr(deep_ensemble, "MAX_UPDATES", 200)
    write_set(tmp_path)
    split = uci.load_split(tmp_path, "yacht", 1)
    scores = uci.ensemble_side(split, seed=1)
    constant = uci.mixture_scores(np.full((1, 12), split.y.mean()), np.full((1, 12), split.y.std()), split.y_test)
    assert scores["rmse"] < 0.7 * constant["rmse"] and scores["nlpd"] < constant["nlpd"]
    # A finished result is not made again.
    results = uci.Results(tmp_path / "out.json")
    assert results.get("yacht 1 ensemble", lambda: scores) == scores
    again = uci.Results(tmp_path / "out.json").get("yacht 1 ensemble", lambda: pytest.fail("made again"))
    assert again == json.loads(json.dumps(scores))


def test_test_rows_with_the_inputs_of_training_rows_are_left_out() -> None:
    from uci import Split, without_copies

    X, X_test = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0], [3.0, 5.0]])
    found = without_copies(Split(X, np.zeros(2), X_test, np.array([7.0, 8.0])))
    assert found.X_test.tolist() == [[3.0, 5.0]] and found.y_test.tolist() == [8.0]


def test_tables_pair_the_splits() -> None:
    from comparison import side_table

    sides = {"patrac": [{"nlpd": 1.0}, {"nlpd": 2.0}], "ensemble": [{"nlpd": 1.5}, {"nlpd": 2.7}]}
    headers, rows = side_table(sides, {"NLPD": ("nlpd", 3)}, "ensemble")
    assert headers == ["", "NLPD", "NLPD less rival's"]
    assert rows == [["patrac", "1.500 (0.500)", "-0.600 (0.100)"], ["ensemble", "2.100 (0.600)", ""]]


@pytest.mark.slow
def test_the_command_fits_and_scores(tmp_path: Path) -> None:
    write_set(tmp_path)
    out = tmp_path / "out.json"
    words = ["--data", str(tmp_path), "--sets", "yacht", "--splits", "0", "--sides", "patrac", "--out", str(out)]
    done = process(str(FOLDER / "uci.py"), *words, "--fit=--minutes 0.02 --likelihood gaussian")
    assert done.returncode == 0, done.stdout + done.stderr
    scores = json.loads(out.read_text())["yacht 0 patrac"]
    assert (
        scores["rmse"] < 3
        and scores["crps"] > 0
        and f"predictions {scores['verdict']['predictions']['grade']}" in done.stdout
    )
    assert "deep ensembles 1.18 (0.21)" in done.stdout
