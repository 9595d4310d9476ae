"""The base class of likelihoods whose noise variances, or squared scales, can be sampled under inverse-gamma priors."""

from __future__ import annotations

import copy
from typing import Self

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import DEPENDS_ON_INPUTS, HAS_OUTLIERS, NoiseChange
from patrac_native.likelihoods.real import RealLikelihood
from patrac_native.validation.checks import FloatArray


class SampledNoiseLikelihood(RealLikelihood, abstract=True):
    """Base class of likelihoods that sample a variance of the noise for each output, or one for all.

    Attributes
    ----------
    a : float or None
        Shape of the prior, > 0; None if the noise is fixed.
    b : float, ndarray of shape (m,) or None
        Rate of the prior of every variance or of each, > 0; None if it is fixed, or still to be chosen.
    pooled : bool
        Whether all outputs share one sampled variance.
    """

    a: float | None
    b: float | FloatArray | None
    pooled: bool = False

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

    def describe_network_noise(self) -> str:
        """Return whence the variance comes."""
        if not self.is_sampled:
            return f"The network's own NLPD has the given {self.scale_name} of the noise."
        return "The network's own NLPD takes the variance of its residuals on validation rows for the noise."

    @property
    def lacks_prior(self) -> bool:
        """Whether the variances are sampled under a prior whose rate b is still to be chosen."""
        return self.is_sampled and self.b is None

    def variance_prior(self, m: int) -> tuple[float, FloatArray]:
        """Return shape a and rates b of the prior of the sampled variances: b is (1,) if they are one, or (m,)."""
        if self.a is None or self.b is None:
            raise ValueError(f"{self!r} has no prior yet; a Posterior chooses b, or give a and b.")
        return self.a, np.full(1 if self.pooled or m == 1 else m, self.b)

    def _check_rates(self, m: int) -> None:
        """Raise ValueError if there are rates b for another number of outputs than m."""
        if isinstance(self.b, np.ndarray) and self.b.shape != (m,):
            raise ValueError(f"b has {len(self.b)} entries, but the network has {m} outputs; give one number or {m}.")

    def _with_scaled_rates(self, scale: FloatArray) -> Self:
        """Return the likelihood with the rates of the prior for targets y / scale, scale (t,), in place of those for y.

        Raises
        ------
        ValueError
            As `for_scaled_targets`.
        """
        self._check_rates(len(scale))
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
