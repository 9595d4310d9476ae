"""The quality of the trained network's fit to the training data, compared with the best constant predictor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from patrac_native.likelihoods import Likelihood, Targets
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
    y: Targets,
    weights: FloatArray,
    offset: FloatArray | None,
    *,
    outputs: Callable[[], FloatArray],
    log_likelihood: Callable[[], float],
) -> FitQuality:
    """Compare the trained network with the best constant predictor on the training data of a posterior.

    For each of the two predictors, a sampled noise variance is fixed at its mode given that predictor's residuals.

    Parameters
    ----------
    likelihood : Likelihood
    y : ndarray
        Targets, as the likelihood's `check_targets` returns them.
    weights : ndarray of float64, shape (n,)
        Row weights.
    offset : ndarray of float64, shape (n, m), or None
        What is added to the outputs of each row.
    outputs : callable
        Returns the trained network's outputs, shape (n, m); called only if the variance is sampled.
    log_likelihood : callable
        Returns the trained network's log-likelihood; called only if the variance is fixed.

    Returns
    -------
    FitQuality
    """
    rows = float(weights.sum())
    with np.errstate(over="ignore", invalid="ignore"):
        if likelihood.is_sampled:
            f = np.asarray(outputs(), dtype=np.float64)
            network = likelihood.fitted(f, y, weights).weighted_log_likelihood(f, y, weights)
        else:
            network = log_likelihood()
    return FitQuality(
        network=network if np.isfinite(network) else float("-inf"),
        constant=likelihood.constant_log_likelihood(y, weights, offset),
        rows=rows,
        values=rows * math.prod(y.shape[1:2]),
    )
