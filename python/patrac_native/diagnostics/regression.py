"""Intervals, calibration and scores of regression draws: coverage, PIT, NLL, NLPD, RMSE, CRPS."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.diagnostics._arrays import FloatArray, function_draws, noise_variance, numeric, row_blocks, targets

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
    """Central credible interval at each row and output from the draws of all chains together.

    Parameters
    ----------
    draws : array_like, shape (chain, draw, n, m)
        Draws of f, or of y with the noise included (then the interval is for y).
    coverage : float in (0, 1), default 0.95
        Posterior probability of the interval; (1 - coverage)/2 is left out on either side.
    method : str, default "weibull"
        How `numpy.quantile` reads quantiles off the draws. The default puts the quantile b at position b (M + 1) of M
        sorted draws, so that an independent further draw falls below it with probability b; NumPy's own default,
        "linear", gives 98.6% intervals instead of 99% at M = 500. "inverted_cdf" is the paper's estimator (section
        4.2), up to ties.

    Returns
    -------
    Interval
        `lower` and `upper`, each (n, m), float64.

    Raises
    ------
    ValueError
        For draws of another shape or with NaN or infinity, or a coverage outside (0, 1).

    Examples
    --------
    >>> draws = np.arange(1.0, 100.0).reshape(1, 99, 1, 1)
    >>> lower, upper = credible_interval(draws, coverage=0.9)
    >>> round(lower.item(), 10), round(upper.item(), 10)
    (5.0, 95.0)
    """
    values = function_draws("draws", draws)
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage}; 0.95 means 95%")
    tail = (1.0 - coverage) / 2.0
    ends = _quantiles(values, np.array([tail, 1.0 - tail]), method)
    return Interval(ends[0], ends[1])


def coverage(
    f: ArrayLike,
    truth: ArrayLike,
    *,
    tau: ArrayLike = (0.01, 0.05, 0.35),
    method: QuantileMethod = "weibull",
) -> FloatArray:
    """Share of rows whose truth lies in the central 1 - tau credible interval (paper, section 4.2, Figure 3).

    Parameters
    ----------
    f : array_like, shape (chain, draw, n, m)
        Draws of f with `truth` the true f (known only in simulations), or draws of y, the noise included, with
        `truth` the observed y.
    truth : array_like, shape (n,) when m == 1, or (n, m)
        What the intervals should hold. With several outputs the share is over rows and outputs.
    tau : array_like of floats in (0, 1), default (0.01, 0.05, 0.35)
        Probabilities left out, by keyword: 0.05 asks for the 95% interval; the target of each is 1 - tau.
    method : str, default "weibull"
        As in `credible_interval`.

    Returns
    -------
    ndarray, shape of `tau`
        Observed coverage between 0 and 1.

    Raises
    ------
    ValueError
        For shapes that do not match, NaN or infinity, or a tau outside (0, 1).
    """
    values = function_draws("f", f)
    true = targets("truth", truth, "f", values)
    levels = numeric("tau", tau).astype(np.float64)
    if not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"tau must lie strictly between 0 and 1, got {levels}; 0.05 asks for the 95% interval")
    flat = levels.ravel()
    ends = _quantiles(values, np.concatenate([flat / 2.0, 1.0 - flat / 2.0]), method)
    inside = (ends[: flat.size] <= true) & (true <= ends[flat.size :])
    return np.asarray(inside.mean(axis=(1, 2)).reshape(levels.shape), dtype=np.float64)


def pit(draws: ArrayLike, y: ArrayLike) -> FloatArray:
    """Share of draws below each observation, sum 1{draw < y}/M over all chains (the paper's Figure 5).

    Parameters
    ----------
    draws : array_like, shape (chain, draw, n, m)
        Draws of y with the noise included for a calibration check (values are then close to uniform). The paper's
        figure uses draws of f; the statistic is the same.
    y : array_like, shape (n,) when m == 1, or (n, m)
        Observations.

    Returns
    -------
    ndarray, shape of `y`
        Values in {0, 1/M, ..., 1}.

    Raises
    ------
    ValueError
        For shapes that do not match, NaN or infinity.
    """
    values = function_draws("draws", draws)
    observed = targets("y", y, "draws", values)
    below = np.empty_like(observed)
    for rows in _blocks(values):
        below[rows] = (values[:, :, rows] < observed[rows]).mean(axis=(0, 1))
    return below.reshape(np.shape(y))


@overload
def nll(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_draw: Literal[False] = ...) -> float: ...
@overload
def nll(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_draw: Literal[True]) -> FloatArray: ...
def nll(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_draw: bool = False) -> float | FloatArray:
    """Negative log-likelihood of the paper's Table 1: mean over draws of sum over rows of (y - f)^2 / (2 sigma^2).

    The constant log(2 pi sigma^2)/2 of each row is dropped, and rows are summed, not averaged, as there. Use `nlpd`
    to compare models: this number punishes posterior spread.

    Parameters
    ----------
    f : array_like, shape (chain, draw, n, m)
        Function draws, without noise.
    y : array_like, shape (n,) when m == 1, or (n, m)
        Observations.
    variance : array_like
        Noise variance, positive: a scalar, (m,), or, where it was sampled with f, (chain, draw) or (chain, draw, m).
    per_draw : bool, default False
        Return the sum over rows of each draw instead of their mean.

    Returns
    -------
    float, or ndarray of shape (chain, draw) when `per_draw`

    Raises
    ------
    ValueError
        For shapes that do not match, NaN or infinity, or a variance that is not positive.
    """
    values = function_draws("f", f)
    observed = targets("y", y, "f", values)
    noise = noise_variance(variance, values)
    total = np.zeros(values.shape[:2])
    for rows in _blocks(values):
        total += (0.5 * (observed[rows] - values[:, :, rows]) ** 2 / noise).sum(axis=(2, 3))
    return total if per_draw else float(total.mean())


@overload
def nlpd(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_row: Literal[False] = ...) -> float: ...
@overload
def nlpd(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_row: Literal[True]) -> FloatArray: ...
def nlpd(f: ArrayLike, y: ArrayLike, variance: ArrayLike, *, per_row: bool = False) -> float | FloatArray:
    """Negative log predictive density, **mean per row** of -log( mean over draws of N(y; f, variance) ).

    Normalised (it holds log(2 pi sigma^2)/2), in nats; several outputs of a row are scored jointly.

    Parameters
    ----------
    f, y, variance : array_like
        As in `nll`.
    per_row : bool, default False
        Return the value of each row instead of their mean.

    Returns
    -------
    float, or ndarray of shape (n,) when `per_row`

    Raises
    ------
    ValueError
        As `nll`.
    """
    from scipy.special import logsumexp

    values = function_draws("f", f)
    observed = targets("y", y, "f", values)
    noise = noise_variance(variance, values)
    n_draws = values.shape[0] * values.shape[1]
    constant = 0.5 * np.log(2.0 * math.pi * noise)
    out = np.empty(values.shape[2])
    for rows in _blocks(values):
        log_density = -(0.5 * (observed[rows] - values[:, :, rows]) ** 2 / noise + constant).sum(axis=3)
        out[rows] = math.log(n_draws) - logsumexp(log_density, axis=(0, 1))
    return out if per_row else float(out.mean())


def rmse(f: ArrayLike, y: ArrayLike) -> float:
    """Root mean squared error of the posterior mean, over rows and outputs.

    Parameters
    ----------
    f : array_like, shape (chain, draw, n, m)
        Function draws (a fixed prediction is one chain of one draw).
    y : array_like, shape (n,) when m == 1, or (n, m)
        Observations, or the true f.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        For shapes that do not match, NaN or infinity.
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
    """Continuous ranked probability score E|X - y| - E|X - X'|/2 of predictive draws, mean over rows and outputs.

    Parameters
    ----------
    y_draws : array_like, shape (chain, draw, n, m)
        Draws of y with the noise included; at least 2 in all.
    y : array_like, shape (n,) when m == 1, or (n, m)
        Observations.
    fair : bool, default True
        Divide the sum of |X_i - X_j| by M (M - 1), which is unbiased for independent draws; False divides by M^2, the
        score of the empirical distribution. Draws of a chain are correlated, which leaves a bias of order 1/ESS.
    per_row : bool, default False
        Return the score of each row and output instead of the mean.

    Returns
    -------
    float, or ndarray of the shape of `y` when `per_row`
        In the units of y, smaller is better.

    Raises
    ------
    ValueError
        For shapes that do not match, NaN or infinity, or a single draw.

    Notes
    -----
    Gneiting and Raftery, JASA 2007, equation 21; fair version: Ferro, QJRMS 2014. Pairs are summed by sorting,
    sum_ij |X_i - X_j| = 2 sum_i (2i - M - 1) X_(i), in O(M log M).
    """
    values = function_draws("y_draws", y_draws)
    observed = targets("y", y, "y_draws", values)
    n_draws = values.shape[0] * values.shape[1]
    if n_draws < 2:
        raise ValueError(f"y_draws must hold at least 2 draws in all, got shape {values.shape}")
    rank_weight = 2.0 * np.arange(1, n_draws + 1) - n_draws - 1.0
    pairs = n_draws * (n_draws - 1.0) if fair else float(n_draws) ** 2
    out = np.empty_like(observed)
    for rows in _blocks(values):
        # Differences to y keep the pair sum exact where y is far from zero; it does not change under a shift.
        error = (values[:, :, rows] - observed[rows]).reshape(n_draws, -1)
        error.sort(axis=0)
        score = np.abs(error).mean(axis=0) - rank_weight @ error / pairs
        out[rows] = score.reshape(-1, values.shape[3])
    return out.reshape(np.shape(y)) if per_row else float(out.mean())


def _blocks(values: NDArray[Any]) -> Any:
    """Row blocks for temporaries of the size of the draws, in float64 (up to six of them at a time)."""
    chain, draw, n, m = values.shape
    return row_blocks(n, 48 * chain * draw * m)


def _quantiles(values: NDArray[Any], levels: FloatArray, method: QuantileMethod) -> FloatArray:
    """Quantiles over all chains, shape (len(levels), n, m)."""
    out = np.empty((levels.size, *values.shape[2:]))
    for rows in _blocks(values):
        pooled = values[:, :, rows].reshape(-1, *values[0, 0, rows].shape).astype(np.float64, copy=False)
        out[:, rows] = np.quantile(pooled, levels, axis=0, method=method)
    return out
