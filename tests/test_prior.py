"""The trace-class prior: variances against the printed formula, the fit against brute force, the rescaling."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patrac_native.network.network import Network
from patrac_native.network.ranking import rank_nodes
from patrac_native.priors import TraceClassPrior, prior_from_dict
from problems import random_network, rng_of

EPS = np.finfo(np.float64).eps


def decaying_network(sizes: Sequence[int], seed: int = 0) -> Network:
    """Return a random network whose weights fall along the nodes, so that the fitted alpha is inside its bounds."""
    rng = np.random.default_rng(seed)
    weights, biases = TraceClassPrior(2.5, 2.0, 0.5, output_decay=False).variances(sizes)
    return Network(*([np.sqrt(v) * rng.uniform(0.6, 1.4, v.shape) for v in part] for part in (weights, biases)))


def exact_network(truth: TraceClassPrior, sizes: Sequence[int]) -> Network:
    """Return a network whose squared parameters are the variances of a prior."""
    rng = np.random.default_rng(2)
    return Network(*([np.sqrt(v) * rng.choice([-1.0, 1.0], v.shape) for v in part] for part in truth.variances(sizes)))


def slow_variance(prior: TraceClassPrior, sizes: Sequence[int], layer: int, i: int, j: int | None) -> float:
    """Section 2.1 of the paper, one parameter at a time; layer, i and j count from 1, j None is the bias."""
    n_layers = len(sizes) - 1
    decay = sizes[-1] == 1 if prior.output_decay is None else prior.output_decay
    row = 1.0 if layer == n_layers and not decay else float(i)
    if j is None:
        return prior.sigma2_b / row**prior.alpha
    column = 1.0 if layer == 1 else float(j)
    return prior.sigma2_w / (row * column) ** prior.alpha


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=6),
    alpha=st.floats(1.001, 8.0),
    sigma2_w=st.floats(1e-3, 1e3),
    sigma2_b=st.floats(1e-3, 1e3),
    output_decay=st.sampled_from([None, True, False]),
)
def test_variances_are_the_formula(
    sizes: list[int], alpha: float, sigma2_w: float, sigma2_b: float, output_decay: bool | None
) -> None:
    prior = TraceClassPrior(alpha, sigma2_w, sigma2_b, output_decay)
    weights, biases = prior.variances(sizes)
    total = 0.0
    for layer in range(1, len(sizes)):
        for i in range(1, sizes[layer] + 1):
            columns = [None, *range(1, sizes[layer - 1] + 1)]
            for j in columns:
                expected = slow_variance(prior, sizes, layer, i, j)
                got = biases[layer - 1][i - 1] if j is None else weights[layer - 1][i - 1, j - 1]
                # Two powers of at most 36^8, each within an ulp, and three products on either side.
                assert got == pytest.approx(expected, rel=16 * EPS)
                total += expected
    # At most 5 * 42 terms of one sign.
    assert prior.total_variance(sizes) == pytest.approx(total, rel=256 * EPS)


def test_no_hidden_layer() -> None:
    weights, biases = TraceClassPrior(2.0, 3.0, 5.0).variances([4, 2])  # m = 2: no decay at all
    np.testing.assert_array_equal(weights[0], np.full((2, 4), 3.0))
    np.testing.assert_array_equal(biases[0], [5.0, 5.0])
    weights, biases = TraceClassPrior(2.0, 3.0, 5.0, output_decay=True).variances([4, 2])  # layer 1: rows only
    np.testing.assert_array_equal(weights[0], [[3.0] * 4, [0.75] * 4])
    np.testing.assert_array_equal(biases[0], [5.0, 1.25])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1.0, 1.0, 1.0), ValueError, r"alpha must be greater than 1 .* got 1\.0"),
        ((-2, 1.0, 1.0), ValueError, r"alpha must be positive and finite; got -2"),
        ((np.nan, 1.0, 1.0), ValueError, "alpha must be positive and finite; got nan"),
        ((2.0, 0.0, 1.0), ValueError, r"sigma2_w must be positive and finite; got 0\.0"),
        ((2.0, 1.0, np.inf), ValueError, "sigma2_b must be positive and finite; got inf"),
        (("2", 1.0, 1.0), TypeError, "alpha must be a number; got '2'"),
        ((2.0, 1.0, 1.0, "yes"), TypeError, "output_decay must be True, False or None .* got 'yes'"),
    ],
)
def test_bad_values(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TraceClassPrior(*arguments)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [([3], "at least inputs and outputs"), ([3, 0, 1], r"layer_sizes\[1\] must be at least 1; got 0")],
)
def test_bad_layer_sizes(sizes: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TraceClassPrior(2.0, 1.0, 1.0).variances(sizes)


def appendix_decay(ranked: Network, alpha: float, output_decay: bool) -> tuple[np.ndarray, ...]:
    """Return all squared weights, their s, all squared biases, their s (Appendix A), one entry at a time."""
    w2, sw, b2, sb = [], [], [], []
    last = ranked.n_layers
    for layer, (w, b) in enumerate(zip(ranked.weights, ranked.biases, strict=True), start=1):
        for i in range(1, w.shape[0] + 1):
            b2.append(b[i - 1] ** 2)
            sb.append(1.0 if layer == last and not output_decay else i**-alpha)
            for j in range(1, w.shape[1] + 1):
                w2.append(w[i - 1, j - 1] ** 2)
                sw.append(i**-alpha if layer == 1 else j**-alpha if layer == last else (i * j) ** -alpha)
    return np.array(w2), np.array(sw), np.array(b2), np.array(sb)


def objective(ranked: Network, alpha: float, sigma2_w: float, sigma2_b: float, output_decay: bool) -> float:
    w2, sw, b2, sb = appendix_decay(ranked, alpha, output_decay)
    return float(((w2 - sigma2_w * sw) ** 2).sum() + ((b2 - sigma2_b * sb) ** 2).sum())


@pytest.mark.parametrize("alpha", [1.2, 1.7, 3.1])
@pytest.mark.parametrize("sizes", [(3, 20, 15, 1), (1, 12, 4), (2, 9, 8, 7, 1)])
def test_fit_recovers_an_exact_network(sizes: tuple[int, ...], alpha: float) -> None:
    truth = TraceClassPrior(alpha, 2.0, 0.5, output_decay=False)
    net, rng = exact_network(truth, sizes), np.random.default_rng(3)
    shuffled = net.permuted([rng.permutation(width) for width in sizes[1:-1]])
    fit = TraceClassPrior.fit(shuffled, output_decay=False)
    # At zero residual the objective is flat to rounding within sqrt(eps / curvature) of alpha. Relative to the sum of
    # squares its curvature is at least 0.015 on these networks and the log variances change with alpha at a rate below
    # 0.4 (both by finite differences); 100 eps covers the rounding of the sums.
    reach = np.sqrt(100 * EPS / 0.015)
    assert abs(fit.alpha - alpha) < reach
    assert fit.sigma2_w == pytest.approx(4 * 2.0, rel=0.4 * reach)
    assert fit.sigma2_b == pytest.approx(4 * 0.5, rel=0.4 * reach)


@pytest.mark.parametrize(("sizes", "output_decay"), [((2, 12, 9, 1), None), ((3, 10, 3), None), ((3, 10, 3), True)])
@pytest.mark.parametrize("seed", [0, 1])
def test_fit_beats_a_dense_grid(sizes: tuple[int, ...], output_decay: bool | None, seed: int) -> None:
    net = decaying_network(sizes, seed)
    decay = sizes[-1] == 1 if output_decay is None else output_decay
    fit = TraceClassPrior.fit(net, output_decay)
    assert fit.output_decay is output_decay
    assert 1.001 < fit.alpha < 8.0
    ranked = net.permuted(rank_nodes(net))
    reached = objective(ranked, fit.alpha, fit.sigma2_w / 4, fit.sigma2_b / 4, decay)
    brute = []
    for alpha in np.linspace(1.001, 8.0, 600):
        w2, sw, b2, sb = appendix_decay(ranked, alpha, decay)
        sigma2 = [np.linalg.lstsq(s[:, None], target, rcond=None)[0][0] for target, s in ((w2, sw), (b2, sb))]
        brute.append(objective(ranked, alpha, *sigma2, decay))
    # Sums of up to 150 terms on either side.
    assert reached <= min(brute) * (1 + 300 * EPS)
    # The minimum over sigma2 too: neither variance can be moved to advantage.
    for factor in (0.99, 1.01):
        assert objective(ranked, fit.alpha, factor * fit.sigma2_w / 4, fit.sigma2_b / 4, decay) > reached
        assert objective(ranked, fit.alpha, fit.sigma2_w / 4, factor * fit.sigma2_b / 4, decay) > reached


def test_each_layer_may_have_its_own_decay() -> None:
    """Each layer is that of a prior with its rate and scales for all layers."""
    sizes, alphas, sigma2_w, sigma2_b = (3, 5, 4, 2), (1.3, 2.0, 3.5), (2.0, 0.5, 1.0), (1.0, 3.0, 0.25)
    for decay in (None, True, False):
        found = TraceClassPrior(alphas, sigma2_w, sigma2_b, decay).variances(sizes)
        for layer, (alpha, w, b) in enumerate(zip(alphas, sigma2_w, sigma2_b, strict=True)):
            alike = TraceClassPrior(alpha, w, b, decay).variances(sizes)
            for part in (0, 1):
                np.testing.assert_array_equal(found[part][layer], alike[part][layer])
    prior = TraceClassPrior(alphas, 1.0, 1.0)
    assert prior.alpha == alphas and "alpha (1.3, 2, 3.5)" in prior.describe()
    assert prior_from_dict(json.loads(json.dumps(prior.to_dict()))) == prior
    with pytest.raises(ValueError, match="alpha must be a number or have one for each of 2 layers; got 3"):
        prior.variances([3, 5, 2])
    with pytest.raises(ValueError, match="alpha must be greater than 1"):
        TraceClassPrior((1.5, 1.0), 1.0, 1.0)


@pytest.mark.parametrize("scales", [None, "sampled"])
@pytest.mark.parametrize("sizes", [(3, 20, 15, 1), (1, 12, 4), (2, 9, 8, 7, 1)])
def test_fit_of_each_layer_alone(sizes: tuple[int, ...], scales: str | None) -> None:
    """Each layer's rate and variances beat a dense grid of its own part of the objective."""
    net = random_network(rng_of("prior"), sizes)
    fit = TraceClassPrior.fit(net, alpha="layer", scales=scales)
    ranked = net.permuted(rank_nodes(net))
    decay = sizes[-1] == 1
    ends = np.cumsum([w.size for w in ranked.weights]), np.cumsum([b.size for b in ranked.biases])
    assert isinstance(fit.alpha, tuple) and isinstance(fit.sigma2_w, tuple) and isinstance(fit.sigma2_b, tuple)
    for layer in range(ranked.n_layers):
        of_weights, of_biases = (slice(end[layer - 1] if layer else 0, end[layer]) for end in ends)

        def part(alpha: float, of_weights: slice = of_weights, of_biases: slice = of_biases) -> list[np.ndarray]:
            w2, sw, b2, sb = appendix_decay(ranked, alpha, decay)
            return [w2[of_weights], sw[of_weights], b2[of_biases], sb[of_biases]]

        def left(w2: np.ndarray, sw: np.ndarray, b2: np.ndarray, sb: np.ndarray) -> float:
            scaled = [(target @ s) / (s @ s) * s for target, s in ((w2, sw), (b2, sb))]
            return float(((w2 - scaled[0]) ** 2).sum() + ((b2 - scaled[1]) ** 2).sum())

        w2, sw, b2, sb = part(fit.alpha[layer])
        # Sums of up to 300 terms of one sign on either side.
        assert fit.sigma2_w[layer] == pytest.approx(4 * (w2 @ sw) / (sw @ sw), rel=4 * 300 * EPS)
        assert fit.sigma2_b[layer] == pytest.approx(4 * (b2 @ sb) / (sb @ sb), rel=4 * 300 * EPS)
        brute = min(left(*part(alpha)) for alpha in np.linspace(1.001, 8.0, 300))
        assert left(w2, sw, b2, sb) <= brute * (1 + 600 * EPS)


def test_a_layer_without_decay_leaves_its_rate_open() -> None:
    assert TraceClassPrior.fit(random_network(rng_of("prior"), (2, 3)), alpha="layer").alpha == (2.0,)


def test_fit_does_not_depend_on_the_order_of_nodes_and_is_that_of_its_alpha() -> None:
    net = decaying_network((2, 12, 9, 1))
    rng, fit = np.random.default_rng(5), TraceClassPrior.fit(net)
    assert TraceClassPrior.fit(net.permuted([rng.permutation(12), rng.permutation(9)])) == fit
    assert TraceClassPrior.fit(net, alpha=fit.alpha) == fit


def test_fit_warns_at_the_upper_bound_alone() -> None:
    """At the lower one, where many networks end, a slower decay would hardly change a variance."""
    flat = Network([np.ones((6, 1)), np.ones((6, 6)), np.ones((1, 6))], [np.ones(6), np.ones(6), np.ones(1)])
    with warnings.catch_warnings(action="error"):
        assert TraceClassPrior.fit(flat).alpha == 1.001
    first = np.zeros((4, 1))
    first[0] = 1.0
    spike = Network([first, first.T], [first[:, 0], [1.0]])
    with pytest.warns(UserWarning, match=r"upper bound of \[1\.001, 8\.0\]: nearly all of .*\(net, alpha=2\.0\)"):
        assert TraceClassPrior.fit(spike).alpha == 8.0


@pytest.mark.parametrize("output_decay", [None, False])
def test_fit_of_the_variances_alone(output_decay: bool | None) -> None:
    net, alpha = random_network(rng_of("prior"), (3, 10, 7, 1)), 1.6
    with warnings.catch_warnings(action="error"):  # weights without decay would end at the bound of a search
        fit = TraceClassPrior.fit(net, output_decay, alpha=alpha)
    assert fit.alpha == alpha and fit.output_decay is output_decay
    w2, sw, b2, sb = appendix_decay(net.permuted(rank_nodes(net)), alpha, output_decay is not False)
    # Ratios of sums of at most 107 terms of one sign, each product within two roundings.
    for sigma2, target, s in ((fit.sigma2_w, w2, sw), (fit.sigma2_b, b2, sb)):
        assert sigma2 == pytest.approx(4 * (target @ s) / (s @ s), rel=4 * 107 * EPS)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"net": np.ones((4, 1))}, TypeError, "net must be a Network.*got ndarray.*Network.from_torch"),
        ({"net": Network([[[0.0]]], [[1.0]])}, ValueError, "all weights of the network are zero"),
        ({"alpha": 1.0}, ValueError, r"alpha must be greater than 1 .*got 1\.0"),
        ({"alpha": "auto"}, ValueError, 'alpha must be a number, one for each layer, or "layer"; got .auto.'),
    ],
)
def test_fit_refuses(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TraceClassPrior.fit(**{"net": random_network(rng_of("prior"), (1, 4, 1)), **arguments})


def test_fit_without_biases_says_so() -> None:
    net = decaying_network((2, 12, 9, 1))
    bare = Network(net.weights, [np.zeros_like(b) for b in net.biases])
    with pytest.warns(UserWarning, match="all biases of the network are zero.*sigma2_b is set to sigma2_w"):
        fit = TraceClassPrior.fit(bare)
    assert fit.sigma2_b == fit.sigma2_w


def test_fit_without_hidden_layer() -> None:
    net = Network([[[1.0, 2.0], [3.0, 0.0]]], [[1.0, 1.0]])
    with warnings.catch_warnings(action="error"):
        fit = TraceClassPrior.fit(net)
    # s = 1 everywhere: four times the mean of the squares, (1 + 4 + 9 + 0) / 4 and 1.
    assert (fit.alpha, fit.sigma2_w, fit.sigma2_b) == (2.0, 14.0, 4.0)


def test_rescaling_refuses_other_masks() -> None:
    prior = TraceClassPrior(1.5, 2.0, 0.5)
    with pytest.raises(ValueError, match=r"must have the shapes of a network \[1, 1\]; got \[\(1,\), \(1,\)\]"):
        prior.rescaling_factor([1, 1], [1, 1], [np.ones(1, dtype=bool)], [np.ones(1, dtype=bool)])
    with pytest.raises(ValueError, match="mark no parameter"):
        prior.rescaling_factor([1, 1], [1, 1], [np.zeros((1, 1), dtype=bool)], [np.zeros(1, dtype=bool)])


@pytest.mark.parametrize("output_decay", [None, True, False])
def test_dictionary_round_trip(output_decay: bool | None) -> None:
    prior = TraceClassPrior(1.5, 2.0, 0.5, output_decay)
    assert prior_from_dict(json.loads(json.dumps(prior.to_dict()))) == prior
