"""What all plots share: checks of their arrays, the palette, a new figure if none is given, legends below the axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.diagnostics._arrays import FloatArray, numeric

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


def column(name: str, value: ArrayLike) -> FloatArray:
    """Return `value` of shape (n,) or (n, 1) as float64 (n,); raise ValueError for another shape."""
    array = numeric(name, value).astype(np.float64, copy=False)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must have one column, shape (n,) or (n, 1), got {array.shape}; plot one at a time")
    return array


def columns(**arrays: ArrayLike) -> list[FloatArray]:
    """Return arrays by `column`; raise ValueError unless they have one length."""
    found = [column(name, value) for name, value in arrays.items()]
    sizes = [array.size for array in found]
    if len(set(sizes)) > 1:
        raise ValueError(f"{', '.join(arrays)} must have one length, got {', '.join(map(str, sizes))}")
    return found


def unit(name: str, value: ArrayLike) -> FloatArray:
    """Return numbers in [0, 1] as float64; raise ValueError for others."""
    array: FloatArray = numeric(name, value).astype(np.float64)
    if array.min() < 0 or array.max() > 1:
        raise ValueError(f"{name} must lie in [0, 1], got {array.min():g} to {array.max():g}")
    return array


def evenly(size: int, count: int) -> NDArray[np.intp]:
    """Return at most `count` of the indices 0..size-1, evenly spaced."""
    return np.linspace(0, size - 1, min(count, size)).round().astype(np.intp)


def opacity(rows: int) -> float:
    """Return the opacity of the marks of rows: the fewer there are, the more opaque they can be."""
    return float(np.clip(150 / rows, 0.15, 0.7))


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


def finish(
    ax: Axes, xlabel: str, ylabel: str, *, ncols: int, legend: bool = True, handles: list[Any] | None = None
) -> Axes:
    """Return `ax`, made tidy, with a frameless legend below the x label, whatever the height of the axes."""
    tidy(ax, xlabel, ylabel)
    if not legend:
        return ax
    from matplotlib.transforms import ScaledTranslation

    figure: Any = ax.figure
    # Tick labels and axis label together are a little over three lines of text high.
    font: Any = ax.xaxis.label.get_fontsize()
    drop = ScaledTranslation(0.0, -3.6 * float(font) / 72.0, figure.dpi_scale_trans)
    options: dict[str, Any] = {} if handles is None else {"handles": handles}
    drawn = ax.legend(
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
    for handle in drawn.get_lines():
        handle.set_alpha(1.0)
        handle.set_linewidth(max(1.4, float(handle.get_linewidth())))
    return ax
