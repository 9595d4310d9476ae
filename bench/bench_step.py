"""Microseconds a pCNL step, compared with its floor and the best JAX implementation in the same run, on one core.

`python bench/bench_step.py` prints the acceptance table, `--networks`, `--rows` and `--dtypes` span a grid, `--many`
times many chains on the core, `--variants` prints every peer, one chain and under vmap: the choices made in `peers.py`
and `peers_by_hand.py` rest on that table.
"""

from __future__ import annotations

import argparse
from typing import Any

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
from cases import Case, Key, prepare
from harness import (
    Side,
    Table,
    add_arguments,
    chosen,
    print_about,
    script_parser,
    time_beside_native,
    verdict,
    write_json,
)
from sides import MANY_NATIVE_CHAINS, VMAP_CHAINS, floor_side, jax_side, jax_targets, native, torch_side
from verify import verify, verify_gradients

from patrac_native.studies.floor import nanoseconds
from patrac_native.studies.tables import number

HEADERS = [
    "",
    "us/step",
    "floor",
    "of the floor",
    "best JAX",
    "plain JAX / native",
    "best JAX / native",
    "torch / native",
]
WIDTHS = [36, 9, 9, 20, 24, 20, 20, 20]
PLAIN = ("jax masked", "jax rows first")
# With more rows than this, `--variants` leaves out chains under vmap: a call would take seconds, and is not faster.
MAX_VMAP_ROWS = 1000
MANY_HEADERS = ["", "us/chain-step", "floor", "of the floor", "best JAX vmap", "best JAX/native"]
MANY_WIDTHS = [36, 13, 9, 12, 30, 20]


def compare(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Verify and time one chain of each side."""
    targets = {} if options.no_peers else jax_targets(case)
    sides = {"native": native(case)} | {name: jax_side(case, target) for name, target in targets.items()}
    with_torch = options.torch and case.post.likelihood.name == "gaussian"
    if with_torch:
        sides["torch"] = torch_side(case)
    verify(case, targets, sides)
    sides["floor"] = floor_side(case)
    found = time_beside_native(sides, options.repeats, options.seconds, options.clock)
    return found | {
        "best": min(targets, key=found["ratios"].__getitem__, default=None),
        "operations": case.post.plan().operations,
        "required": case.required._asdict(),
        "delta": case.delta,
        "dim": case.post.dim,
    }


def step_row(case: Case, found: dict[str, Any]) -> list[str]:
    """Return the cells of a row under `HEADERS`."""
    ratios, required, best = found["ratios"], case.required, found["best"]
    return [
        str(case.key),
        number(found["median"]["native"]),
        number(found["median"]["floor"]),
        verdict(ratios["floor"], required.floor),
        f"{number(found['median'][best])} {best.removeprefix('jax ')}" if best else "-",
        verdict(min((ratios[name] for name in PLAIN if name in ratios), default=None), required.plain),
        verdict(ratios.get(best), required.one),
        verdict(ratios.get("torch"), required.torch),
    ]


def compare_many(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Verify and time many chains on the core, the JAX sides with several numbers of chains."""
    targets = jax_targets(case)
    if "jax lean" in targets:
        del targets["jax masked"]  # lean is never slower
    verify_gradients(case, targets)
    sides: dict[str, Side] = {"native": native(case, chains=MANY_NATIVE_CHAINS), "floor": floor_side(case)}
    for name, target in targets.items():
        sides |= {f"{name} x {chains}": jax_side(case, target, chains) for chains in VMAP_CHAINS}
    found = time_beside_native(sides, options.repeats, options.seconds, options.clock)
    peers = [name for name in sides if name.startswith("jax")]
    return found | {"best": min(peers, key=found["ratios"].__getitem__), "required": case.required.many}


def many_row(case: Case, found: dict[str, Any]) -> list[str]:
    """Return the cells of a row under `MANY_HEADERS`."""
    median, ratios, best = found["median"], found["ratios"], found["best"]
    return [
        str(case.key),
        number(median["native"]),
        number(median["floor"]),
        number(ratios["floor"]),
        f"{number(median[best])} {best.removeprefix('jax ')}",
        verdict(ratios[best], found["required"]),
    ]


def compare_variants(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Verify and time every peer, one chain and many, and print a block of them."""
    targets = jax_targets(case, variants=True)
    sides = {"native": native(case)} | {name: jax_side(case, target) for name, target in targets.items()}
    if options.torch and case.post.likelihood.name == "gaussian":
        sides["torch"] = torch_side(case)
    verify(case, targets, sides)
    if case.key.rows <= MAX_VMAP_ROWS:
        for name, target in targets.items():
            if name != "jax masked" or case.key.architecture == "Full":
                sides |= {f"{name} x {chains}": jax_side(case, target, chains) for chains in VMAP_CHAINS}
    found = time_beside_native(sides, options.repeats, options.seconds, options.clock)
    table = Table([str(case.key), "us/step", "/ native"], [36, 9, 9])
    for name, median in found["median"].items():
        table.row([name, number(median), number(found["ratios"].get(name, 1.0))])
    return found


def print_rates(keys: list[Key]) -> None:
    """Print the best time of each kind of operation of the floors; the floors themselves are timed as sides."""
    for dtype in sorted({key.dtype for key in keys}):
        of_dtype = [prepare(key).post for key in keys if key.dtype == dtype]
        names = sorted({name for post in of_dtype for name in post.plan().operations})
        each = nanoseconds(names, dtype, of_dtype[0].network.level)
        print(f"{dtype}, ns each: " + ", ".join(f"{name} {value:.3g}" for name, value in each.items()))


def main() -> None:
    """Print the table."""
    parser = script_parser(__doc__, repeats=7)
    add_arguments(parser)
    parser.add_argument("--torch", action="store_true", help="also time the eager PyTorch loop (Gaussian problems)")
    parser.add_argument("--no-peers", action="store_true", help="native and floor alone, nothing to verify against")
    parser.add_argument("--many", action="store_true", help=f"{MANY_NATIVE_CHAINS} chains against vmap instead of one")
    parser.add_argument("--variants", action="store_true", help="every peer, one chain and under vmap")
    options = parser.parse_args()
    keys = chosen(options)
    if options.many and options.rows is None and options.networks is None:
        keys = [key for key in keys if prepare(key).required.many is not None or key.dtype == "float64"]
    print_about()
    print_rates(keys)
    print(
        f"\nmicroseconds ({options.clock} clock), median of {options.repeats}; ratios: median of those of each repeat"
    )
    results: dict[str, Any] = {}
    if options.variants:
        results = {str(key): compare_variants(prepare(key), options) for key in keys}
    else:
        table = Table(MANY_HEADERS, MANY_WIDTHS) if options.many else Table(HEADERS, WIDTHS)
        compared, row = (compare_many, many_row) if options.many else (compare, step_row)
        for key in keys:
            results[str(key)] = compared(prepare(key), options)
            table.row(row(prepare(key), results[str(key)]))
    write_json(options.json, results, clock=options.clock)


if __name__ == "__main__":
    main()
