"""Times of steps on one GPU: thousands of small chains, one small chain, and one chain on 50,000 images, with floors
and with coarse gradients; cold starts of thousands of chains; and the numbers of chains and rows from which on the GPU
is faster than the CPU.

`python bench/gpu.py --json FILE` checks noise, gradients and first steps against the CPU and then times them. It
begins no case after 400 seconds; `--device emulated:4 --quick` runs the same script on host threads in seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from cases import Case
from gpu_checks import check_chains, check_coarse, check_gradients, check_normals, check_peer
from gpu_cold_starts import CHEES, KERNELS, MAX_RHAT, blackjax_reason, chees_runs, native, peer_density, repeated
from gpu_floor import Rates, large_floor, measure_rates, small_floor
from gpu_problems import (
    LARGE,
    LARGE_OVER_JAX,
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
from gpu_record import entries, fastest
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
SECTIONS = ["small", "large", "coarse", "warmup", "thresholds"]
TABLE = "| network | architecture | faster than the CPU from | measured at |\n|---|---|---|---|"
LARGE_HEADERS = ["float32", "us/step", "memory", "fma", "tensor", "of the floor", "error of g", "best JAX", "JAX/ours"]
LARGE_WIDTHS = [10, 26, 9, 9, 9, 12, 11, 18, 20]

COARSE_HEADERS = ["Full, rows", "exact, us/step", "coarse, us/step", "exact/coarse", "memory", "change of g"]
COARSE_WIDTHS = [10, 14, 26, 12, 9, 11]
COLD_HEADERS = [
    "float32",
    "chains",
    "side",
    "warm-up",
    "stable",
    "gradients",
    "seconds",
    "min ESS",
    "max R-hat",
    "effective/s",
    "compile s",
]
COLD_WIDTHS = [10, 7, 10, 8, 6, 9, 8, 8, 9, 11, 9]


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
        self.blackjax = blackjax_reason(self.jax)
        self.results: dict[str, Any] = {"small": {}, "large": {}, "coarse": {}, "cold_starts": [], "thresholds": []}
        self.results |= {"checks": {}, "failed": [], "requirements": [], "left_out": []}

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

    def held(self, what: str, value: float | None, *, least: float | None = None, most: float | None = None) -> str:
        """Return a value as text, with what is required of it, which is recorded: on a GPU, of the full sizes."""
        required = least if most is None else most
        if required is None or self.options.quick or self.options.device != "cuda":
            return verdict(value, None)
        if value is not None:
            is_met = value >= required if most is None else value <= required
            bound = {"at least" if most is None else "at most": required}
            self.results["requirements"].append({"what": what, **bound, "found": value, "met": is_met})
        return verdict(value, required) if most is None else with_maximum(value, most)

    def beside_jax(self, case: Case, chains: int, what: str) -> dict[str, Any]:
        """Return the times of JAX's sides; none where it takes no part or the time budget is spent."""
        if self.jax or not self.has_time(f"JAX {what}"):
            return {}
        sides = on_jax(case, chains, self.options.quick)
        times = {peer: wall_times(side, self.repeats, self.seconds) for peer, side in sides.items()}
        return {peer: {"microseconds": one.microseconds, "call": one.call} for peer, one in times.items()}


def with_maximum(value: float | None, most: float) -> str:
    """Return a value as text, with the maximum that is allowed and whether it is met.

    Examples
    --------
    >>> with_maximum(12.34, 15.0), with_maximum(12.34, 10.0), with_maximum(None, 1.0)
    ('12.3 (<= 15 ok)', '12.3 (<= 10 NOT MET)', '-')
    """
    return "-" if value is None else f"{number(value)} (<= {most:g} {'ok' if value <= most else 'NOT MET'})"


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
                "layout": case.post.sampled.compiled.on_device(device).layout(False, chains),
            }
            if chains in sizes.jax_chains:
                found["jax"] = run.beside_jax(case, chains, f"{name} x {chains}")
            run.results["small"].setdefault(name, {})[chains] = found
            table.row(small_row(run, name, chains, found))


def small_row(run: Run, name: str, chains: int, found: dict[str, Any]) -> list[str]:
    """Return the cells of a row under `SMALL_HEADERS`."""
    step, rate = found["median"], found["chain_steps_per_second"]
    best, theirs = fastest(found.get("jax", {}))
    what, least = f"{name}, {chains:,} chain{'s' * (chains > 1)}", MIN_RATE[name] if chains >= RATE_CHAINS else None
    over = None if theirs is None else theirs / step
    return [
        name,
        str(chains),
        number(step),
        number(1e3 * found["call"]),
        run.held(f"chain-steps a second of {what}", rate, least=least),
        number(found["floor"]),
        number(found["floor"] / step),
        "-" if theirs is None else f"{number(theirs)} {best}",
        run.held(f"time of JAX over that of {what}", over, least=MIN_OVER_JAX.get((name, chains))),
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
            "jax": run.beside_jax(case, 1, f"large {name}") if name in LARGE_OVER_JAX else {},
        }
        best, theirs = fastest(run.results["large"][name]["jax"])
        over = None if theirs is None else theirs / times.median
        step = run.held(f"us a step of the large {name}", times.median, most=MAX_LARGE[name])
        table.row(
            [
                name,
                step,
                *(number(floors[kind]) for kind in ("memory", "fma", "tensor")),
                f"{number(floors[bound] / times.median)} {bound}",
                f"{run.results['checks'][what]['gradient']:.1e}",
                "-" if theirs is None else f"{number(theirs)} {best}",
                run.held(f"time of JAX over that of the large {name}", over, least=LARGE_OVER_JAX.get(name)),
            ]
        )


def coarse_gradients(run: Run) -> None:
    """Time one chain of the large `Full` with coarse gradients, and beside it with exact ones."""
    device, sizes = run.options.device, run.sizes
    table = Table(COARSE_HEADERS, COARSE_WIDTHS)
    for rows in sizes.coarse_rows:
        if not run.has_time(f"coarse x {rows} rows"):
            continue
        case = large_case("Full", sizes, rows=rows)
        reference = partial(lambda rows: large_case("Full", sizes, "float64", rows).post, rows)
        exact_check, check = f"gradients of {case.key}", f"coarse gradients of {case.key}"
        # As in large_chain(), the reference is deleted after the check.
        if not run.passes(exact_check, partial(lambda c, of: check_gradients(c, of(), device), case, reference)):
            continue
        if not run.passes(check, partial(check_coarse, case, device)):
            continue
        exact, coarse = (
            wall_times(on_device(case, 1, device, gradient), run.repeats, run.seconds)
            for gradient in ("exact", "coarse")
        )
        floors, change = large_floor(case, run.rates), run.results["checks"][check]
        found = {
            name: {"microseconds": one.microseconds, "median": one.median, "acceptance_rate": one.acceptance_rate}
            for name, one in (("exact", exact), ("coarse", coarse))
        }
        run.results["coarse"][rows] = {**found, "floors": floors, "change": change}
        most = MAX_LARGE["Full"] if rows == sizes.large_rows else None
        table.row(
            [
                f"{rows:,}",
                number(exact.median),
                run.held("us a step of the large Full, coarse", coarse.median, most=most),
                number(exact.median / coarse.median),
                number(floors["memory"]),
                f"{change:.1e}",
            ]
        )


def cold_starts(run: Run) -> None:
    """Run many chains of the small problem from dispersed starts to one draw of each, and after all of them the peer.

    Small runs come first, so that the time budget ends with large ones left out.
    """
    sizes, table = run.sizes, Table(COLD_HEADERS, COLD_WIDTHS)
    problems = [(chains, name) for chains in sizes.cold_chains for name in reversed(SMALL)]

    def record(name: str, chains: int, side: str, found: dict[str, Any]) -> None:
        run.results["cold_starts"].append({"architecture": name, "chains": chains, "side": side, **found})
        table.row(cold_row(run.results["cold_starts"][-1]))

    for kernel_name, kernel in KERNELS.items():
        warmup = pn.Warmup.many_chains(kernel, sizes.superchains, at_most=sizes.cold_steps)
        for chains, name in problems:
            if not run.has_time(f"cold start of {name} x {chains}, {kernel_name}"):
                continue
            case, reference = small_case(name, sizes), small_case(name, sizes, "float64").post
            check = partial(check_gradients, case, reference, run.options.device)
            if run.passes(f"gradients of {case.key}", check):
                once = partial(native, case, kernel, chains, warmup, run.options.device)
                record(name, chains, kernel_name, repeated(once, run.repeats))
    for chains, name in [] if run.blackjax else problems:
        case = small_case(name, sizes)
        for transitions in sizes.transitions:
            if not run.has_time(f"cold start of {name} x {chains}, {CHEES}"):
                break
            if not run.passes(f"JAX's density of {case.key}", lambda: check_peer(case, peer_density(case))):  # noqa: B023
                break
            once, compile_seconds = chees_runs(case, chains, sizes.superchains, transitions)
            found = repeated(once, run.repeats) | {"compile_seconds": compile_seconds}
            record(name, chains, CHEES, found)
            if found["rhat"] <= MAX_RHAT:
                break


def cold_row(one: dict[str, Any]) -> list[str]:
    """Return the cells of a row under `COLD_HEADERS`."""
    stable = {None: "-", True: "yes", False: "no"}[one["stable"]]
    compiled = one.get("compile_seconds")
    return [
        one["architecture"],
        str(one["chains"]),
        one["side"],
        str(round(one["steps"])),
        stable,
        str(round(one["gradients"])),
        *(number(one[name]) for name in ("seconds", "ess")),
        f"{one['rhat']:.3f}",
        number(one["effective"]),
        "-" if compiled is None else number(compiled),
    ]


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
    parser.add_argument("--only", choices=SECTIONS, help="one of the tables")
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
    print("BlackJAX: " + (run.blackjax or f"{CHEES} in the table of cold starts"))
    run.passes("normals", partial(check_normals, options.device))
    what = "-".join(map(str, run.sizes.small))
    if options.only in (None, "small"):
        print(f"\nmany chains, {what}, n={run.sizes.rows}, pCNL; us/step: of all chains together, wall time")
        small_chains(run)
    if options.only in (None, "large"):
        what = "-".join(map(str, run.sizes.large))
        print(f"\none chain, {what}, n={run.sizes.large_rows:,} of bytes, pCNL, classes; floors in us")
        large_chain(run)
    if options.only in (None, "coarse"):
        what = "-".join(map(str, run.sizes.large))
        print(f"\none chain, {what}, bytes, pCNL, classes: coarse gradients beside exact ones; floor in us")
        coarse_gradients(run)
    if options.only in (None, "warmup"):
        what = "-".join(map(str, run.sizes.small))
        print(
            f"\nfrom a cold start to one draw of each chain, {what}, n={run.sizes.rows}, {run.sizes.superchains} "
            "superchains; ESS and R-hat of f, seconds of the whole call"
        )
        cold_starts(run)
        if run.blackjax:
            print(f"{CHEES}: left out, {run.blackjax}")
    if options.only in (None, "thresholds"):
        print("\nfrom where the device is faster than the CPU with all its threads, wall time; pCNL, float32\n")
        thresholds(run)
    for left_out in run.results["left_out"]:
        print(f"left out, the budget of {options.budget:g} s was spent: {left_out}")
    seconds = time.perf_counter() - run.started
    print(f"\n{len(run.results['checks'])} checks passed, {len(run.results['failed'])} failed; {seconds:.0f} s")
    if options.json:
        about = {"status": status, "build": pn.build_info(), "rates": vars(rates), "jax": run.jax or "timed"}
        about |= {"blackjax": run.blackjax or "timed"}
        about |= {"quick": options.quick, "device": options.device, "seconds": seconds}
        found = {"about": about} | run.results
        found |= {"title": status["name"], "entries": entries(run.results, status["name"])}
        options.json.write_text(json.dumps(found, indent=1, default=str) + "\n")
    sys.exit(1 if run.results["failed"] else 0)


if __name__ == "__main__":
    main()
