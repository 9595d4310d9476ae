"""Training in whatever state the caller, other threads or a fork leave torch, and tensors as inputs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import patrac_native as pn

X = np.linspace(-2, 2, 60)[:, None]
y = np.sin(X)


@contextmanager
def setting(change: Callable[[Any], None], value: Any, usual: Any) -> Iterator[None]:
    change(value)
    try:
        yield
    finally:
        change(usual)


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default device": lambda: setting(torch.set_default_device, "meta", None),
    "device as a context": lambda: torch.device("meta"),
    "default dtype": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
}


def trained(optimizer: str, many: bool) -> list[pn.Network]:
    """Train by mini-batches, with validation rows and without."""
    given: dict[str, Any] = {"optimizer": optimizer, "max_epochs": 15, "l2": 0.1, "batch_size": 32, "progress": False}
    if many:
        return pn.train_many([1, 6, 1], X, y, networks=2, threads=2, epoch_fraction=0.5, **given)
    return [pn.train([1, 6, 1], X, y, **given), pn.train([1, 6, 1], X, y, validation_fraction=0, **given)]


@pytest.mark.parametrize("many", [False, True], ids=["train", "train_many"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("optimizer", ["adam", "nadam"])
def test_the_state_of_torch_does_not_change_a_training(state: str, optimizer: str, many: bool) -> None:
    expected = trained(optimizer, many)
    with STATES[state]():
        found = trained(optimizer, many)
        # The caller's state is as it was.
        assert torch.is_inference_mode_enabled() == (state == "inference_mode")
        assert torch.is_grad_enabled() == (state not in ("inference_mode", "no_grad"))
        assert torch.is_autocast_enabled("cpu") == (state == "autocast")
        assert torch.get_default_dtype() == (torch.float64 if state == "default dtype" else torch.float32)
        assert torch.empty(0).device.type == ("meta" if "device" in state else "cpu")
    for net, other in zip(expected, found, strict=True):
        for a, b in zip((*net.weights, *net.biases), (*other.weights, *other.biases), strict=True):
            # NAdam counts in torch's default dtype.
            np.testing.assert_allclose(a, b, rtol=1e-6 if (optimizer, state) == ("nadam", "default dtype") else 0)


def test_trainings_in_threads_leave_the_number_of_torch_threads() -> None:
    usual, seen = torch.get_num_threads(), list[int]()
    torch.set_num_threads(2)
    try:
        trained("nadam", many=True)
        after = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        after.start()
        after.join(60)
        assert seen == [2] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(usual)


FORK = """
import os, sys
import numpy as np, torch
import patrac_native as pn

torch.set_num_threads(2)
X = np.linspace(-2, 2, 5000)[:, None]

def train():
    given = {"l2": 0.1, "max_epochs": 2, "validation_fraction": 0, "progress": False}
    nets = [pn.train([1, 300, 300, 1], X, np.sin(X), optimizer=one, **given) for one in ("adam", "nadam")]
    return np.concatenate([net.weights[1] for net in nets])

train()
torch.ones(1000, 1000).square().sum()
child = os.fork()
if child == 0:
    os._exit(0 if np.isfinite(train()).all() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_trains_after_its_parent_trained_with_two_threads() -> None:
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", FORK], start_new_session=True) as run:
        try:
            assert run.wait(timeout=100) == 0
        finally:
            if run.returncode is None:
                os.killpg(run.pid, 9)  # the child too


class Louder(nn.Linear):
    """A Linear whose call is not its forward."""

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        return 2 * super().__call__(*inputs)


class Turned(nn.Sequential):
    """A Sequential whose call is not its forward."""

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().__call__(-inputs)


class Shifted(nn.Tanh):
    """An activation whose call is not its forward."""

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().__call__(inputs + 1)


def replaced() -> nn.Module:
    linear = nn.Linear(2, 1)
    linear._call_impl = lambda inputs: inputs  # type: ignore[assignment]
    return linear


@pytest.mark.parametrize(
    ("module", "place"),
    [
        (Louder(2, 1), "module 0 .Louder."),
        (Turned(nn.Linear(2, 1)), "module 0 .Turned."),
        (nn.Sequential(nn.Linear(2, 3), Shifted(), nn.Linear(3, 1)), "module 1 .Shifted."),
        (nn.Sequential(Turned(nn.Linear(2, 3)), nn.Tanh(), nn.Linear(3, 1)), "module 0 .Turned."),
        (replaced(), "module 0 .Linear."),
    ],
)
def test_a_module_with_its_own_call_is_refused(module: nn.Module, place: str) -> None:
    with pytest.raises(TypeError, match=f"from_torch: {place} has a __call__ method of its own"):
        pn.Network.from_torch(module)


def test_parametrizations_are_read_exactly_or_refused() -> None:
    weight_norm = nn.utils.parametrizations.weight_norm(nn.Linear(30, 2).double())
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(30, 20).double())
    rows = torch.randn(5, 30, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"layer 0 .* has a parametrization that changes at every use.*module\.eval"):
        pn.Network.from_torch(spectral)
    for module in (weight_norm, spectral.eval()):
        net = pn.Network.from_torch(module)
        # 30 products and their sum, of either side.
        rounding = 2 * 31 * np.finfo(float).eps * (np.abs(rows.numpy()) @ np.abs(net.weights[0]).T + 1)
        assert (np.abs(net.predict(rows.numpy()) - module(rows).detach().numpy()) <= rounding).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e5m2], ids=str)
def test_tensors_of_few_bits_are_read_exactly(dtype: torch.dtype) -> None:
    tensor = torch.tensor(X).to(dtype)
    exact = tensor.double().numpy()
    given: dict[str, Any] = {"l2": 0.1, "max_epochs": 5, "validation_fraction": 0, "progress": False}
    net, other = (pn.train([1, 4, 1], inputs, y, **given) for inputs in (tensor, exact))
    np.testing.assert_array_equal(net.weights[0], other.weights[0])
    np.testing.assert_array_equal(net.predict(tensor), net.predict(exact))
    posts = [pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(0.1), x, x) for x in (tensor, exact)]
    assert posts[0].log_likelihood(posts[0].theta_map) == posts[1].log_likelihood(posts[1].theta_map)


@pytest.mark.parametrize("name", ["X", "y"])
def test_tensors_without_numbers_are_refused(name: str) -> None:
    given = {"X": X, "y": y, name: torch.empty(60, 1, device="meta")}
    message = f"{name} is a tensor on the meta device, which holds no numbers"
    with pytest.raises(ValueError, match=message):
        pn.train([1, 4, 1], given["X"], given["y"])
    with pytest.raises(ValueError, match=message):
        pn.Posterior(pn.Network([np.ones((1, 1))], [[0.0]]), pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), **given)
    with pytest.raises(ValueError, match=message):
        pn.PatracRegressor().fit(given["X"], given["y"])
