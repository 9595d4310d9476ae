"""Warm-up on the sine problem: where it leaves the step size, and that nothing of it lingers in the posterior."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from monte_carlo import Estimate, batch_means, bound, largest_z

import patrac_native as pn
import problems

CHAINS, DRAWS, THIN, BATCHES = 8, 5_000, 50, 10
GRID = np.linspace(-4.5, 4.5, 7)[:, None]
PRIOR = pn.TraceClassPrior(1.5, 1.0, 0.5)


@pytest.fixture(scope="module")
def net() -> pn.Network:
    """A trained 1-6-6-1."""
    X, y = problems.sine()
    return pn.train(
        [1, 6, 6, 1], X, y, likelihood=pn.Gaussian(1.0), l2=0.5, validation_fraction=0, max_epochs=500, progress=False
    )


def posterior(net: pn.Network, architecture: pn.Architecture, variance: float = 1.0) -> pn.Posterior:
    """float32 posterior on the sine problem."""
    return pn.Posterior(net, architecture, PRIOR, pn.Gaussian(variance), *problems.sine())


def run(post: pn.Posterior, kernel: pn.Kernel, **arguments: Any) -> pn.Draws:
    """Eight chains of 250,000 steps after the warm-up."""
    settings: dict[str, Any] = {"chains": CHAINS, "draws": DRAWS, "thin": THIN, "progress": False, **arguments}
    return pn.sample(post, kernel, **settings)


def moments(draws: pn.Draws) -> Estimate:
    """Posterior mean of f on the grid, and of its squared distance from the truth.

    The slowest runs below are worth an independent draw every 250 steps; a batch is 25,000.
    """
    distance = draws.predict(GRID)[..., 0].astype(np.float64) - np.sin(GRID[:, 0])
    return batch_means(np.concatenate([distance, distance**2], axis=-1), BATCHES)


@pytest.mark.slow
def test_adaptation_and_accept_all_leave_no_bias(net: pn.Network) -> None:
    post = posterior(net, pn.Sep(2))
    # Nothing adapts here. Fixed-step pCN finds its way from prior draws; fixed-step pCNL can stay where it starts:
    # far out its drift overshoots and all is rejected. So it goes on from where pCN ended.
    fixed = run(post, pn.PCN(0.2), warmup=50_000, init="prior", seed=51)
    onward = run(post, pn.PCNL(0.008), warmup=None, init=fixed.theta[:, -1], seed=52)
    # The paper's phases at a twentieth of their length, from a step size that such a length can grow.
    paper = replace(pn.paper_warmup().scaled(0.05), step_size=0.002)
    adapted = [run(post, pn.PCNL(), warmup=warmup, seed=53) for warmup in ("auto", paper)]
    reference = moments(fixed)
    limit = bound(3 * reference.mean.size, reference.batches - 1)
    for draws in (onward, *adapted):
        assert largest_z(moments(draws), reference) < limit
    # The comparison can fail: it tells a noise variance of 1 from one of 1.2.
    wrong = run(posterior(net, pn.Sep(2), 1.2), pn.PCNL(), seed=42)
    assert largest_z(moments(wrong), reference) > limit


@pytest.mark.slow
def test_accept_all_takes_every_move(net: pn.Network) -> None:
    post = posterior(net, pn.Sep(2))
    draws = run(post, pn.PCNL(), warmup=pn.paper_warmup().scaled(0.05), draws=200, seed=54)
    assert (draws.stats["warmup_acceptance_rate"][:, 1] == 1.0).all()
    # The step size is fixed while every move is accepted: there is no rate to adapt to.
    np.testing.assert_array_equal(draws.stats["warmup_step_size"][:, 1], draws.stats["warmup_step_size"][:, 0])
