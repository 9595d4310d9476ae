"""Monte Carlo standard errors by batch means, and bounds on the largest of many z scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# False-alarm probability of one test, whatever the number of comparisons in it.
LEVEL = 1e-4


@dataclass(frozen=True)
class Estimate:
    """Means with their Monte Carlo standard errors.

    Attributes
    ----------
    mean, mcse : ndarray, shape (...)
    batches : int
        Nearly independent batch means behind each of them.
    """

    mean: Array
    mcse: Array
    batches: int


def batch_means(values: Array, batches: int) -> Estimate:
    """Mean over chains and draws, its error from the spread of batch means.

    Parameters
    ----------
    values : ndarray, shape (chain, draw, ...)
        Stationary. A batch must be much longer than the autocorrelation time: the error is too small by a share of
        about half of (autocorrelation time / batch length), which the callers keep at or below a percent.
    batches : int
        Batches a chain; a divisor of draw.
    """
    chains, draws = values.shape[:2]
    means = values.reshape(chains * batches, draws // batches, *values.shape[2:]).mean(axis=1, dtype=np.float64)
    mcse = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    return Estimate(means.mean(axis=0), mcse, len(means))


def largest_z(one: Estimate, other: Estimate | Array) -> float:
    """Largest |z| of the differences; the second is another run or exact values."""
    if isinstance(other, Estimate):
        return float((np.abs(one.mean - other.mean) / np.hypot(one.mcse, other.mcse)).max())
    return float((np.abs(one.mean - other) / one.mcse).max())


def bound(comparisons: int, degrees_of_freedom: float = np.inf, level: float = LEVEL) -> float:
    """The value that the largest of so many |t| exceeds with probability at most `level` (Bonferroni)."""
    from scipy.stats import t

    return float(t.isf(level / 2 / comparisons, degrees_of_freedom))
