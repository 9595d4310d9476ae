"""Runs that end early: `until` of `sample` and `sample_many`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from chains import assert_same_draws
from patrac_native.sampling import progress as bars
from patrac_native.sampling import stretches

DRAWS = 60  # so `until` is called after 6 draws, 12 and so on


def network_posterior(architecture: Any, likelihood: pn.Likelihood, prior: Any = None, seed: int = 0) -> pn.Posterior:
    rng = problems.rng_of("until", seed)
    net = problems.random_network(rng, (2, 6, 5, 1))
    X = rng.normal(size=(23, 2))
    y = net.predict(X) + 0.3 * rng.normal(size=(23, 1))
    return pn.Posterior(net, architecture, prior or pn.TraceClassPrior(1.5, 2.0, 1.0), likelihood, X, y)


# Every way in which the CPU runs chains: tiles, narrow loops, rotated coordinates, sums in place of data (whitened or
# not), independent draws, sampled variances and scales, a function.
RUNS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "tiles": (lambda: network_posterior(pn.Full(), pn.Gaussian(0.1)), {"kernel": pn.PCNL()}),
    "collapsed": (lambda: network_posterior(pn.Mix(2), pn.Gaussian(0.1)), {}),
    "rotated": (
        lambda: network_posterior(pn.Full(), pn.Gaussian(0.1)),
        {"kernel": pn.MGrad(collapse=True, metric="curvature")},
    ),
    "inputs rotated": (  # theta is rotated back in place when the run ends, and must not be before
        lambda: network_posterior(pn.Full(), pn.Gaussian(0.1)),
        {"kernel": pn.MGrad(collapse=True, metric="inputs")},
    ),
    "quadratic": (lambda: network_posterior(pn.Out(3), pn.Gaussian(0.1)), {"kernel": pn.PCNL()}),
    "independent": (lambda: network_posterior(pn.Out(3), pn.Gaussian(0.1)), {}),
    "sampled": (
        lambda: network_posterior(
            pn.Full(), pn.Gaussian("sampled", a=3, b=0.2), pn.GaussianPrior(scales=pn.SampledScales())
        ),
        {},
    ),
    "function": (lambda: problems.normal_target(3), {}),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("threads", [1, 3])
def test_an_ended_run_has_the_first_draws_of_the_whole_run(name: str, threads: int) -> None:
    make, settings = RUNS[name]
    settings = {"chains": 3, "draws": DRAWS, "thin": 3, "warmup": 200, "seed": 5, "threads": threads, **settings}
    seen = []

    def is_enough(draws: Any) -> bool:
        seen.append(draws)
        return bool(draws.n_draws >= 17)

    post = make()
    whole, ended = pn.sample(post, **settings), pn.sample(post, **settings, until=is_enough)
    assert [draws.n_draws for draws in seen] == [6, 12, 18]
    for draws in (*seen, ended):
        first = whole[:, : draws.n_draws]
        assert_same_draws(draws, first)
    assert ended.n_draws == 18 and ended.settings["completed"] and ended.settings["draws_asked"] == DRAWS


def test_a_run_that_is_never_enough_has_all_draws() -> None:
    post, seen = network_posterior(pn.Mix(2), pn.Gaussian(0.1)), []

    def is_enough(draws: pn.Draws) -> bool:
        seen.append(draws.n_draws)
        return False

    whole = pn.sample(post, draws=35, warmup=200, seed=5)
    np.testing.assert_array_equal(pn.sample(post, draws=35, warmup=200, seed=5, until=is_enough).theta, whole.theta)
    assert seen == [4, 8, 12, 16, 20, 24, 28, 32]  # four draws are the fewest that a summary accepts


def test_each_part_of_a_run_counts_all_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains stop at each look and go on: the total of the bar stays that of the whole run."""
    said = set()
    monkeypatch.setattr(bars._ProgressLines, "_report", lambda _, done, total, rate: said.add(total))
    settings: dict[str, Any] = {"chains": 2, "draws": 8, "thin": 5, "warmup": None, "until": lambda _: False}
    pn.sample(network_posterior(pn.Mix(2), pn.Gaussian(0.1)), pn.PCNL(0.1), progress=True, **settings)
    assert said == {2 * 8 * 5}


def test_each_of_several_posteriors_ends_by_its_own_draws() -> None:
    posts = [network_posterior(pn.Mix(2), pn.Gaussian(0.1), seed=seed) for seed in range(3)]

    def is_enough(draws: pn.Draws) -> bool:
        return draws.n_draws >= 20 and draws.settings["seed"] == 8

    ended = pn.sample_many(posts, draws=DRAWS, warmup=200, seed=7, threads=2, until=is_enough)
    whole = pn.sample_many(posts, draws=DRAWS, warmup=200, seed=7)
    assert [draws.n_draws for draws in ended] == [DRAWS, 24, DRAWS]
    for part, draws in zip(ended, whole, strict=True):
        np.testing.assert_array_equal(part.theta, draws.theta[:, : part.n_draws])


def test_what_until_raises_ends_the_run() -> None:
    def fails(draws: pn.Draws) -> bool:
        raise LookupError(f"no summary of {draws.n_draws} draws")

    with pytest.raises(LookupError, match="no summary of 6 draws"):
        pn.sample(network_posterior(pn.Mix(2), pn.Gaussian(0.1)), draws=DRAWS, warmup=200, until=fails)


def test_ctrl_c_in_until_keeps_the_draws() -> None:
    def interrupted(draws: pn.Draws) -> bool:
        if draws.n_draws >= 12:
            raise KeyboardInterrupt
        return False

    with pytest.warns(UserWarning, match=r"interrupted: 12 of 60 draws"):
        draws = pn.sample(network_posterior(pn.Mix(2), pn.Gaussian(0.1)), draws=DRAWS, warmup=200, until=interrupted)
    assert draws.n_draws == 12 and not draws.settings["completed"]


def test_until_is_a_function_of_draws() -> None:
    with pytest.raises(TypeError, match="until must be None or a function of the draws so far; got int"):
        pn.sample(network_posterior(pn.Mix(2), pn.Gaussian(0.1)), until=400)  # type: ignore[arg-type]


def test_enough_draws_are_enough_by_the_same_numbers() -> None:
    X = np.random.default_rng(3).normal(size=(5, 2))
    post, enough = network_posterior(pn.Out(3), pn.Gaussian(0.1)), pn.EnoughDraws(ess=700, rhat=1.02, at=X)
    assert enough.state == "700 effective draws and an R-hat of 1.02 are asked for" and not enough.found
    settings: dict[str, Any] = {"chains": 2, "draws": 1500, "warmup": 300, "seed": 5, "progress": False}
    draws = pn.sample(post, until=enough, **settings)
    assert draws.n_draws < 1500 and draws.settings["completed"]
    function = draws.summary(X).function
    assert function.min_ess_bulk >= 700 and function.max_rhat <= 1.02
    assert enough.found == {"ess": function.min_ess_bulk, "rhat": function.max_rhat, "draws": draws.n_draws}
    assert f"R-hat {function.max_rhat:.3f} after {draws.n_draws} draws" in repr(enough)
    before = draws[:, : draws.n_draws - 150].summary(X).function
    assert before.min_ess_bulk < 700 or before.max_rhat > 1.02
    run = pn.start(post, until=enough, **settings)
    np.testing.assert_array_equal(run.wait().theta, draws.theta)
    assert run.progress.until == enough.state
    never = pn.EnoughDraws(ess=1e9, at=None)
    assert pn.sample(problems.normal_target(3), draws=40, warmup=200, seed=5, until=never).n_draws == 40
    assert never.found["draws"] == 36


def test_what_enough_draws_refuses() -> None:
    post = network_posterior(pn.Mix(2), pn.Gaussian(0.1))
    for error, message, make in (
        (ValueError, "rhat must be above 1, which it approaches as chains agree; got 1", {"rhat": 1.0, "at": None}),
        (ValueError, "ess must be positive", {"ess": 0, "at": None}),
        (TypeError, "EnoughDraws needs inputs at which f is judged, such as at=X", {"at": None}),
        (ValueError, "at must have 2 columns, one for each input of the network; got 5", {"at": np.zeros((3, 5))}),
    ):
        with pytest.raises(error, match=message):
            pn.sample(post, until=pn.EnoughDraws(**make))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiles", "sampled"])
def test_a_stored_run_ends_where_one_without_a_store_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unbroken, broken between two questions, and broken after the draws of the last question, before its answer."""
    pytest.importorskip("zarr")
    monkeypatch.setattr(stretches, "_next_steps", lambda *_: 29)
    make, own = RUNS[name]
    settings: dict[str, Any] = {"chains": 3, "thin": 3, "warmup": 200, "seed": 5, "progress": False, **own}
    seen: list[int] = []

    def is_enough(draws: pn.Draws) -> bool:
        assert draws.theta.shape[1] == draws.n_draws
        seen.append(draws.n_draws)
        return draws.n_draws >= 17

    whole = pn.sample(make(), draws=DRAWS, until=is_enough, **settings)
    for number, broken in enumerate((None, 9, 12, 18)):
        store = tmp_path / f"{number}.zarr"
        seen.clear()
        if broken is None:
            found = pn.sample(make(), draws=DRAWS, until=is_enough, store=store, **settings)
            assert seen == [6, 12, 18]
        else:
            pn.sample(make(), draws=broken, store=store, **settings)
            found = pn.resume(store, DRAWS, until=is_enough, progress=False)
            assert seen == [n for n in (6, 12, 18) if n >= broken]
        for draws in (found, pn.Draws.load(store)):
            assert draws.n_draws == 18 and draws.settings["completed"]
            assert_same_draws(draws, whole)
    np.testing.assert_array_equal(
        pn.resume(store, DRAWS, progress=False).theta, pn.sample(make(), draws=DRAWS, **settings).theta
    )


def test_a_device_makes_all_draws() -> None:
    post, settings = network_posterior(pn.Mix(2), pn.Gaussian(0.1)), {"kernel": pn.PCNL(0.1), "warmup": None}
    try:
        pn.sample(post, draws=4, device="emulated:4", **settings)
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"no emulated device: {error}")
    with pytest.raises(ValueError, match='until needs device="cpu": emulated:4 makes all draws in one launch'):
        pn.sample(post, device="emulated:4", until=bool, **settings)
