"""bench/backend: each benchmark runs and writes its results as JSON, and pytest-benchmark is not switched off."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from scripts import process

ROOT = Path(__file__).resolve().parents[1]


def written(command: list[str], path: Path) -> Any:
    """Run Python with these arguments in the repository; return the JSON file that it wrote."""
    # pytest-benchmark times nothing in a process that looks like a worker of pytest-xdist, as this one may be.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = process(*command, cwd=ROOT, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text())


@pytest.mark.slow
def test_pytest_benchmark_times(tmp_path: Path) -> None:
    """An option in pyproject.toml that distributes tests would switch the timing off, and `stats` would be None."""
    pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
    source = "def test_sum(benchmark):\n    benchmark(sum, range(9))\n    assert benchmark.stats['median'] > 0\n"
    (tmp_path / "test_small.py").write_text(source)
    out = tmp_path / "out.json"
    options = ["-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", f"--benchmark-json={out}"]
    found = written(["-m", "pytest", *options, str(tmp_path / "test_small.py")], out)
    assert found["benchmarks"][0]["stats"]["rounds"] > 0


@pytest.mark.slow
def test_training_is_timed_beside_autograd(tmp_path: Path) -> None:
    """The script stops where the losses of three epochs differ."""
    out = tmp_path / "out.json"
    found = written(["bench/bench_train.py", "--repeats", "1", "--seconds", "0.01", "--json", str(out)], out)
    assert len(found["cases"]) == 5 and all(case["ratios"]["torch"] > 0 for case in found["cases"].values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "needs", "options"),
    [
        ("nutpie_chains", ("nutpie",), ()),
        ("logistic_regression", ("numba", "blackjax"), ()),
        ("bench_nuts", ("blackjax", "numpyro"), ("--cases", "Sep(5)")),
    ],
)
def test_scripts_write_their_results(
    script: str, needs: tuple[str, ...], options: tuple[str, ...], tmp_path: Path
) -> None:
    for name in needs:
        pytest.importorskip(name, reason=f"{name} is not installed")
    out = tmp_path / "out.json"
    found = written([f"bench/backend/{script}.py", "--repeats", "1", *options, "--json", str(out)], out)
    if script == "nutpie_chains":
        assert found["about"]["evaluation_seconds"] > 0 and len(found["cases"]["ratios"]) == 1
    elif script == "bench_nuts":
        assert found["cases"]["Sep(5)"]["native"]["ess_per_second"] > 0
    else:
        assert found["cases"]["pn.Target, kernel auto"]["medians"]["max_rhat"] < 1.05
        assert len(found["cases"]) == 4
