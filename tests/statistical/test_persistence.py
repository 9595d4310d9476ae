"""Noise that persists from step to step: exact rank tests, and a twin that forgets to turn it round must fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from rank_test import LEVEL, native_blocks, network, smallest_p
from test_rank import MGRAD_DELTA, PRIOR, PROBLEMS, gaussian
from twins import NOT_TURNED, PersistentTwin

import patrac_native as pn

Array = npt.NDArray[Any]

THIN, N_STATES, REPLICATES = 6, 8, 400
PERSISTENCE = 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), list(zip(PROBLEMS, ("float32", "float64", "float32"), strict=True)))
def test_persistent_steps_pass(name: str, dtype: str) -> None:
    kernel = pn.MGrad(MGRAD_DELTA[name], persistence=PERSISTENCE)
    chain = native_blocks(kernel, THIN)
    assert smallest_p(PROBLEMS[name](dtype), chain, replicates=REPLICATES, n_states=N_STATES, seed=21) > LEVEL


@pytest.mark.slow
def test_persistent_steps_pass_with_collapsed_output_weights() -> None:
    kernel = pn.MGrad(MGRAD_DELTA["gaussian"], collapse=True, persistence=PERSISTENCE)
    chain = native_blocks(kernel, THIN)
    assert smallest_p(gaussian("float64"), chain, replicates=REPLICATES, n_states=N_STATES, seed=22) > LEVEL


def regression(dtype: str) -> pn.Posterior:
    """A posterior whose draws are known: the last layer, four parameters."""
    X, net = np.linspace(-2, 2, 8)[:, None], network([1, 3, 1], 1, 1.0)
    y = net.predict(X) + 0.3 * np.random.default_rng(5).standard_normal((8, 1))
    return pn.Posterior(net, pn.Out(3), PRIOR, pn.Gaussian(0.1), X, y, dtype=dtype)


def distance_z(post: pn.Posterior, theta: Array) -> float:
    """Mean of (theta - mean)' covariance^-1 (theta - mean) over independent theta, less K, in standard errors."""
    exact = post.exact()
    away = theta.astype(np.float64) - exact.mean
    q = np.einsum("ri,ij,rj->r", away, np.linalg.inv(exact.covariance), away)
    return float((q.mean() - post.dim) / (q.std() / np.sqrt(len(q))))


# Replicates, steps of each and step size of the next two; about two thirds of the proposals are accepted.
COUNT, STEPS, DELTA = 1_000, 30, 0.05


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exact_draws_stay_exact(dtype: str) -> None:
    post = regression(dtype)
    start = pn.sample(post, pn.Exact(), chains=1, draws=4 * COUNT, seed=31).theta[0]
    kernel = pn.MGrad(DELTA, persistence=PERSISTENCE)
    draws = pn.sample(post, kernel, chains=4 * COUNT, draws=1, thin=STEPS, warmup=None, init=start, seed=32)
    assert abs(distance_z(post, start)) < 4 and abs(distance_z(post, draws.theta[:, 0])) < 4


@pytest.mark.slow
@pytest.mark.parametrize("turned", [True, False])
def test_noise_must_be_turned_round_after_a_rejection(turned: bool) -> None:
    """The right twin keeps exact draws exact; the broken one was 7 standard errors off with 300 replicates."""
    post, rng = regression("float64"), np.random.default_rng(33)
    start = pn.sample(post, pn.Exact(), chains=1, draws=COUNT, seed=34).theta[0]
    run = PersistentTwin(DELTA, STEPS, PERSISTENCE, fault=None if turned else NOT_TURNED)
    z = distance_z(post, np.array([run(post, theta, 1, rng)[-1] for theta in start]))
    assert abs(z) < 4 if turned else z > 6
