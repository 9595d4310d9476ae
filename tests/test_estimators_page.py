"""The script of docs/estimators.md runs as it stands."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from pages import script_of


@pytest.mark.slow
def test_the_script_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        exec(compile(script_of("estimators.md", "PatracRegressor"), "docs/estimators.md", "exec"), names)
    out = capsys.readouterr().out
    assert "R2 0." in out and "verdict: " in out and "{'k': " in out
    np.testing.assert_array_equal(names["same"].predict(names["X_test"]), names["mean"])  # type: ignore[attr-defined]
