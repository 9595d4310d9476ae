"""The log densities of a posterior for other libraries: JAX, PyTorch, C functions and nutpie."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from patrac_native.engine.density import DensitySpec
from patrac_native.engine.threads import thread_count
from patrac_native.interop.c_interface import CDensity
from patrac_native.interop.jax_function import jax_function
from patrac_native.interop.nutpie_model import nutpie_model
from patrac_native.posterior.densities import Coordinates, DensityKind, PosteriorDensities, check_choice
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import torch


class PosteriorBridges(PosteriorDensities):
    """Base class of `Posterior` with its log densities in the forms that other libraries take."""

    def to_jax(
        self,
        density: DensityKind = "likelihood",
        coordinates: Coordinates = "theta",
        variance: npt.ArrayLike | None = None,
        *,
        threads: int | None = 1,
    ) -> Callable[[Any], Any]:
        """Return a log density as a function of JAX, for `jit`, `grad`, `vmap` and `lax.scan` on the CPU.

        The function runs compiled, without Python; `grad` and `value_and_grad` evaluate value and gradient together,
        and `vmap` makes one call of all points. It has a reverse-mode derivative, once. See docs/bridges/jax.md.

        Parameters
        ----------
        density, coordinates, variance
            As for `density`.
        threads : int or None
            Native threads that share the points of a batched call; None means the number of processors that this
            process may use. Default 1: starting a thread takes longer than a small network.

        Returns
        -------
        callable
            From an array of shape (..., D), converted to `dtype`, to values of shape (...) and that dtype.

        Raises
        ------
        ImportError
            If jax is not installed or not supported (extra "jax").
        TypeError, ValueError
            As `density`. A posterior of dtype float64 needs JAX's 64-bit mode when the function is called.
        """
        return jax_function(self.density(density, coordinates, variance), thread_count(threads))

    def to_torch(
        self,
        density: DensityKind = "likelihood",
        coordinates: Coordinates = "theta",
        variance: npt.ArrayLike | None = None,
        *,
        threads: int | None = 1,
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return a log density as a function of torch tensors, for autograd and `torch.func`; docs/bridges/pytorch.md.

        Its gradient is evaluated together with the value where autograd or a transform such as `grad`,
        `grad_and_value` or `vmap(grad)` records it, and `vmap` makes one native call of all points. A second derivative
        raises RuntimeError.

        Parameters
        ----------
        density, coordinates, variance
            As for `density`.
        threads : int or None
            Native threads that share the points of a call; None means the number of processors that this process may
            use. Default 1: starting a thread takes longer than a small network.

        Returns
        -------
        callable
            From a tensor of shape (..., D) on the CPU, converted to `dtype`, to values of shape (...) and that dtype.

        Raises
        ------
        TypeError, ValueError
            As `density`.
        """
        from patrac_native.interop.torch_function import torch_function

        return torch_function(self.density(density, coordinates, variance), thread_count(threads))

    def c_api(
        self,
        density: DensityKind = "likelihood",
        coordinates: Coordinates = "theta",
        variance: npt.ArrayLike | None = None,
        *,
        threads: int | None = 1,
    ) -> CDensity:
        """Return a log density as C functions, for extension modules, numba, Julia and R; see docs/bridges/c.md.

        Parameters
        ----------
        density, coordinates, variance, threads
            As for `to_jax`.

        Returns
        -------
        CDensity
            With the capsules `function`, `batched` and `context`, and their addresses.

        Raises
        ------
        TypeError, ValueError
            As `density`.
        """
        return CDensity(self.density(density, coordinates, variance), thread_count(threads))

    def to_nutpie(
        self,
        density: Literal["posterior", "collapsed_posterior"] = "posterior",
        coordinates: Coordinates = "whitened",
        variance: npt.ArrayLike | None = None,
    ) -> Any:
        """Return a model for `nutpie.sample`, whose chains run in threads of their own; see docs/bridges/nutpie.md.

        Chains start around the trained values, a tenth of the prior's standard deviation away. The variables of the
        result are theta, or theta_h, and, with "+log_variance", variance.

        Parameters
        ----------
        density : {"posterior", "collapsed_posterior"}
            Default "posterior".
        coordinates : str
            As for `density`; default "whitened".
        variance : array_like, optional
            As for `density`.

        Returns
        -------
        nutpie.compiled_pyfunc.PyFuncModel

        Raises
        ------
        ImportError
            If nutpie is not installed (extra "nutpie").
        TypeError, ValueError
            As `density`; or if the density is not a posterior.
        """
        check_choice(density, ("posterior", "collapsed_posterior"), "density")
        native = self.density(density, coordinates, variance)
        return nutpie_model(native, *self._start(native.spec))

    def _start(self, spec: DensitySpec) -> tuple[FloatArray, FloatArray]:
        """Return the trained values in the coordinates of a posterior, and a tenth of the prior's deviations, (D,)."""
        entries = self.hidden_entries if spec.kind == "collapsed_posterior" else np.arange(self.dim)
        deviation = np.sqrt(self.prior_variance[entries])
        unit = deviation if spec.whitened else np.ones(len(entries))
        logarithms = np.log(self.starting_variances) if spec.log_variance else np.empty(0)
        start = np.concatenate([self.theta_map[entries] / unit, logarithms])
        spread = np.concatenate([0.1 * deviation / unit, np.full(len(logarithms), 0.1)])
        return start, spread
