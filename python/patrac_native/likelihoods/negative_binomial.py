"""The likelihood of counts that vary more than the Poisson distribution allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import NoiseChange, Targets, diagonal_root
from patrac_native.likelihoods.count import CountLikelihood, draw_poisson
from patrac_native.likelihoods.numbers import listed, of_outputs, plain_numbers, positive_numbers
from patrac_native.validation.checks import FloatArray

# At this dispersion, the variance of a mean count of a million exceeds the Poisson distribution's by a hundredth.
LEAST_DISPERSION = 1e-8
# Newton's method for the best constant: the maximum number of steps, each at most one, and the step at which it stops.
_MAX_STEPS, _TOLERANCE = 200, 1e-10


class NegativeBinomial(CountLikelihood):
    """Targets are counts of mean mu = exp(f_r + offset_r) and variance mu + dispersion mu^2; y is (n,) or (n, m).

    This is the parametrisation NB2 (Hilbe 2011, Negative Binomial Regression), with 1 / dispersion for the size of
    R's `dnbinom`: the counts are Poisson with rates mu times a gamma variate of mean 1 and variance `dispersion`. f and
    the offset are those of `Poisson`, the limit of dispersion 0. The log probability of an output is

        y log p + r log(1 - p) + log(Gamma(y + r) / (Gamma(r) y!)),  r = 1 / dispersion,  p = mu / (mu + r).

    Parameters
    ----------
    dispersion : float or array_like of shape (m,)
        At least 1e-8 and finite; one for all outputs or one for each.

    Raises
    ------
    ValueError
        If a dispersion is below 1e-8 or not finite.
    TypeError
        If it is not a number.

    Examples
    --------
    >>> likelihood = NegativeBinomial(0.5)
    >>> likelihood.log_likelihood_rows(np.log([[2.0], [2.0]]), np.array([[0.0], [3.0]])).round(6)
    array([-1.386294, -2.079442])
    >>> likelihood.variance(np.log([[2.0]]))
    array([[4.]])
    """

    name = "negative_binomial"
    label = "negative-binomial"
    example = "NegativeBinomial(dispersion)"
    settings = ("dispersion",)
    quantity = "log mean"

    def __init__(self, dispersion: float | npt.ArrayLike) -> None:
        self.dispersion = positive_numbers(dispersion, "dispersion")
        least = np.min(self.dispersion)
        if least < LEAST_DISPERSION:
            raise ValueError(
                f"dispersion must be at least {LEAST_DISPERSION:g}; got {least:g}. Poisson() is the limit of "
                "dispersion 0."
            )

    @classmethod
    def from_settings(cls, dispersion: float | None = None) -> NegativeBinomial:
        """Return the likelihood with a dispersion, which must be given."""
        if dispersion is None:
            raise ValueError("dispersion must be given for negative-binomial counts.")
        return cls(dispersion)

    def wider(self) -> tuple[NoiseChange, ...]:
        """Return a larger dispersion."""
        return (NoiseChange("give a larger dispersion"),)

    def narrower(self) -> tuple[NoiseChange, ...]:
        """Return a smaller dispersion, and its limit."""
        return NoiseChange("give a smaller dispersion"), NoiseChange("let counts vary less", "poisson")

    def describe_noise(self, squared_scales: FloatArray | None, unit: float | FloatArray, how: str) -> str:
        """Return the variance as a function of the mean."""
        dispersion = listed(np.atleast_1d(self.dispersion))
        return f"counts of a negative binomial distribution, whose variance is mean + {dispersion} mean^2."

    def dispersion_vector(self, m: int) -> FloatArray:
        """Return the dispersion of each output, shape (m,); raise ValueError if there are some for another number."""
        return of_outputs(self.dispersion, m, "dispersion")

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return counts as float64 (n, m); (n,) is accepted for one output. Raises as the base class does."""
        self.dispersion_vector(m)
        return super().check_targets(y, n, m)

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return the log probability summed over outputs, shape (..., n), for f (..., n, m)."""
        z, r = self._log_odds(f)
        terms = -y * np.logaddexp(0.0, -z) - r * np.logaddexp(0.0, z) + self.row_constants(y)
        rows: FloatArray = terms.sum(axis=-1)
        return rows

    def _log_odds(self, f: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return log(mu / r), of the shape of f (..., m), and r, shape (m,)."""
        outputs = np.asarray(f, dtype=np.float64)
        dispersion = self.dispersion_vector(outputs.shape[-1])
        return outputs + np.log(dispersion), 1.0 / dispersion

    def information_root(self, f: FloatArray, y: Targets | None = None) -> FloatArray:
        """Return diag of the root of mu / (1 + dispersion mu), shape (n, m, m)."""
        dispersion = self.dispersion_vector(f.shape[1])
        return diagonal_root(1.0 / np.sqrt(np.exp(-f) + dispersion))

    def row_constants(self, y: Targets) -> FloatArray:
        """Return log(Gamma(y + r) / (Gamma(r) y!)), of the shape of y (n, m)."""
        from scipy.special import betaln

        r = 1.0 / self.dispersion_vector(y.shape[-1])
        # The logarithm of 1 / ((y + r) B(y + 1, r)): differences of log Gamma would cancel for large r.
        constants: FloatArray = -betaln(y + 1.0, r) - np.log(y + r)
        return constants

    def shift(self, y: Targets) -> FloatArray:
        """Return -log r, of the shape of y (n, m)."""
        return np.broadcast_to(np.log(self.dispersion_vector(y.shape[-1])), y.shape)

    def best_outputs(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> FloatArray:
        """Return the most likely constant outputs, shape (m,): the mean without offsets, else by Newton's method."""
        f = self.initial_outputs(y, row_weights, offset)
        if offset is None:
            return f
        for _ in range(_MAX_STEPS):
            z, r = self._log_odds(f + offset)
            p = 1.0 / (1.0 + np.exp(-z))
            slope = row_weights @ (y * (1.0 - p) - r * p)
            curvature = row_weights @ ((y + r) * p * (1.0 - p))
            step = np.clip(slope / curvature, -1.0, 1.0)
            f = f + step
            if (np.abs(step) <= _TOLERANCE)[row_weights @ y > 0].all():
                break
        return f

    def core_parameters(self, n_outputs: int, y: Targets, row_weights: FloatArray) -> dict[str, FloatArray]:
        """Return the average constant of the counts of each output, and the dispersion."""
        constants = self.average_constants(y, row_weights)
        return {"constant": constants, "dispersion": self.dispersion_vector(n_outputs)}

    def range_checks(self, n_outputs: int) -> Mapping[str, tuple[FloatArray, str]]:
        """Return 1 / dispersion, by which the engine multiplies."""
        inverse = 1.0 / self.dispersion_vector(n_outputs)
        return {"dispersion of NegativeBinomial": (inverse, "bring it nearer to 1")}

    def elementary_functions(self, n_outputs: int) -> dict[str, int]:
        """Return one exponential and one logarithm for each output."""
        return {"exp": n_outputs, "log1p": n_outputs}

    def of_output(self, output: int) -> NegativeBinomial:
        """Return the likelihood of one output alone, counted from 0."""
        return NegativeBinomial(self.dispersion[output] if isinstance(self.dispersion, np.ndarray) else self.dispersion)

    def cdf(self, f: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        """Return the probability of at most y, which broadcasts to f (..., m); 0 for y < 0."""
        from scipy.special import betainc, expit

        z, r = self._log_odds(f)
        k = np.asarray(y, dtype=np.float64)
        below: FloatArray = np.where(k < 0, 0.0, betainc(r, np.maximum(k, 0) + 1.0, expit(-z)))
        return below

    def next_share(self, f: FloatArray) -> tuple[FloatArray, Callable[[int], float]]:
        """Return mu / (mu + r) and (count + r) / (count + 1)."""
        z, r = self._log_odds(f)
        return 1.0 / (1.0 + np.exp(-z)), lambda count: float(count + r[0]) / (count + 1)

    def variance(self, f: npt.ArrayLike) -> FloatArray:
        """Return mu + dispersion mu^2, the variance of the counts, of the shape of f (..., m)."""
        mu = np.exp(np.asarray(f, dtype=np.float64))
        variance: FloatArray = mu + self.dispersion_vector(mu.shape[-1]) * mu**2
        return variance

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Draw a count for every output: f (..., n, m) to int64 (..., n, m)."""
        outputs = np.asarray(f, dtype=np.float64)
        dispersion = self.dispersion_vector(outputs.shape[-1])
        with np.errstate(divide="ignore"):  # a gamma variate of a large dispersion may be zero
            log_gamma = np.log(dispersion * rng.gamma(1.0 / dispersion, size=outputs.shape))
        return draw_poisson(outputs + log_gamma, rng)

    def arguments(self) -> dict[str, Any]:
        """Return the argument `dispersion`."""
        return {"dispersion": plain_numbers(self.dispersion)}
