"""The memory that a request would take, compared with that of the machine before anything is allocated."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

# Where control groups of Linux state the memory limit of this process: versions 2 and 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int | None:
    """Return the bytes of memory that this process may use at most; None if the system does not say."""
    try:
        known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, OSError, ValueError):
        return None
    for path in _LIMITS:
        try:
            with open(path, encoding="ascii") as stream:
                text = stream.read().strip()
        except OSError:
            continue
        if text.isdigit():
            known.append(int(text))
    return min(known)


def check_memory(needed: int, what: str, advice: str) -> None:
    """Raise ValueError if `needed` bytes are more than the machine has."""
    available = machine_memory()
    if available is not None and needed > available:
        raise ValueError(
            f"{what} would take {in_units(needed)} of memory; this machine has {in_units(available)}. {advice}"
        )


def in_units(count: int) -> str:
    """Return a number of bytes with a unit."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.4g} {unit}" if count < 1000 * size else f"{count // size:,} {unit}"
    return f"{count} bytes"


def release_memory() -> None:
    """Give freed memory back to the system, of which the C library of Linux keeps some for each thread."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
