"""The compiled likelihood, with a sampled variance fixed at a reference value, and its rescaling to other variances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.model.likelihoods import Likelihood
from patrac_native.validation.checks import FloatArray


def fixed_likelihood(
    likelihood: Likelihood, residuals: Callable[[], FloatArray], row_weights: FloatArray
) -> Likelihood:
    """Return the likelihood to compile, in which a sampled variance is fixed at its mode given the trained network.

    Parameters
    ----------
    likelihood : Likelihood
    residuals : callable
        Returns the residuals of the trained network, shape (n, m); called only if the variance is sampled.
    row_weights : ndarray of float64, shape (n,)

    Returns
    -------
    Likelihood
        `likelihood` itself if its variance is fixed.
    """
    return likelihood.fitted(residuals(), row_weights) if likelihood.is_sampled else likelihood


def check_range(likelihood: Likelihood, row_weights: FloatArray, n_outputs: int, dtype: np.dtype[Any]) -> None:
    """Raise ValueError if a parameter of the likelihood or a row weight overflows or underflows in `dtype`."""
    with np.errstate(over="ignore", under="ignore"):
        numbers = {likelihood.weight_name: (row_weights, "bring it nearer to 1"), **likelihood.range_checks(n_outputs)}
        for name, (values, advice) in numbers.items():
            cast = values.astype(dtype)
            if not np.isfinite(cast).all() or ((cast == 0) & (values > 0)).any():
                wider = ' or use dtype="float64"' if dtype == np.float32 else ""
                raise ValueError(f"{name} is beyond what {dtype.name} holds; {advice}{wider}.")


def at_variance(
    values: FloatArray, variance: npt.ArrayLike | None, *, likelihood: Likelihood, reference: float | None, terms: float
) -> tuple[FloatArray, FloatArray | None]:
    """Rescale log-likelihoods from the compiled variance to the requested one.

    Parameters
    ----------
    values : ndarray of float64, shape (B,)
        The log-likelihood at the reference variance.
    variance : array_like, shape () or (B,), or None
        The requested variance; None if and only if the variance is fixed.
    likelihood : Likelihood
        The likelihood as the user gave it, for error messages.
    reference : float or None
        The compiled variance if the variance is sampled, else None.
    terms : float
        Number of outputs times the sum of the row weights.

    Returns
    -------
    values : ndarray of float64, shape (B,)
        The log-likelihood at the requested variance.
    factor : ndarray of float64, shape (B,), or None
        Factor of the gradient; None if the variance is fixed.

    Raises
    ------
    ValueError
        If a variance is given for a fixed one, is missing for a sampled one, has another shape, or is not positive and
        finite.
    """
    if reference is None:
        if variance is not None:
            raise ValueError(f"variance must be left out: {likelihood!r} has it fixed.")
        return values, None
    if variance is None:
        raise ValueError(
            "variance must be given, since it is sampled: a positive number or one for each theta, such as "
            'draws.stats["variance"][0] for theta=draws.theta[0].'
        )
    given = np.asarray(variance, dtype=np.float64)
    if given.shape not in ((), values.shape):
        raise ValueError(f"variance must be a number or have shape {values.shape}, as theta; got {given.shape}.")
    wanted = np.broadcast_to(given, values.shape)
    if not (np.isfinite(wanted) & (wanted > 0)).all():
        raise ValueError(f"variance must be positive and finite; got {wanted.min():g}.")
    squares = -2 * reference * (values + 0.5 * terms * np.log(2 * np.pi * reference))
    rescaled = -0.5 * terms * np.log(2 * np.pi * wanted) - squares / (2 * wanted)
    return rescaled, reference / wanted
