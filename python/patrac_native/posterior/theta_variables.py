"""Theta as named variables: the weights and the biases of each layer, on axes that name inputs, nodes and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.posterior.partial_network import PartialNetwork

# A coordinate: the dimensions along which it lies, and its values.
Coordinate = tuple[tuple[str, ...], npt.NDArray[Any]]


@dataclass(frozen=True)
class ThetaVariable:
    """The Bayesian weights or biases of one layer."""

    name: str  # "weights_1", "biases_1" and so on; layers count from 1
    span: slice  # its entries of theta
    dimensions: tuple[str, ...]
    shape: tuple[int, ...]

    def of_theta(self, theta: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the variable's values (..., *shape) in theta (..., K), as a view if possible."""
        # Theta has matrices by the rows of the node that reads.
        values = theta[..., self.span].reshape(*theta.shape[:-1], *self.shape[::-1])
        return values.swapaxes(-1, -2) if len(self.shape) == 2 else values

    def flat(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values (..., *shape) in the order of theta, shape (..., entries)."""
        ordered = values.swapaxes(-1, -2) if len(self.shape) == 2 else values
        return ordered.reshape(*values.shape[: values.ndim - len(self.shape)], -1)


@dataclass(frozen=True)
class ThetaVariables:
    """Theta as variables without gaps.

    Weights are matrices, (node that is read, node that reads), where the Bayesian parameters form blocks: one set of
    nodes for each layer, and every weight between two sets. This holds for all architectures but most of `Custom`,
    whose weights are vectors of entries, each with the label "node that is read, node that reads".

    The dimensions of all variables follow the order from inputs to outputs: the tables of ArviZ's arviz-base 0.8
    interchange labels of variables whose dimensions do not have the order of the whole group.
    """

    variables: tuple[ThetaVariable, ...]  # together they hold every entry of theta once, in its order
    # The labels of each dimension: names of inputs and outputs, and the trained network's own indices of nodes (of Sep,
    # those of the separate network).
    coordinates: dict[str, Coordinate]
    # What else is known along the dimensions: "hidden_1_rank" and its like are the ranks of nodes, counted from 0. Of
    # vectors of entries, "weight_1_source" and "weight_1_node" are the labels of the two nodes.
    positions: dict[str, Coordinate]


def theta_variables(network: PartialNetwork, inputs: npt.NDArray[Any], outputs: npt.NDArray[Any]) -> ThetaVariables:
    """Return the variables of a network's theta."""
    last = len(network.layer_sizes) - 1
    dimensions = ["input", *(f"hidden_{layer}" for layer in range(1, last)), "output"]
    labels = [inputs, *network.permutation[1:-1], outputs]
    blocks = _blocks(network)
    variables: list[ThetaVariable] = []
    coordinates: dict[str, Coordinate] = {}
    positions: dict[str, Coordinate] = {}

    def add(name: str, axes: tuple[str, ...], shape: tuple[int, ...]) -> None:
        first = variables[-1].span.stop if variables else 0
        variables.append(ThetaVariable(name, slice(first, first + int(np.prod(shape))), axes, shape))

    def add_nodes(layer: int, found: npt.NDArray[np.intp]) -> None:
        dimension = dimensions[layer]
        coordinates[dimension] = (dimension,), labels[layer][found]
        if 0 < layer < last:
            positions[f"{dimension}_rank"] = (dimension,), found

    for layer in range(1, last + 1):
        rows, columns = np.nonzero(network.weight_masks[layer - 1])
        biases = np.flatnonzero(network.bias_masks[layer - 1])
        if len(rows) and blocks is not None:
            axes = (layer - 1, layer)
            add(f"weights_{layer}", tuple(dimensions[at] for at in axes), tuple(len(blocks[at]) for at in axes))
            for at in axes:
                add_nodes(at, blocks[at])
        elif len(rows):
            entry, node, source = f"weight_{layer}", labels[layer][rows], labels[layer - 1][columns]
            add(f"weights_{layer}", (entry,), (len(rows),))
            pairs = [f"{read}, {reads}" for read, reads in zip(source.tolist(), node.tolist(), strict=True)]
            along = (entry,)
            coordinates[entry] = along, np.array(pairs)
            positions |= {f"{entry}_source": (along, source), f"{entry}_node": (along, node)}
        if len(biases):
            add(f"biases_{layer}", (dimensions[layer],), (len(biases),))
            add_nodes(layer, biases)
    return ThetaVariables(tuple(variables), coordinates, positions)


def _blocks(network: PartialNetwork) -> dict[int, npt.NDArray[np.intp]] | None:
    """Return the Bayesian nodes of each layer if the Bayesian parameters form blocks of them, else None."""
    blocks: dict[int, npt.NDArray[np.intp]] = {}
    for layer, (weights, biases) in enumerate(zip(network.weight_masks, network.bias_masks, strict=True), start=1):
        rows, columns = weights.any(axis=1), weights.any(axis=0)
        if (weights != np.outer(rows, columns)).any():
            return None
        for at, mask in ((layer, rows), (layer - 1, columns), (layer, biases)):
            found = np.flatnonzero(mask)
            if len(found) and not np.array_equal(blocks.setdefault(at, found), found):
                return None
    return blocks
