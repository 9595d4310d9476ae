"""Lines on the terminal: no name from a file moves its cursor, and no result is lost where a stream takes none."""

from __future__ import annotations

import sys


def printable(text: str) -> str:
    """Return text with its control characters, such as those of escape sequences, written as `\\\\x1b`; lines stay."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else ascii(one)[1:-1] for one in text)


def say(text: str, *, is_error: bool = False) -> None:
    """Print text on standard output or error; nothing where that is absent, closed or full."""
    stream = sys.stderr if is_error else sys.stdout
    if stream is None:
        return
    text = printable(text)
    try:
        try:
            print(text, file=stream, flush=True)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
    except (OSError, ValueError):  # a full disk or broken pipe, and a stream that was closed
        pass
