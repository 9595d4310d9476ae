"""The base class of the likelihoods of real targets: checked numbers, additive noise, and scores of predictions."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.averages import mean_over_draws
from patrac_native.likelihoods.base import Likelihood, Targets
from patrac_native.likelihoods.mixture import TargetMixture
from patrac_native.likelihoods.numbers import matrix_targets
from patrac_native.validation.checks import FloatArray, check_finite, check_probability

# Maximum number of Halley's steps for a quantile of the mixture. Each at least halves the bracket; about two suffice
# from the quantile of about so many of the draws.
_QUANTILE_STEPS, _FIRST_DRAWS = 60, 100
# A step of at most this share of the narrowest noise leaves an error of about its cube. Bounds of what divides a Newton
# step, which is near 1 where the error is small.
_LAST_STEP, _BENDS = 3e-5, (0.5, 2.0)
# Parts of equal probability by which the mean of exponentials of heavy-tailed noise is computed.
_PARTS = 200


@dataclass(frozen=True)
class Noise:
    """The noise of one output: y = f + scale u, where u has a standard distribution that is symmetric about zero."""

    scale: float | FloatArray  # > 0: one number, or an array that broadcasts to f, such as (M, 1) for M draws of it
    variance: float | FloatArray  # of y given f, of the shape of `scale`; infinite if the distribution has none
    cdf: Callable[[FloatArray], FloatArray]  # the distribution function of u, applied entrywise
    quantile: Callable[[Any], Any]  # the quantile function of u, applied entrywise to probabilities
    log_density: Callable[[FloatArray], FloatArray]  # of u, applied entrywise
    slope: Callable[[FloatArray], FloatArray]  # of the log density of u, applied entrywise
    log_mean_exp: Callable[[FloatArray], FloatArray]  # log of the mean of exp(c u) for each c, see `log_mean_exp`


def log_mean_exp(quantile: Callable[[Any], Any], c: FloatArray) -> FloatArray:
    """Return the log of the mean of exp(c u) over 99.5% of a symmetric distribution: without its outermost tails.

    Those of Student-t noise make the mean infinite for every c. It is that over the midpoints of 200 parts of equal
    probability.
    """
    u = quantile((np.arange(_PARTS) + 0.5) / _PARTS)
    top = np.abs(c) * u[-1]
    found = np.zeros_like(top)
    for one in u:
        found += np.exp(c * one - top)
    return np.asarray(top + np.log(found / _PARTS))


def standard_normal() -> Noise:
    """Return standard normal noise."""
    from scipy.special import ndtr, ndtri

    return Noise(
        scale=1.0,
        variance=1.0,
        cdf=ndtr,
        quantile=ndtri,
        log_density=lambda u: -0.5 * (u**2 + math.log(2.0 * math.pi)),
        slope=np.negative,
        log_mean_exp=lambda c: 0.5 * c**2,
    )


@dataclass(frozen=True)
class PredictiveMixture(TargetMixture):
    """The mixture sum_i w_i p(y | f_i(x)) over M draws, at n inputs.

    Attributes
    ----------
    location : ndarray of float64, shape (M, n)
        f_i(x).
    noise : Noise
        The noise around the location; its scale and variance broadcast to (M, n).
    weights : ndarray, shape (M,) or (M, n), optional
        Weights of the draws, for all inputs or for each, which sum to one; by default they are equal.
    """

    location: FloatArray
    noise: Noise
    weights: FloatArray | None = None

    @classmethod
    def combined(cls, parts: Sequence[PredictiveMixture], weights: FloatArray) -> PredictiveMixture:
        """Return the mixture of several at the same inputs; `weights` (M,) are those of all their draws in turn."""

        def joined(values: Sequence[float | FloatArray]) -> FloatArray:
            pairs = zip(values, parts, strict=True)
            return np.concatenate([np.broadcast_to(value, part.location.shape) for value, part in pairs])

        noise = replace(
            parts[0].noise,
            scale=joined([part.noise.scale for part in parts]),
            variance=joined([part.noise.variance for part in parts]),
        )
        return cls(np.concatenate([part.location for part in parts]), noise, weights)

    def thinned(self, every: int) -> Self:
        """Return the mixture of every `every`-th draw; see `TargetMixture.thinned`."""

        def some(values: float | FloatArray) -> float | FloatArray:
            return np.asarray(values)[::every] if np.shape(values)[:1] == self.location.shape[:1] else values

        noise = replace(self.noise, scale=some(self.noise.scale), variance=some(self.noise.variance))
        return replace(self, location=self.location[::every], noise=noise, weights=self._thinned_weights(every))

    @property
    def means(self) -> FloatArray:
        """The location."""
        return self.location

    def noise_variance(self) -> FloatArray:
        """Return the mean over the draws of the variance of the noise, shape (n,); infinite where it has none."""
        return self.average(np.broadcast_to(np.asarray(self.noise.variance), self.location.shape))

    def cdf(self, y: npt.ArrayLike) -> FloatArray:
        """Return the probability of less than y, shape (n,): the PIT values of observed targets."""
        return self.average(self.noise.cdf((self._targets(y) - self.location) / self.noise.scale))

    def step(self, y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return P(Y < y) and P(Y <= y), which are equal for numbers, each of shape (n,)."""
        probability = self.cdf(y)
        return probability, probability

    def log_density_by_draw(self, y: npt.ArrayLike) -> FloatArray:
        """Return the log density of y in each draw, shape (M, n)."""
        return self.noise.log_density((self._targets(y) - self.location) / self.noise.scale) - np.log(self.noise.scale)

    def continuous_cdf(self, y: FloatArray) -> FloatArray:
        """Return the probability of less than y (n,) in each draw, shape (M, n)."""
        return self.noise.cdf((y - self.location) / self.noise.scale)

    def quantile(self, probability: float) -> FloatArray:
        """Return a quantile of y, shape (n,), to rounding error, by bracketed steps of Halley's method."""
        return self.continuous_quantile(check_probability(probability, "probability"))

    def continuous_quantile(self, probability: float | FloatArray, start: FloatArray | None = None) -> FloatArray:
        """Return quantiles (n,) of one probability or of one for each input, by steps from `start` (n,) if given."""
        scale = np.broadcast_to(np.asarray(self.noise.scale), self.location.shape)
        z = self.noise.quantile(probability)
        # The quantile of component i is f_i + z scale_i; that of the mixture lies between the smallest and the largest.
        parts = self.location + z * scale
        low, high = parts.min(axis=0), parts.max(axis=0)
        if start is None and len(self.location) >= 2 * _FIRST_DRAWS:
            start = self.thinned(len(self.location) // _FIRST_DRAWS).continuous_quantile(probability)
        elif start is None:
            sd = self.sd()
            # The median of noise with infinite variance would start at 0 * inf.
            start = self.mean() + z * np.where(np.isfinite(sd), sd, mean_over_draws(scale))
        x: FloatArray = np.clip(start, low, high)
        narrowest, found = scale.min(axis=0), np.zeros(x.shape, dtype=bool)
        for _ in range(_QUANTILE_STEPS):
            u = (x - self.location) / scale
            excess = self.average(self.noise.cdf(u)) - probability
            each = np.exp(self.noise.log_density(u)) / scale
            density, change = self.average(each), self.average(each * self.noise.slope(u) / scale)
            low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = excess / density
                step = x - newton / np.clip(1.0 - 0.5 * newton * change / density, *_BENDS)
            is_inside = (step >= low) & (step <= high)
            new = np.where(is_inside, step, 0.5 * (low + high))
            # Each quantile ends by itself: it does not depend on the other inputs.
            moved, x = np.abs(new - x), np.where(found, x, new)
            found |= moved <= np.where(is_inside, _LAST_STEP, _LAST_STEP**3) * narrowest
            if found.all():
                break
        return x


class RealLikelihood(Likelihood, abstract=True):
    """Base class of the likelihoods of real targets, (n,) for one target or (n, t), with additive noise."""

    targets = "real"

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return y as finite float64 (n, t); (n,) is accepted for one target. Raises as `Likelihood.check_targets`."""
        values = matrix_targets(y, n, self.n_targets(m))
        check_finite(values, "y")
        return values

    def squared_residuals(self, f: FloatArray, y: Targets, row_weights: FloatArray) -> FloatArray:
        """Return the squared differences of targets and means, shape (n, t)."""
        squares: FloatArray = (y - self.predicted(f)) ** 2
        return squares

    def mean_precision(self, n_targets: int) -> float:
        """Return the mean over targets of 1 / scale^2 of the noise."""
        return float(np.mean([self.noise(target).scale ** -2 for target in range(n_targets)]))

    @abstractmethod
    def noise(self, output: int = 0) -> Noise:
        """Return the noise of one output, counted from 0, of a likelihood without sampled parameters."""

    def located_noise(
        self, f: npt.ArrayLike, variance: FloatArray | None = None, output: int = 0
    ) -> tuple[FloatArray, Noise]:
        """Return the location (M, n) of one target in each draw and the noise around it; see `mixture`."""
        return np.asarray(f, dtype=np.float64)[..., output], self.noise(output)

    def mixture(self, f: npt.ArrayLike, variance: FloatArray | None = None, output: int = 0) -> PredictiveMixture:
        """Return the distribution of one target given draws; see `Likelihood.mixture`."""
        return PredictiveMixture(*self.located_noise(f, variance, output))
