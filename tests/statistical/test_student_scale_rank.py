"""Student-t noise with sampled scales: chains leave the joint law of theta, scales and targets invariant.

theta and the squares of the scales come from their prior and y from the t distribution; then (theta, scales, y) keeps
its joint law under any number of steps of a chain given y (Geweke 2004, Getting it right). After some steps from that
exact draw of the posterior, these numbers therefore have known laws, which one test for each compares them with: theta
over its prior deviation is normal, each square of a scale has its inverse-gamma prior, and a residual over its scale is
t. They are uniform through their distribution functions, however short the chain and whatever its step size. The rank
test of rank_test.py would not do: given theta, the chain moves its scales by a mixture rather than drawing them anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn

Array = npt.NDArray[Any]
# (posterior, theta (K,), squares (m,), generator) -> theta and squares some steps later.
Steps = Callable[[pn.Posterior, Array, Array, np.random.Generator], tuple[Array, Array]]
# Of one test; Bonferroni over its six numbers.
LEVEL = 1e-4 / 6
A, B, DF = 3.0, np.array([0.2, 1.5]), 3.0
PRIOR = pn.TraceClassPrior(1.5, 1.0, 0.5)
X = np.linspace(-2, 2, 10)[:, None]
STEPS = 12


def network() -> pn.Network:
    """1-4-2 with normal parameters of standard deviation 0.4."""
    rng = np.random.default_rng(1)
    weights = [0.4 * rng.standard_normal(shape) for shape in ((4, 1), (2, 4))]
    return pn.Network(weights, [0.4 * rng.standard_normal(size) for size in (4, 2)])


class _StartingAt(pn.StudentT):
    """Sampled scales whose chains start at given squares rather than at their modes given the trained network."""

    def __init__(self, start: Array, df: float = DF, b: Array = B) -> None:
        super().__init__(df, "sampled", a=A, b=b)
        self._start = start

    def fitted(self, f: Array, y: Array, row_weights: Array) -> pn.StudentT:
        """Fix the squares at the given values."""
        return self.at(self._start)

    def constant_log_likelihood(self, *_: object) -> float:
        """Return zero: that of the best constant is fitted at length for each run, which only reports it."""
        return 0.0


def compiled(kernel: pn.Kernel, every: int = 1, *, df: float = DF, b: Array = B) -> Steps:
    """Steps of `pn.sample` under the law that is given, by default the right one."""

    def run(post: pn.Posterior, theta: Array, squares: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        likelihood = _StartingAt(squares, df, b)
        draws = pn.sample(
            post.with_targets(post.data.y, likelihood=likelihood),
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


def smallest_p(architecture: pn.Architecture, steps: Steps, *, replicates: int, seed: int, dtype: str) -> float:
    """Smallest p-value of Kolmogorov-Smirnov tests of the numbers described above."""
    from scipy.stats import invgamma, kstest, norm
    from scipy.stats import t as student

    rng = np.random.default_rng(seed)
    levels = []
    template = pn.Posterior(network(), architecture, PRIOR, pn.StudentT(DF), X, np.zeros((len(X), 2)), dtype=dtype)
    thetas = template.sample_prior(replicates, seed=seed)
    for theta in thetas:
        squares = B / rng.gamma(A, size=2)
        f = template.network.predict(theta[None], X, threads=1)[0]
        y = f + np.sqrt(squares) * rng.standard_t(DF, f.shape)
        post = template.with_targets(y)
        theta, squares = steps(post, theta, squares, rng)
        residuals = (y - post.network.predict(theta[None], X, threads=1)[0]) / np.sqrt(squares)
        row = rng.integers(len(X))
        deviation = np.sqrt(post.prior_variance)
        levels.append(
            [
                *norm.cdf(theta[[0, -1]] / deviation[[0, -1]]),
                *invgamma.cdf(squares, A, scale=B),
                *student.cdf(residuals[row], DF),
            ]
        )
    return float(min(kstest(values, "uniform").pvalue for values in np.array(levels).T))


RIGHT = {
    "pcn": (pn.PCN(0.3), 1),
    "pcnl": (pn.PCNL(0.05), 3),
    "mgrad": (pn.MGrad(0.05, persistence=0.9), 1),
    "mgrad, rarely": (pn.MGrad(0.05), 4),
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
    assert smallest_p(pn.Full(), mixture_twin((DF + 1) / 2), replicates=1000, seed=6, dtype="float64") > LEVEL


def test_a_twin_with_precisions_of_another_shape_is_rejected() -> None:
    """df / 2, the shape of their prior."""
    assert smallest_p(pn.Full(), mixture_twin(DF / 2), replicates=1000, seed=6, dtype="float64") < LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["df", "swapped"])
def test_a_chain_of_another_law_is_rejected(fault: str) -> None:
    """Other degrees of freedom, or each output with the prior of the other's scale."""
    kernel, every = RIGHT["pcnl"]
    steps = compiled(kernel, every, df=30.0) if fault == "df" else compiled(kernel, every, b=B[::-1].copy())
    assert smallest_p(pn.Full(), steps, replicates=800, seed=7, dtype="float64") < LEVEL
