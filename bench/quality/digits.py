"""Predictive quality of `patrac fit` on scikit-learn's digits beside a deep ensemble, in one run.

`python bench/quality/digits.py --out digits.json` holds out a fifth of the 1,797 images in each split, fits the others
with `patrac fit --test-fraction 0` at its other defaults, trains the ensemble on the same rows, prints a line for each
split, and writes all scores as JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from command import fit_and_score
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from patrac_native.diagnostics import accuracy, class_nlpd
from patrac_native.studies.deep_ensemble import MEMBERS, fit_ensemble

Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


def patrac_side(split: Arrays, options: list[str]) -> dict[str, Any]:
    """Fit by the command line and score the test rows by it."""
    X, X_test, y, y_test = split
    found = fit_and_score(X, y, X_test, y_test, options=["--task", "classification", *options])
    return {
        **{name: found["scores"][name] for name in ("accuracy", "nlpd", "ece")},
        "networks": {name: found["scores"]["network"][name] for name in ("accuracy", "nlpd")},
        "verdict": found["summary"]["convergence"]["verdict"]["grade"],
        "max_rhat": found["summary"]["convergence"]["class probabilities"]["max_rhat"],
        "seconds": found["seconds"],
    }


def ensemble_side(split: Arrays, seed: int) -> dict[str, Any]:
    """Train the ensemble and score the test rows."""
    X, X_test, y, y_test = split
    # Pixels hold 0 to 16; one scale for all keeps those that are nearly always 0 from dominating.
    ensemble, tuned = fit_ensemble(X / 8 - 1, y, classes=10, seed=seed)
    with torch.no_grad():
        outputs = ensemble.outputs(torch.as_tensor(X_test / 8 - 1, dtype=torch.float32)).double()
    p = torch.softmax(outputs, dim=-1).numpy()[None].reshape(1, MEMBERS, len(y_test), 10)
    return {"accuracy": accuracy(p, y_test), "nlpd": class_nlpd(p, y_test), "epochs": tuned.epochs}


def line(split: int, side: str, found: dict[str, Any]) -> str:
    """Return the printed line of one side."""
    text = f"split {split}  {side:<9} accuracy {found['accuracy']:.4f}, NLL {found['nlpd']:.4f}"
    if "networks" not in found:
        return text
    networks = found["networks"]
    return (
        f"{text}; its networks alone {networks['accuracy']:.4f}, {networks['nlpd']:.4f}; R-hat "
        f"{found['max_rhat']:.2f}, {found['verdict']}, {found['seconds']:.0f} s"
    )


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, nargs="+", default=list(range(5)), help="seeds; default 0 1 2 3 4")
    parser.add_argument("--fit", default="", help='further options of `patrac fit`, such as "--minutes 1"')
    parser.add_argument("--side", choices=("patrac", "ensemble"), help="measure one side only")
    parser.add_argument("--out", type=Path, help="JSON file of all scores")
    options = parser.parse_args()
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    results: list[dict[str, Any]] = []
    for seed in options.splits:
        split = train_test_split(images, labels, test_size=0.2, random_state=seed, stratify=labels)
        found: dict[str, Any] = {"split": seed}
        if options.side != "patrac":
            found["ensemble"] = ensemble_side(split, seed)
            print(line(seed, "ensemble", found["ensemble"]), flush=True)
        if options.side != "ensemble":
            found["patrac"] = patrac_side(split, options.fit.split())
            print(line(seed, "patrac", found["patrac"]), flush=True)
        results.append(found)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1))
    for side in (name for name in ("patrac", "ensemble") if name in results[0]):
        means = {name: float(np.mean([one[side][name] for one in results])) for name in ("accuracy", "nlpd")}
        print(f"{side:<9} accuracy {means['accuracy']:.4f}, NLL {means['nlpd']:.4f}")


if __name__ == "__main__":
    main()
