"""The scripts in the pages of docs/, for tests that execute them."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def blocks_of(page: str, language: str = "python") -> list[str]:
    """Return the code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def script_of(page: str, marker: str) -> str:
    """Return the only Python block of a page that contains `marker`."""
    (found,) = [block for block in blocks_of(page) if marker in block]
    return found
