"""Checks of arguments at the boundary: numbers, arrays, seeds, and the device that holds another library's array.

Also `Complete`, the base of classes that must leave nothing out.
"""
