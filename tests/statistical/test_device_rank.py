"""Exact rank tests of the chains on a device; the same chains without their accept test must be rejected."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from rank_test import LEVEL, native_blocks, native_chain, native_variance_chain, smallest_p
from test_calibration import BY_OUTPUT, SAMPLED, mix, sampled
from test_rank import DTYPES, MGRAD_DELTA, PCNL_DELTA, PROBLEMS, REPLICATES, THIN, accept_all_chain, gaussian

import patrac_native as pn
from conftest import one_thread_and_cuda

# Runs with noise that persists are blocks, see native_blocks(); test_persistence.py has their power.
BLOCK_STEPS, BLOCK_STATES, BLOCK_REPLICATES = 6, 8, 400


@pytest.mark.slow
@one_thread_and_cuda
@pytest.mark.parametrize(("name", "dtype"), list(zip(PROBLEMS, (*DTYPES, *DTYPES), strict=False)))
def test_pcnl_passes(name: str, dtype: str, device: str) -> None:
    chain = native_chain(pn.PCNL(PCNL_DELTA[name]), THIN, device)
    assert smallest_p(PROBLEMS[name](dtype), chain, seed=41) > LEVEL


@pytest.mark.slow
@one_thread_and_cuda
@pytest.mark.parametrize(("name", "dtype"), list(zip(PROBLEMS, (*DTYPES[::-1], *DTYPES), strict=False)))
def test_persistent_mgrad_passes(name: str, dtype: str, device: str) -> None:
    chain = native_blocks(pn.MGrad(MGRAD_DELTA[name], persistence=0.9), BLOCK_STEPS, device)
    p = smallest_p(PROBLEMS[name](dtype), chain, replicates=BLOCK_REPLICATES, n_states=BLOCK_STATES, seed=42)
    assert p > LEVEL


@pytest.mark.slow
@one_thread_and_cuda
def test_accept_all_is_rejected(device: str) -> None:
    chain = partial(accept_all_chain, device=device)
    assert smallest_p(gaussian("float64"), chain, replicates=REPLICATES // 2, seed=43) < LEVEL


@pytest.mark.slow
@one_thread_and_cuda
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("kernel", ["pcnl", "collapsed mgrad"])
def test_kernels_pass_with_a_variance_of_each_output(kernel: str, every: int, device: str) -> None:
    problem = sampled(mix("float32" if every == 1 else "float64"), BY_OUTPUT)
    chain = native_variance_chain(SAMPLED[kernel], 3, device, every=every)
    assert smallest_p(problem, chain, seed=44) > LEVEL


@pytest.mark.slow
@one_thread_and_cuda
def test_a_chain_with_the_variances_of_other_outputs_is_rejected(device: str) -> None:
    """The device's chain of a wrong model: each output has the prior of the other's variance."""
    inner = native_variance_chain(SAMPLED["pcnl"], 6, device, every=3)
    wrong = pn.Gaussian("sampled", a=BY_OUTPUT[0], b=BY_OUTPUT[1][::-1])

    def chain(post: pn.Posterior, theta: Any, states: int, rng: np.random.Generator) -> Any:
        return inner(post.with_targets(post.data.y, likelihood=wrong), theta, states, rng)

    assert smallest_p(sampled(mix("float64"), BY_OUTPUT), chain, seed=45) < LEVEL
