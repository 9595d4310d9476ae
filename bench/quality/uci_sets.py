"""The UCI regression sets with their standard splits (Hernandez-Lobato & Adams 2015, Probabilistic backpropagation)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

# The sets by their names in tables and their folders, smallest first.
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


@dataclass(frozen=True)
class Split:
    """Training and test rows of one split, in the data's own units.

    Attributes
    ----------
    X, X_test : ndarray, shape (n, d)
    y, y_test : ndarray, shape (n,)
    """

    X: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    X_test: npt.NDArray[np.float64]
    y_test: npt.NDArray[np.float64]


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
