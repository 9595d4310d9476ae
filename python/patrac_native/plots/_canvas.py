"""Functions that all plots share: the palette, a new figure if none is given, legends below the axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ORANGE, SKY, GREEN, BLUE, VERMILION, PINK = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
PURPLE, GREY = "#5B2A86", "#666666"

#: Colours for a sequence of chains or models: those of Okabe and Ito, ordered so that neighbours differ clearly. The
#: first four differ in lightness too (46, 71, 58 and 28 of 100).
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, PINK, GREY)
#: Line styles that distinguish models of the same colour.
STYLES = ("-", "--", "-.", ":")

#: Default size of a figure in inches: one column of a two-column page, and a height that suits most of the plots.
COLUMN = (4.6, 3.4)


def axes_or_new(ax: Axes | None, figsize: tuple[float, float] = COLUMN) -> Axes:
    """Return `ax`, or the axes of a new pyplot figure if it is None; raise TypeError if it is neither."""
    if ax is not None:
        from matplotlib.axes import Axes

        if not isinstance(ax, Axes):
            raise TypeError(f"ax must be matplotlib Axes, such as plt.subplots()[1], or None; got {ax!r}.")
        return ax
    import matplotlib.pyplot as plt

    _, new = plt.subplots(figsize=figsize, layout="constrained")
    return new


def line_of_chain(chain: int) -> dict[str, Any]:
    """Return colour and style of a chain's line: the first four, then two each of one style, differ in lightness."""
    return {"color": CYCLE[chain % len(CYCLE)], "linestyle": STYLES[max(0, chain // 2 - 1) % len(STYLES)]}


def tidy(ax: Axes, xlabel: str, ylabel: str) -> None:
    """Set the axis labels, and remove the frame on the sides without a scale.

    Parameters
    ----------
    ax : matplotlib Axes
    xlabel, ylabel : str
    """
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.spines[["top", "right"]].set_visible(False)


def legend_below(ax: Axes, *, ncols: int, handles: list[Any] | None = None) -> None:
    """Draw a frameless legend below the x label, at a distance in points, whatever the height of the axes."""
    from matplotlib.transforms import ScaledTranslation

    figure: Any = ax.figure
    # Tick labels and axis label together are a little over three lines of text high.
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
    # Draws are plotted as thin, translucent lines; their legend entries are opaque and thicker.
    for handle in legend.get_lines():
        handle.set_alpha(1.0)
        handle.set_linewidth(max(1.4, float(handle.get_linewidth())))
