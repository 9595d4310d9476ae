"""Bayesian logistic regression of the German credit data's size: pn.Target against BlackJAX's NUTS, on one core.

Run with `python bench/backend/logistic_regression.py [--repeats 3] [--json FILE]`; needs numba, jax and blackjax.
Both sample one posterior in one process pinned to one core: 4 chains from draws of the prior, one after the other, each
with its own warm-up. Compilation is left out of the times of both. The answer is verified first: posterior means must
agree within Monte Carlo errors. ESS is the smallest rank-normalised bulk ESS over the 25 coefficients.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from harness import print_about, script_parser, write_json

import patrac_native as pn

CHAINS, DRAWS, THIN, WARMUP = 4, 1000, 5, 1000
PAGE = Path(__file__).parents[2] / "docs" / "target.md"


def page_target() -> tuple[pn.Target, Any, Any]:
    """Return target, X and y of the script in docs/target.md."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (script,) = [block for block in blocks if "import numba" in block]
    names: dict[str, Any] = {}
    exec(script.split("draws = pn.sample")[0], names)
    return names["target"], names["X"], names["y"]


def nuts(X: Any, y: Any, dtype: Any) -> Any:
    """Return a function of a seed: draws (chain, draw, K), and gradients evaluated by draws and by the warm-up."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    inputs, targets = jnp.asarray(X, dtype), jnp.asarray(y, dtype)

    def log_density(theta: Any) -> Any:
        eta = inputs @ theta
        return (targets * eta - jnp.logaddexp(0.0, eta)).sum() - 0.5 * (theta**2).sum()

    def one(key: Any) -> Any:
        at, warm, run = jax.random.split(key, 3)
        adapt = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, found), info = adapt.run(warm, jax.random.normal(at, (X.shape[1],), dtype), num_steps=WARMUP)
        step = blackjax.nuts(log_density, **found).step

        def next_draw(state: Any, key: Any) -> Any:
            state, info = step(key, state)
            return state, (state.position, info.num_integration_steps)

        _, (theta, steps) = jax.lax.scan(next_draw, state, jax.random.split(run, DRAWS))
        return theta, steps.sum(), info.info.num_integration_steps.sum()

    run = jax.jit(lambda key: jax.lax.map(one, jax.random.split(key, CHAINS)))

    def of_seed(seed: int) -> Any:
        jax.config.update("jax_enable_x64", dtype == "float64")
        return jax.block_until_ready(run(jax.random.key(seed)))

    of_seed(0)  # compiles
    return of_seed


def smallest_ess(theta: Any) -> tuple[float, float]:
    """Return the smallest bulk ESS and the largest R-hat of theta (chain, draw, K)."""
    found = pn.diagnostics.convergence(np.asarray(theta, np.float64)[..., None])
    return float(found.min_ess_bulk), float(found.max_rhat)


def measured(seconds: float, theta: Any, gradients: int) -> dict[str, float]:
    """Return the record of a run."""
    ess, rhat = smallest_ess(theta)
    return {
        "seconds": seconds,
        "min_bulk_ess": ess,
        "max_rhat": rhat,
        "gradients": gradients,
        "ess_per_second": ess / seconds,
        "ess_per_1000_gradients": 1000 * ess / gradients,
        "microseconds_per_gradient": 1e6 * seconds / gradients,
    }


def main() -> None:
    """Verify, time and print."""
    parser = script_parser(__doc__, repeats=3)
    arguments = parser.parse_args()
    print_about()
    target, X, y = page_target()

    runs: dict[str, list[dict[str, float]]] = {}
    states: dict[str, list[Any]] = {}
    peers = {f"BlackJAX NUTS, {dtype}": nuts(X, y, dtype) for dtype in ("float32", "float64")}
    kernels = {
        "pn.Target, kernel auto": "auto",
        "pn.Target, PCNL": pn.PCNL(),
    }
    for repeat in range(arguments.repeats):  # in turn, so that a change of the machine's load meets all
        for name, kernel in kernels.items():
            started = time.perf_counter()
            draws = pn.sample(target, kernel, chains=CHAINS, draws=DRAWS, thin=THIN, seed=repeat, threads=1)
            seconds = time.perf_counter() - started
            gradients = CHAINS * (draws.settings["warmup_steps"] + DRAWS * THIN)
            runs.setdefault(name, []).append(measured(seconds, draws.theta, gradients))
            states.setdefault(name, []).append(draws.theta)
        for name, run in peers.items():
            started = time.perf_counter()
            theta, steps, warmup_steps = run(repeat)
            seconds = time.perf_counter() - started
            runs.setdefault(name, []).append(measured(seconds, theta, int(steps.sum() + warmup_steps.sum())))
            states.setdefault(name, []).append(np.asarray(theta))

    reference = np.concatenate(states["BlackJAX NUTS, float64"]).astype(np.float64)
    for name, of_name in states.items():
        theta = np.concatenate(of_name).astype(np.float64)
        error = np.hypot(*(one.std(axis=(0, 1)) / np.sqrt(smallest_ess(one)[0]) for one in (theta, reference)))
        largest = float((np.abs(theta.mean(axis=(0, 1)) - reference.mean(axis=(0, 1))) / error).max())
        if largest > 5:
            raise SystemExit(f"{name}: posterior means differ by {largest:.1f} standard errors from NUTS in float64")

    medians = {
        name: {key: float(np.median([one[key] for one in of_name])) for key in of_name[0]}
        for name, of_name in runs.items()
    }
    best_peer = max(medians[name]["ess_per_second"] for name in peers)
    for name, median in medians.items():
        print(
            f"{name:24} {median['seconds']:6.2f} s  min bulk ESS {median['min_bulk_ess']:6.0f}  "
            f"R-hat {median['max_rhat']:.3f}  {median['ess_per_second']:7.0f} ESS/s  "
            f"{median['ess_per_second'] / best_peer:5.2f} x the faster NUTS  "
            f"{median['ess_per_1000_gradients']:5.0f} ESS per 1,000 gradients of "
            f"{median['microseconds_per_gradient']:.0f} us"
        )
    write_json(arguments.json, {name: {"medians": medians[name], "runs": runs[name]} for name in runs})


if __name__ == "__main__":
    main()
