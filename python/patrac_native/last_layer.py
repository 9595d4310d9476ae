"""A Gaussian likelihood of the last layer alone: its sufficient statistics in the whitened eigenbasis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.validation import FloatArray

if TYPE_CHECKING:
    from patrac_native.posterior import Posterior

# Rows whose statistics are summed at a time: bounds the memory of the float64 features.
_BLOCK_ROWS = 65_536


@dataclass(frozen=True)
class WhitenedQuadratic:
    """The log-likelihood constant + slope.z - sum(curvature z^2) / 2 of z ~ N(0, I), theta = to_theta z.

    Attributes
    ----------
    constant : float
        Log-likelihood at theta = 0, normalised.
    slope, curvature : ndarray of float64, shape (K,)
        curvature >= 0 are the eigenvalues of C^(1/2) Phi' W Phi C^(1/2) / sigma^2.
    to_theta, from_theta : ndarray of float64, shape (K, K)
        C^(1/2) Q and its inverse, Q the eigenvectors.
    """

    constant: float
    slope: FloatArray
    curvature: FloatArray
    to_theta: FloatArray
    from_theta: FloatArray

    @staticmethod
    def rotate(points: npt.NDArray[Any], matrix: FloatArray, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Apply a (K, K) matrix to points (..., K) and return them in `dtype`.

        Not by BLAS, whose rounding depends on how many points there are: a draw must not depend on the run's length.
        """
        rotated: npt.NDArray[Any] = np.einsum("...k,jk->...j", points, matrix).astype(dtype)
        return rotated


def is_last_layer_gaussian(post: Posterior) -> bool:
    """Return whether the log-likelihood is quadratic in theta: Gaussian, and no varying node below the last layer."""
    return post.likelihood.name == "gaussian" and post.plan()[-1]["varying_sources"] == 0


def whiten(post: Posterior) -> WhitenedQuadratic:
    """Compute the statistics of a posterior for which `is_last_layer_gaussian` holds, in float64, block by block.

    pCN and pCNL are unchanged by a rotation of whitened coordinates, so a chain in this basis is the same chain in law.
    """
    constant, slope, hessian = _statistics(post)
    scale = np.sqrt(post.prior_variance)
    eigenvalues, vectors = np.linalg.eigh(scale[:, None] * hessian * scale)
    return WhitenedQuadratic(
        constant=constant,
        slope=vectors.T @ (scale * slope),
        curvature=np.maximum(eigenvalues, 0.0),
        to_theta=scale[:, None] * vectors,
        from_theta=vectors.T / scale,
    )


def _statistics(post: Posterior) -> tuple[float, FloatArray, FloatArray]:
    """Return l(0), its gradient there and minus its Hessian, from the gradients at 0 and at the unit vectors."""
    dim = post.dim
    points = np.concatenate([np.zeros((1, dim)), np.eye(dim)])
    value, gradients = 0.0, np.zeros((dim + 1, dim))
    for first in range(0, len(post.X), _BLOCK_ROWS):
        rows = slice(first, first + _BLOCK_ROWS)
        targets = np.ascontiguousarray(post.y[rows], dtype=np.float64)
        model: Any = post.network.core_model(
            post.likelihood, post.X[rows], targets, post.row_weights[rows], dtype=np.dtype(np.float64)
        )
        values, slopes = model.log_likelihood_and_grad(points, 1)
        value += float(values[0])
        gradients += slopes
    hessian = gradients[0] - gradients[1:]
    return value, gradients[0], (hessian + hessian.T) / 2
