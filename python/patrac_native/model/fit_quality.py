"""How well the trained network itself fits the training data, beside the best constant predictor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from patrac_native.model.posterior import Posterior


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


def fit_quality(post: Posterior) -> FitQuality:
    """Compare the trained network with the best constant predictor on the training data of a posterior.

    A sampled noise variance is put, for either predictor, at its mode given that predictor's residuals.

    Parameters
    ----------
    post : Posterior

    Returns
    -------
    FitQuality
    """
    y, weights, likelihood = post.y, post.row_weights, post.likelihood
    rows = float(weights.sum())
    # At Sep's trained values, zeros, its own network adds nothing: this is the trained network for every architecture.
    with np.errstate(over="ignore", invalid="ignore"):
        if likelihood.is_sampled:
            f = np.asarray(post.network.predict(post.theta_map, post.X, threads=1), dtype=np.float64)
            network = likelihood.fitted(y - f, weights).weighted_log_likelihood(f, y, weights)
        else:
            network = _of_trained(post)
    return FitQuality(
        network=network if np.isfinite(network) else float("-inf"),
        constant=likelihood.constant_log_likelihood(y, weights),
        rows=rows,
        values=rows * y.size / len(y),
    )


def _of_trained(post: Posterior) -> float:
    """Evaluate l at the trained values, on the device of the inputs unless they have come to the host."""
    there = post.inputs.on_device
    if there is None or post.has_core_model:
        return float(post.log_likelihood(post.theta_map, threads=1))
    model = post.device_model(there.device)
    return float(model.log_likelihood(post.theta_map.astype(post.dtype)[None])[0])
