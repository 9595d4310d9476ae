"""The small forms of the measurements behind the claims of `claims.py`, each seconds to a minute of a quiet core.

Every function returns the figures of its claims in their order. Speed is the median of paired ratios on one pinned
core; quality is measured on one split, with a tenth of the full form's budget. Imports that need optional packages
stand inside the functions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import patrac_native as pn

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE / "backend"), str(HERE / "quality")]
REPEATS, SECONDS = 5, 0.05
MINUTES = "0.2"  # budget of the fits


def data_folder() -> Path:
    """Return the folder of the data sets."""
    if "PATRAC_DATA" not in os.environ:
        raise FileNotFoundError("PATRAC_DATA does not name the folder of the data sets")
    return Path(os.environ["PATRAC_DATA"])


def dimensions() -> list[float]:
    """Number of Bayesian parameters of Full, Mix(5), Out(45) and Sep(5) on 1-50-50-1."""
    rng = np.random.default_rng(0)
    net = pn.Network([rng.normal(size=s) for s in ((50, 1), (50, 50), (1, 50))], [np.ones(n) for n in (50, 50, 1)])
    X = np.linspace(-1, 1, 5)[:, None]
    architectures: list[Any] = [pn.Full(), pn.Mix(5), pn.Out(45), pn.Sep(5)]
    prior = pn.TraceClassPrior(1.5, 2.0, 0.5)
    return [pn.Posterior(net, one, prior, pn.Gaussian(1.0), X, X[:, 0]).dim for one in architectures]


def sine_bands() -> list[float]:
    """Percentages of inputs at which the bands of f of Mix(5) and Full hold the true mean: a quarter of the draws."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (100, 1))
    y = np.sin(X[:, 0]) + rng.normal(size=100)
    net = pn.train([1, 50, 50, 1], X, y, likelihood=pn.Gaussian(1.0), seed=0, progress=False)
    grid = np.linspace(-5, 5, 200)[:, None]
    found = []
    for architecture in (pn.Mix(5), pn.Full()):
        post = pn.Posterior(net, architecture, pn.TraceClassPrior.fit(net), pn.Gaussian(1.0), X, y)
        draws = pn.sample(post, chains=4, draws=250, thin=100, seed=1, progress=False)
        lower, upper = np.quantile(draws.predict(grid), (0.025, 0.975), axis=(0, 1))[..., 0]
        found.append(100 * float(((lower <= np.sin(grid[:, 0])) & (np.sin(grid[:, 0]) <= upper)).mean()))
    return found


@cache
def step(label: str) -> list[float]:
    """Times as fast as the fastest JAX loop and as a plain one, and the share of the floor's speed."""
    from bench_step import PLAIN
    from cases import Key, prepare
    from harness import time_beside_native
    from sides import floor_side, jax_side, jax_targets, native
    from verify import verify_gradients

    case = prepare(Key(label))
    targets = jax_targets(case)
    verify_gradients(case, targets)
    sides = {"native": native(case), "floor": floor_side(case)}
    sides |= {name: jax_side(case, target) for name, target in targets.items()}
    ratios = time_beside_native(sides, REPEATS, SECONDS, "cpu")["ratios"]
    return [
        min(ratios[name] for name in targets),
        min(ratios[name] for name in targets if name in PLAIN),
        ratios["floor"],
    ]


@cache
def training() -> list[float]:
    """Times as fast as PyTorch is an epoch of training on 927 rows, and on 1,257 rows of ten classes."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "train.json"
        run(HERE / "bench_train.py", "--repeats", str(REPEATS), "--seconds", str(SECONDS), "--json", str(file))
        cases = json.loads(file.read_text())["cases"]
    return [cases[name]["ratios"]["torch"] for name in ("8-50-50-1, 927 rows", "61-50-50-10, 1257 rows")]


@cache
def effective_draws(label: str) -> list[float]:
    """Effective draws a second of kernel="auto" over JAX pCNL and over NumPyro's NUTS, on one data seed."""
    from ess_sides import JAX, NUTS
    from ess_tables import ratios

    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "ess.json"
        sides = ["--architectures", label, "--kernels", "pCNL", "collapsed mGrad"]
        run(HERE / "bench_ess.py", "--quick", *sides, "--json", str(file))
        seeds = json.loads(file.read_text())["cases"][label]["seeds"]
    return [float(np.median(ratios(seeds, side))) for side in (JAX, NUTS)]


def density_in_blackjax(label: str) -> list[float]:
    """ESS/s of BlackJAX's NUTS on the collapsed density over those on a plain density in JAX, two runs of each."""
    from bench_nuts import measure

    found = measure(label, 2, ("collapsed", "plain"))
    return [found["collapsed"]["ess_per_second"] / found["plain"]["ess_per_second"]]


def collapsed_steps() -> list[float]:
    """Smallest and largest time of a collapsed mGrad step over a plain one, among Full, Mix(5) and Sep(5)."""
    from cases import Key, posterior
    from harness import Side, time_beside_native

    ratios = []
    for label in ("Full", "Mix(5)", "Sep(5)"):
        post = posterior(Key(label))

        def side(collapse: bool, post: pn.Posterior = post) -> Side:
            warm = pn.sample(post, pn.MGrad(collapse=collapse), chains=1, draws=1, seed=1, threads=1, progress=False)
            kernel = pn.MGrad(float(warm.stats["step_size"][0, -1]), collapse=collapse)

            def run(steps: int, seed: int) -> float:
                fixed: dict[str, Any] = {"chains": 1, "draws": 1, "warmup": None, "threads": 1, "progress": False}
                pn.sample(post, kernel, thin=steps, init=warm.theta[:, -1], seed=seed, **fixed)
                return float("nan")

            return Side(run)

        sides = {"native": side(False), "collapsed": side(True)}
        ratios.append(time_beside_native(sides, REPEATS, SECONDS, "cpu")["ratios"]["collapsed"])
    return [min(ratios), max(ratios)]


@cache
def uci_fit(name: str) -> dict[str, Any]:
    """Fit split 0 of a UCI set by the command line with a tenth of the default budget."""
    from uci import patrac_side
    from uci_sets import load_split

    return patrac_side(load_split(data_folder() / "uci", name, 0), ["--minutes", MINUTES])


def boston_rhat() -> list[float]:
    """Largest R-hat of f of the fit of boston."""
    return [uci_fit("boston")["max_rhat"]]


def below_the_ensemble() -> list[float]:
    """Share of the sets yacht, boston and energy on which the fit's NLPD is below the ensemble's of the record."""
    from page_tables import table

    recorded = {row[0]: float(row[3]) for row in table("performance/predictive_quality:uci_small_splits")["rows"][::-1]}
    return [float(np.mean([uci_fit(name)["nlpd"] < recorded[name] for name in ("yacht", "boston", "energy")]))]


def lowest_on_tables() -> float:
    """Share of the tables cps1985, car_prices and deliveries on which the estimators have the lowest mean loss."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "tables.jsonl"
        of = "--tables cps1985 car_prices deliveries --sides patrac linear catboost ngboost --minutes".split()
        run(HERE / "quality" / "tables.py", "--data", data_folder() / "tables", "--out", out, *of, MINUTES)
        found = [json.loads(line) for line in out.read_text().splitlines()]
    lowest = {one["table"]: one for one in sorted(found, key=lambda one: one["loss"], reverse=True)}
    return float(np.mean([one["side"] == "patrac" for one in lowest.values()]))


def digits() -> list[float]:
    """Mean negative log-likelihood of `patrac fit` on split 0 of digits."""
    from digits import patrac_side
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    split = train_test_split(X, y, test_size=0.2, random_state=0, stratify=y)
    return [patrac_side(split, ["--minutes", MINUTES])["nlpd"]]


@cache
def airfoil() -> list[float]:
    """NLL and RMSE on airfoil by the protocol of bde, of one seed: shorter chains are far from the figures."""
    from bde_sets import MEMBERS, SETTINGS, load, patrac_side

    found = patrac_side(load(data_folder(), "airfoil"), SETTINGS["airfoil"], seed=0, members=MEMBERS)
    return [found["nll"], found["rmse"]]


def demo_core_minutes() -> list[float]:
    """Processor time of `patrac demo`, in minutes of two busy cores."""
    before = os.times()
    with tempfile.TemporaryDirectory() as place:
        run("-m", "patrac_native.cli.main", "demo", "--out", f"{place}/demo")
    after = os.times()
    children = after.children_user + after.children_system - before.children_user - before.children_system
    return [children / 60 / 2]


def run(*arguments: str | Path) -> None:
    """Run Python, and show what it printed if it fails."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stdout}")
