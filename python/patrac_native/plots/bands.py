"""Plots for regression: sampled functions with their quantiles over one input, and predictions against observations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from patrac_native.diagnostics import credible_interval
from patrac_native.diagnostics._arrays import FloatArray, function_draws
from patrac_native.plots import _canvas as canvas
from patrac_native.validation.checks import check_index

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
