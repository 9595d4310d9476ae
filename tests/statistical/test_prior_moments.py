"""Draws of the prior have its moments: sample_prior, and chains under a likelihood that says nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from monte_carlo import LEVEL, bound

import patrac_native as pn
import problems

Array = npt.NDArray[Any]


def flat_posterior(architecture: pn.Architecture, dtype: str) -> pn.Posterior:
    """Posterior on 2-5-4-2 whose likelihood, with a noise variance of 1e30, is the same number everywhere."""
    net, X, y = problems.regression(np.random.default_rng(5), (2, 5, 4, 2), 9)
    return pn.Posterior(net, architecture, pn.TraceClassPrior(1.7, 3.0, 0.4), pn.Gaussian(1e30), X, y, dtype=dtype)


def check_moments(theta: Array, variance: Array, autocorrelation: float) -> None:
    """Compare mean, variances and covariances of stationary AR(1) chains from N(0, C) with their exact standard errors.

    Parameters
    ----------
    theta : ndarray, shape (chain, draw, K)
        Chains independent; each coordinate an AR(1) process with this autocorrelation, coordinates independent.
    variance : ndarray, shape (K,)
        Diagonal of C.
    """
    from scipy.stats import chi2

    chains, draws, dim = theta.shape
    z = theta.astype(np.float64) / np.sqrt(variance)
    # Independent draws that the run is worth: for means (correlations phi^lag) and for products (phi^(2 lag)).
    lags = np.arange(1, draws)
    n_mean, n_product = (
        chains * draws / (1 + 2 * ((1 - lags / draws) * autocorrelation ** (power * lags)).sum()) for power in (1, 2)
    )

    mean = z.mean(axis=(0, 1))
    assert np.abs(mean).max() < bound(dim) / np.sqrt(n_mean)

    second = np.einsum("cti,ctj->ij", z, z) / (chains * draws)
    # A mean of n_product squares of standard normals: chi-square / n_product, with both tails at the level.
    low, high = chi2.ppf([LEVEL / 2 / dim, 1 - LEVEL / 2 / dim], n_product) / n_product
    assert (np.diag(second) > low).all() and (np.diag(second) < high).all()

    pairs = np.triu_indices(dim, 1)
    # Products of independent normals are heavier-tailed than a normal, but 2,000 and more of them are summed.
    assert np.abs(second[pairs]).max() < bound(len(pairs[0])) / np.sqrt(n_product)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("architecture", [pn.Full(), pn.Mix(2), pn.Sep(2)], ids=str)
def test_prior_draws_have_the_prior_moments(architecture: pn.Architecture, dtype: str) -> None:
    from scipy.stats import kstest

    post = flat_posterior(architecture, dtype)
    theta = post.sample_prior(10_000, seed=3)
    check_moments(theta[None], post.prior_variance, 0.0)
    assert kstest((theta / np.sqrt(post.prior_variance)).ravel(), "norm").pvalue > LEVEL


def test_streams_of_prior_draws_are_independent() -> None:
    post = flat_posterior(pn.Full(), "float64")
    count = 2_000
    init = pn.sample(post, pn.PCN(1e-9), chains=count, draws=1, warmup=None, init="prior", seed=3, threads=1).theta[
        :, 0
    ]
    streams = [init, *(post.sample_prior(count, seed=seed) for seed in (3, 4))]
    a, b, c = (theta / np.sqrt(post.prior_variance) for theta in streams)
    # Correlations of `count` independent pairs have standard error 1 / sqrt(count); one for each pair and coordinate.
    for one, other in ((a, b), (b, c), (a, c)):
        assert np.abs((one * other).mean(axis=0)).max() < bound(3 * post.dim) / np.sqrt(count)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("architecture", [pn.Full(), pn.Sep(2)], ids=str)
@pytest.mark.parametrize("kernel", [pn.PCNL(0.5), pn.PCNL(2.0), pn.PCN(0.5), pn.PCN(1.0)], ids=str)
def test_flat_likelihood_always_accepts_and_keeps_the_prior(
    kernel: pn.Kernel, architecture: pn.Architecture, dtype: str
) -> None:
    post = flat_posterior(architecture, dtype)
    draws = pn.sample(post, kernel, chains=200, draws=50, warmup=None, init="prior", seed=8, threads=1, progress=False)
    assert (draws.stats["acceptance_rate"] == 1.0).all()
    step = kernel.starting_step_size
    # What is left of u in v when the gradient is zero (docs/method.md, section 6).
    autocorrelation = (2 - step) / (2 + step) if isinstance(kernel, pn.PCNL) else float(np.sqrt(1 - step**2))
    check_moments(draws.theta, post.prior_variance, autocorrelation)
    # The step size means what it says: lag-1 products average the autocorrelation, with an error below that of
    # independent ones times (1 + phi) / (1 - phi), the sum of an AR(1)'s autocorrelations.
    z = draws.theta.astype(np.float64) / np.sqrt(post.prior_variance)
    lag_one = (z[:, 1:] * z[:, :-1]).mean()
    error = np.sqrt(2 * (1 + autocorrelation) / (1 - autocorrelation) / (z.size - z[:, 0].size))
    assert abs(lag_one - autocorrelation) < bound(1) * error
