"""BlackJAX's NUTS on the native density beside the same sampler on densities in JAX, on the paper's sine problem.

`python bench/backend/bench_nuts.py` prints effective draws of f a second for each side and writes them with --json.

All sides sample one posterior in the coordinates of prior N(0, I), with the step size and the diagonal metric that
window adaptation finds on the native density. *collapsed* is the native density with the output weights integrated out,
with a step size and a metric of its own; they are drawn afterwards from their law given the rest. *plain* scatters
theta into the full network and differentiates that with `jax.grad`; *lean* leaves layers without Bayesian parameters,
or the trained network beside Sep, out of the loop; *by hand* exploits the structure as the compiled model does.
Gradients are compared before anything is timed. The clock is processor time on one pinned core. A repeat adapts and
runs all sides in turn; rates are those of the sums over repeats: the ESS of a single run is noisy, and another
adaptation may double the gradients of a draw.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from cases import Key, posterior
from ess_measures import geyer
from harness import print_about, script_parser, write_json
from peers import Target, in_theta, lean, masked, potential
from peers_by_hand import expert

# Minimum ratios of the effective draws a second, on the better of the native densities, to those on the plain one.
REQUIRED = {"Mix(5)": 3.0, "Sep(5)": 3.0, "Full": 1.5}
WARMUP, DRAWS, REPEATS = 300, 500, 5
GRID = np.linspace(-6, 6, 50)[:, None]
# Of a gradient in float32, relative to its largest entry: sums over 100 rows and 50 nodes.
TOLERANCE = 1e-3


class Side(NamedTuple):
    """A compiled run: draws of z (DRAWS, K) and the number of gradients, from a seed."""

    density: Callable[[Any], Any]
    run: Callable[[int], tuple[Any, int]]


@cache
def densities(label: str) -> dict[str, Callable[[Any], Any]]:
    """Return the log posteriors of z by side; they may differ by a constant."""
    post = posterior(Key(label))
    targets = {"plain": in_theta(post, masked(post)), "lean": in_theta(post, lean(post)), "by hand": expert(post)}
    if label == "Full":
        del targets["lean"]  # there is nothing to leave out
    native = {
        "native": post.to_jax("posterior", "whitened"),
        "collapsed": post.to_jax("collapsed_posterior", "whitened"),
    }
    return native | {name: negative(one) for name, one in targets.items()}


def negative(target: Target) -> Callable[[Any], Any]:
    """Return the log posterior of z of a target."""
    energy = potential(target)
    return lambda z: -energy(z)


@cache
def adapted(label: str, name: str, seed: int) -> tuple[Any, dict[str, Any]]:
    """Return state and parameters after window adaptation on a native density, from a seed."""
    post = posterior(Key(label))
    dim = post.sampled.facts.hidden_dim if name == "collapsed" else post.dim
    start = jnp.asarray((post.theta_map / np.sqrt(post.prior_variance))[:dim], post.network.dtype)
    adaptation = blackjax.window_adaptation(blackjax.nuts, densities(label)[name])
    (state, parameters), _ = adaptation.run(jax.random.key(seed), start, num_steps=WARMUP)
    return state.position, parameters


@cache
def side(label: str, name: str, seed: int) -> Side:
    """Return a side, compiled and verified; the seed is that of its adaptation."""
    known = densities(label)
    reference = "collapsed" if name == "collapsed" else "native"
    position, parameters = adapted(label, reference, seed)
    gradients = [np.asarray(jax.jit(jax.grad(known[one]))(position)) for one in (reference, name)]
    error = np.abs(gradients[0] - gradients[1]).max() / np.abs(gradients[0]).max()
    if not error < TOLERANCE:
        raise RuntimeError(f"{label}, {name}: the gradient differs from the {reference} one by {error:.2g} of its size")
    sampler = blackjax.nuts(known[name], **parameters)

    @jax.jit
    def chain(key: Any) -> tuple[Any, Any]:
        def one(state: Any, key: Any) -> tuple[Any, Any]:
            state, info = sampler.step(key, state)
            return state, (state.position, info.num_integration_steps)

        return jax.lax.scan(one, sampler.init(position), jax.random.split(key, DRAWS))[1]

    def run(seed: int) -> tuple[Any, int]:
        z, steps = jax.block_until_ready(chain(jax.random.key(seed)))
        return z, int(steps.sum())

    run(0)
    return Side(known[name], run)


def effective_draws(label: str, name: str, z: Any) -> float:
    """Return the ESS of f on the grid."""
    post = posterior(Key(label))
    if name == "collapsed":
        theta = post.density("collapsed_posterior", "whitened").complete(z)
    else:
        theta = post.density("posterior", "whitened").theta(z)
    return geyer(post.network.predict(theta, GRID)[..., 0])


def measure(label: str, repeats: int, sides: Iterable[str] | None = None) -> dict[str, dict[str, float]]:
    """Return effective draws a second and what they consist of, by side, by default all; sums over the repeats."""
    sums = {name: np.zeros(3) for name in sides or densities(label)}
    for repeat in range(repeats):
        for name in sums:
            one = side(label, name, repeat)
            started = time.process_time()
            z, gradients = one.run(repeat + 1)
            seconds = time.process_time() - started
            sums[name] += seconds, gradients, effective_draws(label, name, z)
    return {
        name: {
            "ess_per_second": ess / seconds,
            "microseconds_per_gradient": seconds / gradients * 1e6,
            "gradients_per_draw": gradients / (DRAWS * repeats),
            "ess_per_draw": ess / (DRAWS * repeats),
        }
        for name, (seconds, gradients, ess) in sums.items()
    }


def main() -> None:
    """Print a block for each architecture."""
    parser = script_parser(__doc__, repeats=REPEATS)
    parser.add_argument("--cases", nargs="+", choices=list(REQUIRED), default=list(REQUIRED))
    options = parser.parse_args()
    print_about()
    results = {}
    for label in options.cases:
        found = results[label] = measure(label, options.repeats)
        print(f"{label} (required: {REQUIRED[label]:g} times plain)")
        for name, of_side in found.items():
            ratio = of_side["ess_per_second"] / found["plain"]["ess_per_second"]
            by_gradient = found["plain"]["microseconds_per_gradient"] / of_side["microseconds_per_gradient"]
            print(
                f"  {name:9} {of_side['ess_per_second']:9.1f} ESS/s  {of_side['microseconds_per_gradient']:8.2f} us a "
                f"gradient, {of_side['gradients_per_draw']:6.1f} a draw, {of_side['ess_per_draw']:6.3f} ESS a draw; "
                f"plain times {ratio:5.2f} in ESS/s, {by_gradient:5.2f} in gradients a second"
            )
    write_json(options.json, results)


if __name__ == "__main__":
    main()
