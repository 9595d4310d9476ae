"""The likelihood of real targets with normal noise, whose variance is fixed or sampled with theta."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.model.likelihoods.base import Targets
from patrac_native.model.likelihoods.real import Noise, RealLikelihood
from patrac_native.validation.checks import FloatArray, as_real_array, check_positive

if TYPE_CHECKING:
    import torch


class Gaussian(RealLikelihood):
    """Targets are normal, y_r ~ N(f_r, variance), with independent outputs; y is (n,) for one output or (n, m).

    Parameters
    ----------
    variance : float, array_like of shape (m,) or "sampled"
        Noise variance, positive and finite; one for all outputs or one for each. With "sampled" there is one variance
        for all outputs, which is sampled with theta in every step, under an inverse-gamma prior with density
        proportional to x^(-a-1) exp(-b/x).
    a, b : float, optional
        Shape and rate of that prior, positive. The prior has the weight of 2a observations whose squared residuals sum
        to 2b. The defaults a = 2, b = 1 give a prior mean of 1, which suits targets scaled to unit variance.

    Raises
    ------
    ValueError
        If a variance, a or b is not positive and finite, or a or b is given together with a fixed variance.
    TypeError
        If one of them is not a number, or the variances are not a vector of numbers.

    Examples
    --------
    >>> Gaussian(1.0).log_likelihood([[0.0], [1.0]], np.array([[0.0], [0.0]])).round(6)
    np.float64(-2.337877)
    >>> Gaussian("sampled", a=3.0).at(0.5)
    Gaussian(variance=0.5)
    """

    name = "gaussian"
    is_quadratic = True

    def __init__(
        self, variance: float | npt.ArrayLike | str, *, a: float | None = None, b: float | None = None
    ) -> None:
        self.a = self.b = None
        if isinstance(variance, str):
            if variance != "sampled":
                raise ValueError(
                    f'variance must be a positive number, one for each output, or "sampled"; got {variance!r}.'
                )
            self.variance: float | FloatArray | str = variance
            self.a = check_positive(2.0 if a is None else a, "a")
            self.b = check_positive(1.0 if b is None else b, "b")
            return
        if a is not None or b is not None:
            raise ValueError(
                'a and b are the prior of a sampled variance; leave them out, or write Gaussian("sampled", a=..., '
                "b=...)."
            )
        if np.ndim(variance) == 0:
            self.variance = check_positive(np.asarray(variance).item(), "variance")
            return
        values = as_real_array(variance, "variance").copy()
        if values.ndim != 1 or values.size == 0:
            raise ValueError(f"variance must be a number or have shape (m,); got shape {values.shape}.")
        bad = ~(np.isfinite(values) & (values > 0))
        if bad.any():
            output = int(np.argmax(bad))
            raise ValueError(f"variance must be positive and finite; got {values[output]} for output {output}.")
        values.flags.writeable = False
        self.variance = values

    @property
    def variance_prior(self) -> tuple[float, float] | None:
        """Shape a and rate b of the prior of a sampled variance; None if the variance is fixed."""
        return None if self.a is None or self.b is None else (self.a, self.b)

    def at(self, variance: float | npt.ArrayLike) -> Gaussian:
        """Return the likelihood with a fixed variance in place of a sampled one."""
        return Gaussian(variance)

    def fitted(self, residuals: FloatArray, row_weights: FloatArray) -> Gaussian:
        """Return the likelihood with a sampled variance fixed at its mode given residuals (n, m) and row weights."""
        if self.a is None or self.b is None:
            raise TypeError(f"{self!r} samples no variance.")
        squares = float((row_weights[:, None] * residuals**2).sum())
        count = float(row_weights.sum()) * residuals.shape[1]
        return self.at((self.b + squares / 2) / (self.a + count / 2 + 1))

    def variance_vector(self, m: int) -> FloatArray:
        """Return the variance of each output, shape (m,); raise ValueError if it is sampled or has another length."""
        variance = self._known_variance()
        if isinstance(variance, np.ndarray) and variance.shape != (m,):
            raise ValueError(
                f"variance has {len(variance)} entries, but the network has {m} outputs; give one number or {m}."
            )
        return np.full(m, variance)

    def _known_variance(self) -> float | FloatArray:
        """Return the fixed variance; raise ValueError if it is sampled."""
        if isinstance(self.variance, str):
            raise ValueError("the variance is sampled: take at(variance) with a value, such as a guess or a draw.")
        return self.variance

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return y as finite float64 (n, m); (n,) is accepted for one output. Raises as `Likelihood.check_targets`."""
        if not self.is_sampled:
            self.variance_vector(m)
        return super().check_targets(y, n, m)

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return -(y - f)^2 / (2 variance) - log(2 pi variance) / 2 summed over outputs, shape (..., n)."""
        outputs = np.asarray(f, dtype=np.float64)
        variance = self.variance_vector(outputs.shape[-1])
        terms = (y - outputs) ** 2 / variance + np.log(2 * np.pi * variance)
        rows: FloatArray = -0.5 * terms.sum(axis=-1)
        return rows

    def constant_log_likelihood(
        self, y: Targets, row_weights: FloatArray | None = None, offset: FloatArray | None = None
    ) -> float:
        """Return the log-likelihood, summed over rows, of predicting each output's mean of y (n, m)."""
        if row_weights is None:
            return float(self.log_likelihood(np.broadcast_to(y.mean(axis=0), y.shape), y))
        f = np.broadcast_to(row_weights @ y / row_weights.sum(), y.shape)
        likelihood = self.fitted(y - f, row_weights) if self.is_sampled else self
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

    def noise(self, output: int = 0) -> Noise:
        """Return the normal noise of an output."""
        from scipy.special import ndtr, ndtri

        known = self._known_variance()
        variance = float(known[output]) if isinstance(known, np.ndarray) else known
        return Noise(
            scale=math.sqrt(variance),
            variance=variance,
            cdf=ndtr,
            quantile=lambda probability: float(ndtri(probability)),
            log_density=lambda u: -0.5 * (u**2 + math.log(2.0 * math.pi)),
        )

    def located_noise(
        self, f: npt.ArrayLike, variance: FloatArray | None = None, output: int = 0
    ) -> tuple[FloatArray, Noise]:
        """Return location (M, n) and noise of one output; with a sampled variance, the noise of each draw."""
        if not self.is_sampled:
            return super().located_noise(f, variance, output)
        if variance is None:
            raise ValueError("variance: the likelihood samples it; give its draws, shape (M,).")
        outputs = np.asarray(f, dtype=np.float64)
        drawn = np.asarray(variance, dtype=np.float64)[:, None]
        return outputs[..., output], replace(Gaussian(1.0).noise(), scale=np.sqrt(drawn), variance=drawn)

    def nll(self, f: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Return the negative log-likelihood of the paper's Table 1, without its constant; see `diagnostics.nll`."""
        return diagnostics.nll(f, y, self._known_variance())

    def nlpd_rows(self, f: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        """Return the negative log predictive density of each row; see `diagnostics.nlpd`."""
        return diagnostics.nlpd(f, y, self._known_variance(), per_row=True)

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Return f (..., n, m) plus independent normal noise of the same shape."""
        outputs = np.asarray(f, dtype=np.float64)
        return outputs + np.sqrt(self.variance_vector(outputs.shape[-1])) * rng.standard_normal(outputs.shape)

    def sample_at(self, f: npt.ArrayLike, rng: np.random.Generator, variance: FloatArray) -> Targets:
        """Return f (..., n, m) plus independent normal noise with sampled variances (...)."""
        outputs = np.asarray(f, dtype=np.float64)
        return outputs + np.sqrt(variance)[..., None, None] * rng.standard_normal(outputs.shape)

    def sample_prior(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Return f (draws, n, m) plus noise; a sampled variance is drawn from its prior for each draw."""
        if self.a is None or self.b is None:
            return self.sample(f, rng)
        return self.sample_at(f, rng, self.b / rng.gamma(self.a, size=len(np.asarray(f))))

    def torch_loss_rows(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return (y - f)^2 / (2 variance) + log(2 pi variance) / 2 summed over outputs, shape (n,), for f, y (n, m)."""
        import torch

        variance = self.variance_vector(f.shape[-1])
        scale = torch.tensor(0.5 / variance, dtype=f.dtype, device=f.device)
        constant = 0.5 * float(np.log(2 * np.pi * variance).sum())
        return ((y - f).square() * scale).sum(dim=-1) + constant

    def arguments(self) -> dict[str, Any]:
        """Return the argument `variance` and, if it is sampled, a and b."""
        variance = self.variance.tolist() if isinstance(self.variance, np.ndarray) else self.variance
        prior = {"a": self.a, "b": self.b} if self.is_sampled else {}
        return {"variance": variance, **prior}
