"""Inputs of dtype uint8 give the same numbers as the same inputs in floats, in a fraction of their memory."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from scripts import printed_numbers

Bytes = npt.NDArray[np.uint8]


def random_bytes(*shape: int) -> Bytes:
    return problems.rng_of("bytes", shape).integers(0, 256, shape, dtype=np.uint8)


def network(sizes: tuple[int, ...]) -> pn.Network:
    """Return a network with weights small enough for inputs up to 255."""
    net = problems.random_network(problems.rng_of("bytes", sizes), sizes)
    return pn.Network([net.weights[0] / 128, *net.weights[1:]], net.biases, net.activation)


def posterior(
    X: npt.NDArray[Any], likelihood: str = "gaussian", architecture: str = "full", **more: Any
) -> pn.Posterior:
    """Return a posterior of a network with 17 hidden nodes and 3 outputs."""
    n, d = X.shape
    net = network((d, 9, 8, 3))
    rng = problems.rng_of("bytes", n, likelihood, architecture)
    data = problems.random_data(likelihood, rng, n, d, 3)
    chosen = problems.architecture(architecture, rng, net)
    return pn.Posterior(net, chosen, problems.PRIOR, data.likelihood, X, data.y, **more)


# On the CPU


@pytest.mark.parametrize(
    ("architecture", "likelihood", "dtype"),
    problems.balanced(itertools.product(problems.ARCHITECTURES, ("gaussian", "categorical")), ("float32", "float64")),
)
def test_bytes_give_the_bits_of_floats(architecture: str, likelihood: str, dtype: str) -> None:
    X = random_bytes(301, 5)
    of_bytes, of_floats = (posterior(x, likelihood, architecture, dtype=dtype) for x in (X, X.astype(dtype)))
    assert of_bytes.data.X.dtype == np.uint8
    np.testing.assert_array_equal(of_bytes.data.X, X)
    theta = 0.9 * of_bytes.theta_map + 0.01
    value, gradient = of_floats.log_likelihood_and_grad(theta)
    found, slope = of_bytes.log_likelihood_and_grad(theta)
    assert found == value
    np.testing.assert_array_equal(slope, gradient)
    assert of_bytes.sampled.fit_quality == of_floats.sampled.fit_quality
    np.testing.assert_array_equal(of_bytes.network.predict(theta, X[:7]), of_floats.network.predict(theta, X[:7]))


@pytest.mark.parametrize("copy", [False, True])
def test_bytes_in_any_order(copy: bool) -> None:
    X = random_bytes(130, 4)
    apart = np.zeros((260, 9), np.uint8)
    apart[::2, 2:6] = X
    theta = posterior(X).theta_map
    expected = posterior(X.astype(np.float32)).log_likelihood(theta)
    for other in (X, np.asfortranarray(X), apart[::2, 2:6], X[::-1][::-1]):
        post = posterior(other, copy=copy)
        assert post.log_likelihood(theta) == expected
        assert np.shares_memory(post.data.X, other) is not copy


@pytest.mark.parametrize("X", [np.ones((4, 3), bool), np.ones((4, 3), np.int8), np.ones((4, 3), np.int64)], ids=str)
def test_other_whole_numbers_become_float64(X: npt.NDArray[Any]) -> None:
    assert posterior(X).data.X.dtype == np.float64


@pytest.mark.parametrize("place", ["host", "device"])
def test_what_is_computed_beside_the_chains(place: str) -> None:
    """Statistics of a last layer, its exact posterior, and the start of a sampled variance."""
    from test_device_inputs import OnDevice

    X, net, y = random_bytes(90, 6), network((6, 9, 1)), problems.rng_of("y").normal(size=90)
    given = OnDevice(X) if place == "device" else X
    for likelihood in (pn.Gaussian(0.5), pn.Gaussian("sampled", a=2.0, b=1.0)):
        of_bytes, of_floats = (
            pn.Posterior(net, pn.Out(4), problems.PRIOR, likelihood, x, y) for x in (given, X.astype(np.float64))
        )
        assert of_bytes.sampled.law.initial == of_floats.sampled.law.initial
        ours, theirs = (pn.sample(post, seed=1, draws=5, progress=False) for post in (of_bytes, of_floats))
        np.testing.assert_array_equal(ours.theta, theirs.theta)


def test_wrong_shapes_are_told_as_ever() -> None:
    for X, message in (
        (random_bytes(3, 4), r"X must have 5 columns, one for each input of the network; got 4"),
        (random_bytes(0, 5), "X has no rows"),
    ):
        with pytest.raises(ValueError, match=message):
            pn.Posterior(network((5, 3, 1)), pn.Full(), problems.PRIOR, pn.Gaussian(1.0), X, np.zeros(len(X)))


# On a device


SHAPES = {"one tile": (20, 5), "several": (301, 5), "wide": (900, 300)}


@pytest.mark.parametrize(
    ("architecture", "shape", "dtype"),
    problems.balanced(itertools.product(("full", "mix", "sep", "custom"), SHAPES), ("float32", "float64")),
)
def test_a_device_gets_the_bits_of_floats(architecture: str, shape: str, dtype: str, device: str) -> None:
    X = random_bytes(*SHAPES[shape])
    models = [posterior(x, "categorical", architecture, dtype=dtype) for x in (X, X.astype(dtype))]
    theta = np.stack([models[0].theta_map, 0.9 * models[0].theta_map]).astype(dtype)
    (value, gradient), (expected, slope) = (
        post.sampled.compiled.on_device(device).log_likelihood_and_grad(theta) for post in models
    )
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(gradient, slope)


@pytest.mark.parametrize("kind", ["bytes", "floats"])
def test_blocks_alone_read_a_wide_layer_that_others_shared(kind: str, device: str) -> None:
    """40 chains are a block each and read tiles, which are made of what the shared evaluations read."""
    X: npt.NDArray[Any] = random_bytes(700, 300)
    if kind == "floats":
        X = X.astype(np.float32) + np.float32(0.5)
    post = posterior(X, "categorical")
    model = post.sampled.compiled.on_device(device)
    assert model.layout(False, 1)["wide_inputs"] == kind and model.layout(False, 40)["wide_inputs"] == "none"
    theta = (post.theta_map * np.linspace(0.5, 1.0, 40)[:, None]).astype(np.float32)
    before = model.bytes
    shared, slope = model.log_likelihood_and_grad(theta[:2])
    assert model.bytes == before
    alone, gradient = model.log_likelihood_and_grad(theta)
    tiles = -(-len(X) // model.layout(False, 1)["tile_rows"])
    assert model.bytes - before >= 4 * X.size and model.bytes - before < 4 * X.size * (1 + 2 / tiles)
    # Both are float32 evaluations: the bounds of tests/test_device_rows.py.
    expected, right = post.log_likelihood_and_grad(theta)
    np.testing.assert_allclose(alone, expected, rtol=1e-6)
    np.testing.assert_allclose(shared, alone[:2], rtol=1e-6)
    for found in (gradient, slope):
        error = np.linalg.norm(found - right[: len(found)], axis=1) / np.linalg.norm(right[: len(found)], axis=1)
        assert (error <= 1e-5).all()
    np.testing.assert_array_equal(model.log_likelihood_and_grad(theta[:2])[1], slope)


def test_data_sets_of_bytes_beside_others(device: str) -> None:
    """The inputs of the posteriors of one run may have different dtypes."""
    X = random_bytes(150, 4)
    posts = [posterior(X), posterior(X.astype(np.float32)), posterior(X.astype(np.float32) + 0.5)]
    arguments: dict[str, Any] = {"draws": 3, "warmup": None, "device": device, "progress": False, "init": "map"}
    kernel = pn.PCNL(1e-7)  # of which some moves are taken
    together = pn.sample_many(posts, kernel, chains=1, seed=2, **arguments)
    for draws, post, seed in zip(together, (posts[1], *posts[1:]), (2, 3, 4), strict=True):
        alone = pn.sample(post, kernel, chains=1, seed=seed, **arguments)
        np.testing.assert_array_equal(draws.theta, alone.theta)
        np.testing.assert_array_equal(draws.stats["log_likelihood"], alone.stats["log_likelihood"])
        assert draws.stats["acceptance_rate"].any()


@pytest.mark.parametrize(("kind", "max_copies"), [("bytes", 2.0), ("floats of bytes", 2.0), ("floats", 8.0)])
def test_a_wide_layer_is_kept_by_rows_and_by_features_alone(kind: str, max_copies: float, device: str) -> None:
    """Twice, in sizes of the inputs as bytes; padding, targets, weights and plan are the rest."""
    X: npt.NDArray[Any] = random_bytes(3000, 640)
    given = {"bytes": X, "floats of bytes": X.astype(np.float32), "floats": X.astype(np.float32) + np.float32(0.5)}[
        kind
    ]
    post = posterior(given, "categorical")
    parameters = 8 * (post.dim + 64)  # an index and a value for each
    rows = 4 * 2 * 1.1 * len(X)
    assert (
        0
        < post.sampled.compiled.on_device(device).bytes - max_copies * X.nbytes
        <= 0.1 * max_copies * X.nbytes + parameters * 4 + rows
    )


def test_few_rows_of_a_wide_layer_are_kept_the_same_way(device: str) -> None:
    """Blocks share the features of few rows as they share the rows of many."""
    X = random_bytes(20, 640)
    post = posterior(X, "categorical")
    model = post.sampled.compiled.on_device(device)
    assert model.layout(False, 1)["wide_inputs"] == "bytes"
    padded = (20 + 32) * 640 + (641 + 32) * 64  # bytes by rows and by features
    before = model.bytes
    assert padded <= before <= 1.1 * padded + 16 * post.dim
    model.log_likelihood_and_grad(post.theta_map[None].astype(np.float32))
    assert model.bytes == before


MEMORY = """
    import sys
    import numpy as np
    import patrac_native as pn

    def now(name):
        lines = open("/proc/self/status").read().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    n, d = 60_000, 512
    rng = np.random.default_rng(0)
    net = pn.Network([rng.normal(size=(8, d)) / 4000, rng.normal(size=(3, 8))], [np.zeros(8), np.zeros(3)])
    X, y = rng.integers(0, 256, (n, d), dtype=np.uint8), rng.integers(0, 3, n)
    start = now("VmRSS")
    post = pn.Posterior(net, pn.Full(), pn.TraceClassPrior(1.5, 2.0, 0.5), pn.Categorical(), X, y, copy=False)
    print((now("VmHWM") - start) / X.nbytes)
    open("/proc/self/clear_refs", "w").write("5")  # the peak from here on
    start = now("VmRSS")
    model = post.sampled.compiled.on_device("emulated:1")
    print((now("VmHWM") - start) / X.nbytes, (now("VmRSS") - start) / X.nbytes)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_in_sizes_of_the_bytes() -> None:
    """The engine's tiles are floats, 4, and some numbers a row; the device holds the inputs twice, and the host once
    more while they go there. Inputs that became floats on their way would add 4 or 8."""
    engine, going, staying = printed_numbers(MEMORY)
    assert engine <= 5.0 and going <= 3.5 and staying <= 2.5
