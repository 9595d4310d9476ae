"""The base class of the likelihoods of counts: the log link, offsets, and scores of predictions."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import Likelihood, Targets
from patrac_native.likelihoods.targets import matrix_targets
from patrac_native.validation.checks import FloatArray

# exp of this is zero, also if a few hundred are added.
_LOG_OF_NOTHING = -1e4
_LARGEST_LOG_RATE = 62 * math.log(2.0)


class CountLikelihood(Likelihood, abstract=True):
    """Base class of the likelihoods of counts 0, 1, 2, ..., (n,) for one output or (n, m), whose mean is exp(f).

    Where a row has an offset, such as the logarithm of its exposure, it is a known part of f: all methods take the
    *linear predictor* f + offset in place of f.
    """

    targets = "count"
    is_quadratic = False
    takes_offset = True
    columns = ("exposure",)

    def predicted(self, f: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the means exp(f) of the counts, shape (..., m)."""
        means: npt.NDArray[Any] = np.exp(f)
        return means

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return counts as float64 (n, m); (n,) is accepted for one output. Raises as the base class does."""
        values = matrix_targets(y, n, m)
        bad = ~((values >= 0) & (values == np.floor(values)) & np.isfinite(values))
        if bad.any():
            row, output = (int(index) for index in np.argwhere(bad)[0])
            raise ValueError(
                f"y must hold counts 0, 1, 2, ... for {type(self).__name__}; got {values[row, output]:g} at row {row}, "
                f"output {output} ({int(bad.sum())} bad values in all)."
            )
        return values

    def probabilities(self, f: npt.ArrayLike) -> FloatArray:
        """Raise TypeError: there are no classes."""
        raise TypeError(f"a {self.label} likelihood has no class probabilities; use Categorical or Bernoulli.")

    def initial_outputs(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None = None) -> FloatArray:
        """Return the logarithm of total count over total exposure of each output, shape (m,).

        An output without any count has half a count.
        """
        exposure = row_weights @ (np.ones_like(y) if offset is None else np.exp(offset))
        rates: FloatArray = np.log(np.maximum(row_weights @ y, 0.5) / exposure)
        return rates

    @abstractmethod
    def row_constants(self, y: Targets) -> FloatArray:
        """Return what the compiled core leaves out of each count's log probability, for y (n, m), shape (n, m)."""

    @abstractmethod
    def shift(self, y: Targets) -> FloatArray:
        """Return what the compiled core adds to the linear predictor of each count, for y (n, m), shape (n, m)."""

    @abstractmethod
    def of_output(self, output: int) -> CountLikelihood:
        """Return the likelihood of one output alone, counted from 0."""

    @abstractmethod
    def cdf(self, f: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        """Return the probability of at most y, which broadcasts to f (..., m); 0 for y < 0."""

    @abstractmethod
    def variance(self, f: npt.ArrayLike) -> FloatArray:
        """Return the variance of the counts, of the shape of f."""

    def core_targets(self, y: Targets, offset: FloatArray | None) -> FloatArray:
        """Return the counts and, beside them, what the core adds to the outputs, shape (n, 2m)."""
        shift = self.shift(y)
        return np.concatenate([y, shift if offset is None else shift + offset], axis=1)

    def average_constants(self, y: Targets, row_weights: FloatArray) -> FloatArray:
        """Return the weighted mean over rows of `row_constants`, shape (m,)."""
        average: FloatArray = row_weights @ self.row_constants(y) / row_weights.sum()
        return average

    def constant_log_likelihood(
        self, y: Targets, row_weights: FloatArray | None = None, offset: FloatArray | None = None
    ) -> float:
        """Return the log-likelihood of predicting each output's best constant rate, of y (n, m)."""
        weights = np.ones(len(y)) if row_weights is None else row_weights
        constant = self.best_outputs(y, weights, offset)
        # Without any count the best rate is zero, whose logarithm a very small one replaces.
        f = np.where(weights @ y > 0, constant, _LOG_OF_NOTHING) + (np.zeros_like(y) if offset is None else offset)
        return self.weighted_log_likelihood(f, y, weights)

    def best_outputs(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> FloatArray:
        """Return the most likely constant outputs, shape (m,), where there are counts; here `initial_outputs`."""
        return self.initial_outputs(y, row_weights, offset)


def draw_poisson(log_rate: FloatArray, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw counts of the given rates, of which those above 2^62 count as 2^62: int64 holds hardly larger numbers."""
    return rng.poisson(np.exp(np.minimum(log_rate, _LARGEST_LOG_RATE)))
