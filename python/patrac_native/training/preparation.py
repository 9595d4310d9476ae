"""Prepares a training: checks the arguments of `train`, fills in presets, and validates the choices it leaves open."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    search_penalties,
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
class Training:
    """A training of a network of which nothing is left open."""

    problem: Problem
    l2: float
    epochs: int | None
    patience: int
    validation: Validation | None
    recorded: dict[str, Any]
    seconds: float  # of what was chosen
    input_names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class PreparedTraining:
    """A training whose arguments are checked, and the penalties that were tried or given."""

    problem: Problem
    given: Mapping[float, float]  # shares of the networks by penalty; empty if there was a search
    patience: int
    recorded: dict[str, Any]
    seconds: float
    notes: tuple[Note, ...]
    input_names: tuple[str, ...] | None = None
    folds: tuple[IndexArray, ...] = ()  # validation rows, in turn
    search: PenaltySearch | None = None

    @property
    def l2(self) -> float:
        """The penalty of a single network, and of the first of several."""
        return next(iter(self.given)) if self.search is None else self.search.preferred()

    def shares(self) -> dict[float, float]:
        """Return the shares of several networks by penalty, which begin with that of the first network."""
        return dict(self.given) if self.search is None else self.search.shares(self.problem.validation_seed)

    def at_penalty(self, l2: float, *, show: bool = False, threads: int | None = None) -> Training:
        """Return the training at a penalty, with the number of epochs that validation rows choose at it."""
        started = time.perf_counter()
        recorded, epochs = {**self.recorded, "l2": l2}, self.recorded["max_epochs"]
        validation: Validation | None = None
        if self.folds:
            validation = validate_penalty(
                self.problem,
                l2,
                self.folds,
                search=self.search,
                max_epochs=epochs,
                patience=self.patience,
                show=show,
                threads=threads,
            )
            epochs = validation.epochs
        seconds = time.perf_counter() - started
        return Training(self.problem, l2, epochs, self.patience, validation, recorded, seconds, self.input_names)


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
    l2: float | None = None,
    penalties: Mapping[float, float] | None = None,
    patience: int | None = None,
    max_epochs: int | None = None,
    validation_fraction: float | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    validation_seed: int | None = None,
    dtype: Literal["float32", "float64"] = "float32",
    preset: Literal["default", "paper"] | None = None,
    show: bool = False,
    threads: int | None = None,
) -> PreparedTraining:
    """Check the arguments of `train`, and try penalties on at most `threads` threads if none is given.

    `penalties` are shares of penalties in the place of `l2`, see `train_many`. `show` tells whether to show a progress
    bar.
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
        validation_seed=check_seed(seed if validation_seed is None else validation_seed, "validation_seed"),
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
    folds: list[IndexArray] = []
    search: PenaltySearch | None = None
    if settings["validation_fraction"] > 0:
        folds = validation_folds(problem, settings["validation_fraction"])
        if settings["l2"] is None and penalties is None:
            search = search_penalties(
                problem,
                folds,
                max_epochs=settings["max_epochs"],
                patience=settings["patience"],
                show=show,
                threads=threads,
            )
    shares: Mapping[float, float] = {}
    if penalties is not None:
        shares = check_penalties(penalties)
    elif search is None:
        shares = {_L2_WITHOUT_VALIDATION if settings["l2"] is None else settings["l2"]: 1.0}
    recorded = {
        **settings,
        "optimizer": optimizer if isinstance(optimizer, str) else f"{optimizer.__module__}.{optimizer.__qualname__}",
        "likelihood": likelihood.to_dict(),
        "batch_size": batch_size,
        "seed": seed,
        "validation_seed": problem.validation_seed,
        "dtype": dtype,
        "preset": preset,
    }
    return PreparedTraining(
        problem,
        shares,
        settings["patience"],
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
    total = math.fsum(checked.values())
    if not math.isclose(total, 1.0, rel_tol=1e-6):
        raise ValueError(f"l2: shares of penalties must add up to one; got {shares!r}.")
    return {l2: share / total for l2, share in checked.items()}


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
