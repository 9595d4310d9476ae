"""The base class of the likelihoods: checks of targets, weighted log densities, noise and a training loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics import crps
from patrac_native.likelihoods.mixture import TargetMixture
from patrac_native.validation.checks import FloatArray, as_real_array, check_finite
from patrac_native.validation.complete import Complete

Targets = npt.NDArray[Any]

# The log densities of this many rows are summed at a time, which bounds the memory.
_ROWS_AT_A_TIME = 65_536


class NoiseChange(NamedTuple):
    """What to change about the noise: in words and, if it takes another likelihood, that one's `label`."""

    advice: str
    likelihood: str | None = None


# What several likelihoods advise.
DEPENDS_ON_INPUTS = NoiseChange("let the noise depend on the inputs", "heteroscedastic")
HAS_OUTLIERS = NoiseChange("let the noise have outliers", "student-t")


def diagonal_root(root: FloatArray) -> FloatArray:
    """Return diagonal matrices (n, m, m) of the roots (n, m) of the information of independent outputs."""
    return np.asarray(root, dtype=np.float64)[:, :, None] * np.eye(root.shape[1])


class Likelihood(Complete, abstract=True):
    """Base class of the likelihoods: rows y_r are independent given the outputs f_r of the network.

    A network has m outputs for t targets; t = m unless the distribution of a target has several parameters that are
    outputs. Leading axes of `f`, such as (chain, draw), broadcast in all methods, and all results are float64.
    Defining a subclass without one of the attributes or abstract methods raises TypeError.

    Attributes
    ----------
    name : str
        Name of the likelihood in files, such as "gaussian".
    core_name : str or None
        Name in the compiled core, if that is another one.
    targets : {"real", "class", "binary", "count", "value"}
        Kind of the targets: real numbers (n, t); class labels (n,); zeros and ones (n, t); counts 0, 1, 2, ... (n, t);
        or numbers (n, 1) of which only a few differ.
    has_classes : bool
        Whether each row has one of m classes, or values, whose logits the outputs are, up to a common shift.
    is_quadratic : bool
        Whether the log-likelihood is quadratic in the outputs f. `Exact()` then samples a model with a Bayesian last
        layer only.
    weight_name : str
        What error messages call the argument from which the row weights come.
    outputs_per_target : int
        m / t. The first t outputs belong to the targets in their order, and so do the next t.
    takes_offset : bool
        Whether rows may have offsets. Methods that take outputs f then take the linear predictor, f + offset.
    quantity : str
        What summaries and reports call the outputs f, or what is `identified` of them.
    label : str
        Name of the likelihood as an argument of the estimators and on the command line, such as "student-t".
    example : str
        A call that makes one, for advice; of noise with a scale, one that samples it.
    settings : tuple of str
        Names of the parameters that `from_settings` takes.
    columns : tuple of str
        Names of the columns of numbers beside the target that a table may have for it, such as "exposure".
    numbers_per_target : int
        Length of the last axis of targets (n, t, ...) of which each has several numbers, such as two bounds; 1 for
        targets (n, t) or (n,).
    values : ndarray of float64, shape (m,), or None
        The values of targets of which few differ, one for each output, where they are known; None for other targets.
    noise_by_row : bool
        Whether the network also predicts the scale of the noise of each row.
    scale_name : str or None
        What the scale of the noise is called if it is a parameter, which can be fixed or sampled; else None.
    is_conjugate : bool
        Whether the conditional of a sampled variance is inverse-gamma given the sum of squared residuals. Mean squared
        residuals then estimate that variance.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    example: ClassVar[str]
    core_name: ClassVar[str | None] = None
    targets: ClassVar[Literal["real", "class", "binary", "count", "value"]]
    has_classes: ClassVar[bool] = False
    is_quadratic: ClassVar[bool]
    weight_name: ClassVar[str] = "sample_weight"
    outputs_per_target: int = 1
    values: FloatArray | None = None
    takes_offset: ClassVar[bool] = False
    quantity: ClassVar[str] = "f"
    settings: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[tuple[str, ...]] = ()
    numbers_per_target: ClassVar[int] = 1
    noise_by_row: ClassVar[bool] = False
    scale_name: ClassVar[str | None] = None
    is_conjugate: ClassVar[bool] = False

    @classmethod
    def from_settings(cls) -> Likelihood:
        """Return the likelihood for values of `settings`, each None if the caller leaves it open."""
        return cls()

    def for_scaled_targets(self, scale: FloatArray) -> Likelihood:
        """Return the likelihood of y / scale, scale (t,), where this one is that of y; here the likelihood itself.

        Raises ValueError if one scale of noise would serve targets that are scaled differently.
        """
        return self

    def for_training_targets(self, y: Targets) -> Likelihood:
        """Return the likelihood with what it takes from the training targets y (n, t) of a fit; here itself."""
        return self

    def wider(self) -> tuple[NoiseChange, ...]:
        """Return changes of the noise, the best first, where intervals of new targets cover too little."""
        return ()

    def narrower(self) -> tuple[NoiseChange, ...]:
        """Return changes of the noise, the best first, where intervals of new targets cover too much."""
        return ()

    def describe_noise(self, squared_scales: FloatArray | None, unit: float | FloatArray, how: str) -> str:
        """Return a sentence on the noise for reports; here an empty text.

        `squared_scales` (q,) are variances of the standardised targets, or squares of scales, where `scale_name` is not
        None; `unit`, a number or (t,), is the standard deviation of the targets, and `how` says whence they come.
        """
        return ""

    def describe_network_noise(self) -> str:
        """Return a sentence on the noise that the scores of the trained network alone take, for reports."""
        return "The network's own NLPD is that of its outputs as they are."

    def n_targets(self, n_outputs: int) -> int:
        """Return t for a network of `n_outputs` outputs; raise ValueError if no number of targets needs so many."""
        if n_outputs % self.outputs_per_target:
            raise ValueError(
                f"{self!r} needs {self.outputs_per_target} outputs of the network for each target; got {n_outputs}. "
                f"Train it with layer sizes (d, ..., {self.outputs_per_target} t) for t targets."
            )
        return n_outputs // self.outputs_per_target

    def integrates_outputs(self, n_outputs: int) -> bool:
        """Return whether weights of outputs can be integrated out (`collapse=True`); here False.

        The log-likelihood is then quadratic in the first t outputs, given the others, if there are any, or given a
        precision of each row that chains draw. Their weights are conditionally Gaussian.
        """
        return False

    def predicted(self, f: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what `Draws.predict` returns for outputs f (..., m) of the network, shape (..., t); here f itself."""
        return f

    def identified(self, f: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what chains must agree on: the outputs f (..., m), or probabilities that determine them; here f."""
        return f

    def strata(self, y: Targets) -> npt.NDArray[Any] | None:
        """Return the classes (n,) of which each part of the rows gets its share; None if there are none."""
        return None

    def is_possible(self, y: Targets) -> npt.NDArray[np.bool_]:
        """Return which checked targets have a positive probability or density, of the shape of `typical`; here all."""
        return np.ones(np.shape(y), dtype=bool)

    @abstractmethod
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
            A C-contiguous array: float64 of shape (n, t), or int64 of shape (n,) for classes.

        Raises
        ------
        TypeError
            If y does not hold numbers.
        ValueError
            If the shape is another or an entry is not allowed; the message gives the first bad row.
        """

    def check_offset(self, offset: npt.ArrayLike | None, n: int, m: int) -> FloatArray | None:
        """Return offsets (n,), of all outputs alike, or (n, m) as float64 (n, m); None if there are none.

        Raises
        ------
        TypeError
            If the offsets are not real numbers.
        ValueError
            If the likelihood takes no offset, the shape is another, or an entry is not finite.
        """
        if offset is None:
            return None
        if not self.takes_offset:
            raise ValueError(f"offset must be left out: {self!r} takes none. Poisson and NegativeBinomial take one.")
        values = as_real_array(offset, "offset")
        if values.shape not in ((n,), (n, m)):
            raise ValueError(
                f"offset must have shape ({n},) or ({n}, {m}), one row for each row of X; got {values.shape}."
            )
        check_finite(values.reshape(n, -1), "offset", "It is the logarithm of the exposure, which must be positive.")
        columns = values[:, None] if values.ndim == 1 else values
        return np.ascontiguousarray(np.broadcast_to(columns, (n, m)), dtype=np.float64)

    def with_offset(self, f: npt.NDArray[Any], offset: npt.ArrayLike | None) -> npt.NDArray[Any]:
        """Return outputs f (..., n, m) plus offsets (n,) or (n, m), which are checked, in the dtype of f."""
        added = self.check_offset(offset, *f.shape[-2:])
        return f if added is None else f + added.astype(f.dtype)

    @abstractmethod
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

    @abstractmethod
    def information_root(self, f: FloatArray, y: Targets | None = None) -> FloatArray:
        """Return a root B (n, m, r) of the Fisher information B B' of outputs f (n, m) of each row, offset included.

        `y` may say what was observed of a row, such as a bound alone.
        """

    def check_precision(self, y: Targets, dtype: np.dtype[Any]) -> None:
        """Raise ValueError if targets mean something else in the engine's dtype."""

    def typical(self, y: Targets) -> Targets:
        """Return finite numbers (n, t), or labels (n,), that stand for the targets; here y itself."""
        return y

    def is_known(self, y: Targets) -> npt.NDArray[np.bool_]:
        """Return which targets are known, not censored, of the shape of `typical`; here all."""
        return np.ones(np.shape(y), dtype=bool)

    def log_units(self, y: Targets, scale: FloatArray) -> FloatArray:
        """Return what the negative log densities of targets y / scale lack of those of y, (n,).

        The scale is (t,) or, where the units of rows differ, (n, t).
        """
        return np.broadcast_to(np.log(scale).sum(axis=-1), (len(y),))

    def crps_rows(self, noisy: FloatArray, y: Targets) -> FloatArray:
        """Return the continuous ranked probability score (n, t) of draws (M, n, t) of numbers, noise included, at y."""
        return crps(noisy[None], y, per_row=True)

    def squared_residuals(self, f: FloatArray, y: Targets, row_weights: FloatArray) -> FloatArray:
        """Return the squared residuals (n, t) of outputs f (n, m), whose weighted means estimate the noise variance."""
        raise TypeError(f"a {self.label} likelihood has no residuals.")

    def mean_precision(self, n_targets: int) -> float:
        """Return the mean over targets of 1 / scale^2 of the noise, in which loss and penalties scale; 1 without."""
        return 1.0

    def row_weights(self, sample_weight: npt.ArrayLike | None, n: int) -> FloatArray:
        """Return the factor of each row's term of the log-likelihood, float64 (n,): the sample weights, or ones.

        Raises
        ------
        TypeError
            If the weights are not real numbers.
        ValueError
            If the shape is not (n,), an entry is negative, NaN or infinite (the message gives its row), all are zero,
            or their sum overflows.
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
        with np.errstate(over="ignore"):
            total = weights.sum()
        if not np.isfinite(total):
            raise ValueError(
                f"sample_weight sums to more than float64 holds ({np.finfo(float).max:.2g}); its largest entry is "
                f"{weights.max():.2g}. Bring the weights nearer to 1."
            )
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

    def weighted_log_likelihood(self, f: FloatArray, y: Targets, row_weights: FloatArray) -> float:
        """Evaluate the log-likelihood of outputs f (n, m) under given row weights (n,)."""
        slices = [slice(first, first + _ROWS_AT_A_TIME) for first in range(0, len(y), _ROWS_AT_A_TIME)]
        return float(sum(row_weights[rows] @ self.log_likelihood_rows(f[rows], y[rows]) for rows in slices))

    def constant_log_likelihood(
        self, y: Targets, row_weights: FloatArray | None = None, offset: FloatArray | None = None
    ) -> float:
        """Return the log-likelihood of the best constant predictor (the mean of y, or the class frequencies).

        Row weights (n,) are as `row_weights` returns them, and offsets (n, m) as `check_offset` does. A sampled noise
        variance is fixed at its mode given the predictor's residuals.
        """
        return self.best_constant(y, self.row_weights(None, len(y)) if row_weights is None else row_weights, offset)

    @abstractmethod
    def best_constant(self, y: Targets, row_weights: FloatArray, offset: FloatArray | None) -> float:
        """Return `constant_log_likelihood` of row weights that are given."""

    def initial_outputs(
        self, y: Targets, row_weights: FloatArray, offset: FloatArray | None = None
    ) -> FloatArray | None:
        """Return outputs (m,) at which the biases of the last layer start in training; None for torch's random ones."""
        return None

    @property
    def is_sampled(self) -> bool:
        """Whether noise variances are sampled with theta."""
        return False

    @property
    def lacks_prior(self) -> bool:
        """Whether the prior of sampled noise variances is still to be chosen, see `with_prior_guess`."""
        return False

    def variance_prior(self, m: int) -> tuple[float, FloatArray]:
        """Return shape a and rates b (q,) of the inverse-gamma prior of sampled variances, one or one of each."""
        raise TypeError(f"{self!r} samples no variance.")

    def with_prior_guess(self, guess: npt.ArrayLike) -> Likelihood:
        """Return this likelihood with a prior of its sampled variances chosen by a guess (m,) where it is open."""
        return self

    def squared_scale_of(self, mean_square: FloatArray) -> FloatArray:
        """Return what `with_prior_guess` takes for noise with these mean squared residuals, shape (m,)."""
        return mean_square

    def variance_vector(self, m: int) -> FloatArray:
        """Return the fixed variances of noise whose scale is a parameter, shape (m,), or squares of its scales."""
        raise TypeError(f"{self!r} has no variance.")

    def at(self, variance: float | npt.ArrayLike) -> Likelihood:
        """Return the likelihood with fixed variances, or squares of scales, in place of sampled ones."""
        raise TypeError(f"{self!r} has no variance.")

    def fitted(self, f: FloatArray, y: Targets, row_weights: FloatArray) -> Likelihood:
        """Return this likelihood with sampled variances at their modes given outputs f (n, m) and row weights (n,)."""
        raise TypeError(f"{self!r} samples no variance.")

    def core_targets(self, y: Targets, offset: FloatArray | None) -> FloatArray:
        """Return the numbers that the compiled core compares with the outputs; here y itself as float64."""
        return np.ascontiguousarray(y, dtype=np.float64)

    def core_parameters(self, n_outputs: int, y: Targets, row_weights: FloatArray) -> dict[str, FloatArray]:
        """Return the parameters of a likelihood without sampled ones, (m,), by their names in the compiled core."""
        return {}

    def training_parameters(self, n_outputs: int, y: Targets, row_weights: FloatArray) -> dict[str, FloatArray]:
        """Return the parameters of the core with which networks are trained.

        With others than `core_parameters` the gradient need not be that of the log-likelihood.
        """
        return self.core_parameters(n_outputs, y, row_weights)

    def range_checks(self, n_outputs: int) -> Mapping[str, tuple[FloatArray, str]]:
        """Return the numbers that must not overflow or underflow in the engine's dtype, with advice, by their names."""
        return {}

    @abstractmethod
    def elementary_functions(self, n_outputs: int) -> dict[str, int]:
        """Return how often the engine evaluates each elementary function for one row's density and derivative."""

    def probabilities(self, f: npt.ArrayLike) -> FloatArray:
        """Return class probabilities, shape (..., n, m); raise TypeError if the likelihood has no classes."""
        raise TypeError(f"a {self.label} likelihood has no class probabilities; use Categorical or Bernoulli.")

    @abstractmethod
    def sample(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Draw targets with their noise.

        Parameters
        ----------
        f : array_like, shape (..., n, m)
        rng : numpy.random.Generator

        Returns
        -------
        ndarray
            Shape (..., n, t): float64 for real targets, int64 for zeros and ones; for classes int64 labels of shape
            (..., n).
        """

    def sample_at(self, f: npt.ArrayLike, rng: np.random.Generator, variance: FloatArray) -> Targets:
        """Draw targets (..., n, m) with their noise, given its sampled variances (...) or (..., m)."""
        raise TypeError(f"{self!r} samples no variance.")

    def sample_prior(self, f: npt.ArrayLike, rng: np.random.Generator) -> Targets:
        """Draw targets with their noise for f (draws, n, m), where each draw has its own variance from the prior."""
        return self.sample(f, rng)

    def mixture(self, f: npt.ArrayLike, variance: FloatArray | None = None, output: int = 0) -> TargetMixture:
        """Return the distribution of one target given draws of the outputs, noise included.

        Parameters
        ----------
        f : array_like, shape (M, n, m)
            Outputs of M draws of the network, or of M networks, at n inputs, offset included.
        variance : ndarray, shape (M,) or (M, m), optional
            The draws of the sampled noise variance, of one for all outputs or of one for each; required if the
            likelihood samples them.
        output : int
            The target, counted from 0; default 0.

        Returns
        -------
        TargetMixture
            With `mean`, `sd`, `quantile`, `interval`, `cdf` and `log_density`, among others, of equally weighted draws.

        Raises
        ------
        TypeError
            If the targets are neither real numbers nor counts.
        """
        raise TypeError(
            f"the likelihood must be one of real numbers or counts, such as Gaussian; got {self!r}. For classes use "
            "predict_proba, and score it with diagnostics.accuracy, brier or ece."
        )

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments as JSON-able values."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values from which `likelihood_from_dict` rebuilds the likelihood."""
        return {"name": self.name, **self.arguments()}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.arguments().items())
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Likelihood) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self))
