"""Row tiles of one evaluation shared by several threads: the numbers do not depend on how many there are."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
import reference

SIZES = (8, 30, 30, 1)
ROWS = 6007  # sixteen slabs in several tiles each, and a last tile that is not full


def posterior(dtype: str, architecture: pn.Architecture | None = None) -> pn.Posterior:
    net, X, y = problems.regression(problems.rng_of("threads", dtype), SIZES, ROWS)
    prior = pn.TraceClassPrior(1.5, 2.0, 0.5)
    return pn.Posterior(net, architecture or pn.Full(), prior, pn.Gaussian(0.5), X, y, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_evaluation_is_the_same_for_any_number_of_threads(dtype: str) -> None:
    post = posterior(dtype)
    value, gradient = post.log_likelihood_and_grad(post.theta_map, threads=1)
    for threads in (2, 3, 8, 40):
        other_value, other_gradient = post.log_likelihood_and_grad(post.theta_map, threads=threads)
        assert other_value == value
        np.testing.assert_array_equal(other_gradient, gradient)
        assert post.log_likelihood(post.theta_map, threads=threads) == value


def test_slabs_add_up_to_the_whole() -> None:
    """Against the float64 reference, within the bound of test_gradients.py: 1e-9 of the largest entry."""
    post = posterior("float64")
    value, gradient = post.log_likelihood_and_grad(post.theta_map, threads=2)
    part = reference.partial(post.network.net, pn.Full())
    f = part.predict(post.theta_map, post.data.X)
    wanted = reference.log_likelihood(post.likelihood, f, post.data.y, post.data.row_weights)
    slope = reference.output_slope(post.likelihood, f, post.data.y, post.data.row_weights)
    wanted_gradient = part.gradient(post.theta_map, post.data.X, slope)
    assert abs(float(value) - wanted) <= 1e-9 * abs(wanted)
    np.testing.assert_allclose(gradient, wanted_gradient, rtol=0, atol=1e-9 * np.abs(wanted_gradient).max())


@pytest.mark.parametrize("chains", [1, 2, 3])
@pytest.mark.parametrize("kernel", [pn.PCN(1e-3), pn.PCNL(1e-5)])
def test_draws_are_the_same_when_threads_share_the_rows(kernel: Any, chains: int) -> None:
    post = posterior("float32", pn.Mix(5))
    runs = [
        pn.sample(post, kernel, chains=chains, draws=4, thin=3, warmup=None, seed=3, threads=threads, progress=False)
        for threads in (1, 2, 7)
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.theta, runs[0].theta)
        np.testing.assert_array_equal(run.stats["log_likelihood"], runs[0].stats["log_likelihood"])
    # The test is meaningful only if the chain moved.
    assert not np.array_equal(runs[0].theta[0, 0], runs[0].theta[0, -1])


def _value_of_child(queue: Any) -> None:
    post = posterior("float32")
    queue.put(post.log_likelihood(post.theta_map, threads=2))


def test_shared_rows_work_in_a_forked_process() -> None:
    """No thread outlives a call, so none is missing after a fork."""
    post = posterior("float32")
    value = post.log_likelihood(post.theta_map, threads=2)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_value_of_child, args=(queue,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert queue.get() == value


def test_any_number_of_threads_may_be_asked_for() -> None:
    """The number of started threads depends on the work: the prediction of one point takes one thread."""
    post = posterior("float32")
    inputs = post.data.X[:100]
    wanted = post.network.predict(post.theta_map, inputs, threads=1)
    np.testing.assert_array_equal(post.network.predict(post.theta_map, inputs, threads=2**61), wanted)
    np.testing.assert_array_equal(post.network.predict(post.theta_map, inputs, threads=10**30), wanted)
    assert post.log_likelihood(post.theta_map, threads=2**61) == post.log_likelihood(post.theta_map, threads=1)
