"""Airfoil and bike sharing by the protocol of bde's benchmark: ten networks d-16-16-16-16, noise of each row.

`python bench/quality/bde_sets.py --data FOLDER --set airfoil --out FILE` trains ten networks, runs one chain of each
under noise of one sampled variance, and from its end one with a mean and a log-variance for each row, along the axes of
the curvature there. The mixture of the second chains is scored on a fifth of the rows, for each seed of the networks.
`--bde PYTHON` measures sklearn-contrib-bde with the settings of its benchmark beside it, by the Python of an
environment that has it; `--defaults MINUTES` has `PatracRegressor(minutes=MINUTES)`, as `patrac fit`, in place of these
settings, with the targets in their units, and prints the NLL of its predictive mixture too. All sides use one core, and
seconds are of the processor. The split is that of `train_test_split(test_size=0.2, random_state=0)`; inputs and targets
are standardised by the training rows, and scores are of standardised targets. NLL is that of a normal distribution with
mean and variance of the prediction.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import one_core  # noqa: F401 - pins the process, before anything below starts threads

# isort: split
import numpy as np
import numpy.typing as npt
import pandas as pd
from harness import write_json
from sklearn.model_selection import train_test_split

import patrac_native as pn

FloatArray = npt.NDArray[np.float64]

HIDDEN = (16, 16, 16, 16)
MEMBERS = 10
# The columns of bike sharing that bde's benchmark leaves out: numbers of rows, dates, and parts of the target.
LEFT_OUT = ["instant", "dteday", "casual", "registered"]


class Settings(NamedTuple):
    """What differs between the sets: the lengths of the chains, and the arguments of the training."""

    steps_before: int  # under one noise variance for all rows
    warmup: int
    steps: int
    training: dict[str, Any]


SETTINGS = {
    "airfoil": Settings(15_000, 3_000, 50_000, {"max_epochs": 500}),
    "bikesharing": Settings(4_000, 2_000, 18_000, {"max_epochs": 60, "batch_size": 512, "learning_rate": 3e-3}),
}
KERNEL = pn.MGrad(collapse=True, persistence=0.97, metric="curvature")
DRAWS = 100


def load(folder: Path, name: str) -> dict[str, FloatArray]:
    """Return X, y, X_test and y_test, standardised by the training rows, and the targets as they are."""
    if name == "airfoil":
        table = pd.read_csv(folder / "airfoil" / "airfoil.csv")
        X, y = table.iloc[:, :-1], table.iloc[:, -1]
    else:
        table = pd.read_csv(folder / "bikesharing" / "hour.csv").drop(columns=LEFT_OUT)
        X, y = table.drop(columns="cnt"), table["cnt"]
    parts = train_test_split(X.to_numpy(float), y.to_numpy(float), test_size=0.2, random_state=0)
    (X_train, X_test), (y_train, y_test) = parts[:2], parts[2:]
    inputs = [(part - X_train.mean(axis=0)) / X_train.std(axis=0) for part in (X_train, X_test)]
    targets = [(part - y_train.mean()) / y_train.std() for part in (y_train, y_test)]
    rows = {"X": inputs[0], "y": targets[0], "X_test": inputs[1], "y_test": targets[1]}
    return rows | {"raw_y": y_train, "raw_y_test": y_test}


def patrac_side(rows: dict[str, FloatArray], settings: Settings, seed: int, members: int) -> dict[str, Any]:
    """Train, sample and score."""
    started = time.process_time()
    X, y = rows["X"], rows["y"]
    likelihood = pn.Gaussian("sampled")
    nets = pn.train_many(
        [X.shape[1], *HIDDEN, 1],
        X,
        y,
        networks=members,
        likelihood=likelihood,
        seed=seed * members,
        threads=1,
        progress=False,
        **settings.training,
    )
    trained = time.process_time() - started
    run: dict[str, Any] = {"chains": 1, "threads": 1, "progress": False}
    # A trained network is far from the bulk of its posterior, and the curvature there is not that of the bulk.
    before = pn.sample_many(
        [pn.Posterior(net, pn.Full(), pn.GaussianPrior(), likelihood, X, y) for net in nets],
        KERNEL,
        draws=1,
        warmup=pn.Warmup.transient(KERNEL, settings.steps_before),
        seed=seed,
        **run,
    )
    ends = [with_log_variance(draws) for draws in before]
    draws = pn.sample_many(
        [pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.HeteroscedasticGaussian(), X, y) for net in ends],
        KERNEL,
        draws=DRAWS,
        thin=settings.steps // DRAWS,
        warmup=settings.warmup,
        init="map",
        seed=seed + 1_000,
        **run,
    )
    seconds = time.process_time() - started
    X_test, y_test = rows["X_test"], rows["y_test"]
    return {
        **scores(pn.DrawsMixture(draws), X_test, y_test),
        "members": [scores(one, X_test, y_test) for one in draws],
        "networks": [float(np.sqrt(((net.predict(X_test)[:, 0] - y_test) ** 2).mean())) for net in nets],
        "training_seconds": trained,
        "seconds": seconds,
    }


def with_log_variance(draws: pn.Draws) -> pn.Network:
    """Return the network of the last draw with a second output: the logarithm of the draw's noise variance."""
    end = pn.Network.from_torch(draws.network.to_torch(draws.theta[0, -1]))
    weights, biases = end.weights[-1], end.biases[-1]
    log_variance = np.log(draws.stats["variance"][0, -1])
    return pn.Network(
        [*end.weights[:-1], np.vstack([weights, np.zeros_like(weights)])],
        [*end.biases[:-1], np.append(biases, log_variance)],
        end.activation,
    )


def scores(draws: pn.Draws | pn.DrawsMixture, X: FloatArray, y: FloatArray) -> dict[str, float]:
    """Return RMSE, NLL by moments and coverage of 90% intervals."""
    found = draws.distribution(X)
    return {**by_moments(found.mean()[:, 0], found.sd()[:, 0], y), "coverage": found.coverage(y, 0.9)}


def by_moments(mean: FloatArray, sd: FloatArray, y: FloatArray) -> dict[str, float]:
    """Return RMSE, and the NLL of a normal distribution."""
    error = y - mean
    nll = 0.5 * float((np.log(2 * np.pi * sd**2) + (error / sd) ** 2).mean())
    return {"rmse": float(np.sqrt((error**2).mean())), "nll": nll}


def defaults_side(rows: dict[str, FloatArray], minutes: float, seed: int) -> dict[str, Any]:
    """Fit the estimator at its defaults but for the budget, and score it in units of the standardised target."""
    started, scale = time.process_time(), float(rows["raw_y"].std())
    made = pn.PatracRegressor(minutes=minutes, random_state=seed, n_jobs=1).fit(rows["X"], rows["raw_y"])
    seconds = time.process_time() - started
    mean, sd = made.predict(rows["X_test"], return_std=True)
    found = made.evaluate(rows["X_test"], rows["raw_y_test"]).scores
    return {
        **by_moments(mean / scale, sd / scale, rows["raw_y_test"] / scale),
        # The log probability of a count is the log density at the distance of two counts.
        "nll_mixture": float(found.get("nlpd_in_units", found["nlpd"]) - np.log(scale)),
        "coverage": found["coverage"]["0.9"],
        "noise": made.draws_.likelihood.label + " of log y" * made.target_scaling_.log,
        "architecture": repr(made.posterior_.network.architecture),
        "seconds": seconds,
    }


def bde_side(rows: dict[str, FloatArray], python: str, seed: int, members: int) -> dict[str, Any]:
    """Run bde by another Python; return what it prints."""
    script = Path(__file__).parents[1] / "ess" / "bde_members.py"
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.npz"
        np.savez(path, **rows)
        size = ["--members", str(members), "--warmup", "50000", "--samples", "10000", "--seed", str(seed)]
        command = [python, str(script), str(path), *map(str, HIDDEN), *size]
        done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"rmse": found["rmse"], "nll": found["nlpd"], "seconds": found["seconds"]}


def line(name: str, seed: int, side: str, found: dict[str, Any]) -> str:
    """Return the printed line of one side."""
    text = f"{name} seed {seed}  {side:<7} RMSE {found['rmse']:.4f}  NLL {found['nll']:.3f}  {found['seconds']:.0f} s"
    if "nll_mixture" in found:
        text += f"; of the mixture {found['nll_mixture']:.3f}; {found['architecture']}, {found['noise']}"
        return f"{text}; 90% coverage {found['coverage']:.1%}"
    if "members" not in found:
        return text
    of_members = ", ".join(f"{one['rmse']:.3f}" for one in found["members"])
    return (
        f"{text}, training {found['training_seconds']:.0f}; 90% coverage {found['coverage']:.1%}; members {of_members}"
    )


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder with airfoil/airfoil.csv and bikesharing/hour.csv")
    add("--set", choices=list(SETTINGS), default="airfoil", help="default airfoil")
    add("--seeds", type=int, nargs="+", default=list(range(5)), help="of networks and chains; default 0 1 2 3 4")
    add("--members", type=int, default=MEMBERS, help=f"networks; default {MEMBERS}")
    add("--bde", metavar="PYTHON", help="of an environment with sklearn-contrib-bde: its side; many minutes a seed")
    add("--bde-only", action="store_true", help="only that side")
    add("--defaults", type=float, metavar="MINUTES", help="the estimator with this budget, in place of the settings")
    add("--steps-before", type=int, help="steps of a chain under one noise variance; default by set")
    add("--warmup", type=int, help="steps of the warm-up of a chain after them; default by set")
    add("--steps", type=int, help="steps of a chain after its warm-up; default by set")
    add("--out", type=Path, help="JSON file of all scores")
    options = parser.parse_args()
    if options.bde_only and not options.bde:
        parser.error("--bde-only needs --bde PYTHON")
    settings, rows = SETTINGS[options.set], load(options.data, options.set)
    given = {name: getattr(options, name) for name in ("steps_before", "warmup", "steps")}
    settings = settings._replace(**{name: value for name, value in given.items() if value is not None})
    results: dict[str, dict[str, Any]] = {}
    for seed in options.seeds:
        found = results[f"{options.set}, seed {seed}"] = {}
        if options.defaults:
            found["patrac"] = defaults_side(rows, options.defaults, seed)
            print(line(options.set, seed, "patrac", found["patrac"]), flush=True)
        elif not options.bde_only:
            found["patrac"] = patrac_side(rows, settings, seed, options.members)
            print(line(options.set, seed, "patrac", found["patrac"]), flush=True)
        if options.bde:
            found["bde"] = bde_side(rows, options.bde, seed, options.members)
            print(line(options.set, seed, "bde", found["bde"]), flush=True)
        write_json(options.out, results, members=options.members, settings=settings._asdict())
    for side in ("patrac", "bde"):
        measured = [one[side] for one in results.values() if side in one]
        if len(measured) > 1:
            means = {name: float(np.mean([one[name] for one in measured])) for name in ("rmse", "nll", "seconds")}
            print(f"{side}, mean of {len(measured)}: " + ", ".join(f"{name} {x:.4g}" for name, x in means.items()))


if __name__ == "__main__":
    main()
