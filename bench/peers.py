"""The peers: pCNL as a user would write it well in JAX (`jit` and `lax.scan`), and as an eager PyTorch loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

import patrac_native as pn

# Steps whose normals are drawn at once, inside the compiled loop: a call of the generator for each step costs more.
NOISE_BLOCK = 100
# Measured: 2 is a few percent faster than 1 on the small networks and makes no difference on the large ones.
UNROLL = 2
# The fastest of threefry2x32 (partitionable, the default), rbg and unsafe_rbg: with the others a step on a CPU took
# from 5% (Mix) to 130% (Full) longer.
GENERATOR = "threefry2x32"
# Up to this width a product is faster as a broadcast and a sum (Sep(5): 4.1 instead of 5.5 microseconds a step); with a
# side of 50 it is slower by far.
SMALL_WIDTH = 8

Layers = list[tuple[Any, Any]]
ValueAndGrad = Callable[[Any], tuple[Any, Any]]


def forward(layers: Layers, inputs: Any) -> Any:
    """Outputs (m, n) of a tanh network; inputs (d, n), so that rows of data lie along the vector lanes."""
    h = inputs
    for weights, biases in layers[:-1]:
        h = jnp.tanh(affine(weights, biases, h))
    return affine(*layers[-1], h)


def affine(weights: Any, biases: Any, h: Any) -> Any:
    """W h + b."""
    product = (weights[:, :, None] * h[None]).sum(axis=1) if max(weights.shape) <= SMALL_WIDTH else weights @ h
    return product + biases[:, None]


def gaussian_log_likelihood(f: Any, y: Any) -> Any:
    """Normalised, of unit variance, one output."""
    return -0.5 * jnp.sum((y - f[0]) ** 2) - 0.5 * y.size * np.log(2 * np.pi)


def unpack(theta: Any, layers: Layers) -> Layers:
    """Views of a vector as weights and biases of the shapes of `layers`."""
    out, at = [], 0
    for weights, biases in layers:
        n_out, n_in = weights.shape
        out.append((theta[at : at + n_out * n_in].reshape(n_out, n_in), theta[at + n_out * n_in :][:n_out]))
        at += n_out * n_in + len(biases)
    return out


def network_with_masks(post: pn.Posterior) -> tuple[Layers, Layers]:
    """Ranked trained network and Boolean masks; for Sep both networks side by side as one, zero blocks between them."""
    network = post.network
    masks = list(zip(network.weight_masks, network.bias_masks, strict=True))
    layers = list(zip(network.ranked.weights, network.ranked.biases, strict=True))
    if not network.separate:
        return layers, masks
    last, merged, merged_masks = len(layers) - 1, [], []
    for position, ((w, b), (wm, bm)) in enumerate(zip(layers, masks, strict=True)):
        # Inputs and outputs are shared; the trained network's hidden nodes come first.
        rows, columns = (0 if position == last else len(b)), (0 if position == 0 else w.shape[1])
        weights = np.zeros((rows + wm.shape[0], columns + wm.shape[1]))
        mask = np.zeros(weights.shape, dtype=bool)
        weights[: w.shape[0], : w.shape[1]] = w
        mask[rows:, columns:] = wm
        if position == last:
            # The place of the output bias is the small network's; the trained one's is added outside.
            biases, bias_mask = np.zeros_like(b), bm
        else:
            biases, bias_mask = np.concatenate([b, np.zeros(len(bm))]), np.concatenate([np.zeros(len(b), bool), bm])
        merged.append((weights, biases))
        merged_masks.append((mask, bias_mask))
    return merged, merged_masks


def fixed_output_bias(post: pn.Posterior) -> float:
    """What `network_with_masks` leaves out of the output."""
    return float(post.net.biases[-1][0]) if post.network.separate else 0.0


def flat(layers: Layers) -> npt.NDArray[Any]:
    """All weights row by row and biases, layer by layer."""
    return np.concatenate([np.concatenate([w.ravel(), b]) for w, b in layers])


def masked(post: pn.Posterior) -> ValueAndGrad:
    """The plain version: theta scattered into the full parameter vector, every layer evaluated, its gradient masked."""
    layers, masks = network_with_masks(post)
    mask = flat(masks)
    index, fixed = np.flatnonzero(mask), jnp.asarray(np.where(mask, 0.0, flat(layers)), jnp.float32)
    inputs, y = data(post)
    offset = np.float32(fixed_output_bias(post))

    def log_likelihood(parameters: Layers) -> Any:
        return gaussian_log_likelihood(forward(parameters, inputs) + offset, y)

    def value_and_grad(theta: Any) -> tuple[Any, Any]:
        if mask.all():
            vector = theta
        else:
            vector = fixed.at[index].set(theta, unique_indices=True, indices_are_sorted=True)
        # Differentiating after unpacking spares the sum of padded slices that the reverse of slicing is.
        value, gradient = jax.value_and_grad(log_likelihood)(unpack(vector, layers))
        whole = jnp.concatenate([jnp.concatenate([w.ravel(), b]) for w, b in gradient])
        return value, whole if mask.all() else whole[index]

    return value_and_grad


def lean(post: pn.Posterior) -> ValueAndGrad:
    """What little thought adds: layers without Bayesian parameters stay constants, which XLA takes out of the loop.

    Out and Mix: theta scattered layer by layer, and the gradient taken through that. Sep: the small network alone, the
    trained one's outputs precomputed.
    """
    network = post.network
    inputs, y = data(post)
    if network.separate:
        shapes = list(zip(network.weight_masks, network.bias_masks, strict=True))
        trained = jnp.asarray(post.net.predict(post.X).T, jnp.float32)
        return jax.value_and_grad(
            lambda theta: gaussian_log_likelihood(trained + forward(unpack(theta, shapes), inputs), y)
        )
    fixed, masks = network_with_masks(post)

    def place(theta: Any) -> Layers:
        out, at = [], 0
        for layer, layer_masks in zip(fixed, masks, strict=True):
            arrays = []
            for array, mask in zip(layer, layer_masks, strict=True):
                values, where = jnp.asarray(array, jnp.float32), np.nonzero(mask)
                if mask.any():
                    part = theta[at : at + mask.sum()]
                    values = values.at[where].set(part, unique_indices=True, indices_are_sorted=True)
                arrays.append(values)
                at += int(mask.sum())
            out.append((arrays[0], arrays[1]))
        return out

    return jax.value_and_grad(lambda theta: gaussian_log_likelihood(forward(place(theta), inputs), y))


def data(post: pn.Posterior) -> tuple[Any, Any]:
    """Inputs (d, n) and targets (n,) in float32."""
    return jnp.asarray(post.X.T, jnp.float32), jnp.asarray(post.y[:, 0], jnp.float32)


def jax_chain(value_and_grad: ValueAndGrad, prior_variance: Any, delta: float, steps: int) -> tuple[Any, Any]:
    """Compiled pCNL.

    Returns
    -------
    start : function (theta, seed) -> carry
    run : function carry -> carry after `steps` steps, its buffers reused; carry[3] counts accepted moves.
    """
    if steps % NOISE_BLOCK:
        raise ValueError(f"steps must be a multiple of {NOISE_BLOCK}; got {steps}.")
    c = jnp.asarray(prior_variance, jnp.float32)
    deviation = jnp.sqrt(c)
    keep, drift, noise = (2 - delta) / (2 + delta), 2 * delta / (2 + delta), np.sqrt(8 * delta) / (2 + delta)

    def rho(value: Any, difference: Any, total: Any, g: Any) -> Any:
        return -value - 0.5 * (difference @ g) - 0.25 * delta * (total @ g) + 0.25 * delta * (g @ (c * g))

    def step(state: Any, random: Any) -> tuple[Any, None]:
        u, l_u, g_u, accepted = state
        w, log_uniform = random
        v = keep * u + drift * c * g_u + noise * deviation * w
        l_v, g_v = value_and_grad(v)
        move = log_uniform < rho(l_u, v - u, u + v, g_u) - rho(l_v, u - v, u + v, g_v)
        kept = (jnp.where(move, v, u), jnp.where(move, l_v, l_u), jnp.where(move, g_v, g_u), accepted + move)
        return kept, None

    def block(carry: Any, _: None) -> tuple[Any, None]:
        state, key = carry[:4], carry[4]
        key, for_noise, for_uniform = jax.random.split(key, 3)
        w = jax.random.normal(for_noise, (NOISE_BLOCK, len(c)), jnp.float32)
        log_uniform = jnp.log(jax.random.uniform(for_uniform, (NOISE_BLOCK,), jnp.float32))
        state, _ = jax.lax.scan(step, state, (w, log_uniform), unroll=UNROLL)
        return (*state, key), None

    def start(theta: Any, seed: int) -> Any:
        u = jnp.array(theta, jnp.float32)
        return (u, *value_and_grad(u), jnp.int32(0), jax.random.key(seed, impl=GENERATOR))

    def run(carry: Any) -> Any:
        return jax.lax.scan(block, carry, length=steps // NOISE_BLOCK)[0]

    return jax.jit(start), jax.jit(run, donate_argnums=0)


def torch_run(post: pn.Posterior, delta: float) -> Callable[[npt.NDArray[Any], int, int], float]:
    """Eager PyTorch pCNL on the masked network, one Python step after the other: (theta, steps, seed) -> acceptance."""
    import torch

    torch.set_num_threads(1)
    layers, masks = network_with_masks(post)
    index = torch.from_numpy(np.flatnonzero(flat(masks)))
    fixed = torch.from_numpy(flat(layers)).float()
    inputs, y = torch.from_numpy(post.X.T.copy()).float(), torch.from_numpy(post.y[:, 0].copy()).float()
    offset = fixed_output_bias(post)
    c = torch.from_numpy(post.prior_variance.copy()).float()
    deviation = c.sqrt()
    keep, drift, noise = (2 - delta) / (2 + delta), 2 * delta / (2 + delta), float(np.sqrt(8 * delta)) / (2 + delta)
    constant = 0.5 * len(y) * float(np.log(2 * np.pi))

    def value_and_grad(theta: torch.Tensor) -> tuple[float, torch.Tensor]:
        theta = theta.detach().requires_grad_()
        h, parameters = inputs, unpack(fixed.index_copy(0, index, theta), layers)
        for weights, biases in parameters[:-1]:
            h = torch.tanh(torch.addmm(biases[:, None], weights, h))
        f = torch.addmm(parameters[-1][1][:, None], parameters[-1][0], h)[0] + offset
        value = -0.5 * (y - f).square().sum() - constant
        (gradient,) = torch.autograd.grad(value, theta)
        return value.item(), gradient

    def rho(value: float, difference: torch.Tensor, total: torch.Tensor, g: torch.Tensor) -> float:
        return -value - ((0.5 * difference + 0.25 * delta * total - 0.25 * delta * c * g) @ g).item()

    def run(start: npt.NDArray[Any], steps: int, seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        u, accepted = torch.from_numpy(start.astype(np.float32)), 0
        l_u, g_u = value_and_grad(u)
        for _ in range(steps):
            v = keep * u + drift * c * g_u + noise * deviation * torch.randn(len(c), generator=generator)
            l_v, g_v = value_and_grad(v)
            log_ratio = rho(l_u, v - u, u + v, g_u) - rho(l_v, u - v, u + v, g_v)
            if torch.rand((), generator=generator).log().item() < log_ratio:
                u, l_u, g_u, accepted = v, l_v, g_v, accepted + 1
        return accepted / steps

    return run
