"""Many rows: what is copied, how much memory that takes, and inputs that the engine reads without a copy."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from scripts import printed_numbers

PRIOR = pn.TraceClassPrior(1.5, 2.0, 0.5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 13, 256, 1001])
@pytest.mark.parametrize("name", problems.ARCHITECTURES)
def test_inputs_read_in_place_give_the_same_bits(name: str, rows: int, dtype: str) -> None:
    rng = problems.rng_of("in place", name, rows)
    net = problems.random_network(rng, (3, 9, 8, 2))
    X, y = rng.normal(size=(rows, 3)).astype(dtype), rng.normal(size=(rows, 2))
    architecture = problems.architecture(name, rng, net)

    def evaluate(X: Any, copy: bool) -> tuple[Any, Any]:
        post = pn.Posterior(net, architecture, PRIOR, pn.Gaussian(0.5), X, y, dtype=dtype, copy=copy)
        return post.log_likelihood_and_grad(0.9 * post.theta_map + 0.1)

    value, gradient = evaluate(X, copy=True)
    wide = np.zeros((2 * rows, 7), dtype)
    wide[::2, 1:4] = X
    for other in (X, np.asfortranarray(X), wide[::2, 1:4], X[::-1][::-1], np.asfortranarray(X)[:, ::-1][:, ::-1]):
        other_value, other_gradient = evaluate(other, copy=False)
        assert other_value == value
        np.testing.assert_array_equal(other_gradient, gradient)


def posterior(X: Any, **arguments: Any) -> pn.Posterior:
    net = problems.random_network(problems.rng_of("large"), (X.shape[1], 5, 1))
    return pn.Posterior(net, pn.Full(), PRIOR, pn.Gaussian(1.0), X, np.zeros(len(X)), **arguments)


def test_in_place_means_no_copy_and_the_model_holds_the_array() -> None:
    X = np.asfortranarray(problems.rng_of("hold").normal(size=(5000, 4)).astype(np.float32))
    post = posterior(X, copy=False)
    assert np.shares_memory(post.data.X, X)
    # What the tiles hold beside the inputs: a target and a weight for each row, up to the last tile's padding.
    assert post.sampled.compiled.host.cached_bytes < posterior(X).sampled.compiled.host.cached_bytes - 0.9 * X.nbytes
    theta = post.theta_map
    before = post.log_likelihood(theta)
    X[:10] = 0
    assert post.log_likelihood(theta) != before
    model = post.sampled.compiled.host
    value = post.log_likelihood(theta)
    del X, post
    gc.collect()
    assert model.log_likelihood(theta.astype(np.float32)[None], 1)[0] == value


def test_a_copy_keeps_the_type_of_the_inputs() -> None:
    X = problems.rng_of("type").normal(size=(50, 4)).astype(np.float32)
    post = posterior(X)
    assert post.data.X.dtype == np.float32
    assert not np.shares_memory(post.data.X, X)
    assert posterior(X.astype(int)).data.X.dtype == np.float64


def test_inputs_at_odd_addresses_are_copied() -> None:
    """A packed record has columns whose strides are not multiples of the entries' size."""
    X = problems.rng_of("odd").normal(size=(20, 2)).astype(np.float32)
    record = np.zeros(20, dtype=[("flag", "i1"), ("values", "f4", (2,))])
    record["values"] = X
    other, plain = posterior(record["values"], copy=False), posterior(X)
    assert other.log_likelihood(plain.theta_map) == plain.log_likelihood(plain.theta_map)


MEMORY = """
    import sys
    import numpy as np
    import patrac_native as pn
    import problems

    def peak():
        lines = open("/proc/self/status").read().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    n, d = 1_000_000, 20
    net = problems.random_network(problems.rng_of("memory"), (d, 20, 20, 1))
    prior, y = pn.TraceClassPrior(1.5, 2.0, 0.5), np.zeros(n, np.float32)
    before = peak()
    X = np.ones((n, d), np.float32, order=sys.argv[1])
    post = pn.Posterior(net, ARCHITECTURE, prior, pn.Gaussian(1.0), X, y, copy=sys.argv[2] == "copy")
    pn.sample(post, pn.PCNL(1e-6), chains=1, draws=1, thin=2, warmup=None, seed=0, threads=1, progress=False)
    offsets = sum(layer["offsets"] for layer in post.plan().layers)
    print((peak() - before - 4 * n * offsets) / X.nbytes)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("architecture", "order", "copy", "max_copies"),
    [
        ("pn.Full()", "C", "no", 2.5),
        ("pn.Full()", "F", "no", 1.6),
        ("pn.Full()", "C", "copy", 3.5),
        ("pn.Mix(5)", "C", "no", 2.5),
    ],
)
def test_memory_in_sizes_of_the_inputs(architecture: str, order: str, copy: str, max_copies: float) -> None:
    """The inputs themselves count once; tiles hold them again with a target and a weight a row (1.1), y and the
    weights as float64 are 0.2. Beside so many rows, what the process allocates besides is less than 0.1."""
    (found,) = printed_numbers(MEMORY.replace("ARCHITECTURE", architecture), order, copy)
    assert found <= max_copies
