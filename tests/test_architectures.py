"""Ranking of nodes and the architectures: numbers of parameters (docs/method.md, section 3), arguments and dicts.

Which parameters are Bayesian is compared with the oracle in test_plan.py; what does not fit a network is refused in
test_posterior.py.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

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
from problems import random_network, rng_of


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
    assert count(architecture, random_network(rng_of("architectures"), (1, 50, 50, 1))) == expected
    assert architecture.label() == label


def test_custom_follows_its_nodes_to_their_ranks() -> None:
    # Node 1 has the larger eta and becomes rank 0.
    net = Network([[[1.0], [2.0]], [[3.0, 4.0]]], [[0.0, 0.0], [0.0]])
    custom = Custom([[[False], [True]], [[True, False]]], [[True, False], [False]])
    weight_masks, bias_masks = custom.masks(net, rank_nodes(net))
    assert [mask.tolist() for mask in weight_masks] == [[[True], [False]], [[False, True]]]
    assert [mask.tolist() for mask in bias_masks] == [[False, True], [False]]
    assert custom.label() == "Custom"


def test_no_hidden_layer_takes_full_and_custom_only() -> None:
    net = random_network(rng_of("architectures"), (3, 2))
    assert rank_nodes(net) == []
    assert count(Full(), net) == 8
    assert count(Custom([np.eye(2, 3, dtype=bool)], [np.zeros(2, dtype=bool)]), net) == 2


def test_custom_checks_bias_shapes_too() -> None:
    net = random_network(rng_of("architectures"), (2, 1))
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
