"""The states and statistics of a run in its folder: those in the arrays, followed by those of its checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws import arviz_groups
from patrac_native.draws.chain_draws import Theta
from patrac_native.draws.run_folder import MEMORY, RUN_TOTALS, Checkpoint, RunFolder, StoredTheta
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.partial_network import PartialNetwork


def stored_states(
    folder: RunFolder, at: Checkpoint, network: PartialNetwork, likelihood: Likelihood, memory: int = MEMORY
) -> tuple[Theta, dict[str, npt.NDArray[Any]]]:
    """Return theta, which is read where it is used, and the statistics of a run at a checkpoint."""
    stats, tail, of_theta = {**at.totals, **at.stats}, at.theta, arviz_groups.theta_names(network)
    assert tail is not None
    identity = folder.identity()
    stats = {name: values for name, values in stats.items() if name not in RUN_TOTALS}
    if at.written:
        written = arviz_groups.stats_of(
            network, likelihood, folder.tree(0, at.written, lambda name: name not in of_theta)
        )
        stats |= {name: np.concatenate([written[name], values], axis=1) for name, values in at.stats.items()}
        if not np.isfinite(stats["log_likelihood"]).all():
            raise ValueError(f"{folder.path} is damaged: parts of its statistics are missing.")

    def read(first: int, end: int) -> npt.NDArray[Any]:
        folder.check_same(identity)
        found = tail[:, max(first - at.written, 0) : max(end - at.written, 0)]
        if first < at.written:
            tree = folder.tree(first, min(end, at.written), of_theta.__contains__)
            found = np.concatenate([arviz_groups.theta_of(network, tree), found], axis=1)
        if not np.isfinite(found).all():  # what zarr gives for a chunk without a file
            raise ValueError(f"{folder.path} is damaged: parts of its draws are missing.")
        return found

    shape = len(tail), at.draws, network.dim
    return (StoredTheta(shape, network.dtype, read, memory) if at.written else tail), stats
