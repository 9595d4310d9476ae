"""Draws: predictions against the oracle at every kept state, blocks, noise, probabilities, thinning and the summary."""

from __future__ import annotations

import copy
import re
from typing import Any
from warnings import catch_warnings

import numpy as np
import pytest
from scipy import special

import patrac_native as pn
import problems
from patrac_native.sampling import sampler
from problems import ARCHITECTURES, Problem
from rounding import error_bounds


def sampled(
    architecture: str = "mix", likelihood: str = "gaussian", dtype: str = "float64", **arguments: Any
) -> tuple[pn.Draws, Problem]:
    """Run a few steps on a random problem; return draws, problem and oracle."""
    rng = problems.rng_of("draws", architecture, likelihood)
    problem = problems.problem(rng, (2, 6, 5, 3), 14, architecture, likelihood, dtype=dtype)
    settings: dict[str, Any] = {"chains": 2, "draws": 4, "thin": 5, "warmup": 400, "seed": 1} | arguments
    return pn.sample(problem.post, **settings), problem


@pytest.mark.parametrize("likelihood", [pn.Gaussian(1.0), pn.Gaussian("sampled")], ids=str)
def test_every_statistic_of_the_core_is_recorded(likelihood: pn.Likelihood, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statistic of the core that `PER_DRAW` lacks would be missing in the draws without an error."""
    returned: set[str] = set()

    def build_draws(run: Any, choice: Any, result: dict[str, Any], seconds: float) -> Any:
        returned.update(result)
        return original(run, choice, result, seconds)

    original = sampler.build_draws
    monkeypatch.setattr(sampler, "build_draws", build_draws)
    problem = problems.problem(problems.rng_of("statistics"), (2, 4, 1), 9)
    post = problem.post
    post = pn.Posterior(post.network.net, pn.Mix(2), problems.PRIOR, likelihood, post.data.X, post.data.y)
    draws = pn.sample(post, pn.PCNL(0.01), chains=2, draws=3, warmup=20, seed=1)
    # Facts of the run, which `draws.settings` records or which are used up.
    of_run = {"theta", "draws_done", "completed", "warmup_steps", "warmup_stable", "states"}
    # The number of gradients follows from the kernel and the number of steps.
    assert returned - of_run == set(draws.stats) - {"gradients"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_predict_is_the_reference_forward_pass_at_each_theta(architecture: str, dtype: str) -> None:
    draws, problem = sampled(architecture, dtype=dtype)
    problem.data.X = problems.rng_of("new rows").normal(size=(11, 2))  # new rows: the bounds are taken there
    problem.data.y = np.zeros((11, 3))
    f = draws.predict(problem.data.X)
    assert f.shape == (2, 4, 11, 3) and f.dtype == np.dtype(dtype)
    u = 0.5 * float(np.finfo(dtype).eps)
    for chain in range(2):
        for draw in range(4):
            problem.theta = draws.theta[chain, draw].astype(np.float64)
            expected = problem.partial.predict(problem.theta, problem.X)
            bound = forward_bounds(problem, u) + forward_bounds(problem, 2.0**-53)
            assert (np.abs(f[chain, draw] - expected) <= bound).all()
    assert np.ptp(f, axis=(0, 1)).min() > 0


def forward_bounds(problem: Problem, u: float) -> Any:
    """Bounds of f at problem.X, whose rows are not those of the posterior."""
    rows = len(problem.data.X)
    post = pn.Posterior(
        problem.post.network.net,
        problem.post.network.architecture,
        problems.PRIOR,
        pn.Gaussian(1.0),
        problem.data.X,
        np.zeros((rows, 3)),
        dtype=problem.post.network.dtype.name,
    )
    data = problems.Data(pn.Gaussian(1.0), problem.data.X, np.zeros((rows, 3)), None)
    return error_bounds(Problem(post, problem.partial, data, problem.theta), u).f


@pytest.mark.parametrize("n", [1, 7, 257, 9001])
def test_predict_of_any_number_of_rows_is_row_by_row_the_same(n: int) -> None:
    """Tiles, their last part and blocks of 8192 rows do not matter: lanes are rows, so the bits agree."""
    draws, _ = sampled(draws=2)
    X = problems.rng_of("rows", n).normal(size=(n, 2))
    f = draws.predict(X)
    assert f.shape == (2, 2, n, 3)
    chosen = np.unique(np.linspace(0, n - 1, 40).astype(int))
    np.testing.assert_array_equal(f[:, :, chosen], draws.predict(X[chosen]))
    np.testing.assert_array_equal(f[:, :, -1:], draws.predict(X[-1:]))


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli"])
def test_predictive_draws_labels_with_the_probabilities(likelihood: str) -> None:
    draws, _ = sampled(likelihood=likelihood, draws=2)
    X = np.repeat([[0.3, -0.5]], 4000, axis=0)
    labels, p = draws.predictive(X, seed=4), draws.predict_proba(X[:1])[:, :, 0]
    np.testing.assert_array_equal(draws.predictive(X), draws.predictive(X, seed=0))
    assert labels.dtype.kind == "i"
    is_one = labels[..., None] == np.arange(3) if likelihood == "categorical" else labels == 1
    assert is_one.shape == (2, 2, 4000, 3) and set(np.unique(labels)) <= {0, 1, 2}
    assert (np.abs(is_one.mean(axis=2) - p) <= 4.5 * np.sqrt(p * (1 - p) / 4000)).all()


def test_probabilities_are_softmax_and_sigmoid_of_the_function_draws() -> None:
    for likelihood, link in (
        ("categorical_scale", lambda f: special.softmax(f, axis=-1)),
        ("bernoulli", special.expit),
    ):
        draws, problem = sampled(likelihood=likelihood, dtype="float32")
        expected = link(draws.predict(problem.X).astype(np.float64))
        probability = draws.predict_proba(problem.X)
        assert probability.dtype == np.float64
        # exp, a sum of three and a quotient in float64.
        np.testing.assert_allclose(probability, expected, rtol=20 * 2.3e-16)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda draws: draws.predict(np.zeros((3, 5))), ValueError, "X must have 2 columns.*got 5"),
        (lambda draws: draws.predict(np.zeros(2)), ValueError, r"X must have shape \(n, 2\); got \(2,\)"),
        (lambda draws: draws.predict(np.zeros((0, 2))), ValueError, "X has no rows"),
        (lambda draws: draws.predict([[0.0, np.nan]]), ValueError, "X must be finite; column 1 has nan first at row 0"),
        (lambda draws: draws.predict([["a", "b"]]), TypeError, "X must hold real numbers"),
        (
            lambda draws: draws.predict_proba(np.zeros((3, 2))),
            TypeError,
            "gaussian .* has no class probabilities; use Cat",
        ),
        (lambda draws: draws[:3], TypeError, r"indexed by two slices, draws\[chains, draws\]; got slice"),
        (lambda draws: draws[0, :2], TypeError, "indexed by two slices"),
        (lambda draws: draws[::2, :], TypeError, "by a slice of consecutive chains"),
        (lambda draws: draws[:, ::-1], TypeError, "one of draws in order"),
        (lambda draws: draws[:, :0], ValueError, "must leave a chain and a draw; there are 2 x 4"),
        (lambda draws: draws.predictive(np.zeros((3, 2)), seed=-1), ValueError, "seed must be at least 0; got -1"),
        (lambda draws: draws.predict(np.zeros((3, 2)), threads=0), ValueError, "threads must be at least 1; got 0"),
        (lambda draws: draws.summary(np.zeros((3, 2)), coverage=1.5), ValueError, r"coverage.*1\.5"),
        (lambda draws: draws[:, 4::5], ValueError, "must leave a chain and a draw; there are 2 x 4"),
    ],
)
def test_bad_arguments_are_refused(call: Any, error: type[Exception], message: str) -> None:
    draws, _ = sampled()
    with pytest.raises(error, match=message):
        call(draws)


def test_thinned_drops_an_unfinished_stretch() -> None:
    draws, _ = sampled(draws=11)
    thinned = draws[:, 3::4]
    np.testing.assert_array_equal(thinned.theta, draws.theta[:, [3, 7]])
    np.testing.assert_array_equal(
        thinned.stats["acceptance_rate"], draws.stats["acceptance_rate"][:, :8].reshape(2, 2, 4).mean(axis=-1)
    )
    np.testing.assert_array_equal(thinned.stats["nonfinite"], draws.stats["nonfinite"])
    np.testing.assert_array_equal(thinned.stats["warmup_step_size"], draws.stats["warmup_step_size"])


def test_thinned_keeps_warmup_columns_where_there_are_as_many_phases_as_draws() -> None:
    """Two phases and two draws: only what has one value for each draw is thinned."""
    draws, _ = sampled(draws=2)
    assert draws.stats["warmup_step_size"].shape == (2, 2)
    assert draws[:, 1::2].stats["warmup_step_size"].shape == (2, 2)
    assert draws[:, 1::2].theta.shape[1] == 1


def test_a_summary_in_words() -> None:
    draws, _ = sampled(draws=100, chains=2)
    summary = draws.summary(problems.rng_of("grid").normal(size=(6, 2)), coverage=0.9)
    np.testing.assert_array_equal(summary.acceptance_rate, draws.stats["acceptance_rate"].mean(axis=1))
    text = str(summary)
    kernel = "MGrad(collapse=True, persistence=0.9)"
    assert f"{draws.network.architecture.label()} by {kernel}: 2 chains x 100 draws (thin 5)" in text
    assert "90% interval" in text and "max R-hat" in text and "steps/s" in text


def test_a_summary_of_superchains_takes_those_of_one_start_as_one_chain() -> None:
    """With one draw of each of 64 chains, R-hat and ESS are those of four chains of sixteen draws; files keep it."""
    problem = problems.problem(problems.rng_of("superchains"), (2, 4, 1), 20, "mix")
    warmup = pn.Warmup((pn.Warmup.Phase(64, target=0.6, average=True, first_look=8, superchains=4),))
    with catch_warnings(action="ignore"):
        draws = pn.sample(problem.post, pn.PCNL(), chains=64, draws=1, warmup=warmup, seed=2)
    X = problem.post.data.X[:5]
    found, f = draws.summary(X), draws.predict(X).reshape(4, 16, 5, 1)
    whole = pn.diagnostics.convergence(f)
    for name in ("rhat", "ess_bulk", "ess_tail", "mcse_mean", "mean", "sd"):
        np.testing.assert_array_equal(getattr(found.function, name), getattr(whole, name), err_msg=name)
    log_likelihood = pn.diagnostics.convergence(draws.stats["log_likelihood"].reshape(4, 16))
    assert found.log_likelihood.max_rhat == log_likelihood.max_rhat
    assert (found.n_chains, found.n_draws, found.superchains, found.evidence.n_chains) == (64, 1, 4, 4)
    assert found.steps_per_second == 64 * (draws.settings["warmup_steps"] + 1) / draws.settings["seconds"]
    assert found.rerun_error.unit == "starts"
    text = str(found)
    assert "64 chains x 1 draws (thin 1), 4 superchains" in text and "acceptance by superchain: " in text
    # Chains of which a superchain has lost some are judged one by one, which takes four draws of each.
    with pytest.raises(ValueError, match=r"4 superchains of 2 to 16 chains, and too few draws of each chain \(1\)"):
        draws[:50, :].summary(X)
    with pytest.raises(ValueError, match="1 superchains of 16 to 16 chains"):
        draws[:16, :].summary(X)
    assert draws[:32, :].summary(X).superchains == 2


def superchain_draws(rng: np.random.Generator, chains: int, draws: int) -> pn.Draws:
    """Draws of four superchains whose theta is independent noise."""
    problem = problems.problem(problems.rng_of("superchains"), (2, 4, 1), 20, "mix")
    warmup = pn.Warmup((pn.Warmup.Phase(64, target=0.6, average=True, first_look=8, superchains=4),))
    with catch_warnings(action="ignore"):
        found = pn.sample(problem.post, pn.PCNL(), chains=chains, draws=draws, thin=5, warmup=warmup, seed=2)
    found.theta[:] = rng.normal(scale=0.1, size=found.theta.shape)
    found.stats["log_likelihood"][:] = rng.normal(size=found.theta.shape[:2])
    return found


def test_a_drift_that_all_chains_share_is_seen_in_superchains() -> None:
    draws = superchain_draws(problems.rng_of("drift"), 64, 50)
    X = problems.rng_of("drift inputs").normal(size=(3, 2))
    assert draws.summary(X).function.max_rhat < 1.02
    draws.theta[:] += np.linspace(0, 0.3, 50)[:, None]
    assert draws.summary(X).function.max_rhat > 1.1


def test_a_stuck_chain_of_a_superchain_is_named() -> None:
    draws = superchain_draws(problems.rng_of("stuck"), 64, 50)
    draws.theta[6], draws.stats["acceptance_rate"][6] = draws.theta[6, :1], 0.0
    found = draws.summary(problems.rng_of("stuck inputs").normal(size=(3, 2))).verdict().findings
    assert any(one.kind == "stuck chains" and one.what.startswith("chain 7 of 64 is stuck") for one in found)


def test_few_steps_of_superchains_are_not_called_small_and_remedies_keep_them() -> None:
    """All of the last steps accepted tell nothing of a step size; advice is to take more chains or draws."""
    draws = superchain_draws(problems.rng_of("accepted"), 64, 1)
    draws.stats["acceptance_rate"][:] = 1.0
    draws.settings["warmup_stable"] = False
    verdict = draws.summary(problems.rng_of("accepted inputs").normal(size=(3, 2))).verdict()
    assert not [one for one in verdict.findings if one.kind == "small steps"]
    text = str(verdict)
    assert "warmup=Warmup.many_chains(kernel, 4, at_most=64000)" in text
    assert re.search(r"take \d+ times as many chains, or draws=\d+", text)


@pytest.mark.parametrize("init", ["auto", "prior"])
def test_the_replicates_of_superchains_are_their_starts(init: str) -> None:
    post = problems.problem(problems.rng_of("superchains"), (2, 4, 1), 20, "mix").post
    warmup = pn.Warmup((pn.Warmup.Phase(16, target=0.6, average=True, first_look=8, superchains=4),))
    with catch_warnings(action="ignore"):
        one, two = (
            pn.sample(post, pn.PCNL(), chains=16, draws=4, warmup=warmup, init=init, seed=seed) for seed in (1, 2)
        )
    X = post.data.X[:3]
    assert (one.rerun_error(X).unit, one.rerun_error(X).replicates) == ("starts", 4)
    both = pn.DrawsMixture([one, two]).rerun_error(X)
    assert (both.unit, both.replicates) == ("starts", 8)


def test_a_summary_of_many_chains_has_the_range_of_their_rates() -> None:
    draws, _ = sampled(draws=4, chains=20)
    text = str(draws.summary(np.zeros((1, 2))))
    assert re.search(r"acceptance by chain: \d\.\d\d to \d\.\d\d, median \d\.\d\d; ", text)


def test_steps_per_second_counts_all_chains_and_the_warmup() -> None:
    draws, _ = sampled()
    assert draws.summary(np.zeros((1, 2))).steps_per_second == 2 * (400 + 4 * 5) / draws.settings["seconds"]
    assert (draws.n_chains, draws.n_draws) == (2, 4)
    assert "chains=2, draws=4" in repr(draws) and "thin=5, seed=1" in repr(draws)


def test_draws_survive_a_copy_after_predicting() -> None:
    draws, _ = sampled(draws=4, chains=2)
    X = problems.rng_of("copy").normal(size=(3, 2))
    f = draws.predict(X)
    np.testing.assert_array_equal(copy.deepcopy(draws).predict(X), f)


def test_the_summary_ends_in_the_verdict() -> None:
    draws, _ = sampled(draws=400, chains=4)
    X = problems.rng_of("verdict").normal(size=(2, 2))
    rng = problems.rng_of("independent")
    draws.theta[:] = 0.01 * rng.normal(size=draws.theta.shape) + draws.theta[:1, :1]
    draws.stats["log_likelihood"][:] = rng.normal(size=(4, 400))
    draws.stats["acceptance_rate"][:] = 0.6
    del draws.settings["fit"]  # a random network fits random targets badly
    assert draws.summary(X).verdict().grade == "good"
    assert "\n  verdict: predictions of y: good. A rerun of the chains" in str(draws.summary(X))
    assert "\n    posterior of f: good. Largest R-hat 1.00" in str(draws.summary(X))
    draws.theta[0] += 0.02
    assert draws.summary(X).verdict().grade == "do not use"
    draws.stats["nonfinite"][1] = 1
    lines = str(draws.summary(X)).splitlines()
    assert lines[-3].startswith("    posterior of f: do not use. Largest R-hat 1.")
    assert lines[-2].startswith("    - do not use: the chains disagree: the largest R-hat of f is ")
    assert lines[-1].startswith("    - look: up to 0.05% of a chain's proposals")


@pytest.mark.parametrize("likelihood", ["gaussian", "categorical"])
def test_a_summary_by_blocks_of_rows_is_that_of_all_rows(likelihood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass over blocks of two rows: the diagnostics of the whole array, up to the rounding of sums over rows."""
    post = problems.problem(problems.rng_of("summary", likelihood), (2, 5, 4, 3), 20, "mix", likelihood).post
    draws = pn.sample(post, chains=3, draws=25, warmup=100, seed=0)
    X = post.data.X[:7]
    values = draws.predict_proba(X) if likelihood == "categorical" else draws.predict(X)
    m = values.shape[-1]
    monkeypatch.setattr("patrac_native.draws.distribution._BLOCK_BYTES", 2 * 3 * 25 * m * 8)
    assert len(list(draws.distribution(X).blocks())) == 4
    found, whole = draws.summary(X), pn.diagnostics.convergence(values)
    lower, upper = pn.diagnostics.credible_interval(values, 0.95)
    for name in ("rhat", "ess_bulk", "ess_tail", "mcse_mean", "mean", "sd"):
        np.testing.assert_allclose(getattr(found.function, name), getattr(whole, name), rtol=1e-10, err_msg=name)
    np.testing.assert_array_equal(found.lower, lower)
    np.testing.assert_array_equal(found.upper, upper)
    np.testing.assert_allclose(found.sd, values.reshape(-1, 7, m).std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.ess_geyer, pn.diagnostics.ess_geyer(values), rtol=1e-10)
    np.testing.assert_allclose(found.ess_paper, pn.diagnostics.ess_paper(values, max_lag=2), rtol=1e-10)
    spread = values.var(axis=1).mean(axis=(1, 2))
    np.testing.assert_allclose(found.evidence.spread, spread, rtol=1e-12)


def test_long_summaries_show_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Bars by request or in a terminal, once a second has passed; every point counts, of all members of a mixture."""
    post = problems.problem(problems.rng_of("bars"), (2, 5, 3), 20, likelihood="gaussian").post
    draws = pn.sample(post, chains=3, draws=25, warmup=100, seed=0, progress=False)
    target = pn.sample(problems.normal_target(4), draws=20, warmup=50, progress=False)
    X, mixture = post.data.X[:7], pn.DrawsMixture([draws, draws])
    summaries = (draws.summary, mixture.summary, lambda _, **more: target.summary(**more))
    errors = (draws.rerun_error, mixture.rerun_error)
    for call in (*summaries, *errors):
        call(X, progress=True)
        call(X)
        assert capsys.readouterr().err == ""  # no second has passed, and standard error is no terminal
    monkeypatch.setattr("patrac_native.plots.progress._SECONDS_BEFORE_BAR", 0.0)
    for call, count in zip(summaries, (7 * 3, 2 * 7 * 3, 4), strict=True):
        call(X, progress=True)
        assert f"/{count} [" in capsys.readouterr().err
    for call in errors:
        call(X, progress=True)
        assert "rerun error" in capsys.readouterr().err
    for call in (*summaries, *errors):
        call(X, progress=False)
        call(X)
        assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    draws.summary(X)
    written = capsys.readouterr().err
    assert "summary" in written and "rerun error" in written
