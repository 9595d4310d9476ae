"""Exact rank tests of metric="inputs", with step sizes that differ by coordinate; broken twins must be rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from rank_test import QUANTITIES, Problem, native_blocks, native_chain, p_values, ranks
from test_rank import PRIOR, small_network
from twins import mgrad_h, mgrad_move

import patrac_native as pn

Array = npt.NDArray[Any]

# Power, measured once: the p-value of the broken twin was 4e-27 with 400 replicates.
THIN, N_STATES, REPLICATES = 20, 8, 400
LEVEL = 1e-4 / len(QUANTITIES)
DELTA = 0.04
HALF_BACK = "half the factors in the reverse density"

KERNELS: dict[str, pn.Kernel] = {
    "pcnl": pn.PCNL(0.02, metric="inputs"),
    "mgrad": pn.MGrad(DELTA, metric="inputs"),
    "collapsed mgrad": pn.MGrad(DELTA, metric="inputs", collapse=True),
}


def correlated(dtype: str) -> Problem:
    """All parameters of 3-3-1, 10 rows that lie along a line: factors of the axes 5.5, 2.2 and 0.5."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-2, 2, (10, 1)) + 0.7 * rng.normal(size=(10, 3))
    net, point = small_network([3, 3, 1], 4, 0.7), np.array([[0.7, 0.5, 0.6]])
    return Problem(net, pn.Full(), PRIOR, pn.Gaussian(0.2), X, point, dtype)


def twin(fault: str | None = None) -> Any:
    """mGrad with the metric in NumPy, right or broken."""

    def run(post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        metric, c = post.sampled.input_metric, post.prior_variance
        step = DELTA * metric.step_factor(pn.MGrad())
        back = step / 2 if fault == HALF_BACK else step

        def evaluate(u: Array) -> tuple[float, Array]:
            own = u[None].copy()
            metric.restore(own)
            value, g = post.log_likelihood_and_grad(own, threads=1)
            # The rotation is orthogonal, so gradients rotate as theta does.
            return float(np.asarray(value)[0]), metric.rotated(g)[0]

        u, kept = metric.rotated(theta[None].astype(np.float64))[0], []
        value, g = evaluate(u)
        for number in range(states * THIN):
            v = mgrad_move(u, g, c, step, rng)  # type: ignore[arg-type]
            l_v, g_v = evaluate(v)
            log_ratio = l_v - value + mgrad_h(u, v, g_v, c, back) - mgrad_h(v, u, g, c, step)  # type: ignore[arg-type]
            if np.log(rng.random()) < log_ratio:
                u, value, g = v, l_v, g_v
            if (number + 1) % THIN == 0:
                kept.append(u)
        found = np.asarray(kept)
        metric.restore(found)
        return found

    return run


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_compiled_kernels_pass(kernel: str, dtype: str) -> None:
    chain = native_chain(KERNELS[kernel], THIN)
    found = ranks(correlated(dtype), chain, replicates=REPLICATES, n_states=N_STATES, seed=51)
    assert (p_values(found, N_STATES) > LEVEL).all()


@pytest.mark.slow
@pytest.mark.parametrize("collapse", [False, True])
def test_persistent_steps_pass(collapse: bool) -> None:
    kernel = pn.MGrad(DELTA, metric="inputs", collapse=collapse, persistence=0.9)
    chain = native_blocks(kernel, THIN)
    found = ranks(correlated("float64"), chain, replicates=REPLICATES, n_states=N_STATES, seed=52)
    assert (p_values(found, N_STATES) > LEVEL).all()


@pytest.mark.slow
def test_steps_with_sampled_scales_pass() -> None:
    problem = replace(correlated("float64"), prior=pn.GaussianPrior(scales="sampled"))
    chain = native_chain(pn.MGrad(DELTA, metric="inputs"), THIN)
    found = ranks(problem, chain, replicates=REPLICATES, n_states=N_STATES, seed=53)
    assert (p_values(found, N_STATES) > LEVEL).all()


@pytest.mark.slow
@pytest.mark.parametrize("device", ["emulated:1", "cuda"], indirect=True)
def test_persistent_steps_pass_on_a_device(device: str) -> None:
    chain = native_blocks(pn.MGrad(DELTA, metric="inputs", persistence=0.9), THIN, device)
    found = ranks(correlated("float64"), chain, replicates=REPLICATES, n_states=N_STATES, seed=54)
    assert (p_values(found, N_STATES) > LEVEL).all()


@pytest.mark.slow
def test_the_right_twin_passes() -> None:
    found = ranks(correlated("float64"), twin(), replicates=REPLICATES, n_states=N_STATES, seed=55)
    assert (p_values(found, N_STATES) > LEVEL).all()


@pytest.mark.slow
def test_a_broken_twin_is_rejected() -> None:
    found = ranks(correlated("float64"), twin(HALF_BACK), replicates=REPLICATES, n_states=N_STATES, seed=56)
    assert p_values(found, N_STATES).min() < LEVEL
