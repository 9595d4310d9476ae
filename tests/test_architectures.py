"""Ranking of nodes and the masks of every architecture, against the table of docs/method.md, section 3."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patrac_native.architectures import (
    Architecture,
    Custom,
    Full,
    Mix,
    Out,
    Sep,
    architecture_from_dict,
)
from patrac_native.network.network import Network
from patrac_native.network.ranking import rank_nodes


def make_network(sizes: tuple[int, ...], seed: int = 0) -> Network:
    rng = np.random.default_rng(seed)
    pairs = list(zip(sizes[1:], sizes[:-1], strict=True))
    return Network([rng.normal(size=pair) for pair in pairs], [rng.normal(size=a) for a, _ in pairs])


def count(architecture: Architecture, net: Network) -> int:
    weight_masks, bias_masks = architecture.masks(net, rank_nodes(net))
    return sum(int(mask.sum()) for mask in (*weight_masks, *bias_masks))


def test_ranking_is_by_incoming_squares_and_bias() -> None:
    net = Network(
        [[[1.0, 1.0], [0.0, 3.0], [0.0, 0.0]], [[1.0, 0.0, 0.0], [0.0, 0.0, 9.0]], [[100.0, 0.0]]],
        [[0.0, 0.0, 4.0], [9.5, 0.0], [0.0]],
    )
    # eta: (2, 9, 16) and (91.25, 81); the outgoing weights, which would reverse layer 2, play no part.
    first, second = rank_nodes(net)
    assert first.tolist() == [2, 1, 0]
    assert second.tolist() == [0, 1]


def test_ties_go_to_the_lower_index() -> None:
    # Enough equal nodes for an unstable sort to show; node 5 alone is larger.
    w = np.ones((40, 1))
    w[5] = -2.0
    (order,) = rank_nodes(Network([w, np.ones((1, 40))], [np.zeros(40), [0.0]]))
    assert order.tolist() == [5, *range(5), *range(6, 40)]


def test_ranking_does_not_depend_on_the_order_handed_over() -> None:
    net = make_network((3, 30, 20, 2))
    rng = np.random.default_rng(1)
    moved = net.permuted([rng.permutation(30), rng.permutation(20)])
    ranked, again = net.permuted(rank_nodes(net)), moved.permuted(rank_nodes(moved))
    for ours, theirs in zip((*ranked.weights, *ranked.biases), (*again.weights, *again.biases), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("architecture", "expected", "label"),
    [
        (Full(), 2701, "Full"),
        (Mix(2), 13, "Mix(2)"),
        (Mix(5), 46, "Mix(5)"),
        (Out(12), 13, "Out(12)"),
        (Out(45), 46, "Out(45)"),
        (Sep(2), 13, "Sep(2)"),
        (Sep(5), 46, "Sep(5)"),
        # 8 * (1 + 1) in layer 1, 4 * (8 + 1) in layer 2, 4 + 1 in the output layer
        (Mix([8, 4]), 57, "Mix([8, 4])"),
        (Sep(np.array([8, 4])), 57, "Sep([8, 4])"),
        (Mix(50), 2701, "Mix(50)"),
    ],
)
def test_number_of_bayesian_parameters(architecture: Architecture, expected: int, label: str) -> None:
    assert count(architecture, make_network((1, 50, 50, 1))) == expected
    assert architecture.label() == label


@settings(max_examples=40, deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(1, 6), min_size=3, max_size=5))
def test_mix_masks_entry_by_entry(data: st.DataObject, sizes: list[int]) -> None:
    k = [data.draw(st.integers(1, width)) for width in sizes[1:-1]]
    net = make_network(tuple(sizes))
    weight_masks, bias_masks = Mix(k).masks(net, rank_nodes(net))
    last = len(sizes) - 2
    for layer in range(len(sizes) - 1):
        for i in range(sizes[layer + 1]):
            node_bayesian = layer == last or i < k[layer]
            assert bias_masks[layer][i] == node_bayesian
            for j in range(sizes[layer]):
                source_bayesian = layer == 0 or j < k[layer - 1]
                assert weight_masks[layer][i, j] == (node_bayesian and source_bayesian)


def test_mix_of_every_node_is_full_and_out_is_the_last_layer_of_mix() -> None:
    net = make_network((2, 5, 4, 3))
    ranking = rank_nodes(net)
    for part, full in zip(Mix([5, 4]).masks(net, ranking), Full().masks(net, ranking), strict=True):
        for ours, theirs in zip(part, full, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    out, mix = Out(2).masks(net, ranking), Mix([1, 2]).masks(net, ranking)
    np.testing.assert_array_equal(out[0][-1], mix[0][-1])
    np.testing.assert_array_equal(out[1][-1], mix[1][-1])
    assert not any(mask.any() for masks in out for mask in masks[:-1])


def test_sep_has_its_own_shapes() -> None:
    net = make_network((2, 5, 4, 3))
    assert Sep([3, 2]).sampled_layer_sizes(net) == (2, 3, 2, 3)
    assert Mix(2).sampled_layer_sizes(net) == (2, 5, 4, 3)
    weight_masks, bias_masks = Sep([3, 2]).masks(net, rank_nodes(net))
    assert [mask.shape for mask in weight_masks] == [(3, 2), (2, 3), (3, 2)]
    assert all(mask.all() for mask in (*weight_masks, *bias_masks))


def test_custom_follows_its_nodes_to_their_ranks() -> None:
    # Node 1 has the larger eta and becomes rank 0.
    net = Network([[[1.0], [2.0]], [[3.0, 4.0]]], [[0.0, 0.0], [0.0]])
    custom = Custom([[[False], [True]], [[True, False]]], [[True, False], [False]])
    weight_masks, bias_masks = custom.masks(net, rank_nodes(net))
    assert [mask.tolist() for mask in weight_masks] == [[[True], [False]], [[False, True]]]
    assert [mask.tolist() for mask in bias_masks] == [[False, True], [False]]
    assert custom.label() == "Custom"


def test_custom_equals_mix_given_in_own_order() -> None:
    net = make_network((2, 6, 5, 2))
    ranking = rank_nodes(net)
    ranked_weights, ranked_biases = Mix(3).masks(net, ranking)
    inverse = [np.arange(2), *(np.argsort(order) for order in ranking), np.arange(2)]
    custom = Custom(
        [mask[np.ix_(inverse[layer + 1], inverse[layer])] for layer, mask in enumerate(ranked_weights)],
        [mask[inverse[layer + 1]] for layer, mask in enumerate(ranked_biases)],
    )
    weight_masks, bias_masks = custom.masks(net, ranking)
    for ours, theirs in zip((*weight_masks, *bias_masks), (*ranked_weights, *ranked_biases), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_no_hidden_layer_takes_full_and_custom_only() -> None:
    net = make_network((3, 2))
    assert rank_nodes(net) == []
    assert count(Full(), net) == 8
    assert count(Custom([np.eye(2, 3, dtype=bool)], [np.zeros(2, dtype=bool)]), net) == 2
    for architecture in (Mix(1), Out(1), Sep(1)):
        with pytest.raises(ValueError, match=r"needs a network with a hidden layer.*Use Full or Custom"):
            architecture.masks(net, [])


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        (Mix(5), "k of Mix is 5, but hidden layer 2 has 4 nodes; choose k <= 4"),
        (Mix([7, 4]), "k of Mix is 7, but hidden layer 1 has 6 nodes"),
        (Sep(5), "k of Sep is 5, but hidden layer 2 has 4 nodes"),
        (Out(5), "k of Out is 5, but hidden layer 2 has 4 nodes"),
        (Mix([2, 2, 2]), r"each of the 2 hidden layers; got \[2, 2, 2\]"),
        (Sep([2]), r"each of the 2 hidden layers; got \[2\]"),
        (Custom([[[True]]], [[True]]), r"weight_masks must have the network's shapes \[\(6, 2\), \(4, 6\), \(1, 4\)\]"),
    ],
)
def test_what_does_not_fit_the_network(architecture: Architecture, message: str) -> None:
    net = make_network((2, 6, 4, 1))
    with pytest.raises(ValueError, match=message):
        architecture.masks(net, rank_nodes(net))


def test_custom_checks_bias_shapes_too() -> None:
    net = make_network((2, 1))
    with pytest.raises(ValueError, match=r"Custom: bias_masks must have the network's shapes \[\(1,\)\]"):
        Custom([[[True, False]]], [[True, False]]).masks(net, [])


@pytest.mark.parametrize("kind", [Mix, Out, Sep])
@pytest.mark.parametrize(
    ("k", "error", "message"),
    [
        (0, ValueError, "at least 1; got 0"),
        (2.5, TypeError, "integer; got 2.5"),
        (True, TypeError, "integer; got True"),
    ],
)
def test_bad_k(kind: type[Mix], k: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"k of {kind.__name__} must be .*{message}"):
        kind(k)  # type: ignore[arg-type]  # the point of the test


def test_bad_k_in_a_sequence_names_the_layer() -> None:
    with pytest.raises(ValueError, match="k of Mix for hidden layer 2 must be at least 1; got 0"):
        Mix([3, 0])
    with pytest.raises(ValueError, match="k of Sep is empty"):
        Sep([])


def test_bad_custom_masks() -> None:
    with pytest.raises(ValueError, match="Custom: no entry of weight_masks or bias_masks is True"):
        Custom([[[False]]], [[False]])
    with pytest.raises(TypeError, match=r"Custom: weight_masks\[0\] must be a Boolean array; got dtype int64"):
        Custom([[[1]]], [[True]])


CUSTOM = Custom([[[True, False]], [[False]]], [[False], [True]])


@pytest.mark.parametrize("architecture", [Full(), Mix(3), Mix([2, 1]), Out(4), Sep(2), Sep([1, 2]), CUSTOM])
def test_dictionary_round_trip(architecture: Architecture) -> None:
    content = json.loads(json.dumps(architecture.to_dict()))
    assert content["name"] == architecture.name
    back = architecture_from_dict(content)
    assert back == architecture
    assert hash(back) == hash(architecture)
    assert back.label() == architecture.label()


def test_unequal_architectures_and_unknown_name() -> None:
    assert Custom([[[True, True]], [[False]]], [[False], [True]]) != CUSTOM
    assert Mix(2) != Sep(2)
    with pytest.raises(ValueError, match="one of full, mix, out, sep, custom; got 'last'"):
        architecture_from_dict({"name": "last"})
