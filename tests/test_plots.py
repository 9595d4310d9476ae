"""Tests of the plots: each returns the given `ax`, draws what it documents, and rejects invalid data."""

from collections.abc import Iterator
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import binom

from patrac_native import diagnostics as dg
from patrac_native import plots
from patrac_native.plots import _canvas as canvas
from patrac_native.plots.calibration import _reflected_density
from patrac_native.plots.chains import _envelope
from scripts import output_of

matplotlib.use("Agg")


@pytest.fixture
def ax() -> Axes:
    """Return the axes of a figure that was made without pyplot."""
    figure = Figure(figsize=canvas.COLUMN, layout="constrained")
    FigureCanvasAgg(figure)
    return figure.subplots()


@pytest.fixture(autouse=True)
def no_open_figures() -> Iterator[None]:
    """With a given `ax`, no function may leave a figure in pyplot; tests close the figures that they create."""
    settings = dict(matplotlib.rcParams)
    yield
    assert plt.get_fignums() == []
    assert dict(matplotlib.rcParams) == settings


def function_case() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(1)
    x = rng.uniform(-5, 5, 30)
    return x, np.sin(x)[None, None, :, None] + rng.normal(0, 0.2, (2, 60, 30, 1))


def class_case() -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(3), size=(2, 5, 200))
    return p, rng.integers(0, 3, 200)


def lines_of(ax: Axes, colour: str, style: str) -> list[Any]:
    return [
        line for line in ax.get_lines() if to_hex(line.get_color()).upper() == colour and line.get_linestyle() == style
    ]


def legend_texts(ax: Axes) -> list[str]:
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def all_plots(ax: Axes | None) -> Iterator[Axes]:
    """Call every plotting function once, on `ax`."""
    x, f = function_case()
    p, y = class_case()
    rng = np.random.default_rng(3)
    chains = rng.standard_normal((3, 50))
    yield plots.posterior_bands(
        x, f, truth=np.sin(x), data=(x[:5], np.sin(x[:5])), map_fit=np.sin(x), y_interval=(x - 2, x + 2), ax=ax
    )
    yield plots.coverage_boxplot(
        {"Full": rng.uniform(size=(20, 3)), "Sep": rng.uniform(size=3)}, [0.99, 0.95, 0.65], ax
    )
    yield plots.trace(chains, label="log-likelihood", warmup=10, ax=ax)
    yield plots.pit_density({"Full": rng.uniform(size=100), "Sep": rng.uniform(size=(50, 2))}, ax)
    yield plots.autocorrelation_plot(dg.autocorrelation(chains, 20), ax)
    yield plots.reliability(p, y, ax)
    yield plots.predicted_vs_observed(chains[0], chains[1], chains[1] - 2, chains[1] + 2, ax)


def test_every_plot_returns_its_ax_and_draws(ax: Axes) -> None:
    plain = Figure().subplots()
    for returned in all_plots(ax):
        assert returned is ax
        assert ax.get_xlabel() and ax.get_ylabel() and legend_texts(ax)
        ax.figure.canvas.draw()
        ax.clear()
        ax.spines[["top", "right"]].set_visible(True)
        assert ax.get_lines() == plain.get_lines()[:] == []


def test_a_new_figure_is_made_without_ax() -> None:
    for returned in all_plots(None):
        assert plt.get_fignums() != []
        figure: Any = returned.figure
        figure.canvas.draw()
        plt.close(figure)


def test_legends_stay_below_the_data_and_inside_the_figure(ax: Axes) -> None:
    figure: Any = ax.figure
    for _ in all_plots(ax):
        figure.canvas.draw()
        legend = ax.get_legend()
        assert legend is not None
        box, frame = legend.get_window_extent(), ax.get_window_extent()
        label = ax.xaxis.label.get_window_extent()
        assert box.y1 <= label.y0 + 1 and label.y1 <= frame.y0  # one pixel for rounding of text boxes
        assert box.y0 >= 0
        ax.clear()


def test_plots_need_neither_pyplot_nor_matplotlib_until_called() -> None:
    code = """
import sys
from patrac_native import plots
heavy = [name for name in ("matplotlib", "scipy", "arviz_stats", "torch") if name in sys.modules]
assert heavy == [], heavy
from matplotlib.figure import Figure
plots.trace([[1.0, 2.0, 3.0]], ax=Figure().subplots())
assert "matplotlib.pyplot" not in sys.modules
"""
    output_of(code)


def test_posterior_bands_draws_what_figure_2_has(ax: Axes) -> None:
    x, f = function_case()
    plots.posterior_bands(x, f, truth=np.sin(x), data=(x, np.cos(x)), map_fit=np.cos(x), n_draws=40, ax=ax)
    order = np.argsort(x)
    draws = lines_of(ax, canvas.ORANGE, "-")
    assert len(draws) == 40
    pooled = f[..., 0].reshape(120, 30)[:, order]
    for line in draws:
        assert (pooled == line.get_ydata()).all(axis=1).any()
    # From the first draw of the first chain to the last draw of the last.
    np.testing.assert_array_equal(draws[0].get_ydata(), pooled[0])
    np.testing.assert_array_equal(draws[-1].get_ydata(), pooled[-1])
    lower, upper = dg.credible_interval(f, 0.95)
    ends = lines_of(ax, canvas.PURPLE, "--")
    np.testing.assert_array_equal(ends[0].get_ydata(), lower[order, 0])
    np.testing.assert_array_equal(ends[1].get_ydata(), upper[order, 0])
    (true,) = lines_of(ax, canvas.GREEN, ":")
    np.testing.assert_array_equal(true.get_xdata(), x[order])
    np.testing.assert_array_equal(true.get_ydata(), np.sin(x[order]))
    (fit,) = lines_of(ax, canvas.BLUE, "-")
    np.testing.assert_array_equal(fit.get_ydata(), np.cos(x[order]))
    np.testing.assert_array_equal(np.asarray(ax.collections[0].get_offsets()), np.stack([x, np.cos(x)], axis=1))
    assert legend_texts(ax) == ["40 draws", "95% interval", "network", "true mean", "data"]


def test_the_interval_of_new_observations_is_a_band_behind_all_lines(ax: Axes) -> None:
    x, f = function_case()
    plots.posterior_bands(x, f, y_interval=(x - 2, x[:, None] + 2), ax=ax)
    (band,) = ax.collections
    corners = np.asarray(band.get_paths()[0].vertices)
    for at in x:
        assert {at - 2, at + 2} <= set(corners[corners[:, 0] == at, 1])
    assert all(band.get_zorder() < line.get_zorder() for line in ax.get_lines())
    assert "interval of y" in legend_texts(ax)


def test_posterior_bands_options_and_messages(ax: Axes) -> None:
    x, f = function_case()
    both = np.concatenate([f, f + 10], axis=3)
    plots.posterior_bands(x[:, None], both, output=1, n_draws=1000, coverage=0.5, legend=False, ax=ax)
    assert len(lines_of(ax, canvas.ORANGE, "-")) == 120 and ax.get_legend() is None
    assert min(line.get_ydata().min() for line in lines_of(ax, canvas.PURPLE, "--")) > 5
    calls: list[tuple[dict[str, Any], str]] = [
        ({"x": np.stack([x, x], axis=1)}, r"x must have one column, shape \(n,\) or \(n, 1\), got \(30, 2\)"),
        ({"x": x[:9]}, r"x has 9 rows but f has 30"),
        ({"f": f[0]}, r"f must have shape \(chain, draw, n, m\)"),
        ({"truth": x[:3]}, "truth must have 30 rows, got 3"),
        ({"y_interval": (x, x[:2])}, r"y_interval\[1\] must have 30 rows, got 2"),
        ({"data": (x, x[:2])}, r"data\[1\] must have 30 rows, got 2"),
        ({"output": 1}, r"output must be in 0..0; got 1"),
        ({"n_draws": -1}, "n_draws must not be negative"),
    ]
    for change, message in calls:
        with pytest.raises(ValueError, match=message):
            arguments: dict[str, Any] = {"x": x, "f": f, "ax": ax, **change}
            plots.posterior_bands(**arguments)


def test_coverage_boxplot_has_a_box_for_each_model_and_target(ax: Axes) -> None:
    rng = np.random.default_rng(4)
    full, sep = rng.uniform(0.6, 1.0, (9, 3)), rng.uniform(0.4, 0.8, (3, 3))
    plots.coverage_boxplot({"Full": full, "Sep_2": sep}, [0.99, 0.95, 0.65], ax)
    boxes = [patch for patch in ax.patches if to_hex(patch.get_facecolor()).upper() == canvas.BLUE]
    assert len(boxes) == 3
    # Groups run from the 65% target to the 99% one, whatever the order given.
    assert [text.get_text() for text in ax.get_xticklabels()] == ["65%", "95%", "99%"]
    medians = [np.asarray(line.get_ydata())[0] for line in ax.get_lines() if line.get_linewidth() == 1.1]
    np.testing.assert_array_equal(medians, np.median(full, axis=0)[::-1])
    points, targets = ax.collections
    np.testing.assert_array_equal(np.asarray(points.get_offsets())[:, 1], sep[:, ::-1].ravel())
    segments: Any = targets
    np.testing.assert_allclose([s[0, 1] for s in segments.get_segments()], [0.65, 0.95, 0.99], rtol=1e-15)
    assert legend_texts(ax) == ["Full", "Sep_2", "target"]
    with pytest.raises(ValueError, match=r"coverages\['Full'\] must have shape \(replicates, 2\).*got \(9, 3\)"):
        plots.coverage_boxplot({"Full": full}, [0.99, 0.95], ax)
    with pytest.raises(ValueError, match=r"coverages\['Full'\] must lie in \[0, 1\], got 60"):
        plots.coverage_boxplot({"Full": np.full((9, 3), 60.0)}, [0.99, 0.95, 0.65], ax)
    with pytest.raises(ValueError, match="coverages is empty"):
        plots.coverage_boxplot({}, [0.99], ax)


def test_trace_draws_each_chain_and_shades_the_warmup(ax: Axes) -> None:
    values = np.random.default_rng(5).standard_normal((3, 40))
    plots.trace(values, label="log prior", warmup=15, ax=ax)
    lines = ax.get_lines()
    assert [line.get_color() for line in lines] == list(canvas.CYCLE[:3])
    np.testing.assert_array_equal([line.get_ydata() for line in lines], values)
    assert ax.get_ylabel() == "log prior"
    assert ax.patches[0].get_extents().transformed(ax.transData.inverted()).x1 == pytest.approx(15, rel=1e-12)
    assert legend_texts(ax) == ["chain 1", "chain 2", "chain 3", "warm-up"]
    for bad, message in (
        (values[0], r"values must have shape \(chain, draw\), got \(40,\)"),
        (values[..., None], "got"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.trace(bad, ax=ax)
    with pytest.raises(ValueError, match=r"warmup must be in 0..40, the draws of a chain, got 41"):
        plots.trace(values, warmup=41, ax=ax)


def test_long_traces_keep_their_extremes_at_a_fixed_size() -> None:
    series = np.random.default_rng(6).standard_normal(100_003)
    at, shown = _envelope(series)
    assert at.size == shown.size == 3000 and (np.diff(at) >= 0).all() and at[-1] < series.size
    assert shown.max() == series.max() and shown.min() == series.min()
    # Each stretch holds its own extremes.
    edges = np.append(at[::2].astype(int), series.size)
    assert shown[501] == series[edges[250] : edges[251]].max() and shown[500] == series[edges[250] : edges[251]].min()
    np.testing.assert_array_equal(_envelope(series[:3000])[1], series[:3000])


def test_trace_panel_is_the_papers_four(ax: Axes) -> None:
    rng = np.random.default_rng(7)
    likelihood, prior, weight, f = (rng.standard_normal((2, 30)) + shift for shift in (-150.0, -30.0, 1.0, 5.0))
    four = (likelihood, prior, weight, f)
    axes = plots.trace_panel(*four, point="-2", warmup=10)
    assert axes.shape == (4,)
    labels = [panel.get_ylabel() for panel in axes]
    assert labels == ["log-likelihood", "log prior", "first output weight", "f(-2) less its mean"]
    np.testing.assert_array_equal(axes[1].get_lines()[1].get_ydata(), four[1][1])
    np.testing.assert_array_equal(axes[3].get_lines()[0].get_ydata(), four[3][0] - four[3][:, 10:].mean())
    plt.close(axes[0].figure)
    own = Figure().subplots(4)
    assert [a is b for a, b in zip(plots.trace_panel(*four, axes=own), own, strict=True)] == [True] * 4
    with pytest.raises(ValueError, match="axes must hold four Axes, got 1"):
        plots.trace_panel(*four, axes=[ax])


def test_pit_density_is_a_density_reflected_at_the_ends(ax: Axes) -> None:
    n = 20_000
    u = np.random.default_rng(8).uniform(size=n)
    plots.pit_density({"Full": u}, ax)
    reference, line = ax.get_lines()
    assert np.asarray(reference.get_ydata()).tolist() == [1.0, 1.0]
    # Variance of a kernel density at a point of a uniform sample: 1/(2 sqrt(pi) n h), twice that at a reflecting end;
    # neighbouring points within h are one look, so about 1/h looks are taken: 5 standard errors.
    h = 0.9 * min(u.std(), np.subtract(*np.quantile(u, [0.75, 0.25])) / 1.34) * n**-0.2
    assert np.abs(np.asarray(line.get_ydata()) - 1).max() < 5 * np.sqrt(1 / (np.sqrt(np.pi) * n * h))
    # A density reflected at both ends has no slope there, so the trapezoid rule errs by far less than (step / h)^4; the
    # widest kernel here has h = 0.28, and the images left out lie two units, seven of its bandwidths, away.
    at = np.linspace(0, 1, 2001)
    for sample in (u[:50], u**3, np.zeros(10), np.repeat([0.0, 1.0], 5)):
        assert np.trapezoid(_reflected_density(sample, at), at) == pytest.approx(1, abs=(0.0005 / 0.015) ** 4)
    # A direct sum over the sample, not over bins: shifts of at most half a bin, 1/1024, change each kernel by at most
    # shift / h * max|phi'| / h, and only values within a few h count.
    few = np.random.default_rng(9).beta(2, 5, 200)
    width = 0.9 * min(few.std(), np.subtract(*np.quantile(few, [0.75, 0.25])) / 1.34) * 200**-0.2
    distance = at[:, None] - np.concatenate([few, -few, 2 - few])
    direct = np.exp(-0.5 * (distance / width) ** 2).sum(axis=1) / (200 * width * np.sqrt(2 * np.pi))
    bound = 3 * np.exp(-0.5) / np.sqrt(2 * np.pi) / width**2 / 1024
    assert np.abs(_reflected_density(few, at) - direct).max() < bound
    with pytest.raises(ValueError, match=r"pits\['Sep'\] must lie in \[0, 1\], got 0 to 2"):
        plots.pit_density({"Sep": [0.0, 2.0]}, ax)
    with pytest.raises(ValueError, match="pits is empty"):
        plots.pit_density({}, ax)


def test_autocorrelation_plot_has_a_zero_line_and_skips_stuck_chains(ax: Axes) -> None:
    rho = np.array([[1.0, 0.5, 0.2], [np.nan] * 3, [1.0, 0.4, 0.1]])
    plots.autocorrelation_plot(rho, ax, max_lag=1)
    zero, first, third = ax.get_lines()
    assert np.asarray(zero.get_ydata()).tolist() == [0.0, 0.0]
    assert np.asarray(first.get_ydata()).tolist() == [1.0, 0.5] and np.asarray(third.get_ydata()).tolist() == [1.0, 0.4]
    assert legend_texts(ax) == ["chain 1", "chain 3"]
    ax.clear()
    plots.autocorrelation_plot(rho[0], ax)
    assert len(ax.get_lines()) == 2 and ax.get_legend() is None
    with pytest.raises(ValueError, match=r"rho must have shape \(chain, lag\) or \(lag,\), got \(1, 3, 3\)"):
        plots.autocorrelation_plot(rho[None], ax)
    with pytest.raises(ValueError, match="max_lag must be at least 1, got 0"):
        plots.autocorrelation_plot(rho, ax, max_lag=0)


def test_reliability_shows_the_bins_of_the_ece(ax: Axes) -> None:
    p, y = class_case()
    plots.reliability(p, y, ax, n_bins=8)
    bins = dg.calibration_bins(p, y, 8)
    used = bins.n_rows > 0
    diagonal, observed, few = ax.get_lines()
    assert np.asarray(diagonal.get_xdata()).tolist() == np.asarray(diagonal.get_ydata()).tolist() == [0, 1]
    for line, rows in ((observed, used & (bins.n_rows >= 10)), (few, used & (bins.n_rows < 10))):
        np.testing.assert_array_equal(line.get_xdata(), bins.confidence[rows])
        np.testing.assert_array_equal(line.get_ydata(), bins.accuracy[rows])
    assert few.get_color() == "#666666" and "fewer than 10 rows" in legend_texts(ax)
    heights = [patch.get_height() for patch in ax.patches]  # type: ignore[attr-defined]  # bars are Rectangles
    np.testing.assert_array_equal(heights, bins.n_rows / 200)
    assert f"observed (ECE {dg.ece(p, y, 8):.3f})" in legend_texts(ax)


def test_pit_histogram_and_coverage_count_rows(ax: Axes) -> None:
    pit = np.array([0.05, 0.15, 0.16, 0.5, 0.95, 1.0, 0.45, 0.55])
    plots.pit_histogram(pit, ax, n_bins=5)
    bars = [patch.get_height() for patch in ax.patches if patch.get_width() < 0.5]  # type: ignore[attr-defined]
    assert bars == [3, 0, 3, 0, 2]
    low, high = binom.interval(0.95, 8, 0.2)
    assert [ax.patches[-1].get_y(), ax.patches[-1].get_height()] == [low, high - low]  # type: ignore[attr-defined]
    ax.clear()
    plots.coverage_curve(pit, ax)
    nominal, observed = (np.asarray(values) for values in ax.get_lines()[1].get_data())
    for level, share in zip(nominal, observed, strict=True):
        assert share == np.mean(2 * np.abs(pit - 0.5) <= level)
    for plot in (plots.pit_histogram, plots.coverage_curve):
        with pytest.raises(ValueError, match=r"pit must lie in \[0, 1\], got 0 to 2"):
            plot([0.0, 2.0], ax)


def test_sorted_intervals_and_residuals(ax: Axes) -> None:
    mean = np.array([3.0, 1.0, 2.0])
    y = np.array([3.1, 9.0, 2.0])
    plots.sorted_intervals(y, mean, mean - 1, mean + 1, ax)
    assert np.asarray(ax.get_lines()[0].get_ydata()).tolist() == [1, 2, 3]
    inside, outside = (np.asarray(part.get_offsets()).tolist() for part in ax.collections[1:])
    assert inside == [[1, 2], [2, 3.1]] and outside == [[0, 9]]
    ax.clear()
    plots.sorted_intervals(y, mean, mean - 1, mean + 1, ax, errors=([0.3, 0.1, 0.2], [0.6, 0.4, 0.5]))
    bars = [[np.asarray(one)[:, 1].tolist() for one in part.get_segments()] for part in ax.collections[1:3]]  # type: ignore[attr-defined]
    np.testing.assert_allclose(bars, [[[-0.1, 0.1], [0.8, 1.2], [1.7, 2.3]], [[1.6, 2.4], [2.5, 3.5], [3.4, 4.6]]])
    assert "rerun error of its ends" in legend_texts(ax)
    ax.clear()
    plots.residuals([1.0, 2.0, 3.0], y, mean, "width", ax)
    np.testing.assert_allclose(np.asarray(ax.collections[0].get_offsets())[:, 1], y - mean)
    with pytest.raises(ValueError, match="must have one length"):
        plots.residuals([1.0], y, mean, "width", ax)


def test_the_epistemic_share_of_each_row(ax: Axes) -> None:
    plots.epistemic_share([1.0, 2.0], [0.25, 0.75], ax)
    assert np.asarray(ax.collections[0].get_offsets()).tolist() == [[1, 0.25], [2, 0.75]]
    assert "mean 50.0%" in legend_texts(ax)
    with pytest.raises(ValueError, match=r"share must lie in \[0, 1\]"):
        plots.epistemic_share([1.0], [1.5], ax)


def test_confusion_of_many_classes_can_be_read(ax: Axes) -> None:
    plots.confusion(np.eye(21, dtype=int), range(21), ax)
    assert not ax.texts and [label.get_text() for label in ax.get_xticklabels()] == [str(name) for name in range(21)]
    ax.clear()
    plots.confusion(np.eye(100, dtype=int), range(100), ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == [str(name) for name in range(0, 100, 4)]


def test_confusion_shows_counts(ax: Axes) -> None:
    plots.confusion([[3, 1], [0, 4]], ["a", "b"], ax)
    assert [text.get_text() for text in ax.texts] == ["3", "1", "0", "4"]
    np.testing.assert_allclose(ax.images[0].get_array(), [[0.75, 0.25], [0, 1]])
    with pytest.raises(ValueError, match=r"counts must have shape \(3, 3\)"):
        plots.confusion([[3, 1], [0, 4]], ["a", "b", "c"], ax)


def test_roc_and_precision_recall_are_those_of_pairs() -> None:
    """The area is the share of pairs in which the row of class 1 has the larger probability, ties counted half."""
    rng = np.random.default_rng(3)
    score, y = rng.integers(0, 8, 60) / 8, rng.integers(0, 2, 60)
    left, right = plots.roc_and_precision_recall(score, y, Figure().subplots(1, 2))
    gap = score[y == 1][:, None] - score[y == 0]
    assert f"area {((gap > 0) + 0.5 * (gap == 0)).mean():.3f}" in legend_texts(left)
    recall, precision = (np.asarray(values) for values in right.get_lines()[0].get_data())
    for level in np.unique(score):
        accepted = score >= level
        found = np.flatnonzero(np.isclose(recall, y[accepted].sum() / y.sum()))
        assert np.isclose(precision[found], y[accepted].mean()).any()
    with pytest.raises(ValueError, match="both must occur"):
        plots.roc_and_precision_recall(score, np.ones(60), Figure().subplots(1, 2))


def test_predicted_vs_observed_marks_the_misses(ax: Axes) -> None:
    y, mean = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.5, 1.5, 2.5, 9.0])
    plots.predicted_vs_observed(y, mean, mean - 1, mean + 1, ax)
    bars_in, inside, bars_out, outside = ax.collections
    np.testing.assert_array_equal(np.asarray(inside.get_offsets()), np.stack([y, mean], axis=1)[:3])
    np.testing.assert_array_equal(np.asarray(outside.get_offsets()), [[3.0, 9.0]])
    segments: list[Any] = [bars_in, bars_out]
    np.testing.assert_array_equal(segments[1].get_segments(), [[[3.0, 8.0], [3.0, 10.0]]])
    assert len(segments[0].get_segments()) == 3
    assert legend_texts(ax) == ["inside the interval (75.0%)", "outside (25.0%)", "equal"]
    with pytest.raises(ValueError, match=r"lo must not exceed hi, got 1.5 > -0.5 in row 0"):
        plots.predicted_vs_observed(y, mean, mean + 1, mean - 1, ax)
    with pytest.raises(ValueError, match="y, mean, lo, hi must have one length, got 4, 2, 4, 4"):
        plots.predicted_vs_observed(y, mean[:2], mean, mean, ax)


def test_predicted_vs_observed_thins_many_rows_and_spreads_counts(ax: Axes) -> None:
    rng = np.random.default_rng(10)
    y = rng.poisson(9, 5000).astype(float)
    plots.predicted_vs_observed(y, y + rng.normal(0, 1, 5000), y - 2, y + 2, ax, max_rows=600)
    points = np.concatenate([np.asarray(c.get_offsets()) for c in ax.collections[1::2]])
    assert len(points) == 600
    assert len(np.unique(points[:, 0])) > 500  # counts no longer share their place
    assert np.abs(points[:, 0] - points[:, 0].round()).max() <= 0.35  # and none strays to its neighbour
    assert legend_texts(ax)[0] == "inside the interval (100.0%)"
