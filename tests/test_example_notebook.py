"""The example notebook of docs/: small, executed without warnings, and executed here again."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "example.ipynb"
NEEDED = ("nbclient", "nbformat", "ipykernel", "sklearn", "xarray")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def read() -> Any:
    """Return the notebook as it is stored."""
    import nbformat

    return nbformat.read(NOTEBOOK, as_version=4)


def kinds(notebook: Any) -> list[list[Any]]:
    """Return what each code cell shows: streams by name, and results by their types."""
    return [
        [output.get("name") or sorted(output.get("data", {"error": ""})) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def printed(notebook: Any) -> str:
    """Return all text that the notebook prints."""
    return "\n".join(
        output.text
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream"
    )


def check_numbers(text: str) -> None:
    """Coverage of 111 patients within four standard deviations of 90%, and at most 8% of the digits wrong."""
    (covered,) = re.findall(r"(\d+)% of 111 patients inside their 90% interval", text)
    assert abs(int(covered) - 90) <= 4 * 100 * (0.9 * 0.1 / 111) ** 0.5
    (accuracy,) = re.findall(r"accuracy on \d+ digits: (0\.\d+)", text)
    assert float(accuracy) >= 0.92
    assert "bmi" in text


def test_the_stored_notebook_is_executed_and_small() -> None:
    notebook = read()
    assert NOTEBOOK.stat().st_size < 300_000
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all("execution" not in cell.metadata for cell in notebook.cells)  # times of one machine
    shown = kinds(notebook)
    assert sum("image/png" in output for outputs in shown for output in outputs) == 4
    assert sum("text/html" in output for outputs in shown for output in outputs) == 3
    assert not any(output in ("stderr", ["error"]) for outputs in shown for output in outputs)
    check_numbers(printed(notebook))


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell shows the kinds of output that are stored, none of them a warning."""
    import nbclient

    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    stored, notebook = read(), read()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = nbclient.NotebookClient(
        notebook, timeout=180, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert kinds(notebook) == kinds(stored)
    check_numbers(printed(notebook))
