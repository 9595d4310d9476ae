"""Exact rank test of reversible kernels (Gandy & Scott 2020, arXiv:2001.06465), and NumPy twins to try it on.

With theta_0 from the prior and y from p(y | theta_0), theta_0 is an exact draw from the posterior given y. Put it at a
uniformly chosen place M of a chain of n_states: M states by running the kernel away from it (a reversible kernel run
backwards is itself), the rest by running it away from it once more. Where theta_0 stands then says nothing, so the rank
of any number computed from it among those of all states is uniform, whatever the step size, however short the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import patrac_native as pn

Array = npt.NDArray[Any]
# (posterior, theta of shape (K,), states wanted, generator) -> the next states, (states, K).
Chain = Callable[[pn.Posterior, Array, int, np.random.Generator], Array]

QUANTITIES = ("log_likelihood", "log_prior", "first parameter", "last parameter", "f at a point")
FAULTS = (
    "printed sign",
    "gradient stale after a rejection",
    "gradient stale after acceptance",
    "half the step size in the reverse density",
)


@dataclass(frozen=True)
class Problem:
    """Everything of a posterior but the targets.

    Attributes
    ----------
    X : ndarray, shape (n, d)
        Inputs of the data.
    point : ndarray, shape (1, d)
        Where the last test quantity, the first output f, is looked at.
    """

    net: pn.Network
    architecture: pn.Architecture
    prior: pn.TraceClassPrior
    likelihood: pn.Likelihood
    X: Array
    point: Array
    dtype: str = "float64"

    def posterior(self, y: Array) -> pn.Posterior:
        """Posterior given the targets y."""
        return pn.Posterior(self.net, self.architecture, self.prior, self.likelihood, self.X, y, dtype=self.dtype)

    def simulate(self, count: int, seed: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw `count` pairs: theta from the prior, (count, K), and y given it, (count, n, m) or (count, n)."""
        m = self.net.layer_sizes[-1]
        labels = isinstance(self.likelihood, pn.Categorical)
        n = len(self.X)
        any_posterior = self.posterior(np.zeros(n if labels else (n, m)))
        theta = any_posterior.sample_prior(count, seed=seed)
        return theta, self.likelihood.sample(any_posterior.network.predict(theta, self.X), rng)


def native_chain(kernel: pn.Kernel, thin: int) -> Chain:
    """Chain run by `pn.sample` without warm-up, every `thin`-th state kept."""

    def run(post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        seed = int(rng.integers(2**63))
        draws = pn.sample(
            post, kernel, chains=1, draws=states, thin=thin, warmup=None, init=theta[None], seed=seed, progress=False
        )
        return np.asarray(draws.theta[0])

    return run


def pcn_twin(beta: float, thin: int) -> Chain:
    """PCN in NumPy (docs/method.md, section 6)."""

    def run(post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        deviation = np.sqrt(post.prior_variance)
        u, kept = theta.astype(np.float64), []
        l_u = post.log_likelihood(u, threads=1)
        for step in range(states * thin):
            v = np.sqrt(1 - beta**2) * u + beta * deviation * rng.standard_normal(post.dim)
            l_v = post.log_likelihood(v, threads=1)
            if np.log(rng.random()) < l_v - l_u:
                u, l_u = v, l_v
            if (step + 1) % thin == 0:
                kept.append(u)
        return np.asarray(kept)

    return run


def pcnl_twin(delta: float, thin: int, fault: str | None = None) -> Chain:
    """PCNL in NumPy (docs/method.md, section 6), right or with one of FAULTS."""
    if fault is not None and fault not in FAULTS:
        raise ValueError(f"fault must be one of {FAULTS}; got {fault!r}.")
    sign = -1.0 if fault == "printed sign" else 1.0
    delta_back = delta / 2 if fault == "half the step size in the reverse density" else delta

    def run(post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        c = post.prior_variance

        def rho(l_a: Any, a: Array, b: Array, g: Array, step_size: float) -> Any:
            return -l_a - 0.5 * sign * (b - a) @ g - 0.25 * step_size * ((a + b) @ g - g @ (c * g))

        u, kept = theta.astype(np.float64), []
        l_u, g_u = post.log_likelihood_and_grad(u, threads=1)
        for step in range(states * thin):
            noise = np.sqrt(8 * delta * c) * rng.standard_normal(post.dim)
            v = ((2 - delta) * u + 2 * delta * c * g_u + noise) / (2 + delta)
            l_v, g_v = post.log_likelihood_and_grad(v, threads=1)
            if np.log(rng.random()) < rho(l_u, u, v, g_u, delta) - rho(l_v, v, u, g_v, delta_back):
                u, l_u = v, l_v
                g_u = g_u if fault == "gradient stale after acceptance" else g_v
            elif fault == "gradient stale after a rejection":
                g_u = g_v
            if (step + 1) % thin == 0:
                kept.append(u)
        return np.asarray(kept)

    return run


def ranks(problem: Problem, chain: Chain, *, replicates: int, n_states: int, seed: int) -> Array:
    """Ranks of theta_0 among n_states states, 0..n_states - 1, ties broken at random.

    Returns
    -------
    ndarray of int, shape (replicates, len(QUANTITIES))
    """
    rng = np.random.default_rng(seed)
    starts, targets = problem.simulate(replicates, seed, rng)
    found = np.empty((replicates, len(QUANTITIES)), dtype=np.int64)
    for replicate, (theta, y) in enumerate(zip(starts, targets, strict=True)):
        post = problem.posterior(y)
        backward = int(rng.integers(n_states))
        parts = [theta[None]]
        for count in (backward, n_states - 1 - backward):
            if count:
                parts.append(chain(post, theta, count, rng).astype(post.dtype))
        states = np.concatenate(parts)
        # One batch, so that equal states have equal numbers to the last bit and count as ties.
        numbers = np.column_stack(
            [
                post.log_likelihood(states, threads=1),
                post.log_prior(states),
                states[:, 0],
                states[:, -1],
                post.network.predict(states, problem.point, threads=1)[:, 0, 0],
            ]
        )
        below, equal = (numbers < numbers[0]).sum(axis=0), (numbers == numbers[0]).sum(axis=0)
        found[replicate] = below + rng.integers(equal)
    return found


def p_values(found: Array, n_states: int) -> Array:
    """P-values of the chi-square test of uniformity, one for each column of ranks."""
    from scipy.stats import chisquare

    counts = np.array([np.bincount(column, minlength=n_states) for column in found.T])
    return np.asarray(chisquare(counts, axis=1).pvalue)
