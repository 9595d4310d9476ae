"""Estimators of scikit-learn that train, sample and predict as `patrac fit` does.

Public: PatracRegressor, PatracClassifier, Uncertainty. They need the extra `sklearn`.
"""

from patrac_native.bridges.extras import import_extra

import_extra("sklearn", "sklearn", "patrac_native.estimators")

from patrac_native.estimators.classifier import PatracClassifier  # noqa: E402
from patrac_native.estimators.regressor import PatracRegressor  # noqa: E402
from patrac_native.estimators.uncertainty import Uncertainty  # noqa: E402

__all__ = ["PatracClassifier", "PatracRegressor", "Uncertainty"]
