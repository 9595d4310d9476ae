"""Sides of a comparison, and their timing: whole runs, sides alternating, medians of paired ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}
Times = dict[str, dict[str, list[float]]]  # {clock: {side: [repeat]}}, microseconds a step of one chain


@dataclass(frozen=True)
class Side:
    """Something that runs chains: `run(steps, seed)` returns the acceptance rate; steps come in whole chunks."""

    run: Callable[[int, int], float]
    chunk: int = 1
    chains: int = 1


def steps_for(side: Side, seconds: float) -> int:
    """How many steps take about this much processor time, in whole chunks; also the warm-up of the timing."""
    now = time.process_time
    side.run(side.chunk, 0)
    chunks = 1
    while True:
        started = now()
        side.run(chunks * side.chunk, 0)
        taken = now() - started
        if taken > seconds / 4:
            return max(1, round(chunks * seconds / taken)) * side.chunk
        chunks *= 2 if taken > seconds / 16 else 8


def time_sides(sides: Mapping[str, Side], repeats: int, seconds: float) -> Times:
    """Time each side `repeats` times for about this long, all sides in turn."""
    steps = {name: steps_for(side, seconds) for name, side in sides.items()}
    found: Times = {clock: {name: [] for name in sides} for clock in CLOCKS}
    for repeat in range(repeats):
        for name, side in sides.items():
            before = {clock: now() for clock, now in CLOCKS.items()}
            side.run(steps[name], repeat)
            for clock, now in CLOCKS.items():
                found[clock][name].append((now() - before[clock]) / (steps[name] * side.chains) * 1e6)
    return found


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Median of the repeats' ratios."""
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))


def time_beside_native(sides: Mapping[str, Side], repeats: int, seconds: float, clock: str) -> dict[str, Any]:
    """Time the sides, one of them "native": all timings, and on one clock medians and what the others take of it."""
    found = time_sides(sides, repeats, seconds)
    times = found[clock]
    return {
        "microseconds": found,
        "median": {name: statistics.median(values) for name, values in times.items()},
        "ratios": {name: paired_ratio(times[name], times["native"]) for name in times if name != "native"},
    }
