"""A folder of results as one transaction: staged in a folder beside it, locked, and exchanged for it by one rename."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from patrac_native.files.output import held, is_at, lock, sync

# renameat2 of Linux: paths relative to the working folder, and the flag that exchanges two of them.
_HERE, _EXCHANGE = -100, 2


@contextmanager
def staging(folder: str, names: Collection[str]) -> Iterator[str]:
    """Open a new folder beside `folder` for files of these names, which `commit` puts in its place.

    It is locked until the block ends. What a killed process left there is cleaned; files of other names are kept.
    """
    target = os.path.realpath(folder)
    if not folder or target == os.path.realpath(os.getcwd()) or os.path.ismount(target):
        raise FileExistsError(
            f"{folder or 'an empty path'} cannot be replaced as a whole, since it is the working folder or a mount "
            "point; give a folder in it with --out."
        )
    if os.path.lexists(target) and not os.path.isdir(target):
        raise FileExistsError(f"{folder} is no folder; give another with --out.")
    refuse_dangling(folder)
    parent, name = os.path.split(target)
    path = os.path.join(parent, f".{name}.staged")
    while True:
        os.makedirs(path, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # who had it has just removed it
            continue
        if not lock(descriptor, wait=False):
            os.close(descriptor)
            raise FileExistsError(f"another process writes to {folder}; wait for it, or give another --out.")
        # Who had the lock before may have moved or removed the folder.
        if is_at(descriptor, path):
            break
        os.close(descriptor)
    try:
        if os.path.isdir(f"{path}.old") and not os.path.lexists(target):
            os.rename(f"{path}.old", target)
        _remove(f"{path}.old", target, names)
        _clean(path, target, names)
        with held(descriptor):
            yield path
    finally:
        if is_at(descriptor, path):  # not after `commit`
            _remove(path, target, names)
        os.close(descriptor)


def commit(path: str, folder: str, names: Collection[str]) -> None:
    """Put a staged folder, whose files are complete, in the place of `folder`; modes of folder and files stay."""
    target = os.path.realpath(folder)
    for name in names:
        with suppress(FileNotFoundError):  # not every name is in both
            os.chmod(os.path.join(path, name), stat.S_IMODE(os.stat(os.path.join(target, name)).st_mode))
    sync(path)
    if os.path.isdir(target):
        os.chmod(path, stat.S_IMODE(os.stat(target).st_mode))
        exchange(path, target)
    else:
        os.replace(path, target)
    sync(os.path.dirname(target))
    _remove(path, target, names)


def refuse_dangling(folder: str) -> None:
    """Raise FileExistsError if a folder, or one above it, is a link to what is not there, which would be made."""
    part = folder.rstrip(os.sep)
    while part:
        if os.path.islink(part) and not os.path.exists(part):
            raise FileExistsError(
                f"{part} is a link to a folder that is not there; remove it, or give another with --out."
            )
        part = os.path.dirname(part).rstrip(os.sep)


def exchange(path: str, target: str) -> None:
    """Exchange two folders: in one step where the system can, else in three, from which `staging` recovers."""
    with suppress(AttributeError):  # a system without this function
        rename = ctypes.CDLL(None).renameat2
        if rename(_HERE, os.fsencode(path), _HERE, os.fsencode(target), _EXCHANGE) == 0:
            return
    os.rename(target, f"{path}.old")
    os.rename(path, target)
    os.rename(f"{path}.old", path)


def _clean(path: str, target: str, names: Collection[str]) -> None:
    """Empty a staged or replaced folder; of a replaced one, files of other names move to the one in its place."""
    with suppress(OSError):
        for entry in os.listdir(path):
            here, there = os.path.join(path, entry), os.path.join(target, entry)
            if entry.removesuffix(".partial") in names:
                os.remove(here)
            elif not os.path.lexists(there):
                os.rename(here, there)


def _remove(path: str, target: str, names: Collection[str]) -> None:
    """Remove a staged or replaced folder once it is empty."""
    _clean(path, target, names)
    with suppress(OSError):
        os.rmdir(path)
