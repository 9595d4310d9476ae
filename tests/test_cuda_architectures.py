"""For which GPUs a build has machine code: csrc/cuda/architectures.cmake, with stand-ins for nvidia-smi and nvcc."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MODULE = Path(__file__).parents[1] / "csrc" / "cuda" / "architectures.cmake"
SCRIPT = f"""
include("{MODULE}")
patrac_cuda_architectures()
message("found ${{CMAKE_CUDA_ARCHITECTURES}}")
"""


def command(place: Path, text: str) -> Path:
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return place


def found(folder: Path, cards: str, *options: str, **environment: str) -> str:
    """Return the architectures for the cards that nvidia-smi lists, with an nvcc that knows 7.5 to 9.0."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    command(folder / "nvidia-smi", cards)
    nvcc = command(folder / "nvcc", "printf 'compute_75\\ncompute_80\\ncompute_89\\ncompute_90\\n'")
    (folder / "script.cmake").write_text(SCRIPT)
    own = {name: value for name, value in os.environ.items() if name != "CUDAARCHS"}
    done = subprocess.run(
        ["cmake", f"-DCMAKE_CUDA_COMPILER={nvcc}", *options, "-P", str(folder / "script.cmake")],
        env=own | {"PATH": f"{folder}:{os.environ['PATH']}"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.split("found ")[1].strip()


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        ("9.0", "90-real;80-virtual"),
        ("8.0\n9.0\n9.0", "80-real;90-real;80-virtual"),
        ("7.5", "80"),  # bfloat16 products need 8.0
        ("7.5\n8.9", "89-real;80-virtual"),
        ("12.0", "80"),  # unknown to this nvcc
        ("", "80"),
    ],
)
def test_machine_code_for_the_cards_of_the_machine(cards: str, expected: str, tmp_path: Path) -> None:
    assert found(tmp_path, f"cat <<END\n{cards}\nEND") == expected


def test_without_a_driver(tmp_path: Path) -> None:
    assert found(tmp_path, "echo 9.0; exit 9") == "80"


def test_what_is_named_stays(tmp_path: Path) -> None:
    assert found(tmp_path, "echo 9.0", "-DCMAKE_CUDA_ARCHITECTURES=75") == "75"
    assert found(tmp_path, "echo 9.0", CUDAARCHS="75") == ""
    assert found(tmp_path, "echo 9.0", "-DCMAKE_CROSSCOMPILING=ON") == "80"
