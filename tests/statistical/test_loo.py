"""Leave-one-out predictions by reweighted draws against exact posteriors without each row, in standard errors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import norm

import patrac_native as pn
import problems

pytestmark = pytest.mark.slow

N, REPEATS, VARIANCE = 40, 25, 0.09


def posterior(sample_weight: npt.NDArray[np.float64] | None = None) -> pn.Posterior:
    """Return a posterior of Bayesian linear regression with 5 parameters, of all rows or without some."""
    rng = problems.rng_of("leave-one-out")
    net = problems.random_network(rng, (1, 10, 1))
    X = np.linspace(-2.0, 2.0, N)[:, None]  # no row has much leverage
    y = net.predict(X)[:, 0] + np.sqrt(VARIANCE) * rng.normal(size=N)
    law = pn.Gaussian(VARIANCE)
    return pn.Posterior(net, pn.Out(4), problems.PRIOR, law, X, y, dtype="float64", sample_weight=sample_weight)


def exact_elpd() -> npt.NDArray[np.float64]:
    """Return the log density of each row under the posterior of the others, in closed form, shape (N,)."""
    post = posterior()
    zero = post.network.predict(np.zeros(post.dim), post.data.X)[:, 0]
    design = np.stack([post.network.predict(unit, post.data.X)[:, 0] - zero for unit in np.eye(post.dim)], axis=1)
    elpd = np.empty(N)
    for row in range(N):
        without = posterior(np.where(np.arange(N) == row, 0.0, 1.0)).exact()
        mean = zero[row] + design[row] @ without.mean
        variance = design[row] @ without.covariance @ design[row] + VARIANCE
        elpd[row] = norm.logpdf(post.data.y[row, 0], mean, np.sqrt(variance))
    return elpd


def z_scores(estimates: npt.NDArray[np.float64], exact: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return (mean - exact) / standard error of the rows and, last, of their sum; estimates (REPEATS, N)."""
    both = np.column_stack([estimates, estimates.sum(axis=1)])
    error = both.std(axis=0, ddof=1) / np.sqrt(REPEATS)
    return (both.mean(axis=0) - np.append(exact, exact.sum())) / error


@pytest.fixture(scope="module")
def runs() -> list[pn.Draws]:
    """Return runs of 4,000 independent draws each, with different seeds."""
    post = posterior()
    return [pn.sample(post, pn.Exact(), chains=4, draws=1000, seed=seed) for seed in range(REPEATS)]


def test_loo_agrees_with_exact_refits(runs: list[pn.Draws]) -> None:
    """Sum over rows, and rows: 41 z-scores of 25 runs. Student's t of 24 degrees exceeds 4.5 once in 6,700."""
    post, exact = posterior(), exact_elpd()
    found = [draws.loo(post.data.X, post.data.y) for draws in runs]
    assert all(loo.unreliable == 0 for loo in found)
    z = z_scores(np.array([loo.elpd_rows for loo in found]), exact)
    assert abs(z).max() < 4.5, z
    # A single run is within its own Monte Carlo error too, the scatter between runs.
    elpd = np.array([loo.elpd for loo in found])
    assert abs(found[0].elpd - exact.sum()) < 4.5 * elpd.std(ddof=1)


@pytest.mark.filterwarnings("ignore:Draws.loo")
@pytest.mark.parametrize(("twin", "power"), [("not reweighted", 0.0), ("each row left out twice", 2.0)])
def test_loo_of_broken_weights_is_rejected(runs: list[pn.Draws], twin: str, power: float) -> None:
    """Twins whose draws have seen the rows that they predict, or have lost each row twice."""
    post, exact = posterior(), exact_elpd()
    broken = np.array([draws.loo(post.data.X, post.data.y, row_weights=np.full(N, power)).elpd_rows for draws in runs])
    assert abs(z_scores(broken, exact)[-1]) > 20
