"""How well the trained network itself fits the training data, beside the best constant predictor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from patrac_native.model.likelihoods import Likelihood, Targets
from patrac_native.validation.checks import FloatArray


@dataclass(frozen=True)
class FitQuality:
    """Log-likelihoods of the training data, normalised and weighted as `Posterior.log_likelihood` has them.

    Attributes
    ----------
    network : float
        Of the trained network; -inf where it is not finite.
    constant : float
        Of the best constant predictor: the mean of y, or the class frequencies.
    rows : float
        Sum of the row weights, the number of rows where there are none.
    values : float
        Observed values: rows times targets of a row.
    """

    network: float
    constant: float
    rows: float
    values: float

    def to_dict(self) -> dict[str, float]:
        """Return JSON-able content."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FitQuality:
        """Rebuild from `to_dict`; JSON that has no infinity holds null in its place."""
        numbers = {name: float("-inf") if value is None else float(value) for name, value in content.items()}
        return cls(**numbers)


def fit_quality(
    likelihood: Likelihood,
    y: Targets,
    weights: FloatArray,
    *,
    outputs: Callable[[], FloatArray],
    log_likelihood: Callable[[], float],
) -> FitQuality:
    """Compare the trained network with the best constant predictor on the training data of a posterior.

    A sampled noise variance is put, for either predictor, at its mode given that predictor's residuals.

    Parameters
    ----------
    likelihood : Likelihood
    y : ndarray
        Targets, as the likelihood's checks return them.
    weights : ndarray of float64, shape (n,)
        Row weights.
    outputs : callable
        Gives the trained network's outputs, (n, m); called where the variance is sampled.
    log_likelihood : callable
        Gives l of the trained network; called where the likelihood is fixed.
    """
    rows = float(weights.sum())
    with np.errstate(over="ignore", invalid="ignore"):
        if likelihood.is_sampled:
            f = np.asarray(outputs(), dtype=np.float64)
            network = likelihood.fitted(y - f, weights).weighted_log_likelihood(f, y, weights)
        else:
            network = log_likelihood()
    return FitQuality(
        network=network if np.isfinite(network) else float("-inf"),
        constant=likelihood.constant_log_likelihood(y, weights),
        rows=rows,
        values=rows * y.size / len(y),
    )
