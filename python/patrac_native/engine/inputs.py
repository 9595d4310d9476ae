"""The inputs of a posterior, on the host or on a device; those on a device are copied to the host on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.engine.device_inputs import InputsOnDevice, import_device_inputs
from patrac_native.validation.checks import check_inputs_keeping_dtype
from patrac_native.validation.columns import in_order


class Inputs:
    """Validated inputs, shape (n, d), of dtype uint8, float32 or float64.

    Attributes
    ----------
    on_device : InputsOnDevice or None
        The inputs, if they were given on a device that the engine can use; else None.
    in_place : bool
        Whether X itself is kept, rather than a copy.
    """

    def __init__(
        self,
        X: Any,
        n_inputs: int,
        *,
        n_layers: int,
        dtype: np.dtype[Any],
        copy: bool,
        columns: Sequence[str] | None = None,
    ) -> None:
        X = in_order(X, columns)
        self.in_place = not copy
        self.on_device: InputsOnDevice | None = import_device_inputs(
            X, n_inputs, n_layers=n_layers, dtype=dtype, copy=copy
        )
        self._host: npt.NDArray[Any] | None = None
        if self.on_device is None:
            checked = check_inputs_keeping_dtype(X, n_inputs)
            self._host = _read_only(checked.copy(order="K") if copy else checked.view())

    @property
    def n_rows(self) -> int:
        """n, the number of rows."""
        return len(self.host) if self.on_device is None else self.on_device.core.shape[0]

    @property
    def host(self) -> npt.NDArray[Any]:
        """The inputs on the host, read-only; inputs on a device are copied at the first use."""
        if self._host is None:
            assert self.on_device is not None  # the constructor sets one of the two
            self._host = _read_only(self.on_device.fetch())
        return self._host

    def for_device(self, device: str) -> npt.NDArray[Any] | _core.DeviceInputs:
        """Return what a data set on `device` reads: the inputs on that device if they are there, else the host's."""
        inputs = self.on_device
        return inputs.core if inputs is not None and inputs.is_readable_on(device) else self.host


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[np.generic]:
    """Mark an array as read-only and return it."""
    array.flags.writeable = False
    return array
