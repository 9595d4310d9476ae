"""Two chains of nutpie on the native density beside one: how well its threads run side by side.

`python bench/backend/nutpie_chains.py` alternates runs of one and of two chains whose first chain is the same, and
prints the wall time of the longest chain per gradient, two chains over one. An evaluation of the density takes 200 to
600 microseconds. The machine must be idle and have two cores, so this benchmark is pinned to none.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import nutpie
from harness import script_parser, write_json

import patrac_native as pn

ROWS, DRAWS, TUNE, REPEATS = 12_000, 12, 12, 12
# The most that two chains may take of the time of one.
REQUIRED = 1.2


def posterior() -> pn.Posterior:
    """Return Mix(5) of a 1-50-50-1 network of random weights."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (ROWS, 1))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=ROWS)
    weights = [rng.normal(size=(50, 1)), rng.normal(size=(50, 50)) / 7, rng.normal(size=(1, 50)) / 7]
    net = pn.Network(weights, [np.zeros(50), np.zeros(50), np.zeros(1)])
    return pn.Posterior(net, pn.Mix(5), pn.TraceClassPrior(1.5, 2.0, 0.5), pn.Gaussian(0.1), X, y)


def seconds_a_gradient(model: Any, chains: int, seed: int) -> float:
    """Return the wall time of a run over the number of gradients of its longest chain."""
    started = time.perf_counter()
    trace = nutpie.sample(model, draws=DRAWS, tune=TUNE, chains=chains, cores=chains, seed=seed, progress_bar=False)
    seconds = time.perf_counter() - started
    steps = trace.sample_stats["n_steps"].values.sum(axis=1) + trace.warmup_sample_stats["n_steps"].values.sum(axis=1)
    return seconds / float(steps.max())


def main() -> None:
    """Print a line for each pair of runs, and the median of the ratios."""
    parser = script_parser(__doc__, repeats=REPEATS)
    options = parser.parse_args()
    post = posterior()
    model, density, point = post.to_nutpie(), post.density("posterior", "whitened"), np.zeros(post.dim)
    seconds_a_gradient(model, 2, 0)
    started = time.perf_counter()
    for _ in range(200):
        density.value_and_grad(point)
    evaluation = (time.perf_counter() - started) / 200
    print(f"{evaluation * 1e6:.0f} us an evaluation")
    ratios = []
    for seed in range(options.repeats):
        one, two = (seconds_a_gradient(model, chains, seed) for chains in (1, 2))
        ratios.append(two / one)
        print(f"  {one * 1e6:.0f} us a gradient, two chains {two * 1e6:.0f} us, {ratios[-1]:.2f} times")
    print(f"median {np.median(ratios):.2f} times (required: below {REQUIRED})")
    write_json(options.json, {"ratios": ratios}, evaluation_seconds=evaluation)


if __name__ == "__main__":
    main()
