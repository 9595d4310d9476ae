"""Imports go one way: the contracts of import-linter in pyproject.toml, and imports that break them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="import-linter is not installed")

ROOT = Path(__file__).resolve().parents[1]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the package in `folder`/python against `folder`/pyproject.toml."""
    # An editable install finds the package of the repository before that of PYTHONPATH.
    code = (
        "import sys; sys.meta_path = [one for one in sys.meta_path if 'editable' not in type(one).__module__]; "
        "from importlinter.cli import lint_imports_command as run; run()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "python")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_every_package_imports_only_what_stands_below_it() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "lines", "found"),
    [
        (
            "network/files",
            "def late():\n    from patrac_native.posterior import posterior",
            "network is not allowed to import",
        ),
        (
            "plots/predictions",
            "if TYPE_CHECKING:\n    from patrac_native.draws.draws import Draws",
            "plots is not allowed",
        ),
        ("fit/rows", "from patrac_native.likelihoods import Likelihood", "fit is not allowed to import"),
    ],
    ids=["upwards in a function", "upwards for a type", "a guest by the back door"],
)
def test_the_contracts_find(module: str, lines: str, found: str, tmp_path: Path) -> None:
    """An import of any kind that goes the wrong way, in a copy of the package."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "python", tmp_path / "python", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with open(tmp_path / "python" / "patrac_native" / f"{module}.py", "a", encoding="utf-8") as stream:
        stream.write(f"\n\nfrom typing import TYPE_CHECKING\n{lines}\n")
    done = lint(tmp_path)
    assert done.returncode == 1
    assert found in done.stdout
