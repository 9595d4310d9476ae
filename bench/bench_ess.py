"""Effective draws of f for each step and second: native kernels, JAX pCNL and NumPyro NUTS, on one core.

`python bench/bench_ess.py` counts them on the sine problem over ten data seeds and prints whether the requirements are
met; `--problem abalone` and `--problem digits` are larger; `--quick` takes a few minutes.
"""

from __future__ import annotations

import argparse
import time
from importlib.metadata import version
from typing import Any

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
from cases import Case, Key
from ess_count import ROUNDS, Count, Plan, Side, compare, pilot
from ess_problems import PROBLEMS, REQUIRED, Data, Problem
from ess_sides import JAX, KERNELS, NUTS, JaxSide, NativeSide, NutsSide, fastest, is_supported, native_side, same_kernel
from ess_sides import targets as jax_targets
from ess_tables import print_architecture, print_requirements, progress_line
from harness import print_about, script_parser, write_json
from sides import jax_side, native
from verify import verify_acceptance, verify_gradients

import patrac_native as pn

NUTS_WARMUP, TRIAL_SECONDS = 1000, 0.1
# --quick: data seeds, processor seconds of a side, draws of NUTS's warm-up.
QUICK = {"seeds": 1, "seconds": 0.5, "nuts_warmup": 200}
# Its JAX side, which is otherwise chosen by timing.
QUICK_TARGET = {"Full": "jax masked"}


class Architecture:
    """All sides on one architecture of a problem; the fastest JAX target is found on the first data seed."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.options = name, options
        self.target: str | None = None
        self.seeds: list[dict[str, Any]] = []

    def run(self, data: Data, seed: int) -> None:
        """Warm up all sides, count effective draws in alternating rounds, and compare the means of f."""
        options, post = self.options, data.posterior(self.name)
        auto = native_side(post, "auto", "auto", seed)
        sides: dict[str, Side] = {
            name: native_side(post, KERNELS[name](), auto.state, seed)
            for name in options.kernels
            if is_supported(name, post)
        }
        chosen = next((n for n, side in sides.items() if same_kernel(side.kernel, auto.kernel)), "auto")
        if chosen == "auto":
            sides["auto"] = auto
        plans = {name: pilot(side, post, data, None, options.seconds) for name, side in sides.items()}
        found: dict[str, Any] = {"seed": seed, "auto": chosen, "dim": post.dim}
        if options.peers:
            found |= self._add_peers(post, data, auto, sides, plans, seed)
        counts = {name: Count(side, post, data, plans[name]) for name, side in sides.items()}
        for number in range(ROUNDS):
            for count in counts.values():
                count.run_round(number)
        self.seeds.append(found | {"sides": {name: count.measure() for name, count in counts.items()}})
        compare(counts)

    def _add_peers(
        self,
        post: pn.Posterior,
        data: Data,
        auto: NativeSide,
        sides: dict[str, Side],
        plans: dict[str, Plan],
        seed: int,
    ) -> dict[str, Any]:
        """Add JAX, with step size and thinning of native pCNL, and NUTS; both start where the native sides do."""
        options, pcnl = self.options, sides["pCNL"]
        assert isinstance(pcnl, NativeSide) and pcnl.kernel.step_size is not None
        key = Key(self.name, "-".join(map(str, post.network.net.layer_sizes)), len(post.data.y))
        case = Case(key, post, auto.state, pcnl.kernel.step_size)
        targets = jax_targets(case)
        if self.target is None:
            verify_gradients(case, targets)
            if options.quick:
                self.target = QUICK_TARGET.get(self.name, "jax by hand")
            else:
                self.target = fastest(case, targets, TRIAL_SECONDS)
                verify_acceptance({"native": native(case), "jax": jax_side(case, targets[self.target])})
        thin, target = plans["pCNL"].thin, targets[self.target]
        sides[JAX] = JaxSide(case, target, thin, seed)
        plans[JAX] = pilot(sides[JAX], post, data, thin, options.seconds)
        if options.nuts and not (options.quick and REQUIRED[self.name].nuts is None):
            sides[NUTS] = NutsSide(case, target, options.nuts_warmup, seed)
            plans[NUTS] = pilot(sides[NUTS], post, data, 1, options.seconds)
        return {"target": self.target, "delta": case.delta}


def settled(options: argparse.Namespace, problem: Problem) -> argparse.Namespace:
    """Fill in options that were not given, from the problem or from --quick."""
    defaults: dict[str, Any] = {
        "seeds": problem.seeds,
        "seconds": problem.seconds,
        "nuts_warmup": NUTS_WARMUP,
    }
    for name, value in (defaults | (QUICK if options.quick else {})).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.architectures = options.architectures or list(problem.architectures)
    options.peers = problem.jax and not options.no_peers
    options.nuts = options.peers and (problem.nuts or options.with_nuts)
    if options.peers and "pCNL" not in options.kernels:
        options.kernels = ["pCNL", *options.kernels]  # the JAX chain has its step size
    return options


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--problem", choices=list(PROBLEMS), default="sine")
    add("--architectures", nargs="+", metavar="A", help="such as Full 'Mix(5)'; default: the problem's")
    add("--kernels", nargs="+", choices=list(KERNELS), default=list(KERNELS), help="beside auto")
    add("--seeds", type=int, metavar="N", help="data seeds")
    add("--seconds", type=float, help="processor time, the most of one side on one data seed")
    add("--nuts-warmup", type=int, metavar="DRAWS")
    add("--no-peers", action="store_true", help="native alone")
    add("--with-nuts", action="store_true", help="NUTS too where the problem leaves it out because it takes long")
    add("--quick", action="store_true", help="one seed, short")
    options = parser.parse_args()
    return settled(options, PROBLEMS[options.problem])


def main() -> None:
    """Print a line for each finished posterior, then the tables."""
    options = parse()
    started = time.perf_counter()
    print_about()
    found = {name: Architecture(name, options) for name in options.architectures}
    for seed in range(options.seeds):
        data = PROBLEMS[options.problem].data(seed)
        for name, architecture in found.items():
            architecture.run(data, seed)
            minutes = (time.perf_counter() - started) / 60
            print(f"{minutes:.1f} min: {progress_line(name, architecture.seeds[-1])}", flush=True)
    for name, architecture in found.items():
        print_architecture(f"{options.problem}, {name}", architecture.seeds)
    if options.problem == "sine":
        print_requirements({name: architecture.seeds for name, architecture in found.items()})
    minutes = (time.perf_counter() - started) / 60
    print(f"\n{minutes:.1f} minutes")
    results = {name: {"seeds": architecture.seeds} for name, architecture in found.items()}
    write_json(options.json, results, problem=options.problem, minutes=minutes, numpyro=version("numpyro"))


if __name__ == "__main__":
    main()
