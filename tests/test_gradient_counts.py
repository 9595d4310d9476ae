"""Tests of `draws.stats["gradients"]`: the gradients behind kept draws, for every kernel, device and kind of draws."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems

RUN: dict[str, Any] = {"chains": 2, "draws": 12, "thin": 3, "warmup": 40, "seed": 2, "threads": 1}


def posterior(architecture: pn.Architecture, likelihood: pn.Likelihood | None = None) -> pn.Posterior:
    """Return a posterior of a 3-6-5-1 network with nine rows."""
    problem = problems.problem(problems.rng_of("gradients"), (3, 6, 5, 1), 9)
    return problem.again(architecture=architecture, likelihood=likelihood or pn.Gaussian(0.5), dtype="float32")


@pytest.mark.parametrize("kernel", [pn.PCNL(), pn.MGrad(), pn.MGrad(persistence=0.9)], ids=str)
def test_kernels_with_gradients_call_the_function_of_a_target_as_often_as_is_counted(kernel: pn.Kernel) -> None:
    calls = []

    def function(theta: np.ndarray) -> tuple[float, np.ndarray]:
        calls.append(1)
        return -0.5 * float(theta @ theta), -theta

    draws = pn.sample(pn.Target(function, np.ones(4)), kernel, **RUN)
    assert draws.stats["gradients"].tolist() == [36, 36] and draws.stats["gradients"].dtype == np.int64
    # Each chain evaluates its starting point, the steps of the warm-up and those of the draws.
    assert len(calls) == 2 * (1 + 40) + draws.stats["gradients"].sum()


@pytest.mark.parametrize("kernel", [pn.PCN(), pn.EllipticalSlice()], ids=str)
def test_kernels_without_gradients_count_none(kernel: pn.Kernel) -> None:
    target = problems.normal_target(4)
    for density in (target, posterior(pn.Full())):
        assert pn.sample(density, kernel, **RUN).stats["gradients"].tolist() == [0, 0]


@pytest.mark.filterwarnings("ignore:the prior of the noise variance rests on")
@pytest.mark.parametrize(
    ("architecture", "likelihood", "kernel", "each"),
    [
        (pn.Full(), pn.Gaussian(0.5), "auto", 36),
        (pn.Mix(2), pn.Gaussian("sampled"), "auto", 36),
        (pn.Sep(2), pn.StudentT(4.0, 0.5), "auto", 36),
        (pn.Out(3), pn.Gaussian(0.5), pn.PCNL(), 36),
        (pn.Out(3), pn.Gaussian(0.5), "auto", 0),
        (pn.Out(3), pn.Gaussian("sampled"), pn.Exact(), 0),
    ],
)
def test_posteriors(architecture: pn.Architecture, likelihood: pn.Likelihood, kernel: Any, each: int) -> None:
    draws = pn.sample(posterior(architecture, likelihood), kernel, **RUN)
    assert draws.stats["gradients"].tolist() == [each, each]


def test_devices_count_as_the_cpu(device: str) -> None:
    for kernel, each in (pn.PCN(), 0), (pn.MGrad(collapse=True), 36):
        draws = pn.sample(posterior(pn.Mix(2)), kernel, device=device, **RUN)
        assert draws.stats["gradients"].tolist() == [each, each]


def test_parts_of_a_run_have_their_share() -> None:
    """Eleven draws of three steps: of every fourth, two remain, which cost 24 steps; the first five cost 15."""
    draws = pn.sample(posterior(pn.Mix(2)), pn.MGrad(), **(RUN | {"draws": 11}))
    assert draws.stats["gradients"].tolist() == [33, 33]
    assert draws[:, 3::4].stats["gradients"].tolist() == [24, 24]
    assert draws[:, :5].stats["gradients"].tolist() == [15, 15]


def test_an_interrupted_run_counts_the_draws_that_it_returns(interrupt: Any) -> None:
    interrupt(3)
    long = RUN | {"draws": 100_000, "thin": 7, "warmup": None, "progress": True}
    with pytest.warns(UserWarning, match="interrupted"):
        draws = pn.sample(posterior(pn.Mix(2)), pn.MGrad(0.1), **long)
    assert 0 < draws.n_draws < 100_000
    assert draws.stats["gradients"].tolist() == [7 * draws.n_draws] * 2


def test_files_keep_the_number(tmp_path: Path) -> None:
    draws = pn.sample(posterior(pn.Mix(2)), pn.MGrad(), **RUN)
    draws.save(tmp_path / "draws.npz")
    np.testing.assert_array_equal(pn.Draws.load(tmp_path / "draws.npz").stats["gradients"], draws.stats["gradients"])


def test_the_summary_states_effective_draws_per_gradient_and_per_second() -> None:
    draws = pn.sample(posterior(pn.Mix(2)), pn.MGrad(), **(RUN | {"draws": 200}))
    summary = draws.summary(np.random.default_rng(0).normal(size=(4, 3)))
    assert summary.gradients == 2 * 200 * 3
    per_gradient, per_second = summary.ess_geyer / 1200 * 1000, summary.ess_geyer / draws.settings["seconds"]
    assert f"{per_gradient:.3g} per 1,000 gradients after the warm-up, {per_second:.3g} per second" in str(summary)
