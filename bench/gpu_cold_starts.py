"""Cold starts of many chains for `gpu.py`: seconds from dispersed starts to one draw of each chain, and its quality."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from cases import Case

import patrac_native as pn
from patrac_native.diagnostics import convergence

KERNELS: dict[str, pn.Kernel] = {"MGrad, 0.9": pn.MGrad(persistence=0.9), "PCNL": pn.PCNL()}
CHEES = "ChEES-HMC"
# f is summarised at these inputs of the sine problem.
INPUTS = np.linspace(-5, 5, 21)[:, None]
# The peer has no rule by which its warm-up ends: above this R-hat of f it gets the next longer one.
MAX_RHAT = 1.05
# No further seed is run after so many seconds.
MAX_SECONDS = 10.0


@dataclass(frozen=True)
class ColdStart:
    """One run from the starting points to the draws."""

    seconds: float
    steps: int  # of the warm-up; transitions of ChEES-HMC
    gradients: float  # of a chain, all in all
    is_stable: bool | None  # None where the warm-up has a fixed length
    ess: float  # minimum bulk ESS of f over the inputs, at most the number of draws
    rhat: float  # maximum R-hat of f

    @property
    def effective(self) -> float:
        """Effective draws a second."""
        return self.ess / self.seconds


def blackjax_reason(jax: str) -> str:
    """Why BlackJAX takes no part, or nothing; `jax` is the reason why JAX does not."""
    if jax:
        return jax
    try:
        import blackjax  # noqa: F401
    except (ImportError, AttributeError) as error:  # the latter where it is of another time than JAX
        return f"it cannot be imported: {error}"
    return ""


def native(case: Case, kernel: pn.Kernel, chains: int, warmup: pn.Warmup, device: str, seed: int) -> ColdStart:
    """Run `pn.sample` with a warm-up of many chains; the time is that of the whole call."""
    fixed: dict[str, Any] = {"draws": 1, "device": device, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a warm-up that ends at its longest, which is recorded
        started = time.perf_counter()
        draws = pn.sample(case.post, kernel, chains=chains, warmup=warmup, seed=seed, **fixed)
        _ = draws.theta
        seconds = time.perf_counter() - started
        summary = draws.summary(INPUTS, progress=False)
    return ColdStart(
        seconds,
        draws.settings["warmup_steps"],
        float(kernel.gradients_per_step * (draws.settings["warmup_steps"] + draws.settings["thin"])),
        draws.settings["warmup_stable"],
        min(summary.function.min_ess_bulk, chains),
        summary.function.max_rhat,
    )


def starting_points(post: pn.Posterior, chains: int, superchains: int, seed: int) -> npt.NDArray[Any]:
    """Return points like those of `init="auto"`, one for each superchain, repeated for its chains, (chains, K)."""
    points = post.sample_prior(superchains, seed=seed)
    if not post.network.separate:
        points[1:] = np.sqrt(0.75) * post.theta_map + 0.5 * points[1:]
        points[0] = post.theta_map
    return np.repeat(points, chains // superchains, axis=0)


def peer_density(case: Case) -> Callable[[npt.NDArray[Any]], tuple[Any, Any]]:
    """Return l and g of the peer's density as a function of theta."""
    from peers_by_hand import expert

    target, dtype = expert(case.post), case.post.network.dtype

    def value_and_grad(theta: npt.NDArray[Any]) -> tuple[Any, Any]:
        value, gradient = target.value_and_grad(target.from_theta(theta.astype(np.float64)).astype(dtype))
        return float(value), target.gradient_in_theta(np.asarray(gradient, np.float64))

    return value_and_grad


def chees_runs(case: Case, chains: int, superchains: int, transitions: int) -> tuple[Callable[[int], ColdStart], float]:
    """Return a function of the seed that runs the compiled peer, and the seconds of its compilation.

    The density is that of the JAX peers, with the structure exploited by hand. ESS and R-hat are of the same functions.
    """
    from chees_peer import chees
    from peers_by_hand import expert

    post = case.post
    compiled = chees(expert(post), post.network.dtype, post.dim, chains, transitions)

    def run(seed: int) -> ColdStart:
        z = compiled.start(starting_points(post, chains, superchains, seed))
        started = time.perf_counter()
        theta, gradients = compiled.run(z, seed)
        seconds = time.perf_counter() - started
        f = post.network.predict(theta.astype(post.network.dtype), INPUTS)
        if not np.isfinite(f).all():
            return ColdStart(seconds, transitions, gradients, None, float("nan"), float("inf"))
        found = convergence(f.reshape(superchains, -1, *f.shape[1:]))
        return ColdStart(seconds, transitions, gradients, None, min(found.min_ess_bulk, chains), found.max_rhat)

    return run, compiled.compile_seconds


def repeated(run: Callable[[int], ColdStart], repeats: int) -> dict[str, Any]:
    """Run seeds 1 to `repeats`; return all runs, the medians of their numbers, and whether all were stable."""
    runs: list[ColdStart] = []
    while len(runs) < repeats and sum(one.seconds for one in runs) < MAX_SECONDS:
        runs.append(run(1 + len(runs)))
    numbers = ("seconds", "steps", "gradients", "ess", "rhat", "effective")
    found: dict[str, Any] = {name: statistics.median(getattr(one, name) for one in runs) for name in numbers}
    stable = None if runs[0].is_stable is None else all(one.is_stable for one in runs)
    return found | {"stable": stable, "runs": [asdict(one) for one in runs]}
