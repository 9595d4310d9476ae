"""Fixtures that several test files share."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from patrac_native.draws import run_folder
from patrac_native.engine import _core
from patrac_native.report import Report
from patrac_native.sampling import progress as bars
from patrac_native.sampling import stretches, warmup

# Blocks of one and of four host threads emulate those of a GPU; a real GPU is used too if there is one.
DEVICES = ("emulated:1", "emulated:4", "cuda")


def pytest_configure() -> None:
    """Keep each parallel worker on a core of its own: threads that wait for each other then take turns at once."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1 and hasattr(os, "sched_setaffinity"):
        cores, worker = sorted(os.sched_getaffinity(0)), os.environ["PYTEST_XDIST_WORKER"]
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})
        threadpool_limits(1)  # NumPy has started a thread for each core by now


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move modules with slow tests to the front, so that parallel workers do not wait for one of them at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def usable_or_skip(name: str) -> str:
    """Return the name of a device or "cpu", or skip the test, with the reason, if the device cannot be used."""
    if name == "cpu":
        return name
    status = _core.device_status(name)
    if not status["usable"]:
        pytest.skip(f'device="{name}": {status["reason"]}')
    return name


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Return each device in turn, or those that a test names."""
    return usable_or_skip(request.param)


# Blocks of more threads give the same chains but for the order of sums (tests/test_device_chains.py).
one_thread_and_cuda, two_threads_and_cuda, four_threads_and_cuda = (
    pytest.mark.parametrize("device", [f"emulated:{threads}", "cuda"], indirect=True) for threads in (1, 2, 4)
)
cpu_and_devices = pytest.mark.parametrize("device", ["cpu", *DEVICES], indirect=True)


@pytest.fixture(params=_core.testing.levels())
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return each SIMD level of this processor in turn, which is that of networks made in the test."""
    monkeypatch.setenv("PATRAC_SIMD", request.param)
    return str(request.param)


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures out of reports: drawing them is most of a small fit's time, and test_report_page.py reads them."""
    monkeypatch.setattr(Report, "figure", lambda *_: None)


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stretches of some 30 steps end within the warm-up and within draws, and chunks hold few draws.

    Adaptive warm-ups have 2,000 steps at most, since the store is written after each stretch.
    """
    monkeypatch.setattr(stretches, "_next_steps", lambda *_: 29)
    monkeypatch.setattr(warmup, "MAX_ADAPTIVE_STEPS", 2_000)
    monkeypatch.setattr(run_folder, "_CHUNK_BYTES", 12_000)


Interrupt = Callable[[int], list[tuple[float, ...]]]


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    """Raise Ctrl-C in a given progress report: `interrupt(calls)` returns the list of reports."""

    def after(calls: int) -> list[tuple[float, ...]]:
        seen: list[tuple[float, ...]] = []

        def report(_: object, *progress: float) -> None:
            seen.append(progress)
            if len(seen) == calls:
                raise KeyboardInterrupt

        monkeypatch.setattr(bars._ProgressLines, "_report", report)
        return seen

    return after


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    """Close figures that a test left open, such as those of a page's script: pyplot keeps them for the next test."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of the real data, PATRAC_DATA or shared/data beside the repository; skip if neither exists."""
    places = [Path(os.environ["PATRAC_DATA"])] if os.environ.get("PATRAC_DATA") else []
    places.append(Path(__file__).resolve().parents[2] / "shared" / "data")
    for place in places:
        if place.is_dir():
            return place
    pytest.skip("no real data: set PATRAC_DATA to a directory with abalone/abalone.data and uci/")
