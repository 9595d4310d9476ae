"""How many native threads to use."""

from __future__ import annotations

import os

from patrac_native.validation.checks import check_count


def thread_count(threads: int | None) -> int:
    """Return the given number, or that of the processors this process may use.

    Parameters
    ----------
    threads : int or None
        At least 1; None for all processors.
    """
    if threads is None:
        affinity = getattr(os, "sched_getaffinity", None)
        threads = len(affinity(0)) if affinity else os.cpu_count() or 1
    return check_count(threads, "threads")
