"""Folders of fits: damage to the files that `patrac predict` reads, and to the rows that it predicts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from fuzzing import Edit, damaged, edits, fuzz
from hypothesis import example, given
from hypothesis import strategies as st

from patrac_native.cli.main import main
from test_table_files import TINY

ROWS = "a,b,y\n" + "".join(f"{0.1 * row:.1f},{'uvw'[row % 3]},{row % 5}\n" for row in range(20))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit")
    (folder / "rows.csv").write_text(ROWS)
    options = ["--noise-variance", "1", *TINY.split(), "--draws", "30", "--out", str(folder / "fit")]
    options += ["--test-fraction", "0"]
    assert main(["fit", str(folder / "rows.csv"), "--target", "y", *options]) == 0
    assert main(["predict", str(folder / "fit"), str(folder / "rows.csv"), "--out", str(folder / "whole.csv")]) == 0
    return folder


@fuzz(12)
@example(file="fit/table.json", changes=[("insert", 0.1171875, b"NaN")])  # into the separator
@given(
    file=st.sampled_from(["fit/estimator.npz", "fit/table.json", "fit/table.json", "rows.csv"]),
    changes=st.one_of(st.none(), edits()),
)
def test_damaged_files(
    file: str, changes: list[Edit] | None, fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names the file or the column, or the predictions of undamaged rows are those of the undamaged fit."""
    place, out = tmp_path / "damaged", tmp_path / "out.csv"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(fitted, place)
    if changes is None:
        (place / file).unlink()
    else:
        (place / file).write_bytes(damaged((place / file).read_bytes(), changes))
    out.unlink(missing_ok=True)
    capsys.readouterr()
    status = main(["predict", str(place / "fit"), str(place / "rows.csv"), "--out", str(out)])
    said = capsys.readouterr().err
    assert status in (0, 2) and "Traceback" not in said
    if status:
        assert "error: " in said, said
        assert str(place) in said or re.search("column|Feature names|line ", said), said
    elif file != "rows.csv":
        assert out.read_text() == (fitted / "whole.csv").read_text()
