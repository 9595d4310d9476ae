"""The choice of penalty and number of epochs by rows that the networks were not trained on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native.diagnostics.splits import IndexArray, copy_groups, split_rows
from patrac_native.network.network import Network
from patrac_native.plots.progress import progress_bar
from patrac_native.training.descent import Descent, Problem, RealArray
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    from tqdm import tqdm

# The penalty decreases from _MAX_PENALTY in steps of sqrt(10). The search ends when two consecutive penalties are worse
# than the best one, or after _SEARCH_STEPS penalties.
_MAX_PENALTY = 31.6
_SEARCH_STEPS = 12
# Bounds on the epochs and on the patience of each training of the search. The number of epochs of the network itself is
# chosen without them, by another training where they ended that of the search.
_SEARCH_EPOCHS, _SEARCH_PATIENCE = 1_000, 300
# With fewer rows than this each part of them is used for validation in turn, with more only one part. By one part of
# few rows, runs with other seeds choose penalties that differ by factors of ten (docs/rerun.md).
_CROSS_VALIDATED_ROWS = 2_000
# The same for classes: a label tells less of a network than a number does, and these trainings are short.
_CROSS_VALIDATED_LABELS = 10_000
# With fewer rows than this there is no validation by default.
FEWEST_ROWS = 10
# Bootstrap samples of folds and validation rows, by which several networks differ in their penalties.
_SAMPLES = 200


@dataclass(frozen=True)
class Validation:
    """Penalty and number of epochs, and what networks trained by them achieve on rows they were not trained on."""

    l2: float
    epochs: int
    loss: float
    mse: FloatArray | None
    rows: int
    folds: int
    network_epochs: int  # of the networks that were trained at this penalty
    trials: tuple[tuple[float, float], ...] = ()  # penalties that the search tried, each with its loss
    searched_epochs: int = 0  # of the networks of the search
    is_of_search: bool = False  # whether the search trained at this penalty to the end
    row_losses: FloatArray | None = None  # (rows,), whose sum is the loss but for rounding

    def ends_within(self, max_epochs: int | None, patience: int) -> bool:
        """Return whether a training with these bounds would have ended where this one did."""
        trained = self.network_epochs // self.folds
        return trained == max_epochs or trained - self.epochs >= patience

    def to_dict(self) -> dict[str, Any]:
        """Return all but the arrays as JSON-able values."""
        values = asdict(self) | {"trials": [list(trial) for trial in self.trials]}
        del values["mse"], values["row_losses"]
        return values


@dataclass(frozen=True)
class PenaltySearch:
    """Penalties that were tried, in decreasing order, and their losses of rows or groups (penalty, unit).

    `folds` (unit,) numbers the folds; that of a group which several folds share is that of its first row.
    """

    tried: tuple[Validation, ...]
    losses: FloatArray
    folds: IndexArray
    is_class: bool

    @property
    def network_epochs(self) -> int:
        """Number of epochs of all networks of the search."""
        return sum(one.network_epochs for one in self.tried)

    def preferred(self, times: FloatArray | None = None) -> float:
        """Return the penalty that is taken where each unit counts so many times (unit,), by default once.

        It is that of the lowest loss or, of classes, the largest whose loss exceeds it by at most one standard error.
        """
        times = np.ones(self.losses.shape[1]) if times is None else times
        best = int(np.argmin(self.losses @ times))
        if not self.is_class:
            return self.tried[best].l2
        # A posterior of the output weights undoes an early end of the training, and then follows features that only a
        # larger penalty keeps from following the training rows (docs/tried.md).
        excess = self.losses - self.losses[best]
        n, total = times.sum(), excess @ times
        squares = np.einsum("ku,ku,u->k", excess, excess, times)
        error = np.sqrt(np.maximum(squares - total**2 / n, 0.0))
        return self.tried[int(np.argmax(total <= error))].l2

    def shares(self, seed: int) -> dict[float, float]:
        """Return the shares of bootstrap samples that prefer each penalty; the first is that of all units.

        A sample draws folds, since networks trained again would differ, and of each as many units as it has. Several
        networks take penalties in these proportions, so that what other folds choose is among them (docs/rerun.md).
        """
        rng = np.random.default_rng([seed, 0, _SAMPLES])
        parts = [np.flatnonzero(self.folds == fold) for fold in np.unique(self.folds)]

        def sample() -> FloatArray:
            drawn = [rng.choice(parts[fold], len(parts[fold])) for fold in rng.integers(len(parts), size=len(parts))]
            return np.bincount(np.concatenate(drawn), minlength=len(self.folds)).astype(np.float64)

        counts = Counter(self.preferred(sample()) for _ in range(_SAMPLES))
        return {l2: counts[l2] / _SAMPLES for l2 in dict.fromkeys([self.preferred(), *sorted(counts)])}


def search_penalties(
    problem: Problem,
    folds: Sequence[IndexArray],
    *,
    max_epochs: int | None,
    patience: int,
    show: bool = False,
    threads: int | None = None,
) -> PenaltySearch:
    """Try decreasing penalties on at most `threads` threads, with these bounds on a training or smaller ones."""
    # In multiples of the scale of a row's loss, penalties have the same effect on any data.
    t = problem.targets.shape[1] if problem.targets.ndim > 1 else 1
    largest = _MAX_PENALTY * float(problem.row_weights.mean()) * problem.likelihood.mean_precision(t)
    tried: list[Validation] = []
    worse = 0
    with progress_bar(desc="validation", unit=" epochs", disable=not show, leave=False) as bar:
        for step in range(_SEARCH_STEPS):
            found = cross_validate(
                problem,
                largest * 10 ** (-step / 2),
                folds,
                max_epochs=_SEARCH_EPOCHS if max_epochs is None else min(_SEARCH_EPOCHS, max_epochs),
                patience=min(patience, _SEARCH_PATIENCE),
                threads=threads,
                bar=bar,
            )
            worse = worse + 1 if tried and found.loss > min(one.loss for one in tried) else 0
            tried.append(found)
            if worse == 2:
                break
    losses = np.array([one.row_losses for one in tried])
    rows = np.concatenate(folds)
    order = np.argsort(rows)
    of_units = np.repeat(np.arange(len(folds)), [len(fold) for fold in folds])[order]
    groups = problem_copies(problem)
    if groups is not None:
        _, first, unit = np.unique(groups[rows[order]], return_index=True, return_inverse=True)
        losses = np.array([np.bincount(unit, of_rows) for of_rows in losses])
        of_units = of_units[first]
    is_class = problem.likelihood.has_classes or problem.likelihood.targets == "binary"
    return PenaltySearch(tuple(tried), losses, of_units, is_class)


def validate_penalty(
    problem: Problem,
    l2: float,
    folds: Sequence[IndexArray],
    *,
    search: PenaltySearch | None,
    max_epochs: int | None,
    patience: int,
    show: bool = False,
    threads: int | None = None,
) -> Validation:
    """Choose the number of epochs at a penalty; take it from the search if that went as far."""
    known = next((one for one in search.tried if one.l2 == l2), None) if search else None
    if known is not None and known.ends_within(max_epochs, patience):
        found = replace(known, is_of_search=True)
    else:
        with progress_bar(desc="validation", unit=" epochs", disable=not show, leave=False) as bar:
            found = cross_validate(
                problem, l2, folds, max_epochs=max_epochs, patience=patience, threads=threads, bar=bar
            )
    if search is None:
        return found
    trials = tuple((one.l2, one.loss) for one in search.tried)
    return replace(found, trials=trials, searched_epochs=search.network_epochs)


def cross_validate(
    problem: Problem,
    l2: float,
    folds: Sequence[IndexArray],
    *,
    max_epochs: int | None,
    patience: int,
    threads: int | None = None,
    bar: tqdm[Any] | None = None,
) -> Validation:
    """Train a network without each fold, in step, until the validation loss of the best parameters stops falling.

    That is when it has not fallen for `patience` epochs.
    """
    problem = replace(problem, seed=problem.validation_seed)
    n, weights = problem.n_rows, problem.row_weights
    held = np.zeros((len(folds), n))
    for fold, rows in enumerate(folds):
        held[fold, rows] = weights[rows]
    shares = held / held.sum()
    descent = Descent(problem, l2, np.where(held > 0, 0.0, weights), shares, threads=threads)
    best, best_epoch, trained = math.inf, 0, 0
    best_thetas: RealArray | None = None
    for epoch, (losses, thetas, current) in enumerate(descent.epochs(max_epochs)):
        trained += 1
        score = current.sum()
        if epoch == 0 and not np.isfinite(losses).all():
            raise ValueError(
                f"train: the loss is {losses[~np.isfinite(losses)][0]} at the initial parameters. "
                "Standardise X and y, or use dtype='float64'."
            )
        if score < best:
            best, best_epoch, best_thetas = float(score), epoch, thetas
        elif epoch - best_epoch >= patience:
            break
        if not np.isfinite(losses).all():
            break
        if bar is not None:
            bar.update()
    if best_thetas is None:
        raise ValueError(
            f"train: the loss of the validation rows is {score} in every epoch. Standardise X and y, or use "
            "dtype='float64'."
        )
    networks = [problem.network(theta) for theta in best_thetas]
    each = [mean_squares(problem, net, rows) for net, rows in zip(networks, held, strict=True)]
    known = [one for one in each if one is not None]
    mse = np.average(known, axis=0, weights=held.sum(axis=1)) if known else None
    of_rows = np.zeros(n)
    for net, part in zip(networks, shares, strict=True):
        rows = np.flatnonzero(part)
        of_rows[rows] = part[rows] * problem.losses(net, rows)
    left_out, row_losses = sum(len(rows) for rows in folds), of_rows[held.any(axis=0)]
    return Validation(l2, best_epoch + 1, best, mse, left_out, len(folds), trained * len(folds), row_losses=row_losses)


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
    labels = problem.likelihood.strata(problem.targets)
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
            len(rows),
            shares,
            seed=problem.validation_seed + 1,
            labels=kept,
            groups=groups,
            whole=problem.groups is not None,
        )
    except ValueError as few:
        raise ValueError(too_few) from few
    return [rows[part] for part in split[:used]]
