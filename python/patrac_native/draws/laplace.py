"""The Laplace approximation: a Gaussian at the trained parameters (docs/method.md, section 9)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws.draws import Draws
from patrac_native.posterior.jacobian import jacobians
from patrac_native.posterior.posterior import Posterior
from patrac_native.validation.checks import FloatArray, check_count, check_inputs, check_seed
from patrac_native.validation.memory import check_memory

# The curvature is a dense matrix, K^2 numbers, whose factorisation takes K^3 / 3 multiply-adds.
MAX_DIM = 12_000


class Laplace:
    """A Gaussian approximation of a posterior at the trained parameters, with generalised Gauss-Newton curvature.

    Its mean is the trained network's theta and its precision J' Lambda J + C^-1, where J are the derivatives of the
    outputs at the training rows and Lambda is the Fisher information of the likelihood there. That is the usual
    approximation if the network minimises the posterior's own negative logarithm, as one trained with a penalty l2 does
    under `GaussianPrior(1 / l2, 1 / l2)`; nothing checks it. `Out` gives the last-layer approximation, which is
    exact for a Gaussian likelihood, but for its mean; `Full` that of all weights.

    Methods take inputs X (n, d), the columns of a data frame in any order, and raise ValueError for others.

    Parameters
    ----------
    post : Posterior
        With fixed variances of noise and prior, not `Sep`, and K <= 12,000.

    Attributes
    ----------
    post : Posterior
    mean : ndarray of float64, shape (K,)
        `post.theta_map`.

    Raises
    ------
    TypeError
        If `post` is no `Posterior`.
    ValueError
        If it is not as described.

    References
    ----------
    MacKay (1992), A practical Bayesian framework for backpropagation networks. Neural Computation 4, 448-472.
    Immer, Korzepa & Bauer (2021), Improving predictions of Bayesian neural nets via local linearization. AISTATS.
    Daxberger et al. (2021), Laplace redux: effortless Bayesian deep learning. NeurIPS.

    Examples
    --------
    >>> import patrac_native as pn
    >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
    >>> X = np.linspace(-1, 1, 5)[:, None]
    >>> post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(0.1), X, X[:, 0])
    >>> laplace = pn.Laplace(post)
    >>> laplace.sample(200).predict(X).shape, laplace.linearised(X, 200).shape
    ((1, 200, 5, 1), (1, 200, 5, 1))
    """

    def __init__(self, post: Posterior) -> None:
        if not isinstance(post, Posterior):
            raise TypeError(f"post must be a Posterior; got {type(post).__name__}.")
        if post.network.separate:
            raise ValueError(
                f"post must have trained parameters to approximate around; {post.network.architecture} has none."
            )
        if post.sampled.noise or post.network.scales:
            what = "noise variance is" if post.sampled.noise else "scales of the prior are"
            raise ValueError(f"post must have fixed variances; its {what} sampled, which no Gaussian describes.")
        if post.dim > MAX_DIM:
            raise ValueError(
                f"post has {post.dim:,} parameters, whose dense curvature has {post.dim**2:,} entries; at most "
                f"{MAX_DIM:,} are supported. Choose a smaller architecture, such as Out(k), the last layer."
            )
        self.post = post
        self.mean: FloatArray = post.theta_map.astype(np.float64)

    def __repr__(self) -> str:
        return f"Laplace({self.post.network.architecture.label()}, K={self.post.dim})"

    @cached_property
    def _factor(self) -> FloatArray:
        """Lower Cholesky factor of the precision of z, theta = mean + C^(1/2) z: I + C^(1/2) J' Lambda J C^(1/2)."""
        from scipy.linalg import cholesky

        post, deviation = self.post, np.sqrt(self.post.prior_variance)
        precision = np.eye(post.dim)
        for rows, f, jacobian in jacobians(post.network, np.asarray(post.data.X, dtype=np.float64)):
            if post.data.offset is not None:
                f = f + post.data.offset[rows]
            root = (
                post.likelihood.information_root(f, post.data.y[rows])
                * np.sqrt(post.data.row_weights[rows])[:, None, None]
            )
            scaled = np.swapaxes(root, 1, 2) @ (jacobian * deviation)
            flat = scaled.reshape(-1, post.dim)
            precision += flat.T @ flat
        factor: FloatArray = cholesky(precision, lower=True)
        return factor

    @property
    def covariance(self) -> FloatArray:
        """Covariance of theta, float64 (K, K)."""
        from scipy.linalg import cho_solve

        deviation = np.sqrt(self.post.prior_variance)
        inverse = cho_solve((self._factor, True), np.eye(self.post.dim))
        found: FloatArray = deviation[:, None] * inverse * deviation
        return found

    @property
    def log_evidence(self) -> float:
        """The approximation of log p(y): l + log p(theta) + K/2 log 2 pi - log(det(precision)) / 2, at the mean.

        It compares priors and architectures of one network and one set of rows (MacKay 1992).
        """
        post = self.post
        quadratic = float((self.mean**2 / post.prior_variance).sum())
        log_likelihood = float(np.asarray(post.log_likelihood(self.mean)))
        return log_likelihood - 0.5 * quadratic - float(np.log(np.diag(self._factor)).sum())

    def sample(self, draws: int, seed: int = 0) -> Draws:
        """Draw parameters; predictions of the network at each draw are those of *network sampling*.

        Parameters
        ----------
        draws : int
            At least 1.
        seed : int
            Default 0.

        Returns
        -------
        Draws
            One chain of independent draws.

        Raises
        ------
        TypeError, ValueError
            If `draws` or `seed` is not an integer in its range, or the machine lacks the memory for the draws.
        """
        return Draws.from_array(self.post, self._draw(draws, seed)[None], sampler="Laplace")

    def linearised(self, X: npt.ArrayLike, draws: int, seed: int = 0) -> FloatArray:
        """Draw outputs of the network that is linear in theta around the mean, f(x; mean) + J(x) (theta - mean).

        Predictions of the network itself at the same draws, `sample`, spread too widely where it is far from linear
        (Immer et al. 2021).

        Parameters
        ----------
        X : array_like
        draws, seed
            As for `sample`, whose draws of theta these are.

        Returns
        -------
        ndarray of float64, shape (1, draws, n, m)
            Outputs of the network without an offset.
        """
        away = self._draw(draws, seed) - self.mean
        parts = [f + np.einsum("bmk,sk->sbm", jacobian, away, optimize=True) for _, f, jacobian in self._linear(X)]
        return np.concatenate(parts, axis=1)[None]

    def predict(self, X: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return mean and covariance of the outputs of the linearised network, in closed form.

        Returns
        -------
        mean : ndarray of float64, shape (n, m)
        covariance : ndarray of float64, shape (n, m, m)
            Of each row's outputs, without the noise.
        """
        from scipy.linalg import solve_triangular

        deviation = np.sqrt(self.post.prior_variance)
        means, covariances = [], []
        for _, f, jacobian in self._linear(X):
            rows, m, dim = jacobian.shape
            whitened = solve_triangular(self._factor, (jacobian * deviation).reshape(-1, dim).T, lower=True)
            whitened = whitened.T.reshape(rows, m, dim)
            means.append(f)
            covariances.append(whitened @ np.swapaxes(whitened, 1, 2))
        return np.concatenate(means), np.concatenate(covariances)

    def _linear(self, X: npt.ArrayLike) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
        """Return `jacobians` at checked inputs."""
        network = self.post.network
        return jacobians(network, check_inputs(X, network.n_inputs, columns=network.input_names))

    def _draw(self, draws: int, seed: int) -> npt.NDArray[Any]:
        """Return draws of theta (draws, K)."""
        from scipy.linalg import solve_triangular

        count, stream = check_count(draws, "draws"), np.random.default_rng(check_seed(seed))
        # Normals, their solution and its product with the prior's scales.
        needed = 3 * count * self.post.dim * np.dtype(np.float64).itemsize
        check_memory(needed, f"draws={count}: the draws of {self.post.dim} parameters", "Take fewer.")
        normals = stream.standard_normal((self.post.dim, count))
        z = solve_triangular(self._factor, normals, lower=True, trans="T").T
        theta: FloatArray = self.mean + np.sqrt(self.post.prior_variance) * z
        return theta
