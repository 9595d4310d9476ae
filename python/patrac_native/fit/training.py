"""The training of a fit's networks: its arguments by the number of rows, what it chose, and what it cost."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import patrac_native as pn
from patrac_native.fit.budget import CORES
from patrac_native.fit.rows import FitData, Rows, TargetScaling
from patrac_native.fit.settings import CHOICE_SEED, Likelihood, Settings

# With more rows than this, training uses mini-batches of _BATCH_ROWS rows.
_FULL_BATCH_ROWS = 5_000
_BATCH_ROWS = 512
# Pilot runs and trials of kinds of noise leave out this share of the rows, if these are at least so many.
PILOT_FRACTION, MIN_ROWS = 0.2, 20
# Of classes with up to so many rows, pilot runs leave out each fifth in turn: a label tells less than a number does. By
# one fifth, other folds of digits chose Out(50) or Out(1) (docs/rerun.md).
_FOLDED_LABELS = 2_000
# Nominal seconds of an update of a network in training: the part that does not depend on its size, without and with
# the compilation of a mini-batch, and the part for each parameter and row of the batch. Three times the processor time
# on one core of an AMD EPYC (Zen 5), which executes three times the multiply-adds of a nominal one.
_UPDATE_SECONDS, _BATCH_SECONDS, _PARAMETER_ROW_SECONDS = 5e-5, 5e-4, 1e-10


@dataclass(frozen=True)
class Choice:
    """What the training of a network chose: its penalty, number of epochs, and (l2, validation loss) of each trial."""

    l2: float
    penalties: dict[float, float]  # the shares of several networks
    epochs: int
    trials: list[tuple[float, float]]
    validation: str  # the validation rows in words; empty if there were none

    @classmethod
    def of(cls, net: pn.Network) -> Choice:
        """Read the choice from a trained network's history."""
        assert net.history is not None
        settings: Mapping[str, Any] = net.history.settings
        found, penalties = settings["validation"], dict(settings.get("penalties", {settings["l2"]: 1.0}))
        if found is None:
            return cls(settings["l2"], penalties, len(net.history.loss), [], "")
        networks = "a network" if found["folds"] == 1 else f"{found['folds']} networks"
        trials = [(float(l2), float(loss)) for l2, loss in found["trials"]]
        validation = f"{found['rows']} validation rows, by {networks} without them"
        return cls(found["l2"], penalties, found["epochs"], trials, validation)


def describe_training(nets: Sequence[pn.Network], units: TargetScaling) -> str:
    """Return a line on the penalty, the number of epochs and the residuals on the rows by which they were chosen."""
    net, choice = nets[0], Choice.of(nets[0])
    text = f"l2 {choice.l2:.3g}, {choice.epochs:,} epochs"
    others = Counter(other.l2 for other in map(Choice.of, nets[1:]))
    if set(others) - {choice.l2}:
        listed = ", ".join(f"{l2:.3g} ({count})" for l2, count in sorted(others.items()))
        text += f", of the first network; other networks: l2 {listed}"
    target = "log y" if units.log else "the target"
    if not choice.validation:
        return text
    text += f"; validated on {choice.validation}"
    mse = None if net.history is None else net.history.validation_mse
    if mse is None:
        return text
    if len(mse) > 1:
        listed = ", ".join(f"{float(one):.4g}" for one in mse)
        return f"{text}, whose residuals have variances {listed} of the standardised targets"
    in_units = float(mse[0]) * units.target_scale**2
    return (
        f"{text}, whose residuals have variance {in_units:.4g} in the units of {target} squared (sd "
        f"{in_units**0.5:.4g}; {float(mse[0]):.4g} of the standardised target)"
    )


def _arguments(n: int, max_iter: int | None) -> dict[str, Any]:
    """Return arguments of `train` for n rows: full batches for up to 5,000 rows, mini-batches of 512 for more."""
    if n <= _FULL_BATCH_ROWS:
        return {"max_epochs": 1_000 if max_iter is None else max_iter, "patience": 300, "learning_rate": 1e-2}
    epochs = max(30, math.ceil(6_000 * _BATCH_ROWS / n)) if max_iter is None else max_iter
    return {"max_epochs": epochs, "patience": max(5, epochs // 10), "learning_rate": 3e-3, "batch_size": _BATCH_ROWS}


def train_networks(
    layer_sizes: Sequence[int],
    rows: Rows,
    likelihood: Likelihood,
    settings: Settings,
    *,
    networks: int = 1,
    first: int = 0,
    l2: Mapping[float, float] | None = None,
) -> list[pn.Network]:
    """Train networks alike from other random weights; raise KeyboardInterrupt if Ctrl-C ended the training.

    `first` is the number of networks before them, as for `train_many`.

    `train_many` returns its best parameters so far, which are not what was asked for.
    """
    # As groups of their own rows are divided at will, where `train` would look for copies among their inputs.
    groups = rows.groups if rows.groups is not None or rows.may_be_copies else np.arange(len(rows.X))
    nets = settings.pieces.networks(
        lambda: pn.train_many(
            layer_sizes,
            rows.X,
            rows.y,
            networks=networks,
            first=first,
            likelihood=likelihood,
            sample_weight=rows.sample_weight,
            offset=rows.offset,
            groups=groups,
            l2=settings.l2 if l2 is None else l2,
            validation_fraction=settings.validation_fraction,
            activation=settings.activation,
            seed=settings.seed,
            validation_seed=CHOICE_SEED,
            threads=settings.n_jobs,
            progress=settings.progress,
            **_arguments(len(rows.X), settings.max_iter),
        )
    )
    if any(net.history is not None and net.history.stopped == "interrupted" for net in nets):
        raise KeyboardInterrupt
    return nets


def nominal_seconds(nets: Sequence[pn.Network], rows: int, batch_rows: int | None = None) -> float:
    """Return the time that the training of networks on so many rows, all choices included, nominally took.

    The rows of a batch are by default those of `train_networks`.
    """
    epochs = sum(Choice.of(net).epochs for net in nets) / min(CORES, len(nets)) + _validation_epochs(nets)
    return epochs * _seconds_of_epoch(nets[0], rows, batch_rows)


def seconds_of_more(nets: Sequence[pn.Network], rows: int, count: int) -> float:
    """Return the nominal time that `count` more networks would take, and the validation by their known penalties."""
    if not count:
        return 0.0
    epochs = count * Choice.of(nets[0]).epochs / min(CORES, count) + _validation_epochs(nets, searched=False)
    return epochs * _seconds_of_epoch(nets[0], rows)


def _validation_epochs(nets: Sequence[pn.Network], *, searched: bool = True) -> int:
    """Return the number of epochs of the networks by which penalties and numbers of epochs were chosen.

    Without `searched` that of networks which validate each of these penalties anew.
    """
    found = [net.history.settings["validation"] for net in nets if net.history is not None]
    by_penalty = {one["l2"]: one for one in found if one is not None}
    if not by_penalty:
        return 0
    if not searched:
        return sum(one["network_epochs"] for one in by_penalty.values())
    own = sum(one["network_epochs"] for one in by_penalty.values() if not one["is_of_search"])
    return int(found[0]["searched_epochs"] + own)


def _seconds_of_epoch(net: pn.Network, rows: int, batch_rows: int | None = None) -> float:
    """Return the nominal time of an epoch of a network."""
    batch_rows = batch_rows or _arguments(rows, None).get("batch_size", rows)
    parameters = sum((wide + 1) * width for wide, width in pairwise(net.layer_sizes))
    fixed = _UPDATE_SECONDS if rows <= batch_rows else math.ceil(rows / batch_rows) * _BATCH_SECONDS
    return fixed + parameters * rows * _PARAMETER_ROW_SECONDS


def pilot_runs(rows: int, *, by_class: bool = False) -> int:
    """Return how many pilot runs of a candidate leave out parts of so many rows.

    Five, for each fifth in turn, below 98 rows, of classes up to 2,000; none below 20; else one.
    """
    if round(PILOT_FRACTION * rows) < MIN_ROWS or (by_class and rows <= _FOLDED_LABELS):
        return round(1 / PILOT_FRACTION) if rows >= MIN_ROWS else 0
    return 1


def pilot_parts(data: FitData, *, by_class: bool = False) -> list[tuple[Rows, Rows]]:
    """Return rows that pilot runs leave out, each with the others: a fifth or each fifth in turn, see `pilot_runs`.

    Of fewer than five groups each is a part. There are none of fewer than `MIN_ROWS` rows, or where parts would be
    empty. Rows of classes that are too rare for each part are not left out in turn.
    """
    training = data.training
    n, groups = len(training.X), training.groups
    # Classes, or values of which few differ, by numbers from 0.
    labels = np.unique(training.y, return_inverse=True)[1].reshape(n) if by_class else None
    split = functools.partial(
        pn.diagnostics.split_rows,
        n,
        seed=CHOICE_SEED,
        labels=labels,
        groups=training.copies(),
        whole=groups is not None,
    )
    parts = round(1 / PILOT_FRACTION)
    try:
        held, kept = split([PILOT_FRACTION])
        if len(held) >= MIN_ROWS and pilot_runs(n, by_class=by_class) == 1:
            return [(training.take(held), training.take(kept))]
        if n < MIN_ROWS:
            return []
        parts = parts if groups is None else min(parts, len(np.unique(groups)))
        turns = split([1 / parts] * (parts - 1))
    except ValueError:
        return []
    if labels is not None:
        often = np.bincount(labels)[labels] >= parts
        turns = [held[often[held]] for held in turns]
    return [(training.take(held), training.take(np.setdiff1d(np.arange(n), held))) for held in turns if len(held)]


def folds(data: FitData, rows: int) -> Iterator[tuple[Rows, Rows]]:
    """Yield fifths of the training rows, each with the other rows, until `rows` are left out in all, or all are.

    Of fewer than five groups each is a part. There are none if a fifth would be fewer than `MIN_ROWS` rows, or of two
    groups, each of which a network without it could not be validated by.
    """
    training, scored = data.training, 0
    n, parts, whole = len(training.X), round(1 / PILOT_FRACTION), False
    if training.groups is not None:
        parts, whole = min(parts, len(np.unique(training.groups))), True
    if PILOT_FRACTION * n < MIN_ROWS or parts < 3:
        return
    shares, groups = [1 / parts] * (parts - 1), training.copies()
    for held in pn.diagnostics.split_rows(n, shares, seed=CHOICE_SEED, groups=groups, whole=whole):
        if scored >= rows:
            return
        scored += len(held)
        yield training.take(held), training.take(np.setdiff1d(np.arange(n), held))
