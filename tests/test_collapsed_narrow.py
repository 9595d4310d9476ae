"""Collapsed networks with few nodes in equal hidden layers, whose passes over the rows have loops of known width."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
import reference
from chains import assert_log_likelihoods, run
from problems import Problem
from replay import accepts, proposal_normals, proposed
from test_collapsed import (
    UNIT32,
    arguments,
    check_float32,
    exact_value,
    hidden,
    relative_rounding,
    value_tolerance,
)

FloatArray = npt.NDArray[np.float64]
WIDEST = 5  # widest_narrow of csrc/cpu/tiles/narrow_pass.hpp
# One row; less than a vector; a remainder; two tiles; and so many that activations are not kept from pass to pass.
ROWS = (1, 5, 33, 300, 2300)


def narrow(
    width: int, n_hidden: int, n: int, *, architecture: str = "full", dtype: str = "float64", d: int | None = None
) -> Problem:
    """One output and weighted rows: a full network of that width, or Sep on a wider one, with an offset of its own."""
    rng = problems.rng_of("collapsed narrow", width, n_hidden, n, architecture)
    wide = width if architecture == "full" else width + 3
    net = problems.random_network(rng, (1 + width % 3 if d is None else d, *[wide] * n_hidden, 1))
    chosen = pn.Full() if architecture == "full" else pn.Sep(width)
    return problems.posed(
        net, chosen, problems.random_data("gaussian_by_output", rng, n, net.layer_sizes[0], 1), rng, dtype
    )


def rounding(problem: Problem) -> float:
    """What the tolerances of test_collapsed.py grow by where the output weights are more than the rows are.

    Those count the roundings of a solve with the covariance of y as one for each of its rows. The twin of the solve has
    a row for each output weight.
    """
    return max(1.0, (problem.post.dim - problem.post.sampled.facts.hidden_dim) / len(problem.y))


@cache  # it takes most of the time, and is the same at each level of instructions
def oracle(width: int, n_hidden: int, n: int, architecture: str) -> tuple[float, list[tuple[FloatArray, float]]]:
    """Return the value, and directions with the slopes along them."""
    problem, rng = narrow(width, n_hidden, n, architecture=architecture), problems.rng_of("narrow directions", width, n)
    directions = rng.normal(size=(2, problem.post.sampled.facts.hidden_dim))
    slopes = [
        reference.collapsed_slope(problem.partial, hidden(problem), direction, *arguments(problem))
        for direction in directions
    ]
    return exact_value(problem), list(zip(directions, slopes, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("n_hidden", [1, 2, 3])
@pytest.mark.parametrize("architecture", ["full", "sep"])
def test_value_and_gradient_are_those_of_the_normal_density_of_y(architecture: str, n_hidden: int, level: str) -> None:
    """Up to one node more than has loops of its own, against the oracle."""
    for width in range(1, WIDEST + 2):
        for n in ROWS[:-1]:
            problem = narrow(width, n_hidden, n, architecture=architecture)
            assert problem.post.network.level == level
            value, gradient = problem.post.density("collapsed").value_and_grad(hidden(problem))
            exact, slopes = oracle(width, n_hidden, n, architecture)
            assert abs(value - exact) <= rounding(problem) * value_tolerance(problem)
            assert problem.post.density("collapsed").value(hidden(problem)) == value
            for direction, slope in slopes:
                tolerance = 10 * rounding(problem) * relative_rounding(problem) * np.abs(gradient * direction).sum()
                assert abs(gradient @ direction - slope) <= tolerance


def general(problem: Problem) -> pn.Posterior:
    """The same density through the passes of any network.

    The first hidden layer has one node more, none of whose parameters is Bayesian. Its weights into the second layer
    are 1e-200: f is the same in every digit, but the second layer has offsets, which loops of known width do not read.
    """
    net = problem.post.network.net
    weights, biases = [np.array(w) for w in net.weights], [np.array(b) for b in net.biases]
    masks = [np.ones(w.shape, dtype=bool) for w in weights], [np.ones(b.shape, dtype=bool) for b in biases]
    weights[0], biases[0] = np.vstack([weights[0], weights[0][:1]]), np.append(biases[0], 0.3)
    weights[1] = np.column_stack([weights[1], np.full(len(weights[1]), 1e-200)])
    masks[0][0] = np.vstack([masks[0][0], np.zeros((1, net.layer_sizes[0]), dtype=bool)])
    masks[1][0] = np.append(masks[1][0], False)
    masks[0][1] = np.column_stack([masks[0][1], np.zeros(len(weights[1]), dtype=bool)])
    return problem.again(
        net=pn.Network(weights, biases, net.activation),
        architecture=pn.Custom(*masks),
        dtype=str(problem.post.network.dtype),
    )


@pytest.mark.parametrize("n_hidden", [2, 3])
def test_the_general_passes_give_the_same(n_hidden: int, level: str) -> None:
    """In float64 to the rounding of either, which the two do not share: some last digits differ."""
    differs = 0
    for width in range(1, WIDEST + 1):
        for n in ROWS:
            problem = narrow(width, n_hidden, n)
            other = general(problem)
            assert (
                other.sampled.facts.hidden_dim == problem.post.sampled.facts.hidden_dim
                and other.dim == problem.post.dim
            )
            C = np.asarray(problem.post.prior_variance)
            (l_own,), (g_own,) = problem.post.sampled.compiled.host.collapsed(hidden(problem)[None], C, True)
            (l_other,), (g_other,) = other.sampled.compiled.host.collapsed(hidden(problem)[None], C, True)
            assert abs(l_own - l_other) <= 2 * rounding(problem) * value_tolerance(problem)
            atol = 20 * rounding(problem) * relative_rounding(problem) * np.abs(g_other).max()
            np.testing.assert_allclose(g_own, g_other, rtol=0, atol=atol)
            differs += not np.array_equal([l_own, *g_own], [l_other, *g_other])
    assert differs > 0


@pytest.mark.parametrize("n_hidden", [1, 2])
def test_float32_errs_no_more_than_its_roundings_allow(n_hidden: int, level: str) -> None:
    """The tolerance of test_collapsed.py: pre-activations have at most 5 sources here too, in at most 3 layers."""
    for width in range(1, WIDEST + 1):
        for n in (15, 700, 3300):
            check_float32(narrow(width, n_hidden, n, dtype="float32", d=2))


@pytest.mark.parametrize("width", [2, 5])
def test_the_density_goes_on_where_moments_become_wide(width: int) -> None:
    """On either side of the largest prior variance over noise variance whose moments are summed in float32.

    Beyond it the general pass sums them in float64. l differs from that of float64 by the rounding of features and
    residuals, as in test_low_noise.py.
    """
    rng = problems.rng_of("narrow, wide moments", width)
    net = problems.random_network(rng, (2, width, width, 1))
    n = 200
    X = rng.uniform(-1.5, 1.5, (n, 2))
    prior, largest = pn.TraceClassPrior(1.5, 4.0, 4.0), 524288.0 / n  # narrow_ratio_of() in csrc/model/collapse.cpp
    S = np.asarray(pn.Posterior(net, pn.Full(), prior, pn.Gaussian(1.0), X, X[:, :1]).prior_variance)[-(width + 1) :]
    edge = float(S.max()) / largest
    y = net.predict(X) + math.sqrt(edge) * rng.normal(size=(n, 1))
    for variance in (edge * 1.001, edge * 0.999):
        posts = [
            pn.Posterior(net, pn.Full(), prior, pn.Gaussian(variance), X, y, dtype=t) for t in ("float32", "float64")
        ]
        around = posts[0].theta_map[: posts[0].sampled.facts.hidden_dim]
        points = (around + 0.01 * math.sqrt(variance) * rng.normal(size=(20, len(around)))).astype(np.float32)
        l32, g32 = posts[0].density("collapsed").value_and_grad(points)
        l64, g64 = posts[1].density("collapsed").value_and_grad(points.astype(np.float64))
        size = np.abs(y - net.predict(X)).sum() / variance
        np.testing.assert_allclose(l32, l64, rtol=0, atol=16 * UNIT32 * size)
        assert (np.linalg.norm(g32 - g64, axis=1) < 0.05 * np.linalg.norm(g64, axis=1)).all()


# Chains


def test_every_step_uses_the_variance_drawn_before_it() -> None:
    """Each move follows from its noise, l and g at the variance of the step before, in NumPy."""
    rng = problems.rng_of("narrow, sampled variance")
    net = problems.random_network(rng, (2, 3, 3, 1))
    X, y = rng.normal(size=(40, 2)), rng.normal(size=(40, 1))
    post = pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian("sampled", a=2.5, b=0.5), X, y, dtype="float64")
    kernel, split, moves = pn.MGrad(0.2, collapse=True), post.sampled.facts.hidden_dim, 0
    draws = run(post, kernel, chains=1, draws=60, seed=8)
    theta, C = draws.theta[0, :, :split], np.asarray(post.prior_variance)[:split]
    variances = draws.stats["variance"][0].ravel()
    assert len(np.unique(variances)) == len(variances)
    for step in range(1, len(theta)):
        w = proposal_normals(post, 8, 0, step, split)
        density = post.density("collapsed", variance=float(variances[step - 1]))
        v, _, log_ratio = proposed(kernel, theta[step - 1], C, w, density.value_and_grad)
        moved = accepts(8, 0, step, log_ratio)
        moves += moved
        # One step from a recorded state: rounding of the gradient and the sums of a proposal.
        np.testing.assert_allclose(theta[step], v if moved else theta[step - 1], rtol=0, atol=1e-10)
    assert 0 < moves < len(theta) - 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [100, 2300])
def test_kept_log_likelihoods_are_those_of_the_full_model(n: int, dtype: str) -> None:
    """The mean of the output weights, their deviations from it and l at either belong together."""
    problem = narrow(5, 2, n, architecture="sep", dtype=dtype)
    draws = run(problem.post, pn.MGrad(0.01, collapse=True, persistence=0.9))
    assert len(np.unique(draws.theta[0, :, 0])) > 5
    assert_log_likelihoods(draws, problem.post)
