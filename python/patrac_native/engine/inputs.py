"""The inputs of a posterior, on the host, or in another library's array on a device, which is imported without a copy.

Inputs on a device are checked there, and copied to the host on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.engine.allocation import check_extent
from patrac_native.validation.checks import (
    CUDA,
    MANAGED,
    cast_checked,
    check_finite,
    check_inputs_keeping_dtype,
    check_matrix_shape,
    is_tensor,
    place_of,
)
from patrac_native.validation.columns import in_order

# The dtypes that a device reads without conversion; inputs of other dtypes are copied to the host.
_DEVICE_DTYPES = ("uint8", "float32", "float64")

# The handle of CUDA's legacy default stream (cudaStreamLegacy), as DLPack and the CUDA array interface pass it.
_LEGACY_STREAM = 1


@dataclass(frozen=True)
class InputsOnDevice:
    """Inputs (n, d) in the memory of a device, which `sample` calls "cuda" or, in tests, "emulated:N"."""

    device: str
    core: _core.DeviceInputs

    @property
    def place(self) -> str:
        """The device with its index, such as "cuda:0"."""
        kind, index = self.core.place
        return f"cuda:{index}" if kind == CUDA else self.device

    def is_readable_on(self, device: str) -> bool:
        """Return whether a run on `device` can read the inputs without a copy to the host."""
        return device.split(":")[0] == self.device.split(":")[0]

    def fetch(self) -> npt.NDArray[Any]:
        """Copy the inputs to the host; their dtype is kept."""
        return self.core.fetch()


def import_device_inputs(
    X: Any, n_inputs: int, *, n_layers: int, dtype: np.dtype[Any], copy: bool
) -> InputsOnDevice | None:
    """Import inputs that are on a device, without copying them to the host."""
    if is_tensor(X):
        X = X.detach()  # torch does not export tensors that require grad
    try:
        return _imported(X, n_inputs, n_layers=n_layers, dtype=dtype, copy=copy)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if str(error).startswith("X"):
            raise
        raise TypeError(
            f"X: its library does not say what it is ({error!r}); give an array that it has made."
        ) from error


def _imported(X: Any, n_inputs: int, *, n_layers: int, dtype: np.dtype[Any], copy: bool) -> InputsOnDevice | None:
    """Import inputs that are on a device; errors of what X says of itself are of any type."""
    device = _device_of(X)
    if device is None or n_layers > _core.MAX_DEVICE_LAYERS:
        return None
    interface = None if place_of(X) is not None else X.__cuda_array_interface__
    if _dtype_name(X, interface) not in _DEVICE_DTYPES or not _core.device_status(device)["usable"]:
        return None
    check_matrix_shape(tuple(X.shape if interface is None else interface["shape"]), n_inputs, "X")
    inputs = _from_dlpack(X, device, copy) if interface is None else _from_pointer(X, interface, device, copy)
    imported = InputsOnDevice(device, inputs)
    if inputs.dtype != "uint8" and inputs.bad_entries(float(np.finfo(dtype).max)):
        # The checks of the host raise, with a message that names column and row.
        host = imported.fetch()
        check_finite(host, "X")
        cast_checked(host, dtype, "X")
    return imported


def _device_of(X: Any) -> str | None:
    """Return the device's name for `sample`; None for the host and for devices that the engine does not support."""
    emulated = getattr(type(X), "emulated_device", None)
    if emulated is not None:  # an array of the tests, which is in host memory
        return str(emulated)
    place = place_of(X)
    if place is None:
        return "cuda" if hasattr(X, "__cuda_array_interface__") else None
    return "cuda" if place[0] in (CUDA, MANAGED) else None


def _dtype_name(X: Any, interface: dict[str, Any] | None) -> str:
    """Return the name of the dtype of any library's array, such as "float32"."""
    if interface is None:
        return str(X.dtype).rsplit(".", maxsplit=1)[-1]  # torch writes torch.float32
    dtype = np.dtype(interface["typestr"])
    return str(dtype.name if dtype.isnative else dtype.str)


def _from_dlpack(X: Any, device: str, copy: bool) -> _core.DeviceInputs:
    """Import X from its DLPack capsule; X's library makes the given stream wait for pending work on X."""
    stream = _LEGACY_STREAM if device == "cuda" else 0
    stream_argument = {"stream": stream} if stream else {}
    try:
        try:
            capsule = X.__dlpack__(max_version=(1, 0), **stream_argument)
        except TypeError:  # a library from before DLPack 1.0, without max_version
            capsule = X.__dlpack__(**stream_argument)
    except Exception as error:
        # torch exports capsules of the current device only.
        if hasattr(X, "__cuda_array_interface__"):
            return _from_pointer(X, X.__cuda_array_interface__, device, copy)
        raise TypeError(
            f"X: its library does not hand it out ({error}). Give a dense array of the current device, or copy it to "
            "the host."
        ) from error
    return _core.DeviceInputs.from_dlpack(device, capsule, copy, stream)


def _from_pointer(X: Any, interface: dict[str, Any], device: str, copy: bool) -> _core.DeviceInputs:
    """Import X from its `__cuda_array_interface__` (https://numba.readthedocs.io, version 3)."""
    if interface.get("mask") is not None:
        raise ValueError("X has a mask, which a device does not read; leave the masked rows out.")
    rows, columns = interface["shape"]
    dtype = np.dtype(interface["typestr"])
    pointer, strides = interface["data"][0], interface.get("strides") or (columns * dtype.itemsize, dtype.itemsize)
    check_extent(pointer, (rows, columns), strides, dtype.itemsize, on_gpu=device == "cuda")
    return _core.DeviceInputs.from_pointer(
        device=device,
        owner=X,
        pointer=pointer,
        kind=dtype.kind,
        shape=(rows, columns),
        strides=strides,
        itemsize=dtype.itemsize,
        copy=copy,
        # In version 3, None means that no synchronisation is needed. Earlier versions, such as torch's version 2, do
        # not name a stream, so the import waits for all of them.
        stream=(interface.get("stream") or 0) if interface.get("version", 0) >= 3 else _core.ALL_STREAMS,
    )


class Inputs:
    """Validated inputs (n, d) of dtype uint8, float32 or float64; `in_place` tells that X itself is kept, no copy."""

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
