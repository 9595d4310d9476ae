"""The plan: what varies, what is folded, and how theta is laid out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
import reference
from problems import ARCHITECTURES, Problem
from rounding import error_bounds

UNIT_ROUNDOFF = 0.5 * float(np.finfo(np.float64).eps)
FloatArray = npt.NDArray[np.float64]


def posterior(net: pn.Network, architecture: pn.Architecture) -> tuple[pn.Posterior, problems.Data]:
    """A float64 Gaussian posterior on data that depend on the network's shape alone."""
    rng = problems.rng_of("plan data", net.layer_sizes[0], net.layer_sizes[-1], 23)
    data = problems.random_data("gaussian", rng, 23, net.layer_sizes[0], net.layer_sizes[-1])
    return pn.Posterior(net, architecture, problems.PRIOR, data.likelihood, data.X, data.y, dtype="float64"), data


# Fixed and Bayesian nodes read each other (Mix)


def two_by_two(from_bayesian: float, from_fixed: float, out_bayesian: float, out_fixed: float) -> pn.Network:
    """1-2-2-1, node 0 of each hidden layer first in rank; `from_*` are the weights that cross between the kinds."""
    return pn.Network(
        [[[0.9], [0.4]], [[0.3, from_fixed], [from_bayesian, 0.2]], [[out_bayesian, out_fixed]]],
        [[2.0, 0.1], [3.0, -0.2], [0.05]],
    )


def test_mix_fixed_node_reads_bayesian_nodes_through_fixed_weights() -> None:
    """The Bayesian node of layer 1 reaches the output through the fixed node of layer 2 alone."""
    net = two_by_two(from_bayesian=0.7, from_fixed=0.0, out_bayesian=0.0, out_fixed=1.3)
    post, data = posterior(net, pn.Mix(1))
    theta = np.array([0.6, -0.3, 0.8, 0.4, 0.0, 0.15])  # w1, b1; w2, b2; w3 = 0, b3: the Bayesian path is cut
    x = data.X[:, 0]
    hidden = np.tanh(0.6 * x - 0.3)
    fixed = np.tanh(0.7 * hidden + 0.2 * np.tanh(0.4 * x + 0.1) - 0.2)
    f = 1.3 * fixed + 0.15
    # A handful of operations on numbers of order one.
    np.testing.assert_allclose(post.network.predict(theta, data.X)[:, 0], f, rtol=0, atol=40 * UNIT_ROUNDOFF)
    slope = (data.y[:, 0] - f) / 0.7 * 1.3 * (1 - fixed**2) * 0.7 * (1 - hidden**2)
    gradient = post.log_likelihood_and_grad(theta)[1]
    np.testing.assert_allclose(gradient[:2], [slope @ x, slope.sum()], rtol=0, atol=1e3 * UNIT_ROUNDOFF)
    assert np.abs(gradient[:2]).min() > 1e-3


def test_mix_bayesian_node_reads_fixed_nodes_through_fixed_weights() -> None:
    """The fixed node of layer 1 reaches the output through the Bayesian node of layer 2 alone."""
    net = two_by_two(from_bayesian=0.0, from_fixed=0.9, out_bayesian=1.0, out_fixed=0.0)
    post, data = posterior(net, pn.Mix(1))
    theta = np.array([0.6, -0.3, 0.0, 0.4, 1.1, 0.15])  # w2 = 0: layer 2's Bayesian node hears the fixed node alone
    x = data.X[:, 0]
    hidden = np.tanh(0.9 * np.tanh(0.4 * x + 0.1) + 0.4)
    f = 1.1 * hidden + 0.15
    np.testing.assert_allclose(post.network.predict(theta, data.X)[:, 0], f, rtol=0, atol=40 * UNIT_ROUNDOFF)
    gradient = post.log_likelihood_and_grad(theta)[1]
    residual = (data.y[:, 0] - f) / 0.7
    np.testing.assert_allclose(gradient[4], residual @ hidden, rtol=0, atol=1e3 * UNIT_ROUNDOFF)
    assert np.ptp(hidden) > 0.5


# What the plan says it found


COLUMNS = ("nodes", "varying", "varying_sources", "constant_sources", "offsets", "bayesian", "gradient_block")


@pytest.mark.parametrize(
    ("architecture", "layers"),
    [
        (pn.Full(), [(50, 50, 0, 1, 0, 100, 50), (50, 50, 50, 0, 0, 2550, 2500), (1, 1, 50, 0, 0, 51, 50)]),
        # 45 constant nodes of layer 1 become one offset for each of the 50 nodes of layer 2, all of which vary.
        (pn.Mix(5), [(50, 5, 0, 1, 0, 10, 5), (50, 50, 5, 0, 50, 30, 25), (1, 1, 50, 0, 0, 6, 5)]),
        # No hidden node varies: the 45 nodes read are constants of the data, the other five are one offset.
        (pn.Out(45), [(50, 0, 0, 0, 0, 0, 0), (50, 0, 0, 0, 0, 0, 0), (1, 1, 0, 45, 1, 46, 45)]),
        (pn.Out(50), [(50, 0, 0, 0, 0, 0, 0), (50, 0, 0, 0, 0, 0, 0), (1, 1, 0, 50, 0, 51, 50)]),
        # The trained network is one offset of the output.
        (pn.Sep(5), [(5, 5, 0, 1, 0, 10, 5), (5, 5, 5, 0, 0, 30, 25), (1, 1, 5, 0, 1, 6, 5)]),
    ],
    ids=str,
)
def test_plan_on_the_papers_network(architecture: pn.Architecture, layers: list[tuple[int, ...]]) -> None:
    post = posterior(problems.random_network(problems.rng_of("paper"), (1, 50, 50, 1)), architecture)[0]
    assert post.plan().layers == [dict(zip(COLUMNS, layer, strict=True)) for layer in layers]
    assert post.dim == sum(layer[COLUMNS.index("bayesian")] for layer in layers)


def test_plan_leaves_out_what_only_zero_fixed_weights_connect() -> None:
    """A node that reads varying nodes through zero fixed weights alone is a constant of the data."""
    net = problems.random_network(problems.rng_of("zeros"), (2, 4, 6, 5, 2))
    weights = [w.copy() for w in net.weights]
    weights[1][3:, 1] = 0.0  # layer 2: nodes 3.. do not read node 1 of layer 1
    weights[2][2:, :3] = 0.0  # layer 3: nodes 2.. read only those
    net = pn.Network(weights, net.biases)
    masks = [np.zeros(w.shape, bool) for w in weights], [np.zeros(len(b), bool) for b in net.biases]
    masks[1][0][1] = True  # one bias of layer 1
    architecture = pn.Custom(*masks)
    post, data = posterior(net, architecture)
    plan = post.plan().layers
    assert [layer["varying"] for layer in plan] == [1, 3, 2, 2]
    assert [layer["varying_sources"] for layer in plan] == [0, 1, 3, 2]
    # Layer 4 evaluates both outputs, which read the two varying nodes and, folded, the three constant ones.
    assert [layer["offsets"] for layer in plan] == [1, 3, 2, 2]
    partial = reference.partial(net, architecture)
    problem = Problem(post, partial, data, np.array([0.37]))
    bounds = error_bounds(problem, UNIT_ROUNDOFF)
    value, gradient = post.log_likelihood_and_grad([0.37])
    assert abs(value - problem.reference_value()) <= 2 * bounds.value
    assert abs(gradient - problem.reference_gradient()) <= 2 * bounds.gradient


def test_output_that_no_bayesian_parameter_reaches_still_counts() -> None:
    """The likelihood reads every output, so a constant one is evaluated too."""
    net = problems.random_network(problems.rng_of("constant output"), (2, 3, 2))
    masks = [np.zeros(w.shape, bool) for w in net.weights], [np.zeros(len(b), bool) for b in net.biases]
    masks[1][1][0] = True
    post, data = posterior(net, pn.Custom(*masks))
    assert post.plan().layers[-1]["varying"] == 1
    f = post.network.predict([0.25], data.X)
    expected = net.predict(data.X)
    expected[:, 0] += 0.25 - net.biases[-1][0]
    np.testing.assert_allclose(f, expected, rtol=0, atol=40 * UNIT_ROUNDOFF)


def test_bayesian_weight_out_of_a_varying_node_of_the_same_row_as_fixed_ones() -> None:
    """Scattered masks: every mixture of fixed, Bayesian, varying and constant in one row, for many masks."""
    for trial in range(40):
        rng = problems.rng_of("scattered", trial)
        share = [0.02, 0.2, 0.6, 0.95][trial % 4]
        net = problems.random_network(rng, problems.random_sizes(rng, 1 + trial % 4, 8))
        architecture = problems.random_masks(rng, net, share)
        post, data = posterior(net, architecture)
        theta = post.theta_map + 0.3 * rng.normal(size=post.dim)
        problem = Problem(post, reference.partial(net, architecture), data, theta)
        bounds = error_bounds(problem, UNIT_ROUNDOFF)
        value, gradient = post.log_likelihood_and_grad(theta)
        assert abs(value - problem.reference_value()) <= 2 * bounds.value
        assert (np.abs(gradient - problem.reference_gradient()) <= 2 * bounds.gradient).all()
        f, f_bound = post.network.predict(theta, data.X), 2 * bounds.f
        assert (np.abs(f - problem.partial.predict(theta, data.X)) <= f_bound).all()


# The order of the user's nodes


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name != "custom"])
def test_a_network_in_any_node_order_gives_the_same_posterior_and_the_same_draws(name: str, dtype: str) -> None:
    """After ranking it is the same network, so every bit agrees."""
    rng = problems.rng_of("any order", name)
    net = problems.random_network(rng, (3, 8, 7, 2))
    architecture = problems.architecture(name, rng, net)
    other, orders = problems.shuffled(rng, net)
    data = problems.random_data("gaussian", rng, 19, 3, 2)
    a, b = (
        pn.Posterior(network, architecture, problems.PRIOR, data.likelihood, data.X, data.y, dtype=dtype)
        for network in (net, other)
    )
    for attribute in ("theta_map", "prior_variance", "parameters"):
        np.testing.assert_array_equal(getattr(a, attribute), getattr(b, attribute))
    theta = a.theta_map + 0.3 * rng.normal(size=a.dim)
    assert a.log_likelihood(theta) == b.log_likelihood(theta)
    np.testing.assert_array_equal(a.log_likelihood_and_grad(theta)[1], b.log_likelihood_and_grad(theta)[1])
    runs = [pn.sample(post, pn.PCNL(0.2), chains=2, draws=20, warmup=None, seed=5) for post in (a, b)]
    np.testing.assert_array_equal(runs[0].theta, runs[1].theta)
    if not name.startswith("sep"):
        for layer in (1, 2):
            np.testing.assert_array_equal(orders[layer - 1][b.permutation[layer]], a.permutation[layer])


def test_custom_masks_move_with_the_nodes_of_a_shuffled_network() -> None:
    rng = problems.rng_of("custom order")
    net = problems.random_network(rng, (3, 8, 7, 2))
    other, orders = problems.shuffled(rng, net)
    masks = problems.random_masks(rng, net)
    columns = [np.arange(3), *orders]
    rows = [*orders, np.arange(2)]
    moved = pn.Custom(
        [mask[np.ix_(rows[layer], columns[layer])] for layer, mask in enumerate(masks.weight_masks)],
        [mask[rows[layer]] for layer, mask in enumerate(masks.bias_masks)],
    )
    (a, _), (b, _) = posterior(net, masks), posterior(other, moved)
    np.testing.assert_array_equal(a.parameters, b.parameters)
    np.testing.assert_array_equal(a.prior_variance, b.prior_variance)
    theta = a.theta_map + 0.3 * rng.normal(size=a.dim)
    np.testing.assert_array_equal(a.log_likelihood_and_grad(theta)[1], b.log_likelihood_and_grad(theta)[1])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_permutation_and_parameters_lead_back_to_the_users_own_entries(name: str) -> None:
    """theta_map[k] is the trained weight at (permutation[layer][row], permutation[layer - 1][column])."""
    rng = problems.rng_of("back", name)
    net = problems.random_network(rng, (3, 8, 7, 2))
    post, _ = posterior(net, problems.architecture(name, rng, net))
    partial = reference.partial(net, post.network.architecture)
    assert post.dim == len(partial.locations()) == len(post.theta_map)
    assert [tuple(int(value) for value in entry) for entry in post.parameters] == partial.locations()
    if name.startswith("sep"):
        assert [list(order) for order in post.permutation] == [list(range(size)) for size in partial.sizes]
        assert not post.theta_map.any()
        return
    own: list[Any] = [np.arange(3), *partial.ranking, np.arange(2)]
    for layer, order in enumerate(post.permutation):
        np.testing.assert_array_equal(order, own[layer])
    for value, entry in zip(post.theta_map, post.parameters, strict=True):
        layer, row, column = (int(entry[field]) for field in ("layer", "row", "column"))
        i = post.permutation[layer][row]
        if column < 0:
            assert value == net.biases[layer - 1][i]
        else:
            assert value == net.weights[layer - 1][i, post.permutation[layer - 1][column]]


def test_parameters_are_laid_out_layer_by_layer_weights_row_by_row_then_biases() -> None:
    net = problems.random_network(problems.rng_of("layout"), (2, 3, 3, 1))
    post, _ = posterior(net, pn.Mix(2))
    expected = [
        *[(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1), (1, 0, -1), (1, 1, -1)],
        *[(2, 0, 0), (2, 0, 1), (2, 1, 0), (2, 1, 1), (2, 0, -1), (2, 1, -1)],
        *[(3, 0, 0), (3, 0, 1), (3, 0, -1)],
    ]
    assert [tuple(entry) for entry in post.parameters.tolist()] == expected
    assert post.parameters.dtype.names == ("layer", "row", "column")
    with pytest.raises(ValueError, match="read-only"):
        post.theta_map[0] = 1.0


def test_mix_with_a_k_for_each_layer() -> None:
    net = problems.random_network(problems.rng_of("k by layer"), (1, 10, 9, 2))
    post, _ = posterior(net, pn.Mix([8, 4]))
    # layer 1: 8 weights + 8 biases; layer 2: 4 x 8 + 4; layer 3: 2 x 4 + 2.
    assert post.dim == 16 + 36 + 10
    assert [layer["bayesian"] for layer in post.plan().layers] == [16, 36, 10]
    assert [layer["varying"] for layer in post.plan().layers] == [8, 9, 2]
    assert math.isclose(post.prior_variance.sum(), problems.PRIOR.total_variance([1, 10, 9, 2]), rel_tol=1e-14)


# The kernel of a run and its cost


def test_plan_names_the_kernel_that_auto_picks_and_counts_the_operations_of_a_step() -> None:
    net = problems.random_network(problems.rng_of("plan", 1, 6, 6, 1), [1, 6, 6, 1])
    post, _ = posterior(net, pn.Full())
    plan = post.plan()
    assert plan.kernel == pn.MGrad(collapse=True, persistence=0.9) and "integrated out" in plan.reason
    assert not plan.is_independent and plan.operations["tanh"] == 23 * 12 and plan.operations["normal"] == post.dim
    plain = post.plan(pn.MGrad())
    assert plain.reason == "given" and plain.operations == plan.operations and plain.step_cost < plan.step_cost
    exact = posterior(net, pn.Out(4))[0].plan()
    assert exact.is_independent and exact.operations == {"multiply_add": 2 * 5, "normal": 5}
    with pytest.raises(ValueError, match="Exact"):
        post.plan(pn.Exact())
    with pytest.raises(TypeError, match="kernel must be"):
        post.plan("fast")
