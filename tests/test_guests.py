"""The studies and the benchmarks use public names alone: those of `patrac_native` and of its public modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import patrac_native as pn

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "patrac_native"
PUBLIC = [f"patrac_native.{name}" for name in ("diagnostics", "plots", "interop", "report", "engine")]
CLI = [PACKAGE / "cli" / f"{name}.py" for name in ("study", "bench", "demo", "info")]
PLACES = [*sorted((ROOT / "bench").rglob("*.py")), *sorted((PACKAGE / "studies").glob("*.py")), *CLI]


def private_uses(source: str) -> Iterator[str]:
    """Yield what a module takes from the package beside public names, the studies and other commands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pn":
            if node.attr not in pn.__all__:
                yield f"pn.{node.attr}"
        elif isinstance(node, ast.Import):
            yield from (n.name for n in node.names if n.name.startswith("patrac_native."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "patrac_native":
            module = str(node.module)
            if module.startswith(("patrac_native.studies", "patrac_native.cli")):
                continue
            known = import_module(module).__all__ if module in ("patrac_native", *PUBLIC) else ()
            yield from (f"{module}.{n.name}" for n in node.names if n.name not in (*known, "studies"))


def test_only_public_names_are_used() -> None:
    assert not [(str(path), name) for path in PLACES for name in private_uses(path.read_text())]


def test_private_names_are_found() -> None:
    source = "import patrac_native as pn\nfrom patrac_native.draws.draws import Draws\npn.sampler\n"
    source += "from patrac_native.engine import _core\nimport patrac_native.fit\n"
    found = ["patrac_native.draws.draws.Draws", "patrac_native.engine._core", "patrac_native.fit", "pn.sampler"]
    assert sorted(private_uses(source)) == found
