"""Predictive quality of `patrac fit` on UCI sets beside a tuned heteroscedastic deep ensemble, in one run.

`python bench/quality/uci.py --data FOLDER --out uci.json` fits each split with `patrac fit --test-fraction 0` at its
other defaults, scores the split's test rows by `patrac predict --scores`, trains the ensemble on the same rows, prints
a line for each, and writes all scores as JSON. All densities are in the target's units.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command import fit_and_score

from patrac_native.likelihoods import Gaussian, PredictiveMixture
from patrac_native.studies.deep_ensemble import fit_ensemble, standardised
from patrac_native.studies.uci_sets import SETS, Split, load_split

COVERAGE = 0.9


def without_copies(split: Split) -> Split:
    """Leave out the test rows whose inputs some training row has."""
    seen = {tuple(row) for row in split.X.tolist()}
    new = np.array([tuple(row) not in seen for row in split.X_test.tolist()])
    return replace(split, X_test=split.X_test[new], y_test=split.y_test[new])


def patrac_side(split: Split, options: list[str]) -> dict[str, Any]:
    """Fit by the command line and score the test rows by it."""
    found = fit_and_score(split.X, split.y, split.X_test, split.y_test, options=options, coverage=COVERAGE)
    scores, summary = found["scores"], found["summary"]
    return {
        "nlpd": scores["nlpd_in_units"],
        "rmse": scores["rmse"],
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
    X, (X_test,), _, _ = standardised(split.X, split.X_test)
    y, (y_test,), _, scale = standardised(split.y, split.y_test)
    ensemble, tuned = fit_ensemble(X, y, seed=seed)
    seconds = time.perf_counter() - started
    with torch.no_grad():
        outputs = ensemble.outputs(torch.as_tensor(X_test, dtype=torch.float32)).double().numpy()
    sd = np.exp(0.5 * np.clip(outputs[..., 1], -14, 7))
    noise = Gaussian(1.0).noise()
    mixture = PredictiveMixture(outputs[..., 0], type(noise)(sd, sd**2, noise.cdf, noise.quantile, noise.log_density))
    lower, upper = mixture.interval(COVERAGE)
    low, high = mixture.interval(0.95)
    return {
        "nlpd": -float(mixture.log_density(y_test).mean()) + float(np.log(scale)),
        "rmse": float(np.sqrt(((mixture.mean() - y_test) ** 2).mean()) * scale),
        "coverage": float(((lower <= y_test) & (y_test <= upper)).mean()),
        "width": float((high - low).mean() * scale),
        "learning_rate": tuned.rate,
        "epochs": tuned.epochs,
        "seconds": seconds,
    }


def line(name: str, split: int, side: str, found: dict[str, Any]) -> str:
    """Return the printed line of one side."""
    note = ""
    if "verdict" in found:
        kind = found["architecture"]
        noise = found["likelihood"]["name"]
        note = (
            f"{kind['name']} {kind.get('k', '')}, {noise}, R-hat {found['max_rhat']:.2f}, {found['verdict']['grade']}"
        )
    return (
        f"{name:<9}{split:>3}  {side:<9} NLPD {found['nlpd']:8.3f}  RMSE {found['rmse']:9.4g}  "
        f"90% coverage {found['coverage']:5.1%}  width {found['width']:9.4g}  {found['seconds']:5.0f} s  {note}"
    )


def totals(results: list[dict[str, Any]]) -> list[str]:
    """Return a line for each set: means over its splits, and which side has the lower NLPD."""
    lines, won, covered = [], 0, 0
    names = list(dict.fromkeys(one["set"] for one in results))
    for name in names:
        ours, theirs = ([one[side] for one in results if one["set"] == name] for side in ("patrac", "ensemble"))
        a, b = (float(np.mean([one["nlpd"] for one in side])) for side in (ours, theirs))
        inside = float(np.mean([one["coverage"] for one in ours]))
        won += a < b
        covered += 0.86 <= inside <= 0.94
        grades = [one["verdict"]["grade"] for one in ours]
        lines.append(
            f"{name:<9} NLPD {a:8.3f} against {b:8.3f} ({'lower' if a < b else 'higher'}), 90% coverage {inside:.1%}, "
            f"verdicts {', '.join(f'{grade} {grades.count(grade)}' for grade in dict.fromkeys(grades))}"
        )
    lines.append(f"lower NLPD on {won} of {len(names)} sets; coverage within 86-94% on {covered} of {len(names)}")
    return lines


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder for each set")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="default all")
    parser.add_argument("--splits", type=int, nargs="+", default=list(range(5)), help="default 0 1 2 3 4")
    parser.add_argument("--fit", default="", help='further options of `patrac fit`, such as "--minutes 1"')
    parser.add_argument("--side", choices=("patrac", "ensemble"), help="measure one side only")
    parser.add_argument(
        "--without-copies", action="store_true", help="score only test rows whose inputs no training row has"
    )
    parser.add_argument("--out", type=Path, help="JSON file of all scores")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for name in options.sets:
        for split in options.splits:
            data = load_split(options.data, name, split)
            if options.without_copies:
                data = without_copies(data)
            found: dict[str, Any] = {"set": name, "split": split}
            if options.side != "patrac":
                found["ensemble"] = ensemble_side(data, seed=split)
                print(line(name, split, "ensemble", found["ensemble"]), flush=True)
            if options.side != "ensemble":
                found["patrac"] = patrac_side(data, options.fit.split())
                print(line(name, split, "patrac", found["patrac"]), flush=True)
            results.append(found)
            if options.out:
                options.out.write_text(json.dumps(results, indent=1))
    if options.side is None:
        print("\n".join(totals(results)))


if __name__ == "__main__":
    main()
