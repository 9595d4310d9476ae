"""Compiled models, on the host or in a device's memory: built from a `ModelSpec` of plain arrays, and owned here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.engine.inputs import Inputs
from patrac_native.validation.checks import FloatArray, cast_checked

CoreModel = _core.Model32 | _core.Model64
DataSet = _core.DataSet32 | _core.DataSet64


@dataclass(frozen=True)
class ModelSpec:
    """What a model is compiled from, without its data: network, nodes in ranked order, masks and likelihood."""

    activation: str
    weights: Sequence[FloatArray]  # of layer l (N_l, N_{l-1})
    biases: Sequence[FloatArray]  # (N_l,)
    weight_masks: Sequence[npt.NDArray[np.bool_]]  # True for Bayesian parameters
    bias_masks: Sequence[npt.NDArray[np.bool_]]
    # Weights and biases of a fixed network whose outputs are added to those of the sampled one (Sep).
    companion: tuple[Sequence[FloatArray], Sequence[FloatArray]] | None
    likelihood: str
    likelihood_parameters: Mapping[str, FloatArray]  # by the names that the core gives them

    @cached_property
    def core(self) -> _core.ModelSpec:
        """The specification as the core takes it, which rejects unknown names and parameters."""
        return _core.ModelSpec(**{field.name: getattr(self, field.name) for field in fields(self)})


def host_model(
    spec: ModelSpec,
    X: npt.NDArray[Any],
    targets: FloatArray,
    row_weights: FloatArray,
    *,
    dtype: np.dtype[Any],
    level: str,
    in_place: bool = False,
) -> CoreModel:
    """Compile a model for the CPU: X (n, d) of dtype uint8, float32 or float64, targets and row weights in float64.

    With `in_place` the model keeps a reference to X and reads it without a copy if its dtype and order allow that.
    """
    build: Any = _core.Model32 if dtype == np.float32 else _core.Model64
    model: CoreModel = build(
        spec.core,
        targets=targets,
        row_weights=row_weights,
        inputs=X if X.dtype in (dtype, np.uint8) and _is_strided(X) else cast_checked(X, dtype, "X"),
        level=level,
        in_place=in_place,
    )
    return model


def planned_model(spec: ModelSpec, *, dtype: np.dtype[Any], level: str) -> CoreModel:
    """Compile a model without data; it predicts and describes its layers, neither of which needs the likelihood."""
    n_inputs, n_outputs = spec.weights[0].shape[1], len(spec.biases[-1])
    plain = replace(spec, likelihood="gaussian", likelihood_parameters={"variance": np.ones(n_outputs)})
    return host_model(plain, np.empty((0, n_inputs)), np.empty((0, n_outputs)), np.empty(0), dtype=dtype, level=level)


def _is_strided(array: npt.NDArray[Any]) -> bool:
    """Return whether address and strides are multiples of the entries' size, as the engine requires."""
    return array.flags.aligned and all(stride % array.itemsize == 0 for stride in array.strides)


class CompiledModels:
    """The compiled models of one posterior, one on the host and one for each device, each built at its first use."""

    def __init__(
        self,
        spec: ModelSpec,
        inputs: Inputs,
        targets: FloatArray,
        row_weights: FloatArray,
        *,
        dtype: np.dtype[Any],
        level: str,
    ) -> None:
        self.spec = spec
        self.inputs = inputs
        self.targets = targets
        self.row_weights = row_weights
        self.dtype = dtype
        self.level = level
        self._on_devices: dict[str, Any] = {}

    @cached_property
    def host(self) -> Any:
        """The model on the host; inputs on a device are copied to the host for it."""
        return host_model(
            self.spec,
            self.inputs.host,
            self.targets,
            self.row_weights,
            dtype=self.dtype,
            level=self.level,
            in_place=self.inputs.in_place,
        )

    @property
    def has_host(self) -> bool:
        """Whether the model on the host has been built."""
        return "host" in vars(self)

    @cached_property
    def _without_rows(self) -> CoreModel:
        """A model without data, see `planned_model`."""
        return planned_model(self.spec, dtype=self.dtype, level=self.level)

    @property
    def planned(self) -> Any:
        """A model that can predict and describe its layers: the host's if it has been built, else one without data."""
        return self.host if self.has_host else self._without_rows

    def on_device(self, device: str) -> Any:
        """Return the model in a device's memory, building it at the first use."""
        if device not in self._on_devices:
            self._on_devices[device] = join_on_device(device, [self])
        return self._on_devices[device]

    def data_set(self, device: str) -> DataSet:
        """Return the specification and the data in the layout of a device."""
        X = self.inputs.for_device(device)
        build: Any = _core.DataSet32 if self.dtype == np.float32 else _core.DataSet64
        data_set: DataSet = build(
            self.spec.core,
            targets=self.targets,
            row_weights=self.row_weights,
            inputs=X if isinstance(X, _core.DeviceInputs) or X.flags.forc else np.ascontiguousarray(X),
            device=device,
        )
        return data_set


def join_on_device(device: str, models: Sequence[CompiledModels]) -> Any:
    """Build one model of several posteriors in a device's memory, so that one launch can run them all."""
    build: Any = _core.DeviceModel32 if models[0].dtype == np.float32 else _core.DeviceModel64
    return build(device, [model.data_set(device) for model in models])
