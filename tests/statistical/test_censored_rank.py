"""Censored normal targets with sampled variances: chains leave the joint law of theta, variances and targets invariant.

theta and the variances come from their prior, y from normal noise, and a bound that depends on the row alone hides y
above it. As in test_student_scale_rank.py, after some steps of a chain given the bounds, from that exact draw of the
posterior, theta over its prior deviation is normal, each variance has its inverse-gamma prior, and the place of the
bounds between 0 and 1 under N(f, variance) is uniform: of a target that is known its probability, of one above its
bound a uniform share of the rest. One test for each compares it with its law, however short the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn

Array = npt.NDArray[Any]
# (posterior, theta (K,), variances (m,), generator) -> theta and variances some steps later.
Steps = Callable[[pn.Posterior, Array, Array, np.random.Generator], tuple[Array, Array]]
# Of one test; Bonferroni over its six numbers.
LEVEL = 1e-4 / 6
A, B = 3.0, np.array([0.2, 1.5])
PRIOR = pn.TraceClassPrior(1.5, 1.0, 0.5)
X = np.linspace(-2, 2, 10)[:, None]
# Above these the targets of a row are hidden: about half of them.
ENDS = np.linspace(-0.3, 0.4, 10)[:, None] * np.array([1.0, -2.0])
STEPS = 12


def network() -> pn.Network:
    """1-4-2 with normal parameters of standard deviation 0.4."""
    rng = np.random.default_rng(1)
    weights = [0.4 * rng.standard_normal(shape) for shape in ((4, 1), (2, 4))]
    return pn.Network(weights, [0.4 * rng.standard_normal(size) for size in (4, 2)])


def bounds_of(y: Array) -> Array:
    """Bounds (n, m, 2) of targets y (n, m)."""
    hidden = y > ENDS
    return np.stack([np.where(hidden, ENDS, y), np.where(hidden, np.inf, y)], axis=-1)


class _StartingAt(pn.CensoredGaussian):
    """Sampled variances whose chains start at given values rather than at their modes given the trained network."""

    def __init__(self, start: Array) -> None:
        super().__init__("sampled", a=A, b=B)
        self._start = start

    def fitted(self, f: Array, y: Array, row_weights: Array) -> pn.CensoredGaussian:
        """Fix the variances at the given values."""
        return self.at(self._start)

    def constant_log_likelihood(self, *_: object) -> float:
        """Return zero: that of the best constant is fitted at length for each run, which only reports it."""
        return 0.0


def compiled(kernel: pn.Kernel, every: int = 1, *, seen: Callable[[Array], Array] = lambda bounds: bounds) -> Steps:
    """Steps of `pn.sample` given what a chain sees of the bounds, by default all."""

    def run(post: pn.Posterior, theta: Array, variances: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        draws = pn.sample(
            post.with_targets(seen(post.data.y), likelihood=_StartingAt(variances)),
            kernel,
            chains=1,
            draws=1,
            thin=STEPS,
            warmup=None,
            init=theta[None],
            seed=int(rng.integers(2**63)),
            variance_every=every,
            threads=1,
            progress=False,
        )
        return draws.theta[0, 0], draws.stats["variance"][0, 0]

    return run


def augmentation_twin(*, hides: bool) -> Steps:
    """Draws of hidden targets, then of the variances, in NumPy with theta fixed, STEPS times.

    Right if hidden targets are drawn above their bound; else they are taken to be at it.
    """
    from scipy.stats import norm

    def run(post: pn.Posterior, theta: Array, variances: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        f = post.network.predict(theta[None], post.data.X, threads=1)[0]
        lower, upper = post.data.y[..., 0], post.data.y[..., 1]
        for _ in range(STEPS):
            sd = np.sqrt(variances)
            beyond = norm.isf(norm.sf(lower, f, sd) * rng.random(lower.shape), f, sd)
            hidden = beyond if hides else lower
            squares = ((np.where(lower < upper, hidden, lower) - f) ** 2).sum(axis=0)
            variances = (B + 0.5 * squares) / rng.gamma(A + 0.5 * len(f), size=2)
        return theta, variances

    return run


def smallest_p(architecture: pn.Architecture, steps: Steps, *, replicates: int, seed: int, dtype: str) -> float:
    """Smallest p-value of Kolmogorov-Smirnov tests of the numbers described above."""
    from scipy.stats import invgamma, kstest, norm

    rng = np.random.default_rng(seed)
    levels = []
    start = bounds_of(np.zeros((len(X), 2)))
    template = pn.Posterior(network(), architecture, PRIOR, pn.CensoredGaussian(1.0), X, start, dtype=dtype)
    for theta in template.sample_prior(replicates, seed=seed):
        variances = B / rng.gamma(A, size=2)
        f = template.network.predict(theta[None], X, threads=1)[0]
        post = template.with_targets(bounds_of(f + np.sqrt(variances) * rng.standard_normal(f.shape)))
        theta, variances = steps(post, theta, variances, rng)
        row = rng.integers(len(X))
        f = post.network.predict(theta[None], X, threads=1)[0]
        ends = norm.cdf((post.data.y[row].T - f[row]) / np.sqrt(variances))
        deviation = np.sqrt(post.prior_variance)
        levels.append(
            [
                *norm.cdf(theta[[0, -1]] / deviation[[0, -1]]),
                *invgamma.cdf(variances, A, scale=B),
                *(ends[0] + rng.random(2) * (ends[1] - ends[0])),
            ]
        )
    return float(min(kstest(values, "uniform").pvalue for values in np.array(levels).T))


RIGHT = {
    "pcn": (pn.PCN(0.3), 1),
    "pcnl": (pn.PCNL(0.05), 3),
    "mgrad": (pn.MGrad(0.05, persistence=0.9), 1),
    "elliptical slice": (pn.EllipticalSlice(), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", RIGHT)
def test_compiled_kernels_pass(kernel: str, dtype: str) -> None:
    chosen, every = RIGHT[kernel]
    architecture = pn.Full() if dtype == "float32" else pn.Mix(2)
    assert smallest_p(architecture, compiled(chosen, every), replicates=800, seed=5, dtype=dtype) > LEVEL


def test_the_right_twin_passes() -> None:
    assert smallest_p(pn.Full(), augmentation_twin(hides=True), replicates=1000, seed=6, dtype="float64") > LEVEL


def test_a_twin_that_puts_hidden_targets_at_their_bounds_is_rejected() -> None:
    assert smallest_p(pn.Full(), augmentation_twin(hides=False), replicates=1000, seed=6, dtype="float64") < LEVEL


@pytest.mark.slow
def test_a_chain_that_takes_bounds_for_targets_is_rejected() -> None:
    """The mistake of leaving censoring out."""
    kernel, every = RIGHT["pcnl"]

    def known(bounds: Array) -> Array:
        return np.repeat(bounds[..., :1], 2, axis=-1)

    assert smallest_p(pn.Full(), compiled(kernel, every, seen=known), replicates=800, seed=7, dtype="float64") < LEVEL
