"""Times of steps on one GPU: thousands of small chains, one small chain, and one chain on 50,000 images, with floors;
and the numbers of chains and rows from which on the GPU is faster than the CPU.

`python bench/gpu.py --json FILE` checks noise, gradients and first steps against the CPU and then times them. It
begins no case after 400 seconds; `--device emulated:4 --quick` runs the same script on host threads in seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from cases import Case
from gpu_checks import check_chains, check_gradients, check_normals
from gpu_floor import Rates, large_floor, measure_rates, small_floor
from gpu_problems import (
    LARGE,
    MAX_ALONE,
    MAX_LARGE,
    MIN_OVER_JAX,
    MIN_RATE,
    QUICK,
    RATE_CHAINS,
    SIZES,
    SMALL,
    large_case,
    small_case,
)
from gpu_sides import jax_reason, on_device, on_jax, wall_times
from harness import Table, script_parser, verdict

import patrac_native as pn
from patrac_native.engine import device_status
from patrac_native.studies.tables import number

SMALL_HEADERS = [
    "float32",
    "chains",
    "us/step",
    "ms/call",
    "chain-steps/s",
    "floor",
    "of the floor",
    "best JAX",
    "JAX/ours",
]
SMALL_WIDTHS = [10, 7, 20, 8, 28, 8, 12, 18, 20]
TABLE = "| network | architecture | faster than the CPU from | measured at |\n|---|---|---|---|"
LARGE_HEADERS = ["float32", "us/step", "memory", "fma", "tensor", "of the floor", "error of g"]
LARGE_WIDTHS = [10, 26, 9, 9, 9, 12, 11]


class Run:
    """Options, rates and results of one run; a case that fails a check is not timed, and the exit code is then 1."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.status = device_status(options.device)
        self.sizes = QUICK if options.quick else SIZES
        self.repeats, self.seconds = (1, 0.05) if options.quick else (options.repeats, options.seconds)
        self.started = time.perf_counter()
        self.rates: Rates = measure_rates(options.device, options.quick)
        self.jax = jax_reason(options.peers)
        self.results: dict[str, Any] = {"small": {}, "large": {}, "thresholds": [], "checks": {}, "failed": []}
        self.results["left_out"] = []

    def has_time(self, what: str) -> bool:
        """Return whether the time budget is not spent; otherwise record that the case is left out."""
        if time.perf_counter() - self.started < self.options.budget:
            return True
        self.results["left_out"].append(what)
        return False

    def passes(self, what: str, check: Callable[[], Any]) -> bool:
        """Run a check unless it has been run; record its result or print its failure, and return whether it passed."""
        if what in self.results["checks"] or what in self.results["failed"]:
            return what in self.results["checks"]
        try:
            self.results["checks"][what] = check()
        except (AssertionError, RuntimeError) as error:
            print(f"FAILED: {what}: {error}", flush=True)
            self.results["failed"].append(what)
            return False
        return True

    def required(self, value: float | None) -> float | None:
        """Return a requirement, or None unless the full sizes are run on a GPU."""
        return None if self.options.quick or self.options.device != "cuda" else value


def with_maximum(value: float, required: float | None) -> str:
    """Return a value as text, with the maximum that is allowed and whether it is met.

    Examples
    --------
    >>> with_maximum(12.34, 15.0), with_maximum(12.34, 10.0), with_maximum(1.0, None)
    ('12.3 (<= 15 ok)', '12.3 (<= 10 NOT MET)', '1.00')
    """
    shown = number(value)
    return shown if required is None else f"{shown} (<= {required:g} {'ok' if value <= required else 'NOT MET'})"


def small_chains(run: Run) -> None:
    """Time chains of the sine problem for several numbers of chains."""
    device, sizes = run.options.device, run.sizes
    table = Table(SMALL_HEADERS, SMALL_WIDTHS)
    for name in SMALL:
        if not run.has_time(f"small {name}"):
            continue
        case, exact = small_case(name, sizes), small_case(name, sizes, "float64")
        right = [
            run.passes(f"gradients of {case.key}", partial(check_gradients, case, exact.post, device)),
            run.passes(f"gradients of {exact.key}", partial(check_gradients, exact, exact.post, device)),
            run.passes(f"chains of {exact.key}", partial(check_chains, exact, device)),
        ]
        if not all(right):
            continue
        for chains in sizes.chains:
            if not run.has_time(f"small {name} x {chains}"):
                continue
            times = wall_times(on_device(case, chains, device), run.repeats, run.seconds)
            floor = small_floor(case, chains, run.rates, run.status["multiprocessors"])
            found = {
                "microseconds": times.microseconds,
                "median": times.median,
                "call": times.call,
                "chain_steps_per_second": 1e6 * chains / times.median,
                "floor": floor,
                "acceptance_rate": times.acceptance_rate,
                "layout": case.post.sampled.compiled.on_device(device).layout(False),
            }
            if not run.jax and chains in sizes.jax_chains and run.has_time(f"JAX {name} x {chains}"):
                sides = on_jax(case, chains, run.options.quick)
                found["jax"] = {}
                for peer, side in sides.items():
                    timed = wall_times(side, run.repeats, run.seconds)
                    found["jax"][peer] = {"microseconds": timed.microseconds, "call": timed.call}
            run.results["small"].setdefault(name, {})[chains] = found
            table.row(small_row(run, name, chains, found))


def small_row(run: Run, name: str, chains: int, found: dict[str, Any]) -> list[str]:
    """Return the cells of a row under `SMALL_HEADERS`."""
    step, rate = found["median"], found["chain_steps_per_second"]
    medians = {peer: statistics.median(timed["microseconds"]) for peer, timed in found.get("jax", {}).items()}
    best = min(medians, key=medians.__getitem__, default=None)
    return [
        name,
        str(chains),
        with_maximum(step, run.required(MAX_ALONE.get(name) if chains == 1 else None)),
        number(1e3 * found["call"]),
        verdict(rate, run.required(MIN_RATE[name] if chains >= RATE_CHAINS else None)),
        number(found["floor"]),
        number(found["floor"] / step),
        f"{number(medians[best])} {best}" if best else "-",
        verdict(medians[best] / step if best else None, run.required(MIN_OVER_JAX.get((name, chains)))),
    ]


def large_chain(run: Run) -> None:
    """Time one chain on many rows."""
    device, sizes = run.options.device, run.sizes
    table = Table(LARGE_HEADERS, LARGE_WIDTHS)
    for name in LARGE:
        if not run.has_time(f"large {name}"):
            continue
        case = large_case(name, sizes)
        what = f"gradients of {case.key}"
        # The reference takes gigabytes, so it is deleted after the check.
        if not run.passes(what, lambda: check_gradients(case, large_case(name, sizes, "float64").post, device)):  # noqa: B023
            continue
        times, floors = wall_times(on_device(case, 1, device), run.repeats, run.seconds), large_floor(case, run.rates)
        # First layers as wide as these are computed on the tensor units.
        bound = "memory" if floors["memory"] > floors["tensor"] else "tensor"
        run.results["large"][name] = {
            "microseconds": times.microseconds,
            "median": times.median,
            "call": times.call,
            "floors": floors,
            "bound": bound,
            "acceptance_rate": times.acceptance_rate,
            "layout": case.post.sampled.compiled.on_device(device).layout(False),
        }
        table.row(
            [
                name,
                with_maximum(times.median, run.required(MAX_LARGE[name])),
                *(number(floors[kind]) for kind in ("memory", "fma", "tensor")),
                f"{number(floors[bound] / times.median)} {bound}",
                f"{run.results['checks'][what]['gradient']:.1e}",
            ]
        )


def first_faster(counts: Sequence[int], device: Sequence[float], cpu: Sequence[float]) -> int | None:
    """Return the count from which on the device was faster at every one; None where it was not at the largest.

    Examples
    --------
    >>> first_faster([1, 32, 1024], [9.0, 9.0, 9.0], [3.0, 10.0, 99.0])
    32
    >>> first_faster([1, 32, 1024], [2.0, 9.0, 9.0], [3.0, 8.0, 99.0])
    1024
    >>> first_faster([1, 32], [2.0, 9.0], [3.0, 3.0]) is None
    True
    """
    slower = [count for count, ours, theirs in zip(counts, device, cpu, strict=True) if ours >= theirs]
    return next((count for count in counts if not slower or count > slower[-1]), None)


def threshold(run: Run, name: str, counted: str, counts: Sequence[int], case_of: Callable[[int, str], Case]) -> None:
    """Compare the device with the CPU on all its threads at each count; nothing if a check failed or time ran out."""
    times: dict[str, list[float]] = {run.options.device: [], "cpu": []}
    for count in counts:
        if not run.has_time(f"threshold {name} x {count} {counted}"):
            return
        case = case_of(count, "float32")
        # As in large_chain(), the reference is deleted after the check.
        check = partial(lambda c, n: check_gradients(c, case_of(n, "float64").post, run.options.device), case, count)
        if not run.passes(f"gradients of {case.key}", check):
            return
        for where, found in times.items():
            side = on_device(case, count if counted == "chains" else 1, where)
            found.append(wall_times(side, run.repeats, run.seconds).median)
    device, cpu = times.values()
    first = first_faster(counts, device, cpu)
    network = case.key.network + ("" if counted == "rows" else f", n={case.key.rows}")
    start = f"no count of {counted}" if first is None else f"{first:,} {counted}"
    print(f"| {network} | {name} | {start} | {', '.join(f'{count:,}' for count in counts)} |", flush=True)
    result = {"network": network, "architecture": name, "counted": counted, "counts": counts, "first": first}
    run.results["thresholds"].append(result | {"device": device, "cpu": cpu})


def thresholds(run: Run) -> None:
    """Find from how many chains of the small problem, and rows of the large one, the device is faster."""
    sizes = run.sizes
    print(TABLE)
    for name in SMALL:
        threshold(run, name, "chains", sizes.chains, partial(lambda n, _, dtype: small_case(n, sizes, dtype), name))
    for name in LARGE:
        of_rows = partial(lambda n, rows, dtype: large_case(n, sizes, dtype, rows), name)
        threshold(run, name, "rows", sizes.rows_of_one, of_rows)


def main() -> None:
    """Check, time, print and write; the exit code is 1 if a check failed."""
    parser = script_parser(__doc__, repeats=3)
    parser.add_argument("--device", default="cuda", help='"cuda" or, to try the script, "emulated:4"')
    parser.add_argument("--quick", action="store_true", help="small sizes and single short timings")
    parser.add_argument("--only", choices=["small", "large", "thresholds"], help="one of the tables")
    parser.add_argument(
        "--peers", choices=["auto", "any", "none"], default="auto", help="JAX: on a GPU, anywhere, never"
    )
    parser.add_argument("--seconds", type=float, default=0.4, help="wall time of one timing")
    parser.add_argument("--budget", type=float, default=400, help="seconds after which no further case is begun")
    options = parser.parse_args()
    status = device_status(options.device)
    if not status["usable"]:
        sys.exit(f'device="{options.device}": {status["reason"]}')
    run = Run(options)
    rates = run.rates
    print(
        f"{status['name']}, {status['multiprocessors']} multiprocessors; CUDA: {pn.build_info()['CUDA']}\n"
        f"torch measures on {rates.where}: copies {rates.bytes / 1e9:,.0f} GB/s, "
        f"multiply-adds {rates.fma / 1e12:.3g}e12/s in float32, {rates.tensor / 1e12:.3g}e12/s with TF32 allowed"
    )
    print("JAX: " + (run.jax or "pCNL under vmap and scan, in the same run"))
    run.passes("normals", partial(check_normals, options.device))
    what = "-".join(map(str, run.sizes.small))
    if options.only in (None, "small"):
        print(f"\nmany chains, {what}, n={run.sizes.rows}, pCNL; us/step: of all chains together, wall time")
        small_chains(run)
    if options.only in (None, "large"):
        what = "-".join(map(str, run.sizes.large))
        print(f"\none chain, {what}, n={run.sizes.large_rows:,} of bytes, pCNL, classes; floors in us")
        large_chain(run)
    if options.only in (None, "thresholds"):
        print("\nfrom where the device is faster than the CPU with all its threads, wall time; pCNL, float32\n")
        thresholds(run)
    for left_out in run.results["left_out"]:
        print(f"left out, the budget of {options.budget:g} s was spent: {left_out}")
    seconds = time.perf_counter() - run.started
    print(f"\n{len(run.results['checks'])} checks passed, {len(run.results['failed'])} failed; {seconds:.0f} s")
    if options.json:
        about = {"status": status, "build": pn.build_info(), "rates": vars(rates), "jax": run.jax or "timed"}
        about |= {"quick": options.quick, "device": options.device, "seconds": seconds}
        options.json.write_text(json.dumps({"about": about} | run.results, indent=1, default=str) + "\n")
    sys.exit(1 if run.results["failed"] else 0)


if __name__ == "__main__":
    main()
