"""How well the trained network itself fits the training data, beside the best constant predictor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native.model.likelihoods import Gaussian, Likelihood, Targets
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    from patrac_native.model.posterior import Posterior

_BLOCK_ROWS = 65_536


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

    A sampled Gaussian variance is put, for either predictor, at its mode given that predictor's residuals.

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
        if _is_sampled(likelihood):
            f = post.network.predict(post.theta_map, post.X, threads=1)
            network = _log_likelihood(likelihood, np.asarray(f, dtype=np.float64), y, weights)
        else:
            network = _of_trained(post)
    return FitQuality(
        network=network if np.isfinite(network) else float("-inf"),
        constant=_constant_log_likelihood(likelihood, y, weights),
        rows=rows,
        values=rows * y.size / len(y),
    )


def _is_sampled(likelihood: Likelihood) -> bool:
    """Whether the likelihood is a Gaussian of unknown variance."""
    return isinstance(likelihood, Gaussian) and likelihood.is_sampled


def _of_trained(post: Posterior) -> float:
    """Evaluate l at the trained values, on the device of the inputs unless they have come to the host."""
    there = post.inputs.on_device
    if there is None or post.has_core_model:
        return float(post.log_likelihood(post.theta_map, threads=1))
    model = post.device_model(there.device)
    return float(model.log_likelihood(post.theta_map.astype(post.dtype)[None])[0])


def _log_likelihood(likelihood: Likelihood, f: FloatArray, y: Targets, weights: FloatArray) -> float:
    """Of the outputs f, (n, m) or broadcast to it, in blocks of rows that bound the memory."""
    if isinstance(likelihood, Gaussian) and likelihood.is_sampled:
        likelihood = likelihood.at(likelihood.starting_variance(y - f, weights))
    blocks = [slice(first, first + _BLOCK_ROWS) for first in range(0, len(y), _BLOCK_ROWS)]
    return float(sum(weights[rows] @ likelihood.log_likelihood_rows(f[rows], y[rows]) for rows in blocks))


def _constant_log_likelihood(likelihood: Likelihood, y: Targets, weights: FloatArray) -> float:
    """Of the best constant predictor under row weights, which `Likelihood.constant_log_likelihood` does not know."""
    if likelihood.name == "gaussian":
        mean = weights @ y / weights.sum()
        return _log_likelihood(likelihood, np.broadcast_to(mean, y.shape), y, weights)
    if likelihood.name == "categorical":
        counts = np.bincount(y, weights=weights)
    else:
        ones = weights @ y
        counts = np.concatenate([ones, weights.sum() - ones])
    shares = np.where(counts > 0, counts, 1.0) / weights.sum()
    return float((np.where(counts > 0, counts, 0.0) * np.log(shares)).sum())
