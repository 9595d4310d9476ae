"""What draws of one posterior and mixtures of several have in common: intervals and scores of their predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.draws.count_mixture import CountMixture
from patrac_native.draws.mixture import PredictiveMixture
from patrac_native.model.likelihoods import Likelihood
from patrac_native.validation.checks import FloatArray


class Predictions(ABC):
    """Base class of what predicts new targets by weighted draws.

    Attributes
    ----------
    likelihood : Likelihood
    """

    likelihood: Likelihood

    @property
    @abstractmethod
    def members(self) -> tuple[Predictions, ...]:
        """The draws of each posterior; their chains follow one another wherever an array has an axis of chains."""

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
    ) -> Iterator[tuple[slice, PredictiveMixture | CountMixture]]:
        """Evaluate the posterior predictive distribution of one target for blocks of rows of X."""

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
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1; got {coverage}.")
        ends: list[list[FloatArray]] = [[], []]
        for target in range(self.likelihood.n_targets(self.n_outputs)):
            blocks = [mixture.interval(coverage) for _, mixture in self.predictive_mixtures(X, target, offset=offset)]
            for end, parts in zip(ends, zip(*blocks, strict=True), strict=True):
                end.append(np.concatenate(parts))
        lower, upper = (np.stack(end, axis=-1) for end in ends)
        return diagnostics.Interval(lower, upper)

    def nlpd(self, X: npt.ArrayLike, y: npt.ArrayLike, *, offset: npt.ArrayLike | None = None) -> FloatArray:
        """Return the negative log predictive density of each row, -log sum_i w_i p(y | draw i).

        Their mean is the score by which models are compared.

        Parameters
        ----------
        X : array_like, shape (n, d)
        y : array_like
            Targets, as the likelihood describes them.
        offset : array_like, shape (n,) or (n, m), optional
            As for `Draws.predict`.

        Returns
        -------
        ndarray of float64, shape (n,)

        Raises
        ------
        TypeError, ValueError
            As `log_likelihood_rows`.
        """
        from scipy.special import logsumexp

        rows = self.log_likelihood_rows(X, y, offset=offset)
        density: FloatArray = logsumexp(rows, axis=(0, 1), b=self.draw_weights[..., None])
        return -density

    def crps(self, X: npt.ArrayLike, y: npt.ArrayLike, *, offset: npt.ArrayLike | None = None, seed: int = 0) -> float:
        """Return the continuous ranked probability score of targets that are numbers, from draws with their noise.

        Parameters
        ----------
        X : array_like, shape (n, d)
        y : array_like, shape (n,) or (n, t)
        offset : array_like, shape (n,) or (n, m), optional
            As for `Draws.predict`.
        seed : int
            As for `predictive`.

        Raises
        ------
        TypeError, ValueError
            As `predictive`, or if the targets are classes.
        """
        if self.likelihood.targets in ("class", "binary"):
            raise TypeError(f"crps: the targets of {self.likelihood!r} are classes; use diagnostics.brier.")
        return diagnostics.crps(self.predictive(X, offset=offset, seed=seed), y)

    def coverage(
        self, X: npt.ArrayLike, y: npt.ArrayLike, probability: float = 0.95, *, offset: npt.ArrayLike | None = None
    ) -> float:
        """Return the share of targets that lie in their `interval` of the given probability.

        Parameters
        ----------
        X : array_like, shape (n, d)
        y : array_like, shape (n,) or (n, t)
        probability : float
            In (0, 1); default 0.95.
        offset : array_like, shape (n,) or (n, m), optional
            As for `Draws.predict`.

        Raises
        ------
        TypeError, ValueError
            As `interval`, or if y does not fit X.
        """
        lower, upper = self.interval(X, probability, offset=offset)
        observed = self.likelihood.check_targets(y, len(lower), self.n_outputs)
        return float(((lower <= observed) & (observed <= upper)).mean())
