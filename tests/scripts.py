"""Scripts that tests run in a process of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path


def output_of(script: str, *arguments: str) -> str:
    """Run an indented Python script in the folder of the tests; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed_numbers(script: str, *arguments: str) -> list[float]:
    """Run an indented Python script in the folder of the tests; return the numbers that it prints."""
    return [float(word) for word in output_of(script, *arguments).split()]
