"""Scores and uncertainty of class probabilities: NLL, NLPD, Brier, ECE, accuracy, split of the entropy."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.diagnostics._arrays import FloatArray, class_draws, labels, row_blocks


class EntropyDecomposition(NamedTuple):
    """Predictive entropy of each row in nats, each (n,): total = aleatoric + epistemic."""

    total: FloatArray
    aleatoric: FloatArray
    epistemic: FloatArray


class CalibrationBins(NamedTuple):
    """Rows grouped by the confidence of their top label; each field has one entry for each bin.

    `edges` (n_bins + 1,); `n_rows` (n_bins,); `confidence` and `accuracy` (n_bins,), the means over the bin's rows, NaN
    in an empty bin.
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
    """Negative log-likelihood of the paper's Table 3: mean over draws of the mean per row of -log p_y, unscaled.

    Parameters
    ----------
    p : array_like, shape (chain, draw, n, C)
        Class probabilities, or logits f with `logits=True`. One column (C = 1) is Bernoulli: the probability, or the
        logit, of label 1.
    y : array_like of int, shape (n,)
        Labels in 0..C-1 (0 or 1 for Bernoulli).
    logits : bool, default False
        `p` holds logits. Prefer them: a probability that was rounded to 0 scores infinity, its logit does not.
    per_draw : bool, default False
        Return the mean per row of each draw; its standard deviation is the figure in brackets of the paper's table.

    Returns
    -------
    float, or ndarray of shape (chain, draw) when `per_draw`
        In nats. Infinite if a probability of an observed label is exactly 0.

    Raises
    ------
    ValueError
        For shapes that do not match, NaN or infinity, probabilities outside [0, 1] or that do not sum to one, labels
        that are not whole numbers in 0..C-1.

    Examples
    --------
    >>> p = [[[[0.5, 0.5], [0.25, 0.75]]]]
    >>> round(class_nll(p, [0, 1]), 6) == round((math.log(2) - math.log(0.75)) / 2, 6)
    True
    """
    total = np.zeros(np.shape(p)[:2])
    n = 0
    for _, log_p in _label_log_probability(p, y, logits=logits):
        total -= log_p.sum(axis=2)
        n += log_p.shape[2]
    return total / n if per_draw else float((total / n).mean())


@overload
def class_nlpd(p: ArrayLike, y: ArrayLike, *, logits: bool = ..., per_row: Literal[False] = ...) -> float: ...
@overload
def class_nlpd(p: ArrayLike, y: ArrayLike, *, logits: bool = ..., per_row: Literal[True]) -> FloatArray: ...
def class_nlpd(p: ArrayLike, y: ArrayLike, *, logits: bool = False, per_row: bool = False) -> float | FloatArray:
    """Negative log predictive density, mean per row of -log( mean over draws of p_y ), the log score of the forecast.

    Parameters
    ----------
    p, y, logits
        As in `class_nll`.
    per_row : bool, default False
        Return the value of each row instead of their mean.

    Returns
    -------
    float, or ndarray of shape (n,) when `per_row`
        In nats.

    Raises
    ------
    ValueError
        As `class_nll`.
    """
    from scipy.special import logsumexp

    parts = []
    for _, log_p in _label_log_probability(p, y, logits=logits):
        parts.append(math.log(log_p.shape[0] * log_p.shape[1]) - logsumexp(log_p, axis=(0, 1)))
    out = np.asarray(np.concatenate(parts), dtype=np.float64)
    return out if per_row else float(out.mean())


def brier(p: ArrayLike, y: ArrayLike) -> float:
    """Multi-class Brier score of the predictive mean, mean per row of sum_c (mean p_c - 1{y = c})^2.

    Parameters
    ----------
    p : array_like, shape (chain, draw, n, C)
        Class probabilities; one column is Bernoulli.
    y : array_like of int, shape (n,)
        Labels in 0..C-1.

    Returns
    -------
    float
        From 0 to 2; for two classes twice the usual binary score.

    Raises
    ------
    ValueError
        As `class_nll`.
    """
    mean, label = _predictive_mean(p, y)
    mean[np.arange(label.size), label] -= 1.0
    return float((mean**2).sum(axis=1).mean())


def accuracy(p: ArrayLike, y: ArrayLike) -> float:
    """Share of rows whose label has the largest predictive mean probability (ties: the lowest label).

    Parameters
    ----------
    p, y : array_like
        As in `brier`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        As `class_nll`.
    """
    mean, label = _predictive_mean(p, y)
    return float((mean.argmax(axis=1) == label).mean())


def ece(p: ArrayLike, y: ArrayLike, n_bins: int = 15) -> float:
    """Expected calibration error of the top label of the predictive mean, equal-width bins.

    sum over bins of (rows in the bin / n) |accuracy - confidence| (Guo et al., ICML 2017, equation 3).

    Parameters
    ----------
    p, y : array_like
        As in `brier`.
    n_bins : int, default 15
        Bins of equal width on [0, 1], closed on the right.

    Returns
    -------
    float
        From 0 to 1. Biased upwards in small samples: empty noise in each bin counts as miscalibration.

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
    """Confidence and accuracy of the top label in equal-width bins of confidence: what `ece` sums, what a plot shows.

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
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}")
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
    """Split the predictive entropy of each row into aleatoric and epistemic parts.

    total H(mean p) = aleatoric (mean over draws of H(p)) + epistemic (the mutual information of label and parameters).

    Parameters
    ----------
    p : array_like, shape (chain, draw, n, C)
        Class probabilities; one column is Bernoulli. Zeros are fine, 0 log 0 = 0.

    Returns
    -------
    EntropyDecomposition
        `total`, `aleatoric`, `epistemic`, each (n,), in nats, between 0 and log C.

    Raises
    ------
    ValueError
        For another shape, NaN or infinity, or values that are not probabilities.

    Examples
    --------
    >>> split = entropy_decomposition([[[[1.0, 0.0]], [[0.0, 1.0]]]])  # two draws, sure of opposite labels
    >>> split.aleatoric.item(), round(split.epistemic.item() / math.log(2), 12)
    (0.0, 1.0)
    """
    from scipy.special import entr

    prob = class_draws("p", p, logits=False)
    chain, draw, n, n_classes = prob.shape
    total, aleatoric = np.empty(n), np.empty(n)
    for rows in row_blocks(n, 16 * chain * draw * n_classes):
        block = np.clip(prob[:, :, rows].astype(np.float64), 0.0, 1.0)
        total[rows] = entr(block.mean(axis=(0, 1))).sum(axis=1)
        aleatoric[rows] = entr(block).sum(axis=3).mean(axis=(0, 1))
    # Never negative by Jensen's inequality; rounding can put it a few ulp below.
    return EntropyDecomposition(total, aleatoric, np.maximum(total - aleatoric, 0.0))


def _label_log_probability(p: ArrayLike, y: ArrayLike, *, logits: bool) -> Any:
    """(rows, log p_y) for each block of rows, log p_y of shape (chain, draw, rows) in float64."""
    from scipy.special import log_softmax

    values = class_draws("p", p, logits=logits)
    label = labels(y, values)
    chain, draw, n, n_classes = values.shape
    for rows in row_blocks(n, 16 * chain * draw * n_classes):
        block = values[:, :, rows]
        column = label[rows][None, None, :, None]
        if logits:
            block = log_softmax(block.astype(np.float64), axis=3)
            log_p = np.take_along_axis(block, column, axis=3)[..., 0]
        else:
            of_label = np.take_along_axis(block, column, axis=3)[..., 0].astype(np.float64)
            with np.errstate(divide="ignore"):
                log_p = np.log(np.clip(of_label, 0.0, 1.0))
        yield rows, log_p


def _predictive_mean(p: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[np.intp]]:
    """Mean probabilities over all draws (n, C) in float64, and the checked labels (n,)."""
    values = class_draws("p", p, logits=False)
    label = labels(y, values)
    return values.mean(axis=(0, 1), dtype=np.float64), label
