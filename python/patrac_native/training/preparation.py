"""Prepares a training: checks the arguments of `train`, fills in presets, and validates the choices it leaves open."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.splits import IndexArray, check_groups
from patrac_native.likelihoods import Gaussian, Likelihood
from patrac_native.network.activations import check_activation
from patrac_native.training.descent import Problem, check_optimizer
from patrac_native.training.penalty_search import (
    FEWEST_ROWS,
    PenaltySearch,
    Validation,
    choose_penalty,
    validate_penalty,
    validation_folds,
)
from patrac_native.validation.checks import (
    check_count,
    check_inputs,
    check_layer_sizes,
    check_nonnegative,
    check_positive,
    check_seed,
)
from patrac_native.validation.columns import column_names
from patrac_native.validation.memory import check_memory
from patrac_native.validation.notes import Note

if TYPE_CHECKING:
    import torch

PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "optimizer": "adam",
        "learning_rate": 1e-2,
        "l2": None,
        "patience": 300,
        "max_epochs": 20_000,
        "validation_fraction": 0.2,
    },
    # The settings of the paper's section 4.1, which states no maximum number of epochs; with this learning rate
    # training takes about 10^6 epochs.
    "paper": {
        "optimizer": "adam",
        "learning_rate": 1e-6,
        "l2": 1.0,
        "patience": 20,
        "max_epochs": None,
        "validation_fraction": 0.0,
    },
}
# The penalty if it is neither given nor chosen on validation rows: a standard normal prior on every parameter.
_L2_WITHOUT_VALIDATION = 1.0


@dataclass(frozen=True)
class PreparedTraining:
    """A training whose arguments are checked and whose penalty and number of epochs are chosen."""

    problem: Problem
    l2: float
    penalties: Mapping[float, float]  # shares of the networks of several by penalty; the first is l2
    epochs: int | None
    patience: int
    validation: Validation | None
    recorded: dict[str, Any]
    seconds: float
    notes: tuple[Note, ...]
    input_names: tuple[str, ...] | None = None
    folds: tuple[IndexArray, ...] = ()  # validation rows, in turn
    search: PenaltySearch | None = None

    def at_penalty(self, l2: float, threads: int | None = None) -> PreparedTraining:
        """Return the training with another penalty, and the number of epochs that is chosen at it."""
        made = replace(self, l2=l2, recorded={**self.recorded, "l2": l2})
        if self.validation is None:
            return made
        found = validate_penalty(
            self.problem,
            l2,
            self.folds,
            search=self.search,
            max_epochs=self.recorded["max_epochs"],
            patience=self.patience,
            threads=threads,
        )
        return replace(made, epochs=found.epochs, validation=found)


def prepare_training(
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
    l2: float | Mapping[float, float] | None = None,
    patience: int | None = None,
    max_epochs: int | None = None,
    validation_fraction: float | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float32",
    preset: Literal["default", "paper"] | None = None,
    show: bool = False,
    threads: int | None = None,
) -> PreparedTraining:
    """Check the arguments of `train`, and choose what they leave open on at most `threads` threads.

    `l2` may be a penalty or shares of penalties, see `train_many`. `show` tells whether to show a progress bar.
    """
    started = time.perf_counter()
    sizes = check_layer_sizes(layer_sizes)
    check_activation(activation)
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64'; got {dtype!r}.")
    parameters = n_parameters(sizes)
    check_memory(
        # Parameters, gradient and two moments of Adam, in the arithmetic's dtype.
        4 * parameters * np.dtype(dtype).itemsize,
        f"layer_sizes={list(sizes)}: the training of {parameters:,} parameters",
        "Take narrower layers.",
    )
    likelihood = Gaussian(1.0) if likelihood is None else likelihood
    if not isinstance(likelihood, Likelihood):
        got = repr(likelihood) if isinstance(likelihood, str | type) else type(likelihood).__name__
        raise TypeError(f"likelihood must be an object such as Gaussian(1.0), Categorical() or Bernoulli(); got {got}.")
    inputs = check_inputs(X, sizes[0])
    n = len(inputs)
    targets = likelihood.check_targets(y, n, sizes[-1])
    if likelihood.noise_by_row and not targets.any(axis=0).all():
        # Of other constants the scale says how small a variance can be.
        target = "" if targets.shape[1] == 1 else f" of target {int(np.argmin(targets.any(axis=0)))} (counted from 0)"
        raise ValueError(f"y is zero in all rows{target}: there is no noise to fit. Leave that target out.")
    if likelihood.is_sampled:
        likelihood = likelihood.at(1.0)
    penalties = check_penalties(l2) if isinstance(l2, Mapping) else {}
    given = {
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "l2": next(iter(penalties), None) if isinstance(l2, Mapping) else l2,
        "patience": patience,
        "max_epochs": max_epochs,
        "validation_fraction": validation_fraction,
    }
    settings = _resolve_settings(given, preset)
    batch_size = n if batch_size is None else min(check_count(batch_size, "batch_size"), n)
    optimizer = settings["optimizer"]
    check_optimizer(optimizer)
    problem = Problem(
        sizes,
        activation,
        likelihood,
        inputs,
        targets,
        likelihood.row_weights(sample_weight, n),
        offset=likelihood.check_offset(offset, n, sizes[-1]),
        groups=None if groups is None else check_groups(groups, n),
        optimizer=optimizer,
        learning_rate=settings["learning_rate"],
        batch_size=batch_size,
        seed=check_seed(seed),
        dtype=dtype,
    )
    notes: tuple[Note, ...] = ()
    used_rows = int(np.count_nonzero(problem.row_weights))
    if validation_fraction is None and settings["validation_fraction"] > 0 and used_rows < FEWEST_ROWS:
        settings["validation_fraction"] = 0.0
        chosen = f"l2 = {_L2_WITHOUT_VALIDATION:g}" if settings["l2"] is None else "the given l2"
        note = Note(
            "few rows",
            f"train: {used_rows} rows are too few to choose l2 and the number of epochs on validation rows; the "
            f"network is trained on all rows with {chosen} until their own loss stops falling. validation_fraction=0 "
            "asks for that.",
        )
        notes = (note,)
    validation: Validation | None = None
    search: PenaltySearch | None = None
    epochs, folds = settings["max_epochs"], []
    bounds: dict[str, Any] = {"max_epochs": epochs, "patience": settings["patience"], "show": show, "threads": threads}
    if settings["validation_fraction"] > 0:
        folds = validation_folds(problem, settings["validation_fraction"])
        if settings["l2"] is None:
            search = choose_penalty(problem, folds, **bounds)
            penalties = search.shares
            settings["l2"] = next(iter(penalties))
        validation = validate_penalty(problem, settings["l2"], folds, search=search, **bounds)
        epochs = validation.epochs
    elif settings["l2"] is None:
        settings["l2"] = _L2_WITHOUT_VALIDATION
    penalties = penalties or {settings["l2"]: 1.0}
    recorded = {
        **settings,
        "penalties": [list(one) for one in penalties.items()],
        "optimizer": optimizer if isinstance(optimizer, str) else f"{optimizer.__module__}.{optimizer.__qualname__}",
        "likelihood": likelihood.to_dict(),
        "batch_size": batch_size,
        "seed": seed,
        "dtype": dtype,
        "preset": preset,
    }
    return PreparedTraining(
        problem,
        settings["l2"],
        penalties,
        epochs,
        settings["patience"],
        validation,
        recorded,
        seconds=time.perf_counter() - started,
        notes=notes,
        input_names=column_names(X),
        folds=tuple(folds),
        search=search,
    )


def check_penalties(shares: Mapping[float, float]) -> dict[float, float]:
    """Return shares of penalties; raise ValueError unless these are nonnegative and those add up to one."""
    checked = {check_nonnegative(l2, "l2"): check_nonnegative(share, f"l2[{l2!r}]") for l2, share in shares.items()}
    if not checked or not math.isclose(sum(checked.values()), 1.0, rel_tol=1e-6):
        raise ValueError(f"l2: shares of penalties must add up to one; got {shares!r}.")
    return checked


def n_parameters(sizes: Sequence[int]) -> int:
    """Return the number of weights and biases of a network of the given widths."""
    return sum((wide + 1) * width for wide, width in pairwise(sizes))


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
