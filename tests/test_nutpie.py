"""The model for nutpie: its density, its variables, parallel chains, and messages."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems

nutpie = pytest.importorskip("nutpie", reason="nutpie is not installed")


def regression(n: int = 40, dtype: str = "float64", width: int = 8) -> pn.Posterior:
    """Bayesian linear regression on the last hidden layer: its posterior is known in closed form."""
    net, X, y = problems.regression(problems.rng_of("nutpie"), (2, width, width, 1), n)
    return pn.Posterior(net, pn.Out(3), problems.PRIOR, pn.Gaussian(0.5), X, y, dtype=dtype)


@pytest.mark.parametrize("coordinates", ["theta", "whitened"])
def test_draws_have_the_exact_mean_and_covariance(coordinates: Any) -> None:
    """Means in standard errors of the effective draws, of which each parameter has at least a quarter of the draws."""
    post = regression()
    trace = nutpie.sample(
        post.to_nutpie(coordinates=coordinates), draws=1000, tune=400, chains=2, seed=1, progress_bar=False
    )
    theta = trace.posterior["theta"].values
    assert theta.shape == (2, 1000, post.dim) and theta.dtype == np.float64
    exact = post.exact()
    deviation = np.sqrt(np.diag(exact.covariance))
    z = (theta.mean(axis=(0, 1)) - exact.mean) / (deviation / np.sqrt(500))
    ratio = theta.reshape(-1, post.dim).std(axis=0) / deviation
    assert np.abs(z).max() < 4.5
    assert np.abs(ratio - 1).max() < 4.5 / np.sqrt(2 * 500)


def test_variables_of_sampled_noise() -> None:
    net, X, y = problems.regression(problems.rng_of("nutpie noise"), (2, 5, 2), 30)
    post = pn.Posterior(net, pn.Mix(2), problems.PRIOR, pn.Gaussian("sampled", a=3.0, b=1.0), X, y)
    model = post.to_nutpie("posterior", "whitened+log_variance")
    trace = nutpie.sample(model, draws=50, tune=100, chains=1, seed=2, progress_bar=False)
    theta, variance = trace.posterior["theta"].values, trace.posterior["variance"].values
    assert theta.shape == (1, 50, post.dim) and theta.dtype == np.float32
    assert variance.shape == (1, 50, 2) and (variance > 0).all()
    density = post.density("posterior", "whitened+log_variance")
    point = np.concatenate([theta[0, -1] / np.sqrt(post.prior_variance), np.log(variance[0, -1])])
    # The recorded log density is of the state itself, theta and variance its float32 images.
    recorded = float(trace.sample_stats["logp"].values[0, -1])
    slope = density.value_and_grad(point)[1]
    assert abs(density.value(point) - recorded) < 1e-6 * (np.abs(slope) * (1 + np.abs(point))).sum() + 1e-4


@pytest.mark.parametrize("likelihood", [pn.Gaussian(0.5), pn.HeteroscedasticGaussian()], ids=str)
def test_collapsed_model(likelihood: pn.Likelihood) -> None:
    rng = problems.rng_of("nutpie collapsed")
    sizes = (2, 5, likelihood.outputs_per_target)
    net, X, y = problems.random_network(rng, sizes), rng.normal(size=(30, 2)), rng.normal(size=30)
    post = pn.Posterior(net, pn.Mix(2), problems.PRIOR, likelihood, X, y)
    trace = nutpie.sample(
        post.to_nutpie("collapsed_posterior"), draws=20, tune=50, chains=1, seed=2, progress_bar=False
    )
    theta = trace.posterior["theta"].values
    assert theta.shape == (1, 20, post.dim)
    again = nutpie.sample(
        post.to_nutpie("collapsed_posterior"), draws=20, tune=50, chains=1, seed=2, progress_bar=False
    )
    np.testing.assert_array_equal(again.posterior["theta"].values, theta)
    assert pn.Draws.from_array(post, theta, sampler="nutpie").predict(X).shape == (1, 20, 30, 1)
    drawn = np.delete(theta, post.density("collapsed").entries, axis=2)
    assert len(np.unique(drawn[0, :, -1])) == 20


def test_evaluations_release_the_interpreter() -> None:
    """While one thread evaluates, another runs Python: it counts at least five times within a single evaluation.

    An evaluation that kept the lock would hold at most one count before its first instruction and one after its last.
    A busy machine may keep the counting thread waiting, so one of many evaluations is enough.
    """
    post = regression(n=60_000, width=60)
    post = pn.Posterior(post.network.net, pn.Full(), problems.PRIOR, pn.Gaussian(0.5), post.data.X, post.data.y)
    evaluate = post.to_nutpie()._make_logp_func()
    point, counts, most, done = np.zeros(post.dim), itertools.count(), [0], threading.Event()

    def work() -> None:
        for _ in range(200):
            before = next(counts)
            evaluate(point)
            most.append(next(counts) - before - 1)
            if most[-1] >= 5:
                break
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.wait(0.0005):
        next(counts)
    thread.join()
    assert max(most) >= 5, most


def test_densities_that_are_no_posterior_are_refused() -> None:
    with pytest.raises(ValueError, match="density must be one of 'posterior', 'collapsed_posterior'; got 'likelihood'"):
        regression().to_nutpie("likelihood")  # type: ignore[arg-type]


def test_a_missing_nutpie_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "nutpie"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nutpie", None)
    with pytest.raises(ImportError, match=r"to_nutpie needs nutpie, .* pip install 'patrac_native\[nutpie\]'"):
        regression().to_nutpie()
