"""The metric of the inputs: the first layer's weights along the principal axes of the inputs, a step size for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine.inputs import Inputs
from patrac_native.engine.models import CompiledModels
from patrac_native.kernels import Kernel
from patrac_native.kernels.metric import Metric
from patrac_native.posterior.data import Data
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.validation.checks import FloatArray

# Second moments are estimated from at most this many rows, evenly spaced. They only set step sizes.
MOMENT_ROWS = 10_000
# The cap of mean / moment. Along an axis on which the inputs hardly vary, the prior bounds the steps.
MAX_FACTOR = 1e4
# The power of a factor; docs/tried.md has the measurements.
POWER = 0.75
# Rotating n rows takes n d^2 operations, and the decomposition d^3.
MAX_INPUTS = 1024
# kernel="auto" makes no larger copy of the inputs.
MAX_ROTATED_BYTES = 2**28
# theta is rotated in float64, this many entries at a time.
_VALUES_AT_A_TIME = 2**20


def rotation_obstacle(network: PartialNetwork) -> str | None:
    """Return why the first layer's weights cannot be rotated under their prior, in words; None if they can.

    A rotation of the weights into a node keeps their prior if all of them are Bayesian, with one variance and one
    sampled scale.
    """
    weights = network.weight_masks[0]
    if not weights.any() or len(network.layer_sizes) < 3:
        return "no weight of a first hidden layer is Bayesian"
    if network.n_inputs == 1:
        return "there is a single input"
    if network.n_inputs > MAX_INPUTS:
        return f"there are more than {MAX_INPUTS} inputs"
    if not (weights.all(axis=1) | ~weights.any(axis=1)).all():
        return "some weights into a node are Bayesian and others fixed"
    first = _first_weights(network)
    for array in (network.prior_variance, None if network.scales is None else network.scales.group):
        if array is not None and np.ptp(array[first].reshape(-1, network.n_inputs), axis=1).any():
            return "the weights out of different inputs have prior variances of their own"
    return None


def _first_weights(network: PartialNetwork) -> slice:
    """Return the span of theta with the first layer's weights, row by row; whole rows are Bayesian."""
    return slice(0, int(network.weight_masks[0].sum()))


@dataclass(frozen=True)
class PrincipalAxes:
    """Eigenvectors and eigenvalues of the second moments of the inputs."""

    rotation: FloatArray  # (d, d), orthogonal; column j is axis j, in the order of the inputs
    moments: FloatArray  # (d,), mean square of the inputs along each axis, nonnegative, ascending

    @classmethod
    def of(cls, data: Data) -> PrincipalAxes:
        """Find the axes of the inputs from at most MOMENT_ROWS rows and their weights."""
        rows, weights, _ = data.subsample(MOMENT_ROWS)
        # Axes do not depend on the scale, and squares must not overflow.
        scale = float(np.abs(rows).max()) or 1.0
        rows /= scale
        moments, rotation = np.linalg.eigh((rows * (weights / weights.sum())[:, None]).T @ rows)
        return cls(np.ascontiguousarray(rotation), np.maximum(moments, 0.0) * scale**2)

    @property
    def spread(self) -> float:
        """The largest second moment over their mean, from 1 (all equal) to d; 1 if all are 0."""
        mean = float(self.moments.mean())
        return float(self.moments.max()) / mean if mean > 0 else 1.0

    @property
    def factors(self) -> FloatArray:
        """Factors of the step size along each axis, shape (d,): (mean / moment)^POWER with mean / moment capped."""
        mean = float(self.moments.mean())
        if not mean > 0:
            return np.ones(len(self.moments))
        factors: FloatArray = (mean / np.maximum(self.moments, mean / MAX_FACTOR)) ** POWER
        return factors


class InputMetric(Metric):
    """A posterior with its first layer along the principal axes of the inputs: the same density, rotated.

    The weights w into a node and inputs x enter as w'x = (R'w)'(R'x), and R'w has the prior of w: equal variances are
    kept by a rotation. So chains run on a model with inputs XR, and theta is rotated at their start and in the draws.
    """

    def __init__(self, network: PartialNetwork, compiled: CompiledModels, axes: PrincipalAxes) -> None:
        self.axes = axes
        self._network = network
        self._original = compiled

    @cached_property
    def compiled(self) -> CompiledModels:
        """The compiled models with rotated inputs, whose theta is that of `rotated`."""
        original, rotation, network = self._original, self.axes.rotation, self._network
        spec = original.spec
        companion = spec.companion
        if companion is not None:
            companion = ([companion[0][0] @ rotation, *companion[0][1:]], companion[1])
        rotated = (original.inputs.host.astype(np.float64) @ rotation).astype(network.dtype)
        return CompiledModels(
            replace(spec, weights=[spec.weights[0] @ rotation, *spec.weights[1:]], companion=companion),
            Inputs(rotated, network.n_inputs, n_layers=len(network.layer_sizes) - 1, dtype=network.dtype, copy=False),
            original.targets,
            original.row_weights,
            dtype=original.dtype,
            level=original.level,
        )

    def step_factor(self, kernel: Kernel) -> FloatArray:
        """Return the factor of the step size of each entry of theta, shape (K,).

        Of the first layer's weights it is that of their axis. mGrad, whose steps are otherwise of equal size in theta,
        has in addition the square root of each prior variance over their mean: halfway to steps of equal size in units
        of the prior, which pCNL takes.
        """
        network = self._network
        factor = np.ones(network.dim)
        first = _first_weights(network)
        factor[first] = np.tile(self.axes.factors, first.stop // network.n_inputs)
        if not kernel.is_rotation_invariant:
            factor *= np.sqrt(network.prior_variance / network.prior_variance.mean())
        return factor

    def unit_steps(self, kernel: Kernel) -> FloatArray:
        """Return the prior variances over `step_factor`."""
        unit: FloatArray = self._network.prior_variance / self.step_factor(kernel)
        return unit

    def rotated(self, theta: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return theta (B, K) with the first layer's weights along the axes, as a new array."""
        turned = theta.copy()
        self._turn(turned, self.axes.rotation)
        return turned

    def restore(self, theta: npt.NDArray[Any]) -> None:
        """Undo `rotated` in place, theta (B, K)."""
        self._turn(theta, self.axes.rotation.T)

    def _turn(self, theta: npt.NDArray[Any], rotation: FloatArray) -> None:
        """Multiply each node's first-layer weights in theta (B, K) by `rotation` from the right, in place."""
        first = _first_weights(self._network)
        rows = max(1, _VALUES_AT_A_TIME // self._network.dim)
        for start in range(0, len(theta), rows):
            block = theta[start : start + rows, first]
            weights = block.reshape(-1, self._network.n_inputs).astype(np.float64)
            block[...] = (weights @ rotation).reshape(block.shape)
