"""The script of docs/target.md: it runs, and its draws are those of the posterior of logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pages import script_of
from statistical.monte_carlo import batch_means, bound, largest_z


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Return the names of the page's script after it has run."""
    pytest.importorskip("numba")
    names: dict[str, Any] = {}
    exec(compile(script_of("target.md", "import numba"), "docs/target.md", "exec"), names)
    return names


def log_density(theta: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Log-likelihood and gradient at theta (..., K) in NumPy."""
    eta = theta @ X.T
    return (y * eta - np.logaddexp(0, eta)).sum(axis=-1), (y - 1 / (1 + np.exp(-eta))) @ X


def test_the_function_is_the_log_likelihood(page: dict[str, Any]) -> None:
    """Both sum 1,000 terms of order one to ten: relative rounding of at most a few thousand units."""
    theta = np.random.default_rng(1).normal(size=(5, 25))
    value, gradient = page["target"].log_likelihood_and_grad(theta)
    expected, slope = log_density(theta, page["X"], page["y"])
    np.testing.assert_allclose(value, expected, rtol=4000 * 2.0**-53)
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=4000 * 2.0**-53 * np.abs(page["X"]).sum(axis=0).max())


def test_the_draws_are_of_the_posterior(page: dict[str, Any]) -> None:
    """Importance sampling from a Student-t at the mode has the same means within Monte Carlo errors."""
    X, y, draws = page["X"], page["y"], page["draws"]
    assert draws.summary().verdict().grade == "good"
    mode = np.zeros(25)
    for _ in range(30):  # Newton's method; the log posterior is concave
        p = 1 / (1 + np.exp(-X @ mode))
        precision = (X.T * (p * (1 - p))) @ X + np.eye(25)
        mode += np.linalg.solve(precision, X.T @ (y - p) - mode)
    rng = np.random.default_rng(2)
    scale = np.linalg.cholesky(np.linalg.inv(precision))
    df, n = 10.0, 10_000
    normals = rng.standard_normal((n, 25))
    spread = df / rng.chisquare(df, n)
    theta = mode + np.sqrt(spread)[:, None] * (normals @ scale.T)
    log_proposal = -0.5 * (df + 25) * np.log1p((normals**2).sum(axis=1) * spread / df)
    log_weight = log_density(theta, X, y)[0] - 0.5 * (theta**2).sum(axis=1) - log_proposal
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ theta
    error = np.sqrt((weight[:, None] ** 2 * (theta - mean) ** 2).sum(axis=0))
    estimate = batch_means(draws.theta, 10)
    assert (np.abs(estimate.mean - mean) / np.hypot(estimate.mcse, error)).max() < bound(25, 4 * 10 - 1)
    assert largest_z(estimate, 0.9 * mean) > bound(25, 4 * 10 - 1)


def test_predictions_are_probabilities(page: dict[str, Any]) -> None:
    draws, X = page["draws"], page["X"][:3]
    np.testing.assert_allclose(draws.predict(X), 1 / (1 + np.exp(-draws.theta @ X.T)), rtol=1e-13)
