"""The distribution of one target given draws of the outputs: a mixture, of numbers or of counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.averages import log_mean_over_draws, mean_over_draws
from patrac_native.validation.checks import FloatArray, as_real_array, check_probability


class TargetMixture(ABC):
    """The mixture over M draws of the distribution of one target, at n inputs; `Likelihood.mixture` returns it.

    Targets y are finite numbers, array_like of shape (n,), or one number for all inputs; methods that take them raise
    TypeError or ValueError for others.

    Attributes
    ----------
    weights : ndarray, shape (M,) or (M, n), or None
        Weights of the draws, for all inputs or for each, which sum to one; None if they are equal.
    """

    weights: FloatArray | None

    @property
    @abstractmethod
    def means(self) -> FloatArray:
        """f, or the mean count, in each draw, shape (M, n)."""

    @property
    def n_inputs(self) -> int:
        """Number n of inputs."""
        return int(self.means.shape[1])

    def mean(self) -> FloatArray:
        """Return the mean of f, which is that of y where its noise has one, or of the count, shape (n,)."""
        return self.average(self.means)

    @abstractmethod
    def cdf(self, y: npt.ArrayLike) -> FloatArray:
        """Return the probability of less than y, or of at most the count y, shape (n,)."""

    @abstractmethod
    def step(self, y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return P(Y < y) and P(Y <= y), each of shape (n,)."""

    def inside(self, y: npt.ArrayLike, coverage: float | Sequence[float]) -> FloatArray:
        """Return the share of the step at each y inside the central interval of probability `coverage`, (n,) or (n, q).

        Numbers without a step are inside or not. Intervals of counts end at whole numbers, so they cover more than
        their probability. The mean of these shares is the probability itself if the predictions are calibrated, because
        P(Y < y) plus a uniform share of the step is then uniform.
        """
        below, upto = self.step(y)
        tail = 0.5 * (1.0 - np.asarray(coverage))
        if tail.ndim:
            below, upto = below[..., None], upto[..., None]
        overlap = np.clip(upto, tail, 1.0 - tail) - np.clip(below, tail, 1.0 - tail)
        width = upto - below
        # A count beyond the accuracy of the distribution function has no step either.
        within = ((tail <= below) & (below <= 1.0 - tail)).astype(np.float64)
        return np.where(width > 0, overlap / np.where(width > 0, width, 1.0), within)

    def sd_f(self) -> FloatArray:
        """Return the standard deviation of f, or of the mean count, over the draws, shape (n,)."""
        return np.sqrt(self.average((self.means - self.mean()) ** 2))

    @abstractmethod
    def noise_variance(self) -> FloatArray:
        """Return the mean over the draws of the variance of the noise, shape (n,)."""

    @abstractmethod
    def log_density_by_draw(self, y: npt.ArrayLike) -> FloatArray:
        """Return the log density, or log probability, of y in each draw, shape (M, n)."""

    @abstractmethod
    def quantile(self, probability: float) -> FloatArray:
        """Return a quantile of y for a probability in (0, 1), shape (n,)."""

    @abstractmethod
    def continuous_quantile(self, probability: float | FloatArray, start: FloatArray | None = None) -> FloatArray:
        """Return `quantile`, of counts as if their distribution function were linear between whole numbers, (n,).

        The probability may be one for each input; values (n,) to start from save steps where they are near the result.
        """

    @abstractmethod
    def continuous_cdf(self, y: FloatArray) -> FloatArray:
        """Return the probability of at most y (n,) in each draw, (M, n); of counts linear between whole numbers."""

    @abstractmethod
    def thinned(self, every: int) -> Self:
        """Return the mixture of every `every`-th draw, with weights that sum to one."""

    def sd(self) -> FloatArray:
        """Return the standard deviation of y, shape (n,); infinite where the noise has no variance."""
        return np.sqrt(self.sd_f() ** 2 + self.noise_variance())

    def log_density(self, y: npt.ArrayLike) -> FloatArray:
        """Return the log density, or log probability, of y, shape (n,)."""
        return log_mean_over_draws(self.log_density_by_draw(y), self.weights)

    def interval(self, coverage: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the central interval of y with a probability of `coverage`, each of shape (n,)."""
        tail = 0.5 * (1.0 - check_probability(coverage, "coverage"))
        return self.quantile(tail), self.quantile(1.0 - tail)

    def _thinned_weights(self, every: int) -> FloatArray | None:
        """Return the weights of every `every`-th draw, scaled to a sum of one; None if they are equal."""
        if self.weights is None:
            return None
        some: FloatArray = self.weights[::every] / self.weights[::every].sum(axis=0)
        return some

    def average(self, values: FloatArray) -> FloatArray:
        """Return the mean over the draws of values (M, n)."""
        return mean_over_draws(values, self.weights)

    def _targets(self, y: npt.ArrayLike) -> FloatArray:
        """Return targets as an array of shape (n,), or of () for one number at all inputs."""
        targets = as_real_array(y, "y")
        if targets.shape not in ((), (self.n_inputs,)):
            raise ValueError(
                f"y must have shape ({self.n_inputs},), one value for each input, or be one number; got shape "
                f"{targets.shape}."
            )
        if not np.isfinite(targets).all():
            raise ValueError("y must be finite; it holds NaN or infinity.")
        return targets
