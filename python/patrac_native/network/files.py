"""Files that hold arrays and a JSON header: one .npz each, no pickle."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

FORMAT_VERSION = 1
Arrays = Mapping[str, npt.NDArray[Any]]


def save_arrays(
    path: str | os.PathLike[str], kind: str, header: Mapping[str, Any], arrays: Arrays, *, overwrite: bool
) -> None:
    """Write a file of the given kind; a failed write leaves what was there untouched.

    Parameters
    ----------
    path : path-like
        Taken as it is; no ending is added.
    kind : str
        What the file holds, checked again by `load_arrays`.
    header : mapping
        JSON-able.
    arrays : mapping of name to ndarray
    overwrite : bool
        Whether an existing file may be replaced.

    Raises
    ------
    FileExistsError
        If the file exists and overwrite is False.
    OSError
        If the disk has no room, naming the bytes wanted.
    """
    target = os.fspath(path)
    folder = os.path.dirname(target) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{target} cannot be written: there is no folder {folder}; make it first.")
    if os.path.isdir(target):
        raise IsADirectoryError(f"{target} is a folder; give the path of a file.")
    if not overwrite and os.path.exists(target):
        raise FileExistsError(f"{target} exists; choose another path or pass overwrite=True.")
    content = {"format": FORMAT_VERSION, "kind": kind, "arrays": sorted(arrays), **header}
    # Written beside the target and moved over it, so that a full disk never leaves half a file in its place.
    partial = f"{target}.{secrets.token_hex(4)}.partial"
    try:
        with open(partial, "xb") as stream:
            np.savez(stream, allow_pickle=False, header=np.array(json.dumps(content)), **arrays)
        os.replace(partial, target)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            size = sum(array.nbytes for array in arrays.values())
            raise OSError(
                errno.ENOSPC, f"no room on the disk for {size} bytes; free some or choose another path", target
            ) from error
        raise
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def load_arrays(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read a file written by `save_arrays`.

    Returns
    -------
    header : dict
    arrays : dict of name to ndarray

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, holds something else, or was written by another version of the format.
    """
    target = os.fspath(path)
    with open(target, "rb") as stream:
        try:
            with np.load(stream, allow_pickle=False) as content:
                header = json.loads(str(content["header"]))
                if not isinstance(header, dict) or "format" not in header or "kind" not in header:
                    raise ValueError("it has no header of this package")
                version, found = header["format"], header["kind"]
                arrays = {name: content[name] for name in content.files if name != "header"}
            # Damage to the archive's directory can hide a member, which no checksum of the others shows.
            if version == FORMAT_VERSION and sorted(arrays) != header.get("arrays"):
                raise ValueError("its arrays are not those that were written")
        except Exception as error:  # a damaged archive makes zipfile and NumPy raise some ten kinds
            # NumPy's advice to allow pickle would be the wrong thing to pass on.
            reason = "it is no .npz archive" if "pickle" in str(error) else error
            raise ValueError(
                f"{target} is damaged or was not written by patrac_native ({reason}); restore a copy or make it anew."
            ) from error
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{target} has file format {version!r}, but this version of patrac_native reads {FORMAT_VERSION}; "
            "read it with the version that wrote it."
        )
    if found != kind:
        raise ValueError(f"{target} holds {found}, not {kind}; give the path of a file with {kind}.")
    return header, arrays
