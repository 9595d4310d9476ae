"""Fuzz the reader of a binary file by changes that reach new lines: guided.py KIND MINUTES.

libFuzzer, through atheris, changes the bytes of a good file, and changes those further that reached new lines of the
package. "signed-KIND" changes the JSON header and writes the right hash, so that changes get past its check. The first
change that gives another exception than a reader's ends the run and is kept in the current folder.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["patrac_native"]):
    import patrac_native as pn
from test_forged_files import contents, made, used, write_signed

kind, minutes = sys.argv[1].removeprefix("signed-"), float(sys.argv[2])
folder = Path(tempfile.mkdtemp())
path, again, corpus = folder / "forged", folder / "again", folder / "corpus"
header, arrays = contents(kind, path)


def read(data: bytes) -> None:
    """Read a file of these bytes, or with these as its header, and use what it gives."""
    if sys.argv[1] == kind:
        path.write_bytes(data)
    else:
        write_signed(path, data.decode("utf-8", "replace"), arrays)
    try:
        loaded = type(made(kind)).load(path)
    except ValueError as error:
        assert "forged" in str(error) or "no header of this package" in str(error), error
        return
    try:
        with pn.Note.collect():
            used(kind, loaded, again)
    except ValueError:
        return


corpus.mkdir()
(corpus / "good").write_bytes(path.read_bytes() if sys.argv[1] == kind else json.dumps(header).encode())
options = [f"-max_total_time={round(60 * minutes)}", "-max_len=100000", "-print_final_stats=1"]
atheris.Setup([sys.argv[0], *options, str(corpus)], read)
atheris.Fuzz()
