"""The sum of two networks as a torch module: a fixed one, and one beside it."""

from __future__ import annotations

import torch
from torch import nn


class SumOfNetworks(nn.Module):
    """Adds the outputs of two modules.

    Parameters
    ----------
    trained, separate : nn.Module
        With the same inputs and outputs; both are attributes, so their parameters are named "trained...." and
        "separate....".
    """

    def __init__(self, trained: nn.Module, separate: nn.Module) -> None:
        super().__init__()
        self.trained = trained
        self.separate = separate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return trained(x) + separate(x)."""
        total: torch.Tensor = self.trained(x) + self.separate(x)
        return total
