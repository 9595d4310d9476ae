"""The choice of penalty and number of epochs by rows that the networks were not trained on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native.diagnostics.splits import IndexArray
from patrac_native.network.network import Network
from patrac_native.plots.progress import progress_bar
from patrac_native.training.descent import Descent, Problem, all_finite, is_elementwise, torch_threads
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import torch
    from tqdm import tqdm

# The penalty decreases from _MAX_PENALTY in steps of sqrt(10). The search ends when two consecutive penalties are worse
# than the best one, or after _SEARCH_STEPS penalties.
_MAX_PENALTY = 31.6
_SEARCH_STEPS = 12
# Bounds on the epochs and on the patience of each training of the search. The number of epochs of the network itself is
# chosen afterwards, at the best penalty and without this bound.
_SEARCH_EPOCHS, _SEARCH_PATIENCE = 1_000, 100
# With fewer rows than this, penalties are compared on all folds: several networks then take hardly longer than one.
_CROSS_SEARCHED_ROWS = 300


@dataclass(frozen=True)
class Validation:
    """Penalty and number of epochs, and what networks trained by them achieve on rows they were not trained on."""

    l2: float
    epochs: int
    loss: float
    mse: FloatArray | None
    rows: int
    folds: int
    trials: tuple[tuple[float, float], ...] = ()
    network_epochs: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return l2, epochs, loss, rows, folds, trials and network_epochs as JSON-able values."""
        return {
            "l2": self.l2,
            "epochs": self.epochs,
            "loss": self.loss,
            "rows": self.rows,
            "folds": self.folds,
            "trials": [list(trial) for trial in self.trials],
            "network_epochs": self.network_epochs,
        }


def choose_training(
    problem: Problem,
    folds: Sequence[IndexArray],
    *,
    l2: float | None,
    max_epochs: int | None,
    patience: int,
    show: bool,
) -> Validation:
    """Choose the penalty, unless it is given, and then the number of epochs."""
    trials: list[tuple[float, float]] = []
    searched = 0
    shown = progress_bar(desc="validation", unit=" epochs", disable=not show, leave=False)
    with torch_threads(problem.work), shown as bar:
        if l2 is None:
            compared = folds if problem.n_rows < _CROSS_SEARCHED_ROWS else folds[:1]
            limit = _SEARCH_EPOCHS if max_epochs is None else min(_SEARCH_EPOCHS, max_epochs)
            shorter: dict[str, Any] = {"max_epochs": limit, "patience": min(patience, _SEARCH_PATIENCE), "bar": bar}

            def loss_at(penalty: float) -> float:
                nonlocal searched
                tried = cross_validate(problem, penalty, compared, **shorter)
                searched += tried.network_epochs
                return tried.loss

            trials = search_penalties(loss_at, largest=_MAX_PENALTY * _loss_scale(problem))
            l2 = best_penalty(trials)
        found = cross_validate(problem, l2, folds, max_epochs=max_epochs, patience=patience, bar=bar)
    return replace(found, trials=tuple(trials), network_epochs=searched + found.network_epochs)


def search_penalties(loss_at: Callable[[float], float], *, largest: float = _MAX_PENALTY) -> list[tuple[float, float]]:
    """Try decreasing penalties; return each with its validation loss."""
    trials: list[tuple[float, float]] = []
    worse = 0
    for step in range(_SEARCH_STEPS):
        penalty = largest * 10 ** (-step / 2)
        loss = loss_at(penalty)
        worse = worse + 1 if trials and loss > min(t[1] for t in trials) else 0
        trials.append((penalty, loss))
        if worse == 2:
            break
    return trials


def best_penalty(trials: Sequence[tuple[float, float]]) -> float:
    """Return the penalty with the lowest validation loss."""
    return min(trials, key=lambda trial: trial[1])[0]


def cross_validate(
    problem: Problem,
    l2: float,
    folds: Sequence[IndexArray],
    *,
    max_epochs: int | None,
    patience: int,
    bar: tqdm[Any] | None = None,
) -> Validation:
    """Train a network without each fold, in step, until the validation loss of the best parameters stops falling."""
    import torch

    n, weights = problem.n_rows, problem.row_weights
    held = np.zeros((len(folds), n))
    for fold, rows in enumerate(folds):
        held[fold, rows] = weights[rows]
    kept = np.where(held > 0, 0.0, weights)
    groups = [slice(None)] if is_elementwise(problem.optimizer) else [slice(k, k + 1) for k in range(len(folds))]
    descents = [Descent(problem, l2, kept[group]) for group in groups]
    held_weights = torch.tensor(held / held.sum(), dtype=problem.real)
    lowest = torch.full((len(folds),), math.inf, dtype=problem.real)
    current = torch.full((len(folds),), math.inf, dtype=problem.real)
    theta: torch.Tensor | None = None
    best, best_epoch, best_theta, trained = math.inf, 0, None, 0
    for epoch in itertools.count() if max_epochs is None else range(max_epochs):
        parts = [descent.epoch() for descent in descents]
        trained += 1
        start, loss, nll = (torch.cat(part) if len(parts) > 1 else part[0] for part in zip(*parts, strict=True))
        lower = loss < lowest  # False for NaN
        lowest = torch.where(lower, loss, lowest)
        current = torch.where(lower, (nll * held_weights).sum(dim=-1), current)
        theta = start if theta is None else torch.where(lower[:, None], start, theta)
        score = float(current.sum())
        if epoch == 0 and not all_finite(loss):
            raise ValueError(
                f"train: the loss is {loss.numpy()[~np.isfinite(loss.numpy())][0]} at the initial parameters. "
                "Standardise X and y, or use dtype='float64'."
            )
        if score < best:
            best, best_epoch, best_theta = score, epoch, theta
        elif epoch - best_epoch >= patience:
            break
        if not all_finite(loss):
            break
        if bar is not None:
            bar.update()
    assert best_theta is not None
    each = [mean_squares(problem, problem.network(one), rows) for one, rows in zip(best_theta, held, strict=True)]
    known = [one for one in each if one is not None]
    mse = np.average(known, axis=0, weights=held.sum(axis=1)) if known else None
    left_out = sum(len(rows) for rows in folds)
    return Validation(l2, best_epoch + 1, best, mse, left_out, len(folds), network_epochs=trained * len(folds))


def mean_squares(problem: Problem, net: Network, weights: FloatArray) -> FloatArray | None:
    """Return the mean squared residual of each target (t,) under weights (n,) of the rows; None for other targets."""
    if problem.likelihood.targets != "real":
        return None
    rows = np.flatnonzero(weights)
    f = net.predict(problem.inputs[rows])
    squares = problem.likelihood.squared_residuals(f, problem.targets[rows], weights[rows])
    mean: FloatArray = np.average(squares, axis=0, weights=weights[rows])
    return mean


def _loss_scale(problem: Problem) -> float:
    """Return the scale of the loss of a row, in multiples of which penalties have the same effect on any data."""
    t = problem.targets.shape[1] if problem.targets.ndim > 1 else 1
    return float(problem.row_weights.mean()) * problem.likelihood.mean_precision(t)
