"""Networks, draws, mixtures and fits: damaged bytes, and entries of a stranger with the right hash."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzzing import Edit, damaged, edits, fuzz
from hypothesis import given, reject
from hypothesis import strategies as st

import patrac_native as pn
from test_forged_files import CHANGES, KINDS, contents, made, places, used, write

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)


@pytest.mark.parametrize("kind", KINDS)
@fuzz(40)
@given(changes=edits())
def test_damaged_bytes(kind: str, changes: list[Edit], tmp_path: Path) -> None:
    """They are refused, or are none of the contents: what is read is what was written."""
    path = tmp_path / "whole"
    _, arrays = contents(kind, path)
    (tmp_path / "damaged").write_bytes(damaged(path.read_bytes(), changes))
    try:
        loaded = type(made(kind)).load(tmp_path / "damaged")
    except ValueError as error:
        assert "damaged" in str(error)
        return
    loaded.save(tmp_path / "again", overwrite=True)
    with np.load(tmp_path / "again") as content:
        again = {name: content[name] for name in content.files}
    with np.load(path) as content:
        assert again.keys() == {"header", "sha256", *arrays}
        assert str(again["header"]) == str(content["header"])
    assert all(np.array_equal(again[name], array, equal_nan=array.dtype.kind == "f") for name, array in arrays.items())


@pytest.mark.parametrize("kind", KINDS)
@fuzz(15)
@given(data=st.data())
def test_entries_of_a_stranger(kind: str, data: st.DataObject, tmp_path: Path) -> None:
    """Up to three entries or arrays are other ones: the file is refused by its name, or the object works."""
    path = tmp_path / "forged"
    header, arrays = contents(kind, path)
    header = deepcopy(header)
    for _ in range(data.draw(st.integers(1, 3))):
        if data.draw(st.booleans()) or not arrays:
            *parents, last = data.draw(st.sampled_from(list(places(header))))
            parent = header
            for key in parents:
                parent = parent[key]
            parent[last] = data.draw(JSON)
        else:
            name = data.draw(st.sampled_from(sorted(arrays)))
            change = CHANGES[data.draw(st.sampled_from(sorted(CHANGES)))]
            with np.errstate(all="ignore"):
                try:
                    changed = change(np.atleast_1d(arrays[name]))
                except (TypeError, ValueError):  # text that an earlier change wrote is no number
                    reject()
            arrays = {key: value for key, value in arrays.items() if key != name}
            if changed is not None:
                arrays[name] = changed
    write(path, header, arrays)
    try:
        loaded: Any = type(made(kind)).load(path)
    except ValueError as error:
        assert "forged" in str(error) or "no header of this package" in str(error), error
        return
    try:
        with pn.Note.collect():
            used(kind, loaded, tmp_path / "again")
    except ValueError:
        return
