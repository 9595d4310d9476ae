"""Checks of arguments at the boundary: numbers, arrays, seeds, and where an array of another library lies."""
