"""The number of native threads."""

from __future__ import annotations

import os

from patrac_native.validation.checks import check_count

# More than any processor has: larger numbers mean this one.
MAX_THREADS = 4096


def thread_count(threads: int | None) -> int:
    """Return the given number of threads, or the number of processors that this process may use.

    Parameters
    ----------
    threads : int or None
        At least 1; None means all processors.

    Returns
    -------
    int
        At most `MAX_THREADS`.

    Raises
    ------
    TypeError
        If `threads` is not an integer.
    ValueError
        If `threads` is below 1.
    """
    if threads is None:
        affinity = getattr(os, "sched_getaffinity", None)
        threads = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(check_count(threads, "threads"), MAX_THREADS)
