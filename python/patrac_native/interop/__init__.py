"""What other libraries take: densities for JAX, C, nutpie and PyTorch, and trees of arrays for ArviZ.

Functions of a compiled `Density`, which `Posterior` calls, and of arrays with named axes, which draws call.
"""

from patrac_native.interop.c_interface import CDensity
from patrac_native.interop.jax_function import to_jax
from patrac_native.interop.nutpie_model import to_nutpie

__all__ = ["CDensity", "to_jax", "to_nutpie"]
