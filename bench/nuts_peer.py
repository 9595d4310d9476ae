"""The NUTS peer: NumPyro's own transition, compiled, on the densities of the JAX peers and in their coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer import NUTS
from peers import Target, potential

TARGET_ACCEPT, MAX_TREE_DEPTH = 0.8, 10  # NumPyro's defaults


class NutsRun(NamedTuple):
    """What a stretch of draws leaves."""

    z: Any  # (draws, K)
    gradients: Any  # (draws,)
    diverging: Any  # (draws,)


class Nuts(NamedTuple):
    """A compiled sampler.

    warm_up : function (theta, seed) -> state after `warmup` draws that adapt step size and diagonal metric
    run : function state -> (state, NutsRun) of `draws` further draws
    """

    warm_up: Callable[[npt.NDArray[Any], int], Any]
    run: Callable[[Any], tuple[Any, NutsRun]]


def nuts(target: Target, dtype: npt.DTypeLike, warmup: int, draws: int) -> Nuts:
    """NumPyro's NUTS with its defaults: diagonal metric, target acceptance 0.8, trees of depth 10 at most.

    The transition is called as NumPyro's `MCMC` does it, without what `MCMC` adds on top. The coordinates are those of
    prior N(0, I), where a diagonal metric has the least to learn.
    """
    energy = potential(target)
    kernel = NUTS(potential_fn=energy, target_accept_prob=TARGET_ACCEPT, max_tree_depth=MAX_TREE_DEPTH)

    def coordinates(theta: npt.NDArray[Any]) -> Any:
        return jnp.asarray(target.from_theta(np.asarray(theta, np.float64)), dtype)

    def start(theta: npt.NDArray[Any], seed: int) -> Any:
        return kernel.init(jax.random.key(seed), warmup, coordinates(theta), model_args=(), model_kwargs={})

    def one(state: Any, _: None) -> tuple[Any, NutsRun]:
        state = kernel.sample(state, (), {})
        return state, NutsRun(state.z, state.num_steps, state.diverging)

    # `warmup` counts from zero in the state itself; adaptation ends there.
    adapt = jax.jit(lambda state: jax.lax.fori_loop(0, warmup, lambda _, s: kernel.sample(s, (), {}), state))
    run = jax.jit(lambda state: jax.lax.scan(one, state, length=draws))
    return Nuts(lambda theta, seed: adapt(start(theta, seed)), run)
