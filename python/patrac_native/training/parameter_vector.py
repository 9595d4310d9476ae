"""The parameters of a network as one torch vector: initialisation, evaluation and conversion to arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.network.activations import ACTIVATIONS

if TYPE_CHECKING:
    import torch


def parameter_shapes(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes of weights and biases in the order of the vector: weights, biases, layer by layer."""
    return [shape for a, b in zip(sizes[1:], sizes[:-1], strict=True) for shape in ((a, b), (a,))]


def initial_parameters(sizes: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Draw all parameters as one vector; weights and biases are uniform on +-1/sqrt(fan-in)."""
    import torch

    # With one vector instead of a tensor for each matrix, optimiser and penalty take only a few calls of torch.
    parts = []
    for a, b in zip(sizes[1:], sizes[:-1], strict=True):
        parts.append((2 * torch.rand(a * b + a, dtype=dtype, generator=generator) - 1) / b**0.5)
    return torch.cat(parts)


def forward(theta: torch.Tensor, sizes: Sequence[int], activation: str, X: torch.Tensor) -> torch.Tensor:
    """Evaluate a network (p,) at X (n, d), or B networks (B, p): outputs (n, m) or (B, n, m)."""
    import torch

    apply = ACTIVATIONS[activation].torch_module().forward
    shapes = parameter_shapes(sizes)
    several = theta.shape[:-1]
    parts = torch.split(theta, [math.prod(shape) for shape in shapes], dim=-1)
    values = X.expand(*several, *X.shape)
    for layer in range(len(sizes) - 1):
        if layer > 0:
            values = apply(values)
        weight = parts[2 * layer].view(*several, *shapes[2 * layer])
        bias = parts[2 * layer + 1]
        if several:
            values = torch.baddbmm(bias[:, None], values, weight.transpose(1, 2))
        else:
            values = torch.addmm(bias, values, weight.t())
    return values


def unpack(
    theta: npt.NDArray[Any], sizes: Sequence[int]
) -> tuple[list[npt.NDArray[np.float64]], list[npt.NDArray[np.float64]]]:
    """Return the weights and biases, layer by layer, as views of the parameter vector."""
    shapes = parameter_shapes(sizes)
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = [part.reshape(shape) for part, shape in zip(np.split(theta, ends), shapes, strict=True)]
    return parts[0::2], parts[1::2]
