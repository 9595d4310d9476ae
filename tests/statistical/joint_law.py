"""Test of chains that sample the noise: they leave the joint law of theta, variances and targets invariant.

theta and the variances come from their prior and y from the noise; then (theta, variances, y) keeps its joint law under
any number of steps of a chain given y (Geweke 2004, Getting it right). After some steps from that exact draw of the
posterior, these numbers therefore have known laws, which one test for each compares them with: theta over its prior
deviation is normal, each variance has its inverse-gamma prior, and the place of a target under its noise is uniform.
They are uniform through their distribution functions, however short the chain and whatever its step size. The rank test
of rank_test.py would not do: given theta, these chains move their variances rather than drawing them anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import rank_test

import patrac_native as pn

Array = npt.NDArray[Any]
# (posterior, theta (K,), variances (m,), generator) -> theta and variances some steps later.
Steps = Callable[[pn.Posterior, Array, Array, np.random.Generator], tuple[Array, Array]]
# Of one test; Bonferroni over its six numbers, or four of one output.
LEVEL = 1e-4 / 6
# sigma^2 of each output has the inverse-gamma prior with density x^(-a - 1) exp(-b / x).
A, B = 3.0, np.array([0.2, 1.5])
PRIOR = pn.TraceClassPrior(1.5, 1.0, 0.5)
X = np.linspace(-2, 2, 10)[:, None]
NET, NET_OF_ONE = (rank_test.network([1, 4, m], 1, 0.4) for m in (2, 1))
STEPS = 12


def compiled(
    likelihood: pn.Likelihood, kernel: pn.Kernel, every: int = 1, seen: Callable[[Array], Array] = lambda y: y
) -> Steps:
    """STEPS steps of `pn.sample` under a likelihood, given what a chain sees of the targets, by default all."""

    def run(post: pn.Posterior, theta: Array, variances: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        draws = pn.sample(
            post.with_targets(seen(post.data.y), likelihood=rank_test.starting_at(likelihood, variances)),
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


def smallest_p(
    template: pn.Posterior,
    steps: Steps,
    targets: Callable[[Array, Array, np.random.Generator], Array],
    places: Callable[[Array, Array, Array, np.random.Generator], Array],
    *,
    replicates: int,
    seed: int,
) -> float:
    """Smallest p-value of Kolmogorov-Smirnov tests of the numbers described above, of one output or two.

    `targets` draws y given f and the variances; `places` returns those of one row's y (m, ...) under f (m,), uniform.
    """
    from scipy.stats import invgamma, kstest, norm

    rng = np.random.default_rng(seed)
    deviation = np.sqrt(np.asarray(template.prior_variance))
    b, levels = B[: template.data.y.shape[1]], []
    for theta in template.sample_prior(replicates, seed=seed):
        variances = b / rng.gamma(A, size=len(b))
        post = template.with_targets(targets(template.network.predict(theta[None], X, threads=1)[0], variances, rng))
        theta, variances = steps(post, theta, variances, rng)
        row = rng.integers(len(X))
        f = post.network.predict(theta[None], X, threads=1)[0]
        levels.append(
            [
                *norm.cdf(theta[[0, -1]] / deviation[[0, -1]]),
                *invgamma.cdf(np.atleast_1d(variances), A, scale=b),
                *places(post.data.y[row], f[row], variances, rng),
            ]
        )
    return float(min(kstest(values, "uniform").pvalue for values in np.array(levels).T))
