"""The quality of predictions on rows that the draws have not seen: log density and coverage, beside the network's."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics import mean_with_error
from patrac_native.likelihoods import Likelihood
from patrac_native.network.network import Network
from patrac_native.validation.checks import FloatArray

# The probability of the central intervals whose coverage is judged.
COVERAGE = 0.9
# A difference of five points changes decisions; below 75%, more than twice as many observations as promised lie
# outside.
COVERAGE_LOOK, COVERAGE_BAD = 0.05, 0.15
# Kinds of unseen rows.
HELD_OUT, VALIDATION, LEAVE_ONE_OUT = "held out", "validation", "leave one out"
HELD_OUT_AND_VALIDATION = "held out and validation"


@dataclass(frozen=True)
class Calibration:
    """Scores of predictions of y, noise included, on rows that the draws have not seen.

    Attributes
    ----------
    kind : str
        "held out"; "validation" for rows that a run like this one left out; "held out and validation" for both; or
        "leave one out" for rows of the training data whose draws were reweighted.
    rows : int
        Number of rows.
    nlpd, nlpd_network : float
        Mean over the rows of the negative log predictive density, of the posterior and of the trained network alone;
        the network's is NaN if it is not known.
    nlpd_difference_se : float
        Standard error of the mean of the rows' differences nlpd - nlpd_network; NaN if these are not known.
    coverage : float
        Share of the rows that are inside central intervals of probability 0.9, where a count at the end of its interval
        counts in part; NaN for classes.
    unreliable : int
        Number of left-out rows whose importance weights are unreliable (`diagnostics.LeaveOneOut`).
    too_good : str
        Why the draws have seen these rows all the same, in words, so that the scores do not count; empty by default.
    """

    kind: str
    rows: int
    nlpd: float
    nlpd_network: float = math.nan
    nlpd_difference_se: float = math.nan
    coverage: float = math.nan
    unreliable: int = 0
    too_good: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values."""
        return asdict(self)

    @property
    def coverage_se(self) -> float:
        """Standard error of the coverage if it is 0.9."""
        return math.sqrt(COVERAGE * (1 - COVERAGE) / self.rows)

    @property
    def is_worse_than_network(self) -> bool:
        """Whether the posterior predicts worse than its trained network, by more than two standard errors."""
        return self.is_worse_than_network_by(2.0)

    def is_worse_than_network_by(self, errors: float) -> bool:
        """Whether the posterior predicts worse than its trained network, by more than so many standard errors."""
        slack = errors * self.nlpd_difference_se if math.isfinite(self.nlpd_difference_se) else 0.0
        return bool(self.nlpd - self.nlpd_network > slack)

    def with_validation(self, other: Calibration) -> Calibration:
        """Return the scores of these held-out rows and of the validation rows of a run like this one together."""
        rows = self.rows + other.rows
        mine, others = self.rows / rows, other.rows / rows
        return Calibration(
            HELD_OUT_AND_VALIDATION,
            rows,
            nlpd=mine * self.nlpd + others * other.nlpd,
            nlpd_network=mine * self.nlpd_network + others * other.nlpd_network,
            nlpd_difference_se=math.hypot(mine * self.nlpd_difference_se, others * other.nlpd_difference_se),
            coverage=mine * self.coverage + others * other.coverage,
        )

    def misses_coverage_by(self, tolerance: float = COVERAGE_LOOK) -> bool:
        """Whether the coverage differs from 0.9 by more than a tolerance and by more than three standard errors."""
        return bool(abs(self.coverage - COVERAGE) > max(tolerance, 3 * self.coverage_se))

    def is_overconfident(self, tolerance: float = COVERAGE_LOOK) -> bool:
        """Whether the coverage misses 0.9 from below, see `misses_coverage_by`."""
        return self.coverage < COVERAGE and self.misses_coverage_by(tolerance)


def network_likelihood(net: Network, likelihood: Likelihood, variance: FloatArray | None) -> Likelihood:
    """Return the likelihood of a trained network alone: its sampled variances, of draws (M,) or (M, m), are fixed."""
    if not likelihood.is_sampled:
        return likelihood
    assert variance is not None
    # Mean squared residuals on rows that the network was not trained on, which are no scales of other noise.
    known = net.history.validation_mse if net.history is not None and likelihood.is_conjugate else None
    return likelihood.at(np.atleast_1d(variance.mean(axis=0)) if known is None else known)


def calibrate(
    kind: str,
    nlpd_rows: FloatArray,
    nlpd_network: FloatArray | float | None = None,  # of each row, or its mean over others
    inside: FloatArray | npt.NDArray[np.bool_] | None = None,
    *,
    unreliable: int = 0,
    weights: FloatArray | None = None,
) -> Calibration:
    """Collect the scores of rows; under weights, `rows` of the result is their effective number."""
    rows = len(nlpd_rows) if weights is None else round(float(weights.sum() ** 2 / (weights**2).sum()))
    network, error = math.nan, math.nan
    if nlpd_network is not None:
        network = _mean(np.asarray(nlpd_network), weights)
        # Of other rows only the mean is known: the rows' own spread stands for that of the difference.
        error = mean_with_error(nlpd_rows - nlpd_network, weights)[1]
    covered = math.nan if inside is None else _mean(inside, weights)
    return Calibration(kind, rows, _mean(nlpd_rows, weights), network, error, covered, unreliable)


def _mean(values: npt.NDArray[Any], weights: FloatArray | None) -> float:
    """Return the mean of a number or of values (n, ...), weighted by rows if weights (n,) are given."""
    if weights is None or values.ndim == 0:
        return float(values.mean())
    return float(np.average(values, axis=0, weights=weights).mean())
