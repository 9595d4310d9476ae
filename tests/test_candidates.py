"""Candidates of a fit, the budget, pilot runs, and mixtures of networks."""

import itertools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from fits import quietly
from patrac_native.fit.budget import chain_minutes, steps_within
from patrac_native.fit.candidates import Candidate, Schedule, affordable_candidates, final_share, possible_candidates
from patrac_native.fit.choice import Trial, best_of, describe_choice
from patrac_native.fit.evaluation import Evaluation, evaluate, members_of
from patrac_native.fit.rows import Rows, TargetScaling
from patrac_native.fit.settings import Settings
from patrac_native.fit.training import Choice, describe_training, nominal_seconds, seconds_of_more
from patrac_native.verdict.calibration import calibrate

NOISE = pn.Gaussian(0.1)


def settings(**given: Any) -> Settings:
    return Settings(**{"minutes": 2.0, "verbose": True, **given})


def network(*sizes: int) -> pn.Network:
    return problems.random_network(np.random.default_rng(0), sizes)


def affordable(rows: int, hidden: tuple[int, ...], **given: Any) -> tuple[list[Candidate], str]:
    chosen = settings(hidden_layer_sizes=hidden, **given)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(rows, 10)), rng.normal(size=rows)
    possible = possible_candidates(chosen, [NOISE])
    minutes = chain_minutes(chosen.minutes, training=5.0)
    return affordable_candidates(possible, network(10, *hidden, 1), Rows(X, y), chosen, minutes)


def test_candidates_of_a_regression() -> None:
    found = possible_candidates(settings(hidden_layer_sizes=(50, 12)), [NOISE])
    assert [str(one) for one in found] == [
        "Full, gaussian prior",
        "Full, trace-class prior",
        "Mix(5) of 4 networks, trace-class prior",
    ]
    assert [(one.chains, one.draws, one.trained) for one in found] == [(4, 500, 4), (4, 500, 4), (2, 250, 4)]
    # Mix with all nodes is Full with frozen nothing, and a given prior leaves one Full.
    assert [str(one) for one in possible_candidates(settings(hidden_layer_sizes=(3,)), [NOISE])] == [
        "Full, gaussian prior",
        "Full, trace-class prior",
    ]
    assert len(possible_candidates(settings(hidden_layer_sizes=(3,), prior_alpha=2.0), [NOISE])) == 1
    # Another likelihood is tried first, with Full.
    several = possible_candidates(settings(hidden_layer_sizes=(50, 12)), [pn.HeteroscedasticGaussian(), NOISE])
    assert str(several[0]) == "Full, gaussian prior, heteroscedastic noise" and several[1:] == found
    assert possible_candidates(settings(k=(5,)), [pn.HeteroscedasticGaussian(), NOISE])[0].likelihood is NOISE


def test_candidates_of_classes_and_of_settings() -> None:
    assert [str(one) for one in possible_candidates(settings(), [pn.Categorical()])] == [
        "Out(50) of 8 networks, gaussian prior",
        "Full, gaussian prior",
    ]
    (given,) = possible_candidates(settings(architecture="mix", networks=3, chains=1, draws=40), [NOISE])
    assert given == Candidate(NOISE, pn.Mix(5), "trace-class", 3, 1, 40) and given.trained == 3
    (given,) = possible_candidates(settings(architecture="full", networks=3), [NOISE])
    assert given.trained == 3 and not given.starts_at_networks


def test_a_budget_that_does_not_pay_for_full_leaves_the_largest_mix() -> None:
    found, reason = affordable(300, (50, 50))
    assert len(found) == 3 and reason == ""
    # What pays for 1,500 steps but not for a choice is spent on Full alone.
    (full,), reason = affordable(50_000, (64, 64), minutes=8)
    assert full.architecture == pn.Full() and full.chains == 4
    assert 1_500 <= int(re.search(r"about ([\d,]+) in 8 minutes", reason)[1].replace(",", "")) < 5_000
    one, reason = affordable(50_000, (64, 64), minutes=2)
    assert len(one) == 1 and one[0].architecture.label().startswith("Mix") and one[0].networks == 4
    assert "the largest that gets 1,500 steps a chain" in reason
    smaller, _ = affordable(50_000, (64, 64), minutes=0.5)
    nodes = [np.max(two[0].architecture.k) for two in (one, smaller)]
    assert nodes[1] < nodes[0]
    (only,), _ = affordable(300, (50, 50), thin=10)
    assert only.architecture == pn.Full()


def test_classes_keep_their_default_whatever_the_budget_pays_for() -> None:
    chosen, rng = settings(hidden_layer_sizes=(64, 64), minutes=0.2), np.random.default_rng(0)
    X, y = rng.normal(size=(50_000, 10)), rng.integers(3, size=50_000)
    possible = possible_candidates(chosen, [pn.Categorical()])
    net, minutes = network(10, 64, 64, 3), chain_minutes(0.2, training=5.0)
    (only,), reason = affordable_candidates(possible, net, Rows(X, y), chosen, minutes)
    assert only == possible[0] and reason.startswith("the default, as 0.2 minutes pay for only about ")


def test_training_and_scores_are_part_of_the_budget() -> None:
    """Chains get three quarters, less if training takes more than the rest; of the first 0.1 minutes in any case."""
    assert chain_minutes(2.0, training=28.0) == pytest.approx(1.5) and chain_minutes(2.0, 0.0) == pytest.approx(1.5)
    assert chain_minutes(2.0, training=58.0) == pytest.approx(1.0)
    assert chain_minutes(2.0, training=500.0) == pytest.approx(0.075)
    assert chain_minutes(0.1, training=4.0) == pytest.approx(0.075)
    assert chain_minutes(0.01, training=4.0) == pytest.approx(0.0075)


def test_chains_of_few_parameters_do_not_use_up_the_budget() -> None:
    """By operations a budget would pay for tens of millions of steps of two parameters; of Full it sets the length."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 3))
    net = network(3, 50, 50, 1)
    last, full = (
        pn.Posterior(net, one, pn.GaussianPrior(), pn.StudentT(4.0, 1.0), X, X[:, 0]) for one in (pn.Out(1), pn.Full())
    )
    assert last.dim == 2 and steps_within(2.0, last, 10) == steps_within(20.0, last, 10) == 80_000
    assert steps_within(4.0, full, 10) == pytest.approx(2 * steps_within(2.0, full, 10), abs=1)


def test_the_time_of_a_training_follows_from_its_epochs() -> None:
    """No clock: the same networks cost the same; more rows, epochs and validation cost more."""
    X, y = problems.linear(60, d=2, sd=0.1)
    options: dict[str, Any] = {"networks": 2, "l2": 0.1, "patience": 1000, "seed": 0}
    plain, longer = (
        pn.train_many([2, 4, 1], X, y, validation_fraction=0, max_epochs=epochs, **options) for epochs in (20, 40)
    )
    cost = nominal_seconds(plain, 60, 60)
    assert 0 < cost < nominal_seconds(plain, 120, 120) < nominal_seconds(plain, 120, 30)
    assert nominal_seconds(longer, 60, 60) == pytest.approx(2 * cost)
    validated = pn.train_many([2, 4, 1], X, y, max_epochs=20, **options)
    history = validated[0].history
    assert history is not None and history.settings["validation"]["network_epochs"] == 5 * 20
    # Both networks at a time, after 100 epochs of the five networks of the validation.
    epochs = sum(len(net.history.loss) for net in validated if net.history is not None) / 2
    assert nominal_seconds(validated, 60, 60) == pytest.approx(cost * (100 + epochs) / 20)
    # The chosen epochs are counted, also where the loss of a network stopped falling before: the choice has no seed.
    stopped = [
        pn.Network(net.weights, net.biases, history=replace(net.history, loss=net.history.loss[:1]))
        for net in validated
        if net.history is not None
    ]
    assert nominal_seconds(stopped, 60, 60) == nominal_seconds(validated, 60, 60)


def test_the_time_of_a_search_is_counted_once_and_that_of_each_penalty_where_it_was_trained_again() -> None:
    X, y = problems.linear(60, d=2, sd=0.3)
    # A search waits for 300 epochs, of some penalties until the last one.
    options: dict[str, Any] = {"max_epochs": 342, "seed": 0}
    with pn.Note.collect():
        unit = pn.train_many([2, 4, 1], X, y, networks=1, l2=0.1, validation_fraction=0, **options | {"max_epochs": 1})
        nets = pn.train_many([2, 4, 1], X, y, networks=8, patience=400, **options)
        more = pn.train_many(
            [2, 4, 1], X, y, networks=2, first=8, patience=400, l2=Choice.of(nets[0]).penalties, **options
        )
    second = nominal_seconds(unit, 60)  # of an epoch
    found = {net.history.settings["l2"]: net.history.settings["validation"] for net in nets if net.history is not None}
    again = [one["network_epochs"] for one in found.values() if not one["is_of_search"]]
    assert len(found) > 1 and 0 < len(again) < len(found)  # of some the search went as far
    searched = {one["searched_epochs"] for one in found.values()}
    trained = [len(net.history.loss) for net in [*nets, *more] if net.history is not None]
    assert len(searched) == 1
    assert nominal_seconds(nets, 60) == pytest.approx(second * (searched.pop() + sum(again) + sum(trained[:8]) / 2))
    # Networks that follow validate the penalties that they take, of all that are known.
    taken = {net.history.settings["l2"]: net.history.settings["validation"] for net in more if net.history is not None}
    own = sum(one["network_epochs"] for one in taken.values())
    assert nominal_seconds(more, 60) == pytest.approx(second * (own + sum(trained[8:]) / 2))
    known = sum(one["network_epochs"] for one in found.values())
    assert own <= known
    assert seconds_of_more(nets, 60, 2) == pytest.approx(second * (known + trained[0]))


def test_a_line_tells_the_penalties_of_all_networks() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    with pn.Note.collect():
        nets = pn.train_many(
            [2, 4, 1], X, X[:, 0], networks=5, l2={0.5: 0.0, 0.1: 1.0}, validation_fraction=0, max_epochs=3
        )
    units = TargetScaling.identity()
    assert describe_training(nets, units) == "l2 0.5, 3 epochs, of the first network; other networks: l2 0.1 (4)"
    assert describe_training(nets[1:], units) == "l2 0.1, 3 epochs"


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
        return Trial(possible_candidates(settings(), [NOISE])[0], 1, scores).is_convincing

    assert convincing(2.1, inside) and not convincing(1.9, inside)
    assert not convincing(2.1, np.arange(400) < 330)


def trial(nlpd: list[float], prior: str, covered: float = 0.9, gain: float = 1.0) -> Trial:
    """Return a trial whose networks alone have an NLPD that is higher by `gain`."""
    rows = np.asarray(nlpd)
    inside = np.arange(len(rows)) < covered * len(rows)
    scores = Evaluation({}, {"nlpd": rows}, calibrate("validation", rows, rows + gain, inside))
    return Trial(Candidate(NOISE, pn.Full(), prior, 1, 4, 500), 10_000, scores)


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


def test_the_chains_of_full_start_at_a_network_each(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = problems.linear(30, d=2, sd=0.1)
    nets = pn.train_many([2, 4, 1], X, y, networks=3, l2=0.1, validation_fraction=0, max_epochs=100)
    candidate = Candidate(NOISE, pn.Full(), "gaussian", 1, 3, 4)
    chosen = settings(hidden_layer_sizes=(4,), random_state=3)
    posts = candidate.posteriors(nets, Rows(X, y), chosen)
    whole, starts = pn.sample, []

    def record(post: pn.Posterior, **arguments: Any) -> pn.Draws:
        starts.append(arguments["init"])
        return whole(post, **arguments)

    monkeypatch.setattr(pn, "sample", record)
    candidate.sample(posts, nets, Schedule(1, 400), chosen)
    np.testing.assert_array_equal(starts[0][0], posts[0].theta_map)
    for start, net in zip(starts[0], nets, strict=True):
        parameters = np.concatenate([part.ravel() for part in (*net.weights, *net.biases)]).astype(np.float32)
        np.testing.assert_array_equal(np.sort(start), np.sort(parameters))


def rows(n: int = 150) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n)


def fitted(X: npt.NDArray[Any], y: npt.NDArray[Any], make: Any = pn.PatracRegressor, **given: Any) -> Any:
    size = {"hidden_layer_sizes": 8, "max_iter": 200, "chains": 2, "draws": 60, "random_state": 0, **given}
    return quietly(make(**size), X, y)


@pytest.mark.parametrize(
    ("target", "given"),
    [
        pytest.param("numbers", {}, marks=pytest.mark.slow),
        pytest.param("numbers", {"architecture": "mix", "k": 2, "networks": 2}, marks=pytest.mark.slow),
        ("numbers", {"architecture": "mix", "k": 2, "networks": 2, "l2": 0.1}),
        pytest.param("labels", {}, marks=pytest.mark.slow),
        pytest.param("counts", {"likelihood": "negative-binomial"}, marks=pytest.mark.slow),
    ],
)
def test_fits_by_other_seeds_choose_alike_and_share_no_network_and_no_chain(target: str, given: dict[str, Any]) -> None:
    """What is chosen is a function of the rows, and what neighbouring seeds repeat is all of it."""
    X, y = rows()
    y = {"numbers": y, "labels": y > 0, "counts": np.floor(np.exp(y))}[target]
    make = pn.PatracClassifier if target == "labels" else pn.PatracRegressor
    fits = [fitted(X, y, make, minutes=0.005, random_state=seed, **given) for seed in (0, 1)]
    first, second = (fit.result_ for fit in fits)
    # As text, since the coverage of classes is NaN.
    assert [repr(one.to_dict()) for one in first.trials] == [repr(one.to_dict()) for one in second.trials]
    said = [[line for line in fit.report_.lines if "left-out" in line or "dispersion" in line] for fit in fits]
    assert said[0] == said[1]
    mine, others = (members_of(fit.draws) for fit in (first, second))
    assert [draws.settings["thin"] for draws in mine] == [draws.settings["thin"] for draws in others]
    nets, more = ([post.network.net for post in fit.posteriors] for fit in (first, second))
    for name in ("l2", "penalties", "validation"):
        assert [net.history.settings[name] for net in nets] == [net.history.settings[name] for net in more]
    for net, other in itertools.product(nets, more):
        assert not np.isclose(net.weights[0], other.weights[0]).any()
    for draws, other in itertools.product(mine, others):
        assert not np.isclose(draws.theta[:, None, 0], other.theta[None, :, 0]).all(axis=-1).any()


def test_pilots_are_scored_on_rows_that_they_left_out() -> None:
    result = fitted(*rows(), minutes=0.02).result_
    trials = [one.to_dict() for one in result.trials]
    order = [
        ("heteroscedastic_gaussian", "full", "gaussian"),
        ("gaussian", "full", "gaussian"),
        ("gaussian", "full", "trace-class"),
        ("gaussian", "mix", "trace-class"),
    ]
    found = [(one["likelihood"]["name"], one["architecture"]["name"], one["prior"]) for one in trials]
    assert found == order[: len(found)] and {one["rows"] for one in trials} == {30}
    best = best_of(result.trials)
    run = members_of(result.draws)[0].settings
    final = run["warmup_steps"] + 60 * run["thin"]
    if len(found) == 1:
        assert final > 1.2 * best.steps
    elif best.candidate.likelihood.name == "gaussian":
        # The final run has as many steps, but for rounding to 100 draws.
        assert final - 100 < best.steps <= final


def test_several_networks_predict_as_a_mixture() -> None:
    """Leave-one-out scores of a mixture are those of its members, reweighted each by itself, in equal parts."""
    X, y = rows()
    size = {"max_iter": 100, "l2": 0.1, "networks": 3, "draws": 30, "thin": 5, "warmup": 400, "architecture": "mix"}
    reg = fitted(X, y, **size)
    mixture = reg.draws_
    assert "2 chains of each of 3 networks x 30 draws" in str(reg.report_) and len(mixture.members) == 3
    assert len({str(member.network.net.weights[0].tolist()) for member in mixture.members}) == 3
    inputs, targets = reg.preprocessor_.transform(X), (y - y.mean()) / y.std()
    by_member = [
        pn.diagnostics.leave_one_out(one.log_likelihood_rows(inputs, targets)).elpd_rows for one in mixture.members
    ]
    expected = -np.log(np.mean(np.exp(by_member), axis=0)).mean()
    assert reg.evaluate().scores["nlpd"] == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(
        reg.predict(X), y.std() * mixture.predict(inputs).mean(axis=(0, 1))[:, 0] + y.mean(), rtol=1e-4, atol=1e-5
    )
    # On rows that are no training rows the networks are scored as the ensemble that they are.
    network = np.mean([one.network.net.predict(inputs)[:, 0] for one in mixture.members], axis=0)
    rmse = float(np.sqrt(((network - targets) ** 2).mean())) * y.std()
    assert reg.evaluate(X, y).scores["rmse_network"] == pytest.approx(rmse, rel=1e-9)


def test_the_verdict_on_a_mixture_sees_its_scores() -> None:
    """Scores of the mixture are facts about its predictions, and named once, whatever its members' chains do."""
    X, y = problems.linear(60, d=2, sd=0.3)
    nets = pn.train_many([2, 5, 1], X, y, networks=2, l2=0.1, validation_fraction=0, max_epochs=200)
    posts = [pn.Posterior(net, pn.Mix(2), pn.TraceClassPrior(1.5, 1, 1), pn.Gaussian(0.1), X, y) for net in nets]
    mixture = pn.DrawsMixture(pn.sample_many(posts, chains=2, draws=20, thin=1, warmup=2000, seed=0))
    summary = mixture.summary(X[:5])
    assert [one.grade for one in summary.verdict().findings if "chains disagree" in one.what] == ["do not use"]
    rng = np.random.default_rng(1)
    scores = calibrate("validation", np.full(200, 0.5) + 0.01 * rng.normal(size=200), 0.6, rng.random(200) < 0.9)
    of_predictions = summary.with_calibration(scores).verdict().predictions
    assert "validation rows of a shorter run" in of_predictions.facts and "from 2 networks" in of_predictions.facts
    narrow = summary.with_calibration(calibrate("validation", np.full(200, 0.5), 0.4, rng.random(200) < 0.5))
    words = [finding.what for finding in narrow.verdict().findings if "intervals of y cover" in finding.what]
    assert len(words) == 1 and "member" not in words[0]


def test_networks_that_chains_start_at_are_the_rival_of_the_posterior() -> None:
    """Two chains that stand still at two networks are no better than the networks, which are an ensemble."""
    X, y = problems.linear(60, d=2, sd=0.3)
    nets = pn.train_many([2, 5, 1], X[:40], y[:40], networks=2, l2=0.1, validation_fraction=0, max_epochs=200)
    candidate = Candidate(NOISE, pn.Full(), "trace-class", 1, 2, 4)
    chosen = settings(hidden_layer_sizes=(5,))
    posts = candidate.posteriors(nets, Rows(X[:40], y[:40]), chosen)
    draws = candidate.sample(posts, nets, Schedule(1, 200), chosen)
    assert isinstance(draws, pn.Draws)
    starts = np.stack([candidate._starts(posts[0], nets)] * 4, axis=1)
    still = pn.Draws(starts, draws.stats, draws.network, draws.likelihood, draws.settings)
    units, unseen = TargetScaling.identity(), Rows(X[40:], y[40:])
    found = evaluate(still, units, unseen, nets=nets).scores
    assert found["nlpd"] == pytest.approx(found["nlpd_network"], rel=1e-5)
    assert abs(evaluate(still, units, unseen).scores["nlpd_network"] - found["nlpd_network"]) > 1e-3


def test_draws_that_are_too_few_to_score() -> None:
    one = Candidate(NOISE, pn.Out(5), "gaussian", 2, 1, 20)
    assert one.least_draws(leaves_one_out=True) == 25 and one.least_draws(leaves_one_out=False) == 4


def test_a_given_warmup_is_part_of_the_budget() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    candidate = Candidate(NOISE, pn.Full(), "trace-class", 1, 4, 500)
    (post,) = candidate.posteriors([network(3, 20, 1)], Rows(X, y), settings(hidden_layer_sizes=(20,)))
    default = candidate.schedule(post, settings(), 1.0)
    given = candidate.schedule(post, settings(warmup=2 * default.warmup), 1.0)
    assert given.warmup == 2 * default.warmup
    assert abs(given.warmup + 500 * given.thin - default.warmup - 500 * default.thin) <= 500
    assert candidate.schedule(post, settings(warmup=300, thin=7), 1.0) == Schedule(7, 300)


def test_a_warmup_of_a_budget_ends_by_itself() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    candidate = Candidate(NOISE, pn.Full(), "trace-class", 1, 4, 500)
    (post,) = candidate.posteriors([network(3, 20, 1)], Rows(X, y), settings(hidden_layer_sizes=(20,)))

    def phases(steps: int, **given: Any) -> list[tuple[int, bool]]:
        warmup = candidate.warmup(post, Schedule(7, steps), settings(**given))
        return [(phase.steps, phase.first_look is not None) for phase in warmup.phases]

    assert phases(8_000) == [(7_500, True), (500, False)]
    # Too short to compare chains, given by the user, or after a number of steps that the user gave.
    assert phases(1_400) == [(1_050, False), (350, False)]
    assert phases(8_000, warmup=8000) == phases(8_000, thin=7) == [(6_000, False), (2_000, False)]
    assert phases(0) == []
    assert candidate.warmup(post, Schedule(7, 8_000), settings(warmup="paper")) == pn.paper_warmup()


def test_mixtures_of_interrupted_runs_keep_what_all_have() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = X[:, 0]
    nets = pn.train_many([2, 4, 1], X, y, networks=3, l2=0.1, validation_fraction=0, max_epochs=50)
    candidate = Candidate(NOISE, pn.Mix(2), "trace-class", 3, 1, 8)
    posts = candidate.posteriors(nets, Rows(X, y), settings())
    whole = candidate.sample(posts, nets, Schedule(1, 200), settings())
    assert isinstance(whole, pn.DrawsMixture) and whole.n_draws == 8
    part = whole.members[0][:, :5]
    assert part.n_draws == 5 and part.stats["log_likelihood"].shape == (1, 5)
    np.testing.assert_array_equal(part.theta, whole.members[0].theta[:, :5])
