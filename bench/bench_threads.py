"""The gain of a second core: two chains on two cores against one chain, and the rows of one chain on two threads.

`python bench/bench_threads.py` prints both. The process is not pinned, the clock is wall time, and the machine must be
idle.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

import numpy as np
from cases import Key, prepare
from harness import Side, paired_ratio, script_parser, time_sides, write_json

import patrac_native as pn
from patrac_native.studies.tables import format_table, number

MAX_TIME = 1.1  # of two chains on two cores, relative to one chain
CHAIN_CASES = [Key("Full"), Key("Mix(5)"), Key("Sep(5)"), Key("Out(45)")]
ROW_CASE = Key("Full", "8-50-50-1", 50_000)


def sampled(key: Key, chains: int, threads: int, **run: Any) -> pn.Draws:
    """Run chains of a case from its starting point."""
    case = prepare(key)
    init = np.tile(case.start, (chains, 1))
    fixed: dict[str, Any] = {"chains": chains, "threads": threads, "init": init, "warmup": None, "progress": False}
    return pn.sample(case.post, pn.PCNL(case.delta), **fixed, **run)


def chains_side(key: Key, chains: int, threads: int) -> Side:
    """Return a side of several chains; it counts as one chain, because its times are those of a step of all chains."""
    return Side(
        lambda steps, seed: float(
            sampled(key, chains, threads, draws=1, thin=steps, seed=seed).stats["acceptance_rate"].mean()
        )
    )


def same_draws(key: Key, chains: int) -> None:
    """Raise unless the draws are the same, bit for bit, for one thread and two."""
    found = [sampled(key, chains, threads, draws=2, thin=3, seed=5).theta for threads in (1, 2)]
    if not np.array_equal(found[0], found[1]):
        raise AssertionError(f"{key}: draws depend on the number of threads")


def main() -> None:
    """Print both tables."""
    parser = script_parser(__doc__, repeats=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="time of one timing")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2:
        raise SystemExit("this needs two cores")
    print(f"{cores} cores, wall time, median of {options.repeats}; ratios: median of the repeats'\n")
    results: dict[str, Any] = {}

    rows = []
    for key in CHAIN_CASES:
        same_draws(key, 2)
        sides = {"one": chains_side(key, 1, 1), "two": chains_side(key, 2, 2)}
        times = time_sides(sides, options.repeats, options.seconds)["wall"]
        ratio = paired_ratio(times["two"], times["one"])
        met = "ok" if ratio <= MAX_TIME else "NOT MET"
        one, two = (number(statistics.median(times[side])) for side in sides)
        rows.append([str(key), one, two, f"{ratio:.2f} (<= {MAX_TIME} {met})"])
        results[str(key)] = {"microseconds": times, "ratio": ratio, "required": MAX_TIME}
    print(format_table(["us/step", "one chain", "two chains, two threads", "ratio"], rows))

    same_draws(ROW_CASE, 1)
    sides = {f"threads={threads}": chains_side(ROW_CASE, 1, threads) for threads in (1, 2)}
    times = time_sides(sides, options.repeats, options.seconds)["wall"]
    gain = paired_ratio(times["threads=1"], times["threads=2"])
    medians = [number(statistics.median(values)) for values in times.values()]
    print()
    print(format_table(["us/step, one chain", *sides, "gain"], [[str(ROW_CASE), *medians, f"{gain:.2f}"]]))
    results["rows over threads"] = {"case": str(ROW_CASE), "microseconds": times, "gain": gain}
    write_json(options.json, results)


if __name__ == "__main__":
    main()
