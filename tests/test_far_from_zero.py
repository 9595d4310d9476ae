"""Numbers far from zero: right in closed form, or refused; and said where the dtype does not hold their variation."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest

import patrac_native as pn
import problems

N = 60


def posterior(
    away: float, *, n: int = N, X_away: float = 0.0, dtype: str = "float64", variance: float | str = 0.09
) -> pn.Posterior:
    """Return a posterior of the last layer for y and X so far from zero, under a prior that allows it."""
    rng = problems.rng_of("far from zero")
    net = problems.random_network(rng, (1, 10, 1))
    X = np.linspace(-2.0, 2.0, n)[:, None]
    y = net.predict(X)[:, 0] + 0.3 * rng.normal(size=n) + away
    prior = pn.TraceClassPrior(1.5, 1.0, max(1.0, away**2))
    return pn.Posterior(net, pn.Out(4), prior, pn.Gaussian(variance), X + X_away, y, dtype=dtype)


@pytest.mark.parametrize(("away", "n"), [(0.0, N), (1e3, N), (1e4, N), (1e4, 60 * N), (1e5, N)])
def test_the_closed_form_is_right(away: float, n: int) -> None:
    """Against residuals at the mean, which are small wherever y lies."""
    post = posterior(away, n=n)
    rounding = np.finfo(float).eps * 0.5 * n * away**2 / 0.09  # of the log-likelihood at theta = 0
    exact = post.exact()
    value, gradient = post.log_likelihood_and_grad(exact.mean)
    # A Newton step of the log density from the mean leads to the mean; what it moves is the mean's error.
    step = exact.covariance @ (gradient - exact.mean / post.prior_variance)
    assert (np.abs(step) < 0.05 * np.sqrt(np.diag(exact.covariance))).all()
    log_normal = -0.5 * (np.linalg.slogdet(exact.covariance)[1] + post.dim * np.log(2 * np.pi))
    evidence = value + float(post.log_prior(exact.mean)) - log_normal
    # The sums of the log-likelihood at zero and of its slope round some ten times.
    assert abs(exact.log_evidence - evidence) < 10 * rounding + 1e-9


@pytest.mark.parametrize(("away", "n"), [(1e9, N), (1e6, 10 * N)])
def test_targets_that_the_closed_form_cannot_resolve_are_refused(away: float, n: int) -> None:
    sampled = posterior(1e9, n=n, variance="sampled")
    post = posterior(away, n=n)
    calls = [post.exact, *(partial(pn.sample, one, pn.Exact(), draws=4, progress=False) for one in (post, sampled))]
    for call in calls:
        with pytest.raises(ValueError, match=r"y is so far from .* rounds off .*Give y less its mean"):
            call()


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"away": 1.7e9, "dtype": "float32"}, "y, column 0, lies between"),
        ({"away": 1e7, "dtype": "float32"}, "y, column 0, lies between"),
        ({"away": 0.0, "X_away": 1.7e9, "dtype": "float32"}, "X, column 0, lies between"),
        ({"away": 0.0, "X_away": 1.7e9}, None),
        ({"away": 1e3, "X_away": 2e3, "dtype": "float32"}, None),
        ({"away": 1e9}, None),
        ({"away": 1e14}, "y, column 0, lies between"),
    ],
)
def test_a_dtype_that_does_not_hold_the_variation_is_said(changes: dict[str, float], found: str | None) -> None:
    with warnings.catch_warnings(record=True, action="always") as caught:
        posterior(**changes)  # type: ignore[arg-type]
    texts = [str(one.message) for one in caught]
    assert [text.split(" between")[0] + " between" for text in texts] == ([] if found is None else [found])
    for text in texts:
        assert "less its mean, or standardised" in text
        assert ('dtype="float64"' in text) == (changes.get("dtype") == "float32")
    assert all(one.filename == __file__ for one in caught)
