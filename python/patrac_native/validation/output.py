"""Output files: checked before the work, written under another name and renamed, so that no part is left behind."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from patrac_native.validation.memory import in_units

# What the system reports where a file system, a quota or a limit on the size of files is exhausted.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Raise OSError if a path cannot become a file: its folder is missing, or it is a folder, a device or a pipe."""
    target = path_of(path)
    folder = os.path.dirname(target) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{target} cannot be written: there is no folder {folder}; make it first.")
    if os.path.isdir(target):
        raise IsADirectoryError(f"{target} is a folder; give the path of a file.")
    if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
        raise FileExistsError(f"{target} is a device or a pipe, which a file cannot replace; give the path of a file.")


def path_of(path: str | os.PathLike[str]) -> str:
    """Return the path of a file as text."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be the path of a file, as text or a path object; got {path!r}.")
    target = os.fspath(path)
    if not target:
        raise ValueError("path is empty; give the path of a file.")
    return target


def check_folder(path: str, argument: str) -> None:
    """Raise OSError if a folder cannot be made or written; it is made only when there is something to write."""
    if not path or "\0" in path:
        raise ValueError(f"{argument} must be the path of a folder; got {path!r}.")
    made = []
    at = os.path.abspath(path)
    try:
        while not os.path.lexists(at):
            made.append(at)
            at = os.path.dirname(at)
        if not os.path.isdir(at):
            raise NotADirectoryError(f"{argument} must be a folder or a new one; {at!r} is a file.")
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as stream:
            stream.write(b"room")
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, f"{argument} cannot be written: {os.strerror(error.errno)}", path) from error
    finally:
        for folder in made:
            if os.path.isdir(folder):
                os.rmdir(folder)


def check_room(path: str, needed: int, argument: str, less: str) -> None:
    """Raise OSError if the disk of a folder, which need not exist, has less than `needed` bytes left."""
    at = os.path.abspath(path)
    while not os.path.isdir(at):
        at = os.path.dirname(at)
    free = shutil.disk_usage(at).free
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"{argument} needs up to {in_units(needed)}, and its disk has {in_units(free)} left; free some, choose "
            f"another folder, or {less}",
            path,
        )


@contextmanager
def replacing(path: str | os.PathLike[str], *, size: int | None = None, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a new file that replaces `path` when the block ends without an error; a link stays a link."""
    check_replaceable(path)
    target = os.fspath(path)
    partial = f"{os.path.realpath(target)}.{secrets.token_hex(4)}.partial"
    options: dict[str, Any] = {"mode": "xb"} if binary else {"mode": "x", "encoding": "utf-8", "newline": ""}
    try:
        with open(partial, **options) as stream:
            yield stream
        os.replace(partial, os.path.realpath(target))
    except OSError as error:
        if error.errno in NO_ROOM:
            needed = "what is to be written" if size is None else f"{size} bytes"
            raise OSError(
                error.errno, f"no room on the disk for {needed}; free some or choose another path", target
            ) from error
        if error.filename in (None, partial):
            raise OSError(error.errno, error.strerror or str(error), target) from error
        raise
    finally:
        if os.path.exists(partial):
            os.remove(partial)
