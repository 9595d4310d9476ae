"""The JAX peer of an expert, who exploits by hand the structure that this package's plan finds by itself.

Only nodes that depend on theta are evaluated, the constants of the data are folded into offsets, theta is reshaped
rather than scattered, and the gradient is written out for the Bayesian entries only (`jax.grad` of the same reduced
function took 1.1 to 2 times as long). Out with a Gaussian likelihood uses its sufficient statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from peers import Target, ValueAndGrad, in_theta, log_likelihood, targets

import patrac_native as pn

FloatArray = npt.NDArray[Any]

# Up to this width a product is faster as a broadcast and a sum (Sep(5): 3.3 instead of 4.5 microseconds a step).
SMALL_WIDTH = 8


@dataclass(frozen=True)
class ReducedLayer:
    """Varying rows of a layer over its varying sources: Bayesian block at the top left, fixed weights around it."""

    rows: int  # Bayesian rows; their biases are Bayesian too
    sources: int  # Bayesian sources
    beside: FloatArray  # fixed weights of the Bayesian rows out of the other varying sources
    below: FloatArray  # fixed weights of all other varying rows
    offset: Any  # (all rows, n): the constants of the data, and fixed biases; None where there are none


def reduce(post: pn.Posterior) -> tuple[FloatArray, list[ReducedLayer]]:
    """Return the inputs of the first layer that depends on theta, (sources, n), and the layers from there on."""
    network = post.network
    if network.separate:
        shapes = [mask.shape for mask in network.weight_masks]
        layers = [ReducedLayer(r, s, np.empty((r, 0)), np.empty((0, s)), None) for r, s in shapes]
        r, s = shapes[-1]
        layers[-1] = ReducedLayer(r, s, np.empty((r, 0)), np.empty((0, s)), post.network.net.predict(post.data.X).T)
        return post.data.X.T, layers
    h, varying, inputs, layers = post.data.X.T, 0, None, []
    for position, (w, b) in enumerate(zip(network.ranked.weights, network.ranked.biases, strict=True)):
        mask = network.weight_masks[position]
        rows, sources = int(mask.any(axis=1).sum()), int(mask.any(axis=0).sum())
        if inputs is None and not rows:
            h = np.tanh(w @ h + b[:, None])
        elif inputs is None:
            # The first layer with Bayesian weights: its other rows are constants still.
            inputs = h[:sources]
            offset = w[:rows, sources:] @ h[sources:] if sources < len(h) else None
            layers.append(ReducedLayer(rows, sources, np.empty((rows, 0)), np.empty((0, sources)), offset))
            h, varying = np.tanh(w[rows:] @ h + b[rows:, None]), rows
        else:
            offset = np.zeros((len(b), len(post.data.X)))
            offset[rows:] += b[rows:, None]
            offset += w[:, varying:] @ h
            nothing = rows == len(b) and varying == w.shape[1]
            layers.append(
                ReducedLayer(rows, sources, w[:rows, sources:varying], w[rows:, :varying], None if nothing else offset)
            )
            h, varying = np.empty((0, len(post.data.X))), len(b)
    assert inputs is not None
    return inputs, layers


def by_hand(post: pn.Posterior, reverse: str = "written", small_width: int = SMALL_WIDTH) -> ValueAndGrad:
    """Return log-likelihood and gradient of the reduced network; the reverse pass is "written" out or "jax.grad".

    Products of matrices with at most `small_width` rows and columns are computed as broadcasts and sums.
    """
    dtype = post.network.dtype
    constant_inputs, layers = reduce(post)
    inputs, y = jnp.asarray(constant_inputs, dtype), targets(post)
    fixed = [
        tuple(None if a is None or not a.size else jnp.asarray(a, dtype) for a in (s.beside, s.below, s.offset))
        for s in layers
    ]

    def unpack(theta: Any) -> list[tuple[Any, Any]]:
        out, at = [], 0
        for layer, (beside, below, _) in zip(layers, fixed, strict=True):
            size = layer.rows * layer.sources
            weights = theta[at : at + size].reshape(layer.rows, layer.sources)
            biases = theta[at + size : at + size + layer.rows]
            at += size + layer.rows
            weights = weights if beside is None else jnp.concatenate([weights, beside], axis=1)
            if below is not None:
                weights = jnp.concatenate([weights, below])
                biases = jnp.concatenate([biases, jnp.zeros(len(below), dtype)])
            out.append((weights, biases))
        return out

    def forward(parameters: list[tuple[Any, Any]]) -> tuple[list[Any], Any]:
        sources, h = [], inputs
        for (weights, biases), (_, _, offset) in zip(parameters, fixed, strict=True):
            h = jnp.tanh(h) if sources else h
            sources.append(h)
            h = product(weights, h, small_width) + (biases[:, None] if offset is None else biases[:, None] + offset)
        return sources, h

    def value_and_grad(theta: Any) -> tuple[Any, Any]:
        parameters = unpack(theta)
        sources, f = forward(parameters)
        if post.likelihood.name == "gaussian":
            value, delta = log_likelihood(f, y), y - f
        else:
            value, delta = log_likelihood(f, y), (jnp.arange(len(f))[:, None] == y) - jax.nn.softmax(f, axis=0)
        parts: list[Any] = []
        for position in reversed(range(len(layers))):
            layer, h = layers[position], sources[position]
            top = delta[: layer.rows]
            parts = [outer(top, h[: layer.sources], small_width).ravel(), top.sum(axis=1), *parts]
            if position:
                delta = product(parameters[position][0].T, delta, small_width) * (1 - h * h)
        return value, jnp.concatenate(parts)

    if reverse == "jax.grad":
        return jax.value_and_grad(lambda theta: log_likelihood(forward(unpack(theta))[1], y))
    return value_and_grad


def product(weights: Any, h: Any, small_width: int) -> Any:
    """Return W h."""
    if weights.shape[1] == 1 or (1 < weights.shape[0] and max(weights.shape) <= small_width):
        return (weights[:, :, None] * h[None]).sum(axis=1)
    return weights @ h


def outer(delta: Any, h: Any, small_width: int) -> Any:
    """Return delta h', a sum over the rows of data."""
    if len(h) == 1 or (1 < len(delta) and max(len(delta), len(h)) <= small_width):
        return (delta[:, None] * h[None]).sum(axis=2)
    return delta @ h.T


def expert(post: pn.Posterior) -> Target:
    """Return the expert's target: the quadratic form if the log-likelihood has one, else the reduced network."""
    form = post.sampled.quadratic
    if form is None:
        return in_theta(post, by_hand(post))
    slope, curvature = jnp.asarray(form.slope, post.network.dtype), jnp.asarray(form.curvature, post.network.dtype)
    constant = float(form.constant.sum())  # of all outputs

    def value_and_grad(z: Any) -> tuple[Any, Any]:
        return constant + jnp.sum(z * (slope - 0.5 * curvature * z)), slope - curvature * z

    return Target(
        value_and_grad,
        lambda theta: form.from_theta @ theta,
        lambda g: form.from_theta.T @ g,
        lambda z: z @ form.to_theta.T,
    )
