"""bench/quality/k_study.py: its problems, tables, figure and files."""

import csv
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
from patrac_native.studies.experiment import score_network

FOLDER = Path(__file__).resolve().parents[1] / "bench" / "quality"

# Chains and training this short deserve these warnings; the tests are about what is done with the results.
pytestmark = [
    pytest.mark.filterwarnings("ignore:train. the fit is poor"),
    pytest.mark.filterwarnings("ignore:the warm-up reached"),
]


@pytest.fixture
def k_study(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, which is in no package."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("k_study")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the layout of the UCI sets, whose yacht is invented here: 60 rows, two inputs and the target."""
    folder = tmp_path_factory.mktemp("uci")
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, size=(60, 2))
    rows = np.column_stack([x, 10 + np.sin(x[:, 0]) + 0.1 * rng.normal(size=60)])
    order = rng.permutation(60)
    (folder / "yacht").mkdir()
    for name, content in {
        "data": rows,
        "index_features": [0, 1],
        "index_target": [2],
        "index_train_0": order[:54],
        "index_test_0": order[54:],
    }.items():
        np.savetxt(folder / "yacht" / f"{name}.txt", content, fmt="%g")
    return folder


def test_rows_of_a_uci_problem_are_split_at_random_and_standardised(k_study: Any, data: Path) -> None:
    first, second = (k_study.uci_problem(data, "yacht", seed) for seed in (1, 2))
    assert first.X.shape == (54, 2) and first.X_test.shape == (6, 2) and first.layer_sizes == (2, 50, 50, 1)
    # Means and deviations of 54 rounded values.
    np.testing.assert_allclose(first.X.mean(axis=0), 0, atol=1e-13)
    np.testing.assert_allclose(first.y.std(), 1, rtol=1e-13)
    assert first.variance is None and first.likelihood.variance == "sampled"
    assert not np.array_equal(first.X, second.X)


def test_network_of_unknown_noise_is_scored_with_the_residuals_of_validation_rows(k_study: Any, data: Path) -> None:
    problem = k_study.uci_problem(data, "yacht", 1)
    net = pn.train((2, 5, 5, 1), problem.X, problem.y, l2=1.0, max_epochs=20, seed=0, progress=False)
    assert net.history is not None and net.history.validation_mse is not None
    variance = float(np.mean(net.history.validation_mse))
    error = problem.y_test - net.predict(problem.X_test)[:, 0]
    expected = 0.5 * (error**2 / variance + np.log(2 * np.pi * variance)).mean()
    assert score_network(problem, net)["nlpd"] == pytest.approx(expected, rel=1e-12)
    bare = pn.Network(net.weights, net.biases)
    with pytest.raises(ValueError, match="trained with validation rows"):
        score_network(problem, bare)


@pytest.mark.slow
def test_study_has_a_row_for_every_k(
    k_study: Any, tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(k_study, "KS", (1, 2))
    out = tmp_path / "study"
    words = ["--replicates", "2", "--steps", "200", "--draws", "50", "--max-epochs", "20"]
    words += ["--out", str(out), "--sets", "sine", "yacht"]
    with pytest.raises(ValueError, match="--sets yacht needs --data"):
        k_study.main(words)
    assert not out.exists()
    k_study.main([*words, "--data", str(data)])
    printed = capsys.readouterr().out
    assert "sine: in 95% is the coverage of sin(x)" in printed and "coverage of y by its" in printed
    with open(out / "results.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["study"] for row in rows} == {"k/sine", "k/yacht"}
    assert {row["model"] for row in rows} == {"network", "Mix(1)", "Mix(2)", "Sep(1)", "Sep(2)"}
    summary = json.loads((out / "summary.json").read_text())
    records = summary["yacht"]["runs"]["Mix(2)"]
    assert [record["coverage_of"] for record in records] == ["y", "y"]
    assert [record["coverage_of"] for record in summary["sine"]["runs"]["Mix(2)"]] == ["f", "f"]
    # The table gives the mean over replicates.
    mean = np.mean([record["nlpd"] for record in records])
    yacht = printed[printed.index("yacht: ") :]
    line = next(line for line in yacht.splitlines() if line.startswith("Mix(2)"))
    assert f"{mean:,.4f} (" in line
    assert (out / "report.html").read_text().count("data:image/png;base64,") == 2
