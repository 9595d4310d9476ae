"""The likelihood of real targets with Student-t noise, for data with outliers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.model.likelihoods.base import Targets
from patrac_native.model.likelihoods.real import Noise, RealLikelihood
from patrac_native.validation.checks import FloatArray, as_real_array, check_positive

if TYPE_CHECKING:
    import torch

# The constant predictor is found by reweighted means: the maximum number of steps, and the change of the location, in
# units of the scale, at which they stop. The error of the log-likelihood at its maximum is of second order in that.
_MAX_STEPS, _TOLERANCE = 1000, 1e-8
# The normalising constant is a difference of values of log Gamma that grow with df and cancel: its error is about 1e-7
# for each value at this bound, where the density differs from the Gaussian's by as little, but 0.9 for df = 1e15.
_MAX_DF = 1e8


class StudentT(RealLikelihood):
    """Targets with (y_r - f_r) / scale ~ t(df) and independent outputs; y is (n,) for one output or (n, m).

    The tails are heavier than those of the Gaussian, so outliers change the fit less. df = 1 is the Cauchy
    distribution, and for large df the likelihood approaches `Gaussian(scale**2)`. The log-likelihood of an output is

        -(df + 1) / 2 log(1 + r^2 / (df scale^2)) + const,  r = y - f

    (Lange, Little & Taylor 1989, Robust statistical modeling using the t distribution).

    Parameters
    ----------
    df : float
        Degrees of freedom, from 1 to 1e8.
    scale : float or array_like of shape (m,)
        Scale of the noise, positive and finite; one for all outputs or one for each. Default 1. The variance of the
        noise is scale^2 df / (df - 2) for df > 2, else infinite.

    Raises
    ------
    ValueError
        If df is not in [1, 1e8], or a scale is not positive and finite.
    TypeError
        If they are not numbers.

    Examples
    --------
    >>> StudentT(4.0, 0.5).log_likelihood([[0.0], [1.0]], np.array([[0.0], [0.0]])).round(6)
    np.float64(-2.308232)
    """

    name = "student_t"
    is_quadratic = False

    def __init__(self, df: float, scale: float | npt.ArrayLike = 1.0) -> None:
        self.df = check_positive(df, "df")
        if self.df < 1:
            raise ValueError(f"df must be at least 1; got {self.df}.")
        if self.df > _MAX_DF:
            raise ValueError(f"df must be at most {_MAX_DF:g}; got {self.df:g}. Use Gaussian(scale**2), its limit.")
        if np.ndim(scale) == 0:
            self.scale: float | FloatArray = check_positive(np.asarray(scale).item(), "scale")
            return
        values = as_real_array(scale, "scale").copy()
        if values.ndim != 1 or values.size == 0:
            raise ValueError(f"scale must be a number or have shape (m,); got shape {values.shape}.")
        bad = ~(np.isfinite(values) & (values > 0))
        if bad.any():
            output = int(np.argmax(bad))
            raise ValueError(f"scale must be positive and finite; got {values[output]} for output {output}.")
        values.flags.writeable = False
        self.scale = values

    def scale_vector(self, m: int) -> FloatArray:
        """Return the scale of each output, shape (m,); raise ValueError if there are scales for another number."""
        if isinstance(self.scale, np.ndarray) and self.scale.shape != (m,):
            raise ValueError(
                f"scale has {len(self.scale)} entries, but the network has {m} outputs; give one number or {m}."
            )
        return np.full(m, self.scale)

    def _constant(self, m: int) -> float:
        """Return the log density of all m outputs at r = 0."""
        df = self.df
        of_shape = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
        return m * of_shape - float(np.log(self.scale_vector(m)).sum())

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return y as finite float64 (n, m); (n,) is accepted for one output. Raises as `Likelihood.check_targets`."""
        self.scale_vector(m)
        return super().check_targets(y, n, m)

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return the log density summed over outputs, shape (..., n), for f (..., n, m)."""
        outputs = np.asarray(f, dtype=np.float64)
        m = outputs.shape[-1]
        squares = ((y - outputs) / self.scale_vector(m)) ** 2
        rows: FloatArray = self._constant(m) - 0.5 * (self.df + 1) * np.log1p(squares / self.df).sum(axis=-1)
        return rows

    def constant_log_likelihood(
        self, y: Targets, row_weights: FloatArray | None = None, offset: FloatArray | None = None
    ) -> float:
        """Return the log-likelihood of predicting each output's location, which is fitted by maximum likelihood."""
        weights = self.row_weights(None, len(y)) if row_weights is None else row_weights
        f = np.broadcast_to(self._location(y, weights), y.shape)
        return self.weighted_log_likelihood(f, y, weights)

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
        scale = float(self.scale[output]) if isinstance(self.scale, np.ndarray) else self.scale
        return Noise(
            scale=scale,
            variance=scale**2 * df / (df - 2) if df > 2 else math.inf,
            cdf=lambda u: stdtr(df, u),
            quantile=lambda probability: float(stdtrit(df, probability)),
            log_density=lambda u: -0.5 * (df + 1) * np.log1p(u**2 / df) - log_mass,
        )

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
        """Return the arguments `df` and `scale`."""
        return {"df": self.df, "scale": self.scale.tolist() if isinstance(self.scale, np.ndarray) else self.scale}


def _weighted_median(values: FloatArray, weights: FloatArray) -> float:
    """Return the smallest of the values (n,) for which the values up to it have half of the total weight."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(below, 0.5 * below[-1])]])
