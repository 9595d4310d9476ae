"""bench/ess: its measures on chains whose answers are known, and the whole command on a small budget."""

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts import process

FOLDER = Path(__file__).resolve().parents[1] / "bench" / "ess"


def measures() -> Any:
    """Return the module of the measures, which is in no package."""
    spec = spec_from_file_location("ess_measures", FOLDER.parent / "ess_measures.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def autoregressive(chains: int, draws: int, points: int, rho: float = 0.9) -> np.ndarray:
    """Return stationary chains with autocorrelation rho^k, of which (1 + rho)/(1 - rho) draws are worth one."""
    rng = np.random.default_rng(0)
    x = np.empty((chains, draws, points))
    x[:, 0] = rng.standard_normal((chains, points))
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * rng.standard_normal((chains, points))
    return x


def test_joint_effective_draws_of_chains_that_agree_and_of_others() -> None:
    """Sums of lags of four chains with 1,000 effective draws and 3 points vary by some 5%."""
    x = autoregressive(4, 20_000, 3)
    assert measures().joint_ess(x) == pytest.approx(4 * 20_000 / 19, rel=0.2)
    apart = x + 3.0 * np.arange(4)[:, None, None]
    assert measures().joint_ess(apart) < 10  # each alone has 1,000
    assert np.isnan(measures().joint_ess(np.ones((2, 50, 1))))


def test_effective_draws_from_the_spread_of_means() -> None:
    """The variance of 400 means, averaged over 5 points, has a relative error of sqrt(2 / 400 / 5), 3%."""
    x = autoregressive(400, 1000, 5)
    assert measures().ess_of_means(x) == pytest.approx(400 * 1000 / 19, rel=0.13)
    assert measures().ess_of_means(x + 3.0 * np.arange(400)[:, None, None]) < 400


def test_the_way_in_ends_with_the_last_chain() -> None:
    """Traces start ten standard deviations off; one chain arrives after 40 draws, the other after 100."""
    traces = {"nlpd": np.tile([1.0, -1.0], (2, 500))}
    long_run = measures().LongRun.of(traces)
    assert long_run.mean == {"nlpd": 0.0} and long_run.sd == {"nlpd": 1.0}
    assert measures().transient(traces, 5.0, 70.0, long_run) == 70.0
    traces["nlpd"][0, :40] += 10
    traces["nlpd"][1, :100] += 10
    # The blocks from 96 to 120 and from 120 to 150: the first holds four early draws.
    assert measures().transient(traces, 5.0, 70.0, long_run) == 70.0 + 5.0 * 150
    both = traces | {"log_likelihood": traces["nlpd"] + 10}
    of_both = measures().LongRun({"nlpd": 0.0, "log_likelihood": 0.0}, {"nlpd": 1.0, "log_likelihood": 1.0})
    assert measures().transient(both, 5.0, 70.0, of_both) == float("inf")


def test_differences_of_means_in_standard_errors() -> None:
    x = autoregressive(8, 5000, 40)
    one, other = x[:4], x[4:]
    effective = 4 * 5000 / 19
    # A root mean square over 40 independent points, each with an error of sqrt(1/2)/sqrt(40) of its own: 11%.
    assert measures().root_mean_square_z(one, other, (effective, effective)) == pytest.approx(1.0, abs=0.4)
    assert measures().root_mean_square_z(one, other + 0.5, (effective, effective)) > 5


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return process(str(FOLDER / "posteriors.py"), *options)


@pytest.mark.slow
def test_the_command_compares_sides_and_writes_them(tmp_path: Path) -> None:
    """Without NUTS and MCLMC, which run on the functions of MAMS and take long to compile."""
    pytest.importorskip("blackjax")
    sides = ("auto", "auto, metric of the prior", "MAMS")
    out = tmp_path / "found.json"
    options = "--problems sine-mix5 --seeds 1 --seconds 0.1 --warmup 400 --out".split()
    done = run(*options, str(out), "--sides", *sides)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["about"]["warmup"] == 400 and list(found["cases"]) == ["sine-mix5"]
    [of_seed] = found["cases"]["sine-mix5"]
    assert of_seed["seed"] == 1 and of_seed["dim"] == 46 and tuple(of_seed["sides"]) == sides
    native = of_seed["sides"]["auto"]
    assert native["warmup_gradients"] == 400 and native["transient_gradients"] >= 400
    # One input has no axes to choose from, so both native sides are one chain.
    assert native["kernels"] == of_seed["sides"]["auto, metric of the prior"]["kernels"]
    for record in of_seed["sides"].values():
        assert record["gradients"] >= 4 * record["kept"] * record["thin"] and record["ess_per_second"] > 0
    assert done.stdout.index("f of MAMS") < done.stdout.index("per 1000 grad.")  # agreement first
    assert "ESS/s, auto / auto, metric of the prior:" in done.stdout


@pytest.mark.slow
def test_a_side_of_another_posterior_is_refused() -> None:
    """One of the native sides has targets that are larger by 1."""
    script = f"""
import sys
sys.path[:0] = [{str(FOLDER)!r}, {str(FOLDER.parent)!r}]
import posteriors
import patrac_native as pn
from dataclasses import replace
original = posteriors.make_side
def broken(name, post, *rest):
    if name != posteriors.AUTO:
        data = posteriors.data_of(posteriors.PROBLEMS["sine-mix5"].data, 0)
        post = replace(data, y=data.y + 1.0).posterior("Mix(5)")
    return original(name, post, *rest)
posteriors.make_side = broken
sys.argv = ["posteriors.py", "--problems", "sine-mix5", "--seconds", "0.5", "--warmup", "1000",
            "--sides", posteriors.AUTO, posteriors.BEFORE]
posteriors.main()
"""
    done = process("-c", script)
    assert done.returncode == 1 and "standard errors off that of auto" in done.stderr, done.stdout + done.stderr
