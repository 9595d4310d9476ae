"""The posteriors of real problems, each with a trained network, rows held out and inputs at which f is watched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from ess_problems import DATA, Data, Rows, abalone, digits, sine, trained
from uci_sets import Split, load_split, standardised

import patrac_native as pn

AIRFOIL_TRAIN = 1202  # of 1,503 rows, four fifths
HIDDEN, AIRFOIL_L2 = (16, 16, 16, 16), 0.1
EPOCHS, VALIDATION = 2000, 0.2
# Held-out rows that are scored, and rows of them at which f is watched.
SCORED, WATCHED = 100, 50


def airfoil(seed: int) -> Data:
    """Return airfoil self-noise, 5-16-16-16-16-1, with sampled noise; the seed splits the rows."""
    return _trained(airfoil_rows(seed), HIDDEN, AIRFOIL_L2)


def airfoil_rows(seed: int) -> Split:
    """Return the rows of airfoil self-noise, standardised; the seed splits them."""
    table = np.loadtxt(DATA / "airfoil" / "airfoil.csv", delimiter=",", skiprows=1)
    table = table[np.random.default_rng(seed).permutation(len(table))]
    (X, X_test), (y, y_test) = (np.split(part, [AIRFOIL_TRAIN]) for part in (table[:, :-1], table[:, -1]))
    return standardised(Split(X, y, X_test, y_test))


def concrete(seed: int) -> Data:
    """Return concrete strength, 8-50-1, with sampled noise; the seed is the number of the standard split."""
    return _trained(standardised(load_split(DATA / "uci", "concrete", seed)), (50,), l2=0.3)


def yacht(seed: int) -> Data:
    """Return yacht hydrodynamics, 6-50-1, with sampled noise; the seed is the number of the standard split."""
    return _trained(standardised(load_split(DATA / "uci", "yacht", seed)), (50,), l2=0.3)


def _trained(found: Split, hidden: tuple[int, ...], l2: float) -> Data:
    """Train with validation rows, on which the prior of the noise rests."""
    rows = Rows(found.X, found.y, found.X_test, found.y_test, found.X_test[:WATCHED])
    sizes = (found.X.shape[1], *hidden, 1)
    return trained(sizes, rows, pn.Gaussian("sampled"), l2, EPOCHS, validation_fraction=VALIDATION)


def rising_noise(seed: int) -> Data:
    """Return a sine whose noise deviation rises from 0.05 to 0.5, 100 rows, 1-50-50-2, with noise of each row."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (200, 1))
    y = np.sin(2 * X[:, 0]) + 0.05 * 10 ** ((X[:, 0] + 2) / 4) * rng.standard_normal(200)
    return _noise_of_each_row(standardised(Split(X[:100], y[:100], X[100:], y[100:])), (50, 50))


def concrete_rows(seed: int) -> Data:
    """Return concrete strength, 8-50-2, with noise of each row; the seed is the number of the standard split."""
    return _noise_of_each_row(standardised(load_split(DATA / "uci", "concrete", seed)), (50,))


def _noise_of_each_row(found: Split, hidden: tuple[int, ...]) -> Data:
    """Train a network with a mean and a log-variance for each row."""
    rows = Rows(found.X, found.y, found.X_test, found.y_test, found.X_test[:WATCHED])
    return trained((found.X.shape[1], *hidden, 2), rows, pn.HeteroscedasticGaussian(), 0.3, EPOCHS)


def narrow_digits(seed: int) -> Data:
    """Return scikit-learn's digits, 1,200 of their rows, 64-16-16-10; the seed selects the rows."""
    return digits(seed, hidden=16)


class Problem(NamedTuple):
    """A data set and an architecture."""

    data: Callable[[int], Data]
    architecture: str


PROBLEMS = {
    "sine-full": Problem(sine, "Full"),
    "sine-mix5": Problem(sine, "Mix(5)"),
    "abalone-full": Problem(abalone, "Full"),
    "abalone-mix5": Problem(abalone, "Mix(5)"),
    "digits-mix5": Problem(narrow_digits, "Mix(5)"),
    "digits-full": Problem(narrow_digits, "Full"),
    "airfoil-full": Problem(airfoil, "Full"),
    "concrete-full": Problem(concrete, "Full"),
    "yacht-full": Problem(yacht, "Full"),
    "rising-noise-full": Problem(rising_noise, "Full"),
    "rising-noise-mix5": Problem(rising_noise, "Mix(5)"),
    "concrete-rows-out45": Problem(concrete_rows, "Out(45)"),
}


@cache
def data_of(load: Callable[[int], Data], seed: int) -> Data:
    """Return the data of a problem, whose network is trained once for all architectures."""
    found = load(seed)
    return replace(found, X_test=found.X_test[:SCORED], y_test=found.y_test[:SCORED])
