"""Microseconds a pCNL step, compared with its floor and the best JAX implementation in the same run, on one core.

`python bench/bench_step.py` prints the acceptance table, `--networks`, `--rows` and `--dtypes` span a grid, `--many`
times many chains on the core.
"""

from __future__ import annotations

import argparse
from typing import Any

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
from cases import Case, Key, prepare
from sides import MANY_NATIVE_CHAINS, VMAP_CHAINS, floor_side, jax_side, jax_targets, native, torch_side
from tables import Table, add_arguments, chosen, print_about, verdict, write_json
from timing import Side, time_beside_native
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


def print_rates(keys: list[Key]) -> None:
    """Print the best time of each kind of operation of the floors; the floors themselves are timed as sides."""
    for dtype in sorted({key.dtype for key in keys}):
        of_dtype = [prepare(key).post for key in keys if key.dtype == dtype]
        names = sorted({name for post in of_dtype for name in post.plan().operations})
        each = nanoseconds(names, dtype, of_dtype[0].level)
        print(f"{dtype}, ns each: " + ", ".join(f"{name} {value:.3g}" for name, value in each.items()))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--torch", action="store_true", help="also time the eager PyTorch loop (Gaussian problems)")
    parser.add_argument("--no-peers", action="store_true", help="native and floor alone, nothing to verify against")
    parser.add_argument("--many", action="store_true", help=f"{MANY_NATIVE_CHAINS} chains against vmap instead of one")
    options = parser.parse_args()
    keys = chosen(options)
    if options.many and options.rows is None and options.networks is None:
        keys = [key for key in keys if prepare(key).required.many is not None or key.dtype == "float64"]
    print_about()
    print_rates(keys)
    print(
        f"\nmicroseconds ({options.clock} clock), median of {options.repeats}; ratios: median of those of each repeat"
    )
    table = Table(MANY_HEADERS, MANY_WIDTHS) if options.many else Table(HEADERS, WIDTHS)
    results: dict[str, Any] = {}
    for key in keys:
        case = prepare(key)
        if options.many:
            results[str(key)] = compare_many(case, options)
            table.row(many_row(case, results[str(key)]))
        else:
            results[str(key)] = compare(case, options)
            table.row(step_row(case, results[str(key)]))
    write_json(options.json, results, clock=options.clock)


if __name__ == "__main__":
    main()
