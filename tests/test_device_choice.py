"""What device="auto" means: a rule that reads no clock, and its reason in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from patrac_native.engine import _core
from patrac_native.kernels import device_choice
from test_device_inputs import ByPointer

KERNEL = pn.PCNL(0.02)
DEVICE = ByPointer.emulated_device


@pytest.fixture
def a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the GPU by an emulated device."""
    monkeypatch.setattr(device_choice, "AUTO_DEVICE", DEVICE)


def posterior(*, there: bool, dtype: str = "float64", **more: Any) -> pn.Posterior:
    problem = problems.problem(problems.rng_of("device choice"), (2, 6, 5, 2), 23, "mix", dtype=dtype)
    X = ByPointer(np.asarray(problem.post.data.X))
    return problem.again(X=X, dtype=dtype, **more) if there else problem.post


def sampled(post: pn.Posterior, kernel: Any = KERNEL, **more: Any) -> pn.Draws:
    arguments: dict[str, Any] = {"chains": 2, "draws": 20, "warmup": None, "seed": 5, "progress": False, "threads": 1}
    return pn.sample(post, kernel, **(arguments | more))


def where(draws: pn.Draws) -> tuple[str, str]:
    return draws.settings["device"], draws.settings["device_reason"]


@pytest.mark.usefixtures("a_device")
def test_inputs_on_the_host_are_sampled_on_the_cpu_however_long_the_run() -> None:
    post = posterior(there=False)
    for draws in (1, 20_000):
        assert where(sampled(post, draws=draws)) == ("cpu", "the inputs are on the host")
    assert 'device="auto" means cpu: the inputs are on the host' in post.describe()


@pytest.mark.usefixtures("a_device")
def test_inputs_on_a_device_are_sampled_there_as_where_it_is_named() -> None:
    post = posterior(there=True)
    draws = sampled(post)
    assert where(draws) == (DEVICE, "the inputs are there")
    assert f'device="auto" means {DEVICE}: the inputs are there' in post.describe()
    named = sampled(post, device=DEVICE)
    assert where(named) == (DEVICE, "given")
    np.testing.assert_array_equal(draws.theta, named.theta)


@pytest.mark.usefixtures("a_device")
def test_draws_that_are_to_stay_go_to_the_device() -> None:
    draws = sampled(posterior(there=False), keep_on_device=True)
    assert where(draws) == (DEVICE, "the draws are to stay there")
    assert draws._elsewhere.shape == (2, 20, posterior(there=False).dim)
    with pytest.raises(ValueError, match=r"keep_on_device=True needs device=.*EllipticalSlice"):
        sampled(posterior(there=False), pn.EllipticalSlice(), keep_on_device=True)


@pytest.mark.usefixtures("a_device")
def test_what_only_the_cpu_runs_says_so() -> None:
    net = problems.random_network(problems.rng_of("auto"), (2, 5, 1))
    X = ByPointer(np.linspace(-1, 1, 8).reshape(4, 2))
    y = X.array[:, 0]
    last = pn.Posterior(net, pn.Out(3), problems.PRIOR, pn.Gaussian(1.0), X, y)
    prior = pn.TraceClassPrior(1.5, 1.0, 1.0, scales="sampled")
    scales = pn.Posterior(net, pn.Mix(2), prior, pn.Gaussian(1.0), X, y)
    for post, kernel, reason in (
        (posterior(there=True), pn.EllipticalSlice(), "EllipticalSlice() runs only there"),
        (last, "auto", "Exact() runs only there"),
        (scales, KERNEL, "sampled scales of the prior run only there"),
    ):
        assert where(sampled(post, kernel, draws=1)) == ("cpu", reason)
    assert 'device="auto" means cpu: Exact() runs only there' in last.describe()
    noise = pn.Posterior(net, pn.Mix(2), problems.PRIOR, pn.Gaussian("sampled", a=2.0, b=1.0), X, y)
    assert where(sampled(noise, draws=1)) == (DEVICE, "the inputs are there")


@pytest.mark.usefixtures("a_device")
def test_draws_that_are_to_stay_are_not_sampled_on_the_cpu_instead() -> None:
    """Posteriors that one launch cannot run raise, because theta would not be on the device after a run on the CPU."""
    unlike = [posterior(there=True), posterior(there=True, dtype="float32")]
    with pytest.raises(ValueError, match="posts must be of one dtype"):
        pn.sample_many(unlike, KERNEL, draws=5, warmup=None, seed=3, progress=False, keep_on_device=True)


def test_a_device_that_cannot_be_used_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    status = _core.device_status("cuda") | {"usable": False, "reason": "no CUDA device is visible"}
    monkeypatch.setattr(_core, "device_status", lambda _: status)
    with pytest.raises(ValueError, match="no CUDA device is visible"):
        sampled(posterior(there=False), keep_on_device=True)
