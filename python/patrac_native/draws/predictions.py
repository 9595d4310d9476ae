"""What draws of one posterior and mixtures of several have in common: predictions at new inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.draws.distribution import Component, PredictiveDistribution
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.validation.checks import FloatArray, check_inputs, check_probabilities, check_probability

if TYPE_CHECKING:
    from typing import Protocol

    class Member(Protocol):
        """What predictions need of the draws of one posterior; see `Draws`."""

        network: PartialNetwork
        likelihood: Likelihood
        stats: dict[str, npt.NDArray[Any]]
        settings: dict[str, Any]

        @property
        def theta(self) -> npt.NDArray[Any]:
            """The draws, shape (chain, draw, K)."""


class Predictions(ABC):
    """Base class of `Draws` and `DrawsMixture`: weighted draws of functions that predict new targets.

    Attributes
    ----------
    likelihood : Likelihood
    """

    likelihood: Likelihood

    @property
    @abstractmethod
    def n_chains(self) -> int:
        """Number of chains, of all members of a mixture."""

    @property
    @abstractmethod
    def n_draws(self) -> int:
        """Number of draws (kept states) of each chain."""

    @abstractmethod
    def _weighted_members(self) -> Sequence[tuple[Member, float]]:
        """Return the draws of each posterior with their weight; their chains follow one another in all arrays."""

    def distribution(self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None) -> PredictiveDistribution:
        """Return the predictive distribution of new targets at X, noise included.

        Its methods are means, quantiles, densities, probabilities of classes, samples and scores. All draws of a
        mixture take part, with their weights.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite inputs, n_new >= 1; the columns of a data frame in any order, if the training or the posterior had
            one.
        offset : array_like, shape (n_new,) or (n_new, m), optional
            Of `Poisson` and `NegativeBinomial`: what is added to the outputs of each row, such as the logarithm of its
            exposure; finite. Default zeros, also if the posterior has offsets.

        Returns
        -------
        PredictiveDistribution

        Raises
        ------
        TypeError
            If X does not hold real numbers.
        ValueError
            If X has another shape or is not finite, the likelihood takes no offset, or there are no draws.

        Examples
        --------
        >>> import numpy as np
        >>> import patrac_native as pn
        >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
        >>> X = np.linspace(-1, 1, 5)[:, None]
        >>> post = pn.Posterior(net, pn.Mix(1), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
        >>> at_X = pn.sample(post, chains=2, draws=50, warmup=100, seed=0).distribution(X)
        >>> at_X.mean().shape, at_X.quantiles([0.1, 0.9]).shape, at_X.nlpd(X[:, 0]).shape
        ((5, 1), (5, 1, 2), (5,))
        """
        return self._distribution(X, offset)

    def predict(
        self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None, threads: int | None = None
    ) -> npt.NDArray[Any]:
        """Evaluate the predictions of each draw: the function draws f(x; theta) of the t targets.

        Parameters
        ----------
        X, offset
            As for `distribution`.
        threads : int, optional
            Number of native threads; by default the number of processors that this process may use.

        Returns
        -------
        ndarray of the posterior's dtype, shape (chain, draw, n_new, t)
            The outputs of the network, or what the likelihood derives from them: the means of
            `HeteroscedasticGaussian` and of counts. Of a mixture with unequal weights, those of equally weighted draws
            that represent it, of which each member has a number in proportion to its weight; the first two axes then
            have no meaning. For many rows, `distribution(X).blocks()` needs less memory.

        Raises
        ------
        TypeError, ValueError
            As `distribution`.
        """
        return self._by_chain(self.likelihood.predicted(self._distribution(X, offset, threads).outputs()))

    def predictive(self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None, seed: int = 0) -> npt.NDArray[Any]:
        """Draw targets y at X from the posterior predictive distribution: function draws with the likelihood's noise.

        Parameters
        ----------
        X, offset
            As for `distribution`.
        seed : int
            0 <= seed < 2^64, for the noise; default 0.

        Returns
        -------
        ndarray, shape (chain, draw, n_new, t)
            Targets, of the draws that `predict` returns; for Categorical, class labels of shape (chain, draw, n_new).

        Raises
        ------
        TypeError, ValueError
            As `distribution`, or if `seed` is not an integer in its range.
        """
        return self._by_chain(self._distribution(X, offset).sample(seed))

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Evaluate the class probabilities of each draw at X.

        Parameters
        ----------
        X
            As for `distribution`.

        Returns
        -------
        ndarray of float64, shape (chain, draw, n_new, m)
            For Categorical the softmax over classes; for Bernoulli the probability of a 1 at each output. The draws
            are those of `predict`.

        Raises
        ------
        TypeError
            If the likelihood has no classes.
        ValueError
            As `distribution`.
        """
        return self._by_chain(self.likelihood.probabilities(self._distribution(X).outputs()))

    def interval(
        self, X: npt.ArrayLike, coverage: float = 0.95, *, offset: npt.ArrayLike | None = None
    ) -> diagnostics.Interval:
        """Return central intervals of new targets, noise included, without Monte Carlo error of the noise.

        The ends of an interval of counts are counts, and its probability is at least `coverage`.

        Parameters
        ----------
        X, offset
            As for `distribution`.
        coverage : float
            Probability of the intervals, in (0, 1); default 0.95.

        Returns
        -------
        lower, upper : ndarray of float64, shape (n_new, t)

        Raises
        ------
        TypeError, ValueError
            As `distribution`; ValueError if `coverage` is outside (0, 1), TypeError if the targets are classes.
        """
        check_probability(coverage, "coverage")
        return self._distribution(X, offset).interval(coverage)

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
        X, offset
            As for `distribution`.
        probabilities : float or sequence of q float
            In (0, 1); default (0.05, 0.5, 0.95).

        Returns
        -------
        ndarray of float64, shape (n_new, t, q)

        Raises
        ------
        TypeError, ValueError
            As `distribution`; ValueError if there is no probability or one is outside (0, 1), TypeError if the targets
            are classes.
        """
        return self._distribution(X, offset).quantiles(check_probabilities(probabilities, "probabilities"))

    def log_likelihood_rows(
        self, X: npt.ArrayLike, y: npt.ArrayLike, *, offset: npt.ArrayLike | None = None
    ) -> FloatArray:
        """Evaluate the log-likelihood of each row in each draw, normalised and without sample weights.

        With the data of the posterior, this is what leave-one-out predictions (`diagnostics.leave_one_out`) and the
        weights of a mixture (`DrawsMixture.weighted`) are computed from.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Finite inputs, n >= 1, such as `post.data.X`.
        y : array_like
            Their targets, as the likelihood describes them, such as `post.data.y`.
        offset : array_like, shape (n,) or (n, m), optional
            As for `distribution`, such as `post.data.offset`.

        Returns
        -------
        ndarray of float64, shape (chain, draw, n)
            Under a sampled noise variance, with the variance of each draw. The chains of the members of a mixture
            follow one another.

        Raises
        ------
        TypeError, ValueError
            As `distribution`, or if y does not fit X or the likelihood.

        Warns
        -----
        UserWarning
            If `offset` is missing, though the posterior has one.
        """
        return self._by_chain(self._distribution(X, offset).log_density_by_draw(y))

    def _distribution(
        self, X: npt.ArrayLike, offset: npt.ArrayLike | None = None, threads: int | None = None
    ) -> PredictiveDistribution:
        """Return what `distribution` does, for networks that are evaluated by a number of threads."""
        own: object = self
        members = self._weighted_members()
        network = members[0][0].network
        return PredictiveDistribution(
            [_component(member, weight, threads) for member, weight in members],
            check_inputs(X, network.n_inputs, columns=network.input_names),
            offset,
            is_mixture=members[0][0] is not own,
            expects_offset=any(member.settings.get("has_offset") for member, _ in members),
        )

    def _summarised(self, distribution: PredictiveDistribution) -> Iterator[npt.NDArray[Any]]:
        """Yield what a summary shows, (chain, draw, rows, m) for blocks of rows: outputs, or class probabilities."""
        is_class = self.likelihood.targets == "class"
        for _, part in distribution.blocks():
            f = self._by_chain(part.outputs())
            yield self.likelihood.probabilities(f) if is_class else f

    def _by_chain(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values (M, ...) of all draws with the axes (chain, draw, ...)."""
        return values.reshape(self.n_chains, self.n_draws, *values.shape[1:])


def _component(member: Member, weight: float, threads: int | None) -> Component:
    """Return the draws of one posterior as a component of a predictive distribution; ValueError without draws."""
    theta = member.theta.reshape(-1, member.theta.shape[-1])
    if not len(theta):
        raise ValueError("there are no draws: the run was interrupted before the first. Run `sample` again.")
    network, variance = member.network, member.stats.get("variance")
    return Component(
        lambda X: network.predict(theta, X, threads=threads),
        len(theta),
        network.n_outputs,
        theta.itemsize,
        member.likelihood,
        None if variance is None else variance.reshape(-1, *variance.shape[2:]),
        weight,
        network.net,
    )
