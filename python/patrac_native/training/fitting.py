"""The training of a network on all its rows, once penalty and number of epochs are known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from patrac_native.network.network import Network, StopReason, TrainingHistory
from patrac_native.plots.progress import progress_bar
from patrac_native.training.descent import Descent, torch_threads
from patrac_native.training.penalty_search import Validation, mean_squares
from patrac_native.training.preparation import PreparedTraining
from patrac_native.validation.checks import FloatArray

if TYPE_CHECKING:
    import torch

# What `train` advises where a network fits no better than a constant, in its own arguments.
POOR_FIT_ADVICE = "Standardise X and y, change learning_rate, raise patience or max_epochs, or lower l2."


@dataclass
class _Best:
    """The best parameters so far, their loss and their epoch."""

    loss: float
    epoch: int
    theta: torch.Tensor


def fit_network(
    training: PreparedTraining,
    *,
    show: bool = False,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> tuple[Network, list[str]]:
    """Train a network on all rows, and return it with warnings; `is_interrupted` is asked in every epoch."""
    problem, validation = training.problem, training.validation
    likelihood, targets = problem.likelihood, problem.targets
    started = time.perf_counter()
    with torch_threads(problem.work):
        descent = Descent(problem, training.l2)
        losses, best, stopped = _descend(descent, training.patience, training.epochs, show, is_interrupted)
    seconds = training.seconds + time.perf_counter() - started
    if validation is not None and stopped == "max_epochs" and training.epochs != training.recorded["max_epochs"]:
        stopped = "validation"
    net = problem.network(best.theta)
    f = likelihood.with_offset(net.predict(problem.inputs), problem.offset)
    rows = likelihood.log_likelihood_rows(f, targets)
    data_loss = -float((rows * problem.row_weights).sum())
    weights = problem.row_weights if problem.is_weighted else None
    constant_loss = 0.0 - likelihood.constant_log_likelihood(targets, weights, problem.offset)
    history = TrainingHistory(
        np.array(losses),
        best.epoch,
        best.loss,
        data_loss,
        constant_loss,
        stopped,
        {**training.recorded, "validation": None if validation is None else validation.to_dict()},
        seconds,
        validation_mse=_validation_mse(training, net),
    )
    notes = list(_notes(stopped, best, losses, data_loss, constant_loss, validation))
    return Network(
        net.weights, net.biases, problem.activation, history=history, input_names=training.input_names
    ), notes


def _validation_mse(training: PreparedTraining, net: Network) -> FloatArray | None:
    """Return the mean squared residuals (m,) of rows left out of this training, or else those of its validation."""
    problem, validation = training.problem, training.validation
    if problem.left_out is not None and problem.left_out.any():
        return mean_squares(problem, net, problem.left_out)
    return None if validation is None else validation.mse


def _descend(
    descent: Descent, patience: int, max_epochs: int | None, show: bool, is_interrupted: Callable[[], bool]
) -> tuple[list[float], _Best, StopReason]:
    """Run epochs until a stopping rule applies; return the losses, the best parameters and the rule."""
    losses: list[float] = []
    best: _Best | None = None
    stopped: StopReason = "max_epochs"
    bar = progress_bar(
        total=max_epochs, desc="training", unit=" epochs", disable=not show, leave=False, mininterval=0.2
    )
    try:
        while max_epochs is None or len(losses) < max_epochs:
            if is_interrupted():
                raise KeyboardInterrupt
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
            f"{constant_loss:.6g}, that of the best constant predictor{chosen}. {POOR_FIT_ADVICE}"
        )
