"""Files with arrays and a JSON header: .npz archives without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from patrac_native.validation.output import check_replaceable, path_of, replacing

FORMAT_VERSION = 1
# Entries of a header that `save_arrays` adds, which `load_arrays` checks and leaves out.
_OWN = ("format", "kind", "arrays")
Arrays = Mapping[str, npt.NDArray[Any]]
PathOrStream = str | os.PathLike[str] | BinaryIO


def save_arrays(path: PathOrStream, kind: str, header: Mapping[str, Any], arrays: Arrays, *, overwrite: bool) -> None:
    """Write a file of the given kind; if writing fails, an existing file is left unchanged."""
    content = {"format": FORMAT_VERSION, "kind": kind, "arrays": sorted(arrays), **header}
    if hasattr(path, "write"):
        np.savez(path, allow_pickle=False, header=np.array(json.dumps(content)), **arrays)
        return
    target = path_of(path)
    check_replaceable(target)
    if not overwrite and os.path.exists(target):
        raise FileExistsError(f"{target} exists; choose another path or pass overwrite=True.")
    with replacing(target, size=sum(array.nbytes for array in arrays.values()), binary=True) as stream:
        np.savez(stream, allow_pickle=False, header=np.array(json.dumps(content)), **arrays)


def load_arrays(path: PathOrStream, kind: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read a file written by `save_arrays`."""
    name = _name(path)
    with _opened(path) as stream:
        try:
            with np.load(stream, allow_pickle=False) as content:
                header = json.loads(str(content["header"]))
                if not isinstance(header, dict) or "format" not in header or "kind" not in header:
                    raise ValueError("it has no header of this package")
                version, found = header["format"], header["kind"]
                wanted = header.get("arrays")
                arrays = {one: content[one] for one in content.files if one != "header"}
            # Damage to the archive's directory can hide a member, which the checksums of the others do not reveal.
            if version == FORMAT_VERSION and sorted(arrays) != wanted:
                raise ValueError("its arrays are not those that were written")
        except Exception as error:  # for a damaged archive zipfile and NumPy raise about ten kinds of exceptions
            # NumPy's message advises to allow pickle, which would be wrong advice here.
            reason = "it is no .npz archive" if "pickle" in str(error) else error
            raise ValueError(_damaged(name, reason)) from error
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{name} has file format {version!r}, but this version of patrac_native reads {FORMAT_VERSION}; "
            "read it with the version that wrote it."
        )
    if found != kind:
        raise ValueError(f"{name} holds {found}, not {kind}; give the path of a file with {kind}.")
    return {key: value for key, value in header.items() if key not in _OWN}, arrays


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


def refuse_unknown(content: Mapping[str, Any], known: Collection[str], what: str) -> None:
    """Raise ValueError if a section of a header has entries that this version does not know; the message names them."""
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise ValueError(f"{what} has the unknown entries {', '.join(map(repr, unknown))}")


def _damaged(path: str, reason: object) -> str:
    """Return the message on a file that cannot be used."""
    return f"{path} is damaged or was not written by patrac_native ({reason}); restore a copy or make it anew."
