"""The likelihood of counts with the Poisson distribution."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import NoiseChange, Targets, diagonal_root
from patrac_native.likelihoods.count import CountLikelihood, draw_poisson
from patrac_native.validation.checks import FloatArray


class Poisson(CountLikelihood):
    """Targets are counts, y_r ~ Poisson(exp(f_r + offset_r)), with independent outputs; y is (n,) or (n, m).

    f is the logarithm of the rate: of the mean count for an exposure of one. The offset is the logarithm of the
    exposure, such as a time or a population; it is an argument of `train`, `Posterior` and the predictions of draws,
    and zero if left out. Counts vary with their mean alone; where they vary more, use `NegativeBinomial`.

    Examples
    --------
    >>> likelihood = Poisson()
    >>> likelihood.log_likelihood_rows(np.log([[2.0], [2.0]]), np.array([[0.0], [3.0]])).round(6)
    array([-2.      , -1.712318])
    """

    name = label = "poisson"
    example = "Poisson()"
    quantity = "log rate"

    def wider(self) -> tuple[NoiseChange, ...]:
        """Return overdispersion."""
        return (NoiseChange("let counts vary more than Poisson's", "negative-binomial"),)

    def narrower(self) -> tuple[NoiseChange, ...]:
        """Return noise whose variance is not the mean."""
        return (NoiseChange("take noise that varies less than Poisson's", "gaussian"),)

    def describe_noise(self, squared_scales: FloatArray | None, unit: float | FloatArray, how: str) -> str:
        """Return that the variance is the mean."""
        return "counts of a Poisson distribution, whose variance is the mean."

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return y f - exp(f) - log y! summed over outputs, shape (..., n), for f (..., n, m)."""
        outputs = np.asarray(f, dtype=np.float64)
        t = outputs + self.shift(y)
        rows: FloatArray = (y * t - np.maximum(y, 1) * np.exp(t) + y + self.row_constants(y)).sum(axis=-1)
        return rows

    def information_root(self, f: FloatArray, y: Targets | None = None) -> FloatArray:
        """Return diag of the root of the mean, shape (n, m, m)."""
        return diagonal_root(np.exp(0.5 * f))

    def row_constants(self, y: Targets) -> FloatArray:
        """Return y log y - y - log y!, the log probability of y at its own rate, of the shape of y."""
        from scipy.special import gammaln, xlogy

        constants: FloatArray = xlogy(y, y) - y - gammaln(y + 1)
        return constants

    def shift(self, y: Targets) -> FloatArray:
        """Return -log max(y, 1), of the shape of y."""
        return -np.log(np.maximum(y, 1))

    def core_parameters(self, n_outputs: int, y: Targets, row_weights: FloatArray) -> dict[str, FloatArray]:
        """Return the average constant of the counts of each output."""
        return {"constant": self.average_constants(y, row_weights)}

    def elementary_functions(self, n_outputs: int) -> dict[str, int]:
        """Return one exponential for each output."""
        return {"exp": n_outputs}

    def of_output(self, output: int) -> Poisson:
        """Return the likelihood itself."""
        return self

    def cdf(self, f: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        """Return the probability of at most y, which broadcasts to f (..., m); 0 for y < 0."""
        from scipy.special import pdtr

        k = np.asarray(y, dtype=np.float64)
        rate = np.exp(np.asarray(f, dtype=np.float64))
        below: FloatArray = np.where(k < 0, 0.0, pdtr(np.maximum(k, 0), rate))
        return below

    def next_share(self, f: FloatArray) -> tuple[FloatArray, Callable[[int], float]]:
        """Return exp(f) and 1 / (count + 1)."""
        return np.exp(f), lambda count: 1.0 / (count + 1)

    def variance(self, f: npt.ArrayLike) -> FloatArray:
        """Return exp(f), the variance of the counts."""
        return np.exp(np.asarray(f, dtype=np.float64))

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Draw a count for every output: f (..., n, m) to int64 (..., n, m)."""
        return draw_poisson(np.asarray(f, dtype=np.float64), rng)
