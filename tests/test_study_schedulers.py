"""Studies on threads, processes and a Dask cluster, of which a worker dies; and studies that go on."""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
from patrac_native.cli.main import main
from patrac_native.report import Report
from patrac_native.sampling.stored_run import KeptInFolder
from patrac_native.studies import replicates, sine
from patrac_native.studies.options import StudyOptions, StudySize
from patrac_native.studies.output import write_files
from patrac_native.studies.pieces import Piece, Pieces, check_scheduler, executor_of
from patrac_native.studies.problems import Problem, sine_problem
from patrac_native.studies.replicates import Study, run_study

pytestmark = [
    pytest.mark.filterwarnings("ignore:no phase of the warm-up adapts"),
    pytest.mark.filterwarnings("ignore:train. the fit is poor"),
]
TIMES = ("seconds", "steps_per_second", "ess_per_second", "ess_paper_per_second")
PROBLEM = functools.partial(sine_problem, n=30, n_test=40)
SIZE = StudySize(replicates=1, steps=400, quick_steps=400, quick_warmup=1.0, auto_steps=400, quick_auto_steps=400)


@pytest.fixture(autouse=True)
def without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicates, "train_network", untrained)


def untrained(problem: Problem, seed: int, options: StudyOptions) -> pn.Network:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(6, 1)), rng.normal(size=(6, 6)) / 3, rng.normal(size=(1, 6)) / 3]
    return pn.Network(weights, [0.1 * rng.normal(size=n) for n in (6, 6, 1)])


def study(out: Path, scheduler: str = "threads", **given: Any) -> Study:
    """Run a study of two candidates, with its pieces in a folder."""
    options = StudyOptions(
        out,
        scheduler=scheduler,
        **{"replicates": 2, "seed": 9, "threads": 2, "draws": 100, "warmup_factor": 1 / 1000} | given,
    )
    return run_study(PROBLEM, options, SIZE, identity={}, candidates=(pn.Mix(2), pn.Out(3)))


def numbers(found: Study, replicates: int = 3) -> str:
    """All scores without times as text, in which NaN equals NaN."""
    scores = [one for runs in found.records.values() for one in runs[:replicates]]
    return json.dumps([{name: value for name, value in one.items() if name not in TIMES} for one in scores])


@pytest.mark.slow
def test_results_depend_neither_on_threads_nor_on_processes(tmp_path: Path) -> None:
    one, many = (study(tmp_path / str(threads), threads=threads) for threads in (1, 3))
    processes = study(tmp_path / "processes", "processes")
    assert numbers(one) == numbers(many) == numbers(processes)
    np.testing.assert_array_equal(one.first[0].draws.theta, processes.first[0].draws.theta)
    first, second = one.records["Mix(2)"]
    assert first["nll"] != second["nll"]  # replicates differ in data and noise


def test_a_study_goes_on_from_its_pieces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, pieces = study(tmp_path), tmp_path / "pieces"
    capsys.readouterr()
    # One run and one network are lost; everything else is read.
    (pieces / "run-1-Out(3).json").unlink()
    (pieces / "trained-1.json").unlink()
    before = {path.name: path.stat().st_mtime_ns for path in pieces.iterdir()}
    again = study(tmp_path)
    assert "sampling: 3 of 4 were finished before." in capsys.readouterr().out
    assert numbers(whole) == numbers(again)
    changed = {path.name for path in pieces.iterdir() if path.stat().st_mtime_ns != before.get(path.name)}
    assert changed == {"run-1-Out(3).json", "trained-1.json", "trained-1.npz"}
    # The outcomes of the first replicate come back with their draws.
    for one, other in zip(whole.first, again.first, strict=True):
        np.testing.assert_array_equal(one.draws.theta, other.draws.theta)
        for name in ("autocorrelation", "pit_f", "pit_y"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    # More replicates add to them.
    more = study(tmp_path, replicates=3)
    assert "sampling: 4 of 6 were finished before." in capsys.readouterr().out
    assert more.replicates == 3 and numbers(more, replicates=2) == numbers(again)
    assert all(len({one["nll"] for one in scores}) == 3 for scores in more.records.values())


def test_pieces_of_other_settings_are_refused(tmp_path: Path) -> None:
    Pieces(tmp_path, {"study": "sine", "steps": 400})
    Pieces(tmp_path, {"study": "sine", "steps": 400})
    with pytest.raises(
        ValueError, match=r"with other settings or code \(steps: 400 there, 500 here\); give another --out"
    ):
        Pieces(tmp_path, {"study": "sine", "steps": 500})
    with pytest.raises(ValueError, match=r"\(data: None there, 'x' here\)"):
        Pieces(tmp_path, {"study": "sine", "steps": 400, "data": "x"})


def test_pieces_of_other_code_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of one version changes while it is worked on."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("step = 1\n", encoding="utf-8")
    monkeypatch.setattr(pn, "__file__", str(package / "__init__.py"))
    Pieces(tmp_path / "pieces", {"study": "sine"})
    Pieces(tmp_path / "pieces", {"study": "sine"})
    (package / "kernel.py").write_text("step = 2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"with other settings or code \(code: '\w+' there, '\w+' here\)"):
        Pieces(tmp_path / "pieces", {"study": "sine"})


def interrupted(problem: Problem, seed: int, options: StudyOptions) -> pn.Network:
    """A network whose training Ctrl-C ended: `train` returns its best parameters so far."""
    settings: dict[str, Any] = {"validation_fraction": 0, "max_epochs": 2, "progress": False, "seed": seed}
    net = pn.train((1, 6, 6, 1), problem.X, problem.y, likelihood=problem.likelihood, l2=1.0, **settings)
    assert net.history is not None
    object.__setattr__(net.history, "stopped", "interrupted")
    return net


def test_an_interrupted_training_is_no_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicates, "train_network", interrupted)
    with pytest.raises(KeyboardInterrupt):
        study(tmp_path, replicates=1)
    assert not list((tmp_path / "pieces").glob("trained-*"))


def test_an_interrupt_keeps_complete_replicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, run = study(tmp_path / "whole"), replicates._run_piece

    def interrupted_later(*arguments: Any) -> Piece:
        if arguments[-1]:  # the first replicate, whose draws are for figures
            return run(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(replicates, "_run_piece", interrupted_later)
    with pytest.warns(UserWarning, match="interrupted: the results of 1 of 2 replicates are kept"):
        found = study(tmp_path / "some", threads=1)
    assert found.interrupted and numbers(found) == numbers(whole, replicates=1)
    monkeypatch.setattr(replicates, "_run_piece", lambda *_: interrupted_later(False))
    with pytest.raises(KeyboardInterrupt):
        study(tmp_path / "none", threads=1)


def test_an_interrupted_study_writes_what_it_has_and_exits_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(options: StudyOptions, _: float) -> None:
        write_files(tmp_path, Report("some replicates"), {}, [], interrupted=True)

    monkeypatch.setattr(sine, "run_sine", run)
    assert main(["study", "sine", "--out", str(tmp_path)]) == 130
    assert {"report.html", "summary.json", "results.csv"} <= {one.name for one in tmp_path.iterdir()}
    assert "patrac study sine: interrupted after some of the replicates; the same" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_study_goes_on_from_the_checkpoints_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run fails after its first checkpoint; a store is removed once its piece is finished."""
    pytest.importorskip("zarr")
    whole, out, confirm, resume = study(tmp_path / "whole"), tmp_path / "killed", KeptInFolder.confirm, pn.resume
    resumed: list[Path] = []

    def fails(self: KeptInFolder) -> None:
        confirm(self)
        raise OSError("the machine went down")

    def counted(store: Path, draws: int, **arguments: Any) -> Any:
        resumed.append(store)
        return resume(store, draws, **arguments)

    with monkeypatch.context() as patch:
        patch.setattr(KeptInFolder, "confirm", fails)
        with pytest.raises(OSError, match="the machine went down"):
            study(out)
    begun = sorted(one.parent for one in (out / "pieces").glob("*.zarr/checkpoint.npz"))
    assert begun
    monkeypatch.setattr(pn, "resume", counted)
    assert numbers(study(out)) == numbers(whole)
    assert sorted(resumed) == begun and not list((out / "pieces").glob("*.zarr"))
    begun[0].mkdir()  # as if it had been killed between the piece and its store
    study(out)
    assert not begun[0].exists()


def dies(*_: Any) -> Piece:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.slow
def test_a_worker_process_that_dies_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicates, "_run_piece", dies)
    with pytest.raises(RuntimeError, match=r"a worker process died .* Run the same command again to go on\."):
        study(tmp_path, "processes")


@pytest.mark.parametrize("scheduler", ["thread", "dask://", "dask://host", "dask://:8786", "dask://host:x", ""])
def test_unknown_schedulers_are_refused(scheduler: str) -> None:
    with pytest.raises(ValueError, match="--scheduler must be threads, processes or dask://host:port; got"):
        check_scheduler(scheduler)


def test_a_missing_dask_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with (
        pytest.raises(ImportError, match=r"needs distributed, .* pip install 'patrac_native\[dask\]'"),
        executor_of("dask://127.0.0.1:1", 1),
    ):
        pass


@pytest.mark.slow
def test_a_dask_cluster_of_which_a_worker_is_killed(tmp_path: Path) -> None:
    """Two worker processes over TCP; one is killed when the first run is finished, and every result arrives."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    steps = 40_000  # long enough that runs are under way when the worker dies
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", protocol="tcp://", dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        pid = next(iter(cluster.workers.values())).pid
        killed: list[int] = []
        pieces = tmp_path / "pieces"

        def kill() -> None:
            while not list(pieces.glob("run-*.json")):
                time.sleep(0.01)
            os.kill(pid, signal.SIGKILL)
            killed.append(len(list(pieces.glob("run-*.json"))))

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        found = study(tmp_path, f"dask://{address}", steps=steps, replicates=3)
        thread.join(timeout=60)
    assert killed[0] < 6, "the worker died after the last run"
    assert found.replicates == 3 and not found.interrupted
    assert numbers(found) == numbers(study(tmp_path / "threads", steps=steps, replicates=3))
