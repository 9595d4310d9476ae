"""Effective draws from the spread of chain means beside Geyer's estimate, for persistent and reversible mGrad.

`python bench/ess/chain_means.py --out FILE` runs many chains of equal length. The variance of their means gives the
effective draws of a chain without any estimate of autocorrelations; its standard error is that of the jackknife over
the chains. Geyer's monotone sequence is proven for reversible chains only.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
import numpy as np
from ess_measures import ess_of_means, joint_ess
from harness import print_about, write_json
from posterior_problems import PROBLEMS, data_of
from posterior_sides import FloatArray

import patrac_native as pn
from patrac_native.diagnostics import ess_geyer

GROUP, KEPT = 4, 1000  # chains of a joint estimate; kept states of a chain
PERSISTENCES = (0.9, 0.0)


def jackknife(f: FloatArray) -> float:
    """Return the standard error of the effective draws of a chain from the spread of means."""
    chains = len(f)
    left_out = [ess_of_means(np.delete(f, chain, axis=0)) / (chains - 1) for chain in range(chains)]
    return float(np.std(left_out) * np.sqrt(chains - 1))


def measure(problem: str, persistence: float, options: argparse.Namespace) -> dict[str, Any]:
    """Return effective draws per 1,000 gradients by each estimate."""
    data = data_of(PROBLEMS[problem].data, 0)
    post = data.posterior(PROBLEMS[problem].architecture)
    kernel = replace(post.plan().kernel, persistence=persistence)
    thin = max(1, options.steps // KEPT)
    run: dict[str, Any] = {"chains": options.chains, "draws": options.steps // thin, "thin": thin}
    draws = pn.sample(post, kernel, warmup=options.warmup, seed=1, threads=1, progress=False, **run)
    flat = post.network.predict(draws.theta.reshape(-1, post.dim), data.grid)
    f = next(iter(data.watch(flat).values())).reshape(*draws.theta.shape[:2], -1)
    gradients = float(draws.stats["gradients"].sum()) / 1000
    groups = [joint_ess(f[first : first + GROUP]) for first in range(0, options.chains, GROUP)]
    return {
        "spread": ess_of_means(f) / gradients,
        "error": jackknife(f) * options.chains / gradients,
        "geyer": ess_geyer(f) / gradients,
        "joint_geyer": sum(groups) / gradients,
        "draws_of_a_chain": ess_of_means(f) / options.chains,
    }


def main() -> None:
    """Print a line for each problem and persistence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--problems", nargs="+", choices=list(PROBLEMS), default=["sine-full", "digits-mix5"])
    add("--chains", type=int, default=64, help=f"a multiple of {GROUP}")
    add("--steps", type=int, default=4000, help="of a chain after the warm-up")
    add("--warmup", type=int, default=2000)
    add("--out", type=Path, metavar="FILE", help="write everything here as JSON")
    options = parser.parse_args()
    print_about()
    results: dict[str, Any] = {}
    for problem in options.problems:
        for persistence in PERSISTENCES:
            found = results[f"{problem}, persistence {persistence}"] = measure(problem, persistence, options)
            print(
                f"{problem}, persistence {persistence}: per 1,000 gradients {found['spread']:.3g} +- "
                f"{found['error']:.2g} (spread of means, {found['draws_of_a_chain']:.0f} draws a chain), "
                f"{found['geyer']:.3g} (Geyer, each chain), {found['joint_geyer']:.3g} (Geyer, {GROUP} chains jointly)",
                flush=True,
            )
    write_json(options.out, results, chains=options.chains, steps=options.steps, warmup=options.warmup)


if __name__ == "__main__":
    main()
