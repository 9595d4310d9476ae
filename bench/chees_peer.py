"""The peer of many short chains: BlackJAX's ChEES-HMC, which adapts one step size and one length from all chains."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from peers import Target, potential

# The first step size, in coordinates of prior N(0, I), and Adam as Hoffman, Radul & Sountsov (2021) set it.
STEP_SIZE, LEARNING_RATE, BETAS = 0.1, 0.025, (0.0, 0.95)


class Chees(NamedTuple):
    """A compiled warm-up with one draw of each chain.

    start : function theta (chains, K) -> z (chains, K) on the device
    run : function (z, seed) -> theta (chains, K) and the number of gradients of a chain
    compile_seconds : seconds of the compilation
    """

    start: Callable[[npt.NDArray[Any]], Any]
    run: Callable[[Any, int], tuple[npt.NDArray[Any], float]]
    compile_seconds: float


def chees(target: Target, dtype: npt.DTypeLike, dim: int, chains: int, transitions: int) -> Chees:
    """Compile `transitions` that adapt and one more with what they found, whose states are the draws.

    All chains take the same number of leapfrog steps in a transition, so under `vmap` none waits for another.
    """
    energy = potential(target)

    def density(z: Any) -> Any:
        return -energy(z)

    # By default BlackJAX keeps the states of all transitions: 4 GB for 400 of 1,024 chains of 2,701 parameters.
    adaptation = blackjax.chees_adaptation(
        density, chains, adaptation_info_fn=lambda _state, info, _adapted: info.num_integration_steps.mean()
    )
    optimizer = optax.adam(LEARNING_RATE, *BETAS)

    def warm_up_and_draw(z: Any, key: Any) -> tuple[Any, Any]:
        first, second = jax.random.split(key)
        (states, found), gradients = adaptation.run(first, z, STEP_SIZE, optimizer, transitions, max_sampling_steps=1)
        step = blackjax.dhmc(density, **found).step
        states, info = jax.vmap(step)(jax.random.split(second, chains), states)
        return states.position, gradients.sum() + info.num_integration_steps.mean()

    shape = jax.ShapeDtypeStruct((chains, dim), dtype)
    started = time.perf_counter()
    compiled = jax.jit(warm_up_and_draw).lower(shape, jax.random.key(0)).compile()
    compile_seconds = time.perf_counter() - started

    def start(theta: npt.NDArray[Any]) -> Any:
        return jnp.asarray(np.stack([target.from_theta(one) for one in theta.astype(np.float64)]), dtype)

    def run(z: Any, seed: int) -> tuple[npt.NDArray[Any], float]:
        draws, gradients = compiled(z, jax.random.key(seed))
        return target.to_theta(np.asarray(draws)), float(gradients)

    return Chees(start, run, compile_seconds)
