"""Training of the network that is then made partially Bayesian, with a torch optimiser."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from patrac_native.model.likelihoods import Gaussian, Likelihood
from patrac_native.network.activations import check_activation
from patrac_native.network.network import Network, StopReason, TrainingHistory
from patrac_native.training.parameter_vector import forward, initial_parameters, unpack
from patrac_native.validation.checks import (
    check_count,
    check_inputs,
    check_layer_sizes,
    check_nonnegative,
    check_positive,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

DEFAULT_TRAINING: Mapping[str, Any] = MappingProxyType(
    {"optimizer": "adam", "learning_rate": 1e-2, "l2": 1.0, "patience": 300, "max_epochs": 20_000}
)
# The settings of the paper's section 4.1, which states no maximum number of epochs; with this learning rate training
# takes about 10^6 epochs.
PAPER_TRAINING: Mapping[str, Any] = MappingProxyType(
    {"optimizer": "adam", "learning_rate": 1e-6, "l2": 1.0, "patience": 20, "max_epochs": None}
)
PRESETS = {"default": DEFAULT_TRAINING, "paper": PAPER_TRAINING}
OPTIMIZERS = {"adam": "Adam", "nadam": "NAdam", "radam": "RAdam", "rmsprop": "RMSprop", "sgd": "SGD", "lbfgs": "LBFGS"}

# If a forward pass has fewer multiply-adds than this, torch was measured to be faster on one thread than on all,
# because distributing the work costs more than it saves.
_ONE_THREAD_BELOW = 1_000_000


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
    activation: str = "tanh",
    optimizer: str | type[torch.optim.Optimizer] | None = None,
    learning_rate: float | None = None,
    l2: float | None = None,
    patience: int | None = None,
    max_epochs: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float32",
    progress: bool | None = None,
    preset: Literal["default", "paper"] | None = None,
) -> Network:
    """Train a network: minimise the negative log-likelihood + (l2 / 2) * squared norm of all parameters.

    Each epoch begins with an evaluation of this loss on all rows; the parameters with the lowest loss are returned. The
    initial parameters are uniform on +-1/sqrt(fan-in), torch's default. Torch's global random state is not changed.

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
    activation : str
        One of `ACTIVATIONS`; default "tanh".
    optimizer : str or torch.optim.Optimizer class, optional
        One of `OPTIMIZERS`, or a class that is called as optimizer([parameters], lr=learning_rate) with all parameters
        in one vector; default "adam".
    learning_rate : float, optional
        Learning rate, > 0; default 0.01.
    l2 : float, optional
        Penalty, >= 0; default 1, which is a standard normal prior on every parameter.
    patience : int, optional
        Number of consecutive epochs without a new lowest loss after which training stops, >= 1; default 300.
    max_epochs : int, optional
        Maximum number of epochs, >= 1; default 20,000, unlimited with the paper's preset.
    batch_size : int, optional
        Number of rows of a mini-batch, >= 1, whose negative log-likelihood is scaled by n / batch_size; by default
        every step uses all rows.
    seed : int
        0 <= seed < 2^64, for the initial parameters and the mini-batches; default 0. On one machine, equal seeds give
        equal results.
    dtype : {"float32", "float64"}
        The dtype of the arithmetic; default "float32". The network holds float64 in either case.
    progress : bool, optional
        Whether to show a progress bar; by default only if standard error is a terminal.
    preset : {"default", "paper"}, optional
        Defaults of optimizer, learning_rate, l2, patience and max_epochs. "paper" is Adam with learning rate 1e-6,
        l2 = 1 and patience 20 (the paper's section 4.1).

    Returns
    -------
    Network
        The trained network; its `history` is a TrainingHistory.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, layer_sizes do not fit X and y, or the loss is not finite at the initial
        parameters.

    Warns
    -----
    UserWarning
        If the fit is no better than the best constant predictor (both without penalty), if the loss becomes
        non-finite, or if Ctrl-C ended the training; the best parameters so far are returned in each case.
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
    given = {
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "l2": l2,
        "patience": patience,
        "max_epochs": max_epochs,
    }
    settings = _resolve_settings(given, preset)
    batch_size = n if batch_size is None else min(check_count(batch_size, "batch_size"), n)
    seed = check_count(seed, "seed", least=0)
    if seed >= 2**64:
        raise ValueError(f"seed must be below 2^64; got {seed}.")

    import torch

    real = torch.float32 if dtype == "float32" else torch.float64
    generator = torch.Generator().manual_seed(seed)
    X_t = torch.tensor(inputs, dtype=real)
    y_t = torch.tensor(targets, dtype=real if targets.dtype.kind == "f" else None)
    theta = initial_parameters(sizes, real, generator).requires_grad_()
    penalty = settings["l2"] / 2
    # Equal for all rows: 1, or scale / n for Categorical(scale).
    row_weight = float(likelihood.row_weights(None, n)[0])

    def loss_of(rows: torch.Tensor | None) -> torch.Tensor:
        """Return the penalised loss, with the data term of the given rows scaled to all n; None means all rows."""
        X_b, y_b = (X_t, y_t) if rows is None else (X_t[rows], y_t[rows])
        data_loss = likelihood.torch_loss_rows(forward(theta, sizes, activation, X_b), y_b).sum()
        loss: torch.Tensor = data_loss * (row_weight * n / len(X_b)) + penalty * torch.dot(theta, theta)
        return loss

    def batches() -> Sequence[torch.Tensor | None]:
        if batch_size == n:
            return [None]
        order = torch.randperm(n, generator=generator)
        return [order[start : start + batch_size] for start in range(0, n, batch_size)]

    started = time.perf_counter()
    work = batch_size * sum(a * b for a, b in zip(sizes[1:], sizes[:-1], strict=True))
    with _torch_threads(1 if work < _ONE_THREAD_BELOW else None):
        stepper = _make_optimizer(settings["optimizer"], theta, settings["learning_rate"])
        losses, best, stopped = _descend(
            loss_of, batches, theta, stepper, settings["patience"], settings["max_epochs"], _show(progress)
        )
    seconds = time.perf_counter() - started

    weights, biases = unpack(best.theta.double().numpy(), sizes)
    data_loss = -float(likelihood.log_likelihood(Network(weights, biases, activation).predict(inputs), targets))
    constant_loss = -likelihood.constant_log_likelihood(targets)
    for note in _notes(stopped, best, losses, data_loss, constant_loss):
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
    }
    history = TrainingHistory(
        np.array(losses), best.epoch, best.loss, data_loss, constant_loss, stopped, recorded, seconds
    )
    return Network(weights, biases, activation, history=history)


def _descend(
    loss_of: Callable[[torch.Tensor | None], torch.Tensor],
    batches: Callable[[], Sequence[torch.Tensor | None]],
    theta: torch.Tensor,
    stepper: torch.optim.Optimizer,
    patience: int,
    max_epochs: int | None,
    show: bool,
) -> tuple[list[float], _Best, StopReason]:
    """Run epochs until a stopping rule applies; return the losses, the best parameters and the rule."""
    import torch
    from tqdm import tqdm

    losses: list[float] = []
    best: _Best | None = None
    stopped: StopReason = "max_epochs"
    bar = tqdm(total=max_epochs, desc="training", unit=" epochs", disable=not show, leave=False, mininterval=0.2)
    try:
        while max_epochs is None or len(losses) < max_epochs:
            before = theta.detach().clone()
            split = batches()
            full = len(split) == 1 and split[0] is None
            if not full:
                with torch.no_grad():
                    loss = float(loss_of(None))
            for rows in split:

                def closure(rows: torch.Tensor | None = rows) -> float:
                    stepper.zero_grad()
                    value = loss_of(rows)
                    value.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                    return value.item()

                # Every torch optimiser returns the closure's first value: the loss before its step.
                step_loss = stepper.step(closure)
                if full:
                    loss = float(step_loss)
            losses.append(loss)
            if not np.isfinite(loss):
                stopped = "non-finite"
                break
            if best is None or loss < best.loss:
                # One assignment, so that Ctrl-C cannot separate the loss from its parameters.
                best = _Best(loss, len(losses) - 1, before)
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
    stopped: StopReason, best: _Best, losses: Sequence[float], data_loss: float, constant_loss: float
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
        yield (
            f"train: the fit is poor: its negative log-likelihood {data_loss:.6g} is no better than "
            f"{constant_loss:.6g}, that of the best constant predictor. Standardise X and y, change learning_rate, "
            "raise patience or max_epochs, or lower l2."
        )


def _resolve_settings(given: Mapping[str, Any], preset: str | None) -> dict[str, Any]:
    """Replace arguments that are None by the preset's values, and check all of them."""
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)} or None; got {preset!r}.")
    settings = dict(PRESETS[preset or "default"]) | {key: value for key, value in given.items() if value is not None}
    settings["learning_rate"] = check_positive(settings["learning_rate"], "learning_rate")
    settings["l2"] = check_nonnegative(settings["l2"], "l2")
    settings["patience"] = check_count(settings["patience"], "patience")
    if settings["max_epochs"] is not None:
        settings["max_epochs"] = check_count(settings["max_epochs"], "max_epochs")
    return settings


def _make_optimizer(choice: Any, theta: torch.Tensor, learning_rate: float) -> torch.optim.Optimizer:
    """Build the optimiser of a parameter vector."""
    import torch

    if isinstance(choice, str) and choice.lower() in OPTIMIZERS:
        # The fused implementation of Adam makes one call for an update instead of a dozen.
        extra = {"fused": True} if choice.lower() == "adam" else {}
        built: torch.optim.Optimizer = getattr(torch.optim, OPTIMIZERS[choice.lower()])(
            [theta], lr=learning_rate, **extra
        )
        return built
    if isinstance(choice, type) and issubclass(choice, torch.optim.Optimizer):
        factory: Callable[..., torch.optim.Optimizer] = choice
        return factory([theta], lr=learning_rate)
    raise ValueError(
        f"optimizer must be one of {', '.join(OPTIMIZERS)} or a torch.optim.Optimizer class; got {choice!r}."
    )


def _show(progress: bool | None) -> bool:
    """Return whether to show a progress bar."""
    return sys.stderr.isatty() if progress is None else bool(progress)


@contextmanager
def _torch_threads(count: int | None) -> Iterator[None]:
    """Set torch's number of threads within the context and restore it afterwards; None leaves it unchanged."""
    import torch

    usual = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(usual)
