"""BlackJAX's NUTS on native densities of the sine problem against NUTS on its density in plain JAX.

Every parameter of the plain density stands where the full network has it, as a user would write it. The compared
numbers are f at four inputs and the log-likelihood, in Monte Carlo standard errors by batch means.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from monte_carlo import Estimate, batch_means, bound, largest_z

import patrac_native as pn

pytestmark = pytest.mark.slow
jax = pytest.importorskip("jax", reason="jax is not installed")
blackjax = pytest.importorskip("blackjax", reason="blackjax is not installed")
jnp = jax.numpy

Array = npt.NDArray[Any]
ARCHITECTURES = {"Mix(5)": pn.Mix(5), "Sep(5)": pn.Sep(5), "Full": pn.Full()}
GRID = np.array([[-4.0], [-1.0], [1.0], [4.0]])
# NUTS is worth 0.6 to 1 effective draws of f a draw; a batch has 30 draws.
CHAINS, ADAPT, SETTLE, DRAWS, BATCHES = 4, 300, 10, 150, 5


@cache
def trained() -> tuple[pn.Network, Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (100, 1))
    y = np.sin(X[:, 0]) + rng.standard_normal(100)
    settings: dict[str, Any] = {"l2": 1.0, "validation_fraction": 0, "max_epochs": 300, "progress": False}
    return pn.train([1, 50, 50, 1], X, y, likelihood=pn.Gaussian(1.0), **settings), X, y


@cache
def posterior(name: str, variance: float = 1.0) -> pn.Posterior:
    net, X, y = trained()
    return pn.Posterior(net, ARCHITECTURES[name], pn.TraceClassPrior.fit(net), pn.Gaussian(variance), X, y)


def plain(name: str) -> Any:
    """The log posterior of z, theta = sqrt(C) z, up to a constant."""
    post = posterior(name)
    network, scale = post.network, jnp.asarray(np.sqrt(post.prior_variance), jnp.float32)
    X, y = jnp.asarray(post.data.X, jnp.float32), jnp.asarray(post.data.y[:, 0], jnp.float32)
    trained_outputs = jnp.asarray(post.network.net.predict(post.data.X)[:, 0], jnp.float32) if network.separate else 0.0
    layers = []
    for i, masks in enumerate(zip(network.weight_masks, network.bias_masks, strict=True)):
        fixed = [network.ranked.weights[i], network.ranked.biases[i]]
        if network.separate:
            fixed = [np.zeros(mask.shape) for mask in masks]
        layers.append(
            [(jnp.asarray(part, jnp.float32), np.nonzero(mask)) for part, mask in zip(fixed, masks, strict=True)]
        )

    def log_posterior(z: Any) -> Any:
        theta, at, h = scale * z, 0, X
        for i, layer in enumerate(layers):
            parts = []
            for part, place in layer:
                parts.append(part.at[place].set(theta[at : at + len(place[0])]))
                at += len(place[0])
            h = h @ parts[0].T + parts[1]
            h = jnp.tanh(h) if i + 1 < len(layers) else h
        residual = y - trained_outputs - h[:, 0]
        return -0.5 * residual @ residual - 0.5 * z @ z

    return log_posterior


@cache
def adapted(name: str, kind: Any) -> tuple[Any, dict[str, Any]]:
    """State and parameters after window adaptation on a native density."""
    post = posterior(name)
    dim = post.dim if kind == "posterior" else post.sampled.facts.hidden_dim
    start = jnp.asarray((post.theta_map / np.sqrt(post.prior_variance))[:dim], jnp.float32)
    adaptation = blackjax.window_adaptation(blackjax.nuts, post.to_jax(kind, "whitened"))
    (state, parameters), _ = adaptation.run(jax.random.key(0), start, num_steps=ADAPT)
    return state.position, parameters


def positions(log_density: Any, position: Any, parameters: dict[str, Any], seed: int) -> Any:
    """States (chain, draw, K) of chains that start at one position and have left it."""
    sampler = blackjax.nuts(log_density, **parameters)

    @jax.jit
    def chain(key: Any) -> Any:
        def one(state: Any, key: Any) -> tuple[Any, Any]:
            state, _ = sampler.step(key, state)
            return state, state.position

        return jax.lax.scan(one, sampler.init(position), jax.random.split(key, SETTLE + DRAWS))[1][SETTLE:]

    return np.stack([np.asarray(chain(key)) for key in jax.random.split(jax.random.key(seed), CHAINS)])


def estimate(name: str, theta: Array) -> Estimate:
    """Means of f on the grid and of l; theta (chain, draw, K)."""
    post = posterior(name)
    flat = theta.reshape(-1, post.dim)
    f, value = post.network.predict(flat, GRID)[..., 0], np.asarray(post.log_likelihood(flat))[:, None]
    numbers = np.concatenate([f, value], axis=1, dtype=np.float64)
    return batch_means(numbers.reshape(CHAINS, DRAWS, -1), BATCHES)


def by_plain_jax(name: str) -> Estimate:
    z = positions(plain(name), *adapted(name, "posterior"), seed=11)
    return estimate(name, posterior(name).density("posterior", "whitened").theta(z))


def limit(found: Estimate) -> float:
    return bound(found.mean.size, found.batches - 1)


def test_the_plain_density_is_the_native_one_up_to_a_constant() -> None:
    for name in ARCHITECTURES:
        post = posterior(name)
        z = jnp.asarray(np.random.default_rng(1).normal(size=post.dim), jnp.float32)
        wanted = np.asarray(jax.grad(plain(name))(z))
        found = np.asarray(jax.grad(post.to_jax("posterior", "whitened"))(z))
        # Sums over 100 rows and 50 nodes in float32.
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-3 * np.abs(wanted).max())


# One test for each architecture: plain JAX takes longest, and is run once whichever process takes the test.
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_nuts_on_native_densities_reaches_the_posterior_of_plain_jax(name: str) -> None:
    expected, post = by_plain_jax(name), posterior(name)
    whole, collapsed = (post.density(kind, "whitened") for kind in ("posterior", "collapsed_posterior"))
    z = positions(post.to_jax("posterior", "whitened"), *adapted(name, "posterior"), seed=3)
    found = estimate(name, whole.theta(z))
    assert largest_z(found, expected) < limit(found)
    z = positions(post.to_jax("collapsed_posterior", "whitened"), *adapted(name, "collapsed_posterior"), seed=5)
    found = estimate(name, collapsed.complete(z, seed=6))
    assert largest_z(found, expected) < limit(found)
    if name != "Mix(5)":
        return
    # The broken twins: output weights at a wrong variance, and twice the noise variance.
    wrong = posterior(name, 2.0)
    found = estimate(name, wrong.density("collapsed_posterior", "whitened").complete(z, seed=6))
    assert largest_z(found, expected) > limit(found)
    z = positions(wrong.to_jax("posterior", "whitened"), *adapted(name, "posterior"), seed=3)
    found = estimate(name, whole.theta(z))
    assert largest_z(found, expected) > limit(found)
