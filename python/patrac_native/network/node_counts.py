"""The argument k of the architectures: a number of nodes for each hidden layer, checked against a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from patrac_native.network.network import Network
from patrac_native.validation.checks import check_count


def check_k(k: int | Sequence[int], owner: str) -> int | tuple[int, ...]:
    """Return k as an int or a tuple of ints; raise TypeError or ValueError unless each is an integer of at least 1."""
    if isinstance(k, Sequence | np.ndarray) and not isinstance(k, str):
        if len(k) == 0:
            raise ValueError(f"k of {owner} is empty; give one number for each hidden layer.")
        return tuple(check_count(value, f"k of {owner} for hidden layer {layer + 1}") for layer, value in enumerate(k))
    return check_count(k, f"k of {owner}")


def k_as_json(k: int | tuple[int, ...]) -> int | list[int]:
    """Return k in the form that JSON stores: an int or a list of ints."""
    return list(k) if isinstance(k, tuple) else k


def k_label(owner: str, k: int | tuple[int, ...]) -> str:
    """Return the label of an architecture, such as "Mix(5)" or "Mix([8, 4])"."""
    return f"{owner}({k_as_json(k)})"


def require_hidden_layer(net: Network, owner: str) -> None:
    """Raise ValueError if the network has no hidden layer."""
    if net.n_layers == 1:
        raise ValueError(
            f"{owner} needs a network with a hidden layer; this one has layer_sizes {net.layer_sizes}. "
            "Use Full or Custom."
        )


def check_width(k: int, net: Network, layer: int, owner: str) -> None:
    """Raise ValueError if k exceeds the width of hidden layer `layer`, counted from 1."""
    if k > net.layer_sizes[layer]:
        raise ValueError(
            f"k of {owner} is {k}, but hidden layer {layer} has {net.layer_sizes[layer]} nodes; "
            f"choose k <= {net.layer_sizes[layer]} there."
        )


def k_per_layer(k: int | tuple[int, ...], net: Network, owner: str) -> tuple[int, ...]:
    """Return k for each hidden layer; raise ValueError if their number or a value does not fit the network."""
    require_hidden_layer(net, owner)
    hidden = net.n_layers - 1
    per_layer = k if isinstance(k, tuple) else (k,) * hidden
    if len(per_layer) != hidden:
        raise ValueError(
            f"k of {owner} must hold one number for each of the {hidden} hidden layers; got {list(per_layer)}."
        )
    for layer, value in enumerate(per_layer, start=1):
        check_width(value, net, layer, owner)
    return per_layer
