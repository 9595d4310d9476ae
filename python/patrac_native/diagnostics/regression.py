"""Intervals, calibration and scores of draws in regression: coverage, PIT, NLL, NLPD, RMSE, CRPS."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.diagnostics._arrays import FloatArray, function_draws, noise_variance, numeric, row_slices, targets
from patrac_native.diagnostics.averages import log_mean_over_draws, mean_over_draws
from patrac_native.validation.checks import check_probability

QuantileMethod = Literal[
    "inverted_cdf",
    "averaged_inverted_cdf",
    "closest_observation",
    "interpolated_inverted_cdf",
    "hazen",
    "weibull",
    "linear",
    "median_unbiased",
    "normal_unbiased",
    "lower",
    "higher",
    "midpoint",
    "nearest",
]


class Interval(NamedTuple):
    """Lower and upper ends of a central interval, each of shape (n, m)."""

    lower: FloatArray
    upper: FloatArray


def credible_interval(draws: ArrayLike, coverage: float = 0.95, *, method: QuantileMethod = "weibull") -> Interval:
    """Return the central credible interval at each row and output, from the draws of all chains together.

    Parameters
    ----------
    draws : array_like, shape (chain, draw, n, m)
        Draws of f, or of y with the noise included, which give an interval for y.
    coverage : float in (0, 1), default 0.95
        Posterior probability of the interval; (1 - coverage)/2 lies on either side of it.
    method : str, default "weibull"
        The method by which `numpy.quantile` estimates quantiles. The default takes the quantile b at position b (M + 1)
        of M sorted draws, so that a further independent draw falls below it with probability b; NumPy's own default,
        "linear", gives 98.6% intervals instead of 99% for M = 500. "inverted_cdf" is the paper's estimator (section
        4.2), up to ties.

    Returns
    -------
    Interval
        `lower` and `upper`, each float64 of shape (n, m).

    Raises
    ------
    TypeError
        If the draws are not real numbers.
    ValueError
        If the draws have another shape, an entry is NaN or infinite, or `coverage` is outside (0, 1).

    Examples
    --------
    >>> draws = np.arange(1.0, 100.0).reshape(1, 99, 1, 1)
    >>> lower, upper = credible_interval(draws, coverage=0.9)
    >>> round(lower.item(), 10), round(upper.item(), 10)
    (5.0, 95.0)
    """
    values = function_draws("draws", draws)
    tail = (1.0 - check_probability(coverage, "coverage")) / 2.0
    ends = _quantiles(values, np.array([tail, 1.0 - tail]), method)
    return Interval(ends[0], ends[1])


def coverage(
    f: ArrayLike,
    truth: ArrayLike,
    *,
    coverage: ArrayLike = (0.99, 0.95, 0.65),
    method: QuantileMethod = "weibull",
) -> FloatArray:
    """Return the share of rows whose truth lies in central credible intervals of the given probabilities.

    This is the coverage of the paper's section 4.2 and Figure 3, where tau is one minus the probability. It is for
    draws of real numbers. Intervals of counts end at counts, and cover more than their probability:
    `PredictiveDistribution.coverage` takes those at an end in part, and can be compared with the probability.

    Parameters
    ----------
    f : array_like, shape (chain, draw, n, m)
        Draws of f if `truth` is the true f, which is known only in simulations; draws of y with the noise included if
        `truth` is the observed y.
    truth : array_like, shape (n,) when m == 1, or (n, m)
        The values that the intervals should contain. With several outputs the share is over rows and outputs.
    coverage : array_like of floats in (0, 1), default (0.99, 0.95, 0.65)
        Probabilities of the intervals, which are the shares to expect.
    method : str, default "weibull"
        As in `credible_interval`.

    Returns
    -------
    ndarray of float64, shape of `coverage`
        Observed coverage between 0 and 1.

    Raises
    ------
    TypeError, ValueError
        As `nll`, if a probability is outside (0, 1).
    """
    values = function_draws("f", f)
    true = targets("truth", truth, "f", values)
    levels = numeric("coverage", coverage).astype(np.float64)
    if not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {levels}; 0.95 asks for the 95% interval")
    # Rounded, since 1 - 0.99 is not 0.01 in the last bit, which decides where order statistics are read.
    flat = np.round(1.0 - levels.ravel(), 15)
    ends = _quantiles(values, np.concatenate([flat / 2.0, 1.0 - flat / 2.0]), method)
    inside = (ends[: flat.size] <= true) & (true <= ends[flat.size :])
    return np.asarray(inside.mean(axis=(1, 2)).reshape(levels.shape), dtype=np.float64)


def pit(
    draws: ArrayLike, y: ArrayLike, *, ties: Literal["below", "half", "random"] = "below", seed: int = 0
) -> FloatArray:
    """Return the share of draws below each observation, sum 1{draw < y}/M over all M draws (the paper's Figure 5).

    Parameters
    ----------
    draws : array_like, shape (chain, draw, n, m)
        Draws of y with the noise included, for a check of calibration: the values of a calibrated model are close to
        uniform. The paper's figure shows the same statistic of draws of f.
    y : array_like, shape (n,) when m == 1, or (n, m)
        Observations.
    ties : {"below", "half", "random"}, default "below"
        What is added of the share of draws that equal the observation, which matters for counts: nothing; half of it,
        the mid-PIT, whose mean is 1/2 for calibrated counts; or a share between 0 and 1 that is drawn for each
        observation, the randomised PIT, which is uniform for calibrated counts (Czado, Gneiting & Held 2009, Predictive
        model assessment for count data).
    seed : int, default 0
        Seed of the random shares.

    Returns
    -------
    ndarray of float64, shape of `y`
        Values in [0, 1]; with "below", in {0, 1/M, ..., 1}.

    Raises
    ------
    TypeError, ValueError
        As `nll`, if `ties` is another.
    """
    if ties not in ("below", "half", "random"):
        raise ValueError(f'ties must be "below", "half" or "random"; got {ties!r}')
    values = function_draws("draws", draws)
    observed = targets("y", y, "draws", values)
    below = np.empty_like(observed)
    shares = np.random.default_rng(seed).random(observed.shape) if ties == "random" else np.full_like(observed, 0.5)
    for rows in _row_slices(values):
        below[rows] = (values[:, :, rows] < observed[rows]).mean(axis=(0, 1))
        if ties != "below":
            below[rows] += shares[rows] * (values[:, :, rows] == observed[rows]).mean(axis=(0, 1))
    return below.reshape(np.shape(y))


@overload
def nll(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_draw: Literal[False] = ...) -> float: ...
@overload
def nll(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_draw: Literal[True]) -> FloatArray: ...
def nll(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_draw: bool = False) -> float | FloatArray:
    """Evaluate the paper's negative log-likelihood: the sum over rows of (y - f)^2 / (2 sigma^2), mean over draws.

    As in the paper's Table 1, the constant log(2 pi sigma^2)/2 of each row is left out, and rows are summed rather than
    averaged. Use `nlpd` to compare models, because this value penalises posterior spread.

    Parameters
    ----------
    f : array_like, shape (chain, draw, n, m)
        Function draws, without noise.
    y : array_like, shape (n,) when m == 1, or (n, m)
        Observations.
    variance : array_like
        Noise variance, positive: a scalar or shape (m,); if it was sampled with f, shape (chain, draw) or
        (chain, draw, m).
    per_draw : bool, default False
        Whether to return the sum over rows for each draw instead of the mean over draws.

    Returns
    -------
    float, or ndarray of shape (chain, draw) when `per_draw`

    Raises
    ------
    TypeError
        If an argument does not hold real numbers.
    ValueError
        If shapes do not match, an entry is NaN or infinite, or a variance is not positive.
    """
    values = function_draws("f", f)
    observed = targets("y", y, "f", values)
    noise = noise_variance(variance, values)
    total = np.zeros(values.shape[:2])
    for rows in _row_slices(values):
        total += (0.5 * (observed[rows] - values[:, :, rows]) ** 2 / noise).sum(axis=(2, 3))
    return total if per_draw else float(total.mean())


@overload
def nlpd(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_row: Literal[False] = ...) -> float: ...
@overload
def nlpd(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_row: Literal[True]) -> FloatArray: ...
def nlpd(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_row: bool = False) -> float | FloatArray:
    """Evaluate the negative log predictive density: the mean over rows of -log(mean over draws of N(y; f, variance)).

    The density is normalised: it includes the constant log(2 pi sigma^2)/2. Several outputs of a row are scored
    jointly.

    Parameters
    ----------
    f, y, variance : array_like
        As in `nll`.
    per_row : bool, default False
        Whether to return the value of each row instead of their mean.

    Returns
    -------
    float, or ndarray of shape (n,) when `per_row`
        The value in nats.

    Raises
    ------
    TypeError, ValueError
        As `nll`.
    """
    values = function_draws("f", f)
    observed = targets("y", y, "f", values)
    noise = noise_variance(variance, values)
    constant = 0.5 * np.log(2.0 * math.pi * noise)
    out = np.empty(values.shape[2])
    for rows in _row_slices(values):
        log_density = -(0.5 * (observed[rows] - values[:, :, rows]) ** 2 / noise + constant).sum(axis=3)
        out[rows] = -log_mean_over_draws(log_density.reshape(-1, log_density.shape[2]))
    return out if per_row else float(out.mean())


def rmse(f: ArrayLike, y: ArrayLike) -> float:
    """Evaluate the root mean squared error of the posterior mean, over rows and outputs.

    Parameters
    ----------
    f : array_like, shape (chain, draw, n, m)
        Function draws; a point prediction is one chain of one draw.
    y : array_like, shape (n,) when m == 1, or (n, m)
        Observations, or the true f.

    Returns
    -------
    float
        The error in the units of y.

    Raises
    ------
    TypeError, ValueError
        As `nll`.
    """
    values = function_draws("f", f)
    observed = targets("y", y, "f", values)
    mean = values.mean(axis=(0, 1), dtype=np.float64)
    return float(np.sqrt(np.mean((mean - observed) ** 2)))


@overload
def crps(y_draws: ArrayLike, y: ArrayLike, *, fair: bool = ..., per_row: Literal[False] = ...) -> float: ...
@overload
def crps(y_draws: ArrayLike, y: ArrayLike, *, fair: bool = ..., per_row: Literal[True]) -> FloatArray: ...
def crps(y_draws: ArrayLike, y: ArrayLike, *, fair: bool = True, per_row: bool = False) -> float | FloatArray:
    """Evaluate the continuous ranked probability score `E|X - y| - E|X - X'|/2`, mean over rows and outputs.

    Parameters
    ----------
    y_draws : array_like, shape (chain, draw, n, m)
        Draws of y with the noise included; at least 2 in all.
    y : array_like, shape (n,) when m == 1, or (n, m)
        Observations.
    fair : bool, default True
        Whether to divide the sum of `|X_i - X_j|` by M (M - 1), which is unbiased for independent draws, instead of by
        M^2, which gives the score of the empirical distribution. Because the draws of a chain are correlated, a bias
        of order 1/ESS remains.
    per_row : bool, default False
        Whether to return the score of each row and output instead of the mean.

    Returns
    -------
    float, or ndarray of the shape of `y` when `per_row`
        The score in the units of y; smaller is better.

    Raises
    ------
    TypeError, ValueError
        As `nll`, if there is a single draw.

    Notes
    -----
    The score is equation 21 of Gneiting and Raftery, JASA 2007; the fair version is that of Ferro, QJRMS 2014. Sorting
    gives the sum over pairs in O(M log M): `sum_ij |X_i - X_j| = 2 sum_i (2i - M - 1) X_(i)`.
    """
    values = function_draws("y_draws", y_draws)
    observed = targets("y", y, "y_draws", values)
    n_draws = values.shape[0] * values.shape[1]
    if n_draws < 2:
        raise ValueError(f"y_draws must hold at least 2 draws in all, got shape {values.shape}")
    rank_weight = 2.0 * np.arange(1, n_draws + 1) - n_draws - 1.0
    pairs = n_draws * (n_draws - 1.0) if fair else float(n_draws) ** 2
    out = np.empty_like(observed)
    for rows in _row_slices(values):
        # The sum over pairs does not change under a shift; subtracting y keeps it accurate if y is far from zero.
        error = (values[:, :, rows] - observed[rows]).reshape(n_draws, -1)
        error.sort(axis=0)
        score = mean_over_draws(np.abs(error)) - mean_over_draws(rank_weight[:, None] * error) * (n_draws / pairs)
        out[rows] = score.reshape(-1, values.shape[3])
    return out.reshape(np.shape(y)) if per_row else float(out.mean())


def mean_with_error(values: FloatArray, weights: FloatArray | None = None) -> tuple[float, float]:
    """Return the mean of the values of independent rows, such as scores, and its standard error.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)
    weights : ndarray of float64, shape (n,), optional
        Nonnegative weights of the rows; their effective number is then (sum w)^2 / sum w^2 (Kish). Default ones.

    Returns
    -------
    mean, error : float
        The error of a single value is infinite.
    """
    if weights is None:
        n = len(values)
        return float(values.mean()), float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    shares = weights / weights.sum()
    count, mean = 1.0 / float(shares @ shares), float(shares @ values)
    if count <= 1 + 1e-9:
        return mean, math.inf
    return mean, math.sqrt(float(shares @ (values - mean) ** 2) / (count - 1))


def _row_slices(values: NDArray[Any]) -> Any:
    """Yield slices of rows for up to six float64 temporaries of the shape of the draws."""
    chain, draw, n, m = values.shape
    return row_slices(n, 48 * chain * draw * m)


def _quantiles(values: NDArray[Any], levels: FloatArray, method: QuantileMethod) -> FloatArray:
    """Return quantiles over the draws of all chains, shape (len(levels), n, m)."""
    out = np.empty((levels.size, *values.shape[2:]))
    for rows in _row_slices(values):
        pooled = values[:, :, rows].reshape(-1, *values[0, 0, rows].shape).astype(np.float64, copy=False)
        out[:, rows] = np.quantile(pooled, levels, axis=0, method=method)
    return out
