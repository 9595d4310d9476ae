"""BlackJAX's NUTS and MALA and NumPyro's NUTS on the native density against NUTS on a density in plain JAX.

The compared numbers are f at four inputs and the log-likelihood, in Monte Carlo standard errors by batch means. The
density is that of whitened coordinates, in which a step size of 0.25 suits this problem without adaptation.
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
jnp = jax.numpy

Array = npt.NDArray[Any]
VARIANCE, GRID = 0.8, np.array([[-2.0], [-0.5], [0.5], [2.0]])
CHAINS, WARMUP, DRAWS, BATCHES = 8, 200, 2000, 10
STEP = 0.25
# NUTS is worth an independent draw of f every five, MALA one every 60 steps; a batch is 200 and 4,000.
MALA_STEP, MALA_THIN = 0.05, 20


@cache
def problem(variance: float = VARIANCE) -> pn.Posterior:
    """1-3-1, all of it Bayesian, 20 rows, float32."""
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, (20, 1))
    y = np.sin(1.5 * X[:, 0]) + np.sqrt(VARIANCE) * rng.standard_normal(20)
    net = pn.Network([[[1.2], [-0.8], [0.5]], [[1.0, -0.7, 0.4]]], [[0.1, 0.4, -0.3], [0.0]])
    return pn.Posterior(net, pn.Full(), pn.TraceClassPrior(1.5, 2.0, 1.0), pn.Gaussian(variance), X, y)


def plain(z: Any) -> Any:
    """The log posterior of z by JAX alone, up to a constant: theta is w1 (3,), b1 (3,), w2 (3,), b2."""
    post = problem()
    theta = z * jnp.asarray(np.sqrt(post.prior_variance), jnp.float32)
    hidden = jnp.tanh(jnp.asarray(post.data.X, jnp.float32) * theta[:3] + theta[3:6])
    f = hidden @ theta[6:9] + theta[9]
    return -0.5 * jnp.sum((jnp.asarray(post.data.y[:, 0], jnp.float32) - f) ** 2) / VARIANCE - 0.5 * z @ z


def estimate(positions: Any) -> Estimate:
    """Means of f on the grid and of l at VARIANCE; positions (draw, chain, K)."""
    post = problem()
    chains = np.asarray(positions).swapaxes(0, 1)
    theta = (chains * np.sqrt(post.prior_variance)).reshape(-1, post.dim).astype(np.float32)
    f, value = post.network.predict(theta, GRID)[..., 0], np.asarray(post.log_likelihood(theta))[:, None]
    numbers = np.concatenate([f, value], axis=1, dtype=np.float64)
    return batch_means(numbers.reshape(*chains.shape[:2], -1), BATCHES)


def starts() -> Any:
    return jnp.asarray(0.3 * np.random.default_rng(1).normal(size=(CHAINS, problem().dim)), jnp.float32)


def blackjax_positions(algorithm: Any, seed: int, thin: int = 1) -> Any:
    """States after the warm-up, (draw, chain, K), of chains in lock step."""
    step = jax.vmap(algorithm.step)

    def one(state: Any, key: Any) -> tuple[Any, Any]:
        def again(state: Any, key: Any) -> tuple[Any, None]:
            return step(jax.random.split(key, CHAINS), state)[0], None

        state, _ = jax.lax.scan(again, state, jax.random.split(key, thin))
        return state, state.position

    @jax.jit
    def run(state: Any, key: Any) -> Any:
        return jax.lax.scan(one, state, jax.random.split(key, WARMUP + DRAWS))[1]

    return run(jax.vmap(algorithm.init)(starts()), jax.random.key(seed))[WARMUP:]


def blackjax_nuts(density: Any, seed: int) -> Any:
    blackjax = pytest.importorskip("blackjax", reason="blackjax is not installed")
    metric = jnp.ones(problem().dim, jnp.float32)
    return blackjax_positions(blackjax.nuts(density, step_size=STEP, inverse_mass_matrix=metric), seed)


def blackjax_mala(density: Any, seed: int) -> Any:
    blackjax = pytest.importorskip("blackjax", reason="blackjax is not installed")
    return blackjax_positions(blackjax.mala(density, step_size=MALA_STEP), seed, MALA_THIN)


def numpyro_nuts(density: Any, seed: int) -> Any:
    infer = pytest.importorskip("numpyro.infer", reason="numpyro is not installed")
    kernel = infer.NUTS(potential_fn=lambda z: -density(z))
    run = infer.MCMC(
        kernel, num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS, chain_method="vectorized", progress_bar=False
    )
    run.run(jax.random.key(seed), init_params=starts())
    return np.asarray(run.get_samples(group_by_chain=True)).swapaxes(0, 1)


@cache
def by_plain_jax() -> Estimate:
    return estimate(blackjax_nuts(plain, 11))


def limit(other: Estimate) -> float:
    return bound(other.mean.size, min(other.batches, by_plain_jax().batches) - 1)


@pytest.mark.parametrize("sampler", [blackjax_nuts, blackjax_mala, numpyro_nuts])
def test_samplers_reach_the_posterior_of_plain_jax(sampler: Any) -> None:
    found = estimate(sampler(problem().to_jax("posterior", "whitened"), 3))
    assert largest_z(found, by_plain_jax()) < limit(found)


def test_a_wrong_density_is_found() -> None:
    """The broken twin: a noise variance twice as large."""
    found = estimate(blackjax_nuts(problem(2 * VARIANCE).to_jax("posterior", "whitened"), 3))
    assert largest_z(found, by_plain_jax()) > limit(found)
