"""The sides of the bench of real posteriors: native kernels, and samplers of BlackJAX on the native density."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from blackjax.mcmc import adjusted_mclmc_dynamic, mclmc
from blackjax.mcmc.adjusted_mclmc_dynamic import make_random_trajectory_length_fn

import patrac_native as pn

FloatArray = npt.NDArray[Any]

# Gradients of a step of the integrator of both MCLMC samplers (McLachlan's), the default of BlackJAX.
GRADIENTS_PER_STEP = 2
# MAMS: acceptance rate aimed at, and steps of a trajectory on average. On digits Mix(5) it has 8.2 joint effective
# draws per 1,000 gradients with these, 4.3 with two steps, BlackJAX's default, and 6.0 with four and 0.9.
MAMS_ACCEPT, MAMS_STEPS = 0.65, 8.0
# Shares of the number of transitions that their tuning takes; MAMS's trajectories are longer at first.
MCLMC_TUNING, MAMS_TUNING = 0.33, 0.6
# NUTS: draws of the warm-up for each gradient of that of the other sides, and their bounds.
NUTS_DRAWS_PER_GRADIENT, NUTS_WARMUP = 1 / 64, (100, 500)
# Kept states of a call of a compiled chain, of NUTS and of the others, whose transitions take less time.
NUTS_CALL_KEPT, CALL_KEPT = 10, 50


class Stretch(NamedTuple):
    """Kept states of all chains, with the number of gradients of all chains and the processor time."""

    theta: FloatArray  # (chain, draw, K)
    variance: FloatArray | None  # (chain, draw)
    gradients: float
    seconds: float


def joined(parts: Sequence[Stretch]) -> Stretch:
    """Return consecutive stretches of the same chains as one."""
    variances = [part.variance for part in parts if part.variance is not None]
    return Stretch(
        np.concatenate([part.theta for part in parts], axis=1),
        np.concatenate(variances, axis=1) if variances else None,
        sum(part.gradients for part in parts),
        sum(part.seconds for part in parts),
    )


class NativeSide:
    """`pn.sample`, each chain with the step size that its warm-up found."""

    def __init__(self, post: pn.Posterior, kernel: pn.MGrad, starts: FloatArray, warmup: int | str, seed: int) -> None:
        self._post, self._seed, self._calls = post, seed, 0
        self._fixed: dict[str, Any] = {"threads": 1, "progress": False}
        started = time.process_time()
        draws = self._sample(kernel, chains=len(starts), draws=1, init=starts, warmup=warmup, seed=seed)
        self.warmup_seconds = time.process_time() - started
        self.warmup_gradients = draws.settings["warmup_steps"] * kernel.gradients_per_step
        self._stable = draws.settings["warmup_stable"]
        self._kernels = [replace(kernel, delta=float(size)) for size in draws.stats["step_size"][:, -1]]
        self._states = draws.theta[:, -1]

    def _sample(self, kernel: pn.MGrad, **arguments: Any) -> pn.Draws:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a warm-up that is not stable is reported
            return pn.sample(self._post, kernel, **self._fixed, **arguments)

    def advance(self, kept: int, thin: int) -> Stretch:
        """Continue each chain; every call has a seed of its own, since it counts its steps from zero."""
        found, seconds = [], 0.0
        for chain, kernel in enumerate(self._kernels):
            self._calls += 1
            run = {"chains": 1, "draws": kept, "thin": thin, "init": self._states[chain][None], "warmup": None}
            started = time.process_time()
            found.append(self._sample(kernel, seed=1_000_000 * (1 + self._seed) + self._calls, **run))
            seconds += time.process_time() - started
        theta = np.concatenate([draws.theta for draws in found])
        self._states = theta[:, -1].copy()
        sampled = self._post.likelihood.is_sampled
        variance = np.concatenate([draws.stats["variance"] for draws in found]) if sampled else None
        return Stretch(theta, variance, sum(float(draws.stats["gradients"].sum()) for draws in found), seconds)

    def describe(self) -> dict[str, Any]:
        """Return the kernels with their step sizes, and whether the warm-up ended with stable chains."""
        return {"kernels": [kernel.to_dict() for kernel in self._kernels], "warmup_stable": self._stable}


class Compiled(NamedTuple):
    """A sampler of BlackJAX as functions for `jax.jit`.

    tune : function (z, key) -> state, parameters and the number of gradients so far
    step : function (key, state, parameters) -> state and the number of gradients of a transition
    kept : number of kept states of a call
    """

    tune: Callable[[Any, Any], tuple[Any, Any, Any]]
    step: Callable[[Any, Any, Any], tuple[Any, Any]]
    kept: int


class BlackjaxSide:
    """A sampler of BlackJAX in whitened coordinates, each chain tuned alone; compilation is not timed.

    It runs on the native density, whose gradient is that of the native kernels: with the output weights integrated out
    where the noise variance is fixed and Gaussian, and with the logarithm of a sampled variance as a coordinate.
    """

    def __init__(
        self,
        post: pn.Posterior,
        build: Callable[[Callable[[Any], Any], float], Compiled],
        starts: FloatArray,
        gradients: float,
        seed: int,
    ) -> None:
        sampled = post.likelihood.is_sampled
        self._collapses = post.likelihood.name == "gaussian" and not sampled
        kind: Any = "collapsed_posterior" if self._collapses else "posterior"
        coordinates: Any = "whitened+log_variance" if sampled else "whitened"
        self._density, self._seed, self._calls = post.density(kind, coordinates), seed, 0
        dim, dtype = len(self._density.entries), post.network.dtype
        z = starts[:, :dim] / np.sqrt(post.prior_variance[:dim])
        if sampled:
            z = np.concatenate([z, np.tile(self._density.start[dim:], (len(z), 1))], axis=1)
        sampler = build(post.to_jax(kind, coordinates), gradients)
        first = (jnp.asarray(z[0], dtype), jax.random.key(seed))
        tune = jax.jit(sampler.tune).lower(*first).compile()
        keys = jax.random.split(jax.random.key(seed), len(z))
        started = time.process_time()
        tuned = [jax.block_until_ready(tune(jnp.asarray(one, dtype), key)) for one, key in zip(z, keys, strict=True)]
        self.warmup_seconds = time.process_time() - started
        self.warmup_gradients = float(np.mean([float(count) for *_, count in tuned]))
        self._states, self._parameters = [state for state, *_ in tuned], [found for _, found, _ in tuned]
        self._kept = sampler.kept
        run = jax.jit(partial(_chain, sampler.step, sampler.kept))
        self._run = run.lower(self._states[0], self._parameters[0], keys[0], 1).compile()

    def advance(self, kept: int, thin: int) -> Stretch:
        """Continue each chain in whole calls."""
        chains, gradients, seconds = [], 0.0, 0.0
        for chain, parameters in enumerate(self._parameters):
            parts = []
            for _ in range(-(-kept // self._kept)):
                self._calls += 1
                key = jax.random.fold_in(jax.random.key(self._seed + 1), self._calls)
                started = time.process_time()
                self._states[chain], (z, count) = jax.block_until_ready(
                    self._run(self._states[chain], parameters, key, thin)
                )
                seconds += time.process_time() - started
                gradients += float(count.sum())
                parts.append(np.asarray(z))
            chains.append(np.concatenate(parts))
        z = np.stack(chains)
        if not np.isfinite(z).all():
            raise FloatingPointError("a chain left the numbers")
        theta = self._density.complete(z, self._calls) if self._collapses else self._density.theta(z)
        variance = self._density.variance(z)[..., 0] if self._density.spec.log_variance else None
        return Stretch(theta, variance, gradients, seconds)

    def describe(self) -> dict[str, Any]:
        """Return the tuned numbers of each chain."""
        return {"tuned": [{name: np.asarray(v).mean().item() for name, v in of.items()} for of in self._parameters]}


def _chain(
    step: Callable[[Any, Any, Any], tuple[Any, Any]], kept: int, state: Any, parameters: Any, key: Any, thin: Any
) -> Any:
    """Return the state after `kept` kept ones, and these with their numbers of gradients."""

    def keep(state: Any, key: Any) -> tuple[Any, Any]:
        def one(i: Any, carried: Any) -> Any:
            state, count = carried
            state, more = step(jax.random.fold_in(key, i), state, parameters)
            return state, count + more

        state, count = jax.lax.fori_loop(0, thin, one, (state, 0))
        return state, (state.position, count)

    return jax.lax.scan(keep, state, jax.random.split(key, kept))


def unadjusted(density: Callable[[Any], Any], gradients: float) -> Compiled:
    """Return MCLMC with the tuning of BlackJAX.

    Adapting the scales of the coordinates, which are whitened by the prior, changed nothing on digits Mix(5) (28 and 29
    joint effective draws per 1,000 gradients).
    """
    kernel = mclmc.build_kernel()
    steps = int(gradients / GRADIENTS_PER_STEP / MCLMC_TUNING)

    def tune(z: Any, key: Any) -> Any:
        first, second = jax.random.split(key)
        state = mclmc.init(z, density, first)
        arguments: dict[str, Any] = {"logdensity_fn": density, "diagonal_preconditioning": False}
        state, found, count = blackjax.mclmc_find_L_and_step_size(kernel, steps, state, second, **arguments)
        parameters = {"L": found.L, "step_size": found.step_size, "inverse_mass_matrix": found.inverse_mass_matrix}
        return state, parameters, GRADIENTS_PER_STEP * count

    def step(key: Any, state: Any, parameters: Any) -> Any:
        return kernel(key, state, density, **parameters)[0], GRADIENTS_PER_STEP

    return Compiled(tune, step, CALL_KEPT)


def adjusted(density: Callable[[Any], Any], gradients: float) -> Compiled:
    """Return MAMS, adjusted MCLMC with random lengths of its trajectories, with the tuning of BlackJAX."""
    kernel = adjusted_mclmc_dynamic.build_kernel(integration_steps_fn=make_random_trajectory_length_fn(True))
    transitions = int(gradients / GRADIENTS_PER_STEP / MAMS_STEPS / MAMS_TUNING)

    def tune(z: Any, key: Any) -> Any:
        first, second = jax.random.split(key)
        state = adjusted_mclmc_dynamic.init(z, density, first)
        state, found, count = blackjax.adjusted_mclmc_find_L_and_step_size(
            kernel,
            density,
            transitions,
            state,
            second,
            target=MAMS_ACCEPT,
            diagonal_preconditioning=False,
            target_num_integration_steps=MAMS_STEPS,
        )
        parameters = {"L": found.L, "step_size": found.step_size, "inverse_mass_matrix": found.inverse_mass_matrix}
        return state, parameters, GRADIENTS_PER_STEP * count

    def step(key: Any, state: Any, parameters: Any) -> Any:
        state, info = kernel(
            key,
            state,
            density,
            parameters["step_size"],
            inverse_mass_matrix=parameters["inverse_mass_matrix"],
            integration_steps_params=(parameters["L"] / parameters["step_size"],),
        )
        return state, GRADIENTS_PER_STEP * info.num_integration_steps

    return Compiled(tune, step, CALL_KEPT)


def nuts(density: Callable[[Any], Any], gradients: float) -> Compiled:
    """Return NUTS with window adaptation of its step size and diagonal metric."""
    kernel = blackjax.nuts.build_kernel()
    draws = int(np.clip(gradients * NUTS_DRAWS_PER_GRADIENT, *NUTS_WARMUP))

    def tune(z: Any, key: Any) -> Any:
        (state, parameters), info = blackjax.window_adaptation(blackjax.nuts, density).run(key, z, num_steps=draws)
        kept = {name: parameters[name] for name in ("step_size", "inverse_mass_matrix")}
        return state, kept, info.info.num_integration_steps.sum()

    def step(key: Any, state: Any, parameters: Any) -> Any:
        state, info = kernel(key, state, density, **parameters)
        return state, info.num_integration_steps

    return Compiled(tune, step, NUTS_CALL_KEPT)


AUTO, BEFORE, PLAIN = "auto", "auto, metric of the prior", "auto, not collapsed"
# What the native sides change of the kernel of `kernel="auto"`.
NATIVE: dict[str, dict[str, Any]] = {AUTO: {}, BEFORE: {"metric": "prior"}, PLAIN: {"collapse": False}}
BLACKJAX = {"MCLMC": unadjusted, "MAMS": adjusted, "NUTS": nuts}
SIDES = (*NATIVE, *BLACKJAX)
# Without an accept test, so that a bias of its moments is part of it.
BIASED = ("MCLMC",)


# Chains that have warmed up, with the gradients of a chain and the processor time of all in the warm-up.
Side = NativeSide | BlackjaxSide


def make_side(
    name: str, post: pn.Posterior, starts: FloatArray, warmup: int | str, gradients: float, seed: int
) -> Side:
    """Warm up a side; `gradients` are those of the warm-up of a sampler that has to be told."""
    if name in BLACKJAX:
        return BlackjaxSide(post, BLACKJAX[name], starts, gradients, seed)
    kernel: Any = post.plan().kernel
    return NativeSide(post, replace(kernel, **NATIVE[name]), starts, warmup, seed)
