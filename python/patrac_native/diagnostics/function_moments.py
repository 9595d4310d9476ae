"""Mean and variance of f over all states of chains, also those between draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.validation.checks import FloatArray

# Statistics of a run that watches f, and the axes of each.
MOMENTS: dict[str, tuple[str, ...]] = {
    "moments_at": ("chain", "row", "input"),
    "moments_mean": ("chain", "row", "output"),
    "moments_variance": ("chain", "row", "output"),
    "moments_states": ("chain",),
}


@dataclass(frozen=True)
class Moments:
    """Mean and variance of f over states of all chains, as `moments` returns them.

    Attributes
    ----------
    at : ndarray, shape (n, d)
        The inputs.
    mean, variance : ndarray of float64, shape (n, m)
        Of the outputs f or, of Categorical, the class probabilities; the variance has the divisor `states` - 1, and is
        NaN for a single state.
    states : int
        Number of states of all chains.
    """

    at: FloatArray
    mean: FloatArray
    variance: FloatArray
    states: int


def moments(stats: Mapping[str, npt.NDArray[Any]]) -> Moments | None:
    """Return mean and variance of f over states of all chains, also between draws, of a run with `moments_at`.

    The update of Chan, Golub & LeVeque (1983), once over all chains.

    Parameters
    ----------
    stats : mapping of str to ndarray
        The statistics of draws, `draws.stats`, which have those of each chain. They are of the run so far, whichever of
        its draws are selected.

    Returns
    -------
    Moments or None
        None if the run had no `moments_at`, or its chains different ones, or two runs that became one differed.
    """
    if not MOMENTS.keys() <= stats.keys():
        return None
    at, means, variances, states = (stats[name] for name in MOMENTS)
    if not (at == at[:1]).all():
        return None
    counts, total = states[:, None, None], int(states.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (counts * means).sum(axis=0) / total
        within = np.where(counts > 1, (counts - 1) * variances, 0.0)
        squares = (within + counts * (means - mean) ** 2).sum(axis=0)
        return Moments(at[0], mean, squares / np.where(total > 1, total - 1, np.nan), total)
