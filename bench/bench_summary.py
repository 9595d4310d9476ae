"""Time and memory of `Draws.summary`: many draws of one posterior, and many rows.

Prints one line for each case: the seconds of a summary, the peak of its memory above the draws, and the draws' own.
Each case runs in a process of its own. Linux.

    python bench/bench_summary.py [--cases draws rows]
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time

import numpy as np

# Chains, draws of each, and rows at which f is summarised.
CASES = {"draws": (4, 100_000, 1), "draws at 10 rows": (4, 100_000, 10), "rows": (4, 4, 5_000)}


def resident(field: str) -> int:
    """Resident memory of this process in bytes, now ("VmRSS") or at most since `reset_peak` ("VmHWM")."""
    with open("/proc/self/status", encoding="ascii") as stream:
        (line,) = [line for line in stream if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def reset_peak() -> None:
    """Forget the largest resident memory of the past (Linux)."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
        stream.write("5")


def measure(chains: int, draws: int, rows: int) -> dict[str, float]:
    """Time the summary of a posterior with 46 parameters, whose draws are made here."""
    import patrac_native as pn

    rng = np.random.default_rng(0)
    net = pn.Network(
        [rng.normal(size=(50, 1)), rng.normal(size=(50, 50)) / 7, rng.normal(size=(1, 50)) / 7],
        [np.zeros(50), np.zeros(50), np.zeros(1)],
    )
    X = np.linspace(-2, 2, 50)[:, None]
    post = pn.Posterior(net, pn.Mix(5), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, np.sin(X))
    theta = rng.normal(size=(chains, draws, post.dim)).astype(np.float32)
    theta *= np.sqrt(post.prior_variance).astype(np.float32)
    made = pn.Draws.from_array(post, theta, sampler="independent")
    grid = np.linspace(-2, 2, rows)[:, None]
    made[:, :4].summary(grid[:1])  # imports and compiles
    gc.collect()
    reset_peak()
    before, start, processor = resident("VmRSS"), time.perf_counter(), time.process_time()
    made.summary(grid)
    return {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - processor,
        "above": resident("VmHWM") - before,
        "draws": theta.nbytes,
    }


def main() -> None:
    """Run the cases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--one", metavar="JSON", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*json.loads(arguments.one))))
        return
    for name in arguments.cases:
        command = [sys.executable, __file__, "--one", json.dumps(CASES[name])]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        chains, draws, rows = CASES[name]
        print(
            f"{name:<18} {chains} x {draws:,} draws, {rows:,} rows: {found['seconds']:6.2f} s "
            f"({found['processor']:.2f} s of processor time), peak "
            f"{found['above'] / 1e6:5.0f} MB above draws of {found['draws'] / 1e6:.0f} MB"
        )


if __name__ == "__main__":
    main()
