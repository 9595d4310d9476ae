"""Log-likelihoods and gradients of the engine against torch autograd, in every pair of what changes a formula.

If you run only one file, run this one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
import reference
from patrac_native.engine import _core
from problems import ACTIVATIONS, ARCHITECTURES, LIKELIHOODS, NEEDS_HIDDEN, Problem
from rounding import error_bounds

torch = pytest.importorskip("torch")

LEVELS: list[str] = list(_core.testing.levels())
EPS64 = float(np.finfo(np.float64).eps)
UNIT_ROUNDOFF_32 = 0.5 * float(np.finfo(np.float32).eps)


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def bounded(f: torch.Tensor, sd: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Log densities of N(f, sd^2) where the bounds y (n, m, 2) are equal, else log probabilities, shape (n, m)."""
    law, known = torch.distributions.Normal(f, sd), y[..., 0] == y[..., 1]
    # Equal bounds, and infinite ones, would make the derivative of the branch that is not taken NaN.
    lower = torch.where(known | y[..., 0].isinf(), f.detach() - 40.0 * sd, y[..., 0])
    upper = torch.where(known | y[..., 1].isinf(), f.detach() + 40.0 * sd, y[..., 1])
    at = torch.where(known, y[..., 0], f.detach())
    sign = torch.where(lower + upper > 2 * f.detach(), -1.0, 1.0)  # differences in the lower tail do not cancel
    ends = [0.5 * torch.special.erfc(-sign * (end - f) / sd / math.sqrt(2)) for end in (lower, upper)]
    return torch.where(known, law.log_prob(at), (sign * (ends[1] - ends[0])).log())


def autograd(problem: Problem) -> tuple[float, npt.NDArray[np.float64]]:
    """l and g in float64 at the inputs, targets and parameters as the engine's dtype holds them."""
    zeta: Any = {
        "tanh": torch.tanh,
        "relu": torch.relu,
        "gelu": torch.nn.functional.gelu,
        "silu": torch.nn.functional.silu,
        "sigmoid": torch.sigmoid,
        "softplus": lambda z: torch.nn.functional.softplus(z, threshold=800.0),
    }[problem.partial.activation]
    partial, likelihood = problem.partial, problem.data.likelihood
    weights, biases = partial.with_theta(problem.theta)
    tensors = [torch.tensor(array, requires_grad=True) for pair in zip(weights, biases, strict=True) for array in pair]
    f = torch.tensor(problem.X)
    for layer in range(partial.n_layers):
        f = torch.nn.functional.linear(zeta(f) if layer else f, tensors[2 * layer], tensors[2 * layer + 1])
    if partial.companion is not None:
        f = f + partial.companion.to_torch()(torch.tensor(problem.X)).detach()
    if problem.post.data.offset is not None:
        f = f + torch.tensor(problem.post.data.offset)
    y = torch.tensor(problem.y)
    if isinstance(likelihood, pn.DiscreteValues):
        rows = torch.distributions.Categorical(logits=f).log_prob(
            torch.tensor(reference.labels_of(likelihood, problem.y))
        )
    elif isinstance(likelihood, pn.Categorical):
        rows = torch.distributions.Categorical(logits=f).log_prob(y)
    elif isinstance(likelihood, pn.Bernoulli):
        rows = torch.distributions.Bernoulli(logits=f).log_prob(y).sum(dim=1)
    elif isinstance(likelihood, pn.StudentT):
        of_outputs = torch.tensor(np.broadcast_to(likelihood.scale, f.shape[1:]).copy())
        rows = torch.distributions.StudentT(likelihood.df, f, of_outputs).log_prob(y).sum(dim=1)
    elif isinstance(likelihood, pn.Poisson):
        rows = torch.distributions.Poisson(f.exp()).log_prob(y).sum(dim=1)
    elif isinstance(likelihood, pn.NegativeBinomial):
        dispersion = torch.tensor(np.broadcast_to(likelihood.dispersion, f.shape[1:]).copy())
        law = torch.distributions.NegativeBinomial(1 / dispersion, logits=f + dispersion.log())
        rows = law.log_prob(y).sum(dim=1)
    elif isinstance(likelihood, pn.CensoredGaussian):
        sd = torch.tensor(np.sqrt(np.broadcast_to(likelihood.variance, f.shape[1:])))
        rows = bounded(f, sd, y).sum(dim=1)
    elif isinstance(likelihood, pn.HeteroscedasticGaussian):
        mean, log_variance = f.chunk(2, dim=1)
        rows = torch.distributions.Normal(mean, (0.5 * log_variance).exp()).log_prob(y).sum(dim=1)
    else:
        scale = torch.tensor(np.sqrt(np.broadcast_to(likelihood.variance, f.shape[1:])))
        rows = torch.distributions.Normal(f, scale).log_prob(y).sum(dim=1)
    value = (rows * torch.tensor(problem.post.data.row_weights)).sum()
    value.backward()
    gradients = [np.zeros(t.shape) if t.grad is None else t.grad.numpy() for t in tensors]
    g = [
        gradients[2 * layer + 1][mb] if k else gradients[2 * layer][mw]
        for layer, (mw, mb) in enumerate(zip(partial.weight_masks, partial.bias_masks, strict=True))
        for k in (0, 1)
    ]
    return float(value.detach()), np.concatenate(g)


def check(problem: Problem) -> None:
    """Compare the engine with autograd at problem.theta, within the tolerance of its dtype."""
    value, gradient = autograd(problem)
    got_value, got_gradient = problem.post.log_likelihood_and_grad(problem.theta)
    assert problem.post.log_likelihood(problem.theta) == got_value
    assert gradient.shape == got_gradient.shape == (problem.post.dim,)
    if problem.post.network.dtype == np.float64:
        # The issue's own bound; rounding alone gives about 1e-13 on these sizes.
        np.testing.assert_allclose(got_gradient, gradient, rtol=0, atol=1e-9 * np.abs(gradient).max())
        bounds = error_bounds(problem, 0.5 * EPS64)
    else:
        bounds = error_bounds(problem, UNIT_ROUNDOFF_32)
        error = np.abs(got_gradient - gradient)
        assert (error <= bounds.gradient).all(), (error / np.maximum(bounds.gradient, 1e-300)).max()
    # The oracle's own roundings, in float64, add about as much again as the engine's in float64.
    assert abs(got_value - value) <= bounds.value + error_bounds(problem, 0.5 * EPS64).value


COMBINATIONS = problems.balanced(
    itertools.product(ARCHITECTURES, LIKELIHOODS, ("float64", "float32")), ACTIVATIONS, LEVELS
)


def test_the_combinations_hold_every_pair() -> None:
    for one, other in itertools.combinations(range(5), 2):
        values = [{combination[place] for combination in COMBINATIONS} for place in (one, other)]
        pairs = {(combination[one], combination[other]) for combination in COMBINATIONS}
        assert pairs == set(itertools.product(*values))


@pytest.mark.parametrize(
    ("architecture", "likelihood", "dtype", "activation", "level"), COMBINATIONS, indirect=["level"]
)
def test_gradient_agrees_with_autograd(
    architecture: str, likelihood: str, activation: str, dtype: str, level: str
) -> None:
    rng = problems.rng_of("gradient", architecture, likelihood, activation, dtype, level)
    sizes = problems.widths_for(rng, architecture, likelihood)
    n = int(rng.choice([1, 2, 3, 5, 7, 9, 11, 13, 17, 29, 31, 33, 57, 67]))
    problem = problems.problem(rng, sizes, n, architecture, likelihood, activation=activation, dtype=dtype)
    assert problem.post.network.level == problem.post.sampled.compiled.host.level == level
    check(problem)


@pytest.mark.parametrize(
    ("architecture", "n_layers"),
    [(name, depth) for name in ARCHITECTURES for depth in range(2 if name in NEEDS_HIDDEN else 1, 6)],
)
def test_gradient_at_every_depth(architecture: str, n_layers: int) -> None:
    rng = problems.rng_of("depth", architecture, n_layers)
    check(problems.problem(rng, problems.random_sizes(rng, n_layers, 9), 21, architecture))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n_hidden", [1, 2, 3])
def test_gradient_of_narrow_networks(n_hidden: int, level: str, dtype: str) -> None:
    """Equal hidden layers, narrower and wider than those that have a loop of their own; one tile and several."""
    for width in range(1, 8):
        for n in (5, 33, 300):
            rng = problems.rng_of("narrow", n_hidden, width, n)
            check(problems.problem(rng, (1 + width % 3, *[width] * n_hidden, 1), n, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gradient_at_every_width(level: str, dtype: str) -> None:
    """d, m and the hidden widths each go through 1..20: every remainder of the register blocks."""
    for width in range(1, 21):
        rng = problems.rng_of("width", width)
        sizes = (width, 1 + (7 * width) % 20, 1 + (11 * width) % 19, 21 - width)
        check(problems.problem(rng, sizes, 19, dtype=dtype))
        check(problems.problem(rng, sizes, 19, "custom", dtype=dtype))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gradient_of_wide_neighbours(level: str, dtype: str) -> None:
    """Gradients of layers of 16 nodes and more between each other: either side the longer, every remainder of it.

    Rows around one vector and several, and more than one tile.
    """
    for width in (*range(15, 34), 50, 64, 65, 81):
        rng = problems.rng_of("neighbours", width)
        for sizes in ((17, width, 1), (width, 23, 2)):
            for n in (7, 100, 300):
                check(problems.problem(rng, sizes, n, "full", dtype=dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("k", range(1, 7))
def test_gradient_through_a_wide_last_hidden_layer(k: int, level: str, dtype: str) -> None:
    """Mix with up to five Bayesian nodes below a wide last layer, and with six, which takes the usual way."""
    for width in (k, 8, 9, 20):
        if width < k:
            continue
        rng = problems.rng_of("last hidden", k, width)
        net = problems.random_network(rng, (2, 7, width, 1))
        for n in (*range(1, 41), 100, 300):
            data = problems.random_data("bernoulli" if n % 2 else "gaussian_by_output", rng, n, 2, 1)
            check(problems.posed(net, pn.Mix(k), data, rng, dtype))


def test_gradient_where_the_last_layer_reads_constants_beside_few_varying_nodes(level: str) -> None:
    """A pruned node of the last hidden layer is a constant of the data, but its output weight may be Bayesian."""
    rng = problems.rng_of("pruned")
    net = problems.random_network(rng, (2, 3, 6, 1))
    weights = [w.copy() for w in net.weights]
    weights[1][4, 0] = 0.0
    net = pn.Network(weights, net.biases)
    masks = [np.zeros(w.shape, bool) for w in weights], [np.zeros(len(b), bool) for b in net.biases]
    masks[0][0][0] = masks[0][2][:] = True
    architecture = pn.Custom(*masks)
    data = problems.random_data("gaussian", rng, 21, 2, 1)
    problem = problems.posed(net, architecture, data, rng)
    assert [layer["varying"] for layer in problem.post.plan().layers] == [1, 5, 1]
    check(problem)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_overflow_leaves_nothing_behind(level: str, dtype: str) -> None:
    """A non-finite evaluation changes no bit of the next one, for every remainder of rows and in the padding too."""
    huge = 3e38 if dtype == "float32" else 1.7e308
    for activation in ACTIVATIONS:
        for sizes in ((20, 50, 1), (3, 18, 21, 1), (3, 18, 22, 1), (2, 5, 30, 6)):
            rng = problems.rng_of("overflow", activation, *sizes)
            net = problems.random_network(rng, sizes, activation)
            for n in (3, 8, 9, 20, 24, 28, 32, 100):
                data = problems.random_data("gaussian", rng, n, sizes[0], sizes[-1])
                for architecture in (pn.Full(), pn.Mix(3)):
                    post = pn.Posterior(net, architecture, problems.PRIOR, data.likelihood, data.X, data.y, dtype=dtype)
                    theta = post.theta_map.astype(dtype)
                    value, gradient = post.log_likelihood_and_grad(theta)
                    assert np.isfinite(value)
                    for bad in (np.full(post.dim, huge), np.full(post.dim, huge**0.66), -np.sign(theta) * huge):
                        post.log_likelihood_and_grad(bad)
                        again, gradient_again = post.log_likelihood_and_grad(theta)
                        assert again == value == post.log_likelihood(theta)
                        np.testing.assert_array_equal(gradient_again, gradient)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gradient_at_every_number_of_rows(level: str, dtype: str) -> None:
    """n from 1 to 72: every remainder of the vector width and of the blocks of vectors."""
    net = problems.random_network(problems.rng_of("rows"), (2, 7, 3))
    for n in range(1, 73):
        rng = problems.rng_of("rows", n)
        data = problems.random_data("categorical" if n % 2 else "gaussian_by_output", rng, n, 2, 3)
        check(problems.posed(net, pn.Mix(3), data, rng, dtype))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gradient_over_several_tiles(architecture: str, dtype: str) -> None:
    """Three tiles and a piece: their rows, offsets and constants must follow on each other."""
    rng = problems.rng_of("tiles", architecture, dtype)
    problem = problems.problem(rng, (3, 12, 9, 2), 811, architecture, dtype=dtype)
    assert problem.post.sampled.compiled.host.tile_rows == 256
    check(problem)


@pytest.mark.parametrize("architecture", ["full", "mix", "custom"])
def test_gradient_where_wide_layers_make_low_tiles(architecture: str) -> None:
    """Wide layers lower the tile to its least height; a tile of another height must change nothing but rounding."""
    problem = problems.problem(problems.rng_of("wide", architecture), (5, 70, 60, 3), 301, architecture)
    assert problem.post.sampled.compiled.host.tile_rows == 96
    check(problem)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_log_likelihood_is_that_of_the_likelihood_at_the_networks_outputs(architecture: str, likelihood: str) -> None:
    """At theta_map every architecture but Sep is the trained network itself."""
    rng = problems.rng_of("value", architecture, likelihood)
    problem = problems.problem(rng, (3, 8, 6, 4), 37, architecture, likelihood)
    post, data = problem.post, problem.data
    f = data.likelihood.with_offset(post.network.net.predict(data.X), data.offset)
    expected = data.likelihood.log_likelihood(f, post.data.y, data.sample_weight)
    if architecture.startswith("sep"):
        # Zero weights: the separate network is silent, so the sum is the trained network's output.
        assert not post.theta_map.any()
    at_map = Problem(post, problem.partial, data, np.asarray(post.theta_map))
    tolerance = 2 * error_bounds(at_map, 0.5 * EPS64).value
    assert abs(post.log_likelihood(post.theta_map) - expected) <= tolerance
    assert abs(problem.reference_value(np.asarray(post.theta_map)) - expected) <= tolerance


def test_large_outputs_stay_finite_in_every_likelihood() -> None:
    """Softmax and sigmoid far out: l and g must be those of the stable forms, not NaN."""
    net = pn.Network([[[1.0], [-1.0]]], [[0.0, 0.0]])
    X = np.array([[300.0], [-300.0], [0.5]])
    for likelihood, y in ((pn.Categorical(), [0, 0, 1]), (pn.Bernoulli(), [[1, 1], [1, 1], [0, 1]])):
        for dtype in ("float32", "float64"):
            post = pn.Posterior(net, pn.Full(), problems.PRIOR, likelihood, X, y, dtype=dtype)
            data = problems.Data(likelihood, X, np.asarray(y), None)
            problem = Problem(post, reference.partial(net, pn.Full()), data, np.asarray(post.theta_map))
            assert np.isfinite(autograd(problem)[1]).all()
            check(problem)


@pytest.mark.parametrize(
    ("architecture", "likelihood", "activation"),
    problems.balanced(itertools.product(ARCHITECTURES, LIKELIHOODS), ACTIVATIONS),
)
def test_reference_gradient_agrees_with_autograd(architecture: str, likelihood: str, activation: str) -> None:
    """The oracle itself, with which devices and other densities are compared."""
    rng = problems.rng_of("oracle", architecture, likelihood)
    problem = problems.problem(rng, (3, 6, 5, 3), 11, architecture, likelihood, activation=activation)
    value, gradient = autograd(problem)
    bounds = error_bounds(problem, 0.5 * EPS64)
    assert abs(problem.reference_value() - value) <= 2 * bounds.value
    assert (np.abs(problem.reference_gradient() - gradient) <= 2 * bounds.gradient).all()


def test_error_of_float32_is_below_the_worst_case_as_independent_roundings_are(level: str) -> None:
    """The worst case adds the errors of n rows with one sign; independent ones add like a random walk.

    n rows of equal size: standard deviation worst / sqrt(n), so 4 of them hold for the largest of K = 582 entries too.
    This would notice sums that lose a good part of float32.
    """
    n = 200
    for activation in ACTIVATIONS:
        rng = problems.rng_of("typical", activation)
        problem = problems.problem(rng, (4, 20, 20, 3), n, activation=activation, dtype="float32")
        error = np.abs(problem.post.log_likelihood_and_grad(problem.theta)[1] - problem.reference_gradient())
        worst = error_bounds(problem, UNIT_ROUNDOFF_32).gradient
        assert (error <= 4 * worst / np.sqrt(n)).all()


def test_bernoulli_in_float32_does_not_cancel_at_confident_ones() -> None:
    """l = -log(1 + e^-f) for y = 1: e^-f to rounding, where y f - log(1 + e^f) would lose all of it beyond f = 15."""
    net = pn.Network([[[0.0]]], [[0.0]])
    prior = pn.TraceClassPrior(1.5, 1.0, 1.0)
    post = pn.Posterior(net, pn.Full(), prior, pn.Bernoulli(), [[1.0]], [1.0], dtype="float32")
    for f in (1.0, 10.0, 15.0, 20.0, 60.0):
        value, gradient = post.log_likelihood_and_grad([0.0, f])
        assert value == pytest.approx(-np.log1p(np.exp(-f)), rel=1e-6)
        assert gradient[1] == pytest.approx(1 / (1 + np.exp(f)), rel=1e-6)
