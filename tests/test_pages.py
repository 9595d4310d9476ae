"""The pages of docs/: their tables are those of the records of what was measured."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pages import DOCS

RESULTS = DOCS.parent / "bench" / "results"
RECORDS = sorted(RESULTS.glob("*/*.json"))


@pytest.fixture(scope="module")
def page_tables() -> Any:
    """Return the script that makes the tables."""
    spec = importlib.util.spec_from_file_location("page_tables", DOCS.parent / "bench" / "page_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tables(file: Path) -> Iterator[dict[str, Any]]:
    entries = json.loads(file.read_text(encoding="utf-8"))["entries"]
    return (entry for entry in entries if isinstance(entry, dict))


@pytest.mark.parametrize("page", ["performance.md", "tried.md", "results.md", "mutations.md", "gpu.md"])
def test_tables_are_those_of_the_records(page: str, page_tables: Any) -> None:
    """It fails if a figure is changed on the page or in a record alone."""
    text = (DOCS / page).read_text(encoding="utf-8")
    assert page_tables.MARKED.search(text) and page_tables.with_tables(text) == text


def test_a_changed_figure_is_seen(page_tables: Any) -> None:
    text = (DOCS / "performance.md").read_text(encoding="utf-8")
    assert text.count("| 26.3 |") == 1
    assert page_tables.with_tables(text.replace("| 26.3 |", "| 26.4 |")) == text


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_tables_of_records_are_complete(file: Path) -> None:
    """Every table of a measurement says where it comes from, or null; its rows have a cell for each column."""
    names = [one["name"] for one in tables(file)]
    assert len(set(names)) == len(names)
    for one in tables(file):
        assert all(len(row) == len(one["columns"]) for row in one["rows"]), one["name"]
        assert file.stem == "table" or {"machine", "commit", "date", "command"} < set(one), one["name"]
