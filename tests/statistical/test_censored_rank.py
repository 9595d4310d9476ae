"""Censored normal targets with sampled variances: chains leave the joint law of theta, variances and targets invariant.

y comes from normal noise, and a bound that depends on the row alone hides y above it. The place of the bounds between 0
and 1 under N(f, variance) is uniform: of a target that is known its probability, of one above its bound a uniform share
of the rest.
"""

from __future__ import annotations

import numpy as np
import pytest
from joint_law import LEVEL, NET, PRIOR, STEPS, A, Array, B, Steps, X, compiled, smallest_p
from scipy.stats import norm

import patrac_native as pn

# Above these the targets of a row are hidden: about half of them.
ENDS = np.linspace(-0.3, 0.4, 10)[:, None] * np.array([1.0, -2.0])
SAMPLED = pn.CensoredGaussian("sampled", a=A, b=B)


def bounds_of(y: Array) -> Array:
    """Bounds (n, m, 2) of targets y (n, m)."""
    hidden = y > ENDS
    return np.stack([np.where(hidden, ENDS, y), np.where(hidden, np.inf, y)], axis=-1)


def place(y: Array, f: Array, variances: Array, rng: np.random.Generator) -> Array:
    """Where the targets of a row lie between 0 and 1."""
    low, high = norm.cdf((y.T - f) / np.sqrt(variances))
    return np.asarray(low + rng.random(2) * (high - low))


def p_value(steps: Steps, architecture: pn.Architecture | None = None, dtype: str = "float64") -> float:
    """Smallest p-value of 1,000 replicates."""
    y = bounds_of(np.zeros((len(X), 2)))
    return smallest_p(
        pn.Posterior(NET, architecture or pn.Full(), PRIOR, pn.CensoredGaussian(1.0), X, y, dtype=dtype),
        steps,
        lambda f, variances, rng: bounds_of(f + np.sqrt(variances) * rng.standard_normal(f.shape)),
        place,
        replicates=1000,
        seed=6,
    )


def augmentation_twin(*, hides: bool) -> Steps:
    """Draws of hidden targets, then of the variances, in NumPy with theta fixed, STEPS times.

    Right if hidden targets are drawn above their bound; else they are taken to be at it.
    """

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


RIGHT = {
    "pcn": compiled(SAMPLED, pn.PCN(0.3)),
    "pcnl": compiled(SAMPLED, pn.PCNL(0.05), 3),
    "mgrad": compiled(SAMPLED, pn.MGrad(0.05, persistence=0.9)),
    "elliptical slice": compiled(SAMPLED, pn.EllipticalSlice(), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", RIGHT)
def test_compiled_kernels_pass(kernel: str, dtype: str) -> None:
    assert p_value(RIGHT[kernel], pn.Full() if dtype == "float32" else pn.Mix(2), dtype) > LEVEL


def test_the_right_twin_passes() -> None:
    assert p_value(augmentation_twin(hides=True)) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        augmentation_twin(hides=False),
        # The mistake of leaving censoring out.
        compiled(SAMPLED, pn.PCNL(0.05), 3, seen=lambda bounds: np.repeat(bounds[..., :1], 2, axis=-1)),
    ],
    ids=["hidden targets at their bounds", "bounds for targets"],
)
def test_chains_of_another_law_are_rejected(steps: Steps) -> None:
    assert p_value(steps) < LEVEL
