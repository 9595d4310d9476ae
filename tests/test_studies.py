"""The demo and the studies: scores are right, files are written, runs repeat for a seed."""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from patrac_native.cli.main import main
from patrac_native.studies import abalone, sine
from patrac_native.studies.demo import wine_scores
from patrac_native.studies.experiment import (
    Outcome,
    SampledNoise,
    derived_seed,
    run_architecture,
    run_laplace,
    score_network,
)
from patrac_native.studies.options import ESS_THIN, MAX_KEPT_BYTES, SamplingSettings, StudyOptions
from patrac_native.studies.problems import Problem, abalone_problem, sine_problem
from patrac_native.studies.replicates import train_network
from patrac_native.studies.tables import format_table, mean_sd, number

# Chains and training this short deserve these warnings; the tests are about what is done with the results.
pytestmark = [
    pytest.mark.filterwarnings("ignore:train. the fit is poor"),
    pytest.mark.filterwarnings("ignore:the prior of the noise variance"),
    pytest.mark.filterwarnings("ignore:the step size adapts while sampling"),
    pytest.mark.filterwarnings("ignore:no phase of the warm-up adapts"),
]

TIMES = ("seconds", "steps_per_second", "ess_per_second", "ess_paper_per_second")
SETTINGS = SamplingSettings(steps=2000, draws=100, chains=2, warmup=1000)
PRIOR = pn.TraceClassPrior(1.5, 2.0, 0.5)


def small_network(problem: Problem) -> pn.Network:
    """A network of the problem's inputs with two hidden layers of six nodes, not trained: only shapes matter here."""
    return problems.random_network(np.random.default_rng(0), (problem.layer_sizes[0], 6, 6, 1))


def run(problem: Problem, architecture: Any, seed: int = 5, **settings: Any) -> Outcome:
    settings = dataclasses.replace(SETTINGS, **settings)
    return run_architecture(problem, small_network(problem), PRIOR, architecture, settings, seed=seed)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return sine_problem(3, n=40, n_test=60)


@pytest.fixture(scope="module")
def outcome(problem: Problem) -> Outcome:
    return run(problem, pn.Mix(2))


def abalone_like(path: Path, rows: int = 4177) -> Path:
    """A file with the layout and size of abalone's, invented here."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0.1, 1.0, size=(rows, 7))
    rings = np.maximum(1, np.round(4 + 10 * x[:, 6] + rng.normal(size=rows))).astype(int)
    sex = rng.choice(["M", "F", "I"], rows)
    path.write_text(
        "".join(f"{s},{','.join(f'{v:.4f}' for v in r)},{k}\n" for s, r, k in zip(sex, x, rings, strict=True))
    )
    return path


def test_scores_are_those_of_the_diagnostics_on_the_kept_draws(problem: Problem, outcome: Outcome) -> None:
    scores = outcome.scores
    f = outcome.draws.predict(problem.X_test)
    assert f.shape == (2, 100, 60, 1)
    # The formula of Table 1 itself, in float64; both sum 60 terms, so a few hundred ulp at most.
    direct = 0.5 * ((problem.y_test - f[..., 0].astype(np.float64)) ** 2).sum(axis=-1).mean()
    assert scores["nll"] == pn.diagnostics.nll(f, problem.y_test, 1.0) == pytest.approx(direct, rel=1e-13)
    assert scores["rmse"] == pn.diagnostics.rmse(f, np.sin(problem.X_test[:, 0]))
    covered = pn.diagnostics.coverage(f, np.sin(problem.X_test[:, 0]), coverage=(0.99, 0.95, 0.65))
    assert list(scores["coverage"].values()) == covered.tolist()
    assert list(scores["coverage"]) == ["0.99", "0.95", "0.65"] and scores["coverage_of"] == "f"
    numbers = [value for value in scores.values() if isinstance(value, float)]
    assert len(numbers) > 10 and np.isfinite(numbers).all()
    # 2000 steps for 100 draws: a score every 20 steps, a state for the ESS every 4.
    assert (scores["thin"], scores["ess_thin"], outcome.draws.settings["thin"]) == (20, 4, 20)


def test_the_network_alone_scores_as_a_single_draw(problem: Problem) -> None:
    net = small_network(problem)
    error = problem.y_test - net.predict(problem.X_test)[:, 0]
    scores = score_network(problem, net)
    # A sum of 60 squares in two orders: 60 ulp bound the difference.
    assert scores["nll"] == pytest.approx(0.5 * (error**2).sum(), rel=60 * np.finfo(float).eps)
    constant = 0.5 * np.log(2 * np.pi)
    assert scores["nlpd"] == pytest.approx(scores["nll"] / 60 + constant, rel=200 * np.finfo(float).eps)


@pytest.mark.parametrize(("dim", "least"), [(46, 4), (2701, 40), (3_000_000, 1000)])
def test_states_kept_for_the_ess_stay_within_memory(dim: int, least: int) -> None:
    settings = SamplingSettings(steps=500_000, draws=500)
    thin = settings.ess_thin(dim)
    assert thin == least and settings.thin % thin == 0
    # Where even the scored draws do not fit there is nothing left to thin.
    assert thin == settings.thin or settings.steps // thin * dim * 4 <= MAX_KEPT_BYTES


def test_the_same_seed_gives_the_same_scores(problem: Problem, outcome: Outcome) -> None:
    again = run(problem, pn.Mix(2), threads=2).scores
    assert all(again[name] == value for name, value in outcome.scores.items() if name not in TIMES)
    assert run(problem, pn.Mix(2), seed=6).scores["nll"] != again["nll"]


def test_seeds_of_parts_differ() -> None:
    seeds = {derived_seed(0, *path) for path in [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (0, 2, 0), (0, 2, 1)]}
    assert len(seeds) == 8 and all(0 <= seed < 2**63 for seed in seeds)


def test_settings_refuse_steps_that_do_not_divide() -> None:
    with pytest.raises(ValueError, match=r"steps must be a multiple of draws; got steps=1001, draws=500"):
        SamplingSettings(steps=1001, draws=500)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "1001"], "--steps must be a multiple of --draws; got 1001 and 500."),
        (["--steps", "0"], "--steps must be at least 1; got 0."),
        (["--seed", "-1"], "--seed must be at least 0; got -1."),
        (["--seed", "9" * 30], "--seed must be below 2^63"),
        (["--threads", "0"], "--threads must be at least 1; got 0."),
        (["--l2", "0"], "--l2 must be positive and finite; got 0.0."),
        (["--kernel", "auto", "--adapt-always"], "--adapt-always needs --kernel pcnl"),
        (["--scheduler", "dask://host"], "--scheduler must be threads, processes or dask://host:port; got"),
    ],
)
def test_options_out_of_range_leave_no_folder(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder with pieces of the wrong command would refuse the corrected one."""
    assert main(["study", "sine", "--quick", "--out", str(tmp_path / "run"), *options]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_tables_align() -> None:
    lines = format_table(["model", "NLL"], [["Full", "571.8"], ["Mix(5)", "5.9"]]).splitlines()
    assert lines == ["model     NLL", "------  -----", "Full    571.8", "Mix(5)    5.9"]
    assert mean_sd([1.0, 3.0], 2) == "2.00 (1.41)" and mean_sd([2.0], 1) == "2.0"
    assert (number(12345.6), number(0.0123456), number(float("nan"))) == ("12,300", "0.0123", "-")


def test_demo_writes_its_files_and_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    out.mkdir()
    (out / "other.txt").write_text("mine")
    words = ["--out", str(out), "--steps", "400", "--draws", "100", "--warmup", "200", "--max-epochs", "100"]
    assert main(["demo", *words]) == 0
    printed = capsys.readouterr().out
    for text in ("Full", "Sep(5)", "Mix(5)", "Out(45)", "NLPD", "R-hat", "2,701", str(out / "report.html")):
        assert text in printed
    assert "One data set decides little" in printed and f"numbers: {out / 'summary.json'}" in printed
    summary = json.loads((out / "summary.json").read_text())
    assert "Gained: on 54 wines that no side has seen" in " ".join(printed.split()) and "Cost: " in printed
    assert summary["wine"]["rows"] == {"training": 124, "test": 54} and 0 < summary["wine"]["inside"] <= 54
    # Chains of 400 steps have not mixed, and the demo says so.
    assert "Chains: do not use. They disagree" in printed
    assert [run["architecture"] for run in summary["runs"]] == ["Full", "Sep(5)", "Mix(5)", "Out(45)"]
    assert [run["dim"] for run in summary["runs"]] == [2701, 46, 46, 46]
    page = (out / "report.html").read_text()
    # Bands, PIT, traces, autocorrelation; all inside the file.
    assert page.count("data:image/png;base64,") == 4 and 'src="http' not in page
    assert (out / "other.txt").read_text() == "mine"
    assert sorted(path.name for path in out.iterdir()) == ["other.txt", "report.html", "summary.json"]


@pytest.mark.slow
def test_the_real_table_of_the_demo_is_one_on_which_the_posterior_wins() -> None:
    """In density beside either noise of the network, and in coverage: more than two standard errors from its own."""
    wine = wine_scores(0, threads=2, warmup=None, max_epochs=None)
    assert wine["nlpd"] < wine["nlpd_network_noise_of_unseen_rows"] < wine["nlpd_network"]
    error = np.sqrt(54 * 0.9 * 0.1)
    assert abs(wine["inside"] - 48.6) < 2 * error < 48.6 - wine["inside_network"]


@pytest.mark.slow
def test_study_sine_writes_every_number_and_compares_with_the_paper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    words = ["--replicates", "2", "--steps", "400", "--draws", "100", "--warmup-factor", "1e-3", "--max-epochs", "50"]
    assert main(["study", "sine", "--out", str(out), "--adapt-always", *words]) == 0
    printed = capsys.readouterr().out
    assert "571.8 (31.6)" in printed and "paper: ESS/s" in printed and "keeps adapting, as in the paper" in printed
    # Chains of 400 steps have not settled; the terminal says so, by name and with the R-hat of the summary.
    summary = json.loads((out / "summary.json").read_text())
    worst = max(scores["max_rhat"] for scores in summary["runs"]["Full"])
    assert worst > 1.05 and f"Full {worst:.3f}" in " ".join(printed.split())
    assert summary["replicates"] == 2 and not summary["interrupted"]
    with open(out / "results.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    # Seven architectures, three Laplace approximations and the trained network in each replicate.
    nll = [row for row in rows if row["metric"] == "nll"]
    assert len(nll) == 22 and {row["replicate"] for row in rows} == {"0", "1"}
    assert {row["study"] for row in rows} == {"sine"}
    for model, scores in [*summary["runs"].items(), *summary["baselines"].items()]:
        assert [float(row["value"]) for row in nll if row["model"] == model] == [one["nll"] for one in scores]
        covered = [float(row["value"]) for row in rows if (row["model"], row["metric"]) == (model, "coverage_0.95")]
        assert covered == [one["coverage"]["0.95"] for one in scores]
    # The difference from the paper, in combined standard errors over 2 and 100 data sets; its one Laplace row stands
    # beside each of ours.
    for model, mean, sd in [("Full", 571.8, 31.6), *((label, 576.5, 60.2) for label in summary["baselines"])]:
        ours = [float(row["value"]) for row in nll if row["model"] == model]
        error = np.hypot(np.std(ours, ddof=1) / np.sqrt(2), sd / 10)
        line = next(line for line in printed.splitlines() if line.startswith(model) and f"{mean} ({sd})" in line)
        assert line.split()[-1] == f"{(np.mean(ours) - mean) / error:+.1f}"
    assert (out / "report.html").read_text().count("data:image/png;base64,") == 4


@pytest.mark.slow
def test_penalty_of_the_sine_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--l2` reaches the training and summary.json, and a folder of another penalty is refused."""
    words = ["--replicates", "1", "--steps", "400", "--draws", "100", "--kernel", "auto", "--max-epochs", "50"]
    words = ["study", "sine", "--out", str(tmp_path / "run"), "--threads", "1", *words]
    assert main([*words, "--l2", "0.5"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["options"]["l2"] == summary["training"]["l2"] == 0.5
    assert main(words) == 2 and "other settings" in capsys.readouterr().err


def test_training_is_that_of_the_problem(problem: Problem, tmp_path: Path) -> None:
    net = pn.train(
        problem.layer_sizes, problem.X, problem.y, likelihood=problem.likelihood, l2=1.0, validation_fraction=0,
        seed=2, max_epochs=50, progress=False,
    )  # fmt: skip
    found = train_network(problem, 2, StudyOptions(tmp_path, max_epochs=50))
    assert all(np.array_equal(a, b) for a, b in zip(found.weights, net.weights, strict=True))


def test_quantiles_of_the_paper(problem: Problem, outcome: Outcome, tmp_path: Path) -> None:
    options = StudyOptions(tmp_path, quantiles="paper")
    assert options.sampling(sine.SIZE).quantiles == "inverted_cdf"
    assert options.identity("sine") != StudyOptions(tmp_path).identity("sine")
    paper = run(problem, pn.Mix(2), quantiles="inverted_cdf")
    # The largest q below which at most a share b of the draws lies, for the draws of the other outcome.
    f = np.sort(outcome.draws.predict(problem.X_test)[..., 0].reshape(-1, 60), axis=0)
    truth = np.sin(problem.X_test[:, 0])
    for tau, share in zip((0.01, 0.05, 0.35), paper.scores["coverage"].values(), strict=True):
        low, high = (f[int(np.ceil(b * 200 - 1e-9)) - 1] for b in (tau / 2, 1 - tau / 2))
        assert share == ((low <= truth) & (truth <= high)).mean()
    assert paper.scores["nll"] == outcome.scores["nll"]


def test_laplace_scores_are_those_of_its_draws(problem: Problem) -> None:
    net = pn.train(
        (1, 6, 6, 1), problem.X, problem.y, likelihood=problem.likelihood, l2=2.0, validation_fraction=0,
        max_epochs=200, seed=1, progress=False,
    )  # fmt: skip
    last, sampled, linearised = run_laplace(problem, net, 50, seed=3)
    prior = pn.GaussianPrior(0.5, 0.5)  # of the penalty
    post = pn.Posterior(net, pn.Full(), prior, problem.likelihood, problem.X, problem.y)
    f = pn.Laplace(post).sample(50, 3).predict(problem.X_test)
    assert sampled["nlpd"] == pn.diagnostics.nlpd(f, problem.y_test, 1.0)
    f = pn.Laplace(post).linearised(problem.X_test, 50, 3)
    assert linearised["rmse"] == pn.diagnostics.rmse(f, np.sin(problem.X_test[:, 0]))
    covered = pn.diagnostics.coverage(f, np.sin(problem.X_test[:, 0]), coverage=(0.99, 0.95, 0.65))
    assert list(linearised["coverage"].values()) == covered.tolist()
    f = pn.Laplace(pn.Posterior(net, pn.Out(6), prior, problem.likelihood, problem.X, problem.y)).sample(50, 3)
    # The network is linear in its last layer; draws are rounded to float32.
    assert last["nll"] == pytest.approx(pn.diagnostics.nll(f.predict(problem.X_test), problem.y_test, 1.0), rel=1e-4)


def test_a_study_with_the_package_s_own_kernels_has_steps_of_its_own(tmp_path: Path) -> None:
    options = StudyOptions(tmp_path, kernel="auto", steps=400, draws=100)
    assert options.sampling(sine.SIZE).kernel == "auto" and options.sampling(sine.SIZE).warmup == "auto"
    whole = dataclasses.replace(options, steps=None, draws=500).sampling(sine.SIZE)
    # Each model has the steps of its own; a multiple of the draws, which the settings check.
    assert [whole.of_model(name).steps for name in ("Full", "Mix(5)", "Sep(9)")] == [60_000, 18_000, 100_000]
    assert set(sine.SIZE.auto_steps_by_model) == set(sine.PAPER_NLL)
    assert options.identity("sine")["ess_thin"] == ESS_THIN == 4
    for name, ess in sine.PAPER_MIXING["paper: ESS"].items():
        assert whole.of_model(name).ess_thin(2701 if name == "Full" else 46) == 4
        # The ESS of fewer kept states reaches the paper's by the errors of its estimator alone.
        assert whole.of_model(name).steps / 4 > float(ess.split(" ")[0].replace(",", ""))
    assert options.sampling(sine.SIZE).of_model("Full").steps == 400
    assert dataclasses.replace(options, steps=None, quick=True).sampling(sine.SIZE).steps == sine.SIZE.quick_auto_steps


@pytest.mark.slow
def test_a_study_runs_with_the_package_s_own_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--kernel", "auto", "--replicates", "1", "--steps", "400", "--draws", "100", "--max-epochs", "50"]
    assert main(["study", "sine", "--out", str(tmp_path / "study"), *words]) == 0
    printed = capsys.readouterr().out
    assert "Exact()" in printed and "MGrad(collapse=True, persistence=0.9)" in printed
    # Draws are independent: they have no step size, and no row of results for it.
    rows = (tmp_path / "study" / "results.csv").read_text().splitlines()
    assert any("Full,step_size," in row for row in rows) and not any("Out(45),step_size," in row for row in rows)
    assert not any(row.endswith(",nan") for row in rows)
    assert (
        next(line for line in printed.splitlines() if line.startswith("Out(45)") and "1.00" in line).split()[4] == "-"
    )


def test_help_of_a_study_gives_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "sine", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "100,000 steps in place of 500,000, after about 65,000 of warm-up in place of 650,000" in text
    # The numbers are those of the paper's warm-up as it is run.
    whole = pn.paper_warmup()
    assert whole.steps == 650_000 and whole.scaled(sine.SIZE.quick_warmup).steps == 65_000
    # Its three phases are rounded to whole windows of 200 steps.
    assert abs(whole.scaled(abalone.SIZE.quick_warmup).steps - 650_000 * abalone.SIZE.quick_warmup) <= 3 * 100


def test_abalone_is_split_and_standardised_by_its_training_rows(tmp_path: Path) -> None:
    path = abalone_like(tmp_path / "abalone.data")
    onehot, coded = abalone_problem(path, seed=2), abalone_problem(path, 2, "coded")
    assert onehot.X.shape == (2923, 10) and onehot.X_test.shape == (1254, 10)
    assert onehot.layer_sizes == (10, 50, 50, 1) and onehot.variance == 36.0
    # Means of 2923 rounded values; the targets keep their units.
    assert np.abs(onehot.X[:, 3:].mean(axis=0)).max() < 2923 * np.finfo(float).eps
    assert onehot.y.min() >= 1 and float(onehot.y[0]).is_integer()
    assert coded.layer_sizes == (8, 50, 50, 1)
    net = pn.Network([np.zeros((50, 8)), np.zeros((50, 50)), np.zeros((1, 50))], [np.zeros(50)] * 2 + [np.zeros(1)])
    post = pn.Posterior(net, pn.Mix(5), pn.GaussianPrior(), coded.likelihood, coded.X, coded.y)
    assert post.dim == 81  # the paper's
    # The seven measurements are the same; the code of a row's sex is the position of its 1 among F, I, M.
    np.testing.assert_array_equal(coded.X[:, 1:], onehot.X[:, 3:])
    code = (onehot.X[:, :3] > 0).argmax(axis=1)
    assert np.corrcoef(code, coded.X[:, 0])[0, 1] == pytest.approx(1.0)


@pytest.mark.slow
def test_study_abalone_runs_on_a_file_of_its_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = abalone_like(tmp_path / "abalone.data"), tmp_path / "study"
    words = ["--data", str(data), "--out", str(out), "--steps", "100", "--draws", "50", "--warmup-factor", "1e-4"]
    assert main(["study", "abalone", *words, "--max-epochs", "3"]) == 0
    printed = capsys.readouterr().out
    assert "10 in all for the paper's 8 features" in printed and "Sampling 14 architectures on 1 data set" in printed
    summary = json.loads((out / "summary.json").read_text())
    assert summary["runs"]["Full"][0]["coverage_of"] == "y"
    assert "Mix(5), sampled noise" in summary["runs"] and "Mix(5), sampled noise" in printed
    assert (out / "report.html").read_text().count("data:image/png;base64,") == 7


def test_sampled_noise_is_scored_with_the_variance_of_each_draw(problem: Problem, outcome: Outcome) -> None:
    sampled = run(problem, SampledNoise(pn.Mix(2)))
    variance = sampled.draws.stats["variance"]
    assert variance.shape[:2] == (2, 100) and np.ptp(variance) > 0
    f = sampled.draws.predict(problem.X_test)[..., 0].astype(np.float64)
    squares = (problem.y_test - f) ** 2
    by_draw = 0.5 * squares.sum(axis=-1) / variance.reshape(2, 100)
    assert sampled.scores["nll"] == pytest.approx(by_draw.mean(), rel=1e-12)
    density = np.exp(-0.5 * squares / variance.reshape(2, 100, 1)) / np.sqrt(2 * np.pi * variance.reshape(2, 100, 1))
    assert sampled.scores["nlpd"] == pytest.approx(-np.log(density.mean(axis=(0, 1))).mean(), rel=1e-9)
    assert sampled.label == "Mix(2), sampled noise" and sampled.scores["dim"] == outcome.scores["dim"]


def test_study_abalone_refuses_another_file_before_making_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "study"
    with pytest.raises(FileNotFoundError):
        abalone.run_abalone(str(tmp_path / "absent.data"), StudyOptions(out))
    short = abalone_like(tmp_path / "short.data", rows=30)
    with pytest.raises(ValueError, match=r"--data .*short\.data has 30 rows and 9 columns; abalone\.data .* 4177 rows"):
        abalone.run_abalone(str(short), StudyOptions(out))
    assert not out.exists()
