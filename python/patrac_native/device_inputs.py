"""Inputs that another library has on a device: found, taken over where they are, and checked there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native import _core
from patrac_native.device import EMULATED
from patrac_native.dlpack import CUDA, EXTENSION, MANAGED, place_of
from patrac_native.validation import cast_checked, check_finite, check_matrix_shape

if TYPE_CHECKING:
    from patrac_native.partial_network import PartialNetwork

# What a device reads as it is; other types come by way of the host.
_TYPES = ("uint8", "float32", "float64")


@dataclass(frozen=True)
class DeviceInputs:
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


def take_inputs(X: Any, network: PartialNetwork, *, copy: bool) -> DeviceInputs | None:
    """Take inputs over where they are on a device.

    Parameters
    ----------
    X : object
        Anything. On a CUDA device is what has `__dlpack_device__` and says so, or `__cuda_array_interface__`.
    network : PartialNetwork
        Whose inputs they are, and whose dtype's range they must not exceed.
    copy : bool
        Whether to copy them there, so that they may change afterwards.

    Returns
    -------
    DeviceInputs, or None
        None for inputs on the host, of another type than uint8, float32 and float64, on a device that this build
        cannot use, or of a network that is too deep for one: those go by way of the host.

    Raises
    ------
    ValueError
        If the shape is not (n, d), n is 0, or an entry is not finite or beyond the dtype, as for inputs on the host.
    """
    X = X.detach() if hasattr(X, "detach") else X  # torch hands out nothing that requires grad
    device = _device_of(X)
    if device is None or _type_of(X) not in _TYPES or len(network.layer_sizes) - 1 > _core.MOST_DEVICE_LAYERS:
        return None
    if not _core.device_status(device)["usable"]:
        return None
    check_matrix_shape(tuple(X.shape), network.n_inputs, "X")
    inputs = (
        _by_pointer(X, copy)
        if place_of(X) is None
        else _core.DeviceInputs.from_dlpack(device, _capsule(X, device), copy)
    )
    taken = DeviceInputs(device, inputs)
    if inputs.dtype != "uint8" and inputs.bad_entries(float(np.finfo(network.dtype).max)):
        host = taken.fetch()
        check_finite(host, "X")
        cast_checked(host, network.dtype, "X")
    return taken


def _device_of(X: Any) -> str | None:
    """The device's name for `sample`, or None for the host and for devices that are none of ours."""
    place = place_of(X)
    if place is None:
        return "cuda" if hasattr(X, "__cuda_array_interface__") else None
    kind, index = place
    if kind == EXTENSION:
        return f"{EMULATED}{index}"
    return "cuda" if kind in (CUDA, MANAGED) else None


def _type_of(X: Any) -> str:
    """Such as "float32", of arrays of any library."""
    if place_of(X) is not None:
        return str(X.dtype).rsplit(".", maxsplit=1)[-1]  # torch says torch.float32
    return str(np.dtype(X.__cuda_array_interface__["typestr"]).name)


def _capsule(X: Any, device: str) -> Any:
    """X as a DLPack capsule, what was asked of it so far being done before the legacy default stream goes on."""
    stream = {"stream": 1} if device == "cuda" else {}
    try:
        return X.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:  # from before DLPack 1.0
        return X.__dlpack__(**stream)


def _by_pointer(X: Any, copy: bool) -> _core.DeviceInputs:
    """X by its `__cuda_array_interface__`."""
    interface = X.__cuda_array_interface__
    rows, columns = interface["shape"]
    dtype = np.dtype(interface["typestr"])
    return _core.DeviceInputs.from_pointer(
        device="cuda",
        owner=X,
        pointer=interface["data"][0],
        kind=dtype.kind,
        shape=(rows, columns),
        strides=interface.get("strides") or (columns * dtype.itemsize, dtype.itemsize),
        itemsize=dtype.itemsize,
        copy=copy,
    )
