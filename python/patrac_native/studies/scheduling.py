"""Where the pieces of a study run: threads of this process, processes of this machine, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from patrac_native.interop.extras import import_extra

_DASK = "dask://"
# Dask does not repeat a piece whose code raised; it moves the pieces of a dead worker in any case.
_DASK_RETRIES = 0


def check_scheduler(scheduler: str) -> str:
    """Return the scheduler; raise ValueError unless it is "threads", "processes" or "dask://host:port"."""
    host, _, port = scheduler.removeprefix(_DASK).rpartition(":")
    if scheduler in ("threads", "processes") or (scheduler.startswith(_DASK) and host and port.isdigit()):
        return scheduler
    raise ValueError(f"--scheduler must be threads, processes or dask://host:port; got {scheduler!r}.")


@contextmanager
def executor_of(scheduler: str, workers: int) -> Iterator[Executor]:
    """Open the executor of a scheduler, and close it; pieces that have not started are then cancelled.

    Parameters
    ----------
    scheduler : str
        "threads", "processes" or "dask://host:port".
    workers : int
        Number of threads or processes; a cluster has its own.

    Raises
    ------
    ImportError
        If a cluster is asked for, and distributed is not installed (extra "dask").
    OSError
        If no cluster answers.
    """
    check_scheduler(scheduler)
    if scheduler.startswith(_DASK):
        distributed = import_extra("distributed", "dask", f"--scheduler {scheduler}")
        with distributed.Client(scheduler.replace(_DASK, "tcp://"), set_as_default=False) as client:
            # Equal arguments must not share a result: times are measured.
            executor = client.get_executor(pure=False, retries=_DASK_RETRIES)
            try:
                yield executor
            finally:
                executor.shutdown(wait=False)
        return
    if scheduler == "processes":
        # A forked process would hold locks of the threads of torch.
        pool: Executor = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    else:
        pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
