"""The figures of the demo and the studies, each a matplotlib figure for several architectures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import patrac_native as pn
from patrac_native import plots
from patrac_native.studies.experiment import COVERAGES, Outcome, Scores
from patrac_native.studies.problems import Problem

# Number of inputs at which functions of a single input are plotted.
_CURVE_POINTS = 201
# Distance between the extreme observations and the ends of the y axis.
_HEADROOM = 0.6


def bands_figure(problem: Problem, net: pn.Network, outcomes: Sequence[Outcome], truth: Any = None) -> Figure:
    """Plot posterior draws and intervals over a single input, a panel for each architecture (the paper's Figure 2)."""
    x = np.linspace(problem.grid.min(), problem.grid.max(), _CURVE_POINTS)
    fig, axes = _panels(len(outcomes), (4.4, 3.0))
    for index, (ax, outcome) in enumerate(zip(axes, outcomes, strict=True)):
        plots.posterior_bands(
            x,
            outcome.draws.predict(x[:, None]),
            truth=None if truth is None else truth(x),
            data=(problem.X[:, 0], problem.y),
            map_fit=net.predict(x[:, None]),
            y_interval=outcome.draws.interval(x[:, None]),
            legend=False,
            ax=ax,
        )
        ax.set_title(f"{outcome.label}, K = {outcome.scores['dim']}")
        # All panels have the same scale, so that widths can be compared.
        ax.set_ylim(problem.y.min() - _HEADROOM, problem.y.max() + _HEADROOM)
        if index == 0:
            legend = legend_of(fig, ax, ncols=len(ax.get_legend_handles_labels()[0]))
            # Draws are plotted as thin, translucent lines; their legend entries are opaque and thicker.
            for handle in legend.get_lines():
                handle.set_alpha(1.0)
                handle.set_linewidth(max(1.4, handle.get_linewidth()))
    return fig


def trace_figure(outcomes: Sequence[Outcome], point: npt.ArrayLike, label: str) -> Figure:
    """Plot the traces of the paper's Appendix D: l, log prior, first output weight and f at an input named `label`."""
    names = ("log-likelihood", "log prior", "first output weight", f"f({label}) less its mean")
    fig = Figure(figsize=(11.5, 1.9 * len(outcomes)), layout="constrained")
    axes = fig.subplots(len(outcomes), 4, squeeze=False)
    for row, outcome in zip(axes, outcomes, strict=True):
        draws = outcome.draws
        weight = draws.network.first_output_weight()
        plots.trace_panel(
            draws.stats["log_likelihood"],
            draws.stats["log_prior"],
            draws.theta[:, :, 0 if weight is None else weight],
            draws.predict(np.atleast_2d(point))[:, :, 0, 0],
            row,
            point=label,
        )
        for ax in row:
            ax.set(xlabel="", ylabel="")
        row[0].set_ylabel(outcome.label)
    for ax, name in zip(axes[0], names, strict=True):
        ax.set_title(name, fontsize="medium")
    for ax in axes[-1]:
        ax.set_xlabel("draw")
    return fig


def autocorrelation_figure(outcomes: Sequence[Outcome]) -> Figure:
    """Plot the autocorrelation of f against the lag in steps, a panel for each architecture, a line for each chain."""
    fig, axes = _panels(len(outcomes), (4.4, 2.5))
    for ax, outcome in zip(axes, outcomes, strict=True):
        last = _last_lag_to_see(outcome.autocorrelation)
        plots.autocorrelation_plot(outcome.autocorrelation, ax, max_lag=last, legend=False)
        # The axis counts kept draws; its tick labels give steps, so that panels with different thinning are comparable.
        thin = outcome.scores["ess_thin"]
        steps = [step for step in MaxNLocator(4, integer=True).tick_values(0, last * thin) if step <= last * thin]
        ax.set_xticks([step / thin for step in steps], [f"{step:,.0f}" for step in steps])
        ax.set_xlabel("lag (steps)")
        ax.set_ylim(-0.15, 1.02)
        ax.set_title(outcome.label)
    return fig


def _last_lag_to_see(rho: npt.NDArray[Any]) -> int:
    """Return three times the first lag at which all chains' autocorrelations are below 0.05, at least ten."""
    small = np.all(np.abs(rho) < 0.05, axis=0)
    fallen = int(np.argmax(small)) if small.any() else rho.shape[1]
    return int(min(max(10, 3 * fallen), rho.shape[1] - 1))


def pit_figure(outcomes: Sequence[Outcome], *, of: str) -> Figure:
    """Plot the densities of the PIT of "f", or of "y" with its noise, in one panel."""
    fig = Figure(figsize=(6.2, 3.9), layout="constrained")
    ax = plots.pit_density({one.label: one.pit_f if of == "f" else one.pit_y for one in outcomes}, fig.subplots())
    ax.set_xlabel(f"share of draws of {of if of == 'f' else 'y, with noise,'} below the observed y")
    return fig


def coverage_figure(models: Mapping[str, Sequence[Scores]]) -> Figure:
    """Plot the observed coverage over replicates, a box for each model that has one (the paper's Figure 3)."""
    shares = {
        name: np.array([[one["coverage"][f"{level:g}"] for level in COVERAGES] for one in scores])
        for name, scores in models.items()
        if "coverage" in scores[0]
    }
    fig = Figure(figsize=(7.6, 4.2), layout="constrained")
    plots.coverage_boxplot(shares, COVERAGES, fig.subplots())
    return fig


def legend_of(fig: Figure, ax: Any, ncols: int) -> Any:
    """Draw one legend below the whole figure, with the entries of one panel, and return it."""
    handles, labels = ax.get_legend_handles_labels()
    return fig.legend(handles, labels, loc="outside lower center", ncols=ncols, frameon=False, fontsize="small")


def _panels(count: int, size: tuple[float, float]) -> tuple[Figure, list[Any]]:
    """Return a figure of two columns with `count` panels of about `size` inches, and its panels."""
    columns = min(2, count)
    rows = math.ceil(count / columns)
    fig = Figure(figsize=(columns * size[0], rows * size[1]), layout="constrained")
    axes = list(fig.subplots(rows, columns, squeeze=False).ravel())
    for spare in axes[count:]:
        spare.set_axis_off()
    return fig, axes[:count]
