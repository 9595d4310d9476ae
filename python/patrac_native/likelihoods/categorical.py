"""The likelihood of class labels with softmax probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import Likelihood, Targets
from patrac_native.likelihoods.numbers import ENCODE_LABELS
from patrac_native.validation.checks import FloatArray, as_real_array, check_positive


class Categorical(Likelihood):
    """Targets are class labels 0..m-1 of shape (n,), with probabilities softmax(f).

    Parameters
    ----------
    scale : float, optional
        Factor > 0 of the (weighted) **mean** of log softmax over rows, which is then the log-likelihood; the paper uses
        1000 for CIFAR-10. It stands for a number of rows, and is no scale of noise as that of `StudentT`. By default
        the log-likelihood is the sum over rows.

    Raises
    ------
    TypeError
        If scale is not a number.
    ValueError
        If scale is not positive and finite.
    """

    name = label = "categorical"
    example = "Categorical()"
    targets = "class"
    has_classes = True
    quantity = "class probabilities"
    is_quadratic = False
    weight_name = "sample_weight, or the scale of Categorical,"

    def __init__(self, scale: float | None = None) -> None:
        self.scale = None if scale is None else check_positive(scale, "scale")

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return labels 0..m-1, m >= 2, as int64 (n,); (n, 1) is accepted. Raises as `Likelihood.check_targets`."""
        if m < 2:
            raise ValueError(
                f"Categorical needs a network with one output for each class, at least 2; got {m}. "
                "Use Bernoulli for a single 0/1 output."
            )
        values = as_real_array(y, "y", ENCODE_LABELS)
        if values.shape == (n, 1):
            values = values[:, 0]
        if values.shape != (n,):
            raise ValueError(f"y must have shape ({n},), one class label for each row of X; got {values.shape}.")
        with np.errstate(invalid="ignore"):
            whole = np.isfinite(values) & (values == np.floor(values))
        for bad, problem in ((~whole, "whole numbers"), ((values < 0) | (values >= m), f"in 0..{m - 1}")):
            if bad.any():
                row = int(np.argmax(bad))
                raise ValueError(
                    f"y must hold class labels that are {problem}; got {values[row]:g} at row {row} "
                    f"({int(bad.sum())} bad rows in all). Encode the classes as 0..{m - 1}."
                )
        return values.astype(np.int64)

    def identified(self, f: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the class probabilities, shape (..., m)."""
        return self.probabilities(f)

    def strata(self, y: Targets) -> npt.NDArray[Any]:
        """Return the labels (n,)."""
        return y

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return log softmax(f) at each row's label, shape (..., n), for f (..., n, m) and y (n,)."""
        from scipy.special import log_softmax

        outputs = np.asarray(f, dtype=np.float64)
        label = np.broadcast_to(y[:, None], (*outputs.shape[:-1], 1))
        rows: FloatArray = np.take_along_axis(log_softmax(outputs, axis=-1), label, axis=-1)[..., 0]
        return rows

    def row_weights(self, sample_weight: npt.ArrayLike | None, n: int) -> FloatArray:
        """Return each row's factor, shape (n,): the sample weights, scaled to sum to `scale` if it is given."""
        weights = super().row_weights(sample_weight, n)
        return weights if self.scale is None else self.scale * (weights / weights.sum())

    def information_root(self, f: FloatArray, y: Targets | None = None) -> FloatArray:
        """Return the columns sqrt(p_c) (e_c - p), shape (n, m, m), whose products sum to diag(p) - p p'."""
        p = self.probabilities(f)
        return np.sqrt(p)[:, None, :] * (np.eye(f.shape[1]) - p[:, :, None])

    def best_constant(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> float:
        """Return the log-likelihood of predicting the class frequencies of y (n,)."""
        counts = np.bincount(y, weights=row_weights)
        shares = np.where(counts > 0, counts, 1.0) / row_weights.sum()
        return float((np.where(counts > 0, counts, 0.0) * np.log(shares)).sum())

    def elementary_functions(self, n_outputs: int) -> dict[str, int]:
        """Return one exponential for each output, and one logarithm."""
        return {"exp": n_outputs, "log": 1}

    def probabilities(self, f: npt.ArrayLike) -> FloatArray:
        """Return softmax(f) over the last axis of f (..., n, m)."""
        from scipy.special import log_softmax

        shares: FloatArray = np.exp(log_softmax(np.asarray(f, dtype=np.float64), axis=-1))
        return shares

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Draw int64 labels (..., n) by inversion of the cumulative probabilities of f (..., n, m)."""
        cumulative = np.cumsum(self.probabilities(f), axis=-1)
        # The last sum may round to just below 1. Division makes it exactly 1, which exceeds every uniform draw.
        cumulative /= cumulative[..., -1:]
        uniform = rng.random((*cumulative.shape[:-1], 1))
        labels: Targets = (uniform >= cumulative).sum(axis=-1, dtype=np.int64)
        return labels

    def arguments(self) -> dict[str, Any]:
        """Return the argument `scale`."""
        return {"scale": self.scale}
