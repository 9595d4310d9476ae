"""The compiled engine: the extension `_core`, models built from plain arrays, devices and the arrays on them.

Public: DeviceArray, build_info, device_status, and what benchmarks measure with: simd_levels, default_simd_level,
thread_count and testing, the core's functions for tests. This package imports nothing from what stands above it.
"""

from patrac_native.engine import _core
from patrac_native.engine.build_info import build_info
from patrac_native.engine.device import device_status
from patrac_native.engine.device_array import DeviceArray
from patrac_native.engine.threads import thread_count

default_simd_level = _core.default_simd_level
simd_levels = _core.simd_levels
testing = _core.testing

__all__ = [
    "DeviceArray",
    "build_info",
    "default_simd_level",
    "device_status",
    "simd_levels",
    "testing",
    "thread_count",
]
