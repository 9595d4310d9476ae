"""Row weights of the estimators: weighted rows have the posterior of repeated rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
from patrac_native.diagnostics import convergence

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
Array = npt.NDArray[Any]
# The output weights of a network of given penalty that is trained on all rows at once: without validation rows,
# weighted and repeated rows train the same network but for rounding, and the chains have one mode to agree on.
MODEL: dict[str, Any] = {
    "hidden_layer_sizes": (8,),
    "architecture": "out",
    "prior": "gaussian",
    "networks": 1,
    "l2": 0.3,
    "max_iter": 200,
    "validation_fraction": 0,
    "chains": 4,
    "draws": 300,
    "thin": 20,
    "warmup": 2000,
    "random_state": 1,
}


def rows() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=40)
    return X, y, rng.integers(1, 6, size=40) * (X[:, 0] > 0) + 1


def largest_difference(one: Array, other: Array) -> float:
    """Return the largest difference of means and of variances of f (chain, draw, n), in Monte Carlo standard errors."""
    assert max(convergence(one).max_rhat, convergence(other).max_rhat) < 1.05
    worst = 0.0
    for a, b in ((one, other), ((one - one.mean((0, 1))) ** 2, (other - other.mean((0, 1))) ** 2)):
        errors = np.hypot(convergence(a).mcse_mean, convergence(b).mcse_mean)
        worst = max(worst, float((np.abs(a.mean((0, 1)) - b.mean((0, 1))) / errors).max()))
    return worst


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_weighted_and_repeated_rows_have_one_posterior(task: str) -> None:
    """Means and variances at 15 points agree within 4.5 standard errors; without the weights they do not."""
    X, y, weights = rows()
    grid = X[:15]
    if task == "classification":
        y = (y > 0).astype(int)

    def fitted(inputs: Array, targets: Array, sample_weight: Array | None) -> tuple[Array, Array]:
        """Return draws of the prediction, and the trained weights of the first layer."""
        kind = pn.PatracClassifier if task == "classification" else pn.PatracRegressor
        est = kind(**MODEL).fit(inputs, targets, sample_weight)
        at = est.preprocessor_.transform(grid)
        network = est.draws_.network.net.weights[0]
        if task == "classification":
            return est.draws_.predict_proba(at)[..., 1], network
        return est.target_scaling_.inverse(est.draws_.predict(at))[..., 0], network

    repeated, network = fitted(np.repeat(X, weights, axis=0), np.repeat(y, weights), None)
    weighted, same = fitted(X, y, weights)
    # float32 sums in another order, over 200 epochs.
    np.testing.assert_allclose(same, network, atol=1e-3)
    # 60 comparisons: a standard normal exceeds 4.5 in one of them with probability 4e-4.
    assert largest_difference(weighted, repeated) < 4.5
    unweighted, other = fitted(X, y, None)
    assert largest_difference(unweighted, repeated) > 10 and np.abs(other - network).max() > 0.01


def fit(X: Array, y: Array, sample_weight: Any = None, **given: Any) -> pn.PatracRegressor:
    size = {"hidden_layer_sizes": 5, "max_iter": 60, "draws": 20, "thin": 5, "warmup": 300, "random_state": 0}
    return pn.PatracRegressor(**{**size, **given}).fit(X, y, sample_weight)


def test_rows_of_weight_zero_are_left_out_to_the_bit_and_ones_are_no_weights() -> None:
    X, y, _ = rows()
    weights = (np.arange(len(y)) % 4 != 0).astype(float)
    with_zeros, without = fit(X, y, weights, l2=0.3), fit(X[weights > 0], y[weights > 0], l2=0.3)
    np.testing.assert_array_equal(with_zeros.predict_interval(X), without.predict_interval(X))
    np.testing.assert_array_equal(fit(X, y, np.ones(len(y)), k=2).predict(X), fit(X, y, k=2).predict(X))
    with pytest.raises(ValueError, match="weight"):
        fit(X, y, np.zeros(len(y)))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        fit(X, y, -np.ones(len(y)))


def test_weights_reach_scaling_training_choices_and_scores() -> None:
    """Rows with wrong targets of nearly no weight change nothing that is visible: not even which penalty is chosen."""
    X, y, _ = rows()
    X, y = np.tile(X, (4, 1)) + 0.01 * np.random.default_rng(1).normal(size=(160, 2)), np.tile(y, 4)
    wrong = np.arange(len(y)) % 4 == 1
    given = np.where(wrong, y + 100.0, y)
    with warnings.catch_warnings(action="ignore"):
        weighted = fit(X, given, np.where(wrong, 1e-12, 1.0), minutes=0.001, thin=None, warmup=None, draws=30)
        unweighted = fit(X, given, minutes=0.001, thin=None, warmup=None, draws=30)
    clean = fit(X[~wrong], y[~wrong], minutes=0.001, thin=None, warmup=None, draws=30)
    np.testing.assert_allclose(weighted.target_scaling_.mean, clean.target_scaling_.mean, atol=1e-9)
    scales = [[column.scale for column in one.preprocessor_.columns] for one in (weighted, clean)]
    np.testing.assert_allclose(*scales, rtol=1e-9)
    noise = clean.predict_uncertainty(X).aleatoric.mean()
    assert weighted.predict_uncertainty(X).aleatoric.mean() < 3 * noise
    assert unweighted.predict_uncertainty(X).aleatoric.mean() > 100 * noise
    errors = [np.sqrt(np.mean((model.predict(X) - y) ** 2)) for model in (clean, weighted, unweighted)]
    assert errors[1] < 1.3 * errors[0] and errors[2] > 10 * errors[0]
    assert weighted.score(X, given, sample_weight=np.where(wrong, 0.0, 1.0)) > 0.5
