"""Long runs of all kernels on the same posteriors of the sine problem: they agree on mean and quantiles of f."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from monte_carlo import Estimate, batch_means, largest_z

import patrac_native as pn

Array = npt.NDArray[Any]

# A batch is 50,000 steps, 25 autocorrelation times of the slowest f below (pCNL on Mix(2), measured once).
CHAINS, DRAWS, THIN, BATCHES = 8, 3_000, 100, 6
GRID = np.linspace(-4.5, 4.5, 7)[:, None]
QUANTILES = (0.05, 0.5, 0.95)
# Combined standard errors. With 24 batches the largest of 28 numbers exceeds it in 1 of 150 comparisons; these are 48.
LIMIT = 4.0
KERNELS = {
    "pcn": pn.PCN(),
    "pcnl": pn.PCNL(),
    "mgrad": pn.MGrad(),
    "elliptical slice": pn.EllipticalSlice(),
    "collapsed pcnl": pn.PCNL(collapse=True),
    "persistent mgrad": pn.MGrad(persistence=0.9),
    "collapsed persistent mgrad": pn.MGrad(collapse=True, persistence=0.9),
}
# What the others are compared with: the fastest, whose own error hardly counts.
BASE = pn.MGrad(collapse=True)


@pytest.fixture(scope="module")
def data() -> tuple[Array, Array]:
    """The paper's sine problem: 100 rows, noise variance 1."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (100, 1))
    return X, np.sin(X[:, 0]) + rng.standard_normal(100)


@pytest.fixture(scope="module")
def net(data: tuple[Array, Array]) -> pn.Network:
    """A trained 1-6-6-1."""
    X, y = data
    return pn.train(
        [1, 6, 6, 1], X, y, likelihood=pn.Gaussian(1.0), l2=0.5, validation_fraction=0, max_epochs=500, progress=False
    )


def outputs(
    net: pn.Network, data: tuple[Array, Array], architecture: pn.Architecture, kernel: pn.Kernel, variance: float = 1.0
) -> Array:
    """f on the grid, (chain, draw, point), after a warm-up of 20,000 steps."""
    post = pn.Posterior(net, architecture, pn.TraceClassPrior(1.5, 1.0, 0.5), pn.Gaussian(variance), *data)
    settings: dict[str, Any] = {"chains": CHAINS, "draws": DRAWS, "thin": THIN, "warmup": 20_000, "seed": 61}
    return np.asarray(pn.sample(post, kernel, **settings, progress=False).predict(GRID)[..., 0], dtype=np.float64)


def compared(f: Array, thresholds: Array) -> Estimate:
    """Mean of f at each grid point, and the share of draws below each threshold there: (quantile, point)."""
    below = (f[..., None, :] < thresholds).astype(np.float64)
    return batch_means(np.concatenate([f, below.reshape(*f.shape[:2], -1)], axis=-1), BATCHES)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [pn.Full(), pn.Mix(2), pn.Sep(2)], ids=str)
def test_all_kernels_agree_on_mean_and_quantiles_of_f(
    net: pn.Network, data: tuple[Array, Array], architecture: pn.Architecture
) -> None:
    base = outputs(net, data, architecture, BASE)
    # Comparing shares below the base run's quantiles is comparing quantiles, in the unit in which errors are known.
    thresholds = np.quantile(base, QUANTILES, axis=(0, 1))
    expected = compared(base, thresholds)
    for name, kernel in KERNELS.items():
        found = compared(outputs(net, data, architecture, kernel), thresholds)
        assert largest_z(found, expected) < LIMIT, name
    # The comparison can fail: it tells a noise variance of 1 from one of 1.2.
    other = compared(outputs(net, data, architecture, BASE, variance=1.2), thresholds)
    assert largest_z(other, expected) > LIMIT
