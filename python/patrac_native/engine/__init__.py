"""What is compiled: the extension `_core`, the models built from plain arrays, and the devices with their arrays.

Public: DeviceArray, build_info, device_status. Nothing of `patrac_native.model` is imported here.
"""
