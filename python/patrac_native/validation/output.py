"""Output files: checked before the work, written under another name and renamed, so that no part is left behind."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

# What the system reports where a file system, a quota or a limit on the size of files is exhausted.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
        if error.errno in _NO_ROOM:
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
