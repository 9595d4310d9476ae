"""The likelihoods of the network's outputs (docs/method.md, section 5).

Public: Likelihood, Gaussian, HeteroscedasticGaussian, StudentT, CensoredGaussian, Categorical, Bernoulli, Poisson,
NegativeBinomial, DiscreteValues, the registry LIKELIHOODS and `likelihood_from_dict`.
"""

from collections.abc import Mapping
from typing import Any

from patrac_native.likelihoods.base import Likelihood, NoiseChange, Targets
from patrac_native.likelihoods.bernoulli import Bernoulli
from patrac_native.likelihoods.categorical import Categorical
from patrac_native.likelihoods.censored_gaussian import CensoredGaussian
from patrac_native.likelihoods.count import CountLikelihood, CountMixture
from patrac_native.likelihoods.discrete_values import DiscreteValues
from patrac_native.likelihoods.gaussian import Gaussian
from patrac_native.likelihoods.heteroscedastic_gaussian import HeteroscedasticGaussian
from patrac_native.likelihoods.mixture import TargetMixture
from patrac_native.likelihoods.negative_binomial import NegativeBinomial
from patrac_native.likelihoods.poisson import Poisson
from patrac_native.likelihoods.real import Noise, PredictiveMixture, RealLikelihood
from patrac_native.likelihoods.student_t import StudentT
from patrac_native.validation.complete import by_name, entry_of

__all__ = [
    "LIKELIHOODS",
    "LIKELIHOODS_BY_LABEL",
    "Bernoulli",
    "Categorical",
    "CensoredGaussian",
    "CountLikelihood",
    "CountMixture",
    "DiscreteValues",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Likelihood",
    "NegativeBinomial",
    "Noise",
    "NoiseChange",
    "Poisson",
    "PredictiveMixture",
    "RealLikelihood",
    "StudentT",
    "TargetMixture",
    "Targets",
    "likelihood_from_dict",
]

# All likelihoods by their names in files.
LIKELIHOODS: dict[str, type[Likelihood]] = by_name(
    (
        Gaussian,
        Categorical,
        DiscreteValues,
        Bernoulli,
        StudentT,
        HeteroscedasticGaussian,
        Poisson,
        NegativeBinomial,
        CensoredGaussian,
    )
)
# The same by their names in the estimators and on the command line.
LIKELIHOODS_BY_LABEL = {one.label: one for one in LIKELIHOODS.values()}


def likelihood_from_dict(content: Mapping[str, Any]) -> Likelihood:
    """Rebuild a likelihood from what its `to_dict` returned."""
    entry, arguments = entry_of(LIKELIHOODS, content, "likelihood")
    return entry(**arguments)
