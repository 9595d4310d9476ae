"""The folder of a fit is one transaction: whatever is killed when, it holds the old results or the new ones, whole."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

import patrac_native as pn
from patrac_native.files import folder as folders
from patrac_native.files.folder import commit, staging
from patrac_native.files.output import replacing
from scripts import process

NAMES = ("report.html", "summary.json", "estimator.npz", "table.json")

# Replaces the results in `run` and kills itself before or after the n-th rename. All results of one fit are alike.
REPLACE = """
import os, signal, sys, types

# The package without all that it imports.
package = types.ModuleType("patrac_native")
package.__path__ = [sys.argv.pop(1)]
sys.modules["patrac_native"] = package
from patrac_native.files import folder
from patrac_native.files.output import replacing

wanted, is_exchange, names = int(sys.argv[1]), sys.argv[2] == "exchange", sys.argv[3:]
count = 0

def killing(rename):
    def wrapped(*arguments):
        global count
        for _ in range(2):
            count += 1
            if count == wanted:
                os.kill(os.getpid(), signal.SIGKILL)
            if count % 2:
                rename(*arguments)
    return wrapped

# The writes' renames are os.replace; that of the folder is exchange, or the three of systems without it.
os.replace = killing(os.replace)
if is_exchange:
    folder.exchange = killing(folder.exchange)
else:
    folder.ctypes.CDLL = lambda _: object()
    os.rename = killing(os.rename)
with folder.staging("run", names) as staged:
    for name in names:
        with replacing(os.path.join(staged, name)) as stream:
            stream.write("new")
    folder.commit(staged, "run", names)
"""


def write(folder: Path, content: str, names: tuple[str, ...] = NAMES) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(content)


def replace_in(place: Path, kill: int, how: str) -> int:
    return process("-c", REPLACE, str(Path(pn.__file__).parent), str(kill), how, *NAMES, cwd=place).returncode


def contents(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in NAMES]


@pytest.mark.parametrize("kill", range(1, 11))
def test_a_killed_replacement_leaves_the_old_or_the_new(kill: int, tmp_path: Path) -> None:
    """Five renames, before and after each; the next replacement cleans, and foreign files are still there."""
    write(tmp_path / "run", "old")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert replace_in(tmp_path, kill, "exchange") == -signal.SIGKILL
    assert contents(tmp_path / "run") == ["old" if kill < 10 else "new"] * 4
    with staging(str(tmp_path / "run"), NAMES) as staged:
        assert os.listdir(staged) == [] and (tmp_path / "run" / "notes.txt").read_text() == "mine"
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("kill", [9, 10, 11, 12, 13, 14, 99])
def test_systems_that_cannot_exchange_recover(kill: int, tmp_path: Path) -> None:
    write(tmp_path / "run", "old")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert replace_in(tmp_path, kill, "three renames") == (0 if kill == 99 else -signal.SIGKILL)
    with staging(str(tmp_path / "run"), NAMES):
        assert contents(tmp_path / "run") == ["old" if kill < 12 else "new"] * 4
        assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    assert os.listdir(tmp_path) == ["run"]


def test_two_at_once_are_refused_and_an_error_leaves_nothing(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    with staging(run, NAMES), pytest.raises(FileExistsError, match="another process writes to"), staging(run, NAMES):
        pass
    with pytest.raises(RuntimeError), staging(run, NAMES) as staged:
        write(Path(staged), "half", NAMES[:2])
        raise RuntimeError
    assert os.listdir(tmp_path) == []


def test_modes_of_files_stay(tmp_path: Path) -> None:
    write(tmp_path / "run", "old", NAMES[:3])
    for name in NAMES[:2]:
        (tmp_path / "run" / name).chmod(0o600)
    with staging(str(tmp_path / "run"), NAMES) as staged:
        write(Path(staged), "new")
        new = (Path(staged) / NAMES[3]).stat().st_mode & 0o777
        commit(staged, str(tmp_path / "run"), NAMES)
    assert contents(tmp_path / "run") == ["new"] * 4
    assert [(tmp_path / "run" / name).stat().st_mode & 0o777 for name in NAMES] == [0o600, 0o600, new, new]


@pytest.mark.parametrize("folder", ["link", "link/", "link/run"])
def test_links_to_folders_that_are_not_there_are_refused(folder: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    with pytest.raises(FileExistsError, match="link is a link to a folder that is not there; remove it"):
        with staging(f"{tmp_path}/{folder}", NAMES):
            pass
    assert os.listdir(tmp_path) == ["link"]


def test_modes_and_links_of_folders_stay(tmp_path: Path) -> None:
    write(tmp_path / "real", "old")
    (tmp_path / "real").chmod(0o700)
    (tmp_path / "run").symlink_to("real")
    with staging(str(tmp_path / "run"), NAMES) as staged:
        write(Path(staged), "new")
        commit(staged, str(tmp_path / "run"), NAMES)
        # What another process stages from now on is its own.
        write(Path(staged), "theirs")
    assert (tmp_path / "run").is_symlink() and contents(tmp_path / "real") == ["new"] * 4
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o700
    assert contents(Path(staged)) == ["theirs"] * 4


@pytest.mark.parametrize("name", ["", ".", "file"])
def test_folders_that_cannot_be_replaced_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept")
    with pytest.raises(FileExistsError, match="--out"), staging(name, NAMES):
        pass
    assert os.listdir(tmp_path) == ["file"]


def test_this_system_exchanges_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the first test is about what it says."""
    if not sys.platform.startswith("linux"):
        pytest.skip("renameat2 is of Linux")
    write(tmp_path / "a", "a")
    write(tmp_path / "b", "b")
    monkeypatch.setattr(folders.os, "rename", None)
    folders.exchange(str(tmp_path / "a"), str(tmp_path / "b"))
    assert contents(tmp_path / "a") == ["b"] * 4 and contents(tmp_path / "b") == ["a"] * 4


def test_a_file_is_replaced_with_its_links_and_modes(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("old")
    (tmp_path / "p.csv").chmod(0o640)
    with replacing(tmp_path / "p.csv") as stream:
        stream.write("new")
    assert (tmp_path / "p.csv").stat().st_mode & 0o777 == 0o640
