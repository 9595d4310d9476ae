"""The result of a fit to a table, with everything that its report and files contain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.draws.mixture_summary import MixtureSummary
from patrac_native.draws.summary import Summary
from patrac_native.model.likelihoods import Gaussian
from patrac_native.model.priors import Prior, TraceClassPrior
from patrac_native.model.priors.trace_class import ALPHA_BOUNDS
from patrac_native.network.network import Network
from patrac_native.tabular.evaluation import Evaluation
from patrac_native.tabular.fit_data import FitData
from patrac_native.tabular.fit_settings import FitSettings
from patrac_native.tabular.pilots import Trial
from patrac_native.tabular.preprocessing import Preprocessor
from patrac_native.tabular.tuning import Choice
from patrac_native.validation.checks import FloatArray


@dataclass(frozen=True)
class FitResult:
    """The result of a fit.

    Attributes
    ----------
    settings : FitSettings
    data : FitData
    description : str
        `Posterior.describe()`, of the first network.
    draws : Draws or DrawsMixture
        A mixture if there are several networks.
    evaluation : Evaluation
        Scores of the held-out rows; if there are none, leave-one-out scores of training rows.
    summary : Summary
        Summary of the draws at the inputs `grid`.
    grid : ndarray of float64, shape (rows, d)
    seconds : dict of str to float
        Wall-clock time of each stage.
    trials : sequence of Trial
        The pilot runs by which the posterior was chosen; empty if there was no choice.
    """

    settings: FitSettings
    data: FitData
    description: str
    draws: Draws | DrawsMixture
    evaluation: Evaluation
    summary: Summary | MixtureSummary
    grid: FloatArray
    seconds: dict[str, float]
    trials: Sequence[Trial]


def describe_training(net: Network, preprocessor: Preprocessor) -> str:
    """Return a line on the penalty, the number of epochs and the residuals on the rows by which they were chosen."""
    choice = Choice.of(net)
    text = f"l2 {choice.l2:.3g}, {choice.epochs:,} epochs"
    if not choice.validation:
        return text
    text += f"; validated on {choice.validation}"
    mse = None if net.history is None else net.history.validation_mse
    if mse is None:
        return text
    units = preprocessor.variance_in_units(float(mse[0]))
    return (
        f"{text}, whose residuals have variance {units:.4g} in the target's units squared (sd {units**0.5:.4g}; "
        f"{float(mse[0]):.4g} of the standardised target)"
    )


def noise_variance(draws: Draws | DrawsMixture) -> float | None:
    """Return the noise variance of the standardised target, or the posterior mean of a sampled one; None without."""
    if "variance" in draws.members[0].stats:
        return float(np.mean([member.stats["variance"].mean() for member in draws.members]))
    likelihood = draws.likelihood
    return float(likelihood.variance_vector(1)[0]) if isinstance(likelihood, Gaussian) else None


def describe_noise(draws: Draws | DrawsMixture, preprocessor: Preprocessor) -> str:
    """Return a sentence on the noise variance; an empty text if it is no parameter of the likelihood."""
    variance = noise_variance(draws)
    if variance is None:
        return ""
    units = preprocessor.variance_in_units(variance)
    return (
        f"noise variance {units:.4g} in the target's units squared (noise sd {units**0.5:.4g}; {variance:.4g} of the "
        f"standardised target), {'the mean of its draws' if 'variance' in draws.members[0].stats else 'as asked'}."
    )


def describe_prior(prior: Prior, alpha: float | None) -> str:
    """Return the prior in words; `alpha` is the one that was asked for, None if it was fitted."""
    text = prior.describe()
    if not isinstance(prior, TraceClassPrior) or alpha is not None or prior.alpha not in ALPHA_BOUNDS:
        return text
    what = (
        "many networks end so, and sampling is as correct as with any other; --alpha 2 puts more of the prior variance "
        "on the top nodes"
        if prior.alpha == ALPHA_BOUNDS[0]
        else "nearly all weight sits at the first nodes; --alpha 2 spreads the prior variance over more"
    )
    return f"{text}\n  note: alpha is at the bound of its search: {what}"
