"""Plots of predictions: sampled functions, intervals against observations, PIT, residuals, confusion, ROC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from patrac_native.diagnostics import credible_interval
from patrac_native.diagnostics._arrays import FloatArray, function_draws, numeric
from patrac_native.plots import _canvas as canvas
from patrac_native.validation.checks import check_index

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Probability of the bands in which counts of calibrated predictions lie.
_BAND = 0.95
# A confusion matrix has a number in each cell of at most so many classes, and names at most so many.
_MOST_NUMBERED, _MOST_NAMED = 20, 30


def posterior_bands(
    x: ArrayLike,
    f: ArrayLike,
    *,
    truth: ArrayLike | None = None,
    data: tuple[ArrayLike, ArrayLike] | None = None,
    map_fit: ArrayLike | None = None,
    y_interval: tuple[ArrayLike, ArrayLike] | None = None,
    n_draws: int = 100,
    coverage: float = 0.95,
    output: int = 0,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot sampled functions of a single input with their pointwise quantiles (the paper's Figure 2).

    Orange lines are `n_draws` draws, evenly spaced over all chains. Dashed purple lines are the ends of the central
    interval of all draws, the dotted green line is the true mean, the blue line the trained network, dots are the
    training data, and a light band holds new observations.

    Parameters
    ----------
    x : array_like, shape (n,) or (n, 1)
        Inputs, in any order.
    f : array_like, shape (chain, draw, n, m)
        Function draws at `x`.
    truth, map_fit : array_like of shape (n,) or (n, 1), optional
        The true f, and the prediction of the trained network, at `x`; by default they are not plotted.
    data : pair (x_data, y_data) of array_like, optional
        Training data, each of shape (n_data,) or (n_data, 1); by default they are not plotted.
    y_interval : pair (lower, upper) of array_like, optional
        Ends of the intervals of new observations at `x`, each of shape (n,) or (n, 1), such as `draws.interval(x)`; by
        default they are not plotted.
    n_draws : int, default 100
        Maximum number of functions to plot, >= 0.
    coverage : float in (0, 1), default 0.95
        Posterior probability of the interval.
    output : int, default 0
        Index of the output to plot, in 0..m-1.
    legend : bool, default True
        Whether to draw a legend below the axes.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError
        If an array does not hold real numbers.
    ValueError
        If `x` has more than one column, shapes do not match, an entry is NaN or infinite, or `output`, `n_draws` or
        `coverage` is outside its range.
    """
    draws = function_draws("f", f)
    n, m = draws.shape[2:]
    inputs = canvas.column("x", x)
    if inputs.size != n:
        raise ValueError(f"x has {inputs.size} rows but f has {n} (shape {draws.shape}); evaluate f at x")
    output = check_index(output, "output", m)
    if n_draws < 0:
        raise ValueError(f"n_draws must not be negative, got {n_draws}")
    points_given = None if data is None else _pair("data", data, "the inputs and targets, (X, y)")
    ends_given = None if y_interval is None else _pair("y_interval", list(y_interval), "the ends, (lower, upper)")
    order = np.argsort(inputs, kind="stable")
    grid = inputs[order]
    shown = draws[..., output][:, :, order]
    lower, upper = credible_interval(shown[..., None], coverage)

    ax = canvas.axes_or_new(ax)
    pooled = shown.reshape(-1, n)
    chosen = pooled[canvas.evenly(len(pooled), n_draws)]
    lines = ax.plot(grid, chosen.T, color=canvas.ORANGE, linewidth=0.6, alpha=0.35, zorder=1)
    if lines:
        lines[0].set_label(f"{len(lines)} draws")
    if ends_given is not None:
        low, high = (_at(f"y_interval[{end}]", value, n)[order] for end, value in enumerate(ends_given))
        ax.fill_between(grid, low, high, color=canvas.SKY, alpha=0.2, linewidth=0, zorder=0, label="interval of y")
    percent = 100 * coverage
    ax.plot(grid, lower[:, 0], "--", color=canvas.PURPLE, linewidth=1.5, zorder=4, label=f"{percent:g}% interval")
    ax.plot(grid, upper[:, 0], "--", color=canvas.PURPLE, linewidth=1.5, zorder=4)
    if map_fit is not None:
        fitted = _at("map_fit", map_fit, n)[order]
        ax.plot(grid, fitted, "-", color=canvas.BLUE, linewidth=1.5, zorder=5, label="network")
    if truth is not None:
        true = _at("truth", truth, n)[order]
        ax.plot(grid, true, ":", color=canvas.GREEN, linewidth=2.2, zorder=6, label="true mean")
    if points_given is not None:
        points = canvas.column("data[0]", points_given[0])
        seen = _at("data[1]", points_given[1], points.size)
        ax.scatter(points, seen, s=9, color="black", alpha=0.6, linewidths=0, zorder=3, label="data")
    ax.margins(x=0.01)
    return canvas.finish(ax, "x", "f(x)" if data is None else "y, f(x)", ncols=3, legend=legend)


def _pair(name: str, value: Any, parts: str) -> tuple[Any, Any]:
    """Return the two entries of a tuple or list; those of an array would be its rows."""
    if not isinstance(value, tuple | list):
        raise TypeError(f"{name} must be a pair of arrays, {parts}; got {type(value).__name__}.")
    if len(value) != 2:
        raise ValueError(f"{name} must be a pair of arrays, {parts}; got {len(value)} entries.")
    return value[0], value[1]


def predicted_vs_observed(
    y: ArrayLike,
    mean: ArrayLike,
    lo: ArrayLike,
    hi: ArrayLike,
    ax: Axes | None = None,
    *,
    max_rows: int = 1000,
    legend: bool = True,
) -> Axes:
    """Plot predicted means with their intervals against observations; rows outside their interval are highlighted.

    If many rows share few distinct values of y, as counts or ratings do, the rows of one value are spread sideways over
    less than the distance between values, so that they do not hide each other.

    Parameters
    ----------
    y : array_like, shape (n,) or (n, 1)
        Observations of one output.
    mean, lo, hi : array_like, shape (n,) or (n, 1)
        Predictive means, and lower and upper ends of the intervals.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    max_rows : int, default 1000
        Maximum number of rows to plot, >= 1; of more rows, those evenly spaced in the order of y are plotted. The
        shares in the legend count all rows.
    legend : bool, default True
        Whether to draw a legend below the axes.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError
        If an array does not hold real numbers.
    ValueError
        If shapes do not match, an entry is NaN or infinite, `lo` exceeds `hi` in a row, or `max_rows` is below 1.
    """
    observed, centre, low, high = canvas.columns(y=y, mean=mean, lo=lo, hi=hi)
    if (low > high).any():
        row = int(np.flatnonzero(low > high)[0])
        raise ValueError(f"lo must not exceed hi, got {low[row]:g} > {high[row]:g} in row {row}")
    if max_rows < 1:
        raise ValueError(f"max_rows must be at least 1, got {max_rows}")
    inside = (low <= observed) & (observed <= high)
    order = np.argsort(observed, kind="stable")
    shown = np.zeros(observed.size, dtype=bool)
    shown[order[canvas.evenly(order.size, max_rows)]] = True

    at = observed + _spread(observed[shown], observed)
    ax = canvas.axes_or_new(ax)
    # The fewer rows there are, the more opaque their marks can be.
    alpha = float(np.clip(120 / shown.sum(), 0.15, 0.8))
    for rows, colour, marker, text in (
        (inside, canvas.BLUE, "o", f"inside the interval ({inside.mean():.1%})"),
        (~inside, canvas.VERMILION, "D", f"outside ({(~inside).mean():.1%})"),
    ):
        pick = rows & shown
        ax.vlines(at[pick], low[pick], high[pick], color=colour, linewidth=0.7, alpha=alpha, zorder=1)
        ax.scatter(at[pick], centre[pick], s=9, color=colour, marker=marker, linewidths=0, zorder=2, label=text)
    ends = [min(observed.min(), centre.min()), max(observed.max(), centre.max())]
    ax.plot(ends, ends, "-", color="black", linewidth=1.0, zorder=3, label="equal")
    return canvas.finish(ax, "observed", "predicted", ncols=3, legend=legend)


def _spread(shown: FloatArray, observed: FloatArray) -> FloatArray:
    """Return sideways shifts (n,) for rows that share their value of y with many others; zeros if most differ."""
    distinct = np.unique(shown)
    if distinct.size < 2 or distinct.size * 4 > shown.size:
        return np.zeros_like(observed)
    # Multiples of the golden ratio fill the interval evenly for any number of rows, without a random generator.
    fraction = (np.arange(observed.size) * 0.6180339887498949) % 1.0
    return np.asarray((fraction - 0.5) * (0.7 * float(np.diff(distinct).min())), dtype=np.float64)


def _at(name: str, value: ArrayLike, n: int) -> FloatArray:
    """Return `column(name, value)`; raise ValueError unless it has n rows."""
    array = canvas.column(name, value)
    if array.size != n:
        raise ValueError(f"{name} must have {n} rows, got {array.size}")
    return array


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
    y: ArrayLike,
    mean: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    ax: Axes | None = None,
    *,
    errors: tuple[ArrayLike, ArrayLike] | None = None,
    max_rows: int = 150,
) -> Axes:
    """Plot the intervals of rows in the order of their predicted means, with the observations.

    Parameters
    ----------
    y, mean, lower, upper : array_like, shape (n,)
        Observations, predictive means and ends of the intervals.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    errors : (lower, upper), each array_like, shape (n,), optional
        Standard errors of the ends, such as the rerun error, which bars around the ends show.
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
    if errors is not None:
        of_low, of_high = canvas.columns(lower_error=errors[0], upper_error=errors[1])
        for end, error, text in ((low, of_low, "rerun error of its ends"), (high, of_high, "")):
            ends = end[order] - error[order], end[order] + error[order]
            ax.vlines(at, *ends, color=canvas.PURPLE, linewidth=3.0, zorder=2, label=text)
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
