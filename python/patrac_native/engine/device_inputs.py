"""Inputs that another library has on a device: found, taken over where they are, and checked there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.validation.checks import cast_checked, check_finite, check_matrix_shape
from patrac_native.validation.dlpack import CUDA, MANAGED, place_of

# What a device reads as it is; other types come by way of the host.
_TYPES = ("uint8", "float32", "float64")

# CUDA's own number of its default stream.
_LEGACY_STREAM = 1


@dataclass(frozen=True)
class InputsOnDevice:
    """Inputs in a device's memory, shape (n, d)."""

    device: str
    core: _core.DeviceInputs

    @property
    def place(self) -> str:
        """Such as "cuda:0"."""
        kind, index = self.core.place
        return f"cuda:{index}" if kind == CUDA else self.device

    def are_read_by(self, device: str) -> bool:
        """Return whether a run on `device` reads them where they are."""
        return device.split(":")[0] == self.device.split(":")[0]

    def fetch(self) -> npt.NDArray[Any]:
        """Copy them to the host, in their own type."""
        return self.core.fetch()


def take_inputs(X: Any, n_inputs: int, *, n_layers: int, dtype: np.dtype[Any], copy: bool) -> InputsOnDevice | None:
    """Take inputs over where they are on a device.

    Parameters
    ----------
    X : object
        Anything. On a CUDA device is what has `__dlpack_device__` and says so, or `__cuda_array_interface__`.
    n_inputs, n_layers, dtype
        See `patrac_native.engine.inputs.Inputs`.
    copy : bool
        Whether to copy them there, so that they may change afterwards.

    Returns
    -------
    InputsOnDevice, or None
        None for inputs on the host, of another type than uint8, float32 and float64, on a device that this build
        cannot use, or of a network that is too deep for one: those go by way of the host.

    Raises
    ------
    ValueError
        If the shape is not (n, d), n is 0, an entry is not finite or beyond the dtype, as for inputs on the host; if X
        has a mask, or lies at addresses that are no multiples of its entries' size.
    TypeError
        If the other library does not hand X out, such as a sparse one.
    """
    if hasattr(X, "detach") and hasattr(X, "cpu"):
        X = X.detach()  # torch hands out nothing that requires grad
    device = _device_of(X)
    if device is None or n_layers > _core.MOST_DEVICE_LAYERS:
        return None
    interface = None if place_of(X) is not None else X.__cuda_array_interface__
    if _type_of(X, interface) not in _TYPES or not _core.device_status(device)["usable"]:
        return None
    check_matrix_shape(tuple(X.shape if interface is None else interface["shape"]), n_inputs, "X")
    inputs = _by_dlpack(X, device, copy) if interface is None else _by_pointer(X, interface, device, copy)
    taken = InputsOnDevice(device, inputs)
    if inputs.dtype != "uint8" and inputs.bad_entries(float(np.finfo(dtype).max)):
        host = taken.fetch()
        check_finite(host, "X")
        cast_checked(host, dtype, "X")
    return taken


def _device_of(X: Any) -> str | None:
    """The device's name for `sample`, or None for the host and for devices that are none of ours."""
    if hasattr(X, "emulated_device"):  # arrays of the tests, whose memory is the host's
        return str(X.emulated_device)
    place = place_of(X)
    if place is None:
        return "cuda" if hasattr(X, "__cuda_array_interface__") else None
    return "cuda" if place[0] in (CUDA, MANAGED) else None


def _type_of(X: Any, interface: dict[str, Any] | None) -> str:
    """Such as "float32", of arrays of any library."""
    if interface is None:
        return str(X.dtype).rsplit(".", maxsplit=1)[-1]  # torch says torch.float32
    return str(np.dtype(interface["typestr"]).name)


def _by_dlpack(X: Any, device: str, copy: bool) -> _core.DeviceInputs:
    """X by its capsule: its library makes the stream that it is given wait for what was asked of X so far."""
    stream = _LEGACY_STREAM if device == "cuda" else 0
    asked = {"stream": stream} if stream else {}
    try:
        try:
            capsule = X.__dlpack__(max_version=(1, 0), **asked)
        except TypeError:  # from before DLPack 1.0
            capsule = X.__dlpack__(**asked)
    except (BufferError, RuntimeError) as error:
        # torch hands capsules out of the current device alone.
        if hasattr(X, "__cuda_array_interface__"):
            return _by_pointer(X, X.__cuda_array_interface__, device, copy)
        raise TypeError(
            f"X: its library does not hand it out ({error}). Give a dense array of the current device, or copy it to "
            "the host."
        ) from error
    return _core.DeviceInputs.from_dlpack(device, capsule, copy, stream)


def _by_pointer(X: Any, interface: dict[str, Any], device: str, copy: bool) -> _core.DeviceInputs:
    """X by its `__cuda_array_interface__` (https://numba.readthedocs.io, version 3)."""
    if interface.get("mask") is not None:
        raise ValueError("X has a mask, which a device does not read; leave the masked rows out.")
    rows, columns = interface["shape"]
    dtype = np.dtype(interface["typestr"])
    return _core.DeviceInputs.from_pointer(
        device=device,
        owner=X,
        pointer=interface["data"][0],
        kind=dtype.kind,
        shape=(rows, columns),
        strides=interface.get("strides") or (columns * dtype.itemsize, dtype.itemsize),
        itemsize=dtype.itemsize,
        copy=copy,
        # None says that nothing is to be waited for. Before version 3 nothing was said, and torch says version 2.
        stream=(interface.get("stream") or 0) if interface.get("version", 0) >= 3 else _core.ALL_STREAMS,
    )
