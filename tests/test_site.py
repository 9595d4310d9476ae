"""The documentation site of docs/: it builds without warnings, and its reference has every public name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import patrac_native as pn
from pages import DOCS, blocks_of

REFERENCE = DOCS / "reference"
MODULES = ("diagnostics", "interop", "plots", "report")


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    """A broken link or anchor between pages, a page outside the navigation and a malformed docstring are warnings."""
    for module in ("furo", "myst_parser", "numpydoc", "sphinx"):
        pytest.importorskip(module)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-d",
        tmp_path / "trees",
        DOCS,
        tmp_path / "site",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    reference = tmp_path / "site" / "reference"
    for page, name in (("sampling", "sample"), ("draws", "Draws.predict"), ("estimators", "PatracRegressor.save")):
        assert f'id="patrac_native.{name}"' in (reference / f"{page}.html").read_text(encoding="utf-8"), name
    assert (tmp_path / "site" / "search.html").is_file()


def test_the_reference_has_every_public_name() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    listed = re.findall(r"^\.\. auto(?:class|function):: (\w+)$", text, re.MULTILINE)
    assert len(listed) == len(set(listed)) and set(pn.__all__) <= set(listed)
    assert [name for name in listed if not hasattr(pn, name)] == []
    assert sorted(re.findall(r"^\.\. automodule:: patrac_native\.(\w+)$", text, re.MULTILINE)) == sorted(MODULES)
    for name in MODULES:
        assert getattr(pn, name).__all__, "automodule lists what stands in __all__"


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(path.name for path in (DOCS / "tutorials").glob("*.md")))
def test_the_tutorials_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each from top to bottom, as pasted."""
    import matplotlib

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks_of(f"tutorials/{page}")):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    assert capsys.readouterr().out.strip()
