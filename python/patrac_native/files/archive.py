"""Files with arrays and a JSON header: .npz archives without pickle, with a hash of their contents."""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from patrac_native.files.output import check_replaceable, path_of, replacing

FORMAT_VERSION = 1
# The members that `save_arrays` adds: a JSON text, and the SHA-256 of everything else.
_HEADER, _HASH = "header", "sha256"
# Entries of the header that `save_arrays` adds, which `load_arrays` checks and leaves out.
_OWN = ("format", "kind")
Arrays = Mapping[str, npt.NDArray[Any]]
PathOrStream = str | os.PathLike[str] | BinaryIO


def save_arrays(path: PathOrStream, kind: str, header: Mapping[str, Any], arrays: Arrays, *, overwrite: bool) -> None:
    """Write a file of the given kind; if writing fails, an existing file is left unchanged."""
    text = json.dumps({"format": FORMAT_VERSION, "kind": kind, **header})
    members: dict[str, npt.NDArray[Any]] = {_HEADER: np.array(text), **arrays}
    members[_HASH] = contents_hash(members)
    if hasattr(path, "write"):
        np.savez(path, allow_pickle=False, **members)
        return
    target = path_of(path)
    check_replaceable(target)
    if not overwrite and os.path.exists(target):
        raise FileExistsError(f"{target} exists; choose another path or pass overwrite=True.")
    with replacing(target, size=sum(array.nbytes for array in arrays.values()), binary=True) as stream:
        np.savez(stream, allow_pickle=False, **members)


def load_arrays(path: PathOrStream, kind: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read a file written by `save_arrays`, which takes no more memory than a few times the size of the file."""
    name = _name(path)
    with _opened(path) as stream:
        try:
            arrays = _members(stream)
            header = json.loads(str(arrays[_HEADER])) if _HEADER in arrays else None
            if not isinstance(header, dict) or "format" not in header or "kind" not in header:
                raise ValueError("it has no header of this package")
        except Exception as error:  # for a damaged archive zipfile and NumPy raise about ten kinds of exceptions
            raise ValueError(_damaged(name, error)) from error
    version, found = header["format"], header["kind"]
    if version != FORMAT_VERSION or type(version) is not int:
        raise ValueError(
            f"{name} has file format {version!r}, but this version of patrac_native reads {FORMAT_VERSION}; "
            "read it with the version that wrote it."
        )
    written = arrays.pop(_HASH, None)
    if written is None or not np.array_equal(written, contents_hash(arrays)):
        raise ValueError(_damaged(name, "its contents are not those that were written"))
    if found != kind:
        raise ValueError(f"{name} holds {found}, not {kind}; give the path of a file with {kind}.")
    del arrays[_HEADER]
    return {key: value for key, value in header.items() if key not in _OWN}, arrays


def contents_hash(arrays: Arrays) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 (32,) of arrays with their names, dtypes and shapes."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return np.frombuffer(found.digest(), dtype=np.uint8)


def _members(stream: BinaryIO) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an archive, whose members must be as large as their headers say, and no larger than it is."""
    size = stream.seek(0, os.SEEK_END)
    with zipfile.ZipFile(stream) as archive:
        members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
        if len(members) < len(archive.infolist()) or sum(one.file_size for one in members.values()) > size:
            raise ValueError("its members overlap or are compressed")
        arrays = {}
        for name, member in members.items():
            with archive.open(member) as content:
                version = np.lib.format.read_magic(content)
                if version != (1, 0):
                    raise ValueError(f"its {name} is an array of format {version}")
                shape, _, dtype = np.lib.format.read_array_header_1_0(content)
                if dtype.kind not in "biufcU":
                    raise ValueError(f"its {name} is an array of {dtype}")
                if math.prod(shape) * dtype.itemsize != member.file_size - content.tell():
                    raise ValueError(f"its {name} has not the size of an array {shape} of {dtype}")
                content.seek(0)
                arrays[name] = np.lib.format.read_array(content, allow_pickle=False)
        return arrays


def _name(path: PathOrStream) -> str:
    """Return what error messages call a file."""
    return "the stream" if hasattr(path, "read") else path_of(path)


def _opened(path: PathOrStream) -> AbstractContextManager[BinaryIO]:
    """Open a file for reading; a stream stays open."""
    if hasattr(path, "read"):
        return nullcontext(cast("BinaryIO", path))
    name = path_of(path)
    if os.path.exists(name) and not (os.path.isfile(name) or os.path.isdir(name)):  # reading could wait for ever
        raise ValueError(f"{name} is a pipe or a device; these files are read from regular files, so write it to one.")
    return open(name, "rb")


@contextmanager
def rebuilding(path: PathOrStream) -> Iterator[None]:
    """Turn errors of a block that rebuilds an object from header and arrays into a ValueError that names the file."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"its header lacks {error}" if isinstance(error, KeyError) else error
        raise ValueError(_damaged(_name(path), reason)) from error


def check_entries(content: Any, known: Mapping[str, Any], what: str, *, optional: Collection[str] = ()) -> None:
    """Raise ValueError unless a section of a header has the known entries, of these types of JSON and no others.

    Numbers are finite; a real number may be written as an integer. Entries in `optional` may be missing.
    """
    if type(content) is not dict:
        raise ValueError(f"{what} is {content!r:.60}, not a section with entries")
    unknown, missing = sorted(set(content) - set(known)), set(known) - set(content) - set(optional)
    if unknown:
        raise ValueError(f"{what} has the unknown entries {', '.join(map(repr, unknown))}")
    if missing:
        raise ValueError(f"{what} lacks {min(missing)!r}")
    for name, value in content.items():
        wanted = known[name]
        types = wanted if isinstance(wanted, tuple) else (wanted,)
        if not (type(value) in types or (type(value) is int and float in types)):
            raise ValueError(
                f"{what} has {name} = {value!r:.60}, which is not {' or '.join(t.__name__ for t in types)}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{what} has {name} = {value}, which is not finite")


def check_written_again(header: Mapping[str, Any], again: Mapping[str, Any]) -> None:
    """Raise ValueError unless a header is what the object that was rebuilt from it writes."""
    for name in sorted(set(header) | set(again)):
        read, written = (json.dumps(one.get(name), sort_keys=True) for one in (header, again))
        if read != written:
            first = next((at for at, (a, b) in enumerate(zip(read, written, strict=False)) if a != b), 0)
            raise ValueError(f"its {name} holds {read[max(0, first - 20) : first + 40]}, which is none that is written")


def check_arrays(arrays: Arrays, again: Arrays) -> None:
    """Raise ValueError unless the arrays of a file are those that the object that was rebuilt from it writes."""
    for name in sorted(set(arrays) | set(again)):
        if name not in again:
            raise ValueError(f"its array {name!r} is unknown")
        read, written = (f"shape {of[name].shape} and dtype {of[name].dtype}" for of in (arrays, again))
        if read != written:
            raise ValueError(f"its {name} has {read}, not {written}")


def check_numbers(values: Any, what: str, *, finite: bool = True) -> None:
    """Raise ValueError unless values are a flat list of numbers, which may be infinite or NaN if `finite` is False."""
    if type(values) is not list or not all(type(one) in (int, float) for one in values):
        raise ValueError(f"{what} is {values!r:.60}, not a list of numbers")
    if finite and not all(map(math.isfinite, values)):
        raise ValueError(f"{what} holds numbers that are not finite")


def _damaged(path: str, reason: object) -> str:
    """Return the message on a file that cannot be used."""
    return f"{path} is damaged or was not written by patrac_native ({reason}); restore a copy or make it anew."
