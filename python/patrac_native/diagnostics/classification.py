"""Scores and uncertainty of class probabilities: NLL, NLPD, Brier score, ECE, accuracy, entropy decomposition."""

from __future__ import annotations

from typing import Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.diagnostics._arrays import FloatArray, class_draws, labels, row_slices
from patrac_native.diagnostics.averages import log_mean_over_draws, mean_over_draws
from patrac_native.validation.checks import check_count


class EntropyDecomposition(NamedTuple):
    """The predictive entropy of each row and its parts, in nats, each (n,): total = aleatoric + epistemic."""

    total: FloatArray
    aleatoric: FloatArray
    epistemic: FloatArray


class CalibrationBins(NamedTuple):
    """Rows grouped by the confidence of their top label.

    `edges` has shape (n_bins + 1,), the other fields (n_bins,): the number of rows of each bin, and the means of
    confidence and accuracy over them, which are NaN for an empty bin.
    """

    edges: FloatArray
    n_rows: NDArray[np.intp]
    confidence: FloatArray
    accuracy: FloatArray


@overload
def class_nll(p: ArrayLike, y: ArrayLike, *, logits: bool = ..., per_draw: Literal[False] = ...) -> float: ...
@overload
def class_nll(p: ArrayLike, y: ArrayLike, *, logits: bool = ..., per_draw: Literal[True]) -> FloatArray: ...
def class_nll(p: ArrayLike, y: ArrayLike, *, logits: bool = False, per_draw: bool = False) -> float | FloatArray:
    """Evaluate the negative log-likelihood of the paper's Table 3: the mean of -log p_y over draws and rows.

    Parameters
    ----------
    p : array_like, shape (chain, draw, n, C)
        Class probabilities, or logits f with `logits=True`. A single column (C = 1) is Bernoulli: the probability, or
        the logit, of label 1.
    y : array_like of int, shape (n,)
        Labels in 0..C-1 (0 or 1 for Bernoulli).
    logits : bool, default False
        Whether `p` holds logits. They are preferable: a probability that was rounded to 0 gives an infinite score, its
        logit does not.
    per_draw : bool, default False
        Whether to return the mean over rows for each draw, whose standard deviation the paper's table gives in
        brackets.

    Returns
    -------
    float, or ndarray of shape (chain, draw) when `per_draw`
        The value in nats; infinite if a probability of an observed label is exactly 0.

    Raises
    ------
    TypeError
        If `p` or `y` does not hold real numbers.
    ValueError
        If shapes do not match, an entry is NaN or infinite, probabilities lie outside [0, 1] or do not sum to one, or
        labels are not whole numbers in 0..C-1.

    Examples
    --------
    >>> import math
    >>> p = [[[[0.5, 0.5], [0.25, 0.75]]]]
    >>> round(class_nll(p, [0, 1]), 6), round(float(np.log(2) - np.log(0.75)) / 2, 6)
    (0.490415, 0.490415)
    """
    mean = -_label_log_probability(p, y, logits=logits).mean(axis=2)
    return mean if per_draw else float(mean.mean())


@overload
def class_nlpd(p: ArrayLike, y: ArrayLike, *, logits: bool = ..., per_row: Literal[False] = ...) -> float: ...
@overload
def class_nlpd(p: ArrayLike, y: ArrayLike, *, logits: bool = ..., per_row: Literal[True]) -> FloatArray: ...
def class_nlpd(p: ArrayLike, y: ArrayLike, *, logits: bool = False, per_row: bool = False) -> float | FloatArray:
    """Evaluate the negative log predictive density: the mean over rows of -log(mean over draws of p_y).

    Parameters
    ----------
    p, y, logits
        As in `class_nll`.
    per_row : bool, default False
        Whether to return the value of each row instead of their mean.

    Returns
    -------
    float, or ndarray of shape (n,) when `per_row`
        The value in nats.

    Raises
    ------
    ValueError
        As `class_nll`.
    """
    log_p = _label_log_probability(p, y, logits=logits)
    out = -log_mean_over_draws(log_p.reshape(-1, log_p.shape[2]))
    return out if per_row else float(out.mean())


def brier(p: ArrayLike, y: ArrayLike) -> float:
    """Evaluate the multi-class Brier score: the mean over rows of sum_c (mean p_c - 1{y = c})^2.

    Parameters
    ----------
    p : array_like, shape (chain, draw, n, C)
        Class probabilities; one column is Bernoulli.
    y : array_like of int, shape (n,)
        Labels in 0..C-1.

    Returns
    -------
    float
        A value from 0 to 2; for two classes it is twice the usual binary score.

    Raises
    ------
    ValueError
        As `class_nll`.
    """
    mean, label = _predictive_mean(p, y)
    mean[np.arange(label.size), label] -= 1.0
    return float((mean**2).sum(axis=1).mean())


def accuracy(p: ArrayLike, y: ArrayLike) -> float:
    """Return the share of rows whose label has the largest mean probability; the lowest label wins a tie.

    Parameters
    ----------
    p, y : array_like
        As in `brier`.

    Returns
    -------
    float
        A value from 0 to 1.

    Raises
    ------
    ValueError
        As `class_nll`.
    """
    mean, label = _predictive_mean(p, y)
    return float((mean.argmax(axis=1) == label).mean())


def ece(p: ArrayLike, y: ArrayLike, n_bins: int = 15) -> float:
    """Evaluate the expected calibration error of the top label of the predictive mean.

    It is the sum over bins of (rows in the bin / n) `|accuracy - confidence|` (Guo et al., ICML 2017, equation 3).

    Parameters
    ----------
    p, y : array_like
        As in `brier`.
    n_bins : int, default 15
        Number of bins of equal width on [0, 1], closed on the right; at least 1.

    Returns
    -------
    float
        A value from 0 to 1. It is biased upwards in small samples, where the sampling noise of each bin counts as
        miscalibration.

    Raises
    ------
    ValueError
        As `class_nll`, and for `n_bins` below 1.
    """
    bins = calibration_bins(p, y, n_bins)
    used = bins.n_rows > 0
    gap = np.abs(bins.accuracy[used] - bins.confidence[used])
    return float((bins.n_rows[used] * gap).sum() / bins.n_rows.sum())


def calibration_bins(p: ArrayLike, y: ArrayLike, n_bins: int = 15) -> CalibrationBins:
    """Return confidence and accuracy of the top label in bins of equal width, of which `ece` is a weighted sum.

    Parameters
    ----------
    p, y, n_bins
        As in `ece`.

    Returns
    -------
    CalibrationBins

    Raises
    ------
    ValueError
        As `ece`.
    """
    n_bins = check_count(n_bins, "n_bins")
    mean, label = _predictive_mean(p, y)
    confidence = mean.max(axis=1)
    correct = mean.argmax(axis=1) == label
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    which = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, n_bins - 1)
    count = np.bincount(which, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        return CalibrationBins(
            edges=edges,
            n_rows=count,
            confidence=np.bincount(which, weights=confidence, minlength=n_bins) / count,
            accuracy=np.bincount(which, weights=correct, minlength=n_bins) / count,
        )


def entropy_decomposition(p: ArrayLike) -> EntropyDecomposition:
    """Decompose the predictive entropy of each row into an aleatoric and an epistemic part.

    The total is the entropy of the mean probabilities, the aleatoric part the mean over draws of the entropy, and the
    epistemic part their difference, the mutual information of label and parameters.

    Parameters
    ----------
    p : array_like, shape (chain, draw, n, C)
        Class probabilities; one column is Bernoulli. Zeros are allowed, with 0 log 0 = 0.

    Returns
    -------
    EntropyDecomposition
        `total`, `aleatoric` and `epistemic`, each (n,), in nats, between 0 and log C.

    Raises
    ------
    TypeError
        If `p` does not hold real numbers.
    ValueError
        If the shape is another, an entry is NaN or infinite, or the values are not probabilities.

    Examples
    --------
    >>> import math
    >>> split = entropy_decomposition([[[[1.0, 0.0]], [[0.0, 1.0]]]])  # two draws, sure of opposite labels
    >>> split.aleatoric.item(), round(split.epistemic.item() / float(np.log(2)), 12)
    (0.0, 1.0)
    """
    from scipy.special import entr

    prob = class_draws("p", p, logits=False)
    chain, draw, n, n_classes = prob.shape
    total, aleatoric = np.empty(n), np.empty(n)
    for rows in row_slices(n, 16 * chain * draw * n_classes):
        part = np.clip(prob[:, :, rows].astype(np.float64), 0.0, 1.0).reshape(chain * draw, -1, n_classes)
        total[rows] = entr(mean_over_draws(part)).sum(axis=1)
        aleatoric[rows] = mean_over_draws(entr(part).sum(axis=2))
    # By Jensen's inequality the difference is not negative; rounding can make it slightly so.
    return EntropyDecomposition(total, aleatoric, np.maximum(total - aleatoric, 0.0))


def _label_log_probability(p: ArrayLike, y: ArrayLike, *, logits: bool) -> FloatArray:
    """Return log p_y of each draw and row, float64 of shape (chain, draw, n)."""
    from scipy.special import logsumexp

    values = class_draws("p", p, logits=logits)
    label = labels(y, values)
    log_p: FloatArray = np.take_along_axis(values, label[None, None, :, None], axis=3)[..., 0].astype(np.float64)
    if not logits:
        with np.errstate(divide="ignore"):
            return np.log(np.clip(log_p, 0.0, 1.0))
    chain, draw, n, n_classes = values.shape
    for rows in row_slices(n, 16 * chain * draw * n_classes):
        log_p[:, :, rows] -= logsumexp(values[:, :, rows].astype(np.float64), axis=3)
    return log_p


def _predictive_mean(p: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the mean probabilities over all draws, float64 (n, C), and the checked labels (n,)."""
    values = class_draws("p", p, logits=False)
    label = labels(y, values)
    return values.mean(axis=(0, 1), dtype=np.float64), label
