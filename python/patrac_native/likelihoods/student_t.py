"""The likelihood of real targets with Student-t noise, for data with outliers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import Targets
from patrac_native.likelihoods.information import diagonal_root
from patrac_native.likelihoods.numbers import listed, plain_numbers, positive_numbers
from patrac_native.likelihoods.real import Noise
from patrac_native.likelihoods.sampled_noise import SampledNoiseLikelihood
from patrac_native.validation.checks import FloatArray, check_positive

if TYPE_CHECKING:
    import torch

# The constant predictor is found by reweighted means: the maximum number of steps, and the change of the location, in
# units of the scale, at which they stop. The error of the log-likelihood at its maximum is of second order in that.
_MAX_STEPS, _TOLERANCE = 1000, 1e-8
# Times that location and sampled scale of the constant predictor are fitted in turn.
_SCALE_STEPS = 20
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
        Scale of the noise, positive and finite; one for all outputs or one for each. Default 1. The variance of the
        noise is scale^2 df / (df - 2) for df > 2, else infinite. With "sampled" the scale of each output is sampled
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
        self.a: float | None = None
        self.b: float | FloatArray | None = None
        if isinstance(scale, str):
            if scale != "sampled":
                raise ValueError(f'scale must be a positive number, one for each output, or "sampled"; got {scale!r}.')
            self.scale: float | FloatArray | str = scale
            self.a = check_positive(2.0 if a is None else a, "a")
            self.b = None if b is None else positive_numbers(b, "b")
            return
        if a is not None or b is not None:
            raise ValueError(
                "a and b are the prior of a sampled scale; leave them out, or write "
                f'StudentT({self.df:g}, "sampled", a=..., b=...).'
            )
        self.scale = positive_numbers(scale, "scale")

    @classmethod
    def from_settings(cls, df: float | None = None) -> StudentT:
        """Return the likelihood with a sampled scale."""
        return cls(DEFAULT_DF if df is None else df, "sampled")

    def describe_noise(self, squared_scales: FloatArray | None, unit: float | FloatArray, how: str) -> str:
        """Return the degrees of freedom and the scale."""
        assert squared_scales is not None
        scales = np.sqrt(squared_scales)
        return (
            f"noise of Student's t distribution with {self.df:g} degrees of freedom, scale "
            f"{listed(np.atleast_1d(scales * unit))} in the target's units ({listed(scales)} of the standardised "
            f"target), {how}."
        )

    def describe_network_noise(self) -> str:
        """Return that the scale is the posterior's."""
        return "The network's own NLPD has noise of the posterior's mean scale."

    @property
    def is_sampled(self) -> bool:
        """Whether the scales are sampled with theta."""
        return isinstance(self.scale, str)

    def squared_scale_of(self, mean_square: FloatArray) -> FloatArray:
        """Return squares of scales for mean squared residuals, which fluctuate without bounds where df is small."""
        return np.asarray(mean_square * max(1.0 - 2.0 / self.df, 0.25), dtype=np.float64)

    def at(self, variance: float | npt.ArrayLike) -> StudentT:
        """Return the likelihood with fixed scales, whose squares are given, in place of sampled ones."""
        return StudentT(self.df, np.sqrt(variance))

    def fitted(self, f: FloatArray, y: Targets, row_weights: FloatArray) -> StudentT:
        """Return the likelihood with sampled scales fixed at their modes given outputs f (n, m) and row weights.

        The modes of their squares, by the EM algorithm from those of normal noise.
        """
        if not self.is_sampled:
            raise TypeError(f"{self!r} samples no scale.")
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

    def variance_vector(self, m: int) -> FloatArray:
        """Return the square of each output's scale, shape (m,), which takes the place of a Gaussian's variance."""
        return np.asarray(self.scale_vector(m) ** 2, dtype=np.float64)

    def scale_vector(self, m: int) -> FloatArray:
        """Return the scale of each output, shape (m,); raise ValueError if it is sampled or has another length."""
        if isinstance(self.scale, str):
            raise ValueError("the scale is sampled: take at(variance) with its square, such as a guess or a draw.")
        if isinstance(self.scale, np.ndarray) and self.scale.shape != (m,):
            raise ValueError(
                f"scale has {len(self.scale)} entries, but the network has {m} outputs; give one number or {m}."
            )
        return np.full(m, self.scale)

    def for_scaled_targets(self, scale: FloatArray) -> StudentT:
        """Return the likelihood of the targets y / scale, where this one is that of y."""
        if self.is_sampled:
            return self._with_scaled_rates(scale)
        scales = self.scale_vector(len(scale)) / scale
        return StudentT(self.df, scales.item() if len(scales) == 1 else scales)

    def _constant(self, m: int) -> float:
        """Return the log density of all m outputs at r = 0."""
        df = self.df
        of_shape = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
        return m * of_shape - float(np.log(self.scale_vector(m)).sum())

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return y as finite float64 (n, m); (n,) is accepted for one output. Raises as `Likelihood.check_targets`."""
        if not self.is_sampled:
            self.scale_vector(m)
        else:
            self._check_rates(m)
        return super().check_targets(y, n, m)

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return the log density summed over outputs, shape (..., n), for f (..., n, m)."""
        outputs = np.asarray(f, dtype=np.float64)
        m = outputs.shape[-1]
        squares = ((y - outputs) / self.scale_vector(m)) ** 2
        rows: FloatArray = self._constant(m) - 0.5 * (self.df + 1) * np.log1p(squares / self.df).sum(axis=-1)
        return rows

    def information_root(self, f: FloatArray) -> FloatArray:
        """Return diag of the root of (df + 1) / ((df + 3) scale^2), shape (n, m, m)."""
        information = (self.df + 1) / (self.df + 3) / self.variance_vector(f.shape[1])
        return diagonal_root(np.broadcast_to(np.sqrt(information), f.shape))

    def constant_log_likelihood(
        self, y: Targets, row_weights: FloatArray | None = None, offset: FloatArray | None = None
    ) -> float:
        """Return the log-likelihood of predicting each output's location, which is fitted by maximum likelihood."""
        weights = self.row_weights(None, len(y)) if row_weights is None else row_weights
        likelihood = self
        if self.is_sampled:  # location and scale in turn
            location = np.array([_weighted_median(column, weights) for column in y.T])
            for _ in range(_SCALE_STEPS):
                likelihood = self.fitted(location, y, weights)
                location = likelihood._location(y, weights)
        f = np.broadcast_to(likelihood._location(y, weights), y.shape)
        return likelihood.weighted_log_likelihood(f, y, weights)

    def _location(self, y: Targets, weights: FloatArray) -> FloatArray:
        """Return the location of each output under row weights (n,), shape (m,), by the EM algorithm from the median.

        It is a local maximum of the likelihood, which can have several if df is small and y has separate clusters.
        """
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

    def noise(self, output: int = 0) -> Noise:
        """Return the Student-t noise of one output, counted from 0."""
        from scipy.special import betaln, stdtr, stdtrit

        df = self.df
        log_mass = 0.5 * math.log(df) + float(betaln(0.5, df / 2))
        known = self.scale
        if isinstance(known, str):
            raise ValueError("the scale is sampled: take at(variance) with its square, such as a guess or a draw.")
        scale = float(known[output]) if isinstance(known, np.ndarray) else known
        return Noise(
            scale=scale,
            variance=scale**2 * df / (df - 2) if df > 2 else math.inf,
            cdf=lambda u: stdtr(df, u),
            quantile=lambda probability: float(stdtrit(df, probability)),
            log_density=lambda u: -0.5 * (df + 1) * np.log1p(u**2 / df) - log_mass,
        )

    def located_noise(
        self, f: npt.ArrayLike, variance: FloatArray | None = None, output: int = 0
    ) -> tuple[FloatArray, Noise]:
        """Return location (M, n) and noise of one output; with a sampled scale, the noise of each draw."""
        if not self.is_sampled:
            return super().located_noise(f, variance, output)
        if variance is None:
            raise ValueError("variance: the likelihood samples its scale; give the squares, shape (M,) or (M, m).")
        outputs = np.asarray(f, dtype=np.float64)
        draws = np.asarray(variance, dtype=np.float64)
        square = draws.reshape(len(draws), -1)[:, [output if draws.ndim > 1 else 0]]
        spread = square * self.df / (self.df - 2) if self.df > 2 else np.full_like(square, math.inf)
        return outputs[..., output], replace(self.at(1.0).noise(), scale=np.sqrt(square), variance=spread)

    def sample_at(self, f: npt.ArrayLike, rng: np.random.Generator, variance: FloatArray) -> Targets:
        """Return f (..., n, m) plus independent noise whose sampled squares of scales are (...) or (..., m)."""
        outputs = np.asarray(f, dtype=np.float64)
        by_output = variance[..., None, None] if variance.ndim == outputs.ndim - 2 else variance[..., None, :]
        return outputs + np.sqrt(by_output) * rng.standard_t(self.df, outputs.shape)

    def sample_prior(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Return f (draws, n, m) plus noise; sampled scales are drawn from their prior for each draw."""
        if not self.is_sampled:
            return self.sample(f, rng)
        outputs = np.asarray(f)
        a, b = self.variance_prior(outputs.shape[-1])
        return self.sample_at(outputs, rng, b / rng.gamma(a, size=(len(outputs), len(b))))

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Return f (..., n, m) plus independent Student-t noise of the same shape."""
        outputs = np.asarray(f, dtype=np.float64)
        return outputs + self.scale_vector(outputs.shape[-1]) * rng.standard_t(self.df, outputs.shape)

    def torch_loss_rows(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the negative log density summed over outputs, shape (n,), for f, y (n, m)."""
        import torch

        m = f.shape[-1]
        precision = torch.tensor(1.0 / (self.df * self.scale_vector(m) ** 2), dtype=f.dtype, device=f.device)
        return 0.5 * (self.df + 1) * ((y - f).square() * precision).log1p().sum(dim=-1) - self._constant(m)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments `df` and `scale` and, if it is sampled, a, and b where it is known."""
        fixed = {"df": self.df, "scale": plain_numbers(self.scale)}
        prior = {"a": self.a} | ({} if self.b is None else {"b": plain_numbers(self.b)})
        return fixed | (prior if self.is_sampled else {})


def _weighted_median(values: FloatArray, weights: FloatArray) -> float:
    """Return the smallest of the values (n,) for which the values up to it have half of the total weight."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(below, 0.5 * below[-1])]])
