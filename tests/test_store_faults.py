"""Faults around the store of a run: disks, rights, other processes, and files that a stranger changed.

Each is an error with a message for the user, and nothing that a checkpoint had confirmed is lost.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import patrac_native as pn
from chains import assert_same_runs
from patrac_native.draws import run_folder
from patrac_native.files import archive, contents_hash, output
from test_resume import sampled

pytest.importorskip("xarray")
pytest.importorskip("zarr")


@pytest.fixture
def stopped(short_stretches: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with whole chunks and draws in its checkpoint, whose run asks for 60 draws."""
    store, save = tmp_path / "run.zarr", run_folder.RunFolder.save

    def fails(self: run_folder.RunFolder, at: run_folder.Checkpoint) -> None:
        if at.draws > 40 and at.theta is not None and at.theta.shape[1]:
            save(self, at)
            raise KeyboardInterrupt
        save(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder.RunFolder, "save", fails)
        assert 40 < sampled("pcnl", 60, warmup=100, store=store).n_draws < 60
    at = run_folder.RunFolder(store).checkpoint()
    assert at is not None and 0 < at.written < at.draws
    return store


def test_a_store_of_a_newer_format_is_refused_with_both_versions(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("checkpoint.npz", "run.npz"):
        kind = run_folder._RUN_KIND if name == "run.npz" else run_folder._CHECKPOINT_KIND
        header, arrays = archive.load_arrays(stopped / name, kind)
        with monkeypatch.context() as patch:
            patch.setattr(archive, "FORMAT_VERSION", 2)
            archive.save_arrays(stopped / name, kind, header, arrays, overwrite=True)
        message = rf"{name} has file format 2, but this version of patrac_native reads 1; read it with the version that"
        for read in (pn.Draws.open, lambda store: pn.resume(store, 60, progress=False)):
            with pytest.raises(ValueError, match=message):
                read(stopped)


def test_a_folder_without_write_access_is_named(stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as root, who may write anywhere: the system's answers are those to another user."""
    access = os.access
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
        with pytest.raises(PermissionError, match=r"run\.zarr is read-only, .* copy it .* or only read .* Draws\.open"):
            pn.resume(stopped, 60, progress=False)
        assert pn.Draws.open(stopped).predict(np.zeros((1, 2))).shape[1] > 40
    for number in (errno.EACCES, errno.EROFS):
        with monkeypatch.context() as patch:
            patch.setattr(os, "mkdir", Mock(side_effect=OSError(number, os.strerror(number))))
            with pytest.raises(OSError, match=rf"b\.zarr' cannot be made: {os.strerror(number)}. Give a path in a"):
                sampled("pcnl", 10, store=tmp_path / "b.zarr")
    assert_same_runs(pn.resume(stopped, 60, progress=False), sampled("pcnl", 60, warmup=100))


def test_a_file_system_without_rename_is_named(stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = "this file system does not rename a file, which puts a complete one in its place; choose a path on"
    confirmed = pn.Draws.open(stopped).theta
    with monkeypatch.context() as patch:
        patch.setattr(output.os, "replace", Mock(side_effect=OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))))
        with pytest.raises(OSError, match=f"Operation not supported: {message}.*run.npz"):
            sampled("pcnl", 10, store=tmp_path / "b.zarr")
        assert not (tmp_path / "b.zarr").exists()
        with pytest.raises(OSError, match=message):
            pn.resume(stopped, 60, progress=False)
    assert np.array_equal(pn.Draws.open(stopped).theta, confirmed)
    assert_same_runs(pn.resume(stopped, 60, progress=False), sampled("pcnl", 60, warmup=100))


@pytest.mark.parametrize("where", ["checkpoint", "chunk"])
def test_a_full_disk_ends_the_run_and_says_what_stays(
    where: str, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the files are synced, or when zarr writes a chunk."""
    before = pn.Draws.open(stopped).n_draws
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patch:
        if where == "checkpoint":
            patch.setattr(archive.np, "savez", Mock(side_effect=full))
        else:
            patch.setattr("zarr.storage.LocalStore.set", Mock(side_effect=full))
        words = r"no room on the disk for \d+ bytes; free some" if where == "checkpoint" else "No space left on device"
        with pytest.raises(OSError, match=f"{words}.*; the run has ended, .* stays: resume goes on") as caught:
            pn.resume(stopped, 200, progress=False)
        assert caught.value.errno == errno.ENOSPC
    assert pn.Draws.open(stopped).n_draws >= before
    assert_same_runs(pn.resume(stopped, 60, progress=False), sampled("pcnl", 60, warmup=100))


@pytest.mark.parametrize("damage", ["truncated", "a flipped byte", "empty", "another array's metadata", "no metadata"])
def test_a_damaged_array_is_an_error_that_names_it(damage: str, stopped: Path) -> None:
    (chunk,) = stopped.glob("posterior/weights_1/c/0/0/*/*")
    content, file = chunk.read_bytes(), chunk
    if damage == "truncated":
        chunk.write_bytes(content[:-5])
    elif damage == "empty":
        chunk.write_bytes(b"")
    elif damage == "a flipped byte":
        chunk.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    else:
        file = stopped / "posterior/weights_1/zarr.json"
        file.write_text((stopped / "posterior/biases_1/zarr.json").read_text() if damage[0] == "a" else "{")
    message = {"no metadata": r"run\.zarr/posterior is damaged \(", "another array's metadata": "weights_1"}
    with pytest.raises(ValueError, match=message.get(damage, r"posterior/weights_1 is damaged \(.*; restore a copy")):
        pn.Draws.open(stopped).quantiles(np.zeros((1, 2)))


@pytest.mark.usefixtures("short_stretches")
def test_a_chunk_that_no_checkpoint_counts_is_written_again(stopped: Path) -> None:
    """A kill may leave a part of the next chunk, and arrays of which some are longer than others."""
    folder = run_folder.RunFolder(stopped)
    at, (header, _) = folder.checkpoint(), folder.given()
    assert at is not None
    number, left = at.written // header["chunk"], 0
    for first in stopped.glob("*/*/c/0/0"):
        whole = next(path for path in (first, *first.rglob("*")) if path.is_file())
        part = first.parent / str(number) / whole.relative_to(first)
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(whole.read_bytes()[:20])
        left += 1
    array = run_folder.import_extra("zarr", "store", "store").open_group(stopped, mode="r+")["posterior/biases_1"]
    array.resize((array.shape[0], array.shape[1] + 3, *array.shape[2:]))
    assert left > 5
    assert pn.Draws.open(stopped).n_draws == at.draws
    assert_same_runs(pn.resume(stopped, 60, progress=False), sampled("pcnl", 60, warmup=100))


TERMINATED = """
import sys
sys.path.insert(0, sys.argv[1])
import test_resume
test_resume.sampled("pcnl", 10**9, warmup=100, store=sys.argv[2])
"""


@pytest.mark.slow
def test_a_second_process_is_refused_and_sigterm_loses_nothing_confirmed(tmp_path: Path) -> None:
    store = tmp_path / "run.zarr"
    run = subprocess.Popen([sys.executable, "-c", TERMINATED, str(Path(__file__).parent), str(store)])
    try:
        while not (store / "checkpoint.npz").exists() or not pn.Draws.open(store).n_draws:
            assert run.poll() is None
            time.sleep(0.1)
        with pytest.raises(FileExistsError, match=r"another run writes to .*run\.zarr; wait for it, or read its draws"):
            pn.resume(store, 10**9, progress=False)
        with pytest.raises(FileExistsError, match=r"run\.zarr' exists: patrac_native\.resume\(store, draws\) goes on"):
            sampled("pcnl", 10, store=store)
        confirmed = pn.Draws.open(store)
        assert confirmed.theta.shape[1] > 0
    finally:
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == -signal.SIGTERM
    after = pn.Draws.open(store).n_draws
    assert after >= confirmed.n_draws
    assert_same_runs(pn.resume(store, after + 7, progress=False), sampled("pcnl", after + 7, warmup=100))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_does_not_hold_the_lock_of_a_run(stopped: Path) -> None:
    """The lock is that of the process that took it: it ends with the run, also while a child of it lives on."""
    folder = run_folder.RunFolder(stopped)
    reading, writing = os.pipe()
    with folder.locked():
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent has closed its end
            # A killed parent closes nothing: the child must have let go by itself.
            has_let_go = output._HELD and all(stat.S_ISCHR(os.fstat(one).st_mode) for one in output._HELD)
            os._exit(0 if has_let_go else 1)
        with pytest.raises(FileExistsError, match="another run writes"), folder.locked():
            pass
    os.close(reading)
    try:
        assert_same_runs(pn.resume(stopped, 60, progress=False), sampled("pcnl", 60, warmup=100))
    finally:
        os.close(writing)
        assert os.waitpid(child, 0)[1] == 0


# -- checkpoints that a stranger wrote, with the right hash ------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-3, 100),
    st.sampled_from([2**31, 2**61, 2**62, 2**63 - 1, 2**63, 2**64, 10**30]),
    st.sampled_from([True, None, "x", 0.5, 1e308, float("nan"), [], {}]),
)
SHAPES: list[Callable[[Any], Any]] = [
    lambda array: array[:0],
    lambda array: array[..., :-1],
    lambda array: np.concatenate([array, array]),
    lambda array: array.reshape(-1),
    lambda array: array * np.nan if array.dtype.kind == "f" else -array.astype(np.int64),
    lambda array: array.astype(np.float16),
    lambda array: array.astype(np.int64),
    lambda array: array.astype(complex),
    lambda array: array.astype(str),
    lambda array: np.full_like(array, np.iinfo(array.dtype).max if array.dtype.kind in "iu" else 1e30),
    lambda array: np.zeros((3, 0, 10**12), np.float32),
]


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, Any]:
    """Something in a checkpoint that is changed: a number of its header, an array, or bytes of the states."""
    kind = draw(st.sampled_from(["header", "header", "array", "state", "state", "missing"]))
    if kind == "header":
        return kind, (
            draw(st.sampled_from(["step", "draws", "written", "next_steps", "seconds", "sizes"])),
            draw(NUMBERS),
        )
    if kind == "array":
        return kind, (draw(st.integers(0, 30)), draw(st.sampled_from(SHAPES)))
    if kind == "state":
        place = draw(st.integers(0, 120))
        word = draw(st.one_of(st.binary(min_size=8, max_size=8), NUMBERS.filter(lambda x: type(x) is int)))
        return kind, (place, word if isinstance(word, bytes) else (word % 2**64).to_bytes(8, "little"))
    return kind, draw(st.integers(0, 30))


def forged(header: dict[str, Any], arrays: dict[str, Any], change: tuple[str, Any]) -> None:
    """Change the contents of a checkpoint in place."""
    kind, what = change
    names = list(arrays)
    if kind == "header":
        name, value = what
        header[name] = [value] * 3 if name == "sizes" else value
    elif kind == "array":
        name = names[what[0] % len(names)]
        with np.errstate(all="ignore"):
            arrays[name] = what[1](arrays[name])
    elif kind == "state":
        place, word = what
        states = bytearray(arrays["states"].tobytes())
        place = 8 * place % (len(states) - 8)
        states[place : place + 8] = word
        arrays["states"] = np.frombuffer(bytes(states), np.uint8)
    else:
        del arrays[names[what % len(names)]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stores of kernels whose states differ most."""
    found = {}
    for name in ("scales and variance", "slice", "rows"):
        found[name] = tmp_path_factory.mktemp("fuzz") / f"{name}.zarr"
        sampled(name, 12, warmup=40, store=found[name])
        # Draws in the checkpoint, as in a run that goes on.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run_folder.RunFolder, "append", Mock(side_effect=KeyboardInterrupt()))
            pn.resume(found[name], 20, progress=False)
    return found


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(name=st.sampled_from(["scales and variance", "slice", "rows"]), change=changes())
def test_a_forged_checkpoint_is_refused_or_works(
    name: str, change: tuple[str, Any], stores: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It raises a ValueError or goes on, and takes no more memory or time than a small run."""
    store = tmp_path_factory.getbasetemp() / "forged.zarr"
    shutil.rmtree(store, ignore_errors=True)
    shutil.copytree(stores[name], store)
    with np.load(store / "checkpoint.npz") as content:
        arrays = {key: content[key] for key in content.files if key != "sha256"}
    header = json.loads(str(arrays.pop("header")))
    forged(header, arrays, change)
    members = {"header": np.array(json.dumps(header)), **arrays}
    np.savez(store / "checkpoint.npz", **members, sha256=contents_hash(members))
    for use in (
        lambda: pn.Draws.open(store).predict(np.zeros((1, 2))),
        lambda: pn.resume(store, 16, progress=False),
    ):
        try:
            with pn.Note.collect():
                use()
        except ValueError as error:
            assert re.search(r"forged\.zarr|checkpoint\.npz|state:|init:|draws is the total", str(error)), error
