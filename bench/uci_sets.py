"""The UCI regression sets with their standard splits, read from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from patrac_native.studies.problems import column_moments

FloatArray = npt.NDArray[np.float64]

# The UCI regression sets with their standard splits (Hernandez-Lobato & Adams 2015, Probabilistic backpropagation), by
# their names in tables and their folders, smallest first.
SETS = {
    "yacht": "yacht",
    "boston": "bostonHousing",
    "energy": "energy",
    "concrete": "concrete",
    "wine": "wine-quality-red",
    "kin8nm": "kin8nm",
    "power": "power-plant",
    "naval": "naval-propulsion-plant",
}


class Split(NamedTuple):
    """Training and test rows of one split, X (n, d) and y (n,); mean and scale of the target if it is standardised."""

    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray
    mean: float = 0.0
    scale: float = 1.0


def load_split(data: Path, name: str, split: int) -> Split:
    """Read one split of a set from the folder that holds the sets; raise FileNotFoundError if it is not there."""
    folder = data / SETS[name]
    if not folder.is_dir():
        raise FileNotFoundError(f"--data: there is no folder {folder}; give the folder that holds {SETS[name]}/.")
    rows = np.loadtxt(folder / "data.txt")
    features = np.loadtxt(folder / "index_features.txt", dtype=int, ndmin=1)
    target = int(np.loadtxt(folder / "index_target.txt"))
    train, test = (np.loadtxt(folder / f"index_{part}_{split}.txt", dtype=int) for part in ("train", "test"))
    return Split(rows[train][:, features], rows[train, target], rows[test][:, features], rows[test, target])


def standardised(split: Split) -> Split:
    """Standardise inputs and target of a split by its training rows; constant columns are left out."""
    kept = np.ptp(split.X, axis=0) > 0
    center, spread = column_moments(split.X[:, kept])
    mean, scale = float(split.y.mean()), float(split.y.std())
    X, X_test = ((part[:, kept] - center) / spread for part in (split.X, split.X_test))
    return Split(X, (split.y - mean) / scale, X_test, (split.y_test - mean) / scale, mean, scale)
