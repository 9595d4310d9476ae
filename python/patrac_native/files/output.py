"""Output files: checked before the work, written under another name and renamed, so that no part is left behind."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

try:
    import fcntl
except ImportError:  # no locks on this system
    fcntl = None  # type: ignore[assignment]

# Descriptors of locked files and folders. A lock ends with the last process that has its descriptor, so that a forked
# child, such as a worker of `multiprocessing`, would keep it after its parent's death.
_HELD: set[int] = set()
# What the system reports where a file system, a quota or a limit on the size of files is exhausted.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Raise OSError if a path cannot become a file: its folder is missing, or it is a folder, a device or a pipe."""
    target = path_of(path)
    folder = os.path.dirname(target) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{target} cannot be written: there is no folder {folder}; make it first.")
    if os.path.islink(target) and not os.path.exists(target):
        raise FileExistsError(f"{target} is a link to a file that is not there; remove it, or give another path.")
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
    if ("\0" if isinstance(target, str) else b"\0") in target:
        raise ValueError(f"path must not hold a NUL character; got {target!r}.")
    return target


@contextmanager
def replacing(path: str | os.PathLike[str], *, size: int | None = None, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a new file that replaces `path` when the block ends without an error; a link stays a link, and modes stay.

    What a killed process left is used again; where another process or thread writes to `path`, it is waited for.
    """
    check_replaceable(path)
    target = os.path.realpath(os.fspath(path))
    partial = f"{target}.partial"
    try:
        with open_locked(partial, binary=binary) as stream, held(stream.fileno()):
            try:
                if os.path.exists(target):
                    os.chmod(partial, stat.S_IMODE(os.stat(target).st_mode))
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                _rename(partial, target)
            except BaseException:
                os.remove(partial)
                raise
        sync(os.path.dirname(target))
    except OSError as error:
        if error.errno in _NO_ROOM:
            needed = "what is to be written" if size is None else f"{size} bytes"
            raise OSError(
                error.errno, f"no room on the disk for {needed}; free some or choose another path", os.fspath(path)
            ) from error
        if error.filename in (None, partial):
            raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error
        raise


def open_locked(path: str, *, binary: bool) -> IO[Any]:
    """Open an empty file that no other process or thread has, once those that have it have moved or closed it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            lock(descriptor)
            # Who had the lock before may have renamed or removed the file.
            is_there = is_at(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        if is_there:
            break
        os.close(descriptor)
    os.ftruncate(descriptor, 0)
    return open(descriptor, "w+b") if binary else open(descriptor, "w", encoding="utf-8", newline="")


def lock(descriptor: int, *, wait: bool = True) -> bool:
    """Lock an open file or folder until it is closed, and return whether it is not another's; as far as systems can."""
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


@contextmanager
def held(descriptor: int) -> Iterator[None]:
    """Keep the lock of an open file or folder to this process until the block ends, before the file is closed."""
    _HELD.add(descriptor)
    try:
        yield
    finally:
        _HELD.discard(descriptor)


def close_locked(descriptor: int) -> None:
    """Close a locked file or folder and end its lock at once, also where a child was forked just before."""
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:  # a file system without locks
        pass
    finally:
        os.close(descriptor)


def _let_go() -> None:
    """Put an empty device in the place of locked files in a forked process, which has them open too."""
    if _HELD:
        empty = os.open(os.devnull, os.O_RDWR)
        for descriptor in _HELD:
            os.dup2(empty, descriptor)
        os.close(empty)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _rename(partial: str, target: str) -> None:
    """Give a complete file its name."""
    try:
        os.replace(partial, target)
    except OSError as error:
        reason = f"{error.strerror}: this file system does not rename a file, which puts a complete one in its place"
        raise OSError(error.errno, f"{reason}; choose a path on another", target) from error


def is_at(descriptor: int, path: str) -> bool:
    """Return whether an open file or folder is the one that a path names now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def sync(*paths: str) -> None:
    """Ask the system to write files, and the names in folders, to the disk, where it can."""
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            os.fsync(descriptor)
        except OSError:
            pass
        finally:
            os.close(descriptor)
