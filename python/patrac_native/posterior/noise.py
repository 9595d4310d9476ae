"""The noise variances of a posterior: fixed by its likelihood, or sampled with theta under inverse-gamma priors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from patrac_native.engine.density import SampledNoise
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.data import Data
from patrac_native.validation.checks import FloatArray


@dataclass(frozen=True)
class Noise:
    """The noise of a posterior; q variances are sampled, one for all outputs or one for each."""

    likelihood: Likelihood  # as the user gave it, with the prior of sampled variances completed
    reference: Likelihood  # the compiled one, with sampled variances fixed at their modes given the trained network
    # Where the prior of sampled variances comes from: "given"; "validation", from the trained network's residuals on
    # rows on which it was not trained; or "training", from its residuals on the posterior's own rows.
    source: str | None
    n_outputs: int
    terms: float  # number of outputs times the sum of the row weights: the weighted number of terms of l

    @property
    def is_sampled(self) -> bool:
        """Whether variances are sampled with theta."""
        return self.likelihood.is_sampled

    @property
    def initial(self) -> FloatArray:
        """Initial values of the sampled variances, shape (q,); without any, the variance of the first output, (1,)."""
        return self.reference.variance_vector(self.n_outputs)[: len(self.rate) if self.is_sampled else 1]

    @property
    def shape(self) -> float:
        """Shape a of the inverse-gamma priors of the sampled variances."""
        return self.likelihood.variance_prior(self.n_outputs)[0]

    @property
    def rate(self) -> FloatArray:
        """Rates of the inverse-gamma priors, shape (q,)."""
        return self.likelihood.variance_prior(self.n_outputs)[1]

    def at(self, variance: FloatArray) -> SampledNoise:
        """Return the sampled noise at given variances, (q,) or (m,), in the form of the engine."""
        rescales = len(self.initial) == 1 and self.likelihood.is_conjugate
        reference = float(self.initial[0]) if rescales else 0.0
        return SampledNoise(variance, reference, self.terms, self.shape, self.rate)

    def check(self, variance: npt.ArrayLike | None, count: int) -> FloatArray | None:
        """Return the variances (B, q) of B points, or None if they are fixed; raise ValueError for any others."""
        if not self.is_sampled:
            if variance is not None:
                raise ValueError(f"variance must be left out: {self.likelihood!r} has it fixed.")
            return None
        n_variances = len(self.initial)
        own = () if n_variances == 1 else (n_variances,)
        if variance is None:
            raise ValueError(
                "variance must be given, since it is sampled: "
                + ("a positive number or one for each theta" if own == () else f"{n_variances} for each theta")
                + ', such as draws.stats["variance"][0] for theta=draws.theta[0].'
            )
        given = np.asarray(variance, dtype=np.float64)
        if given.shape not in (own, (count, *own)):
            what = "be a number" if own == () else f"have shape {own}, one for each output,"
            raise ValueError(f"variance must {what} or have shape {(count, *own)}, as theta; got {given.shape}.")
        if not (np.isfinite(given) & (given > 0)).all():
            raise ValueError(f"variance must be positive and finite; got {given.min():g}.")
        return np.ascontiguousarray(np.broadcast_to(given, (count, *own)).reshape(count, n_variances))


def noise_of(
    likelihood: Likelihood,
    data: Data,
    n_outputs: int,
    validation_mse: FloatArray | None,
    outputs: Callable[[], FloatArray],
) -> Noise:
    """Return the noise, given the trained network's `outputs()` (n, m) and its squared residuals on unseen rows."""
    terms = n_outputs * float(data.row_weights.sum())
    if not likelihood.is_sampled:
        return Noise(likelihood, likelihood, None, n_outputs, terms)
    f, source = outputs(), "given"
    if likelihood.lacks_prior:
        mean_square = validation_mse
        source = "validation"
        if mean_square is None or not (np.isfinite(mean_square).all() and (mean_square > 0).all()):
            source = "training"
            mean = data.row_weights @ likelihood.squared_residuals(f, data.y, data.row_weights) / data.row_weights.sum()
            # A network may fit its rows exactly, but no noise is below the rounding of y in float32.
            typical = (likelihood.typical(data.y) ** 2).mean(axis=0)
            floor = np.finfo(np.float32).eps ** 2 * (typical + np.finfo(np.float32).tiny)
            mean_square = np.maximum(mean, floor)
        likelihood = likelihood.with_prior_guess(likelihood.squared_scale_of(mean_square))
    return Noise(likelihood, likelihood.fitted(f, data.y, data.row_weights), source, n_outputs, terms)
