"""The series of each plot can be told apart without colour: by kind of mark, line style, hatching or lightness."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from patrac_native import plots
from patrac_native.plots import _canvas as canvas
from test_plots import all_plots

# The least difference in lightness, of 100 from black to white, of two series that are drawn alike. It is several times
# the smallest difference that is seen between areas (about 1), because lines are thin.
LEAST_DIFFERENCE = 8.0


def lightness(colour: Any, alpha: float | None) -> float:
    """Return the lightness L* of a colour on white: that of the grey to which a printer turns it."""
    red_green_blue_alpha = np.array(to_rgba(colour, alpha))
    shown = red_green_blue_alpha[:3] * red_green_blue_alpha[3] + 1 - red_green_blue_alpha[3]
    linear = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


def appearance(handle: Any) -> tuple[tuple[Any, ...], float]:
    """Return how an entry of a legend is drawn apart from its colour, and its lightness."""
    from matplotlib.collections import LineCollection, PathCollection
    from matplotlib.container import BarContainer, ErrorbarContainer
    from matplotlib.lines import Line2D

    if isinstance(handle, ErrorbarContainer):
        handle = handle.lines[0]
    if isinstance(handle, Line2D):
        style = ("line", handle.get_linestyle(), handle.get_marker())
        return style, lightness(handle.get_color(), handle.get_alpha())
    if isinstance(handle, PathCollection):
        (path,) = handle.get_paths()
        return ("points", path.vertices.tobytes()), lightness(handle.get_facecolor()[0], None)  # type: ignore[union-attr]
    if isinstance(handle, LineCollection):
        return ("segments",), lightness(handle.get_color()[0], None)  # type: ignore[index]
    if isinstance(handle, BarContainer):
        handle = handle.patches[0]
    colour = np.atleast_2d(handle.get_facecolor())[0]
    return ("area", handle.get_hatch()), lightness(colour, None)


def score_plots() -> Iterator[Axes]:
    """Call the plots of scores, each with all its series."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    labels = (y > 0).astype(int)

    def new() -> Axes:
        return Figure().subplots()

    yield plots.pit_histogram(rng.uniform(size=200), new())
    yield plots.coverage_curve(rng.uniform(size=200), new())
    yield plots.sorted_intervals(y, y / 2, y / 2 - 1, y / 2 + 1, new())
    yield plots.epistemic_share(y, rng.uniform(size=200), new())
    yield plots.residuals(y, y, y / 2, "width", new())
    yield from plots.roc_and_precision_recall(rng.uniform(size=200), labels, Figure().subplots(1, 2))
    yield plots.reliability(rng.dirichlet(np.ones(3), size=(2, 5, 40)), rng.integers(0, 3, 40), new())


def too_alike(ax: Axes) -> list[tuple[str, str]]:
    """Return the pairs of a plot's series that cannot be told apart."""
    handles, names = ax.get_legend_handles_labels()
    series = [(name, *appearance(handle)) for name, handle in zip(names, handles, strict=True)]
    return [
        (one, other)
        for (one, drawn, grey), (other, drawn_too, other_grey) in itertools.combinations(series, 2)
        if drawn == drawn_too and abs(grey - other_grey) < LEAST_DIFFERENCE
    ]


@pytest.mark.parametrize("make", [lambda: all_plots(None), score_plots], ids=["plots", "scores"])
def test_series_differ_in_more_than_colour(make: Any) -> None:
    count = 0
    for ax in make():
        assert too_alike(ax) == []
        count += len(ax.get_legend_handles_labels()[0]) > 1
    assert count > 4


@pytest.mark.parametrize("draw", [plots.trace, plots.autocorrelation_plot])
def test_eight_chains_differ_in_more_than_colour(draw: Any) -> None:
    ax = draw(np.random.default_rng(0).normal(size=(8, 50)), ax=Figure().subplots())
    assert len(ax.get_legend_handles_labels()[0]) == 8 and too_alike(ax) == []


def test_the_check_finds_series_of_one_lightness() -> None:
    ax = Figure().subplots()
    # Two colours of Okabe and Ito that a colour-blind reader tells apart and a printer does not.
    ax.plot([0, 1], color=canvas.SKY, label="sky")
    ax.plot([1, 0], color=canvas.ORANGE, label="orange")
    ax.plot([1, 1], color=canvas.BLUE, label="blue")
    assert too_alike(ax) == [("sky", "orange")]
