"""A hash of a network, by which copies in files or other processes are recognised."""

from __future__ import annotations

import hashlib

import numpy as np

from patrac_native.network.network import Network


def network_digest(net: Network) -> str:
    """Return the SHA-256 of a network's parameters, bit for bit, and its activation, in hexadecimal."""
    digest = hashlib.sha256(net.activation.encode())
    for array in (*net.weights, *net.biases):
        digest.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
