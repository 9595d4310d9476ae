"""The choice of penalty and number of epochs by rows that the networks were not trained on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.splits import IndexArray, copy_groups, split_rows
from patrac_native.network.network import Network
from patrac_native.plots.progress import progress_bar
from patrac_native.training.descent import Descent, Problem, all_finite, is_elementwise, training_state
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import torch
    from tqdm import tqdm

# The penalty decreases from _MAX_PENALTY in steps of sqrt(10). The search ends when two consecutive penalties are worse
# than the best one, or after _SEARCH_STEPS penalties.
_MAX_PENALTY = 31.6
_SEARCH_STEPS = 12
# Of classes, the largest penalty is taken whose validation loss exceeds the lowest by at most one standard error
# (docs/tried.md): a posterior of the output weights undoes an early end of the training, and then follows features that
# only a larger penalty keeps from following the training rows.
# Bounds on the epochs and on the patience of each training of the search, whose patience is the number of epochs that
# led to the lowest loss, between these two. The number of epochs of the network itself is chosen afterwards, at the
# best penalty and without these bounds.
_SEARCH_EPOCHS, _SEARCH_PATIENCE, _LEAST_PATIENCE = 1_000, 100, 30
# With fewer rows than this, penalties are compared on all folds: several networks then take hardly longer than one. The
# trial of the best penalty then chooses the epochs too, if these have the same bound: it waits less for a lower loss
# where the lowest came early, and is the same training otherwise.
_CROSS_SEARCHED_ROWS = 300

# With at least this many rows one part of them is used for validation, with fewer each part in turn.
_CROSS_VALIDATED_ROWS = 1_000
# Both numbers for classes: a label tells less of a network than a number does, and these trainings are short.
_CROSS_VALIDATED_LABELS = 10_000
# With fewer rows than this there is no validation by default.
FEWEST_ROWS = 10


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
    row_losses: FloatArray | None = None  # (rows,), whose sum is the loss

    def ties_with(self, best: Validation) -> bool:
        """Return whether the loss exceeds another's, of the same rows, by at most a standard error."""
        assert self.row_losses is not None and best.row_losses is not None
        differences = self.row_losses - best.row_losses
        return bool(self.loss - best.loss <= differences.std() * math.sqrt(len(differences)))

    def to_dict(self) -> dict[str, Any]:
        """Return all but the arrays as JSON-able values."""
        values = asdict(self) | {"trials": [list(trial) for trial in self.trials]}
        del values["mse"], values["row_losses"]
        return values


def choose_training(
    problem: Problem,
    folds: Sequence[IndexArray],
    *,
    l2: float | None,
    max_epochs: int | None,
    patience: int,
    show: bool,
    threads: int | None = None,
) -> Validation:
    """Choose the penalty, unless it is given, and then the number of epochs, on at most `threads` threads."""
    trials: list[tuple[float, float]] = []
    searched = 0
    shown = progress_bar(desc="validation", unit=" epochs", disable=not show, leave=False)
    with training_state(problem.work, threads), shown as bar:
        if l2 is None:
            is_class = problem.likelihood.targets in ("class", "binary")
            few = _CROSS_VALIDATED_LABELS if is_class else _CROSS_SEARCHED_ROWS
            compared = folds if problem.n_rows < few else folds[:1]
            limit = _SEARCH_EPOCHS if max_epochs is None else min(_SEARCH_EPOCHS, max_epochs)
            shorter: dict[str, Any] = {"max_epochs": limit, "patience": min(patience, _SEARCH_PATIENCE), "bar": bar}
            shorter["least_patience"] = _LEAST_PATIENCE

            tried: list[Validation] = []

            def loss_at(penalty: float) -> float:
                tried.append(cross_validate(problem, penalty, compared, **shorter))
                return tried[-1].loss

            # In multiples of the scale of a row's loss, penalties have the same effect on any data.
            t = problem.targets.shape[1] if problem.targets.ndim > 1 else 1
            scale = float(problem.row_weights.mean()) * problem.likelihood.mean_precision(t)
            trials = search_penalties(loss_at, largest=_MAX_PENALTY * scale)
            best = min(tried, key=lambda one: one.loss)
            chosen = next(one for one in tried if one is best or (is_class and one.ties_with(best)))
            l2, searched = chosen.l2, sum(one.network_epochs for one in tried)
            if problem.n_rows < _CROSS_SEARCHED_ROWS and (limit, shorter["patience"]) == (max_epochs, patience):
                return replace(chosen, trials=tuple(trials), network_epochs=searched)
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


def cross_validate(
    problem: Problem,
    l2: float,
    folds: Sequence[IndexArray],
    *,
    max_epochs: int | None,
    patience: int,
    least_patience: int | None = None,
    bar: tqdm[Any] | None = None,
) -> Validation:
    """Train a network without each fold, in step, until the validation loss of the best parameters stops falling.

    That is for `patience` epochs or, with `least_patience`, for as many as led to the lowest loss, between the two.
    """
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
    current = torch.full((len(folds), n), math.inf, dtype=problem.real)  # losses of the rows at the lowest
    theta: torch.Tensor | None = None
    best, best_epoch, best_theta, best_rows, trained = math.inf, 0, None, None, 0
    for epoch in itertools.count() if max_epochs is None else range(max_epochs):
        parts = [descent.epoch() for descent in descents]
        trained += 1
        start, loss, nll = (torch.cat(part) if len(parts) > 1 else part[0] for part in zip(*parts, strict=True))
        lower = loss < lowest  # False for NaN
        lowest = torch.where(lower, loss, lowest)
        current = torch.where(lower[:, None], nll, current)
        theta = start if theta is None else torch.where(lower[:, None], start, theta)
        score = float((current * held_weights).sum())
        if epoch == 0 and not all_finite(loss):
            raise ValueError(
                f"train: the loss is {loss.numpy()[~np.isfinite(loss.numpy())][0]} at the initial parameters. "
                "Standardise X and y, or use dtype='float64'."
            )
        if score < best:
            best, best_epoch, best_theta, best_rows = score, epoch, theta, current
        elif epoch - best_epoch >= min(patience, max(best_epoch, least_patience or patience)):
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
    assert best_rows is not None
    of_rows = (best_rows * held_weights).numpy().astype(np.float64).sum(axis=0)[held.any(axis=0)]
    epochs = trained * len(folds)
    return Validation(l2, best_epoch + 1, best, mse, left_out, len(folds), network_epochs=epochs, row_losses=of_rows)


def mean_squares(problem: Problem, net: Network, weights: FloatArray) -> FloatArray | None:
    """Return the mean squared residual of each target (t,) under weights (n,) of the rows; None for other targets."""
    if problem.likelihood.targets != "real":
        return None
    rows = np.flatnonzero(weights)
    f = net.predict(problem.inputs[rows])
    squares = problem.likelihood.squared_residuals(f, problem.targets[rows], weights[rows])
    mean: FloatArray = np.average(squares, axis=0, weights=weights[rows])
    return mean


def problem_copies(problem: Problem) -> IndexArray | None:
    """Return the groups of the rows of a training that were given, else those of `copy_groups`."""
    if problem.groups is not None:
        return problem.groups
    return copy_groups(problem.targets.reshape(problem.n_rows, -1), problem.inputs, problem.offset)


def validation_folds(problem: Problem, fraction: float) -> list[IndexArray]:
    """Return the validation rows of each network: of one network for many rows, else each part in turn."""
    given, unit = f"{problem.n_rows} rows", "rows"
    if problem.groups is not None:
        count = len(np.unique(problem.groups))
        given, unit = f"{given} in {count} group{'s' * (count > 1)}", "groups"
    too_few = (
        f"validation_fraction={fraction:g} of {given} leaves too few to choose the training by: give more "
        f"{unit}, or train on all of them with validation_fraction=0 and your own l2."
    )
    if fraction * problem.n_rows < 0.5:
        raise ValueError(too_few)
    rows = np.flatnonzero(problem.row_weights > 0)
    labels = _labels(problem)
    kept = labels
    if labels is not None:
        parts = max(2, round(1 / fraction))
        _, group, counts = np.unique(labels[rows], return_inverse=True, return_counts=True)
        rows = rows[counts[group] >= parts]
        kept = labels[rows]
    groups, parts = problem_copies(problem), round(1 / fraction)
    if groups is not None:
        groups = groups[rows]
        parts = min(parts, len(np.unique(groups))) if problem.groups is not None else parts
    if len(rows) >= (_CROSS_VALIDATED_ROWS if labels is None else _CROSS_VALIDATED_LABELS):
        shares, used = [fraction], 1
    else:
        used = max(2, parts)
        shares = [1 / used] * (used - 1)
    try:
        split = split_rows(
            len(rows), shares, seed=problem.seed + 1, labels=kept, groups=groups, whole=problem.groups is not None
        )
    except ValueError as few:
        raise ValueError(too_few) from few
    return [rows[part] for part in split[:used]]


def _labels(problem: Problem) -> npt.NDArray[Any] | None:
    """Return the class of each row (n,), or None if the targets are no classes."""
    if problem.likelihood.targets == "class":
        return problem.targets
    if problem.likelihood.targets == "binary" and problem.targets.shape[1] == 1:
        return problem.targets[:, 0]
    return None
