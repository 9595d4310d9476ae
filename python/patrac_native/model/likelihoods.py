"""The likelihoods of the network's outputs: Gaussian, categorical and Bernoulli (docs/method.md, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.model.likelihood_base import Likelihood, Targets
from patrac_native.validation.checks import FloatArray, as_real_array, check_finite, check_positive

if TYPE_CHECKING:
    import torch

_ENCODE_LABELS = "Encode class names as whole numbers: names, y = np.unique(y, return_inverse=True)."

__all__ = ["Bernoulli", "Categorical", "Gaussian", "Likelihood", "Targets", "likelihood_from_dict"]


class Gaussian(Likelihood):
    """y_r ~ N(f_r, variance) with independent outputs; y is (n,) for one output or (n, m).

    Parameters
    ----------
    variance : float, array_like of shape (m,) or "sampled"
        Noise variance, positive and finite; one for all outputs or one for each. "sampled": one for all outputs, drawn
        with theta at every step, under an inverse-gamma prior with density proportional to
        x^(-a-1) exp(-b/x).
    a, b : float
        Shape and rate of that prior, positive; it weighs as much as 2a rows whose squared residuals sum to 2b. The
        defaults a = 2, b = 1 have mean 1 and suit targets scaled to unit variance.

    Raises
    ------
    ValueError
        If a variance, a or b is not positive and finite, or a or b is given beside a fixed variance.
    TypeError
        If it is not a number or vector of numbers.

    Examples
    --------
    >>> Gaussian(1.0).log_likelihood([[0.0], [1.0]], np.array([[0.0], [0.0]])).round(6)
    np.float64(-2.337877)
    >>> Gaussian("sampled", a=3.0).at(0.5)
    Gaussian(variance=0.5)
    """

    name = "gaussian"

    def __init__(
        self, variance: float | npt.ArrayLike | str, *, a: float | None = None, b: float | None = None
    ) -> None:
        self.a = self.b = None
        if isinstance(variance, str):
            if variance != "sampled":
                raise ValueError(
                    f'variance must be a positive number, one for each output, or "sampled"; got {variance!r}.'
                )
            self.variance: float | FloatArray | str = variance
            self.a = check_positive(2.0 if a is None else a, "a")
            self.b = check_positive(1.0 if b is None else b, "b")
            return
        if a is not None or b is not None:
            raise ValueError(
                'a and b are the prior of a sampled variance; leave them out, or write Gaussian("sampled", a=..., '
                "b=...)."
            )
        if np.ndim(variance) == 0:
            self.variance = check_positive(np.asarray(variance).item(), "variance")
            return
        values = as_real_array(variance, "variance").copy()
        if values.ndim != 1 or values.size == 0:
            raise ValueError(f"variance must be a number or have shape (m,); got shape {values.shape}.")
        bad = ~(np.isfinite(values) & (values > 0))
        if bad.any():
            output = int(np.argmax(bad))
            raise ValueError(f"variance must be positive and finite; got {values[output]} for output {output}.")
        values.flags.writeable = False
        self.variance = values

    @property
    def is_sampled(self) -> bool:
        """Whether the variance is drawn with theta."""
        return isinstance(self.variance, str)

    def at(self, variance: float | npt.ArrayLike) -> Gaussian:
        """Return the likelihood with a fixed variance in place of a sampled one."""
        return Gaussian(variance)

    def starting_variance(self, residuals: FloatArray, row_weights: FloatArray) -> float:
        """Return the mode of a sampled variance given residuals (n, m) under row weights (n,)."""
        assert self.a is not None and self.b is not None
        squares = float((row_weights[:, None] * residuals**2).sum())
        count = float(row_weights.sum()) * residuals.shape[1]
        mode: float = (self.b + squares / 2) / (self.a + count / 2 + 1)
        return mode

    def variance_vector(self, m: int) -> FloatArray:
        """Return the variance of each output, shape (m,); ValueError if there is one for each of another number."""
        if isinstance(self.variance, str):
            raise ValueError("the variance is sampled: take at(variance) with a value, such as a guess or a draw.")
        if isinstance(self.variance, np.ndarray) and self.variance.shape != (m,):
            raise ValueError(
                f"variance has {len(self.variance)} entries, but the network has {m} outputs; give one number or {m}."
            )
        return np.full(m, self.variance)

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return y as finite float64 (n, m); (n,) is taken for one output. Raises as `Likelihood.check_targets`."""
        if not self.is_sampled:
            self.variance_vector(m)
        values = _matrix_targets(y, n, m)
        check_finite(values, "y")
        return values

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return -(y - f)^2 / (2 variance) - log(2 pi variance) / 2 summed over outputs: f (..., n, m) to (..., n)."""
        outputs = np.asarray(f, dtype=np.float64)
        variance = self.variance_vector(outputs.shape[-1])
        terms = (y - outputs) ** 2 / variance + np.log(2 * np.pi * variance)
        rows: FloatArray = -0.5 * terms.sum(axis=-1)
        return rows

    def constant_log_likelihood(self, y: Targets) -> float:
        """Return the log-likelihood, summed over rows, of predicting each output's mean of y (n, m)."""
        return float(self.log_likelihood(np.broadcast_to(y.mean(axis=0), y.shape), y))

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Return f (..., n, m) plus independent normal noise of the variance, of the same shape."""
        outputs = np.asarray(f, dtype=np.float64)
        return outputs + np.sqrt(self.variance_vector(outputs.shape[-1])) * rng.standard_normal(outputs.shape)

    def torch_loss_rows(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return (y - f)^2 / (2 variance) + log(2 pi variance) / 2 summed over outputs: f, y (n, m) to (n,)."""
        import torch

        variance = self.variance_vector(f.shape[-1])
        scale = torch.tensor(0.5 / variance, dtype=f.dtype, device=f.device)
        constant = 0.5 * float(np.log(2 * np.pi * variance).sum())
        return ((y - f).square() * scale).sum(dim=-1) + constant

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content."""
        variance = self.variance.tolist() if isinstance(self.variance, np.ndarray) else self.variance
        prior = {"a": self.a, "b": self.b} if self.is_sampled else {}
        return {"name": self.name, "variance": variance, **prior}


class Categorical(Likelihood):
    """Classes 0..m-1 with probabilities softmax(f); y is (n,) of labels.

    Parameters
    ----------
    scale : float, optional
        If given, the log-likelihood is `scale` times the (weighted) **mean** of log softmax over rows, the paper's
        setting for CIFAR-10 with scale 1000; by default it is the sum.

    Raises
    ------
    ValueError
        If scale is not positive and finite.
    """

    name = "categorical"

    def __init__(self, scale: float | None = None) -> None:
        self.scale = None if scale is None else check_positive(scale, "scale")

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return labels 0..m-1 as int64 (n,), taking (n, 1) too; m >= 2. Raises as `Likelihood.check_targets`."""
        if m < 2:
            raise ValueError(
                f"Categorical needs a network with one output for each class, at least 2; got {m}. "
                "Use Bernoulli for a single 0/1 output."
            )
        values = as_real_array(y, "y", _ENCODE_LABELS)
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

    def n_outputs_needed(self, y: npt.ArrayLike) -> int:
        """Return the number of classes, max(y) + 1 and at least 2."""
        return max(2, int(np.max(as_real_array(y, "y", _ENCODE_LABELS), initial=0)) + 1)

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return log softmax(f) at each row's label: f (..., n, m) and y (n,) to (..., n)."""
        outputs = np.asarray(f, dtype=np.float64)
        label = np.broadcast_to(y[:, None], (*outputs.shape[:-1], 1))
        rows: FloatArray = np.take_along_axis(_log_softmax(outputs), label, axis=-1)[..., 0]
        return rows

    def row_weights(self, sample_weight: npt.ArrayLike | None, n: int) -> FloatArray:
        """Return each row's factor, shape (n,): the sample weights, made to sum to `scale` where it is given."""
        weights = super().row_weights(sample_weight, n)
        return weights if self.scale is None else self.scale * (weights / weights.sum())

    def constant_log_likelihood(self, y: Targets) -> float:
        """Return the log-likelihood of predicting the class frequencies of y (n,), under `scale` where it is given."""
        counts = np.bincount(y).astype(np.float64)
        counts = counts[counts > 0]
        total = float((counts * np.log(counts / len(y))).sum())
        return total if self.scale is None else self.scale * total / len(y)

    def probabilities(self, f: npt.ArrayLike) -> FloatArray:
        """Return softmax(f) over the last axis: f (..., n, m) to (..., n, m)."""
        return np.exp(_log_softmax(np.asarray(f, dtype=np.float64)))

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Draw a label for each row by inversion of its cumulative probabilities: f (..., n, m) to int64 (..., n)."""
        cumulative = np.cumsum(self.probabilities(f), axis=-1)
        # The last sum may round to just below 1: dividing makes it exactly 1, above every uniform draw.
        cumulative /= cumulative[..., -1:]
        uniform = rng.random((*cumulative.shape[:-1], 1))
        labels: Targets = (uniform >= cumulative).sum(axis=-1, dtype=np.int64)
        return labels

    def torch_loss_rows(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the cross entropy -log softmax(f) at each label: f (n, m) and y int64 (n,) to (n,)."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(f, y, reduction="none")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able content."""
        return {"name": self.name, "scale": self.scale}


class Bernoulli(Likelihood):
    """0/1 targets with probabilities sigmoid(f), outputs independent; y is (n,) for one output or (n, m)."""

    name = "bernoulli"

    def check_targets(self, y: npt.ArrayLike, n: int, m: int) -> Targets:
        """Return zeros and ones as float64 (n, m); (n,) is taken for one output. Raises as the base class's."""
        values = _matrix_targets(y, n, m, _ENCODE_LABELS)
        bad = ~((values == 0) | (values == 1))
        if bad.any():
            row, output = (int(index) for index in np.argwhere(bad)[0])
            raise ValueError(
                f"y must be 0 or 1 for a Bernoulli likelihood; got {values[row, output]:g} at row {row}, output "
                f"{output} ({int(bad.sum())} bad values in all)."
            )
        return values

    def log_likelihood_rows(self, f: npt.ArrayLike, y: Targets) -> FloatArray:
        """Return log sigmoid(f) where y is 1, log sigmoid(-f) where 0, summed over outputs: (..., n, m) to (..., n)."""
        outputs = np.asarray(f, dtype=np.float64)
        # y f - log(1 + e^f) would cancel for y = 1 and large f; this form does not.
        rows: FloatArray = -np.logaddexp(0.0, (1 - 2 * y) * outputs).sum(axis=-1)
        return rows

    def constant_log_likelihood(self, y: Targets) -> float:
        """Return the log-likelihood, summed over rows, of predicting each output's share of ones in y (n, m)."""
        ones = y.sum(axis=0)
        counts = np.concatenate([ones, len(y) - ones])
        return float((counts * np.log(np.where(counts > 0, counts, len(y)) / len(y))).sum())

    def probabilities(self, f: npt.ArrayLike) -> FloatArray:
        """Return sigmoid(f), the probability of a 1 at each output: f (..., n, m) to (..., n, m)."""
        return np.exp(-np.logaddexp(0.0, -np.asarray(f, dtype=np.float64)))

    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Draw a zero or one for every output: f (..., n, m) to int64 (..., n, m)."""
        probability = self.probabilities(f)
        return (rng.random(probability.shape) < probability).astype(np.int64)

    def torch_loss_rows(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return -log sigmoid of f where y is 1 and of -f where 0, summed over outputs: f, y (n, m) to (n,)."""
        from torch.nn.functional import logsigmoid

        # Not softplus: torch's is the identity above 20, which is off by 2e-9.
        return -logsigmoid((2 * y - 1) * f).sum(dim=-1)


def likelihood_from_dict(content: Mapping[str, Any]) -> Likelihood:
    """Rebuild a likelihood from what its `to_dict` returned.

    Raises
    ------
    ValueError
        If the name is unknown.
    """
    name = content.get("name")
    if name == "gaussian":
        return Gaussian(content["variance"], a=content.get("a"), b=content.get("b"))
    if name == "categorical":
        return Categorical(content["scale"])
    if name == "bernoulli":
        return Bernoulli()
    raise ValueError(f"likelihood name must be one of gaussian, categorical, bernoulli; got {name!r}.")


def _matrix_targets(y: npt.ArrayLike, n: int, m: int, advice: str = "Encode it as numbers first.") -> FloatArray:
    """Return y as a C-contiguous float64 (n, m) copy, taking (n,) for one output."""
    values = as_real_array(y, "y", advice)
    if values.shape == (n,) and m == 1:
        values = values[:, None]
    if values.shape != (n, m):
        allowed = f"({n},) or ({n}, 1)" if m == 1 else f"({n}, {m})"
        raise ValueError(f"y must have shape {allowed}, one row for each row of X; got {values.shape}.")
    return values.copy()


def _log_softmax(f: FloatArray) -> FloatArray:
    """Log softmax over the last axis, shifted by the largest entry so that nothing overflows."""
    shifted = f - f.max(axis=-1, keepdims=True)
    log_probabilities: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return log_probabilities
