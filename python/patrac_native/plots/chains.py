"""Pictures of chains: traces (the paper's Appendix D) and autocorrelation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.diagnostics._arrays import FloatArray, chain_draws, numeric
from patrac_native.plots import _canvas as canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Traces longer than twice this are drawn as the smallest and largest value in this many stretches: the same picture
# (no screen has more columns) at a fixed size, which keeps vector graphics of 500,000 draws usable.
_STRETCHES = 1500
# From here on, tick labels of draws are written 20k, 40k: full numbers would run into each other.
_THOUSANDS = 20_000


def trace(
    values: ArrayLike,
    *,
    label: str = "value",
    warmup: int = 0,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Trace of a scalar, one line and colour for each chain.

    Parameters
    ----------
    values : array_like, shape (chain, draw)
        The scalar at each kept draw.
    label : str, default "value"
        Its name, on the y axis.
    warmup : int, default 0
        The first `warmup` draws are warm-up and are shaded.
    legend : bool, default True
        Key of the chains below the axes; none for a single chain or more than eight.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If `values` is not (chain, draw), or `warmup` is outside 0..draw.
    """
    series = _chains("values", values)
    n_chains, n_draws = series.shape
    if not 0 <= warmup <= n_draws:
        raise ValueError(f"warmup must be in 0..{n_draws}, the draws of a chain, got {warmup}")
    ax = canvas.axes_or_new(ax, (4.6, 2.6))
    # Several chains lie over each other: thin, slightly translucent lines keep the lower ones visible.
    alpha = 0.9 if n_chains == 1 else 0.7
    for chain in range(n_chains):
        at, shown = _envelope(series[chain])
        colour = canvas.CYCLE[chain % len(canvas.CYCLE)]
        ax.plot(at, shown, color=colour, linewidth=0.6, alpha=alpha, label=f"chain {chain + 1}")
    handles: list[Any] = list(ax.get_lines()[-n_chains:]) if 1 < n_chains <= len(canvas.CYCLE) else []
    if warmup:
        shade = ax.axvspan(0, warmup, color=canvas.GREY, alpha=0.15, linewidth=0, zorder=0, label="warm-up")
        handles.append(shade)
    canvas.tidy(ax, "kept draw", label)
    if n_draws >= _THOUSANDS:
        from matplotlib.ticker import EngFormatter

        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.margins(x=0.01)
    if legend and handles:
        canvas.legend_below(ax, ncols=min(len(handles), 5), handles=handles)
    return ax


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
    """The four traces of the paper's trace-plot tables: log-likelihood, log prior, an output weight, f at a point.

    Parameters
    ----------
    log_likelihood, log_prior, output_weight, f_at_point : array_like, shape (chain, draw)
        The scalars at each kept draw. f is shown less its mean over all chains after warm-up, as in the paper.
    axes : sequence of four matplotlib Axes, optional
        Where to draw, in the order of the arguments; a new figure of two by two by default.
    point : str, default "x"
        Name of the point in the label of f, e.g. "-2".
    warmup : int, default 0
        As in `trace`.

    Returns
    -------
    ndarray of four Axes, shape (4,)

    Raises
    ------
    ValueError
        As `trace`, and if `axes` does not hold four.
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
    """Autocorrelation against lag, one line for each chain, with the zero line.

    Parameters
    ----------
    rho : array_like, shape (chain, lag) or (lag,)
        What `patrac_native.diagnostics.autocorrelation` returns, lag 0 first. Chains of NaN (that never moved) are
        left out.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    max_lag : int, optional
        Last lag shown; all by default.
    legend : bool, default True
        Key of the chains below the axes; none for a single chain or more than eight.

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
            colour = canvas.CYCLE[chain % len(canvas.CYCLE)]
            style = canvas.STYLES[chain // len(canvas.CYCLE) % len(canvas.STYLES)]
            handles += ax.plot(series[chain], style, color=colour, linewidth=1.2, label=f"chain {chain + 1}", zorder=2)
    canvas.tidy(ax, "lag (kept draws)", "autocorrelation of f")
    ax.margins(x=0.01)
    if legend and 1 < n_chains <= len(canvas.CYCLE) and handles:
        canvas.legend_below(ax, ncols=min(len(handles), 4), handles=handles)
    return ax


def _chains(name: str, values: ArrayLike) -> FloatArray:
    """`values` of shape (chain, draw) in float64."""
    series = numeric(name, values)
    if series.ndim != 2:
        raise ValueError(f"{name} must have shape (chain, draw), got {series.shape}; one chain is {name}[None]")
    return chain_draws(name, series, min_draws=1).astype(np.float64, copy=False)


def _envelope(series: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Positions and values of one chain (draw,), long ones as the smallest and largest value of each stretch."""
    n = series.size
    if n <= 2 * _STRETCHES:
        return np.arange(n, dtype=np.float64), series
    edges = np.linspace(0, n, _STRETCHES + 1).round().astype(int)[:-1]
    smallest, largest = np.minimum.reduceat(series, edges), np.maximum.reduceat(series, edges)
    return np.repeat(edges.astype(np.float64), 2), np.stack([smallest, largest], axis=1).ravel()
