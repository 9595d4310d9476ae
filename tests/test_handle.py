"""Runs in the background: `start` and its handle, pauses and looks that change no bit, and all ends of a run."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from chains import assert_same_runs
from patrac_native.sampling import stretches
from scripts import process

MANY = 10**8  # draws that no run of a test makes
X = problems.rng_of("handle").normal(size=(25, 2))
NET = problems.random_network(problems.rng_of("handle", 1), (2, 5, 4, 1))
POST = pn.Posterior(NET, pn.Full(), problems.PRIOR, pn.Gaussian(0.1), X, np.sin(X[:, 0]))
TARGET = problems.normal_target(3)
KERNELS: dict[str, tuple[Any, Any]] = {
    "target": (TARGET, "auto"),
    "persistent": (POST, pn.MGrad(persistence=0.9)),
    "rotated": (POST, pn.MGrad(collapse=True, metric="curvature")),
    "independent": (pn.Posterior(NET, pn.Out(3), problems.PRIOR, pn.Gaussian(0.1), X, X[:, 0]), "auto"),
}
SETTINGS: dict[str, Any] = {"chains": 3, "thin": 3, "warmup": 200, "seed": 4, "threads": 2, "progress": False}


def endless(**settings: Any) -> pn.Run:
    """Start a run that goes on until it is ended; thinned, so that its arrays are small."""
    given = {"chains": 2, "draws": 1000, "thin": 10**6, "warmup": None, "seed": 1, "progress": False, **settings}
    return pn.start(POST, pn.PCNL(0.1), **given)


def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition; a test that waits in vain fails."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("name", KERNELS)
def test_a_handle_gives_the_draws_of_sample(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Borders of stretches fall into the warm-up and between draws."""
    monkeypatch.setattr(stretches, "_next_steps", lambda *_: 29)
    post, kernel = KERNELS[name]
    assert_same_runs(pn.start(post, kernel, draws=40, **SETTINGS).wait(), pn.sample(post, kernel, draws=40, **SETTINGS))


def test_a_pause_and_looks_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "_next_steps", lambda *_: 40)
    seen = []

    def look(draws: pn.Draws) -> bool:  # the run waits here until it has been asked to pause
        if not seen:
            begun.set()
            asked.wait()
        seen.append(draws.n_draws)
        return False

    begun, asked = threading.Event(), threading.Event()
    run = pn.start(POST, pn.MGrad(persistence=0.9), draws=60, until=look, **SETTINGS)
    begun.wait()
    run.pause()
    asked.set()
    until(lambda: run.progress.phase == "paused")
    before, so_far = run.progress, run.peek()
    assert so_far is not None and not run.done and 6 <= so_far.n_draws < 60
    assert so_far.n_draws == before.draws and before.total_draws == 60 and before.steps < before.total_steps
    assert not so_far.settings["completed"] and "paused: " in repr(run)
    kept = so_far.theta.copy()
    assert run.progress.steps == before.steps
    run.resume()
    draws = run.wait()
    whole = pn.sample(POST, pn.MGrad(persistence=0.9), draws=60, **SETTINGS)
    assert_same_runs(draws, whole)
    np.testing.assert_array_equal(kept, whole.theta[:, : kept.shape[1]])
    np.testing.assert_array_equal(so_far.theta, kept)
    assert seen == list(range(6, 60, 6))
    assert run.done and run.progress.phase == "completed" and run.progress.draws == 60
    assert run.peek() is run.wait() is run.stop() is draws


def test_stop_keeps_the_draws_and_says_nothing() -> None:
    with warnings.catch_warnings(action="error"):
        with pytest.raises(TimeoutError, match=r"the run goes on after 0.01 seconds: .* of 100000 draws"):
            run = endless(thin=1000, draws=100_000)
            run.wait(0.01)
        until(lambda: run.progress.draws > 0)
        draws = run.stop()
    assert 0 < draws.n_draws < 100_000 and run.progress.phase == "stopped" and not draws.settings["completed"]
    first = min(5, draws.n_draws)
    expected = pn.sample(POST, pn.PCNL(0.1), chains=2, draws=first, thin=1000, warmup=None, seed=1)
    np.testing.assert_array_equal(draws.theta[:, :first], expected.theta)
    assert run.wait() is draws


def test_a_run_that_is_stopped_in_its_warmup_has_no_draws() -> None:
    run = endless(warmup=10**9)
    until(lambda: run.progress.phase == "warm-up")
    assert run.peek() is None
    with pytest.warns(UserWarning, match="interrupted: 0 of 1000 draws .*the warm-up was not over"):
        assert run.stop().n_draws == 0


def test_cancel_discards() -> None:
    run = endless()
    run.cancel()
    assert run.done and run.progress.phase == "cancelled"
    for use in (run.wait, run.peek, run.stop):
        with pytest.raises(RuntimeError, match="the run was cancelled, which discards its draws; `stop` keeps them"):
            use()


def test_the_end_of_a_with_block_stops_the_run() -> None:
    with endless() as run:
        assert not run.done
    assert run.done and run.progress.phase == "stopped"
    with pytest.raises(LookupError), endless() as run:
        raise LookupError
    assert run.done


def test_a_handle_raises_what_the_run_raised_and_warns_at_its_line() -> None:
    def fails(draws: pn.Draws) -> bool:
        raise LookupError("from until")

    run = pn.start(POST, draws=60, until=fails, **SETTINGS)
    for _ in range(2):
        with pytest.raises(LookupError, match="from until"):
            run.wait()
    assert run.done and run.progress.phase == "failed"
    with pytest.raises(ValueError, match="draws must be at least 1"):
        pn.start(POST, draws=0)
    with pytest.raises(ValueError, match=r"init must have shape"):
        pn.start(POST, init=np.zeros((2, 2)))
    settings: dict[str, Any] = {**SETTINGS, "warmup": None}
    with pytest.warns(UserWarning, match="the step size adapts while sampling") as caught:
        run = pn.start(POST, pn.PCNL(0.1, adapt="always"), draws=5, **settings)
    assert caught[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        run.wait()
    run = pn.start(POST, pn.PCNL(), draws=5, **{**SETTINGS, "warmup": pn.Warmup.default(pn.PCNL(), at_most=3000)})
    with pytest.warns(UserWarning, match="the warm-up ended") as caught:
        run.wait()
    assert caught[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        run.wait()  # which has warned


def test_a_run_cannot_wait_for_itself() -> None:
    refused: list[str] = []

    def ends_itself(draws: pn.Draws) -> bool:
        try:
            run.stop()
        except RuntimeError as error:
            refused.append(str(error))
        return True

    begun = threading.Event()
    run = pn.start(POST, draws=60, until=lambda draws: begun.wait() and ends_itself(draws), **SETTINGS)
    begun.set()
    run.wait()
    assert refused == ["the run cannot wait for its own end: `until` ends it by returning True."]


def test_two_handles_from_two_threads() -> None:
    found: dict[int, Any] = {}

    def work(seed: int) -> None:
        found[seed] = pn.start(POST, draws=40, **{**SETTINGS, "seed": seed}).wait()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, draws in found.items():
        assert_same_runs(draws, pn.sample(POST, draws=40, **{**SETTINGS, "seed": seed}))


def test_a_device_has_no_borders() -> None:
    settings: dict[str, Any] = {"draws": 4, "warmup": None, "device": "emulated:4", "progress": False, "seed": 0}
    try:
        expected = pn.sample(POST, pn.PCNL(0.1), **settings)
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"no emulated device: {error}")
    run = pn.start(POST, pn.PCNL(0.1), **settings)
    for use in (run.pause, run.resume, run.peek):
        with pytest.raises(ValueError, match='needs device="cpu": emulated:4 makes all draws in one launch'):
            use()
    assert_same_runs(run.wait(), expected)
    assert run.progress.draws == 4


# Stores


def test_a_stopped_run_goes_on_from_its_store(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    store = tmp_path / "run.zarr"
    settings: dict[str, Any] = {"chains": 2, "warmup": 300, "seed": 1, "thin": 50}
    run = pn.start(POST, pn.PCNL(), draws=MANY, store=store, progress=False, **settings)
    until(lambda: run.peek() is not None)
    draws = run.stop()
    assert 0 < draws.n_draws < MANY and run.progress.kill_costs == 0
    more = draws.n_draws + 20
    resumed = pn.resume(store, more, progress=False)
    np.testing.assert_array_equal(resumed.theta[:, : draws.n_draws], draws.theta)
    np.testing.assert_array_equal(resumed.theta, pn.sample(POST, pn.PCNL(), draws=more, **settings).theta)
    with pytest.raises(FileExistsError):
        pn.start(POST, draws=5, store=store)
    other = tmp_path / "other.zarr"
    run = pn.start(POST, pn.PCNL(), draws=MANY, store=other, progress=False, **settings)
    until(lambda: run.peek() is not None)
    run.cancel()
    assert not other.exists() and store.exists()


def test_a_resumed_run_has_a_handle_and_its_store_outlives_a_cancel(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    store, settings = tmp_path / "run.zarr", {**SETTINGS, "warmup": 300, "thin": 50}
    first = pn.sample(POST, pn.PCNL(), draws=20, store=store, **settings)
    run = pn.resume(store, MANY, progress=False, wait=False)
    assert run._since[1] >= 3 * 20 * 50  # the speed is that of its own steps
    with pytest.raises(FileExistsError, match="another run writes to"):
        pn.resume(store, MANY, wait=False)
    until(lambda: run.progress.draws > 20 and run.progress.phase == "sampling")
    run.pause()
    until(lambda: run.progress.phase == "paused")
    so_far = run.peek()
    assert so_far is not None and so_far.n_draws > 20
    run.cancel()
    with pytest.raises(RuntimeError, match="the run was cancelled"):
        run.wait()
    kept = pn.Draws.open(store).n_draws
    assert kept >= so_far.n_draws
    with pn.resume(store, kept + 20, progress=False, wait=False) as run:
        draws = run.wait()
    assert run.progress.phase == "completed"
    np.testing.assert_array_equal(draws.theta[:, :20], first.theta)
    assert_same_runs(draws, pn.sample(POST, pn.PCNL(), draws=kept + 20, **settings))
    with pytest.raises(ValueError, match="draws is the total of each chain"):
        pn.resume(store, 20, wait=False)
    pn.resume(store, kept + 21, progress=False)  # the lock has ended with each of these runs


# Ends of processes

SCRIPT = """
    import sys, time, os, threading
    import numpy as np
    import patrac_native as pn
    X = np.linspace(-1, 1, 30)[:, None]
    net = pn.Network([np.ones((4, 1)), np.ones((1, 4))], [np.linspace(-1, 1, 4), np.zeros(1)])
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(1.0), X, X[:, 0])
    settings = dict(chains=2, thin=1000, warmup=100, seed=0, threads=2, progress=False)
"""


def ended(tail: str) -> subprocess.CompletedProcess[str]:
    """Run a script to its end."""
    return process("-c", textwrap.dedent(SCRIPT) + textwrap.dedent(tail))


@pytest.mark.slow
def test_the_end_of_the_interpreter_ends_an_abandoned_run(tmp_path: Path) -> None:
    """Running, paused, stored: nothing on standard error, the exit code of the program, and a store to resume."""
    store = tmp_path / "run.zarr"
    done = ended(
        f"""
        runs = [pn.start(post, draws=10**5, **settings) for _ in range(3)]
        runs[1].pause()
        try:
            import zarr, xarray
            runs.append(pn.start(post, draws=10**5, store={str(store)!r}, **settings))
        except ImportError:
            pass
        while any(run.progress.draws == 0 and run.progress.phase != "paused" for run in runs):
            time.sleep(0.01)
        sys.exit(7)
        """
    )
    assert (done.returncode, done.stderr) == (7, "")
    if store.exists():
        first = pn.Draws.load(store)
        assert 0 < first.n_draws < 10**5
        resumed = pn.resume(store, first.n_draws + 1, progress=False)
        np.testing.assert_array_equal(resumed.theta[:, :-1], first.theta)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["pn.sample({})", "pn.start({}).wait()"])
def test_sigterm_leaves_a_store_to_resume(call: str, tmp_path: Path) -> None:
    """The signal of schedulers ends the process at once, as it ends any program of Python."""
    pytest.importorskip("zarr")
    store = tmp_path / "run.zarr"
    done = ended(
        f"""
        import signal
        def end():
            while not os.path.exists({str(store / "checkpoint.npz")!r}) or not pn.Draws.load({str(store)!r}).n_draws:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
        threading.Thread(target=end).start()
        {call.format(f"post, draws=10**5, store={str(store)!r}, **settings")}
        """
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    first = pn.Draws.load(store)
    resumed = pn.resume(store, first.n_draws + 1, progress=False)
    np.testing.assert_array_equal(resumed.theta[:, :-1], first.theta)


def test_the_first_progress_of_a_resumed_run_knows_its_warmup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warm-up ended before its last step; and a run that `until` ended has nothing to lose."""
    pytest.importorskip("zarr")
    begins, work, store = threading.Event(), pn.Run._work, tmp_path / "run.zarr"
    settings = {**SETTINGS, "warmup": "auto", "draws": 200}
    with pn.start(POST, pn.PCNL(), store=store, until=lambda draws: True, **settings) as run:
        first = run.wait()
    assert first.n_draws == 20 and run.progress.kill_costs == 0

    def waits(self: pn.Run, carry_out: Any) -> None:
        begins.wait()
        work(self, carry_out)

    monkeypatch.setattr(pn.Run, "_work", waits)
    with pn.resume(store, 50, progress=False, wait=False) as run:
        steps, draws = run.progress.total_steps, run.progress.draws
        begins.set()
        run.wait()
    assert draws == 20 and steps == 3 * (first.settings["warmup_steps"] + 50 * 3) < run._run.steps


@pytest.mark.slow
def test_a_kill_costs_no_more_draws_than_the_run_had_said(tmp_path: Path) -> None:
    """The last line that a killed process had written is held against its store."""
    pytest.importorskip("zarr")
    script = textwrap.dedent(SCRIPT) + textwrap.dedent(
        f"""
        store = {str(tmp_path / "run.zarr")!r}
        settings |= dict(thin=50)
        if os.path.exists(store):
            run = pn.resume(store, 10**8, threads=2, progress=False, wait=False)
        else:
            run = pn.start(post, draws=10**8, store=store, **settings)
        while True:
            time.sleep(0.002)
            now = run.progress
            print(now.draws, now.kill_costs, "a kill costs at most" in str(now), flush=True)
        """
    )
    kept = 0
    for lines in (5, 300, 900):
        run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        said = [run.stdout.readline().split() for _ in range(lines)]
        run.kill()
        rest, _ = run.communicate()
        said += [line.split() for line in rest.split("\n")[:-1]]
        if not (tmp_path / "run.zarr" / "checkpoint.npz").exists():
            shutil.rmtree(tmp_path / "run.zarr")
            continue
        kept = pn.Draws.open(tmp_path / "run.zarr").n_draws
        for draws, costs, is_in_words in said:
            assert costs == "None" or (kept >= int(draws) - int(costs) and is_in_words == "True")
    assert kept and said[-1][1] != "None" and int(said[-1][1]) < 10**7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_has_no_run() -> None:
    """A child samples for itself, is told whose the run is, and ends; the run of its parent goes on."""
    done = ended(
        """
        import warnings
        warnings.simplefilter("ignore")  # Python's of threads that a child does not have
        run = pn.start(post, draws=10**5, **settings)
        while run.progress.draws == 0:
            time.sleep(0.01)
        child = os.fork()
        if child == 0:
            assert pn.sample(post, draws=3, **settings).n_draws == 3
            assert pn.start(post, draws=3, **settings).wait().n_draws == 3
            for use in (run.wait, run.pause, run.stop, run.cancel):
                try:
                    use()
                except RuntimeError as error:
                    assert "of which this one is a fork" in str(error), error
                else:
                    raise AssertionError
            sys.exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        before = run.progress.steps
        while run.progress.steps == before:
            time.sleep(0.01)
        assert run.stop().n_draws
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_runs_leave_no_thread_and_no_memory() -> None:
    """Of 200 short runs, every other of which fails; `RUNS=1000` in the environment asks for more."""
    done = ended(
        f"""
        import gc, resource
        def rss():
            gc.collect()
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * resource.getpagesize() / 2**20
        def fails(draws):
            raise LookupError
        def one(index):
            run = pn.start(post, draws=20, until=fails if index % 2 else None, **settings | dict(thin=1))
            try:
                run.wait()
            except LookupError:
                pass
        for index in range(50):
            one(index)
        threads, before = threading.active_count(), rss()
        for index in range({int(os.environ.get("RUNS", "200"))}):
            one(index)
        assert threading.active_count() == threads == 1, threading.enumerate()
        print(rss() - before)
        """
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 5.0


def test_a_handle_that_nobody_holds_is_freed() -> None:
    import weakref

    run = pn.start(POST, draws=5, **SETTINGS)
    run.wait()
    seen = weakref.ref(run)
    del run
    gc.collect()
    assert seen() is None
