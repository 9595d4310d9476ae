"""The likelihood of real targets with normal noise, whose variance is fixed or sampled with theta."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import Targets, diagonal_root
from patrac_native.likelihoods.sampled_noise import SampledNoiseLikelihood
from patrac_native.validation.checks import FloatArray


class Gaussian(SampledNoiseLikelihood):
    """Targets are normal, y_r ~ N(f_r, variance), with independent outputs; y is (n,) for one output or (n, m).

    Parameters
    ----------
    variance : float, array_like of shape (m,) or "sampled"
        Noise variance, positive and finite, the square of the standard deviation; one for all outputs or one for each.
        (`StudentT` takes a scale, since its noise need not have a variance.) With "sampled" the variances are
        sampled with theta, one for each output, a priori independent and inverse-gamma with density proportional to
        x^(-a-1) exp(-b/x).
    a : float, optional
        Shape of that prior, positive; default 2. The prior has the weight of 2a observations whose squared residuals
        sum to 2b.
    b : float or array_like of shape (m,), optional
        Rate of the prior, positive; one for all outputs or one for each. By default `Posterior` sets it to a v / 2 for
        each output, v being the mean squared residual of the trained network on rows on which it was not trained
        (`net.history.validation_mse`), else on the posterior's own rows. With a = 2 the prior mean is v, and the prior
        counts as four observations whatever the units of y.
    pooled : bool
        Whether all outputs share one sampled variance; default False.

    Raises
    ------
    ValueError
        If a variance, a or b is not positive and finite, or a, b or pooled is given together with a fixed variance.
    TypeError
        If one of them is not a number, or the variances are not a vector of numbers.

    Examples
    --------
    >>> Gaussian(1.0).log_likelihood([[0.0], [1.0]], np.array([[0.0], [0.0]])).round(6)
    np.float64(-2.337877)
    >>> Gaussian("sampled").with_prior_guess([0.5, 2.0])
    Gaussian(variance='sampled', a=2.0, b=[0.5, 2.0])
    """

    name = label = "gaussian"
    example = 'Gaussian("sampled")'
    is_quadratic = True
    is_conjugate = True

    def __init__(
        self,
        variance: float | npt.ArrayLike | str,
        *,
        a: float | None = None,
        b: float | npt.ArrayLike | None = None,
        pooled: bool = False,
    ) -> None:
        self._set_noise(variance, a, b, pooled)

    def integrates_outputs(self, n_outputs: int) -> bool:
        """Return True."""
        return True

    def fitted(self, f: FloatArray, y: Targets, row_weights: FloatArray) -> Gaussian:
        """Return the likelihood with sampled variances fixed at their modes given outputs (n, m) and row weights."""
        m, rows = y.shape[1], float(row_weights.sum())
        squares = row_weights[:, None] * (y - f) ** 2
        one = self.pooled or m == 1
        sums, count = (squares.sum(keepdims=True)[0], rows * m) if one else (squares.sum(axis=0), rows)
        a, b = self.with_prior_guess(np.maximum(sums / count, np.finfo(np.float64).tiny)).variance_prior(m)
        modes = (b + sums / 2) / (a + count / 2 + 1)
        return self.at(modes.item() if one else modes)

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return -(y - f)^2 / (2 variance) - log(2 pi variance) / 2 summed over outputs, shape (..., n)."""
        outputs = np.asarray(f, dtype=np.float64)
        variance = self.variance_vector(outputs.shape[-1])
        terms = (y - outputs) ** 2 / variance + np.log(2 * np.pi * variance)
        rows: FloatArray = -0.5 * terms.sum(axis=-1)
        return rows

    def information_root(self, f: FloatArray, y: Targets | None = None) -> FloatArray:
        """Return diag(1 / standard deviation), shape (n, m, m)."""
        return diagonal_root(np.broadcast_to(self.variance_vector(f.shape[1]) ** -0.5, f.shape))

    def best_constant(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> float:
        """Return the log-likelihood, summed over rows, of predicting each output's mean of y (n, m)."""
        f = np.broadcast_to(row_weights @ y / row_weights.sum(), y.shape)
        likelihood = self.fitted(f, y, row_weights) if self.is_sampled else self
        return likelihood.weighted_log_likelihood(f, y, row_weights)

    def core_parameters(self, n_outputs: int, y: Targets, row_weights: FloatArray) -> dict[str, FloatArray]:
        """Return the variance of each output."""
        return {"variance": self.variance_vector(n_outputs)}

    def range_checks(self, n_outputs: int) -> Mapping[str, tuple[FloatArray, str]]:
        """Return the precisions 1 / variance, by which the engine multiplies."""
        return {"variance of Gaussian": (1.0 / self.variance_vector(n_outputs), "scale y and the variance")}

    def elementary_functions(self, n_outputs: int) -> dict[str, int]:
        """Return an empty mapping: the log density is a polynomial."""
        return {}
