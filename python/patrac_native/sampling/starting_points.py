"""The first states of the chains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.model.partial_network import PartialNetwork
from patrac_native.validation.checks import as_real_array, cast_checked, check_finite

# Weight of the draw from the prior in the starting points of init="auto": 0 gives the trained values, 1 the prior.
DISPERSION = 0.5


def starting_points(network: PartialNetwork, init: str | npt.ArrayLike, chains: int, seed: int) -> npt.NDArray[Any]:
    """Return the first state of each chain.

    Parameters
    ----------
    network : PartialNetwork
    init : {"auto", "map", "prior"} or array_like of shape (chains, K)
        See `patrac_native.sample`.
    chains : int
        Number of chains.
    seed : int
        Seed of the draws from the prior; each chain has its own stream.

    Returns
    -------
    ndarray of the network's dtype, shape (chains, K)

    Raises
    ------
    TypeError
        If `init` does not hold real numbers.
    ValueError
        If it has another shape, or an entry is not finite or exceeds the range of the dtype.
    """
    if isinstance(init, str):
        trained = np.tile(network.theta_map.astype(network.dtype), (chains, 1))
        if init == "map" or (init == "auto" and chains == 1 and not network.separate):
            return trained
        prior = np.concatenate(
            [network.sample_prior(1, seed=seed, chain=chain, purpose=_core.Purpose.init) for chain in range(chains)]
        )
        if init == "prior" or network.separate:
            return prior
        # One pCN proposal from the trained values with beta = 1/2.
        trained[1:] = (math.sqrt(1 - DISPERSION**2) * trained[1:] + DISPERSION * prior[1:]).astype(network.dtype)
        return trained
    values = as_real_array(init, "init")
    if values.shape != (chains, network.dim):
        raise ValueError(f"init must have shape (chains, K) = ({chains}, {network.dim}); got {values.shape}.")
    check_finite(values, "init", "Rows count chains, columns the entries of theta.")
    return cast_checked(values, network.dtype, "init")
