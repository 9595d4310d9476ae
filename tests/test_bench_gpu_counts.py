"""bench/gpu_counts.py: instructions of stages, the record, and the barriers of a step."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from scripts import process

BENCH = Path(__file__).resolve().parents[1] / "bench"
TILE, CHAIN = "cuda/model/tile.hpp", "cuda/chain/chain.hpp"


@pytest.fixture
def gpu_counts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the script as a module."""
    monkeypatch.syspath_prepend(str(BENCH))
    import gpu_counts

    return gpu_counts


def line_of(file: str, text: str) -> tuple[Path, int]:
    """Return where the only line with this text stands."""
    path = BENCH.parent / "csrc" / file
    (number,) = [n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    return path, number


def test_instructions_belong_to_the_stage_that_they_are_inlined_from(gpu_counts: Any) -> None:
    (tile, loop), (chain, _) = (
        line_of(TILE, "for (int l = first; l < end"),
        line_of(CHAIN, "const double own = target_.evaluate("),
    )
    (_, step), (_, drawn) = line_of(CHAIN, "moves_.keeps_draw(chain_)"), line_of(CHAIN, "? evaluate_again(constant)")
    place = '\t//## File "{}", line {}'
    assembly = "\n".join(
        [
            "        /*0000*/                   LDC R1, c[0x0][0x28] ;",
            place.format(tile, loop) + f' inlined at "{chain}", line {step}',
            place.format(chain, step),
            "        /*0010*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;",
            "        /*0020*/              @!P0 FFMA R1, R2, R3, R4 ;",
            place.format(tile, loop),
            place.format(chain, drawn),
            "        /*0030*/                   LDS.128 R4, [R2] ;",
            place.format(chain, step),
            "        /*0040*/               @P1 LD.E.128 R4, [R2.64] ;",
            "        /*0050*/                   LDG.E R4, [R2.64] ;",
            place.format("/usr/include/math.h", 3),
            "        /*0060*/                   MUFU.RCP R4, R2 ;",
        ]
    )
    found = gpu_counts.count_stages(assembly)
    assert {name: gpu_counts.kinds_of(count) for name, count in found.items()} == {
        gpu_counts.REST: [0, 0, 1, 0, 0, 0],
        "forward": [1, 1, 0, 0, 0, 0],
        "draw of noise variances": [0, 0, 0, 1, 0, 0],
        "rest of a step": [0, 0, 0, 0, 1, 1],
    }
    assert sum(count["all"] for count in found.values()) == 7


def test_every_stage_has_its_functions(gpu_counts: Any) -> None:
    """A function that is renamed would put its instructions elsewhere."""
    cuda = BENCH.parent / "csrc" / "cuda"
    named = {name for path in cuda.rglob("*.hpp") for name in gpu_counts.functions(str(path))[1]}
    assert set().union(*gpu_counts.STAGES.values()) <= named


def test_the_record_keeps_other_states(gpu_counts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_counts, "RECORD", tmp_path / "counts.json")
    about = {"machine": "m", "commit": "c", "date": "d", "command": None}
    for state, count in (("old", 5), ("now", 4), ("now", 3)):
        kinds = [0] * len(gpu_counts.KINDS)
        found = {"kernels": [["a", count, 9, "none", *kinds]], "stages": [["s", count, *kinds]], "barriers": []}
        gpu_counts.write_record(found, about, state)
    tables = {entry["name"]: entry for entry in json.loads((tmp_path / "counts.json").read_text())["entries"]}
    assert [row[:3] for row in tables["kernels"]["rows"]] == [["a", "old", 5], ["a", "now", 3]]
    assert list(tables) == ["kernels", "stages_old", "stages_now"] and tables["stages_now"]["rows"][0][:2] == ["s", 3]
    assert all(len(row) == len(table["columns"]) for table in tables.values() for row in table["rows"])


@pytest.mark.slow
def test_barriers_of_a_step(gpu_counts: Any) -> None:
    """Those of 1-50-50-1; the record and docs/gpu.md have them."""
    record = json.loads((BENCH / "results" / "performance" / "gpu_counts.json").read_text())
    (table,) = [one for one in record["entries"] if isinstance(one, dict) and one["name"] == "barriers"]
    recorded = [[row[0], *row[2:]] for row in table["rows"] if row[1] == "now"]
    assert gpu_counts.barriers_of_steps() == recorded


def test_missing_tools_are_named(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = process("-c", "import gpu_counts; gpu_counts.find_tool('nvdisasm9')", cwd=BENCH, env=environment)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "nvdisasm9 is neither on the path nor among NVIDIA's Python packages: pip install nvidia-cuda-nvdisasm9"
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_a_kernel_is_counted(gpu_counts: Any) -> None:
    try:
        gpu_counts.find_tool("nvdisasm")
    except SystemExit as missing:
        pytest.skip(str(missing))
    kernels = {"decide": gpu_counts.KERNELS["slabs: decide"]}
    ((name, instructions, registers, *_),) = gpu_counts.count_kernels(BENCH.parent / "csrc", "sm_90", kernels)[
        "kernels"
    ]
    assert name == "decide" and instructions > 1000 and 0 < registers <= 255


def test_examples_of_the_script() -> None:
    done = process("-m", "doctest", "-v", str(BENCH / "gpu_counts.py"), cwd=BENCH)
    assert done.returncode == 0 and "0 failed" in done.stdout and " passed" in done.stdout
