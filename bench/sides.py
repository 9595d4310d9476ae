"""The sides of a case: native, its floor, the JAX variants and eager PyTorch, one chain or many."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import peers
from cases import Case
from harness import Side
from peers_by_hand import by_hand, expert

import patrac_native as pn
from patrac_native.engine import testing

# One call of a compiled JAX run takes about this long, so that the overhead of the call is negligible.
CALL_SECONDS, MAX_CALL_STEPS = 0.05, 2000
MANY_NATIVE_CHAINS = 64
VMAP_CHAINS = (8, 16, 64)


def native(case: Case, chains: int = 1, threads: int = 1) -> Side:
    """Return a side that runs `pn.sample` and keeps only the last states."""
    kernel, init = pn.PCNL(case.delta), np.tile(case.start, (chains, 1))
    fixed: dict[str, Any] = {"chains": chains, "draws": 1, "warmup": None, "threads": threads, "progress": False}

    def run(steps: int, seed: int) -> float:
        draws = pn.sample(case.post, kernel, thin=steps, init=init, seed=seed, **fixed)
        return float(draws.stats["acceptance_rate"].mean())

    return Side(run, chains=chains)


def floor_side(case: Case) -> Side:
    """Return a side that executes the operations of the floor, one kind after the other, in the first-level cache.

    The floor is timed like the other sides: if the speed of a shared core changes, both parts of a ratio change.
    """
    post = case.post
    dtype, level, counts = post.network.dtype.name, post.network.level, post.plan().operations
    of_one_repeat = {name: testing.repeat_operation(name, dtype, 1, level) for name in counts}

    def run(steps: int, seed: int) -> float:
        for name, count in counts.items():
            testing.repeat_operation(name, dtype, math.ceil(count * steps / of_one_repeat[name]), level)
        return math.nan  # nothing is accepted

    return Side(run)


def jax_targets(case: Case, variants: bool = False) -> dict[str, peers.Target]:
    """Return the targets of the JAX sides; `variants` adds those that are never the fastest.

    "masked" is the plain scan, "rows first" its other layout, for Full. "lean" leaves out constant layers. "by hand"
    exploits the same structure as the compiled model; with "dots" all products are XLA's dot, which is the fastest for
    many small networks.
    """
    post = case.post
    found = {
        "jax masked": peers.in_theta(post, peers.masked(post)),
        "jax lean": peers.in_theta(post, peers.lean(post)),
        "jax by hand": expert(post),
    }
    if case.key.architecture == "Full":
        del found["jax lean"]  # there is nothing to leave out
        found["jax rows first"] = peers.in_theta(post, peers.rows_first(post))
    if case.key.architecture.startswith("Sep"):
        found["jax by hand, dots"] = peers.in_theta(post, by_hand(post, small_width=1))
    if variants:
        found["jax by hand, jax.grad"] = peers.in_theta(post, by_hand(post, reverse="jax.grad"))
        if post.sampled.quadratic is not None:
            found["jax by hand, over rows"] = peers.in_theta(post, by_hand(post))
    return found


def jax_side(case: Case, target: peers.Target, chains: int | None = None) -> Side:
    """Return a side that calls the compiled scan until the steps are done, for `chains` chains by vmap."""
    chunk = call_steps(case, chains or 1)
    start, advance = peers.jax_chain(target, case.post.network.dtype, case.delta, chunk, chains)

    def run(steps: int, seed: int) -> float:
        carry = start(case.start, seed)
        for _ in range(steps // chunk):
            carry = advance(carry)
        return float(np.mean(carry[3])) / steps

    return Side(run, chunk, chains or 1)


def call_steps(case: Case, chains: int) -> int:
    """Return the number of steps of one call: a power of two times 125, or fewer for expensive steps."""
    seconds = []
    for _ in range(5):  # the shortest, which other processes have disturbed least
        started = time.perf_counter()
        case.post.log_likelihood_and_grad(case.start, threads=1)
        seconds.append(time.perf_counter() - started)
    a_step = max(min(seconds), 5e-6) * chains
    wanted = min(MAX_CALL_STEPS, max(1, int(CALL_SECONDS / a_step)))
    return 2 ** int(np.log2(wanted)) if wanted < 125 else 125 * 2 ** int(np.log2(wanted / 125))


def torch_side(case: Case) -> Side:
    """Return a side that runs the eager PyTorch loop."""
    from torch_peer import torch_run

    run = torch_run(case.post, case.delta)
    return Side(lambda steps, seed: run(case.start, steps, seed), chunk=5)
