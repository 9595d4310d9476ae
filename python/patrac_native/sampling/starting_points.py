"""The first states of the chains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.posterior.sampled_density import SampledDensity
from patrac_native.validation.checks import as_real_array, cast_checked, check_finite

# Weight of the draw from the prior in the starting points of init="auto": 0 gives the trained values, 1 the prior.
DISPERSION = 0.5


def starting_points(density: SampledDensity, init: str | npt.ArrayLike, chains: int, seed: int) -> npt.NDArray[Any]:
    """Return the first state of each chain.

    Parameters
    ----------
    density : SampledDensity
    init : {"auto", "map", "prior"} or array_like of shape (chains, K)
        See `patrac_native.sample`.
    chains : int
        Number of chains.
    seed : int
        Seed of the draws from the prior; each chain has its own stream.

    Returns
    -------
    ndarray of the posterior's dtype, shape (chains, K)

    Raises
    ------
    TypeError
        If `init` does not hold real numbers.
    ValueError
        If it has another shape, or an entry is not finite or exceeds the range of the dtype.
    """
    if isinstance(init, str):
        mode = density.theta_map
        if init == "map":
            if mode is None:
                raise ValueError(
                    'init="map" needs trained values, and a Target has none; use "prior", or give starting points of '
                    f"shape (chains, K) = ({chains}, {density.dim})."
                )
            return np.tile(mode.astype(density.dtype), (chains, 1))
        if init == "auto" and chains == 1 and density.is_trained:
            assert mode is not None
            return mode.astype(density.dtype)[None]
        prior = np.stack([density.prior_start(seed, chain) for chain in range(chains)])
        if init == "prior" or mode is None or not density.is_trained:
            return prior
        # One pCN proposal from the trained values with beta = 1/2.
        start = np.tile(mode.astype(density.dtype), (chains, 1))
        start[1:] = (math.sqrt(1 - DISPERSION**2) * start[1:] + DISPERSION * prior[1:]).astype(density.dtype)
        return start
    values = as_real_array(init, "init")
    if values.shape != (chains, density.dim):
        raise ValueError(f"init must have shape (chains, K) = ({chains}, {density.dim}); got {values.shape}.")
    check_finite(values, "init", "Rows count chains, columns the entries of theta.")
    return cast_checked(values, density.dtype, "init")
