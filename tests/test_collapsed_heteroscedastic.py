"""Noise with a variance of each row, the output weights of the means integrated out: density, draws, refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
import reference
from patrac_native.engine import _core
from problems import Problem
from rounding import assert_log_priors

FloatArray = npt.NDArray[np.float64]
ARCHITECTURES = ("full", "mix", "mix_by_layer", "out", "sep", "sep_by_layer", "custom")
# The last is the number of targets, half the outputs of the network.
SIZES = ((2, 6, 1), (2, 5, 4, 2), (1, 4, 3, 5, 2))
EPS = float(np.finfo(np.float64).eps)
COLLAPSED = pn.MGrad(0.05, collapse=True)
LIKELIHOOD = pn.HeteroscedasticGaussian()


def case(
    architecture: str,
    sizes: tuple[int, ...] = (2, 5, 4, 2),
    n: int = 15,
    *,
    dtype: str = "float64",
    activation: str = "tanh",
) -> Problem:
    """A random problem with unequal row weights."""
    rng = problems.rng_of("heteroscedastic", architecture, sizes, n)
    settings: dict[str, Any] = {"architecture_name": architecture, "activation": activation, "dtype": dtype}
    return problems.problem(rng, sizes, n, likelihood="heteroscedastic_gaussian", **settings)


def drawn(problem: Problem) -> list[int]:
    """Positions in theta of the weights that are integrated out."""
    return reference.drawn_entries(problem.partial, problem.y.shape[1])


def hidden(problem: Problem) -> FloatArray:
    """theta_h, exact in the posterior's dtype."""
    return np.delete(problem.theta, drawn(problem))


def arguments(problem: Problem) -> tuple[Any, ...]:
    """What the oracle wants after theta_h: C, the variance (of each row), X, y, row weights."""
    C = problem.partial.prior_variances(problems.PRIOR, problem.post.network.net.layer_sizes)
    return C, None, problem.X, problem.y, problem.post.data.row_weights


def exact_value(problem: Problem, theta_hidden: FloatArray) -> float:
    """Collapsed log-likelihood by the oracle."""
    return float(reference.collapsed_log_likelihood(problem.partial, theta_hidden, *arguments(problem)))


def exact_gradient(problem: Problem, theta_hidden: FloatArray) -> FloatArray:
    """Its gradient by complex steps along the axes."""
    axes = np.eye(len(theta_hidden))
    return np.array(
        [reference.collapsed_slope(problem.partial, theta_hidden, axis, *arguments(problem)) for axis in axes]
    )


def relative_rounding(problem: Problem) -> float:
    """Relative error of solves with the covariance of y and of their twins in the output weights: size x cond x eps."""
    C, _, X, y, weights = arguments(problem)
    _, design = reference.output_design(problem.partial, hidden(problem), X, y.shape[1])
    variance = reference.row_variances(problem.partial, hidden(problem), X, y.shape[1])
    signal = np.sqrt((weights[:, None] / variance).ravel())[:, None] * design * np.sqrt(C[drawn(problem)])
    return float(len(design) * (1 + np.linalg.norm(signal, 2) ** 2) * EPS)


def value_tolerance(problem: Problem) -> float:
    """The quadratic form is at most the residuals' sum of squares, the log determinant has one term an entry of y."""
    _, _, X, y, weights = arguments(problem)
    offset, _ = reference.output_design(problem.partial, hidden(problem), X, y.shape[1])
    variance = reference.row_variances(problem.partial, hidden(problem), X, y.shape[1])
    squares = ((y - offset.reshape(y.shape)) ** 2 / variance * weights[:, None]).sum()
    return relative_rounding(problem) * float(squares + y.size)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_value_and_gradient_are_those_of_the_normal_density_of_y(architecture: str, sizes: tuple[int, ...]) -> None:
    problem = case(architecture, sizes)
    entries = np.delete(np.arange(problem.post.dim), drawn(problem))
    np.testing.assert_array_equal(problem.post.density("collapsed").entries, entries)
    value, gradient = problem.post.density("collapsed").value_and_grad(hidden(problem))
    assert abs(value - exact_value(problem, hidden(problem))) <= value_tolerance(problem)
    assert problem.post.density("collapsed").value(hidden(problem)) == value
    exact = exact_gradient(problem, hidden(problem))
    assert np.abs(exact).max() > 1e-3
    tolerance = 10 * relative_rounding(problem) * np.abs(exact).max()
    np.testing.assert_allclose(gradient, exact, rtol=0, atol=tolerance)


def test_the_gradient_is_the_slope_of_the_value() -> None:
    """Central differences of the compiled value itself, whose error is h^2 times a third derivative of order 100."""
    problem, h = case("mix"), 1e-5
    at = hidden(problem)
    _, gradient = problem.post.density("collapsed").value_and_grad(at)
    steps = h * np.eye(len(at))
    values = np.asarray(problem.post.density("collapsed").value(np.concatenate([at + steps, at - steps])))
    slope = (values[: len(at)] - values[len(at) :]) / (2 * h)
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=1e-6 * np.abs(slope).max())


@pytest.mark.parametrize("level", _core.testing.levels())
@pytest.mark.parametrize("n", [1, 5, 530])
@pytest.mark.parametrize("architecture", ["full", "out", "custom"])
def test_every_level_and_several_row_tiles(architecture: str, n: int, level: str) -> None:
    problem = case(architecture, n=n)
    data = problem.data
    parts = (
        problem.post.network.net,
        problem.post.network.architecture,
        problems.PRIOR,
        data.likelihood,
        data.X,
        data.y,
    )
    post = pn.Posterior(*parts, sample_weight=data.sample_weight, dtype="float64", level=level)
    value, gradient = post.density("collapsed").value_and_grad(hidden(problem))
    assert abs(value - exact_value(problem, hidden(problem))) <= value_tolerance(problem)
    for direction in problems.rng_of("directions", architecture, n).normal(size=(3, len(gradient))):
        exact = reference.collapsed_slope(problem.partial, hidden(problem), direction, *arguments(problem))
        tolerance = 10 * relative_rounding(problem) * np.abs(gradient * direction).sum()
        assert abs(gradient @ direction - exact) <= tolerance


def test_a_network_without_hidden_layers() -> None:
    """Features are the inputs, which no bound of an activation limits."""
    rng = problems.rng_of("no hidden layer")
    net = problems.random_network(rng, (3, 2))
    problem = problems.posed(net, pn.Full(), problems.random_data("heteroscedastic_gaussian", rng, 20, 3, 1), rng)
    value, gradient = problem.post.density("collapsed").value_and_grad(hidden(problem))
    assert abs(value - exact_value(problem, hidden(problem))) <= value_tolerance(problem)
    exact = exact_gradient(problem, hidden(problem))
    np.testing.assert_allclose(gradient, exact, rtol=0, atol=10 * relative_rounding(problem) * np.abs(exact).max())


@pytest.mark.parametrize("activation", problems.ACTIVATIONS)
def test_fishers_identity_holds_for_every_activation(activation: str) -> None:
    """The collapsed gradient is the mean of the full one over the weights' conditional distribution.

    The gradient is quadratic in them, so two points for each give the mean exactly.
    """
    problem = case("mix", activation=activation)
    t = problem.y.shape[1]
    value, gradient = problem.post.density("collapsed").value_and_grad(hidden(problem))
    assert abs(value - exact_value(problem, hidden(problem))) <= value_tolerance(problem)
    mean, covariance = reference.output_conditional(problem.partial, hidden(problem), *arguments(problem))
    steps = np.sqrt(len(mean)) * np.linalg.cholesky(covariance).T
    theta = [reference.joined(problem.partial, hidden(problem), a, t) for a in (*(mean + steps), *(mean - steps))]
    full = np.asarray(problem.post.log_likelihood_and_grad(np.array(theta))[1]).mean(axis=0)
    expected = full[problem.post.density("collapsed").entries]
    np.testing.assert_allclose(
        gradient, expected, rtol=0, atol=10 * relative_rounding(problem) * np.abs(expected).max()
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_bayes_rule_holds_between_the_full_and_the_collapsed_density(architecture: str) -> None:
    """log p(y | theta_h) = l(theta) + log N(a; 0, S) - log N(a; m, Sigma) whatever a is."""
    problem = case(architecture)
    post = problem.post
    mean, covariance = reference.output_conditional(problem.partial, hidden(problem), *arguments(problem))
    collapsed = post.density("collapsed").value(hidden(problem))
    for trial in range(3):
        a = problems.rng_of("a", architecture, trial).normal(size=len(mean))
        full = post.log_likelihood(reference.joined(problem.partial, hidden(problem), a, problem.y.shape[1]))
        prior = reference.log_normal(a, np.zeros_like(a), post.prior_variance[drawn(problem)])
        away = a - mean
        conditional = -0.5 * (away @ np.linalg.solve(covariance, away) + np.linalg.slogdet(covariance)[1])
        tolerance = value_tolerance(problem) + relative_rounding(problem) * (abs(full) + abs(conditional))
        assert abs(full + prior - conditional - collapsed) <= tolerance


@pytest.mark.parametrize("n", [15, 700])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("architecture", ["full", "mix", "out", "custom"])
def test_float32_errs_no_more_than_its_roundings_allow(architecture: str, activation: str, n: int) -> None:
    """Tolerance: what single roundings of theta, inputs and targets do in float64, times the roundings on a path.

    As in tests/test_collapsed.py: 2 x 3 x 17 roundings, each like one of those.
    """
    problem = case(architecture, n=n, dtype="float32", activation=activation)
    value, gradient = problem.post.density("collapsed").value_and_grad(hidden(problem))
    assert np.asarray(gradient).dtype == np.float32
    rng = problems.rng_of("rounded", architecture, activation, n)

    def wide(unit: float) -> tuple[float, FloatArray]:
        def off(values: Any) -> FloatArray:
            array = np.asarray(values, dtype=np.float64)
            return array * (1 + unit * rng.choice([-1.0, 1.0], array.shape))

        net = problem.post.network.net
        near = pn.Network([off(w) for w in net.weights], [off(b) for b in net.biases], net.activation)
        parts = (near, problem.post.network.architecture, problems.PRIOR, LIKELIHOOD, off(problem.X), off(problem.y))
        post = pn.Posterior(*parts, sample_weight=problem.data.sample_weight, dtype="float64")
        found = post.density("collapsed").value_and_grad(off(hidden(problem)))
        return float(found[0]), np.asarray(found[1])

    expected, slope = wide(0.0)
    near = [wide(2.0**-24) for _ in range(6)]
    value_error = 102 * max(abs(other - expected) for other, _ in near)
    slope_error = 102 * max(np.abs(other - slope).max() for _, other in near)
    assert abs(value - expected) <= value_error < 1e-3 * abs(expected)
    assert np.abs(gradient - slope).max() <= slope_error < 1e-2 * np.abs(slope).max()


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("n", [40, 700])
@pytest.mark.parametrize("log_variance", [-2.0, -9.0, -14.0])
def test_rows_of_low_variance_in_float32(log_variance: float, n: int, activation: str) -> None:
    """The variance of the first rows is up to e^18 times below that of the others, as one hidden node says.

    M then has entries up to 1e6 and more beside ones. The value differs by the rounding of the residuals of these rows
    alone, some u of the outputs' scale over their standard deviation; the gradient, where they are divided by the
    variance, by a few times what that of the full model errs by, at draws of the weights that are integrated out.
    """
    rng = problems.rng_of("low rows", activation, n)
    net = problems.random_network(rng, (2, 12, 2), activation)
    X = rng.uniform(-1, 1, (n, 2))
    X[:5, 0] += 4
    weights, biases = [w.copy() for w in net.weights], [b.copy() for b in net.biases]
    weights[0][0], biases[0][0] = (3.0, 0.0), -6.0
    top = float(np.tanh(6.0)) if activation == "tanh" else 6.0
    weights[1][1], biases[1][1] = 0.0, log_variance / 2 if activation == "tanh" else 0.0
    weights[1][1, 0] = log_variance / 2 if activation == "tanh" else log_variance / top
    net = pn.Network(weights, biases, activation)
    y = net.predict(X)[:, 0] + 0.1 * np.exp(0.5 * net.predict(X)[:, 1]) * rng.normal(size=n)
    prior = pn.TraceClassPrior(1.5, 4.0, 4.0)
    posts = [pn.Posterior(net, pn.Full(), prior, LIKELIHOOD, X, y, dtype=dtype) for dtype in ("float32", "float64")]
    around = posts[0].theta_map[posts[0].density("collapsed").entries]
    points = (around + 1e-4 * rng.normal(size=(10, len(around)))).astype(np.float32)
    l32, g32 = posts[0].density("collapsed").value_and_grad(points)
    l64, g64 = posts[1].density("collapsed").value_and_grad(points.astype(np.float64))
    deviation = float(np.exp(0.5 * net.predict(X)[:, 1]).min())
    np.testing.assert_allclose(l32, l64, rtol=0, atol=64 * 2.0**-24 * n / deviation)
    theta = posts[1].density("collapsed").complete(points, seed=1).astype(np.float32)
    full = [
        post.log_likelihood_and_grad(theta.astype(post.network.dtype))[1][:, posts[0].density("collapsed").entries]
        for post in posts
    ]
    allowed = 8 * np.linalg.norm(full[0] - full[1], axis=1).max()
    assert np.linalg.norm(g32 - g64, axis=1).max() <= allowed


# Draws


def run(post: pn.Posterior, kernel: pn.Kernel = COLLAPSED, **changes: Any) -> pn.Draws:
    settings: dict[str, Any] = {"chains": 2, "draws": 50, "warmup": None, "seed": 4, "threads": 1, "progress": False}
    return pn.sample(post, kernel, **(settings | changes))


@pytest.mark.parametrize("delta", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("kernel", ["pcnl", "mgrad"])
@pytest.mark.parametrize("architecture", ["full", "out", "custom"])
def test_collapsed_acceptance_is_detailed_balance(architecture: str, kernel: str, delta: float) -> None:
    """The log ratio equals log pi(v) q(v, u) - log pi(u) q(u, v) on theta_h, the prior's variances in its order."""
    problem = case(architecture)
    delta = min(delta, 2.0) if kernel == "pcnl" else delta
    C = np.asarray(problem.post.prior_variance)[problem.post.density("collapsed").entries]
    nothing = np.zeros(len(C))
    density = reference.pcnl_log_density if kernel == "pcnl" else reference.mgrad_log_density
    propose = reference.pcnl_proposal if kernel == "pcnl" else reference.mgrad_proposal
    u = hidden(problem)
    v = propose(u, nothing, C, problems.rng_of("balance", architecture, kernel, delta).normal(size=len(C)), delta)
    g_u, g_v = exact_gradient(problem, u), exact_gradient(problem, v)
    ends = [exact_value(problem, at) + reference.log_normal(at, nothing, C) for at in (u, v)]
    exact = ends[1] - ends[0] + density(u, v, g_v, C, delta) - density(v, u, g_u, C, delta)
    everywhere = np.asarray(problem.post.prior_variance)
    got = problem.post.sampled.compiled.host.log_acceptance(u, v, everywhere, kernel, delta, collapse=True)
    assert abs(got - exact) <= 1e-9 * (1 + abs(exact)) + 10 * relative_rounding(problem) * (np.abs(ends).max() + len(C))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("architecture", ["full", "out", "custom"])
def test_output_weights_are_drawn_from_their_conditional_given_each_kept_state(architecture: str, dtype: str) -> None:
    """Whitened by the conditional of its own theta_h, a is independent standard normal, whatever the chain does."""
    from scipy.stats import kstest

    problem = case(architecture, dtype=dtype)
    entries = problem.post.density("collapsed").entries
    theta = run(problem.post, chains=1, draws=600).theta[0].astype(np.float64)
    moved = np.any(np.diff(theta[:, entries], axis=0) != 0, axis=1).mean()
    assert 0.2 < moved < 1
    found = []
    for row in theta:
        mean, covariance = reference.output_conditional(problem.partial, row[entries], *arguments(problem))
        found.append(np.linalg.solve(np.linalg.cholesky(covariance), row[drawn(problem)] - mean))
    z = np.array(found)
    # Means of `count` independent normals and of their products, each below 5 of its standard errors.
    count, dim = z.shape
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(count)
    assert np.abs(z.T @ z / count - np.eye(dim)).max() < 5 * np.sqrt(2 / count)
    assert np.abs((z[1:] * z[:-1]).mean(axis=0)).max() < 5 / np.sqrt(count)
    assert kstest(z.ravel(), "norm").pvalue > 1e-4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", [pn.PCNL(0.05, collapse=True), COLLAPSED], ids=str)
def test_stats_are_those_of_the_full_model_at_the_returned_theta(kernel: pn.Kernel, dtype: str) -> None:
    problem = case("mix", dtype=dtype)
    draws = run(problem.post, kernel)
    expected = problem.post.log_likelihood(draws.theta.reshape(-1, problem.post.dim)).reshape(2, 50)
    # a is rounded to dtype: l moves by |g| |a| eps, at most a few dozen |l| eps here.
    tolerance = 100 * np.finfo(dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(draws.stats["log_likelihood"], expected, rtol=0, atol=tolerance)
    assert_log_priors(draws, problem.post)


def test_draws_depend_neither_on_thinning_nor_on_length_chains_or_threads() -> None:
    post = case("mix", dtype="float32").post
    every = run(post, chains=3, draws=60)
    np.testing.assert_array_equal(run(post, chains=3, draws=6, thin=10).theta, every.theta[:, 9::10])
    np.testing.assert_array_equal(run(post, chains=1, draws=7).theta, every.theta[:1, :7])
    np.testing.assert_array_equal(run(post, chains=3, draws=60, threads=2).theta, every.theta)


@pytest.mark.parametrize(
    ("architecture", "n"), [(pn.Full(), 3_000), (pn.Mix(5), 12_000), (pn.Out(10), 100_000)], ids=str
)
def test_threads_that_share_a_step_do_not_change_it(architecture: pn.Architecture, n: int) -> None:
    """Four threads, several slabs of rows of a million multiply-adds each, two passes over them a step."""
    rng = problems.rng_of("shared heteroscedastic steps")
    net = problems.random_network(rng, (8, 40, 40, 2))
    X, y = rng.normal(size=(n, 8)), rng.normal(size=n)
    post = pn.Posterior(net, architecture, problems.PRIOR, LIKELIHOOD, X, y)
    kernel = pn.MGrad(0.3 / n, collapse=True)
    alone, shared = (run(post, kernel, chains=1, draws=20, threads=threads) for threads in (1, 4))
    np.testing.assert_array_equal(shared.theta, alone.theta)
    assert alone.stats["acceptance_rate"].mean() > 0.2


@pytest.mark.parametrize("metric", ["inputs", "curvature"])
@pytest.mark.parametrize("architecture", ["full", "mix"])
def test_metrics_step_in_the_coordinates_of_theta_h(architecture: str, metric: str) -> None:
    """Steps of nothing keep theta_h; longer ones leave draws whose log-likelihood is the full model's."""
    problem = case(architecture)
    post, entries = problem.post, problem.post.density("collapsed").entries
    still = run(post, pn.MGrad(1e-20, collapse=True, metric=metric), init=np.stack([problem.theta] * 2), draws=10)
    np.testing.assert_allclose(still.theta[..., entries] - hidden(problem), 0.0, rtol=0, atol=1e-8)
    draws = run(post, pn.MGrad(0.02, collapse=True, metric=metric), init=np.stack([problem.theta] * 2))
    assert 0.2 < draws.stats["acceptance_rate"].mean() <= 1
    expected = post.log_likelihood(draws.theta.reshape(-1, post.dim)).reshape(2, 50)
    np.testing.assert_allclose(draws.stats["log_likelihood"], expected, rtol=1e-10)


def test_chains_with_and_without_collapsing_agree() -> None:
    """Means and spreads of f, s and l within 4.5 standard errors of batch means."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (30, 1))
    net = problems.random_network(problems.rng_of("agreement"), (1, 4, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * np.exp(0.5 * X[:, 0]) * rng.normal(size=30)
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(1.0, 1.0), LIKELIHOOD, X, y)
    estimates = []
    for kernel in (pn.MGrad(persistence=0.9), pn.MGrad(collapse=True, persistence=0.9)):
        draws = pn.sample(post, kernel, chains=2, draws=1000, thin=100, warmup=4000, seed=6, progress=False)
        outputs = draws.distribution(np.array([[-1.5], [0.0], [1.5]])).outputs().astype(float).reshape(2, 1000, -1)
        values = np.concatenate([outputs, outputs**2, draws.stats["log_likelihood"][..., None]], axis=-1)
        batches = values.reshape(2 * 10, 100, -1).mean(axis=1)
        estimates.append((batches.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(len(batches))))
    (mean, error), (collapsed_mean, collapsed_error) = estimates
    assert (np.abs(mean - collapsed_mean) < 4.5 * np.hypot(error, collapsed_error)).all()


@pytest.mark.parametrize("metric", ["prior", "curvature"])
@pytest.mark.parametrize("prior", [problems.PRIOR, pn.GaussianPrior(1.0, 0.5)], ids=["trace-class", "gaussian"])
def test_sampled_scales(prior: Any, metric: str) -> None:
    """The density follows the scales: a chain that draws them has the log prior and log-likelihood of its theta."""
    problem = case("mix")
    post = pn.Posterior(
        problem.post.network.net, problem.post.network.architecture, dataclasses.replace(prior, scales="sampled"),
        LIKELIHOOD, problem.X, problem.y, sample_weight=problem.data.sample_weight, dtype="float64",
    )  # fmt: skip
    draws = run(post, pn.MGrad(0.05, collapse=True, metric=metric), scales_every=1, draws=100)
    assert 0.1 < draws.stats["acceptance_rate"].mean() < 1
    expected = post.log_likelihood(draws.theta.reshape(-1, post.dim)).reshape(2, 100)
    np.testing.assert_allclose(draws.stats["log_likelihood"], expected, rtol=1e-9)
    log_priors = [post.log_prior(draws.theta[c], scales=draws.stats["prior_scales"][c]) for c in range(2)]
    np.testing.assert_allclose(draws.stats["log_prior"], log_priors, rtol=1e-9)
    assert len(np.unique(draws.stats["prior_scales"][0, :, -1])) == 100


def test_predictions_and_files(tmp_path: Any) -> None:
    post = case("mix").post
    draws = run(post, draws=20)
    X = post.data.X[:4]
    assert draws.predict(X).shape == (2, 20, 4, 2) and draws.distribution(X).outputs().shape == (40, 4, 4)
    draws.save(tmp_path / "draws.npz")
    loaded = pn.Draws.load(tmp_path / "draws.npz")
    np.testing.assert_array_equal(loaded.theta, draws.theta)
    np.testing.assert_array_equal(loaded.predictive(X, seed=4), draws.predictive(X, seed=4))
    assert "collapse=True" in str(loaded.summary(X))


def test_a_proposal_beyond_the_range_is_rejected_and_counted() -> None:
    """Log-variances with a prior deviation of 500: e^-s overflows float32 in a third of the prior's draws."""
    net = pn.Network([np.zeros((2, 1))], [np.zeros(2)])
    post = pn.Posterior(
        net, pn.Full(), pn.GaussianPrior(1.0, 2.5e5), LIKELIHOOD, np.ones((3, 1)), np.array([0.0, 1.0, 2.0])
    )
    with pytest.warns(UserWarning, match="not finite"):
        draws = run(post, pn.MGrad(1e5, collapse=True), init=np.zeros((2, post.dim)), draws=300)
    assert np.isfinite(draws.theta).all() and np.isfinite(draws.stats["log_likelihood"]).all()


# The densities of other libraries


@pytest.mark.parametrize("coordinates", ["theta", "whitened"])
def test_densities_of_other_libraries(coordinates: Any) -> None:
    problem = case("mix")
    post, entries = problem.post, problem.post.density("collapsed").entries
    density, whole = post.density("collapsed", coordinates), post.density("collapsed_posterior", coordinates)
    deviation = np.sqrt(post.prior_variance[entries]) if coordinates == "whitened" else np.ones(len(entries))
    point = hidden(problem) / deviation
    np.testing.assert_allclose(density.theta(point), hidden(problem), rtol=1e-14)
    value, gradient = post.density("collapsed").value_and_grad(hidden(problem))
    got, slope = density.value_and_grad(point)
    np.testing.assert_allclose(got, value, rtol=1e-13)
    np.testing.assert_allclose(slope, gradient * deviation, rtol=1e-9, atol=1e-9)
    C = np.ones(len(entries)) if coordinates == "whitened" else post.prior_variance[entries]
    prior = reference.log_normal(point, np.zeros_like(point), C) - 0.5 * len(C) * np.log(2 * np.pi)
    np.testing.assert_allclose(whole.value(point), value + prior, rtol=1e-12)
    start, spread = whole.start, whole.spread
    np.testing.assert_allclose(start * deviation, post.theta_map[entries], rtol=1e-12)
    assert spread.shape == start.shape == (whole.dim,)


def test_completed_points_have_the_conditional_law() -> None:
    problem = case("mix")
    post, entries = problem.post, problem.post.density("collapsed").entries
    theta = post.density("collapsed").complete(np.tile(hidden(problem), (4000, 1)), seed=1)
    np.testing.assert_array_equal(theta[:, entries], np.tile(hidden(problem), (4000, 1)))
    mean, covariance = reference.output_conditional(problem.partial, hidden(problem), *arguments(problem))
    z = np.linalg.solve(np.linalg.cholesky(covariance), (theta[:, drawn(problem)] - mean).T)
    assert np.abs(z.mean(axis=1)).max() < 5 / np.sqrt(4000)
    assert np.abs(z @ z.T / 4000 - np.eye(len(mean))).max() < 5 * np.sqrt(2 / 4000)


# What is chosen and what is refused


def test_the_automatic_kernel_collapses_on_the_cpu() -> None:
    chosen = {name: case(name).post for name in ("full", "mix", "sep", "out")}
    for post in chosen.values():
        assert "collapse=True" in post.describe().splitlines()[-1]
    assert "of the means in the output layer integrated out" in chosen["mix"].describe()
    draws = pn.sample(chosen["mix"], chains=1, draws=3, warmup=200, device="emulated:1", seed=1, progress=False)
    assert draws.settings["kernel"]["collapse"] is False


def test_devices_refuse_it() -> None:
    with pytest.raises(ValueError, match=r'device="emulated:1" integrates output weights out under a Gaussian'):
        run(case("mix").post, device="emulated:1")


def test_networks_without_the_weights_or_without_others_are_refused() -> None:
    rng = problems.rng_of("no means")
    net = problems.random_network(rng, (2, 4, 2))
    data = problems.random_data("heteroscedastic_gaussian", rng, 9, 2, 1)
    none = [np.zeros(w.shape, dtype=bool) for w in (*net.weights, *net.biases)]
    for row, message in (
        (1, "needs Bayesian output weights of the means"),
        (0, "beside the output weights of the means"),
    ):
        weights, biases = [none[0], none[1].copy()], none[2:]
        weights[1][row] = True
        post = pn.Posterior(net, pn.Custom(weights, biases), problems.PRIOR, LIKELIHOOD, data.X, data.y)
        with pytest.raises(ValueError, match=message):
            run(post)
        with pytest.raises(ValueError, match=message):
            post.density("collapsed")
        assert "collapse" not in post.describe().splitlines()[-1]


def test_exact_draws_stay_refused() -> None:
    with pytest.raises(ValueError, match=r"Exact\(\) needs a Gaussian likelihood"):
        run(case("out").post, pn.Exact())
