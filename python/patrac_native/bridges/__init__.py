"""Densities in the forms that other libraries take: JAX, the C interface and nutpie.

Functions of a `NativeDensity`, which `Posterior` calls; nothing here imports the model.
"""
