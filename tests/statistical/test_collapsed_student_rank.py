"""Student-t noise, output weights integrated out given a precision of each row: chains leave the joint law invariant.

joint_law.py describes the test. The precisions are no part of what it compares: a chain draws them first, given its
starting point, and drops the last ones. The twins are pCN in NumPy on formulas written out here, for `Full()` on 1-4-1.
"""

from __future__ import annotations

import numpy as np
import pytest
from joint_law import LEVEL, NET_OF_ONE, PRIOR, STEPS, A, Array, B, Steps, X, compiled, smallest_p
from scipy.stats import t as student

import patrac_native as pn
from reference import pcn_proposal

DF, BETA, WIDTH = 1.5, 0.5, 4
LIKELIHOOD = pn.StudentT(DF, "sampled", a=A, b=B[0])


def p_value(
    steps: Steps, architecture: pn.Architecture | None = None, dtype: str = "float64", replicates: int = 1000
) -> float:
    """Smallest p-value of so many replicates."""

    def targets(f: Array, squares: Array, rng: np.random.Generator) -> Array:
        return np.asarray(f + np.sqrt(squares) * rng.standard_t(DF, f.shape))

    def places(y: Array, f: Array, squares: Array, rng: np.random.Generator) -> Array:
        return np.asarray(student.cdf((y - f) / np.sqrt(squares), DF))

    fixed, y = pn.StudentT(DF), np.zeros((len(X), 1))
    post = pn.Posterior(NET_OF_ONE, architecture or pn.Full(), PRIOR, fixed, X, y, dtype=dtype)
    return smallest_p(post, steps, targets, places, replicates=replicates, seed=6)


STEP = 0.3
KERNELS = {
    "pcnl": (pn.PCNL(STEP, collapse=True), 1, pn.Full(), "float64"),
    "mgrad": (pn.MGrad(STEP, collapse=True), 3, pn.Full(), "float32"),
    "persistent": (pn.MGrad(STEP, collapse=True, persistence=0.9), 2, pn.Mix(2), "float32"),
    "sep": (pn.MGrad(STEP, collapse=True, persistence=0.9), 4, pn.Sep(2), "float64"),
    "curvature": (pn.MGrad(STEP, collapse=True, metric="curvature"), 1, pn.Full(), "float64"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_compiled_kernels_pass(name: str) -> None:
    kernel, every, architecture, dtype = KERNELS[name]
    assert p_value(compiled(LIKELIHOOD, kernel, every), architecture, dtype) > LEVEL


RIGHT = "nothing"
OTHER_SHAPE = "precisions of the shape of their prior"
NO_PRECISIONS = "no precisions"
PLAIN_SQUARE = "the square of the scale given residuals alone"
PLAIN_WEIGHTS = "output weights drawn as if all precisions were 1"
NO_DETERMINANT = "no log determinant of M"
FAULTS = (OTHER_SHAPE, NO_PRECISIONS, PLAIN_SQUARE, PLAIN_WEIGHTS, NO_DETERMINANT)


def twin(fault: str) -> Steps:
    """STEPS steps in NumPy; `fault` is what is broken."""

    def run(post: pn.Posterior, theta: Array, squares: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        x, y, square = post.data.X, post.data.y[:, 0], float(squares[0])
        variances = np.asarray(post.prior_variance)
        C, S = np.split(variances, [2 * WIDTH])

        def features(u: Array) -> Array:
            return np.column_stack([np.tanh(x @ u[None, :WIDTH] + u[WIDTH:]), np.ones(len(x))])

        def conditional(u: Array, precision: Array) -> tuple[Array, Array]:
            """Mean and covariance of the output weights."""
            phi = features(u)
            covariance = np.linalg.inv(np.diag(1 / S) + phi.T @ (precision[:, None] * phi) / square)
            return covariance @ phi.T @ (precision * y) / square, covariance

        def value(u: Array, precision: Array) -> float:
            """Log marginal likelihood of u, but for what does not depend on it."""
            m, covariance = conditional(u, precision)
            e = y - features(u) @ m
            log_size = 0.0 if fault == NO_DETERMINANT else np.linalg.slogdet(covariance)[1]
            return float(-0.5 * (precision @ e**2 / square + m**2 @ (1 / S) - log_size))

        def draw_precisions(theta: Array) -> Array:
            e = y - features(theta[: 2 * WIDTH]) @ theta[2 * WIDTH :]
            shape = 0.5 * (DF if fault == OTHER_SHAPE else DF + 1)
            drawn = rng.gamma(shape, 2 / (DF + e**2 / square))
            return np.ones(len(x)) if fault == NO_PRECISIONS else drawn

        theta, precision = theta.astype(np.float64), draw_precisions(theta.astype(np.float64))
        for _ in range(STEPS):
            u = theta[: 2 * WIDTH]
            v = pcn_proposal(u, C, rng.standard_normal(len(u)), BETA)
            u = v if np.log(rng.random()) < value(v, precision) - value(u, precision) else u
            m, covariance = conditional(u, np.ones(len(x)) if fault == PLAIN_WEIGHTS else precision)
            a = m + np.linalg.cholesky(covariance) @ rng.standard_normal(len(m))
            theta = np.concatenate([u, a])
            precision = draw_precisions(theta)
            e = y - features(u) @ a
            weight = np.ones(len(x)) if fault == PLAIN_SQUARE else precision
            square = float((B[0] + 0.5 * weight @ e**2) / rng.gamma(A + 0.5 * len(x)))
        return theta, np.array([square])

    return run


@pytest.mark.slow
def test_the_twin_without_a_fault_passes() -> None:
    assert p_value(twin(RIGHT)) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_broken_twins_are_rejected(fault: str) -> None:
    assert p_value(twin(fault), replicates=1500) < LEVEL
