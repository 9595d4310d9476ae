"""The inputs of a posterior: on the host, or on a device and copied to the host where they are needed there."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.engine.device_inputs import InputsOnDevice, take_inputs
from patrac_native.validation.checks import check_inputs_as_they_are


class Inputs:
    """Checked inputs, shape (n, d), of type uint8, float32 or float64.

    Parameters
    ----------
    X : array_like or array on a device, shape (n, d)
        See `Posterior`.
    n_inputs : int
        d, which X must have.
    n_layers : int
        Layers of weights of the network that reads them; a device runs no more than `MAX_DEVICE_LAYERS`.
    dtype : dtype
        Type of the engine's arithmetic, whose range they must not exceed.
    copy : bool
        Whether to keep a copy of X.

    Attributes
    ----------
    on_device : InputsOnDevice or None
        Those that came on a device; None for those of the host.
    in_place : bool
        Whether X itself is kept.

    Raises
    ------
    TypeError, ValueError
        For an X that does not fit, naming it.
    """

    def __init__(self, X: Any, n_inputs: int, *, n_layers: int, dtype: np.dtype[Any], copy: bool) -> None:
        self.in_place = not copy
        self.on_device: InputsOnDevice | None = take_inputs(X, n_inputs, n_layers=n_layers, dtype=dtype, copy=copy)
        self._host: npt.NDArray[Any] | None = None
        if self.on_device is None:
            checked = check_inputs_as_they_are(X, n_inputs)
            self._host = _read_only(checked.copy(order="K") if copy else checked.view())

    @property
    def n_rows(self) -> int:
        """n."""
        return len(self.host) if self.on_device is None else self.on_device.core.shape[0]

    @property
    def host(self) -> npt.NDArray[Any]:
        """The inputs on the host, read-only; those on a device are copied at the first use."""
        if self._host is None:
            assert self.on_device is not None  # one of the two is there
            self._host = _read_only(self.on_device.fetch())
        return self._host

    def for_device(self, device: str) -> npt.NDArray[Any] | _core.DeviceInputs:
        """Return what a data set on `device` takes: the inputs where they are, or those of the host."""
        there = self.on_device
        return there.core if there is not None and there.are_read_by(device) else self.host


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[np.generic]:
    array.flags.writeable = False
    return array
