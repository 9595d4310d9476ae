"""The sides of a count of effective draws: each continues one chain from its current state and keeps states."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
import peers
from cases import Case
from harness import time_sides
from nuts_peer import nuts
from sides import call_steps, jax_side, jax_targets

import patrac_native as pn

FloatArray = npt.NDArray[Any]

# The native kernels, by their names in the tables. "auto" is added to them, though it is usually one of them.
KERNELS: dict[str, Callable[[], Any]] = {
    "pCNL": lambda: pn.PCNL(),
    "mGrad": lambda: pn.MGrad(),
    "collapsed pCNL": lambda: pn.PCNL(collapse=True),
    "collapsed mGrad": lambda: pn.MGrad(collapse=True),
    "elliptical slice": lambda: pn.EllipticalSlice(),
    "exact": lambda: pn.Exact(),
}
JAX, NUTS = "JAX pCNL", "NumPyro NUTS"
STEP_SIZES = {"delta", "beta"}
# The possible thinnings; each divides the number of steps of a call of the JAX chain.
THINS = (1, 2, 5, 10, 25, 50)
CALL_STEPS = 100
NUTS_CALL_DRAWS = 50
# Maximum size of the kept states in memory.
MAX_BYTES = 2**26


class Stretch(NamedTuple):
    """The kept states of a part of a chain, with their numbers of steps and seconds; a step of NUTS is a gradient."""

    theta: FloatArray
    steps: int
    seconds: float


def is_supported(name: str, post: pn.Posterior) -> bool:
    """Return whether a posterior supports a kernel."""
    gaussian = post.likelihood.name == "gaussian"
    last_layer_only = int(post.parameters["layer"].min()) == len(post.network.net.weights)
    if name == "exact":
        return gaussian and last_layer_only
    return not name.startswith("collapsed") or (gaussian and not last_layer_only)


def same_kernel(one: Any, other: Any) -> bool:
    """Return whether two kernels differ only in the step size."""
    contents = [{k: v for k, v in kernel.to_dict().items() if k not in STEP_SIZES} for kernel in (one, other)]
    return contents[0] == contents[1]


@dataclass
class NativeSide:
    """`pn.sample` as a user calls it, timed as a whole call."""

    post: pn.Posterior
    kernel: Any
    state: FloatArray
    stable: bool | None

    def run(self, kept: int, thin: int, seed: int) -> Stretch:
        """Continue the chain for `kept` states, one for every `thin` steps."""
        fixed: dict[str, Any] = {"chains": 1, "warmup": None, "threads": 1, "progress": False}
        started = time.process_time()
        draws = pn.sample(self.post, self.kernel, draws=kept, thin=thin, init=self.state[None], seed=seed, **fixed)
        seconds = time.process_time() - started
        self.state = draws.theta[0, -1].copy()
        return Stretch(draws.theta[0], kept * thin, seconds)


def native_side(post: pn.Posterior, kernel: Any, start: FloatArray | str, seed: int) -> NativeSide:
    """Run the default warm-up and return a side with the kernel and step size that it found."""
    init = start if isinstance(start, str) else start[None]
    warm = pn.sample(post, kernel, chains=1, draws=1, init=init, seed=seed, threads=1, progress=False)
    found, step_size = post.plan(kernel).kernel, float(warm.stats["step_size"][0, -1])
    # Exact and elliptical slice have no step size.
    for name in {field.name for field in fields(found)} & STEP_SIZES:
        found = replace(found, **{name: step_size})
    return NativeSide(post, found, warm.theta[0, -1], warm.settings.get("warmup_stable"))


class JaxSide:
    """The compiled pCNL of a target at native's step size."""

    def __init__(self, case: Case, target: peers.Target, thin: int, seed: int) -> None:
        calls = max(1, call_steps(case, 1) // CALL_STEPS)
        self.call_draws = calls * CALL_STEPS // thin
        steps, dtype = calls * CALL_STEPS, case.post.network.dtype
        start, self._advance = peers.jax_chain(target, dtype, case.delta, steps, thin=thin)
        self._target, self._dtype = target, dtype
        self._carry = start(case.start, seed)
        self.run(self.call_draws, thin)

    def run(self, kept: int, thin: int, seed: int = 0) -> Stretch:
        """Continue the chain for about `kept` states, in whole calls; the chain has its own random state."""
        parts, started = [], time.process_time()
        for _ in range(-(-kept // self.call_draws)):
            self._carry, z = self._advance(self._carry)
            parts.append(jax.block_until_ready(z))
        seconds = time.process_time() - started
        z = np.concatenate(parts)
        return Stretch(self._target.to_theta(z).astype(self._dtype), len(z) * thin, seconds)


class NutsSide:
    """NumPyro's NUTS, warmed up by its own adaptation from the same start."""

    def __init__(self, case: Case, target: peers.Target, warmup: int, seed: int) -> None:
        self._target, self._dtype = target, case.post.network.dtype
        compiled = nuts(target, case.post.network.dtype, warmup, NUTS_CALL_DRAWS)
        self._run, self._state = compiled.run, compiled.warm_up(case.start, seed)
        self.divergences = 0
        self.run(NUTS_CALL_DRAWS)

    def run(self, kept: int, thin: int = 1, seed: int = 0) -> Stretch:
        """Continue the chain for about `kept` draws, in whole calls."""
        parts, started = [], time.process_time()
        for _ in range(-(-kept // NUTS_CALL_DRAWS)):
            self._state, found = self._run(self._state)
            parts.append(jax.block_until_ready(found))
        seconds = time.process_time() - started
        z = np.concatenate([part.z for part in parts])
        self.divergences += sum(int(part.diverging.sum()) for part in parts)
        theta = self._target.to_theta(z).astype(self._dtype)
        return Stretch(theta, sum(int(part.gradients.sum()) for part in parts), seconds)


def targets(case: Case) -> dict[str, peers.Target]:
    """Return the JAX targets of `sides`, which assume unit variance, rescaled to the posterior's variance."""
    variance = float(np.asarray(case.post.likelihood.variance).ravel()[0])
    found = jax_targets(case)
    return (
        found
        if variance == 1
        else {name: _with_variance(t, variance, len(case.post.data.y)) for name, t in found.items()}
    )


def _with_variance(target: peers.Target, variance: float, n: int) -> peers.Target:
    """Rescale a target of unit variance and one output to another variance; Out's target has its variance already."""
    constant = 0.5 * n * (np.log(2 * np.pi) * (1 - variance) / variance - np.log(variance))

    def value_and_grad(z: Any) -> tuple[Any, Any]:
        value, gradient = target.value_and_grad(z)
        return value / variance + constant, gradient / variance

    return replace(target, value_and_grad=value_and_grad)


def fastest(case: Case, found: dict[str, peers.Target], seconds: float) -> str:
    """Return the name of the JAX target whose chain is the fastest."""
    timed = {name: jax_side(case, target) for name, target in found.items()}
    times = time_sides(timed, 3, seconds)["cpu"]
    return min(times, key=lambda name: float(np.median(times[name])))
