"""Times of the peers: every JAX variant, one chain and `vmap` with several numbers of chains, and eager PyTorch.

`python bench/bench_peers.py` prints microseconds a step of one chain and names the fastest; the choices made in
`peers.py` and `peers_by_hand.py` rest on this table. `pytest bench/bench_peers.py` times them with pytest-benchmark.
"""

from __future__ import annotations

import argparse
from typing import Any

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
import pytest
from cases import ARCHITECTURES, Key, prepare
from sides import VMAP_CHAINS, jax_side, jax_targets, native, torch_side
from tables import Table, add_arguments, chosen, print_about, write_json
from timing import time_beside_native
from verify import verify, verify_gradients

from patrac_native.studies.tables import number

# With more rows than this, chains under vmap are left out: a call would take seconds, and vmap is not faster.
MAX_VMAP_ROWS = 1000


def measure(key: Key, options: argparse.Namespace) -> dict[str, Any]:
    """Verify and time all peers of a case beside the native chain."""
    case = prepare(key)
    targets = jax_targets(case, variants=True)
    sides = {"native": native(case)} | {name: jax_side(case, target) for name, target in targets.items()}
    if options.torch and case.post.likelihood.name == "gaussian":
        sides["torch"] = torch_side(case)
    verify(case, targets, sides)
    if key.rows <= MAX_VMAP_ROWS:
        for name in targets:
            if name != "jax masked" or key.architecture == "Full":
                sides |= {f"{name} x {chains}": jax_side(case, targets[name], chains) for chains in VMAP_CHAINS}
    return time_beside_native(sides, options.repeats, options.seconds, options.clock)


@pytest.mark.parametrize("side", ["jax masked", "jax lean", "jax by hand"])
@pytest.mark.parametrize("label", ARCHITECTURES)
def test_peer(benchmark: Any, label: str, side: str) -> None:
    """Time steps on the sine problem; gradients verified first."""
    case = prepare(Key(label))
    targets = jax_targets(case)
    if side not in targets:
        pytest.skip("on Full there is nothing to leave out")
    verify_gradients(case, targets)
    timed = jax_side(case, targets[side])
    benchmark.pedantic(timed.run, args=(2 * timed.chunk, 0), rounds=5, warmup_rounds=1)
    benchmark.extra_info["microseconds_a_step"] = benchmark.stats["median"] / (2 * timed.chunk) * 1e6


def main() -> None:
    """Print one block for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--torch", action="store_true", help="also time the eager PyTorch loop (Gaussian problems)")
    options = parser.parse_args()
    print_about()
    results: dict[str, Any] = {}
    for key in chosen(options):
        found = measure(key, options)
        results[str(key)] = found
        print(f"\n{key}")
        table = Table(["", "us/step", "/ native"], [34, 9, 9])
        for name, median in found["median"].items():
            table.row([name, number(median), number(found["ratios"].get(name, 1.0))])
        for kind, names in {
            "one chain": [name for name in found["median"] if name.startswith("jax") and " x " not in name],
            "vmap": [name for name in found["median"] if " x " in name],
        }.items():
            if names:
                print(f"fastest, {kind}: {min(names, key=found['median'].__getitem__)}")
    write_json(options.json, results, clock=options.clock)


if __name__ == "__main__":
    main()
