"""The measurements of `patrac bench`: times of a step, the floor of this core, instruction-set levels and devices."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from patrac_native.engine import _core
from patrac_native.studies.floor import MULTIPLY_ADD, NORMAL, floor_microseconds, measure_rates

if TYPE_CHECKING:
    from patrac_native.architectures import Architecture
    from patrac_native.posterior.posterior import Posterior

# Layer sizes and number of rows: the paper's sine problem, and one whose data do not fit into the first-level cache.
PROBLEMS = [((1, 50, 50, 1), 100), ((8, 50, 50, 1), 2923)]
# The operations whose rates are printed.
RATES = [MULTIPLY_ADD, "tanh", NORMAL]
# Ratios of times below this are within the disturbance of a timing by other processes.
WORTH_SAYING = 1.1


def run_bench(*, dtype: str = "float32", seconds: float = 0.2, repeats: int = 5, device: str = "cuda") -> None:
    """Print the rates of each level, the times of steps, and advice on level and device.

    Parameters
    ----------
    dtype : {"float32", "float64"}
        Default "float32".
    seconds : float
        Duration of one timing, > 0; default 0.2.
    repeats : int
        Number of timings of each row, >= 1, whose median is printed; default 5.
    device : str
        The device to compare with the CPU; default "cuda".

    Raises
    ------
    ValueError
        If `seconds` or `repeats` is outside its range.
    """
    from patrac_native.studies.tables import format_table, number, wrapped

    if not seconds > 0:
        raise ValueError(f"--seconds must be positive; got {seconds:g}.")
    if repeats < 1:
        raise ValueError(f"--repeats must be at least 1; got {repeats}.")
    default, levels = _core.default_simd_level(), _core.simd_levels()
    print(f"one core, one thread, {dtype}, level {default}; networks of random weights, one chain of pCNL\n")
    print(format_table(["ns each", *RATES], rate_rows(levels, dtype)), flush=True)
    print()
    rows = step_rows(dtype, seconds, repeats)
    print(format_table(["", "network", "n", "us/step", "floor", "of the floor"], rows))
    print()
    print(
        wrapped(
            "floor: multiply-adds, elementary functions and normals of a step over the rates above, none of them "
            "overlapping"
        )
    )
    times = level_times(levels, dtype, seconds, repeats)
    headers = ["Full, us/step", *(f"{'-'.join(map(str, sizes))}, n={n}" for sizes, n in PROBLEMS)]
    print()
    print(format_table(headers, [[level, *map(number, found)] for level, found in times.items()]))
    print()
    print(wrapped(advice(times, default)))
    print()
    print_device_times(device, dtype, seconds, repeats)


def print_device_times(device: str, dtype: str, seconds: float, repeats: int) -> None:
    """Print the time of a step of few and of many chains on the CPU and on a device, and which of them to use."""
    from patrac_native.architectures import Full, Mix
    from patrac_native.studies.device_bench import device_advice, obstacle, time_devices
    from patrac_native.studies.tables import format_table, number, wrapped

    why_not = obstacle(device)
    if why_not:
        print(wrapped(f"{device} is not timed: {why_not}"))
        return
    posteriors = [
        (f"{architecture.label()}, {'-'.join(map(str, sizes))}, n={n}", problem(architecture, sizes, n, dtype))
        for sizes, n in PROBLEMS
        for architecture in (Full(), Mix(5))
    ]
    timings = time_devices(posteriors, device, seconds, repeats)
    rows = [[timing.label, str(timing.chains), number(timing.cpu), number(timing.device)] for timing in timings]
    print(format_table(["us/step of all chains", "chains", "CPU", device], rows))
    print()
    print(wrapped(device_advice(timings, device)))


def rate_rows(levels: Sequence[str], dtype: str) -> list[list[str]]:
    """Return a row for each level with the nanoseconds of each of `RATES`."""
    found = [measure_rates(RATES, dtype, level) for level in levels]
    return [[rates.level, *(f"{rates.nanoseconds(name):.3g}" for name in RATES)] for rates in found]


def step_rows(dtype: str, seconds: float, repeats: int) -> list[list[str]]:
    """Return a row for each problem and architecture, with the time of a step and its floor."""
    from patrac_native.architectures import Full, Mix, Out, Sep
    from patrac_native.studies.tables import number

    architectures: list[Architecture] = [Full(), Mix(2), Mix(5), Sep(2), Sep(5), Out(12), Out(45)]
    rows = []
    for sizes, n in PROBLEMS:
        for architecture in architectures:
            post = problem(architecture, sizes, n, dtype)
            (a_step,) = step_microseconds([post], seconds, repeats)
            floor = floor_microseconds(post)
            network = "-".join(map(str, sizes))
            rows.append(
                [architecture.label(), network, str(n), number(a_step), number(floor), f"{100 * floor / a_step:.0f}%"]
            )
    return rows


def problem(
    architecture: Architecture, sizes: Sequence[int], n: int, dtype: str, level: str | None = None
) -> Posterior:
    """Return a posterior of a network with random weights, on data that the network generates.

    Parameters
    ----------
    architecture : Architecture
    sizes : sequence of int
        Layer widths of the network.
    n : int
        Number of rows.
    dtype : {"float32", "float64"}
    level : str, optional
        Instruction-set level; by default the one in use.
    """
    from patrac_native.likelihoods import Gaussian
    from patrac_native.network.network import Network
    from patrac_native.posterior.posterior import Posterior
    from patrac_native.priors import TraceClassPrior

    rng = np.random.default_rng(0)
    shapes = zip(sizes[1:], sizes[:-1], strict=True)
    weights = [rng.standard_normal((rows, columns)) / np.sqrt(columns) for rows, columns in shapes]
    net = Network(weights, [0.1 * rng.standard_normal(rows) for rows in sizes[1:]])
    X = rng.standard_normal((n, sizes[0]))
    y = net.predict(X) + rng.standard_normal((n, 1))
    prior = TraceClassPrior(1.5, 1.0, 1.0)
    return Posterior(net, architecture, prior, Gaussian(1.0), X, y[:, 0], dtype=dtype, level=level)


def step_timer(post: Posterior) -> Callable[[int], float]:
    """Return a function that runs one chain for a number of steps and returns its processor time in seconds."""
    from patrac_native.kernels import PCNL
    from patrac_native.sampling.sampler import sample

    def timed(steps: int) -> float:
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sample(post, PCNL(1e-4), chains=1, draws=1, thin=steps, warmup=None, seed=0, threads=1, progress=False)
        return time.process_time() - started

    return timed


def step_microseconds(posteriors: Sequence[Posterior], seconds: float, repeats: int) -> list[float]:
    """Return the microseconds a step of one chain of each posterior: medians of runs of about `seconds`, in turn."""
    timers = [step_timer(post) for post in posteriors]
    lengths = []
    for timed in timers:
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
    from patrac_native.architectures import Full

    by_problem = []
    for sizes, n in PROBLEMS:
        posteriors = [problem(Full(), sizes, n, dtype, level) for level in levels]
        by_problem.append(step_microseconds(posteriors, seconds, repeats))
    return {level: [times[i] for times in by_problem] for i, level in enumerate(levels)}


def advice(times: Mapping[str, Sequence[float]], level: str) -> str:
    """Return advice on which level to select, or that the one in use is the fastest.

    Parameters
    ----------
    times : mapping of str to sequence of float
        Microseconds a step at each level, for the same problems in the same order.
    level : str
        The level in use, a key of `times`.

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
