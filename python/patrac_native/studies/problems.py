"""The data of the studies: the paper's sine problem, which is simulated, abalone and UCI sets, which are read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from patrac_native.studies.experiment import Problem
from patrac_native.validation.checks import FloatArray

SINE_RANGE = (-5.0, 5.0)
# The paper evaluates f on a regular grid without stating its size; the distance of 21 points is half a unit, well below
# the wavelength of the sine.
_GRID_POINTS = 21
# The numbers of rows and the noise variance of the paper's section 5.2.
ABALONE_TRAIN, ABALONE_TEST, ABALONE_VARIANCE = 2923, 1254, 36.0
_HIDDEN = (50, 50)
# Abalone's Sex (female, infant, male) as one number, in alphabetical order.
_SEX = {"F": 0, "I": 1, "M": 2}


def sine_mean(x: FloatArray) -> FloatArray:
    """Return the true f of the sine problem."""
    return np.sin(x)


def sine_problem(seed: int, *, n: int = 100, n_test: int = 1000) -> Problem:
    """Simulate the paper's sine problem (section 4.1): x ~ U[-5, 5], y = sin x + N(0, 1), network 1-50-50-1.

    Parameters
    ----------
    seed : int
        Seed of the data, at least 0.
    n, n_test : int
        Number of training and of test rows; default 100 and 1000.

    Returns
    -------
    Problem
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


def abalone_problem(path: str | os.PathLike[str], seed: int, sex: str = "onehot") -> Problem:
    """Read the abalone data and split its rows at random into 2,923 training and 1,254 test rows, as in the paper.

    The inputs are standardised with the training rows. The target, the number of rings, keeps its own units, to which
    the paper's variance of 36 refers.

    Parameters
    ----------
    path : path-like
        The file abalone.data of the UCI repository, without a header, with Sex first and rings last.
    seed : int
        Seed of the split.
    sex : {"onehot", "coded"}
        "onehot", the default: Sex becomes three 0/1 columns, and the paper's 8 features 10 inputs. "coded": one column,
        F, I and M as 0, 1 and 2, so that there are 8 inputs and Mix(5) has the paper's 81 parameters; the paper does
        not give its code.

    Returns
    -------
    Problem

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the table does not have the shape of the abalone data.
    """
    from patrac_native.fit.preprocessing import Preprocessor
    from patrac_native.fit.tables import read_table

    frame, _ = read_table(path, header=False)
    rows = ABALONE_TRAIN + ABALONE_TEST
    if frame.shape != (rows, 9):
        raise ValueError(
            f"--data {os.fspath(path)} has {frame.shape[0]} rows and {frame.shape[1]} columns; abalone.data of the UCI "
            f"repository has {rows} rows and 9 columns, without a header. Give the path of that file."
        )
    if sex == "coded":
        frame[frame.columns[0]] = frame[frame.columns[0]].map(_SEX)
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


def uci_problem(data: Path, name: str, seed: int) -> Problem:
    """Read a UCI set and split its rows at random, 90% for training; inputs and target are standardised by those.

    Parameters
    ----------
    data : Path
        The folder that holds a folder for each set.
    name : str
        Name of the set.
    seed : int
        Seed of the split.

    Returns
    -------
    Problem
        Of unknown noise variance.

    Raises
    ------
    FileNotFoundError
        If there is no such set.
    """
    from patrac_native.studies.uci_models import Rows
    from patrac_native.studies.uci_sets import Split, load_split

    whole = load_split(data, name, 0)
    X, y = np.concatenate([whole.X, whole.X_test]), np.concatenate([whole.y, whole.y_test])
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: len(whole.y)], order[len(whole.y) :]
    rows = Rows.of(Split(X[train], y[train], X[test], y[test]))
    return Problem(
        name=name,
        layer_sizes=(rows.X.shape[1], *_HIDDEN, 1),
        X=rows.X,
        y=rows.y,
        X_test=rows.X_test,
        y_test=rows.y_test,
        grid=rows.X_test[:_GRID_POINTS],
        variance=None,
    )
