"""90% intervals of `PatracRegressor` at its defaults beside split-conformal ones on held-out rows of five sets.

`python bench/quality/estimators.py --data FOLDER --out estimators.json` fits each split and prints coverage and width.
The conformal intervals (Papadopoulos et al. 2002; Lei et al. 2018) are around networks of the same sizes, training and
number as those of the estimator's posterior, trained on three quarters of the training rows: their mean prediction plus
and minus the quantile of the absolute residuals of the other quarter that guarantees coverage in finite samples.
Results but times do not depend on the load of the machine. Widths are in the target's units.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from comparison import Array, Results
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from uci_sets import SETS, Split, load_split, standardised

import patrac_native as pn
from patrac_native.studies.tables import format_table

COVERAGE = 0.9
NAMES = ("yacht", "diabetes", "energy", "concrete", "abalone")
# The share of the training rows by which conformal intervals are calibrated.
CALIBRATION = 0.25


def whole_set(name: str, data: Path) -> tuple[Array, Array]:
    """Return all rows of diabetes or abalone; the sexes of abalone are two columns of zeros and ones."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        return X, y
    (path,) = (data / "abalone").glob("abalone.[cd][sa][vt]*")
    table = [line.split(",") for line in path.read_text().split() if line[:2] in ("M,", "F,", "I,")]
    sex = [[float(row[0] == "M"), float(row[0] == "F")] for row in table]
    numbers = np.array([row[1:] for row in table], dtype=np.float64)
    return np.column_stack([sex, numbers[:, :-1]]), numbers[:, -1]


def split_of(name: str, split: int, data: Path) -> Split:
    """Return the standard split of a UCI set, or a tenth of the rows held out at random."""
    if name in SETS:
        return load_split(data / "uci", name, split)
    X, X_test, y, y_test = train_test_split(*whole_set(name, data), test_size=0.1, random_state=split)
    return Split(X, y, X_test, y_test)


def conformal(rows: Split, model: pn.PatracRegressor, seed: int) -> tuple[Array, float]:
    """Return the centres of split-conformal intervals and half of their width."""
    X, X_other, y, y_other = train_test_split(rows.X, rows.y, test_size=CALIBRATION, random_state=seed)
    training = standardised(Split(X, y, np.concatenate([X_other, rows.X_test]), np.concatenate([y_other, rows.y_test])))
    draws = model.draws_.members if isinstance(model.draws_, pn.DrawsMixture) else (model.draws_,)
    sizes = [training.X.shape[1], *draws[0].network.net.layer_sizes[1:]]
    if model.posterior_.likelihood.is_sampled:
        likelihood: Any = pn.Gaussian("sampled")
    else:
        likelihood = model.posterior_.likelihood
    nets = pn.train_many(
        sizes, training.X, training.y, networks=len(draws), likelihood=likelihood, seed=seed, progress=False
    )
    predicted = training.mean + training.scale * np.mean([net.predict(training.X_test)[:, 0] for net in nets], axis=0)
    residuals = np.sort(np.abs(y_other - predicted[: len(y_other)]))
    rank = math.ceil((len(residuals) + 1) * COVERAGE)
    return predicted[len(y_other) :], float(residuals[min(rank, len(residuals)) - 1])


def measure(name: str, split: int, data: Path) -> dict[str, Any]:
    """Fit a split; return coverage and width of both kinds of intervals."""
    rows = split_of(name, split, data)
    clock, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the verdict is in the results
        reg = pn.PatracRegressor(random_state=split).fit(rows.X, rows.y)
    spent = time.perf_counter() - clock, time.process_time() - cpu
    lower, upper = reg.predict_interval(rows.X_test, COVERAGE)
    centre, half = conformal(rows, reg, split)
    return {
        "rows": len(rows.y_test),
        "coverage": float(((lower <= rows.y_test) & (rows.y_test <= upper)).mean()),
        "width": float((upper - lower).mean()),
        "conformal_coverage": float((np.abs(rows.y_test - centre) <= half).mean()),
        "conformal_width": 2 * half,
        "rmse": float(np.sqrt(np.mean((reg.predict(rows.X_test) - rows.y_test) ** 2))),
        "conformal_rmse": float(np.sqrt(np.mean((centre - rows.y_test) ** 2))),
        "verdict": reg.report_.verdict.predictions.grade,
        "seconds": spent[0],
        "processor_seconds": spent[1],
    }


def totals(name: str, found: list[dict[str, Any]]) -> list[str]:
    """Return the row of a set: coverage of all its held-out rows and mean widths."""
    weights, grades = [one["rows"] for one in found], [one["verdict"] for one in found]
    inside, other = (
        np.average([one[kind] for one in found], weights=weights) for kind in ("coverage", "conformal_coverage")
    )
    width, theirs = (np.mean([one[kind] for one in found]) for kind in ("width", "conformal_width"))
    verdicts = ", ".join(f"{grade} {grades.count(grade)}" for grade in dict.fromkeys(grades))
    return [name, str(len(found)), f"{inside:.1%}", f"{width:.4g}", f"{other:.1%}", f"{theirs:.4g}", verdicts]


def main() -> None:
    """Run all splits of all sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds abalone/ and uci/")
    parser.add_argument("--sets", nargs="+", choices=NAMES, default=list(NAMES), help="default all")
    parser.add_argument("--splits", type=int, nargs="+", default=list(range(10)), help="default 0 to 9")
    parser.add_argument("--out", type=Path, help="JSON file of all results; a later run goes on from it")
    options = parser.parse_args()
    results = Results(options.out)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in options.sets}
    # Splits first, so that an interrupted run has as many of each set.
    for split in options.splits:
        for name in options.sets:
            one = results.get(f"{name} {split}", partial(measure, name, split, options.data))
            found[name].append(one)
            print(
                f"{name:<9}{split:>3}  covers {one['coverage']:6.1%}, width {one['width']:7.3g}  conformal "
                f"{one['conformal_coverage']:6.1%}, {one['conformal_width']:7.3g}  {one['verdict']}, "
                f"{one['seconds']:.0f} s ({one['processor_seconds']:.0f} of processors)",
                flush=True,
            )
    headers = ["", "splits", "covers", "mean width", "conformal covers", "mean width", "verdicts"]
    print(format_table(headers, [totals(name, of) for name, of in found.items()]))


if __name__ == "__main__":
    main()
