"""Student-t noise with sampled scales: chains leave the joint law of theta, scales and targets invariant."""

from __future__ import annotations

import numpy as np
import pytest
from joint_law import LEVEL, NET, PRIOR, STEPS, A, Array, B, Steps, X, compiled, smallest_p
from scipy.stats import t as student

import patrac_native as pn

DF = 3.0
SAMPLED = pn.StudentT(DF, "sampled", a=A, b=B)


def p_value(steps: Steps, architecture: pn.Architecture | None = None, dtype: str = "float64") -> float:
    """Smallest p-value of 1,000 replicates; the place of a target is its probability."""
    y = np.zeros((len(X), 2))
    return smallest_p(
        pn.Posterior(NET, architecture or pn.Full(), PRIOR, pn.StudentT(DF), X, y, dtype=dtype),
        steps,
        lambda f, squares, rng: f + np.sqrt(squares) * rng.standard_t(DF, f.shape),
        lambda y, f, squares, _: student.cdf((y - f) / np.sqrt(squares), DF),
        replicates=1000,
        seed=6,
    )


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


RIGHT = {
    "pcn": compiled(SAMPLED, pn.PCN(0.3)),
    "pcnl": compiled(SAMPLED, pn.PCNL(0.05), 3),
    "mgrad": compiled(SAMPLED, pn.MGrad(0.05, persistence=0.9)),
    "mgrad, rarely": compiled(SAMPLED, pn.MGrad(0.05), 4),
    "elliptical slice": compiled(SAMPLED, pn.EllipticalSlice(), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", RIGHT)
def test_compiled_kernels_pass(kernel: str, dtype: str) -> None:
    assert p_value(RIGHT[kernel], pn.Full() if dtype == "float32" else pn.Mix(2), dtype) > LEVEL


def test_the_right_twin_passes() -> None:
    assert p_value(mixture_twin((DF + 1) / 2)) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        mixture_twin(DF / 2),  # the shape of the prior of the precisions
        compiled(pn.StudentT(30.0, "sampled", a=A, b=B), pn.PCNL(0.05), 3),
        compiled(pn.StudentT(DF, "sampled", a=A, b=B[::-1].copy()), pn.PCNL(0.05), 3),
    ],
    ids=["precisions of another shape", "other degrees of freedom", "the prior of the other output's scale"],
)
def test_chains_of_another_law_are_rejected(steps: Steps) -> None:
    assert p_value(steps) < LEVEL
