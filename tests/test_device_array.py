"""Draws in a device's memory: they equal those of any other run, other libraries share them, and their lifetime."""

from __future__ import annotations

import copy
import gc
import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from chains import assert_same_draws
from conftest import Interrupt
from patrac_native.engine import _core
from patrac_native.engine.device_array import DeviceArray
from patrac_native.sampling.warmup import Phase
from test_device_chains import KERNELS, WARMUPS, posterior, replicates, run
from test_device_rows import many_rows

DTYPES = ("float32", "float64")


def kept_run(device: str, post: pn.Posterior | None = None, **more: Any) -> pn.Draws:
    """Run three chains of twelve draws that stay on the device."""
    return run(posterior() if post is None else post, KERNELS["pcnl"], device, keep_on_device=True, **more)


@pytest.fixture(params=["emulated:1", "emulated:4"])
def emulated(request: pytest.FixtureRequest) -> str:
    """Return each device whose memory is the host's."""
    name: str = request.param
    return name


# The same draws


ALL_KERNELS = KERNELS | {"collapsed": pn.MGrad(0.02, collapse=True)}


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "dtype"), problems.balanced([(name,) for name in ALL_KERNELS], DTYPES))
def test_draws_are_those_of_any_run(kernel: str, dtype: str, device: str) -> None:
    """Theta and all statistics are equal bit by bit, over several launches."""
    post = posterior(dtype=dtype)
    arguments: dict[str, Any] = {"draws": 400, "warmup": WARMUPS["fixed"]}
    found = run(post, ALL_KERNELS[kernel], device, keep_on_device=True, **arguments)
    expected = run(post, ALL_KERNELS[kernel], device, **arguments)
    assert found._elsewhere.shape == expected.theta.shape and found.theta.dtype == expected.theta.dtype
    assert_same_draws(found, expected)


def test_draws_of_chains_that_share_blocks(device: str) -> None:
    post = many_rows("gaussian", "mix", "float64").post
    assert post.sampled.compiled.on_device(device).layout(False, 2)["blocks_of_chain"] > 1
    found, expected = (
        run(post, pn.PCNL(0.0005), device, chains=2, draws=6, keep_on_device=keep) for keep in (True, False)
    )
    np.testing.assert_array_equal(found.theta, expected.theta)
    np.testing.assert_array_equal(found.stats["log_prior"], expected.stats["log_prior"])


def test_draws_of_several_posteriors(device: str) -> None:
    """Each has its own chains of the one array."""
    arguments: dict[str, Any] = {"chains": 2, "draws": 6, "warmup": None, "seed": 3, "progress": False}
    found, expected = (
        pn.sample_many(replicates(), pn.PCNL(0.02), device=device, keep_on_device=keep, **arguments)
        for keep in (True, False)
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert ours._elsewhere.shape == theirs.theta.shape
        np.testing.assert_array_equal(ours.theta, theirs.theta)


# Handed to others


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_takes_the_memory_over(dtype: str, emulated: str) -> None:
    draws = kept_run(emulated, posterior(dtype=dtype))
    array = draws._elsewhere
    assert (array.shape, array.ndim, array.dtype.name, array.device) == (draws.theta.shape, 3, dtype, "cpu")
    first, second = np.from_dlpack(array), np.from_dlpack(array)
    np.testing.assert_array_equal(first, draws.theta)
    assert first.ctypes.data == second.ctypes.data != draws.theta.ctypes.data
    assert first.strides == array.strides == draws.theta.strides
    assert array.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_takes_the_memory_over(dtype: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    draws = kept_run(device, posterior(dtype=dtype))
    tensor = torch.from_dlpack(draws)
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.device == torch.device(draws._elsewhere.device)
    np.testing.assert_array_equal(tensor.cpu().numpy(), draws.theta)
    # The memory is shared: a write through one array is visible in the next.
    tensor[1, 2, 3] = 7.0
    assert torch.from_dlpack(draws)[1, 2, 3] == 7.0


def test_both_forms_of_the_capsule_are_handed_out(emulated: str) -> None:
    """Consumers without a version get the old form; an array that nobody imports is freed with its capsule."""
    array = kept_run(emulated)._elsewhere
    for version, name in ((None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned")):
        assert f'"{name}"' in repr(array.__dlpack__(max_version=version))

    def through(version: tuple[int, int] | None) -> np.ndarray[Any, Any]:
        taken = SimpleNamespace(
            __dlpack__=lambda **_: array.__dlpack__(max_version=version), __dlpack_device__=array.__dlpack_device__
        )
        return np.from_dlpack(taken)  # type: ignore[arg-type]

    np.testing.assert_array_equal(through(None), through((1, 0)))
    np.testing.assert_array_equal(through(None), np.asarray(array))


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_goes_with_the_last_of_its_takers(emulated: str) -> None:
    """Runs of 24 MB each, handed out in every way and let go of.

    The allocator may keep the memory of a run or two for the next ones; eight runs left behind would be 192 MB.
    """
    post = problems.problem(problems.rng_of("wide"), (2, 60, 60, 1), 1, dtype="float64").post
    draws = 24_000_000 // (8 * post.dim)

    def run_and_take() -> None:
        kept = pn.sample(
            post, pn.PCN(0.3), chains=1, draws=draws, warmup=None, seed=1, device=emulated, keep_on_device=True
        )
        array = kept._elsewhere
        for version in (None, (1, 0)):
            array.__dlpack__(max_version=version)  # nobody takes it
        taken = np.from_dlpack(array)
        del array, kept
        assert np.isfinite(taken[0, -1]).all()

    run_and_take()
    before = resident()
    for _ in range(8):
        run_and_take()
    assert resident() - before < 72_000_000


def test_the_host_gets_copies(device: str) -> None:
    array = kept_run(device)._elsewhere
    host = np.asarray(array)
    host[:] = 0.0
    assert np.asarray(array).any() and np.asarray(array, dtype=np.float32).dtype == np.float32
    copied = np.from_dlpack(array, device="cpu", copy=True)
    np.testing.assert_array_equal(copied, np.asarray(array))
    assert copied.ctypes.data != array._tensor.pointer
    with pytest.raises(ValueError, match="copy=False: an array on a device comes to the host as a copy"):
        array.__array__(copy=False)


def test_what_the_cuda_interface_says() -> None:
    """Its content, for memory that says it is the second GPU's; others have none and are on no other device."""
    emulated = kept_run("emulated:4")._elsewhere
    assert not hasattr(emulated, "__cuda_array_interface__")
    with pytest.raises(BufferError, match="theta is on cpu: take it there"):
        emulated.__dlpack__(dl_device=(2, 0))
    tensor: Any = SimpleNamespace(
        shape=(2, 3, 5),
        strides=(80, 20, 4),
        element_bytes=4,
        place=(2, 1),
        pointer=4096,
        fetch=lambda: np.ones((2, 3, 5)),
    )
    array = DeviceArray(tensor)
    assert array.device == "cuda:1" and array.__dlpack_device__() == (2, 1)
    assert array.__cuda_array_interface__ == {
        "shape": (2, 3, 5),
        "typestr": "<f4",
        "data": (4096, False),
        "strides": (80, 20, 4),
        "stream": None,
        "version": 3,
    }
    # The host may have a copy, and nothing else.
    assert np.from_dlpack(array, device="cpu").sum() == 30
    with pytest.raises(BufferError, match="theta is on cuda:1, and comes to the host as a copy"):
        array.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="theta is on cuda:1: take it there"):
        array.__dlpack__(copy=True)


# Lifetime


@pytest.mark.slow
def test_what_was_taken_outlives_draws_and_model(emulated: str) -> None:
    post = problems.problem(problems.rng_of("lifetime"), (3, 9, 6, 3), 30).post
    draws = kept_run(emulated, post, draws=300, thin=1)
    expected, taken, capsule = draws.theta, np.from_dlpack(draws._elsewhere), draws._elsewhere.__dlpack__()
    array = draws._elsewhere
    del draws, post
    gc.collect()
    # New memory of the same size would lie where freed memory did.
    others = [np.full(expected.shape, np.nan) for _ in range(8)]
    np.testing.assert_array_equal(taken, expected)
    np.testing.assert_array_equal(np.asarray(array), expected)
    del array, taken, others
    gc.collect()
    assert capsule is not None


def test_a_part_outlives_the_others(emulated: str) -> None:
    arguments: dict[str, Any] = {"chains": 2, "draws": 150, "warmup": None, "progress": False}
    several = pn.sample_many(replicates(), pn.PCNL(0.02), device=emulated, keep_on_device=True, **arguments)
    expected, last = several[2].theta, several[2]._elsewhere
    del several
    gc.collect()
    np.testing.assert_array_equal(np.from_dlpack(last), expected)


# The draws around it


def test_draws_work_as_any_other(device: str, tmp_path: Path) -> None:
    draws, expected = kept_run(device), run(posterior(), KERNELS["pcnl"], device)
    assert (draws.n_chains, draws.n_draws) == (3, 12) and draws._theta is None
    assert draws.theta is draws.theta  # fetched once
    X = posterior().data.X[:4]
    draws.save(tmp_path / "run.npz")
    np.testing.assert_array_equal(pn.Draws.load(tmp_path / "run.npz").theta, expected.theta)
    np.testing.assert_array_equal(draws.predict(X), expected.predict(X))
    np.testing.assert_array_equal(draws[:, 2::3].theta, expected[:, 2::3].theta)
    np.testing.assert_array_equal(draws.summary(X).mean, expected.summary(X).mean)
    for again in (copy.deepcopy(draws), pickle.loads(pickle.dumps(draws))):
        np.testing.assert_array_equal(again.theta, expected.theta)
        np.testing.assert_array_equal(np.from_dlpack(again), expected.theta)


@pytest.mark.parametrize("calls", [1, 3])
def test_interrupted_runs_have_the_kept_draws_alone(calls: int, device: str, interrupt: Interrupt) -> None:
    interrupt(calls)
    arguments: dict[str, Any] = {"chains": 2, "draws": 100_000, "warmup": None, "seed": 4, "progress": True}
    with pytest.warns(UserWarning, match="interrupted"):
        draws = pn.sample(posterior(), KERNELS["pcnl"], device=device, keep_on_device=True, **arguments)
    kept = draws.n_draws
    assert 0 < kept < 100_000 and draws._elsewhere.shape == draws.theta.shape == (2, kept, posterior().dim)
    assert draws._elsewhere.strides[0] == 100_000 * draws._elsewhere.strides[1]
    few = min(kept, 100)
    first = run(posterior(), KERNELS["pcnl"], device, chains=2, draws=few, thin=1)
    np.testing.assert_array_equal(draws.theta[:, :few], first.theta)
    if not device.startswith("cuda"):
        np.testing.assert_array_equal(np.from_dlpack(draws), draws.theta)


def test_a_run_interrupted_in_warmup_has_none(device: str, interrupt: Interrupt) -> None:
    interrupt(1)
    arguments: dict[str, Any] = {"draws": 5, "warmup": pn.Warmup((Phase(10**6),)), "progress": True}
    with pytest.warns(UserWarning, match="interrupted: 0 of 5 draws"):
        draws = pn.sample(posterior(), KERNELS["pcnl"], device=device, keep_on_device=True, **arguments)
    assert draws._elsewhere.shape == draws.theta.shape == (4, 0, posterior().dim)


# Messages


@pytest.mark.parametrize(
    ("device", "why"),
    [("cpu", "this run goes to the CPU. Give"), ("auto", r"this run goes to the CPU \(.*CUDA.*\)\. Give")],
)
def test_the_cpu_keeps_nothing_on_a_device(device: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a GPU, "auto" would take it."""
    status = {"usable": False, "reason": "no CUDA device is visible"}
    monkeypatch.setattr(_core, "device_status", lambda _: status)
    for sample in (pn.sample, lambda post, *rest, **more: pn.sample_many([post], *rest, **more)):
        with pytest.raises(ValueError, match=rf'^keep_on_device=True needs device="cuda"; {why}'):
            sample(posterior(), pn.PCNL(0.1), device=device, keep_on_device=True)


def test_draws_on_the_host_are_exported_from_there() -> None:
    draws = run(posterior(), KERNELS["pcnl"], "cpu")
    assert np.from_dlpack(draws).ctypes.data == draws.theta.ctypes.data


def test_draws_that_the_device_cannot_hold_are_refused_at_once(device: str) -> None:
    """A million parameters and 20 million draws: 160 TB, more than an address can say."""
    X = np.ones((2, 10**6), dtype=np.float32)
    net = pn.Network([np.full((1, 10**6), 1e-6)], [np.zeros(1)])
    post = pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian(1.0), X, np.zeros(2), dtype="float64")
    with pytest.raises(
        RuntimeError, match=r"keep_on_device: the draws take 1525\d{5} MiB, which the device has not left"
    ):
        pn.sample(post, pn.PCN(0.1), chains=1, draws=20_000_000, warmup=None, device=device, keep_on_device=True)
