"""The data of the studies: the paper's sine problem, simulated, and abalone, read from a file."""

from __future__ import annotations

import os

import numpy as np

from patrac_native.studies.experiment import Problem
from patrac_native.validation.checks import FloatArray

SINE_RANGE = (-5.0, 5.0)
# The paper evaluates f on a regular grid without saying how fine; 21 points lie half a unit apart, well below the
# wavelength of the sine.
_GRID_POINTS = 21
# Paper, section 5.2.
ABALONE_TRAIN, ABALONE_TEST, ABALONE_VARIANCE = 2923, 1254, 36.0
_HIDDEN = (50, 50)


def sine_mean(x: FloatArray) -> FloatArray:
    """The true f of the sine problem."""
    return np.sin(x)


def sine_problem(seed: int, *, n: int = 100, n_test: int = 1000) -> Problem:
    """Simulate the paper's sine problem (section 4.1): x ~ U[-5, 5], y = sin x + N(0, 1), network 1-50-50-1.

    Parameters
    ----------
    seed : int
        At least 0.
    n, n_test : int
        Training and test rows.
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
    )


def abalone_problem(path: str | os.PathLike[str], seed: int) -> Problem:
    """Read the abalone data and split its rows at random into the paper's 2,923 for training and 1,254 for testing.

    Sex becomes three 0/1 columns, which makes 10 inputs of the paper's 8 features; all inputs are standardised by the
    training rows. The target, the number of rings, stays in its own units, as the paper's variance of 36 does.

    Parameters
    ----------
    path : path-like
        The UCI file: no header, Sex first, rings last.
    seed : int
        Of the split.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the table does not look like abalone's.
    """
    from patrac_native.tabular.preprocessing import Preprocessor
    from patrac_native.tabular.tables import read_table

    frame, _ = read_table(path, header=False)
    rows = ABALONE_TRAIN + ABALONE_TEST
    if frame.shape != (rows, 9):
        raise ValueError(
            f"--data {os.fspath(path)} has {frame.shape[0]} rows and {frame.shape[1]} columns; abalone.data of the UCI "
            f"repository has {rows} rows and 9 columns, without a header. Give the path of that file."
        )
    order = np.random.default_rng(seed).permutation(rows)
    train, test = order[:ABALONE_TRAIN], order[ABALONE_TRAIN:]
    target = str(frame.columns[-1])
    preprocessor = Preprocessor.fit(frame, target, task="regression", rows=train)
    X = preprocessor.transform(frame)
    y = frame[target].to_numpy(dtype=np.float64)
    return Problem(
        name="abalone",
        layer_sizes=(preprocessor.n_inputs, *_HIDDEN, 1),
        X=X[train],
        y=y[train],
        X_test=X[test],
        y_test=y[test],
        grid=X[test[:_GRID_POINTS]],
        variance=ABALONE_VARIANCE,
    )
