"""A target: a log-likelihood that is given as a function, under an independent Gaussian prior."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.engine.foreign import ForeignModel, function_address
from patrac_native.kernels.facts import ModelFacts
from patrac_native.posterior.sampled_density import SampledDensity
from patrac_native.validation.checks import FloatArray, as_real_array, check_finite

# What `predict` of a Target may be: of theta (K,), or (B, K) where the function is batched, and X.
Predict = Callable[[npt.NDArray[np.float64], Any], npt.ArrayLike]


@dataclass(frozen=True)
class _FunctionFacts:
    """What the choices of kernel and device ask about a likelihood, for one that is a function."""

    label: str = "function's"
    is_quadratic: bool = False
    integrates_outputs: bool = False
    noise_by_row: bool = False
    scale_name: str | None = None
    is_conjugate: bool = False

    def __repr__(self) -> str:
        return "a function"


class Target(SampledDensity):
    """A density proportional to exp(l(theta)) N(theta; 0, C) for `sample`, with l given as a function and C diagonal.

    Arithmetic is in float64.

    Parameters
    ----------
    log_likelihood_and_grad : callable, C function or address
        Returns l(theta) and its gradient (K,) for theta (K,). Points at which either is not finite are rejected and
        counted. One of

        - a Python callable: theta (K,) -> (value, gradient). Chains call it one after the other, with the GIL. An
          exception ends the run and is raised.
        - a C function `int f(size_t n, const double *x, double *grad, double *logp, void *ctx)`: a numba `cfunc`, a
          ctypes function, a PyCapsule or an address (int). Chains call it on their threads at the same time, without
          the GIL. It returns 0; any other number ends the run with RuntimeError.
    prior_variance : array_like, shape (K,)
        Diagonal of C, positive and finite.
    batched : bool
        Whether the function evaluates points (B, K) and returns values (B,) and gradients (B, K); default False. As a C
        function it is `int f(size_t batch, size_t n, const double *x, double *grad, double *logp, void *ctx)`. The
        chains then make each step together, and one call with B = chains evaluates all of them; a chain that does not
        advance keeps its row, so that no row's rounding depends on the timing of threads. The numbers of a row must not
        depend on the other rows.
    predict : callable, optional
        Predictions for theta (K,) and the X of `TargetDraws.predict`: an array (n,) or (n, m). With `batched`, for
        theta (B, K), an array (B, n) or (B, n, m).
    context : int, ctypes pointer or PyCapsule, optional
        The last argument of a C function; by default a null pointer. What it points to must live as long as the target,
        which keeps a reference to the given object.

    Attributes
    ----------
    predict : callable or None
        As given.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import numpy as np
    >>> import patrac_native as pn
    >>> target = pn.Target(lambda theta: (-0.5 * ((theta - 1) ** 2).sum(), 1 - theta), prior_variance=np.ones(3))
    >>> draws = pn.sample(target, chains=2, draws=500, seed=0)
    >>> draws.theta.shape
    (2, 500, 3)
    """

    nonfinite_remedy = "find where the function is not finite"

    def __init__(
        self,
        log_likelihood_and_grad: Any,
        prior_variance: npt.ArrayLike,
        *,
        batched: bool = False,
        predict: Predict | None = None,
        context: Any = None,
    ) -> None:
        variance = as_real_array(prior_variance, "prior_variance")
        if variance.ndim != 1 or not len(variance):
            raise ValueError(f"prior_variance must have shape (K,), K >= 1; got {variance.shape}.")
        check_finite(variance[:, None], "prior_variance", "Rows count the entries.")
        if not (variance > 0).all():
            where = int(np.argmin(variance))
            raise ValueError(f"prior_variance must be positive; got {variance[where]:g} at entry {where}.")
        if not isinstance(batched, bool):
            raise TypeError(f"batched must be True or False; got {batched!r}.")
        if predict is not None and not callable(predict):
            raise TypeError(f"predict must be a function of theta and X; got {type(predict).__name__}.")
        self._prior_variance = np.ascontiguousarray(variance, dtype=np.float64)
        self._prior_variance.flags.writeable = False
        self.predict = predict
        self.batched = batched
        function = function_address(log_likelihood_and_grad, "log_likelihood_and_grad")
        if function is None:
            if not callable(log_likelihood_and_grad):
                raise TypeError(
                    "log_likelihood_and_grad must be a callable, a C function or its address; got "
                    f"{type(log_likelihood_and_grad).__name__}."
                )
            if context is not None:
                raise ValueError("context is the last argument of a C function: leave it out for a Python callable.")
        self._compiled = ForeignModel(
            log_likelihood_and_grad if function is None else function,
            0 if context is None else _context_address(context),
            batched=batched,
            level=_core.default_simd_level(),
            keep_alive=(log_likelihood_and_grad, context),
        )

    @property
    def dim(self) -> int:
        """K, the number of parameters."""
        return len(self._prior_variance)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64."""
        return np.dtype(np.float64)

    @property
    def level(self) -> str:
        """Instruction-set level of the compiled steps."""
        return self._compiled.level

    @property
    def prior_variance(self) -> FloatArray:
        """Diagonal of C, shape (K,)."""
        return self._prior_variance

    @property
    def compiled(self) -> ForeignModel:
        """What runs the chains."""
        return self._compiled

    @property
    def facts(self) -> ModelFacts:
        """The facts on which the choice of kernel and device depends."""
        return ModelFacts(
            likelihood=_FunctionFacts(),
            architecture="a Target",
            dim=self.dim,
            hidden_dim=self.dim,
            n_layers=0,
            max_hidden_width=0,
            is_last_layer_gaussian=False,
            sampled_variances=None,
            noise_prior_source=None,
            samples_scales=False,
            interweaves=False,
            inputs_on_device=None,
            rotation_obstacle="there are none: the log-likelihood is a function",
            curvature_obstacle="there are none: the log-likelihood is a function",
            input_spread=None,
            device_obstacle="the log-likelihood is a function of the host",
        )

    @property
    def map_start(self) -> None:
        """None: a function has no trained values."""
        return None

    @property
    def is_trained(self) -> bool:
        """False: init="auto" draws from the prior."""
        return False

    def prior_start(self, seed: int, chain: int) -> npt.NDArray[Any]:
        """Draw the first state of a chain from the prior, shape (K,)."""
        normals = _core.standard_normals64(
            seed=seed, chain=chain, step=0, purpose=_core.Purpose.init, steps=1, count=self.dim, level=self.level
        )
        start: npt.NDArray[Any] = normals[0] * np.sqrt(self._prior_variance)
        return start

    def log_likelihood_and_grad(self, theta: npt.ArrayLike) -> tuple[float | FloatArray, FloatArray]:
        """Evaluate the function as the chains do.

        Parameters
        ----------
        theta : array_like, shape (K,) or (B, K)
            Finite.

        Returns
        -------
        value : float, or ndarray of shape (B,)
        gradient : ndarray, shape (K,) or (B, K)

        Raises
        ------
        TypeError, ValueError
            If theta is not as described, or the function returns something else; also whatever the function raises.
        """
        values = as_real_array(theta, "theta")
        if values.ndim not in (1, 2) or values.shape[-1] != self.dim:
            raise ValueError(f"theta must have shape (K,) or (B, K) with K = {self.dim}; got {values.shape}.")
        batch = np.ascontiguousarray(values.reshape(-1, self.dim), dtype=np.float64)
        check_finite(batch, "theta", "Rows count the points, columns the entries of theta.")
        value, gradient = self._compiled.evaluate(batch)
        return (float(value[0]), gradient[0]) if values.ndim == 1 else (value, gradient)

    def log_prior(self, theta: npt.ArrayLike) -> np.float64 | FloatArray:
        """Evaluate log N(theta; 0, C), normalised.

        Parameters
        ----------
        theta : array_like, shape (..., K)

        Returns
        -------
        float64 or ndarray, shape (...)

        Raises
        ------
        TypeError, ValueError
            If theta does not hold real numbers, or its last axis does not have K entries.
        """
        values = as_real_array(theta, "theta")
        if values.ndim == 0 or values.shape[-1] != self.dim:
            raise ValueError(f"theta must have {self.dim} entries on its last axis; got shape {values.shape}.")
        squares = values**2 / self._prior_variance + np.log(2 * math.pi * self._prior_variance)
        result: np.float64 | FloatArray = -0.5 * squares.sum(axis=-1)
        return result

    def __repr__(self) -> str:
        return f"Target(K={self.dim}{', batched=True' if self.batched else ''})"


def _context_address(context: Any) -> int:
    """Return the address that a context means."""
    address = function_address(context, "context")
    if address is not None:
        return address
    if isinstance(context, ctypes.c_void_p):
        return context.value or 0
    if isinstance(context, ctypes._Pointer):
        return ctypes.cast(context, ctypes.c_void_p).value or 0
    raise TypeError(f"context must be an address, a ctypes pointer or a PyCapsule; got {type(context).__name__}.")
