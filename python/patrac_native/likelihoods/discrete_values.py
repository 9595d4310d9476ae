"""The likelihood of numbers of which only a few differ: a probability for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.averages import mean_over_draws
from patrac_native.likelihoods.base import Likelihood, NoiseChange, Targets
from patrac_native.likelihoods.categorical import Categorical
from patrac_native.likelihoods.mixture import TargetMixture
from patrac_native.likelihoods.numbers import listed, matrix_targets, refuse_targets
from patrac_native.validation.checks import FloatArray, as_real_array, check_probability

# The probability with which a number that is none of the values is scored. One such row among a thousand costs the mean
# 0.007 nats; zero would make the score of all infinite.
UNSEEN_PROBABILITY = 1e-3
_CLASSES = Categorical()


class DiscreteValues(Likelihood):
    """Targets are numbers v_1 < ... < v_m, such as ratings: y_r = v_c with probability softmax(f_r)_c; y is (n,).

    The network has an output for each value, as for the classes of `Categorical`, and predictions are numbers: the mean
    is sum_c p_c v_c, and the distribution function has a step at each value. Use it where few values differ, each in
    many rows. The posterior needs targets that are among the values. Others can be scored all the same: their log
    probability is log(0.001), that of a value which the model does not know, and the probabilities of the values are
    those given that the target is one of them.

    Parameters
    ----------
    values : array_like, shape (m,), optional
        The values, in any order: at least two, finite, and different in single precision. The estimators take those of
        the training rows by default; elsewhere they must be given.

    Attributes
    ----------
    values : ndarray of float64, shape (m,), or None
        In increasing order.
    resolution : float
        The smallest distance between two values. Log probability minus its logarithm is comparable with the log density
        of another likelihood, which stands for the probability of a cell of this width.

    Raises
    ------
    TypeError
        If the values are not real numbers.
    ValueError
        If they are not as described.

    Examples
    --------
    >>> likelihood = DiscreteValues([0, 1, 12])
    >>> f = np.log([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
    >>> likelihood.predicted(f)
    array([[2.7],
           [2.7]])
    >>> np.exp(likelihood.log_likelihood_rows(f, np.array([[12.0], [5.0]])))
    array([0.2  , 0.001])
    """

    name = "discrete_values"
    core_name = "categorical"
    label = "discrete-values"
    example = "DiscreteValues(values)"
    targets = "value"
    has_classes = True
    is_quadratic = False
    quantity = "probabilities of the values"

    def __init__(self, values: npt.ArrayLike | None = None) -> None:
        self.values = None if values is None else _checked(values)
        self.outputs_per_target = 1 if self.values is None else len(self.values)

    @property
    def resolution(self) -> float:
        """The smallest distance between two values."""
        return float(np.diff(self._known).min())

    @property
    def _known(self) -> FloatArray:
        """The values; raises ValueError where they are left to the estimators."""
        if self.values is None:
            raise ValueError("DiscreteValues() leaves its values to the estimators; give them: DiscreteValues(values).")
        return self.values

    def for_training_targets(self, y: Targets) -> Likelihood:
        """Return the likelihood with the values of y (n, 1) where it has none; see `Likelihood`."""
        if y.ndim != 2 or y.shape[1] != 1:
            raise ValueError(f"a {self.label} likelihood takes one target, y of shape (n,); got shape {y.shape}.")
        if self.values is not None:
            return self
        values = np.unique(y)
        if not 1 < len(values) <= len(y) // 2:
            raise ValueError(
                f"y takes {len(values)} values in {len(y)} rows; a {self.label} likelihood needs at least two, each "
                "that of two rows or more on average. Take another likelihood, such as gaussian."
            )
        return DiscreteValues(values)

    def narrower(self) -> tuple[NoiseChange, ...]:
        """Return noise of any number."""
        return (NoiseChange("take noise around a mean", "gaussian"),)

    def describe_noise(self, squared_scales: FloatArray | None, unit: float | FloatArray, how: str) -> str:
        """Return the values."""
        return f"one of the values {listed(self._known)}, each with a probability of its own in each row."

    def predicted(self, f: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the means sum_c p_c v_c, shape (..., 1)."""
        means: npt.NDArray[Any] = self.probabilities(f) @ self._known[:, None]
        return means

    def identified(self, f: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the probabilities of the values, shape (..., m)."""
        return self.probabilities(f)

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return finite numbers as float64 (n, 1); raise as the base class does. They need not be among the values."""
        if m != len(self._known):
            raise ValueError(f"{self!r} needs a network with one output for each value, {len(self._known)}; got {m}.")
        numbers = matrix_targets(y, n, 1)
        refuse_targets(~np.isfinite(numbers), numbers, "y must be finite")
        return numbers

    def is_possible(self, y: Targets) -> npt.NDArray[np.bool_]:
        """Return which targets are among the values, of the shape of y."""
        # In single precision: a column that was stored in it has the same values.
        return np.asarray(_single(self._known)[self.labels(y)] == _single(y))

    def labels(self, y: Targets) -> npt.NDArray[np.int64]:
        """Return the places of numbers among the values, of the shape of y; of others that of a neighbour."""
        places = np.searchsorted(_single(self._known), _single(y))
        return np.minimum(places, len(self._known) - 1).astype(np.int64)

    def _labels_of_rows(self, y: Targets) -> npt.NDArray[np.int64]:
        """Return the labels (n,) of targets (n, 1); raise ValueError if one is not among the values."""
        refuse_targets(~self.is_possible(y), y, f"y must hold values of {self!r} where it is fitted")
        return self.labels(y)[:, 0]

    def strata(self, y: Targets) -> npt.NDArray[Any]:
        """Return the labels (n,)."""
        return self.labels(y)[:, 0]

    def log_units(self, y: Targets, scale: FloatArray) -> FloatArray:
        """Return the logarithm of the resolution, with which log probabilities become log densities, shape (n,)."""
        return np.asarray(super().log_units(y, scale) + np.log(self.resolution))

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return log softmax(f) at each row's value, or log(0.001) at other numbers, (..., n), for f (..., n, m)."""
        rows = _CLASSES.log_likelihood_rows(f, self.labels(y)[:, 0])
        return np.asarray(np.where(self.is_possible(y)[:, 0], rows, np.log(UNSEEN_PROBABILITY)))

    def information_root(self, f: FloatArray, y: Targets | None = None) -> FloatArray:
        """Return that of `Categorical`, shape (n, m, m)."""
        return _CLASSES.information_root(f)

    def best_constant(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> float:
        """Return the log-likelihood of predicting the frequencies of the values."""
        return _CLASSES.best_constant(self._labels_of_rows(y), row_weights, offset)

    def initial_outputs(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None = None) -> FloatArray:
        """Return the logarithms of the frequencies of the values, shape (m,)."""
        counts = np.bincount(self._labels_of_rows(y), weights=row_weights, minlength=len(self._known))
        shares: FloatArray = np.log(np.maximum(counts, 0.5) / row_weights.sum())
        return shares

    def core_targets(self, y: Targets, offset: FloatArray | None) -> FloatArray:
        """Return the labels as float64 (n,)."""
        return self._labels_of_rows(y).astype(np.float64)

    def elementary_functions(self, n_outputs: int) -> dict[str, int]:
        """Return those of `Categorical`."""
        return _CLASSES.elementary_functions(n_outputs)

    def probabilities(self, f: npt.ArrayLike) -> FloatArray:
        """Return the probability of each value, softmax(f) over the last axis of f (..., n, m)."""
        return _CLASSES.probabilities(f)

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Draw a value for each row: f (..., n, m) to float64 (..., n, 1)."""
        return self._known[_CLASSES.sample(f, rng)][..., None]

    def mixture(self, f: npt.ArrayLike, variance: FloatArray | None = None, output: int = 0) -> ValueMixture:
        """Return the distribution of the target given draws; see `Likelihood.mixture`."""
        return ValueMixture(np.asarray(f, dtype=np.float64), self)

    def arguments(self) -> dict[str, Any]:
        """Return the argument `values`."""
        return {"values": None if self.values is None else self.values.tolist()}


@dataclass(frozen=True)
class ValueMixture(TargetMixture):
    """The mixture sum_i w_i P(y | f_i(x)) over M draws, at n inputs, of numbers of which only a few differ.

    Attributes
    ----------
    f : ndarray of float64, shape (M, n, m)
        The outputs.
    likelihood : DiscreteValues
    weights : ndarray, shape (M,) or (M, n), optional
        Weights of the draws, for all inputs or for each, which sum to one; by default they are equal.
    """

    f: FloatArray
    likelihood: DiscreteValues
    weights: FloatArray | None = None

    @classmethod
    def combined(cls, parts: Sequence[ValueMixture], weights: FloatArray) -> ValueMixture:
        """Return the mixture of all draws of several mixtures of one likelihood, with weights (M,) for all of them."""
        return cls(np.concatenate([part.f for part in parts]), parts[0].likelihood, weights)

    @cached_property
    def _shares(self) -> FloatArray:
        """The probability of each value in each draw, shape (M, n, m)."""
        return self.likelihood.probabilities(self.f)

    @cached_property
    def means(self) -> FloatArray:
        """The mean in each draw, shape (M, n)."""
        return self.likelihood.predicted(self.f)[..., 0]

    @cached_property
    def _upto(self) -> FloatArray:
        """The probability of less than the first value, which is zero, and of at most each value, shape (n, m + 1)."""
        weights = self.weights
        if weights is not None and weights.ndim == 2:
            weights = np.broadcast_to(weights[..., None], self.f.shape)
        upto = np.cumsum(mean_over_draws(self._shares, weights), axis=1)
        # The last sum may round to just below 1, which each probability must be less than.
        return np.pad(upto / upto[:, -1:], ((0, 0), (1, 0)))

    @property
    def _knots(self) -> FloatArray:
        """Where the continuous distribution function has the probabilities `_upto`, shape (m + 1,)."""
        values = self.likelihood._known
        return np.concatenate([values[:1] - self.likelihood.resolution, values])

    def noise_variance(self) -> FloatArray:
        """Return the mean over the draws of the variance of the target in each, shape (n,)."""
        return self.average((self._shares * (self.likelihood._known - self.means[..., None]) ** 2).sum(axis=-1))

    def step(self, y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return P(Y < y) and P(Y <= y), each of shape (n,)."""
        numbers, rows = _single(self._targets(y)), np.arange(self.n_inputs)
        values = _single(self.likelihood._known)
        below, upto = (self._upto[rows, np.searchsorted(values, numbers, side)] for side in ("left", "right"))
        return below, upto

    def cdf(self, y: npt.ArrayLike) -> FloatArray:
        """Return the probability of at most y, shape (n,)."""
        return self.step(y)[1]

    def log_density_by_draw(self, y: npt.ArrayLike) -> FloatArray:
        """Return the log probability of y in each draw, shape (M, n)."""
        targets = np.broadcast_to(self._targets(y), (self.n_inputs,))
        return self.likelihood.log_likelihood_rows(self.f, targets[:, None])

    def thinned(self, every: int) -> Self:
        """Return the mixture of every `every`-th draw; see `TargetMixture.thinned`."""
        return replace(self, f=self.f[::every], weights=self._thinned_weights(every))

    def quantile(self, probability: float) -> FloatArray:
        """Return the smallest value whose probability of not being exceeded is at least `probability`, shape (n,)."""
        return self.likelihood._known[self._place(check_probability(probability, "probability"))]

    def _place(self, probability: float | FloatArray) -> npt.NDArray[np.intp]:
        """Return the place among the values of the quantile, of one probability or of one for each input (n,)."""
        found: npt.NDArray[np.intp] = (self._upto[:, 1:-1] < np.reshape(probability, (-1, 1))).sum(axis=1)
        return found

    def continuous_quantile(self, probability: float | FloatArray, start: FloatArray | None = None) -> FloatArray:
        """Return the quantile as if the distribution function were linear between values, shape (n,)."""
        place, rows, knots = self._place(probability), np.arange(self.n_inputs), self._knots
        below, upto = self._upto[rows, place], self._upto[rows, place + 1]
        share = np.clip((probability - below) / np.where(upto > below, upto - below, 1.0), 0.0, 1.0)
        found: FloatArray = knots[place] + share * (knots[place + 1] - knots[place])
        return found

    def continuous_cdf(self, y: FloatArray) -> FloatArray:
        """Return the probability of at most y (n,) in each draw, (M, n), linear between values."""
        knots = self._knots
        passed = np.clip((y[:, None] - knots[:-1]) / np.diff(knots), 0.0, 1.0)  # the share of each value's step
        return np.asarray((self._shares * passed).sum(axis=-1))


def _single(numbers: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return numbers in single precision, in which values are compared; large ones become infinite."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def _checked(values: npt.ArrayLike) -> FloatArray:
    """Return a read-only vector of different numbers in increasing order; raise TypeError or ValueError for others."""
    found = as_real_array(values, "values").astype(np.float64)
    if found.ndim != 1 or len(found) < 2 or not np.isfinite(_single(found)).all():
        raise ValueError(f"values must be at least two finite numbers, of shape (m,); got {values!r}.")
    found = np.sort(found)
    if (np.diff(_single(found)) == 0).any():
        first = found[int(np.argmin(np.diff(_single(found)) != 0))]
        raise ValueError(
            f"values must differ in single precision; two are {first:.17g} there. Leave one out, or subtract a "
            "constant from large numbers."
        )
    found.flags.writeable = False
    return found
