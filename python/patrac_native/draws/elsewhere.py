"""States of a posterior that another sampler drew: their checks, and the densities at each."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.posterior.posterior import Posterior
from patrac_native.validation.checks import FloatArray, as_real_array, cast_checked, check_finite


def check_states(post: Posterior, theta: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return states (chain, draw, K), or (draw, K) of one chain, as (chain, draw, K) in the posterior's dtype."""
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
    """Evaluate what `Draws.stats` holds beside the statistics of steps, for theta (chain, draw, K)."""
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
