"""Running error bounds: how far a float32 evaluation may lie from the float64 one, from magnitudes alone.

First order in the unit roundoff u, worst case (every error with the same sign), entry by entry. The rules:

- a sum of k products in any order, fused or not, from exact terms: (k + 2) u sum |terms|; the fixed weights, the folded
  offsets and the result may each have been rounded once more on the way to float32, hence k + 4;
- an error e of an input reaches a result through the size of the derivative;
- the elementary functions are within 3 units in the last place (tests/test_elementary.py), each at most 2 u of the
  result, and the activations and their derivatives need at most two operations more: 8 u (|zeta(z)| + |z|) covers the
  value, 8 u (1 + |z|) the derivative;
- no second derivative of the five activations exceeds 1.2 in size, save at the kink of relu, where the slope counts as
  unknown (error 1) if z may be on either side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import patrac_native as pn
import reference
from problems import Problem

Array = npt.NDArray[np.float64]
CURVATURE = 1.2


@dataclass
class Bounds:
    """Largest first-order errors of l, of each output and of each entry of g."""

    value: float
    f: Array
    gradient: Array


def _sum_rounding(terms: int, u: float) -> float:
    return (terms + 4) * u


def error_bounds(problem: Problem, unit_roundoff: float) -> Bounds:
    """Propagate an error bound for every number through forward pass, likelihood and reverse pass."""
    u, partial, name = unit_roundoff, problem.partial, problem.partial.activation
    weights, biases = partial.with_theta(problem.theta)
    inputs, outputs = partial.layers(problem.theta, problem.X)

    input_errors: list[Array] = [np.zeros_like(inputs[0])]
    output_errors: list[Array] = []
    for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
        size = np.abs(inputs[layer]) @ np.abs(w).T + np.abs(b)
        output_errors.append(input_errors[layer] @ np.abs(w).T + _sum_rounding(w.shape[1], u) * size)
        if layer + 1 < len(weights):
            slope = np.abs(reference.activation_slope(name, outputs[layer])) + CURVATURE * output_errors[layer]
            rounding = 8 * u * (np.abs(inputs[layer + 1]) + np.abs(outputs[layer]))
            input_errors.append(slope * output_errors[layer] + rounding)

    companion = np.asarray(partial.companion_output(problem.X))
    f = outputs[-1] + companion
    f_error = output_errors[-1] + 2 * u * (np.abs(companion) + np.abs(f))
    if problem.post.data.offset is not None:
        shift = problem.post.data.offset + problem.data.likelihood.shift(problem.y)  # what the engine adds to f
        f_error = f_error + u * (np.abs(shift) + np.abs(f + shift))
        f = f + problem.post.data.offset
    value, delta_error = _likelihood_bounds(problem, f, f_error, u)
    delta = reference.output_slope(problem.data.likelihood, f, problem.y, problem.post.data.row_weights)

    # One tile's rows are added in float32, tiles in float64: at most 264 terms.
    row_rounding = _sum_rounding(min(len(f), 264), u)
    of_weights: list[Array] = []
    of_biases: list[Array] = []
    for layer in reversed(range(len(weights))):
        a, a_error = np.abs(inputs[layer]), input_errors[layer]
        size = np.abs(delta).T @ a
        of_weights.insert(0, delta_error.T @ a + np.abs(delta).T @ a_error + row_rounding * size)
        of_biases.insert(0, delta_error.sum(axis=0) + row_rounding * np.abs(delta).sum(axis=0))
        if layer == 0:
            break
        w, z, z_error = np.abs(weights[layer]), outputs[layer - 1], output_errors[layer - 1]
        below, below_size = delta @ weights[layer], np.abs(delta) @ w
        below_error = delta_error @ w + _sum_rounding(w.shape[0], u) * below_size
        slope = reference.activation_slope(name, z)
        slope_error = CURVATURE * z_error + 8 * u * (1 + np.abs(z))
        if name == "relu":
            slope_error = np.where(np.abs(z) <= z_error, 1.0, 0.0)
        delta = below * slope
        delta_error = below_error * np.abs(slope) + (np.abs(below) + below_error) * slope_error + u * np.abs(delta)
    gradient = [
        of_biases[layer - 1][i] if j < 0 else of_weights[layer - 1][i, j] for layer, i, j in partial.locations()
    ]
    return Bounds(value, f_error, np.array(gradient))


def _likelihood_bounds(problem: Problem, f: Array, f_error: Array, u: float) -> tuple[float, Array]:
    """Return the errors of l and of dl/df; row weights, precision and scale are each rounded once."""
    likelihood, y, weight = problem.data.likelihood, problem.y, problem.post.data.row_weights[:, None]
    if isinstance(likelihood, pn.Gaussian):
        precision = 1 / np.broadcast_to(likelihood.variance, f.shape[1:])
        residual_error = f_error + u * np.abs(y - f)
        slope_error = weight * precision * (residual_error + 4 * u * np.abs(y - f))
        terms = weight * precision * (np.abs(y - f) * residual_error + 0.5 * residual_error**2)
        return float((terms + 6 * u * 0.5 * weight * precision * (y - f) ** 2).sum()), slope_error
    if isinstance(likelihood, pn.StudentT):
        # l = -h log(1 + p r^2): |dl/dr| = 2 h p |r| / (1 + p r^2), |d^2 l/dr^2| <= 2 h p.
        residual = np.abs(y - f)
        p, h = 1 / (likelihood.df * np.square(np.broadcast_to(likelihood.scale, f.shape[1:]))), (likelihood.df + 1) / 2
        square, residual_error = p * residual**2, f_error + u * residual
        slope = 2 * h * p * residual / (1 + square)
        slope_error = weight * (2 * h * p * residual_error + 12 * u * slope)
        terms = slope * residual_error + h * p * residual_error**2
        rounding = h * (4 * u * square / (1 + square) + 10 * u * np.log1p(square))
        return float((weight * (terms + rounding)).sum()), slope_error
    if isinstance(likelihood, pn.CensoredGaussian):
        # Of log Phi differences at (y - f) / sd, |dl/df| is `slope` and |d^2 l / df^2| at most 1 / sd^2.
        sd = np.sqrt(np.broadcast_to(likelihood.variance, f.shape[1:]))
        slope = np.abs(reference.output_slope(likelihood, f, y, np.ones(len(f))))
        rows = [reference.log_likelihood(likelihood, f[[r]], y[[r]], np.ones(1)) for r in range(len(f))]
        distance = np.where(np.isfinite(y), np.abs(y - f[..., None]), 0.0).max(axis=-1)
        residual_error = f_error + 4 * u * distance
        slope_error = weight * (residual_error / sd**2 + 16 * u * (slope + 1 / sd))
        terms = slope * residual_error + 0.5 * (residual_error / sd) ** 2
        rounding = 16 * u * (np.abs(rows)[:, None] + 1 + np.abs(np.log(sd)) + slope * distance)
        return float((weight * (terms + rounding)).sum()), slope_error
    if isinstance(likelihood, pn.Poisson):
        # l = y t - (rate - y) for t = f - log max(y, 1): |dl/dt| = |y - rate|, and all further derivatives are -rate.
        rate, t = np.exp(f), np.abs(f - np.log(np.maximum(y, 1)))
        slope_error = weight * (rate * (np.expm1(f_error) + 4 * u) + 3 * u * np.abs(y - rate))
        terms = np.abs(y - rate) * f_error + rate * (np.expm1(f_error) - f_error)
        return float((weight * (terms + u * (3 * y * t + 6 * rate + 3 * y))).sum()), slope_error
    if isinstance(likelihood, pn.NegativeBinomial):
        # l = y log p + r log(1 - p), p = sigmoid(z): dl/dz = y (1 - p) - r p, |d^2 l/dz^2| <= (y + r) / 4.
        r = 1 / np.broadcast_to(likelihood.dispersion, f.shape[1:])
        z = f - np.log(r)
        p = 1 / (1 + np.exp(-z))
        slope_error = weight * ((y + r) / 4 * f_error + 10 * u * (y * (1 - p) + r * p))
        terms = np.abs(y * (1 - p) - r * p) * f_error + (y + r) / 8 * f_error**2
        size = y * np.maximum(-z, 0) + r * np.maximum(z, 0) + (y + r) * np.log1p(np.exp(-np.abs(z)))
        return float((weight * (terms + 12 * u * size)).sum()), slope_error
    if isinstance(likelihood, pn.HeteroscedasticGaussian):
        # With h = e^(-s/2) and u = r h: |dh| <= h (ds / 2 + u |s| / 2 + 2 u), as exp is within 2 u and rounds s / 2.
        (mean, s), (mean_error, s_error) = np.split(f, 2, axis=1), np.split(f_error, 2, axis=1)
        residual, inverse_sd = np.abs(y - mean), np.exp(-0.5 * s)
        relative = np.expm1(0.5 * s_error + 0.5 * u * np.abs(s)) + 3 * u
        scaled = residual * inverse_sd
        scaled_error = inverse_sd * (1 + relative) * (mean_error + 2 * u * residual) + scaled * relative
        square_error = 2 * scaled * scaled_error + scaled_error**2 + 2 * u * scaled**2
        of_mean = inverse_sd * (scaled_error + scaled * relative + scaled_error * relative + 3 * u * scaled)
        of_s = 0.5 * (square_error + 4 * u * (1 + scaled**2))
        value = 0.5 * weight * (square_error + s_error + 4 * u * (scaled**2 + np.abs(s)))
        return float(value.sum()), weight * np.concatenate([of_mean, of_s], axis=1)
    if isinstance(likelihood, pn.Bernoulli):
        slope_error = weight * (0.25 * f_error + 8 * u)
        return float((weight * (f_error + 8 * u * (1 + np.abs(f)))).sum()), slope_error
    centred = f - f.max(axis=1, keepdims=True)
    probability = np.exp(centred) / np.exp(centred).sum(axis=1, keepdims=True)
    worst = f_error.max(axis=1, keepdims=True)
    # exp turns the rounding of its argument, u |centred|, into a relative error; m + 8 operations follow.
    relative = 2 * worst + u * (2 * np.abs(centred).max(axis=1, keepdims=True) + f.shape[1] + 8)
    slope_error = weight * (probability * relative + 4 * u)
    return float((weight * (relative + 8 * u * (1 + np.abs(centred).max(axis=1, keepdims=True)))).sum()), slope_error


def assert_log_priors(draws: pn.Draws, post: pn.Posterior) -> None:
    """The log priors of kept draws are those of the returned theta, summed in another order over K terms in float64."""
    expected = np.asarray(post.log_prior(draws.theta))
    constant = -0.5 * np.log(2 * np.pi * post.prior_variance)
    # What is summed: K squares, which are no larger than -log prior and the constants' sizes together.
    size = np.abs(expected) + 2 * np.abs(constant).sum()
    error = np.abs(draws.stats["log_prior"] - expected)
    assert (error <= 2 * (post.dim + 4) * np.finfo(np.float64).eps * size).all()
