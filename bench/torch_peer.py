"""The PyTorch peer: eager pCNL on the masked network, what the paper's own code was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from peers import fixed_output_bias, flat, network_with_masks, unpack

import patrac_native as pn


def torch_run(post: pn.Posterior, delta: float) -> Callable[[npt.NDArray[Any], int, int], float]:
    """Eager PyTorch pCNL on the masked network, one Python step after the other: (theta, steps, seed) -> acceptance.

    Gaussian likelihoods of unit variance alone.
    """
    import torch

    torch.set_num_threads(1)
    dtype = torch.float32 if post.network.dtype == np.float32 else torch.float64
    layers, masks = network_with_masks(post)
    index = torch.from_numpy(np.flatnonzero(flat(masks)))
    fixed = torch.from_numpy(flat(layers)).to(dtype)
    inputs, y = torch.from_numpy(post.data.X.T.copy()).to(dtype), torch.from_numpy(post.data.y.T.copy()).to(dtype)
    offset = torch.from_numpy(fixed_output_bias(post).copy()).to(dtype)[:, None]
    c = torch.from_numpy(post.prior_variance.copy()).to(dtype)
    deviation = c.sqrt()
    keep, drift, noise = (2 - delta) / (2 + delta), 2 * delta / (2 + delta), float(np.sqrt(8 * delta)) / (2 + delta)
    constant = 0.5 * y.numel() * float(np.log(2 * np.pi))

    def value_and_grad(theta: torch.Tensor) -> tuple[float, torch.Tensor]:
        theta = theta.detach().requires_grad_()
        h, parameters = inputs, unpack(fixed.index_copy(0, index, theta), layers)
        for weights, biases in parameters[:-1]:
            h = torch.tanh(torch.addmm(biases[:, None], weights, h))
        f = torch.addmm(parameters[-1][1][:, None], parameters[-1][0], h) + offset
        value = -0.5 * (y - f).square().sum() - constant
        (gradient,) = torch.autograd.grad(value, theta)
        return value.item(), gradient

    def rho(value: float, difference: torch.Tensor, total: torch.Tensor, g: torch.Tensor) -> float:
        return -value - ((0.5 * difference + 0.25 * delta * total - 0.25 * delta * c * g) @ g).item()

    def run(start: npt.NDArray[Any], steps: int, seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        u, accepted = torch.from_numpy(start.astype(post.network.dtype)), 0
        l_u, g_u = value_and_grad(u)
        for _ in range(steps):
            v = keep * u + drift * c * g_u + noise * deviation * torch.randn(len(c), generator=generator, dtype=dtype)
            l_v, g_v = value_and_grad(v)
            log_ratio = rho(l_u, v - u, u + v, g_u) - rho(l_v, u - v, u + v, g_v)
            if torch.rand((), generator=generator).log().item() < log_ratio:
                u, l_u, g_u, accepted = v, l_v, g_v, accepted + 1
        return accepted / steps

    return run
