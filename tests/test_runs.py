"""How runs end and what they report: non-finite values, Ctrl-C, callbacks that raise, the progress bar."""

from __future__ import annotations

import inspect
import sys
import textwrap
import typing
import warnings
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from conftest import cpu_and_devices
from patrac_native.draws.target_draws import TargetDraws
from patrac_native.sampling import progress as bars
from patrac_native.sampling import sampler as sampling
from patrac_native.sampling.settings import OneRunSettings, RunSettings
from patrac_native.sampling.warmup import Phase
from scripts import output_of


def small(seed: int = 0) -> pn.Posterior:
    name = f"runs {seed}" if seed else "runs"
    return problems.problem(problems.rng_of(name), (2, 5, 4, 2), 17, "mix").post


# Values that are not finite


def overflowing() -> pn.Posterior:
    """y = 0 and f = b + w tanh(..) in float32, all of prior sd 1e19, so that tanh is 1 or -1: f^2 exceeds float32's
    3.4e38 beyond |f| = 1.8e19."""
    net = pn.Network([[[0.0]], [[0.0]]], [[0.0], [0.0]])
    return pn.Posterior(net, pn.Full(), pn.TraceClassPrior(1.5, 1e38, 1e38), pn.Gaussian(1.0), [[1.0]], [0.0])


@cpu_and_devices
def test_a_proposal_that_is_not_finite_is_rejected_counted_and_warned_of(device: str) -> None:
    few: dict[str, Any] = {"chains": 2, "draws": 200, "warmup": pn.Warmup((Phase(300),)), "seed": 1}
    with pytest.warns(
        UserWarning, match=r"proposals had a log-likelihood or gradient that is not finite .*by chain: \["
    ):
        draws = pn.sample(overflowing(), pn.PCN(1.0), device=device, **few)
    # beta = 1 proposes prior draws, f of sd 1.41e19: P(|f| > 1.8e19) = 0.2 of 500, or 0.06 if only f^2 / 2 overflows,
    # which is the order of a device; 4 standard errors of 0.02 around them.
    rate = (draws.stats["nonfinite"] + draws.stats["warmup_nonfinite"]) / 500
    assert (draws.stats["nonfinite"] > 0).all() and (draws.stats["warmup_nonfinite"] > 0).all()
    assert ((rate > 0.02) & (rate < 0.28)).all()
    assert np.isfinite(draws.theta).all() and np.isfinite(draws.stats["log_likelihood"]).all()


@cpu_and_devices
def test_accept_all_never_takes_a_state_that_is_not_finite(device: str) -> None:
    """Every finite proposal is taken and no other: the rate is what the counter leaves."""
    warmup = pn.Warmup((Phase(1000, accept_all=True),))
    with pytest.warns(UserWarning, match="not finite"):
        draws = pn.sample(overflowing(), pn.PCN(1.0), chains=2, draws=1, warmup=warmup, seed=2, device=device)
    rejected = draws.stats["warmup_nonfinite"]
    np.testing.assert_array_equal(rejected, np.round(1000 * (1 - draws.stats["warmup_acceptance_rate"][:, 0])))
    assert (rejected > 30).all()
    assert np.isfinite(draws.theta).all()


def test_accept_all_refuses_an_infinite_parameter_behind_a_saturated_activation() -> None:
    """C g overflows float32, so the proposal is infinite, yet tanh(infinity) = 1 leaves l and g finite."""
    net = pn.Network([[[0.5]], [[1.0]]], [[0.0], [0.0]])
    only_first_weight = pn.Custom([[[True]], [[False]]], [[False], [False]])
    prior = pn.TraceClassPrior(1.5, 1e30, 1e30)
    post = pn.Posterior(net, only_first_weight, prior, pn.Gaussian(1.0), [[1.0]], [1e10])
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        draws = pn.sample(
            post, pn.PCNL(1.0), chains=1, draws=5, warmup=pn.Warmup((Phase(10, accept_all=True),)), seed=1
        )
    assert np.isfinite(draws.theta).all()
    assert draws.stats["nonfinite"][0] + draws.stats["warmup_nonfinite"][0] > 0


@cpu_and_devices
def test_a_start_that_is_not_finite_is_refused_naming_the_chain(device: str) -> None:
    start = np.zeros((3, 4))
    start[1] = 1e25
    message = r"init: the log-likelihood or its gradient is not finite at the starting point of chain 1; start"
    with pytest.raises(ValueError, match=message):
        pn.sample(overflowing(), pn.PCNL(0.1), chains=3, draws=2, warmup=None, init=start, device=device)


def test_warnings_of_a_run_name_the_line_that_ran_it() -> None:
    few: dict[str, Any] = {"chains": 1, "draws": 200, "warmup": None, "init": "map", "seed": 1}
    with pytest.warns(UserWarning, match="not finite") as alone:
        pn.sample(overflowing(), pn.PCN(1.0), **few)
    with pytest.warns(UserWarning, match="not finite") as together:
        pn.sample_many([overflowing()], pn.PCN(1.0), **few)
    with pytest.warns(UserWarning, match="while sampling") as before:
        pn.sample(overflowing(), pn.PCNL(0.1, adapt="always"), **few)
        pn.sample_many([overflowing()], pn.PCNL(0.1, adapt="always"), **few)
    assert {warning.filename for warning in [*alone, *together, *before]} == {__file__}


def test_what_is_known_in_advance_comes_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning about the settings, and the quality of fit, are not left to the end of a long run."""
    post = small()

    def execute(runs: Any, report: Any) -> None:
        assert "fit_quality" in vars(post.sampled)
        raise RuntimeError("the run has started")

    monkeypatch.setattr(sampling, "execute", execute)
    with (
        pytest.warns(UserWarning, match="while sampling"),
        pytest.raises(RuntimeError, match="the run has started"),
    ):
        pn.sample(post, pn.PCNL(0.1, adapt="always"), warmup=None)


# Interruption and progress

INTERRUPTED = """
    import os, signal, sys, threading, warnings
    import numpy as np
    import patrac_native as pn

    rng = np.random.default_rng(0)
    net = pn.Network([rng.normal(size=(4, 1)), rng.normal(size=(1, 4))], [rng.normal(size=4), rng.normal(size=1)])
    X = rng.normal(size=(20, 1))
    post = pn.Posterior(net, pn.Full(), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
    arguments = dict(kernel=pn.PCNL(0.1), chains=3, seed=5, threads=2, thin=1000, warmup={warmup})
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the shell started the tests without it
    threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
    with warnings.catch_warnings(record=True, action="always") as caught:
        draws = pn.sample(post, draws=1_000_000, **arguments)
    print([str(w.message) for w in caught])
"""


def run_script(text: str, tail: str, **values: str) -> str:
    """Run a script in a process of its own, where a signal does no harm; return what it printed."""
    return output_of(textwrap.dedent(text).format(**values) + textwrap.dedent(tail))


def test_ctrl_c_returns_the_draws_so_far() -> None:
    """The draws are those of a shorter run, every array has their number, and a warning is raised."""
    printed = run_script(
        INTERRUPTED,
        """
        kept = draws.n_draws
        assert 0 < kept < 1_000_000
        assert not draws.settings["completed"] and np.isnan(draws.summary(X).steps_per_second)
        assert draws.theta.shape == (3, kept, post.dim)
        for name in ("log_likelihood", "log_prior", "acceptance_rate", "step_size"):
            assert draws.stats[name].shape == (3, kept), name
        shorter = pn.sample(post, draws=min(kept, 20), **arguments)
        assert np.array_equal(shorter.theta, draws.theta[:, :20])
        assert np.array_equal(draws.stats["log_likelihood"][1], post.log_likelihood(draws.theta[1]))
        assert draws.predict(X).shape == (3, kept, 20, 1)
        """,
        warmup="None",
    )
    assert "interrupted: " in printed and "of 1000000 draws of each chain are returned." in printed


def test_ctrl_c_in_warmup_returns_no_draws_and_says_why_nothing_can_be_predicted() -> None:
    printed = run_script(
        INTERRUPTED,
        """
        assert draws.theta.shape == (3, 0, post.dim)
        for use in (draws.predict, draws.predictive, draws.distribution):
            try:
                use(X)
            except ValueError as error:
                print(error)
        """,
        warmup="2 * 10**9",
    )
    assert "interrupted: 0 of 1000000 draws of each chain are returned (the warm-up was not over)." in printed
    message = "there are no draws: the run was interrupted before the first. Run `sample` again."
    assert printed.count(message) == 3


def several(count: int = 5) -> list[pn.Posterior]:
    """Return posteriors that differ."""
    return [small(seed) for seed in range(count)]


@pytest.mark.parametrize("kernel", [pn.PCNL(0.1), pn.MGrad(persistence=0.9)])
@pytest.mark.parametrize("chains", [1, 2])
def test_posteriors_side_by_side_have_the_draws_of_each_alone(kernel: pn.Kernel, chains: int) -> None:
    options: dict[str, Any] = {"chains": chains, "draws": 20, "thin": 10, "warmup": 400, "progress": False}
    posts = several()
    alone = [pn.sample(post, kernel, seed=7 + index, threads=1, **options) for index, post in enumerate(posts)]
    for threads in (1, 2, 4, 16):
        together = pn.sample_many(posts, kernel, seed=7, threads=threads, **options)
        assert len(together) == 5
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one.theta, other.theta)
            assert one.settings["seed"] == other.settings["seed"]


def test_ctrl_c_ends_posteriors_side_by_side_and_keeps_their_draws(interrupt: Any) -> None:
    reports = interrupt(4)
    with pytest.warns(UserWarning, match="interrupted: ") as raised:
        draws = pn.sample_many(
            several(), pn.PCNL(0.1), draws=1000, thin=100_000, warmup=None, threads=2, seed=1, progress=True
        )
    assert len(draws) == len(raised) == 2  # those that had begun
    assert not any(one.settings["completed"] for one in draws)
    assert all(one.n_draws < 1000 and np.isfinite(one.theta).all() for one in draws)
    # Lines, where there are no bars, count the steps of all; posteriors that have not begun are as long as others.
    assert {total for _, total, _ in reports} == {5 * 1000 * 100_000}


def test_a_signal_ends_posteriors_side_by_side() -> None:
    text = INTERRUPTED.replace("pn.sample(post, draws=1_000_000", "pn.sample_many([post, post, post], draws=1_000_000")
    printed = run_script(text.replace("chains=3", "chains=1"), "print(len(draws), draws[0].n_draws)", warmup="None")
    assert "interrupted: " in printed and "of 1000000 draws of each chain are returned." in printed
    assert printed.splitlines()[-1].startswith("2 ")


class Boom(Exception):
    """The exception of the callback that raises."""


def test_an_exception_of_the_progress_callback_ends_the_run_and_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise Boom("from the callback")

    monkeypatch.setattr(bars._ProgressLines, "_report", broken)
    with pytest.raises(Boom, match="from the callback"):
        pn.sample(small(), pn.PCNL(0.1), chains=2, draws=1, thin=10**9, warmup=None, progress=True)
    with pytest.raises(Boom, match="from the callback"):
        pn.sample_many(several(3), pn.PCNL(0.1), draws=1, thin=10**9, warmup=None, threads=2, progress=True)


@pytest.mark.parametrize("progress", [True, False, None])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_writes_a_bar_or_a_line_with_the_acceptance_rate_to_stderr(
    progress: bool | None, is_terminal: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None means a bar where stderr is a terminal and, where it is none, no line for a run of less than ten seconds."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    pn.sample(small(), pn.PCNL(0.1), chains=2, draws=1, thin=100_000, warmup=None, seed=1, progress=progress)
    out, err = capfd.readouterr()
    shown = is_terminal if progress is None else progress
    assert out == "" and shown == bool(err)
    assert not shown or ("sampling, 2 chains: 100%" in err and "acceptance=" in err and "step" in err)
    assert not shown or is_terminal == ("\r" in err)


def test_lines_of_a_log_are_at_most_one_in_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of reports every 3 seconds by a clock of this test, and of runs of less than ten seconds."""
    now = 0.0
    monkeypatch.setattr(bars.time, "monotonic", lambda: now)
    for asked, seconds, count in ((False, 60, 5), (True, 60, 5), (False, 63, 6), (False, 9, 0), (True, 9, 1)):
        now = 0.0
        lines = bars._ProgressLines(4_000, "2 chains", ends_with_line=asked)
        for step in range(1, seconds // 3 + 1):
            now = 3.0 * step
            lines._report(step * 10_000 * 3 // seconds, 10_000, 0.5)
        lines.close()
        said = capsys.readouterr().err.splitlines()
        assert len(said) == count
        assert not said or said[-1].startswith(f"sampling, 2 chains: 100% of 10000 steps after {seconds} s, ")


def test_the_speed_of_a_resumed_run_is_that_of_its_own_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(bars.time, "monotonic", lambda: now)
    lines = bars._ProgressLines(4_000, "2 chains", before=9_000, ends_with_line=True)
    now = 5.0
    lines._report(9_500, 10_000, 0.5)
    lines.close()
    assert "95% of 10000 steps after 5 s, 100 steps/s" in capsys.readouterr().err


def test_more_posteriors_than_bars_share_one_that_counts_all(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    run: dict[str, Any] = {"draws": 2, "thin": 20_000, "warmup": None, "seed": 1, "progress": True}
    for threads in (1, 2):
        pn.sample_many(several(9), pn.PCNL(0.1), threads=threads, **run)
        err = capfd.readouterr().err
        assert "sampling, 9 x 1 chain: 100%" in err and "360k/360k" in err and "posterior" not in err


def test_the_bar_says_when_the_warmup_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2 chains with 3,000 steps of warm-up and 2,000 of sampling, and one whose warm-up was shorter than planned."""
    said: list[tuple[str, int]] = []

    class Bar:
        total, n = 0, 0

        def set_description(self, text: str, refresh: bool) -> None:
            said.append((text, self.total))

        def set_postfix(self, **_: object) -> None: ...

        def update(self, steps: int) -> None:
            self.n += steps

    monkeypatch.setattr(bars, "progress_bar", lambda **_: Bar())
    bar = bars._ProgressBar(10_000, 4_000, "2 chains")
    for done, total in ((5_990, 10_000), (6_000, 10_000), (1_000, 5_000), (5_000, 5_000)):
        bar._report(done, total, 0.5)
    assert said == [("warm-up, 2 chains", 10_000), ("sampling, 2 chains", 10_000)] + 2 * [("sampling, 2 chains", 5_000)]
    assert bar._bar.n == 5_000


# The keywords of a run


def test_sample_and_sample_many_take_the_settings_of_a_run() -> None:
    """`help` shows the one list of keywords; beside the subject only the kernel may be given by position."""
    for function, subject, own in ((pn.sample, "post", OneRunSettings), (pn.sample_many, "posts", RunSettings)):
        of_settings = dict(inspect.signature(own).parameters)
        first, *rest = inspect.signature(function).parameters.values()
        assert first.name == subject and [one.name for one in rest] == list(of_settings)
        assert [one.name for one in rest if one.kind is not one.KEYWORD_ONLY] == ["kernel"]
        differing = {one.name: one.default for one in rest if one.default != of_settings[one.name].default}
        assert differing == ({} if subject == "post" else {"chains": 1})


def test_the_annotations_of_sample_are_those_of_its_signature() -> None:
    for function, result in ((pn.sample, pn.Draws | TargetDraws), (pn.sample_many, list[pn.Draws])):
        hints = typing.get_type_hints(function)
        assert list(hints) == [*inspect.signature(function).parameters, "return"]
        assert hints["return"] == inspect.signature(function).return_annotation == result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"sample\(\) missing a required argument: 'post'"),
        ({"post": None, "steps": 3}, r"sample\(\) got an unexpected keyword argument 'steps'"),
    ],
)
def test_wrong_keywords_name_the_function(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        pn.sample(**arguments)
