"""The check before effective draws are counted: all sides must sample the same posterior of f."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from ess_count import STUCK, FloatArray, Plan, Side, watched
from ess_measures import longest_stay, output_features
from ess_problems import Data

import patrac_native as pn
from patrac_native.diagnostics import convergence

QUANTILES = (0.05, 0.5, 0.95)
CHAINS, SEED = 4, 10**9
# Number of states of the fastest kernel's chain from one starting point to the next.
APART = 5000
EVERY = 2  # every second grid point is used, because neighbours are nearly equal
MAX_KEPT, MIN_KEPT = 100_000, 100
MAX_DRAWS = 5000  # of a chain, for ArviZ
# Differences in combined Monte Carlo standard errors: the largest allowed, and one too large to be chance.
ASKED, WRONG = 4.0, 6.0


class Moments(NamedTuple):
    """Mean and quantiles of f on the grid, with their Monte Carlo standard errors, and the worst R-hat."""

    values: FloatArray  # (1 + quantiles, points)
    errors: FloatArray
    rhat: float


def moments(f: FloatArray) -> Moments:
    """Return the moments of chains (chain, draw, n, m), with ArviZ's errors from all chains together."""
    thin = -(-f.shape[1] // MAX_DRAWS)
    kept = f[:, ::thin, ::EVERY].reshape(len(f), -(-f.shape[1] // thin), -1).astype(np.float64)
    found = convergence(kept, quantiles=QUANTILES)
    values = np.concatenate([kept.mean(axis=(0, 1))[None], np.quantile(kept, QUANTILES, axis=(0, 1))])
    return Moments(values, np.concatenate([found.mcse_mean[None], found.mcse_quantiles]), found.max_rhat)


def largest_z(one: Moments, other: Moments) -> float:
    """Return the largest difference over the grid, in combined standard errors."""
    return float((np.abs(one.values - other.values) / np.hypot(one.errors, other.errors)).max())


def agreement(
    sides: Mapping[str, Side],
    plans: Mapping[str, Plan],
    starts: FloatArray,
    post: pn.Posterior,
    data: Data,
    seconds: float,
) -> dict[str, dict[str, float]]:
    """Run chains of each side from each start, and compare f with the last side's: largest z and worst R-hat.

    Parameters
    ----------
    starts : ndarray, shape (chain, K)
        Starting points that are far from each other.
    seconds : float
        Processor time of the chains of one side.

    Raises
    ------
    AssertionError
        If a side differs by more than `WRONG` standard errors, unless one of its chains is stuck; a stuck chain does
        not sample the posterior and is reported instead.
    """
    found: dict[str, Moments] = {}
    stuck = []
    for name, side in sides.items():
        plan = plans[name]
        kept = min(MAX_KEPT, max(MIN_KEPT, int(seconds / len(starts) / plan.per_state)))
        f = []
        for chain, start in enumerate(starts):
            side.restart(start, SEED + chain)
            theta = side.run(kept, plan.thin, SEED + chain).theta[:kept]
            f.append(watched(post, data, theta)["f"])
            if longest_stay(theta) > STUCK * len(theta) and name not in stuck:
                stuck.append(name)
        found[name] = moments(np.stack(f))
    reference = list(found)[-1]
    result = {}
    for name, of_side in found.items():
        z = 0.0 if name == reference else largest_z(of_side, found[reference])
        if z > WRONG and name not in stuck:
            raise AssertionError(f"{post!r}: f of {name} is {z:.1f} standard errors off that of {reference}")
        result[name] = {"z": z, "rhat": of_side.rhat, "stuck": name in stuck}
    return result


def verify_features(post: pn.Posterior, theta: FloatArray, X: FloatArray) -> None:
    """Raise AssertionError unless the output features times theta's output weights give f, up to rounding."""
    features, offset = output_features(post, theta.astype(np.float64), X)
    own = (features @ theta[:, -features.shape[2] :, None].astype(np.float64))[..., 0] + offset
    f = post.network.predict(theta, X)[..., 0]
    # Each addition of each layer's sums has a rounding error of at most half a unit in the last place of its terms.
    size = np.abs(features).max() * np.abs(theta).max() * features.shape[2] + np.abs(offset).max()
    allowed = float(np.finfo(post.dtype).eps) / 2 * sum(post.net.layer_sizes) * size
    difference = float(np.abs(own - f).max())
    if not difference <= allowed:
        raise AssertionError(f"f from the output features is off by {difference:.1e}; rounding allows {allowed:.1e}")
