"""Files and lines: archives with a checked hash, files that are replaced whole or not at all, text for terminals."""

from __future__ import annotations

from patrac_native.files.archive import (
    check_arrays,
    check_entries,
    check_numbers,
    check_written_again,
    contents_hash,
    load_arrays,
    rebuilding,
    save_arrays,
)
from patrac_native.files.folder import commit, staging
from patrac_native.files.output import replacing
from patrac_native.files.terminal import say

__all__ = [
    "check_arrays",
    "check_entries",
    "check_numbers",
    "check_written_again",
    "commit",
    "contents_hash",
    "load_arrays",
    "rebuilding",
    "replacing",
    "save_arrays",
    "say",
    "staging",
]
