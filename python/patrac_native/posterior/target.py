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
from patrac_native.kernels import Kernel
from patrac_native.kernels.facts import ModelFacts
from patrac_native.kernels.metric import Metric
from patrac_native.posterior.data_parallel import SharedRows
from patrac_native.posterior.fit_quality import FitQuality
from patrac_native.posterior.last_layer import WhitenedQuadratic
from patrac_native.posterior.noise import Noise
from patrac_native.posterior.posterior import Posterior
from patrac_native.priors.scales import ScaleGroups
from patrac_native.validation.checks import FloatArray, as_real_array, check_finite, check_variances

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


class SampledFunction:
    """The `SampledDensity` of a target: in float64, without noise, scales, a network or metrics of its own."""

    dtype: np.dtype[Any] = np.dtype(np.float64)
    scales: ScaleGroups | None = None
    noise: Noise | None = None
    quadratic: WhitenedQuadratic | None = None
    fit_quality: FitQuality | None = None
    nonfinite_remedy = "find where the function is not finite"

    def __init__(
        self,
        compiled: ForeignModel,
        prior_variance: FloatArray,
        start: FloatArray | None = None,
        *,
        is_trained: bool = False,
    ) -> None:
        self.compiled, self.level = compiled, compiled.level
        self.dim, self.prior_variance = len(prior_variance), prior_variance
        self.theta_map, self.is_trained = start, is_trained
        self.cautions: list[str] = []
        self.facts = ModelFacts(
            likelihood=_FunctionFacts(),
            architecture="a Target",
            dim=self.dim,
            hidden_dim=self.dim,
            rotation_obstacle="there are none: the log-likelihood is a function",
            curvature_obstacle="there are none: the log-likelihood is a function",
            device_obstacle="the log-likelihood is a function of the host",
        )

    def prior_start(self, seed: int, chain: int) -> npt.NDArray[Any]:
        """Draw the first state of a chain from the prior, shape (K,)."""
        normals = _core.standard_normals64(
            seed=seed, chain=chain, step=0, purpose=_core.Purpose.init, steps=1, count=self.dim, level=self.level
        )
        start: npt.NDArray[Any] = normals[0] * np.sqrt(self.prior_variance)
        return start

    def metric_of(self, kernel: Kernel) -> Metric | None:
        """Return None: chains step in theta, all alike."""
        return None

    def variance_every(self, kernel: Kernel) -> int:
        """Return 1: no variance is sampled."""
        return 1


class Target:
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
    sampled : SampledFunction
        What a run needs besides.

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
        check_variances(variance, "prior_variance", "")
        if not isinstance(batched, bool):
            raise TypeError(f"batched must be True or False; got {batched!r}.")
        if predict is not None and not callable(predict):
            raise TypeError(f"predict must be a function of theta and X; got {type(predict).__name__}.")
        variance = np.ascontiguousarray(variance, dtype=np.float64)
        variance.flags.writeable = False
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
        compiled = ForeignModel(
            log_likelihood_and_grad if function is None else function,
            0 if context is None else _context_address(context),
            batched=batched,
            level=_core.default_simd_level(),
            keep_alive=(log_likelihood_and_grad, context),
        )
        self.sampled = SampledFunction(compiled, variance)

    @property
    def dim(self) -> int:
        """K, the number of parameters."""
        return self.sampled.dim

    @property
    def prior_variance(self) -> FloatArray:
        """Diagonal of C, shape (K,)."""
        return self.sampled.prior_variance

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
        value, gradient = self.sampled.compiled.evaluate(batch)
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
        squares = values**2 / self.prior_variance + np.log(2 * math.pi * self.prior_variance)
        result: np.float64 | FloatArray = -0.5 * squares.sum(axis=-1)
        return result

    @classmethod
    def data_parallel(cls, post: Posterior, group: Any = None) -> SharedRows[Target]:
        """Return the posterior of all rows, of which each process of `torch.distributed` holds its own.

        Every process makes the posterior of its rows, with the same network, architecture, prior and likelihood.
        Process 0 samples the target that its `with` block gives; the others evaluate their rows, `serve`, until it
        leaves the block. For an evaluation of all chains process 0 sends their theta and receives the sums of
        log-likelihoods and gradients, K + 1 numbers a chain. Which moves are proposed and accepted is decided in
        process 0 alone, so it depends on the seed and the rounding of the sums, and on no timing. An interrupt (Ctrl-C)
        of one of the processes is not handled: end all of them. Arithmetic of the chains and sums is in float64, that
        of an evaluation in the posterior's dtype.

        Parameters
        ----------
        post : Posterior
            Of the rows of this process: with fixed variances of noise and prior.
        group : torch.distributed.ProcessGroup, optional
            The processes; by default all. It must be one that reduces tensors of the host, such as gloo.

        Returns
        -------
        SharedRows
            With `rank`, the number of this process; `serve()` for the others; and the target in process 0.

        Raises
        ------
        TypeError
            If `post` is no `Posterior`.
        ValueError
            If its likelihood or prior is not supported, or differs between the processes.
        RuntimeError
            If torch.distributed has not been initialised; while sampling, if the evaluation of another process failed.

        Examples
        --------
        In each of two processes, of which `rank` is the number of this one::

            torch.distributed.init_process_group("gloo")
            post = pn.Posterior(net, pn.Mix(5), prior, pn.Gaussian(0.1), X[rank::2], y[rank::2])
            shared = pn.Target.data_parallel(post)
            if shared.rank:
                shared.serve()
            else:
                with shared as target:
                    draws = pn.sample(target, chains=4, draws=1000, seed=1)
        """
        shared = SharedRows[Target](post, group)
        target = cls(shared.summed, post.prior_variance, batched=True, predict=post.network.predict)
        target.sampled = SampledFunction(
            target.sampled.compiled, target.prior_variance, post.theta_map, is_trained=post.sampled.is_trained
        )
        shared.target = target
        return shared

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
