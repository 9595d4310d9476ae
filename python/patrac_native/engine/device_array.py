"""Draws that stay in a device's memory, for other libraries to take over without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.validation.dlpack import CUDA, HOST

# Before 2.1 NumPy's arrays knew one version of DLPack.
_OLD_NUMPY = np.lib.NumpyVersion(np.__version__) < "2.1.0"


class DeviceArray:
    """Draws theta in a device's memory, shape (chain, draw, K), which `Draws.device_theta` gives.

    `torch.from_dlpack`, `cupy.from_dlpack`, `jax.dlpack.from_dlpack` and what else reads DLPack or, on a GPU,
    `__cuda_array_interface__` take it over where it is: they share the memory, so what one writes there the others see.
    The memory stays until the last of them is gone, after the draws and the model too. All work on it is done when
    `sample` returns, so any stream may read it at once; who writes there waits for the writing to end before others
    read. `numpy.asarray` copies it to the host.

    Attributes
    ----------
    shape : tuple of three ints
        (chain, draw, K).
    dtype : numpy.dtype
        The posterior's.
    strides : tuple of three ints
        Bytes from entry to entry along each axis. Chains of an interrupted run lie as far apart as the whole run would
        have made them.
    device : str
        Such as "cuda:0"; "cpu" where the device is emulated.
    """

    def __init__(self, tensor: _core.DeviceTensor) -> None:
        self._tensor = tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        """(chain, draw, K)."""
        return self._tensor.shape

    @property
    def ndim(self) -> int:
        """Three."""
        return 3

    @property
    def dtype(self) -> np.dtype[Any]:
        """The posterior's."""
        return np.dtype(np.float32 if self._tensor.element_bytes == 4 else np.float64)

    @property
    def strides(self) -> tuple[int, int, int]:
        """Bytes from entry to entry along each axis."""
        return self._tensor.strides

    @property
    def device(self) -> str:
        """Such as "cuda:0"; "cpu" where the device is emulated."""
        kind, index = self._tensor.place
        return "cpu" if kind == HOST else f"cuda:{index}"

    def part(self, first_chain: int, chains: int, draws: int) -> DeviceArray:
        """The first `draws` draws of `chains` chains from `first_chain` on, in the same memory."""
        return DeviceArray(self._tensor.part(first_chain, chains, draws))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Copy to the host."""
        if copy is False:
            raise ValueError(
                "copy=False: an array on a device comes to the host as a copy; take it there (torch.from_dlpack)."
            )
        return self._tensor.fetch().astype(self.dtype if dtype is None else dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and index of the device: (2, index) on a GPU, (1, 0) where it is emulated."""
        return self._tensor.place

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Hand the array out as a DLPack capsule, as the array API standard describes.

        Parameters
        ----------
        stream
            Where the taker will read; nothing has to be waited for.
        max_version : tuple of two ints, optional
            The newest version of DLPack that the taker knows; None is one before 1.0.
        dl_device : tuple of two ints, optional
            Where the taker wants it: where it is, or (1, 0), the host, as a copy.
        copy : bool, optional
            True is possible on the host alone.

        Raises
        ------
        BufferError
            For another device, or a copy on a GPU.
        """
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
        """Version 3 of CUDA's array interface; an AttributeError where the device is emulated."""
        if self._tensor.place[0] != CUDA:
            raise AttributeError(f"__cuda_array_interface__: theta is on {self.device}")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._tensor.pointer, False),
            "strides": self.strides,
            "stream": None,  # nothing to wait for
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype.name}, device={self.device!r})"
