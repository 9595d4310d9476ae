"""Blocks of several warps, as a GPU runs them: sums across warps, and threads without work, on every path.

A warp of an emulated block waits for its own threads alone when they exchange values, as on a GPU; tests/test_races.py
has the sanitizer look at blocks of two warps.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from conftest import usable_or_skip
from patrac_native.engine import _core
from patrac_native.sampling.warmup import Phase
from test_device import check
from test_device_chains import ERROR_64, KERNELS, assert_same_chains, posterior, run
from test_device_rows import WIDE_ERROR, check_against_reference, many_rows, two_starts, wide_problem


@pytest.fixture(params=["emulated:64", "emulated:128", "cuda"])
def block(request: pytest.FixtureRequest) -> str:
    """Return devices with blocks of two and of four warps, and a GPU, which chooses by the work of a block."""
    return usable_or_skip(request.param)


EMULATED = problems.balanced(
    itertools.product(problems.ARCHITECTURES, problems.LIKELIHOODS),
    ("float32", "float64"),
    ("emulated:64", "emulated:128"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "likelihood", "dtype", "block"),
    [*EMULATED, *((*model, "cuda") for *model, _ in EMULATED)],
    indirect=["block"],
)
def test_log_likelihood_and_gradient(architecture: str, likelihood: str, dtype: str, block: str) -> None:
    rng = problems.rng_of("warps", architecture, likelihood, dtype)
    check(
        problems.problem(rng, (3, 17, 6, 3), 97, architecture, likelihood, activation="silu", dtype=dtype),
        block,
    )


@pytest.mark.parametrize("rows", [1, 5, 31, 300])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 3, 1), (18, 50, 37, 3)], ids=str)
def test_few_sums_and_many(sizes: tuple[int, ...], rows: int, block: str) -> None:
    """In some blocks most threads have no work; in others each thread has several tiles of sums."""
    check(problems.problem(problems.rng_of("few", sizes, rows), sizes, rows, dtype="float32"), block)


def test_normals(block: str) -> None:
    where: dict[str, Any] = {"seed": 5, "chain": 1, "step": 9, "purpose": _core.Purpose.proposal}
    expected = _core.standard_normals64(**where, steps=1, count=1001, level=_core.default_simd_level())[0]
    np.testing.assert_array_equal(_core.device_normals64(**where, device=block, count=1001), expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_chains_of_a_block_each(kernel: str, block: str) -> None:
    post, more = posterior("categorical"), {"chains": 2, "draws": 3}
    assert_same_chains(run(post, KERNELS[kernel], block, **more), run(post, KERNELS[kernel], "cpu", **more), ERROR_64)


def test_a_warmup_that_ends_by_itself() -> None:
    """With this seed the chains disagree when they are compared first, and agree eight steps later."""
    warmup = pn.Warmup((Phase(32, target=0.6, first_look=8, average=True), Phase(2)))
    post, more = posterior("categorical"), {"chains": 2, "draws": 3, "warmup": warmup, "seed": 14}
    found, expected = (run(post, KERNELS["persistent"], where, **more) for where in ("emulated:64", "cpu"))
    assert expected.settings["warmup_stable"] and expected.settings["warmup_steps"] == 16 + 2
    assert_same_chains(found, expected, ERROR_64)


@pytest.mark.parametrize("architecture", ["full", "mix", "sep", "custom"])
@pytest.mark.parametrize("likelihood", ["gaussian", "gaussian_by_output"])
def test_collapsed_chains(likelihood: str, architecture: str, block: str) -> None:
    rng = problems.rng_of("collapsed warps", architecture, likelihood)
    post = problems.problem(rng, (3, 9, 6, 3), 70, architecture, likelihood).post
    init = rng.normal(size=(1, post.dim)) * np.sqrt(post.prior_variance)
    kernel, more = pn.MGrad(1e-3, collapse=True, persistence=0.9), {"chains": 1, "draws": 4, "init": init}
    found, expected = (run(post, kernel, where, **more) for where in (block, "cpu"))
    assert_same_chains(found, expected, ERROR_64)
    assert expected.stats["acceptance_rate"].any()


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", problems.LIKELIHOODS)
def test_evaluations_that_blocks_share(likelihood: str, block: str) -> None:
    check_against_reference(many_rows(likelihood, "mix", "float64"), block)


@pytest.mark.slow
@pytest.mark.parametrize("persistence", [0.0, 0.9])
def test_chains_that_share_blocks(persistence: float, block: str) -> None:
    post = many_rows("gaussian", "full", "float64").post
    kernel, more = pn.MGrad(0.0002, persistence=persistence), {"draws": 3, "chains": 2, "init": two_starts(post)}
    found, expected = (run(post, kernel, where, **more) for where in (block, "cpu"))
    assert expected.stats["acceptance_rate"].any()
    np.testing.assert_allclose(found.theta, expected.theta, rtol=0, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", ["bytes", "floats"])
@pytest.mark.parametrize("device", ["emulated:8", "emulated:64", "cuda"], indirect=True)
def test_a_wide_first_layer(inputs: str, device: str) -> None:
    """Each emulated thread plays a warp here: eight are the blocks of a GPU, and 64 leave most without rows."""
    problem = wide_problem("full", (300, 70, 3), 1100, inputs)
    right, slope = problem.reference_value(), problem.reference_gradient()
    model = problem.post.sampled.compiled.on_device(device)
    value, gradient = model.log_likelihood_and_grad(problem.theta[None].astype(np.float32))
    assert model.layout(False)["wide_inputs"] == inputs
    assert abs(value[0] - right) <= 1e-6 * abs(right)
    assert np.linalg.norm(gradient[0] - slope) <= WIDE_ERROR * np.linalg.norm(slope)
