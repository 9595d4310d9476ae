"""Student-t and censored normal targets with sampled scales: chains leave the joint law of all invariant.

The place of a Student-t target under its noise is its probability. Censored y come from normal noise, and a bound that
depends on the row alone hides y above it. The place of the bounds between 0 and 1 under N(f, variance) is uniform: of a
target that is known its probability, of one above its bound a uniform share of the rest.
"""

from __future__ import annotations

import numpy as np
import pytest
from joint_law import LEVEL, NET, PRIOR, STEPS, A, Array, B, Steps, X, compiled, smallest_p
from scipy.stats import norm
from scipy.stats import t as student

import patrac_native as pn

DF = 3.0
LIKELIHOODS: dict[str, pn.Likelihood] = {
    "student-t": pn.StudentT(DF, "sampled", a=A, b=B),
    "censored": pn.CensoredGaussian("sampled", a=A, b=B),
}
# Above these the targets of a row are hidden: about half of them.
ENDS = np.linspace(-0.3, 0.4, 10)[:, None] * np.array([1.0, -2.0])


def bounds_of(y: Array) -> Array:
    """Bounds (n, m, 2) of targets y (n, m)."""
    hidden = y > ENDS
    return np.stack([np.where(hidden, ENDS, y), np.where(hidden, np.inf, y)], axis=-1)


def place(y: Array, f: Array, variances: Array, rng: np.random.Generator) -> Array:
    """Where the targets of a row lie between 0 and 1."""
    low, high = norm.cdf((y.T - f) / np.sqrt(variances))
    return np.asarray(low + rng.random(2) * (high - low))


def p_value(name: str, steps: Steps, architecture: pn.Architecture | None = None, dtype: str = "float64") -> float:
    """Smallest p-value of 1,000 replicates."""
    zeros = np.zeros((len(X), 2))
    fixed, y = (pn.CensoredGaussian(1.0), bounds_of(zeros)) if name == "censored" else (pn.StudentT(DF), zeros)

    def targets(f: Array, squares: Array, rng: np.random.Generator) -> Array:
        if name == "censored":
            return bounds_of(f + np.sqrt(squares) * rng.standard_normal(f.shape))
        return np.asarray(f + np.sqrt(squares) * rng.standard_t(DF, f.shape))

    def places(y: Array, f: Array, squares: Array, rng: np.random.Generator) -> Array:
        if name == "censored":
            return place(y, f, squares, rng)
        return np.asarray(student.cdf((y - f) / np.sqrt(squares), DF))

    post = pn.Posterior(NET, architecture or pn.Full(), PRIOR, fixed, X, y, dtype=dtype)
    return smallest_p(post, steps, targets, places, replicates=1000, seed=6)


def mixture_twin(shape: float) -> Steps:
    """The draw of the scales in NumPy with theta fixed, STEPS times; the precisions of rows have this shape.

    With (df + 1) / 2 it is right.
    """

    def run(post: pn.Posterior, theta: Array, squares: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        residuals = post.data.y - post.network.predict(theta[None], post.data.X, threads=1)[0]
        for _ in range(STEPS):
            precision = rng.gamma(shape, 2.0 / (DF + residuals**2 / squares))
            rate = B + 0.5 * (precision * residuals**2).sum(axis=0)
            squares = rate / rng.gamma(A + 0.5 * len(residuals), size=2)
        return theta, squares

    return run


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


KERNELS = {
    "pcn": (pn.PCN(0.3), 1),
    "pcnl": (pn.PCNL(0.05), 3),
    "mgrad": (pn.MGrad(0.05, persistence=0.9), 1),
    "mgrad, rarely": (pn.MGrad(0.05), 4),
    "elliptical slice": (pn.EllipticalSlice(), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_compiled_kernels_pass(name: str, kernel: str, dtype: str) -> None:
    steps = compiled(LIKELIHOODS[name], *KERNELS[kernel])
    assert p_value(name, steps, pn.Full() if dtype == "float32" else pn.Mix(2), dtype) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"), [("student-t", mixture_twin((DF + 1) / 2)), ("censored", augmentation_twin(hides=True))]
)
def test_the_right_twin_passes(name: str, steps: Steps) -> None:
    assert p_value(name, steps) > LEVEL


WRONG: dict[str, tuple[str, Steps]] = {
    # The shape of the prior of the precisions.
    "precisions of another shape": ("student-t", mixture_twin(DF / 2)),
    "other degrees of freedom": ("student-t", compiled(pn.StudentT(30.0, "sampled", a=A, b=B), pn.PCNL(0.05), 3)),
    "the prior of the other output's scale": (
        "student-t",
        compiled(pn.StudentT(DF, "sampled", a=A, b=B[::-1].copy()), pn.PCNL(0.05), 3),
    ),
    "hidden targets at their bounds": ("censored", augmentation_twin(hides=False)),
    # The mistake of leaving censoring out.
    "bounds for targets": (
        "censored",
        compiled(LIKELIHOODS["censored"], pn.PCNL(0.05), 3, seen=lambda bounds: np.repeat(bounds[..., :1], 2, axis=-1)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", WRONG)
def test_chains_of_another_law_are_rejected(fault: str) -> None:
    assert p_value(*WRONG[fault]) < LEVEL
