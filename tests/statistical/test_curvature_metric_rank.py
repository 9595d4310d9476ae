"""Exact rank tests of metric="curvature", whose steps differ by axis; broken twins must be rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from rank_test import native_blocks, native_chain, p_values, ranks
from test_input_metric_rank import LEVEL, N_STATES, REPLICATES, THIN, correlated
from twins import mgrad_h, mgrad_move

import patrac_native as pn

Array = npt.NDArray[Any]

# Power, measured once: the smallest p-values of the broken twins were 9e-46 and 1e-34.
DELTA = 0.1
STRETCHED = "axes a quarter too long, so that the prior is not kept"
UNROTATED_GRADIENT = "the gradient's share of the reverse density without the rotation"

KERNELS: dict[str, pn.Kernel] = {
    "pcnl": pn.PCNL(0.1, metric="curvature"),
    "mgrad": pn.MGrad(DELTA, metric="curvature"),
    "collapsed mgrad": pn.MGrad(DELTA, metric="curvature", collapse=True),
}


def twin(fault: str | None = None) -> Any:
    """mGrad with the metric in NumPy, right or broken."""

    def run(post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        kernel = pn.MGrad(metric="curvature")
        metric = post.sampled.metric_of(kernel)
        assert metric is not None
        R = np.zeros((post.dim, post.dim))
        for first, A, B in metric.rotation(kernel):
            size = len(A) * len(B)
            R[first : first + size, first : first + size] = np.kron(A, B)
        if fault == STRETCHED:
            R *= 1.25
        deviation, c = np.sqrt(np.asarray(post.prior_variance)), np.ones(post.dim)
        step = DELTA * metric.step_factor(kernel)

        def evaluate(x: Array) -> tuple[float, Array]:
            value, g = post.log_likelihood_and_grad(deviation * (R @ x), threads=1)
            return float(np.asarray(value)), R.T @ (deviation * np.asarray(g))

        u, kept = np.linalg.solve(R, theta.astype(np.float64) / deviation), []
        value, g = evaluate(u)
        for number in range(states * THIN):
            v = mgrad_move(u, g, c, step, rng)  # type: ignore[arg-type]
            l_v, g_v = evaluate(v)
            g_back = R @ g_v if fault == UNROTATED_GRADIENT else g_v
            log_ratio = l_v - value + mgrad_h(u, v, g_back, c, step) - mgrad_h(v, u, g, c, step)  # type: ignore[arg-type]
            if np.log(rng.random()) < log_ratio:
                u, value, g = v, l_v, g_v
            if (number + 1) % THIN == 0:
                kept.append(deviation * (R @ u))
        return np.asarray(kept)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_compiled_kernels_pass(kernel: str, dtype: str) -> None:
    chain = native_chain(KERNELS[kernel], THIN)
    found = ranks(correlated(dtype), chain, replicates=REPLICATES, n_states=N_STATES, seed=61)
    assert (p_values(found, N_STATES) > LEVEL).all()


@pytest.mark.slow
@pytest.mark.parametrize("collapse", [False, True])
def test_persistent_steps_pass(collapse: bool) -> None:
    kernel = pn.MGrad(DELTA, metric="curvature", collapse=collapse, persistence=0.9)
    found = ranks(correlated("float64"), native_blocks(kernel, THIN), replicates=REPLICATES, n_states=N_STATES, seed=62)
    assert (p_values(found, N_STATES) > LEVEL).all()


@pytest.mark.slow
def test_steps_with_sampled_scales_pass() -> None:
    sampled = replace(correlated("float64"), prior=pn.GaussianPrior(scales="sampled"))
    chain = native_chain(pn.MGrad(DELTA, metric="curvature"), THIN)
    found = ranks(sampled, chain, replicates=REPLICATES, n_states=N_STATES, seed=63)
    assert (p_values(found, N_STATES) > LEVEL).all()


@pytest.mark.slow
def test_the_right_twin_passes() -> None:
    found = ranks(correlated("float64"), twin(), replicates=REPLICATES, n_states=N_STATES, seed=64)
    assert (p_values(found, N_STATES) > LEVEL).all()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [STRETCHED, UNROTATED_GRADIENT])
def test_broken_twins_are_rejected(fault: str) -> None:
    found = ranks(correlated("float64"), twin(fault), replicates=REPLICATES, n_states=N_STATES, seed=65)
    assert p_values(found, N_STATES).min() < LEVEL
