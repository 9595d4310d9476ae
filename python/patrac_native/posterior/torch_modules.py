"""Partial networks at given theta as torch modules, and the stacked parameters of many theta."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patrac_native.network.torch_exchange import build_module
from patrac_native.posterior.partial_network import PartialNetwork

if TYPE_CHECKING:
    import torch


def torch_module(network: PartialNetwork, theta: npt.NDArray[Any], dtype: torch.dtype | None) -> Any:
    """Return the network at theta (K,) as a module whose outputs are f.

    Parameters
    ----------
    network : PartialNetwork
    theta : ndarray, shape (K,)
    dtype : torch.dtype or None
        Of the parameters; None means that of theta.

    Returns
    -------
    nn.Sequential, with the nodes in the trained network's own order; for Sep, SumOfNetworks
    """
    import torch

    dtype = torch.from_numpy(np.empty(0, theta.dtype)).dtype if dtype is None else dtype
    weights, biases = network.parameters_at(theta[None])
    sampled = build_module([w[0] for w in weights], [b[0] for b in biases], network.net.activation, dtype)
    if not network.separate:
        return sampled
    from patrac_native.network.sum_module import SumOfNetworks

    return SumOfNetworks(network.net.to_torch(dtype), sampled)


def torch_parameters(
    network: PartialNetwork, theta: npt.NDArray[Any], dtype: torch.dtype | None
) -> dict[str, torch.Tensor]:
    """Return the parameters of the modules of many theta, stacked.

    Parameters
    ----------
    network : PartialNetwork
    theta : ndarray, shape (B, K)
    dtype : torch.dtype or None
        As for `torch_module`.

    Returns
    -------
    dict of str to tensor, shape (B, ...)
        By the names of the parameters of `torch_module`. Where none is Bayesian, one copy is expanded to all theta.
    """
    import torch

    module = torch_module(network, theta[0], dtype)
    stacked = {
        name: parameter.detach().expand(len(theta), *parameter.shape) for name, parameter in module.named_parameters()
    }
    weights, biases = network.parameters_at(theta)
    prefix = "separate." if network.separate else ""
    for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
        # Linear layers stand at even places of the Sequential, activations between them.
        for name, values in ((f"{prefix}{2 * layer}.weight", w), (f"{prefix}{2 * layer}.bias", b)):
            if len(values) > 1:
                stacked[name] = torch.from_numpy(values).to(stacked[name].dtype)
    return stacked
