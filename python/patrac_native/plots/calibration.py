"""Plots of calibration: box plots of coverage, densities of PIT values, reliability of class probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from patrac_native.diagnostics import calibration_bins, ece
from patrac_native.diagnostics._arrays import FloatArray, numeric
from patrac_native.plots import _canvas as canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The minimum number of values for a box plot; quartiles of fewer values say nothing, so the values are plotted instead.
_MIN_BOX = 5
# The minimum bandwidth of a PIT density. Without it the bandwidth is zero if many values are equal, such as the zeros
# of an overconfident model.
_MIN_BANDWIDTH = 0.015
# The accuracy of fewer rows than this says little, and is greyed.
_FEW_ROWS = 10


def coverage_boxplot(
    coverages: Mapping[str, ArrayLike], coverage: ArrayLike, ax: Axes | None = None, *, legend: bool = True
) -> Axes:
    """Plot the observed coverage over replicates: a group for each target, a box for each model (the paper's Figure 3).

    Parameters
    ----------
    coverages : mapping of label to array_like, shape (replicates, q) or (q,)
        Coverages of each model, as `patrac_native.diagnostics.coverage` returns them, stacked over replicates. Fewer
        than five replicates are plotted as points.
    coverage : array_like of floats in (0, 1), shape (q,)
        Probabilities of the intervals, the targets, which black lines mark.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    legend : bool, default True
        Whether to draw a legend of the models below the axes.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError
        If an array does not hold real numbers.
    ValueError
        If there is no model, a shape does not match `coverage`, a probability lies outside (0, 1), or an observed
        coverage outside [0, 1].
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    levels = numeric("coverage", coverage).astype(np.float64).ravel()
    if not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {levels}")
    observed = {name: np.atleast_2d(array) for name, array in _by_label("coverages", coverages).items()}
    for name, array in observed.items():
        if array.ndim != 2 or array.shape[1] != levels.size:
            raise ValueError(
                f"coverages[{name!r}] must have shape (replicates, {levels.size}), one column for each probability, "
                f"got {np.shape(coverages[name])}"
            )

    ax = canvas.axes_or_new(ax, (4.6 + 0.25 * max(0, len(observed) - 4), 3.4))
    # Targets increase from left to right; the boxes of a group take 80% of its width together.
    group = np.argsort(levels, kind="stable")
    width = 0.8 / len(observed)
    handles: list[Any] = []
    for index, (name, array) in enumerate(observed.items()):
        turn, place = divmod(index, len(canvas.CYCLE))
        # Where colours begin anew, points and hatching tell the models apart.
        colour, marker, hatch = canvas.CYCLE[place], "oDs"[turn % 3], ("", "//", "xx")[turn % 3]
        at = np.arange(levels.size) - 0.4 + (index + 0.5) * width
        if array.shape[0] < _MIN_BOX:
            points = np.tile(at, array.shape[0]), array[:, group].ravel()
            ax.scatter(*points, s=22, color=colour, marker=marker, linewidths=0, zorder=2)
        else:
            ax.boxplot(
                array[:, group],
                positions=at,
                widths=0.8 * width,
                patch_artist=True,
                manage_ticks=False,
                boxprops={"facecolor": colour, "alpha": 0.75, "linewidth": 0.7, "hatch": hatch},
                medianprops={"color": "black", "linewidth": 1.1},
                whiskerprops={"linewidth": 0.7},
                capprops={"linewidth": 0.7},
                flierprops={"marker": ".", "markersize": 3, "markeredgecolor": colour},
            )
        handles.append(Patch(facecolor=colour, alpha=0.75, hatch=hatch, label=name))
    targets = levels[group]
    places = np.arange(levels.size)
    ax.hlines(targets, places - 0.47, places + 0.47, color="black", linewidth=1.6, zorder=3)
    handles.append(Line2D([], [], color="black", linewidth=1.6, label="target"))
    ax.set_xticks(places, [f"{100 * target:g}%" for target in targets])
    ax.set_xlim(-0.55, levels.size - 0.45)
    ncols = min(4, len(handles))
    return canvas.finish(ax, "target coverage", "observed coverage", ncols=ncols, legend=legend, handles=handles)


def pit_density(pits: Mapping[str, ArrayLike], ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Plot densities of PIT values on [0, 1] with the uniform density for reference (the paper's Figure 5, right).

    A maximum in the middle indicates intervals that are too wide, a U shape intervals that are too narrow. The Gaussian
    kernel density is reflected at 0 and 1, so that it is flat up to the ends for a uniform sample; its bandwidth is
    Silverman's, 0.9 min(sd, IQR/1.34) n^(-1/5), and at least 0.015.

    Parameters
    ----------
    pits : mapping of label to array_like, shape (n,) or (n, m)
        PIT values of each model, as `patrac_native.diagnostics.pit` returns them.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    legend : bool, default True
        Whether to draw a legend of the models below the axes.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError
        If an array does not hold real numbers.
    ValueError
        If there is no model, or a value lies outside [0, 1].
    """
    values = _by_label("pits", pits)
    ax = canvas.axes_or_new(ax)
    ax.axhline(1.0, color="black", linewidth=1.0, zorder=1, label="uniform")
    at = np.linspace(0.0, 1.0, 201)
    for index, (name, u) in enumerate(values.items()):
        colour = canvas.CYCLE[index % len(canvas.CYCLE)]
        style = canvas.STYLES[index % len(canvas.STYLES)]
        ax.plot(at, _reflected_density(u.ravel(), at), style, color=colour, linewidth=1.6, zorder=2, label=name)
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(bottom=0.0)
    return canvas.finish(ax, "share of draws below y", "density", ncols=min(4, len(values) + 1), legend=legend)


def reliability(p: ArrayLike, y: ArrayLike, ax: Axes | None = None, *, n_bins: int = 15, legend: bool = True) -> Axes:
    """Plot the accuracy of the top label against its confidence, with the diagonal and the share of rows in each bin.

    Lines at the points are 95% intervals of the accuracy (Wilson); bins of fewer than ten rows are grey.

    Parameters
    ----------
    p : array_like, shape (chain, draw, n, C)
        Class probabilities; one column is Bernoulli.
    y : array_like of int, shape (n,)
        Labels in 0..C-1.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    n_bins : int, default 15
        Number of bins of equal width, at least 1. The legend gives the value of `patrac_native.diagnostics.ece` for
        these bins.
    legend : bool, default True
        Whether to draw a legend below the axes.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError, ValueError
        As `patrac_native.diagnostics.ece`.
    """
    from scipy.stats import binomtest

    bins = calibration_bins(p, y, n_bins)
    error = ece(p, y, n_bins)
    used = bins.n_rows > 0
    share = bins.n_rows / bins.n_rows.sum()
    ax = canvas.axes_or_new(ax)
    bars: dict[str, Any] = {
        "width": np.diff(bins.edges),
        "align": "edge",
        "color": canvas.SKY,
        "alpha": 0.45,
        "linewidth": 0,
    }
    ax.bar(bins.edges[:-1], share, **bars, zorder=0, label="share of rows")
    ax.plot([0, 1], [0, 1], "--", color="black", linewidth=1.0, zorder=1, label="calibrated")
    for shown, colour, text in (
        (used & (bins.n_rows >= _FEW_ROWS), canvas.VERMILION, f"observed (ECE {error:.3f})"),
        (used & (bins.n_rows < _FEW_ROWS), canvas.GREY, f"fewer than {_FEW_ROWS} rows"),
    ):
        if not shown.any():
            continue
        hits = zip(bins.accuracy[shown] * bins.n_rows[shown], bins.n_rows[shown].tolist(), strict=True)
        ends = np.array([binomtest(round(k), n).proportion_ci(method="wilson") for k, n in hits])
        ax.errorbar(
            bins.confidence[shown],
            bins.accuracy[shown],
            yerr=np.abs(ends - bins.accuracy[shown][:, None]).T,
            fmt="o" if colour == canvas.GREY else "o-",
            color=colour,
            elinewidth=0.9,
            linewidth=1.4,
            markersize=4,
            zorder=2,
            label=text,
        )
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.02))
    return canvas.finish(ax, "confidence of the top label", "accuracy", ncols=3, legend=legend)


def _by_label(name: str, values: Mapping[str, ArrayLike]) -> dict[str, FloatArray]:
    """Return the numbers in [0, 1] of each label; raise TypeError or ValueError for others."""
    if not isinstance(values, Mapping):
        raise TypeError(f'{name} must be a mapping, such as {{"Mix(5)": values}}; got {type(values).__name__}.')
    if not values:
        raise ValueError(f"{name} is empty; pass at least one label with its values")
    return {label: canvas.unit(f"{name}[{label!r}]", value) for label, value in values.items()}


def _reflected_density(u: FloatArray, at: FloatArray) -> FloatArray:
    """Return the Gaussian kernel density of the sample `u` on [0, 1], reflected at both ends, at the points `at`."""
    quartiles = np.quantile(u, [0.25, 0.75])
    spread = min(float(u.std()), float(quartiles[1] - quartiles[0]) / 1.34)
    h = max(0.9 * spread * u.size**-0.2, _MIN_BANDWIDTH)
    # The sample is binned, so that the cost does not grow with n. Bins are an eighth of the minimum bandwidth wide,
    # which shifts values by too little to be visible.
    mass, edges = np.histogram(u, bins=512, range=(0.0, 1.0))
    centre = 0.5 * (edges[1:] + edges[:-1])
    density = np.zeros_like(at)
    # Reflection at both ends gives the images +-c + 2k, of which those left out are at least two units from [0, 1].
    for mirror in (centre, -centre, 2.0 - centre, centre - 2.0, centre + 2.0):
        density += np.exp(-0.5 * ((at[:, None] - mirror) / h) ** 2) @ mass
    return np.asarray(density / (u.size * h * np.sqrt(2.0 * np.pi)))
