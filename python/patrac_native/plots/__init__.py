"""Plots of draws and of their diagnostics, from plain arrays: each plot takes an optional `ax` and returns it.

Without an `ax` the functions create a pyplot figure, which is `ax.figure` of the returned axes; with one, pyplot is not
imported and nothing outside that `ax` changes. Legends are placed below the axes, where they cannot cover data. Create
your own figures with `layout="constrained"`, which leaves room for the legend, or pass `legend=False`. The palette is
that of Okabe and Ito, whose colours colour-blind readers can distinguish.
"""

from __future__ import annotations

from patrac_native.plots._canvas import CYCLE, STYLES, tidy
from patrac_native.plots.calibration import coverage_boxplot, pit_density, reliability
from patrac_native.plots.chains import autocorrelation_plot, trace, trace_panel
from patrac_native.plots.predictions import (
    confusion,
    coverage_curve,
    epistemic_share,
    pit_histogram,
    posterior_bands,
    predicted_vs_observed,
    residuals,
    roc_and_precision_recall,
    sorted_intervals,
)
from patrac_native.plots.progress import progress_bar, shows_progress

__all__ = [
    "CYCLE",
    "STYLES",
    "autocorrelation_plot",
    "confusion",
    "coverage_boxplot",
    "coverage_curve",
    "epistemic_share",
    "pit_density",
    "pit_histogram",
    "posterior_bands",
    "predicted_vs_observed",
    "progress_bar",
    "reliability",
    "residuals",
    "roc_and_precision_recall",
    "shows_progress",
    "sorted_intervals",
    "tidy",
    "trace",
    "trace_panel",
]
