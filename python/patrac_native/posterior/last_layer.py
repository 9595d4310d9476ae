"""Sufficient statistics of a Gaussian likelihood if only the last layer is Bayesian, in the whitened eigenbasis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.engine.models import CompiledModels, host_model, planned_model
from patrac_native.posterior.noise import Noise
from patrac_native.validation.checks import FloatArray

# The Hessian is formed where f(0) is the target if the gradient at 0 is so many times its largest entry: the difference
# of gradients at y itself would lose digits, which count with the square of theta.
_FAR = 30.0
# The largest rounding error of the log-likelihood: one of E moves the mean by some sqrt(2 E) standard deviations.
_MAX_ROUNDING = 1e-3
# The statistics of this many rows are summed at a time, which bounds the memory of the float64 features.
_ROWS_AT_A_TIME = 65_536


@dataclass(frozen=True)
class DenseQuadratic:
    """The log-likelihood constant + slope.theta - theta' hessian theta / 2."""

    constant: float  # log-likelihood at theta = 0, normalised
    slope: FloatArray  # (K,)
    hessian: FloatArray  # (K, K), Phi' W Phi / sigma^2, symmetric


@dataclass(frozen=True)
class ExactPosterior:
    """The posterior of Bayesian linear regression in closed form.

    Attributes
    ----------
    mean : ndarray of float64, shape (K,)
    covariance : ndarray of float64, shape (K, K)
    log_evidence : float
        log p(y), with the normalising constants of the log-likelihood.
    """

    mean: FloatArray
    covariance: FloatArray
    log_evidence: float


@dataclass(frozen=True)
class WhitenedQuadratic:
    """The log-likelihood constant + slope.z - sum(curvature z^2) / 2; theta = to_theta z, and a priori z ~ N(0, I)."""

    constant: FloatArray  # (q,), at theta = 0, normalised: of all outputs, or of each if each samples its own variance
    variance: FloatArray  # (q,), the noise variances of the statistics; the chains rescale them to sampled ones
    terms: float  # number of outputs times the sum of the row weights
    slope: FloatArray  # (K,)
    curvature: FloatArray  # (K,), the eigenvalues (>= 0) of C^(1/2) Phi' W Phi C^(1/2) / sigma^2
    to_theta: FloatArray  # (K, K), C^(1/2) Q, where the columns of Q are the eigenvectors
    from_theta: FloatArray  # (K, K), its inverse
    output: npt.NDArray[np.int32]  # (K,), the output to which a coordinate of z belongs; zeros if q = 1
    plain: DenseQuadratic  # the same log-likelihood in theta's own coordinates

    def exact(self) -> ExactPosterior:
        """Return mean, covariance and log evidence of the posterior.

        A posteriori the z_i are independent, z_i ~ N(slope_i / (1 + curvature_i), 1 / (1 + curvature_i)).
        """
        variance = 1.0 / (1.0 + self.curvature)
        log_evidence = float(self.constant.sum()) + 0.5 * float(
            np.sum(self.slope**2 * variance - np.log1p(self.curvature))
        )
        covariance = (self.to_theta * variance) @ self.to_theta.T
        return ExactPosterior(self.to_theta @ (self.slope * variance), covariance, log_evidence)

    def whitened(self, theta: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return z = from_theta theta for points theta (B, K), in their dtype.

        BLAS is not used: its rounding depends on the number of points, and a chain must not depend on other chains.
        """
        z: npt.NDArray[Any] = np.einsum("bk,jk->bj", theta, self.from_theta).astype(theta.dtype)
        return z


def whiten(
    compiled: CompiledModels, prior_variance: FloatArray, noise: Noise, output: npt.NDArray[np.int32] | None = None
) -> WhitenedQuadratic:
    """Compute the sufficient statistics of a log-likelihood that is quadratic in theta, in float64, by blocks of rows.

    A rotation of whitened coordinates leaves the law of pCN and pCNL chains unchanged, so these may run in the
    eigenbasis. `output` (K,) tells the output of which each parameter is a weight, if each output samples a noise
    variance of its own: the eigenbasis then mixes no parameters of different outputs.
    """
    constant, slope, hessian = _statistics(compiled, len(prior_variance))
    in_noise = 1.0
    if noise.likelihood.is_sampled:
        # The reference variance may be far from the noise in either direction; the targets' own variation is not.
        in_noise = float(np.min(noise.initial / np.maximum(compiled.targets.var(axis=0), np.finfo(float).tiny)))
    _check_rounding(constant * in_noise)
    scale = np.sqrt(prior_variance)
    whitened = scale[:, None] * hessian * scale
    constants = np.array([constant])
    if output is None:
        output = np.zeros(len(scale), dtype=np.int32)
        eigenvalues, vectors = np.linalg.eigh(whitened)
    else:
        eigenvalues, vectors = np.zeros(len(scale)), np.zeros(hessian.shape)
        for own in range(compiled.targets.shape[1]):
            block = np.flatnonzero(output == own)
            eigenvalues[block], vectors[np.ix_(block, block)] = np.linalg.eigh(whitened[np.ix_(block, block)])
        constants = _constants_by_output(compiled, len(prior_variance))
    return WhitenedQuadratic(
        constant=constants,
        variance=np.ascontiguousarray(noise.initial),
        terms=noise.terms,
        output=output,
        slope=vectors.T @ (scale * slope),
        curvature=np.maximum(eigenvalues, 0.0),
        to_theta=np.ascontiguousarray(scale[:, None] * vectors),
        from_theta=vectors.T / scale,
        plain=DenseQuadratic(constant, slope, hessian),
    )


def _statistics(compiled: CompiledModels, dim: int) -> tuple[float, FloatArray, FloatArray]:
    """Return l(0), the gradient at 0 and minus the Hessian, from the gradients at 0 and at the unit vectors."""
    value, gradients = _at_origin(compiled, dim)
    hessian = gradients[0] - gradients[1:]
    if np.abs(gradients[0]).max() > _FAR * np.abs(hessian).max():
        hessian = -_at_origin(compiled, dim, centred=True)[1][1:]
    return value, gradients[0], (hessian + hessian.T) / 2


def _at_origin(compiled: CompiledModels, dim: int, *, centred: bool = False) -> tuple[float, FloatArray]:
    """Return l(0) and the gradients at 0 and at the unit vectors, (dim + 1, dim); `centred` has f(0) as its targets."""
    points = np.concatenate([np.zeros((1, dim)), np.eye(dim)])
    value, gradients = 0.0, np.zeros((dim + 1, dim))
    X, targets, weights = compiled.inputs.host, compiled.targets, compiled.row_weights
    options: dict[str, Any] = {"dtype": np.dtype(np.float64), "level": compiled.level}
    predictor: Any = planned_model(compiled.spec, **options) if centred else None
    for first in range(0, len(X), _ROWS_AT_A_TIME):
        rows = slice(first, first + _ROWS_AT_A_TIME)
        y = targets[rows]
        if centred:
            y = predictor.predict(points[:1], np.ascontiguousarray(X[rows], dtype=np.float64), 1)[0]
        model: Any = host_model(compiled.spec, X[rows], y, weights[rows], **options)
        values, slopes = model.log_likelihood_and_grad(points, 1)
        value += float(values[0])
        gradients += slopes
    return value, gradients


def _check_rounding(constant: float) -> None:
    """Raise ValueError if y is so far from zero that float64 does not resolve the log-likelihood at theta = 0."""
    rounding = float(np.finfo(np.float64).eps) * abs(constant)
    if rounding <= _MAX_ROUNDING:
        return
    raise ValueError(
        f"y is so far from the network's fixed part, in units of the noise, that float64 rounds off {rounding:.2g} of "
        f"the log-likelihood at theta = 0, {constant:.2g}. Give y less its mean, or standardised."
    )


def _constants_by_output(compiled: CompiledModels, dim: int) -> FloatArray:
    """Return the log-likelihood of each output at theta = 0, shape (m,)."""
    model: Any = planned_model(compiled.spec, dtype=np.dtype(np.float64), level=compiled.level)
    variance = compiled.spec.likelihood_parameters["variance"]
    X, targets, weights = compiled.inputs.host, compiled.targets, compiled.row_weights
    squares = np.zeros(targets.shape[1])
    for first in range(0, len(X), _ROWS_AT_A_TIME):
        rows = slice(first, first + _ROWS_AT_A_TIME)
        f = model.predict(np.zeros((1, dim)), np.ascontiguousarray(X[rows], dtype=np.float64), 1)[0]
        squares += weights[rows] @ (targets[rows] - f) ** 2
    constants: FloatArray = -0.5 * (weights.sum() * np.log(2 * np.pi * variance) + squares / variance)
    return constants
