"""The likelihood of zeros and ones with logistic probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods.base import Likelihood, Targets, diagonal_root
from patrac_native.likelihoods.numbers import ENCODE_LABELS, matrix_targets, refuse_targets
from patrac_native.validation.checks import FloatArray


class Bernoulli(Likelihood):
    """Targets are 0 or 1, P(y = 1) = sigmoid(f), independent outputs; y is (n,) for one output or (n, m)."""

    name = label = "bernoulli"
    example = "Bernoulli()"
    targets = "binary"
    is_quadratic = False

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return zeros and ones as float64 (n, m); (n,) is accepted for one output. Raises as the base class does."""
        values = matrix_targets(y, n, m, ENCODE_LABELS)
        refuse_targets((values != 0) & (values != 1), values, "y must be 0 or 1 for a Bernoulli likelihood")
        return values

    def strata(self, y: Targets) -> npt.NDArray[Any] | None:
        """Return the zeros and ones (n,) of a single output."""
        return y[:, 0] if y.shape[1] == 1 else None

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return log sigmoid(f) where y is 1, log sigmoid(-f) where 0, summed over outputs: (..., n, m) to (..., n)."""
        outputs = np.asarray(f, dtype=np.float64)
        # y f - log(1 + e^f) would cancel for y = 1 and large f; this form does not.
        rows: FloatArray = -np.logaddexp(0.0, (1 - 2 * y) * outputs).sum(axis=-1)
        return rows

    def information_root(self, f: FloatArray, y: Targets | None = None) -> FloatArray:
        """Return diag of the root of p (1 - p), shape (n, m, m)."""
        p = self.probabilities(f)
        return diagonal_root(np.sqrt(p * (1.0 - p)))

    def best_constant(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> float:
        """Return the log-likelihood, summed over rows, of predicting each output's share of ones in y (n, m)."""
        ones = row_weights @ y
        counts = np.concatenate([ones, row_weights.sum() - ones])
        shares = np.where(counts > 0, counts, 1.0) / row_weights.sum()
        return float((np.where(counts > 0, counts, 0.0) * np.log(shares)).sum())

    def elementary_functions(self, n_outputs: int) -> dict[str, int]:
        """Return one softplus and one sigmoid for each output."""
        return {"softplus": n_outputs, "sigmoid": n_outputs}

    def probabilities(self, f: npt.ArrayLike) -> FloatArray:
        """Return sigmoid(f), the probability of a 1 at each output: f (..., n, m) to (..., n, m)."""
        return np.exp(-np.logaddexp(0.0, -np.asarray(f, dtype=np.float64)))

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Draw a zero or one for every output: f (..., n, m) to int64 (..., n, m)."""
        probability = self.probabilities(f)
        return (rng.random(probability.shape) < probability).astype(np.int64)
