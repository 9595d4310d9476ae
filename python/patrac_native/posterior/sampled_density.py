"""What `sample` needs of a density exp(l(theta)) N(theta; 0, C): the type of `Posterior.sampled`, `Target.sampled`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from patrac_native.kernels import Kernel
from patrac_native.kernels.facts import ModelFacts
from patrac_native.kernels.metric import Metric
from patrac_native.posterior.fit_quality import FitQuality
from patrac_native.posterior.last_layer import WhitenedQuadratic
from patrac_native.posterior.noise import Noise
from patrac_native.priors.scales import ScaleGroups
from patrac_native.validation.checks import FloatArray


class SampledDensity(Protocol):
    """A density as a run takes it: theta has K entries of `dtype`, and C is diagonal.

    Attributes
    ----------
    dim, dtype, level
        K, the dtype of theta and the instruction-set level of the compiled code.
    prior_variance : ndarray of float64, shape (K,)
        Diagonal of C.
    compiled : CompiledModels or ForeignModel
        Its `host`, which is built at the first use, runs chains by `sample`.
    facts : ModelFacts
        On which the choice of kernel and device depends.
    theta_map : ndarray of float64, shape (K,), or None
        The starting point of init="map"; None if there is none.
    is_trained : bool
        Whether init="auto" starts around `theta_map`; otherwise it draws from the prior.
    noise : Noise or None
        The noise variances that are sampled with theta; None if there are none.
    scales : ScaleGroups or None
        The groups of parameters whose prior scales are sampled; None if C is fixed.
    quadratic : WhitenedQuadratic or None
        The log-likelihood as a quadratic form; None if it is none.
    fit_quality : FitQuality or None
        The quality of the trained network's fit; None without a network.
    cautions : list of str
        Warnings about the density itself that a run should begin with.
    nonfinite_remedy : str
        What to do about proposals whose log-likelihood or gradient is not finite.
    """

    dim: int
    dtype: np.dtype[Any]
    level: str
    prior_variance: FloatArray
    compiled: Any
    theta_map: FloatArray | None
    is_trained: bool
    scales: ScaleGroups | None
    nonfinite_remedy: str

    @property
    def facts(self) -> ModelFacts: ...
    @property
    def noise(self) -> Noise | None: ...
    @property
    def quadratic(self) -> WhitenedQuadratic | None: ...
    @property
    def fit_quality(self) -> FitQuality | None: ...
    @property
    def cautions(self) -> list[str]: ...

    def prior_start(self, seed: int, chain: int) -> npt.NDArray[Any]:
        """Draw the first state of a chain from the prior, shape (K,)."""

    def metric_of(self, kernel: Kernel) -> Metric | None:
        """Return what the kernel's metric supplies to a run; None if the chains step in theta, all alike."""

    def variance_every(self, kernel: Kernel) -> int:
        """Return the number of steps from one draw of sampled noise variances to the next that suits a kernel."""
