"""What `sample` needs of a density exp(l(theta)) N(theta; 0, C): the type of `Posterior.sampled`, `Target.sampled`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from patrac_native.kernels import Kernel
from patrac_native.kernels.facts import ModelFacts
from patrac_native.kernels.metric import Metric
from patrac_native.posterior.last_layer import WhitenedQuadratic
from patrac_native.posterior.noise import Noise
from patrac_native.priors.scales import ScaleGroups
from patrac_native.validation.checks import FloatArray


@dataclass(frozen=True)
class FitQuality:
    """Log-likelihoods of the training data, normalised and weighted as in `Posterior.log_likelihood`."""

    network: float  # of the trained network; -inf if it is not finite
    constant: float  # of the best constant predictor: the mean of y, or the class frequencies
    rows: float  # sum of the row weights; without sample weights, the number of rows
    values: float  # number of observed values: `rows` times the number of targets in a row

    def to_dict(self) -> dict[str, float]:
        """Return the fields as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FitQuality:
        """Rebuild from what `to_dict` returned; None, which JSON files hold in place of -inf, becomes -inf."""
        made = cls(**{name: -math.inf if value is None else float(value) for name, value in content.items()})
        if not (0 < made.rows < math.inf and 0 < made.values < math.inf and made.network < math.inf):
            raise ValueError(f"the quality of its fit is none of a posterior: {dict(content)}")
        return made


class SampledDensity(Protocol):
    """A density as a run takes it: theta has K entries of `dtype`, and C is diagonal."""

    dim: int  # K
    dtype: np.dtype[Any]
    level: str  # the instruction-set level of the compiled code
    prior_variance: FloatArray  # (K,), the diagonal of C
    compiled: Any  # the log-likelihood: `host` is its model on the host, built at its first use
    theta_map: FloatArray | None  # (K,), the starting point of init="map"; None if there is none
    is_trained: bool  # whether init="auto" starts around `theta_map`; otherwise it draws from the prior
    scales: ScaleGroups | None  # the groups of parameters whose prior scales are sampled; None if C is fixed
    nonfinite_remedy: str  # what to do about proposals whose log-likelihood or gradient is not finite

    @property
    def facts(self) -> ModelFacts:
        """On which the choice of kernel and device depends."""

    @property
    def noise(self) -> Noise | None:
        """The noise variances that are sampled with theta; None if there are none."""

    @property
    def quadratic(self) -> WhitenedQuadratic | None:
        """The log-likelihood as a quadratic form; None if it is none."""

    @property
    def fit_quality(self) -> FitQuality | None:
        """The quality of the trained network's fit; None without a network."""

    @property
    def cautions(self) -> list[str]:
        """Warnings about the density itself that a run should begin with."""

    def prior_start(self, seed: int, chain: int) -> npt.NDArray[Any]:
        """Draw the first state of a chain from the prior, shape (K,)."""

    def metric_of(self, kernel: Kernel) -> Metric | None:
        """Return what the kernel's metric supplies to a run; None if the chains step in theta, all alike."""

    def variance_every(self, kernel: Kernel) -> int:
        """Return the number of steps from one draw of sampled noise variances to the next that suits a kernel."""
