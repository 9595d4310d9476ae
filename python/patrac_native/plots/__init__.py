"""Pictures of draws and of their diagnostics, from plain arrays: each function takes an `ax` and returns it.

Without an `ax` a new pyplot figure is made (found as `ax.figure`); with one, pyplot is not imported and nothing outside
that `ax` changes. Legends stand below the axes, where they cannot cover data; give a figure of your own
`layout="constrained"`, which leaves room for them, or pass `legend=False`. The palette is Okabe and Ito's, which stays
distinct for colour-blind readers.
"""

from __future__ import annotations

from patrac_native.plots.bands import posterior_bands, predicted_vs_observed
from patrac_native.plots.calibration import coverage_boxplot, pit_density, reliability
from patrac_native.plots.chains import autocorrelation_plot, trace, trace_panel

__all__ = [
    "autocorrelation_plot",
    "coverage_boxplot",
    "pit_density",
    "posterior_bands",
    "predicted_vs_observed",
    "reliability",
    "trace",
    "trace_panel",
]
