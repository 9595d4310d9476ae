"""What a fit did and chose, in words."""

from __future__ import annotations

import numpy as np

from patrac_native.fit.evaluation import AnyDraws, members_of
from patrac_native.fit.rows import FloatArray, TargetScaling
from patrac_native.fit.settings import Likelihood, Prior, Settings

# The upper bound of the search for the decay of a trace-class prior.
_ALPHA_MAX = 8.0


def squared_scales(draws: AnyDraws) -> FloatArray | None:
    """Return the squared scale of the noise of each standardised target, its posterior mean if it is sampled.

    One number stands for all targets that share it. None if the likelihood has no such scale.
    """
    likelihood, members = draws.likelihood, members_of(draws)
    if likelihood.scale_name is None:
        return None
    if likelihood.is_sampled:
        means = [np.atleast_1d(member.stats["variance"].mean(axis=(0, 1))) for member in members]
        return np.asarray(np.mean(means, axis=0))
    return np.asarray(likelihood.variance_vector(members[0].network.n_outputs))


def describe_noise(draws: AnyDraws, units: TargetScaling) -> str:
    """Return a sentence on the noise; an empty text for classes."""
    how = "the mean of its draws" if draws.likelihood.is_sampled else "as asked"
    return str(draws.likelihood.describe_noise(squared_scales(draws), units.target_scale, how))


def describe_function(likelihood: Likelihood, units: TargetScaling) -> str:
    """Return in words what f is, of which summaries of the chains tell; an empty text for classes."""
    if likelihood.targets == "class":
        return ""
    if likelihood.targets == "count":
        return "f is the logarithm of the mean count"
    in_units = f"times {', '.join(f'{one:.4g}' for one in units.scale)} for the target's units"
    if likelihood.noise_by_row:
        return f"f is the mean and the log-variance of the standardised target\n(the mean {in_units})"
    return f"f and its widths are of the standardised target\n({in_units}) and without the noise"


def describe_prior(prior: Prior, settings: Settings) -> str:
    """Return the prior in words, with a note if its fitted decay is at the upper bound of its search.

    At the lower bound, where the weights do not fall off with the rank of their nodes, a slower decay would hardly
    change a variance; there is no note.
    """
    text, alpha = str(prior.describe()), getattr(prior, "alpha", None)
    if settings.prior_alpha is not None or alpha != _ALPHA_MAX:
        return text
    return (
        f"{text}\n  note: alpha is at the upper bound of its search: parameters of the second node have "
        f"{2.0**-alpha:.1%} of the prior variance of the first, and the others less; prior_alpha=2 gives them "
        f"{2.0**-2:.0%}"
    )
