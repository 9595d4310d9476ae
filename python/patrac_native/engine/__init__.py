"""The compiled engine: the extension `_core`, models built from plain arrays, devices and the arrays on them.

Public: DeviceArray, build_info, device_status, and what benchmarks measure with: simd_levels, default_simd_level,
thread_count, testing (the core's functions for tests) and the normals of a run by dtype, on the CPU and on a device.
This package imports nothing from what stands above it.
"""

from patrac_native.engine import _core
from patrac_native.engine.device_array import DeviceArray
from patrac_native.engine.machine import build_info, device_status, thread_count

default_simd_level = _core.default_simd_level
simd_levels = _core.simd_levels
testing = _core.testing
Purpose = _core.Purpose
standard_normals = {"float32": _core.standard_normals32, "float64": _core.standard_normals64}
device_normals = {"float32": _core.device_normals32, "float64": _core.device_normals64}

__all__ = [
    "DeviceArray",
    "Purpose",
    "build_info",
    "default_simd_level",
    "device_normals",
    "device_status",
    "simd_levels",
    "standard_normals",
    "testing",
    "thread_count",
]
