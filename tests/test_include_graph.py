"""The folders of csrc/ include each other in one direction only, and the bindings include the facades alone."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "csrc"
FACADES = ("patrac", "descent", "device", "bridges")
# A folder may include those that stand below it, which leaves no cycle. Files directly in csrc/ stand for themselves,
# without their suffix.
LAYERS = (
    "bindings",
    "patrac",
    "descent",
    "device",
    "bridges",
    "cpu/levels",
    "cpu/chain",
    "cpu/tiles",
    "cuda/device",
    "cuda/run",
    "cuda/wide",
    "cuda/chain",
    "cuda/model",
    "cuda/block",
    "schedule",
    "model",
    "shared",
)
# Neither of two includes the other, whatever their order above.
INDEPENDENT = (*combinations(FACADES, 2), ("cpu", "cuda"), ("schedule", "model"))


def includes() -> dict[Path, list[str]]:
    """Return what each source includes in quotes, relative to csrc/."""
    found = {}
    for path in sorted(ROOT.rglob("*")):
        if path.suffix in (".hpp", ".cpp", ".cu"):
            found[path.relative_to(ROOT)] = re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE)
    return found


def folders() -> set[tuple[str, str]]:
    """Return which folder, however deep, includes which."""

    def folder(path: Path) -> str:
        return str(path.parent) if path.parent.parts else path.stem

    pairs = {(folder(source), folder(Path(name))) for source, names in includes().items() for name in names}
    return {(above, below) for above, below in pairs if above != below}


def test_includes_are_relative_to_csrc() -> None:
    missing = [
        (str(source), name) for source, names in includes().items() for name in names if not (ROOT / name).exists()
    ]
    assert not missing


def test_layers_are_not_reversed() -> None:
    known = folders()
    assert {folder for pair in known for folder in pair} == set(LAYERS), "give a new folder its place in LAYERS"
    reversed_layers = [pair for pair in sorted(known) if LAYERS.index(pair[0]) > LAYERS.index(pair[1])]
    assert not reversed_layers


@pytest.mark.parametrize("pair", INDEPENDENT, ids="-".join)
def test_independent_folders_do_not_include_each_other(pair: tuple[str, str]) -> None:
    tops = {(above.split("/")[0], below.split("/")[0]) for above, below in folders()}
    assert not {pair, pair[::-1]} & tops


def test_bindings_include_the_facades_alone() -> None:
    allowed = {f"{facade}.hpp" for facade in FACADES}
    others = [
        (str(source), name)
        for source, names in includes().items()
        for name in names
        if source.parts[0] == "bindings" and name not in allowed and not name.startswith("bindings/")
    ]
    assert not others
