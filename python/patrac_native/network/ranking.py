"""The ranking of the hidden nodes of a trained network (docs/method.md, section 3)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from patrac_native.network.network import Network


def rank_nodes(net: Network) -> list[npt.NDArray[np.intp]]:
    """Rank the hidden nodes of each layer by eta_i = b_i^2 + sum_j w_ij^2, largest first; w_ij are the weights into i.

    ranking[l][rank] is the network's own index of the node with that rank in hidden layer l + 1, both from 0; of two
    nodes with equal eta the lower index ranks first.
    """
    ranking = []
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        # Saved draws have meaning only together with the ranking. Exactly rounded sums make it independent of the
        # order of the nodes in the layer below and of the machine.
        eta = np.array([math.fsum([bias**2, *row]) for bias, row in zip(b, w**2, strict=True)])
        ranking.append(np.argsort(-eta, kind="stable"))
    return ranking
