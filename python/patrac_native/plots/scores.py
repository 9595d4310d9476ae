"""Plots of predictions on scored rows: PIT histogram, coverage, sorted intervals, residuals, confusion, ROC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from patrac_native.diagnostics._arrays import numeric
from patrac_native.plots import _canvas as canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Probability of the bands in which counts of calibrated predictions lie.
_BAND = 0.95
# A confusion matrix has a number in each cell of at most so many classes, and names at most so many.
_MOST_NUMBERED, _MOST_NAMED = 20, 30


def pit_histogram(pit: ArrayLike, ax: Axes | None = None, *, n_bins: int = 10) -> Axes:
    """Plot a histogram of PIT values with the band in which the bins of calibrated predictions lie.

    A hump in the middle shows intervals that are too wide, a U shape intervals that are too narrow.

    Parameters
    ----------
    pit : array_like, shape (n,) or (n, m)
        PIT values in [0, 1].
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    n_bins : int, default 10
        Number of bins of equal width, at least 1.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError, ValueError
        If the values are not numbers in [0, 1], or `n_bins` is below 1.

    Notes
    -----
    The number of rows in a bin is binomial with probability 1 / n_bins; the band has the central 95%.
    """
    from scipy.stats import binom

    values = canvas.unit("pit", pit).ravel()
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}")
    counts, edges = np.histogram(values, bins=n_bins, range=(0.0, 1.0))
    low, high = binom.interval(_BAND, values.size, 1.0 / n_bins)
    ax = canvas.axes_or_new(ax)
    ax.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=canvas.SKY, edgecolor="white", label="rows")
    ax.axhspan(low, high, color=canvas.GREY, alpha=0.3, linewidth=0, label=f"{_BAND:.0%} of calibrated bins")
    ax.axhline(values.size / n_bins, color="black", linewidth=1.0, linestyle="--", label="uniform")
    ax.set_xlim(0.0, 1.0)
    return canvas.finish(ax, "predictive probability of less than the observed y (PIT)", "rows", ncols=3)


def coverage_curve(pit: ArrayLike, ax: Axes | None = None) -> Axes:
    """Plot the observed against the nominal coverage of central intervals, with its binomial band.

    Parameters
    ----------
    pit : array_like, shape (n,) or (n, m)
        PIT values in [0, 1]: a row is in the central interval of probability c if its value is within c/2 of 1/2.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError, ValueError
        If the values are not numbers in [0, 1].
    """
    from scipy.stats import binom

    values = canvas.unit("pit", pit).ravel()
    nominal = np.linspace(0.0, 1.0, 101)
    reach = np.sort(2.0 * np.abs(values - 0.5))
    observed = np.searchsorted(reach, nominal, side="right") / reach.size
    low, high = (end / reach.size for end in binom.interval(_BAND, reach.size, nominal))
    ax = canvas.axes_or_new(ax)
    ax.fill_between(nominal, low, high, color=canvas.GREY, alpha=0.3, linewidth=0, label=f"{_BAND:.0%} if calibrated")
    ax.plot([0, 1], [0, 1], "--", color="black", linewidth=1.0, label="calibrated")
    ax.plot(nominal, observed, color=canvas.VERMILION, linewidth=1.6, label="observed")
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.02), aspect="equal")
    return canvas.finish(ax, "nominal coverage", "observed coverage", ncols=3)


def sorted_intervals(
    y: ArrayLike, mean: ArrayLike, lower: ArrayLike, upper: ArrayLike, ax: Axes | None = None, *, max_rows: int = 150
) -> Axes:
    """Plot the intervals of rows in the order of their predicted means, with the observations.

    Parameters
    ----------
    y, mean, lower, upper : array_like, shape (n,)
        Observations, predictive means and ends of the intervals.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    max_rows : int, default 150
        Maximum number of rows; of more, those evenly spaced in this order are shown.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError, ValueError
        If an array does not hold finite numbers, or their lengths differ.
    """
    observed, centre, low, high = canvas.columns(y=y, mean=mean, lower=lower, upper=upper)
    order = np.argsort(centre, kind="stable")
    order = order[canvas.evenly(order.size, max_rows)]
    at, inside = np.arange(order.size), (low <= observed)[order] & (observed <= high)[order]
    ax = canvas.axes_or_new(ax)
    ax.vlines(at, low[order], high[order], color=canvas.SKY, linewidth=1.4, label="interval of y")
    ax.plot(at, centre[order], color=canvas.BLUE, linewidth=1.4, label="predicted mean")
    for rows, marker, colour, text in ((inside, "o", "black", "observed"), (~inside, "D", canvas.VERMILION, "outside")):
        points = at[rows], observed[order][rows]
        ax.scatter(*points, s=10, marker=marker, color=colour, linewidths=0, zorder=3, label=text)
    ax.margins(x=0.01)
    return canvas.finish(ax, f"rows in the order of their prediction ({order.size} of {observed.size})", "y", ncols=4)


def epistemic_share(mean: ArrayLike, share: ArrayLike, ax: Axes | None = None) -> Axes:
    """Plot the share of f in the variance of y of each row, the part that more data would remove.

    Parameters
    ----------
    mean : array_like, shape (n,)
        Predictive means.
    share : array_like, shape (n,)
        Variance of f over that of y, in [0, 1].
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError, ValueError
        If an array does not hold finite numbers, a share is outside [0, 1], or the lengths differ.
    """
    centre, part = canvas.columns(mean=mean, share=canvas.unit("share", share))
    ax = canvas.axes_or_new(ax)
    ax.scatter(centre, part, s=9, color=canvas.BLUE, alpha=canvas.opacity(part.size), linewidths=0, label="rows")
    ax.axhline(float(part.mean()), color="black", linewidth=1.0, linestyle="--", label=f"mean {part.mean():.1%}")
    ax.set_ylim(0.0, 1.02)
    return canvas.finish(ax, "predicted mean", "share of f in the variance of y", ncols=2)


def residuals(x: ArrayLike, y: ArrayLike, mean: ArrayLike, name: str, ax: Axes | None = None) -> Axes:
    """Plot residuals y - mean against an input, with the median of each tenth of the rows.

    Parameters
    ----------
    x, y, mean : array_like, shape (n,)
        An input, observations and predictive means.
    name : str
        Name of the input.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError, ValueError
        If an array does not hold finite numbers, or their lengths differ.
    """
    inputs, observed, centre = canvas.columns(x=x, y=y, mean=mean)
    error = observed - centre
    ax = canvas.axes_or_new(ax)
    ax.axhline(0.0, color="black", linewidth=0.8)
    ax.scatter(inputs, error, s=7, color=canvas.BLUE, alpha=canvas.opacity(error.size), linewidths=0)
    parts = [part for part in np.array_split(np.argsort(inputs, kind="stable"), 10) if len(part)]
    medians = [[float(np.median(values[part])) for part in parts] for values in (inputs, error)]
    ax.plot(*medians, color=canvas.VERMILION, linewidth=1.4)
    return canvas.finish(ax, name, "residual", ncols=1, legend=False)


def confusion(counts: ArrayLike, classes: Sequence[Any], ax: Axes | None = None) -> Axes:
    """Plot a confusion matrix: the number of rows of each class by the class that was predicted.

    Of more than 20 classes only the colours are shown, and of more than 30 not every class is named.

    Parameters
    ----------
    counts : array_like of int, shape (C, C)
        Rows of class i that were predicted as class j.
    classes : sequence of length C
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError, ValueError
        If the counts are not numbers of shape (C, C).
    """
    table = numeric("counts", counts)
    if table.shape != (len(classes), len(classes)):
        raise ValueError(f"counts must have shape ({len(classes)}, {len(classes)}), got {table.shape}")
    share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    ax = canvas.axes_or_new(ax)
    ax.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
    for row, column in np.ndindex(*table.shape) if len(classes) <= _MOST_NUMBERED else ():
        colour = "white" if share[row, column] > 0.5 else "black"
        ax.text(column, row, f"{int(table[row, column])}", ha="center", va="center", color=colour, fontsize="small")
    named = range(0, len(classes), -(-len(classes) // _MOST_NAMED))
    labels = [str(classes[index]) for index in named]
    ax.set_xticks(named, labels, rotation=45, ha="right")
    ax.set_yticks(named, labels)
    return canvas.finish(ax, "predicted class", "observed class", ncols=1, legend=False)


def roc_and_precision_recall(
    probability: ArrayLike, y: ArrayLike, axes: Sequence[Axes] | None = None
) -> tuple[Axes, Axes]:
    """Plot the ROC curve of two classes, and precision against recall, with their areas.

    Parameters
    ----------
    probability : array_like, shape (n,)
        Predicted probability of class 1.
    y : array_like of int, shape (n,)
        Labels 0 and 1; both must occur.
    axes : two matplotlib Axes, optional
        By default those of a new figure.

    Returns
    -------
    tuple of two matplotlib Axes

    Raises
    ------
    TypeError, ValueError
        If an array is not as described.
    """
    from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_curve

    score, labels = canvas.unit("probability", probability).ravel(), numeric("y", y).ravel()
    if labels.shape != score.shape or set(np.unique(labels)) != {0, 1}:
        raise ValueError("y must hold one label 0 or 1 for each probability, and both must occur")
    if axes is None:
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 2, figsize=(9.2, 4.2), layout="constrained")[1]
    elif np.ndim(axes) != 1 or len(axes) != 2:  # type: ignore[arg-type]
        raise TypeError(f"axes must be two matplotlib Axes, such as plt.subplots(1, 2)[1], or None; got {axes!r}.")
    left, right = (canvas.axes_or_new(ax) for ax in axes)
    false, true, _ = roc_curve(labels, score)
    left.plot(false, true, color=canvas.VERMILION, linewidth=1.6, label=f"area {auc(false, true):.3f}")
    left.plot([0, 1], [0, 1], "--", color="black", linewidth=1.0, label="chance")
    precision, recall, _ = precision_recall_curve(labels, score)
    average = f"average precision {average_precision_score(labels, score):.3f}"
    right.step(recall, precision, where="post", color=canvas.VERMILION, linewidth=1.6, label=average)
    right.axhline(float((labels == 1).mean()), linestyle="--", color="black", linewidth=1.0, label="chance")
    for ax in (left, right):
        ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.02))
    canvas.finish(left, "false positive rate", "true positive rate", ncols=2)
    canvas.finish(right, "recall", "precision", ncols=2)
    return left, right
