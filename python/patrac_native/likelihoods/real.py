"""The base class of the likelihoods of real targets: checked numbers, additive noise, and scores of predictions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import Likelihood, Targets
from patrac_native.likelihoods.targets import matrix_targets
from patrac_native.validation.checks import FloatArray, check_finite


@dataclass(frozen=True)
class Noise:
    """The noise of one output: y = f + scale u, where u has a standard distribution that is symmetric about zero.

    Attributes
    ----------
    scale : float or ndarray
        Scale of the noise, > 0: one number, or an array that broadcasts to f, such as (M, 1) for M draws of it.
    variance : float or ndarray
        Variance of y given f, of the shape of `scale`; infinite if the distribution has none.
    cdf : callable
        The distribution function of u, applied entrywise.
    quantile : callable
        The quantile function of u, of one probability.
    log_density : callable
        The logarithm of the density of u, applied entrywise.
    """

    scale: float | FloatArray
    variance: float | FloatArray
    cdf: Callable[[FloatArray], FloatArray]
    quantile: Callable[[float], float]
    log_density: Callable[[FloatArray], FloatArray]


class RealLikelihood(Likelihood, abstract=True):
    """Base class of the likelihoods of real targets, (n,) for one target or (n, t), with additive noise."""

    targets = "real"

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return y as finite float64 (n, t); (n,) is accepted for one target. Raises as `Likelihood.check_targets`."""
        values = matrix_targets(y, n, self.n_targets(m))
        check_finite(values, "y")
        return values

    def probabilities(self, f: npt.ArrayLike) -> FloatArray:
        """Raise TypeError: there are no classes."""
        raise TypeError(f"a {self.label} likelihood has no class probabilities; use Categorical or Bernoulli.")

    def squared_residuals(self, f: FloatArray, y: Targets) -> FloatArray:
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
        """Return the location of one target in each draw and the noise around it.

        Parameters
        ----------
        f : array_like, shape (M, n, m)
            Outputs of M draws of the network at n inputs.
        variance : ndarray, shape (M,) or (M, m), optional
            The draws of the sampled noise variance, of one for all outputs or of one for each; required if the
            likelihood samples them.
        output : int
            The target, counted from 0.

        Returns
        -------
        location : ndarray of float64, shape (M, n)
        noise : Noise
            Its scale and variance broadcast to `location`.
        """
        return np.asarray(f, dtype=np.float64)[..., output], self.noise(output)
