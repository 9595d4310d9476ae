"""Plots of chains: traces (the paper's Appendix D) and autocorrelations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.diagnostics._arrays import FloatArray, chain_draws, numeric
from patrac_native.plots import _canvas as canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A trace of more than twice this many draws is divided into this many segments, of which the smallest and the largest
# value are drawn. No screen has more columns, so the plot looks the same, and a vector graphic of 500,000 draws stays
# small.
_SEGMENTS = 1500
# With this many draws or more, tick labels are written as 20k, 40k, because full numbers would overlap.
_THOUSANDS = 20_000


def trace(
    values: ArrayLike,
    *,
    label: str = "value",
    warmup: int = 0,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot the trace of a scalar, with a line and a colour for each chain.

    Parameters
    ----------
    values : array_like, shape (chain, draw)
        The scalar at each kept draw.
    label : str, default "value"
        Name of the scalar, the label of the y axis.
    warmup : int, default 0
        Number of leading draws that belong to the warm-up, which are shaded.
    legend : bool, default True
        Whether to draw a legend below the axes. A single chain and more than eight chains are not listed in it.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    TypeError
        If `values` does not hold real numbers.
    ValueError
        If its shape is not (chain, draw), an entry is NaN or infinite, or `warmup` is outside 0..draw.
    """
    series = _chains("values", values)
    n_chains, n_draws = series.shape
    if not 0 <= warmup <= n_draws:
        raise ValueError(f"warmup must be in 0..{n_draws}, the draws of a chain, got {warmup}")
    ax = canvas.axes_or_new(ax, (4.6, 2.6))
    # Several chains overlap: with thin, slightly translucent lines the lower ones remain visible.
    alpha = 0.9 if n_chains == 1 else 0.8
    for chain in range(n_chains):
        at, shown = _envelope(series[chain])
        ax.plot(at, shown, **canvas.line_of_chain(chain), linewidth=0.6, alpha=alpha, label=f"chain {chain + 1}")
    handles: list[Any] = list(ax.get_lines()[-n_chains:]) if 1 < n_chains <= len(canvas.CYCLE) else []
    if warmup:
        shade = ax.axvspan(0, warmup, color=canvas.GREY, alpha=0.15, linewidth=0, zorder=0, label="warm-up")
        handles.append(shade)
    if n_draws >= _THOUSANDS:
        from matplotlib.ticker import EngFormatter

        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.margins(x=0.01)
    has_legend = legend and bool(handles)
    return canvas.finish(ax, "kept draw", label, ncols=min(len(handles), 5), legend=has_legend, handles=handles)


def trace_panel(
    log_likelihood: ArrayLike,
    log_prior: ArrayLike,
    output_weight: ArrayLike,
    f_at_point: ArrayLike,
    axes: Sequence[Axes] | NDArray[Any] | None = None,
    *,
    point: str = "x",
    warmup: int = 0,
) -> NDArray[Any]:
    """Plot the four traces of the paper's Appendix D: log-likelihood, log prior, an output weight, and f at a point.

    Parameters
    ----------
    log_likelihood, log_prior, output_weight, f_at_point : array_like, shape (chain, draw)
        The scalars at each kept draw. As in the paper, the mean of f over all chains after the warm-up is subtracted.
    axes : sequence of four matplotlib Axes, optional
        The axes to draw on, in the order of the arguments; by default those of a new figure of two by two.
    point : str, default "x"
        Name of the point for the label of f, such as "-2".
    warmup : int, default 0
        As in `trace`.

    Returns
    -------
    ndarray of four Axes, shape (4,)

    Raises
    ------
    TypeError, ValueError
        As `trace`; also ValueError if `axes` does not hold four axes.
    """
    f = _chains("f_at_point", f_at_point)
    kept = f[:, warmup:] if 0 <= warmup < f.shape[1] else f
    panels = (
        ("log-likelihood", _chains("log_likelihood", log_likelihood)),
        ("log prior", _chains("log_prior", log_prior)),
        ("first output weight", _chains("output_weight", output_weight)),
        (f"f({point}) less its mean", f - kept.mean()),
    )
    if axes is None:
        import matplotlib.pyplot as plt

        _, grid = plt.subplots(2, 2, figsize=(7.6, 4.6), sharex=True, layout="constrained")
        four = np.asarray(grid, dtype=object).ravel()
    else:
        four = np.asarray(axes, dtype=object).ravel()
    if four.size != 4:
        raise ValueError(f"axes must hold four Axes, got {four.size}")
    for ax, (label, values) in zip(four, panels, strict=True):
        trace(values, label=label, warmup=warmup, legend=False, ax=ax)
    if axes is None:  # the columns share their x axis
        for ax in four[:2]:
            ax.set_xlabel("")
    return four


def autocorrelation_plot(
    rho: ArrayLike, ax: Axes | None = None, *, max_lag: int | None = None, legend: bool = True
) -> Axes:
    """Plot the autocorrelation against the lag, with a line for each chain and the zero line.

    Parameters
    ----------
    rho : array_like, shape (chain, lag) or (lag,)
        Autocorrelations from lag 0 on, as `patrac_native.diagnostics.autocorrelation` returns them. Chains of NaN,
        which never changed, are left out.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    max_lag : int, optional
        The last lag to plot, at least 1; by default all lags are plotted.
    legend : bool, default True
        Whether to draw a legend of the chains below the axes; there is none for a single chain or more than eight.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If `rho` has another shape, or `max_lag` is below 1.
    """
    series = np.atleast_2d(np.asarray(rho, dtype=np.float64))
    if series.ndim != 2 or series.size == 0:
        raise ValueError(f"rho must have shape (chain, lag) or (lag,), got {np.shape(rho)}")
    if max_lag is not None and max_lag < 1:
        raise ValueError(f"max_lag must be at least 1, got {max_lag}")
    series = series[:, : series.shape[1] if max_lag is None else max_lag + 1]
    ax = canvas.axes_or_new(ax, (4.6, 2.9))
    ax.axhline(0.0, color="black", linewidth=0.8, zorder=1)
    n_chains = series.shape[0]
    handles: list[Any] = []
    for chain in range(n_chains):
        if np.isfinite(series[chain]).all():
            line = canvas.line_of_chain(chain)
            handles += ax.plot(series[chain], **line, linewidth=1.2, label=f"chain {chain + 1}", zorder=2)
    ax.margins(x=0.01)
    legend = legend and 1 < n_chains <= len(canvas.CYCLE) and bool(handles)
    ncols = min(len(handles), 4)
    return canvas.finish(ax, "lag (kept draws)", "autocorrelation of f", ncols=ncols, legend=legend, handles=handles)


def _chains(name: str, values: ArrayLike) -> FloatArray:
    """Return `values` of shape (chain, draw) in float64; raise ValueError for another shape."""
    series = numeric(name, values)
    if series.ndim != 2:
        raise ValueError(f"{name} must have shape (chain, draw), got {series.shape}; one chain is {name}[None]")
    return chain_draws(name, series, min_draws=1).astype(np.float64, copy=False)


def _envelope(series: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return positions and values to draw for one chain (draw,): both extremes of each segment if the chain is long."""
    n = series.size
    if n <= 2 * _SEGMENTS:
        return np.arange(n, dtype=np.float64), series
    edges = np.linspace(0, n, _SEGMENTS + 1).round().astype(int)[:-1]
    smallest, largest = np.minimum.reduceat(series, edges), np.maximum.reduceat(series, edges)
    return np.repeat(edges.astype(np.float64), 2), np.stack([smallest, largest], axis=1).ravel()
