"""Fixtures that several test files share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Directory of the real data files: PATRAC_DATA, or shared/data beside the repository; skips where neither is."""
    places = [Path(os.environ["PATRAC_DATA"])] if os.environ.get("PATRAC_DATA") else []
    places.append(Path(__file__).resolve().parents[2] / "shared" / "data")
    for place in places:
        if place.is_dir():
            return place
    pytest.skip("no real data: set PATRAC_DATA to a directory with abalone/abalone.data and uci/")
