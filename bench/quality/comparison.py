"""What the comparisons of predictions share: `patrac fit` as a side, results that a later run goes on from, tables."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_PATRAC = (sys.executable, "-m", "patrac_native.cli.main")


def fit_and_score(
    X: Array, y: Array, X_test: Array, y_test: Array, *, options: Sequence[str], coverage: float = 0.9
) -> dict[str, Any]:
    """Fit all training rows by the command line, as a user does, and score the test rows by it.

    "scores" are those of `patrac predict --scores`, "summary" is that of `patrac fit`, "seconds" are of the fit.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        header = ",".join([*(f"x{column}" for column in range(X.shape[1])), "y"])
        for name, inputs, targets in (("train", X, y), ("test", X_test, y_test)):
            rows = np.column_stack([inputs, targets])
            np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header=header, comments="", fmt="%.17g")
        started = time.perf_counter()
        _run(["fit", "train.csv", "--target", "y", "--test-fraction", "0", "--out", "fit", *options], folder)
        seconds = time.perf_counter() - started
        _run(["predict", "fit", "test.csv", "--coverage", str(coverage), "--scores", "scores.json"], folder)
        scores = json.loads((folder / "scores.json").read_text())
        summary = json.loads((folder / "fit" / "summary.json").read_text())
    return {"scores": scores, "summary": summary, "seconds": seconds}


def _run(arguments: Sequence[str], folder: Path) -> None:
    """Run `patrac` in a folder; show what it printed if it fails."""
    done = subprocess.run([*_PATRAC, *arguments], cwd=folder, text=True, stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"patrac {' '.join(arguments)} failed:\n{done.stdout}")


class Results:
    """Results by key in a JSON file, which is written whole after each, and from which a later run goes on."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.found: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the result of a key, made and written if it is not there."""
        if key not in self.found:
            self.found[key] = make()
            if self._path:
                partial = self._path.with_name(f"{self._path.name}.part")
                partial.write_text(json.dumps(self.found, indent=1))
                os.replace(partial, self._path)
        return self.found[key]


def add_arguments(parser: argparse.ArgumentParser, sides: Sequence[str], default: Sequence[str]) -> None:
    """Add the options that all comparisons have."""
    parser.add_argument("--splits", type=int, nargs="+", default=list(range(5)), help="default 0 1 2 3 4")
    parser.add_argument("--sides", nargs="+", choices=sides, default=default, help=f"default {' '.join(default)}")
    parser.add_argument("--fit", default="", help='further options of `patrac fit`, such as "--minutes 1"')
    parser.add_argument("--out", type=Path, help="JSON file of all results; a later run goes on from it")


def mean_se(values: Sequence[float], decimals: int, *, sign: bool = False) -> str:
    """Format mean and standard error of the mean as "2.31 (0.05)"; the mean alone of a single value.

    Examples
    --------
    >>> mean_se([1.0, 3.0], 1), mean_se([2.0], 1, sign=True)
    ('2.0 (1.0)', '+2.0')
    """
    array = np.asarray(values)
    mean = f"{array.mean():{'+' if sign else ''},.{decimals}f}"
    if array.size < 2:
        return mean
    return f"{mean} ({array.std(ddof=1) / math.sqrt(array.size):,.{decimals}f})"


def side_table(
    sides: Mapping[str, Sequence[Mapping[str, Any]]], columns: Mapping[str, tuple[str, int]], rival: str
) -> tuple[list[str], list[list[str]]]:
    """Return means (standard errors) over splits, a row for each side, with paired differences of the NLPD."""
    rows = []
    for side, scores in sides.items():
        cells = [
            mean_se([one[name] for one in scores], decimals) if name in scores[0] else ""
            for name, decimals in columns.values()
        ]
        paired = [one["nlpd"] - other["nlpd"] for one, other in zip(scores, sides.get(rival, []), strict=False)]
        rows.append([side, *cells, mean_se(paired, 3, sign=True) if side != rival and paired else ""])
    return ["", *columns, "NLPD less rival's"], rows
