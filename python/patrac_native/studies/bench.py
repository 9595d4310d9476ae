"""The measurements of `patrac bench`: times of a step, the floor of this core, instruction-set levels and devices."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import patrac_native as pn
from patrac_native.engine import default_simd_level, device_status, simd_levels
from patrac_native.studies.experiment import Architecture
from patrac_native.studies.floor import MULTIPLY_ADD, NORMAL, floor_microseconds, nanoseconds
from patrac_native.studies.tables import format_table, number, wrapped

# Layer sizes and number of rows: the paper's sine problem, and one whose data do not fit into the first-level cache.
PROBLEMS = [((1, 50, 50, 1), 100), ((8, 50, 50, 1), 2923)]
ARCHITECTURES: list[Architecture] = [pn.Full(), pn.Mix(2), pn.Mix(5), pn.Sep(2), pn.Sep(5), pn.Out(12), pn.Out(45)]
# The operations whose rates are printed.
RATES = [MULTIPLY_ADD, "tanh", NORMAL]
# The numbers of chains that are timed on a device: a few, and as many as occupy a whole GPU.
DEVICE_CHAINS = (4, 256)
# Ratios of times below this are within the disturbance of a timing by other processes.
WORTH_SAYING = 1.1


def run_bench(*, dtype: str = "float32", seconds: float = 0.2, repeats: int = 5, device: str = "cuda") -> None:
    """Print the rates of each level, the times of steps, and advice on level and device."""
    if not seconds > 0:
        raise ValueError(f"--seconds must be positive; got {seconds:g}.")
    if repeats < 1:
        raise ValueError(f"--repeats must be at least 1; got {repeats}.")
    default, levels = default_simd_level(), simd_levels()
    print(f"one core, one thread, {dtype}, level {default}; networks of random weights, one chain of pCNL\n")
    rates = [[level, *(f"{ns:.3g}" for ns in nanoseconds(RATES, dtype, level).values())] for level in levels]
    print(format_table(["ns each", *RATES], rates), flush=True)
    print()
    rows = step_rows(dtype, seconds, repeats)
    print(format_table(["", "network", "n", "us/step", "floor", "of the floor"], rows))
    note = "floor: multiply-adds, elementary functions and normals of a step over the rates above, none overlapping"
    print(f"\n{note}\n")
    times = level_times(levels, dtype, seconds, repeats)
    headers = ["Full, us/step", *(f"{name_of(sizes)}, n={n}" for sizes, n in PROBLEMS)]
    print(format_table(headers, [[level, *map(number, found)] for level, found in times.items()]))
    print(f"\n{wrapped(advice(times, default))}\n")
    print_device_times(device, dtype, seconds, repeats)


def name_of(sizes: Sequence[int]) -> str:
    """Return "1-50-50-1"."""
    return "-".join(map(str, sizes))


def step_rows(dtype: str, seconds: float, repeats: int) -> list[list[str]]:
    """Return a row for each problem and architecture, with the time of a step and its floor."""
    rows = []
    for sizes, n in PROBLEMS:
        for architecture in ARCHITECTURES:
            post = problem(architecture, sizes, n, dtype)
            (a_step,) = medians([chain_timer(post)], seconds, repeats)
            floor, share = floor_microseconds(post), floor_microseconds(post) / a_step
            label = architecture.label()
            rows.append([label, name_of(sizes), str(n), number(a_step), number(floor), f"{100 * share:.0f}%"])
    return rows


def problem(
    architecture: Architecture, sizes: Sequence[int], n: int, dtype: str, level: str | None = None
) -> pn.Posterior:
    """Return a posterior of a network with random weights, on n rows that the network generates."""
    rng = np.random.default_rng(0)
    shapes = zip(sizes[1:], sizes[:-1], strict=True)
    weights = [rng.standard_normal((rows, columns)) / np.sqrt(columns) for rows, columns in shapes]
    net = pn.Network(weights, [0.1 * rng.standard_normal(rows) for rows in sizes[1:]])
    X = rng.standard_normal((n, sizes[0]))
    y = net.predict(X) + rng.standard_normal((n, 1))
    prior = pn.TraceClassPrior(1.5, 1.0, 1.0)
    return pn.Posterior(net, architecture, prior, pn.Gaussian(1.0), X, y[:, 0], dtype=dtype, level=level)


def chain_timer(post: pn.Posterior, device: str | None = None, chains: int = 1) -> Callable[[int], float]:
    """Return a function that runs pCNL for a number of steps and returns its seconds.

    They are processor time on one thread or, if a device is named, wall time on it.
    """
    clock = time.process_time if device is None else time.perf_counter
    where: dict[str, Any] = {"threads": 1} if device is None else {"device": device}

    def timed(steps: int) -> float:
        started = clock()
        with pn.Note.collect():
            pn.sample(
                post, pn.PCNL(1e-4), chains=chains, draws=1, thin=steps, warmup=None, seed=0, progress=False, **where
            )
        return clock() - started

    return timed


def medians(timers: Sequence[Callable[[int], float]], seconds: float, repeats: int) -> list[float]:
    """Return the microseconds a step of each timer: medians of runs of about `seconds`, in turn."""
    lengths = []
    for timed in timers:
        timed(1)  # the first run also builds the model
        steps = 1
        while (taken := timed(steps)) < seconds / 8:
            steps *= 4
        lengths.append(max(1, round(steps * seconds / taken)))
    found: list[list[float]] = [[] for _ in timers]
    for _ in range(repeats):
        for timed, steps, times in zip(timers, lengths, found, strict=True):
            times.append(timed(steps) / steps * 1e6)
    return [statistics.median(times) for times in found]


def level_times(levels: Sequence[str], dtype: str, seconds: float, repeats: int) -> dict[str, list[float]]:
    """Return the microseconds a step of Full for each of `PROBLEMS`, by level."""
    found: dict[str, list[float]] = {level: [] for level in levels}
    for sizes, n in PROBLEMS:
        timers = [chain_timer(problem(pn.Full(), sizes, n, dtype, level)) for level in levels]
        for level, a_step in zip(levels, medians(timers, seconds, repeats), strict=True):
            found[level].append(a_step)
    return found


def advice(times: Mapping[str, Sequence[float]], level: str) -> str:
    """Return advice on which level to select, from microseconds a step of the same problems at each.

    Examples
    --------
    >>> advice({"v2": [4.0, 9.0], "v3": [2.0, 5.0]}, "v3")
    'level v3, which is in use, is the fastest here, or within 10% of it'
    >>> advice({"v3": [2.0, 4.0], "v4": [4.0, 4.0]}, "v4")
    'level v3 was 1.41 times as fast as v4, which is in use: consider PATRAC_SIMD=v3 (draws depend on the level)'
    """
    gains = {other: float(np.exp(np.mean(np.log(np.divide(times[level], found))))) for other, found in times.items()}
    best = max(gains, key=gains.__getitem__)
    if gains[best] < WORTH_SAYING:
        return f"level {level}, which is in use, is the fastest here, or within {100 * (WORTH_SAYING - 1):.0f}% of it"
    return (
        f"level {best} was {gains[best]:.2f} times as fast as {level}, which is in use: consider PATRAC_SIMD={best} "
        "(draws depend on the level)"
    )


class DeviceTiming(NamedTuple):
    """Microseconds that all chains of a run together take for one step, on all processors and on a device."""

    label: str
    chains: int
    cpu: float
    device: float


def print_device_times(device: str, dtype: str, seconds: float, repeats: int) -> None:
    """Print the time of a step of few and of many chains on the CPU and on a device, and which of them to use."""
    if why_not := device_status(device)["reason"]:
        print(wrapped(f"{device} is not timed: {why_not}"))
        return
    timings = []
    for sizes, n in PROBLEMS:
        for architecture in (pn.Full(), pn.Mix(5)):
            post, label = problem(architecture, sizes, n, dtype), f"{architecture.label()}, {name_of(sizes)}, n={n}"
            for chains in DEVICE_CHAINS:
                sides = [chain_timer(post, side, chains) for side in ("cpu", device)]
                timings.append(DeviceTiming(label, chains, *medians(sides, seconds, repeats)))
    rows = [[one.label, str(one.chains), number(one.cpu), number(one.device)] for one in timings]
    print(format_table(["us/step of all chains", "chains", "CPU", device], rows))
    print(f"\n{wrapped(device_advice(timings, device))}")


def device_advice(timings: Sequence[DeviceTiming], device: str) -> str:
    """Return advice on the runs for which the device is faster.

    Examples
    --------
    >>> device_advice([DeviceTiming("Full", 4, 10.0, 80.0), DeviceTiming("Full", 256, 400.0, 100.0)], "cuda")
    'consider device="cuda" for Full with 256 chains (4.00 times as fast); device="auto" goes by the inputs'
    >>> device_advice([DeviceTiming("Full", 4, 10.0, 80.0)], "cuda")
    'the CPU is as fast as cuda in these runs; device="auto" stays there while the inputs do'
    """
    faster = [
        f"{one.label} with {one.chains} chains ({one.cpu / one.device:.2f} times as fast)"
        for one in timings
        if one.cpu >= WORTH_SAYING * one.device
    ]
    if not faster:
        return f'the CPU is as fast as {device} in these runs; device="auto" stays there while the inputs do'
    return f'consider device="{device}" for {", ".join(faster)}; device="auto" goes by the inputs'
