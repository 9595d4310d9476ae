"""The JAX peers: pCNL as a user would write it well with `jit` and `lax.scan`, one chain or many under `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

import patrac_native as pn

# Steps whose normals are drawn at once, inside the compiled loop: a call of the generator for each step costs more.
NOISE_BLOCK = 100
# Normals drawn at once are at most this many: they stay in the second-level cache.
NOISE_VALUES = 2**18
# Measured: 4 is up to a quarter faster than 1 on the small problems and makes no difference on the large ones.
UNROLL = 4
# The fastest of threefry2x32 (partitionable, the default), rbg and unsafe_rbg: with the others a step on a CPU took
# from 5% (Mix) to 130% (Full) longer.
GENERATOR = "threefry2x32"
# Up to this width a product is faster as a broadcast and a sum; with a side of 50 it is slower by far.
SMALL_WIDTH = 8

Layers = list[tuple[Any, Any]]
ValueAndGrad = Callable[[Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Target:
    """A log-likelihood in coordinates z of prior N(0, I), where pCNL needs no prior variances."""

    value_and_grad: ValueAndGrad  # of z
    from_theta: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    gradient_in_theta: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    to_theta: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]  # of many, (..., K)


def in_theta(post: pn.Posterior, value_and_grad: ValueAndGrad) -> Target:
    """Target of a function of theta = sqrt(C) z."""
    deviation = np.sqrt(post.prior_variance)
    scale = jnp.asarray(deviation, post.network.dtype)

    def whitened(z: Any) -> tuple[Any, Any]:
        value, gradient = value_and_grad(scale * z)
        return value, scale * gradient

    return Target(
        whitened, lambda theta: theta / deviation, lambda gradient: gradient / deviation, lambda z: z * deviation
    )


def potential(target: Target) -> Callable[[Any], Any]:
    """-log posterior of z ~ N(0, I), whose derivative is the target's own gradient and not JAX's of its value."""

    def both(z: Any) -> tuple[Any, Any]:
        value, gradient = target.value_and_grad(z)
        return 0.5 * jnp.sum(z * z) - value, z - gradient

    @jax.custom_vjp
    def energy(z: Any) -> Any:
        return both(z)[0]

    energy.defvjp(both, lambda gradient, weight: (weight * gradient,))
    result: Callable[[Any], Any] = energy
    return result


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


def log_likelihood(f: Any, y: Any) -> Any:
    """Normalised; f (m, n). Gaussian of unit variance where y is (m, n), classes where it is (n,) of labels."""
    if y.ndim == 2:
        return -0.5 * jnp.sum((y - f) ** 2) - 0.5 * y.size * np.log(2 * np.pi)
    return jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(f, axis=0), y[None], axis=0))


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


def fixed_output_bias(post: pn.Posterior) -> npt.NDArray[Any]:
    """What `network_with_masks` leaves out of the outputs, (m,)."""
    return post.network.net.biases[-1] if post.network.separate else np.zeros(post.network.n_outputs)


def flat(layers: Layers) -> npt.NDArray[Any]:
    """All weights row by row and biases, layer by layer."""
    return np.concatenate([np.concatenate([w.ravel(), b]) for w, b in layers])


def masked(post: pn.Posterior) -> ValueAndGrad:
    """The plain version: theta scattered into the full parameter vector, every layer evaluated, its gradient masked."""
    layers, masks = network_with_masks(post)
    mask = flat(masks)
    index, fixed = np.flatnonzero(mask), jnp.asarray(np.where(mask, 0.0, flat(layers)), post.network.dtype)
    inputs, y = jnp.asarray(post.data.X.T, post.network.dtype), targets(post)
    offset = jnp.asarray(fixed_output_bias(post), post.network.dtype)[:, None]

    def of_parameters(parameters: Layers) -> Any:
        return log_likelihood(forward(parameters, inputs) + offset, y)

    def value_and_grad(theta: Any) -> tuple[Any, Any]:
        if mask.all():
            vector = theta
        else:
            vector = fixed.at[index].set(theta, unique_indices=True, indices_are_sorted=True)
        # Differentiating after unpacking spares the sum of padded slices that the reverse of slicing is.
        value, gradient = jax.value_and_grad(of_parameters)(unpack(vector, layers))
        whole = jnp.concatenate([jnp.concatenate([w.ravel(), b]) for w, b in gradient])
        return value, whole if mask.all() else whole[index]

    return value_and_grad


def rows_first(post: pn.Posterior) -> ValueAndGrad:
    """Full with activations (n, nodes): the faster layout where inputs are many (784: by a sixth), the slower else."""
    layers, y = list(zip(post.network.ranked.weights, post.network.ranked.biases, strict=True)), targets(post)
    inputs = jnp.asarray(post.data.X, post.network.dtype)

    def of_parameters(parameters: Layers) -> Any:
        h = inputs
        for weights, biases in parameters[:-1]:
            h = jnp.tanh(h @ weights.T + biases)
        weights, biases = parameters[-1]
        return log_likelihood((h @ weights.T + biases).T, y)

    def value_and_grad(theta: Any) -> tuple[Any, Any]:
        value, gradient = jax.value_and_grad(of_parameters)(unpack(theta, layers))
        return value, jnp.concatenate([jnp.concatenate([w.ravel(), b]) for w, b in gradient])

    return value_and_grad


def lean(post: pn.Posterior) -> ValueAndGrad:
    """What little thought adds: layers without Bayesian parameters stay constants, which XLA takes out of the loop.

    Out and Mix: theta scattered layer by layer, and the gradient taken through that. Sep: the small network alone, the
    trained one's outputs precomputed.
    """
    network = post.network
    inputs, y = jnp.asarray(post.data.X.T, post.network.dtype), targets(post)
    if network.separate:
        shapes = list(zip(network.weight_masks, network.bias_masks, strict=True))
        trained = jnp.asarray(post.network.net.predict(post.data.X).T, post.network.dtype)
        return jax.value_and_grad(lambda theta: log_likelihood(trained + forward(unpack(theta, shapes), inputs), y))
    fixed, masks = network_with_masks(post)

    def place(theta: Any) -> Layers:
        out, at = [], 0
        for layer, layer_masks in zip(fixed, masks, strict=True):
            arrays = []
            for array, mask in zip(layer, layer_masks, strict=True):
                values, where = jnp.asarray(array, post.network.dtype), np.nonzero(mask)
                if mask.any():
                    part = theta[at : at + mask.sum()]
                    values = values.at[where].set(part, unique_indices=True, indices_are_sorted=True)
                arrays.append(values)
                at += int(mask.sum())
            out.append((arrays[0], arrays[1]))
        return out

    return jax.value_and_grad(lambda theta: log_likelihood(forward(place(theta), inputs), y))


def targets(post: pn.Posterior) -> Any:
    """Targets (m, n) of the posterior's type, or labels (n,)."""
    return jnp.asarray(post.data.y.T, post.network.dtype if post.likelihood.name == "gaussian" else jnp.int32)


def jax_chain(
    target: Target,
    dtype: npt.DTypeLike,
    delta: float,
    steps: int,
    chains: int | None = None,
    thin: int | None = None,
) -> tuple[Callable[[npt.NDArray[Any], int], Any], Callable[[Any], Any]]:
    """Compiled pCNL: one chain, or `chains` of them by `vmap` of the step inside the scan.

    Returns
    -------
    start : function (theta, seed) -> carry
    run : function carry -> carry after `steps` steps (of each chain), its buffers reused; carry[3] counts accepted
        moves, of each chain. With `thin`, -> (carry, every `thin`-th state z); it must divide `steps`.
    """
    stretch = thin or 1
    keep, drift, noise = (2 - delta) / (2 + delta), 2 * delta / (2 + delta), float(np.sqrt(8 * delta) / (2 + delta))
    shape = () if chains is None else (chains,)

    def step(state: Any, random: Any) -> tuple[Any, None]:
        z, l_z, g_z, accepted = state
        w, log_uniform = random
        v = keep * z + drift * g_z + noise * w
        l_v, g_v = target.value_and_grad(v)
        # rho(z, v) - rho(v, z), collected into one sum.
        both = g_z + g_v
        log_ratio = l_v - l_z - jnp.sum(0.5 * (v - z) * both + 0.25 * delta * (g_z - g_v) * (z + v - both))
        move = log_uniform < log_ratio
        kept = (jnp.where(move, v, z), jnp.where(move, l_v, l_z), jnp.where(move, g_v, g_z), accepted + move)
        return kept, None

    steps_of_chains = step if chains is None else jax.vmap(step, in_axes=(0, 0), out_axes=(0, None))

    def keep_last(state: Any, random: Any) -> tuple[Any, Any]:
        state, _ = jax.lax.scan(steps_of_chains, state, random, unroll=min(UNROLL, stretch))
        return state, state[0]

    def block_steps(dim: int) -> int:
        most = max(1, min(NOISE_BLOCK, NOISE_VALUES // (dim * (chains or 1))))
        # Whole stretches between kept states; one stretch alone may be longer than most.
        sizes = range(most // stretch * stretch, 0, -stretch)
        return next((size for size in sizes if steps % size == 0), stretch)

    def start(theta: npt.NDArray[Any], seed: int) -> Any:
        z = jnp.asarray(target.from_theta(np.asarray(theta, np.float64)), dtype)
        value, gradient = jax.jit(target.value_and_grad)(z)
        state = (z, jnp.asarray(value, dtype), gradient, jnp.int32(0))
        if chains is not None:
            state = jax.tree.map(lambda a: jnp.tile(a, (chains,) + (1,) * a.ndim), state)
        return (*jax.tree.map(jnp.array, state), jax.random.key(seed, impl=GENERATOR))

    def run(carry: Any) -> Any:
        dim = carry[0].shape[-1]
        size = block_steps(dim)

        def block(carry: Any, _: None) -> tuple[Any, None]:
            state, key = carry[:4], carry[4]
            key, for_noise, for_uniform = jax.random.split(key, 3)
            w = jax.random.normal(for_noise, (size, *shape, dim), dtype)
            log_uniform = jnp.log(jax.random.uniform(for_uniform, (size, *shape), dtype))
            if thin is None:
                state, kept = jax.lax.scan(steps_of_chains, state, (w, log_uniform), unroll=min(UNROLL, size))
                return (*state, key), kept
            random = jax.tree.map(lambda a: a.reshape(size // thin, thin, *a.shape[1:]), (w, log_uniform))
            state, kept = jax.lax.scan(keep_last, state, random, unroll=max(1, min(UNROLL // thin, size // thin)))
            return (*state, key), kept

        carry, kept = jax.lax.scan(block, carry, length=steps // size)
        return carry if thin is None else (carry, kept.reshape(-1, *kept.shape[2:]))

    return start, jax.jit(run, donate_argnums=0)
