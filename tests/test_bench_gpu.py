"""bench/gpu.py on an emulated device: it checks, times, prints, writes, and fails where a check does."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from patrac_native.engine import device_status
from scripts import process

SCRIPT = Path(__file__).resolve().parents[1] / "bench" / "gpu.py"
BROKEN = """
import sys
sys.path.insert(0, {folder!r})
import gpu_checks
gpu_checks.MAX_ERROR["float32"] = 1e-12
sys.argv = ["gpu.py", "--device", "emulated:1", "--quick", "--peers", "none", "--only", "large"]
import gpu
gpu.main()
"""


HELD = """
import argparse, json, sys
sys.path.insert(0, {folder!r})
import gpu
run = gpu.Run.__new__(gpu.Run)
run.options, run.results = argparse.Namespace(quick=False, device={device!r}), {{"requirements": []}}
texts = [run.held("rate", 2.5, least=2.0), run.held("time", 12.5, most=12.0), run.held("other", 3.0),
         run.held("JAX", None, least=3.0)]
case = {{"median": 10.0, "jax": {{"plain": {{"microseconds": [30.0]}}, "by hand": {{"microseconds": [15.0]}}}}}}
large = {{"median": 1100.0, "jax": {{}}, "floors": {{"memory": 90.0, "tensor": 80.0}}, "bound": "memory"}}
run.results |= {{"small": {{"Full": {{1: case, 1024: {{"median": 200.0}}}}}}, "large": {{"Full": large}}}}
print(json.dumps([texts, gpu.entries(run.results, "a card")]))
"""


python = functools.partial(process, cwd=SCRIPT.parent)
run = functools.partial(python, str(SCRIPT))


@pytest.mark.slow
def test_the_whole_script_runs_on_an_emulated_device(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run("--device", "emulated:1", "--quick", "--peers", "none", "--json", str(tmp_path / "gpu.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((tmp_path / "gpu.json").read_text())
    assert found["about"]["status"]["name"] == "emulated" and found["about"]["jax"] == "not asked for"
    assert found["failed"] == found["left_out"] == found["requirements"] == []
    assert [table["name"] for table in found["entries"]] == ["small", "large", "requirements"]
    assert [len(table["rows"]) for table in found["entries"]] == [3, 4, 0]
    assert list(found["small"]) == ["Full", "Mix(5)", "Sep(2)"]
    assert list(found["large"]) == ["Full", "Mix(4)", "Sep(4)", "Out(24)"]
    # Noise; two gradients and a chain of each small case, a gradient of each large one, and of it with fewer rows.
    assert len(found["checks"]) == 1 + 3 * 3 + 4 + 4
    for cases in found["small"].values():
        assert list(cases) == ["1", "3"]
        for chains, case in cases.items():
            rate = case["chain_steps_per_second"]
            assert rate == pytest.approx(1e6 * int(chains) / case["median"]) and case["floor"] > 0
            assert 0 < case["acceptance_rate"] <= 1
    for case in found["large"].values():
        assert case["bound"] in ("memory", "tensor") and min(case["floors"].values()) > 0
        assert case["acceptance_rate"] > 0
        assert case["microseconds"][0] > 0
    # Every row is printed; nothing is held against requirements that are for a GPU.
    lines = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert [lines.count(name) for name in ("Full", "Mix(5)", "Sep(2)", "Mix(4)", "Out(24)")] == [3, 2, 2, 1, 1]
    assert "NOT MET" not in done.stdout and " ok)" not in done.stdout
    assert "18 checks passed, 0 failed" in done.stdout
    check_thresholds(found["thresholds"], done.stdout)


def check_thresholds(thresholds: list[dict[str, Any]], printed: str) -> None:
    """Each case at all its counts; where the device is faster follows from the times."""
    names = [(t["architecture"], t["counted"]) for t in thresholds]
    assert names == [
        *((name, "chains") for name in ("Full", "Mix(5)", "Sep(2)")),
        *((name, "rows") for name in ("Full", "Mix(4)", "Sep(4)", "Out(24)")),
    ]
    for t in thresholds:
        assert t["counts"] == ([1, 3] if t["counted"] == "chains" else [30, 300])
        assert t["network"] == ("1-30-30-1, n=40" if t["counted"] == "chains" else "48-26-26-4")
        faster = [device < cpu for device, cpu in zip(t["device"], t["cpu"], strict=True)]
        expected = None if not faster[1] else t["counts"][0] if faster[0] else t["counts"][1]
        assert t["first"] == expected and min(*t["device"], *t["cpu"]) > 0
        assert f"| {t['network']} | {t['architecture']} | " in printed


def test_requirements_and_results_are_the_tables_of_a_record() -> None:
    pytest.importorskip("torch")
    done = python("-c", HELD.format(folder=str(SCRIPT.parent), device="cuda"))
    assert done.returncode == 0, done.stderr
    texts, (small, large, requirements) = json.loads(done.stdout)
    assert texts == ["2.50 (>= 2 ok)", "12.5 (<= 12 NOT MET)", "3.00", "-"]
    assert all({"machine", "commit", "date", "command"} < set(table) for table in (small, large, requirements))
    assert small["machine"] == "a card"
    assert small["columns"] == ["architecture", "1 chain", "1,024 chains", "JAX, 1"]
    assert small["rows"] == [["`Full`", "10.0", "200", "15.0"]]
    assert large["rows"] == [["`Full`", "1,100", None, "90.0"]]
    assert requirements["rows"] == [["rate", "at least 2", "2.50", "yes"], ["time", "at most 12", "12.5", "no"]]


def test_an_emulated_device_is_held_against_no_requirement() -> None:
    pytest.importorskip("torch")
    done = python("-c", HELD.format(folder=str(SCRIPT.parent), device="emulated:4"))
    texts, (_, _, requirements) = json.loads(done.stdout)
    assert texts == ["2.50", "12.5", "3.00", "-"] and requirements["rows"] == []


def test_examples_of_the_script() -> None:
    """Where a device is faster, among them."""
    pytest.importorskip("torch")
    done = python("-m", "doctest", "-v", str(SCRIPT))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout and " passed" in done.stdout


@pytest.mark.slow
def test_a_failing_check_is_printed_not_timed_and_fails_the_run() -> None:
    pytest.importorskip("torch")
    done = python("-c", BROKEN.format(folder=str(SCRIPT.parent)))
    assert done.returncode == 1, done.stdout + done.stderr
    for name in ("Full", "Mix(4)", "Sep(4)", "Out(24)"):
        assert f"FAILED: gradients of {name}, 48-26-26-4, n=300, float32: " in done.stdout
    assert "1 checks passed, 4 failed" in done.stdout


@pytest.mark.skipif(device_status("cuda")["usable"], reason="there is a device")
def test_without_a_gpu_it_says_why() -> None:
    done = run()
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.strip() == f'device="cuda": {device_status("cuda")["reason"]}'
