"""Chains on a device equal the CPU's state by state, in warm-up and sampling; how runs end; what they keep."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from conftest import Interrupt, one_thread_and_cuda
from patrac_native.sampling import progress as bars
from patrac_native.sampling.warmup import Phase

# Step sizes at which about half of the moves are accepted on `posterior`.
KERNELS: dict[str, pn.Kernel] = {
    "pcn": pn.PCN(0.2),
    "pcnl": pn.PCNL(0.02),
    "mgrad": pn.MGrad(0.02),
    "persistent": pn.MGrad(0.02, persistence=0.9),
}
WARMUPS: dict[str, pn.Warmup | None] = {
    "none": None,
    "fixed": pn.Warmup((Phase(40),)),
    "accept all": pn.Warmup((Phase(25, accept_all=True), Phase(15))),
    # Two windows of 200 steps, so two looks at the acceptance rate, and a rest.
    "band": pn.Warmup((Phase(430, accept=(0.2, 0.4)),)),
    "average": pn.Warmup((Phase(410, accept=(0.85, 0.95), average=True), Phase(10))),
    # Looks after 80, 160 and 320 steps; ends at one of them or at its longest.
    "ends by itself": pn.Warmup((Phase(400, target=0.6, first_look=80, average=True), Phase(10))),
    # Looks after 40, 80 and 160 steps; ends by travel, or at its longest, and hands what is left to the next phase.
    "transient": pn.Warmup(
        (
            Phase(20, target=0.6),
            Phase(200, accept_all=True, energy_error=0.01, persistence=0.98, travel=0.5, first_look=40),
            Phase(40, target=0.6, average=True),
            Phase(10),
        )
    ),
}
# A step adds a few roundings of 2^-53; where directions of the state are stretched from step to step, as with noise
# that persists, they grow by some powers of ten over the longest run here. A wrong formula is seen in the first step.
ERROR_64 = 1e-7
# Few steps, each with roundings of 2^-24 in sums of up to a hundred terms.
ERROR_32 = 1e-4


@cache
def posterior(likelihood: str = "gaussian", dtype: str = "float64", architecture: str = "mix") -> pn.Posterior:
    """30 rows, 3-9-6-3; a start and a scale at which rejections and moves both happen."""
    rng = problems.rng_of("device chains", likelihood, architecture)
    return problems.problem(rng, (3, 9, 6, 3), 30, architecture, likelihood, dtype=dtype).post


def run(post: pn.Posterior, kernel: pn.Kernel, device: str, **more: Any) -> pn.Draws:
    """Three chains, states kept with the warnings about how a warm-up ended left out."""
    arguments: dict[str, Any] = {"chains": 3, "draws": 12, "thin": 2, "warmup": None, "seed": 4} | more
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return pn.sample(post, kernel, device=device, threads=1, **{"progress": False} | arguments)


def assert_same_chains(found: pn.Draws, expected: pn.Draws, error: float) -> None:
    """Same moves and counts exactly, same numbers within `error` of their size."""
    for name in ("acceptance_rate", "warmup_acceptance_rate", "nonfinite", "warmup_nonfinite"):
        np.testing.assert_array_equal(found.stats[name], expected.stats[name], err_msg=name)
    for name in ("warmup_steps", "warmup_stable", "completed"):
        assert found.settings[name] == expected.settings[name], name
    assert found.theta.shape == expected.theta.shape and found.theta.dtype == expected.theta.dtype
    np.testing.assert_allclose(found.theta, expected.theta, rtol=0, atol=error * np.abs(expected.theta).max())
    assert set(found.stats) == set(expected.stats)
    for name, values in expected.stats.items():
        np.testing.assert_allclose(found.stats[name], values, rtol=error, atol=error, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("warmup", WARMUPS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_chains_are_the_cpus_step_by_step(kernel: str, warmup: str, device: str) -> None:
    post = posterior("gaussian" if warmup == "band" else "categorical")
    expected = run(post, KERNELS[kernel], "cpu", warmup=WARMUPS[warmup])
    moves = expected.stats["acceptance_rate"]
    assert 0.1 < moves.mean() < 0.999, "the comparison needs rejections and moves"
    found = run(post, KERNELS[kernel], device, warmup=WARMUPS[warmup])
    assert found.settings["device"] == device and expected.settings["device"] == "cpu"
    assert_same_chains(found, expected, ERROR_64)


@pytest.mark.parametrize("architecture", ["full", "out", "sep", "custom"])
@pytest.mark.parametrize("likelihood", ["gaussian_by_output", "categorical_scale", "bernoulli"])
def test_float32_chains_follow_the_cpus(likelihood: str, architecture: str, device: str) -> None:
    """In four steps all decisions are equal, unless one depends on the last bits."""
    post = posterior(likelihood, "float32", architecture)
    kernel = pn.MGrad(0.01, persistence=0.9)
    if architecture == "out" and likelihood.startswith("gaussian"):
        pytest.skip("the CPU runs last-layer Gaussian models on sufficient statistics, other sums altogether")
    few: dict[str, Any] = {"draws": 4, "thin": 1}
    assert_same_chains(run(post, kernel, device, **few), run(post, kernel, "cpu", **few), ERROR_32)


@pytest.mark.parametrize("thin", [70, 100])
def test_adapting_while_sampling_is_the_cpus(thin: int, device: str) -> None:
    """Each draw with the step size that led to it: of 200 steps, the last is made before the step size changes."""
    post, kernel, few = posterior(), pn.PCNL(1e-4, adapt="always"), {"chains": 1, "draws": 4, "thin": thin}
    expected = run(post, kernel, "cpu", **few)
    assert len(np.unique(expected.stats["step_size"])) > 1
    assert_same_chains(run(post, kernel, device, **few), expected, ERROR_64)


def test_a_workspace_outside_shared_memory_gives_the_cpus_chains(device: str) -> None:
    post = problems.problem(problems.rng_of("large chains"), (80, 80, 40, 1), 12).post
    assert not post.sampled.compiled.on_device(device).layout(True, 1)["in_shared_memory"]
    kernel, few = pn.MGrad(1e-3, persistence=0.9), {"chains": 2, "draws": 3}
    assert_same_chains(run(post, kernel, device, **few), run(post, kernel, "cpu", **few), ERROR_64)


# Settings that must not change the draws


@pytest.mark.parametrize("kernel", KERNELS)
def test_thinned_draws_are_every_so_manieth_state(kernel: str, device: str) -> None:
    whole = run(posterior(), KERNELS[kernel], device, draws=30, thin=1)
    thinned = run(posterior(), KERNELS[kernel], device, draws=10, thin=3)
    np.testing.assert_array_equal(thinned.theta, whole.theta[:, 2::3])
    for name in ("log_likelihood", "log_prior", "step_size"):
        np.testing.assert_array_equal(thinned.stats[name], whole.stats[name][:, 2::3])
    moves = whole.stats["acceptance_rate"].reshape(3, 10, 3).mean(axis=2)
    np.testing.assert_allclose(thinned.stats["acceptance_rate"], moves, rtol=1e-15)


def test_a_longer_run_begins_as_the_shorter_one(device: str) -> None:
    """1,000 steps are more than one launch runs at first."""
    short, long = (run(posterior(), KERNELS["persistent"], device, draws=draws, thin=1) for draws in (20, 1000))
    np.testing.assert_array_equal(long.theta[:, :20], short.theta)


def test_chains_do_not_know_of_each_other(device: str) -> None:
    post = posterior()
    start = np.tile(post.theta_map, (5, 1))
    alone = run(post, KERNELS["persistent"], device, init=start[:1], chains=1)
    together = run(post, KERNELS["persistent"], device, init=start, chains=5)
    np.testing.assert_array_equal(together.theta[:1], alone.theta)
    assert len(np.unique(together.theta[:, -1, 0])) == 5


def test_a_run_is_repeated_bit_by_bit(device: str) -> None:
    first, second = (run(posterior(dtype="float32"), KERNELS["persistent"], device) for _ in range(2))
    np.testing.assert_array_equal(first.theta, second.theta)


# How runs end


@pytest.mark.parametrize("calls", [1, 3])
def test_ctrl_c_returns_what_there_is(calls: int, device: str, interrupt: Interrupt) -> None:
    """The interrupt is handled between two launches; the draws kept are the first draws of a complete run."""
    seen = interrupt(calls)
    post, kernel, asked = posterior(dtype="float32"), KERNELS["pcnl"], 100_000
    with pytest.warns(UserWarning, match=rf"interrupted: \d+ of {asked} draws of each chain are returned\."):
        draws = pn.sample(post, kernel, chains=2, draws=asked, warmup=None, seed=4, device=device, progress=True)
    assert len(seen) == calls and not draws.settings["completed"]
    kept = draws.n_draws
    assert 0 < kept < asked and seen[-1][0] == 2 * kept
    assert draws.stats["log_likelihood"].shape == (2, kept)
    first = run(post, kernel, device, chains=2, draws=min(kept, 100), thin=1)
    np.testing.assert_array_equal(draws.theta[:, :100], first.theta)


def test_ctrl_c_in_warmup_returns_no_draws(device: str, interrupt: Interrupt) -> None:
    interrupt(1)
    with pytest.warns(UserWarning, match=r"interrupted: 0 of 5 draws .*the warm-up was not over"):
        draws = pn.sample(
            posterior(),
            KERNELS["pcnl"],
            draws=5,
            warmup=pn.Warmup((Phase(10**6),)),
            device=device,
            progress=True,
        )
    assert draws.theta.shape == (4, 0, posterior().dim)


def test_progress_counts_the_steps_of_all_chains(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, float]] = []
    for shown in (bars._ProgressBar, bars._ProgressLines):
        monkeypatch.setattr(shown, "_report", lambda _, *progress: seen.append(progress))
    run(posterior(), KERNELS["pcnl"], device, draws=100, thin=3, warmup=WARMUPS["ends by itself"], progress=True)
    done = [steps for steps, _, _ in seen]
    assert done == sorted(done) and done[0] > 0
    assert seen[0][1] == 3 * (410 + 300) and seen[-1][0] == seen[-1][1] and 0 < seen[-1][2] < 1


def test_kernel_auto_takes_one_that_the_device_runs(device: str) -> None:
    """The device's kernel is chosen even if the CPU would make independent draws."""
    post = posterior(architecture="out")
    assert pn.sample(post, draws=1, progress=False).settings["kernel"]["name"] == "exact"
    draws = pn.sample(post, chains=2, draws=3, warmup=200, seed=1, device=device, progress=False)
    assert draws.settings["kernel"]["name"] == "mgrad" and np.isfinite(draws.theta).all()


def test_draws_of_a_device_are_saved_and_predict_as_any_other(device: str, tmp_path: Any) -> None:
    draws = run(posterior(), KERNELS["pcnl"], device)
    draws.save(tmp_path / "run.npz")
    again = pn.Draws.load(tmp_path / "run.npz")
    assert again.settings["device"] == device and again.settings["device_reason"] == "given"
    X, theta = posterior().data.X[:4], draws.theta.reshape(-1, posterior().dim)
    np.testing.assert_array_equal(again.predict(X), draws.predict(X))
    kept = draws.stats["log_likelihood"].ravel()
    np.testing.assert_allclose(kept, posterior().log_likelihood(theta), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n", [9, 300])
@pytest.mark.parametrize("likelihood", ["gaussian", "gaussian_by_output"])
@pytest.mark.parametrize("architecture", ["full", "mix", "sep", "custom"])
def test_collapsed_chains_are_the_cpus(architecture: str, likelihood: str, n: int, device: str) -> None:
    """One group of outputs or several, in one tile or several; the output weights of kept draws included."""
    rng = problems.rng_of("collapsed", architecture, likelihood)
    post = problems.problem(rng, (3, 9, 6, 3), n, architecture, likelihood).post
    init = rng.normal(size=(2, post.dim)) * np.sqrt(post.prior_variance)
    warmup = pn.Warmup((Phase(20, target=0.6),))
    for kernel in (pn.PCNL(1e-3, collapse=True), pn.MGrad(1e-2, collapse=True, persistence=0.9)):
        found, expected = (
            run(post, kernel, where, chains=2, draws=8, warmup=warmup, init=init) for where in (device, "cpu")
        )
        assert_same_chains(found, expected, ERROR_64)
        assert 0 < expected.stats["acceptance_rate"].mean()


def replicates(n: tuple[int, ...] = (30, 30, 30)) -> list[pn.Posterior]:
    """Data sets of one shape, each with its own trained network, data and prior."""
    posts = []
    for index, rows in enumerate(n):
        rng = problems.rng_of("replicates", index)
        net = problems.random_network(rng, (3, 9, 6, 2))
        data = problems.random_data("gaussian", rng, rows, 3, 2)
        prior = pn.TraceClassPrior(1.5, 1.0 + index, 0.5)
        variance = 0.5 + 0.1 * index
        posts.append(pn.Posterior(net, pn.Mix(3), prior, pn.Gaussian(variance), data.X, data.y, dtype="float64"))
    return posts


@pytest.mark.parametrize("kernel", [pn.PCNL(0.02), pn.MGrad(0.02, collapse=True, persistence=0.9)], ids=str)
@pytest.mark.parametrize("where", ["cpu", "device"])
def test_posteriors_run_together_as_alone(kernel: pn.Kernel, where: str, device: str) -> None:
    posts = replicates()
    device = "cpu" if where == "cpu" else device
    arguments: dict[str, Any] = {"chains": 2, "draws": 6, "thin": 2, "warmup": WARMUPS["fixed"]}
    together = pn.sample_many(posts, kernel, seed=2**64 - 2, device=device, progress=False, **arguments)
    assert [draws.settings["seed"] for draws in together] == [2**64 - 2, 2**64 - 1, 0]
    for draws, post in zip(together, posts, strict=True):
        alone = run(post, kernel, "cpu", seed=draws.settings["seed"], **arguments)
        assert_same_chains(draws, alone, ERROR_64)


def test_posteriors_of_one_run_on_a_device_must_be_alike(device: str) -> None:
    arguments: dict[str, Any] = {"draws": 2, "warmup": None, "device": device, "progress": False}
    with pytest.raises(ValueError, match="posts: data set 2 differs from the first in its number of rows"):
        pn.sample_many(replicates((30, 30, 29)), pn.PCNL(0.02), **arguments)
    with pytest.raises(ValueError, match="posts must hold at least one Posterior"):
        pn.sample_many([], pn.PCNL(0.02), **arguments)


@one_thread_and_cuda
def test_superchains_end_the_warmup_of_a_device_as_that_of_the_cpu(device: str) -> None:
    """The same step, and one step size for the chains of each posterior; those of two posteriors differ."""
    warmup = pn.Warmup((Phase(5120, target=0.6, first_look=160, average=True, superchains=4),))
    posts = replicates()[:2]
    arguments: dict[str, Any] = {"chains": 32, "draws": 2, "warmup": warmup}
    own, cpu = (run(posts[0], pn.MGrad(), where, **arguments) for where in (device, "cpu"))
    assert own.settings["warmup_stable"] and own.settings["warmup_steps"] == cpu.settings["warmup_steps"]
    np.testing.assert_allclose(own.stats["step_size"], cpu.stats["step_size"], rtol=ERROR_64)
    together = pn.sample_many(posts, pn.MGrad(), seed=9, progress=False, device=device, **arguments)
    sizes = [np.unique(draws.stats["step_size"]) for draws in together]
    assert [len(one) for one in sizes] == [1, 1] and sizes[0] != sizes[1]


@one_thread_and_cuda
def test_each_posterior_of_a_run_ends_its_warmup_by_its_own_chains(device: str) -> None:
    """All end at the same step: where the last of them is stable, or at the longest."""
    warmup = pn.Warmup((Phase(640, target=0.6, first_look=80, average=True),))
    posts = replicates()
    arguments: dict[str, Any] = {"chains": 2, "draws": 2, "warmup": warmup, "device": device}
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        alone = [run(post, pn.MGrad(), seed=9 + i, **arguments) for i, post in enumerate(posts)]
        together = pn.sample_many(posts, pn.MGrad(), seed=9, progress=False, **arguments)
    steps = max(draws.settings["warmup_steps"] for draws in alone)
    assert {draws.settings["warmup_steps"] for draws in together} == {steps}
