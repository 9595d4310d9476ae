"""The likelihood of real targets with normal noise, whose variance is fixed or sampled with theta."""

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


class Gaussian(SampledNoiseLikelihood):
    """Targets are normal, y_r ~ N(f_r, variance), with independent outputs; y is (n,) for one output or (n, m).

    Parameters
    ----------
    variance : float, array_like of shape (m,) or "sampled"
        Noise variance, positive and finite; one for all outputs or one for each. With "sampled" the variances are
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
    settings = ("noise_variance",)
    scale_name = "variance"
    is_quadratic = True
    is_conjugate = True
    integrates_outputs = True

    def __init__(
        self,
        variance: float | npt.ArrayLike | str,
        *,
        a: float | None = None,
        b: float | npt.ArrayLike | None = None,
        pooled: bool = False,
    ) -> None:
        self.a: float | None = None
        self.b: float | FloatArray | None = None
        self.pooled = bool(pooled)
        if isinstance(variance, str):
            if variance != "sampled":
                raise ValueError(
                    f'variance must be a positive number, one for each output, or "sampled"; got {variance!r}.'
                )
            self.variance: float | FloatArray | str = variance
            self.a = check_positive(2.0 if a is None else a, "a")
            self.b = None if b is None else positive_numbers(b, "b")
            if self.pooled and isinstance(self.b, np.ndarray):
                raise ValueError(f"b must be one number if the variance is pooled; got shape {self.b.shape}.")
            return
        if a is not None or b is not None or pooled:
            raise ValueError(
                "a and b are the prior of a sampled variance and pooled says that outputs share it; leave them out, or "
                'write Gaussian("sampled", a=..., b=..., pooled=...).'
            )
        self.variance = positive_numbers(variance, "variance")

    @classmethod
    def from_settings(cls, noise_variance: float | None = None) -> Gaussian:
        """Return the likelihood with a variance, or with a sampled one."""
        return cls("sampled" if noise_variance is None else noise_variance)

    def describe_noise(self, squared_scales: FloatArray | None, unit: float | FloatArray, how: str) -> str:
        """Return the variance, of one target in its units too."""
        assert squared_scales is not None
        if np.ndim(unit):
            return f"noise variance {listed(squared_scales)} of the standardised targets, {how}."
        variance = float(squared_scales[0])
        in_units = variance * float(unit) ** 2
        return (
            f"noise variance {in_units:.4g} in the target's units squared (noise sd {in_units**0.5:.4g}; "
            f"{variance:.4g} of the standardised target), {how}."
        )

    @property
    def is_sampled(self) -> bool:
        """Whether the noise variances are sampled with theta."""
        return isinstance(self.variance, str)

    def at(self, variance: float | npt.ArrayLike) -> Gaussian:
        """Return the likelihood with a fixed variance in place of a sampled one."""
        return Gaussian(variance)

    def fitted(self, f: FloatArray, y: Targets, row_weights: FloatArray) -> Gaussian:
        """Return the likelihood with sampled variances fixed at their modes given outputs (n, m) and row weights."""
        if not self.is_sampled:
            raise TypeError(f"{self!r} samples no variance.")
        m, rows = y.shape[1], float(row_weights.sum())
        squares = row_weights[:, None] * (y - f) ** 2
        one = self.pooled or m == 1
        sums, count = (squares.sum(keepdims=True)[0], rows * m) if one else (squares.sum(axis=0), rows)
        a, b = self.with_prior_guess(np.maximum(sums / count, np.finfo(np.float64).tiny)).variance_prior(m)
        modes = (b + sums / 2) / (a + count / 2 + 1)
        return self.at(modes.item() if one else modes)

    def variance_vector(self, m: int) -> FloatArray:
        """Return the variance of each output, shape (m,); raise ValueError if it is sampled or has another length."""
        variance = self._known_variance()
        if isinstance(variance, np.ndarray) and variance.shape != (m,):
            raise ValueError(
                f"variance has {len(variance)} entries, but the network has {m} outputs; give one number or {m}."
            )
        return np.full(m, variance)

    def for_scaled_targets(self, scale: FloatArray) -> Gaussian:
        """Return the likelihood of the targets y / scale, where this one is that of y."""
        if self.is_sampled:
            return self._with_scaled_rates(scale)
        variances = self.variance_vector(len(scale)) / scale**2
        return self.at(variances.item() if len(variances) == 1 else variances)

    def _known_variance(self) -> float | FloatArray:
        """Return the fixed variance; raise ValueError if it is sampled."""
        if isinstance(self.variance, str):
            raise ValueError("the variance is sampled: take at(variance) with a value, such as a guess or a draw.")
        return self.variance

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return y as finite float64 (n, m); (n,) is accepted for one output. Raises as `Likelihood.check_targets`."""
        if not self.is_sampled:
            self.variance_vector(m)
        else:
            self._check_rates(m)
        return super().check_targets(y, n, m)

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return -(y - f)^2 / (2 variance) - log(2 pi variance) / 2 summed over outputs, shape (..., n)."""
        outputs = np.asarray(f, dtype=np.float64)
        variance = self.variance_vector(outputs.shape[-1])
        terms = (y - outputs) ** 2 / variance + np.log(2 * np.pi * variance)
        rows: FloatArray = -0.5 * terms.sum(axis=-1)
        return rows

    def information_root(self, f: FloatArray) -> FloatArray:
        """Return diag(1 / standard deviation), shape (n, m, m)."""
        return diagonal_root(np.broadcast_to(self.variance_vector(f.shape[1]) ** -0.5, f.shape))

    def constant_log_likelihood(
        self, y: Targets, row_weights: FloatArray | None = None, offset: FloatArray | None = None
    ) -> float:
        """Return the log-likelihood, summed over rows, of predicting each output's mean of y (n, m)."""
        if row_weights is None:
            return float(self.log_likelihood(np.broadcast_to(y.mean(axis=0), y.shape), y))
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
            raise ValueError("variance: the likelihood samples it; give its draws, shape (M,) or (M, m).")
        outputs = np.asarray(f, dtype=np.float64)
        draws = np.asarray(variance, dtype=np.float64)
        drawn = draws.reshape(len(draws), -1)[:, [output if draws.ndim > 1 else 0]]
        return outputs[..., output], replace(Gaussian(1.0).noise(), scale=np.sqrt(drawn), variance=drawn)

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Return f (..., n, m) plus independent normal noise of the same shape."""
        outputs = np.asarray(f, dtype=np.float64)
        return outputs + np.sqrt(self.variance_vector(outputs.shape[-1])) * rng.standard_normal(outputs.shape)

    def sample_at(self, f: npt.ArrayLike, rng: np.random.Generator, variance: FloatArray) -> Targets:
        """Return f (..., n, m) plus independent normal noise with sampled variances (...) or (..., m)."""
        outputs = np.asarray(f, dtype=np.float64)
        by_output = variance[..., None, None] if variance.ndim == outputs.ndim - 2 else variance[..., None, :]
        return outputs + np.sqrt(by_output) * rng.standard_normal(outputs.shape)

    def sample_prior(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Return f (draws, n, m) plus noise; sampled variances are drawn from their prior for each draw."""
        if not self.is_sampled:
            return self.sample(f, rng)
        outputs = np.asarray(f)
        a, b = self.variance_prior(outputs.shape[-1])
        return self.sample_at(outputs, rng, b / rng.gamma(a, size=(len(outputs), len(b))))

    def torch_loss_rows(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return (y - f)^2 / (2 variance) + log(2 pi variance) / 2 summed over outputs, shape (n,), for f, y (n, m)."""
        import torch

        variance = self.variance_vector(f.shape[-1])
        scale = torch.tensor(0.5 / variance, dtype=f.dtype, device=f.device)
        constant = 0.5 * float(np.log(2 * np.pi * variance).sum())
        return ((y - f).square() * scale).sum(dim=-1) + constant

    def arguments(self) -> dict[str, Any]:
        """Return the argument `variance` and, if it is sampled, a, b where it is known, and pooled where it is true."""
        if not self.is_sampled:
            return {"variance": plain_numbers(self.variance)}
        prior = {"a": self.a} | ({} if self.b is None else {"b": plain_numbers(self.b)})
        return {"variance": self.variance, **prior, **({"pooled": True} if self.pooled else {})}
