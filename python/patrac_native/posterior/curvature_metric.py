"""The metric of the curvature: each layer's whitened weights along the axes of its Kronecker-factored information."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from patrac_native.engine.models import CompiledModels
from patrac_native.kernels import Kernel
from patrac_native.kernels.metric import Metric, RotationBlock
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.data import Data
from patrac_native.posterior.jacobian import forward_with_slopes, sensitivities
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.validation.checks import FloatArray

# The information is summed over at most this many rows, evenly spaced, and scaled to all. It only sets step sizes.
INFORMATION_ROWS = 4_000
# The power of a step factor; docs/tried.md has the measurements.
POWER = 0.5
# The axes of a layer of N nodes take N^3 operations, and each step a product with them.
MAX_WIDTH = 512


def curvature_obstacle(network: PartialNetwork) -> str | None:
    """Return why there are no axes of the curvature, in words; None if there are."""
    if network.separate:
        return "a separate network is zero where the chains start, and has no curvature there"
    for layer, (weights, width) in enumerate(zip(network.weight_masks, network.layer_sizes, strict=False), start=1):
        if not np.array_equal(weights, np.outer(weights.any(axis=1), weights.any(axis=0))):
            return f"the Bayesian weights of layer {layer} are no block of rows and columns"
        if weights.any() and max(width, len(weights)) > MAX_WIDTH:
            return f"layer {layer} has more than {MAX_WIDTH} nodes or inputs"
        of_weights = (network.parameters["layer"] == layer) & (network.parameters["column"] >= 0)
        if network.scales is not None and len(np.unique(network.scales.group[of_weights])) > 1:
            return f"the weights of layer {layer} have several sampled scales"
    return None


@dataclass(frozen=True)
class LayerCurvature:
    """The axes and the information of the Bayesian parameters of one layer; axes are orthogonal."""

    first: int  # position of the first weight among the coordinates of the chain; the biases follow the weights
    row_axes: FloatArray  # (rows, rows), of the whitened weights of the layer's Bayesian nodes, row by row
    column_axes: FloatArray  # (columns, columns)
    information: FloatArray  # (rows, columns), along each product of axes, nonnegative; the prior's is 1
    bias_axes: FloatArray  # (b, b)
    bias_information: FloatArray  # (b,)

    @property
    def blocks(self) -> list[RotationBlock]:
        """The rotations of weights and biases, without empty ones."""
        weights = RotationBlock(self.first, self.row_axes, self.column_axes)
        biases = RotationBlock(self.first + self.information.size, np.eye(1), self.bias_axes)
        return [
            block for block, size in ((weights, self.information.size), (biases, len(self.bias_information))) if size
        ]


def _information(layers: list[LayerCurvature]) -> FloatArray:
    """Return the information along the axes of all layers, (K,) or (K_h,)."""
    return np.concatenate(
        [values for layer in layers for values in (layer.information.ravel(), layer.bias_information)]
    )


class CurvatureMetric(Metric):
    """Whitened coordinates along the axes of the likelihood's curvature at the trained network.

    The information of a layer's weights is that of K-FAC (Martens & Grosse 2015, Optimizing neural networks with
    Kronecker-factored approximate curvature): the second moments of what its nodes read, times the summed second
    moments of the derivatives of the outputs by its nodes. Both are those of whitened weights, of prior N(0, I) times
    a sampled scale if there is one, which a rotation keeps. So each axis may have a step size of its own.
    """

    def __init__(self, network: PartialNetwork, likelihood: Likelihood, compiled: CompiledModels, data: Data) -> None:
        self._network = network
        self._likelihood = likelihood
        self._compiled = compiled
        self._inputs, weights, offset = data.subsample(INFORMATION_ROWS)
        self._row_weights = weights * (data.row_weights.sum() / weights.sum())
        self._offset = 0.0 if offset is None else offset

    @property
    def compiled(self) -> CompiledModels:
        """The compiled models of the posterior."""
        return self._compiled

    @cached_property
    def layers(self) -> list[LayerCurvature]:
        """The axes of each layer that has Bayesian parameters, from the first."""
        return self._layers(np.arange(self._network.dim))

    @cached_property
    def collapsed_layers(self) -> list[LayerCurvature]:
        """The same without the output weights that are integrated out, in coordinates theta_h."""
        return self._layers(self._compiled.planned.hidden_entries)

    def _layers(self, entries: npt.NDArray[np.int64]) -> list[LayerCurvature]:
        """Return the axes of the parameters theta[entries], which lack whole nodes of the output layer at most."""
        network = self._network
        f, activations, slopes = forward_with_slopes(network.ranked, self._inputs)
        # The derivatives of the root of the information's product with the outputs: (n, r, m).
        start = np.swapaxes(self._likelihood.information_root(f + self._offset), 1, 2)
        deviation = np.sqrt(network.prior_variance[entries])
        left_out = np.delete(network.parameters["row"], entries)
        found: list[LayerCurvature] = []
        end = len(entries)
        for layer, sensitivity in sensitivities(network.ranked, slopes, start):
            weights, biases = network.weight_masks[layer].copy(), network.bias_masks[layer].copy()
            if layer == len(activations) - 1:
                weights[left_out], biases[left_out] = False, False
            first = end - int(weights.sum() + biases.sum())
            if first < end:
                found.append(self._axes_of(weights, biases, first, activations[layer], sensitivity, deviation))
            end = first
        return found[::-1]

    def _axes_of(
        self,
        weights: npt.NDArray[np.bool_],
        biases: npt.NDArray[np.bool_],
        first: int,
        sources: FloatArray,
        sensitivity: FloatArray,
        deviation: FloatArray,
    ) -> LayerCurvature:
        """Return the axes of a layer, given its masks, sources (n, columns), sensitivity (n, r, rows) and C^(1/2)."""
        rows, columns = weights.any(axis=1), weights.any(axis=0)
        shape = int(rows.sum()), int(columns.sum())
        of_weights = deviation[first : first + shape[0] * shape[1]].reshape(shape)
        of_biases = deviation[first + of_weights.size : first + of_weights.size + int(biases.sum())]
        # The product of a row's and a column's factor that is nearest to the deviations, in logarithms: equal to them
        # for every prior of the package.
        logarithms = np.log(of_weights) if of_weights.size else np.zeros(shape)
        row_factor = np.exp(logarithms.mean(axis=1)) if of_weights.size else np.zeros(shape[0])
        column_factor = np.exp(logarithms.mean(axis=0) - logarithms.mean()) if of_weights.size else np.zeros(shape[1])
        total = self._row_weights.sum()
        read = sources[:, columns] * column_factor
        moments, column_axes = np.linalg.eigh((read * (self._row_weights / total)[:, None]).T @ read)
        of_nodes, row_axes = np.linalg.eigh(self._summed(sensitivity[:, :, rows] * row_factor))
        of_bias, bias_axes = np.linalg.eigh(self._summed(sensitivity[:, :, biases] * of_biases))
        return LayerCurvature(
            first,
            row_axes,
            column_axes,
            np.outer(np.maximum(of_nodes, 0.0), np.maximum(moments, 0.0)),
            bias_axes,
            np.maximum(of_bias, 0.0),
        )

    def _summed(self, sensitivity: FloatArray) -> FloatArray:
        """Return the weighted sum over rows of the second moments of sensitivities (n, r, nodes)."""
        flat = sensitivity.reshape(-1, sensitivity.shape[2])
        weights = np.repeat(self._row_weights, sensitivity.shape[1])
        summed: FloatArray = (flat * weights[:, None]).T @ flat
        return summed

    @cached_property
    def _typical_scales(self) -> FloatArray:
        """Return the sampled scale of each parameter, (K,), at its mean given the trained network; else ones."""
        network = self._network
        if network.scales is None:
            return np.ones(network.dim)
        group, a = network.scales.group, network.scales.a
        squares = np.bincount(group, network.theta_map**2 / network.prior_variance)
        counts = np.bincount(group)
        # Inverse-gamma with shape a + K_g / 2 and rate a + sum / 2.
        typical: FloatArray = ((a + squares / 2) / (a + counts / 2))[group]
        return typical

    def rotation(self, kernel: Kernel) -> tuple[RotationBlock, ...]:
        """Return the blocks of the layers in which a chain steps; with `collapse`, of theta_h."""
        return tuple(
            block for layer in (self.collapsed_layers if kernel.collapse else self.layers) for block in layer.blocks
        )

    def step_factor(self, kernel: Kernel) -> FloatArray:
        """Return (1 / scale + information)^-POWER of each coordinate, shape (K,)."""
        factor: FloatArray = (1.0 / self._typical_scales + _information(self.layers)) ** -POWER
        if kernel.collapse:
            entries = self._compiled.planned.hidden_entries
            scales = self._typical_scales[entries]
            factor[entries] = (1.0 / scales + _information(self.collapsed_layers)) ** -POWER
        return factor

    def unit_steps(self, kernel: Kernel) -> FloatArray:
        """Return the inverse of `step_factor`: the prior of each coordinate is N(0, 1), at scales of 1."""
        unit: FloatArray = 1.0 / self.step_factor(kernel)
        return unit
