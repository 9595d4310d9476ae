"""Draws in a device's memory, which other libraries can use without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.validation.checks import CUDA, HOST

# Before NumPy 2.1, `ndarray.__dlpack__` had no `max_version` argument.
_OLD_NUMPY = np.lib.NumpyVersion(np.__version__) < "2.1.0"


class DeviceArray:
    """Draws of theta in a device's memory, shape (chain, draw, K), of `sample(..., keep_on_device=True)`.

    `torch.from_dlpack`, `cupy.from_dlpack`, `jax.dlpack.from_dlpack` and every other consumer of DLPack or, on a GPU,
    of `__cuda_array_interface__` share this memory without a copy, so a write through one array is visible in all.
    The memory is freed when the last of these arrays is deleted, which may be after the draws and the model. All work
    on it has finished when `sample` returns, so any CUDA stream may read it at once; a program that writes to it must
    synchronise before others read. `numpy.asarray` copies it to the host.
    """

    def __init__(self, tensor: _core.DeviceTensor) -> None:
        self._tensor = tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        """(chain, draw, K)."""
        return self._tensor.shape

    @property
    def ndim(self) -> int:
        """Number of axes, 3."""
        return 3

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the posterior, float32 or float64."""
        return np.dtype(np.float32 if self._tensor.element_bytes == 4 else np.float64)

    @property
    def strides(self) -> tuple[int, int, int]:
        """Bytes between neighbouring entries along each axis; an interrupted run keeps those of the complete run."""
        return self._tensor.strides

    @property
    def device(self) -> str:
        """The device's name, such as "cuda:0"; "cpu" if the device is emulated."""
        kind, index = self._tensor.place
        return "cpu" if kind == HOST else f"cuda:{index}"

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Copy the array to the host; raise ValueError for copy=False."""
        if copy is False:
            raise ValueError(
                "copy=False: an array on a device comes to the host as a copy; take it there (torch.from_dlpack)."
            )
        return self._tensor.fetch().astype(self.dtype if dtype is None else dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device type and the device's index: (2, index) on a GPU, (1, 0) if it is emulated."""
        return self._tensor.place

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the array as a DLPack capsule, as the array API standard specifies."""
        here = self._tensor.place
        wanted = here if dl_device is None else tuple(dl_device)
        if wanted[0] == HOST and (copy or here[0] != HOST):
            if copy is False:
                raise BufferError(f"copy=False: theta is on {self.device}, and comes to the host as a copy.")
            host = self._tensor.fetch()
            return host.__dlpack__() if max_version is None or _OLD_NUMPY else host.__dlpack__(max_version=max_version)
        if wanted != here or copy:
            raise BufferError(
                f"theta is on {self.device}: take it there, or on the host with numpy.asarray, and copy what you took."
            )
        return self._tensor.dlpack(max_version is not None and max_version[0] >= 1)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the CUDA array interface; raises AttributeError if the device is emulated."""
        if self._tensor.place[0] != CUDA:
            raise AttributeError(f"__cuda_array_interface__: theta is on {self.device}")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._tensor.pointer, False),
            "strides": self.strides,
            "stream": None,  # no synchronisation is needed
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype.name}, device={self.device!r})"
