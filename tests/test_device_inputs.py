"""Inputs on a device are read and checked there, and give the same draws as the same inputs on the host."""

from __future__ import annotations

import gc
import itertools
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
import test_byte_inputs
from chains import assert_same_draws
from conftest import four_threads_and_cuda
from patrac_native.engine import _core
from patrac_native.engine import inputs as engine_inputs
from patrac_native.engine.allocation import allocation_of, check_extent
from patrac_native.engine.inputs import InputsOnDevice, import_device_inputs
from patrac_native.kernels import device_choice
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.sampling.warmup import Phase
from test_byte_inputs import network, random_bytes
from test_device_chains import run as run_chains

TYPES = ("uint8", "float32", "float64")
KERNEL = pn.MGrad(1e-5, persistence=0.9)


def run(post: pn.Posterior, kernel: pn.Kernel, device: str, **more: Any) -> pn.Draws:
    """Two chains of four steps: the first already differs if an input does."""
    return run_chains(post, kernel, device, **{"chains": 2, "draws": 4, "thin": 1} | more)


class OnDevice:
    """An array of another library in the memory of an emulated device."""

    emulated_device = "emulated:4"

    def __init__(self, array: Any, *, newest: tuple[int, int] | None = (1, 0)) -> None:
        self.array = array
        self.newest = newest
        self.asked: list[dict[str, Any]] = []

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked.append(asked)
        if self.newest is None and "max_version" in asked:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        if "dl_device" in asked:
            return self.array.copy().__dlpack__()
        return self.array.__dlpack__(max_version=self.newest)


class ByPointer:
    """The same array without DLPack, as Numba exports it."""

    emulated_device = "emulated:4"

    def __init__(self, array: npt.NDArray[Any], **more: Any) -> None:
        self.array = array
        self.more = more

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        own = self.array.__array_interface__
        return {name: own[name] for name in ("shape", "typestr", "data", "strides")} | {"version": 3} | self.more


def put(array: npt.NDArray[Any], where: str) -> Any:
    """Return the array on a device, with the same strides."""
    if where.startswith("emulated"):
        return OnDevice(array)
    torch = pytest.importorskip("torch")
    whole = np.ravel(array if array.base is None else array.base, order="K")
    assert np.shares_memory(whole, array)
    return torch.as_strided(
        torch.from_numpy(whole.copy()).to(where),
        array.shape,
        [stride // array.itemsize for stride in array.strides],
        (array.ctypes.data - whole.ctypes.data) // array.itemsize,
    )


def posterior(X: Any, architecture: str = "mix", likelihood: str = "categorical", **more: Any) -> pn.Posterior:
    return test_byte_inputs.posterior(X, likelihood, architecture, **more)


def inputs(n: int, d: int, kind: str) -> npt.NDArray[Any]:
    """Return random inputs: whole numbers for uint8, real numbers for floats."""
    X = random_bytes(n, d)
    return X if kind == "uint8" else X.astype(kind) + np.asarray(0.3, kind)


@pytest.fixture
def stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every copy of inputs to the host an error."""

    def fetched(_: object) -> None:
        raise AssertionError("the inputs came to the host")

    monkeypatch.setattr(InputsOnDevice, "fetch", fetched)


# Inputs that are read on the device


@pytest.mark.usefixtures("stays")
@pytest.mark.parametrize(
    ("architecture", "kind", "dtype"),
    problems.balanced([(name,) for name in problems.ARCHITECTURES * 2], TYPES, ("float32", "float64")),
)
def test_draws_are_those_of_inputs_on_the_host(architecture: str, kind: str, dtype: str, device: str) -> None:
    """The draws are equal bit by bit, and neither chains nor `sample` and `describe` copy inputs to the host."""
    X = inputs(70, 5, kind)
    here, there = (posterior(x, architecture, dtype=dtype) for x in (X, put(X, device)))
    found, expected = (run(post, KERNEL, device, warmup=pn.Warmup((Phase(3),))) for post in (there, here))
    assert expected.stats["acceptance_rate"].max() > 0
    assert_same_draws(found, expected)
    assert (
        there.plan().layers == here.plan().layers
        and there.sampled.facts.hidden_dim == here.sampled.facts.hidden_dim
        and there.data.n_rows == 70
    )
    error = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(there.sampled.fit_quality.network, here.sampled.fit_quality.network, rtol=error)
    assert (
        there.data.inputs.on_device is not None
        and f"the inputs are on {there.data.inputs.on_device.place}" in there.describe()
    )
    assert repr(there) == repr(here)


@pytest.mark.usefixtures("stays")
@pytest.mark.parametrize("kind", TYPES)
def test_wide_layers_and_shared_blocks(kind: str, device: str) -> None:
    X = inputs(900, 300, kind)
    models = [posterior(x, "full").sampled.compiled.on_device(device) for x in (X, put(X, device))]
    theta = posterior(X, "full").theta_map.astype(np.float32)[None]
    assert posterior(put(X, device), "full").data.inputs.on_device is not None
    assert models[1].layout(False, 1) == models[0].layout(False, 1)
    assert models[1].layout(False, 1)["wide_inputs"] == ("bytes" if kind == "uint8" else "floats")
    for found, expected in zip(*(model.log_likelihood_and_grad(theta) for model in models), strict=True):
        np.testing.assert_array_equal(found, expected)


def orders(X: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Return the same matrix in every memory layout, the last two with gaps."""
    apart = np.zeros((2 * len(X), X.shape[1] + 4), X.dtype)
    apart[::2, 2:-2] = X
    columns = np.zeros((X.shape[1], 3, len(X)), X.dtype)
    columns[:, 1] = X.T
    return {"rows": X, "columns": np.asfortranarray(X), "gaps": apart[::2, 2:-2], "columns apart": columns[:, 1].T}


ORDERS = ("rows", "columns", "gaps", "columns apart")


@pytest.mark.parametrize(("order", "kind", "copy"), problems.balanced(itertools.product(ORDERS, TYPES), ("copy", "")))
@four_threads_and_cuda
def test_any_order(order: str, kind: str, copy: str, device: str) -> None:
    X = inputs(61, 6, kind)
    there = posterior(put(orders(X)[order], device), copy=bool(copy))
    np.testing.assert_array_equal(there.data.X, X)
    assert there.data.X.dtype == X.dtype and not there.data.X.flags.writeable
    found, expected = (run(post, KERNEL, device) for post in (there, posterior(X)))
    np.testing.assert_array_equal(found.theta, expected.theta)


@pytest.mark.usefixtures("stays")
def test_many_data_sets(device: str) -> None:
    sets = [inputs(40, 4, "float32") + np.float32(shift) for shift in range(3)]
    arguments: dict[str, Any] = {"chains": 2, "draws": 5, "warmup": None, "seed": 3, "progress": False}
    found, expected = (
        pn.sample_many([posterior(x) for x in given], KERNEL, device=device, **arguments)
        for given in ([put(X, device) for X in sets], sets)
    )
    assert posterior(put(sets[0], device)).data.inputs.on_device is not None
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.theta, theirs.theta)
    assert not np.array_equal(found[0].theta, found[1].theta)


@pytest.mark.parametrize("first", ["there", "here"])
def test_auto_takes_several_to_one_place(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All run on the device if all inputs are there; else on the CPU, with the reason of the first that must."""
    monkeypatch.setattr(device_choice, "AUTO_DEVICE", "emulated:4")
    X = inputs(40, 4, "float32")
    arguments: dict[str, Any] = {"draws": 5, "warmup": None, "seed": 3, "progress": False}

    def both(there: pn.Posterior, here: pn.Posterior) -> tuple[list[pn.Posterior], str, str]:
        posts = [there, here] if first == "there" else [here, there]
        settings = [draws.settings for draws in pn.sample_many(posts, KERNEL, device="auto", **arguments)]
        [told] = {(one["device"], one["device_reason"]) for one in settings}
        return posts, *told

    _, where, reason = both(posterior(OnDevice(X)), posterior(OnDevice(X)))
    assert (where, reason) == ("emulated:4", "the inputs are there")
    _, where, reason = both(posterior(OnDevice(X)), posterior(X))
    assert (where, reason) == ("cpu", "the inputs are on the host")
    _, where, reason = both(posterior(OnDevice(X)), posterior(OnDevice(X), dtype="float64"))
    assert where == "cpu" and reason.startswith("emulated:4 does not run it: posts must be of one dtype")
    fixed = posterior(OnDevice(X), likelihood="gaussian")
    noise = pn.Posterior(
        fixed.network.net,
        fixed.network.architecture,
        problems.PRIOR,
        pn.Gaussian("sampled", a=2.0, b=1.0),
        OnDevice(X),
        np.ones((40, 3)),
    )
    posts, where, reason = both(fixed, noise)
    assert where == "cpu" and reason.startswith("emulated:4 does not run it: posts must have as many sampled noise")
    draws = pn.sample_many(posts, KERNEL, device="auto", **arguments)
    assert ["variance" in one.stats for one in draws] == [post is noise for post in posts]


def test_a_run_on_the_cpu_leaves_nothing_on_the_device() -> None:
    post = posterior(OnDevice(inputs(40, 4, "float32")))
    run(post, KERNEL, "cpu")
    assert post.sampled.compiled.has_host and not post.sampled.compiled._on_devices


# Lifetime of the memory


def test_a_copy_is_kept_unless_asked_not_to() -> None:
    X = inputs(50, 4, "float64")
    kept, shared = (posterior(OnDevice(X), copy=copy) for copy in (True, False))
    expected = run(posterior(X), KERNEL, "emulated:4")
    X[:] = 0.5
    zeroed = run(posterior(X), KERNEL, "emulated:4")
    np.testing.assert_array_equal(run(kept, KERNEL, "emulated:4").theta, expected.theta)
    np.testing.assert_array_equal(run(shared, KERNEL, "emulated:4").theta, zeroed.theta)
    assert not np.array_equal(expected.theta, zeroed.theta)


@pytest.mark.slow
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


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_capsules_of_torch(kind: str, copy: bool) -> None:
    torch = pytest.importorskip("torch")
    X = inputs(50, 6, kind)
    rows, columns = torch.from_numpy(X), torch.from_numpy(X.T.copy()).T
    for tensor in (rows, columns, torch.from_numpy(X.repeat(2, axis=0))[::2]):
        post = posterior(OnDevice(tensor), copy=copy)
        assert post.data.inputs.on_device is not None and post.data.inputs.on_device.core.dtype == kind
        np.testing.assert_array_equal(post.data.X, X)


def test_a_capsule_is_taken_once() -> None:
    capsule = inputs(5, 2, "float32").__dlpack__()
    _core.DeviceInputs.from_dlpack("emulated:4", capsule, True)
    assert '"used_dltensor' in repr(capsule)
    with pytest.raises(ValueError, match="has not been consumed"):
        _core.DeviceInputs.from_dlpack("emulated:4", capsule, True)


@pytest.mark.parametrize(("order", "kind", "copy"), problems.balanced(itertools.product(ORDERS, TYPES), ("copy", "")))
def test_a_pointer_is_read_with_its_strides(order: str, kind: str, copy: str) -> None:
    X = inputs(9, 5, kind)
    array = ByPointer(orders(X)[order])
    taken = import_device_inputs(array, 5, n_layers=2, dtype=np.dtype("float32"), copy=bool(copy))
    assert taken is not None and taken.core.shape == (9, 5) and taken.core.dtype == kind
    held = weakref.ref(array)
    del array
    assert (held() is None) is bool(copy)
    np.testing.assert_array_equal(taken.fetch(), X)


def test_a_pointer_is_compared_with_its_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies beyond the allocations, as the driver would tell them, is refused; pieces without a gap are one."""
    X = inputs(8, 4, "float32")
    begin, size = X.ctypes.data, X.nbytes

    def check(**changed: Any) -> None:
        interface = ByPointer(X, **changed).__cuda_array_interface__
        strides = interface["strides"] or (16, 4)
        check_extent(interface["data"][0], interface["shape"], strides, 4, on_gpu=True)

    def allocations(*known: range) -> None:
        def found(address: int) -> range:
            return next((one for one in known if address in one), range(0))

        monkeypatch.setattr("patrac_native.engine.allocation.allocation_of", found)

    backwards = {"data": (begin + 7 * 16, False), "strides": (-16, 4)}
    columns = {"strides": (4, 32)}
    beyond = (
        {"shape": (9, 4)},
        {"shape": (8, 5), "strides": (16, 4)},
        {"strides": (20, 4)},
        {"data": (begin + 4, False)},
        backwards | {"shape": (9, 4)},
        columns | {"shape": (9, 4)},
        {"shape": (2**40, 4)},
    )
    pieces = range(begin, begin + 48), range(begin + 48, begin + size)
    for known in ([range(begin, begin + size)], pieces):
        allocations(*known)
        for right in ({}, backwards, columns, {"shape": (2, 4)}, {"data": (begin + 16, False), "shape": (7, 4)}):
            check(**right)
        for wrong in beyond:
            with pytest.raises(ValueError, match=r"X: its __cuda_array_interface__ has shape .* no allocation holds"):
                check(**wrong)
    allocations(pieces[0], range(begin + 52, begin + size))
    with pytest.raises(ValueError, match=rf"no allocation holds {begin + 48:#x}"):
        check()
    monkeypatch.setattr("patrac_native.engine.allocation.allocation_of", lambda _: None)  # a driver that does not know
    for one in beyond:
        check(**one)


@pytest.mark.parametrize("data", [0, 2**64 - 64], ids=["null", "at the end"])
def test_a_pointer_to_no_memory_is_refused(data: int) -> None:
    """On every device, before anything is read."""
    array = ByPointer(inputs(9, 5, "float32"), data=(data, False))
    with pytest.raises(ValueError, match="no array is there"):
        import_device_inputs(array, 5, n_layers=2, dtype=np.dtype("float32"), copy=False)


def test_the_driver_is_asked_for_allocations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for libcuda, called with the attributes of cuda.h: start and size, no memory, and another error."""

    def library(_: str) -> Any:
        def query(into: Any, attribute: int, address: int) -> int:
            if address >= 1000:
                return 1 if address < 2000 else 201
            into._obj.value = {11: 512, 12: 256}[attribute]
            return 0

        return SimpleNamespace(cuPointerGetAttribute=query)

    monkeypatch.setattr("ctypes.CDLL", library)
    assert allocation_of(600) == range(512, 768) and allocation_of(1500) == range(0) and allocation_of(2500) is None
    monkeypatch.setattr("ctypes.CDLL", lambda _: (_ for _ in ()).throw(OSError("no driver")))
    assert allocation_of(600) is None


def asked_of(X: Any, monkeypatch: pytest.MonkeyPatch, device: str = "cuda") -> tuple[Any, ...]:
    """Return the arguments with which the core would import X from a GPU."""
    asked: list[tuple[Any, ...]] = []
    core = SimpleNamespace(
        from_dlpack=lambda *arguments: asked.append(arguments),
        from_pointer=lambda **arguments: asked.append((arguments["pointer"], arguments["stream"])),
    )
    monkeypatch.setattr(engine_inputs._core, "DeviceInputs", core)
    if hasattr(X, "__dlpack__"):
        engine_inputs._from_dlpack(X, device, False)
    else:
        engine_inputs._from_pointer(X, X.__cuda_array_interface__, device, False)
    return asked[0]


def test_streams_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """DLPack exporters receive a stream; the CUDA array interface names one, none, or has no such entry."""
    X = inputs(5, 2, "float32")
    for newest in ((1, 0), None):
        array = OnDevice(X, newest=newest)
        assert asked_of(array, monkeypatch)[3] == 1
        assert all(asked["stream"] == 1 for asked in array.asked)
        assert array.asked[0]["max_version"] == (1, 0)
    assert asked_of(OnDevice(X), monkeypatch, "emulated:4")[3] == 0
    for told, stream in ({"stream": 7}, 7), ({"stream": None}, 0), ({"version": 2}, _core.ALL_STREAMS):
        assert asked_of(ByPointer(X, **told), monkeypatch) == (X.ctypes.data, stream)


def test_what_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch exports capsules on the current device only, and none of sparse tensors."""

    class Elsewhere(OnDevice):
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("Can't export tensors on a different CUDA device index")

    X = inputs(5, 2, "float32")
    with pytest.raises(
        TypeError, match=r"X: its library does not hand it out \(Can't export .*\)\. Give a dense array"
    ):
        posterior(Elsewhere(X))
    both = Elsewhere(X)
    both.__cuda_array_interface__ = ByPointer(X, version=2).__cuda_array_interface__  # type: ignore[attr-defined]
    assert asked_of(both, monkeypatch) == (X.ctypes.data, _core.ALL_STREAMS)


def test_masks_and_odd_addresses_are_refused() -> None:
    X, of = inputs(6, 4, "float32"), PartialNetwork(network((4, 3, 1)), pn.Full(), problems.PRIOR)
    raw = np.zeros(X.nbytes + 1, np.uint8)
    odd = raw[1:].view(np.float32).reshape(X.shape)
    fields = np.zeros(6, [("byte", np.uint8), ("values", np.float32, 4)])["values"]
    for array, message in (
        (ByPointer(X, mask=X), "X has a mask"),
        (ByPointer(odd), "X must begin at a whole multiple of its entries' size; copy it"),
        (ByPointer(fields, data=(X.ctypes.data, False)), "X must have strides that are whole multiples"),
    ):
        with pytest.raises(ValueError, match=message):
            import_device_inputs(array, of.n_inputs, n_layers=2, dtype=of.dtype, copy=True)


# Inputs that are copied to the host


def test_the_host_gets_a_copy_when_it_needs_one() -> None:
    X = inputs(60, 4, "float32")
    there, here = posterior(OnDevice(X)), posterior(X)
    theta = here.theta_map
    assert there.log_likelihood(theta) == here.log_likelihood(theta)
    np.testing.assert_array_equal(run(there, KERNEL, "cpu").theta, run(here, KERNEL, "cpu").theta)
    np.testing.assert_array_equal(there.data.X, X)


def test_other_types_come_by_way_of_the_host() -> None:
    X = random_bytes(20, 4).astype(np.int32)
    post = posterior(OnDevice(X))
    assert post.data.inputs.on_device is None and post.data.X.dtype == np.float64
    np.testing.assert_array_equal(post.data.X, X)
    y = np.linspace(0, 1, 20)[:, None].repeat(3, axis=1)
    on_device = pn.Posterior(network((4, 9, 8, 3)), pn.Full(), problems.PRIOR, pn.Gaussian(1.0), X, OnDevice(y))
    np.testing.assert_array_equal(on_device.data.y, y)


def test_networks_that_are_too_deep_for_a_device() -> None:
    X, sizes = inputs(9, 4, "float32"), (4, *[3] * _core.MAX_DEVICE_LAYERS, 1)
    for x in (X, OnDevice(X)):
        post = pn.Posterior(network(sizes), pn.Full(), problems.PRIOR, pn.Gaussian(1.0), x, X[:, 0])
        assert post.data.inputs.on_device is None and np.isfinite(post.sampled.fit_quality.network)


def test_arrays_of_the_host_are_no_device_inputs() -> None:
    torch = pytest.importorskip("torch")
    X = inputs(20, 4, "float32")
    for same in (X, torch.from_numpy(X), torch.from_numpy(X).requires_grad_()):
        assert posterior(same).data.inputs.on_device is None
    net = network((4, 9, 8, 3))
    listed = pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian(1.0), X.tolist(), X[:, :3])
    assert listed.data.inputs.on_device is None


def test_arrays_that_numpy_reads_are_left_to_it() -> None:
    """Whatever device they say that they are on, such as pinned memory, and whatever of DLPack they do not know."""

    class Pinned:
        def __init__(self, array: npt.NDArray[Any]) -> None:
            self.array = array

        def __dlpack_device__(self) -> tuple[int, int]:
            return (3, 0)

        def __dlpack__(self) -> Any:
            raise AssertionError

        def __array__(self, *_: Any, **__: Any) -> npt.NDArray[Any]:
            return self.array

    X = inputs(20, 4, "float32")
    np.testing.assert_array_equal(posterior(X).network.predict(posterior(X).theta_map, Pinned(X)).shape, (20, 3))
    y = X[:, :3]
    post = pn.Posterior(network((4, 9, 8, 3)), pn.Full(), problems.PRIOR, pn.Gaussian(1.0), X, Pinned(y))
    np.testing.assert_array_equal(post.data.y, y)


def test_doubles_of_a_float32_model_are_rounded_first() -> None:
    """They are rounded before any computation, as on the host."""
    X = inputs(70, 5, "float64") + np.linspace(0, 1e-3, 350).reshape(70, 5)
    found, expected = (
        run(posterior(x, "sep", dtype="float32"), KERNEL, "emulated:4").theta for x in (X, X.astype(np.float32))
    )
    np.testing.assert_array_equal(found, expected)


def test_rows_that_are_folded_in_several_stretches() -> None:
    """The companion is so wide that its rows are processed in several parts."""
    rng = problems.rng_of("stretches")
    net, n = problems.random_network(rng, (2, 1500, 1)), 6000
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    post = pn.Posterior(net, pn.Sep(2), problems.PRIOR, pn.Gaussian(1.0), X, y, dtype="float64")
    theta = rng.normal(size=(1, post.dim))
    found, expected = (
        post.sampled.compiled.on_device("emulated:4").log_likelihood_and_grad(theta),
        post.log_likelihood_and_grad(theta),
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-9)


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
    assert posterior(OnDevice(X), dtype="float32").data.inputs.on_device is not None


@pytest.mark.parametrize(
    ("shape", "n", "message"),
    [
        ((30,), 30, r"X must have shape \(n, 4\); got \(30,\)"),
        ((0, 4), 30, "X has no rows"),
        ((30, 5), 30, "X must have 4 columns"),
        ((9, 4), 8, "y must"),
    ],
)
def test_wrong_shapes(shape: tuple[int, ...], n: int, message: str) -> None:
    X = OnDevice(np.zeros(shape))
    with pytest.raises(ValueError, match=message):
        pn.Posterior(network((4, 9, 8, 3)), pn.Full(), problems.PRIOR, pn.Categorical(), X, np.zeros(n))


def test_columns_of_a_data_frame_are_no_methods() -> None:
    """The columns of a data frame are its attributes too, which say nothing about what kind of array it is."""
    pd = pytest.importorskip("pandas")
    names = ["emulated_device", "detach", "cpu", "is_meta", "toarray", "nnz", "dlpack"]
    values = np.random.default_rng(0).normal(size=(8, len(names)))
    frame = pd.DataFrame(values, columns=names)
    net = pn.Network([np.ones((1, len(names)))], [np.zeros(1)])
    np.testing.assert_array_equal(net.predict(frame), net.predict(values))
    posts = [
        pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), X, values[:, 0]) for X in (frame, values)
    ]
    assert posts[0].log_likelihood(posts[0].theta_map) == posts[1].log_likelihood(posts[1].theta_map)
