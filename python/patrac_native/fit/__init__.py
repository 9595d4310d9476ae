"""Estimators of scikit-learn, which hold the automatic choice of the posterior, and the fit of tables.

Public: PatracRegressor, PatracClassifier, in `patrac_native`. They are imported at their first use.
"""
