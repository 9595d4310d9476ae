"""Diagnostics of draws, as functions of plain arrays: mixing, convergence, calibration, scores.

Function draws `f`, and draws of `y` with the noise included, have shape (chain, draw, n, m); class probabilities and
logits have shape (chain, draw, n, C). The functions depend neither on networks nor on posteriors, so they work on draws
from any sampler. docs/method.md, section 8, lists what is computed and why.
"""

from __future__ import annotations

from patrac_native.diagnostics.classification import (
    CalibrationBins,
    EntropyDecomposition,
    accuracy,
    brier,
    calibration_bins,
    class_nll,
    class_nlpd,
    ece,
    entropy_decomposition,
)
from patrac_native.diagnostics.function_moments import Moments, moments
from patrac_native.diagnostics.mixing import (
    ConvergenceSummary,
    NestedRhat,
    autocorrelation,
    convergence,
    ess_geyer,
    ess_paper,
    geyer_ess_of,
    nested_rhat,
)
from patrac_native.diagnostics.psis import LeaveOneOut, leave_one_out, model_weights
from patrac_native.diagnostics.regression import (
    Interval,
    QuantileMethod,
    coverage,
    credible_interval,
    crps,
    mean_with_error,
    nll,
    nlpd,
    pit,
    rmse,
)
from patrac_native.diagnostics.splits import check_groups, copy_groups, split_rows

__all__ = [
    "CalibrationBins",
    "ConvergenceSummary",
    "EntropyDecomposition",
    "Interval",
    "LeaveOneOut",
    "Moments",
    "NestedRhat",
    "QuantileMethod",
    "accuracy",
    "autocorrelation",
    "brier",
    "calibration_bins",
    "check_groups",
    "class_nll",
    "class_nlpd",
    "convergence",
    "copy_groups",
    "coverage",
    "credible_interval",
    "crps",
    "ece",
    "entropy_decomposition",
    "ess_geyer",
    "ess_paper",
    "geyer_ess_of",
    "leave_one_out",
    "mean_with_error",
    "model_weights",
    "moments",
    "nested_rhat",
    "nll",
    "nlpd",
    "pit",
    "rmse",
    "split_rows",
]
