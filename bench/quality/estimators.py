"""Intervals, searches and times of the estimators of scikit-learn.

`python bench/quality/estimators.py --data FOLDER --out estimators.json` runs all parts, or those of `--parts`:

intervals  90% intervals of `PatracRegressor` at its defaults on held-out rows of five sets, beside split-conformal
           intervals (Papadopoulos et al. 2002; Lei et al. 2018) around the same network: layer sizes, training and
           number of networks are those of the estimator's posterior, trained on three quarters of the training rows;
           the intervals are its mean prediction plus and minus the quantile of the absolute residuals of the other
           quarter that guarantees coverage in finite samples.
search     GridSearchCV over `k` on diabetes and on digits.
times      time of a fit of all rows of diabetes at the defaults, and of abalone with minutes=0.8, with their verdicts.

Results but times do not depend on the load of the machine. Widths are in the target's units. Each finished split is
written to `--out` at once, and a later run with the same file goes on from there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import GridSearchCV, train_test_split

import patrac_native as pn
from patrac_native.fit.fit_data import DataRows
from patrac_native.fit.model_settings import ModelSettings
from patrac_native.fit.tuning import train_networks
from patrac_native.studies.uci_sets import SETS, load_split

COVERAGE = 0.9
_NAMES = ("yacht", "diabetes", "energy", "concrete", "abalone")
# The share of the training rows by which conformal intervals are calibrated.
_CALIBRATION = 0.25
Array = npt.NDArray[Any]


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


def split_of(name: str, split: int, data: Path) -> tuple[Array, Array, Array, Array]:
    """Return X, X_test, y and y_test: the standard split of a UCI set, or a tenth of the rows at random."""
    if name in SETS:
        found = load_split(data / "uci", name, split)
        return found.X, found.X_test, found.y, found.y_test
    X, X_test, y, y_test = train_test_split(*whole_set(name, data), test_size=0.1, random_state=split)
    return X, X_test, y, y_test


def fitted(estimator: Any, X: Array, y: Array) -> Any:
    """Return the fitted estimator; its warnings are in its report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return estimator.fit(X, y)


def conformal(X: Array, y: Array, X_test: Array, model: pn.PatracRegressor, seed: int) -> tuple[Array, float]:
    """Return the centres of split-conformal intervals and half of their width."""
    X, X_other, y, y_other = train_test_split(X, y, test_size=_CALIBRATION, random_state=seed)
    X_scaling, y_scaling = model.input_scaling_, model.target_scaling_
    settings = ModelSettings(hidden=list(model.hidden_layer_sizes), seed=seed, progress=False)
    nets = train_networks(
        model.draws_.members[0].network.net.layer_sizes,
        DataRows(X_scaling.transform(X), y_scaling.transform(y[:, None])),
        pn.Gaussian("sampled") if model.posterior_.likelihood.is_sampled else model.posterior_.likelihood,
        networks=len(model.draws_.members),
        settings=settings,
    )

    def predicted(rows: Array) -> Array:
        mean = np.mean([net.predict(X_scaling.transform(rows))[:, 0] for net in nets], axis=0)
        return y_scaling.inverse_target(mean)

    residuals = np.sort(np.abs(y_other - predicted(X_other)))
    rank = math.ceil((len(residuals) + 1) * COVERAGE)
    return predicted(X_test), float(residuals[min(rank, len(residuals)) - 1])


def intervals(
    data: Path, splits: range, names: list[str], kept: list[dict[str, Any]], save: Callable[[Any], None]
) -> list[dict[str, Any]]:
    """Fit each split of each set that is not kept; return coverage and width of both kinds of intervals."""
    results = list(kept)
    done = {(one["set"], one["split"]) for one in kept}
    # Splits first, so that an interrupted run has as many of each set.
    for split in splits:
        for name in names:
            if (name, split) in done:
                continue
            X, X_test, y, y_test = split_of(name, split, data)
            clock, cpu = time.perf_counter(), time.process_time()
            reg = fitted(pn.PatracRegressor(random_state=split), X, y)
            spent = time.perf_counter() - clock, time.process_time() - cpu
            lower, upper = reg.predict_interval(X_test, COVERAGE)
            centre, half = conformal(X, y, X_test, reg, split)
            found = {
                "set": name,
                "split": split,
                "rows": len(y_test),
                "coverage": float(((lower <= y_test) & (y_test <= upper)).mean()),
                "width": float((upper - lower).mean()),
                "conformal_coverage": float((np.abs(y_test - centre) <= half).mean()),
                "conformal_width": 2 * half,
                "rmse": float(np.sqrt(np.mean((reg.predict(X_test) - y_test) ** 2))),
                "conformal_rmse": float(np.sqrt(np.mean((centre - y_test) ** 2))),
                "architecture": reg.draws_.members[0].network.architecture.label(),
                "networks": len(reg.draws_.members),
                "verdict": reg.report_.verdict.grade,
                "seconds": spent[0],
                "processor_seconds": spent[1],
            }
            results.append(found)
            print(
                f"{name:<9}{split:>3}  covers {found['coverage']:6.1%}, width {found['width']:7.3g}  conformal "
                f"{found['conformal_coverage']:6.1%}, {found['conformal_width']:7.3g}  {found['architecture']} of "
                f"{found['networks']}, {found['verdict']}, {spent[0]:.0f} s ({spent[1]:.0f} of processors)",
                flush=True,
            )
            save(results)
    for line in totals(results):
        print(line)
    return results


def totals(results: list[dict[str, Any]]) -> list[str]:
    """Return a line for each set: coverage of all its held-out rows and mean widths."""
    lines, covered, narrower = [], 0, 0
    names = list(dict.fromkeys(one["set"] for one in results))
    for name in names:
        rows = [one for one in results if one["set"] == name]
        weights = [one["rows"] for one in rows]
        inside = float(np.average([one["coverage"] for one in rows], weights=weights))
        other = float(np.average([one["conformal_coverage"] for one in rows], weights=weights))
        width, theirs = (float(np.mean([r[w] for r in rows])) for w in ("width", "conformal_width"))
        covered += 0.85 <= inside <= 0.95
        narrower += width <= theirs
        grades = [one["verdict"] for one in rows]
        lines.append(
            f"{name:<9} {len(rows)} splits: covers {inside:.1%}, mean width {width:.4g}; conformal {other:.1%}, "
            f"{theirs:.4g}; verdicts {', '.join(f'{grade} {grades.count(grade)}' for grade in dict.fromkeys(grades))}"
        )
    lines.append(f"coverage within 85-95% on {covered} of {len(names)} sets; no wider on {narrower} of {len(names)}")
    return lines


def search() -> list[dict[str, Any]]:
    """Search k by cross-validation on diabetes and on digits."""
    results = []
    given: dict[str, Any] = {"l2": 1.0, "max_iter": 200, "minutes": 0.02, "random_state": 0}
    sides = {
        "diabetes": (pn.PatracRegressor(**given), load_diabetes(return_X_y=True)),
        "digits": (pn.PatracClassifier(**given), load_digits(return_X_y=True)),
    }
    for name, (estimator, (X, y)) in sides.items():
        clock = time.perf_counter()
        found = fitted(GridSearchCV(estimator, {"k": [2, 5, 15]}, cv=3), X, y)
        scores = dict(zip(["2", "5", "15"], found.cv_results_["mean_test_score"].tolist(), strict=True))
        seconds = time.perf_counter() - clock
        results.append({"set": name, "best": found.best_params_["k"], "scores": scores, "seconds": seconds})
        print(f"{name:<9} best k {found.best_params_['k']}, mean scores {scores}, {seconds:.0f} s", flush=True)
    return results


def times(data: Path) -> list[dict[str, Any]]:
    """Fit all rows of diabetes and abalone; return times and verdicts."""
    results = []
    for name, given in (("diabetes", {}), ("abalone", {"minutes": 0.8})):
        X, y = whole_set(name, data)
        clock, cpu = time.perf_counter(), time.process_time()
        reg = fitted(pn.PatracRegressor(random_state=0, **given), X, y)
        found = {
            "set": name,
            "seconds": time.perf_counter() - clock,
            "processor_seconds": time.process_time() - cpu,
            "stages": reg.report_.seconds,
            "load": os.getloadavg()[0],
            "verdict": reg.report_.verdict.grade,
            "report": str(reg.report_),
        }
        results.append(found)
        print(
            f"{name:<9} {found['seconds']:.1f} s, {found['processor_seconds']:.1f} s of processors (load "
            f"{found['load']:.1f}), verdict {found['verdict']}\n{found['report']}",
            flush=True,
        )
    return results


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds abalone/ and uci/")
    parser.add_argument("--parts", nargs="+", choices=("intervals", "search", "times"), help="default all")
    parser.add_argument("--sets", nargs="+", choices=_NAMES, default=list(_NAMES), help="of the intervals; default all")
    parser.add_argument("--first-split", type=int, default=0, help="of each set; default 0")
    parser.add_argument("--splits", type=int, default=10, help="number of splits of each set; default 10")
    parser.add_argument("--out", type=Path, help="JSON file of all results")
    options = parser.parse_args()
    parts = options.parts or ["times", "search", "intervals"]
    content: dict[str, Any] = {}
    if options.out and options.out.exists():
        content = json.loads(options.out.read_text())

    def save(part: str, results: Any) -> None:
        content[part] = results
        if options.out:
            partial = options.out.with_name(f"{options.out.name}.part")
            partial.write_text(json.dumps(content, indent=1))
            os.replace(partial, options.out)

    for part in parts:
        if part == "times":
            save(part, times(options.data))
        elif part == "search":
            save(part, search())
        else:
            splits = range(options.first_split, options.first_split + options.splits)
            kept = content.get("intervals", [])
            intervals(options.data, splits, options.sets, kept, lambda found: save("intervals", found))


if __name__ == "__main__":
    main()
