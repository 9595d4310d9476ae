"""A partial network given data, as runs take it: compiled models, facts, noise, metrics and the quality of the fit."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.engine.models import CompiledModels
from patrac_native.kernels import Kernel
from patrac_native.kernels.facts import ModelFacts, statistics_are_dear
from patrac_native.kernels.metric import Metric
from patrac_native.kernels.variance_draws import variance_every
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.curvature_metric import CurvatureMetric, curvature_obstacle
from patrac_native.posterior.data import Data
from patrac_native.posterior.input_metric import MAX_ROTATED_BYTES, InputMetric, PrincipalAxes, rotation_obstacle
from patrac_native.posterior.last_layer import WhitenedQuadratic, whiten
from patrac_native.posterior.noise import Noise, noise_of
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.posterior.sampled_density import FitQuality
from patrac_native.validation.checks import FloatArray, cast_checked


class SampledNetwork:
    """The `SampledDensity` of a posterior, from its network, its likelihood as given and its data."""

    nonfinite_remedy = 'scale X and y or use dtype="float64"'

    def __init__(self, network: PartialNetwork, likelihood: Likelihood, data: Data) -> None:
        self.network, self.data = network, data
        self.dim, self.dtype, self.level = network.dim, network.dtype, network.level
        self.prior_variance, self.scales = network.prior_variance, network.scales
        self.theta_map: FloatArray | None = network.theta_map
        self.is_trained = not network.separate
        history = network.net.history
        self.law = noise_of(
            likelihood,
            data,
            network.n_outputs,
            None if history is None else history.validation_mse,
            lambda: network.net.predict(data.X),
        )
        reference = self.law.reference
        _check_range(reference, data.row_weights, network.n_outputs, network.dtype)
        targets = likelihood.core_targets(data.y, data.offset)
        # The engine's own conversion does not report an overflow.
        finite = np.isfinite(targets)
        cast_checked(targets if finite.all() else targets[finite], network.dtype, "y")
        likelihood.check_precision(data.y, network.dtype)
        parameters = reference.core_parameters(network.n_outputs, data.y, data.row_weights)
        self.compiled = CompiledModels(
            network.spec(likelihood.core_name or likelihood.name, parameters),
            data.inputs,
            targets,
            data.row_weights,
            dtype=network.dtype,
            level=network.level,
        )
        if data.inputs.on_device is None:
            _ = self.compiled.host  # now, so that a lack of memory shows in the constructor

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood with the prior of sampled noise completed."""
        return self.law.likelihood

    @property
    def noise(self) -> Noise | None:
        """The noise variances if they are sampled; None if they are fixed."""
        return self.law if self.law.is_sampled else None

    @property
    def layers(self) -> list[dict[str, int]]:
        """The numbers of nodes and parameters by which the compiled model evaluates each layer, see `Plan.layers`."""
        layers: list[dict[str, int]] = self.compiled.planned.layers
        return layers

    @cached_property
    def facts(self) -> ModelFacts:
        """The facts on which the choice of kernel and device depends."""
        network, scales = self.network, self.scales
        is_last_layer_gaussian = self.likelihood.is_quadratic and self.layers[-1]["varying_sources"] == 0
        return ModelFacts(
            likelihood=self.likelihood,
            architecture=network.architecture.label(),
            dim=network.dim,
            hidden_dim=len(self.compiled.planned.hidden_entries),
            integrates_outputs=self.likelihood.integrates_outputs(network.n_outputs),
            n_layers=len(network.layer_sizes) - 1,
            max_hidden_width=max(network.layer_sizes[1:-1], default=0),
            is_last_layer_gaussian=is_last_layer_gaussian,
            has_dear_statistics=is_last_layer_gaussian and statistics_are_dear(network.dim, self.data.n_rows),
            sampled_variances=tuple(self.law.initial.tolist()) if self.noise else None,
            noise_prior_source=self.law.source,
            samples_scales=scales is not None,
            interweaves=scales is not None and scales.interweave,
            inputs_on_device=self.data.inputs.on_device,
            rotation_obstacle=rotation_obstacle(network),
            curvature_obstacle=curvature_obstacle(network),
            input_spread=self._input_spread(),
        )

    def _input_spread(self) -> float | None:
        """See `ModelFacts`."""
        inputs = self.data.inputs
        if inputs.on_device is not None or inputs.in_place or inputs.host.dtype == np.uint8:
            return None
        if inputs.host.size * self.dtype.itemsize > MAX_ROTATED_BYTES or rotation_obstacle(self.network):
            return None
        return self.input_metric.axes.spread

    @cached_property
    def input_metric(self) -> InputMetric:
        """The model along the principal axes of its inputs, for kernels with metric="inputs"."""
        return InputMetric(self.network, self.compiled, PrincipalAxes.of(self.data))

    @cached_property
    def curvature_metric(self) -> CurvatureMetric:
        """The axes of the curvature at the trained network, for kernels with metric="curvature"."""
        return CurvatureMetric(self.network, self.law.reference, self.compiled, self.data)

    def metric_of(self, kernel: Kernel) -> Metric | None:
        """Return what the kernel's metric supplies to a run; None if the chains step in theta, all alike."""
        if kernel.metric == "inputs":
            return self.input_metric
        return self.curvature_metric if kernel.metric == "curvature" else None

    def variance_every(self, kernel: Kernel) -> int:
        """Return the number of steps from one draw of sampled noise variances to the next."""
        return variance_every(self.facts, self.layers, self.data.n_rows, kernel)

    def prior_start(self, seed: int, chain: int) -> npt.NDArray[Any]:
        """Draw the first state of a chain from the prior, shape (K,); sampled scales are at their centres."""
        start: npt.NDArray[Any] = self.network.sample_prior(1, seed=seed, chain=chain, purpose=_core.Purpose.init)[0]
        return start

    @cached_property
    def fit_quality(self) -> FitQuality:
        """The quality of the trained network's fit to the training data, compared with the best constant predictor.

        For each of the two, a sampled noise variance is fixed at its mode given that predictor's residuals.
        """
        likelihood, y, weights = self.likelihood, self.data.y, self.data.row_weights
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._trained_log_likelihood()
        rows = float(weights.sum())
        return FitQuality(
            network=found if np.isfinite(found) else float("-inf"),
            constant=likelihood.constant_log_likelihood(y, weights, self.data.offset),
            rows=rows,
            values=rows * math.prod(y.shape[1:2]),
        )

    def _trained_log_likelihood(self) -> float:
        """Evaluate l of the trained network: on the host if its model has been built, else on the inputs' device."""
        # Sep's trained values are zeros, at which its separate network adds nothing; so theta_map gives the trained
        # network for every architecture.
        network, device_inputs = self.network, self.data.inputs.on_device
        if self.likelihood.is_sampled:
            f = network.predict(network.theta_map, self.data.X, threads=1).astype(np.float64)
            y, weights = self.data.y, self.data.row_weights
            return self.likelihood.fitted(f, y, weights).weighted_log_likelihood(f, y, weights)
        theta = network.theta_map.astype(self.dtype)[None]
        if device_inputs is None or self.compiled.has_host:
            return float(self.compiled.host.log_likelihood(theta, 1)[0])
        return float(self.compiled.on_device(device_inputs.device).log_likelihood(theta)[0])

    @cached_property
    def quadratic(self) -> WhitenedQuadratic | None:
        """Sufficient statistics in the whitened eigenbasis; None if the log-likelihood is not quadratic in theta."""
        if not self.facts.is_last_layer_gaussian:
            return None
        by_output = self.law.is_sampled and len(self.law.initial) > 1
        output = self.network.parameters["row"].astype(np.int32) if by_output else None
        return whiten(self.compiled, self.prior_variance, self.law, output)

    @property
    def cautions(self) -> list[str]:
        """A warning if the prior of sampled noise rests on residuals that may be too small."""
        if self.law.source != "training":
            return []
        call = self.likelihood.example.replace('"sampled"', '"sampled", a=2, b=...')
        return [
            "the prior of the noise variance rests on the trained network's residuals on the rows of this posterior, "
            "which may be too small if the network was trained on them; train with validation rows, which then give "
            f"net.history.validation_mse, or give a and b, as in {call}."
        ]


def _check_range(likelihood: Likelihood, row_weights: FloatArray, n_outputs: int, dtype: np.dtype[Any]) -> None:
    """Raise ValueError if a parameter of the likelihood or a row weight overflows or underflows in `dtype`."""
    with np.errstate(over="ignore", under="ignore"):
        numbers = {likelihood.weight_name: (row_weights, "bring it nearer to 1"), **likelihood.range_checks(n_outputs)}
        for name, (values, advice) in numbers.items():
            cast = values.astype(dtype)
            if not np.isfinite(cast).all() or ((cast == 0) & (values > 0)).any():
                wider = ' or use dtype="float64"' if dtype == np.float32 else ""
                raise ValueError(f"{name} is beyond what {dtype.name} holds; {advice}{wider}.")
