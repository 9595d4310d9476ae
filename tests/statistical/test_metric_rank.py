"""Exact rank tests of both metrics, whose step sizes differ by axis; broken twins must be rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from rank_test import LEVEL, Problem, native_blocks, native_chain, network, smallest_p
from test_rank import PRIOR

import patrac_native as pn
from problems import balanced
from reference import mgrad_h, mgrad_proposal

Array = npt.NDArray[Any]

# Power, measured once: the largest p-value of the broken twins was 4e-27 with 400 replicates.
THIN, N_STATES, REPLICATES = 20, 8, 400
DELTA = {"inputs": 0.04, "curvature": 0.1}
KERNELS: dict[str, pn.Kernel] = {
    "pcnl": pn.PCNL(0.02, metric="inputs"),
    "mgrad": pn.MGrad(DELTA["inputs"], metric="inputs"),
    "collapsed mgrad": pn.MGrad(DELTA["inputs"], metric="inputs", collapse=True),
    "pcnl, curvature": pn.PCNL(0.1, metric="curvature"),
    "mgrad, curvature": pn.MGrad(DELTA["curvature"], metric="curvature"),
    "collapsed mgrad, curvature": pn.MGrad(DELTA["curvature"], metric="curvature", collapse=True),
}
HALF_BACK = "half the factors in the reverse density"
STRETCHED = "axes a quarter too long, so that the prior is not kept"
UNROTATED_GRADIENT = "the gradient's share of the reverse density without the rotation"


def correlated(dtype: str) -> Problem:
    """All parameters of 3-3-1, 10 rows that lie along a line: factors of the axes 5.5, 2.2 and 0.5."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-2, 2, (10, 1)) + 0.7 * rng.normal(size=(10, 3))
    return Problem(
        network([3, 3, 1], 4, 0.7), pn.Full(), PRIOR, pn.Gaussian(0.2), X, np.array([[0.7, 0.5, 0.6]]), dtype
    )


def passes(chain: Any, seed: int, problem: Problem | None = None) -> bool:
    """Whether the ranks of a chain may be uniform."""
    tested = correlated("float64") if problem is None else problem
    return smallest_p(tested, chain, replicates=REPLICATES, n_states=N_STATES, seed=seed) > LEVEL


def axes(post: pn.Posterior, kernel: pn.Kernel) -> tuple[Array, Array, Array]:
    """T and c, theta = T x with x ~ N(0, c), and the orthogonal part of T."""
    metric = post.sampled.metric_of(kernel)
    assert metric is not None
    rotation = np.eye(post.dim)
    if kernel.metric == "inputs":
        metric.restore(rotation)
        return rotation.T, np.asarray(post.prior_variance), rotation.T
    for first, A, B in metric.rotation(kernel):
        end = first + len(A) * len(B)
        rotation[first:end, first:end] = np.kron(A, B)
    return np.sqrt(np.asarray(post.prior_variance))[:, None] * rotation, np.ones(post.dim), rotation


def twin(kind: str, fault: str | None = None) -> Any:
    """mGrad with a metric in NumPy, right or broken."""

    def run(post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        kernel: Any = pn.MGrad(metric=kind)  # type: ignore[arg-type]
        metric = post.sampled.metric_of(kernel)
        assert metric is not None
        T, c, rotation = axes(post, kernel)
        if fault == STRETCHED:
            T = 1.25 * T
        step = DELTA[kind] * metric.step_factor(kernel)
        back = step / 2 if fault == HALF_BACK else step

        def evaluate(x: Array) -> tuple[float, Array]:
            value, g = post.log_likelihood_and_grad(T @ x, threads=1)
            return float(np.asarray(value)), T.T @ np.asarray(g)

        u, kept = np.linalg.solve(T, theta.astype(np.float64)), []
        value, g = evaluate(u)
        for number in range(states * THIN):
            v = mgrad_proposal(u, g, c, rng.standard_normal(len(u)), step)  # type: ignore[arg-type]
            l_v, g_v = evaluate(v)
            g_back = rotation @ g_v if fault == UNROTATED_GRADIENT else g_v
            log_ratio = l_v - value + mgrad_h(u, v, g_back, c, back) - mgrad_h(v, u, g, c, step)  # type: ignore[arg-type]
            if np.log(rng.random()) < log_ratio:
                u, value, g = v, l_v, g_v
            if (number + 1) % THIN == 0:
                kept.append(T @ u)
        return np.asarray(kept)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "dtype"), balanced([(name,) for name in KERNELS], ("float32", "float64")))
def test_compiled_kernels_pass(kernel: str, dtype: str) -> None:
    assert passes(native_chain(KERNELS[kernel], THIN), 51, correlated(dtype))


@pytest.mark.slow
@pytest.mark.parametrize("collapse", [False, True])
@pytest.mark.parametrize("kind", DELTA)
def test_persistent_steps_pass(kind: Any, collapse: bool) -> None:
    assert passes(native_blocks(pn.MGrad(DELTA[kind], metric=kind, collapse=collapse, persistence=0.9), THIN), 52)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DELTA)
def test_steps_with_sampled_scales_pass(kind: Any) -> None:
    problem = replace(correlated("float64"), prior=pn.GaussianPrior(scales="sampled"))
    assert passes(native_chain(pn.MGrad(DELTA[kind], metric=kind), THIN), 53, problem)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["emulated:1", "cuda"], indirect=True)
def test_persistent_steps_pass_on_a_device(device: str) -> None:
    assert passes(native_blocks(pn.MGrad(DELTA["inputs"], metric="inputs", persistence=0.9), THIN, device), 54)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DELTA)
def test_right_twins_pass(kind: str) -> None:
    assert passes(twin(kind), 55)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "fault"), [("inputs", HALF_BACK), ("curvature", STRETCHED), ("curvature", UNROTATED_GRADIENT)]
)
def test_broken_twins_are_rejected(kind: str, fault: str) -> None:
    assert not passes(twin(kind, fault), 56)
