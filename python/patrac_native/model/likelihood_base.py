"""What every likelihood offers: checked targets, weighted log densities, noise and a training loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from patrac_native.validation.checks import FloatArray, as_real_array

if TYPE_CHECKING:
    import torch

Targets = npt.NDArray[Any]


class Likelihood:
    """Base class: independent rows y_r | f_r, f the outputs of the network at row r.

    Leading axes of `f`, such as (chain, draw), broadcast everywhere. All results are float64.

    Attributes
    ----------
    name : str
        "gaussian", "categorical" or "bernoulli".
    """

    name: ClassVar[str]

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Validate targets.

        Parameters
        ----------
        y : array_like
            Targets as the class describes them.
        n : int
            Number of rows expected.
        m : int
            Number of outputs of the network.

        Returns
        -------
        ndarray
            C-contiguous; float64 (n, m), or int64 (n,) for classes.

        Raises
        ------
        TypeError
            If y does not hold numbers.
        ValueError
            If the shape is wrong or an entry is not allowed (the first bad row is named).
        """
        raise NotImplementedError

    def n_outputs_needed(self, y: npt.ArrayLike) -> int:
        """Return the number of outputs m that a network needs for these targets."""
        shape = np.shape(y)
        return int(shape[1]) if len(shape) > 1 else 1

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Evaluate the normalised log density of every row, unweighted and unscaled.

        Parameters
        ----------
        f : array_like, shape (..., n, m)
            Outputs of the network.
        y : ndarray
            As `check_targets` returns it.

        Returns
        -------
        ndarray of float64, shape (..., n)
        """
        raise NotImplementedError

    def row_weights(self, sample_weight: npt.ArrayLike | None, n: int) -> FloatArray:
        """Return what each row's term of the log-likelihood is multiplied with.

        Parameters
        ----------
        sample_weight : array_like, shape (n,), optional
            Finite, nonnegative, with a positive sum; default ones.
        n : int
            Number of rows.

        Returns
        -------
        ndarray of float64, shape (n,)
            The sample weights; for Categorical(scale) scaled so that they sum to `scale`.

        Raises
        ------
        ValueError
            If the shape is not (n,), an entry is negative, NaN or infinite (row named), or all are zero.
        """
        if sample_weight is None:
            return np.ones(n)
        weights = as_real_array(sample_weight, "sample_weight")
        if weights.shape != (n,):
            raise ValueError(f"sample_weight must have shape ({n},), one for each row of X; got {weights.shape}.")
        bad = ~(np.isfinite(weights) & (weights >= 0))
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(f"sample_weight must be finite and nonnegative; got {weights[row]} at row {row}.")
        if not weights.any():
            raise ValueError("sample_weight is zero for every row; at least one must be positive.")
        return weights.copy()

    def log_likelihood(
        self, f: npt.ArrayLike, y: Targets, sample_weight: npt.ArrayLike | None = None
    ) -> np.float64 | FloatArray:
        """Evaluate the log-likelihood: the sum over rows of `row_weights` times `log_likelihood_rows`.

        Parameters
        ----------
        f : array_like, shape (..., n, m)
        y : ndarray
            As `check_targets` returns it.
        sample_weight : array_like, shape (n,), optional

        Returns
        -------
        float64 or ndarray, shape (...)
        """
        rows = self.log_likelihood_rows(f, y)
        total: np.float64 | FloatArray = (rows * self.row_weights(sample_weight, rows.shape[-1])).sum(axis=-1)
        return total

    def constant_log_likelihood(self, y: Targets) -> float:
        """Return the log-likelihood of the best constant predictor (the mean of y, or the class frequencies).

        Parameters
        ----------
        y : ndarray
            As `check_targets` returns it.
        """
        raise NotImplementedError

    def probabilities(self, f: npt.ArrayLike) -> FloatArray:
        """Return class probabilities, shape (..., n, m); TypeError for a likelihood without classes."""
        raise TypeError(f"a {self.name} likelihood has no class probabilities; use Categorical or Bernoulli.")

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Draw targets with their noise.

        Parameters
        ----------
        f : array_like, shape (..., n, m)
        rng : numpy.random.Generator

        Returns
        -------
        ndarray
            (..., n, m): float64 for Gaussian, int64 0/1 for Bernoulli; (..., n) int64 labels for Categorical.
        """
        raise NotImplementedError

    def torch_loss_rows(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the negative of `log_likelihood_rows` as a differentiable tensor of shape (n,).

        Parameters
        ----------
        f : torch.Tensor, shape (n, m)
        y : torch.Tensor
            Float (n, m) of the dtype of `f`, or int64 (n,) for classes.
        """
        raise NotImplementedError

    def torch_loss(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the negative log-likelihood of all rows as a differentiable scalar tensor.

        Normalised; under Categorical(scale) it is `scale` times the mean. Parameters as for `torch_loss_rows`.
        """
        return self.torch_loss_rows(f, y).sum() * float(self.row_weights(None, len(f))[0])

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content from which `likelihood_from_dict` rebuilds the likelihood."""
        return {"name": self.name}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.to_dict().items() if key != "name")
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Likelihood) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self))
