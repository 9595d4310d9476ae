"""The compiled likelihood, with a sampled variance fixed at a reference value, and checks of requested variances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods import Likelihood, Targets
from patrac_native.validation.checks import FloatArray


def with_noise_prior(
    likelihood: Likelihood,
    validation_mse: FloatArray | None,
    outputs: Callable[[], FloatArray],
    y: Targets,
    row_weights: FloatArray,
) -> tuple[Likelihood, str | None]:
    """Choose the prior of sampled noise variances that the user left open, and say from what.

    Parameters
    ----------
    likelihood : Likelihood
    validation_mse : ndarray of float64, shape (m,), or None
        Mean squared residual of each output on rows on which the network was not trained, if it is known.
    outputs : callable
        Returns the outputs of the trained network at the posterior's rows, shape (n, m).
    y : ndarray of float64, shape (n, m)
        Targets.
    row_weights : ndarray of float64, shape (n,)

    Returns
    -------
    likelihood : Likelihood
        With a complete prior; the given one if nothing was open.
    source : str or None
        "given", "validation" or "training"; None if no variance is sampled.
    """
    if not likelihood.is_sampled:
        return likelihood, None
    if not likelihood.lacks_prior:
        return likelihood, "given"
    if validation_mse is not None and np.isfinite(validation_mse).all() and (validation_mse > 0).all():
        return likelihood.with_prior_guess(likelihood.squared_scale_of(validation_mse)), "validation"
    mean = row_weights @ likelihood.squared_residuals(outputs(), y) / row_weights.sum()
    # A network may fit its rows exactly, but no noise is below the rounding of y in float32.
    floor = np.finfo(np.float32).eps ** 2 * ((likelihood.typical(y) ** 2).mean(axis=0) + np.finfo(np.float32).tiny)
    return likelihood.with_prior_guess(likelihood.squared_scale_of(np.maximum(mean, floor))), "training"


def fixed_likelihood(
    likelihood: Likelihood, outputs: Callable[[], FloatArray], y: Targets, row_weights: FloatArray
) -> Likelihood:
    """Return the likelihood to compile, in which sampled variances are fixed at their modes given the trained network.

    Parameters
    ----------
    likelihood : Likelihood
    outputs : callable
        Returns the outputs of the trained network, shape (n, m); called only if the variances are sampled.
    y : ndarray of float64, shape (n, m)
    row_weights : ndarray of float64, shape (n,)

    Returns
    -------
    Likelihood
        `likelihood` itself if its variance is fixed.
    """
    return likelihood.fitted(outputs(), y, row_weights) if likelihood.is_sampled else likelihood


def check_range(likelihood: Likelihood, row_weights: FloatArray, n_outputs: int, dtype: np.dtype[Any]) -> None:
    """Raise ValueError if a parameter of the likelihood or a row weight overflows or underflows in `dtype`."""
    with np.errstate(over="ignore", under="ignore"):
        numbers = {likelihood.weight_name: (row_weights, "bring it nearer to 1"), **likelihood.range_checks(n_outputs)}
        for name, (values, advice) in numbers.items():
            cast = values.astype(dtype)
            if not np.isfinite(cast).all() or ((cast == 0) & (values > 0)).any():
                wider = ' or use dtype="float64"' if dtype == np.float32 else ""
                raise ValueError(f"{name} is beyond what {dtype.name} holds; {advice}{wider}.")


def check_variances(
    variance: npt.ArrayLike | None, count: int, *, likelihood: Likelihood, n_variances: int
) -> FloatArray:
    """Return the noise variances of a batch of points.

    Parameters
    ----------
    variance : array_like, shape () or (B,) for one sampled variance, (m,) or (B, m) for one of each output
    count : int
        B.
    likelihood : Likelihood
        The likelihood as the user gave it, for error messages.
    n_variances : int
        q, the number of sampled variances.

    Returns
    -------
    ndarray of float64, shape (B, q)

    Raises
    ------
    ValueError
        If the variance is missing, has another shape, or is not positive and finite.
    """
    own = () if n_variances == 1 else (n_variances,)
    if variance is None:
        raise ValueError(
            "variance must be given, since it is sampled: "
            + ("a positive number or one for each theta" if own == () else f"{n_variances} for each theta")
            + ', such as draws.stats["variance"][0] for theta=draws.theta[0].'
        )
    given = np.asarray(variance, dtype=np.float64)
    if given.shape not in (own, (count, *own)):
        what = "be a number" if own == () else f"have shape {own}, one for each output,"
        raise ValueError(f"variance must {what} or have shape {(count, *own)}, as theta; got {given.shape}.")
    if not (np.isfinite(given) & (given > 0)).all():
        raise ValueError(f"variance must be positive and finite; got {given.min():g}.")
    return np.ascontiguousarray(np.broadcast_to(given, (count, *own)).reshape(count, n_variances))
