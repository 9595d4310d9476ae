"""Inputs that are on a device already: read and checked there, and the draws of the same inputs elsewhere."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from patrac_native import _core
from patrac_native.device_inputs import DeviceInputs
from test_byte_inputs import network, random_bytes
from test_device_chains import run

TYPES = ("uint8", "float32", "float64")
KERNEL = pn.MGrad(1e-5, persistence=0.9)


class OnDevice:
    """What another library hands out of an emulated device's memory."""

    def __init__(self, array: npt.NDArray[Any], *, newest: tuple[int, int] | None = (1, 0)) -> None:
        self.array = array
        self.newest = newest
        self.asked: list[dict[str, Any]] = []

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (12, 4)

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked.append(asked)
        if self.newest is None and "max_version" in asked:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        if "dl_device" in asked:
            return self.array.copy().__dlpack__()
        return self.array.__dlpack__(max_version=self.newest)


def put(array: npt.NDArray[Any], device: str) -> Any:
    """The array on a device, with the strides that it has."""
    if device.startswith("emulated"):
        return OnDevice(array)
    torch = pytest.importorskip("torch")
    return torch.as_strided(
        torch.from_numpy(np.array(array.base if array.base is not None else array)).to(device),
        array.shape,
        [stride // array.itemsize for stride in array.strides],
    )


def posterior(X: Any, architecture: str = "mix", likelihood: str = "categorical", **more: Any) -> pn.Posterior:
    """30 nodes and 3 outputs over the inputs of X."""
    n, d = X.shape
    net = network((d, 9, 8, 3))
    rng = problems.rng_of("device inputs", n, d, architecture, likelihood)
    data = problems.random_data(likelihood, rng, n, d, 3)
    chosen = problems.architecture(architecture, rng, net)
    return pn.Posterior(net, chosen, problems.PRIOR, data.likelihood, X, data.y, **more)


def inputs(n: int, d: int, kind: str) -> npt.NDArray[Any]:
    """Whole numbers for bytes, any others for floats."""
    X = random_bytes(n, d)
    return X if kind == "uint8" else X.astype(kind) + np.asarray(0.3, kind)


@pytest.fixture
def stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing brings inputs to the host."""

    def fetched(_: object) -> None:
        raise AssertionError("the inputs came to the host")

    monkeypatch.setattr(DeviceInputs, "fetch", fetched)


# Read where they are


@pytest.mark.usefixtures("stays")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("architecture", problems.ARCHITECTURES)
def test_draws_are_those_of_inputs_on_the_host(architecture: str, kind: str, dtype: str, device: str) -> None:
    """Bit by bit, and nothing comes to the host: not for the chains, nor for what `sample` and `describe` tell."""
    X = inputs(70, 5, kind)
    here, there = (posterior(x, architecture, dtype=dtype) for x in (X, put(X, device)))
    found, expected = (run(post, KERNEL, device, warmup=pn.Warmup((pn.Phase(30),))) for post in (there, here))
    assert expected.stats["acceptance_rate"].max() > 0
    np.testing.assert_array_equal(found.theta, expected.theta)
    for name, values in expected.stats.items():
        np.testing.assert_array_equal(found.stats[name], values, err_msg=name)
    assert there.plan() == here.plan() and there.hidden_dim == here.hidden_dim and there.n_rows == 70
    error = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(there.fit_quality.network, here.fit_quality.network, rtol=error)
    assert there.device_inputs is not None and f"the inputs are on {there.device_inputs.place}" in there.describe()
    assert repr(there) == repr(here)


@pytest.mark.usefixtures("stays")
@pytest.mark.parametrize("kind", TYPES)
def test_wide_layers_and_shared_blocks(kind: str, device: str) -> None:
    X = inputs(900, 300, kind)
    models = [posterior(x, "full").device_model(device) for x in (X, put(X, device))]
    theta = posterior(X, "full").theta_map.astype(np.float32)[None]
    assert models[1].layout(False, 1) == models[0].layout(False, 1)
    assert models[1].layout(False, 1)["wide_inputs"] == ("bytes" if kind == "uint8" else "floats")
    for found, expected in zip(*(model.log_likelihood_and_grad(theta) for model in models), strict=True):
        np.testing.assert_array_equal(found, expected)


def orders(X: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """The same matrix in memory in every way, of which the last two leave gaps."""
    apart = np.zeros((2 * len(X), X.shape[1] + 4), X.dtype)
    apart[::2, 2:-2] = X
    columns = np.zeros((X.shape[1], 3, len(X)), X.dtype)
    columns[:, 1] = X.T
    return {"rows": X, "columns": np.asfortranarray(X), "gaps": apart[::2, 2:-2], "columns apart": columns[:, 1].T}


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("order", ["rows", "columns", "gaps", "columns apart"])
@pytest.mark.parametrize("kind", TYPES)
def test_any_order(kind: str, order: str, copy: bool) -> None:
    X = inputs(61, 6, kind)
    there = posterior(OnDevice(orders(X)[order]), copy=copy)
    np.testing.assert_array_equal(there.X, X)
    assert there.X.dtype == X.dtype and not there.X.flags.writeable
    found, expected = (run(post, KERNEL, "emulated:4") for post in (there, posterior(X)))
    np.testing.assert_array_equal(found.theta, expected.theta)


@pytest.mark.usefixtures("stays")
def test_many_data_sets(device: str) -> None:
    sets = [inputs(40, 4, "float32") + np.float32(shift) for shift in range(3)]
    arguments: dict[str, Any] = {"chains": 2, "draws": 5, "warmup": None, "seed": 3, "progress": False}
    found, expected = (
        pn.sample_many([posterior(x) for x in given], KERNEL, device=device, **arguments)
        for given in ([put(X, device) for X in sets], sets)
    )
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.theta, theirs.theta)
    assert not np.array_equal(found[0].theta, found[1].theta)


# Whose memory


def test_a_copy_is_kept_unless_asked_not_to() -> None:
    X = inputs(50, 4, "float64")
    kept, shared = (posterior(OnDevice(X), copy=copy) for copy in (True, False))
    expected = run(posterior(X), KERNEL, "emulated:4")
    X[:] = 0.5
    zeroed = run(posterior(X), KERNEL, "emulated:4")
    np.testing.assert_array_equal(run(kept, KERNEL, "emulated:4").theta, expected.theta)
    np.testing.assert_array_equal(run(shared, KERNEL, "emulated:4").theta, zeroed.theta)
    assert not np.array_equal(expected.theta, zeroed.theta)


@pytest.mark.parametrize("newest", [None, (0, 8), (1, 0)], ids=str)
@pytest.mark.parametrize("copy", [True, False])
def test_memory_is_held_as_long_as_it_is_read(copy: bool, newest: tuple[int, int] | None) -> None:
    """By the posterior where nothing is copied; in either form of the capsule, of makers that know no versions too."""
    X = inputs(50, 4, "float64")
    held = weakref.ref(X)
    expected = run(posterior(X), KERNEL, "emulated:4").theta
    post = posterior(OnDevice(X, newest=newest), copy=copy)
    del X
    gc.collect()
    assert (held() is None) is copy
    np.testing.assert_array_equal(run(post, KERNEL, "emulated:4").theta, expected)
    del post
    gc.collect()
    assert held() is None


def test_a_capsule_is_taken_once() -> None:
    capsule = inputs(5, 2, "float32").__dlpack__()
    _core.DeviceInputs.from_dlpack("emulated:4", capsule, True)
    assert '"used_dltensor' in repr(capsule)
    with pytest.raises(ValueError, match="nobody took"):
        _core.DeviceInputs.from_dlpack("emulated:4", capsule, True)


@pytest.mark.parametrize("order", ["rows", "columns", "gaps", "columns apart"])
@pytest.mark.parametrize("kind", TYPES)
def test_a_pointer_is_read_with_its_strides(kind: str, order: str) -> None:
    """As `__cuda_array_interface__` tells them."""
    X = inputs(9, 5, kind)
    array = orders(X)[order]
    taken = _core.DeviceInputs.from_pointer(
        device="emulated:4",
        owner=array,
        pointer=array.ctypes.data,
        kind=array.dtype.kind,
        shape=(9, 5),
        strides=array.strides[:2],
        itemsize=array.itemsize,
        copy=False,
    )
    assert taken.shape == (9, 5) and taken.dtype == kind
    np.testing.assert_array_equal(taken.fetch(), X)


# By way of the host


def test_the_host_gets_a_copy_when_it_needs_one() -> None:
    X = inputs(60, 4, "float32")
    there, here = posterior(OnDevice(X)), posterior(X)
    theta = here.theta_map
    assert there.log_likelihood(theta) == here.log_likelihood(theta)
    np.testing.assert_array_equal(run(there, KERNEL, "cpu").theta, run(here, KERNEL, "cpu").theta)
    np.testing.assert_array_equal(there.X, X)


def test_what_needs_the_host_at_once() -> None:
    """The start of a sampled variance; the statistics of a last layer."""
    X, net, y = inputs(90, 6, "float64"), network((6, 9, 1)), problems.rng_of("y").normal(size=90)
    for likelihood in (pn.Gaussian(0.5), pn.Gaussian("sampled", a=2.0, b=1.0)):
        there, here = (pn.Posterior(net, pn.Out(4), problems.PRIOR, likelihood, x, y) for x in (OnDevice(X), X))
        assert there.starting_variance == here.starting_variance
        ours, theirs = (pn.sample(post, seed=1, draws=5, progress=False) for post in (there, here))
        np.testing.assert_array_equal(ours.theta, theirs.theta)


def test_other_types_come_by_way_of_the_host() -> None:
    X = random_bytes(20, 4).astype(np.int32)
    post = posterior(OnDevice(X))
    assert post.device_inputs is None and post.X.dtype == np.float64
    np.testing.assert_array_equal(post.X, X)
    y = np.linspace(0, 1, 20)[:, None].repeat(3, axis=1)
    on_device = pn.Posterior(network((4, 9, 8, 3)), pn.Full(), problems.PRIOR, pn.Gaussian(1.0), X, OnDevice(y))
    np.testing.assert_array_equal(on_device.y, y)


def test_networks_that_are_too_deep_for_a_device() -> None:
    X, sizes = inputs(9, 4, "float32"), (4, *[3] * _core.MOST_DEVICE_LAYERS, 1)
    for x in (X, OnDevice(X)):
        post = pn.Posterior(network(sizes), pn.Full(), problems.PRIOR, pn.Gaussian(1.0), x, X[:, 0])
        assert post.device_inputs is None and np.isfinite(post.fit_quality.network)


def test_arrays_of_the_host_are_no_device_inputs() -> None:
    torch = pytest.importorskip("torch")
    X = inputs(20, 4, "float32")
    for same in (X, X.tolist(), torch.from_numpy(X), torch.from_numpy(X).requires_grad_()):
        if isinstance(same, list):
            same = np.asarray(same, np.float32)
        assert posterior(same).device_inputs is None


# Errors


def bad_inputs() -> dict[str, tuple[npt.NDArray[Any], str, str]]:
    """Inputs, the type of theta, and the error that the same inputs give on the host."""
    nan, infinite, large = (inputs(30, 4, "float64") for _ in range(3))
    nan[[7, 3], [2, 3]] = np.nan
    infinite[29, 0] = -np.inf
    large[5, 1] = 1e300
    return {
        "nan": (nan, "float64", r"X must be finite; column 2 has nan first at row 7 \(2 bad values in all\)"),
        "infinite": (infinite, "float32", "X must be finite; column 0 has -inf first at row 29"),
        "too large": (large, "float32", r"X must fit float32; got 1e\+300, beyond 3.40282e\+38"),
    }


@pytest.mark.parametrize("case", bad_inputs())
def test_bad_inputs_are_told_as_on_the_host(case: str, device: str) -> None:
    X, dtype, message = bad_inputs()[case]
    for same in (X, put(X, device)):
        with pytest.raises(ValueError, match=message):
            posterior(same, dtype=dtype)


def test_largest_floats_are_let_through() -> None:
    X = inputs(30, 4, "float64")
    X[5, 1] = float(np.finfo(np.float32).max) * (1 + 1e-9)  # rounds to the largest
    assert posterior(OnDevice(X), dtype="float32").device_inputs is not None


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((30,), r"X must have shape \(n, 4\); got \(30,\)"),
        ((0, 4), "X has no rows"),
        ((30, 5), "X must have 4 columns"),
    ],
)
def test_wrong_shapes(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pn.Posterior(
            network((4, 9, 8, 3)), pn.Full(), problems.PRIOR, pn.Bernoulli(), OnDevice(np.zeros(shape)), np.zeros(30)
        )


def test_as_many_targets_as_inputs() -> None:
    with pytest.raises(ValueError, match="y must"):
        pn.Posterior(
            network((4, 9, 8, 3)), pn.Full(), problems.PRIOR, pn.Categorical(), OnDevice(np.zeros((9, 4))), np.zeros(8)
        )
