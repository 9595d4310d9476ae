"""Timings of the CPU and of a device, which `patrac bench` prints; `device="auto"` is a rule and uses no timing."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from patrac_native.engine.device import device_status
from patrac_native.kernels import PCNL
from patrac_native.posterior.posterior import Posterior
from patrac_native.sampling.sampler import sample

# The numbers of chains that are timed: a few, and as many as occupy a whole GPU.
CHAINS = (4, 256)
# Ratios of times below this are within the disturbance of a timing by other processes.
WORTH_SAYING = 1.1


@dataclass(frozen=True)
class DeviceTiming:
    """The time that all chains of a run together take for one step.

    Attributes
    ----------
    label : str
        Label of the posterior.
    chains : int
        Number of chains.
    cpu, device : float
        Microseconds on all processors of this process, and on the device.
    """

    label: str
    chains: int
    cpu: float
    device: float


def obstacle(device: str) -> str:
    """Return why a device cannot be timed, or an empty string."""
    return str(device_status(device)["reason"])


def time_devices(
    posteriors: Sequence[tuple[str, Posterior]], device: str, seconds: float, repeats: int
) -> list[DeviceTiming]:
    """Time pCNL on the CPU and on a device in turn.

    Parameters
    ----------
    posteriors : sequence of (str, Posterior)
        Posteriors with their labels.
    device : str
        Name of the device, such as "cuda".
    seconds : float
        Duration of one timing.
    repeats : int
        Number of timings of each side, whose medians are returned.

    Returns
    -------
    list of DeviceTiming
        One for each posterior and number of chains.
    """
    found = []
    for label, post in posteriors:
        for chains in CHAINS:
            sides = [_timer(post, side, chains) for side in ("cpu", device)]
            lengths = [_steps_of(timed, seconds) for timed in sides]
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(repeats):
                for timed, steps, of_side in zip(sides, lengths, times, strict=True):
                    of_side.append(timed(steps) / steps * 1e6)
            found.append(DeviceTiming(label, chains, *map(statistics.median, times)))
    return found


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
        f"{timing.label} with {timing.chains} chains ({timing.cpu / timing.device:.2f} times as fast)"
        for timing in timings
        if timing.cpu >= WORTH_SAYING * timing.device
    ]
    if not faster:
        return f'the CPU is as fast as {device} in these runs; device="auto" stays there while the inputs do'
    return f'consider device="{device}" for {", ".join(faster)}; device="auto" goes by the inputs'


def _timer(post: Posterior, device: str, chains: int) -> Callable[[int], float]:
    """Return a function that runs the chains for a number of steps and returns its wall-clock time in seconds."""

    def timed(steps: int) -> float:
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel = PCNL(1e-4)
            sample(post, kernel, chains=chains, draws=1, thin=steps, warmup=None, seed=0, device=device, progress=False)
        return time.perf_counter() - started

    return timed


def _steps_of(timed: Callable[[int], float], seconds: float) -> int:
    """Return a number of steps that takes about `seconds`."""
    timed(1)  # the first run also builds the model
    steps = 1
    while (taken := timed(steps)) < seconds / 8:
        steps *= 4
    return max(1, round(steps * seconds / taken))
