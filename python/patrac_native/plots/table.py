"""Small tables in HTML for notebooks: plain text in two columns, without colours or scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

# Labels and values in two columns.
Rows = Sequence[tuple[str, str]]

_CELL = 'style="text-align: left; vertical-align: top; white-space: pre-line"'


def html_table(title: str, rows: Rows, *, after: str = "") -> str:
    """Return a table of labels and values, plain text that is escaped, and `after`, HTML that follows it."""
    cells = [(escape(label), escape(value)) for label, value in rows]
    body = "".join(f"<tr><th {_CELL}>{label}</th><td {_CELL}>{value}</td></tr>" for label, value in cells)
    return f"<div><p><b>{escape(title)}</b></p><table><tbody>{body}</tbody></table>{after}</div>"


def html_list(title: str, items: Iterable[str]) -> str:
    """Return a title in bold and a list of items, all escaped."""
    points = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<p><b>{escape(title)}</b></p>" + (f"<ul>{points}</ul>" if points else "")
