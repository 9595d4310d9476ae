"""The dispersion of a negative binomial likelihood, estimated on rows that a network has not seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from patrac_native.fit.candidates import PILOT_FRACTION
from patrac_native.fit.fit_data import FitArrays
from patrac_native.fit.model_settings import ModelSettings
from patrac_native.fit.tuning import train_networks
from patrac_native.likelihoods import NegativeBinomial, Poisson
from patrac_native.network.network import Network
from patrac_native.training.folds import split_rows
from patrac_native.validation.checks import FloatArray

# Fewer rows than this say too little about the dispersion.
_MIN_ROWS = 20
# The estimate is within these: at the lower bound, a mean count of a hundred has a variance that exceeds the Poisson
# distribution's by a hundredth.
_BOUNDS = (1e-4, 1e3)


@dataclass(frozen=True)
class Dispersion:
    """An estimated dispersion.

    Attributes
    ----------
    value : float
    rows : int
        Number of rows on which it was estimated.
    net : Network
        The network of the other rows.
    """

    value: float
    rows: int
    net: Network

    def __str__(self) -> str:
        little = "" if self.value > _BOUNDS[0] else ": counts vary as Poisson's or less"
        return (
            f"dispersion {self.value:.3g}, the most likely one on {self.rows} training rows around a network of the "
            f"others{little}"
        )


def estimate_dispersion(data: FitArrays, settings: ModelSettings) -> Dispersion:
    """Estimate the dispersion of counts, whose variance is mean + dispersion mean^2.

    A network is trained on four fifths of the training rows, under the Poisson likelihood, and the dispersion is the
    most likely one given its means on the others. Part of it is the error of that one network, which makes the estimate
    careful.

    Parameters
    ----------
    data : FitArrays
    settings : ModelSettings

    Returns
    -------
    Dispersion

    Raises
    ------
    ValueError
        If there are too few rows.
    KeyboardInterrupt
        If the training was interrupted.
    """
    n = len(data.X)
    if PILOT_FRACTION * n < _MIN_ROWS:
        raise ValueError(
            f"{n} training rows are too few to estimate the dispersion on a fifth of them; give "
            f"{settings.option('dispersion')}, or more rows."
        )
    split = split_rows(n, [PILOT_FRACTION], seed=settings.seed, groups=data.copies())
    held, kept = map(data.rows, split)
    sizes = [data.X.shape[1], *settings.hidden, data.n_targets]
    likelihood = Poisson()
    (net,) = train_networks(sizes, kept, likelihood, networks=1, settings=settings, l2=settings.l2)
    if net.history is not None and net.history.stopped == "interrupted":
        raise KeyboardInterrupt
    f = likelihood.with_offset(net.predict(held.X), held.offset)
    value = most_likely_dispersion(f, likelihood.check_targets(held.y, len(f), f.shape[1]))
    return Dispersion(value, len(f), net)


def most_likely_dispersion(f: FloatArray, y: FloatArray) -> float:
    """Return the dispersion from 1e-4 to 1000 that makes counts y (n, m) of log means f (n, m) most likely."""
    from scipy.optimize import minimize_scalar

    def loss(log_dispersion: float) -> float:
        return -float(NegativeBinomial(math.exp(log_dispersion)).log_likelihood_rows(f, y).sum())

    low, high = (math.log(bound) for bound in _BOUNDS)
    # The loss is flat near the lower bound, where a search would stop anywhere: a grid comes first.
    grid = np.linspace(low, high, 33)
    losses = [loss(point) for point in grid]
    best = int(np.argmin(losses))
    if best == 0:
        return _BOUNDS[0]
    around = (grid[best - 1], grid[min(best + 1, len(grid) - 1)])
    return math.exp(minimize_scalar(loss, bounds=around, method="bounded").x)
