"""The folder of a run: its draws as Zarr arrays that xarray reads, what the run was given, and its last checkpoint.

A checkpoint is one file, replaced by one rename. It holds the states of the chains, and the draws since the last whole
chunk of the arrays; a chunk is written before the checkpoint that counts it. So a draw is confirmed when the checkpoint
that holds or counts it has its name. The last chunk of a run, which may be short, is written again only after its draws
are back in the checkpoint.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.draws.moments import RunningMoments
from patrac_native.files.archive import check_entries, load_arrays, rebuilding, save_arrays
from patrac_native.files.output import close_locked, held, lock, path_of, sync
from patrac_native.interop.datatree import Group, build_datatree
from patrac_native.validation.extras import import_extra

Arrays = dict[str, npt.NDArray[Any]]

_RUN, _CHECKPOINT = "run.npz", "checkpoint.npz"
_RUN_KIND, _CHECKPOINT_KIND = "a run", "a checkpoint of a run"
# Bytes that predictions from the draws in a folder take, unless the user says otherwise.
MEMORY = 256 << 20
# Totals of a run, by phase, that are no statistics of draws.
RUN_TOTALS = ("warmup_steps", "warmup_stable")
# Bytes of theta in a chunk of the arrays: the draws in a checkpoint are fewer.
_CHUNK_BYTES = 1 << 23
# Counters of a checkpoint are smaller: the core's have 64 bits with sign.
_MOST = 1 << 62
_ENTRIES: dict[str, Any] = {"step": int, "draws": int, "written": int, "sizes": list, "seconds": float}
_ENTRIES |= {"settings": dict, "next_steps": int}


@dataclass
class Checkpoint:
    """Where a run is: what the chains go on from, and the draws that are not in the arrays yet."""

    step: int = 0  # of each chain, warm-up included
    draws: int = 0  # of each chain so far
    states: list[bytes] = field(default_factory=list)  # of the chains, see csrc/schedule/checkpoint.hpp; empty at first
    theta: npt.NDArray[Any] | None = None  # (chain, draws - written, K)
    stats: Arrays = field(default_factory=dict)  # of these draws
    totals: Arrays = field(default_factory=dict)  # statistics of the whole run so far, by chain and by phase
    moments: RunningMoments | None = None  # of f, in a run that watches it
    settings: dict[str, Any] = field(default_factory=dict)  # of the draws so far
    seconds: float = 0.0
    written: int = 0  # draws of each chain that are in the arrays
    next_steps: int = 0  # steps to the next checkpoint: a kill costs at most the draws that they make


class StoredTheta:
    """The states (chain, draw, K) of a run in its folder: read in blocks of draws, or whole by NumPy as an array."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        dtype: np.dtype[Any],
        read: Callable[[int, int], npt.NDArray[Any]],
        memory: int,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.memory = memory  # bytes that what is computed from them block by block may take
        self._read = read

    def blocks(self) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Yield consecutive draws of all chains: which they are, and their states (chain, some draws, K)."""
        chains, draws, dim = self.shape
        size = RunFolder.chunk_draws(chains, dim * self.dtype.itemsize)
        for first in range(0, draws, size):
            end = min(first + size, draws)
            yield slice(first, end), self._read(first, end)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Read the array; raise ValueError for copy=False."""
        if copy is False:
            raise ValueError("copy=False: the draws are in a file, and an array of them is a copy.")
        found = np.empty(self.shape, self.dtype if dtype is None else dtype)
        for part, values in self.blocks():
            found[:, part] = values
        return found


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path_of(path))  # draws are read later, perhaps from another working folder
        self.checkpoint_path = os.path.join(self.path, _CHECKPOINT)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing to the folder; FileExistsError if one does, PermissionError if none can."""
        if not os.access(self.path, os.W_OK):
            raise PermissionError(
                f"{self.path} is read-only, and a run writes to its store: copy it to where you may write, or only "
                "read its draws so far: Draws.open."
            )
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            if not lock(descriptor, wait=False):
                raise FileExistsError(
                    f"another run writes to {self.path}; wait for it, or read its draws so far: Draws.open."
                )
            with held(descriptor):
                yield
        finally:
            close_locked(descriptor)

    def create(self, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Make the folder and write what the run is given; FileExistsError if there is something at its path."""
        import_extra("zarr", "store", "store")
        import_extra("xarray", "store", "store")
        parent = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(parent):
            raise FileNotFoundError(f"store={self.path!r}: there is no folder {parent}; make it first.")
        try:
            os.mkdir(self.path)
        except FileExistsError:
            raise FileExistsError(
                f"store={self.path!r} exists: patrac_native.resume(store, draws) goes on with the run in it; for "
                "another run give another path."
            ) from None
        except OSError as error:
            reason = (
                f"store={self.path!r} cannot be made: {error.strerror}. Give a path in a folder in which you may write"
            )
            raise OSError(error.errno, reason) from error
        sync(parent)
        try:
            save_arrays(os.path.join(self.path, _RUN), _RUN_KIND, header, arrays, overwrite=False)
        except BaseException:
            self.remove_unused()
            raise

    def remove_unused(self) -> None:
        """Remove the folder of a run that ended before its first checkpoint, so that its path is free again."""
        if not os.path.exists(self.checkpoint_path):
            shutil.rmtree(self.path, ignore_errors=True)

    def given(self) -> tuple[dict[str, Any], Arrays]:
        """Return what `create` was given; FileNotFoundError or ValueError if there is no run."""
        if not os.path.isdir(self.path):
            raise FileNotFoundError(f"store={self.path!r}: there is no such folder.")
        if not os.path.exists(os.path.join(self.path, _RUN)):
            raise ValueError(
                f"{self.path} is not the store of a run, or the run was killed before it began: there is no {_RUN}. "
                "Remove the folder, and sample again."
            )
        return load_arrays(os.path.join(self.path, _RUN), _RUN_KIND)

    def identity(self) -> tuple[int, ...]:
        """Return what tells a run from another that took its place; FileNotFoundError if there is none."""
        found = os.stat(os.path.join(self.path, _RUN))  # written once, and never again
        return found.st_dev, found.st_ino, found.st_mtime_ns

    def check_same(self, identity: tuple[int, ...]) -> None:
        """Raise ValueError unless the folder still is that of a run."""
        if not os.path.exists(os.path.join(self.path, _RUN)) or self.identity() != identity:
            raise ValueError(
                f"{self.path} was removed or replaced while its draws were open; open the new ones: Draws.open."
            )

    def save(self, at: Checkpoint) -> None:
        """Write a checkpoint in the place of the last one."""
        assert at.theta is not None
        header = {name: getattr(at, name) for name in _ENTRIES if name != "sizes"}
        states = np.frombuffer(b"".join(at.states), dtype=np.uint8)
        arrays = {"states": states, "theta": at.theta}
        arrays |= {f"stat_{name}": values for name, values in at.stats.items()}
        arrays |= {f"total_{name}": values for name, values in at.totals.items()}
        arrays |= {} if at.moments is None else {f"moment_{name}": values for name, values in vars(at.moments).items()}
        save_arrays(
            self.checkpoint_path,
            _CHECKPOINT_KIND,
            {**header, "sizes": [len(state) for state in at.states]},
            arrays,
            overwrite=True,
        )

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint; None if the run was killed before its first.

        `stored_states.read_checkpoint` compares its numbers with the network too.
        """
        if not os.path.exists(self.checkpoint_path):
            return None
        header, arrays = load_arrays(self.checkpoint_path, _CHECKPOINT_KIND)
        with rebuilding(self.checkpoint_path):
            check_entries(header, _ENTRIES, "its header")
            sizes, states, theta = header.pop("sizes"), arrays.pop("states").tobytes(), arrays.pop("theta")
            counters = [header[name] for name in ("step", "draws", "written", "next_steps", "seconds")]
            if theta.ndim != 3 or theta.shape[1] != header["draws"] - header["written"]:
                raise ValueError(f"its theta has the shape {theta.shape}")
            if not all(0 <= one < _MOST for one in counters):
                raise ValueError("its counters are out of range")
            if not all(type(size) is int and size > 0 for size in sizes) or len(sizes) != len(theta):
                raise ValueError(f"it has the states of {len(sizes)} chains, and draws of {len(theta)}")
            if len(states) != sum(sizes):
                raise ValueError("the states of its chains have other sizes than its header says")
            ends = np.cumsum([0, *sizes])
            parts: dict[str, Arrays] = {"stat": {}, "total": {}, "moment": {}}
            for name, values in arrays.items():
                kind, _, own = name.partition("_")
                parts[kind][own] = values
            return Checkpoint(
                states=[states[first:end] for first, end in pairwise(ends)],
                theta=theta,
                stats=parts["stat"],
                totals=parts["total"],
                moments=RunningMoments(**parts["moment"]) if parts["moment"] else None,
                **header,
            )

    # -- the arrays ------------------------------------------------------------------------------------------------

    @staticmethod
    def chunk_draws(chains: int, theta_bytes: int) -> int:
        """Return the number of draws in a chunk, for draws of `theta_bytes` bytes."""
        return max(1, min(_CHUNK_BYTES // (chains * theta_bytes), 1 << 16))

    def append(
        self,
        groups: Mapping[str, Group],
        attributes: Mapping[str, Any],
        library: Mapping[str, str],
        first: int,
        chunk: int,
        *,
        is_last: bool,
    ) -> None:
        """Write the draws of groups, as `to_datatree` has them, from draw `first` on, the first of a chunk.

        Statistics of the whole run are written with the first draws and the last.
        """
        zarr = import_extra("zarr", "store", "store")
        if first == 0:
            for group in groups:  # of a run that was killed before it confirmed them
                shutil.rmtree(os.path.join(self.path, group), ignore_errors=True)
            tree = build_datatree(groups, attributes, library, "store")
            codec = zarr.codecs.ZstdCodec(level=1, checksum=True)  # a damaged chunk is an error, not other numbers
            encoding = {
                f"/{group}": {
                    name: {
                        "chunks": tuple(chunk if d == "draw" else n for d, n in variable.sizes.items()),
                        "compressors": (codec,),
                    }
                    for name, variable in node.variables.items()
                    if variable.ndim and 0 not in variable.shape and variable.dtype.kind in "biuf"
                }
                for group, node in tree.children.items()
            }
            tree.to_zarr(self.path, mode="a", encoding=encoding, zarr_format=3, consolidated=False)
            for folder, _, files in os.walk(self.path):
                sync(*(os.path.join(folder, name) for name in files), folder)
            return
        root = zarr.open_group(self.path, mode="r+")
        root.update_attributes(dict(attributes))
        for group, content in groups.items():
            for name, (dimensions, values) in (content.variables | content.coordinates).items():
                if "draw" in dimensions:
                    axis = list(dimensions).index("draw")
                    end = first + values.shape[axis]
                    array = root[f"{group}/{name}"]
                    array.resize((*values.shape[:axis], end, *values.shape[axis + 1 :]))
                    part = values + first if name == "draw" else values
                    array[(slice(None),) * axis + (slice(first, end),)] = part
                elif is_last and values.dtype.kind in "biuf" and values.size:
                    root[f"{group}/{name}"][...] = values
                else:
                    continue
                key = [str(first // chunk if d == "draw" else 0) for d in dimensions]
                written = os.path.join(self.path, group, name, "c", *key)
                folders = [os.path.join(self.path, group, name, *["c", *key][:depth]) for depth in range(len(key) + 1)]
                sync(written, os.path.join(self.path, group, name, "zarr.json"), *folders)
        sync(os.path.join(self.path, "zarr.json"), self.path)

    def tree(self, first: int, end: int, wanted: Callable[[str], bool]) -> dict[str, Any]:
        """Return these draws of the wanted variables as the xarray datasets of a DataTree.

        A run may be writing: xarray would refuse arrays of which some have a chunk more than others.
        """
        xarray = import_extra("xarray", "store", "a store")
        zarr = import_extra("zarr", "store", "a store")
        groups: dict[str, Any] = {"posterior": {}, "sample_stats": {}}
        at = self.path
        try:
            # Each thread of zarr that decodes a chunk keeps memory.
            with zarr.config.set({"async.concurrency": 1}):
                root = zarr.open_group(self.path, mode="r")
                for group, variables in groups.items():
                    at = os.path.join(self.path, group)
                    for name, array in root[group].arrays():
                        at, dimensions = os.path.join(self.path, group, name), array.metadata.dimension_names
                        if array.dtype.kind in "biuf" and wanted(name):
                            cut = tuple(slice(first, end) if d == "draw" else slice(None) for d in dimensions)
                            variables[name] = dimensions, array[cut]
        except Exception as error:  # for damaged files zarr and its codecs raise about ten kinds of exceptions
            if isinstance(error, MemoryError | OSError) and not isinstance(error, FileNotFoundError):
                raise
            raise ValueError(f"{at} is damaged ({error}); restore a copy of the folder, or sample again.") from error
        # No DataTree, whose cycles of references would keep the draws in memory.
        return {name: xarray.Dataset(found) for name, found in groups.items()}
