"""The pages on other libraries: their scripts run as they stand."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from patrac_native.bridges.c_interface import include_dir

PAGES = Path(__file__).parents[1] / "docs" / "bridges"


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (PAGES / f"{page}.md").read_text(encoding="utf-8"), re.M | re.S)


def is_installed(name: str) -> bool:
    """Return whether a module is installed; "arviz 0.x" is ArviZ before 1.0."""
    module = name.removesuffix(" 0.x")
    if importlib.util.find_spec(module) is None:
        return False
    return module == name or importlib.metadata.version(module).startswith("0.")


@pytest.mark.parametrize(
    ("page", "number", "needs"),
    [
        ("arviz", 0, ("xarray", "arviz_base")),
        ("arviz", 1, ("arviz 0.x",)),
        ("jax", 0, ("jax", "blackjax")),
        ("nutpie", 0, ("nutpie",)),
        ("c", 0, ()),
        ("c", 1, ("numba",)),
        ("pytorch", 0, ()),
    ],
)
def test_scripts_run(
    page: str,
    number: int,
    needs: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = [name for name in needs if not is_installed(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    for source in blocks(page, "c"):
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler")
        (tmp_path / "ascent.c").write_text(source)
        options = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I", include_dir()]
        subprocess.run([compiler, *options, "-o", "libascent.so", "ascent.c"], cwd=tmp_path, check=True, timeout=60)
    monkeypatch.chdir(tmp_path)
    script = compile(blocks(page, "python")[number], f"{page}.md", "exec")
    exec(script, {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


def test_every_page_has_a_test() -> None:
    scripts = {page.stem: len(blocks(page.stem, "python")) for page in PAGES.glob("*.md")}
    parameters = [mark.args[1] for mark in test_scripts_run.pytestmark]  # type: ignore[attr-defined]
    listed = [case[0] for case in parameters[0]]
    assert scripts == {page: listed.count(page) for page in scripts}
