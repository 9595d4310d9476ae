"""The problems of `gpu.py` and their requirements: a sine for many small chains, random images for one large chain.

They need only NumPy and torch, because a machine with a GPU may have no SciPy and no network.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from cases import Case, Key

import patrac_native as pn

SMALL: dict[str, Any] = {"Full": pn.Full(), "Mix(5)": pn.Mix(5), "Sep(2)": pn.Sep(2)}
LARGE: dict[str, Any] = {"Full": pn.Full(), "Mix(4)": pn.Mix(4), "Sep(4)": pn.Sep(4), "Out(24)": pn.Out(24)}
PRIOR = pn.TraceClassPrior(1.5, 2.0, 0.5)
# Step size of the large problem, so small that most proposals are accepted; it does not affect the time of a step.
LARGE_STEP_SIZE = 1e-12


@dataclass(frozen=True)
class Sizes:
    """The sizes of the problems."""

    small: tuple[int, ...]
    rows: int
    chains: tuple[int, ...]
    jax_chains: tuple[int, ...]
    large: tuple[int, ...]
    large_rows: int
    rows_of_one: tuple[int, ...]  # of the large problem, where device and CPU are compared
    coarse_rows: tuple[int, ...]  # of the large problem, with coarse gradients
    cold_chains: tuple[int, ...]  # of the small problem, from a cold start
    superchains: int
    cold_steps: int  # the longest warm-up
    transitions: tuple[int, ...]  # of the warm-up of ChEES-HMC: the next if one is too short


SIZES = Sizes(
    small=(1, 50, 50, 1),
    rows=100,
    chains=(1, 32, 132, 264, 1024, 4096),
    jax_chains=(1, 1024),
    large=(3072, 50, 50, 10),
    large_rows=50_000,
    rows_of_one=(100, 1_000, 10_000, 50_000),
    coarse_rows=(10_000, 50_000),
    cold_chains=(1024, 4096),
    superchains=16,
    cold_steps=16_000,
    transitions=(50, 200),
)
# Small sizes, for a test of the script in seconds on an emulated device. The large network has just enough inputs for a
# first layer on the matrix units, which coarse gradients need.
QUICK = Sizes(
    small=(1, 30, 30, 1),
    rows=40,
    chains=(1, 3),
    jax_chains=(1, 2),
    large=(256, 26, 26, 4),
    large_rows=300,
    rows_of_one=(30, 300),
    coarse_rows=(300,),
    cold_chains=(32,),
    superchains=4,
    cold_steps=400,
    transitions=(10,),
)

# Requirements, for the full sizes only. Minimum chain-steps a second with at least 1,000 chains:
MIN_RATE, RATE_CHAINS = {"Full": 20e6, "Mix(5)": 60e6, "Sep(2)": 300e6}, 1000
# Maximum microseconds a step of one large chain.
MAX_LARGE = {"Full": 300.0, "Mix(4)": 200.0, "Sep(4)": 150.0, "Out(24)": 60.0}
# Minimum ratio of the best JAX time to the device's, by (architecture, chains), and for one large chain.
MIN_OVER_JAX = {("Full", 1): 1.0, ("Full", 1024): 3.0, ("Mix(5)", 1024): 3.0, ("Sep(2)", 1024): 3.0}
LARGE_OVER_JAX = {"Full": 2.0}


@cache
def sine_network(sizes: tuple[int, ...], n: int) -> tuple[pn.Network, npt.NDArray[Any], npt.NDArray[Any]]:
    """Return a network trained on a noisy sine by a few hundred steps of torch's Adam, and its data."""
    import torch

    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (n, sizes[0]))
    y = np.sin(X[:, 0]) + rng.standard_normal(n)
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the network is too small for several threads
    layers: list[torch.nn.Module] = []
    for width_in, width_out in pairwise(sizes):
        layers += [torch.nn.Linear(width_in, width_out, dtype=torch.float64), torch.nn.Tanh()]
    module = torch.nn.Sequential(*layers[:-1])
    inputs, targets = torch.from_numpy(X), torch.from_numpy(y[:, None])
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(500):
        optimizer.zero_grad()
        ((module(inputs) - targets) ** 2).mean().backward()
        optimizer.step()
    torch.set_num_threads(threads)
    return pn.Network.from_torch(module), X, y


@cache
def images(sizes: tuple[int, ...], n: int) -> tuple[pn.Network, npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """Return a network of random weights, random bytes as inputs, and random classes."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 256, (n, sizes[0]), dtype=np.uint8)
    # The first layer maps bytes, of mean 127.5 and standard deviation 74, to activations of the order of one.
    scales = [74.0, *(1.0 for _ in sizes[2:])]
    weights = [
        rng.standard_normal((rows, columns)) / (np.sqrt(columns) * scale)
        for rows, columns, scale in zip(sizes[1:], sizes[:-1], scales, strict=True)
    ]
    biases = [0.1 * rng.standard_normal(rows) for rows in sizes[1:]]
    biases[0] -= 127.5 * weights[0].sum(axis=1)
    net = pn.Network(weights, biases)
    return net, X, rng.integers(0, sizes[-1], n)


@cache
def small_case(name: str, sizes: Sizes, dtype: str = "float32") -> Case:
    """Return a case of the small problem, with starting point and step size from a warm-up on the CPU."""
    net, X, y = sine_network(sizes.small, sizes.rows)
    post = pn.Posterior(net, SMALL[name], PRIOR, pn.Gaussian(1.0), X, y, dtype=dtype)
    warmup = 20_000 if sizes is SIZES else 400
    warm = pn.sample(post, pn.PCNL(), chains=1, draws=1, warmup=warmup, seed=1, threads=1, device="cpu", progress=False)
    key = Key(name, "-".join(map(str, sizes.small)), sizes.rows, dtype)
    return Case(key, post, warm.theta[0, -1], float(warm.stats["step_size"][0, -1]))


def large_case(name: str, sizes: Sizes, dtype: str = "float32", rows: int | None = None) -> Case:
    """Return a case of the large problem, started at the trained values; Sep starts at a small draw from the prior."""
    rows = sizes.large_rows if rows is None else rows
    net, X, y = images(sizes.large, sizes.large_rows)
    post = pn.Posterior(net, LARGE[name], PRIOR, pn.Categorical(), X[:rows], y[:rows], dtype=dtype, copy=False)
    start = post.theta_map.astype(post.network.dtype)
    if post.network.separate:
        start = np.where(post.parameters["layer"] == 1, 2e-4, 0.3) * post.sample_prior(1, seed=1)[0]
    key = Key(name, "-".join(map(str, sizes.large)), rows, dtype)
    return Case(key, post, start.astype(dtype), LARGE_STEP_SIZE)
