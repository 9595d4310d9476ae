"""Training of the network that is then made partially Bayesian, with a torch optimiser."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from patrac_native.model.likelihoods import Gaussian, Likelihood
from patrac_native.network.activations import check_activation
from patrac_native.network.network import Network, StopReason, TrainingHistory
from patrac_native.training.descent import Descent, Problem, check_optimizer, torch_threads
from patrac_native.training.folds import FEWEST_ROWS, validation_folds
from patrac_native.training.validation import Validation, choose_training
from patrac_native.validation.checks import (
    check_count,
    check_inputs,
    check_layer_sizes,
    check_nonnegative,
    check_positive,
    check_seed,
)

if TYPE_CHECKING:
    import torch

DEFAULT_TRAINING: Mapping[str, Any] = MappingProxyType(
    {
        "optimizer": "adam",
        "learning_rate": 1e-2,
        "l2": None,
        "patience": 300,
        "max_epochs": 20_000,
        "validation_fraction": 0.2,
    }
)
# The settings of the paper's section 4.1, which states no maximum number of epochs; with this learning rate training
# takes about 10^6 epochs.
PAPER_TRAINING: Mapping[str, Any] = MappingProxyType(
    {
        "optimizer": "adam",
        "learning_rate": 1e-6,
        "l2": 1.0,
        "patience": 20,
        "max_epochs": None,
        "validation_fraction": 0.0,
    }
)
PRESETS = {"default": DEFAULT_TRAINING, "paper": PAPER_TRAINING}
# The penalty if it is neither given nor chosen on validation rows: a standard normal prior on every parameter.
L2_WITHOUT_VALIDATION = 1.0


@dataclass
class _Best:
    """The best parameters so far, their loss and their epoch."""

    loss: float
    epoch: int
    theta: torch.Tensor


def train(
    layer_sizes: Sequence[int],
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    likelihood: Likelihood | None = None,
    sample_weight: npt.ArrayLike | None = None,
    activation: str = "tanh",
    optimizer: str | type[torch.optim.Optimizer] | None = None,
    learning_rate: float | None = None,
    l2: float | None = None,
    patience: int | None = None,
    max_epochs: int | None = None,
    validation_fraction: float | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float32",
    progress: bool | None = None,
    preset: Literal["default", "paper"] | None = None,
) -> Network:
    """Train a network: minimise the negative log-likelihood + (l2 / 2) * squared norm of all parameters.

    Each epoch begins with an evaluation of this loss on all rows; the parameters with the lowest loss are returned. The
    initial parameters are uniform on +-1/sqrt(fan-in), torch's default, except that the biases of the last layer start
    at the `initial_outputs` of a likelihood that has them. Torch's global random state is not changed.

    By default, validation rows decide how closely the network fits. First, networks are trained without the validation
    rows, each for up to 1,000 epochs, with penalties that decrease from a large one; the penalty with the lowest
    negative log-likelihood of the validation rows is chosen. Training with this penalty, again without the validation
    rows, then gives the number of epochs at which that loss is lowest. **The returned network is trained on all rows**
    with this penalty for this number of epochs. `history.validation_mse` has the squared residuals of validation rows,
    from networks that were trained alike on the others. With fewer than 1,000 rows there is one such network for each
    fifth of the rows, and number of epochs and `validation_mse` rest on all rows; with fewer than 300, the penalty too.
    Classes are divided among the parts in proportion.

    Parameters
    ----------
    layer_sizes : sequence of int
        Widths (d, hidden layers, m), such as [1, 50, 50, 1].
    X : array_like, shape (n, d)
        Inputs, finite, n >= 1; preferably standardised.
    y : array_like
        Targets, as the likelihood describes them.
    likelihood : Likelihood, optional
        The likelihood; default Gaussian(1.0).
    sample_weight : array_like, shape (n,), optional
        Factor of each row's term of the log-likelihood, finite and nonnegative with a positive sum; default ones. The
        means over validation rows have the same weights.
    activation : str
        One of `ACTIVATIONS`; default "tanh".
    optimizer : str or torch.optim.Optimizer class, optional
        One of `OPTIMIZERS`, or a class that is called as optimizer([parameters], lr=learning_rate) with all parameters
        in one tensor; default "adam".
    learning_rate : float, optional
        Learning rate, > 0; default 0.01.
    l2 : float, optional
        Penalty, >= 0; 1 is a standard normal prior on every parameter. By default it is chosen on the validation rows,
        and without them it is 1.
    patience : int, optional
        Number of consecutive epochs without a new lowest loss, that of the validation rows if there are any, after
        which training stops, >= 1; default 300.
    max_epochs : int, optional
        Maximum number of epochs, >= 1; default 20,000, unlimited with the paper's preset.
    validation_fraction : float, optional
        Share of the rows that are validation rows, from 0 to below 1; default 0.2. With fewer than 1,000 rows, the rows
        are split into about 1 / validation_fraction parts (at least two), and each part is used for validation in turn.
        With 0 there is no validation: all rows are used for max_epochs, or until the loss on them stops falling.
    batch_size : int, optional
        Number of rows of a mini-batch, >= 1, whose negative log-likelihood is scaled by n / batch_size; by default
        every step uses all rows.
    seed : int
        0 <= seed < 2^64, for the initial parameters, the mini-batches and the validation rows; default 0. On one
        machine, equal seeds give equal results.
    dtype : {"float32", "float64"}
        The dtype of the arithmetic; default "float32". The network holds float64 in either case.
    progress : bool, optional
        Whether to show a progress bar; by default only if standard error is a terminal.
    preset : {"default", "paper"}, optional
        Defaults of optimizer, learning_rate, l2, patience, max_epochs and validation_fraction. "paper" is Adam with
        learning rate 1e-6, l2 = 1 and patience 20 on all rows (the paper's section 4.1).

    Returns
    -------
    Network
        The trained network; its `history` is a TrainingHistory. `history.settings["validation"]` has the chosen
        penalty and number of epochs, the penalties tried and their validation losses.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, layer_sizes do not fit X and y, there are too few rows for the given
        validation_fraction, or the loss is not finite at the initial parameters.
    KeyboardInterrupt
        If Ctrl-C is pressed while penalty and number of epochs are being chosen.

    Warns
    -----
    UserWarning
        If the fit is no better than the best constant predictor (both without penalty), if the loss becomes
        non-finite, or if Ctrl-C ended the final training; the best parameters so far are returned in each case. Also
        if there are fewer than 10 rows, which are too few for validation by default.
    """
    sizes = check_layer_sizes(layer_sizes)
    check_activation(activation)
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64'; got {dtype!r}.")
    likelihood = Gaussian(1.0) if likelihood is None else likelihood
    if not isinstance(likelihood, Likelihood):
        got = repr(likelihood) if isinstance(likelihood, str | type) else type(likelihood).__name__
        raise TypeError(f"likelihood must be an object such as Gaussian(1.0), Categorical() or Bernoulli(); got {got}.")
    inputs = check_inputs(X, sizes[0])
    n = len(inputs)
    targets = likelihood.check_targets(y, n, sizes[-1])
    row_weights = likelihood.row_weights(sample_weight, n)
    given = {
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "l2": l2,
        "patience": patience,
        "max_epochs": max_epochs,
        "validation_fraction": validation_fraction,
    }
    settings = _resolve_settings(given, preset)
    batch_size = n if batch_size is None else min(check_count(batch_size, "batch_size"), n)
    check_optimizer(settings["optimizer"])
    problem = Problem(
        sizes,
        activation,
        likelihood,
        inputs,
        targets,
        row_weights,
        optimizer=settings["optimizer"],
        learning_rate=settings["learning_rate"],
        batch_size=batch_size,
        seed=check_seed(seed),
        dtype=dtype,
    )
    show = sys.stderr.isatty() if progress is None else bool(progress)

    started = time.perf_counter()
    validation: Validation | None = None
    epochs = settings["max_epochs"]
    if validation_fraction is None and settings["validation_fraction"] > 0 and np.sum(row_weights > 0) < FEWEST_ROWS:
        settings["validation_fraction"] = 0.0
        warnings.warn(_too_few_rows(n, settings["l2"]), UserWarning, stacklevel=2)
    if settings["validation_fraction"] > 0:
        validation = choose_training(
            problem,
            validation_folds(problem, settings["validation_fraction"]),
            l2=settings["l2"],
            max_epochs=epochs,
            patience=settings["patience"],
            show=show,
        )
        settings["l2"], epochs = validation.l2, validation.epochs
    elif settings["l2"] is None:
        settings["l2"] = L2_WITHOUT_VALIDATION
    with torch_threads(problem.work):
        losses, best, stopped = _descend(Descent(problem, settings["l2"]), settings["patience"], epochs, show)
    seconds = time.perf_counter() - started
    if validation is not None and stopped == "max_epochs" and epochs != settings["max_epochs"]:
        stopped = "validation"

    net = problem.network(best.theta)
    f = net.predict(inputs)
    data_loss = -float(likelihood.log_likelihood(f, targets, sample_weight))
    constant_loss = -likelihood.constant_log_likelihood(targets, None if sample_weight is None else row_weights)
    for note in _notes(stopped, best, losses, data_loss, constant_loss, validation):
        warnings.warn(note, UserWarning, stacklevel=2)
    chosen = settings["optimizer"]
    recorded = {
        **settings,
        "optimizer": chosen if isinstance(chosen, str) else f"{chosen.__module__}.{chosen.__qualname__}",
        "likelihood": likelihood.to_dict(),
        "batch_size": batch_size,
        "seed": seed,
        "dtype": dtype,
        "preset": preset,
        "validation": None if validation is None else validation.to_dict(),
    }
    history = TrainingHistory(
        np.array(losses),
        best.epoch,
        best.loss,
        data_loss,
        constant_loss,
        stopped,
        recorded,
        seconds,
        validation_mse=None if validation is None else validation.mse,
    )
    return Network(net.weights, net.biases, activation, history=history)


def _descend(
    descent: Descent, patience: int, max_epochs: int | None, show: bool
) -> tuple[list[float], _Best, StopReason]:
    """Run epochs until a stopping rule applies; return the losses, the best parameters and the rule."""
    from tqdm import tqdm

    losses: list[float] = []
    best: _Best | None = None
    stopped: StopReason = "max_epochs"
    bar = tqdm(total=max_epochs, desc="training", unit=" epochs", disable=not show, leave=False, mininterval=0.2)
    try:
        while max_epochs is None or len(losses) < max_epochs:
            epoch = descent.epoch()
            loss = float(epoch.loss)
            losses.append(loss)
            if not np.isfinite(loss):
                stopped = "non-finite"
                break
            if best is None or loss < best.loss:
                # One assignment, so that Ctrl-C cannot separate the loss from its parameters.
                best = _Best(loss, len(losses) - 1, epoch.theta)
            elif len(losses) - 1 - best.epoch >= patience:
                stopped = "patience"
                break
            bar.update()
            if show and len(losses) % 100 == 0:
                bar.set_postfix(loss=f"{best.loss:.6g}", refresh=False)
    except KeyboardInterrupt:
        if best is None:
            raise
        stopped = "interrupted"
    finally:
        bar.close()
    if best is None:
        raise ValueError(
            f"train: the loss is {losses[0]} at the initial parameters. Standardise X and y, or use dtype='float64'."
        )
    return losses, best, stopped


def _too_few_rows(n: int, l2: float | None) -> str:
    """Say that there is no validation by default, and what was done instead."""
    chosen = f"l2 = {L2_WITHOUT_VALIDATION:g}" if l2 is None else "the given l2"
    return (
        f"train: {n} rows are too few to choose l2 and the number of epochs on validation rows; the network is trained "
        f"on all rows with {chosen} until their own loss stops falling. validation_fraction=0 asks for that."
    )


def _notes(
    stopped: StopReason,
    best: _Best,
    losses: Sequence[float],
    data_loss: float,
    constant_loss: float,
    validation: Validation | None,
) -> Iterator[str]:
    """Say what ended early and what fits poorly, each with what to do."""
    if stopped == "non-finite":
        yield (
            f"train: the loss became {losses[-1]} in epoch {len(losses) - 1}; the best parameters, of epoch "
            f"{best.epoch} with loss {best.loss:.6g}, are returned. Lower learning_rate or standardise X and y."
        )
    if stopped == "interrupted":
        yield (
            f"train: interrupted after {len(losses)} epochs; the best parameters, of epoch {best.epoch} with loss "
            f"{best.loss:.6g}, are returned."
        )
    if data_loss >= constant_loss:
        chosen = (
            ""
            if validation is None
            else f" (l2 = {validation.l2:.3g} and {validation.epochs} epochs were chosen on validation rows, which a "
            "closer fit predicts worse: X may say nothing about y)"
        )
        yield (
            f"train: the fit is poor: its negative log-likelihood {data_loss:.6g} is no better than "
            f"{constant_loss:.6g}, that of the best constant predictor{chosen}. Standardise X and y, change "
            "learning_rate, raise patience or max_epochs, or lower l2."
        )


def _resolve_settings(given: Mapping[str, Any], preset: str | None) -> dict[str, Any]:
    """Replace arguments that are None by the preset's values, and check all of them."""
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)} or None; got {preset!r}.")
    settings = dict(PRESETS[preset or "default"]) | {key: value for key, value in given.items() if value is not None}
    settings["learning_rate"] = check_positive(settings["learning_rate"], "learning_rate")
    if settings["l2"] is not None:
        settings["l2"] = check_nonnegative(settings["l2"], "l2")
    fraction = check_nonnegative(settings["validation_fraction"], "validation_fraction")
    if fraction >= 1:
        raise ValueError(f"validation_fraction must be at least 0 and below 1; got {fraction:g}.")
    settings["validation_fraction"] = fraction
    settings["patience"] = check_count(settings["patience"], "patience")
    if settings["max_epochs"] is not None:
        settings["max_epochs"] = check_count(settings["max_epochs"], "max_epochs")
    return settings
