"""The likelihood of real targets with normal noise whose variance is an output of the network too."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import HAS_OUTLIERS, NoiseChange, Targets, diagonal_root
from patrac_native.likelihoods.real import Noise, RealLikelihood, standard_normal
from patrac_native.validation.checks import FloatArray, check_nonnegative

_LOG_2_PI = math.log(2.0 * math.pi)
# The variance of the best constant predictor is at least this multiple of the mean square of y, where y is constant.
_LEAST_VARIANCE = float(np.finfo(np.float64).eps) ** 2


class HeteroscedasticGaussian(RealLikelihood):
    """Targets are normal with a variance that depends on the inputs, y_r ~ N(f_r, exp(s_r)); y is (n,) or (n, t).

    The network has m = 2t outputs for t targets: t means f, then t logarithms s of the variances (Nix & Weigend 1994,
    Estimating the mean and variance of the target probability distribution). The log-likelihood of a target is

        -[(y - f)^2 exp(-s) + s + log 2 pi] / 2.

    `draws.predict` returns the means; `draws.distribution(X).outputs()` has both; `variance` turns them into variances.

    The plain gradient of this likelihood often leads training to a network that takes signal for noise: where the
    variance is large, the mean hardly learns. Training therefore multiplies the gradient by the mean of each row by its
    variance^beta (Seitzer, Tavakoli, Antic & Martius 2022, On the pitfalls of heteroscedastic uncertainty estimation),
    and starts at mean and variance of y. The likelihood, its posterior and the loss of a network do not depend on beta.

    Parameters
    ----------
    beta : float
        Exponent of the variance in training, from 0, the plain gradient, to 1, that of the squared error; default 0.5.

    Raises
    ------
    TypeError, ValueError
        If beta is not a number from 0 to 1.

    Examples
    --------
    >>> likelihood = HeteroscedasticGaussian()
    >>> outputs = np.array([[0.5, 0.0], [0.5, np.log(0.25)]])  # one target: mean and log-variance of two rows
    >>> likelihood.predicted(outputs).ravel(), likelihood.variance(outputs).ravel()
    (array([0.5, 0.5]), array([1.  , 0.25]))
    >>> likelihood.log_likelihood_rows(outputs, np.array([[0.5], [0.5]])).round(6)
    array([-0.918939, -0.225791])
    """

    name = "heteroscedastic_gaussian"
    label = "heteroscedastic"
    example = "HeteroscedasticGaussian()"
    noise_by_row = True
    is_quadratic = False
    outputs_per_target = 2
    quantity = "mean and log-variance"

    def __init__(self, beta: float = 0.5) -> None:
        self.beta = check_nonnegative(beta, "beta")
        if self.beta > 1:
            raise ValueError(f"beta must be at most 1; got {self.beta:g}.")

    def integrates_outputs(self, n_outputs: int) -> bool:
        """Return True: the weights of the means."""
        return True

    def predicted(self, f: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the means (..., t) of outputs f (..., 2t)."""
        return f[..., : self.n_targets(f.shape[-1])]

    def variance(self, f: npt.ArrayLike) -> FloatArray:
        """Return the variances of the noise, shape (..., t), for outputs f (..., 2t)."""
        return np.exp(self._split(f)[1])

    def _split(self, f: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return means and log-variances, each (..., t), of outputs f (..., 2t)."""
        outputs = np.asarray(f, dtype=np.float64)
        t = self.n_targets(outputs.shape[-1])
        return outputs[..., :t], outputs[..., t:]

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return -[(y - f)^2 exp(-s) + s + log 2 pi] / 2 summed over targets, shape (..., n), for f (..., n, 2t)."""
        mean, log_variance = self._split(f)
        squares = ((y - mean) * np.exp(-0.5 * log_variance)) ** 2
        rows: FloatArray = -0.5 * (squares + log_variance + _LOG_2_PI).sum(axis=-1)
        return rows

    def information_root(self, f: FloatArray, y: Targets | None = None) -> FloatArray:
        """Return diag of exp(-s / 2) for the means and 1 / sqrt(2) for the log variances s, shape (n, m, m)."""
        _, s = self._split(f)
        return diagonal_root(np.concatenate([np.exp(-0.5 * s), np.full(s.shape, 0.5**0.5)], axis=1))

    def initial_outputs(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None = None) -> FloatArray:
        """Return mean and log-variance of each target of y (n, t), the best constant outputs, shape (2t,)."""
        share = row_weights / row_weights.sum()
        mean = share @ y
        least = _LEAST_VARIANCE * (share @ y**2) + float(np.finfo(np.float64).tiny)
        return np.concatenate([mean, np.log(np.maximum(share @ (y - mean) ** 2, least))])

    def best_constant(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> float:
        """Return the log-likelihood of predicting mean and variance of each target of y (n, t)."""
        constant = self.initial_outputs(y, row_weights)
        return self.weighted_log_likelihood(np.broadcast_to(constant, (len(y), len(constant))), y, row_weights)

    def core_parameters(self, n_outputs: int, y: Targets, row_weights: FloatArray) -> dict[str, FloatArray]:
        """Return the constant -log(2 pi) / 2 of each target's term, and no exponent."""
        constant = np.repeat([-0.5 * _LOG_2_PI, 0.0], self.n_targets(n_outputs))
        return {"constant": constant, "beta": np.zeros(n_outputs)}

    def training_parameters(self, n_outputs: int, y: Targets, row_weights: FloatArray) -> dict[str, FloatArray]:
        """Return the constant and the exponent beta of the variance."""
        return {**self.core_parameters(n_outputs, y, row_weights), "beta": np.full(n_outputs, self.beta)}

    def elementary_functions(self, n_outputs: int) -> dict[str, int]:
        """Return one exponential for each target."""
        return {"exp": self.n_targets(n_outputs)}

    def narrower(self) -> tuple[NoiseChange, ...]:
        """Return outliers."""
        return (HAS_OUTLIERS,)

    def describe_noise(self, squared_scales: FloatArray | None, unit: float | FloatArray, how: str) -> str:
        """Return that the network predicts the variance."""
        return "noise variance of each row an output of the network."

    def noise(self, output: int = 0) -> Noise:
        """Return standard normal noise, whose scale `located_noise` takes from the outputs."""
        return standard_normal()

    def located_noise(
        self, f: npt.ArrayLike, variance: FloatArray | None = None, output: int = 0
    ) -> tuple[FloatArray, Noise]:
        """Return the mean of one target in each draw, shape (M, n), and its noise, for outputs f (M, n, 2t)."""
        mean, log_variance = (part[..., output] for part in self._split(f))
        return mean, replace(self.noise(), scale=np.exp(0.5 * log_variance), variance=np.exp(log_variance))

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Return the means of f (..., n, 2t) plus independent normal noise, shape (..., n, t)."""
        mean, log_variance = self._split(f)
        return mean + np.exp(0.5 * log_variance) * rng.standard_normal(mean.shape)

    def arguments(self) -> dict[str, Any]:
        """Return the argument `beta`."""
        return {"beta": self.beta}
