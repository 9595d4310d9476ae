"""Predictive quality of `patrac fit` on scikit-learn's digits beside a deep ensemble, in one run.

`python bench/quality/digits.py --out digits.json` holds out a fifth of the 1,797 images in each split, fits the others
with `patrac fit --test-fraction 0` at its other defaults, trains the ensemble on the same rows, prints a line for each
split, and writes all scores as JSON.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import torch
from comparison import Array, Results, add_arguments, fit_and_score, side_table
from deep_ensemble import MEMBERS, fit_ensemble
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from patrac_native.diagnostics import accuracy, class_nlpd
from patrac_native.studies.tables import format_table

RIVAL = "ensemble"
COLUMNS = {"accuracy": ("accuracy", 4), "NLPD": ("nlpd", 4), "seconds": ("seconds", 0)}
Arrays = tuple[Array, Array, Array, Array]


def patrac_side(split: Arrays, options: list[str]) -> dict[str, Any]:
    """Fit by the command line and score the test rows by it."""
    X, X_test, y, y_test = split
    found = fit_and_score(X, y, X_test, y_test, options=["--task", "classification", *options])
    return {
        **{name: found["scores"][name] for name in ("accuracy", "nlpd", "ece")},
        "networks": {name: found["scores"]["network"][name] for name in ("accuracy", "nlpd")},
        "verdict": found["summary"]["convergence"]["verdict"]["predictions"]["grade"],
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, ["patrac", RIVAL], ["patrac", RIVAL])
    options = parser.parse_args()
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    results = Results(options.out)
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
    for seed in options.splits:
        split = train_test_split(images, labels, test_size=0.2, random_state=seed, stratify=labels)
        for side in options.sides:
            run = partial(patrac_side, split, options.fit.split())
            if side == RIVAL:
                run = partial(ensemble_side, split, seed)
            found[side].append(results.get(f"{seed} {side}", run))
            print(line(seed, side, found[side][-1]), flush=True)
    print(format_table(*side_table(found, COLUMNS, RIVAL)))


if __name__ == "__main__":
    main()
