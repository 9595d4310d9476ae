"""The base class of the likelihoods of counts: the log link, offsets, and scores of predictions."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.averages import mean_over_draws
from patrac_native.likelihoods.base import Likelihood, Targets
from patrac_native.likelihoods.mixture import TargetMixture
from patrac_native.likelihoods.numbers import matrix_targets, refuse_targets
from patrac_native.validation.checks import FloatArray, check_probability

# Tables of distribution functions have fewer counts than this, of draws whose means are below the second number, from
# zero to the largest mean and so many standard deviations.
_TABLE_COUNTS, _TABLE_MEAN, _TABLE_SPREADS = 1_000, 500.0, 8.0
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
        refuse_targets(bad, values, f"y must hold counts 0, 1, 2, ... for {type(self).__name__}")
        return values

    def initial_outputs(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None = None) -> FloatArray:
        """Return the logarithm of total count over total exposure of each output, shape (m,)."""
        exposure = row_weights @ (np.ones_like(y) if offset is None else np.exp(offset))
        rates: FloatArray = np.log(np.maximum(row_weights @ y, 0.5) / exposure)  # without any count, of half a count
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
    def next_share(self, f: FloatArray) -> tuple[FloatArray, Callable[[int], float]]:
        """Return a and b(count) whose product is P(count + 1) / P(count) for f (..., 1); a has the shape of f."""

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

    def best_constant(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> float:
        """Return the log-likelihood of predicting each output's best constant rate, of y (n, m)."""
        constant = self.best_outputs(y, row_weights, offset)
        # Without any count the best rate is zero, whose logarithm a very small one replaces.
        f = np.where(row_weights @ y > 0, constant, _LOG_OF_NOTHING) + (np.zeros_like(y) if offset is None else offset)
        return self.weighted_log_likelihood(f, y, row_weights)

    def best_outputs(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> FloatArray:
        """Return the most likely constant outputs, shape (m,), where there are counts; here `initial_outputs`."""
        return self.initial_outputs(y, row_weights, offset)

    def mixture(self, f: npt.ArrayLike, variance: FloatArray | None = None, output: int = 0) -> CountMixture:
        """Return the distribution of one count given draws; see `Likelihood.mixture`."""
        return CountMixture(np.asarray(f)[..., output].astype(np.float64), self.of_output(output))


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

    @cached_property
    def means(self) -> FloatArray:
        """The mean count in each draw, shape (M, n)."""
        return np.exp(self.predictor)

    def noise_variance(self) -> FloatArray:
        """Return the mean over the draws of the variance of the count given its mean, shape (n,)."""
        return self.average(self.likelihood.variance(self.predictor[..., None])[..., 0])

    def cdf(self, y: npt.ArrayLike) -> FloatArray:
        """Return the probability of at most y, shape (n,)."""
        return self._upto(self._targets(y))

    def _upto(self, counts: FloatArray) -> FloatArray:
        """Return what `cdf` does for counts (n,) that need not be finite, as where the mean of a draw overflows."""
        sizes, table = self._cumulative
        counts = np.broadcast_to(counts, sizes.shape)
        found, is_small = np.zeros(len(sizes)), counts < sizes
        in_table = is_small & (counts >= 0)
        found[in_table] = table[in_table, np.floor(counts[in_table]).astype(np.intp)]
        if not is_small.all():
            large = np.flatnonzero(~is_small)
            f, weights = self._at(large)
            found[large] = mean_over_draws(self.likelihood.cdf(f[..., None], counts[large, None])[..., 0], weights)
        return found

    def _at(self, inputs: npt.NDArray[np.intp]) -> tuple[FloatArray, FloatArray | None]:
        """Return predictors and weights at some inputs, in the layout on which the order of additions depends."""
        weights = self.weights
        if weights is not None and weights.ndim == 2:
            weights = np.ascontiguousarray(weights[:, inputs])
        return np.ascontiguousarray(self.predictor[:, inputs]), weights

    @cached_property
    def _cumulative(self) -> tuple[npt.NDArray[np.intp], FloatArray]:
        """The number of counts 0, 1, ... in the table of each input (n,), and P(Y <= count) of these, (n, counts)."""
        # Every quantile, interval and score reads it; special functions take a hundred times as long. An input has a
        # table if its counts are small and the probability of none does not underflow; whether it has one depends on no
        # other input.
        most = self.means.max(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.sqrt(self.likelihood.variance(self.predictor[..., None])[..., 0].max(axis=0))
            wanted = most + _TABLE_SPREADS * spread + _TABLE_SPREADS
        sizes = np.where((wanted < _TABLE_COUNTS) & (most < _TABLE_MEAN), np.ceil(wanted), 0).astype(np.intp)
        table = np.zeros((len(sizes), sizes.max(initial=0)))
        # Inputs with the longest tables first: the others leave as the counts go on.
        order = np.argsort(-sizes, kind="stable")
        f, weights = self._at(order)
        share = np.exp(self.likelihood.log_likelihood_rows(f[..., None], np.zeros((f.shape[1], 1))))
        with np.errstate(over="ignore"):  # of inputs without a table
            odds, of_count = self.likelihood.next_share(f[..., None])
        factor = odds[..., 0]
        for count in range(table.shape[1]):
            open_ones = int((sizes > count).sum())
            if open_ones < share.shape[1]:
                factor, share = (np.ascontiguousarray(part[:, :open_ones]) for part in (factor, share))
                weights = weights if weights is None or weights.ndim == 1 else weights[:, :open_ones]
            table[order[:open_ones], count] = mean_over_draws(share, weights)
            share *= factor
            share *= of_count(count)
        return sizes, np.cumsum(table, axis=1)

    def step(self, y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return P(Y < y) and P(Y <= y), the ends of the step of the distribution function at counts y (n,)."""
        counts = self._targets(y)
        return self.cdf(counts - 1.0), self.cdf(counts)

    def log_density_by_draw(self, y: npt.ArrayLike) -> FloatArray:
        """Return the log probability of counts y in each draw, shape (M, n)."""
        return self.likelihood.log_likelihood_rows(self.predictor[..., None], self._targets(y)[..., None])

    def thinned(self, every: int) -> Self:
        """Return the mixture of every `every`-th draw; see `TargetMixture.thinned`."""
        return replace(self, predictor=self.predictor[::every], weights=self._thinned_weights(every))

    def continuous_cdf(self, y: FloatArray) -> FloatArray:
        """Return the probability of at most y (n,) in each draw, (M, n), linear between whole numbers."""
        count, f = np.ceil(y), self.predictor[..., None]
        below, upto = (self.likelihood.cdf(f, one[..., None])[..., 0] for one in (count - 1.0, count))
        between: FloatArray = below + (y - (count - 1.0)) * (upto - below)
        return between

    def continuous_quantile(self, probability: float | FloatArray, start: FloatArray | None = None) -> FloatArray:
        """Return the quantile as if the distribution function were linear between whole numbers, shape (n,)."""
        count = self._least_count(probability, start)
        below, upto = self._upto(count - 1.0), self._upto(count)
        step = np.where(upto > below, upto - below, 1.0)
        found: FloatArray = count - 1.0 + np.clip((probability - below) / step, 0.0, 1.0)
        return found

    def quantile(self, probability: float) -> FloatArray:
        """Return the smallest count whose probability of not being exceeded is at least `probability`, shape (n,)."""
        return self._least_count(check_probability(probability, "probability"))

    def _least_count(self, probability: float | FloatArray, start: FloatArray | None = None) -> FloatArray:
        """Return what `quantile` does, of one probability or of one for each input (n,), searched from `start` (n,)."""
        low, high = np.full(self.n_inputs, -1.0), np.full(self.n_inputs, np.inf)
        count = np.maximum(np.ceil(self.mean() if start is None else start), 0.0)
        # The quantile is above `low` and at most `high`, whose neighbours differ by more than 1 from 2^53 on; the first
        # step leads to a neighbour.
        step = np.maximum(1.0, np.spacing(np.minimum(count, np.finfo(np.float64).max)))
        while (open_ones := (low < count) & (count < high)).any():
            reached = self._upto(np.where(open_ones, count, -1.0)) >= probability
            low, high = np.where(open_ones & ~reached, count, low), np.where(open_ones & reached, count, high)
            # Away from the start by steps that double until there are counts on both sides, then halfway between them.
            with np.errstate(invalid="ignore", over="ignore"):  # where no count is enough, they are infinite in the end
                halfway = np.floor(0.5 * (low + high))
                down = np.where(low < 0.0, np.maximum(high - step, halfway), halfway)
            count, step = np.where(np.isinf(high), low + step, down), 2.0 * step
        return high


def draw_poisson(log_rate: FloatArray, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw counts of the given rates, of which those above 2^62 count as 2^62: int64 holds hardly larger numbers."""
    return rng.poisson(np.exp(np.minimum(log_rate, _LARGEST_LOG_RATE)))
