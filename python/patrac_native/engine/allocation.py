"""The memory that an array on a GPU says it covers, compared with the allocations that CUDA's driver knows."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

# CU_POINTER_ATTRIBUTE_RANGE_START_ADDR and CU_POINTER_ATTRIBUTE_RANGE_SIZE of cuda.h.
_START, _SIZE = 11, 12
# CUDA_ERROR_INVALID_VALUE: the address is in no memory of CUDA.
_NO_MEMORY = 1


def allocation_of(address: int) -> range | None:
    """Return the addresses of the allocation that an address is in, empty if it is in none; None if it is not known."""
    try:
        query = ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute
    except (OSError, AttributeError):
        return None
    query.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
    start, size = ctypes.c_uint64(), ctypes.c_size_t()
    for attribute, found in ((_START, start), (_SIZE, size)):
        if error := query(ctypes.byref(found), attribute, address):
            return range(0) if error == _NO_MEMORY else None
    return range(start.value, start.value + size.value)


def check_extent(pointer: int, shape: Sequence[int], strides: Sequence[int], itemsize: int, *, on_gpu: bool) -> None:
    """Raise ValueError unless the bytes of an array lie in memory that can be its own.

    They must be addresses that a process has and, on a GPU whose driver knows the allocation of the first, lie in
    allocations without a gap: a large array may be mapped piece by piece. What a library's own allocator hands out
    within one allocation is not known to the driver, and not told apart.
    """
    ends = [(count - 1) * stride for count, stride in zip(shape, strides, strict=True)]
    first, last = pointer + sum(min(end, 0) for end in ends), pointer + sum(max(end, 0) for end in ends) + itemsize - 1
    what = (
        f"X: its __cuda_array_interface__ has shape {tuple(shape)} and strides {tuple(strides)} from {pointer:#x} on, "
        f"which takes the memory from {first:#x} to {last:#x}"
    )
    if pointer == 0 or first < 0 or last >= 2**64:
        raise ValueError(f"{what}; no array is there.")
    if not on_gpu or not allocation_of(pointer):  # the core refuses memory that is no device's
        return
    address = first
    while address <= last:
        allocation = allocation_of(address)
        if allocation is None:
            return
        if address not in allocation:
            raise ValueError(f"{what}; no allocation holds {address:#x}. Give an array that its library has made.")
        address = allocation.stop
