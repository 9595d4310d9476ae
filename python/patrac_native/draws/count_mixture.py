"""The posterior predictive distribution of one count: a mixture over draws of a count likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from patrac_native.draws.target_mixture import TargetMixture
from patrac_native.likelihoods import CountLikelihood
from patrac_native.validation.checks import FloatArray, check_probability


@dataclass(frozen=True)
class CountMixture(TargetMixture):
    """The mixture sum_i w_i P(y | f_i(x)) over M draws, at n inputs.

    Attributes
    ----------
    predictor : ndarray of float64, shape (M, n)
        f_i(x) plus the offset: the logarithm of the mean count.
    likelihood : CountLikelihood
        Of this one output.
    weights : ndarray, shape (M,) or (M, n), optional
        Weights of the draws, for all inputs or for each, which sum to one; by default they are equal.
    """

    predictor: FloatArray
    likelihood: CountLikelihood
    weights: FloatArray | None = None

    @classmethod
    def combined(cls, parts: Sequence[CountMixture], weights: FloatArray) -> CountMixture:
        """Return the mixture of all draws of several mixtures of one likelihood, with weights (M,) for all of them."""
        return cls(np.concatenate([part.predictor for part in parts]), parts[0].likelihood, weights)

    @property
    def n_inputs(self) -> int:
        """Number n of inputs."""
        return int(self.predictor.shape[1])

    def mean(self) -> FloatArray:
        """Return the mean count, shape (n,)."""
        return self._average(np.exp(self.predictor))

    def sd_f(self) -> FloatArray:
        """Return the standard deviation of the mean count over the draws, shape (n,)."""
        return np.sqrt(self._average((np.exp(self.predictor) - self.mean()) ** 2))

    def noise_variance(self) -> FloatArray:
        """Return the mean over the draws of the variance of the count given its mean, shape (n,)."""
        return self._average(self.likelihood.variance(self.predictor[..., None])[..., 0])

    def cdf(self, y: npt.ArrayLike) -> FloatArray:
        """Return the probability of at most y, shape (n,)."""
        return self._upto(self._targets(y))

    def _upto(self, counts: FloatArray) -> FloatArray:
        """Return what `cdf` does for counts (n,) that need not be finite, as where the mean of a draw overflows."""
        return self._average(self.likelihood.cdf(self.predictor[..., None], counts[..., None])[..., 0])

    def pit(self, y: npt.ArrayLike) -> FloatArray:
        """Return the mid-PIT values of observed counts y (n,), the mean of P(Y < y) and P(Y <= y), shape (n,).

        The mean of their distribution is that of the uniform one if the predictions are calibrated (Czado, Gneiting &
        Held 2009, Predictive model assessment for count data).
        """
        below, upto = self.step(y)
        return 0.5 * (below + upto)

    def step(self, y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return P(Y < y) and P(Y <= y), the ends of the step of the distribution function at counts y (n,)."""
        counts = self._targets(y)
        return self.cdf(counts - 1.0), self.cdf(counts)

    def inside(self, y: npt.ArrayLike, coverage: float) -> FloatArray:
        """Return the share of the step at each count y (n,) that is inside the central interval, shape (n,).

        Intervals of counts end at whole numbers, so they cover more than their probability. The mean of these shares is
        the probability itself if the predictions are calibrated, because P(Y < y) plus a uniform share of the step is
        then uniform.

        Parameters
        ----------
        y : ndarray, shape (n,)
        coverage : float
            Probability of the interval, in (0, 1).
        """
        below, upto = self.step(y)
        tail = 0.5 * (1.0 - coverage)
        overlap = np.clip(upto, tail, 1.0 - tail) - np.clip(below, tail, 1.0 - tail)
        width = upto - below
        # A count beyond the accuracy of the distribution function has no step.
        within = ((tail <= below) & (below <= 1.0 - tail)).astype(np.float64)
        return np.where(width > 0, overlap / np.where(width > 0, width, 1.0), within)

    def log_density_by_draw(self, y: npt.ArrayLike) -> FloatArray:
        """Return the log probability of counts y in each draw, shape (M, n)."""
        return self.likelihood.log_likelihood_rows(self.predictor[..., None], self._targets(y)[..., None])

    def quantile(self, probability: float) -> FloatArray:
        """Return the smallest count whose probability of not being exceeded is at least `probability`, shape (n,).

        Parameters
        ----------
        probability : float
            In (0, 1).

        Raises
        ------
        TypeError, ValueError
            If `probability` is not a number in (0, 1).
        """
        check_probability(probability, "probability")
        low = np.full(self.n_inputs, -1.0)
        high = np.maximum(np.ceil(self.mean()), 1.0)
        while (short := self._upto(high) < probability).any():
            low, high = np.where(short, high, low), np.where(short, 2.0 * high, high)
        # The quantile is above `low` and at most `high`.
        while (high - low > 1.0).any():
            middle = np.floor(0.5 * (low + high))
            reached = self._upto(middle) >= probability
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return high
