"""The sides of a count of effective draws: each runs one chain on from where it stands and keeps states."""

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
from nuts_peer import nuts
from sides import call_steps, jax_side, jax_targets
from timing import time_sides

import patrac_native as pn
from patrac_native.model.kernels import Kernel, kernel_from_dict

FloatArray = npt.NDArray[Any]

# What native runs, by the name in the tables; "auto" is added to them, and is one of them.
KERNELS: dict[str, Callable[[], Kernel]] = {
    "pCNL": lambda: pn.PCNL(),
    "mGrad": lambda: pn.MGrad(),
    "collapsed pCNL": lambda: pn.PCNL(collapse=True),
    "collapsed mGrad": lambda: pn.MGrad(collapse=True),
    "elliptical slice": lambda: pn.EllipticalSlice(),
    "exact": lambda: pn.Exact(),
}
JAX, NUTS = "JAX pCNL", "NumPyro NUTS"
STEP_SIZES = {"delta", "beta"}
# States between those kept; each divides the steps of a call of the JAX chain.
THINS = (1, 2, 5, 10, 25, 50)
CALL_STEPS = 100
NUTS_CALL_DRAWS = 50
# Of kept states in memory at a time.
MOST_BYTES = 2**26


class Stretch(NamedTuple):
    """Kept states and what they took; a step of NUTS is a gradient."""

    theta: FloatArray
    steps: int
    seconds: float


def serves(name: str, post: pn.Posterior) -> bool:
    """Whether a kernel can run on a posterior."""
    gaussian = post.likelihood.name == "gaussian"
    last_layer_only = int(post.parameters["layer"].min()) == len(post.net.weights)
    if name == "exact":
        return gaussian and last_layer_only
    return not name.startswith("collapsed") or (gaussian and not last_layer_only)


def same_kernel(one: Kernel, other: Kernel) -> bool:
    """Whether two kernels differ in the step size alone."""
    contents = [{k: v for k, v in kernel.to_dict().items() if k not in STEP_SIZES} for kernel in (one, other)]
    return contents[0] == contents[1]


@dataclass
class NativeSide:
    """`pn.sample` as a user calls it: the time of a stretch is that of the whole call."""

    post: pn.Posterior
    kernel: Kernel
    state: FloatArray
    stable: bool | None

    def run(self, kept: int, thin: int, seed: int) -> Stretch:
        """Go on for `kept` states, one in `thin` steps."""
        fixed: dict[str, Any] = {"chains": 1, "warmup": None, "threads": 1, "progress": False}
        started = time.process_time()
        draws = pn.sample(self.post, self.kernel, draws=kept, thin=thin, init=self.state[None], seed=seed, **fixed)
        seconds = time.process_time() - started
        self.state = draws.theta[0, -1].copy()
        return Stretch(draws.theta[0], kept * thin, seconds)

    def restart(self, theta: FloatArray, seed: int) -> None:
        """Go on from elsewhere; the seed is an argument of every run."""
        self.state = theta


def native_side(post: pn.Posterior, kernel: Kernel | str, start: FloatArray | str, seed: int) -> NativeSide:
    """Run the default warm-up and fix what it found."""
    init = start if isinstance(start, str) else start[None]
    warm = pn.sample(post, kernel, chains=1, draws=1, init=init, seed=seed, threads=1, progress=False)
    found, step_size = kernel_from_dict(warm.settings["kernel"]), float(warm.stats["step_size"][0, -1])
    # Exact and elliptical slice have no step size.
    for name in {field.name for field in fields(found)} & STEP_SIZES:
        found = replace(found, **{name: step_size})
    return NativeSide(post, found, warm.theta[0, -1], warm.settings.get("warmup_stable"))


class JaxSide:
    """The compiled pCNL of a target at native's step size."""

    def __init__(self, case: Case, target: peers.Target, thin: int, seed: int) -> None:
        calls = max(1, call_steps(case, 1) // CALL_STEPS)
        self.call_draws = calls * CALL_STEPS // thin
        steps, dtype = calls * CALL_STEPS, case.post.dtype
        self._start, self._advance = peers.jax_chain(target, dtype, case.delta, steps, thin=thin)
        self._target, self._dtype = target, dtype
        self.restart(case.start, seed)
        self.run(self.call_draws, thin)

    def restart(self, theta: FloatArray, seed: int) -> None:
        """Go on from elsewhere."""
        self._carry = self._start(theta, seed)

    def run(self, kept: int, thin: int, seed: int = 0) -> Stretch:
        """Go on for about `kept` states, in whole calls; the chain has a random state of its own."""
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
        self._target, self._dtype = target, case.post.dtype
        compiled = nuts(target, case.post.dtype, warmup, NUTS_CALL_DRAWS)
        self._run, self._move, self._state = compiled.run, compiled.move, compiled.warm_up(case.start, seed)
        self.divergences = 0
        self.run(NUTS_CALL_DRAWS)

    def restart(self, theta: FloatArray, seed: int) -> None:
        """Go on from elsewhere, adapted as it is."""
        self._state = self._move(self._state, theta, seed)

    def run(self, kept: int, thin: int = 1, seed: int = 0) -> Stretch:
        """Go on for about `kept` draws, in whole calls."""
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
    """The JAX targets of `sides`, with the posterior's own variance, which theirs take for one."""
    variance = float(np.asarray(case.post.likelihood.variance).ravel()[0])
    found = jax_targets(case)
    return (
        found if variance == 1 else {name: _with_variance(t, variance, len(case.post.y)) for name, t in found.items()}
    )


def _with_variance(target: peers.Target, variance: float, n: int) -> peers.Target:
    """A target of unit variance as one of another, one output; not for Out's, which has the variance already."""
    constant = 0.5 * n * (np.log(2 * np.pi) * (1 - variance) / variance - np.log(variance))

    def value_and_grad(z: Any) -> tuple[Any, Any]:
        value, gradient = target.value_and_grad(z)
        return value / variance + constant, gradient / variance

    return replace(target, value_and_grad=value_and_grad)


def fastest(case: Case, found: dict[str, peers.Target], seconds: float) -> str:
    """The JAX target whose chain takes the least time."""
    timed = {name: jax_side(case, target) for name, target in found.items()}
    times = time_sides(timed, 3, seconds)["cpu"]
    return min(times, key=lambda name: float(np.median(times[name])))
