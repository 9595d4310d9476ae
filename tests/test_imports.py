"""Imports go one way: the contracts of import-linter in pyproject.toml, and imports that break them.

The studies and the benchmarks use public names alone: those of `patrac_native` and of its public modules.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import patrac_native as pn
from scripts import process

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "patrac_native"
PUBLIC = [f"patrac_native.{name}" for name in ("diagnostics", "plots", "interop", "report", "engine", "files")]
# Public, though __all__ leaves them out: classes for annotations, the class of warnings, and the modules.
BESIDE = {"Architecture", "Kernel", "Likelihood", "Prior", "Note", "Run", "build_info", "__file__"}
BESIDE |= {"diagnostics", "interop", "plots", "report"}
CLI = [PACKAGE / "cli" / f"{name}.py" for name in ("study", "bench", "demo", "info")]
PLACES = [*sorted((ROOT / "bench").rglob("*.py")), *sorted((PACKAGE / "studies").glob("*.py")), *CLI]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the package in `folder`/python against `folder`/pyproject.toml."""
    pytest.importorskip("importlinter", reason="import-linter is not installed")
    # An editable install finds the package of the repository before that of PYTHONPATH.
    code = (
        "import sys; sys.meta_path = [one for one in sys.meta_path if 'editable' not in type(one).__module__]; "
        "from importlinter.cli import lint_imports_command as run; run()"
    )
    environment = {**os.environ, "PYTHONPATH": str(folder / "python")}
    return process("-c", code, "--no-cache", cwd=folder, env=environment)


def test_every_package_imports_only_what_stands_below_it() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "lines", "found"),
    [
        (
            "files/archive",
            "def late():\n    from patrac_native.posterior import posterior",
            "files is not allowed to import",
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


def private_uses(source: str) -> Iterator[str]:
    """Yield what a module takes from the package beside public names, the studies and other commands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pn":
            if node.attr not in {*pn.__all__, *BESIDE}:
                yield f"pn.{node.attr}"
        elif isinstance(node, ast.Import):
            yield from (n.name for n in node.names if n.name.startswith("patrac_native."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "patrac_native":
            module = str(node.module)
            if module.startswith(("patrac_native.studies", "patrac_native.cli")):
                continue
            known = import_module(module).__all__ if module in ("patrac_native", *PUBLIC) else ()
            known = [*known, *BESIDE] if module == "patrac_native" else known
            yield from (f"{module}.{n.name}" for n in node.names if n.name not in (*known, "studies"))


def test_only_public_names_are_used() -> None:
    assert not [(str(path), name) for path in PLACES for name in private_uses(path.read_text())]


def test_private_names_are_found() -> None:
    source = "import patrac_native as pn\nfrom patrac_native.draws.draws import Draws\npn.sampler\n"
    source += "from patrac_native.engine import _core\nimport patrac_native.fit\n"
    found = ["patrac_native.draws.draws.Draws", "patrac_native.engine._core", "patrac_native.fit", "pn.sampler"]
    assert sorted(private_uses(source)) == found
