"""The tables of the pages, made from the records in bench/results/: `python bench/page_tables.py` writes them.

A page has the line `<!-- table: FOLDER/RECORD:TABLE -->`, and `<!-- end of table -->` below it; what stands between is
replaced. A cell of a record may quote a cell of another: `{FOLDER/RECORD:TABLE|ROW|COLUMN}`, ROW being the words of its
first column. `--check` writes nothing and fails if a page differs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
MARKED = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
QUOTED = re.compile(r"\{([a-z0-9_]+/[a-z0-9_]+:[a-z0-9_]+)\|([^|}]+)\|([^|}]+)\}")


@cache
def record(name: str) -> dict[str, Any]:
    """Return a record; its numbers keep the digits that they were written with."""
    text = (RESULTS / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text, parse_float=Decimal)  # type: ignore[no-any-return]


def table(name: str) -> dict[str, Any]:
    """Return the table FOLDER/RECORD:TABLE."""
    file, _, wanted = name.partition(":")
    tables = [entry for entry in record(file)["entries"] if isinstance(entry, dict)]
    (found,) = [one for one in tables if one["name"] == wanted]
    return found


def words(value: Any) -> str:
    """Return a cell as a page prints it."""
    if value is None:
        return ""
    if isinstance(value, int | Decimal):
        return f"{value:,}"
    return QUOTED.sub(lambda match: quoted(*match.groups()), value)


def quoted(name: str, row: str, column: str) -> str:
    """Return one cell of another table; `row` is its first column, or its first two with " / " between."""
    of = table(name)
    rows = [one for one in of["rows"] if row in (one[0], f"{one[0]} / {one[1]}")]
    if len(rows) != 1 or of["columns"].count(column) != 1:
        raise ValueError(f"{name}: {len(rows)} rows {row!r}, {of['columns'].count(column)} columns {column!r}")
    return words(rows[0][of["columns"].index(column)])


def markdown(name: str) -> str:
    """Return a table in Markdown."""
    of = table(name)
    lines = [of["columns"], ["---"] * len(of["columns"]), *([words(cell) for cell in row] for row in of["rows"])]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_tables(text: str) -> str:
    """Return a page with its tables made anew."""
    return MARKED.sub(lambda match: f"{match[1]}\n{markdown(match[2])}\n{match[3]}", text)


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page differs")
    check = parser.parse_args().check
    differ = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        made = with_tables(text)
        if made != text:
            differ.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(made, encoding="utf-8")
    print("\n".join(differ) if differ else "all tables are those of the records")
    return int(check and bool(differ))


if __name__ == "__main__":
    sys.exit(main())
