"""Tests of leave-one-out predictions against exact ones of a conjugate model."""

import numpy as np
import pytest
from scipy.stats import norm

from patrac_native.diagnostics import leave_one_out


def test_against_the_exact_predictions_of_a_normal_mean() -> None:
    """y_r ~ N(mu, 1) with mu ~ N(0, 100): given all other rows, y_r is normal with a known mean and variance."""
    rng = np.random.default_rng(3)
    n = 40
    y = rng.normal(0.7, 1.0, n)
    precision = n + 0.01
    mu = rng.normal(y.sum() / precision, precision**-0.5, (4, 1000))
    found = leave_one_out(norm.logpdf(y, mu[..., None], 1.0))
    others = precision - 1
    exact = norm.logpdf(y, (y.sum() - y) / others, np.sqrt(1 + 1 / others))
    # The log density of a row changes by |y - mean| for each unit of mu, whose standard deviation is precision^-0.5, so
    # a mean over 4,000 draws has about this standard error; reweighting at most doubles it here. Five of them.
    error = 2 * np.abs(y - y.mean()) * precision**-0.5 / np.sqrt(4000)
    assert (np.abs(found.elpd_rows - exact) <= 5 * error + 1e-3).all()
    assert found.elpd == pytest.approx(found.elpd_rows.sum())
    np.testing.assert_allclose(found.weights.sum(axis=0), 1.0, rtol=1e-12)
    # The reweighted mean of mu is that of the other rows, which in-sample predictions miss by (y - mean) / n.
    # Five standard errors of a mean of 4,000 draws of that standard deviation, doubled as above.
    tolerance = 5 * 2 * precision**-0.5 / np.sqrt(4000)
    np.testing.assert_allclose(mu.reshape(-1) @ found.weights, (y.sum() - y) / others, atol=tolerance)
    assert found.unreliable == 0


def test_a_row_that_rules_the_posterior_is_unreliable() -> None:
    rng = np.random.default_rng(4)
    mu = rng.normal(0.0, 1.0, (2, 500))
    found = leave_one_out(np.stack([-8 * mu**2, np.zeros_like(mu)], axis=-1))
    assert found.unreliable == 1 and found.khat[0] > 0.7


@pytest.mark.parametrize(("shape", "message"), [((2, 50), "must have shape"), ((1, 20, 3), "has 20 draws in all")])
def test_bad_shapes_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        leave_one_out(np.zeros(shape))


def test_ties_that_leave_no_tail_are_unreliable() -> None:
    """Chains that hardly move repeat values; the fit of the tail is then NaN, and the plain ratios are the weights."""
    values = np.array([-0.6, -0.4, -0.3, -0.2, -0.1, 0.1, 0.2, 0.3, 0.4])
    repeated = np.repeat(values, [1, 3, 5, 18, 3, 2, 2, 17, 9])
    found = leave_one_out(repeated.reshape(2, 30, 1))
    ratios = np.exp(-repeated)
    np.testing.assert_allclose(found.weights[:, 0], ratios / ratios.sum(), rtol=1e-12)
    assert found.unreliable == 1 and np.isfinite(found.elpd_rows).all()
