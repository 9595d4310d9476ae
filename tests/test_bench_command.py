"""Tests of `patrac bench` and of the floor: operations counted by hand, plausible rates, and the table."""

import numpy as np
import pytest

import patrac_native as pn
import problems
from patrac_native.cli.main import main
from patrac_native.engine import _core, default_simd_level, simd_levels
from patrac_native.studies import bench
from patrac_native.studies.floor import MULTIPLY_ADD, NORMAL, floor_microseconds, measure_rate, nanoseconds


def posterior(architecture: pn.Architecture, likelihood: pn.Likelihood, m: int = 1) -> pn.Posterior:
    """Return a posterior of a 3-6-5-m network with seven rows."""
    rng = np.random.default_rng(0)
    net, X = problems.random_network(rng, (3, 6, 5, m)), rng.normal(size=(7, 3))
    y = likelihood.sample(net.predict(X), rng)
    return pn.Posterior(net, architecture, pn.TraceClassPrior(1.5, 1.0, 1.0), likelihood, X, y)


@pytest.mark.parametrize(
    ("architecture", "likelihood", "m", "expected"),
    [
        # Forward 18 + 30 + 5 weights, reverse the last two layers', gradient all: and a tanh for each hidden node.
        (pn.Full(), pn.Gaussian(1.0), 1, {MULTIPLY_ADD: 7 * (53 + 35 + 53), "tanh": 7 * 11, NORMAL: 53 + 12}),
        # 2 nodes vary in layer 1, all 5 in layer 2; the gradient is that of the Bayesian blocks.
        (pn.Mix(2), pn.Gaussian(1.0), 1, {MULTIPLY_ADD: 7 * (21 + 15 + 12), "tanh": 7 * 7, NORMAL: 12 + 5}),
        # Out of a Gaussian passes over no rows; with classes each has its constants times weights, exps and a log.
        (pn.Out(4), pn.Gaussian(1.0), 1, {MULTIPLY_ADD: 2 * 5, NORMAL: 5}),
        (pn.Out(4), pn.Categorical(), 3, {MULTIPLY_ADD: 7 * (12 + 12), NORMAL: 15, "exp": 7 * 3, "log": 7}),
    ],
)
def test_operations_of_a_step(
    architecture: pn.Architecture, likelihood: pn.Likelihood, m: int, expected: dict[str, int]
) -> None:
    assert posterior(architecture, likelihood, m).plan().operations == expected


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("level", simd_levels())
def test_rates_are_of_this_planet(level: str, dtype: str) -> None:
    """A core does between 1e6 tanh and 1e12 multiply-adds a second, and more multiply-adds than tanh."""
    each = nanoseconds([MULTIPLY_ADD, "tanh", NORMAL], dtype, level)
    assert 1e-3 < each[MULTIPLY_ADD] < min(each["tanh"], each[NORMAL]) and max(each["tanh"], each[NORMAL]) < 1e3


def test_unknown_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="cosinus"):
        measure_rate("cosinus", "float32", default_simd_level())


def test_floor_adds_up() -> None:
    """The sum of counts times the rates that are printed."""
    post = posterior(pn.Full(), pn.Gaussian(1.0))
    counts = post.plan().operations
    each = nanoseconds(list(counts), "float32", post.network.level)
    # Four terms, each rounded twice.
    expected = sum(count * each[name] for name, count in counts.items()) / 1e3
    assert floor_microseconds(post) == pytest.approx(expected, rel=1e-14)


def test_command_prints_every_architecture(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PROBLEMS", [((1, 50, 50, 1), 40)])
    assert main(["bench", "--seconds", "0.002", "--repeats", "1"]) == 0
    printed = capsys.readouterr().out
    for label in ("Full", "Mix(2)", "Mix(5)", "Sep(2)", "Sep(5)", "Out(12)", "Out(45)"):
        (line,) = [line for line in printed.splitlines() if line.startswith(f"{label} ")]
        *_, rows, step, floor, share = line.replace(",", "").split()
        assert rows == "40" and float(step) > 0 and float(floor) > 0
        # Both numbers are printed with three digits, half a unit of the third is at most 1/200 of each.
        assert float(share.rstrip("%")) == pytest.approx(100 * float(floor) / float(step), rel=0.0101, abs=0.5)
    assert f"level {default_simd_level()}" in printed


def test_models_take_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument takes precedence over the environment variable."""
    monkeypatch.setenv("PATRAC_SIMD", simd_levels()[0])
    for level in simd_levels():
        assert bench.problem(pn.Mix(2), (1, 4, 4, 1), 9, "float32", level).network.level == level
    assert bench.problem(pn.Mix(2), (1, 4, 4, 1), 9, "float32").network.level == simd_levels()[0]


@pytest.mark.parametrize(("option", "value"), [("--seconds", "0"), ("--repeats", "0")])
def test_bad_options(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", option, value]) == 2
    assert option in capsys.readouterr().err


def test_a_device_is_timed_beside_the_cpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PROBLEMS", [((1, 5, 5, 1), 20)])
    monkeypatch.setattr(bench, "DEVICE_CHAINS", (2,))
    bench.print_device_times("emulated:1", "float32", 0.002, 1)
    printed = capsys.readouterr().out
    [line] = [line for line in printed.splitlines() if line.startswith("Full, 1-5-5-1, n=20 ")]
    *_, chains, cpu, device = line.replace(",", "").split()
    assert chains == "2" and float(cpu) > 0 and float(device) > 0
    assert 'device="auto"' in printed


def test_a_device_that_cannot_be_used_is_not_timed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status = _core.device_status("cuda") | {"usable": False, "reason": "no CUDA device is visible"}
    monkeypatch.setattr(bench, "device_status", lambda _: status)
    bench.print_device_times("cuda", "float32", 0.002, 1)
    assert capsys.readouterr().out == "cuda is not timed: no CUDA device is visible\n"
