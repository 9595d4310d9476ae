"""Training of several networks on the same data, which differ in their seeds, their rows or both."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.splits import IndexArray
from patrac_native.engine.machine import thread_count
from patrac_native.network.network import Network
from patrac_native.plots.progress import progress_bar, shows_progress
from patrac_native.training.penalty_search import cross_validate, problem_copies
from patrac_native.training.preparation import Training, n_parameters, prepare_training
from patrac_native.training.training import fit_network
from patrac_native.validation.checks import FloatArray, check_count, check_layer_sizes, check_positive
from patrac_native.validation.memory import check_memory
from patrac_native.validation.notes import Note

_GOLDEN = (math.sqrt(5) - 1) / 2


def train_many(
    layer_sizes: Sequence[int],
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    networks: int = 8,
    first: int = 0,
    l2: float | Mapping[float, float] | None = None,
    rows: Literal["all", "bootstrap"] | float = "all",
    epoch_fraction: float = 1.0,
    seed: int = 0,
    threads: int | None = None,
    progress: bool | None = None,
    **arguments: Any,
) -> list[Network]:
    """Train several networks, whose posteriors `sample_many` then samples and `DrawsMixture` combines.

    Penalties are tried once, on all rows, as `train` with the same `validation_seed` (by default the first seed) tries
    them. The first network takes the one that `train` takes; the others take penalties in proportion to how often
    bootstrap samples of the validation rows prefer them, so that the networks differ in what was chosen too. The number
    of epochs is the one chosen at the penalty. Every network is a function of the seed, its position and the arguments;
    it does not depend on the number of networks or of threads.

    Parameters
    ----------
    layer_sizes, X, y
        As for `train`.
    networks : int
        Number of networks, at least 1; default 8.
    first : int
        Position of the first network, at least 0; default 0. A call with first=8 returns the networks that follow the
        eight of another; if it gets their penalties as `l2`, they are those of a call with more networks.
    l2 : float or mapping of float to float, optional
        A penalty for all networks, or penalties with their shares of the networks, which add up to one: the first
        network takes the first penalty, and others follow so that any eight have them in about these shares. By default
        a search finds them, which `dict(net.history.settings["penalties"])` then has.
    rows : "all", "bootstrap" or float
        The rows of each network. "all", the default: the same for all networks, which then differ in their seeds.
        "bootstrap": as many rows as there are, drawn with replacement. A number between 0 and 1: this share of the
        rows, drawn without replacement. Rows are drawn by multiplying their weights, which `sample_weight` sets.
    epoch_fraction : float
        Number of epochs, as a share of that by which `train` would train, in (0, 1]; default 1. Networks that are
        trained less are each worse but differ more, and the sampling goes on from where their training stopped.
    seed : int
        Seed of the network at position 0, as for `train`; the next ones use seed + 1, seed + 2, ... modulo 2^64.
    threads : int, optional
        Number of networks that are trained at the same time, at least 1; by default the number of processors that this
        process may use. Each network is trained by one thread.
    progress : bool, optional
        Whether to show a progress bar; by default in terminals and notebooks only.
    **arguments
        Other keywords of `train`.

    Returns
    -------
    list of Network
        `history.validation_mse` has the squared residuals on the rows that a network was not trained on, if its rows
        are not all rows, and otherwise those of networks trained alike, as after `train`.

    Raises
    ------
    TypeError, ValueError
        As `train`, or if an argument is not as described.
    KeyboardInterrupt
        If Ctrl-C is pressed.

    Warns
    -----
    UserWarning
        As `train`, naming the network; the one at position 0 is network 1, as in verdicts and reports.

    Examples
    --------
    >>> X = np.linspace(-3, 3, 40)[:, None]
    >>> nets = train_many([1, 5, 1], X, np.sin(X), networks=3, l2=0.01, validation_fraction=0, max_epochs=300)
    >>> len(nets), nets[0].layer_sizes
    (3, (1, 5, 1))
    """
    count, position = check_count(networks, "networks"), check_count(first, "first", least=0)
    most = thread_count(threads)
    fraction = check_positive(epoch_fraction, "epoch_fraction")
    if fraction > 1:
        raise ValueError(f"epoch_fraction must be above 0 and at most 1; got {fraction:g}.")
    _check_rows(rows)
    check_memory(
        count * n_parameters(check_layer_sizes(layer_sizes)) * np.dtype(np.float64).itemsize,
        f"networks={count}: the parameters of the networks",
        "Train fewer.",
    )
    show = shows_progress(progress)
    arguments |= {"penalties": l2} if isinstance(l2, Mapping) else {"l2": l2}
    try:
        prepared = prepare_training(layer_sizes, X, y, seed=seed, show=show, threads=most, **arguments)
    except TypeError as error:
        raise TypeError(str(error).replace("prepare_training()", "train_many()")) from None
    for note in prepared.notes:
        note.give(stacklevel=2)
    shares, positions = prepared.shares(), range(position, position + count)
    drawn = [_penalty(shares, prepared.problem.validation_seed, index) for index in positions]
    at = {
        one: _shortened(prepared.at_penalty(one, show=show, threads=most), prepared.folds, fraction, most)
        for one in dict.fromkeys(drawn)
    }
    seconds = prepared.seconds + sum(made.seconds for made in at.values())
    copies = problem_copies(prepared.problem) if rows != "all" else None
    recorded = {"rows": rows, "epoch_fraction": fraction, "penalties": [list(one) for one in shares.items()]}
    members = [
        _member(at[penalty], index, rows, copies, recorded) for index, penalty in zip(positions, drawn, strict=True)
    ]
    members[0] = replace(members[0], seconds=seconds)
    results = _fit_all(members, most, show)
    for index, (_, notes) in enumerate(results, position + 1):
        for note in notes:
            Note(note.kind, f"network {index}: {note}").give(stacklevel=2)
    return [net for net, _ in results]


def _check_rows(rows: str | float) -> None:
    """Raise ValueError or TypeError unless `rows` is "all", "bootstrap" or a number between 0 and 1."""
    if isinstance(rows, str):
        if rows not in ("all", "bootstrap"):
            raise ValueError(f'rows must be "all", "bootstrap" or a share of the rows between 0 and 1; got {rows!r}.')
    elif check_positive(rows, "rows") >= 1:
        raise ValueError(f'rows must be a share between 0 and 1, or "all"; got {rows:g}.')


def _penalty(shares: Mapping[float, float], seed: int, index: int) -> float:
    """Return the penalty of the network at a position, the first at position 0.

    The shares lie one after the other on a circle, on which each network goes on by the golden ratio from a place in
    the share of the first: any networks in a row have penalties in these shares but for rounding, so that runs differ
    less than by chance. Where the first share is small, the sequence is nearly the same for any seed.
    """
    if index == 0:
        return next(iter(shares))
    ends = np.cumsum(list(shares.values()))
    # A stream of its own: those of the seed and a position draw rows.
    start = np.random.default_rng([seed, 0, 1]).uniform(0.0, ends[0])
    place = (start + index * _GOLDEN) % 1.0
    return list(shares)[min(int(np.searchsorted(ends, place, side="right")), len(ends) - 1)]


def _shortened(training: Training, folds: Sequence[IndexArray], fraction: float, threads: int) -> Training:
    """Return the training with a share of its epochs, and with the validation of networks that are trained so."""
    if fraction == 1:
        return training
    if training.epochs is None:
        raise ValueError("epoch_fraction is a share of max_epochs, which is unlimited here; give max_epochs.")
    epochs = max(1, round(fraction * training.epochs))
    validation = training.validation
    if validation is not None:
        bounds = {"max_epochs": epochs, "patience": training.patience, "threads": threads}
        found = cross_validate(training.problem, training.l2, folds, **bounds)
        validation = replace(validation, epochs=epochs, loss=found.loss, mse=found.mse)
    return replace(training, epochs=epochs, validation=validation)


def _member(
    training: Training, index: int, rows: str | float, copies: IndexArray | None, recorded: Mapping[str, Any]
) -> Training:
    """Return the training of one network; `copies` as `copy_groups` returns them, unless `rows` is "all"."""
    problem = training.problem
    seed = (problem.seed + index) % 2**64
    recorded = {**training.recorded, **recorded, "seed": seed}
    problem = replace(problem, seed=seed)
    if rows != "all":
        given = problem.row_weights
        times = _multiplicity(given, rows, np.random.default_rng([training.problem.seed, index]))
        drawn = times > 0
        if copies is not None:  # a copy of a row that is trained on is no row that the network has not seen
            drawn = np.isin(copies, copies[drawn])
        left_out = np.where(drawn, 0.0, given)
        problem = replace(problem, row_weights=given * times, left_out=left_out)
    return replace(training, problem=problem, recorded=recorded, seconds=0.0)


def _multiplicity(weights: FloatArray, rows: str | float, rng: np.random.Generator) -> FloatArray:
    """Return how often each row is drawn, shape (n,); rows of weight zero are not drawn."""
    used = np.flatnonzero(weights)
    count = np.zeros(len(weights))
    if isinstance(rows, str):
        np.add.at(count, rng.choice(used, len(used)), 1.0)
    else:
        count[rng.choice(used, max(1, round(rows * len(used))), replace=False)] = 1.0
    return count


def _fit_all(trainings: Sequence[Training], workers: int, show: bool) -> list[tuple[Network, list[Note]]]:
    """Train the networks, `workers` of them at a time; return each with its notes."""
    stop = threading.Event()

    def fit(training: Training) -> tuple[Network, list[Note]]:
        return fit_network(training, threads=1, is_interrupted=stop.is_set)

    bar = progress_bar(total=len(trainings), desc="training", unit=" networks", disable=not show, leave=False)
    # The engine releases the GIL. Each network has one thread of it.
    with bar, ThreadPoolExecutor(min(workers, len(trainings))) as pool:
        futures = [pool.submit(fit, training) for training in trainings]
        results = []
        try:
            for future in futures:
                results.append(future.result())
                bar.update()
        except BaseException:
            # Ctrl-C interrupts the waiting, not the workers.
            stop.set()
            for future in futures:
                future.cancel()
            raise
    return results
