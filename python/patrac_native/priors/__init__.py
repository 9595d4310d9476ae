"""The priors of the Bayesian parameters (docs/method.md, section 2).

Public: Prior, TraceClassPrior, GaussianPrior, SampledScales, the registry PRIORS and `prior_from_dict`.
"""

from collections.abc import Mapping
from typing import Any

from patrac_native.priors.base import Prior
from patrac_native.priors.gaussian import GaussianPrior
from patrac_native.priors.scales import SampledScales
from patrac_native.priors.trace_class import TraceClassPrior
from patrac_native.validation.complete import by_name, entry_of

__all__ = ["PRIORS", "GaussianPrior", "Prior", "SampledScales", "TraceClassPrior", "prior_from_dict"]

# All priors by their names in files.
PRIORS: dict[str, type[Prior]] = by_name((TraceClassPrior, GaussianPrior))


def prior_from_dict(content: Mapping[str, Any]) -> Prior:
    """Rebuild a prior from what its `to_dict` returned; raise ValueError for an unknown name."""
    entry, arguments = entry_of(PRIORS, content, "prior")
    return entry(**arguments)
