"""The quality of the trained network's fit to the training data, compared with the best constant predictor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.data import Data
from patrac_native.validation.checks import FloatArray


@dataclass(frozen=True)
class FitQuality:
    """Log-likelihoods of the training data, normalised and weighted as in `Posterior.log_likelihood`.

    Attributes
    ----------
    network : float
        Log-likelihood of the trained network; -inf if it is not finite.
    constant : float
        Log-likelihood of the best constant predictor: the mean of y, or the class frequencies.
    rows : float
        Sum of the row weights; without sample weights, the number of rows.
    values : float
        Number of observed values: `rows` times the number of targets in a row.
    """

    network: float
    constant: float
    rows: float
    values: float

    def to_dict(self) -> dict[str, float]:
        """Return the fields as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FitQuality:
        """Rebuild from what `to_dict` returned; None, which JSON files hold in place of -inf, becomes -inf."""
        numbers = {name: float("-inf") if value is None else float(value) for name, value in content.items()}
        return cls(**numbers)


def fit_quality(
    likelihood: Likelihood,
    data: Data,
    *,
    outputs: Callable[[], FloatArray],
    log_likelihood: Callable[[], float],
) -> FitQuality:
    """Compare the trained network, by its outputs (n, m) or log-likelihood, with the best constant predictor.

    For each of the two, a sampled noise variance is fixed at its mode given that predictor's residuals.
    """
    y, weights = data.y, data.row_weights
    rows = float(weights.sum())
    with np.errstate(over="ignore", invalid="ignore"):
        if likelihood.is_sampled:
            f = np.asarray(outputs(), dtype=np.float64)
            network = likelihood.fitted(f, y, weights).weighted_log_likelihood(f, y, weights)
        else:
            network = log_likelihood()
    return FitQuality(
        network=network if np.isfinite(network) else float("-inf"),
        constant=likelihood.constant_log_likelihood(y, weights, data.offset),
        rows=rows,
        values=rows * math.prod(y.shape[1:2]),
    )
