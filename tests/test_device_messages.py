"""Messages of `sample` about devices: which exist, why one cannot be used, and what a device does not support."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from patrac_native.engine import _core
from patrac_native.engine.machine import device_status

CUDA: dict[str, Any] = _core.device_status("cuda")
WITHOUT = "this build of patrac_native has no CUDA"
DEVICE = "emulated:1"


def posterior(**more: Any) -> pn.Posterior:
    return problems.problem(problems.rng_of("device messages"), (2, 5, 4, 2), 17, "mix", **more).post


def with_status(monkeypatch: pytest.MonkeyPatch, **status: Any) -> None:
    """Replace the compiled core's answer about devices."""
    monkeypatch.setattr(_core, "device_status", lambda _: CUDA | status)


def test_status_says_usable_or_why_not() -> None:
    status = device_status()
    assert set(status) == {"usable", "reason", "name", "multiprocessors", "memory_bytes", "shared_bytes"}
    assert status == device_status("cuda")
    assert status["usable"] == (status["reason"] == "")
    if status["usable"]:
        assert status["name"] and status["multiprocessors"] > 0
        assert status["shared_bytes"] >= 48 * 1024 and status["memory_bytes"] > 2**30


@pytest.mark.skipif(_core.CUDA != "", reason="this build has CUDA")
def test_a_build_without_cuda_says_so() -> None:
    assert device_status()["reason"] == WITHOUT
    assert pn.build_info()["CUDA"] == "no (built without)"
    with pytest.raises(RuntimeError, match=f'^device="cuda": {WITHOUT}; use device="auto" or "cpu".$'):
        pn.sample(posterior(), device="cuda")


@pytest.mark.skipif(_core.CUDA == "" or CUDA["usable"], reason="this build has no CUDA, or there is a device")
def test_a_build_with_cuda_names_the_missing_driver_or_device() -> None:
    reason = device_status()["reason"]
    known = ("no NVIDIA driver is installed", "no CUDA device is visible", "the NVIDIA driver supports CUDA")
    assert reason.startswith((*known, "CUDA could not start"))
    assert pn.build_info()["CUDA"] == f"built with {_core.CUDA}, not usable: {reason}"


@pytest.mark.skipif(CUDA["usable"], reason="there is a device")
def test_an_unusable_device_is_refused_with_the_reason() -> None:
    with pytest.raises(RuntimeError) as caught:
        pn.sample(posterior(), pn.PCNL(0.1), device="cuda")
    assert str(caught.value) == f'device="cuda": {CUDA["reason"]}; use device="auto" or "cpu".'
    with pytest.raises(RuntimeError) as caught:
        _core.device_normals32(device="cuda", seed=1, chain=0, step=0, purpose=_core.Purpose.proposal, count=4)
    assert str(caught.value) == CUDA["reason"]
    with pytest.raises(RuntimeError) as caught:
        posterior().sampled.compiled.on_device("cuda")
    assert str(caught.value) == CUDA["reason"]


@pytest.mark.parametrize("reason", [WITHOUT, "no NVIDIA driver is installed", "no CUDA device is visible"])
def test_every_reason_reaches_the_caller(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reason gives its message on every machine."""
    with_status(monkeypatch, usable=False, reason=reason)
    with pytest.raises(RuntimeError, match=reason):
        pn.sample(posterior(), pn.PCNL(0.1), device="cuda")
    with pytest.raises(ValueError, match=reason):
        pn.sample(posterior(), pn.PCNL(0.1), device="auto", keep_on_device=True)


def test_a_given_cpu_is_given() -> None:
    draws = pn.sample(posterior(), pn.PCNL(0.1), chains=1, draws=1, warmup=None, device="cpu", progress=False)
    assert (draws.settings["device"], draws.settings["device_reason"]) == ("cpu", "given")


@pytest.mark.parametrize("device", ["gpu", "CUDA", "cuda:0", "", 0, None])
def test_unknown_devices(device: Any) -> None:
    with pytest.raises(ValueError) as caught:
        pn.sample(posterior(), pn.PCNL(0.1), device=device)
    assert str(caught.value) == f'device must be "auto", "cpu" or "cuda"; got {device!r}.'


@pytest.mark.parametrize("threads", ["0", "3", "-4", "256", "four", "4x", "", "2 "])
def test_emulated_blocks_of_other_sizes(threads: str) -> None:
    with pytest.raises(ValueError, match=f"an emulated block has 1, 2, 4 .. 128 threads; got 'emulated:{threads}'"):
        pn.sample(posterior(), pn.PCNL(0.1), device=f"emulated:{threads}")


def test_a_kernel_of_the_cpu_alone() -> None:
    with pytest.raises(ValueError, match=rf'^device="{DEVICE}" runs .* got EllipticalSlice\(\).* or device="cpu"\.$'):
        pn.sample(posterior(), pn.EllipticalSlice(), device=DEVICE)


def test_independent_draws_are_of_the_cpu_alone() -> None:
    net = problems.random_network(problems.rng_of("exact"), (2, 5, 1))
    X = np.linspace(-1, 1, 8).reshape(4, 2)
    post = pn.Posterior(net, pn.Out(3), problems.PRIOR, pn.Gaussian(1.0), X, X[:, 0])
    with pytest.raises(ValueError, match=rf'^device="{DEVICE}" runs .* got Exact\(\)'):
        pn.sample(post, pn.Exact(), device=DEVICE)


def test_more_layers_than_a_launch_holds() -> None:
    rng = problems.rng_of("deep")
    for layers, runs in ((16, True), (17, False)):
        post = problems.problem(rng, (2,) * (layers + 1), 5).post
        if runs:
            assert np.isfinite(
                post.sampled.compiled.on_device(DEVICE).log_likelihood_and_grad(post.theta_map[None])[0]
            ).all()
            continue
        with pytest.raises(
            ValueError, match=f'^device="{DEVICE}" runs at most 16 layers; got 17.* or device="cpu"\\.$'
        ):
            pn.sample(post, pn.PCNL(0.1), device=DEVICE)


def test_warnings_and_errors_of_the_kernel_come_as_on_the_cpu() -> None:
    with pytest.raises(ValueError, match="warmup=None leaves nobody to find a step size"):
        pn.sample(posterior(), pn.PCNL(), warmup=None, device=DEVICE)
