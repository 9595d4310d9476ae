"""The rival: a deep ensemble in PyTorch (Lakshminarayanan, Pritzel & Blundell 2017), tuned on validation rows.

Its members start from different random weights and are trained on all rows by Adam on batches of 100. For regression
they have a mean and a log-variance for each row and maximise the Gaussian likelihood; for classes they have logits. The
learning rate and the number of epochs are those with the best predictive density of the whole ensemble on a fifth of
the training rows; the ensemble is then trained anew on all of them. All members of an ensemble train in one batched
computation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch

MEMBERS = 5
HIDDEN = 50
BATCH = 100
RATES = (1e-3, 3e-3, 1e-2)
# The number of updates of the longest training, and at how many numbers of epochs the validation rows are scored.
MAX_UPDATES, LOOKS = 24_000, 40
MAX_EPOCHS = 2_000
WEIGHT_DECAY = 1e-4


@dataclass(frozen=True)
class Tuned:
    """The learning rate and number of epochs with the best validation score, a mean negative log predictive density."""

    rate: float
    epochs: int
    score: float


class Ensemble:
    """Members with one hidden layer of ReLU nodes, evaluated together: parameters have a leading axis of members."""

    def __init__(self, d: int, outputs: int, *, classes: bool, seed: int, hidden: int = HIDDEN) -> None:
        generator = torch.Generator().manual_seed(seed)

        def layer(rows: int, columns: int) -> list[torch.Tensor]:
            bound = 1 / math.sqrt(columns)
            draw = torch.rand(MEMBERS, columns + 1, rows, generator=generator)
            weights = (2 * draw - 1) * bound
            return [weights[:, :columns].clone().requires_grad_(), weights[:, columns:].clone().requires_grad_()]

        self.classes = classes
        self.parameters = [*layer(hidden, d), *layer(outputs, hidden)]

    def outputs(self, X: torch.Tensor) -> torch.Tensor:
        """Return the outputs (members, n, outputs) at X (members, n, d) or (n, d)."""
        w, b, v, c = self.parameters
        return torch.baddbmm(c, torch.relu(torch.baddbmm(b, X.expand(MEMBERS, *X.shape[-2:]), w)), v)

    def log_density(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return log p(y) of each member and row, shape (members, n), for y (n,) or (members, n)."""
        if self.classes:
            labels = y.expand(MEMBERS, y.shape[-1])[..., None]
            return torch.log_softmax(outputs, dim=-1).gather(-1, labels)[..., 0]
        mean, log_variance = outputs[..., 0], outputs[..., 1].clamp(-14, 7)
        return -0.5 * ((y - mean) ** 2 * torch.exp(-log_variance) + log_variance + math.log(2 * math.pi))

    @torch.no_grad()
    def score(self, X: torch.Tensor, y: torch.Tensor) -> float:
        """Return the mean negative log density of the mixture of the members."""
        density = torch.logsumexp(self.log_density(self.outputs(X), y), dim=0) - math.log(MEMBERS)
        return -float(density.mean())

    def train(
        self,
        X: torch.Tensor,
        y: torch.Tensor,
        *,
        rate: float,
        epochs: int,
        seed: int,
        watched: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> list[tuple[int, float]]:
        """Train for a number of epochs; return the score of the watched rows at `LOOKS` of them."""
        generator = torch.Generator().manual_seed(seed + 1)
        optimizer = torch.optim.AdamW(self.parameters, lr=rate, weight_decay=WEIGHT_DECAY)
        looks, n = [], len(X)
        every = max(1, epochs // LOOKS)
        for epoch in range(1, epochs + 1):
            # Each member has its own order of rows.
            order = torch.argsort(torch.rand(MEMBERS, n, generator=generator), dim=1)
            for first in range(0, n, BATCH):
                rows = order[:, first : first + BATCH]
                loss = -self.log_density(self.outputs(X[rows]), y[rows]).mean(dim=1).sum()
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(self.parameters, 100.0)
                optimizer.step()
            if watched is not None and (epoch % every == 0 or epoch == epochs):
                looks.append((epoch, self.score(*watched)))
        return looks


def tune(X: torch.Tensor, y: torch.Tensor, outputs: int, *, classes: bool, seed: int) -> Tuned:
    """Choose learning rate and epochs on a fifth of the rows."""
    n = len(X)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    held, rest = order[: n // 5], order[n // 5 :]
    epochs = min(MAX_EPOCHS, max(20, MAX_UPDATES * BATCH // len(rest)))
    tried = []
    for rate in RATES:
        ensemble = Ensemble(X.shape[1], outputs, classes=classes, seed=seed)
        looks = ensemble.train(X[rest], y[rest], rate=rate, epochs=epochs, seed=seed, watched=(X[held], y[held]))
        tried += [Tuned(rate, at, score) for at, score in looks if math.isfinite(score)]
    return min(tried, key=lambda one: one.score)


def fit_ensemble(
    X: npt.NDArray[Any], y: npt.NDArray[Any], *, classes: int | None = None, seed: int = 0
) -> tuple[Ensemble, Tuned]:
    """Tune and train an ensemble on standardised inputs and targets, or on labels 0..classes-1."""
    inputs = torch.as_tensor(X, dtype=torch.float32)
    targets = torch.as_tensor(y, dtype=torch.float32 if classes is None else torch.int64)
    outputs = 2 if classes is None else classes
    tuned = tune(inputs, targets, outputs, classes=classes is not None, seed=seed)
    ensemble = Ensemble(X.shape[1], outputs, classes=classes is not None, seed=seed + 1)
    ensemble.train(inputs, targets, rate=tuned.rate, epochs=tuned.epochs, seed=seed + 1)
    return ensemble, tuned
