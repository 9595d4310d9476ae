"""Python in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any


def process(*arguments: str, timeout: float = 300, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments; return its exit code and what it prints."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout, **options)


def output_of(script: str, *arguments: str) -> str:
    """Run an indented Python script in the folder of the tests; return what it prints."""
    done = process("-c", textwrap.dedent(script), *arguments, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed_numbers(script: str, *arguments: str) -> list[float]:
    """Run an indented Python script in the folder of the tests; return the numbers that it prints."""
    return [float(word) for word in output_of(script, *arguments).split()]
