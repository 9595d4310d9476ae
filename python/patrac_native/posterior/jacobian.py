"""Derivatives of a network's outputs by its Bayesian parameters, in float64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from patrac_native.network.activations import ACTIVATIONS
from patrac_native.network.network import Network
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.validation.checks import FloatArray

# Half the distance of the two points from which an activation's slope is found.
_SLOPE_STEP = 1e-5
# Rows at a time, so that their Jacobian has at most this many entries.
_MAX_ENTRIES = 2**22


def forward_with_slopes(net: Network, X: FloatArray) -> tuple[FloatArray, list[FloatArray], list[FloatArray]]:
    """Return outputs (n, m), what each layer reads, and the slopes of each hidden layer's activations."""
    apply = ACTIVATIONS[net.activation].apply
    read, slopes = [X], []
    for layer, (weights, biases) in enumerate(zip(net.weights, net.biases, strict=True), start=1):
        z = read[-1] @ weights.T + biases
        if layer < len(net.weights):
            slopes.append((apply(z + _SLOPE_STEP) - apply(z - _SLOPE_STEP)) / (2 * _SLOPE_STEP))
            z = apply(z)
        read.append(z)
    return read.pop(), read, slopes


def sensitivities(net: Network, slopes: list[FloatArray], start: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Yield layers from the last, and the derivatives (n, r, nodes) of r numbers whose own by f are `start`."""
    sensitivity = start
    for layer in reversed(range(len(net.weights))):
        yield layer, sensitivity
        if layer:
            sensitivity = (sensitivity @ net.weights[layer]) * slopes[layer - 1][:, None, :]


def jacobians(network: PartialNetwork, X: FloatArray) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Yield rows, outputs (b, m) at the trained parameters, and their derivatives by theta (b, m, K); not for `Sep`."""
    net = network.ranked
    block = max(1, _MAX_ENTRIES // (network.n_outputs * network.dim))
    for first in range(0, len(X), block):
        rows = slice(first, min(first + block, len(X)))
        f, reads, slopes = forward_with_slopes(net, X[rows])
        parts: list[FloatArray] = []
        start = np.broadcast_to(np.eye(network.n_outputs), (len(f), network.n_outputs, network.n_outputs))
        for layer, sensitivity in sensitivities(net, slopes, start):
            at, sources = np.nonzero(network.weight_masks[layer])
            parts.append(sensitivity[:, :, network.bias_masks[layer]])
            parts.append(sensitivity[:, :, at] * reads[layer][:, None, sources])
        yield rows, f, np.concatenate(parts[::-1], axis=2)
