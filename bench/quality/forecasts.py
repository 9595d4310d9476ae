"""Predictive distributions of rival models, and their losses at observed targets, row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp
from scipy.stats import nbinom, norm

Array = npt.NDArray[np.float64]
# A probability that a float64 rounds to zero counts as this, a loss of 691 nats.
_SMALLEST = 1e-300


@dataclass(frozen=True)
class Normals:
    """Equal mixtures of normal distributions, one for each row, of mean and sd (members, n)."""

    mean: Array
    sd: Array

    def log_density(self, y: Array) -> Array:
        """Return the log density at y (n,)."""
        found: Array = logsumexp(norm.logpdf(y, self.mean, self.sd), axis=0) - math.log(len(self.mean))
        return found

    def log_survival(self, y: Array) -> Array:
        """Return the log probability of more than y (n,)."""
        found: Array = logsumexp(norm.logsf(y, self.mean, self.sd), axis=0) - math.log(len(self.mean))
        return found

    def cdf(self, y: Array) -> Array:
        """Return the probability of at most y, (n,) or (K, 1)."""
        return np.mean([norm.cdf(y, *one) for one in zip(self.mean, self.sd, strict=True)], axis=0)

    def quantile(self, probability: float) -> Array:
        """Return a quantile of each row, by bisection between those of the members."""
        of_members = norm.ppf(probability, self.mean, self.sd)
        low, high = of_members.min(axis=0), of_members.max(axis=0)
        for _ in range(60):
            middle = (low + high) / 2
            above = self.cdf(middle) > probability
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return (low + high) / 2

    def inside(self, y: Array, coverage: float) -> Array:
        """Return 1 where the central interval of a probability holds y (n,), else 0."""
        probability = self.cdf(y)
        return share_inside(probability, probability, coverage)

    def crps(self, y: Array) -> Array:
        """Return E|Y - y| - E|Y - Y'| / 2 in closed form (Grimit, Gneiting, Berrocal & Johnson 2006)."""
        apart = np.mean(
            [_spread(self.mean - one, np.hypot(self.sd, sd)).mean(axis=0) for one, sd in self._members()], 0
        )
        found: Array = _spread(y - self.mean, self.sd).mean(axis=0) - apart / 2
        return found

    def _members(self) -> list[tuple[Array, Array]]:
        """Return mean and sd of each member."""
        return list(zip(self.mean, self.sd, strict=True))


def _spread(mean: Array, sd: Array) -> Array:
    """Return E|Z| of a normal Z."""
    z = mean / sd
    found: Array = 2 * sd * norm.pdf(z) + mean * (2 * norm.cdf(z) - 1)
    return found


@dataclass(frozen=True)
class Counts:
    """Distributions of counts: the probability (n, K) of 0 to K - 1."""

    probability: Array

    @classmethod
    def negative_binomial(cls, mean: Array, dispersion: float, values: int) -> Counts:
        """Return negative binomial distributions of the variance mean + dispersion mean^2."""
        size = 1 / dispersion
        return cls(nbinom.pmf(np.arange(values), size, size / (size + mean[:, None])))

    @classmethod
    def rounded(cls, forecast: Normals, values: int) -> Counts:
        """Return the probabilities of what rounds to each count; what lies below is a 0."""
        upper = forecast.cdf(np.arange(values)[:, None] + 0.5).T
        return cls(np.diff(upper, prepend=0.0, axis=1))

    def log_density(self, y: Array) -> Array:
        """Return the log probability of y (n,)."""
        found: Array = np.log(np.maximum(self.probability[np.arange(len(y)), y.astype(int)], _SMALLEST))
        return found

    def quantile(self, probability: float) -> Array:
        """Return the smallest count that is not exceeded with the probability."""
        return (self.probability.cumsum(axis=1) < probability).sum(axis=1).astype(float)

    def inside(self, y: Array, coverage: float) -> Array:
        """Return the share of the step of the distribution function at y (n,) that is in the central interval."""
        upto = self.probability.cumsum(axis=1)[np.arange(len(y)), y.astype(int)]
        return share_inside(upto - self.probability[np.arange(len(y)), y.astype(int)], upto, coverage)

    def crps(self, y: Array) -> Array:
        """Return the sum of the squared differences of the distribution functions."""
        reached = np.arange(self.probability.shape[1]) >= y[:, None]
        return np.asarray(((self.probability.cumsum(axis=1) - reached) ** 2).sum(axis=1))

    @property
    def mean(self) -> Array:
        """The mean of each row, (1, n)."""
        return np.asarray(self.probability @ np.arange(self.probability.shape[1]))[None]


@dataclass(frozen=True)
class Classes:
    """The probability (n, m) of each class."""

    probability: Array

    def log_density(self, y: Array) -> Array:
        """Return the log probability of the labels y (n,), numbers from 0."""
        return Counts(self.probability).log_density(y)


Forecast = Normals | Counts | Classes


def share_inside(below: Array, upto: Array, coverage: float) -> Array:
    """Return the share of the step from P(Y < y) to P(Y <= y) that is in the central interval of a probability.

    Intervals of counts end at counts and cover more than their probability; the mean of these shares is the probability
    where the distributions are right, for numbers and for counts.
    """
    tail = (1 - coverage) / 2
    width = upto - below
    overlap = np.clip(upto, tail, 1 - tail) - np.clip(below, tail, 1 - tail)
    within = (tail <= below) & (below <= 1 - tail)
    return np.where(width > 0, overlap / np.where(width > 0, width, 1.0), within)


def dispersion_of(mean: Array, y: Array) -> float:
    """Return the dispersion under which negative binomial counts y of given means are most probable."""
    tried = np.geomspace(1e-4, 1e2, 200)
    fits = [nbinom.logpmf(y, 1 / one, 1 / (1 + one * mean)).sum() for one in tried]
    return float(tried[np.argmax(fits)])
