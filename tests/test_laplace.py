"""The Laplace approximation: derivatives, curvature, draws, the linearised network, its evidence, messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from patrac_native.posterior.jacobian import jacobians

EPS = np.finfo(np.float64).eps
# Sep has no trained parameters.
ARCHITECTURES = [name for name in problems.ARCHITECTURES if not name.startswith("sep")]


def made(architecture: str, likelihood: str = "gaussian", n: int = 30) -> pn.Posterior:
    rng = problems.rng_of("laplace", architecture, likelihood)
    return problems.problem(rng, (3, 6, 5, 2), n, architecture, likelihood).post


def jacobian_of(post: pn.Posterior, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Derivatives of the outputs at the trained parameters by central differences, (n, m, K)."""
    step = 1e-6
    points = post.theta_map + step * np.concatenate([np.eye(post.dim), -np.eye(post.dim)])
    above, below = np.split(post.network.predict(points, X), 2)
    return np.moveaxis((above - below) / (2 * step), 0, 2)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_jacobian_is_that_of_the_network(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Central differences are off by 1e-12 times third derivatives and by eps / 1e-6."""
    post = made(architecture)
    monkeypatch.setattr("patrac_native.posterior.jacobian._MAX_ENTRIES", 7 * post.dim * 2)
    blocks = list(jacobians(post.network, np.asarray(post.data.X)))
    assert [rows.stop - rows.start for rows, _, _ in blocks] == [7, 7, 7, 7, 2]
    found = np.concatenate([jacobian for _, _, jacobian in blocks])
    np.testing.assert_allclose(found, jacobian_of(post, post.data.X), rtol=0, atol=1e-8)
    outputs = np.concatenate([f for _, f, _ in blocks])
    np.testing.assert_allclose(outputs, post.network.predict(post.theta_map, post.data.X), rtol=0, atol=1e-13)


@pytest.mark.parametrize("likelihood", ["gaussian", "gaussian_by_output", "categorical", "student_t", "poisson"])
def test_covariance_is_the_inverse_of_information_and_prior(likelihood: str) -> None:
    """The information of a row's outputs is the expectation of squared scores, here by sums over drawn targets."""
    post = made("mix", likelihood)
    J = jacobian_of(post, post.data.X)
    f = np.asarray(post.network.predict(post.theta_map, post.data.X))
    f = f if post.data.offset is None else f + post.data.offset
    root = post.likelihood.information_root(f)
    information = root @ np.swapaxes(root, 1, 2)
    precision = np.diag(1 / post.prior_variance) + np.einsum(
        "n,nak,nab,nbl->kl", post.data.row_weights, J, information, J, optimize=True
    )
    found = pn.Laplace(post).covariance
    np.testing.assert_allclose(found @ precision, np.eye(post.dim), rtol=0, atol=1e-5)


def test_last_layer_is_exact_for_gaussian_noise() -> None:
    """With the output weights at the posterior mean, covariance and evidence are those of linear regression."""
    net, X, y = problems.regression(problems.rng_of("laplace exact"), (3, 6, 5, 1), 40)
    prior, likelihood = pn.GaussianPrior(0.7, 0.4), pn.Gaussian(0.5)
    first = pn.Posterior(net, pn.Out(5), prior, likelihood, X, y, dtype="float64")
    mean = first.exact().mean
    # theta and the ranked network have the nodes in rank order.
    ranked, is_weight = first.network.ranked, first.network.parameters["column"] >= 0
    at_mode = pn.Network(
        [*ranked.weights[:-1], mean[is_weight][None]],
        [*ranked.biases[:-1], mean[~is_weight]],
        activation=net.activation,
    )
    post = pn.Posterior(at_mode, pn.Full(), prior, likelihood, X, y, dtype="float64")
    out = pn.Posterior(at_mode, pn.Out(5), prior, likelihood, X, y, dtype="float64")
    exact, found = out.exact(), pn.Laplace(out)
    np.testing.assert_allclose(found.mean, exact.mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.covariance, exact.covariance, rtol=0, atol=1e-10)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-9)
    assert pn.Laplace(post).log_evidence != pytest.approx(exact.log_evidence, abs=0.1)


def test_draws_have_its_mean_and_covariance() -> None:
    """theta is linear in the normals: unit normals give a root of the covariance."""
    laplace = pn.Laplace(made("mix", "categorical"))
    draws = laplace.sample(20_000, seed=3)
    assert draws.theta.shape == (1, 20_000, laplace.post.dim) and draws.settings["sampler"] == "Laplace"
    z = np.linalg.solve(np.linalg.cholesky(laplace.covariance), (draws.theta[0] - laplace.mean).T)
    n, dim = z.shape[1], len(z)
    # Means and products of independent standard normals; 4.5 standard errors each, K (K + 3) / 2 comparisons.
    assert np.abs(z.mean(axis=1)).max() < 5 / np.sqrt(n)
    off = z @ z.T / n - np.eye(dim)
    assert np.abs(off).max() < 5 * np.sqrt(2 / n)
    np.testing.assert_array_equal(laplace.sample(3, seed=4).theta, laplace.sample(3, seed=4).theta)


def test_linearised_network() -> None:
    post = made("mix", "gaussian")
    laplace = pn.Laplace(post)
    X = problems.rng_of("laplace X").normal(size=(9, 3))
    J, f = jacobian_of(post, X), np.asarray(post.network.predict(post.theta_map, X))
    theta = laplace.sample(40, seed=2).theta[0]
    wanted = f + np.einsum("nmk,sk->snm", J, theta - laplace.mean)
    found = laplace.linearised(X, 40, seed=2)
    assert found.shape == (1, 40, 9, 2)
    np.testing.assert_allclose(found[0], wanted, rtol=0, atol=1e-6)
    mean, covariance = laplace.predict(X)
    np.testing.assert_allclose(mean, f, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        covariance, np.einsum("nak,kl,nbl->nab", J, laplace.covariance, J, optimize=True), rtol=0, atol=1e-6
    )


def test_refused_posteriors() -> None:
    with pytest.raises(
        ValueError, match=r"post must have trained parameters to approximate around; Sep\(k=5\) has none"
    ):
        pn.Laplace(problems.problem(problems.rng_of("x"), (3, 6, 5, 2), 20, "sep").post)
    rng = problems.rng_of("laplace refused")
    net, X, y = problems.regression(rng, (3, 6, 1), 20)
    sampled = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian("sampled", a=2.0, b=1.0), X, y)
    with pytest.raises(ValueError, match="post must have fixed variances; its noise variance is sampled"):
        pn.Laplace(sampled)
    scales = pn.Posterior(net, pn.Full(), pn.GaussianPrior(scales="sampled"), pn.Gaussian(1.0), X, y)
    with pytest.raises(ValueError, match="its scales of the prior are sampled"):
        pn.Laplace(scales)
    wide = problems.random_network(rng, (3, 4000, 1))
    post = pn.Posterior(wide, pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), X, y)
    with pytest.raises(ValueError, match=r"post has 20,001 parameters, .* Choose a smaller architecture, such as Out"):
        pn.Laplace(post)
    with pytest.raises(TypeError, match="post must be a Posterior; got Network"):
        pn.Laplace(net)  # type: ignore[arg-type]
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), X, y)
    with pytest.raises(ValueError, match="X must have 3 columns, one for each input of the network; got 2"):
        pn.Laplace(post).linearised(np.zeros((3, 2)), 5)


@pytest.mark.parametrize("subset", ["all", "last_layer"])
def test_against_laplace_torch(subset: str) -> None:
    """Its generalised Gauss-Newton of all weights and of the last layer; in float32."""
    try:
        from laplace import Laplace as Peer
    except Exception as error:  # its dependencies fail in various ways where their versions do not match
        pytest.skip(f"laplace-torch cannot be imported: {error}")
    import torch

    rng = problems.rng_of("laplace peer")
    net, X, y = problems.regression(rng, (2, 8, 6, 1), 60)
    architecture: pn.Architecture = pn.Full() if subset == "all" else pn.Out(6)
    post = pn.Posterior(net, architecture, pn.GaussianPrior(0.5, 0.5), pn.Gaussian(0.3), X, y, dtype="float64")
    peer = Peer(net.to_torch().float(), "regression", subset, "full", sigma_noise=0.3**0.5, prior_precision=2.0)
    rows = torch.utils.data.TensorDataset(torch.as_tensor(X).float(), torch.as_tensor(y[:, None]).float())
    peer.fit(torch.utils.data.DataLoader(rows, batch_size=20))
    X_test = rng.normal(size=(15, 2))
    mean, variance = peer(torch.as_tensor(X_test).float())
    found_mean, found = pn.Laplace(post).predict(X_test)
    np.testing.assert_allclose(found_mean, mean.detach().numpy(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(found[:, 0, 0], variance.detach().numpy().ravel(), rtol=1e-3)
    evidence = float(peer.log_marginal_likelihood())
    assert pn.Laplace(post).log_evidence == pytest.approx(evidence, abs=1e-2)
