"""The likelihood of real targets with Student-t noise, for data with outliers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import Targets, diagonal_root
from patrac_native.likelihoods.numbers import listed
from patrac_native.likelihoods.real import Noise, log_mean_exp
from patrac_native.likelihoods.sampled_noise import SampledNoiseLikelihood
from patrac_native.validation.checks import FloatArray, check_positive

# The constant predictor is found by reweighted means: the maximum number of steps, and the change of the location, in
# units of the scale, at which they stop. The error of the log-likelihood at its maximum is of second order in that.
_MAX_STEPS, _TOLERANCE = 1000, 1e-8
# Times that location and sampled scale of the constant predictor are fitted in turn.
_SCALE_STEPS = 20
# Up to these even degrees of freedom, a polynomial takes a tenth of the time of the special function.
_MOST_EVEN = 16
# The normalising constant is a difference of values of log Gamma that grow with df and cancel: its error is about 1e-7
# for each value at this bound, where the density differs from the Gaussian's by as little, but 0.9 for df = 1e15.
MAX_DF = 1e8
# Four degrees of freedom have tails that are heavy enough for outliers, and a variance.
DEFAULT_DF = 4.0


class StudentT(SampledNoiseLikelihood):
    """Targets with (y_r - f_r) / scale ~ t(df) and independent outputs; y is (n,) for one output or (n, m).

    The tails are heavier than those of the Gaussian, so outliers change the fit less. df = 1 is the Cauchy
    distribution, and for large df the likelihood approaches `Gaussian(scale**2)`. The log-likelihood of an output is

        -(df + 1) / 2 log(1 + r^2 / (df scale^2)) + const,  r = y - f

    (Lange, Little & Taylor 1989, Robust statistical modeling using the t distribution).

    Parameters
    ----------
    df : float
        Degrees of freedom, from 1 to 1e8.
    scale : float, array_like of shape (m,) or "sampled"
        Scale of the noise, positive and finite; one for all outputs or one for each. Default 1. It is no standard
        deviation: the variance of the noise is scale^2 df / (df - 2) for df > 2, else infinite, which is why this
        likelihood takes no variance as `Gaussian` does. With "sampled" the scale of each output is sampled
        with theta. The squares of the scales, which `draws.stats["variance"]` holds, are a priori independent and
        inverse-gamma with density proportional to x^(-a-1) exp(-b/x).
    a : float, optional
        Shape of that prior, positive; default 2.
    b : float or array_like of shape (m,), optional
        Rate of the prior, positive; one for all outputs or one for each. By default `Posterior` sets it to a v / 2 for
        each output, as for `Gaussian`, where v is the mean squared residual of the trained network times (df - 2) / df,
        the ratio of scale^2 to the variance of the noise, or times 1/4 if df < 8/3.

    Raises
    ------
    ValueError
        If df is not in [1, 1e8], or a scale, a or b is not positive and finite, or a or b is given together with fixed
        scales.
    TypeError
        If they are not numbers.

    Examples
    --------
    >>> StudentT(4.0, 0.5).log_likelihood([[0.0], [1.0]], np.array([[0.0], [0.0]])).round(6)
    np.float64(-2.308232)
    >>> StudentT(4.0, "sampled").with_prior_guess([0.5])
    StudentT(df=4.0, scale='sampled', a=2.0, b=0.5)
    """

    name = "student_t"
    label = "student-t"
    example = 'StudentT(df, "sampled")'
    settings = ("df",)
    scale_name = "scale"
    is_quadratic = False
    scale: float | FloatArray | str

    def __init__(
        self,
        df: float,
        scale: float | npt.ArrayLike | str = 1.0,
        *,
        a: float | None = None,
        b: float | npt.ArrayLike | None = None,
    ) -> None:
        self.df = check_positive(df, "df")
        if self.df < 1:
            raise ValueError(f"df must be at least 1; got {self.df}.")
        if self.df > MAX_DF:
            raise ValueError(f"df must be at most {MAX_DF:g}; got {self.df:g}. Use Gaussian(scale**2), its limit.")
        self._set_noise(scale, a, b)

    @classmethod
    def from_settings(cls, df: float | None = None) -> StudentT:
        """Return the likelihood with a sampled scale."""
        return cls(DEFAULT_DF if df is None else df, "sampled")

    def integrates_outputs(self, n_outputs: int) -> bool:
        """Return whether the scale of one output is sampled; noise is normal given precisions drawn with it."""
        return self.is_sampled and n_outputs == 1

    def describe_noise(self, squared_scales: FloatArray | None, unit: float | FloatArray, how: str) -> str:
        """Return the degrees of freedom and the scale."""
        assert squared_scales is not None
        scales = np.sqrt(squared_scales)
        return (
            f"noise of Student's t distribution with {self.df:g} degrees of freedom, scale "
            f"{listed(np.atleast_1d(scales * unit))} in the target's units ({listed(scales)} of the standardised "
            f"target), {how}."
        )

    def squared_scale_of(self, mean_square: FloatArray) -> FloatArray:
        """Return squares of scales for mean squared residuals, which fluctuate without bounds where df is small."""
        return np.asarray(mean_square * max(1.0 - 2.0 / self.df, 0.25), dtype=np.float64)

    def at(self, variance: float | npt.ArrayLike) -> StudentT:
        """Return the likelihood with fixed scales, whose squares are given, in place of sampled ones."""
        return StudentT(self.df, np.sqrt(variance))

    def fitted(self, f: FloatArray, y: Targets, row_weights: FloatArray) -> StudentT:
        """Return the likelihood with sampled scales fixed at their modes given outputs f (n, m) and row weights."""
        rows, residuals = float(row_weights.sum()), y - f
        mean_square = np.maximum(row_weights @ residuals**2 / rows, np.finfo(np.float64).tiny)
        a, b = self.with_prior_guess(self.squared_scale_of(mean_square)).variance_prior(residuals.shape[1])
        square = (b + 0.5 * rows * mean_square) / (a + 0.5 * rows + 1)
        for _ in range(_MAX_STEPS):
            pull = row_weights[:, None] * (self.df + 1) / (self.df + residuals**2 / square)
            found = (b + 0.5 * (pull * residuals**2).sum(axis=0)) / (a + 0.5 * rows + 1)
            moved = np.abs(found / square - 1)
            square = found
            if (moved <= _TOLERANCE).all():
                break
        return self.at(square)

    def _constant(self, m: int) -> float:
        """Return the log density of all m outputs at r = 0."""
        df = self.df
        of_shape = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
        return m * of_shape - float(np.log(self.scale_vector(m)).sum())

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return the log density summed over outputs, shape (..., n), for f (..., n, m)."""
        outputs = np.asarray(f, dtype=np.float64)
        m = outputs.shape[-1]
        squares = ((y - outputs) / self.scale_vector(m)) ** 2
        rows: FloatArray = self._constant(m) - 0.5 * (self.df + 1) * np.log1p(squares / self.df).sum(axis=-1)
        return rows

    def information_root(self, f: FloatArray, y: Targets | None = None) -> FloatArray:
        """Return diag of the root of (df + 1) / ((df + 3) scale^2), shape (n, m, m)."""
        information = (self.df + 1) / (self.df + 3) / self.variance_vector(f.shape[1])
        return diagonal_root(np.broadcast_to(np.sqrt(information), f.shape))

    def best_constant(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> float:
        """Return the log-likelihood of predicting each output's location, which is fitted by maximum likelihood."""
        likelihood = self
        if self.is_sampled:  # location and scale in turn
            location = np.array([_weighted_median(column, row_weights) for column in y.T])
            for _ in range(_SCALE_STEPS):
                likelihood = self.fitted(location, y, row_weights)
                location = likelihood._location(y, row_weights)
        f = np.broadcast_to(likelihood._location(y, row_weights), y.shape)
        return likelihood.weighted_log_likelihood(f, y, row_weights)

    def _location(self, y: Targets, weights: FloatArray) -> FloatArray:
        """Return the location of each output under row weights (n,), (m,), by the EM algorithm from the median."""
        # It is a local maximum of the likelihood, which can have several if df is small and y has separate clusters.
        scale = self.scale_vector(y.shape[1])
        location = np.array([_weighted_median(column, weights) for column in y.T])
        for _ in range(_MAX_STEPS):
            pull = weights[:, None] / (self.df + ((y - location) / scale) ** 2)
            found = (pull * y).sum(axis=0) / pull.sum(axis=0)
            moved = np.abs(found - location) / scale
            location = found
            if (moved <= _TOLERANCE).all():
                break
        return np.asarray(location, dtype=np.float64)

    def core_parameters(self, n_outputs: int, y: Targets, row_weights: FloatArray) -> dict[str, FloatArray]:
        """Return the degrees of freedom and the scale of each output."""
        return {"df": np.full(n_outputs, self.df), "scale": self.scale_vector(n_outputs)}

    def range_checks(self, n_outputs: int) -> Mapping[str, tuple[FloatArray, str]]:
        """Return 1 / (df scale^2), by which the engine multiplies."""
        return {"scale of StudentT": (1.0 / (self.df * self.scale_vector(n_outputs) ** 2), "scale y and the scale")}

    def elementary_functions(self, n_outputs: int) -> dict[str, int]:
        """Return one logarithm for each output."""
        return {"log": n_outputs}

    def standard_noise(self) -> Noise:
        """Return Student-t noise of scale 1."""
        from scipy.special import betaln, stdtr, stdtrit

        df = self.df
        cdf = _even_cdf(round(df)) if df % 2 == 0 and df <= _MOST_EVEN else lambda u: stdtr(df, u)
        log_mass = 0.5 * math.log(df) + float(betaln(0.5, df / 2))
        return Noise(
            scale=1.0,
            variance=df / (df - 2) if df > 2 else math.inf,
            cdf=cdf,
            quantile=lambda probability: stdtrit(df, probability),
            log_density=lambda u: -0.5 * (df + 1) * np.log1p(u**2 / df) - log_mass,
            slope=lambda u: -(df + 1) * u / (df + u**2),
            log_mean_exp=lambda c: log_mean_exp(lambda probability: stdtrit(df, probability), c),
        )

    def draw_standard(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw Student-t variates."""
        return rng.standard_t(self.df, shape)

    def arguments(self) -> dict[str, Any]:
        """Return the argument `df` and those of the scale."""
        return {"df": self.df, **super().arguments()}


def _even_cdf(df: int) -> Callable[[FloatArray], FloatArray]:
    """Return the distribution function for even df, a polynomial (Abramowitz & Stegun 1972, 26.7.4).

    Its absolute error is at most about 1e-15, so far in the lower tail no digit is right.
    """
    terms = [math.comb(2 * k, k) / 4**k for k in range(df // 2)]

    def cdf(u: FloatArray) -> FloatArray:
        u = np.clip(u, -1e200, 1e200)  # infinite u has no quotient
        root = np.hypot(u, math.sqrt(df))
        return np.asarray(0.5 + 0.5 * (u / root) * np.polynomial.polynomial.polyval(df / root / root, terms))

    return cdf


def _weighted_median(values: FloatArray, weights: FloatArray) -> float:
    """Return the smallest of the values (n,) for which the values up to it have half of the total weight."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(below, 0.5 * below[-1])]])
