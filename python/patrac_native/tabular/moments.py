"""Means and standard deviations of columns in their training rows, by which inputs and targets are standardised."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.validation.checks import FloatArray

# At least so many columns of whole numbers, half of which reach the same largest value, are taken to share a unit.
_COMMON_COLUMNS = 16
# Below this share of the standard deviation, all values but one are nearly one input to a network.
_LEAST_SPREAD = 1e-3


def mean_and_scale(values: FloatArray, weights: FloatArray | None = None) -> tuple[float, float]:
    """Return mean and standard deviation of values (n,), with weights (n,) if they are given; 0 if all are equal."""
    values = np.ascontiguousarray(values)
    # Because of rounding, equal numbers can have a standard deviation above zero.
    if weights is None:
        return float(values.mean()), 0.0 if np.ptp(values) == 0 else float(values.std())
    mean = float(np.average(values, weights=weights))
    variance = float(np.average((values - mean) ** 2, weights=weights))
    return mean, 0.0 if np.ptp(values) == 0 else float(np.sqrt(variance))


def lone_extreme(values: FloatArray) -> int | None:
    """Return the index of a single value that decides mean and scale, so that the others are nearly one input.

    A column of equal numbers but one is taken as it is: that one is its information.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Finite numbers.

    Returns
    -------
    int or None
    """
    if len(values) < 3:
        return None
    # Divided by the largest, squares stay within the range of floats.
    largest = float(np.abs(values).max())
    if largest == 0:
        return None
    scaled = values / largest
    extreme = int(np.argmax(np.abs(scaled - np.median(scaled))))
    others = np.delete(scaled, extreme)
    overflows = largest > np.sqrt(np.finfo(np.float64).max / len(values))
    return extreme if overflows or 0 < others.std() < _LEAST_SPREAD * scaled.std() else None


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
