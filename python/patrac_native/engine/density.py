"""A log density with its gradient, compiled: what the bridges to other libraries evaluate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine import _core
from patrac_native.engine.machine import thread_count
from patrac_native.engine.models import CoreModel
from patrac_native.validation.checks import FloatArray, as_real_array, cast_checked, check_finite


@dataclass(frozen=True)
class SampledNoise:
    """Noise variances (q,) that are sampled with theta, and their inverse-gamma prior."""

    variance: FloatArray  # of the density, or any values if its points end in the logarithms of the variances
    reference: float  # compiled variance of all outputs, from which the log-likelihood is rescaled; 0 if it is not
    terms: float  # number of outputs times the sum of the row weights
    shape: float
    rate: FloatArray  # (q,)


@dataclass(frozen=True)
class DensitySpec:
    """What a density is of a compiled model."""

    kind: str = "likelihood"  # or "posterior", "collapsed", "collapsed_posterior"
    whitened: bool = False  # whether points are z with theta = sqrt(prior_variance) z
    log_variance: bool = False  # whether points end in the logarithms of the sampled noise variances
    prior_variance: FloatArray = field(default_factory=lambda: np.empty(0))  # (K,); empty if nothing depends on it
    noise: SampledNoise | None = None  # None if the noise variance is fixed, or the noise has none


class Density:
    """A log density of points (D,) with its gradient; calls from several threads do not wait for each other.

    `Posterior.density` makes it, in the coordinates that are asked for; it holds the compiled model. Methods raise
    TypeError or ValueError unless points hold finite real numbers, D on their last axis; they convert them to `dtype`.
    `threads` is the number of native threads, which share the points of a batch or the rows of a single point; None
    means the number of processors that this process may use.

    Attributes
    ----------
    core : Density32 or Density64
        The compiled density.
    dim : int
        D, the number of coordinates.
    dtype : dtype
        float32 or float64: of points and gradients. Values are float64.
    entries : ndarray of int64
        Positions in theta of what points hold: all of theta, or theta_h where output weights are integrated out.
    start, spread : ndarray of float64, shape (D,)
        The trained values in these coordinates, and a tenth of the prior's standard deviations: where chains may start.
    spec : DensitySpec
    xla_interface : (int, int)
        The version of XLA's C interface for which its handlers are compiled.

    Examples
    --------
    >>> import patrac_native as pn
    >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
    >>> X = np.linspace(-1, 1, 5)[:, None]
    >>> post = pn.Posterior(net, pn.Mix(1), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
    >>> density = post.density("posterior", "whitened")
    >>> values, gradients = density.value_and_grad(np.zeros((3, 4)))
    >>> values.shape, gradients.shape
    ((3,), (3, 4))
    """

    xla_interface = _core.XLA_INTERFACE

    def __init__(
        self, model: CoreModel, spec: DensitySpec, start: FloatArray | None = None, spread: FloatArray | None = None
    ) -> None:
        build: Any = _core.Density32 if isinstance(model, _core.Model32) else _core.Density64
        noise = spec.noise or SampledNoise(np.empty(0), 0.0, 0.0, 0.0, np.empty(0))
        self.core: Any = build(
            model,
            kind=spec.kind,
            whitened=spec.whitened,
            log_variance=spec.log_variance,
            prior_variance=spec.prior_variance,
            variance=noise.variance,
            reference=noise.reference,
            terms=noise.terms,
            shape=noise.shape,
            rate=noise.rate,
        )
        self.dim: int = self.core.dim
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if isinstance(model, _core.Model32) else np.float64)
        self.spec = spec
        self._theta_dim = self.dim - (len(noise.variance) if spec.log_variance else 0)
        self.entries: npt.NDArray[np.int64] = (
            model.hidden_entries if self.core.is_collapsed else np.arange(self._theta_dim)
        )
        self.entries.flags.writeable = False
        self.start = np.zeros(self.dim) if start is None else start
        self.spread = np.ones(self.dim) if spread is None else spread

    def value(self, points: npt.ArrayLike, *, threads: int | None = 1) -> float | FloatArray:
        """Evaluate the log density.

        Parameters
        ----------
        points : array_like, shape (D,) or (B, D)
        threads : int or None
            Default 1.

        Returns
        -------
        float, or ndarray of float64 of shape (B,)
        """
        batch, single = self._check(points)
        values: FloatArray = self.core.value(batch, thread_count(threads))
        return float(values[0]) if single else values

    def value_and_grad(
        self, points: npt.ArrayLike, *, threads: int | None = 1
    ) -> tuple[float | FloatArray, npt.NDArray[Any]]:
        """Evaluate the log density and its gradient with respect to the points.

        Parameters
        ----------
        points, threads
            As for `value`.

        Returns
        -------
        value : float, or ndarray of float64 of shape (B,)
        gradient : ndarray of `dtype`, shape (D,) or (B, D)
        """
        batch, single = self._check(points)
        values, gradient = self.core.value_and_grad(batch, thread_count(threads))
        return (float(values[0]), gradient[0]) if single else (values, gradient)

    def c_capsules(self, threads: int) -> tuple[Any, Any, Any]:
        """Return the capsules of the C function, its batched form and their context; see `patrac_density.h`."""
        return _core.c_function(), _core.c_batched(), self.core.c_context(threads)

    def xla_state(self) -> dict[str, Any]:
        """Return the registration of the state that compiled programs of XLA keep, for `jax.ffi.register_ffi_type`."""
        return _core.xla_state()

    def theta(self, points: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return theta at points of these coordinates, or theta_h if output weights are integrated out.

        `complete` draws the rest.

        Parameters
        ----------
        points : array_like, shape (..., D)
            Such as the draws of another library's sampler.

        Returns
        -------
        ndarray of `dtype`, shape (..., K) or (..., K_h)
        """
        array = self._numbers(points)[..., : self._theta_dim].astype(self.dtype)
        if not self.spec.whitened:
            return array
        deviation = np.sqrt(self.spec.prior_variance[self.entries])
        scaled: npt.NDArray[Any] = (array.astype(np.float64) * deviation).astype(self.dtype)
        return scaled

    def complete(
        self, points: npt.ArrayLike, seed: int | np.random.Generator = 0, *, threads: int | None = 1
    ) -> npt.NDArray[Any]:
        """Return theta with the output weights that are integrated out drawn from their exact law given theta_h.

        If the points are draws from a collapsed posterior, the result is draws from the posterior of all parameters,
        for `Draws.from_array`. Given theta_h and y the output weights are Gaussian: Bayesian linear regression on the
        activations of the last hidden layer.

        Parameters
        ----------
        points : array_like, shape (..., D)
            Finite points of a density in which the output weights are integrated out.
        seed : int or numpy Generator
            Of the draws; default 0.
        threads : int or None
            Default 1.

        Returns
        -------
        ndarray of `dtype`, shape (..., K)

        Raises
        ------
        ValueError
            If no weights are integrated out.
        """
        if not self.core.is_collapsed:
            raise ValueError(
                f"density={self.spec.kind!r} integrates no output weights out: its theta(points) is complete."
            )
        array = self._numbers(points)
        batch, _ = self._check(array.reshape(-1, self.dim))
        missing = self.core.full_dim - self.dim
        normals = np.random.default_rng(seed).standard_normal((len(batch), missing)).astype(self.dtype)
        theta: npt.NDArray[Any] = self.core.complete(batch, normals, thread_count(threads))
        return theta.reshape(*array.shape[:-1], -1)

    def variance(self, points: npt.ArrayLike) -> FloatArray:
        """Return the noise variances at points whose last coordinates are their logarithms.

        Parameters
        ----------
        points : array_like, shape (..., D)

        Returns
        -------
        ndarray of float64, shape (..., q)
            q is 0 if the coordinates contain no variances.
        """
        array = self._numbers(points)[..., self._theta_dim :].astype(self.dtype)
        variances: FloatArray = np.exp(array.astype(np.float64))
        return variances

    def _numbers(self, points: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return points as an array of numbers whose last axis has D entries."""
        known = type(points) is np.ndarray and points.dtype == self.dtype
        array: npt.NDArray[Any] = np.asarray(points) if known else as_real_array(points, "points")
        if array.ndim == 0 or array.shape[-1] != self.dim:
            raise ValueError(f"points must have {self.dim} entries on their last axis; got shape {array.shape}.")
        return array

    def _check(self, points: npt.ArrayLike) -> tuple[npt.NDArray[Any], bool]:
        """Return points as a batch (B, D) of `dtype`, and whether there was one, of shape (D,)."""
        array = self._numbers(points)
        if array.ndim > 2:
            raise ValueError(f"points must have shape ({self.dim},) or (B, {self.dim}); got {array.shape}.")
        batch = array.reshape(-1, self.dim)
        check_finite(batch, "points", "Rows count the points of the batch, columns their coordinates.")
        return cast_checked(batch, self.dtype, "points"), array.ndim == 1
