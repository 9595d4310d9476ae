"""The figures of a report on scored rows: intervals, calibration and residuals, or reliability and confusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native.fit.base import PatracEstimator
from patrac_native.fit.evaluation import Evaluation, typical
from patrac_native.fit.rows import FloatArray
from patrac_native.plots import (
    confusion,
    coverage_curve,
    epistemic_share,
    pit_histogram,
    posterior_bands,
    predicted_vs_observed,
    reliability,
    residuals,
    roc_and_precision_recall,
    sorted_intervals,
)
from patrac_native.report.report import PAGE_WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Residuals are plotted against at most so many inputs, those that correlate most with them in absolute rank.
_INPUTS = 12
# A single input is plotted as a curve if it has so many different values, at so many places.
_FEWEST_VALUES, _PLACES = 6, 200
# The confusion matrix of more classes than this has a figure of its own.
_CLASSES_BESIDE = 8


def figures_of(est: PatracEstimator, evaluation: Evaluation, target: str, X: FloatArray) -> list[tuple[Figure, str]]:
    """Return figures and captions for a fitted estimator whose rows of inputs X (n, d) were scored."""
    if est.draws_.likelihood.targets == "class":
        return _class_figures(evaluation, est.classes_.tolist())
    return _regression_figures(est, evaluation, target, X)


def _regression_figures(
    est: PatracEstimator, evaluation: Evaluation, target: str, X: FloatArray
) -> list[tuple[Figure, str]]:
    """Return figures and captions for a regression."""
    arrays = evaluation.arrays
    y, mean, lower, upper = (arrays[name] for name in ("y", "mean", "lower", "upper"))
    intervals = _figure(4.2)
    wide, square = intervals.subplots(1, 2, width_ratios=(1.7, 1.0))
    sorted_intervals(y, mean, lower, upper, wide)
    predicted_vs_observed(y, mean, lower, upper, square)
    ends = (min(lower.min(), y.min()), max(upper.max(), y.max()))
    square.set(xlim=ends, ylim=ends, aspect="equal")
    calibration = _figure(4.4)
    left, right = calibration.subplots(1, 2)
    pit_histogram(arrays["pit"], left)
    coverage_curve(arrays["pit"], right)
    figures = [
        (
            intervals,
            "95% intervals of y in the order of the prediction, and predicted means with these intervals against the "
            "observations on equal axes, in the target's units; diamonds: observations outside their interval.",
        ),
        (
            calibration,
            "PIT values, the noise included, and the coverage of central intervals. Grey: where 95% of calibrated "
            "predictions lie. A hump in the middle of the histogram means intervals too wide, a U too narrow.",
        ),
    ]
    share = _figure(3.2)
    varies = est.draws_.likelihood.noise_by_row
    axes = share.subplots(1, 2 if varies else 1, squeeze=False)[0]
    epistemic_share(mean, arrays["epistemic"], axes[0])
    caption = "Epistemic share: the variance of f over that of y in each row, the part that more data would remove."
    if varies:
        _noise_of_rows(mean, arrays["noise_sd"], axes[1])
        caption += " Right: the standard deviation of the noise of each row, which the network predicts."
    figures.append((share, caption))
    return [*_curve(est, target), *figures, *_residual_figures(est, y - mean, X)]


def _curve(est: PatracEstimator, target: str) -> list[tuple[Figure, str]]:
    """Return a figure of f and y over the input, if there is one with enough different values."""
    data, preprocessor, units = est.result_.data.training, est.preprocessor_, est.target_scaling_
    if data.X.shape[1] != 1 or data.offset is not None or len(np.unique(data.X)) < _FEWEST_VALUES:
        return []
    places = np.linspace(data.X.min(), data.X.max(), _PLACES)[:, None]
    lower, upper = est.draws_.distribution(places).interval(0.95)
    figure = _figure(4.4)
    ax = posterior_bands(
        preprocessor.in_units(places),
        units.inverse_target(np.asarray(est.draws_.predict(places), dtype=np.float64)),
        data=(preprocessor.in_units(data.X), units.inverse_target(typical(est.draws_.likelihood, data.y)[:, 0])),
        y_interval=(units.inverse_target(lower[:, 0]), units.inverse_target(upper[:, 0])),
        ax=figure.subplots(),
    )
    ax.set(xlabel=preprocessor.names[0], ylabel=target)
    curve = "The mean count" if est.draws_.likelihood.targets == "count" else "f"
    caption = (
        f"{curve} over {preprocessor.names[0]}, the only input, with its 95% interval, inside the 95% interval of new "
        "observations, and the training rows; in the units of the table."
    )
    return [(figure, caption)]


def _noise_of_rows(mean: FloatArray, sd: FloatArray, ax: Axes) -> None:
    """Plot the standard deviation of the noise of each row (n,) against its predicted mean."""
    ax.scatter(mean, sd, s=9, color="#0072B2", alpha=float(np.clip(150 / mean.size, 0.15, 0.7)), linewidths=0)
    ax.set(xlabel="predicted mean", ylabel="noise sd")
    ax.set_ylim(bottom=0.0)
    ax.spines[["top", "right"]].set_visible(False)


def _residual_figures(est: PatracEstimator, error: Any, X: FloatArray) -> list[tuple[Figure, str]]:
    """Return a figure of residuals against the inputs that are most related to them."""
    preprocessor = est.preprocessor_
    names, values = preprocessor.names, preprocessor.in_units(X)
    ranks = np.argsort(np.argsort(X, axis=0), axis=0) - (len(X) - 1) / 2
    of_error = np.argsort(np.argsort(error)) - (len(X) - 1) / 2
    related = np.argsort(-np.abs(ranks.T @ of_error), kind="stable")[:_INPUTS]
    rows = -(-len(related) // 3)
    figure = _figure(2.6 * rows)
    axes = np.atleast_1d(figure.subplots(rows, min(3, len(related)), squeeze=False)).ravel()
    for ax, index in zip(axes, related, strict=False):
        residuals(values[:, index], error, np.zeros_like(error), names[index], ax)
    for ax in axes[len(related) :]:
        ax.set_visible(False)
    which = "each input" if len(related) == len(names) else f"the {len(related)} inputs that they are most related to"
    return [
        (
            figure,
            f"Residuals against {which}, in the units of the table; line: medians of tenths of the rows, which stay "
            "near zero where the network follows the data.",
        )
    ]


def _class_figures(evaluation: Evaluation, classes: Sequence[Any]) -> list[tuple[Figure, str]]:
    """Return figures and captions for a classification."""
    arrays = evaluation.arrays
    probability, y = arrays["probability"], np.asarray(arrays["y"], dtype=np.intp)
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (y, probability.argmax(axis=1)), 1)
    of_counts = "observed classes by the predicted ones (colour: share of the observed class; numbers: rows)."
    if len(classes) <= _CLASSES_BESIDE:
        first = _figure(4.8)
        left, right = first.subplots(1, 2)
        reliability(probability[None, None], y, left)
        confusion(counts, classes, right)
        figures = [(first, f"Reliability of the mean probabilities on these rows, and the {of_counts}")]
    else:
        first, second = _figure(4.8), _figure(8.0)
        reliability(probability[None, None], y, first.subplots())
        confusion(counts, classes, second.subplots())
        figures = [
            (first, "Reliability of the mean probabilities on these rows."),
            (second, f"The {of_counts}"),
        ]
    if len(classes) == 2 and len(np.unique(y)) == 2:
        curves = _figure(4.4)
        roc_and_precision_recall(np.clip(probability[:, 1], 0, 1), y, curves.subplots(1, 2))
        figures.append(
            (curves, f"ROC curve, and precision against recall, for the class {classes[1]!r} on these rows.")
        )
    return figures


def _figure(height: float) -> Figure:
    """Return an empty figure as wide as the page."""
    from matplotlib.figure import Figure

    return Figure(figsize=(PAGE_WIDTH, height), layout="constrained")
