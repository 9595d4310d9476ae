"""Fits to a precision: replicates that are added until a rerun moves predictions by little, and what is said of it."""

from __future__ import annotations

import json
import math
import pickle
import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

import patrac_native as pn
from fits import quietly
from patrac_native.cli.main import main
from patrac_native.fit import precision as under_test
from patrac_native.fit.budget import chain_minutes
from patrac_native.fit.candidates import Candidate, RunInterrupted
from patrac_native.fit.settings import CHOICE_SEED, Settings
from patrac_native.fit.training import nominal_seconds

# Little noise, so that the intervals are those of f, and networks that are hardly trained, so that they differ.
FIT: dict[str, Any] = {"hidden_layer_sizes": 6, "max_iter": 60, "l2": 0.1, "random_state": 1, "n_jobs": 1}
MIX: dict[str, Any] = {"architecture": "mix", "k": 2, "networks": 2, "minutes": 0.02, **FIT}
FULL: dict[str, Any] = {"architecture": "full", "likelihood": "gaussian", "minutes": 0.02, **FIT}


def rows(n: int = 60) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, n))
    return x[:, None], np.sin(x) + 0.05 * rng.normal(size=n)


def fitted(**given: Any) -> pn.PatracRegressor:
    """Return a fit whose error is that of every third row."""
    X, y = rows()
    return quietly(pn.PatracRegressor(**given), X, y, held_out=(X[::3], y[::3]))


@pytest.fixture(scope="module")
def mixture() -> pn.PatracRegressor:
    return fitted(**MIX, precision=0.05)


def test_networks_are_added_until_the_precision_is_reached(mixture: pn.PatracRegressor) -> None:
    reached, draws = mixture.result_.reached, mixture.draws_
    assert reached is not None and isinstance(draws, pn.DrawsMixture)
    assert reached.is_reached and reached.error is not None and reached.error <= 0.05
    assert reached.replicates == len(draws.members) == len(mixture.result_.posteriors) > 2
    at = mixture.preprocessor_.transform(rows()[0][::3])
    # What was reached is what a user computes, and what the summary has.
    assert reached.error == draws.rerun_error(at).of_predictions.median
    assert reached.error == mixture.result_.summary.rerun_error.of_predictions.median
    # Without the networks that were added it was not reached.
    first = pn.DrawsMixture(draws.members[:2])
    assert first.rerun_error(at).of_predictions.median > 0.05
    said = re.findall(r"rerun error ([\d.]+)% with (\d+) networks", str(mixture.report_))
    counts = [int(count) for _, count in said]
    assert counts[0] == 2 and counts[-1] == reached.replicates and float(said[0][0]) > 5 >= float(said[-1][0])
    # Few replicates know their spread poorly: no round more than doubles them.
    assert all(before < after <= 2 * before for before, after in pairwise(counts))
    assert str(mixture.report_).split("\n")[-1] == reached.text
    assert reached.text.startswith("precision 0.05: reached; a rerun of training and chains would move the ends of 90%")


def test_the_draws_are_those_of_a_run_with_all_networks_from_the_beginning(mixture: pn.PatracRegressor) -> None:
    members, posts, seed = mixture.draws_.members, mixture.result_.posteriors, mixture.result_.settings.seed
    run = members[0].settings
    given = {"chains": 2, "draws": members[0].n_draws, "thin": run["thin"], "seed": seed, "progress": False}
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        whole = pn.sample_many(posts, warmup=pn.Warmup.from_dict(run["warmup"]), **given)
    for one, other in zip(whole, members, strict=True):
        np.testing.assert_array_equal(one.theta, other.theta)
    # And their networks are those of one training.
    data = mixture.result_.data.training
    nets = pn.train_many(
        posts[0].network.net.layer_sizes,
        data.X,
        data.y,
        networks=len(posts),
        likelihood=pn.Gaussian("sampled"),
        l2=0.1,
        seed=seed,
        validation_seed=CHOICE_SEED,
        max_epochs=60,
        patience=100,
        progress=False,
    )
    for net, post in zip(nets, posts, strict=True):
        np.testing.assert_array_equal(net.predict(data.X), post.network.net.predict(data.X))


def test_a_seed_gives_the_same_draws_on_any_number_of_threads(mixture: pn.PatracRegressor) -> None:
    again, other = fitted(**MIX | {"n_jobs": 2}, precision=0.05), fitted(**MIX | {"random_state": 2}, precision=0.05)
    assert again.report_.precision == mixture.report_.precision
    for one, two in zip(again.draws_.members, mixture.draws_.members, strict=True):
        np.testing.assert_array_equal(one.theta, two.theta)
    assert not np.array_equal(other.draws_.members[0].theta, mixture.draws_.members[0].theta)


def test_the_first_replicates_do_not_depend_on_the_precision(mixture: pn.PatracRegressor) -> None:
    """From 0.025 on the first replicates get a quarter of the budget, and none are added where they suffice."""
    loose = fitted(**MIX, precision=0.9)
    assert len(loose.draws_.members) == 2
    for one, two in zip(loose.draws_.members, mixture.draws_.members, strict=False):
        np.testing.assert_array_equal(one.theta, two.theta)


@pytest.mark.slow
def test_what_is_not_reached_is_said_with_what_would_reach_it() -> None:
    reg = fitted(**FULL | {"minutes": 0.01}, precision=0.0005)
    reached, draws = reg.result_.reached, reg.draws_
    assert reached is not None and not reached.is_reached and not reached.interrupted
    assert isinstance(draws, pn.Draws) and draws.n_chains == reached.replicates > 4
    assert reached.error is not None and reached.needed == math.ceil(draws.n_chains * (reached.error / 0.0005) ** 2)
    # Each chain started at a network of its own, and each round had a seed of its own.
    at = reg.preprocessor_.transform(rows()[0][::3])
    assert draws.rerun_error(at).unit == "starts" and draws.rerun_error(at).replicates == draws.n_chains
    assert len(set(draws.settings["seeds"])) > 1 and len(draws.settings["seeds"]) == draws.n_chains
    minutes = float(f"{0.01 * reached.needed / draws.n_chains:.2g}")
    for words in (
        "precision 0.0005: not reached within minutes=0.01; a rerun of training and chains would move",
        f"from {draws.n_chains} networks); about {reached.needed} chains in place of {draws.n_chains} would reach it",
        f"square root of their number: chains={reached.needed}, minutes={minutes:g}",
    ):
        assert words in reached.text


@pytest.mark.slow
@pytest.mark.parametrize("given", [MIX, FULL])
def test_chains_and_added_networks_stay_within_the_budget(given: dict[str, Any]) -> None:
    reg = fitted(**given | {"minutes": 0.01}, precision=0.0005)
    any_candidate = Candidate(pn.Gaussian("sampled"), pn.Full(), "gaussian", 1, 1, 1)  # each knows what steps cost
    settings = Settings.of(reg.get_params(), "PatracRegressor")
    budget, post = chain_minutes(0.01, 0.0), reg.posterior_
    taken = any_candidate.minutes_of(reg.draws_, post, settings)
    added = reg.result_.reached.replicates - (2 if given is MIX else 4)
    taken += nominal_seconds([post.network.net] * added, 60) / 60.0
    # The rest did not pay for one more, or for the validation of networks in each further round.
    assert not reg.result_.reached.is_reached and 0.5 * budget < taken <= budget


def test_probabilities_of_classes_to_a_precision() -> None:
    X, y = rows(90)
    labels = np.digitize(y, [-0.5, 0.5])
    made = pn.PatracClassifier(architecture="out", networks=2, minutes=0.02, precision=0.02, **FIT)
    clf = quietly(made, X, labels)
    reached, error = clf.result_.reached, clf.rerun_error(X)
    assert reached is not None and reached.error == error.of_predictions.median
    assert reached.is_reached == (reached.error <= 0.02) and "probabilities of classes" in reached.text


@pytest.mark.slow
def test_chains_are_added_to_those_of_one_network() -> None:
    reg = fitted(**FULL | {"architecture": "mix", "k": 2}, precision=0.001)
    assert reg.draws_.n_chains > 4 and reg.rerun_error(rows()[0]).unit == "dispersed"
    assert "a rerun of the chains around the same network would move" in reg.report_.precision["text"]


def test_one_chain_whose_error_is_not_known_gets_others() -> None:
    """Of a chain with few draws no parts are long enough, and the error is not known."""
    reg = fitted(**FULL | {"chains": 1, "draws": 25}, precision=0.5)
    assert reg.draws_.n_chains > 1 and reg.result_.reached.error is not None


@pytest.mark.parametrize("raised", [KeyboardInterrupt, RunInterrupted])
def test_an_interrupt_keeps_what_there_is(raised: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise raised

    if raised is KeyboardInterrupt:
        monkeypatch.setattr(under_test, "train_networks", interrupted)
    else:
        monkeypatch.setattr(Candidate, "sample_more", interrupted)
    reg = fitted(**MIX, precision=0.05)
    assert len(reg.draws_.members) == 2 and reg.result_.reached.interrupted
    assert reg.result_.interruption == "while replicates were added for precision=0.05"
    assert "precision 0.05: not reached, because the run was interrupted; " in str(reg.report_)
    assert reg.predict(rows()[0]).shape == (60,)


@pytest.mark.parametrize("value", [0, 0.0, -0.1, math.nan, math.inf, 1, 1.5, 5, "0.05"])
def test_other_precisions_are_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"The 'precision' parameter of PatracRegressor must be"):
        pn.PatracRegressor(**FULL, precision=value).fit(*rows())


def test_a_precision_needs_a_budget() -> None:
    with pytest.raises(ValueError, match=r"precision=0\.05 adds replicates within minutes, and thin=5 takes the place"):
        pn.PatracRegressor(**FULL, precision=0.05, thin=5).fit(*rows())


def test_files_and_pickles_keep_what_was_reached(mixture: pn.PatracRegressor, tmp_path: Path) -> None:
    mixture.save(tmp_path / "fit")
    for same in (pn.PatracRegressor.load(tmp_path / "fit"), pickle.loads(pickle.dumps(mixture))):
        assert same.precision == 0.05 and same.report_.precision == mixture.report_.precision
        assert str(same.report_) == str(mixture.report_)
        error = same.rerun_error(rows()[0][::3]).of_predictions.median
        assert error == pytest.approx(mixture.report_.precision["error"], rel=1e-9)
    assert fitted(**MIX).report_.precision is None


def test_the_command_says_in_its_last_line_what_was_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = rows(80)
    pd.DataFrame({"x": X[:, 0], "y": y}).to_csv(tmp_path / "table.csv", index=False)
    out = tmp_path / "out"
    options = "--architecture mix --k 2 --networks 2 --hidden-layer-sizes 6 --max-iter 60 --l2 0.1 --n-jobs 1"
    command = ["fit", str(tmp_path / "table.csv"), "--target", "y", "--out", str(out), *options.split()]
    assert main([*command, "--minutes", "0.02", "--precision", "0.04", "--random-state", "5"]) == 0
    last = capsys.readouterr().out.rstrip("\n").split("\n")[-1]
    summary = json.loads((out / "summary.json").read_text())["precision"]
    assert last == summary["text"] and last.startswith("precision 0.04: ")
    assert summary["is_reached"] == (summary["error"] <= 0.04)
    assert last[1:] in (out / "report.html").read_text()
    assert main([*command, "--overwrite", "--precision", "2"]) == 2
    assert "precision" in capsys.readouterr().err


def test_chains_of_two_runs_of_one_posterior_are_those_of_one(tmp_path: Path) -> None:
    X, y = rows()
    net = pn.Network([np.ones((3, 1)), np.ones((1, 3))], [np.zeros(3), np.zeros(1)])
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(0.1), X, y)

    def run(seed: int, **given: Any) -> pn.Draws:
        return pn.sample(post, seed=seed, **{"chains": 2, "draws": 10, "warmup": 50, "progress": False, **given})

    first, second = run(1), run(2, chains=3)
    both = first + second
    np.testing.assert_array_equal(both.theta, np.concatenate([first.theta, second.theta]))
    assert both.n_chains == 5 and both.settings["seeds"] == [1, 1, 2, 2, 2]
    np.testing.assert_array_equal(both[:2, :].theta, first.theta)
    assert both[1:3, :].settings["seeds"] == [1, 2]
    np.testing.assert_array_equal(both.predict(X)[2:], second.predict(X))
    both.save(tmp_path / "both")
    same = pn.Draws.load(tmp_path / "both")
    assert json.dumps(same.settings) == json.dumps(both.settings) and (same + run(3)).n_chains == 7
    # Of given starts, two of the first run are one, and those of another run are others.
    starts, others = np.zeros((2, post.dim)), np.arange(2.0 * post.dim).reshape(2, -1)
    shared = run(4, init=starts) + run(5, init=others)
    assert shared.settings["starts"] == [0, 0, 1, 2] and shared.rerun_error(X).replicates == 3
    for other, words in (
        (run(1), "the seed 1 in common"),
        (run(3, draws=5), "10 and 5 draws of each chain"),
        (run(3, thin=2), "thin 1 and 2"),
        (run(3, kernel=pn.PCN(0.1)), "kernel"),
        (run(3, init="map"), "init auto and map"),
        (
            pn.sample(pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(0.2), X, y), draws=10, seed=3),
            "different likelihoods",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            first + other
    with pytest.raises(TypeError):
        first + both.theta
