"""The uncertainty of predictions and its two parts."""

from __future__ import annotations

from typing import NamedTuple

from patrac_native.validation.checks import FloatArray


class Uncertainty(NamedTuple):
    """The uncertainty of each row's target, split by its cause; total = aleatoric + epistemic.

    Attributes
    ----------
    total : ndarray of float64, shape (n,), or (n, t) for several targets
        Variance of the predictive distribution of a regression, in the target's units squared; entropy of the mean
        probabilities of a classification, in nats.
    aleatoric : ndarray of the same shape
        What would remain with ever more rows: the mean over draws of the noise variance, or of the entropy.
    epistemic : ndarray of the same shape
        What more rows would remove: the variance over draws of the function, or the mutual information between label
        and parameters.
    """

    total: FloatArray
    aleatoric: FloatArray
    epistemic: FloatArray
