"""What other libraries take: densities for JAX, C, nutpie and PyTorch, and trees of arrays for ArviZ.

Functions of a `NativeDensity`, which `Posterior` calls, and of arrays with named axes, which draws call; nothing here
imports the model.
"""
