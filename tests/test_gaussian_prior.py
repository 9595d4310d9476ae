"""The independent Gaussian prior: its variances, no rescaling, draws from it, sampling under it, and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
import reference
from patrac_native.priors import PRIORS, prior_from_dict

PRIORS_TRIED = (pn.GaussianPrior(), pn.GaussianPrior(2.0, 0.5), pn.GaussianPrior(3.0, 0.25, fan_in=True))


@pytest.mark.parametrize("architecture", problems.ARCHITECTURES)
@pytest.mark.parametrize("prior", PRIORS_TRIED, ids=repr)
def test_variances_of_a_posterior_are_not_rescaled(prior: pn.GaussianPrior, architecture: str) -> None:
    """One parameter at a time against the oracle; Sep divides by the widths of its own network."""
    rng = problems.rng_of("gaussian prior", architecture)
    net = problems.random_network(rng, (3, 7, 5, 2))
    chosen = problems.architecture(architecture, rng, net)
    data = problems.random_data("gaussian", rng, 6, 3, 2)
    post = pn.Posterior(net, chosen, prior, data.likelihood, data.X, data.y)
    expected = reference.partial(net, chosen).prior_variances(prior, net.layer_sizes)
    np.testing.assert_array_equal(post.prior_variance, expected)
    assert post.network.rescaling == 1.0


def test_fan_in_keeps_the_variance_of_a_node_whatever_the_width() -> None:
    """The prior variance of a node's input of unit inputs is sigma2_w + sigma2_b for every width."""
    for width in (1, 10, 1000):
        weights, biases = pn.GaussianPrior(2.0, 0.5, fan_in=True).variances([width, 4, 1])
        # A sum of at most 1000 equal terms.
        np.testing.assert_allclose(weights[0].sum(axis=1) + biases[0], 2.5, rtol=1e-12)
    assert pn.GaussianPrior(2.0, 0.5).variances([1000, 4, 1])[0][0].sum() == 4 * 1000 * 2.0


def test_log_prior_is_its_density() -> None:
    from scipy.stats import norm

    problem = problems.problem(problems.rng_of("moments"), (3, 6, 2), 5)
    net = problem.post.network.net
    post = pn.Posterior(net, pn.Full(), PRIORS_TRIED[2], pn.Gaussian(1.0), problem.X, problem.y, dtype="float64")
    theta = post.sample_prior(20, seed=1)
    expected = norm.logpdf(theta, scale=np.sqrt(post.prior_variance)).sum(axis=1)
    np.testing.assert_allclose(post.log_prior(theta), expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "emulated:4"])
def test_a_last_layer_under_it_has_its_closed_form(device: str, tmp_path: Path) -> None:
    """Posterior means against ridge regression, and the prior comes back from the file of the draws."""
    rng = problems.rng_of("ridge")
    net = problems.random_network(rng, (2, 8, 1))
    X = rng.normal(size=(30, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=30)
    prior = pn.GaussianPrior(2.0, 0.5, fan_in=True)
    post = pn.Posterior(net, pn.Out(8), prior, pn.Gaussian(0.3), X, y, dtype="float64")
    phi = np.column_stack([np.tanh(X @ post.network.ranked.weights[0].T + post.network.ranked.biases[0]), np.ones(30)])
    precision = phi.T @ phi / 0.3 + np.diag([8 / 2.0] * 8 + [1 / 0.5])
    np.testing.assert_allclose(post.exact().mean, np.linalg.solve(precision, phi.T @ y / 0.3), rtol=1e-9)
    kernel, warmup = (pn.Exact(), None) if device == "cpu" else (pn.MGrad(), 2000)
    draws = pn.sample(post, kernel, chains=2, draws=12_000, warmup=warmup, seed=3, device=device, progress=False)
    theta = draws.theta.reshape(2 * 40, 300, -1).mean(axis=1)
    z = (theta.mean(axis=0) - post.exact().mean) / (theta.std(axis=0, ddof=1) / np.sqrt(80))
    # The largest of nine t variates of 79 degrees of freedom: 4.5 is exceeded with probability 2e-4.
    assert np.abs(z).max() < 4.5
    draws.save(tmp_path / "draws.npz")
    again = pn.Draws.load(tmp_path / "draws.npz")
    assert again.network.prior == prior
    np.testing.assert_array_equal(again.network.prior_variance, post.prior_variance)


def test_description_and_dictionaries() -> None:
    problem = problems.problem(problems.rng_of("describe"), (2, 5, 1), 6)
    post = pn.Posterior(problem.post.network.net, pn.Mix(2), PRIORS_TRIED[2], pn.Gaussian(1.0), problem.X, problem.y)
    line = "prior: independent Gaussian, variance of weights 3 / number of nodes read, of biases 0.25\n"
    assert line in post.describe()
    for prior in (*PRIORS_TRIED, problems.PRIOR):
        content = json.loads(json.dumps(prior.to_dict()))
        assert content["name"] in PRIORS and prior_from_dict(content) == prior
    with pytest.raises(ValueError, match="prior name must be one of trace_class, gaussian; got 'horseshoe'"):
        prior_from_dict({"name": "horseshoe"})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sigma2_w": 0.0}, ValueError, r"sigma2_w must be positive and finite; got 0\.0"),
        ({"sigma2_b": np.nan}, ValueError, "sigma2_b must be positive and finite; got nan"),
        ({"sigma2_w": "1"}, TypeError, "sigma2_w must be a number; got '1'"),
        ({"fan_in": 1}, TypeError, "fan_in must be True or False; got 1"),
    ],
)
def test_bad_values(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pn.GaussianPrior(**arguments)
