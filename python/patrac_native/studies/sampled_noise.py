"""Rows of a study whose noise variance is sampled with the parameters, beside those with the problem's variance."""

from __future__ import annotations

from dataclasses import dataclass

from patrac_native.architectures import Architecture
from patrac_native.likelihoods import Gaussian


@dataclass(frozen=True)
class SampledNoise:
    """An architecture whose posterior is sampled together with the noise variance."""

    architecture: Architecture

    def label(self) -> str:
        """Return such as "Mix(5), sampled noise"."""
        return f"{self.architecture.label()}, sampled noise"


Candidate = Architecture | SampledNoise


def with_noise(candidate: Candidate, likelihood: Gaussian) -> tuple[Architecture, Gaussian]:
    """Return the architecture of a candidate and its likelihood, where the problem's is `likelihood`."""
    if isinstance(candidate, SampledNoise):
        return candidate.architecture, Gaussian("sampled")
    return candidate, likelihood
