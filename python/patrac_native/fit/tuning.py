"""The training of `patrac fit`: its settings by the number of rows, and what it chose on validation rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from patrac_native.fit.budget import training_seconds
from patrac_native.fit.fit_data import DataRows
from patrac_native.fit.model_settings import ModelSettings
from patrac_native.likelihoods import Likelihood
from patrac_native.network.network import Network
from patrac_native.training.fitting import POOR_FIT_ADVICE
from patrac_native.training.many import train_many
from patrac_native.training.preparation import FEW_ROWS_ADVICE

# With more rows than this, training uses mini-batches of _BATCH_ROWS rows.
_FULL_BATCH_ROWS = 5_000
_BATCH_ROWS = 512


@dataclass(frozen=True)
class Choice:
    """What the training of a network chose, and by which rows.

    Attributes
    ----------
    l2 : float
        Penalty of the training.
    epochs : int
        Number of epochs.
    trials : list of (l2, validation loss)
        The penalties tried, each with the mean over validation rows of the negative log-likelihood; empty if the
        penalty was given.
    validation : str
        The validation rows in words; empty if there were none.
    """

    l2: float
    epochs: int
    trials: list[tuple[float, float]]
    validation: str

    @classmethod
    def of(cls, net: Network) -> Choice:
        """Read the choice from a trained network's history."""
        assert net.history is not None
        settings: Mapping[str, Any] = net.history.settings
        found = settings["validation"]
        if found is None:
            return cls(settings["l2"], len(net.history.loss), [], "")
        networks = "a network" if found["folds"] == 1 else f"{found['folds']} networks"
        trials = [(float(l2), float(loss)) for l2, loss in found["trials"]]
        return cls(found["l2"], found["epochs"], trials, f"{found['rows']} validation rows, by {networks} without them")


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


def train_networks(
    layer_sizes: Sequence[int],
    rows: DataRows,
    likelihood: Likelihood,
    *,
    networks: int,
    settings: ModelSettings,
    l2: float | None = None,
) -> list[Network]:
    """Train networks alike from other random weights, which are a function of seed and position.

    Parameters
    ----------
    layer_sizes : sequence of int
    rows : DataRows
        The training rows.
    likelihood : Likelihood
        That of the posterior.
    networks : int
        Number of networks, at least 1.
    settings : ModelSettings
    l2 : float, optional
        Penalty of the training; by default chosen on validation rows.

    Warns
    -----
    UserWarning
        As `train_many`, with advice in the settings of the caller.
    """
    with _advice_in(settings):
        return train_many(
            layer_sizes,
            rows.X,
            rows.y,
            networks=networks,
            likelihood=likelihood,
            sample_weight=rows.sample_weight,
            offset=rows.offset,
            l2=l2,
            validation_fraction=settings.validation_fraction,
            activation=settings.activation,
            seed=settings.seed,
            threads=settings.threads,
            progress=settings.progress,
            **training_settings(len(rows.X), settings.epochs),
        )


def nominal_seconds(nets: Sequence[Network], rows: int) -> float:
    """Return the time that `train_networks` takes on the nominal machine for networks of so many rows."""
    return training_seconds(nets, rows, training_settings(rows).get("batch_size", rows))


@contextmanager
def _advice_in(settings: ModelSettings) -> Iterator[None]:
    """Replace what the warnings of a block advise in arguments of `train`, of which the caller has other names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    raised = f"Raise {settings.option('epochs')}, or lower {settings.option('l2')}, if X should tell y."
    given = f"Give {settings.option('l2')} to set it."
    for warning in caught:
        text = str(warning.message).replace(POOR_FIT_ADVICE, raised).replace(FEW_ROWS_ADVICE, given)
        warnings.warn(text.replace("train: ", "", 1), warning.category, stacklevel=3)
