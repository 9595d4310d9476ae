"""The collapsed output layer: value and gradient against the normal density of y, and the redraw of its weights."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
import reference
from chains import assert_draws_depend_on_nothing_else, assert_log_likelihoods, assert_standard_normal, run
from patrac_native.posterior.partial_network import PartialNetwork
from problems import Problem
from rounding import assert_log_priors

FloatArray = npt.NDArray[np.float64]
ARCHITECTURES = ("full", "mix", "mix_by_layer", "sep", "sep_by_layer", "custom")
LIKELIHOODS = ("gaussian", "gaussian_by_output")
# Noise with a variance of each row: the weights of the means alone are integrated out, so that Out has others too.
BY_ROW = "heteroscedastic_gaussian"
CASES = [(name, likelihood) for name in ARCHITECTURES for likelihood in (*LIKELIHOODS, BY_ROW)] + [("out", BY_ROW)]
SOME = [(name, "gaussian_by_output") for name in ("full", "mix", "sep", "custom")]
SOME += [(name, BY_ROW) for name in ("full", "out", "custom")]
SIZES = ((2, 6, 1), (2, 5, 4, 3), (1, 4, 3, 5, 2))
EPS = float(np.finfo(np.float64).eps)
UNIT32 = 2.0**-24


def case(
    architecture: str,
    likelihood: str,
    sizes: tuple[int, ...] = (2, 5, 4, 3),
    n: int = 15,
    *,
    dtype: str = "float64",
    activation: str = "tanh",
) -> Problem:
    """A random problem with Bayesian parameters beside those that are integrated out."""
    rng = problems.rng_of("collapsed", architecture, likelihood, sizes, n)
    found = problems.problem(rng, sizes, n, architecture, likelihood, activation=activation, dtype=dtype)
    assert 0 < len(hidden(found)) < found.post.dim
    return found


def drawn(problem: Problem) -> list[int]:
    """Positions in theta of the weights that are integrated out."""
    return reference.drawn_entries(problem.partial, problem.y.shape[1])


def hidden(problem: Problem) -> FloatArray:
    """theta_h, exact in the posterior's dtype."""
    return np.delete(problem.theta, drawn(problem))


def arguments(problem: Problem) -> tuple[Any, ...]:
    """What the oracle wants after theta_h: C, variance (None: that of each row), X, y, row weights."""
    C = problem.partial.prior_variances(problems.PRIOR, problem.post.network.net.layer_sizes)
    likelihood = problem.data.likelihood
    variance = likelihood.variance if isinstance(likelihood, pn.Gaussian) else None
    return C, variance, problem.X, problem.y, problem.post.data.row_weights


def precisions(problem: Problem) -> FloatArray:
    """Row weights over noise variances, (n, t)."""
    _, variance, X, y, weights = arguments(problem)
    if variance is None:
        variance = reference.row_variances(problem.partial, hidden(problem), X, y.shape[1])
    return np.asarray(weights[:, None] / np.broadcast_to(variance, y.shape))


def exact_value(problem: Problem, theta_hidden: FloatArray | None = None) -> float:
    """Collapsed log-likelihood by the oracle."""
    at = hidden(problem) if theta_hidden is None else theta_hidden
    return float(reference.collapsed_log_likelihood(problem.partial, at, *arguments(problem)))


def exact_gradient(problem: Problem, theta_hidden: FloatArray | None = None) -> FloatArray:
    """Its gradient by complex steps along the axes."""
    at = hidden(problem) if theta_hidden is None else theta_hidden
    slopes = [reference.collapsed_slope(problem.partial, at, axis, *arguments(problem)) for axis in np.eye(len(at))]
    return np.array(slopes)


def relative_rounding(problem: Problem) -> float:
    """Relative error of solves with the covariance of y and of their twins in the output weights: size x cond x eps."""
    C, _, X, y, _ = arguments(problem)
    _, design = reference.output_design(problem.partial, hidden(problem), X, y.shape[1])
    signal = np.sqrt(precisions(problem).ravel())[:, None] * design * np.sqrt(C[drawn(problem)])
    return float(len(design) * (1 + np.linalg.norm(signal, 2) ** 2) * EPS)


def value_tolerance(problem: Problem) -> float:
    """The quadratic form is at most the residuals' sum of squares, the log determinant has one term an entry of y."""
    offset, _ = reference.output_design(problem.partial, hidden(problem), problem.X, problem.y.shape[1])
    squares = ((problem.y - offset.reshape(problem.y.shape)) ** 2 * precisions(problem)).sum()
    return relative_rounding(problem) * float(squares + problem.y.size)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("architecture", "likelihood"), CASES)
def test_value_and_gradient_are_those_of_the_normal_density_of_y(
    architecture: str, likelihood: str, sizes: tuple[int, ...]
) -> None:
    problem = case(architecture, likelihood, sizes)
    density = problem.post.density("collapsed")
    np.testing.assert_array_equal(density.entries, np.delete(np.arange(problem.post.dim), drawn(problem)))
    value, gradient = density.value_and_grad(hidden(problem))
    assert abs(value - exact_value(problem)) <= value_tolerance(problem)
    assert density.value(hidden(problem)) == value
    exact = exact_gradient(problem)
    assert np.abs(exact).max() > 1e-3
    # The gradient is a difference of parts of its own size times the signal-to-noise that relative_rounding has.
    np.testing.assert_allclose(gradient, exact, rtol=0, atol=10 * relative_rounding(problem) * np.abs(exact).max())


def first_nodes(net: pn.Network, *, output_weights: int, output_bias: bool) -> pn.Custom:
    """The masks of Mix(3), in the order of the network's nodes, with so many Bayesian weights of its one output."""
    mix = PartialNetwork(net, pn.Mix(3), problems.PRIOR)
    weights, biases = ([mask.copy() for mask in masks] for masks in (mix.weight_masks, mix.bias_masks))
    weights[-1][0, output_weights:], biases[-1][0] = False, output_bias
    for layer, (below, nodes) in enumerate(pairwise(mix.permutation)):
        weights[layer][np.ix_(nodes, below)] = weights[layer].copy()
        biases[layer][nodes] = biases[layer].copy()
    return pn.Custom(weights, biases)


TWO_OUTPUTS, ONE_OUTPUT, WIDE, DEEP = (2, 5, 4, 2), (2, 5, 7, 1), (2, 7, 6, 1), (2, 6, 4, 7, 1)
# On several tiles the first pass over the rows leaves the second what it has made: of a last hidden layer in one loop
# forward and backward (tanh, one output, up to five varying nodes below) what the loop keeps, if those are the nodes
# whose output weights are integrated out; else all hidden activations.
SEVERAL_TILES: dict[str, tuple[tuple[int, ...], str | dict[str, Any]]] = {
    "mix, two outputs": (TWO_OUTPUTS, "mix"),
    "custom, two outputs": (TWO_OUTPUTS, "custom"),
    "mix": (ONE_OUTPUT, "mix"),
    "full": (ONE_OUTPUT, "full"),
    "full, six nodes below": (WIDE, "full"),
    "full, three hidden layers": (DEEP, "full"),
    "without output bias": (ONE_OUTPUT, {"output_weights": 3, "output_bias": False}),
    "a kept node behind a fixed weight": (ONE_OUTPUT, {"output_weights": 2, "output_bias": True}),
}


# Not one row of one output: the tolerance is that of a solve of size one there, without the roundings of the layers.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n"),
    [(name, n) for name, (sizes, _) in SEVERAL_TILES.items() for n in (1, 5, 530) if (sizes[-1], n) != (1, 1)],
)
def test_every_level_and_several_row_tiles(name: str, n: int, level: str) -> None:
    sizes, chosen = SEVERAL_TILES[name]
    rng = problems.rng_of("several tiles", name, n)
    net = problems.random_network(rng, sizes)
    architecture = problems.architecture(chosen, rng, net) if isinstance(chosen, str) else first_nodes(net, **chosen)
    data = problems.random_data("gaussian_by_output", rng, n, 2, sizes[-1])
    check_at_level(problems.posed(net, architecture, data, rng), level)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 5, 530])
@pytest.mark.parametrize("architecture", ["full", "out", "custom"])
def test_every_level_with_a_variance_of_each_row(architecture: str, n: int, level: str) -> None:
    check_at_level(case(architecture, BY_ROW, (2, 5, 4, 2), n), level)


def check_at_level(problem: Problem, level: str) -> None:
    """Compare value and slopes in three directions with the oracle's."""
    post = problem.again(level=level)
    assert post.network.level == level
    value, gradient = post.density("collapsed").value_and_grad(hidden(problem))
    assert abs(value - exact_value(problem)) <= value_tolerance(problem)
    for direction in problems.rng_of("directions", problem.theta.tobytes()).normal(size=(3, len(gradient))):
        exact = reference.collapsed_slope(problem.partial, hidden(problem), direction, *arguments(problem))
        tolerance = 10 * relative_rounding(problem) * np.abs(gradient * direction).sum()
        assert abs(gradient @ direction - exact) <= tolerance


def mean_of_the_full_gradient(problem: Problem) -> FloatArray:
    """E of the gradient of l over theta_h, a ~ N(m, Sigma): it is quadratic in a, so 2 K_a points give it exactly."""
    mean, covariance = reference.output_conditional(problem.partial, hidden(problem), *arguments(problem))
    steps = np.sqrt(len(mean)) * np.linalg.cholesky(covariance).T
    points = [with_drawn(problem, a) for a in (*(mean + steps), *(mean - steps))]
    gradients = np.asarray(problem.post.log_likelihood_and_grad(np.array(points))[1])
    return np.asarray(gradients[:, problem.post.density("collapsed").entries].mean(axis=0))


def with_drawn(problem: Problem, a: FloatArray) -> FloatArray:
    """Theta with these weights where they are integrated out."""
    return reference.joined(problem.partial, hidden(problem), a, problem.y.shape[1])


@pytest.mark.slow
@pytest.mark.parametrize("n", [15, 530])
@pytest.mark.parametrize("activation", problems.ACTIVATIONS)
@pytest.mark.parametrize(
    ("architecture", "likelihood"), [*((name, "gaussian_by_output") for name in ARCHITECTURES), ("mix", BY_ROW)]
)
def test_fishers_identity_holds_for_every_activation(
    architecture: str, likelihood: str, activation: str, n: int
) -> None:
    """The collapsed gradient is the mean of the full one over the output weights' conditional distribution."""
    problem = case(architecture, likelihood, n=n, activation=activation)
    value, gradient = problem.post.density("collapsed").value_and_grad(hidden(problem))
    assert abs(value - exact_value(problem)) <= value_tolerance(problem)
    expected = mean_of_the_full_gradient(problem)
    np.testing.assert_allclose(
        gradient, expected, rtol=0, atol=10 * relative_rounding(problem) * np.abs(expected).max()
    )


@pytest.mark.parametrize(("architecture", "likelihood"), [one for one in CASES if one[1] != "gaussian"])
def test_bayes_rule_holds_between_the_full_and_the_collapsed_density(architecture: str, likelihood: str) -> None:
    """log p(y | theta_h) = l(theta) + log N(a; 0, S) - log N(a; m, Sigma) whatever a is."""
    problem = case(architecture, likelihood)
    mean, covariance = reference.output_conditional(problem.partial, hidden(problem), *arguments(problem))
    collapsed = problem.post.density("collapsed").value(hidden(problem))
    for trial in range(3):
        a = problems.rng_of("a", architecture, trial).normal(size=len(mean))
        full = problem.post.log_likelihood(with_drawn(problem, a))
        prior = reference.log_normal(a, np.zeros_like(a), problem.post.prior_variance[drawn(problem)])
        away = a - mean
        conditional = -0.5 * (away @ np.linalg.solve(covariance, away) + np.linalg.slogdet(covariance)[1])
        tolerance = value_tolerance(problem) + relative_rounding(problem) * (abs(full) + abs(conditional))
        assert abs(full + prior - conditional - collapsed) <= tolerance


def perturbed(problem: Problem, rng: np.random.Generator) -> tuple[float, FloatArray]:
    """Float64 value and gradient with every parameter, input and target off by one float32 rounding, up or down."""

    def off(values: Any) -> FloatArray:
        array = np.asarray(values, dtype=np.float64)
        return array * (1 + UNIT32 * rng.choice([-1.0, 1.0], array.shape))

    net, likelihood = problem.post.network.net, problem.data.likelihood
    near = pn.Network([off(w) for w in net.weights], [off(b) for b in net.biases], net.activation)
    if isinstance(likelihood, pn.Gaussian):
        likelihood = pn.Gaussian(off(likelihood.variance_vector(problem.y.shape[1])))
    post = problem.again(net=near, likelihood=likelihood, X=off(problem.X), y=off(problem.y))
    value, gradient = post.density("collapsed").value_and_grad(off(hidden(problem)))
    return float(value), np.asarray(gradient)


@pytest.mark.parametrize("n", [15, 700])
@pytest.mark.parametrize(
    ("architecture", "likelihood", "activation"),
    [(name, likelihood, "tanh") for name in ARCHITECTURES for likelihood in LIKELIHOODS]
    + [(name, BY_ROW, activation) for name in ("full", "mix", "out", "custom") for activation in ("tanh", "relu")],
)
def test_float32_errs_no_more_than_its_roundings_allow(
    architecture: str, likelihood: str, activation: str, n: int
) -> None:
    check_float32(case(architecture, likelihood, n=n, dtype="float32", activation=activation))


@pytest.mark.parametrize("variance", [0.7, 1e-6], ids=["narrow sums", "wide sums"])
def test_float32_of_a_last_hidden_layer_in_one_loop(variance: float) -> None:
    rng = problems.rng_of("one loop", variance)
    data = problems.Data(pn.Gaussian(variance), rng.normal(size=(700, 2)), rng.normal(size=(700, 1)), None)
    net = problems.random_network(rng, ONE_OUTPUT)
    check_float32(problems.posed(net, pn.Mix(3), data, rng, "float32"))


def check_float32(problem: Problem) -> None:
    """Tolerance: what single roundings of all inputs do to the float64 result, times the roundings on a path.

    A pre-activation of at most 5 sources takes 5 + 4 roundings and an activation 8 (tests/rounding.py), in 3 layers
    forward and back; each is one like those of `perturbed`, and all with their worst signs would be sqrt(count) larger
    than the random ones: 2 * 3 * 17 in all.
    """
    value, gradient = problem.post.density("collapsed").value_and_grad(hidden(problem))
    assert np.asarray(gradient).dtype == np.float32
    wide = problem.again(X=problem.X, y=problem.y)
    expected, slope = wide.density("collapsed").value_and_grad(hidden(problem))
    rng = problems.rng_of("perturbed", problem.theta.tobytes())
    near = [perturbed(problem, rng) for _ in range(6)]
    roundings = 2 * 3 * 17
    value_error = max(abs(other - expected) for other, _ in near)
    slope_error = max(np.abs(other - slope).max() for _, other in near)
    assert abs(value - expected) <= roundings * value_error
    assert np.abs(gradient - slope).max() <= roundings * slope_error
    # The tolerance means something: a relative error of 1e-3 would be beyond it.
    assert roundings * value_error < 1e-3 * abs(expected)
    assert roundings * slope_error < 1e-2 * np.abs(slope).max()


def test_a_batch_is_its_rows() -> None:
    problem = case("mix", "gaussian")
    batch = hidden(problem) + 0.1 * problems.rng_of("batch").normal(size=(5, problem.post.sampled.facts.hidden_dim))
    values, gradients = problem.post.density("collapsed").value_and_grad(batch)
    assert values.shape == (5,) and gradients.shape == batch.shape
    for row, value, gradient in zip(batch, values, gradients, strict=True):
        one, slope = problem.post.density("collapsed").value_and_grad(row)
        assert one == value
        np.testing.assert_array_equal(slope, gradient)
    np.testing.assert_array_equal(problem.post.density("collapsed").value(batch), values)


# The acceptance ratio on theta_h


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-5, 1e-2, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("kernel", ["pcnl", "mgrad"])
@pytest.mark.parametrize(
    ("architecture", "likelihood"),
    [
        *((name, "gaussian_by_output") for name in ARCHITECTURES),
        *((name, BY_ROW) for name in ("full", "out", "custom")),
    ],
)
def test_collapsed_acceptance_is_detailed_balance(
    architecture: str, likelihood: str, kernel: str, delta: float
) -> None:
    """log_acceptance(collapse=True) equals log pi(v) q(v, u) - log pi(u) q(u, v) on theta_h, to 1e-9 of its size."""
    if kernel == "pcnl" and delta > 2:
        delta = min(2.0, delta / 20)
    problem = case(architecture, likelihood)
    everywhere = np.asarray(problem.post.prior_variance)  # the output weights' too: they are integrated over it
    C = everywhere[problem.post.density("collapsed").entries]
    rng = problems.rng_of("collapsed balance", architecture, kernel, delta)
    u, w = hidden(problem), rng.normal(size=len(C))
    g_u = exact_gradient(problem, u)
    # A proposal without its drift: nearby whatever the gradient is.
    nothing = np.zeros(len(C))
    density = reference.pcnl_log_density if kernel == "pcnl" else reference.mgrad_log_density
    propose = reference.pcnl_proposal if kernel == "pcnl" else reference.mgrad_proposal
    v = propose(u, nothing, C, w, delta)
    g_v = exact_gradient(problem, v)
    ends = [exact_value(problem, at) + reference.log_normal(at, nothing, C) for at in (u, v)]
    exact = ends[1] - ends[0] + density(u, v, g_v, C, delta) - density(v, u, g_u, C, delta)
    got = problem.post.sampled.compiled.host.log_acceptance(u, v, everywhere, kernel, delta, collapse=True)
    spread = np.abs(ends).max() + len(C) * 10
    assert abs(got - exact) <= 1e-9 * (1 + abs(exact)) + 10 * relative_rounding(problem) * spread


# Draws


def whitened_output_weights(problem: Problem, theta: FloatArray) -> FloatArray:
    """L^-1 (a - m) for each theta, Sigma = L L'."""
    entries, found = problem.post.density("collapsed").entries, []
    for row in theta.astype(np.float64):
        mean, covariance = reference.output_conditional(problem.partial, row[entries], *arguments(problem))
        found.append(np.linalg.solve(np.linalg.cholesky(covariance), row[drawn(problem)] - mean))
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("architecture", "likelihood"), SOME)
def test_output_weights_are_drawn_from_their_conditional_given_each_kept_state(
    architecture: str, likelihood: str, dtype: str
) -> None:
    """Whitened by the conditional of its own theta_h, a is independent standard normal, whatever the chain does."""
    problem = case(architecture, likelihood, dtype=dtype)
    draws = run(problem.post, pn.MGrad(0.05, collapse=True), chains=1, draws=600)
    moved = np.any(np.diff(draws.theta[0][:, problem.post.density("collapsed").entries], axis=0) != 0, axis=1).mean()
    assert 0.2 < moved < 1
    assert_standard_normal(whitened_output_weights(problem, draws.theta[0]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("likelihood", ["gaussian_by_output", BY_ROW])
@pytest.mark.parametrize("kernel", [pn.PCNL(0.05, collapse=True), pn.MGrad(0.05, collapse=True)], ids=str)
def test_stats_are_those_of_the_full_model_at_the_returned_theta(
    kernel: pn.Kernel, likelihood: str, dtype: str
) -> None:
    problem = case("mix", likelihood, dtype=dtype)
    draws = run(problem.post, kernel)
    assert_log_likelihoods(draws, problem.post)
    assert_log_priors(draws, problem.post)
    assert (draws.stats["step_size"] == 0.05).all()


@pytest.mark.parametrize(
    ("likelihood", "dtype"), [("gaussian", "float32"), ("gaussian", "float64"), (BY_ROW, "float32")]
)
def test_draws_depend_neither_on_thinning_nor_on_length_chains_or_threads(likelihood: str, dtype: str) -> None:
    post = case("mix", likelihood, dtype=dtype).post
    assert_draws_depend_on_nothing_else(post, pn.MGrad(0.05, collapse=True))


@pytest.mark.parametrize(
    ("likelihood", "architecture", "n"),
    [
        (pn.Gaussian(1.0), pn.Mix(5), 12_000),
        (pn.Gaussian(1.0), pn.Full(), 3_000),
        (pn.HeteroscedasticGaussian(), pn.Full(), 3_000),
        (pn.HeteroscedasticGaussian(), pn.Mix(5), 12_000),
        (pn.HeteroscedasticGaussian(), pn.Out(10), 100_000),
    ],
    ids=str,
)
def test_threads_that_share_a_step_do_not_change_it(
    likelihood: pn.Likelihood, architecture: pn.Architecture, n: int
) -> None:
    """Four threads, some four or nine slabs of rows of a million multiply-adds each, two passes over them a step.

    Whoever comes late has seen theta too. A single thread holds the activations of Full, several make them twice.
    """
    rng = problems.rng_of("shared collapsed steps")
    net = problems.random_network(rng, (8, 50, 50, likelihood.outputs_per_target))
    X, y = rng.normal(size=(n, 8)), rng.normal(size=n)
    post = pn.Posterior(net, architecture, problems.PRIOR, likelihood, X, y)
    kernel = pn.MGrad((0.03 if likelihood.is_quadratic else 0.3) / n, collapse=True)
    alone, shared = (
        run(post, kernel, chains=1, draws=100 if likelihood.is_quadratic else 20, threads=threads) for threads in (1, 4)
    )
    np.testing.assert_array_equal(shared.theta, alone.theta)
    assert alone.stats["acceptance_rate"].mean() > 0.2


def test_a_proposal_of_nothing_is_accepted_and_the_start_is_kept() -> None:
    post = case("full", "gaussian").post
    start = post.theta_map + 0.1
    draws = run(post, pn.PCNL(1e-20, collapse=True), chains=1, draws=20, init=start[None])
    np.testing.assert_allclose(
        draws.theta[0, :, : post.sampled.facts.hidden_dim],
        np.tile(start[: post.sampled.facts.hidden_dim], (20, 1)),
        rtol=0,
        atol=1e-8,
    )
    assert (draws.stats["acceptance_rate"] == 1).all()
    # The output weights of the start are forgotten at once.
    assert np.abs(np.diff(draws.theta[0, :, post.sampled.facts.hidden_dim :], axis=0)).min() > 0


# What cannot be collapsed


def test_without_hidden_bayesian_parameters_exact_is_named() -> None:
    post = problems.problem(problems.rng_of("nothing hidden"), (2, 5, 4, 3), 15, "out").post
    for kernel in (pn.PCNL(0.1, collapse=True), pn.MGrad(0.1, collapse=True)):
        with pytest.raises(ValueError, match=r"Exact\(\)"):
            run(post, kernel)
    with pytest.raises(ValueError, match=r"Exact\(\)|hidden"):
        post.density("collapsed").value(np.zeros(0))


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli"])
def test_only_gaussian_likelihoods_collapse(likelihood: str) -> None:
    rng = problems.rng_of("not gaussian", likelihood)
    post = problems.problem(rng, (2, 5, 4, 3), 15, "mix", likelihood).post
    with pytest.raises(ValueError, match="Gaussian"):
        run(post, pn.MGrad(0.1, collapse=True))
    with pytest.raises(ValueError, match="Gaussian"):
        post.density("collapsed").value(np.zeros(post.sampled.facts.hidden_dim))


def test_theta_hidden_of_the_wrong_shape_or_not_finite_is_refused() -> None:
    post = case("mix", "gaussian").post
    with pytest.raises(ValueError, match="points"):
        post.density("collapsed").value(np.zeros(post.dim))
    with pytest.raises(ValueError, match="points"):
        post.density("collapsed").value_and_grad(np.full(post.sampled.facts.hidden_dim, np.nan))


def test_collapsing_is_part_of_the_kernels_record() -> None:
    for kernel in (pn.MGrad(0.1, collapse=True), pn.PCNL(0.1, collapse=True)):
        assert kernel.to_dict()["collapse"] is True
        assert dataclasses.replace(kernel, collapse=False).to_dict()["collapse"] is False


# What the first pass over the rows leaves to the second


@pytest.mark.parametrize(("sizes", "architecture"), [(WIDE, pn.Full()), (ONE_OUTPUT, pn.Mix(3))], ids=str)
def test_rows_beyond_what_is_kept_between_the_passes(sizes: tuple[int, ...], architecture: pn.Architecture) -> None:
    """Repeated rows, so many that nothing is kept, count as rows of that weight."""
    rng = problems.rng_of("beyond", sizes)
    data = problems.random_data("gaussian", rng, 1_000, 2, 1)
    problem = problems.posed(problems.random_network(rng, sizes), architecture, data, rng)
    repeats = 400  # 42 MB of activations, of which 4 would be held, and 32 MB to be saved, where 17 are
    posts = [
        problem.again(
            X=np.tile(problem.X, (count, 1)),
            y=np.tile(problem.y, (count, 1)),
            sample_weight=np.full(1_000 * count, repeats / count),
        )
        for count in (1, repeats)
    ]
    (value, gradient), (again, slope) = (post.density("collapsed").value_and_grad(hidden(problem)) for post in posts)
    # 4e5 terms, and solves whose condition is their number times the signal-to-noise of a row.
    assert again == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(slope, gradient, rtol=0, atol=1e-8 * np.abs(gradient).max())
