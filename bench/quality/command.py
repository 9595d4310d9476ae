"""The package's side of a comparison: `patrac fit` and `patrac predict` on files, as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_PATRAC = (sys.executable, "-c", "import sys; from patrac_native.cli.main import main; sys.exit(main())")


def fit_and_score(
    X: npt.NDArray[Any],
    y: npt.NDArray[Any],
    X_test: npt.NDArray[Any],
    y_test: npt.NDArray[Any],
    *,
    options: Sequence[str],
    coverage: float = 0.9,
) -> dict[str, Any]:
    """Fit all training rows by the command line and score the test rows by it.

    Returns
    -------
    dict
        "scores" as `patrac predict --scores` writes them, "summary" as `patrac fit` does, and "seconds" of the fit.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        header = ",".join([*(f"x{column}" for column in range(X.shape[1])), "y"])
        for name, inputs, targets in (("train", X, y), ("test", X_test, y_test)):
            rows = np.column_stack([inputs, targets])
            np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header=header, comments="", fmt="%.17g")
        fit = ["fit", "train.csv", "--target", "y", "--test-fraction", "0", "--out", "fit", *options]
        predict = ["predict", "fit", "test.csv", "--coverage", str(coverage), "--scores", "scores.json"]
        started = time.perf_counter()
        _run(fit, folder)
        seconds = time.perf_counter() - started
        _run(predict, folder)
        scores = json.loads((folder / "scores.json").read_text())
        summary = json.loads((folder / "fit" / "summary.json").read_text())
    return {"scores": scores, "summary": summary, "seconds": seconds}


def _run(arguments: Sequence[str], folder: Path) -> None:
    """Run `patrac` in a folder; show what it printed if it fails."""
    done = subprocess.run([*_PATRAC, *arguments], cwd=folder, text=True, stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"patrac {' '.join(arguments)} failed:\n{done.stdout}")
