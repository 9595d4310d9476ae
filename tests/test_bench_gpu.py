"""bench/gpu.py on an emulated device: it checks, times, prints, writes, and fails where a check does."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from patrac_native.engine import device_status
from scripts import output_of, process

SCRIPT = Path(__file__).resolve().parents[1] / "bench" / "gpu.py"
BROKEN = """
import sys
sys.path.insert(0, {folder!r})
import gpu_checks
{breaks}
sys.argv = ["gpu.py", "--device", "emulated:1", "--quick", "--peers", "none", "--only", {section!r}]
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
coarse = {{"exact": {{"median": 1100.0}}, "coarse": {{"median": 550.0}}, "change": 2e-4}}
cold = {{"architecture": "Full", "chains": 1024, "side": "PCNL", "steps": 1600, "stable": True, "seconds": 0.5,
        "ess": 1000.0, "rhat": 1.0123, "effective": 2000.0}}
run.results |= {{"small": {{"Full": {{1: case, 1024: {{"median": 200.0}}}}}}, "large": {{"Full": large}}}}
run.results |= {{"coarse": {{50000: coarse}}, "cold_starts": [cold]}}
print(json.dumps([texts, gpu.entries(run.results, "a card")]))
"""

PEER = """
import json, sys
sys.path.insert(0, {folder!r})
import gpu_cold_starts as cold, gpu_problems
from chees_peer import chees
from gpu_checks import check_peer
from peers_by_hand import expert
import patrac_native as pn
case, chains = gpu_problems.small_case("Sep(2)", gpu_problems.QUICK), 256
error, peer = check_peer(case, cold.peer_density(case)), chees(expert(case.post), "float32", case.post.dim, chains, 60)
theta, gradients = peer.run(peer.start(cold.starting_points(case.post, chains, 4, seed=1)), 1)
f = case.post.network.predict(theta.astype("float32"), cold.INPUTS)[..., 0]
long = pn.sample(case.post, pn.MGrad(persistence=0.9), chains=4, draws=2000, thin=10, seed=1, progress=False)
right = long.summary(cold.INPUTS, progress=False)
away = (f.mean(axis=0) - right.mean[:, 0]) / right.sd[:, 0]
ratio = f.std(axis=0) / right.sd[:, 0]
print(json.dumps([error, gradients, right.function.min_ess_bulk, away.tolist(), ratio.tolist()]))
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
    assert [table["name"] for table in found["entries"]] == [
        "small",
        "large",
        "coarse",
        "cold starts",
        "requirements",
    ]
    assert [len(table["rows"]) for table in found["entries"]] == [3, 4, 1, 6, 0]
    assert list(found["small"]) == ["Full", "Mix(5)", "Sep(2)"]
    assert list(found["large"]) == ["Full", "Mix(4)", "Sep(4)", "Out(24)"]
    # Noise; two gradients and a chain of each small case, a gradient of each large one, and of it with fewer rows;
    # a coarse gradient.
    assert len(found["checks"]) == 1 + 3 * 3 + 4 + 4 + 1
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
    assert [lines.count(name) for name in ("Full", "Mix(5)", "Sep(2)", "Mix(4)", "Out(24)")] == [5, 4, 4, 1, 1]
    assert "NOT MET" not in done.stdout and " ok)" not in done.stdout
    assert "19 checks passed, 0 failed" in done.stdout
    check_coarse(found["coarse"], found["checks"])
    check_cold_starts(found["cold_starts"])
    assert found["about"]["blackjax"] == "not asked for" and "ChEES-HMC: left out, not asked for" in done.stdout
    check_thresholds(found["thresholds"], done.stdout)


def check_coarse(coarse: dict[str, Any], checks: dict[str, Any]) -> None:
    """Both gradients are timed, in chains that move; the change of the gradient is that of the check."""
    assert list(coarse) == ["300"]
    for gradient in ("exact", "coarse"):
        assert coarse["300"][gradient]["median"] > 0 and coarse["300"][gradient]["acceptance_rate"] > 0
    assert coarse["300"]["change"] == checks["coarse gradients of Full, 256-26-26-4, n=300, float32"]
    assert 2.0**-11 < coarse["300"]["change"] < 2.0**-7


def check_cold_starts(found: list[dict[str, Any]]) -> None:
    """Each kernel starts chains of each architecture, small ones first; the numbers are those of the one run."""
    names = [(one["side"], one["architecture"], one["chains"]) for one in found]
    assert names == [(side, name, 32) for side in ("MGrad, 0.9", "PCNL") for name in ("Sep(2)", "Mix(5)", "Full")]
    for one in found:
        (only,) = one["runs"]
        assert one["steps"] == 400 and one["gradients"] == 401 and one["stable"] in (True, False)
        assert all(one[name] == only[name] for name in ("seconds", "ess", "rhat"))
        assert 0 < one["ess"] <= 32 and 0.9 < one["rhat"] < 3
        assert one["effective"] == pytest.approx(one["ess"] / one["seconds"])


def check_thresholds(thresholds: list[dict[str, Any]], printed: str) -> None:
    """Each case at all its counts; where the device is faster follows from the times."""
    names = [(t["architecture"], t["counted"]) for t in thresholds]
    assert names == [
        *((name, "chains") for name in ("Full", "Mix(5)", "Sep(2)")),
        *((name, "rows") for name in ("Full", "Mix(4)", "Sep(4)", "Out(24)")),
    ]
    for t in thresholds:
        assert t["counts"] == ([1, 3] if t["counted"] == "chains" else [30, 300])
        assert t["network"] == ("1-30-30-1, n=40" if t["counted"] == "chains" else "256-26-26-4")
        faster = [device < cpu for device, cpu in zip(t["device"], t["cpu"], strict=True)]
        expected = None if not faster[1] else t["counts"][0] if faster[0] else t["counts"][1]
        assert t["first"] == expected and min(*t["device"], *t["cpu"]) > 0
        assert f"| {t['network']} | {t['architecture']} | " in printed


def test_requirements_and_results_are_the_tables_of_a_record() -> None:
    pytest.importorskip("torch")
    done = python("-c", HELD.format(folder=str(SCRIPT.parent), device="cuda"))
    assert done.returncode == 0, done.stderr
    texts, (small, large, coarse, cold, requirements) = json.loads(done.stdout)
    assert texts == ["2.50 (>= 2 ok)", "12.5 (<= 12 NOT MET)", "3.00", "-"]
    assert all({"machine", "commit", "date", "command"} < set(table) for table in (small, large, coarse, cold))
    assert small["machine"] == "a card"
    assert small["columns"] == ["architecture", "1 chain", "1,024 chains", "JAX, 1"]
    assert small["rows"] == [["`Full`", "10.0", "200", "15.0"]]
    assert large["rows"] == [["`Full`", "1,100", None, "90.0"]]
    assert coarse["rows"] == [["50,000", "1,100", "550", "2.0e-04"]]
    assert cold["rows"] == [["`Full`", "1,024", "PCNL", "1,600", "yes", "0.500", "1,000", "1.012", "2,000"]]
    assert all(len(table["columns"]) == len(table["rows"][0]) for table in (small, large, coarse, cold, requirements))
    assert requirements["rows"] == [["rate", "at least 2", "2.50", "yes"], ["time", "at most 12", "12.5", "no"]]


def test_an_emulated_device_is_held_against_no_requirement() -> None:
    pytest.importorskip("torch")
    done = python("-c", HELD.format(folder=str(SCRIPT.parent), device="emulated:4"))
    texts, (*_, requirements) = json.loads(done.stdout)
    assert texts == ["2.50", "12.5", "3.00", "-"] and requirements["rows"] == []


def test_examples_of_the_script() -> None:
    """Where a device is faster, among them."""
    pytest.importorskip("torch")
    for module in (SCRIPT, SCRIPT.with_name("gpu_record.py")):
        done = python("-m", "doctest", "-v", str(module))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "0 failed" in done.stdout and " passed" in done.stdout


@pytest.mark.slow
def test_a_failing_check_is_printed_not_timed_and_fails_the_run() -> None:
    pytest.importorskip("torch")
    breaks = 'gpu_checks.MAX_ERROR["float32"] = 1e-12'
    done = python("-c", BROKEN.format(folder=str(SCRIPT.parent), breaks=breaks, section="large"))
    assert done.returncode == 1, done.stdout + done.stderr
    for name in ("Full", "Mix(4)", "Sep(4)", "Out(24)"):
        assert f"FAILED: gradients of {name}, 256-26-26-4, n=300, float32: " in done.stdout
    assert "1 checks passed, 4 failed" in done.stdout


@pytest.mark.slow
def test_a_coarse_gradient_that_is_exact_fails_the_run() -> None:
    pytest.importorskip("torch")
    breaks = "from patrac_native.engine import _core\nkind = _core.DeviceModel32; own = kind.log_likelihood_and_grad\n"
    breaks += "kind.log_likelihood_and_grad = lambda model, theta, coarse=False: own(model, theta)"
    done = python("-c", BROKEN.format(folder=str(SCRIPT.parent), breaks=breaks, section="coarse"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED: coarse gradients of Full, 256-26-26-4, n=300, float32: " in done.stdout
    assert "2 checks passed, 1 failed" in done.stdout


@pytest.mark.slow
def test_the_peer_of_cold_starts_samples_the_posterior() -> None:
    """Draws of 256 chains of ChEES-HMC beside a long run of another kernel."""
    for module in ("torch", "jax", "blackjax"):
        pytest.importorskip(module)
    done = python("-c", PEER.format(folder=str(SCRIPT.parent)))
    assert done.returncode == 0, done.stdout + done.stderr
    error, gradients, ess, away, ratio = json.loads(done.stdout)
    assert error < 1e-4 and gradients >= 61
    # Monte Carlo errors of 256 draws are 1/16 for means and 1/sqrt(512) for standard deviations, of nearly normal f.
    assert ess > 2000
    assert max(map(abs, away)) < 4 * (1 / 256 + 1 / ess) ** 0.5
    assert all(abs(one - 1) < 4 / 512**0.5 for one in ratio)


def test_a_machine_without_blackjax_says_so() -> None:
    pytest.importorskip("torch")
    script = """
        import sys
        sys.path.insert(0, sys.argv[1])
        sys.modules["blackjax"] = None
        from gpu_cold_starts import blackjax_reason
        print(blackjax_reason(""), blackjax_reason("JAX is not installed"), sep="\\n")
    """
    without, without_jax = output_of(script, str(SCRIPT.parent)).splitlines()
    assert without.startswith("it cannot be imported: ") and "blackjax" in without
    assert without_jax == "JAX is not installed"


@pytest.mark.skipif(device_status("cuda")["usable"], reason="there is a device")
def test_without_a_gpu_it_says_why() -> None:
    done = run()
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.strip() == f'device="cuda": {device_status("cuda")["reason"]}'
