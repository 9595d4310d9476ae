"""Means and standard deviations of columns in their training rows, by which inputs and targets are standardised."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.validation.checks import FloatArray

# At least so many columns of whole numbers, half of which reach the same largest value, are taken to share a unit.
_COMMON_COLUMNS = 16
# Below this share of the standard deviation, all values but the extremes are nearly one input to a network.
_LEAST_SPREAD = 1e-3
# Extremes are further from the median than the other values by this factor. A single one always is, since a standard
# deviation bounds the largest of n deviations by sqrt(n) times itself.
_GAP = 1e3


def mean_and_scale(values: FloatArray, weights: FloatArray | None = None) -> tuple[float, float]:
    """Return mean and standard deviation of values (n,), with weights (n,) if they are given; 0 if all are equal."""
    values = np.ascontiguousarray(values)
    # Because of rounding, equal numbers can have a standard deviation above zero.
    if weights is None:
        return float(values.mean()), 0.0 if np.ptp(values) == 0 else float(values.std())
    mean = float(np.average(values, weights=weights))
    variance = float(np.average((values - mean) ** 2, weights=weights))
    return mean, 0.0 if np.ptp(values) == 0 else float(np.sqrt(variance))


def extremes(values: FloatArray) -> npt.NDArray[np.intp] | None:
    """Return the few values that decide mean and scale, so that the others are nearly one input.

    They are at most a hundredth of the values, or three if that is at most a twentieth, or one, and further from the
    median than any other value by the factor `_GAP`. Neighbours in an honest tail have no such gap: the ratio of the
    j-th and the next largest of values with a tail x^-a exceeds r with probability r^(-a j) (Renyi's representation).
    A column of equal numbers but these is taken as it is: they are its information.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Finite numbers.

    Returns
    -------
    ndarray of int, or None
        Their indices, sorted.
    """
    n = len(values)
    if n < 3:
        return None
    # Divided by the largest, squares stay within the range of floats.
    largest = float(np.abs(values).max())
    if largest == 0:
        return None
    scaled = values / largest
    away = np.abs(scaled - np.median(scaled))
    most = max(1, min(3, n // 20), n // 100)
    order = np.argsort(-away, kind="stable")
    gaps = np.flatnonzero(away[order[:most]] > _GAP * away[order[1 : most + 1]])
    for count in (gaps + 1)[::-1]:
        if 0 < scaled[order[count:]].std() < _LEAST_SPREAD * scaled.std():
            return np.sort(order[:count])
    overflows = largest > np.sqrt(np.finfo(np.float64).max / n)
    return order[:1] if overflows else None


def common_scale(values: npt.NDArray[Any], scales: npt.ArrayLike) -> float | None:
    """Return one scale for columns of counts or intensities of one unit, such as pixels; None for other columns.

    Scaled each by itself, pixels that are nearly always 0 would reach tens of standard deviations where they are not.
    The columns are taken to share a unit if there are at least 16, all hold whole numbers from 0, at least half of them
    have the same largest value, above 1, and the others reach half of it or are 0 in most rows.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d)
        NaN where a value is missing; no column is constant.
    scales : array_like, shape (d,)
        Standard deviations of the columns.

    Returns
    -------
    float or None
        The root mean square of the scales.
    """
    if values.shape[1] < _COMMON_COLUMNS:
        return None
    known = values[~np.isnan(values)]
    largest = np.nanmax(values, axis=0)
    alike = (2 * largest >= largest.max()) | (np.nanmedian(values, axis=0) == 0)
    if (known < 0).any() or (known % 1).any() or largest.max() <= 1:
        return None
    if 2 * (largest == largest.max()).sum() < values.shape[1] or not alike.all():
        return None
    return float(np.sqrt(np.mean([scale**2 for scale in np.asarray(scales).tolist()])))
