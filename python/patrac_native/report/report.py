"""A self-contained HTML report, and a JSON file of its numbers."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native.files.output import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Pixels per inch of the stored PNG and of its size on the page. The PNG is twice as fine, for high-resolution screens.
_PNG_DPI = 180
_PAGE_DPI = 90
# Width of a figure in inches that fills the page.
_PAGE_WIDTH = 10.5
# What stands for a letter that no font of a figure has.
_BOX = "\N{WHITE SQUARE}"
# The colour of each grade of a verdict.
_COLOURS = {"good": "green", "look": "amber", "do not use": "red"}


class Report:
    """Collects paragraphs, tables and figures, and writes them as one HTML file without external resources.

    All text is escaped, so that data set names and category labels may contain any characters.

    Parameters
    ----------
    title : str
        Heading of the page and title of the file.

    Examples
    --------
    >>> report = Report("A run")
    >>> report.heading("Scores")
    >>> report.table(["model", "RMSE"], [["Mix(5)", 2.08], ["network", 2.1]])
    >>> report.write("report.html")  # doctest: +SKIP
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[dict[str, Any]] = []

    def text(self, text: str) -> None:
        """Add a paragraph; line breaks are kept, and there is no other markup."""
        self._parts.append({"kind": "text", "text": text})

    def banner(self, grade: str, text: str) -> None:
        """Add a coloured box with a verdict, which also says its colour.

        Parameters
        ----------
        grade : {"good", "look", "do not use"}
        text : str
            Line breaks are kept.

        Raises
        ------
        ValueError
            If the grade is another.
        """
        if grade not in _COLOURS:
            raise ValueError(f"grade must be one of {', '.join(_COLOURS)}; got {grade!r}.")
        self._parts.append({"kind": "banner", "colour": _COLOURS[grade], "grade": grade, "text": text})

    def heading(self, text: str, level: int = 2) -> None:
        """Add a heading of level 2, which the table of contents lists, or 3.

        Raises
        ------
        ValueError
            If the level is neither 2 nor 3.
        """
        if level not in (2, 3):
            raise ValueError(f"level of a heading must be 2 or 3; got {level}.")
        self._parts.append({"kind": "heading", "text": text, "level": level, "anchor": f"part-{len(self._parts)}"})

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[Any]], caption: str | None = None) -> None:
        """Add a table; numbers are shown with four digits, None and NaN as a dash, columns of numbers right-aligned.

        Parameters
        ----------
        headers : sequence of str
        rows : sequence of sequences
            The cells of each row, one for each header; strings are shown unchanged.
        caption : str, optional
            Caption above the table.

        Raises
        ------
        ValueError
            If the number of cells of a row is not that of the headers.
        """
        for index, row in enumerate(rows):
            if len(row) != len(headers):
                raise ValueError(f"rows[{index}] has {len(row)} cells, but there are {len(headers)} headers.")
        cells = [[format_number(cell) for cell in row] for row in rows]
        numeric = [all(_looks_numeric(row[column]) for row in cells) for column in range(len(headers))]
        self._parts.append(
            {"kind": "table", "headers": list(headers), "rows": cells, "numeric": numeric, "caption": caption}
        )

    def figure(self, fig: Figure, caption: str) -> None:
        """Add a matplotlib figure as an embedded PNG, and close it.

        Parameters
        ----------
        fig : matplotlib Figure
        caption : str
            Caption below the figure; also its description for screen readers.

        Warns
        -----
        UserWarning
            If no font of the figure has some letters, such as Chinese ones in the names of columns.
        """
        _take_dollars_literally(fig)
        stream = io.BytesIO()
        missing = _box_missing_letters(fig)
        if missing:
            warnings.warn(
                f"figures show a box for {', '.join(map(repr, missing[:10]))}{', ...' if len(missing) > 10 else ''}, "
                "which matplotlib's font lacks; the text of the report has the names in full",
                UserWarning,
                stacklevel=2,
            )
        fig.savefig(stream, format="png", dpi=_PNG_DPI, facecolor="white", metadata={"Software": None})
        # pyplot keeps its figures in memory until they are closed.
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close(fig)
        self._parts.append(
            {
                "kind": "figure",
                "data": base64.b64encode(stream.getvalue()).decode("ascii"),
                "width": round(fig.get_figwidth() * _PAGE_DPI),
                "caption": caption,
            }
        )

    def preformatted(self, text: str) -> None:
        """Add text in a fixed-width font; line breaks are kept."""
        self._parts.append({"kind": "preformatted", "text": text})

    def html(self) -> str:
        """Return the page as HTML."""
        from jinja2 import Environment, StrictUndefined

        source = files("patrac_native.report").joinpath("report.html.j2").read_text(encoding="utf-8")
        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        return environment.from_string(source).render(
            title=self.title,
            parts=self._parts,
            contents=[part for part in self._parts if part["kind"] == "heading" and part["level"] == 2],
            footer=f"patrac_native {version('patrac_native')}, {datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, replacing an existing one; if writing fails, the existing file is left unchanged.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        _write_text(path, self.html())


def write_json(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write results as strict JSON: NumPy scalars and arrays become numbers and lists, NaN and infinity become null.

    Parameters
    ----------
    path : path-like
        Path of the file. An existing file is replaced; if writing fails, it is left unchanged.
    content : mapping
        Maps strings to numbers, strings, Booleans, None, arrays, sequences, paths and further mappings.

    Raises
    ------
    TypeError
        If there is a value of another type; the message names its position.
    OSError
        If the file cannot be written.
    """
    _write_text(path, json.dumps(_plain(content, "content"), indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def page_figure(height: float) -> Figure:
    """Return an empty matplotlib figure as wide as the page, of a height in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(_PAGE_WIDTH, height), layout="constrained")


def format_number(cell: Any) -> str:
    """Return a table cell as text: four digits for numbers, separators for integers, a dash for None and NaN."""
    if cell is None:
        return "-"
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else "no"
    if isinstance(cell, int | np.integer):
        return f"{int(cell):,}"
    if isinstance(cell, float | np.floating):
        value = float(cell)
        if math.isnan(value):
            return "-"
        # Powers of ten are hard to compare in a column: numbers from 10,000 on are rounded and have separators.
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"
    return str(cell)


def _take_dollars_literally(fig: Figure) -> None:
    """Let names with dollar signs stand as they are; of formulas there are only the powers of ten at an axis."""
    from matplotlib.text import Text

    for text in fig.findobj(Text):
        if "$" in text.get_text() and r"\mathdefault" not in text.get_text():
            text.set_parse_math(False)


def _box_missing_letters(fig: Figure) -> list[str]:
    """Replace letters that the fonts of a figure lack by boxes, as matplotlib would with a warning; return them."""
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.text import Text

    missing: dict[str, None] = {}

    def boxed(text: str, like: Text) -> str:
        if text.isascii():
            return text
        fonts = [get_font(findfont(FontProperties(family=[name]))) for name in like.get_fontfamily()]
        lacked = {one for one in text if one.isprintable() and not any(font.get_char_index(ord(one)) for font in fonts)}
        missing.update(dict.fromkeys(one for one in text if one in lacked))
        return "".join(_BOX if one in lacked else one for one in text)

    for text in fig.findobj(Text):
        text.set_text(boxed(text.get_text(), text))
    for axis in (axis for axes in fig.axes for axis in (axes.xaxis, axes.yaxis)):
        labels = [label.get_text() for label in axis.get_ticklabels()]
        shown = [boxed(label, axis.label) for label in labels]
        if shown != labels:
            axis.set_ticks(axis.get_ticklocs(), shown)
    return list(missing)


def _looks_numeric(text: str) -> bool:
    """Return whether a cell is empty, a dash, or a number, perhaps with a percent sign or separators."""
    if text in ("", "-"):
        return True
    try:
        float(text.replace(",", "").removesuffix("%").strip())
    except ValueError:
        return False
    return True


def _plain(value: Any, where: str) -> Any:
    """Convert `value` to types that JSON supports; `where` is its position, for the error message."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}[{str(key)!r}]") for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist(), where)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{where} must be a number, text, array, sequence or mapping; got {type(value).__name__}.")


def _write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, which takes the place of an existing one only when it is complete."""
    with replacing(path, size=len(text)) as stream:
        stream.write(text)
