"""Exact rank tests: the compiled kernels pass on every likelihood, and kernels broken on purpose are rejected."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from rank_test import LEVEL, Problem, native_chain, network, smallest_p
from twins import GRADIENT_FAULTS, KERNELS, NO_SLICE, Twin

import patrac_native as pn
from patrac_native.sampling.warmup import Phase
from problems import balanced

THIN = 3
# 62 expected a rank, where the chi-square approximation holds. Power, measured once over 10 seeds: the largest p-value
# of any fault was 2e-9 (mGrad with the wrong sign), of the others 2e-21; that of accept-all, with half the replicates,
# 5e-15.
REPLICATES = 1000
PRIOR = pn.TraceClassPrior(1.5, 1.0, 0.5)


def gaussian(dtype: str) -> Problem:
    """All 10 parameters of 1-3-1, 8 rows; noise small enough that the gradient matters."""
    X = np.linspace(-2, 2, 8)[:, None]
    return Problem(network([1, 3, 1], 1, 1.0), pn.Full(), PRIOR, pn.Gaussian(0.2), X, np.array([[0.7]]), dtype)


def categorical(dtype: str) -> Problem:
    """Mix(2) on 2-4-4-3, 10 rows: fixed nodes above and below Bayesian ones, three classes."""
    X = np.random.default_rng(0).uniform(-2, 2, (10, 2))
    net, point = network([2, 4, 4, 3], 2, 1.0), np.array([[0.7, -0.3]])
    return Problem(net, pn.Mix(2), PRIOR, pn.Categorical(), X, point, dtype)


def bernoulli(dtype: str) -> Problem:
    """Sep(2) beside 2-4-4-1, 10 rows."""
    X = np.random.default_rng(1).uniform(-2, 2, (10, 2))
    net, point = network([2, 4, 4, 1], 3, 0.4), np.array([[0.7, -0.3]])
    return Problem(net, pn.Sep(2), PRIOR, pn.Bernoulli(), X, point, dtype)


DTYPES = ("float32", "float64")
PROBLEMS = {"gaussian": gaussian, "categorical": categorical, "bernoulli": bernoulli}
# Acceptance rates of about 0.5 (Gaussian and Categorical) and 0.75 (Bernoulli): rejections and moves both happen.
BETA = {"gaussian": 0.2, "categorical": 0.4, "bernoulli": 0.5}
PCNL_DELTA = {"gaussian": 0.04, "categorical": 0.2, "bernoulli": 0.4}
MGRAD_DELTA = {"gaussian": 0.05, "categorical": 0.3, "bernoulli": 1.0}


def compiled(kernel: str, name: str) -> pn.Kernel:
    """The kernel with the step size for a problem."""
    if kernel == "pcn":
        return pn.PCN(BETA[name])
    if kernel == "pcnl":
        return pn.PCNL(PCNL_DELTA[name])
    return pn.MGrad(MGRAD_DELTA[name]) if kernel == "mgrad" else pn.EllipticalSlice()


def twin(kernel: str, fault: str | None = None) -> Twin:
    """NumPy's kernel for the Gaussian problem."""
    step_sizes = {"pcn": BETA, "pcnl": PCNL_DELTA, "mgrad": MGRAD_DELTA}
    step_size = step_sizes[kernel]["gaussian"] if kernel in step_sizes else 0.0
    return Twin(kernel, step_size, THIN, fault=fault)


def accept_all_chain(
    post: pn.Posterior, theta: npt.NDArray[Any], states: int, rng: np.random.Generator, device: str = "cpu"
) -> Any:
    """The compiled accept-all phase in place of a kernel: right proposals, no rejections."""
    warmup, kept = pn.Warmup((Phase(THIN, accept_all=True),)), [theta]
    for _ in range(states):
        # The one adjusted step that follows the phase and makes the draw is right, so it does not hide the fault.
        seed = int(rng.integers(2**63))
        kernel = pn.PCNL(PCNL_DELTA["gaussian"])
        draws = pn.sample(
            post,
            kernel,
            chains=1,
            draws=1,
            warmup=warmup,
            init=kept[-1][None],
            seed=seed,
            threads=1,
            device=device,
            progress=False,
        )
        kept.append(draws.theta[0, 0])
    return np.asarray(kept[1:])


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "name", "dtype"), balanced(itertools.product(KERNELS, PROBLEMS), DTYPES))
def test_compiled_kernels_pass(kernel: str, name: str, dtype: str) -> None:
    chain = native_chain(compiled(kernel, name), THIN)
    assert smallest_p(PROBLEMS[name](dtype), chain, replicates=2 * REPLICATES, seed=11) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_right_twins_pass(kernel: str) -> None:
    assert smallest_p(gaussian("float64"), twin(kernel), seed=12) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "fault"),
    [(kernel, fault) for kernel in ("pcnl", "mgrad") for fault in GRADIENT_FAULTS] + [("elliptical slice", NO_SLICE)],
)
def test_broken_twins_are_rejected(kernel: str, fault: str) -> None:
    # Elliptical slice takes several evaluations a step, and its fault is the plainest.
    replicates = REPLICATES // 4 if kernel == "elliptical slice" else REPLICATES
    assert smallest_p(gaussian("float64"), twin(kernel, fault), replicates=replicates, seed=13) < LEVEL


@pytest.mark.slow
def test_compiled_accept_all_is_rejected() -> None:
    assert smallest_p(gaussian("float64"), accept_all_chain, replicates=REPLICATES // 2, seed=14) < LEVEL
