"""The part of a posterior that needs no data: network, parameters, prior and prior predictive distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.architectures import Architecture
from patrac_native.likelihoods import Likelihood, Targets
from patrac_native.network.network import Network
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.validation.checks import FloatArray, check_count, check_seed
from patrac_native.validation.memory import check_memory


def prior_states(network: PartialNetwork, draws: int, seed: int) -> tuple[npt.NDArray[Any], FloatArray | None]:
    """Draw theta (draws, K) from the prior, after its sampled scales (draws, G), which are None if they are fixed.

    Raises
    ------
    TypeError, ValueError
        If `draws` or `seed` is not an integer in its range.
    """
    count = check_count(draws, "draws")
    needed = count * network.dim * network.dtype.itemsize
    check_memory(needed, f"draws={count}: the draws of {network.dim} parameters", "Take fewer.")
    theta = network.sample_prior(count, seed=check_seed(seed))
    groups = network.scales
    if groups is None:
        return theta, None
    scales = groups.draw(np.random.Generator(np.random.Philox(seed)), draws)
    theta *= np.sqrt(groups.factors(scales)).astype(network.dtype)
    return theta, scales


class PriorModel:
    """Base class of `Posterior` with everything that needs no data.

    Attributes
    ----------
    network : PartialNetwork
    likelihood : Likelihood
    """

    network: PartialNetwork
    likelihood: Likelihood

    @property
    def net(self) -> Network:
        """The trained network as the user gave it."""
        return self.network.net

    @property
    def architecture(self) -> Architecture:
        """The architecture, which selects the Bayesian parameters."""
        return self.network.architecture

    @property
    def dim(self) -> int:
        """K, the number of Bayesian parameters."""
        return self.network.dim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of theta, float32 or float64."""
        return self.network.dtype

    @property
    def level(self) -> str:
        """Instruction-set level of the compiled code."""
        return self.network.level

    @property
    def theta_map(self) -> FloatArray:
        """Trained values of the Bayesian parameters, shape (K,); zeros for Sep."""
        return self.network.theta_map

    @property
    def prior_variance(self) -> FloatArray:
        """Diagonal of C after rescaling, shape (K,); with sampled scales, that at their centres."""
        return self.network.prior_variance

    @property
    def parameters(self) -> npt.NDArray[np.void]:
        """Layer, row and column of each entry of theta, shape (K,); see `PartialNetwork`."""
        return self.network.parameters

    @property
    def permutation(self) -> list[npt.NDArray[np.intp]]:
        """For each layer, the trained network's own index of the node with each rank; see `PartialNetwork`."""
        return self.network.permutation

    @property
    def scale_names(self) -> tuple[str, ...]:
        """Names of the G sampled scales of the prior, such as "layer 1 weights"; empty if its variances are fixed."""
        return self.network.scale_names

    def log_prior(self, theta: npt.ArrayLike, *, scales: npt.ArrayLike | None = None) -> np.float64 | FloatArray:
        """Evaluate log N(theta; 0, C), normalised, in float64.

        Parameters
        ----------
        theta : array_like, shape (..., K)
        scales : array_like, shape (G,) or (..., G), optional
            sigma2 of each group of `scale_names`, positive; required if the prior samples them, and not allowed
            otherwise.

        Returns
        -------
        float64 or ndarray of float64, shape (...)

        Raises
        ------
        TypeError
            If theta or scales do not hold real numbers.
        ValueError
            If the last axis of theta does not have K entries, or scales are not as described.
        """
        return self.network.log_prior(theta, scales)

    def sample_prior(self, draws: int, *, seed: int = 0) -> npt.NDArray[Any]:
        """Draw theta from the prior; sampled scales are drawn first, anew for each theta.

        Parameters
        ----------
        draws : int
            Number of draws, at least 1.
        seed : int
            0 <= seed < 2^64; default 0. The random stream is independent of those of the samplers.

        Returns
        -------
        ndarray of `dtype`, shape (draws, K)

        Raises
        ------
        TypeError, ValueError
            If `draws` or `seed` is not an integer in its range, or the machine lacks the memory for the draws.
        """
        return prior_states(self.network, draws, seed)[0]

    def prior_predict(
        self, X: npt.ArrayLike, draws: int, *, offset: npt.ArrayLike | None = None, seed: int = 0
    ) -> npt.NDArray[Any]:
        """Evaluate the predictions at X, as `Draws.predict` does, for draws of theta from the prior.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Finite inputs, n >= 1.
        draws, seed : int
            As for `sample_prior`.
        offset : array_like, shape (n,) or (n, m), optional
            As for `Draws.predict`.

        Returns
        -------
        ndarray of `dtype`, shape (draws, n, t)

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        return self.likelihood.predicted(self._prior_outputs(X, draws, offset, seed))

    def _prior_outputs(self, X: npt.ArrayLike, draws: int, offset: npt.ArrayLike | None, seed: int) -> npt.NDArray[Any]:
        """Return outputs plus offset for draws of theta from the prior, shape (draws, n, m)."""
        return self.likelihood.with_offset(self.network.predict(self.sample_prior(draws, seed=seed), X), offset)

    def prior_predictive(
        self, X: npt.ArrayLike, draws: int, *, offset: npt.ArrayLike | None = None, seed: int = 0
    ) -> Targets:
        """Draw targets y at X from the prior predictive distribution.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Finite inputs, n >= 1.
        draws : int
            Number of draws, at least 1.
        offset : array_like, shape (n,) or (n, m), optional
            As for `Draws.predict`.
        seed : int
            0 <= seed < 2^64, for theta and for the noise; default 0.

        Returns
        -------
        ndarray
            Targets of shape (draws, n, t), or int64 labels of shape (draws, n) for classes.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        f, rng = self._prior_outputs(X, draws, offset, seed), np.random.default_rng(seed)
        return self.likelihood.sample_prior(f, rng)
