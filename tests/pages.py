"""The scripts in the pages of docs/, for tests that execute them."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def script_of(page: str, marker: str) -> str:
    """Return the only Python block of a page that contains `marker`."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if marker in block]
    return found
