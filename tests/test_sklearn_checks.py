"""scikit-learn's own checks of estimators."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import patrac_native as pn

# Small fits: the checks call `fit` some hundreds of times. A fixed noise variance, because some checks give fewer rows
# than its estimate needs.
SIZE: dict[str, Any] = {
    "hidden_layer_sizes": 6,
    "max_iter": 60,
    "l2": 0.1,
    "validation_fraction": 0,
    "architecture": "out",
    "networks": 1,
    "chains": 2,
    "draws": 13,
    "thin": 2,
    "warmup": 100,
    "n_jobs": 1,
    "random_state": 0,
}
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "chains of weighted and of repeated rows diverge by rounding; "
    "test_sklearn_weights.py compares posteriors",
    "check_dataframe_column_names_consistency": "columns are matched by name, so that their order is free",
}


@parametrize_with_checks(
    [pn.PatracRegressor(likelihood=pn.Gaussian(0.1), **SIZE), pn.PatracClassifier(**SIZE)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
