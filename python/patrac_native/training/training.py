"""Training of the network that is then made partially Bayesian."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from patrac_native.likelihoods import Likelihood
from patrac_native.network.network import Network, StopReason, TrainingHistory
from patrac_native.plots.progress import progress_bar, shows_progress
from patrac_native.training.descent import Descent, RealArray
from patrac_native.training.penalty_search import Validation, mean_squares
from patrac_native.training.preparation import Training, prepare_training
from patrac_native.validation.notes import Note

if TYPE_CHECKING:
    import torch


def train(
    layer_sizes: Sequence[int],
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    likelihood: Likelihood | None = None,
    sample_weight: npt.ArrayLike | None = None,
    offset: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | None = None,
    activation: str = "tanh",
    optimizer: str | type[torch.optim.Optimizer] | None = None,
    learning_rate: float | None = None,
    l2: float | None = None,
    patience: int | None = None,
    max_epochs: int | None = None,
    validation_fraction: float | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    validation_seed: int | None = None,
    dtype: Literal["float32", "float64"] = "float32",
    progress: bool | None = None,
    preset: Literal["default", "paper"] | None = None,
) -> Network:
    """Train a network: minimise the negative log-likelihood + (l2 / 2) * squared norm of all parameters.

    Each epoch begins with an evaluation of this loss on all rows; the parameters with the lowest loss are returned.
    Loss and gradient are those of the compiled model, so that an update costs about as much as a step of a chain. The
    initial parameters are uniform on +-1/sqrt(fan-in), torch's default, except that the biases of the last layer start
    at the `initial_outputs` of a likelihood that has them. Random states of torch and NumPy are not changed.

    By default, validation rows decide how closely the network fits. First, networks are trained without the validation
    rows, each for up to 1,000 epochs, with penalties that decrease from a large one; the penalty with the lowest
    negative log-likelihood of the validation rows is chosen, of classes the largest within a standard error of it.
    Training with this penalty, again without the validation rows, then gives the number of epochs at which that loss is
    lowest. **The returned network is trained on all rows** with this penalty for this number of epochs.
    `history.validation_mse` has the squared residuals of validation rows, from networks that were trained alike on the
    others. With fewer than 2,000 rows, of classes, which tell less, 10,000, there is one such network for each fifth of
    the rows, and penalty, number of epochs and `validation_mse` rest on all rows. Classes are divided among the parts
    in proportion.

    Parameters
    ----------
    layer_sizes : sequence of int
        Widths (d, hidden layers, m), such as [1, 50, 50, 1].
    X : array_like, shape (n, d)
        Inputs, finite, n >= 1; preferably standardised. The names of the columns of a data frame are kept: what is
        made of the network then matches the columns of other data frames by name.
    y : array_like
        Targets, as the likelihood describes them.
    likelihood : Likelihood, optional
        The likelihood; default Gaussian(1.0). A variance that is sampled is 1 in the training, where a penalty that is
        chosen on validation rows makes up for it.
    sample_weight : array_like, shape (n,), optional
        Factor of each row's term of the log-likelihood, finite and nonnegative with a positive sum; default ones. The
        means over validation rows have the same weights.
    offset : array_like, shape (n,) or (n, m), optional
        Of `Poisson` and `NegativeBinomial`: what is added to the outputs of each row, such as the logarithm of its
        exposure; finite. Default zeros.
    groups : array_like, shape (n,), optional
        Labels of groups, such as patients, none missing, whose rows are all validation rows or none. By default rows
        with equal inputs are kept together if rows were copied.
    activation : str
        One of `ACTIVATIONS`; default "tanh".
    optimizer : str or torch.optim.Optimizer class, optional
        One of `OPTIMIZERS`, or a class that is called as optimizer([parameters], lr=learning_rate) with all parameters
        in one tensor; default "adam" (Kingma & Ba 2015). All others are torch's, which they need.
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
        Share of the rows that are validation rows, from 0 to below 1; default 0.2. With fewer than 2,000 rows (10,000
        of classes), the rows are split into about 1 / validation_fraction parts (at least two), and each part is used
        for validation in turn. With 0 there is no validation: all rows are used for max_epochs, or until the loss on
        them stops falling.
    batch_size : int, optional
        Number of rows of a mini-batch, >= 1, whose negative log-likelihood is scaled by n / batch_size; by default
        every step uses all rows. Of mini-batches, the parameters of an epoch are a running mean of those after each
        update (Polyak & Juditsky 1992): the plain mean in the first epoch and an exponential one from then on, in which
        an update has the share 1 / (batches of an epoch).
    seed : int
        0 <= seed < 2^64, for the initial parameters and the mini-batches; default 0. On one machine, equal seeds give
        equal results.
    validation_seed : int, optional
        0 <= validation_seed < 2^64, for the validation rows and the networks that these validate; default `seed`.
        Trainings that share it choose the same penalties and numbers of epochs, whatever their seeds.
    dtype : {"float32", "float64"}
        The dtype of the arithmetic; default "float32". The network holds float64 in either case.
    progress : bool, optional
        Whether to show a progress bar; by default in terminals and notebooks only.
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
    ImportError
        If an optimiser of torch is asked for, and torch is not installed.
    KeyboardInterrupt
        If Ctrl-C is pressed while penalty and number of epochs are being chosen, or during the first epochs.

    Warns
    -----
    UserWarning
        If the fit is no better than the best constant predictor (both without penalty), if the loss becomes
        non-finite, or if Ctrl-C ended the final training; the best parameters so far are returned in each case. Also
        if there are fewer than 10 rows, which are too few for validation by default.
    """
    show = shows_progress(progress)
    prepared = prepare_training(
        layer_sizes,
        X,
        y,
        likelihood=likelihood,
        sample_weight=sample_weight,
        offset=offset,
        groups=groups,
        activation=activation,
        optimizer=optimizer,
        learning_rate=learning_rate,
        l2=l2,
        patience=patience,
        max_epochs=max_epochs,
        validation_fraction=validation_fraction,
        batch_size=batch_size,
        seed=seed,
        validation_seed=validation_seed,
        dtype=dtype,
        preset=preset,
        show=show,
    )
    for note in prepared.notes:
        note.give(stacklevel=2)
    training = prepared.at_penalty(prepared.l2, show=show)
    training = replace(training, seconds=prepared.seconds + training.seconds)
    net, notes = fit_network(training, show=show)
    for note in notes:
        note.give(stacklevel=2)
    return net


@dataclass
class _Best:
    """The best parameters so far, their loss and their epoch."""

    loss: float
    epoch: int
    theta: RealArray


def fit_network(
    training: Training,
    *,
    show: bool = False,
    threads: int | None = None,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> tuple[Network, list[Note]]:
    """Train a network on all rows, and return it with notes; `is_interrupted` is asked in every epoch."""
    problem, validation = training.problem, training.validation
    likelihood, targets = problem.likelihood, problem.targets
    started = time.perf_counter()
    descent = Descent(problem, training.l2, threads=threads)
    losses, best, stopped = _descend(descent, training.patience, training.epochs, show, is_interrupted)
    seconds = training.seconds + time.perf_counter() - started
    if validation is not None and stopped == "max_epochs" and training.epochs != training.recorded["max_epochs"]:
        stopped = "validation"
    net = problem.network(best.theta)
    used = np.flatnonzero(problem.row_weights)
    data_loss = float((problem.losses(net, used) * problem.row_weights[used]).sum())
    constant_loss = 0.0 - likelihood.constant_log_likelihood(targets, problem.row_weights, problem.offset)
    mse = None if validation is None else validation.mse
    if problem.left_out is not None and problem.left_out.any():
        mse = mean_squares(problem, net, problem.left_out)
    history = TrainingHistory(
        np.array(losses),
        best.epoch,
        best.loss,
        data_loss,
        constant_loss,
        stopped,
        {**training.recorded, "validation": None if validation is None else validation.to_dict()},
        seconds,
        validation_mse=mse,
    )
    most = training.recorded["max_epochs"]
    notes = list(_notes(stopped, best, losses, data_loss, constant_loss, validation, most))
    return Network(
        net.weights, net.biases, problem.activation, history=history, input_names=training.input_names
    ), notes


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
        for epoch in descent.epochs(max_epochs):
            if is_interrupted():
                raise KeyboardInterrupt
            loss = float(epoch.losses[0])
            losses.append(loss)
            if not np.isfinite(loss):
                stopped = "non-finite"
                break
            if best is None or loss < best.loss:
                # One assignment, so that Ctrl-C cannot separate the loss from its parameters.
                best = _Best(loss, len(losses) - 1, epoch.best_theta[0])
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
    max_epochs: int | None,
) -> Iterator[Note]:
    """Say what ended early and what fits poorly, each with what to do."""
    if stopped == "non-finite":
        yield Note(
            "stopped",
            f"train: the loss became {losses[-1]} in epoch {len(losses) - 1}; the best parameters, of epoch "
            f"{best.epoch} with loss {best.loss:.6g}, are returned. Lower learning_rate or standardise X and y.",
        )
    if stopped == "interrupted":
        yield Note(
            "stopped",
            f"train: interrupted after {len(losses)} epochs; the best parameters, of epoch {best.epoch} with loss "
            f"{best.loss:.6g}, are returned.",
        )
    if data_loss >= constant_loss:
        yield Note(
            "poor fit",
            f"train: the fit is poor: its negative log-likelihood {data_loss:.6g} is no better than "
            f"{constant_loss:.6g}, that of the best constant predictor{_choice_and_remedy(validation, max_epochs)}",
        )


def _choice_and_remedy(validation: Validation | None, max_epochs: int | None) -> str:
    """Return what validation rows chose for a poor fit, and changes that they do not speak against."""
    if validation is None:
        return ". Standardise X and y, change learning_rate, raise patience or max_epochs, or lower l2."
    is_chosen, is_cut = bool(validation.trials), validation.epochs == max_epochs
    epochs = f"{validation.epochs:,} epoch{'s' * (validation.epochs > 1)}"
    if is_chosen:
        what = f"l2 = {validation.l2:.3g} and {epochs} were chosen on validation rows"
    else:
        what = f"validation rows chose {epochs} at l2 = {validation.l2:.3g}"
    if is_cut:
        what += f", all of max_epochs = {max_epochs:,}"
    elif is_chosen:
        what += ", which a closer fit predicts worse: X may say nothing about y"
    else:
        what += ", and more epochs predict them worse"
    changes = {
        (True, True): "or raise patience or max_epochs",
        (True, False): "or give inputs that say more about y",
        (False, True): "raise patience or max_epochs, or lower l2",
        (False, False): "or lower l2",
    }
    return f" ({what}). Standardise X and y, change learning_rate, {changes[is_chosen, is_cut]}."
