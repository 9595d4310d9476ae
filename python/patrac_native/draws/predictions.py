"""Predictions of draws of one posterior and of mixtures of several: functions, classes, intervals and quantiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.likelihoods import Likelihood, TargetMixture
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.validation.checks import (
    FloatArray,
    check_count,
    check_inputs,
    check_probabilities,
    check_probability,
)

# Maximum size of the outputs of all draws in one block of rows.
_BLOCK_BYTES = 64 * 2**20


class Member(Protocol):
    """What predictions need of the draws of one posterior; see `Draws`."""

    network: PartialNetwork
    likelihood: Likelihood
    stats: dict[str, npt.NDArray[Any]]
    settings: dict[str, Any]

    @property
    def theta(self) -> npt.NDArray[Any]:
        """The draws, shape (chain, draw, K)."""

    @property
    def n_chains(self) -> int:
        """Number of chains."""


class Predictions(ABC):
    """Base class of what predicts new targets by weighted draws.

    Attributes
    ----------
    likelihood : Likelihood
    """

    likelihood: Likelihood

    @property
    @abstractmethod
    def members(self) -> tuple[Member, ...]:
        """The draws of each posterior; their chains follow one another wherever an array has an axis of chains."""

    @property
    def n_inputs(self) -> int:
        """Number d of inputs of the networks."""
        return self.members[0].network.n_inputs

    def _inputs(self, X: npt.ArrayLike) -> FloatArray:
        """Return X as float64 (n, d), the columns of a data frame in the order of the training; see `check_inputs`."""
        return check_inputs(X, self.n_inputs, columns=self.members[0].network.input_names)

    @property
    @abstractmethod
    def n_chains(self) -> int:
        """Number of chains of all members."""

    @property
    @abstractmethod
    def n_draws(self) -> int:
        """Number of draws of each chain."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of outputs of the network."""

    @property
    @abstractmethod
    def draw_weights(self) -> FloatArray:
        """Weight of each draw, shape (chain, draw); they sum to one."""

    @abstractmethod
    def log_likelihood_rows(
        self, X: npt.ArrayLike, y: npt.ArrayLike, *, offset: npt.ArrayLike | None = None
    ) -> FloatArray:
        """Evaluate the log-likelihood of each row in each draw, shape (chain, draw, n)."""

    @abstractmethod
    def predictive(self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None, seed: int = 0) -> npt.NDArray[Any]:
        """Draw targets from the posterior predictive distribution, shape (chain, draw, n, t)."""

    @abstractmethod
    def predictive_mixtures(
        self, X: npt.ArrayLike, output: int = 0, *, offset: npt.ArrayLike | None = None
    ) -> Iterator[tuple[slice, TargetMixture]]:
        """Evaluate the posterior predictive distribution of one target for blocks of rows of X."""

    @abstractmethod
    def predict_outputs(self, X: npt.ArrayLike, *, threads: int | None = None) -> npt.NDArray[Any]:
        """Evaluate all outputs of the networks, shape (chain, draw, n, m)."""

    def predict(
        self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None, threads: int | None = None
    ) -> npt.NDArray[Any]:
        """Evaluate the predictions of each draw: the function draws f(x; theta) of the t targets.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite inputs, n_new >= 1; the columns of a data frame in any order, if the training or the posterior had
            one.
        offset : array_like, shape (n_new,) or (n_new, m), optional
            Of `Poisson` and `NegativeBinomial`: what is added to the outputs of each row, such as the logarithm of its
            exposure; finite. Default zeros, also if the posterior has offsets.
        threads : int, optional
            Number of native threads; by default the number of processors that this process may use.

        Returns
        -------
        ndarray of the posterior's dtype, shape (chain, draw, n_new, t)
            The outputs of the network, or what the likelihood's `predicted` derives from them: the means of
            `HeteroscedasticGaussian` and of counts. Of a mixture, the draws that its `predict_outputs` chooses.
            For many rows, `predict_blocks` needs less memory.

        Raises
        ------
        TypeError
            If X does not hold real numbers.
        ValueError
            If X has another shape or is not finite, or there are no draws.
        """
        return self.likelihood.predicted(self.likelihood.with_offset(self.predict_outputs(X, threads=threads), offset))

    def predict_blocks(
        self,
        X: npt.ArrayLike,
        *,
        offset: npt.ArrayLike | None = None,
        rows: int | None = None,
        threads: int | None = None,
    ) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Evaluate the predictions for blocks of rows of X, which bounds the memory for any number of rows.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite inputs, n_new >= 1.
        offset : array_like, shape (n_new,) or (n_new, m), optional
            As for `predict`.
        rows : int, optional
            Number of rows of a block, at least 1; by default f of a block takes at most 64 MiB.
        threads : int, optional
            As for `predict`.

        Yields
        ------
        block : slice
            The rows of X in this block.
        predictions : ndarray of the posterior's dtype, shape (chain, draw, rows, t)
            As `predict` returns them.

        Raises
        ------
        TypeError, ValueError
            As `predict`, or if `rows` is not an integer of at least 1.
        """
        for block, f in self._predictor_blocks(X, offset, rows=rows, threads=threads):
            yield block, self.likelihood.predicted(f)

    def _predictor_blocks(
        self, X: npt.ArrayLike, offset: npt.ArrayLike | None, *, rows: int | None = None, threads: int | None = None
    ) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Yield blocks of rows of X, and their outputs plus offset (chain, draw, rows, m)."""
        inputs = self._inputs(X)
        added = self.likelihood.check_offset(offset, len(inputs), self.n_outputs)
        for block, f in self.output_blocks(inputs, rows=rows, threads=threads):
            yield block, self.likelihood.with_offset(f, None if added is None else added[block])

    def output_blocks(
        self, X: npt.ArrayLike, *, rows: int | None = None, threads: int | None = None
    ) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Evaluate all outputs f of the network for blocks of rows of X.

        Parameters
        ----------
        X, rows, threads
            As for `predict_blocks`.

        Yields
        ------
        block : slice
            The rows of X in this block.
        f : ndarray of the posterior's dtype, shape (chain, draw, rows, m)
            As `predict_outputs` returns them.

        Raises
        ------
        TypeError, ValueError
            As `predict_blocks`.
        """
        for block, inputs in self.input_blocks(X, rows):
            yield block, self.predict_outputs(inputs, threads=threads)

    def input_blocks(self, X: npt.ArrayLike, rows: int | None = None) -> Iterator[tuple[slice, FloatArray]]:
        """Yield blocks of rows of X, by default so small that the outputs of all draws take at most 64 MiB."""
        inputs = self._inputs(X)
        if rows is None:
            itemsize = max(member.theta.itemsize for member in self.members)
            row_bytes = self.n_chains * self.n_draws * self.n_outputs * itemsize
            rows = max(1, _BLOCK_BYTES // max(1, row_bytes))
        rows = check_count(rows, "rows")
        for first in range(0, len(inputs), rows):
            block = slice(first, min(first + rows, len(inputs)))
            yield block, inputs[block]

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Evaluate the class probabilities of each draw at X.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite inputs, n_new >= 1.

        Returns
        -------
        ndarray of float64, shape (chain, draw, n_new, m)
            For Categorical the softmax over classes; for Bernoulli the probability of a 1 at each output.

        Raises
        ------
        TypeError
            If the likelihood has no classes.
        ValueError
            As `predict`.
        """
        return self.likelihood.probabilities(self.predict_outputs(X))

    def interval(
        self, X: npt.ArrayLike, coverage: float = 0.95, *, offset: npt.ArrayLike | None = None
    ) -> diagnostics.Interval:
        """Return central intervals of new targets, noise included, without Monte Carlo error of the noise.

        The ends of an interval of counts are counts, and its probability is at least `coverage`.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite inputs, n_new >= 1.
        coverage : float
            Probability of the intervals, in (0, 1); default 0.95.
        offset : array_like, shape (n_new,) or (n_new, m), optional
            As for `Draws.predict`.

        Returns
        -------
        lower, upper : ndarray of float64, shape (n_new, t)

        Raises
        ------
        TypeError, ValueError
            As `predict`; ValueError if `coverage` is outside (0, 1), TypeError if the targets are classes.
        """
        check_probability(coverage, "coverage")
        tail = 0.5 * (1.0 - coverage)
        ends = self.quantiles(X, (tail, 1.0 - tail), offset=offset)
        return diagnostics.Interval(ends[..., 0], ends[..., 1])

    def quantiles(
        self,
        X: npt.ArrayLike,
        probabilities: float | Sequence[float] = (0.05, 0.5, 0.95),
        *,
        offset: npt.ArrayLike | None = None,
    ) -> FloatArray:
        """Return quantiles of new targets, noise included, without Monte Carlo error of the noise.

        Those of counts are counts: the smallest k for which P(y <= k) is at least the probability.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite inputs, n_new >= 1.
        probabilities : float or sequence of q float
            In (0, 1); default (0.05, 0.5, 0.95).
        offset : array_like, shape (n_new,) or (n_new, m), optional
            As for `Draws.predict`.

        Returns
        -------
        ndarray of float64, shape (n_new, t, q)

        Raises
        ------
        TypeError, ValueError
            As `predict`; ValueError if there is no probability or one is outside (0, 1), TypeError if the targets are
            classes.
        """
        wanted = check_probabilities(probabilities, "probabilities")
        targets = [
            np.concatenate(
                [
                    np.stack([mixture.quantile(one) for one in wanted], axis=-1)
                    for _, mixture in self.predictive_mixtures(X, target, offset=offset)
                ]
            )
            for target in range(self.likelihood.n_targets(self.n_outputs))
        ]
        return np.stack(targets, axis=1)
