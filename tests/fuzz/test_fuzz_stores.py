"""Stores of runs: damage to any of their files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from fuzzing import Edit, damaged, edits, fuzz
from hypothesis import example, given
from hypothesis import strategies as st

import patrac_native as pn
from test_resume import sampled

pytest.importorskip("xarray")
pytest.importorskip("zarr")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run.zarr"
    sampled("scales and variance", 12, warmup=40, store=path)
    return path


@fuzz(8)
@example(which=0.859375, changes=None)  # the metadata of a statistic
@example(which=0.5, changes=None)
@example(which=0.765625, changes=None)  # the numbers of a statistic
@example(which=0.84375, changes=None)  # step sizes
@given(which=st.floats(0, 1, exclude_max=True), changes=st.one_of(st.none(), st.just([]), edits()))
def test_damaged_files(which: float, changes: list[Edit] | None, store: Path, tmp_path: Path) -> None:
    """A file is damaged, emptied or gone: what is read is what was written, or the store or the file is named."""
    place = tmp_path / "damaged.zarr"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(store, place)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    file = files[int(which * len(files))]
    if changes is None:
        file.unlink()
    else:
        file.write_bytes(damaged(file.read_bytes(), changes) if changes else b"")
    whole = pn.Draws.open(store)
    for use in (pn.Draws.open, lambda path: pn.resume(path, 16, progress=False)):
        try:
            with pn.Note.collect():
                found = use(place)
                theta, f = found.theta, found.predict(np.zeros((1, 2)))
        except (ValueError, OSError) as error:
            assert "damaged.zarr" in str(error), repr(error)
            continue
        assert np.array_equal(theta[:, : whole.n_draws], whole.theta)
        for name, values in whole.stats.items():
            of_draws = values.shape[1:2] == (whole.n_draws,)
            same = found.stats[name][:, : whole.n_draws] if of_draws else found.stats[name]
            assert np.array_equal(same, values, equal_nan=True) or not of_draws, name
        assert np.array_equal(f[:, : whole.n_draws], whole.predict(np.zeros((1, 2))))
