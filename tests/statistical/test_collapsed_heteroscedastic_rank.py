"""Rank tests of noise with a variance of each row, the output weights of the means integrated out, and broken twins.

The twins are mGrad in NumPy on formulas written out here for one hidden layer, `Full()` and tanh. Their gradient is the
compiled one: an error in it would not change the law of a chain, since the accept test holds for any g. So the faults
are of what does change it: the density, and the law from which the output weights of a kept draw are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from rank_test import LEVEL, Problem, native_blocks, native_chain, smallest_p

import patrac_native as pn
import problems
from reference import mgrad_h, mgrad_proposal

Array = npt.NDArray[np.float64]
LIKELIHOOD = pn.HeteroscedasticGaussian()
STEP = 0.2
WIDTH = 4
# Wide enough that the variances of the rows differ, without which the twins' faults would hardly show.
PRIOR = pn.TraceClassPrior(1.5, 2.0, 1.0)


def posed(architecture: pn.Architecture, dtype: str, prior: pn.Prior | None = None) -> Problem:
    """Two targets with a mean and a log-variance each, on 1-4-4, 8 rows."""
    X, point = np.linspace(-2, 2, 8)[:, None], np.array([[0.7]])
    net = problems.random_network(problems.rng_of("heteroscedastic rank"), (1, WIDTH, 4))
    own = PRIOR if prior is None else prior
    return Problem(net, architecture, own, LIKELIHOOD, X, point, dtype)  # type: ignore[arg-type]


RIGHT = {
    "full": (posed(pn.Full(), "float32"), native_chain(pn.MGrad(STEP, collapse=True), 3)),
    "mix, persistent": (
        posed(pn.Mix(2), "float64"),
        native_blocks(pn.MGrad(STEP, collapse=True, persistence=0.9), 3),
    ),
    "out": (posed(pn.Out(3), "float32"), native_chain(pn.PCNL(STEP, collapse=True), 3)),
    "sep, sampled scales": (
        posed(pn.Sep(2), "float64", replace(PRIOR, scales="sampled")),
        native_chain(pn.MGrad(STEP, collapse=True), 3),
    ),
    "full, curvature": (
        posed(pn.Full(), "float64"),
        native_chain(pn.MGrad(STEP, collapse=True, metric="curvature"), 3),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_compiled_chains_pass(name: str) -> None:
    assert smallest_p(*RIGHT[name], replicates=400, seed=41) > LEVEL


NO_DETERMINANT = "no log determinant of M"
UNIT_VARIANCE = "M and m of rows of unit variance"
DRAW_AT_UNIT_VARIANCE = "output weights drawn as if rows had unit variance"
FAULTS = (NO_DETERMINANT, UNIT_VARIANCE, DRAW_AT_UNIT_VARIANCE)


@dataclass(frozen=True)
class Twin:
    """A chain as `rank_test.ranks` runs it, for `Full()` on 1-4-4 without row weights; `fault` is what is broken."""

    thin: int
    fault: str | None = None

    def __call__(self, post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        """Run from theta (K,) and return the next states, (states, K)."""
        entries, kept = post.density("collapsed").entries, []
        c = np.asarray(post.prior_variance)[entries]
        u = theta.astype(np.float64)[entries]
        l_u, g_u = self.value(post, u), np.asarray(post.density("collapsed").value_and_grad(u)[1])
        for step in range(states * self.thin):
            v = mgrad_proposal(u, g_u, c, rng.standard_normal(len(u)), STEP)
            l_v, g_v = self.value(post, v), np.asarray(post.density("collapsed").value_and_grad(v)[1])
            log_ratio = l_v - l_u + mgrad_h(u, v, g_v, c, STEP) - mgrad_h(v, u, g_u, c, STEP)
            if np.log(rng.random()) < log_ratio:
                u, l_u, g_u = v, l_v, g_v
            if (step + 1) % self.thin == 0:
                kept.append(self.completed(post, u, rng))
        return np.asarray(kept)

    @staticmethod
    def parts(post: pn.Posterior, u: Array) -> tuple[Array, Array, Array]:
        """Features (n, N + 1), log-variances (n, 2) and prior variances (2, N + 1) of the weights of the means."""
        weights, biases, of_s, bias_of_s = np.split(u, [WIDTH, 2 * WIDTH, 4 * WIDTH])
        phi = np.column_stack([np.tanh(post.data.X @ weights[None] + biases), np.ones(len(post.data.X))])
        s = phi[:, :-1] @ of_s.reshape(2, WIDTH).T + bias_of_s
        drawn = np.delete(np.asarray(post.prior_variance), post.density("collapsed").entries)
        S = np.column_stack([drawn[: 2 * WIDTH].reshape(2, WIDTH), drawn[2 * WIDTH :]])
        return phi, s, S

    def conditional(self, phi: Array, s: Array, S: Array, y: Array, *, unit: bool) -> tuple[Array, Array, float]:
        """m, Sigma and log|M| of one target."""
        precision = np.ones(len(s)) if unit else np.exp(-s)
        inverse = np.diag(1 / S) + phi.T @ (precision[:, None] * phi)
        sigma = np.linalg.inv(inverse)
        return sigma @ phi.T @ (precision * y), sigma, float(np.linalg.slogdet(inverse)[1] + np.log(S).sum())

    def value(self, post: pn.Posterior, u: Array) -> float:
        """l(theta_h, m) - |alpha|^2 / 2 - log|M| / 2."""
        phi, s, S = self.parts(post, u)
        total = 0.0
        for c in range(2):
            m, _, log_size = self.conditional(phi, s[:, c], S[c], post.data.y[:, c], unit=self.fault == UNIT_VARIANCE)
            residual = post.data.y[:, c] - phi @ m
            total -= 0.5 * float((residual**2 * np.exp(-s[:, c]) + s[:, c]).sum() + (m**2 / S[c]).sum())
            total -= 0.0 if self.fault == NO_DETERMINANT else 0.5 * log_size
        return total

    def completed(self, post: pn.Posterior, u: Array, rng: np.random.Generator) -> Array:
        """theta with the weights of the means drawn."""
        phi, s, S = self.parts(post, u)
        drawn = []
        for c in range(2):
            unit = self.fault in (UNIT_VARIANCE, DRAW_AT_UNIT_VARIANCE)
            m, sigma, _ = self.conditional(phi, s[:, c], S[c], post.data.y[:, c], unit=unit)
            drawn.append(m + np.linalg.cholesky(sigma) @ rng.standard_normal(len(m)))
        a = np.array(drawn)
        theta = np.empty(post.dim)
        theta[post.density("collapsed").entries] = u
        theta[np.delete(np.arange(post.dim), post.density("collapsed").entries)] = np.concatenate(
            [a[:, :-1].ravel(), a[:, -1]]
        )
        return theta


@pytest.mark.slow
def test_the_twin_without_a_fault_passes() -> None:
    assert smallest_p(posed(pn.Full(), "float64"), Twin(3), replicates=250, seed=42) > LEVEL


def test_the_twins_density_is_the_compiled_one() -> None:
    problem = posed(pn.Full(), "float64")
    theta, y = problem.simulate(2, 7, np.random.default_rng(7))
    post = problem.posterior(y[0])
    points = theta[:, post.density("collapsed").entries]
    own = np.array([Twin(1).value(post, point) for point in points])
    compiled = np.asarray(post.density("collapsed").value(points)) + 0.5 * post.data.y.size * np.log(2 * np.pi)
    np.testing.assert_allclose(own, compiled, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_broken_twins_are_rejected(fault: str) -> None:
    assert smallest_p(posed(pn.Full(), "float64"), Twin(3, fault), replicates=250, seed=43) < LEVEL
