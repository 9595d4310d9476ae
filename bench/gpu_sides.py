"""The sides of `gpu.py`: chains on the device, and JAX's compiled scan under vmap on the same card."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from cases import Case
from harness import Side

import patrac_native as pn

# Steps of one call of a compiled JAX run, and normals that it draws at once: more than `peers` has for a CPU.
JAX_STEPS, JAX_NOISE = {True: 20, False: 500}, 2**26


def on_device(case: Case, chains: int, device: str, gradient: Literal["exact", "coarse"] = "exact") -> Side:
    """`pn.sample` keeping the last states alone; times are of a step of all chains."""
    init = np.tile(case.start, (chains, 1))
    fixed: dict[str, Any] = {"chains": chains, "draws": 1, "warmup": None, "device": device, "progress": False}

    def run(steps: int, seed: int) -> float:
        draws = pn.sample(case.post, pn.PCNL(case.delta, gradient=gradient), thin=steps, init=init, seed=seed, **fixed)
        return float(draws.stats["acceptance_rate"].mean())

    return Side(run)


def jax_reason(peers: str) -> str:
    """Why JAX takes no part, or nothing. It must not take all of the card's memory, nor be asked where not wanted."""
    if peers == "none":
        return "not asked for"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
    except ImportError:
        return "JAX is not installed"
    backend = jax.default_backend()
    return "" if backend == "gpu" or peers == "any" else f"JAX sees no GPU; its backend is {backend}"


def on_jax(case: Case, chains: int, quick: bool) -> dict[str, Side]:
    """The plain scan and the one that exploits the structure by hand, `chains` of them under vmap."""
    import peers
    from peers_by_hand import expert

    peers.NOISE_VALUES = JAX_NOISE
    targets = {"by hand": expert(case.post)}
    if case.key.architecture == "Full":
        targets["plain"] = peers.in_theta(case.post, peers.masked(case.post))
    chunk = JAX_STEPS[quick]

    def side(target: peers.Target) -> Side:
        start, advance = peers.jax_chain(
            target, case.post.network.dtype, case.delta, chunk, chains if chains > 1 else None
        )

        def run(steps: int, seed: int) -> float:
            carry = start(case.start, seed)
            for _ in range(steps // chunk):
                carry = advance(carry)
            return float(np.mean(carry[3])) / steps

        return Side(run, chunk)

    return {name: side(target) for name, target in targets.items()}


@dataclass(frozen=True)
class WallTimes:
    """Wall time of a step, and of a call beside its steps."""

    microseconds: list[float]  # of a step of all chains, in each repeat
    call: float  # seconds of the shortest call; for thousands of chains as long as hundreds of steps
    acceptance_rate: float  # of the last repeat

    @property
    def median(self) -> float:
        """The median of the repeats."""
        return statistics.median(self.microseconds)


def wall_times(side: Side, repeats: int, seconds: float) -> WallTimes:
    """Time a step as the difference between a long run, of about so many seconds more, and a short one."""

    def elapsed(chunks: int, seed: int = 0) -> tuple[float, float]:
        started = time.perf_counter()
        rate = side.run(chunks * side.chunk, seed)
        return time.perf_counter() - started, rate

    elapsed(1)  # JAX compiles, and either side takes its memory
    chunks, beyond = 1, 0.0
    while beyond < seconds / 4:
        chunks *= 2 if beyond > seconds / 16 else 8
        short = elapsed(1)[0]
        beyond = min(elapsed(1 + chunks)[0] for _ in range(2)) - short  # the faster: a pause must not end the search
    chunks = max(1, round(chunks * seconds / beyond))
    pairs = [(elapsed(1, repeat)[0], *elapsed(1 + chunks, repeat)) for repeat in range(repeats)]
    if any(long <= short for short, long, _ in pairs):
        raise RuntimeError(f"runs of {1 + chunks} chunks took no longer than of one; the machine is busy: {pairs}")
    return WallTimes(
        [(long - short) / (chunks * side.chunk) * 1e6 for short, long, _ in pairs],
        statistics.median(short for short, _, _ in pairs),
        pairs[-1][2],
    )
