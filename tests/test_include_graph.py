"""The folders of csrc/ include each other in one direction only, and the bindings include the facades alone."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "csrc"
FACADES = ("patrac", "device", "bridges")
# A folder may include those that stand below it. Files directly in csrc/ stand for themselves, without their suffix.
LAYERS = (
    "bindings",
    "patrac",
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

Edges = set[tuple[str, str]]


def includes() -> dict[Path, list[str]]:
    """Return what each source includes in quotes, relative to csrc/."""
    found = {}
    for path in sorted(ROOT.rglob("*")):
        if path.suffix in (".hpp", ".cpp", ".cu"):
            found[path.relative_to(ROOT)] = re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE)
    return found


def folder_of(path: Path, depth: int) -> str:
    """Return the first `depth` folders of a path; a file above that depth stands for itself."""
    return "/".join(path.parent.parts[:depth] if len(path.parent.parts) >= depth else path.with_suffix("").parts)


def edges(found: dict[Path, list[str]], depth: int) -> Edges:
    pairs = {
        (folder_of(source, depth), folder_of(Path(name), depth)) for source, names in found.items() for name in names
    }
    return {(above, below) for above, below in pairs if above != below}


def cycle(pairs: Edges) -> list[str] | None:
    """Return the folders of one cycle, or None."""
    graph: dict[str, set[str]] = {}
    for above, below in pairs:
        graph.setdefault(above, set()).add(below)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def folders(found: dict[Path, list[str]]) -> Edges:
    """Return which folder, however deep, includes which."""

    def folder(path: Path) -> str:
        return str(path.parent) if path.parent.parts else path.stem

    pairs = {(folder(source), folder(Path(name))) for source, names in found.items() for name in names}
    return {(above, below) for above, below in pairs if above != below}


def test_includes_are_relative_to_csrc() -> None:
    missing = [
        (str(source), name) for source, names in includes().items() for name in names if not (ROOT / name).exists()
    ]
    assert not missing


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_folder_cycle(depth: int) -> None:
    assert cycle(edges(includes(), depth)) is None


def test_layers_are_not_reversed() -> None:
    known = folders(includes())
    assert {folder for pair in known for folder in pair} == set(LAYERS), "give a new folder its place in LAYERS"
    reversed_layers = [pair for pair in sorted(known) if LAYERS.index(pair[0]) > LAYERS.index(pair[1])]
    assert not reversed_layers


@pytest.mark.parametrize("pair", INDEPENDENT, ids="-".join)
def test_independent_folders_do_not_include_each_other(pair: tuple[str, str]) -> None:
    between = {(above, below) for above, below in edges(includes(), 1) if {above, below} == set(pair)}
    assert not between


def test_bindings_include_the_facades_alone() -> None:
    allowed = {f"{facade}.hpp" for facade in FACADES}
    others = [
        (str(source), name)
        for source, names in includes().items()
        for name in names
        if source.parts[0] == "bindings" and name not in allowed and not name.startswith("bindings/")
    ]
    assert not others


def test_a_cycle_is_found() -> None:
    found = {Path("a/x.hpp"): ["b/c/y.hpp"], Path("b/c/y.hpp"): [], Path("b/d/z.hpp"): ["a/x.hpp"]}
    assert cycle(edges(found, 1)) is not None
    assert cycle(edges(found, 2)) is None
