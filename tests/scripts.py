"""Scripts that tests run in a process of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path


def printed_numbers(script: str, *arguments: str) -> list[float]:
    """Run an indented Python script in the folder of the tests; return the numbers that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]
