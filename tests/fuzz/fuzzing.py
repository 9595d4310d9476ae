"""How the tests of this folder run: a few seconds with fixed examples, or each for FUZZ_MINUTES with new ones.

A reader of outside data gives the right value, or raises ValueError, TypeError or OSError that names the argument or
the file. Every other exception, a crash, a hang or another value is a finding; it is mended, and kept as an `@example`.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

MINUTES = float(os.environ.get("FUZZ_MINUTES", "0"))
Edit = tuple[str, float, bytes]


def fuzz(examples: int = 25) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test of Hypothesis on this many fixed examples or, for FUZZ_MINUTES, on new ones; print how many."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        common: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
        if not MINUTES:
            return settings(max_examples=examples, derandomize=True, database=None, **common)(test)
        many = settings(max_examples=2 * examples, **common)(test)
        calls = 0
        body = many.hypothesis.inner_test  # type: ignore[attr-defined]

        @functools.wraps(body)
        def counted(*arguments: Any, **named: Any) -> None:
            nonlocal calls
            calls += 1
            body(*arguments, **named)

        many.hypothesis.inner_test = counted  # type: ignore[attr-defined]

        @functools.wraps(many)
        def repeated(*arguments: Any, **named: Any) -> None:
            end, before = time.process_time() + 60 * MINUTES, calls  # of the processor: other work does not count
            try:
                while time.process_time() < end:
                    many(*arguments, **named)
            finally:
                print(f"\n{test.__name__}: {calls - before} examples")

        return repeated

    return decorate


def edits(most: int = 4) -> st.SearchStrategy[list[Edit]]:
    """Damage to a file: what is done, at which share of its length, and bytes to do it with."""
    kinds = st.sampled_from(["replace", "replace", "insert", "delete", "truncate", "repeat", "flip"])
    odd = st.sampled_from(
        [b"\0", b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0" * 8, b"\n", b'"', b"NaN", b"1e999", b"-1", b"{"]
    )
    return st.lists(
        st.tuples(kinds, st.floats(0, 1, exclude_max=True), st.one_of(odd, st.binary(min_size=1, max_size=12))),
        min_size=1,
        max_size=most,
    )


def damaged(content: bytes, changes: list[Edit]) -> bytes:
    """Return the content with the damage."""
    for kind, share, data in changes:
        at = int(share * len(content))
        before, after = content[:at], content[at:]
        if kind == "replace":
            content = before + data[: len(after)] + after[len(data) :]
        elif kind == "insert":
            content = before + data + after
        elif kind == "delete":
            content = before + after[len(data) :]
        elif kind == "truncate":
            content = before
        elif kind == "repeat":
            content = before + after[:64] + after
        else:
            content = before + bytes(byte ^ (1 << data[0] % 8) for byte in after[:1]) + after[1:]
    return content
