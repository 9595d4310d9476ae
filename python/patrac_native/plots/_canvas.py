"""The parts that all plots share: palette, a new figure when none is given, legends below the axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ORANGE, SKY, GREEN, BLUE, VERMILION, PINK = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
PURPLE, GREY = "#5B2A86", "#666666"

#: Colours of a sequence of chains or models, Okabe and Ito's in an order that puts unlike ones side by side.
CYCLE = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, PURPLE, GREY)
#: Line styles that tell two models of one colour apart.
STYLES = ("-", "--", "-.", ":")

#: Width of one column of a two-column page, in inches, with the height that suits most of these plots.
COLUMN = (4.6, 3.4)


def axes_or_new(ax: Axes | None, figsize: tuple[float, float] = COLUMN) -> Axes:
    """`ax` itself, or the only axes of a new pyplot figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    _, new = plt.subplots(figsize=figsize, layout="constrained")
    return new


def tidy(ax: Axes, xlabel: str, ylabel: str) -> None:
    """Axis labels, and no frame on the sides that carry no scale."""
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.spines[["top", "right"]].set_visible(False)


def legend_below(ax: Axes, *, ncols: int, handles: list[Any] | None = None) -> None:
    """A frameless legend below the x label, placed in points so that it clears the label at any height of axes."""
    from matplotlib.transforms import ScaledTranslation

    figure: Any = ax.figure
    # Tick labels and the axis label together take a little over three lines of text.
    font: Any = ax.xaxis.label.get_fontsize()
    drop = ScaledTranslation(0.0, -3.6 * float(font) / 72.0, figure.dpi_scale_trans)
    options: dict[str, Any] = {} if handles is None else {"handles": handles}
    legend = ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=ax.transAxes + drop,
        ncols=ncols,
        frameon=False,
        fontsize="small",
        columnspacing=1.2,
        handlelength=1.8,
        borderaxespad=0.0,
        **options,
    )
    # Samples are drawn thin and translucent; their key is not.
    for handle in legend.get_lines():
        handle.set_alpha(1.0)
        handle.set_linewidth(max(1.4, float(handle.get_linewidth())))
