"""What `patrac fit` chooses where the user does not: training length, penalty, noise variance, thinning, warm-up."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.model.likelihoods import Categorical, Gaussian, Likelihood
from patrac_native.network.network import Network
from patrac_native.tabular.tables import split_rows
from patrac_native.training.training import train
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    from patrac_native.model.posterior import Posterior

# Multiply-adds of one chain between two kept draws: 40 steps of Full on 3,000 rows, 200 of Mix(5).
_WORK_PER_DRAW = 1.4e9
_THIN = (10, 1000)
_WARMUP = (4_000, 20_000)
# Above this, training goes through mini-batches.
_FULL_BATCH_ROWS = 5_000
_BATCH_ROWS = 512
# The penalty is searched downwards from here, in steps of sqrt(10), to the second one that validates worse in a row.
_LARGEST_PENALTY = 31.6
_SEARCH_STEPS = 12
_FOLDS = 5
# Multiply-adds of a forward pass.
_ONE_THREAD_BELOW = 50_000_000
_CROSS_VALIDATED_ROWS = 1_000


@dataclass(frozen=True)
class Choice:
    """Penalty and noise variance, and how they were found.

    Attributes
    ----------
    l2 : float
        Penalty of the training.
    variance : float or None
        Noise variance of the standardised target; None for classes.
    trials : list of (l2, validation loss)
        Mean squared error of the standardised target, or mean negative log-likelihood of the classes; empty where
        nothing had to be chosen.
    validation : str
        In words, the rows that were used.
    """

    l2: float
    variance: float | None
    trials: list[tuple[float, float]]
    validation: str = ""


def training_settings(n: int, epochs: int | None = None) -> dict[str, Any]:
    """Return arguments of `train` for n rows: whole batches for up to 5,000 rows, mini-batches of 512 beyond."""
    if n <= _FULL_BATCH_ROWS:
        most = 1_000 if epochs is None else epochs
        return {"max_epochs": most, "patience": 100, "learning_rate": 1e-2}
    most = max(30, math.ceil(3_000 * _BATCH_ROWS / n)) if epochs is None else epochs
    return {"max_epochs": most, "patience": max(5, most // 5), "learning_rate": 3e-3, "batch_size": _BATCH_ROWS}


@contextmanager
def torch_threads(rows: int, sizes: list[int], threads: int | None = None) -> Iterator[None]:
    """Hold torch to the threads given, or to one where an epoch of these rows is too little work to share.

    Torch's threads spin while they wait for each other: on a busy machine two were measured to need five times the
    processor time of one for an epoch of 3,000 rows.
    """
    import torch

    usual = torch.get_num_threads()
    batch = min(rows, _BATCH_ROWS) if rows > _FULL_BATCH_ROWS else rows
    work = batch * sum(a * b for a, b in zip(sizes[1:], sizes[:-1], strict=True))
    count = threads if threads is not None else 1 if work < _ONE_THREAD_BELOW else usual
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def choose(
    sizes: list[int],
    X: FloatArray,
    y: npt.NDArray[Any],
    *,
    regression: bool,
    l2: float | None,
    variance: float | None,
    activation: str,
    seed: int,
    epochs: int | None = None,
) -> Choice:
    """Choose what is None by the loss on validation rows, a fifth of the rows split off for that.

    For regression the search runs over l2 * variance, the penalty beside the plain sum of squares: the best network
    does then not depend on the variance, and the variance is its mean squared validation error. With fewer than 1,000
    rows a fifth is few to estimate a variance from: it is then the mean of all five fifths, each predicted by a network
    trained on the others.

    Parameters
    ----------
    sizes : list of int
        Layer widths.
    X, y
        Standardised training rows.
    regression : bool
        Gaussian likelihood, or else Categorical.
    l2, variance : float, optional
        Given values stay; variance is that of the standardised target.
    activation, seed, epochs
        As in `train`.

    Returns
    -------
    Choice
    """
    if l2 is not None and (variance is not None or not regression):
        return Choice(l2, variance, [])
    try:
        folds = split_rows(len(X), [1 / _FOLDS] * (_FOLDS - 1), seed=seed + 1, labels=None if regression else y)
    except ValueError as few:
        raise ValueError(
            f"{len(X)} training rows are too few to choose the penalty or the noise variance on a fifth of them; give "
            f"{'--l2 and --noise-variance' if regression else '--l2'}, or more rows."
        ) from few
    first = f"{len(folds[0])} validation rows"

    def loss_at(penalty: float, likelihood: Likelihood, fold: int = 0) -> float:
        held = folds[fold]
        rest = np.setdiff1d(np.arange(len(X)), held)
        with warnings.catch_warnings():
            # A penalty too large is a poor fit, and part of the search.
            warnings.filterwarnings("ignore", message="train: the fit is poor")
            net = train(
                sizes,
                X[rest],
                y[rest],
                likelihood=likelihood,
                activation=activation,
                l2=penalty,
                seed=seed,
                progress=None,
                **training_settings(len(rest), epochs),
            )
        return validation_loss(net, X[held], y[held], regression=regression)

    def over_folds(loss: float, penalty: float, likelihood: Likelihood) -> tuple[float, str]:
        if len(X) >= _CROSS_VALIDATED_ROWS:
            return loss, first
        losses = [loss, *(loss_at(penalty, likelihood, fold) for fold in range(1, _FOLDS))]
        sizes_of = [len(fold) for fold in folds]
        return float(np.average(losses, weights=sizes_of)), f"{first}, the noise variance by {_FOLDS}-fold validation"

    if not regression:
        trials = _search(lambda penalty: loss_at(penalty, Categorical()))
        return Choice(min(trials, key=lambda t: t[1])[0], None, trials, first)
    if l2 is None:
        trials = _search(lambda penalty: loss_at(penalty, Gaussian(1.0)))
        penalty, error = min(trials, key=lambda t: t[1])
        words = first
        if variance is None:
            variance, words = over_folds(error, penalty, Gaussian(1.0))
        return Choice(penalty / variance, variance, [(p / variance, e) for p, e in trials], words)
    # The penalty beside the sum of squares is l2 * variance, so the two are settled in turn.
    trials, current = [], 0.5
    for _ in range(4):
        used, current = current, loss_at(l2, Gaussian(current))
        trials.append((l2, current))
        if abs(math.log(current / used)) < 0.1:
            break
    current, words = over_folds(current, l2, Gaussian(used))
    return Choice(l2, current, trials, words)


def _search(loss_at: Callable[[float], float]) -> list[tuple[float, float]]:
    """Penalties tried from the largest down, each with its validation loss."""
    trials: list[tuple[float, float]] = []
    worse = 0
    for step in range(_SEARCH_STEPS):
        penalty = _LARGEST_PENALTY * 10 ** (-step / 2)
        loss = loss_at(penalty)
        worse = worse + 1 if trials and loss > min(t[1] for t in trials) else 0
        trials.append((penalty, loss))
        if worse == 2:
            break
    return trials


def validation_loss(net: Network, X: FloatArray, y: npt.NDArray[Any], *, regression: bool) -> float:
    """Return the mean squared error of the standardised target, or the mean negative log-likelihood of classes."""
    f = net.predict(X)
    if regression:
        return float(((f[:, 0] - y) ** 2).mean())
    return -float(Categorical().log_likelihood(f, y)) / len(y)


def default_thin(post: Posterior) -> int:
    """Return steps between kept draws for about the same computing time a draw, whatever the model: 10 to 1000.

    From the plan's counts alone, so the same on every machine.
    """
    work = 0.0
    for layer in post.plan():
        # Forward, reverse and gradient; an activation with its derivative costs about 30 multiply-adds.
        work += (
            3.0 * layer["varying"] * (layer["varying_sources"] + layer["constant_sources"]) + 30.0 * layer["varying"]
        )
    return _two_digits(float(np.clip(_WORK_PER_DRAW / (work * post.n_rows), *_THIN)))


def default_warmup_steps(thin: int, draws: int) -> int:
    """Return half as many steps as are sampled, in whole windows of 200, from 4,000 to 20,000."""
    return int(np.clip(thin * draws // 2 // 200 * 200, *_WARMUP))


def _two_digits(value: float) -> int:
    size = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return int(round(value / size) * size)
