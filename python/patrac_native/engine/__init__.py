"""The compiled engine: the extension `_core`, models built from plain arrays, devices and the arrays on them.

Public: DeviceArray, build_info, device_status. This package imports nothing from what stands above it.
"""
