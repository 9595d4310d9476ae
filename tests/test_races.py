"""The device functions under the thread sanitizer: no race, and a race where a barrier is taken away."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# The activations below a layer are read by its gradient and written by the reverse pass that follows.
BARRIER = "block.sync();  // the activations below are read no more"


def run_sanitized(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Compile tests/races/races.cpp against a copy of csrc, and run it until the first race."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    sources = [
        str(path) for folder in ("cuda", "model", "sampling") for path in sorted((source / folder).glob("*.cpp"))
    ]
    flags = ["-std=c++20", "-O1", "-g", "-fsanitize=thread", "-ffp-contract=off", "-w", "-pthread"]
    program = source.parent / "tests" / "races" / "races.cpp"
    built = subprocess.run(
        [compiler, *flags, "-o", str(out), str(program), *sources], capture_output=True, text=True, check=False
    )
    if "cannot find" in built.stderr and "tsan" in built.stderr:
        pytest.skip("the compiler has no thread sanitizer")
    assert built.returncode == 0, built.stderr
    # The sanitizer needs memory where address randomisation may put something else.
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []
    return subprocess.run(
        [*fixed, str(out)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True], ids=["as it is", "a barrier taken away"])
def test_device_functions_have_no_race(broken: bool, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    shutil.copytree(ROOT / "tests" / "races", tmp_path / "tests" / "races")
    if broken:
        tile = tmp_path / "csrc" / "cuda" / "tile.hpp"
        text = tile.read_text()
        assert text.count(BARRIER) == 1
        tile.write_text(text.replace(BARRIER, ""))
    result = run_sanitized(tmp_path / "csrc", tmp_path / "races")
    if "unexpected memory mapping" in result.stderr:
        pytest.skip("the thread sanitizer does not run on this kernel")
    if broken:
        assert result.returncode != 0 and "data race" in result.stderr
    else:
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("ran") == 14
