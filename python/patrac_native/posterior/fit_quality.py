"""The quality of the trained network's fit to the training data, compared with the best constant predictor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class FitQuality:
    """Log-likelihoods of the training data, normalised and weighted as in `Posterior.log_likelihood`."""

    network: float  # of the trained network; -inf if it is not finite
    constant: float  # of the best constant predictor: the mean of y, or the class frequencies
    rows: float  # sum of the row weights; without sample weights, the number of rows
    values: float  # number of observed values: `rows` times the number of targets in a row

    def to_dict(self) -> dict[str, float]:
        """Return the fields as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FitQuality:
        """Rebuild from what `to_dict` returned; None, which JSON files hold in place of -inf, becomes -inf."""
        numbers = {name: float("-inf") if value is None else float(value) for name, value in content.items()}
        return cls(**numbers)
