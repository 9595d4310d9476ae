"""The base class of likelihoods of noise with a scale for each output, fixed or sampled under inverse-gamma priors."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import DEPENDS_ON_INPUTS, HAS_OUTLIERS, NoiseChange, Targets
from patrac_native.likelihoods.numbers import listed, of_outputs, plain_numbers, positive_numbers
from patrac_native.likelihoods.real import Noise, RealLikelihood, standard_normal
from patrac_native.validation.checks import FloatArray, check_positive


class SampledNoiseLikelihood(RealLikelihood, abstract=True):
    """Base class of likelihoods y = f + scale u that fix the scale of each output or sample its square.

    The attribute that `scale_name` names is a number, an array of shape (m,), or "sampled".

    Attributes
    ----------
    scale_name : {"variance", "scale"}
    a : float or None
        Shape of the prior, > 0; None if the noise is fixed.
    b : float, ndarray of shape (m,) or None
        Rate of the prior of every variance or of each, > 0; None if it is fixed, or still to be chosen.
    pooled : bool
        Whether all outputs share one sampled variance.
    """

    scale_name: ClassVar[str] = "variance"
    settings: ClassVar[tuple[str, ...]] = ("noise_variance",)
    a: float | None = None
    b: float | FloatArray | None = None
    pooled: bool = False

    def __init__(
        self, variance: float | npt.ArrayLike | str, *, a: float | None = None, b: float | npt.ArrayLike | None = None
    ) -> None:
        self._set_noise(variance, a, b)

    @classmethod
    def from_settings(cls, noise_variance: float | None = None) -> Self:
        """Return the likelihood with a variance, or with a sampled one."""
        return cls("sampled" if noise_variance is None else noise_variance)

    def _set_noise(
        self, given: float | npt.ArrayLike | str, a: float | None, b: float | npt.ArrayLike | None, pooled: bool = False
    ) -> None:
        """Check and set the attributes of the noise."""
        name = self.scale_name
        self.pooled = bool(pooled)
        if not isinstance(given, str):
            if a is not None or b is not None or pooled:
                raise ValueError(
                    f"a and b are the prior of a sampled {name}, and pooled says that outputs share it; leave them "
                    f"out, or sample it: {self.example}."
                )
            setattr(self, name, positive_numbers(given, name))
            return
        if given != "sampled":
            raise ValueError(f'{name} must be a positive number, one for each output, or "sampled"; got {given!r}.')
        setattr(self, name, given)
        self.a = check_positive(2.0 if a is None else a, "a")
        self.b = None if b is None else positive_numbers(b, "b")
        if self.pooled and isinstance(self.b, np.ndarray):
            raise ValueError(f"b must be one number if the {name} is pooled; got shape {self.b.shape}.")

    def standard_noise(self) -> Noise:
        """Return the noise at scale 1; here normal."""
        return standard_normal()

    def draw_standard(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw u; here normal."""
        return rng.standard_normal(shape)

    @property
    def is_sampled(self) -> bool:
        """Whether the noise variances, or squares of scales, are sampled with theta."""
        return isinstance(getattr(self, self.scale_name), str)

    @property
    def lacks_prior(self) -> bool:
        """Whether the variances are sampled under a prior whose rate b is still to be chosen."""
        return self.is_sampled and self.b is None

    def wider(self) -> tuple[NoiseChange, ...]:
        """Return that the scale is sampled or, if it is, noise that depends on the inputs."""
        return (DEPENDS_ON_INPUTS,) if self.is_sampled else (self._sampling(),)

    def narrower(self) -> tuple[NoiseChange, ...]:
        """Return that the scale is sampled, noise that depends on the inputs and, of normal noise, outliers."""
        sampling = () if self.is_sampled else (self._sampling(),)
        return (*sampling, DEPENDS_ON_INPUTS, *((HAS_OUTLIERS,) if self.is_conjugate else ()))

    def _sampling(self) -> NoiseChange:
        """Return the advice to sample the scale."""
        return NoiseChange(f"sample the {self.scale_name} of the noise in place of giving it", self.label)

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

    def describe_network_noise(self) -> str:
        """Return whence the scale comes."""
        if not self.is_sampled:
            return f"The network's own NLPD has the given {self.scale_name} of the noise."
        if not self.is_conjugate:
            return "The network's own NLPD has noise of the posterior's mean scale."
        return "The network's own NLPD takes the variance of its residuals on validation rows for the noise."

    def known_scale(self) -> float | FloatArray:
        """Return the fixed variance or scale; raise ValueError if it is sampled."""
        known: float | FloatArray | str = getattr(self, self.scale_name)
        if isinstance(known, str):
            raise ValueError(f"the {self.scale_name} is sampled: take at(variance) with a guess or a draw.")
        return known

    def variance_vector(self, m: int) -> FloatArray:
        """Return the variance or squared scale of each output, shape (m,); raise ValueError for another length."""
        known = of_outputs(self.known_scale(), m, self.scale_name)
        return known if self.scale_name == "variance" else known**2

    def scale_vector(self, m: int) -> FloatArray:
        """Return the scale of each output, shape (m,); raises as `variance_vector`."""
        return np.sqrt(self.variance_vector(m))

    def variance_prior(self, m: int) -> tuple[float, FloatArray]:
        """Return shape a and rates b of the prior of the sampled variances: b is (1,) if they are one, or (m,)."""
        if self.a is None or self.b is None:
            raise ValueError(f"{self!r} has no prior yet; a Posterior chooses b, or give a and b.")
        return self.a, np.full(1 if self.pooled or m == 1 else m, self.b)

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return y as finite float64 (n, m); (n,) is accepted for one output. Raises as `Likelihood.check_targets`."""
        self.check_noise(m)
        return super().check_targets(y, n, m)

    def check_noise(self, m: int) -> None:
        """Raise ValueError if there are variances, scales or rates for another number of outputs than m."""
        if not self.is_sampled:
            self.variance_vector(m)
        elif self.b is not None:
            of_outputs(self.b, m, "b")

    def for_scaled_targets(self, scale: FloatArray) -> Self:
        """Return the likelihood of the targets y / scale, where this one is that of y."""
        if not self.is_sampled:
            variances = self.variance_vector(len(scale)) / scale**2
            return self.at(variances.item() if len(variances) == 1 else variances)
        self.check_noise(len(scale))
        if self.pooled and (scale != scale[0]).any():
            raise ValueError(
                f"{self!r} has one variance for targets that are standardised by different scales, from "
                f"{scale.min():.4g} to {scale.max():.4g}: leave pooled out, or do not standardise the targets."
            )
        if self.b is None:
            return self
        rates = self.b / scale**2
        scaled = copy.copy(self)
        scaled.b = float(rates[0]) if self.pooled or len(rates) == 1 else rates
        return scaled

    def with_prior_guess(self, guess: npt.ArrayLike) -> Self:
        """Return the likelihood with b chosen by a guess of the variances, shape (m,): a times half of them."""
        if not self.lacks_prior or self.a is None:
            return self
        values = np.asarray(guess, dtype=np.float64)
        b = 0.5 * self.a * (values.mean(keepdims=True) if self.pooled else values)
        chosen = copy.copy(self)
        chosen.b = b.item() if b.size == 1 else b
        return chosen

    def at(self, variance: float | npt.ArrayLike) -> Self:
        """Return the likelihood with fixed variances, or squares of scales, in place of sampled ones."""
        return type(self)(variance)

    def noise(self, output: int = 0) -> Noise:
        """Return the noise of one output, counted from 0, of a fixed scale."""
        known = self.known_scale()
        given = float(known[output]) if isinstance(known, np.ndarray) else known
        return self._noise_at(given if self.scale_name == "variance" else given**2)

    def _noise_at(self, square: Any) -> Noise:
        """Return the noise at a squared scale, or at those (M, 1) of draws."""
        standard = self.standard_noise()
        return replace(standard, scale=np.sqrt(square), variance=square * standard.variance)

    def located_noise(
        self, f: npt.ArrayLike, variance: FloatArray | None = None, output: int = 0
    ) -> tuple[FloatArray, Noise]:
        """Return location (M, n) and noise of one output; with a sampled scale, the noise of each draw."""
        if not self.is_sampled:
            return super().located_noise(f, variance, output)
        if variance is None:
            raise ValueError("variance: the likelihood samples it; give its draws, shape (M,) or (M, m).")
        draws = np.asarray(variance, dtype=np.float64)
        square = draws.reshape(len(draws), -1)[:, [output if draws.ndim > 1 else 0]]
        return np.asarray(f, dtype=np.float64)[..., output], self._noise_at(square)

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Return f (..., n, m) plus independent noise of the same shape."""
        outputs = np.asarray(f, dtype=np.float64)
        return outputs + self.scale_vector(outputs.shape[-1]) * self.draw_standard(outputs.shape, rng)

    def sample_at(self, f: npt.ArrayLike, rng: np.random.Generator, variance: FloatArray) -> Targets:
        """Return f (..., n, m) plus independent noise whose sampled variances, or squares, are (...) or (..., m)."""
        outputs = np.asarray(f, dtype=np.float64)
        by_output = variance[..., None, None] if variance.ndim == outputs.ndim - 2 else variance[..., None, :]
        return outputs + np.sqrt(by_output) * self.draw_standard(outputs.shape, rng)

    def sample_prior(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Return f (draws, n, m) plus noise; sampled variances are drawn from their prior for each draw."""
        if not self.is_sampled:
            return self.sample(f, rng)
        outputs = np.asarray(f)
        a, b = self.variance_prior(outputs.shape[-1])
        return self.sample_at(outputs, rng, b / rng.gamma(a, size=(len(outputs), len(b))))

    def arguments(self) -> dict[str, Any]:
        """Return the variance or scale and, if it is sampled, a, b where it is known, and pooled where it is true."""
        name = self.scale_name
        if not self.is_sampled:
            return {name: plain_numbers(self.known_scale())}
        prior = {"a": self.a} | ({} if self.b is None else {"b": plain_numbers(self.b)})
        return {name: "sampled", **prior, **({"pooled": True} if self.pooled else {})}
