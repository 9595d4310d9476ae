"""The posteriors whose effective draws are counted, the quantities that are watched, and the requirements."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from cases import ARCHITECTURES

import patrac_native as pn
from patrac_native.studies.problems import ABALONE_EPOCHS, ABALONE_L2, abalone_problem, sine_problem

FloatArray = npt.NDArray[Any]
# The folder of the real data, the same as for the tests.
DATA = Path(os.environ.get("PATRAC_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
DIGITS_TRAIN, DIGITS_GRID, DIGITS_HIDDEN, DIGITS_LARGEST = 1200, 60, 32, 16.0
EPOCHS = 1000
# Added to the seed of the sine problem for rows that were held out.
HELD_OUT_SEED = 10_000


class MinRatios(NamedTuple):
    """Minimum ratios of effective draws a second of `kernel="auto"` to those of the peers."""

    jax: float | None = None
    nuts: float | None = None


REQUIRED = {
    "Full": MinRatios(20, 20),
    "Mix(5)": MinRatios(25, 60),
    "Sep(5)": MinRatios(50, 500),
    "Out(45)": MinRatios(100),
}
# Effective draws a second by the paper's ESS, on its authors' laptop (its Table 2).
PAPER_RATE = {"Full": 3.8, "Mix(5)": 4.1, "Sep(5)": 14.6, "Out(45)": 13.4}


@dataclass(frozen=True)
class Data:
    """A trained network with its data, the inputs and quantities that are watched, and rows that were held out."""

    net: pn.Network
    prior: pn.TraceClassPrior
    likelihood: Any
    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray
    grid: FloatArray
    watch: Callable[[FloatArray], dict[str, FloatArray]]

    def posterior(self, architecture: str) -> pn.Posterior:
        """Return the posterior of an architecture in float32."""
        return pn.Posterior(self.net, ARCHITECTURES[architecture], self.prior, self.likelihood, self.X, self.y)


def outputs(f: FloatArray) -> dict[str, FloatArray]:
    """Return f itself, (draw, n, m), for a regression."""
    return {"f": f}


def classes(f: FloatArray) -> dict[str, FloatArray]:
    """Return the identified part of class logits, their differences from the mean of the row, and the probabilities.

    Speed claims use the first, because the draws of a probability near 0 or 1 are so skewed that a few excursions
    determine its autocorrelation.
    """
    from scipy.special import softmax

    return {"logits": f - f.mean(axis=-1, keepdims=True), "probabilities": softmax(f, axis=-1)}


def sine(seed: int) -> Data:
    """Return the paper's sine problem: 100 rows, 1-50-50-1; seed 0 has the data of `cases.sine_problem`."""
    problem, held_out = sine_problem(seed, n_test=0), sine_problem(HELD_OUT_SEED + seed, n_test=0)
    rows = Rows(problem.X, problem.y, held_out.X, held_out.y, problem.grid)
    return trained(problem.layer_sizes, rows, pn.Gaussian(1.0), l2=1.0)


def abalone(seed: int) -> Data:
    """Return the paper's abalone problem, 2,923 rows, 10-50-50-1, trained as in the study; the seed splits the rows."""
    problem = abalone_problem(DATA / "abalone" / "abalone.data", seed)
    rows = Rows(problem.X, problem.y, problem.X_test, problem.y_test, problem.grid)
    return trained(problem.layer_sizes, rows, pn.Gaussian(problem.variance), ABALONE_L2, ABALONE_EPOCHS)


def digits(seed: int, hidden: int = DIGITS_HIDDEN) -> Data:
    """Return scikit-learn's digits, 1,200 of their rows, 64-32-32-10 or of other widths; the seed selects the rows."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    X, y = X[order] / DIGITS_LARGEST, y[order]
    sizes = (X.shape[1], hidden, hidden, 10)
    grid = X[DIGITS_TRAIN : DIGITS_TRAIN + DIGITS_GRID]
    rows = Rows(X[:DIGITS_TRAIN], y[:DIGITS_TRAIN], X[DIGITS_TRAIN:], y[DIGITS_TRAIN:], grid)
    return trained(sizes, rows, pn.Categorical(), l2=1.0, watch=classes)


class Rows(NamedTuple):
    """The rows of a problem: trained on, held out, and watched."""

    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    y_test: FloatArray
    grid: FloatArray


def trained(
    sizes: tuple[int, ...],
    rows: Rows,
    likelihood: Any,
    l2: float,
    epochs: int = EPOCHS,
    watch: Callable[[FloatArray], dict[str, FloatArray]] = outputs,
    validation_fraction: float = 0.0,
) -> Data:
    """Train the network and fit the prior to it."""
    arguments: dict[str, Any] = {"validation_fraction": validation_fraction, "max_epochs": epochs, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the last epoch is not the best, or alpha is at its bound: both are fine here
        net = pn.train(sizes, rows.X, rows.y, likelihood=likelihood, l2=l2, **arguments)
        prior = pn.TraceClassPrior.fit(net)
    return Data(net, prior, likelihood, *rows, watch)


class Problem(NamedTuple):
    """A problem by name."""

    data: Callable[[int], Data]
    architectures: tuple[str, ...]
    jax: bool  # whether the JAX sides take part
    nuts: bool
    seeds: int
    seconds: float  # maximum processor time of one side on one posterior


PROBLEMS = {
    "sine": Problem(sine, ("Full", "Mix(5)", "Sep(5)", "Out(45)"), jax=True, nuts=True, seeds=10, seconds=5.0),
    "abalone": Problem(abalone, ("Full", "Mix(5)"), jax=True, nuts=False, seeds=1, seconds=60.0),
    "digits": Problem(digits, ("Full", "Mix(5)"), jax=False, nuts=False, seeds=1, seconds=60.0),
}
