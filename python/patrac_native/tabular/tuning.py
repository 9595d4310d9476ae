"""The defaults of `patrac fit` that depend on the data: epochs, penalty, noise variance, thinning, warm-up."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.model.likelihoods import Categorical, Gaussian, Likelihood
from patrac_native.network.network import Network
from patrac_native.training.folds import split_rows
from patrac_native.training.training import train
from patrac_native.training.validation import best_penalty, search_penalties
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    from patrac_native.model.posterior import Posterior

# Multiply-adds of one chain from one draw to the next: about 40 steps of Full on 3,000 rows, or 200 of Mix(5).
_WORK_PER_DRAW = 1.4e9
# Bounds of the default thinning and of the default number of warm-up steps.
_THIN = (10, 1000)
_WARMUP = (4_000, 20_000)
# With more rows than this, training uses mini-batches of _BATCH_ROWS rows.
_FULL_BATCH_ROWS = 5_000
_BATCH_ROWS = 512
# The training rows are split into this many parts, one of which is used for validation.
_FOLDS = 5
# If a forward pass of a batch has fewer multiply-adds than this, training uses one thread.
_ONE_THREAD_BELOW = 50_000_000
# With fewer rows than this, the noise variance is estimated by cross-validation.
_CROSS_VALIDATED_ROWS = 1_000


@dataclass(frozen=True)
class Choice:
    """Penalty and noise variance, and how they were chosen.

    Attributes
    ----------
    l2 : float
        Penalty of the training.
    variance : float or None
        Noise variance of the standardised target; None for classes.
    trials : list of (l2, validation loss)
        The penalties tried, each with the mean squared error of the standardised target or the mean negative
        log-likelihood of the classes; empty if nothing had to be chosen.
    validation : str
        The validation rows, in words.
    """

    l2: float
    variance: float | None
    trials: list[tuple[float, float]]
    validation: str = ""


def training_settings(n: int, epochs: int | None = None) -> dict[str, Any]:
    """Return arguments of `train` for n rows: full batches for up to 5,000 rows, mini-batches of 512 for more."""
    if n <= _FULL_BATCH_ROWS:
        return {"max_epochs": 1_000 if epochs is None else epochs, "patience": 100, "learning_rate": 1e-2}
    max_epochs = max(30, math.ceil(3_000 * _BATCH_ROWS / n)) if epochs is None else epochs
    return {
        "max_epochs": max_epochs,
        "patience": max(5, max_epochs // 5),
        "learning_rate": 3e-3,
        "batch_size": _BATCH_ROWS,
    }


@contextmanager
def torch_threads(rows: int, sizes: list[int], threads: int | None = None) -> Iterator[None]:
    """Set torch's number of threads within the context: the given one, or one if a batch is too little work to share.

    Torch's threads spin while they wait for each other. On a busy machine two threads were measured to need five times
    the processor time of one for an epoch of 3,000 rows.
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
    """Choose the penalty, the noise variance or both by the loss on validation rows, a fifth of the rows.

    For regression the search runs over l2 * variance, the penalty relative to the plain sum of squares. The best
    network then does not depend on the variance, which is estimated by the network's mean squared validation error.
    With fewer than 1,000 rows a fifth is too few for this estimate; the variance is then the mean over all five fifths,
    each predicted by a network trained on the others.

    Parameters
    ----------
    sizes : list of int
        Layer widths.
    X : ndarray of float64, shape (n, d)
        Inputs of the training rows.
    y : ndarray, shape (n,)
        Standardised targets, or labels.
    regression : bool
        Whether the likelihood is Gaussian rather than Categorical.
    l2, variance : float, optional
        Given values are kept, None is chosen; `variance` is that of the standardised target.
    activation, seed
        As in `train`.
    epochs : int, optional
        Maximum number of epochs; see `training_settings`.

    Returns
    -------
    Choice

    Raises
    ------
    ValueError
        If there are too few rows to split.
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
            # The search includes penalties that are too large, which give a poor fit.
            warnings.filterwarnings("ignore", message="train: the fit is poor")
            net = train(
                sizes,
                X[rest],
                y[rest],
                likelihood=likelihood,
                activation=activation,
                l2=penalty,
                validation_fraction=0,
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
        trials = search_penalties(lambda penalty: loss_at(penalty, Categorical()))
        return Choice(best_penalty(trials), None, trials, first)
    if l2 is None:
        trials = search_penalties(lambda penalty: loss_at(penalty, Gaussian(1.0)))
        penalty, error = min(trials, key=lambda t: t[1])
        words = first
        if variance is None:
            variance, words = over_folds(error, penalty, Gaussian(1.0))
        return Choice(penalty / variance, variance, [(p / variance, e) for p, e in trials], words)
    # The penalty relative to the sum of squares is l2 * variance, so training and variance alternate.
    trials, current = [], 0.5
    for _ in range(4):
        used, current = current, loss_at(l2, Gaussian(current))
        trials.append((l2, current))
        if abs(math.log(current / used)) < 0.1:
            break
    current, words = over_folds(current, l2, Gaussian(used))
    return Choice(l2, current, trials, words)


def validation_loss(net: Network, X: FloatArray, y: npt.NDArray[Any], *, regression: bool) -> float:
    """Return the mean squared error of the standardised target, or the mean negative log-likelihood of classes."""
    f = net.predict(X)
    if regression:
        return float(((f[:, 0] - y) ** 2).mean())
    return -float(Categorical().log_likelihood(f, y)) / len(y)


def default_thin(post: Posterior) -> int:
    """Return a number of steps for each draw, from 10 to 1000, that makes the work for a draw similar for all models.

    It is computed from numbers of nodes and rows, so it is the same on every machine.
    """
    work = 0.0
    for layer in post.plan():
        # Forward pass, reverse pass and gradient; an activation with its derivative costs about 30 multiply-adds.
        work += (
            3.0 * layer["varying"] * (layer["varying_sources"] + layer["constant_sources"]) + 30.0 * layer["varying"]
        )
    return _two_digits(float(np.clip(_WORK_PER_DRAW / (work * post.n_rows), *_THIN)))


def default_warmup_steps(thin: int, draws: int) -> int:
    """Return half the number of steps after the warm-up, rounded to a multiple of 200, from 4,000 to 20,000."""
    return int(np.clip(thin * draws // 2 // 200 * 200, *_WARMUP))


def _two_digits(value: float) -> int:
    """Round to two significant digits."""
    size = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return int(round(value / size) * size)
