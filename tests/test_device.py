"""One step on a device: the noise equals the CPU's bit by bit, and l and g agree with the oracle to rounding."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import problems
from patrac_native.engine import _core
from problems import ACTIVATIONS, ARCHITECTURES, LIKELIHOODS, Problem
from rounding import error_bounds

DTYPES = ("float32", "float64")
# Of the gradient's norm, in float32: what is asked of the device. The bounds of `rounding` hold entry by entry.
GRADIENT_ERROR_32 = 1e-5


# Noise


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 1001])
@pytest.mark.parametrize(
    ("seed", "chain", "step", "purpose"),
    [
        (0, 0, 0, 0),
        (1, 3, 17, 0),
        (2**32 - 1, 2**32 - 1, 2**32 + 5, 2),
        (2**32, 4095, 1, 0),
        (2**40 + 9, 2, 2**63, 65535),
        (2**64 - 1, 1, 7, 1),
    ],
)
def test_normals_are_the_cpus_to_the_last_bit(
    seed: int, chain: int, step: int, purpose: int, count: int, dtype: str, device: str
) -> None:
    of_device: Callable[..., npt.NDArray[Any]] = getattr(_core, f"device_normals{dtype[-2:]}")
    of_cpu: Callable[..., npt.NDArray[Any]] = getattr(_core, f"standard_normals{dtype[-2:]}")
    where: dict[str, Any] = {"seed": seed, "chain": chain, "step": step, "purpose": _core.Purpose(purpose)}
    level = _core.default_simd_level()
    expected = of_cpu(**where, steps=1, count=count, level=level)[0]
    np.testing.assert_array_equal(of_device(**where, device=device, count=count), expected)
    assert not np.array_equal(of_device(**where | {"step": step + 1}, device=device, count=count), expected)


# Log-likelihood and gradient


def check(problem: Problem, device: str) -> dict[str, Any]:
    """Compare l and g at problem.theta with the oracle; return the layout of the chains."""
    post = problem.post
    model = post.sampled.compiled.on_device(device)
    # Two chains evaluate the same point, and the first must not affect the second.
    theta = np.stack([problem.theta, problem.theta]).astype(post.network.dtype)
    value, gradient = model.log_likelihood_and_grad(theta)
    assert value[0] == value[1] and np.array_equal(gradient[0], gradient[1])

    expected, bounds = (
        problem.reference_gradient(),
        error_bounds(problem, 0.5 * float(np.finfo(post.network.dtype).eps)),
    )
    # The oracle's own roundings, in float64, add about as much again as the device's in float64.
    oracle = error_bounds(problem, 0.5 * float(np.finfo(np.float64).eps))
    error = np.abs(gradient[0] - expected)
    assert (error <= bounds.gradient + oracle.gradient).all()
    assert abs(value[0] - problem.reference_value()) <= bounds.value + oracle.value
    if post.network.dtype == np.float32:
        assert np.linalg.norm(error) <= GRADIENT_ERROR_32 * np.linalg.norm(expected)
    layout: dict[str, Any] = model.layout(False)
    return layout


@pytest.mark.parametrize(
    ("architecture", "likelihood", "activation", "dtype"),
    problems.balanced(itertools.product(ARCHITECTURES, LIKELIHOODS), ACTIVATIONS, DTYPES),
)
def test_log_likelihood_and_gradient(
    architecture: str, likelihood: str, activation: str, dtype: str, device: str
) -> None:
    rng = problems.rng_of("device", architecture, likelihood, activation, dtype)
    sizes = problems.widths_for(rng, architecture, likelihood)
    n = int(rng.choice([1, 2, 3, 5, 7, 9, 29, 57, 67, 130]))
    check(
        problems.problem(rng, sizes, n, architecture, likelihood, activation=activation, dtype=dtype),
        device,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["tanh", "gelu"])
@pytest.mark.parametrize("architecture", ["full", "mix", "sep"])
def test_rows_beyond_one_tile(architecture: str, activation: str, dtype: str, device: str) -> None:
    """700 rows are several tiles, the last of them not full."""
    rng = problems.rng_of("tiles", architecture, activation, dtype)
    problem = problems.problem(rng, (3, 9, 6, 2), 700, architecture, activation=activation, dtype=dtype)
    layout = check(problem, device)
    assert layout["tile_rows"] < 700 and layout["in_shared_memory"]


@pytest.mark.parametrize("likelihood", ["gaussian", "categorical"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_wide_layers(likelihood: str, dtype: str, device: str) -> None:
    """Layers of 16 nodes and more go through the tiles of four nodes by four, with a rest on either side."""
    rng = problems.rng_of("wide", likelihood, dtype)
    check(problems.problem(rng, (18, 50, 37, 3), 101, likelihood=likelihood, dtype=dtype), device)


@pytest.mark.parametrize("threads", [1, 2, 8, 32])
@pytest.mark.parametrize("rows", [5, 90])
def test_blocks_of_every_size(rows: int, threads: int) -> None:
    """If there are more threads than sums they share the rows of a sum; otherwise each computes several sums."""
    problem = problems.problem(problems.rng_of("blocks", rows), (3, 17, 5, 2), rows, dtype="float32")
    check(problem, f"emulated:{threads}")


@pytest.mark.parametrize(
    ("sizes", "in_shared_memory"), [((5, 20, 10, 1), True), ((80, 80, 40, 1), False)], ids=["shared", "not shared"]
)
@pytest.mark.parametrize("persists", [False, True])
def test_the_workspace_is_in_shared_memory_where_it_fits(
    sizes: tuple[int, ...], in_shared_memory: bool, persists: bool, device: str
) -> None:
    """9,761 parameters in float64, each four or five times, are 312 KB: more than any device shares in a block."""
    problem = problems.problem(problems.rng_of("workspace", sizes), sizes, 40)
    check(problem, device)
    layout, status = problem.post.sampled.compiled.on_device(device).layout(persists, 1), _core.device_status(device)
    assert layout["in_shared_memory"] == in_shared_memory == (layout["workspace_bytes"] <= status["shared_bytes"])
    without = problem.post.sampled.compiled.on_device(device).layout(False, 1)["workspace_bytes"]
    # Up to a whole four.
    assert layout["workspace_bytes"] - without == (8 * -(-problem.post.dim // 4) * 4 if persists else 0)


def test_the_test_of_gradients_can_fail(device: str) -> None:
    """The test detects a device that rounds each weight to half precision."""
    problem = problems.problem(problems.rng_of("broken"), (4, 12, 8, 1), 30, dtype="float32")
    rounded = problem.theta.astype(np.float16).astype(np.float32)[None]
    gradient = problem.post.sampled.compiled.on_device(device).log_likelihood_and_grad(rounded)[1][0]
    expected = problem.reference_gradient()
    assert np.linalg.norm(gradient - expected) > GRADIENT_ERROR_32 * np.linalg.norm(expected)


def test_a_device_model_is_made_once() -> None:
    post = problems.problem(problems.rng_of("once"), (2, 3, 1), 5).post
    assert post.sampled.compiled.on_device("emulated:1") is post.sampled.compiled.on_device("emulated:1")
    assert isinstance(post.sampled.compiled.on_device("emulated:1"), _core.DeviceModel64)
