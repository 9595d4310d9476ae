"""The pieces of a study: where they run, and their results on disk, from which an interrupted study goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

import patrac_native as pn
from patrac_native.files import replacing, say
from patrac_native.plots import shows_progress

_IDENTITY = "settings.json"
_DASK = "dask://"


class Piece(NamedTuple):
    """The result of a piece: JSON-able values and, where a later step needs them, draws or a network."""

    values: dict[str, Any]
    kept: pn.Draws | pn.Network | None = None


_KINDS: dict[str, Any] = {"Draws": pn.Draws, "Network": pn.Network}


def code_digest() -> str:
    """Return a digest of the package's code and compiled core."""
    content, package = hashlib.sha256(), Path(pn.__file__).parent
    for path in sorted(path for end in ("*.py", "_core*") for path in package.rglob(end) if path.suffix != ".pyc"):
        content.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return content.hexdigest()[:16]


class Pieces:
    """A folder with the finished pieces of one study, whose JSON file is written last and whole.

    `identity` is whatever determines a piece beside its name and the code; a folder of another identity is refused.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        found, wanted = self._read(_IDENTITY), json.loads(json.dumps({**identity, "code": code_digest()}))
        if found is None:
            self._write(_IDENTITY, wanted)
            return
        for name in sorted(found.keys() | wanted.keys()):
            if found.get(name) != wanted.get(name):
                raise ValueError(
                    f"{folder} holds pieces of a study with other settings or code ({name}: {found.get(name)!r} there, "
                    f"{wanted.get(name)!r} here); give another --out, or delete that folder."
                )

    def load(self, name: str) -> Piece | None:
        """Return a finished piece, or None."""
        content = self._read(f"{name}.json")
        if content is None:
            return None
        shutil.rmtree(self._run_path(name), ignore_errors=True)  # of a process that was killed before it did
        kind = _KINDS.get(content["kept"])
        return Piece(content["values"], kind.load(self._folder / f"{name}.npz") if kind else None)

    def save(self, name: str, piece: Piece) -> None:
        """Write a finished piece."""
        if piece.kept is not None:
            piece.kept.save(self._folder / f"{name}.npz", overwrite=True)
        self._write(f"{name}.json", {"values": piece.values, "kept": type(piece.kept).__name__})
        shutil.rmtree(self._run_path(name), ignore_errors=True)

    def store_of(self, name: str, scheduler: str) -> Path | None:
        """Return the store of a piece's run until it is finished; None on a cluster or without the extra `store`."""
        return None if scheduler.startswith(_DASK) or find_spec("zarr") is None else self._run_path(name)

    def _run_path(self, name: str) -> Path:
        return self._folder / f"{name}.zarr"

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self._folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        with replacing(self._folder / name) as stream:
            stream.write(json.dumps(content))


def sample_kept(
    store: Path | None, post: pn.Posterior, *, draws: int, threads: int, progress: bool | None, **arguments: Any
) -> pn.Draws:
    """Return the draws of a run, which goes on from its last checkpoint if there is one in its store."""
    if store is not None and (store / "checkpoint.npz").exists():
        return pn.resume(store, draws, post=post, threads=threads, progress=progress)
    if store is not None:
        shutil.rmtree(store, ignore_errors=True)  # of a run that was killed before it kept anything
        arguments |= {"store": store, "store_data": False}
    return pn.sample(post, draws=draws, threads=threads, progress=progress, **arguments)


def run_pieces(
    jobs: Mapping[str, Callable[[], Piece]], pieces: Pieces, executor: Executor | None, title: str
) -> tuple[dict[str, Piece], bool]:
    """Run the jobs whose pieces are not finished, and return all pieces by name, and whether Ctrl-C ended the run.

    Without an executor jobs run one after the other, and Ctrl-C raises KeyboardInterrupt; with one, the jobs that are
    under way are finished first. Raises RuntimeError if a worker process died.
    """
    finished = {name: pieces.load(name) for name in jobs}
    found = {name: piece for name, piece in finished.items() if piece is not None}
    if found:
        print(f"{title}: {len(found)} of {len(jobs)} were finished before.", flush=True)
    left = {name: job for name, job in jobs.items() if name not in found}

    def keep(name: str, piece: Piece) -> None:
        pieces.save(name, piece)
        found[name] = piece

    if executor is None:
        for name, job in tqdm(left.items(), desc=title, unit="run", disable=not shows_progress(None)):
            keep(name, job())
        return found, False
    # Futures are forgotten as they are taken, since they hold their results.
    names: dict[Future[Piece], str] = {executor.submit(job): name for name, job in left.items()}
    try:
        done = as_completed(list(names))
        for future in tqdm(done, total=len(names), desc=title, unit="run", disable=not shows_progress(None)):
            keep(names.pop(future), future.result())
    except KeyboardInterrupt:
        say("\nInterrupted: waiting for the runs under way.", is_error=True)
        for future in as_completed([future for future in names if not future.cancel()]):
            if future.exception() is None:
                keep(names.pop(future), future.result())
        return found, True
    except BrokenExecutor as error:
        raise RuntimeError(
            f"a worker process died (killed, or out of memory); {len(found)} runs are finished. Run the same command "
            "again to go on."
        ) from error
    return found, False


def check_scheduler(scheduler: str) -> str:
    """Return the scheduler; raise ValueError unless it is "threads", "processes" or "dask://host:port"."""
    host, _, port = scheduler.removeprefix(_DASK).rpartition(":")
    if scheduler in ("threads", "processes") or (scheduler.startswith(_DASK) and host and port.isdigit()):
        return scheduler
    raise ValueError(f"--scheduler must be threads, processes or dask://host:port; got {scheduler!r}.")


@contextmanager
def executor_of(scheduler: str, workers: int) -> Iterator[Executor]:
    """Open the executor of a scheduler, with so many threads or processes, or a cluster's own; cancel what is left."""
    if scheduler.startswith(_DASK):
        try:
            import distributed
        except ImportError as error:
            raise ImportError(
                f"--scheduler {scheduler} needs distributed, which is not installed: pip install 'patrac_native[dask]'"
            ) from error
        client_of: Any = distributed.Client
        with client_of(scheduler.replace(_DASK, "tcp://"), set_as_default=False) as client:
            # Equal arguments must not share a result: times are measured. Dask does not repeat a piece whose code
            # raised; it moves the pieces of a dead worker in any case.
            executor = client.get_executor(pure=False, retries=0)
            try:
                yield executor
            finally:
                executor.shutdown(wait=False)
        return
    # A forked process would hold locks of the threads of torch.
    spawned = scheduler == "processes"
    pool = ProcessPoolExecutor(workers, get_context("spawn")) if spawned else ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
