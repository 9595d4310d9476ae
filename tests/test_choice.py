"""Tests of the choice between likelihoods: what is trained and tried, in which order, and what the budget leaves."""

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
from fits import quietly
from patrac_native.fit import choice as posterior_choice
from patrac_native.fit.budget import MIN_STEPS, chain_minutes
from patrac_native.fit.candidates import Candidate, final_share, pilot_cost, possible_candidates
from patrac_native.fit.choice import Chosen, Trial, best_of, choose_posterior, describe_choice
from patrac_native.fit.evaluation import Evaluation
from patrac_native.fit.noise import NoiseTrial, is_coarse
from patrac_native.fit.rows import FitData, Rows, TargetScaling
from patrac_native.fit.settings import NOISE_CHOICES, Settings
from patrac_native.fit.training import nominal_seconds, pilot_parts, pilot_runs
from patrac_native.verdict.calibration import calibrate

# NLPD of validation rows, and that of the networks alone.
GOOD, FAIR, BAD = (0.0, 1.0), (0.5, 0.5), (2.0, 1.0)


def settings(**given: Any) -> Settings:
    return Settings(
        **{"hidden_layer_sizes": (3,), "max_iter": 20, "l2": 0.1, "n_jobs": 1, "minutes": 2.0, "random_state": 0}
        | given
    )


def arrays(rows: int, step: float = 0.0) -> FitData:
    """Rows whose targets are multiples of `step`, if it is not zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    y = X[:, 0] * (1 + 0.5 * rng.normal(size=rows))
    if step:
        y = step * np.round(y / step)
    return FitData(Rows(X, y), None, 1, TargetScaling.identity())


class Watched:
    """Replaces pilot runs by given scores, and records what is trained, tried and said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scores: dict[str, tuple[float, float]]) -> None:
        self.trained: list[str] = []
        self.tried: list[tuple[Candidate, float]] = []
        self.seconds: list[float] = []
        self.lines: list[str] = []
        self._scores, self._train = scores, posterior_choice.train_networks
        monkeypatch.setattr(posterior_choice, "train_networks", self.train)
        monkeypatch.setattr(posterior_choice, "run_pilots", self.run)

    def train(
        self, sizes: Sequence[int], rows: Any, likelihood: Any, settings: Settings, **arguments: Any
    ) -> list[pn.Network]:
        self.trained.append(likelihood.name)
        nets = self._train(sizes, rows, likelihood, settings, **arguments)
        self.seconds.append(nominal_seconds(nets, len(rows.X)))
        return nets

    def run(self, candidates: Sequence[Candidate], *arguments: Any, say: Any) -> list[Trial]:
        minutes = arguments[-1]
        inside = np.arange(400) < 360
        noise = np.random.default_rng(0).normal(size=400)
        trials = []
        for one in candidates:
            nlpd, of_networks = self._scores[one.likelihood.name]
            rows = nlpd + 0.1 * noise
            scores = Evaluation({}, {"nlpd": rows}, calibrate("validation", rows, np.full(400, of_networks), inside))
            trials.append(Trial(one, 1, scores))
            self.tried.append((one, minutes))
            if trials[0].is_convincing:
                break
        return trials

    def choose(self, rows: int, *, step: float = 0.0, by_networks: Any = None, **given: Any) -> Chosen:
        return choose_posterior(
            NOISE_CHOICES, arrays(rows, step), settings(**given), by_networks=by_networks, say=self.lines.append
        )


def test_networks_of_the_second_likelihood_are_trained_only_if_the_first_is_not_convincing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, {"heteroscedastic_gaussian": GOOD, "gaussian": GOOD})
    found = watched.choose(120)
    assert watched.trained == ["heteroscedastic_gaussian"] and len(watched.tried) == 1
    assert found.candidate.likelihood is NOISE_CHOICES[0] and found.nets[0].layer_sizes == (2, 3, 2)
    assert "so no other was tried" in found.reason
    # The pilot run is planned as if all candidates had one and both trainings took as long; the rest is for the chains.
    (first, minutes), (second,) = watched.tried[0], watched.seconds
    possible = possible_candidates(settings(), NOISE_CHOICES)
    possible[0] = dataclasses.replace(possible[0], chains=8, draws=250)
    assert first == possible[0]
    assert minutes == pytest.approx(final_share(possible) * chain_minutes(2.0, 2 * second))
    assert found.minutes == pytest.approx(chain_minutes(2.0, second) - minutes * pilot_cost(first))


@pytest.mark.parametrize(
    ("rows", "given", "lengths"),
    [
        (120, {}, (8, 250)),
        # Numbers that the user gives stay, and chains that would have fewer than 15,000 steps are not divided.
        (120, {"draws": 300}, (4, 300)),
        (120, {"chains": 3}, (3, 500)),
        (400, {"hidden_layer_sizes": (50,), "max_iter": 2, "minutes": 0.3}, (4, 500)),
        (400, {"hidden_layer_sizes": (50,), "max_iter": 2, "minutes": 0.5}, (8, 250)),
    ],
)
def test_chains_with_noise_of_each_row_are_more_and_shorter(
    monkeypatch: pytest.MonkeyPatch, rows: int, given: dict[str, Any], lengths: tuple[int, int]
) -> None:
    watched = Watched(monkeypatch, {"heteroscedastic_gaussian": GOOD, "gaussian": GOOD})
    chosen = watched.choose(rows, **given)
    found = chosen.candidate
    assert found.likelihood is NOISE_CHOICES[0] and (found.chains, found.draws) == lengths
    assert len(chosen.nets) == lengths[0]


@pytest.mark.parametrize(
    ("given", "lengths"),
    [
        # 18,900 steps of each chain: without a choice there are no pilot runs, and all minutes are theirs.
        ({"architecture": "full", "hidden_layer_sizes": (50,), "max_iter": 2, "minutes": 0.2}, (8, 250)),
        ({"architecture": "full", "thin": 3}, (4, 500)),
        ({"architecture": "full", "networks": 2}, (2, 250)),
        ({"architecture": "mix", "k": (2,)}, (4, 500)),
    ],
)
def test_a_posterior_that_is_asked_for_has_more_chains_too(given: dict[str, Any], lengths: tuple[int, int]) -> None:
    rows = arrays(400)
    with warnings.catch_warnings(action="ignore"):
        found = choose_posterior([pn.HeteroscedasticGaussian()], rows, settings(**given), say=lambda _: None).candidate
    assert (found.chains, found.draws) == lengths


def test_a_network_beyond_the_memory_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, {"heteroscedastic_gaussian": GOOD, "gaussian": GOOD})
    with pytest.raises(ValueError, match=r"hidden_layer_sizes=.* are too large for this machine"):
        watched.choose(120, hidden_layer_sizes=(10**12, 10**12))
    assert not watched.trained


def test_chains_with_the_same_noise_for_all_rows_stay_four(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, {"heteroscedastic_gaussian": BAD, "gaussian": GOOD})
    found = watched.choose(120).candidate
    assert found.likelihood is NOISE_CHOICES[1] and (found.chains, found.draws) == (4, 500)


@pytest.mark.parametrize(
    ("first", "second", "chosen"), [(FAIR, GOOD, "gaussian"), (FAIR, BAD, "heteroscedastic_gaussian")]
)
def test_the_better_of_two_likelihoods_is_chosen(
    monkeypatch: pytest.MonkeyPatch, first: tuple[float, float], second: tuple[float, float], chosen: str
) -> None:
    watched = Watched(monkeypatch, {"heteroscedastic_gaussian": first, "gaussian": second})
    found = watched.choose(120)
    assert watched.trained == ["heteroscedastic_gaussian", "gaussian"]
    assert found.candidate.likelihood.name == chosen
    assert found.nets[0].layer_sizes[-1] == found.candidate.likelihood.outputs_per_target
    assert [one.candidate.likelihood.name for one in found.trials][:2] == ["heteroscedastic_gaussian", "gaussian"]
    # All pilot runs and the final run take what the training leaves.
    taken = sum(minutes * pilot_cost(one) for one, minutes in watched.tried[:1])
    last = [one for one, _ in watched.tried[1:]]
    rest = chain_minutes(2.0, sum(watched.seconds)) - taken
    possible = possible_candidates(settings(), NOISE_CHOICES[1:])
    assert found.minutes == pytest.approx(rest * (1 - final_share(possible) * sum(map(pilot_cost, last))))


def test_a_budget_too_small_for_two_trainings_is_left_to_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"heteroscedastic_gaussian": GOOD, "gaussian": GOOD}
    watched = Watched(monkeypatch, scores)
    rows, large = 3_000, {"hidden_layer_sizes": (50, 50), "minutes": 0.5, "max_iter": 2}
    share = final_share(possible_candidates(settings(**large), NOISE_CHOICES))
    sketch = pn.Network([np.ones(s) for s in ((50, 2), (50, 50), (2, 50))], [np.ones(w) for w in (50, 50, 2)])
    first = possible_candidates(settings(**large), NOISE_CHOICES)[0]
    steps = first.steps_within(share * chain_minutes(0.5, 0.0), sketch, arrays(rows).training, settings())
    assert steps < 2 * MIN_STEPS  # otherwise the case is no case
    found = watched.choose(rows, **large)
    assert watched.trained == ["gaussian"] and found.candidate.likelihood is NOISE_CHOICES[1]


@pytest.mark.parametrize(
    ("rows", "given"),
    [(99, {}), (120, {"thin": 5}), (120, {"architecture": "full"}), (120, {"k": (2,)}), (120, {"device": "cuda"})],
)
def test_without_a_choice_the_noise_is_alike_in_all_rows(
    monkeypatch: pytest.MonkeyPatch, rows: int, given: dict[str, Any]
) -> None:
    watched = Watched(monkeypatch, {"heteroscedastic_gaussian": GOOD, "gaussian": GOOD})
    found = watched.choose(rows, **given)
    assert watched.trained == ["gaussian"] and found.candidate.likelihood is NOISE_CHOICES[1]


@pytest.mark.parametrize(("gap", "trained"), [(0.6, "gaussian"), (0.3, "heteroscedastic_gaussian")])
def test_noise_of_each_row_is_not_tried_where_the_target_takes_few_values(
    monkeypatch: pytest.MonkeyPatch, gap: float, trained: str
) -> None:
    """On whole numbers that a standard deviation hardly spans, it would vanish at some rows and miss others."""
    watched = Watched(monkeypatch, {"heteroscedastic_gaussian": GOOD, "gaussian": GOOD})
    found = watched.choose(120, step=gap * float(np.std(arrays(120).training.y)))
    assert watched.trained == [trained] and found.candidate.likelihood.name == trained
    message = (
        "heteroscedastic noise is not tried: the target takes few values, and a density rewards noise that vanishes at "
        "them; likelihood='heteroscedastic' samples it all the same"
    )
    assert (message in watched.lines) == (trained == "gaussian")


@pytest.mark.parametrize(("column", "coarse"), [(0, False), (1, True)])
def test_one_target_of_several_with_few_values_is_enough(column: int, coarse: bool) -> None:
    y = np.random.default_rng(0).normal(size=(50, 2))
    y[:, column] = np.round(y[:, column] * (20 if column == 0 else 1))
    assert is_coarse(y) is coarse
    assert is_coarse(y[:, column]) is coarse


@pytest.mark.parametrize(
    ("preferred", "nlpd", "chosen"),
    [(None, 0.9, "heteroscedastic_gaussian"), (1, 0.9, "gaussian"), (0, 0.9, "heteroscedastic_gaussian"),
     (1, 0.8, "heteroscedastic_gaussian")],
)  # fmt: skip
def test_what_networks_prefer_is_the_default_of_the_pilot_runs(
    preferred: int | None, nlpd: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both predict a little better than their networks; the rows' differences have no standard error."""
    scores = {"heteroscedastic_gaussian": (nlpd, nlpd + 0.001), "gaussian": (0.9, 0.901)}
    watched = Watched(monkeypatch, scores)
    found = watched.choose(120, by_networks=None if preferred is None else NOISE_CHOICES[preferred])
    assert {one.likelihood.name for one, _ in watched.tried} == set(scores)
    assert found.candidate.likelihood.name == chosen


def test_training_longer_than_planned_leaves_the_final_run_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, {"heteroscedastic_gaussian": FAIR, "gaussian": BAD})
    costs = iter([1.0, 1e6])
    monkeypatch.setattr(posterior_choice, "nominal_seconds", lambda *_: next(costs))
    found = watched.choose(120)
    (_, first), *_ = watched.tried
    assert found.minutes == pytest.approx(first)


def test_one_candidate_after_another_likelihood_has_a_pilot_run_as_long_as_its_final_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, {"heteroscedastic_gaussian": FAIR, "gaussian": FAIR})
    found = watched.choose(120, prior="gaussian")
    (_, _), (second, minutes) = watched.tried
    assert second.likelihood is NOISE_CHOICES[1] and found.minutes == pytest.approx(minutes)


def test_a_training_that_leaves_too_little_is_not_followed_by_a_pilot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, {"heteroscedastic_gaussian": GOOD, "gaussian": GOOD})
    costs = iter([1e6, 1.0])
    monkeypatch.setattr(posterior_choice, "nominal_seconds", lambda *_: next(costs))
    monkeypatch.setattr(posterior_choice, "MIN_STEPS", 10**7)
    monkeypatch.setattr(posterior_choice, "_FIRST_STEPS", 0)
    # By the networks alone, noise of each row is taken: its networks are not trained again.
    monkeypatch.setattr(posterior_choice, "try_noise", trial_of({"heteroscedastic_gaussian": 1.0, "gaussian": 2.0}))
    found = watched.choose(120)
    assert watched.trained == ["heteroscedastic_gaussian"]
    assert found.candidate.likelihood is NOISE_CHOICES[0]


@pytest.mark.parametrize("better", ["heteroscedastic_gaussian", "gaussian"])
def test_networks_alone_choose_the_noise_where_the_budget_pays_for_no_pilot_run(
    monkeypatch: pytest.MonkeyPatch, better: str
) -> None:
    watched = Watched(monkeypatch, {"heteroscedastic_gaussian": GOOD, "gaussian": GOOD})
    scores = {"heteroscedastic_gaussian": 1.5, "gaussian": 1.5} | {better: 1.0}
    monkeypatch.setattr(posterior_choice, "try_noise", trial_of(scores))
    monkeypatch.setattr(posterior_choice, "_FIRST_STEPS", 10**12)
    found = watched.choose(120)
    assert watched.trained == [better] and found.candidate.likelihood.name == better
    assert {one.likelihood.name for one, _ in watched.tried} == {better}
    assert any(line.endswith(f"{found.candidate.likelihood.label} is taken") for line in watched.lines)
    # Its seconds take nothing from the chains, which would have 0.075 minutes.
    assert found.minutes > 0.3


def trial_of(scores: dict[str, float]) -> Any:
    """Return what stands for `try_noise`: no network, and given scores of 24 rows."""
    rows = np.random.default_rng(0).normal(size=24)
    return lambda likelihood, *_: NoiseTrial(
        likelihood, likelihood, False, rows + scores[likelihood.name], rows, None, 1e6
    )


def test_too_few_rows_for_validation_are_the_reason_of_the_default() -> None:
    lines: list[str] = []
    found = choose_posterior(NOISE_CHOICES, arrays(19), settings(), say=lines.append)
    assert found.reason == "the default, because too few rows can be left out to choose by them"
    assert found.pilot is None and not any("choosing among" in line for line in lines)
    assert found.candidate == possible_candidates(settings(), [found.candidate.likelihood])[0]


def test_an_estimator_of_two_targets_and_weighted_rows_chooses_heteroscedastic_noise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Trial, "is_convincing", property(lambda _: True))
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, size=(150, 2))
    y = np.stack([X[:, 0], X[:, 1]], axis=1) + np.exp(X[:, :1]) * 0.2 * rng.normal(size=(150, 2))
    reg = pn.PatracRegressor(
        hidden_layer_sizes=4, max_iter=200, l2=0.1, minutes=0.002, chains=2, draws=40, random_state=0
    )
    quietly(reg, X, y, sample_weight=rng.integers(1, 3, 150))
    assert reg.draws_.likelihood.name == "heteroscedastic_gaussian"
    mean, sd = reg.predict(X, return_std=True)
    assert mean.shape == sd.shape == (150, 2)
    _, aleatoric, _ = reg.predict_uncertainty(X)
    right = X[:, 0] > 0
    assert (aleatoric[right].mean(axis=0) > 2 * aleatoric[~right].mean(axis=0)).all()
    reg.save(tmp_path / "reg.patrac")
    np.testing.assert_array_equal(pn.PatracRegressor.load(tmp_path / "reg.patrac").predict(X), mean)


def classes(rows: int = 120) -> FitData:
    data = arrays(rows)
    return FitData(Rows(data.training.X, (data.training.y > 0).astype(np.int64)), None, 2, TargetScaling.identity())


@pytest.mark.parametrize(
    ("scores", "chosen", "words"),
    [
        # The networks alone have 0.5; the rows' differences have a standard error of 0.005.
        ({"Out(20)": 0.4}, "Out(20)", "lower by more than two standard errors"),
        ({"Out(20)": 0.499}, "Out(20)", "the only one that the budget pays for"),
        # Of all rows any difference is reason to try others; a tie is the smallest one's.
        ({"Out(20)": 0.501, "Out(10)": 0.6, "Out(1)": 0.502}, "Out(1)", "is higher than that of its networks alone"),
        ({"Out(20)": 0.501, "Out(10)": 0.6, "Out(1)": 0.55}, "Out(20)", "lower by 0.049"),
        ({"Out(20)": 0.6, "Out(10)": 0.45}, "Out(10)", "is higher than that of its networks alone"),
        ({"Out(20)": 0.6, "Out(10)": 0.55, "Out(1)": 0.499}, "Out(1)", "is higher than that of its networks alone"),
        ({"Out(20)": 0.6, "Out(10)": 0.55, "Out(1)": 0.53}, "Out(1)", "is higher than that of its networks alone"),
    ],
)
def test_a_posterior_of_classes_that_is_worse_than_its_networks_gives_way_to_a_smaller_one(
    scores: dict[str, float], chosen: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posterior_choice, "affordable_candidates", lambda possible, *_: ([possible[0]], "one"))
    tried: list[str] = []

    def run(candidates: Sequence[Candidate], *_: Any, say: Any) -> list[Trial]:
        trials = []
        for one in candidates:
            tried.append(one.architecture.label())
            rows = scores[tried[-1]] + 0.1 * np.random.default_rng(len(tried)).choice([-1.0, 1.0], 400)
            rows += scores[tried[-1]] - rows.mean()
            scored = Evaluation({}, {"nlpd": rows}, calibrate("validation", rows, np.full(400, 0.5)))
            trials.append(Trial(one, 1, scored))
            if trials[0].is_convincing:
                break
        return trials

    monkeypatch.setattr(posterior_choice, "run_pilots", run)
    lines: list[str] = []
    given = settings(hidden_layer_sizes=(20,), networks=2)
    with pn.Note.collect("worse than networks") as notes:
        found = choose_posterior([pn.Categorical()], classes(), given, say=lines.append)
    assert found.candidate.architecture.label() == chosen and words in found.reason
    assert tried == list(scores) and len(found.trials) == len(tried)
    assert any("trying fewer Bayesian parameters" in line for line in lines) == (len(tried) > 1)
    assert len(notes) == (min(scores.values()) > 0.51)


@pytest.mark.parametrize(
    ("scores", "chosen", "is_warned"),
    [
        # Of Full under either prior, Mix, and what is tried if none is as good as its networks, 0.5.
        ([0.6, 0.505, 0.6], "Full", False),
        ([0.6, 0.6, 0.6, 0.4], "Out(10)", False),
        ([0.6, 0.6, 0.6, 0.55, 0.499], "Out(1)", False),
        ([0.6, 0.6, 0.6, 0.55, 0.52], "Out(1)", True),
        ([0.6, 0.62, 0.62, 0.65, 0.61], "Full", True),
    ],
)
def test_a_regression_that_is_worse_than_its_networks_gives_way_too_and_warns_if_nothing_helps(
    scores: list[float], chosen: str, is_warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch, {})
    left = iter(scores)

    def run(candidates: Sequence[Candidate], *_: Any, say: Any) -> list[Trial]:
        trials = []
        for one in candidates:
            watched.tried.append((one, 0.0))
            nlpd = next(left)
            rows = nlpd + 0.1 * np.random.default_rng(len(watched.tried)).choice([-1.0, 1.0], 400)
            rows += nlpd - rows.mean()
            inside = np.arange(400) < 360
            scored = Evaluation({}, {"nlpd": rows}, calibrate("validation", rows, np.full(400, 0.5), inside))
            trials.append(Trial(one, 1, scored))
            if trials[0].is_convincing:
                break
        return trials

    monkeypatch.setattr(posterior_choice, "run_pilots", run)
    given = settings(hidden_layer_sizes=(20,))
    with pn.Note.collect("worse than networks") as notes:
        found = choose_posterior([pn.Gaussian("sampled")], arrays(200), given, say=watched.lines.append)
    assert found.candidate.architecture.label() == chosen and len(found.trials) == len(scores)
    assert len(found.nets) >= found.candidate.networks and watched.trained == ["gaussian"]
    smaller = [one for one, _ in watched.tried[3:]]
    assert [one.architecture.label() for one in smaller] == ["Out(10)", "Out(1)"][: len(scores) - 3]
    assert all(one.networks == 4 and one.likelihood is found.candidate.likelihood for one in smaller)
    assert not any("others" in str(note) for note in notes)  # of which some may not have been worse by so much
    assert len(notes) == is_warned == any("worse than its networks alone, by more" in line for line in watched.lines)
    assert 0 < found.minutes < chain_minutes(2.0, 0.0)
    # What is asked for is not exchanged.
    asked = settings(hidden_layer_sizes=(20,), architecture="full")
    assert choose_posterior([pn.Gaussian("sampled")], arrays(200), asked, say=lambda _: None).reason == "as asked"


@pytest.mark.parametrize(
    ("kind", "rows", "excess", "is_said"),
    [
        # The differences of NLPD have a standard error of 0.005.
        ("numbers", 60, 0.0075, "by more than a standard error"),
        ("numbers", 60, 0.0025, ""),
        ("numbers", 200, 0.0125, "by more than two standard errors"),
        ("numbers", 200, 0.0075, ""),
        ("classes", 120, 0.0005, "worse than the networks:"),
        ("classes", 2001, 0.0075, ""),
        ("classes", 2001, 0.0125, "by more than two standard errors"),
    ],
)
def test_by_how_much_a_posterior_is_worse_where_smaller_ones_are_tried(
    kind: str, rows: int, excess: float, is_said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more rows by two standard errors, of few rows, which are all scored, by one, and of classes by any."""
    monkeypatch.setattr(posterior_choice, "affordable_candidates", lambda possible, *_: ([*possible[:1]] * 2, ""))
    found: list[str] = []

    def run(candidates: Sequence[Candidate], *_: Any, say: Any) -> list[Trial]:
        smaller = bool(found)
        found.extend(one.architecture.label() for one in candidates)
        # The networks alone have 0.5, as have the smaller posteriors.
        nlpd = 0.5 + excess * (not smaller) + 0.1 * np.tile([-1.0, 1.0], 200)
        inside = np.arange(400) < 360 if kind == "numbers" else None
        scored = Evaluation({}, {"nlpd": nlpd}, calibrate("validation", nlpd, np.full(400, 0.5), inside))
        return [Trial(one, 1, scored) for one in candidates]

    monkeypatch.setattr(posterior_choice, "run_pilots", run)
    given = settings(hidden_layer_sizes=(20,), networks=2 if kind == "classes" else None)
    data, likelihood = (
        (arrays(rows), pn.Gaussian("sampled")) if kind == "numbers" else (classes(rows), pn.Categorical())
    )
    lines: list[str] = []
    with pn.Note.collect("worse than networks") as notes:
        chosen = choose_posterior([likelihood], data, given, say=lines.append)
    said = [line for line in lines if "trying fewer" in line]
    assert len(said) == bool(is_said) and all(is_said in line for line in said)
    assert found[2:] == (["Out(10)", "Out(1)"] if is_said else []) and not notes
    assert chosen.candidate.architecture.label() == ("Out(1)" if is_said else found[0])
    assert ("is higher than that of its networks alone" in chosen.reason) == bool(is_said)
    assert chosen.minutes > 0  # the budget pays for all of them and for the final run


def test_smaller_posteriors_that_do_not_help_are_no_reason_for_the_larger() -> None:
    """Neither if all of them are overconfident."""
    larger, smaller = (
        Candidate(pn.Gaussian(1.0), one, "gaussian", networks=4, chains=2, draws=100) for one in (pn.Full(), pn.Out(1))
    )
    nlpd = 0.5 + 0.1 * np.tile([-1.0, 1.0], 200)
    trials = [
        Trial(one, 1, Evaluation({}, {"nlpd": rows}, calibrate("validation", rows, nlpd, np.arange(400) < inside)))
        for one, rows, inside in ((larger, nlpd + 0.1, 360), (smaller, nlpd - 0.1, 200))
    ]
    trials[1] = dataclasses.replace(trials[1], is_smaller=True)
    assert best_of(trials).candidate is larger and describe_choice(trials).startswith("the default")


def test_pilot_runs_of_few_rows_leave_out_each_in_turn() -> None:
    numbers = arrays(100)
    ((held, kept),) = pilot_parts(numbers)
    assert (len(held.X), len(kept.X), pilot_runs(100)) == (20, 80, 1)
    for rows in (97, 20):
        parts = pilot_parts(arrays(rows))
        assert len(parts) == pilot_runs(rows) == 5
        left_out = np.concatenate([held.y for held, _ in parts])
        np.testing.assert_array_equal(np.sort(left_out), np.sort(arrays(rows).training.y))
        assert all(len(held.X) + len(kept.X) == rows for held, kept in parts)
        assert not any(set(held.y) & set(kept.y) for held, kept in parts)
    assert pilot_parts(arrays(19)) == [] and pilot_runs(19) == 0
    # Labels tell less than numbers.
    for rows, runs in ((100, 5), (2000, 5), (2001, 1)):
        assert len(pilot_parts(classes(rows), by_class=True)) == pilot_runs(rows, by_class=True) == runs


def test_pilot_runs_of_few_rows_divide_neither_groups_nor_rare_classes() -> None:
    data = classes(60)
    labels = np.r_[np.full(3, 2), data.training.y[3:]]  # three rows of a third class
    rare = dataclasses.replace(data, training=data.training._replace(y=labels))
    parts = pilot_parts(rare, by_class=True)
    assert len(parts) == 5 and sum(len(held.X) for held, _ in parts) == 57
    assert all(set(kept.y) == {0, 1, 2} and (kept.y == 2).sum() == 3 for _, kept in parts)
    # Values are divided as classes are.
    values = np.array([-2.5, 0.0, 7.0])
    numbers = dataclasses.replace(rare, training=rare.training._replace(y=values[labels]))
    for (held, _), (again, _) in zip(parts, pilot_parts(numbers, by_class=True), strict=True):
        np.testing.assert_array_equal(values[held.y], again.y)
    few = classes(45)
    grouped = dataclasses.replace(few, training=few.training._replace(groups=np.arange(45) % 3))
    parts = pilot_parts(grouped)
    assert [len(set(held.groups)) for held, _ in parts] == [1, 1, 1]
    assert not any(set(held.groups) & set(kept.groups) for held, kept in parts)


@pytest.mark.parametrize("is_class", [True, False])
def test_a_posterior_of_few_rows_is_scored_on_all_of_them(is_class: bool) -> None:
    data, likelihood = (classes(45), pn.Categorical()) if is_class else (arrays(45), pn.Gaussian("sampled"))
    given = settings(hidden_layer_sizes=(4,), minutes=0.02)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # chains as short as these do not converge
        found = choose_posterior([likelihood], data, given, say=lambda _: None)
    assert found.pilot is not None and len(found.trials) >= 1 and found.minutes > 0
    for trial in found.trials:
        scores, of_rows = trial.evaluation.calibration, trial.evaluation.arrays["nlpd"]
        assert scores.kind == trial.evaluation.scores["kind"] == "validation" and scores.rows == len(of_rows) == 45
        assert scores.nlpd == trial.evaluation.scores["nlpd"] == pytest.approx(of_rows.mean())
        assert np.isfinite([scores.nlpd_network, scores.nlpd_difference_se]).all()
    name = "accuracy" if is_class else "coverage"
    assert name in found.trials[0].evaluation.scores
    # Five pilot runs of each candidate leave less of the budget for the final one.
    possible = possible_candidates(given, [likelihood])
    assert final_share(possible, 5) == pytest.approx(1 / (1 + 5 * (1 / final_share(possible) - 1)))


def test_a_posterior_of_classes_that_is_asked_for_has_no_pilot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior_choice, "run_pilots", lambda *_, **__: pytest.fail("a pilot run"))
    given = settings(hidden_layer_sizes=(3,), architecture="out", k=(3,))
    assert choose_posterior([pn.Categorical()], classes(), given, say=lambda _: None).reason == "as asked"
