"""States of a posterior that another sampler drew: their checks, and the densities at each."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.posterior.posterior import Posterior
from patrac_native.validation.checks import FloatArray, as_real_array, cast_checked, check_finite


def check_states(post: Posterior, theta: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return states (chain, draw, K) in the posterior's dtype.

    Parameters
    ----------
    post : Posterior
    theta : array_like, shape (chain, draw, K) or (draw, K) of one chain

    Raises
    ------
    TypeError
        If theta does not hold real numbers.
    ValueError
        If it has another shape or no draws, or an entry is not finite or exceeds the range of the dtype.
    """
    values = as_real_array(theta, "theta")
    if values.ndim not in (2, 3) or values.shape[-1] != post.dim or values.size == 0:
        raise ValueError(
            f"theta must have shape (chain, draw, K) or, for one chain, (draw, K), with K = {post.dim} and at least "
            f"one draw; got {values.shape}."
        )
    check_finite(
        values.reshape(-1, post.dim), "theta", "Rows count draws chain by chain, columns the entries of theta."
    )
    return cast_checked(values if values.ndim == 3 else values[None], post.network.dtype, "theta")


def densities(
    post: Posterior,
    theta: npt.NDArray[Any],
    *,
    variance: npt.ArrayLike | None,
    prior_scales: npt.ArrayLike | None,
    threads: int | None,
) -> dict[str, FloatArray]:
    """Evaluate what `Draws.stats` holds beside the statistics of steps.

    Parameters
    ----------
    post : Posterior
    theta : ndarray, shape (chain, draw, K)
        As `check_states` returns it.
    variance : array_like, shape (chain, draw) or (chain, draw, m), or None
        Draws of sampled noise variances, without the axis of chains if there is one chain.
    prior_scales : array_like, shape (chain, draw, G), or None
        Draws of the prior's sampled variances, likewise.
    threads : int or None

    Returns
    -------
    dict of str to ndarray
        log_likelihood and log_prior, shape (chain, draw); variance and prior_scales, if they are sampled.

    Raises
    ------
    TypeError, ValueError
        If `variance` or `prior_scales` is missing, superfluous or not as described.
    """
    chains, draws, _ = theta.shape
    n_variances = 0 if post.sampled.noise is None else len(post.sampled.noise.initial)
    sampled = {
        "variance": (variance, () if n_variances == 1 else (n_variances,), n_variances, "the noise variance"),
        "prior_scales": (
            prior_scales,
            (len(post.network.scale_names),),
            len(post.network.scale_names),
            "the scales of the prior",
        ),
    }
    stats = {}
    for name, (given, own, count, what) in sampled.items():
        if count:
            stats[name] = _sampled(given, (chains, draws, *own), name, what)
        elif given is not None:
            raise ValueError(f"{name} must be left out: this posterior has {what} fixed.")
    flat = stats["variance"].reshape(chains * draws, *stats["variance"].shape[2:]) if "variance" in stats else None
    values = post.log_likelihood(theta.reshape(-1, post.dim), variance=flat, threads=threads)
    log_prior = post.log_prior(theta.astype(np.float64), scales=stats.get("prior_scales"))
    return {
        "log_likelihood": np.asarray(values).reshape(chains, draws),
        "log_prior": np.asarray(log_prior),
        **stats,
    }


def _sampled(given: npt.ArrayLike | None, shape: tuple[int, ...], name: str, what: str) -> FloatArray:
    """Return draws of sampled variances with the axes of theta's chains and draws."""
    wanted = f"{shape[1:]} or {shape}" if shape[0] == 1 else f"{shape}"
    if given is None:
        raise ValueError(f"{name} must be given, because this posterior samples {what}: draws of shape {wanted}.")
    values = as_real_array(given, name)
    if shape[0] == 1 and values.shape == shape[1:]:
        values = values[None]
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {wanted}, with chains and draws as theta; got {values.shape}.")
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"{name} must be positive and finite; the smallest value is {values.min():g}.")
    return values
