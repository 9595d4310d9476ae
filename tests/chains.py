"""Posteriors of weighted rows, short runs of chains on them, comparisons of draws, and what holds for every kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

import patrac_native as pn
import problems
import reference


class WeightedRows:
    """A random network, rows with unequal weights, and posteriors of them under one likelihood and prior or others."""

    def __init__(
        self,
        rng: np.random.Generator,
        sizes: tuple[int, ...],
        architecture: str,
        n: int,
        likelihood: pn.Likelihood,
        prior: pn.Prior = problems.PRIOR,
        *,
        draw_y: Callable[..., npt.NDArray[np.float64]] = np.random.Generator.normal,
    ) -> None:
        self.net = problems.random_network(rng, sizes)
        self.architecture = problems.architecture(architecture, rng, self.net)
        self.X, self.y = rng.normal(size=(n, sizes[0])), draw_y(rng, size=(n, sizes[-1]))
        self.weight = rng.uniform(0.3, 2.0, n)
        self.likelihood, self.prior = likelihood, prior
        self.partial = reference.partial(self.net, self.architecture)

    def posterior(
        self, likelihood: pn.Likelihood | None = None, dtype: str = "float64", prior: pn.Prior | None = None
    ) -> pn.Posterior:
        """Return the posterior under the likelihood and prior of the case, or under those that are given."""
        parts = (self.net, self.architecture, prior or self.prior, likelihood or self.likelihood, self.X, self.y)
        return pn.Posterior(*parts, sample_weight=self.weight, dtype=dtype)


def run(post: pn.Posterior, kernel: pn.Kernel, **changes: Any) -> pn.Draws:
    """Return two chains of 50 draws without a warm-up; sampled variances and scales are drawn in every step."""
    settings: dict[str, Any] = {"chains": 2, "draws": 50, "warmup": None, "seed": 4, "threads": 1, "progress": False}
    if post.likelihood.is_sampled:
        settings["variance_every"] = 1
    if post.network.scale_names:
        settings["scales_every"] = 1
    return pn.sample(post, kernel, **(settings | changes))


def assert_draws_depend_on_nothing_else(post: pn.Posterior, kernel: pn.Kernel, **settings: Any) -> pn.Draws:
    """Draws depend neither on length and thinning of a run, other chains nor threads; return three chains of 60."""
    whole: dict[str, Any] = {"chains": 3, "draws": 60, **settings}
    every = run(post, kernel, **whole)
    changed: list[tuple[dict[str, Any], slice, slice]] = [
        ({"draws": 6, "thin": 10}, slice(3), slice(9, None, 10)),
        ({"chains": 1, "draws": 7}, slice(1), slice(7)),
        ({"threads": 2}, slice(3), slice(60)),
    ]
    for changes, chains, kept in changed:
        other = run(post, kernel, **(whole | changes))
        np.testing.assert_array_equal(other.theta, every.theta[chains, kept])
        for name in ("log_likelihood", "log_prior", "step_size", "variance", "prior_scales"):
            if name in every.stats:
                np.testing.assert_array_equal(other.stats[name], every.stats[name][chains, kept], err_msg=name)
    return every


def assert_same_draws(found: pn.Draws, expected: pn.Draws) -> None:
    """States and statistics are equal to the bit."""
    np.testing.assert_array_equal(found.theta, expected.theta)
    assert found.stats.keys() == expected.stats.keys()
    for name, values in expected.stats.items():
        np.testing.assert_array_equal(found.stats[name], values, err_msg=name)


def assert_same_runs(found: pn.Draws, expected: pn.Draws) -> None:
    """Draws and settings are equal to the bit, but for the seconds; lists equal tuples, which files do not keep."""
    assert_same_draws(found, expected)
    of_both = [json.loads(json.dumps({**one.settings, "seconds": 0})) for one in (found, expected)]
    assert of_both[0] == of_both[1]


def assert_standard_normal(z: npt.NDArray[np.float64]) -> None:
    """Rows of z (count, dim) look like independent standard normal vectors."""
    count, dim = z.shape
    # Means of `count` independent normals and of their products, each below 5 of its standard errors.
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(count)
    assert np.abs(z.T @ z / count - np.eye(dim)).max() < 5 * np.sqrt(2 / count)
    assert np.abs((z[1:] * z[:-1]).mean(axis=0)).max() < 5 / np.sqrt(count)
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-4


def assert_log_likelihoods(draws: pn.Draws, post: pn.Posterior) -> None:
    """The log-likelihoods of kept draws are those of the returned theta and sampled variances."""
    variance = draws.stats.get("variance")
    flat = None if variance is None else variance.reshape(-1, *variance.shape[2:])
    expected = np.asarray(post.log_likelihood(draws.theta.reshape(-1, post.dim), variance=flat))
    # theta is rounded to its dtype: l moves by |g| |theta| eps, a few dozen |l| eps at most.
    tolerance = 50 * float(np.finfo(draws.theta.dtype).eps) * np.abs(expected).max()
    np.testing.assert_allclose(draws.stats["log_likelihood"].ravel(), expected, rtol=0, atol=tolerance)
