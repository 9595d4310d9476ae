"""Predictive quality of `patrac fit` on UCI sets beside a tuned heteroscedastic deep ensemble, in one run.

`python bench/quality/uci.py --data FOLDER --out uci.json` fits each standard split (Hernandez-Lobato & Adams 2015) with
`patrac fit --test-fraction 0` at its other defaults, scores the split's test rows by `patrac predict --scores`, trains
the ensemble on the same rows, and prints a line for each and a table for each set. The sides "full" and "mix" are
`patrac fit --architecture full` and `mix`. All scores are in the target's units; lower NLPD and CRPS are better.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from comparison import Array, Results, add_arguments, fit_and_score, side_table
from deep_ensemble import fit_ensemble
from forecasts import Normals
from uci_sets import SETS, Split, load_split, standardised

from patrac_native.studies.tables import format_table

COVERAGE = 0.9
RIVAL = "ensemble"
# The sides of `patrac fit`, with its options.
PATRAC = {"patrac": [], "full": ["--architecture", "full"], "mix": ["--architecture", "mix"]}
COLUMNS = {
    "RMSE": ("rmse", 4),
    "NLPD": ("nlpd", 3),
    "CRPS": ("crps", 4),
    "in 90%": ("coverage", 3),
    "95% width": ("width", 4),
    "seconds": ("seconds", 0),
}
# Published NLPD over 20 of these splits, mean and its spread as printed, networks with one hidden layer of 50 nodes:
# Lakshminarayanan, Pritzel & Blundell (2017), Simple and scalable predictive uncertainty estimation using deep
# ensembles, Table 1, whose column of MC dropout is that of Gal & Ghahramani (2016).
PUBLISHED = {
    "yacht": "MC dropout 1.55 (0.12), deep ensembles 1.18 (0.21)",
    "boston": "MC dropout 2.46 (0.25), deep ensembles 2.41 (0.25)",
    "energy": "MC dropout 1.99 (0.09), deep ensembles 1.38 (0.22)",
    "concrete": "MC dropout 3.04 (0.09), deep ensembles 3.06 (0.18)",
    "wine": "MC dropout 0.93 (0.06), deep ensembles 0.94 (0.12)",
    "kin8nm": "MC dropout -0.95 (0.03), deep ensembles -1.20 (0.02)",
    "power": "MC dropout 2.80 (0.05), deep ensembles 2.79 (0.04)",
    "naval": "MC dropout -3.80 (0.05), deep ensembles -5.63 (0.05)",
}


def without_copies(split: Split) -> Split:
    """Leave out the test rows whose inputs some training row has."""
    seen = {tuple(row) for row in split.X.tolist()}
    new = np.array([tuple(row) not in seen for row in split.X_test.tolist()])
    return split._replace(X_test=split.X_test[new], y_test=split.y_test[new])


def patrac_side(split: Split, options: list[str]) -> dict[str, Any]:
    """Fit by the command line and score the test rows by it."""
    found = fit_and_score(*split[:4], options=options, coverage=COVERAGE)
    scores, summary = found["scores"], found["summary"]
    return {
        "nlpd": scores["nlpd_in_units"],
        "rmse": scores["rmse"],
        "crps": scores["crps"],
        "coverage": scores["coverage"][f"{COVERAGE:g}"],
        "width": scores["interval_width"],
        "verdict": summary["convergence"]["verdict"],
        "architecture": summary["architecture"],
        "likelihood": summary["likelihood"],
        # Of f, which is mean and log-variance where the noise is heteroscedastic.
        "max_rhat": next(iter(summary["convergence"].values()))["max_rhat"],
        "seconds": found["seconds"],
    }


def ensemble_side(split: Split, seed: int) -> dict[str, Any]:
    """Train the ensemble and score the test rows."""
    started = time.perf_counter()
    rows = standardised(split)
    ensemble, tuned = fit_ensemble(rows.X, rows.y, seed=seed)
    seconds = time.perf_counter() - started
    with torch.no_grad():
        outputs = ensemble.outputs(torch.as_tensor(rows.X_test, dtype=torch.float32)).double().numpy()
    mean, sd = outputs[..., 0], np.exp(0.5 * np.clip(outputs[..., 1], -14, 7))
    scores = mixture_scores(rows.mean + rows.scale * mean, rows.scale * sd, split.y_test)
    return {**scores, "learning_rate": tuned.rate, "epochs": tuned.epochs, "seconds": seconds}


def mixture_scores(mean: Array, sd: Array, y: Array) -> dict[str, float]:
    """Score equal mixtures of normal distributions, of mean and standard deviation (members, n), at y (n,)."""
    forecast = Normals(mean, sd)
    lower, upper, low, high = map(forecast.quantile, ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2, 0.025, 0.975))
    return {
        "nlpd": -float(forecast.log_density(y).mean()),
        "rmse": float(np.sqrt(((mean.mean(axis=0) - y) ** 2).mean())),
        "crps": float(forecast.crps(y).mean()),
        "coverage": float(((lower <= y) & (y <= upper)).mean()),
        "width": float((high - low).mean()),
    }


def line(name: str, split: int, side: str, found: dict[str, Any]) -> str:
    """Return the printed line of one side."""
    note = ""
    if "verdict" in found:
        kind, noise = found["architecture"], found["likelihood"]["name"]
        grades = ", ".join(f"{part} {found['verdict'][part]['grade']}" for part in ("predictions", "posterior"))
        note = f"{kind['name']} {kind.get('k', '')}, {noise}, R-hat {found['max_rhat']:.2f}, {grades}"
    return (
        f"{name:<9}{split:>3}  {side:<9} NLPD {found['nlpd']:8.3f}  RMSE {found['rmse']:9.4g}  "
        f"90% coverage {found['coverage']:5.1%}  width {found['width']:9.4g}  {found['seconds']:5.0f} s  {note}"
    )


def total(means: dict[str, dict[str, float]], side: str) -> str:
    """Return on how many sets the mean NLPD of a side is below the ensemble's."""
    below = [name for name, of in means.items() if of[side] < of[RIVAL]]
    return f"{side}: lower NLPD than the {RIVAL} on {len(below)} of {len(means)} sets ({', '.join(below)})"


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder for each set")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="default all")
    add_arguments(parser, [*PATRAC, RIVAL], ["patrac", RIVAL])
    parser.add_argument(
        "--without-copies", action="store_true", help="score only test rows whose inputs no training row has"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    results, means = Results(options.out), {}
    for name in options.sets:
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
        for split in options.splits:
            rows = load_split(options.data, name, split)
            if options.without_copies:
                rows = without_copies(rows)
            for side in options.sides:
                run = (
                    partial(ensemble_side, rows, seed=split)
                    if side == RIVAL
                    else partial(patrac_side, rows, [*PATRAC[side], *options.fit.split()])
                )
                found[side].append(results.get(f"{name} {split} {side}", run))
                print(line(name, split, side, found[side][-1]), flush=True)
        print(f"\n{name}: means (standard errors) over splits; published over 20 splits: {PUBLISHED[name]}")
        print(format_table(*side_table(found, COLUMNS, RIVAL)) + "\n", flush=True)
        means[name] = {side: float(np.mean([one["nlpd"] for one in of])) for side, of in found.items()}
    if RIVAL in options.sides:
        print("\n".join(total(means, side) for side in options.sides if side != RIVAL))


if __name__ == "__main__":
    main()
