"""Predictions for the rows of a table, in slices, which bounds the memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from patrac_native import diagnostics
from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.fit.preprocessing import Preprocessor
from patrac_native.validation.checks import FloatArray


@dataclass(frozen=True)
class RegressionPredictions:
    """Predictions for a slice of rows, in the target's own units, each of shape (rows,).

    `mean` and `sd` are those of y with the noise included, `sd_f` is the standard deviation of the function alone (of
    counts, of their mean), `sd_noise` that of the noise, `lower` and `upper` are the ends of the central interval of y.
    """

    rows: slice
    mean: FloatArray
    sd: FloatArray
    sd_f: FloatArray
    lower: FloatArray
    upper: FloatArray
    sd_noise: FloatArray


@dataclass(frozen=True)
class ClassPredictions:
    """Predictions for a slice of rows: class probabilities (rows, m) and the three entropies of each row (rows,)."""

    rows: slice
    probability: FloatArray
    entropy: diagnostics.EntropyDecomposition


def predict_regression(
    draws: Draws | DrawsMixture,
    preprocessor: Preprocessor,
    X: FloatArray,
    coverage: float,
    *,
    offset: FloatArray | None = None,
) -> Iterator[RegressionPredictions]:
    """Yield predictions for slices of the rows of X (n, d), whose exposures have the logarithms `offset` (n,).

    The ends of the interval are quantiles of the posterior predictive distribution given the M draws, the mixture
    1/M sum_i p(y | f_i(x)). They are computed to rounding error and no noise is drawn, so the interval of a row does
    not depend on other rows.

    Raises
    ------
    TypeError
        If the likelihood is not one of numbers.
    """
    scale = preprocessor.target_scale
    for rows, mixture in draws.predictive_mixtures(X, offset=offset):
        lower, upper = mixture.interval(coverage)
        yield RegressionPredictions(
            rows,
            preprocessor.inverse_target(mixture.mean()),
            mixture.sd() * scale,
            mixture.sd_f() * scale,
            preprocessor.inverse_target(lower),
            preprocessor.inverse_target(upper),
            np.sqrt(mixture.noise_variance()) * scale,
        )


def predict_classes(draws: Draws | DrawsMixture, X: FloatArray) -> Iterator[ClassPredictions]:
    """Yield predictions for slices of the rows of X (n, d)."""
    for rows, f in draws.predict_blocks(X):
        p = draws.likelihood.probabilities(f)
        yield ClassPredictions(rows, p.mean(axis=(0, 1)), diagnostics.entropy_decomposition(p))
