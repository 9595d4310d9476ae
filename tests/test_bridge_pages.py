"""The pages on other libraries: their scripts run as they stand."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from pages import DOCS, blocks_of
from patrac_native.interop.c_interface import include_dir

PAGES = DOCS / "bridges"


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page on a bridge in a language."""
    return blocks_of(f"bridges/{page}.md", language)


def is_installed(name: str) -> bool:
    """Return whether a module is installed; "arviz 0.x" is ArviZ before 1.0."""
    module = name.removesuffix(" 0.x")
    if importlib.util.find_spec(module) is None:
        return False
    return module == name or importlib.metadata.version(module).startswith("0.")


@pytest.mark.slow
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
    if page == "c":
        compile_c("ascent", tmp_path, "-shared", "-fPIC", "-o", "libascent.so")
    monkeypatch.chdir(tmp_path)
    script = compile(blocks(page, "python")[number], f"{page}.md", "exec")
    exec(script, {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


@pytest.mark.skipif(not (is_installed("jax") and is_installed("blackjax")), reason="JAX or BlackJAX is not installed")
@pytest.mark.slow
def test_the_rerun_error_of_another_sampler(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[1] / "docs" / "rerun.md").read_text(encoding="utf-8")
    (script,) = [block for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "blackjax" in block]
    exec(compile(script, "rerun.md", "exec"), {"__name__": "__main__"})
    assert "a rerun of the chains would move the ends of 90% intervals of y by" in capsys.readouterr().out


def compile_c(name: str, folder: Path, *options: str) -> None:
    """Compile the C block of the page on C whose first line names this file, without warnings."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (source,) = [block for block in blocks("c", "c") if block.startswith(f"/* {name}.c:")]
    (folder / f"{name}.c").write_text(source)
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-I", include_dir(), f"{name}.c", *options]
    subprocess.run(command, cwd=folder, check=True, timeout=60)


def from_another_process(command: list[str], folder: Path) -> float:
    """Run a program that loads this Python as a library; return the log density that it prints."""
    # Python looks for its packages beside the first python3 of the path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (printed,) = re.findall(r"^status 0, log density (\S+)$", done.stdout, re.M)
    return float(printed)


@pytest.mark.parametrize("language", ["c", "r"])
def test_other_processes_reach_what_python_reaches(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same 200 steps of the same sampler, started by a C program through dlopen and by R: to the bit."""
    program = shutil.which("Rscript")
    if language == "r":
        asked = [str(program), "-e", "library(reticulate)"]
        if program is None or subprocess.run(asked, capture_output=True, check=False, timeout=60).returncode:
            pytest.skip("R with reticulate is not installed")
    library = Path(sysconfig.get_config_var("LIBDIR") or "") / str(sysconfig.get_config_var("LDLIBRARY"))
    if library.suffix == ".a" or not library.is_file():
        pytest.skip("this Python is not built as a shared library")
    compile_c("ascent", tmp_path, "-shared", "-fPIC", "-o", "libascent.so")
    script = blocks("c", "python")[0]
    (tmp_path / "model.py").write_text(script)
    if language == "c":
        compile_c("host", tmp_path, "-o", "host", "-ldl")
        command = ["./host", str(library), "./libascent.so"]
    else:
        (tmp_path / "script.R").write_text(blocks("c", "r")[0])
        command = [str(program), "script.R"]
        monkeypatch.setenv("RETICULATE_PYTHON", sys.executable)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(script, "c.md", "exec"), names)
    assert from_another_process(command, tmp_path) == names["value"].value


def test_every_page_has_a_test() -> None:
    scripts = {page.stem: len(blocks(page.stem, "python")) for page in PAGES.glob("*.md")}
    marks = test_scripts_run.pytestmark  # type: ignore[attr-defined]
    (cases,) = (mark.args[1] for mark in marks if mark.name == "parametrize")
    listed = [case[0] for case in cases]
    assert scripts == {page: listed.count(page) for page in scripts}
