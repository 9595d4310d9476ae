"""Noise that frozen nodes have fitted: a sampled variance far below the residuals on rows that training did not see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.posterior.posterior import Posterior

# Of the residuals on unseen rows; a sampled noise variance below this share of them is too small.
LOW_NOISE = 0.8


@dataclass(frozen=True)
class FittedNoise:
    """The noise variance of a partial posterior whose frozen nodes follow the noise of its rows."""

    variance: float  # its posterior mean
    unseen: float  # mean squared residual of the trained network on rows that it was not trained on
    output: int | None = None  # the worst of several

    def __str__(self) -> str:
        where = "" if self.output is None else f" of output {self.output}"
        return (
            f"the posterior mean of the noise variance{where} is {self.variance:.3g}, "
            f"{self.variance / self.unseen:.2f} of the trained network's mean squared residual on rows that it was not "
            f"trained on, {self.unseen:.3g}"
        )


def fitted_noise(post: Posterior, variance: npt.NDArray[Any] | None) -> FittedNoise | None:
    """Return the noise that frozen nodes have fitted, if they have, by draws of variances (chain, draw, ...)."""
    # Frozen nodes may follow the noise of rows on which the network was trained, and the variance is then too low;
    # that of `Full`, which has no frozen nodes, follows from the posterior alone.
    history = post.network.net.history
    unseen = None if history is None else history.validation_mse
    is_partial = post.network.separate or post.dim < post.network.net.n_parameters
    # Under other noise the draws are the squares of another scale.
    if variance is None or variance.size == 0 or unseen is None or not is_partial or not post.likelihood.is_conjugate:
        return None
    means = variance.mean(axis=(0, 1))
    expected = np.atleast_1d(unseen if np.ndim(means) else np.mean(unseen))
    means = np.atleast_1d(means)
    worst = int(np.argmin(means / expected))
    if not means[worst] < LOW_NOISE * expected[worst]:
        return None
    return FittedNoise(float(means[worst]), float(expected[worst]), worst if len(means) > 1 else None)
