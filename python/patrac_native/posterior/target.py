"""A target: a log-likelihood given as a function, also one summed over processes, under an independent normal prior."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.engine.foreign import ForeignModel, function_address
from patrac_native.kernels import Kernel
from patrac_native.kernels.facts import FunctionLikelihood, ModelFacts
from patrac_native.kernels.metric import Metric
from patrac_native.network.network import network_digest
from patrac_native.posterior.last_layer import WhitenedQuadratic
from patrac_native.posterior.noise import Noise
from patrac_native.posterior.posterior import Posterior
from patrac_native.posterior.sampled_density import FitQuality
from patrac_native.priors.scales import ScaleGroups
from patrac_native.validation.checks import FloatArray, as_real_array, check_finite, check_variances
from patrac_native.validation.extras import import_extra

# What `predict` of a Target may be: of theta (K,), or (B, K) where the function is batched, and X.
Predict = Callable[[npt.NDArray[np.float64], Any], npt.ArrayLike]


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
            likelihood=FunctionLikelihood(),
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
        If an argument of the constructor or a method is not as described, or the function returns something else; also
        whatever the function raises.

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
        """
        values = as_real_array(theta, "theta")
        if values.ndim == 0 or values.shape[-1] != self.dim:
            raise ValueError(f"theta must have {self.dim} entries on its last axis; got shape {values.shape}.")
        squares = values**2 / self.prior_variance + np.log(2 * math.pi * self.prior_variance)
        result: np.float64 | FloatArray = -0.5 * squares.sum(axis=-1)
        return result

    @classmethod
    def data_parallel(cls, post: Posterior, group: Any = None) -> SharedRows:
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
        shared = SharedRows(post, group)
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


class SharedRows:
    """A posterior whose rows are shared out among processes; `Target.data_parallel` makes it and explains its use.

    Attributes
    ----------
    rank : int
        The number of this process in the group.
    target : Target
        The posterior of all rows, which process 0 samples; the `with` block gives it.
    """

    target: Target

    def __init__(self, post: Posterior, group: Any = None) -> None:
        import_extra("torch", "torch", "data_parallel")
        import torch.distributed as distributed

        if not isinstance(post, Posterior):
            raise TypeError(f"post must be a Posterior; got {type(post).__name__}.")
        if post.sampled.noise or post.network.scales:
            what = "noise variance is" if post.sampled.noise else "scales of the prior are"
            raise ValueError(f"post must have fixed variances; its {what} sampled, given all rows.")
        if post.likelihood.targets == "class" and getattr(post.likelihood, "scale", None) is not None:
            raise ValueError(f"post must have a likelihood that is a sum over rows; {post.likelihood!r} is a mean.")
        if not (distributed.is_available() and distributed.is_initialized()):
            raise RuntimeError(
                'data_parallel needs a process group: call torch.distributed.init_process_group("gloo", ...) in each '
                "process first."
            )
        self._post, self._dim = post, post.dim
        self.rank: int = distributed.get_rank(group)
        self._group = group
        self._leader = 0 if group is None else distributed.get_global_rank(group, 0)
        _check_equal(post, group)

    def serve(self) -> None:
        """Evaluate the rows of this process, which is not process 0, until that leaves its `with` block.

        Raises
        ------
        RuntimeError
            In process 0.
        Exception
            Whatever the first failing evaluation raised, at the end.
        """
        import torch

        if self.rank == 0:
            raise RuntimeError("process 0 samples, in a with block; the others serve.")
        failure: Exception | None = None
        while count := self._sent(torch.zeros(1, dtype=torch.int64)).item():
            theta = self._sent(torch.zeros(int(count), self._dim, dtype=torch.float64)).numpy()
            sums, error = self._own(theta)
            self._sum(sums)
            failure = failure or error
        if failure is not None:
            raise failure

    def __enter__(self) -> Target:
        if self.rank:
            raise RuntimeError(f"only process 0 samples; this is process {self.rank}, which must call serve().")
        return self.target

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        import torch

        self._sent(torch.zeros(1, dtype=torch.int64))

    def summed(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log-likelihoods (B,) and gradients (B, K) of the rows of all processes; in process 0."""
        import torch

        if self.rank:
            raise RuntimeError(f"only process 0 evaluates the sums; this is process {self.rank}.")
        self._sent(torch.tensor([len(theta)]))
        self._sent(torch.from_numpy(theta))
        sums, error = self._own(theta)
        self._sum(sums)
        if error is not None:
            raise error
        if sums[:, -1].any():
            raise RuntimeError("the evaluation of another process failed; it raises the error when sampling ends.")
        return sums[:, 0], sums[:, 1:-1]

    def _own(self, theta: FloatArray) -> tuple[FloatArray, Exception | None]:
        """Return value, gradient and zero (B, K + 2) of this process's rows; ones in the last column if they failed."""
        own = np.zeros((len(theta), self._dim + 2))
        try:
            own[:, 0], own[:, 1:-1] = self._post.log_likelihood_and_grad(theta)
        except Exception as error:  # the other processes wait for the sum
            own[:, -1] = 1.0
            return own, error
        return own, None

    def _sum(self, own: FloatArray) -> None:
        """Sum over the processes, in place in process 0."""
        import torch
        import torch.distributed as distributed

        distributed.reduce(torch.from_numpy(own), self._leader, group=self._group)

    def _sent(self, tensor: Any) -> Any:
        """Send a tensor of process 0 to the others, in place."""
        import torch.distributed as distributed

        distributed.broadcast(tensor, self._leader, group=self._group)
        return tensor


def _check_equal(post: Posterior, group: Any) -> None:
    """Raise ValueError unless all processes have the same parameters, prior and likelihood."""
    import torch.distributed as distributed

    own = {
        "architecture": post.network.architecture.label(),
        "likelihood": repr(post.likelihood),
        "dtype": post.network.dtype.name,
        "trained network": network_digest(post.network.net),
        "prior": repr(post.network.prior.to_dict()),
    }
    others: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(others, own, group=group)
    for rank, other in enumerate(others):
        for name, value in own.items():
            if other[name] != value:
                raise ValueError(
                    f"post must be the same in all processes but for its rows; {name} of process {rank} differs: "
                    f"{other[name]} there, {value} here."
                )
