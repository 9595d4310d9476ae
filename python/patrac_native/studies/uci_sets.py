"""The UCI regression sets with their standard splits (Hernandez-Lobato & Adams 2015, Probabilistic backpropagation)."""

from __future__ import annotations

import hashlib
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
# Published NLPD over 20 of these splits, mean and its spread as printed, networks with one hidden layer of 50 nodes:
# Lakshminarayanan, Pritzel & Blundell (2017), Simple and scalable predictive uncertainty estimation using deep
# ensembles, Table 1, whose column of MC dropout is that of Gal & Ghahramani (2016).
PUBLISHED_NLPD = {
    "MC dropout": {
        "boston": "2.46 (0.25)",
        "concrete": "3.04 (0.09)",
        "energy": "1.99 (0.09)",
        "kin8nm": "-0.95 (0.03)",
        "naval": "-3.80 (0.05)",
        "power": "2.80 (0.05)",
        "wine": "0.93 (0.06)",
        "yacht": "1.55 (0.12)",
    },
    "deep ensembles": {
        "boston": "2.41 (0.25)",
        "concrete": "3.06 (0.18)",
        "energy": "1.38 (0.22)",
        "kin8nm": "-1.20 (0.02)",
        "naval": "-5.63 (0.05)",
        "power": "2.79 (0.04)",
        "wine": "0.94 (0.12)",
        "yacht": "1.18 (0.21)",
    },
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


def digest(folder: Path) -> str:
    """Return eight characters that change with any file of a set's folder."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.txt")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:8]


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
