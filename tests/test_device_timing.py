"""What device="auto" means: the faster of the CPU and a device for the run in question, and why."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from patrac_native.engine import _core, device
from patrac_native.sampling import device_timing, execution
from patrac_native.sampling.execution import joined_model
from patrac_native.sampling.prepared_run import prepare_run

KERNEL = pn.PCNL(0.02)
RIVAL = "emulated:2"


def posterior(**more: Any) -> pn.Posterior:
    rng = problems.rng_of("device timing", more)
    return problems.problem(rng, (2, 6, 5, 2), 23, architecture_name="mix", **more).post


def sampled(post: pn.Posterior | None = None, kernel: Any = KERNEL, **more: Any) -> pn.Draws:
    arguments: dict[str, Any] = {"chains": 2, "draws": 20, "warmup": None, "seed": 5, "progress": False, "threads": 1}
    return pn.sample(posterior() if post is None else post, kernel, **(arguments | more))


@pytest.fixture
def rival(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated device in the place of the GPU, tried for the shortest of runs."""
    monkeypatch.setattr(device, "RIVAL", RIVAL)
    monkeypatch.setattr(device_timing, "WORTH_TRYING", 0.0)


class Clock:
    """Seconds by device in the place of the time: of the first step, and of any other. What was timed is kept."""

    def __init__(self, first: float, seconds: dict[str, float]) -> None:
        self.first = first
        self.seconds = seconds
        self.timed: list[tuple[str, int]] = []

    def __call__(self, runs: Any, steps: int, _: Any) -> float:
        where = runs[0].device.split(":")[0]
        self.timed.append((where, steps))
        for run in runs:
            trial = run.trial(steps)
            assert trial.config is not None and trial.steps_of_chain == trial.draws * trial.thin == steps
            assert trial.draws <= run.draws
        return self.first + steps * self.seconds[where]

    @property
    def where(self) -> list[str]:
        """The devices that were timed."""
        return [where for where, _ in self.timed]


def with_clock(monkeypatch: pytest.MonkeyPatch, *, first: float = 0.0, **seconds: float) -> Clock:
    clock = Clock(first, seconds)
    monkeypatch.setattr(device_timing, "_seconds", clock)
    return clock


@pytest.mark.usefixtures("rival")
def test_both_are_timed_and_the_cpu_beats_an_emulated_device() -> None:
    """Blocks whose threads the host makes anew for each launch are slower by far."""
    draws = sampled(draws=50_000)
    assert draws.settings["device"] == "cpu"
    reason = draws.settings["device_reason"]
    found = re.search(r"takes about (\S+) s on the CPU and (\S+) s on emulated:2 \(emulated\), a step of", reason)
    assert found is not None and 0 < float(found[1]) < float(found[2])
    np.testing.assert_array_equal(draws.theta, sampled(draws=50_000, device="cpu").theta)


@pytest.mark.usefixtures("rival")
@pytest.mark.parametrize(("cpu", "emulated", "chosen"), [(2e-3, 1e-3, RIVAL), (1e-3, 2e-3, "cpu"), (1e-3, 1e-3, "cpu")])
def test_the_faster_one_runs(cpu: float, emulated: float, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the draws that it gives when it is named."""
    with_clock(monkeypatch, cpu=cpu, emulated=emulated)
    draws = sampled(warmup=pn.Warmup((pn.Phase(30),)))
    assert draws.settings["device"] == chosen
    assert draws.settings["device_reason"] == (
        f"by the time of its first steps, the run takes about {50 * cpu:.2g} s on the CPU and {50 * emulated:.2g} s on "
        f"{RIVAL} (emulated), a step of all chains {cpu:.2g} s and {emulated:.2g} s"
    )
    named = sampled(warmup=pn.Warmup((pn.Phase(30),)), device=chosen)
    np.testing.assert_array_equal(draws.theta, named.theta)
    assert named.settings["device_reason"] == "given"


@pytest.mark.parametrize("warmup", [0, 35])
@pytest.mark.parametrize("first", [0.0, 0.3])
@pytest.mark.parametrize(("step", "draws"), [(1e-6, 10_000_000), (0.2, 50), (1e-6, 7), (0.3, 2), (0.3, 1)])
def test_what_is_done_once_is_not_counted_as_a_step(
    step: float, draws: int, first: float, warmup: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes; and as many steps are timed as can be told, or as the run has."""
    clock = with_clock(monkeypatch, first=first, cpu=step)
    run = replace(prepared(posterior(), draws), schedule=pn.Warmup((pn.Phase(warmup),) if warmup else ()))
    found, most = device_timing._pace([run], None), run.steps_of_chain
    assert found.seconds(most) == pytest.approx(first + most * step, rel=1e-6)
    steps = [steps for _, steps in clock.timed]
    assert steps[:3] == [1, 1, 1] and steps[1:] == sorted(steps[1:]) and steps[-1] <= most
    if most > 1:
        assert found.step == pytest.approx(step, rel=1e-6)
        assert (steps[-1] - 1) * step >= device_timing.TIMED or steps[-1] > most - run.draws
        assert (steps[-1] - 1) * step <= max(3 * device_timing.TIMED, 2 * step)


@pytest.mark.usefixtures("rival")
def test_a_short_run_tells_nothing_of_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was timed of too few steps is not remembered."""
    clock, post = with_clock(monkeypatch, first=1.0, cpu=1e-6, emulated=2e-6), posterior()
    sampled(post, draws=1)
    assert sampled(post, draws=3).settings["device"] == "cpu"
    timed = len(clock.timed)
    reason = sampled(post, draws=100_000).settings["device_reason"]
    assert len(clock.timed) > timed and "a step of all chains 1e-06 s and 2e-06 s" in reason


@pytest.mark.usefixtures("rival")
def test_several_are_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the timing and for the run."""
    joined: list[int] = []

    def join(runs: Any) -> Any:
        joined.append(len(runs))
        return joined_model(runs)

    for module in (device_timing, execution):
        monkeypatch.setattr(module, "joined_model", join)
    monkeypatch.setattr(device_timing, "_pace", lambda runs, _: device_timing.Pace(0, 1.0 / (1 + len(runs))))
    arguments: dict[str, Any] = {"draws": 5, "warmup": None, "seed": 3, "progress": False}
    draws = pn.sample_many([posterior(), posterior()], KERNEL, **arguments)
    assert draws[0].settings["device"] == RIVAL and joined == [2]


def prepared(post: pn.Posterior, draws: int, **more: Any) -> Any:
    """A run of two chains as `sample` prepares it."""
    arguments: dict[str, Any] = {"kernel": KERNEL, "chains": 2, "thin": 1, "warmup": None, "init": "auto", "seed": 1}
    arguments |= {"threads": 1, "device": "auto", "keep_on_device": False}
    return prepare_run(post, draws=draws, **(arguments | more))


def test_short_runs_stay_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "RIVAL", RIVAL)
    clock = with_clock(monkeypatch, cpu=1e-3, emulated=1e-9)
    draws = sampled(draws=400)
    assert draws.settings["device"] == "cpu" and "emulated" not in clock.where
    assert draws.settings["device_reason"] == (
        "the run takes about 0.4 s there, and emulated:2 is tried for runs of 1 s or more"
    )
    assert sampled(draws=2000).settings["device"] == RIVAL


@pytest.mark.usefixtures("rival")
@pytest.mark.parametrize("emulated", [1e-2, 3e-2])
def test_timings_are_remembered(emulated: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a posterior, for the same kernel, chains, threads and thinning; no model is made for what is known."""
    clock, post = with_clock(monkeypatch, cpu=2e-2, emulated=emulated), posterior()
    first = sampled(post)
    timed, made = len(clock.timed), []
    monkeypatch.setattr(device_timing, "joined_model", lambda runs: made.append(runs) or joined_model(runs))
    again = sampled(post, draws=300, warmup=pn.Warmup((pn.Phase(100),)))
    assert again.settings["device"] == first.settings["device"]
    assert len(clock.timed) == timed and not made
    for changed in ({"chains": 3}, {"kernel": pn.PCN(0.1)}, {"threads": 2}, {"thin": 3}):
        sampled(post, **changed)
        assert len(clock.timed) > timed and made
        timed = len(clock.timed)


@pytest.mark.usefixtures("rival")
def test_what_is_done_once_decides_a_short_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the words have the times that decided."""
    times = {"cpu": device_timing.Pace(0.0, 2e-2), RIVAL: device_timing.Pace(5.0, 1e-2)}
    monkeypatch.setattr(device_timing, "_pace", lambda runs, _: times[runs[0].device])
    for draws, device_of_run, words in (
        (101, "cpu", "2 s on the CPU and 6 s on"),
        (1001, RIVAL, "20 s on the CPU and 15 s on"),
    ):
        settings = sampled(draws=draws).settings
        assert settings["device"] == device_of_run and words in settings["device_reason"]


@pytest.mark.usefixtures("rival")
def test_several_posteriors_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other on the CPU, together on a device; on the CPU if one of them must, or they are not alike."""
    arguments: dict[str, Any] = {"draws": 5, "warmup": None, "seed": 3, "progress": False}
    posts = [posterior(), posterior()]
    with_clock(monkeypatch, cpu=1.0, emulated=1.5)
    for device_of_all, some in ((RIVAL, posts), ("cpu", posts[:1])):
        draws = pn.sample_many(some, KERNEL, **arguments)
        assert {one.settings["device"] for one in draws} == {device_of_all}
        for ours, theirs in zip(draws, pn.sample_many(some, KERNEL, device=device_of_all, **arguments), strict=True):
            np.testing.assert_array_equal(ours.theta, theirs.theta)
    monkeypatch.undo()
    monkeypatch.setattr(device, "RIVAL", RIVAL)
    monkeypatch.setattr(device_timing, "WORTH_TRYING", 0.0)
    unlike = pn.sample_many([posterior(), posterior(dtype="float32")], KERNEL, **arguments)
    reason = unlike[1].settings["device_reason"]
    assert unlike[1].settings["device"] == "cpu" and reason.startswith(f"{RIVAL} does not run it: posts must be of one")


@pytest.mark.usefixtures("rival")
def test_what_the_cpu_alone_runs_says_so() -> None:
    net = problems.random_network(problems.rng_of("auto"), (2, 5, 1))
    X = np.linspace(-1, 1, 8).reshape(4, 2)
    last = pn.Posterior(net, pn.Out(3), problems.PRIOR, pn.Gaussian(1.0), X, X[:, 0])
    noise = pn.Posterior(net, pn.Mix(2), problems.PRIOR, pn.Gaussian("sampled", a=2.0, b=1.0), X, X[:, 0])
    deep = problems.problem(problems.rng_of("deep"), (2,) * 18, 5).post
    of_the_paper = prepared(last, 5, kernel="auto", warmup=pn.paper_warmup())
    assert of_the_paper.kernel == pn.PCNL() and of_the_paper.rival == RIVAL
    for post, kernel, reason in (
        (posterior(), pn.EllipticalSlice(), "EllipticalSlice() runs there alone"),
        (last, "auto", "Exact() runs there alone"),
        (noise, KERNEL, "a sampled variance runs there alone"),
        (deep, KERNEL, "networks of more than 16 layers run there alone"),
    ):
        draws = sampled(post, kernel, draws=1)
        assert (draws.settings["device"], draws.settings["device_reason"]) == ("cpu", reason)
    assert 'device="auto" means cpu: Exact() runs there alone' in last.describe()


@pytest.mark.usefixtures("rival")
def test_draws_that_are_to_stay_go_to_the_device() -> None:
    draws = sampled(keep_on_device=True)
    assert (draws.settings["device"], draws.settings["device_reason"]) == (RIVAL, "the draws are to stay there")
    assert draws.device_theta.shape == (2, 20, posterior().dim)


@pytest.mark.usefixtures("rival")
def test_an_interrupt_while_timing_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_timing, "execute", lambda *_, **__: [{"completed": False}])
    with pytest.raises(KeyboardInterrupt):
        sampled()


@pytest.mark.usefixtures("rival")
def test_the_loser_leaves_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    with_clock(monkeypatch, cpu=1e-2, emulated=2e-2)
    post = posterior()
    sampled(post)
    assert not post.has_device_model(RIVAL)
    used = post.device_model(RIVAL)
    sampled(post, chains=3)
    assert post.device_model(RIVAL) is used


@pytest.mark.usefixtures("rival")
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_trial_that_fails_leaves_no_model(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def paces(runs: Any, _: Any) -> device_timing.Pace:
        if runs[0].device == "cpu":
            return device_timing.Pace(0.0, 1.0)
        raise error("out of memory")

    monkeypatch.setattr(device_timing, "_pace", paces)
    post = posterior()
    if error is RuntimeError:
        assert sampled(post).settings["device_reason"] == f"{RIVAL} does not run it: out of memory"
    else:
        with pytest.raises(error):
            sampled(post)
    assert not post.has_device_model(RIVAL)


@pytest.mark.usefixtures("rival")
def test_words() -> None:
    assert (
        f'device="auto" means the faster of the CPU and {RIVAL} (emulated), timed on the first steps of a run'
        in posterior().describe()
    )


def test_without_a_gpu_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    status = _core.device_status("cuda") | {"usable": False, "reason": "no CUDA device is visible"}
    monkeypatch.setattr(_core, "device_status", lambda _: status)
    clock = with_clock(monkeypatch, cpu=1.0)
    assert sampled().settings["device_reason"] == "no CUDA device: no CUDA device is visible"
    assert not clock.timed
