"""Tests of the choice that `patrac fit` makes: its candidates, the budget, pilot runs, and mixtures of networks."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

import patrac_native as pn
from patrac_native.cli.main import main
from patrac_native.fit.budget import Schedule, chain_minutes, training_seconds
from patrac_native.fit.candidates import (
    Candidate,
    affordable_candidates,
    final_share,
    possible_candidates,
)
from patrac_native.fit.evaluation import Evaluation, evaluate_regression
from patrac_native.fit.fit_data import DataRows
from patrac_native.fit.fit_report import _add_trials
from patrac_native.fit.fit_settings import FitSettings
from patrac_native.fit.model_settings import MINUTES
from patrac_native.fit.pilots import Trial, best_of, describe_choice
from patrac_native.fit.predict import load_preprocessing
from patrac_native.fit.preprocessing import Preprocessor
from patrac_native.report.report import Report
from patrac_native.verdict.calibration import calibrate

NOISE = pn.Gaussian(0.1)


def settings(**given: Any) -> FitSettings:
    return FitSettings(data="table.csv", target="y", **given)


def network(*sizes: int) -> pn.Network:
    rng = np.random.default_rng(0)
    return pn.Network(
        [rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)],
        [rng.normal(size=m) for m in sizes[1:]],
    )


def affordable(rows: int, hidden: tuple[int, ...], **given: Any) -> tuple[list[Candidate], str]:
    chosen = settings(hidden=hidden, **given)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(rows, 10)), rng.normal(size=rows)
    possible = possible_candidates(chosen, [NOISE])
    minutes = chain_minutes(chosen.minutes or MINUTES, training=5.0)
    return affordable_candidates(possible, [network(10, *hidden, 1)], DataRows(X, y), chosen, minutes)


def test_candidates_of_a_regression() -> None:
    found = possible_candidates(settings(hidden=(50, 12)), [NOISE])
    assert [str(one) for one in found] == [
        "Full, gaussian prior",
        "Full, trace-class prior",
        "Mix(5) of 4 networks, trace-class prior",
    ]
    assert [(one.chains, one.draws, one.trained) for one in found] == [(4, 500, 4), (4, 500, 4), (2, 250, 4)]
    # Mix with all nodes is Full with frozen nothing, and a given prior leaves one Full.
    assert [str(one) for one in possible_candidates(settings(hidden=(3,)), [NOISE])] == [
        "Full, gaussian prior",
        "Full, trace-class prior",
    ]
    assert len(possible_candidates(settings(hidden=(3,), alpha=2.0), [NOISE])) == 1
    # Another likelihood is tried first, with Full.
    several = possible_candidates(settings(hidden=(50, 12)), [pn.HeteroscedasticGaussian(), NOISE])
    assert str(several[0]) == "Full, gaussian prior, heteroscedastic noise" and several[1:] == found
    assert possible_candidates(settings(k=(5,)), [pn.HeteroscedasticGaussian(), NOISE])[0].likelihood is NOISE


def test_candidates_of_classes_and_of_settings() -> None:
    assert [str(one) for one in possible_candidates(settings(), [pn.Categorical()])] == [
        "Out(50) of 5 networks, gaussian prior",
        "Full, gaussian prior",
    ]
    (given,) = possible_candidates(settings(architecture="mix", networks=3, chains=1, draws=40), [NOISE])
    assert given == Candidate(NOISE, pn.Mix(5), "trace-class", 3, 1, 40) and given.trained == 3
    (given,) = possible_candidates(settings(architecture="full", networks=3), [NOISE])
    assert given.trained == 3 and not given.starts_at_networks


def test_a_budget_that_does_not_pay_for_full_leaves_the_largest_mix() -> None:
    found, reason = affordable(300, (50, 50))
    assert len(found) == 3 and reason == ""
    one, reason = affordable(50_000, (64, 64), minutes=4)
    assert len(one) == 1 and one[0].architecture.label().startswith("Mix") and one[0].networks == 4
    assert "minutes" in reason
    smaller, _ = affordable(50_000, (64, 64), minutes=1)
    nodes = [np.max(two[0].architecture.k) for two in (one, smaller)]
    assert nodes[1] < nodes[0]
    (only,), _ = affordable(300, (50, 50), thin=10)
    assert only.architecture == pn.Full()


def test_training_and_scores_are_part_of_the_budget() -> None:
    """Chains get three quarters, less if training takes more than the rest; of the first 0.1 minutes in any case."""
    assert chain_minutes(2.0, training=28.0) == pytest.approx(1.5) and chain_minutes(2.0, 0.0) == pytest.approx(1.5)
    assert chain_minutes(2.0, training=58.0) == pytest.approx(1.0)
    assert chain_minutes(2.0, training=500.0) == pytest.approx(0.075)
    assert chain_minutes(0.1, training=4.0) == pytest.approx(0.075)
    assert chain_minutes(0.01, training=4.0) == pytest.approx(0.0075)


def test_the_time_of_a_training_follows_from_its_epochs() -> None:
    """No clock: the same networks cost the same; more rows, epochs and validation cost more."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    options: dict[str, Any] = {"networks": 2, "l2": 0.1, "patience": 1000, "seed": 0}
    plain, longer = (
        pn.train_many([2, 4, 1], X, y, validation_fraction=0, max_epochs=epochs, **options) for epochs in (20, 40)
    )
    cost = training_seconds(plain, 60, 60)
    assert 0 < cost < training_seconds(plain, 120, 120) < training_seconds(plain, 120, 30)
    assert training_seconds(longer, 60, 60) == pytest.approx(2 * cost)
    validated = pn.train_many([2, 4, 1], X, y, max_epochs=20, **options)
    history = validated[0].history
    assert history is not None and history.settings["validation"]["network_epochs"] == 5 * 20
    # Both networks at a time, after 100 epochs of the five networks of the validation.
    epochs = sum(len(net.history.loss) for net in validated if net.history is not None) / 2
    assert training_seconds(validated, 60, 60) == pytest.approx(cost * (100 + epochs) / 20)


def test_the_choice_and_the_final_run_share_the_budget() -> None:
    """Pilots: 0.8 of the rows, two chains of four, two of eight. The final run and all pilots take the whole budget."""
    found = possible_candidates(settings(), [NOISE])
    assert 1 / final_share(found) == pytest.approx(1 + 0.8 * (2 / 4 + 2 / 4 + 2 / 8))
    assert 1 / final_share(found[:1]) == pytest.approx(1.4)


def test_a_convincing_first_candidate_is_the_only_one_tried() -> None:
    """Better than its networks by more than two standard errors, with intervals that cover."""
    rng = np.random.default_rng(2)
    network = rng.normal(size=400)
    noise = rng.normal(size=400)
    noise -= noise.mean()
    inside = np.arange(400) < 360

    def convincing(gain: float, covered: npt.NDArray[np.bool_]) -> bool:
        rows = network + noise - gain * noise.std(ddof=1) / 20
        scores = Evaluation({}, {"nlpd": rows}, calibrate("validation", rows, network, covered))
        draws: Any = None
        return Trial(possible_candidates(settings(), [NOISE])[0], 1, scores, draws).is_convincing

    assert convincing(2.1, inside) and not convincing(1.9, inside)
    assert not convincing(2.1, np.arange(400) < 330)


def trial(nlpd: list[float], prior: str, covered: float = 0.9, gain: float = 1.0) -> Trial:
    """Return a trial whose networks alone have an NLPD that is higher by `gain`."""
    rows = np.asarray(nlpd)
    inside = np.arange(len(rows)) < covered * len(rows)
    scores = Evaluation({}, {"nlpd": rows}, calibrate("validation", rows, rows + gain, inside))
    draws: Any = None  # not used by the choice
    return Trial(Candidate(NOISE, pn.Full(), prior, 1, 4, 500), 10_000, scores, draws)


def test_another_than_the_default_must_be_better_by_a_standard_error() -> None:
    rng = np.random.default_rng(1)
    default = rng.normal(size=100)
    noise = rng.normal(size=100)
    noise -= noise.mean()
    little, much = (default - gain * noise.std(ddof=1) / 10 + noise for gain in (0.9, 1.1))
    first = trial(list(default), "gaussian")
    assert best_of([first, trial(list(little), "trace-class")]) is first
    better = trial(list(much), "trace-class")
    assert best_of([first, better]) is better
    assert better.gain_over(first) == pytest.approx((0.11 * noise.std(ddof=1), 0.1 * noise.std(ddof=1)))


@pytest.mark.parametrize(("task", "covers"), [("regression", True), ("classification", False)])
def test_the_table_of_trials_has_coverage_where_there_are_intervals(task: str, covers: bool) -> None:
    report = Report("t")
    rows = list(np.random.default_rng(4).normal(size=40))
    data = SimpleNamespace(preprocessor=SimpleNamespace(task=task))
    _add_trials(report, SimpleNamespace(data=data, trials=[trial(rows, "gaussian"), trial(rows, "trace-class")]))
    assert ("coverage of 90% intervals" in report.html()) == covers
    assert "NLPD of its networks alone" in report.html()


def test_a_first_candidate_that_predicts_worse_than_its_networks_is_not_the_default() -> None:
    rng = np.random.default_rng(4)
    rows = list(rng.normal(size=400))
    worse, better = trial(rows, "gaussian", gain=-0.01), trial(rows, "trace-class", gain=0.01)
    assert worse.is_worse_than_networks and not better.is_worse_than_networks
    assert best_of([worse, better]) is better
    mean = np.mean(rows)
    assert describe_choice([worse, better]) == (
        f"NLPD of Full, gaussian prior on 400 validation rows, {mean:.3f}, is higher than that of its networks alone, "
        f"{mean - 0.01:.3f}"
    )
    # A candidate that is better by more than a standard error is chosen over the default, whatever its networks do.
    much = trial(list(np.asarray(rows) - 1), "trace-class", gain=-0.01)
    assert best_of([worse, better, much]) is much
    # Overconfidence is worse: longer chains aggravate it.
    overconfident = trial(rows, "trace-class", covered=0.84)
    assert best_of([overconfident, worse]) is worse
    # Where each is overconfident, one that predicts better than its networks is the default.
    both = trial(rows, "gaussian", covered=0.84, gain=-0.01)
    assert best_of([both, overconfident]) is overconfident
    # Where nothing speaks against the first, it is the default.
    assert best_of([trial(rows, "gaussian"), better]).candidate.prior == "gaussian"


def test_an_overconfident_first_candidate_is_not_the_default() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=400)
    noise = rng.normal(size=400)
    noise -= noise.mean()
    little, much = (list(rows - gain * noise.std(ddof=1) / 20 + noise) for gain in (0.9, 1.1))
    # Three standard errors of the coverage of 400 rows are 0.045; the tolerance is 0.05.
    overconfident = trial(little, "gaussian", covered=0.84)
    calibrated = trial(list(rows), "trace-class")
    assert overconfident.is_overconfident and not trial(little, "gaussian", covered=0.96).is_overconfident
    assert best_of([overconfident, calibrated]) is calibrated
    assert "Full, gaussian prior cover only 84% of 400" in describe_choice([overconfident, calibrated])
    # It is not chosen for a lower NLPD either, but where nothing else is calibrated.
    better = trial(much, "gaussian", covered=0.84)
    assert best_of([better, calibrated]) is calibrated
    assert best_of([trial(list(rows), "trace-class", covered=0.84), better]) is better
    calibrated_and_better = trial(much, "gaussian")
    assert best_of([calibrated, calibrated_and_better]) is calibrated_and_better
    assert "than of Full, trace-class prior" in describe_choice([calibrated, calibrated_and_better])
    also = trial(list(rows), "trace-class", covered=0.8)
    assert best_of([overconfident, also]) is overconfident


def test_the_chains_of_full_go_on_from_the_pilot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=30)
    nets = pn.train_many([2, 4, 1], X, y, networks=3, l2=0.1, validation_fraction=0, max_epochs=100)
    candidate = Candidate(NOISE, pn.Full(), "gaussian", 1, 3, 4)
    chosen = settings(hidden=(4,), seed=3)
    posts = candidate.posteriors(nets, DataRows(X, y), chosen)
    starts = []

    def record(post: pn.Posterior, **arguments: Any) -> pn.Draws:
        starts.append(arguments["init"])
        return pn.sample(post, **arguments)

    monkeypatch.setattr("patrac_native.fit.candidates.sample", record)
    pilot = candidate.pilot().sample(posts, nets, Schedule(1, 400), chosen)
    assert isinstance(pilot, pn.Draws) and pilot.n_chains == 2
    candidate.sample(posts, nets, Schedule(1, 400), chosen, pilot=pilot)
    # The pilot starts at networks, two different ones; the run at the pilot's ends and, its third chain, at a network.
    assert starts[0].shape == (2, posts[0].dim) and (starts[0][0] != starts[0][1]).all()
    np.testing.assert_array_equal(starts[0][0], posts[0].theta_map)
    np.testing.assert_array_equal(starts[1][:2], pilot.theta[:, -1])
    third = np.concatenate([part.ravel() for part in (*nets[2].weights, *nets[2].biases)]).astype(np.float32)
    np.testing.assert_array_equal(np.sort(starts[1][2]), np.sort(third))


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit of all rows at its default choice, of a tiny network in a tiny budget."""
    folder = tmp_path_factory.mktemp("chosen")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=150)
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}).to_csv(folder / "t.csv", index=False)
    size = ["--hidden", "8", "--epochs", "200", "--minutes", "0.02", "--chains", "2", "--draws", "60"]
    assert (
        main(
            ["fit", str(folder / "t.csv"), "--target", "y", *size, "--test-fraction", "0", "--out", str(folder / "run")]
        )
        == 0
    )
    return folder


def test_pilots_are_scored_on_rows_that_they_left_out(chosen: Path) -> None:
    summary = json.loads((chosen / "run" / "summary.json").read_text())
    trials = summary["trials"]
    order = [
        ("heteroscedastic_gaussian", "full", "gaussian"),
        ("gaussian", "full", "gaussian"),
        ("gaussian", "full", "trace-class"),
        ("gaussian", "mix", "trace-class"),
    ]
    found = [(one["likelihood"]["name"], one["architecture"]["name"], one["prior"]) for one in trials]
    assert found == order[: len(found)]
    assert {one["rows"] for one in trials} == {30}
    best = (summary["likelihood"]["name"], summary["architecture"]["name"], summary["prior"]["name"].replace("_", "-"))
    steps = trials[found.index(best)]["steps"]
    run = summary["sampling"]
    final = run["warmup_steps"] + 60 * run["thin"]
    if len(found) == 1:
        assert final > 1.2 * steps
    elif best[0] == "gaussian":
        # The final run has as many steps, but for rounding to 100 draws.
        assert final - 100 < steps <= final
    html = (chosen / "run" / "report.html").read_text(encoding="utf-8")
    assert "Choice of the posterior" in html and "validation rows" in html


def test_several_networks_predict_as_a_mixture(
    chosen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Leave-one-out scores of a mixture are those of its members, reweighted each by itself, in equal parts."""
    out = tmp_path / "run"
    size = "--hidden 8 --epochs 100 --l2 0.1 --networks 3 --chains 2 --draws 30 --thin 5 --warmup 400".split()
    command = ["fit", str(chosen / "t.csv"), "--target", "y", *size, "--test-fraction", "0", "--architecture", "mix"]
    assert main([*command, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "2 chains of each of 3 networks x 30 draws" in printed and "mixture of 3 posteriors" in printed
    mixture = pn.DrawsMixture.load(out / "draws.npz")
    assert mixture.n_members == 3 and mixture.n_chains == 6
    weights = {str(member.network.net.weights[0].tolist()) for member in mixture.members}
    assert len(weights) == 3
    prep, _ = load_preprocessing(str(out))
    frame = pd.read_csv(chosen / "t.csv")
    X, y = prep.transform(frame), prep.transform_target(frame)
    by_member = [pn.diagnostics.leave_one_out(one.log_likelihood_rows(X, y)).elpd_rows for one in mixture.members]
    expected = -np.log(np.mean(np.exp(by_member), axis=0)).mean()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["networks"] == 3 and summary["scores"]["nlpd"] == pytest.approx(expected, rel=1e-6)
    html = (out / "report.html").read_text(encoding="utf-8")
    assert "The chains of 3 networks" in html and "network 3" in html
    new = [
        "predict",
        str(out),
        str(chosen / "t.csv"),
        "--out",
        str(tmp_path / "p.csv"),
        "--scores",
        str(tmp_path / "s.json"),
    ]
    assert main(new) == 0
    read = pd.read_csv(tmp_path / "p.csv")
    mean = prep.inverse_target(mixture.predict(X).mean(axis=(0, 1))[:, 0])
    np.testing.assert_allclose(read["mean"], mean, rtol=1e-4)
    # On rows that are no training rows the networks are scored as the ensemble that they are.
    network = np.mean([one.network.net.predict(X)[:, 0] for one in mixture.members], axis=0)
    scores = evaluate_regression(mixture, prep, X, y).scores
    rmse = float(np.sqrt(((network - y) ** 2).mean())) * prep.target_scale
    assert scores["rmse_network"] == pytest.approx(rmse, rel=1e-12)
    assert json.loads((tmp_path / "s.json").read_text())["nlpd"] == pytest.approx(scores["nlpd"], rel=1e-12)


def disagreement(summary: Any) -> set[str]:
    """Return the grades of what the verdict says about chains that disagree."""
    return {finding.grade for finding in summary.verdict().findings if "chains disagree" in finding.what}


def test_the_verdict_on_a_mixture_sees_its_scores() -> None:
    """Good predictions of the mixture excuse a member's chains that disagree, as those of one posterior do."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=60)
    nets = pn.train_many([2, 5, 1], X, y, networks=2, l2=0.1, validation_fraction=0, max_epochs=200)
    posts = [pn.Posterior(net, pn.Mix(2), pn.TraceClassPrior(1.5, 1, 1), pn.Gaussian(0.1), X, y) for net in nets]
    mixture = pn.DrawsMixture(pn.sample_many(posts, chains=2, draws=20, thin=1, warmup=2000, seed=0))
    summary = mixture.summary(X[:5])
    assert disagreement(summary) == {"do not use"}
    scores = calibrate("validation", np.full(200, 0.5) + 0.01 * rng.normal(size=200), 0.6, rng.random(200) < 0.9)
    seen = summary.with_calibration(scores)
    assert disagreement(seen) == {"look"} and "validation rows of a shorter run" in str(seen)
    narrow = summary.with_calibration(calibrate("validation", np.full(200, 0.5), 0.4, rng.random(200) < 0.5))
    words = [finding.what for finding in narrow.verdict().findings if "intervals of y cover" in finding.what]
    assert len(words) == 1 and "member" not in words[0]


def test_networks_that_chains_start_at_are_the_rival_of_the_posterior() -> None:
    """Two chains that stand still at two networks are no better than the networks, which are an ensemble."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=60)
    nets = pn.train_many([2, 5, 1], X[:40], y[:40], networks=2, l2=0.1, validation_fraction=0, max_epochs=200)
    candidate = Candidate(NOISE, pn.Full(), "trace-class", 1, 2, 4)
    chosen = settings(hidden=(5,))
    posts = candidate.posteriors(nets, DataRows(X[:40], y[:40]), chosen)
    draws = candidate.sample(posts, nets, Schedule(1, 200), chosen)
    assert isinstance(draws, pn.Draws)
    starts = np.stack([candidate._starts(posts[0], nets)] * 4, axis=1)
    still = pn.Draws(starts, draws.stats, draws.network, draws.likelihood, draws.settings)
    prep = Preprocessor("regression", "y", [], [])
    found = evaluate_regression(still, prep, X[40:], y[40:], nets=nets)
    assert found.scores["nlpd"] == pytest.approx(found.scores["nlpd_network"], rel=1e-5)
    of_one = evaluate_regression(still, prep, X[40:], y[40:]).scores
    assert abs(of_one["nlpd_network"] - found.scores["nlpd_network"]) > 1e-3


def test_too_few_draws_to_score_are_refused_before_the_fit() -> None:
    one = Candidate(NOISE, pn.Out(5), "gaussian", 2, 1, 20)
    with pytest.raises(ValueError, match="--draws must be at least 25 for 1 chains of each network"):
        one.check(settings(test_fraction=0))
    one.check(settings(test_fraction=0.3))


def test_a_given_warmup_is_part_of_the_budget() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    candidate = Candidate(NOISE, pn.Full(), "trace-class", 1, 4, 500)
    (post,) = candidate.posteriors([network(3, 20, 1)], DataRows(X, y), settings(hidden=(20,)))
    default = candidate.schedule(post, settings(), 1.0)
    given = candidate.schedule(post, settings(warmup=str(2 * default.warmup)), 1.0)
    assert given.warmup == 2 * default.warmup
    assert abs(given.steps(500) - default.steps(500)) <= 500
    assert candidate.schedule(post, settings(warmup="300", thin=7), 1.0) == Schedule(7, 300)


def test_a_warmup_of_a_budget_ends_by_itself() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    candidate = Candidate(NOISE, pn.Full(), "trace-class", 1, 4, 500)
    (post,) = candidate.posteriors([network(3, 20, 1)], DataRows(X, y), settings(hidden=(20,)))

    def phases(steps: int, **given: Any) -> list[tuple[int, bool]]:
        warmup = candidate.warmup(post, Schedule(7, steps), settings(**given))
        return [(phase.steps, phase.first_look is not None) for phase in warmup.phases]

    assert phases(8_000) == [(7_500, True), (500, False)]
    # Too short to compare chains, given by the user, or after a number of steps that the user gave.
    assert phases(1_400) == [(1_050, False), (350, False)]
    assert phases(8_000, warmup="8000") == phases(8_000, thin=7) == [(6_000, False), (2_000, False)]
    assert phases(0) == []
    assert candidate.warmup(post, Schedule(7, 8_000), settings(warmup="paper")) == pn.paper_warmup()


def test_mixtures_of_interrupted_runs_keep_what_all_have() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = X[:, 0]
    nets = pn.train_many([2, 4, 1], X, y, networks=3, l2=0.1, validation_fraction=0, max_epochs=50)
    candidate = Candidate(NOISE, pn.Mix(2), "trace-class", 3, 1, 8)
    posts = candidate.posteriors(nets, DataRows(X, y), settings())
    whole = candidate.sample(posts, nets, Schedule(1, 200), settings())
    assert isinstance(whole, pn.DrawsMixture) and whole.n_draws == 8
    part = whole.members[0].head(5)
    assert part.n_draws == 5 and part.stats["log_likelihood"].shape == (1, 5)
    np.testing.assert_array_equal(part.theta, whole.members[0].theta[:, :5])
    with pytest.raises(ValueError, match="at most the number of draws, 8"):
        whole.members[0].head(9)


def pixels(columns: int, largest: int = 16) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    values = rng.integers(0, largest + 1, size=(80, columns))
    values[:, 0] = 0
    values[0, 0] = 3  # nearly always 0
    values[1, 1:] = largest
    frame = pd.DataFrame(values, columns=[f"p{i}" for i in range(columns)])
    return frame.assign(y=rng.normal(size=80))


def test_columns_of_one_unit_are_scaled_together() -> None:
    frame = pixels(20)
    prep = Preprocessor.fit(frame, "y", task="regression")
    X = prep.transform(frame)
    assert len({column.scale for column in prep.columns}) == 1 and "share a unit" in " ".join(prep.notes)
    assert (X**2).mean() == pytest.approx(1.0) and X[:, 0].max() < 1
    np.testing.assert_array_equal(Preprocessor.from_dict(prep.to_dict()).transform(frame), X)
    percentages_and_counts = pixels(20, 100).assign(**{f"p{i}": np.arange(80) % 3 for i in range(11, 20)})
    for other in (
        pixels(10),
        percentages_and_counts,
        pixels(20).assign(p3=lambda f: f.p3 + 0.5),
        pixels(20).assign(p3=lambda f: -f.p3),
        pixels(20).assign(**{f"p{i}": range(100 * i, 100 * i + 80) for i in range(1, 15)}),
    ):
        single = Preprocessor.fit(other, "y", task="regression")
        assert len({column.scale for column in single.columns}) > 5 and not single.notes, list(other)
