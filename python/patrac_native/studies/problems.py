"""The problems of the studies: the paper's sine, which is simulated, and abalone, which is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import patrac_native as pn

FloatArray = npt.NDArray[np.float64]

SINE_RANGE = (-5.0, 5.0)
# The paper evaluates f on a regular grid without stating its size; the distance of 21 points is half a unit, well below
# the wavelength of the sine.
_GRID_POINTS = 21
# The numbers of rows, the noise variance and the penalty of the paper's section 5.2.
ABALONE_TRAIN, ABALONE_TEST, ABALONE_VARIANCE, ABALONE_L2 = 2923, 1254, 36.0, 0.01
# The paper's training of abalone, with a learning rate of 1e-6, ends far from the minimum of the penalised loss. With a
# practical learning rate the network passes through that region and then overfits (after 2,000 epochs, RMSE 1.5 on
# training rows and 2.4 on others), so training stops early.
ABALONE_EPOCHS = 300
_HIDDEN = (50, 50)
# Abalone's Sex: female, infant, male.
_SEXES = ("F", "I", "M")


@dataclass(frozen=True)
class Problem:
    """The data of a regression problem with one output and Gaussian noise, and the training of its network."""

    name: str
    layer_sizes: tuple[int, ...]
    X: FloatArray  # (n, d)
    y: FloatArray  # (n,)
    X_test: FloatArray
    y_test: FloatArray
    grid: FloatArray  # (g, d), the inputs at which mixing and convergence of f are measured
    variance: float | None  # of the noise; None if it is not known, and sampled
    truth_test: FloatArray | None = None  # the true f at the test inputs, if it is known
    training: Mapping[str, Any] = field(default_factory=dict)  # arguments of `train`

    @property
    def likelihood(self) -> pn.Gaussian:
        """The Gaussian likelihood with the problem's variance, or with one that is sampled."""
        return pn.Gaussian("sampled" if self.variance is None else self.variance)

    @property
    def scored_truth(self) -> FloatArray:
        """What predictions are compared with at the test rows: the true f or, if that is not known, y."""
        return self.y_test if self.truth_test is None else self.truth_test


def sine_mean(x: FloatArray) -> FloatArray:
    """Return the true f of the sine problem."""
    return np.sin(x)


def sine_problem(seed: int, *, n: int = 100, n_test: int = 1000, l2: float = 1.0) -> Problem:
    """Simulate the paper's sine problem (section 4.1): x ~ U[-5, 5], y = sin x + N(0, 1), network 1-50-50-1.

    `l2 / 2` times the squared norm stands beside the negative log-likelihood in training: 1 is a standard normal prior
    on every parameter.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(*SINE_RANGE, size=n + n_test)
    truth = sine_mean(x)
    y = truth + rng.standard_normal(n + n_test)
    return Problem(
        name="sine",
        layer_sizes=(1, *_HIDDEN, 1),
        X=x[:n, None],
        y=y[:n],
        X_test=x[n:, None],
        y_test=y[n:],
        grid=np.linspace(*SINE_RANGE, _GRID_POINTS)[:, None],
        variance=1.0,
        truth_test=truth[n:],
        training={"l2": l2, "validation_fraction": 0},
    )


def abalone_problem(path: str | os.PathLike[str], seed: int, sex: str = "onehot") -> Problem:
    """Read abalone.data of the UCI repository and split its rows at random into 2,923 and 1,254, as in the paper.

    The inputs are standardised with the training rows; the target, the number of rings, keeps its own units, to which
    the paper's variance of 36 refers. With `sex="onehot"` Sex becomes three 0/1 columns, and the paper's 8 features 10
    inputs; with "coded" it is one column, F, I and M as 0, 1 and 2, so that Mix(5) has the paper's 81 parameters (the
    paper does not give its code). Raises ValueError if the table does not have the shape of the abalone data.
    """
    frame, rows = pd.read_csv(path, header=None), ABALONE_TRAIN + ABALONE_TEST
    if frame.shape != (rows, 9):
        raise ValueError(
            f"--data {os.fspath(path)} has {frame.shape[0]} rows and {frame.shape[1]} columns; abalone.data of the UCI "
            f"repository has {rows} rows and 9 columns, without a header. Give the path of that file."
        )
    order = np.random.default_rng(seed).permutation(rows)
    train, test = order[:ABALONE_TRAIN], order[ABALONE_TRAIN:]
    members = frame[0].to_numpy()[:, None] == np.array(_SEXES)
    measured, y = frame.iloc[:, 1:-1].to_numpy(np.float64), frame.iloc[:, -1].to_numpy(np.float64)
    if sex == "coded":
        measured = np.column_stack([members.argmax(axis=1), measured])
    center, spread = column_moments(measured[train])
    X = (measured - center) / spread
    if sex == "onehot":
        X = np.column_stack([members, X])
    return Problem(
        name="abalone",
        layer_sizes=(X.shape[1], *_HIDDEN, 1),
        X=X[train],
        y=y[train],
        X_test=X[test],
        y_test=y[test],
        grid=X[test[:_GRID_POINTS]],
        variance=ABALONE_VARIANCE,
        training={"l2": ABALONE_L2, "validation_fraction": 0, "max_epochs": ABALONE_EPOCHS},
    )


def column_moments(X: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Return means and standard deviations of the columns, each summed alone: pairwise, which rounds least."""
    columns = np.ascontiguousarray(X.T)
    return np.array([column.mean() for column in columns]), np.array([column.std() for column in columns])
