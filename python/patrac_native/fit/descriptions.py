"""What a fit did and chose, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.fit.fit_data import TargetUnits
from patrac_native.fit.model_settings import ModelSettings
from patrac_native.fit.tuning import Choice
from patrac_native.likelihoods import (
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from patrac_native.likelihoods.sampled_noise import SampledNoiseLikelihood
from patrac_native.network.network import Network
from patrac_native.priors import Prior, TraceClassPrior
from patrac_native.priors.trace_class import ALPHA_BOUNDS
from patrac_native.validation.checks import FloatArray


def describe_training(net: Network, units: TargetUnits) -> str:
    """Return a line on the penalty, the number of epochs and the residuals on the rows by which they were chosen."""
    choice = Choice.of(net)
    text = f"l2 {choice.l2:.3g}, {choice.epochs:,} epochs"
    if not choice.validation:
        return text
    text += f"; validated on {choice.validation}"
    mse = None if net.history is None else net.history.validation_mse
    if mse is None:
        return text
    if len(mse) > 1:
        return f"{text}, whose residuals have variances {_listed(mse)} of the standardised targets"
    in_units = float(mse[0]) * units.target_scale**2
    return (
        f"{text}, whose residuals have variance {in_units:.4g} in the target's units squared (sd {in_units**0.5:.4g}; "
        f"{float(mse[0]):.4g} of the standardised target)"
    )


def noise_variance(draws: Draws | DrawsMixture) -> float | None:
    """Return the variance of Gaussian noise of a standardised target, or the posterior mean of a sampled one.

    None for other noise.
    """
    variances = noise_variances(draws)
    return None if variances is None else float(variances[0])


def noise_variances(draws: Draws | DrawsMixture) -> FloatArray | None:
    """Return the variance of Gaussian noise of each standardised target, or the posterior means of sampled ones.

    One number stands for all targets that share it. None for other noise.
    """
    return _squared_scales(draws, Gaussian)


def noise_scales(draws: Draws | DrawsMixture) -> FloatArray | None:
    """Return the scale of Student-t noise of each standardised target, or roots of mean squares; else None."""
    squares = _squared_scales(draws, StudentT)
    return None if squares is None else np.sqrt(squares)


def _squared_scales(draws: Draws | DrawsMixture, kind: type[SampledNoiseLikelihood]) -> FloatArray | None:
    """Return the squared scale of each target's noise, or posterior means; None unless the noise is of that kind."""
    likelihood = draws.likelihood
    if not isinstance(likelihood, kind):
        return None
    if "variance" in draws.members[0].stats:
        means = [np.atleast_1d(member.stats["variance"].mean(axis=(0, 1))) for member in draws.members]
        return np.asarray(np.mean(means, axis=0))
    return likelihood.variance_vector(draws.n_outputs)


def describe_noise(draws: Draws | DrawsMixture, units: TargetUnits) -> str:
    """Return a sentence on the noise; an empty text for classes."""
    likelihood = draws.likelihood
    how = "the mean of its draws" if "variance" in draws.members[0].stats else "as asked"
    scales, variances = noise_scales(draws), noise_variances(draws)
    if isinstance(likelihood, StudentT) and scales is not None:
        in_units = _listed(np.atleast_1d(scales * units.target_scale))
        return (
            f"noise of Student's t distribution with {likelihood.df:g} degrees of freedom, scale {in_units} in the "
            f"target's units ({_listed(scales)} of the standardised target), {how}."
        )
    if isinstance(likelihood, HeteroscedasticGaussian):
        return "noise variance of each row an output of the network."
    if isinstance(likelihood, NegativeBinomial):
        dispersion = _listed(np.atleast_1d(likelihood.dispersion))
        return f"counts of a negative binomial distribution, whose variance is mean + {dispersion} mean^2."
    if isinstance(likelihood, Poisson):
        return "counts of a Poisson distribution, whose variance is the mean."
    if variances is None:
        return ""
    if draws.n_outputs > 1:
        return f"noise variance {_listed(variances)} of the standardised targets, {how}."
    variance = float(variances[0])
    in_units = variance * units.target_scale**2
    return (
        f"noise variance {in_units:.4g} in the target's units squared (noise sd {in_units**0.5:.4g}; {variance:.4g} of "
        f"the standardised target), {how}."
    )


def _listed(values: Sequence[float] | FloatArray) -> str:
    """Return numbers in words."""
    return ", ".join(f"{float(value):.4g}" for value in values)


def describe_function(likelihood: Likelihood, units: TargetUnits) -> str:
    """Return in words what f is, of which summaries of the chains tell; an empty text for classes."""
    if likelihood.targets == "class":
        return ""
    if likelihood.targets == "count":
        return "f is the logarithm of the mean count"
    in_units = f"times {units.target_scale:.4g} for the target's units"
    if likelihood.outputs_per_target > 1:
        return f"f is the mean and the log-variance of the standardised target\n(the mean {in_units})"
    return f"f and its widths are of the standardised target\n({in_units}) and without the noise"


def describe_network_score(likelihood: Likelihood) -> str:
    """Return a sentence on the noise in the NLPD of the trained network alone, on rows that it has not seen."""
    if isinstance(likelihood, StudentT):
        return "The network's own NLPD has noise of the posterior's mean scale."
    if isinstance(likelihood, SampledNoiseLikelihood):
        if not likelihood.is_sampled:
            return "The network's own NLPD has the given noise variance."
        return "The network's own NLPD takes the variance of its residuals on validation rows for the noise."
    return "The network's own NLPD is that of its outputs as they are."


def describe_prior(prior: Prior, settings: ModelSettings) -> str:
    """Return the prior in words, with a note if its fitted alpha is at the upper bound of its search.

    At the lower bound, where the weights do not fall off with the rank of their nodes, a slower decay would hardly
    change a variance; there is no note.
    """
    text = prior.describe()
    if not isinstance(prior, TraceClassPrior) or settings.alpha is not None or prior.alpha != ALPHA_BOUNDS[1]:
        return text
    return (
        f"{text}\n  note: alpha is at the upper bound of its search: parameters of the second node have "
        f"{2.0**-prior.alpha:.1%} of the prior variance of the first, and the others less; "
        f"{settings.option('alpha', 2)} gives them {2.0**-2:.0%}"
    )
