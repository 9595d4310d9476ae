"""Microseconds a pCNL step on the sine problem (n = 100, 1-50-50-1, float32, one core) beside JAX in the same run.

`python bench/bench_step.py` prints the table; `pytest bench/bench_step.py` times each side with pytest-benchmark.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import one_core  # pins the process, before anything below starts threads

# isort: split
import jax
import numpy as np
import numpy.typing as npt
import peers
import pytest
from floor import floor_microseconds, measure_rates

import patrac_native as pn

ARCHITECTURES: dict[str, pn.Architecture] = {
    "Full": pn.Full(),
    "Mix(2)": pn.Mix(2),
    "Mix(5)": pn.Mix(5),
    "Sep(2)": pn.Sep(2),
    "Sep(5)": pn.Sep(5),
    "Out(12)": pn.Out(12),
    "Out(45)": pn.Out(45),
}
# How many times faster than JAX a step must be.
REQUIRED = {"Full": 1.0, "Mix(5)": 3.0, "Sep(5)": 2.0}
JAX_CHUNK = 2000  # steps of one call, so that what a call costs vanishes
CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}

# (steps, seed) -> acceptance rate
Run = Callable[[int, int], float]


@dataclass
class Case:
    """One architecture: a posterior, a place to start, a step size, and the sides to compare."""

    post: pn.Posterior
    start: npt.NDArray[Any]
    delta: float
    runs: dict[str, Run] = field(default_factory=dict)
    gradients: dict[str, peers.ValueAndGrad] = field(default_factory=dict)


@cache
def sine_network() -> tuple[pn.Network, npt.NDArray[Any], npt.NDArray[Any]]:
    """Trained 1-50-50-1 with its data."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (100, 1))
    y = np.sin(X[:, 0]) + rng.standard_normal(100)
    net = pn.train([1, 50, 50, 1], X, y, likelihood=pn.Gaussian(1.0), l2=1.0, max_epochs=1000, progress=False)
    return net, X, y


@cache
def prepare(label: str, with_torch: bool = False) -> Case:
    """Build a case: the default warm-up finds where to start and the step size."""
    net, X, y = sine_network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prior = pn.TraceClassPrior.fit(net)
    post = pn.Posterior(net, ARCHITECTURES[label], prior, pn.Gaussian(1.0), X, y)
    warm = pn.sample(post, pn.PCNL(), chains=1, draws=1, seed=1, progress=False)
    case = Case(post, warm.theta[0, -1], float(warm.stats["step_size"][0, -1]))
    case.runs["native"] = native_run(case)
    case.gradients["jax masked"] = peers.masked(post)
    if label != "Full":
        case.gradients["jax lean"] = peers.lean(post)
    for side, value_and_grad in case.gradients.items():
        case.runs[side] = jax_run(case, value_and_grad)
    if with_torch:
        run = peers.torch_run(post, case.delta)
        case.runs["torch"] = lambda steps, seed: run(case.start, steps, seed)
    return case


def native_run(case: Case) -> Run:
    """`pn.sample` keeping the last state alone."""
    kernel = pn.PCNL(case.delta)
    fixed: dict[str, Any] = {"chains": 1, "draws": 1, "warmup": None, "threads": 1, "progress": False}

    def run(steps: int, seed: int) -> float:
        draws = pn.sample(case.post, kernel, thin=steps, init=case.start[None], seed=seed, **fixed)
        return float(draws.stats["acceptance_rate"][0, 0])

    return run


def jax_run(case: Case, value_and_grad: peers.ValueAndGrad) -> Run:
    """The compiled scan, called until the steps are done."""
    start, advance = peers.jax_chain(value_and_grad, case.post.prior_variance, case.delta, JAX_CHUNK)

    def run(steps: int, seed: int) -> float:
        carry = start(case.start, seed)
        calls = -(-steps // JAX_CHUNK)
        for _ in range(calls):
            carry = advance(carry)
        return float(carry[3]) / (calls * JAX_CHUNK)

    return run


def verify(case: Case) -> None:
    """Raise unless all sides compute the same thing: log-likelihood and gradient, then acceptance at one step size.

    Float32 rounds by 2^-24 about 3 x 50 times on the way through the network and back, all one way in the worst case:
    1e-5, of the log-likelihood and of the gradient's largest entry (measured: below 1e-7 and 1e-6).
    Acceptance rates of eight runs each: |t| > 6 on 14 degrees of freedom has probability 3e-5.
    """
    post = case.post
    rng = np.random.default_rng(2)
    spread = 0.1 * np.sqrt(post.prior_variance) * rng.standard_normal((3, post.dim))
    for theta in (case.start + spread).astype(np.float32):
        value: Any
        value, gradient = post.log_likelihood_and_grad(theta)
        for side, value_and_grad in case.gradients.items():
            other_value, other_gradient = value_and_grad(theta)
            if not abs(value - float(other_value)) <= 1e-5 * abs(value):
                raise AssertionError(f"log-likelihoods differ: native {value}, {side} {other_value}")
            difference = float(np.abs(gradient - np.asarray(other_gradient)).max() / np.abs(gradient).max())
            if not difference <= 1e-5:
                raise AssertionError(f"gradients of native and {side} differ by {difference:.1e} of the largest entry")
    rates = {side: np.array([run(JAX_CHUNK, seed) for seed in range(8)]) for side, run in case.runs.items()}
    for side, rate in rates.items():
        difference = abs(rate.mean() - rates["native"].mean())
        error = np.sqrt((rate.var(ddof=1) + rates["native"].var(ddof=1)) / 8)
        if difference > 6 * error:
            raise AssertionError(
                f"acceptance rates differ: {side} {rate.mean():.3f}, native {rates['native'].mean():.3f}"
            )


def steps_for(run: Run, seconds: float) -> int:
    """How many steps take about this long, in whole JAX calls; also the warm-up of the timing."""
    run(JAX_CHUNK, 0)
    started = time.process_time()
    run(2 * JAX_CHUNK, 0)
    a_step = (time.process_time() - started) / (2 * JAX_CHUNK)
    return max(1, round(seconds / a_step / JAX_CHUNK)) * JAX_CHUNK


def time_case(case: Case, repeats: int, seconds: float) -> dict[str, dict[str, list[float]]]:
    """Microseconds a step of each side on each clock, sides alternating: {clock: {side: [repeat]}}."""
    steps = {side: steps_for(run, seconds) for side, run in case.runs.items()}
    found: dict[str, dict[str, list[float]]] = {clock: {side: [] for side in case.runs} for clock in CLOCKS}
    for repeat in range(repeats):
        for side, run in case.runs.items():
            before = {name: clock() for name, clock in CLOCKS.items()}
            run(steps[side], repeat)
            for name, clock in CLOCKS.items():
                found[name][side].append((clock() - before[name]) / steps[side] * 1e6)
    return found


@pytest.mark.parametrize("side", ["native", "jax masked", "jax lean"])
@pytest.mark.parametrize("label", ARCHITECTURES)
def test_step(benchmark: Any, label: str, side: str) -> None:
    """Time 4,000 steps; verified first."""
    case = prepare(label)
    if side not in case.runs:
        pytest.skip("on Full there is nothing to leave out")
    verify(case)
    steps = 2 * JAX_CHUNK
    benchmark.pedantic(case.runs[side], args=(steps, 0), rounds=5, warmup_rounds=1)
    benchmark.extra_info["microseconds_a_step"] = benchmark.stats["median"] / steps * 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=list(ARCHITECTURES), default=list(ARCHITECTURES))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="processor time of one timing")
    parser.add_argument("--clock", choices=list(CLOCKS), default="cpu", help="cpu: unmoved by other processes")
    parser.add_argument("--torch", action="store_true", help="also time the eager PyTorch loop")
    parser.add_argument("--json", type=Path, help="write all timings here")
    options = parser.parse_args()

    rates = measure_rates()
    level = pn.build_info()["SIMD level in use"]
    print(f"core {one_core.CORE}, {platform.machine()}, SIMD level {level}, clock: {options.clock}")
    print(f"jax {jax.__version__}, {peers.GENERATOR}")
    print(f"rates, M/s: {rates.multiply_adds:.0f} multiply-adds, {rates.tanh:.0f} tanh, {rates.normals:.0f} normals")
    sides = ["native", "jax masked", "jax lean"] + ["torch"] * options.torch
    header = "".join(f"{side:>12}" for side in sides)
    print(f"\nmicroseconds a step, median of {options.repeats}; ratios: median of those of each repeat")
    print(f"{'':9}{'floor':>8}{header}  masked/native  lean/native  required")
    results: dict[str, Any] = {}
    for label in options.cases:
        case = prepare(label, options.torch)
        verify(case)
        found = time_case(case, options.repeats, options.seconds)
        times = found[options.clock]
        ratios = {
            side: statistics.median(t / native for t, native in zip(times[side], times["native"], strict=True))
            for side in times
        }
        floor = floor_microseconds(case.post, rates)
        columns = "".join(f"{statistics.median(times[s]):12.2f}" if s in times else f"{'-':>12}" for s in sides)
        masked, lean = (f"{ratios[s]:.2f}" if s in ratios else "-" for s in ("jax masked", "jax lean"))
        print(f"{label:9}{floor:8.2f}{columns}{masked:>15}{lean:>13}{verdict(label, ratios):>10}", flush=True)
        results[label] = {
            "microseconds": found,
            "ratios": ratios,
            "required": REQUIRED.get(label),
            "floor": floor,
            "delta": case.delta,
            "dim": case.post.dim,
        }
    if options.json:
        about = {"core": one_core.CORE, "jax": jax.__version__, "clock": options.clock, "build": pn.build_info()}
        options.json.write_text(
            json.dumps({"about": about, "rates": vars(rates), "cases": results}, indent=1, default=str)
        )


def verdict(label: str, ratios: dict[str, float]) -> str:
    """Whether the smaller of the JAX ratios is what is required."""
    if label not in REQUIRED:
        return ""
    least = min(ratio for side, ratio in ratios.items() if side.startswith("jax"))
    return f">= {REQUIRED[label]:g} {'ok' if least >= REQUIRED[label] else 'NOT MET'}"


if __name__ == "__main__":
    main()
