"""The facts about a posterior on which the choice of kernel and device and its description depend."""

from __future__ import annotations

from dataclasses import dataclass

from patrac_native.engine.inputs import InputsOnDevice
from patrac_native.likelihoods import Likelihood

# Multiply-adds of seconds, below which the statistics of Exact() are taken whatever a chain costs, and the steps of all
# chains of a run by default.
_SECONDS, _STEPS = 1e11, 20_000


def statistics_are_dear(dim: int, n_rows: int) -> bool:
    """Return whether the statistics of Exact() take seconds, and more operations than a run of chains on the data.

    They are K + 1 gradients over n rows, 2 n K multiply-adds each, and the eigenvectors of a (K, K) matrix, about
    10 K^3; a step on the data takes 3 n K.
    """
    statistics = 2.0 * n_rows * dim * (dim + 1) + 10.0 * dim**3
    return statistics > max(_SECONDS, _STEPS * 3.0 * n_rows * dim)


@dataclass(frozen=True)
class FunctionLikelihood:
    """What the choices of kernel and device ask about a likelihood, for one that is a function; see `Likelihood`."""

    label: str = "function's"
    is_quadratic: bool = False
    noise_by_row: bool = False
    scale_name: str | None = None
    is_conjugate: bool = False

    def __repr__(self) -> str:
        return "a function"


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a posterior, independent of its data and compiled models."""

    likelihood: Likelihood | FunctionLikelihood  # a prior of sampled noise variances that was left open is filled in
    architecture: str  # its label, such as "Mix(5)"
    dim: int  # K, the number of Bayesian parameters
    hidden_dim: int  # K_h, the number of those that are left if output weights are integrated out
    # Why the first layer's weights cannot be rotated under their prior, and why there are no axes of the curvature, in
    # words; None if they can and there are.
    rotation_obstacle: str | None
    curvature_obstacle: str | None
    integrates_outputs: bool = False  # see `Likelihood.integrates_outputs`
    n_layers: int = 0  # layers of weights of the sampled network
    max_hidden_width: int = 0  # nodes of its widest hidden layer; 0 without one
    # Whether the log-likelihood is quadratic in theta, which holds for a Gaussian likelihood if no node below the last
    # layer depends on theta.
    is_last_layer_gaussian: bool = False
    has_dear_statistics: bool = False  # see `statistics_are_dear`; False unless `is_last_layer_gaussian`
    # Initial values of the sampled noise variances, one for each output or one of all; None if they are fixed.
    sampled_variances: tuple[float, ...] | None = None
    noise_prior_source: str | None = None  # see `Noise.source`
    samples_scales: bool = False  # whether the scales of the prior are sampled
    interweaves: bool = False  # whether they also move together with their parameters
    inputs_on_device: InputsOnDevice | None = None  # the inputs, if they were given on a device
    # The largest second moment of the inputs along a principal axis over the mean of all axes; None if the first layer
    # cannot be rotated, or if the copy of the inputs that a rotation needs is not wanted: they are on a device, used in
    # place (copy=False), of one byte each or many.
    input_spread: float | None = None
    device_obstacle: str | None = None  # why devices cannot run this density, in words; None if they can

    def reads_statistics(self, is_independent: bool) -> bool:
        """Return whether draws, or chains, come from statistics of a quadratic log-likelihood, not the data."""
        return self.is_last_layer_gaussian and (is_independent or not self.has_dear_statistics)
