"""What `sample` needs of a density: base class of posteriors of networks and of targets that are given as functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from patrac_native.kernels import Kernel
from patrac_native.kernels.facts import ModelFacts
from patrac_native.kernels.metric import Metric
from patrac_native.posterior.fit_quality import FitQuality
from patrac_native.posterior.last_layer import WhitenedQuadratic
from patrac_native.priors.scales import ScaleGroups
from patrac_native.validation.checks import FloatArray


class HostModels(Protocol):
    """The compiled log-likelihood of a density on the host, whose `sample` runs chains."""

    @property
    def host(self) -> Any:
        """The model on the host."""

    def build_host(self) -> None:
        """Build the model on the host now rather than at its first use."""


@dataclass(frozen=True)
class NoiseLaw:
    """The law of noise variances that are sampled with theta.

    Attributes
    ----------
    shape : float
        Shape a of the inverse-gamma priors.
    rate, initial : ndarray of float64, shape (q,)
        Rates of the priors, and first values.
    every : callable
        Returns the number of steps from one draw of the variances to the next that suits a kernel.
    """

    shape: float
    rate: FloatArray
    initial: FloatArray
    every: Callable[[Kernel], int]


class SampledDensity(ABC):
    """Base class of what `sample` runs chains on: exp(l(theta)) N(theta; 0, C).

    Attributes
    ----------
    nonfinite_remedy : str
        What to do about proposals whose log-likelihood or gradient is not finite.
    """

    nonfinite_remedy: str

    @property
    @abstractmethod
    def dim(self) -> int:
        """K, the number of parameters."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The dtype of theta, float32 or float64."""

    @property
    @abstractmethod
    def level(self) -> str:
        """Instruction-set level of the compiled code."""

    @property
    @abstractmethod
    def prior_variance(self) -> FloatArray:
        """Diagonal of C, shape (K,)."""

    @property
    @abstractmethod
    def facts(self) -> ModelFacts:
        """The facts on which the choice of kernel and device depends."""

    @property
    @abstractmethod
    def compiled(self) -> HostModels:
        """The compiled models that chains run on."""

    @property
    @abstractmethod
    def map_start(self) -> FloatArray | None:
        """The starting point of init="map", shape (K,); None if there is none."""

    @property
    @abstractmethod
    def is_trained(self) -> bool:
        """Whether init="auto" starts around `map_start`; otherwise it draws from the prior."""

    @abstractmethod
    def prior_start(self, seed: int, chain: int) -> npt.NDArray[Any]:
        """Draw the first state of a chain from the prior, shape (K,)."""

    @property
    def sampled_noise(self) -> NoiseLaw | None:
        """The law of sampled noise variances; None if there are none."""
        return None

    @property
    def scale_groups(self) -> ScaleGroups | None:
        """The groups of parameters whose prior scales are sampled; None if C is fixed."""
        return None

    @property
    def quadratic(self) -> WhitenedQuadratic | None:
        """The log-likelihood as a quadratic form; None if it is none."""
        return None

    @property
    def fit_quality(self) -> FitQuality | None:
        """The quality of the trained network's fit; None without a network."""
        return None

    def metric_of(self, kernel: Kernel) -> Metric | None:
        """Return what the kernel's metric supplies to a run; None if the chains step in theta, all alike."""
        return None

    def cautions(self) -> list[str]:
        """Return warnings about the density itself that a run should begin with."""
        return []
