"""Warm-up: the adaptation rule replayed window by window, phases, the paper's schedule and the default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from warnings import catch_warnings

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
from patrac_native.sampling.warmup import Phase

WINDOW = 200
# Steps without the accept test that bring a chain into the posterior (docs/method.md, section 7).
TRANSIENT = Phase(10_000, accept_all=True, first_look=8, energy_error=0.1, persistence=0.98, travel=1.0)


def posterior(variance: float = 0.1) -> pn.Posterior:
    net, X, y = problems.regression(problems.rng_of("warm-up"), (1, 4, 1), 20)
    return pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian(variance), X, y, dtype="float64")


def adapted(step_size: float, rate: float, band: tuple[float, float], most: float) -> float:
    """Return the step size that the rule of docs/method.md, section 7, gives."""
    if rate <= band[0]:
        return step_size / 2
    if rate >= band[1]:
        return min(4 * step_size / 3, most)
    return step_size


def replay(
    first: float, rates: npt.NDArray[np.float64], band: tuple[float, float], most: float
) -> npt.NDArray[np.float64]:
    """Return the step sizes after each window."""
    sizes = []
    for rate in rates:
        first = adapted(first, float(rate), band, most)
        sizes.append(first)
    return np.array(sizes)


def run(post: pn.Posterior, kernel: Any, phases: list[Phase], first: float | None = None, **arguments: Any) -> pn.Draws:
    settings: dict[str, Any] = {"chains": 2, "draws": 3, "seed": 11} | arguments
    return pn.sample(post, kernel, warmup=pn.Warmup(tuple(phases), step_size=first), **settings)


@pytest.mark.parametrize(
    ("kernel", "first", "band", "most"),
    [(pn.PCNL(), 1e-3, (0.5, 0.7), 2.0), (pn.PCN(), 0.01, (0.2, 0.4), 1.0), (pn.PCNL(), 2.0, (0.85, 0.95), 2.0)],
)
def test_step_size_follows_the_rule_window_by_window(
    kernel: Any, first: float, band: tuple[float, float], most: float
) -> None:
    """With phases of one window each, the recorded step sizes show every adaptation."""
    draws = run(posterior(), kernel, [Phase(WINDOW, band)] * 40, first)
    rates, sizes = draws.stats["warmup_acceptance_rate"], draws.stats["warmup_step_size"]
    assert rates.shape == sizes.shape == (2, 40)
    # Whole numbers of 200.
    np.testing.assert_allclose(rates * WINDOW, np.round(rates * WINDOW), rtol=4 * 2.3e-16)
    for chain in range(2):
        # Divisions by 2 and by 3 round at most once each: the replay does the same operations.
        np.testing.assert_allclose(sizes[chain], replay(first, rates[chain], band, most), rtol=80 * 2.3e-16)
    # The test is meaningful only if the step size was halved, increased and kept.
    ratios = sizes[:, 1:] / sizes[:, :-1]
    for ratio in (0.5, 1.0, 4 / 3):
        assert np.isclose(ratios, ratio, rtol=1e-12).any()


def test_one_long_phase_looks_every_200_steps() -> None:
    post, band = posterior(), (0.5, 0.7)
    windows = run(post, pn.PCNL(), [Phase(WINDOW, band)] * 15, 1e-3)
    whole = run(post, pn.PCNL(), [Phase(15 * WINDOW, band)], 1e-3)
    np.testing.assert_array_equal(whole.theta, windows.theta)
    np.testing.assert_array_equal(whole.stats["warmup_step_size"][:, -1], windows.stats["warmup_step_size"][:, -1])
    np.testing.assert_allclose(
        whole.stats["warmup_acceptance_rate"][:, 0],
        windows.stats["warmup_acceptance_rate"].mean(axis=1),
        rtol=20 * 2.3e-16,
    )


def test_a_window_does_not_reach_over_the_end_of_a_phase() -> None:
    """Two phases of 300 steps adapt to steps 1-200 and 301-500, and ignore the other steps."""
    post, band = posterior(), (0.5, 0.7)
    long = run(post, pn.PCNL(), [Phase(300, band)] * 2, 1e-3)
    cut = run(
        post,
        pn.PCNL(),
        [Phase(200, band), Phase(100), Phase(200, band), Phase(100)],
        1e-3,
    )
    np.testing.assert_array_equal(long.theta, cut.theta)
    np.testing.assert_array_equal(long.stats["warmup_step_size"], cut.stats["warmup_step_size"][:, 1::2])
    assert (cut.stats["warmup_step_size"][:, 2] != cut.stats["warmup_step_size"][:, 1]).any()


@pytest.mark.parametrize("phase", [Phase(199, (0.5, 0.7)), Phase(1000)], ids=["shorter than a window", "no band"])
def test_a_phase_that_does_not_adapt_leaves_the_step_size_alone(phase: Phase) -> None:
    draws = run(posterior(), pn.PCNL(), [phase], 1e-3)
    assert (draws.stats["warmup_step_size"] == 1e-3).all()
    assert (draws.stats["warmup_acceptance_rate"] > 0.9).all()  # so a whole window with the band would have moved it


def test_a_phase_of_no_steps_is_passed_over() -> None:
    post = posterior()
    with_empty = run(post, pn.PCNL(), [Phase(0), Phase(400, (0.5, 0.7)), Phase(0)], 1e-3)
    without = run(post, pn.PCNL(), [Phase(400, (0.5, 0.7))], 1e-3)
    np.testing.assert_array_equal(with_empty.theta, without.theta)
    assert np.isnan(with_empty.stats["warmup_step_size"][:, [0, 2]]).all()
    np.testing.assert_array_equal(with_empty.stats["warmup_step_size"][:, 1:2], without.stats["warmup_step_size"])


@pytest.mark.parametrize(("kernel", "most"), [(pn.PCNL(), 2.0), (pn.PCN(), 1.0)])
def test_step_size_is_capped(kernel: Any, most: float) -> None:
    """A likelihood as flat as this accepts everything, so the step size grows to its cap and stays."""
    draws = run(posterior(variance=1e8), kernel, [Phase(10 * WINDOW, (0.2, 0.9))], most / 3)
    assert (draws.stats["warmup_acceptance_rate"] == 1).all()
    assert (draws.stats["warmup_step_size"] == most).all()
    assert (draws.stats["step_size"] == most).all()


def test_accept_all_takes_every_finite_proposal_and_keeps_the_step_size() -> None:
    post = posterior(variance=1.0)
    drifting = run(post, pn.PCNL(), [Phase(1000, accept_all=True)], 0.05)
    judged = run(post, pn.PCNL(), [Phase(1000)], 0.05)
    assert (drifting.stats["nonfinite"] == 0).all()
    assert (drifting.stats["warmup_acceptance_rate"] == 1).all()
    assert (drifting.stats["warmup_step_size"] == 0.05).all()
    assert (judged.stats["warmup_acceptance_rate"] < 1).all()


def test_paper_warmup_is_appendix_b() -> None:
    schedule = pn.paper_warmup()
    assert schedule.phases == (
        Phase(50_000, (0.85, 0.95)),
        Phase(100_000, accept_all=True),
        Phase(500_000, (0.4, 0.9)),
    )
    assert schedule.step_size == 1e-4
    assert schedule.steps == 650_000


def test_paper_warmup_runs_and_is_for_pcnl_alone() -> None:
    short = pn.paper_warmup().scaled(0.004)
    assert [phase.steps for phase in short.phases] == [200, 400, 2000]
    draws = pn.sample(posterior(), warmup=short, chains=1, draws=5, seed=1)
    assert draws.stats["warmup_acceptance_rate"][0, 1] == 1
    assert draws.stats["warmup_step_size"][0, 0] == draws.stats["warmup_step_size"][0, 1]
    with pytest.raises(ValueError, match=r"warmup is a schedule for pcnl only; got the kernel PCN\("):
        pn.sample(posterior(), pn.PCN(), warmup=pn.paper_warmup())
    # The draws above were asked for with kernel="auto": a schedule for one kernel chooses it.
    assert draws.settings["kernel"]["name"] == "pcnl"


def test_warmup_of_a_given_length_adapts_for_three_quarters_and_then_stands_still() -> None:
    for kernel in (pn.PCNL(), pn.PCN(), pn.MGrad()):
        phases = (Phase(15_000, target=kernel.accept_target, average=True), Phase(5_000))
        assert pn.Warmup.default(kernel, 20_000).phases == phases
    assert pn.Warmup.default(pn.PCNL(0.1), 300).phases == (Phase(300),)
    draws = pn.sample(posterior(), chains=2, draws=4, warmup=2000, seed=1)
    assert draws.settings["warmup"]["phases"][0]["steps"] == 1500
    sizes = draws.stats["warmup_step_size"]
    assert (sizes[:, 1] == sizes[:, 0]).all()
    assert (draws.stats["step_size"] == sizes[:, 1:]).all()


@pytest.mark.slow
def test_the_adaptive_phase_of_deep_narrow_networks_is_shorter() -> None:
    """At most 16,000 steps where a deep narrow network has the metric of the curvature, else 64,000."""
    rng = problems.rng_of("warm-up of deep networks")

    def longest(hidden: int, width: int = 4, kernel: Any = "auto", device: str = "cpu") -> int:
        net, X, y = problems.regression(rng, (2, *[width] * hidden, 1), 20)
        post = pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian(100.0), X, y)
        draws = pn.sample(post, kernel, chains=1, draws=1, seed=1, device=device)
        steps = draws.settings["warmup"]["phases"][0]["steps"]
        assert isinstance(steps, int)
        return steps

    curvature = pn.MGrad(metric="curvature")
    assert longest(3) == longest(4, 32) == longest(3, kernel=curvature) == 16_000
    assert longest(2) == longest(3, 33) == longest(3, kernel=pn.PCNL()) == longest(2, kernel=curvature) == 64_000
    assert longest(3, device="emulated:2") == 64_000
    kernel = pn.MGrad()
    assert pn.Warmup.default(kernel, at_most=3_500).phases[0].steps == 3_000
    assert pn.Warmup.default(kernel, 2_000, at_most=3_500) == pn.Warmup.default(kernel, 2_000)
    assert pn.Warmup.default(kernel, at_most=1_499) == pn.Warmup.default(kernel, 1_499)
    with pytest.raises(ValueError, match="at_most must be at least 1; got 0"):
        pn.Warmup.default(kernel, at_most=0)


def test_transient_warmup_has_most_steps_without_the_accept_test() -> None:
    for kernel in (pn.PCNL(), pn.MGrad(persistence=0.9)):
        schedule = pn.Warmup.transient(kernel, 1_000)
        first, free, again, settle = schedule.phases
        assert [phase.steps for phase in schedule.phases] == [50, 650, 225, 75] and schedule.steps == 1_000
        assert first.target == again.target == kernel.accept_target and again.average
        assert free.accept_all and free.energy_error == 0.1 and settle == Phase(75)
        draws = pn.sample(posterior(), kernel, chains=2, draws=4, warmup=schedule, seed=1)
        rates = draws.stats["warmup_acceptance_rate"]
        # Moves that are the beginning of an overflow keep the accept test.
        assert (rates[:, 1] > 0.99).all() and (rates[:, 2] < 0.99).all()
    assert pn.Warmup.transient(pn.MGrad(), 1).steps == 1
    for kernel in (pn.PCN(), pn.EllipticalSlice(), pn.Exact(), pn.MGrad(0.1)):
        with pytest.raises(ValueError, match=r"kernel must be MGrad\(\) or PCNL\(\), whose step size"):
            pn.Warmup.transient(kernel, 1_000)
    with pytest.raises(ValueError, match="steps must be at least 1; got 0"):
        pn.Warmup.transient(pn.MGrad(), 0)


def stiff() -> pn.Posterior:
    """A posterior far narrower than its prior: 1-20-1 with 200 rows and noise of 1e-3."""
    rng = np.random.default_rng(7)
    net = problems.random_network(problems.rng_of("transient"), (1, 20, 1))
    X = rng.normal(size=(200, 1))
    y = net.predict(X)[:, 0] + np.sqrt(1e-3) * rng.normal(size=200)
    return pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Gaussian(1e-3), X, y, dtype="float64")


@pytest.mark.parametrize("kernel", [pn.PCNL(), pn.MGrad(), pn.MGrad(persistence=0.9), pn.MGrad(collapse=True)], ids=str)
def test_transient_shrinks_a_step_that_is_too_large_and_ends_in_the_posterior(kernel: pn.Kernel) -> None:
    """From a step size a thousand times too large the phase finds the one that it finds from below.

    The step size wanders by the gain times the deviation of a mean over 10 steps, 0.15 for one in (0, 1) that is
    correlated: some 0.2 of its logarithm here, of two chains each; log 2 is more than 3 of these.
    """
    post, transient = stiff(), Phase(3_000, accept_all=True, energy_error=0.3)
    rest = Phase(3_000, target=kernel.accept_target, average=True)
    settings: dict[str, Any] = {"init": "map", "draws": 500, "thin": 10}
    small = run(post, kernel, [Phase(1_000, target=kernel.accept_target), transient, rest], **settings)
    first = 1e3 * float(small.stats["warmup_step_size"][:, 1].max())
    large = run(post, kernel, [transient, rest], min(first, kernel.step_size_max), **settings)
    found, reached = large.stats["warmup_step_size"][:, 0], small.stats["warmup_step_size"][:, 1]
    assert (found < 0.02 * first).all()
    assert abs(np.log(found).mean() - np.log(reached).mean()) < np.log(2)
    # An adapted step is smaller: the phase made steps that the accept test would not have let it make.
    assert (found > large.stats["warmup_step_size"][:, 1]).all()
    # Both are in the posterior afterwards: l of K coordinates has a standard deviation of about sqrt(K/2) there.
    means = [draws.stats["log_likelihood"].mean() for draws in (small, large)]
    assert abs(means[0] - means[1]) < np.sqrt(post.dim / 2)


def test_transient_grows_no_further_than_sixteenfold() -> None:
    """A likelihood as flat as this has no error, so the step size grows to the cap of the phase and stays."""
    phases = [Phase(500, accept_all=True, energy_error=0.1), Phase(500, target=0.6)]
    draws = run(posterior(variance=1e8), pn.PCNL(), phases, 1e-3)
    np.testing.assert_allclose(draws.stats["warmup_step_size"][:, 0], 16e-3, rtol=1e-12)
    assert (draws.stats["warmup_step_size"][:, 1] > 16e-3).all()  # which is that of the phase alone


def test_transient_is_left_where_adapted_steps_lead_as_far() -> None:
    """Of travel 1 and steps of 2e-3 a chain makes half a thousand. At 5e-4 it needs the phase: its step size is at
    most 8e-3, so more than 125 steps, and it is there after 60, so at most 185: the look after 256."""
    post = posterior(variance=1e8)
    for first, steps in ((2e-3, 8), (5e-4, 256)):
        draws = run(post, pn.PCNL(), [replace(TRANSIENT, steps=1000)], first)
        assert draws.settings["warmup_steps"] == steps


def test_transient_ends_once_all_chains_have_travelled() -> None:
    """At a step size that stays, travel says at which look: those are after 16, 32 and 64 steps."""
    post = posterior(variance=1e8)
    for travel, steps in ((0.15, 16), (0.17, 32), (0.33, 64), (0.65, 100)):
        phase = Phase(100, accept_all=True, travel=travel, first_look=16)
        draws = run(post, pn.PCNL(), [phase], 0.01)
        assert draws.settings["warmup_steps"] == steps
        assert draws.settings["warmup_stable"] is None
        # The mean prior variance is the unit of mGrad.
        size = 0.01 * float(post.prior_variance.mean())
        assert run(post, pn.MGrad(), [phase], size).settings["warmup_steps"] == steps
        # A next phase of fixed length takes what is left.
        assert run(post, pn.PCNL(), [phase, Phase(7)], 0.01).settings["warmup_steps"] == 107


def test_a_transient_depends_on_the_seed_and_not_on_threads() -> None:
    post, target = stiff(), pn.MGrad(persistence=0.9).accept_target
    phases = [Phase(100, target=target), replace(TRANSIENT, steps=500), Phase(500, target=target)]
    one, two, other = (
        run(post, pn.MGrad(persistence=0.9), phases, chains=3, seed=seed, threads=threads)
        for seed, threads in ((1, 1), (1, 3), (2, 1))
    )
    np.testing.assert_array_equal(one.theta, two.theta)
    np.testing.assert_array_equal(one.stats["warmup_step_size"], two.stats["warmup_step_size"])
    assert (one.theta != other.theta).any()


def split_rhat(log_likelihood: npt.NDArray[np.float64]) -> float:
    """Return R-hat of the halves of each chain (chains, steps)."""
    halves = np.concatenate(np.split(log_likelihood, 2, axis=1))
    n, within = halves.shape[1], halves.var(axis=1, ddof=1).mean()
    return float(np.sqrt((n - 1) / n + halves.mean(axis=1).var(ddof=1) / within))


def test_a_phase_ends_at_the_first_look_at_which_r_hat_of_its_second_half_is_small() -> None:
    """With a step size that stays, the chains of the warm-up are those of a run without it, step by step."""
    post, ends = posterior(variance=1.0), set()
    for seed in range(6):
        settings: dict[str, Any] = {"chains": 3, "seed": seed}
        steps = pn.sample(post, pn.PCNL(0.1), draws=1024, warmup=None, **settings).stats["log_likelihood"]
        found = pn.sample(
            post, pn.PCNL(0.1), draws=3, warmup=pn.Warmup((Phase(1024, first_look=32),)), **settings
        ).settings["warmup_steps"]
        rhats = {look: split_rhat(steps[:, look // 2 : look]) for look in (32, 64, 128, 256, 512)}
        assert min(abs(one - 1.1) for one in rhats.values()) > 1e-6  # no rounding decides
        assert found == next((look for look, rhat in rhats.items() if rhat <= 1.1), 1024)
        ends.add(found)
    assert len(ends) >= 3


def nested_rules(values: npt.NDArray[np.float64], superchains: int) -> tuple[bool, bool, float]:
    """Return whether values (chains, 2) of two times keep the bounds of nested R-hat and of the drift.

    The third number is how near a bound is.
    """
    groups = np.stack(np.split(values, superchains))  # (superchain, chain, time)
    of_each, within = groups.shape[1], groups.var(axis=1, ddof=1).mean()
    excess = groups.mean(axis=1).var(ddof=1) / within - 1 / of_each
    bound = min(0.02, 2 * np.sqrt(2 / (superchains - 1)) / of_each)
    drift = abs(np.diff(values.mean(axis=0))[0]) / np.sqrt(2 * within / len(values))
    return bool(excess <= bound), bool(drift <= 2), float(min(abs(excess - bound) * of_each, abs(drift - 2)))


# The bound of nested R-hat is 0.02, and twice its standard deviation; far from the posterior all chains drift alike.
@pytest.mark.parametrize(("chains", "far"), [(24, False), (384, False), (96, True)])
def test_superchains_end_a_phase_once_one_value_of_each_chain_agrees(chains: int, far: bool) -> None:
    """Batches of one step: what is compared is the log-likelihood at the look, and at half of its steps."""
    post, ends, superchains, drifted = posterior(variance=1.0), set(), 3, False
    kernel = pn.PCNL(0.003 if far else 0.1)
    warmup = pn.Warmup((Phase(512, first_look=8, superchains=superchains),))
    looks = (8, 16, 32, 64, 128, 256)
    for seed in range(6):
        start = pn.sample(post, pn.PCNL(1e-12), draws=1, warmup=None, chains=superchains, seed=seed).theta[:, 0]
        start[0] = post.theta_map
        if far:
            start = 2 * start[0] + 1e-3 * np.arange(superchains)[:, None]
        settings: dict[str, Any] = {"chains": chains, "seed": seed}
        settings |= {"init": np.repeat(start, chains // superchains, axis=0)}
        with catch_warnings(action="ignore"):
            found = pn.sample(post, kernel, draws=3, warmup=warmup, **settings)
        steps = pn.sample(post, kernel, draws=512, warmup=None, **settings).stats["log_likelihood"]
        kept = {look: nested_rules(steps[:, [look // 2 - 1, look - 1]], superchains) for look in looks}
        assert min(near for _, _, near in kept.values()) > 1e-6  # no rounding decides
        end = next((look for look in looks if all(kept[look][:2])), 512)
        assert found.settings["warmup_steps"] == end
        assert found.settings["starts"] == np.repeat(range(superchains), chains // superchains).tolist()
        drifted |= any(kept[look][0] and not kept[look][1] for look in looks if look < end)
        ends.add(end)
    assert drifted if far else len(ends) >= 2


def test_superchains_start_at_points_like_those_of_single_chains() -> None:
    """`init="auto"` gives the starting points of as many chains to the superchains, the first the trained values."""
    post, settings = posterior(), {"draws": 1, "seed": 4}
    single = pn.sample(post, pn.PCNL(1e-12), warmup=None, chains=4, **settings).theta[:, 0]
    warmup = pn.Warmup((Phase(8, first_look=8, superchains=4),))
    with catch_warnings(action="ignore"):
        shared = pn.sample(post, pn.PCNL(1e-12), warmup=warmup, chains=12, **settings).theta[:, 0]
    np.testing.assert_allclose(shared, np.repeat(single, 3, axis=0), atol=1e-4)


def test_superchains_that_agree_go_on_with_one_step_size() -> None:
    """The geometric mean of what each chain ends with where they do not agree: those keep their own."""
    post, start = (
        posterior(variance=1.0),
        np.repeat(posterior().theta_map[None] + np.arange(4)[:, None] / 10, 8, axis=0),
    )
    settings: dict[str, Any] = {"chains": 32, "draws": 1, "seed": 3, "init": start}
    phase = Phase(8192, target=0.6, average=True, first_look=64, superchains=4)
    agreed = pn.sample(post, pn.PCNL(), warmup=pn.Warmup((phase,)), **settings)
    assert agreed.settings["warmup_stable"]
    (size,) = np.unique(agreed.stats["step_size"])
    # The same chains, compared with themselves alone at the same step, at which one of 32 disagrees.
    alone = replace(phase, steps=agreed.settings["warmup_steps"], superchains=None)
    with pytest.warns(UserWarning, match="the warm-up ended after"):
        own = pn.sample(post, pn.PCNL(), warmup=pn.Warmup((alone,)), **settings)
    assert own.settings["warmup_steps"] == agreed.settings["warmup_steps"]
    assert len(np.unique(own.stats["step_size"])) == 32
    np.testing.assert_allclose(size, np.exp(np.log(own.stats["step_size"]).mean()), rtol=1e-12)


def test_superchains_need_starting_points_of_their_own() -> None:
    """From others, chains that have not moved would agree."""
    post, warmup = posterior(), pn.Warmup.many_chains(pn.PCNL(), 4)
    start = np.repeat(post.theta_map[None] + np.arange(4)[:, None] / 10, 2, axis=0)
    assert pn.sample(post, pn.PCNL(), chains=8, draws=1, warmup=warmup, init=start, seed=0).n_chains == 8
    for init in ("map", start + np.arange(8)[:, None] / 100, np.repeat(start[::2][[0, 1, 2, 0]], 2, axis=0)):
        with pytest.raises(
            ValueError, match=r"init must give each of the 4 superchains .*np.repeat\(points, 2, axis=0\)"
        ):
            pn.sample(post, pn.PCNL(), chains=8, draws=1, warmup=warmup, init=init, seed=0)


def test_many_chains_in_two_modes_do_not_agree() -> None:
    """Superchains that start in modes of different height, between which no chain moves."""

    def two_modes(theta: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        away = theta[0] - np.sign(theta[0]) * 20
        return -50 * away**2 + 5 * np.sign(theta[0]), np.array([-100 * away])

    target = pn.Target(two_modes, np.array([400.0]))
    start = np.repeat([[20.0], [-20.0], [20.1], [-20.1]], 4, axis=0)
    warmup = pn.Warmup.many_chains(pn.PCNL(), 4, at_most=800)
    with pytest.warns(UserWarning, match="the warm-up ended after 800 steps"):
        draws = pn.sample(target, pn.PCNL(), chains=16, draws=1, warmup=warmup, init=start, seed=0)
    assert draws.settings["warmup_stable"] is False


@pytest.mark.slow
def test_short_runs_of_many_chains_are_draws_of_the_posterior() -> None:
    """One draw of each of 4,096 chains against the exact posterior, which is normal.

    The comparison of superchains lets a few errors of that many draws pass, 1/64 each: six here. Differences after a
    warm-up of a tenth of the steps are at least twice as large.
    """
    net, X, y = problems.regression(problems.rng_of("many chains"), (2, 6, 6, 1), 40)
    post = pn.Posterior(net, pn.Out(6), problems.PRIOR, pn.Gaussian(0.3), X, y, dtype="float64")
    exact = pn.sample(post, pn.Exact(), chains=1, draws=100_000, seed=1).theta[0]
    for kernel in (pn.PCNL(), pn.MGrad(persistence=0.9)):
        warmup = pn.Warmup.many_chains(kernel, 32)
        draws = pn.sample(post, kernel, chains=4096, draws=1, warmup=warmup, seed=2)
        assert draws.settings["warmup_stable"]
        assert largest_difference(draws.theta[:, 0], exact) < 0.1
        early = pn.Warmup((replace(warmup.phases[0], steps=draws.settings["warmup_steps"] // 10, first_look=8),))
        with catch_warnings(action="ignore"):
            short = pn.sample(post, kernel, chains=4096, draws=1, warmup=early, seed=2)
        assert largest_difference(short.theta[:, 0], exact) > 0.2


def largest_difference(draws: npt.NDArray[np.float64], exact: npt.NDArray[np.float64]) -> float:
    """Return the largest difference of means and of variances (draw, K), in standard deviations of one draw."""
    mean = exact.mean(axis=0)
    ours, theirs = (np.concatenate([one - mean, (one - mean) ** 2], axis=1) for one in (draws, exact))
    return float((np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)).max())


def test_persistence_of_a_phase_is_that_of_the_phase_alone() -> None:
    """The first steps differ from those of the kernel's own; without persistence nothing does."""
    post, changed = posterior(), Phase(50, accept_all=True, persistence=0.98)
    plain, same = replace(changed, persistence=None), replace(changed, persistence=0.9)
    for kernel, differs in ((pn.MGrad(persistence=0.9), True), (pn.MGrad(), False)):
        own = run(post, kernel, [plain], 0.01).theta
        assert (run(post, kernel, [changed], 0.01).theta != own).any() == differs
        np.testing.assert_array_equal(run(post, kernel, [same], 0.01).theta, own)


@pytest.mark.parametrize("kernel", [pn.PCN(), pn.PCNL(), pn.MGrad(), pn.MGrad(collapse=True)], ids=str)
@pytest.mark.parametrize("start", [1e-6, 1.0])
def test_warmup_reaches_its_target_from_far_below_and_above(kernel: pn.Kernel, start: float) -> None:
    """Steps run as sampled after the warm-up accept as often as was aimed at.

    The rate over 5,000 steps has a standard error of some sqrt(0.25 tau / 5000), 0.03 at tau = 20 (tau: autocorrelation
    time of the rejections), and the step size that was found one as large: 4 of both.
    """
    schedule = replace(pn.Warmup.default(kernel, 20_000), step_size=start)
    draws = pn.sample(posterior(), kernel, chains=2, draws=2, warmup=schedule, seed=1)
    settled = draws.stats["warmup_acceptance_rate"][:, -1]
    assert (np.abs(settled - kernel.accept_target) < 4 * 0.03 * np.sqrt(2)).all()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Phase(-1), ValueError, "steps of Phase must be at least 0; got -1"),
        (lambda: Phase(1.5), TypeError, r"steps of Phase must be an integer; got 1\.5"),
        (
            lambda: Phase(5, (0.9, 0.4)),
            ValueError,
            r"accept of Phase must be \(low, high\).*got \(0\.9, 0\.4\)",
        ),
        (
            lambda: Phase(5, (0.4, 0.9), accept_all=True),
            ValueError,
            "accept of Phase must be None when accept_all",
        ),
        (lambda: Phase(5, energy_error=0.1), ValueError, "energy_error of Phase needs accept_all=True"),
        (
            lambda: Phase(5, accept_all=True, energy_error=0.0),
            ValueError,
            r"energy_error of Phase must be positive and finite; got 0\.0",
        ),
        (
            lambda: Phase(5, persistence=1.0),
            ValueError,
            r"persistence of Phase must be in \(0, 1\); got 1\.0",
        ),
        (lambda: Phase(5, travel=1.0), ValueError, "travel of Phase needs first_look"),
        (
            lambda: Phase(5, travel=-1.0, first_look=8),
            ValueError,
            "travel of Phase must be positive and finite",
        ),
        (lambda: Phase(5, superchains=4), ValueError, "superchains of Phase needs first_look"),
        (lambda: Phase(5, superchains=1, first_look=8), ValueError, "superchains of Phase must be at least 2; got 1"),
        (
            lambda: Phase(5, superchains=4, travel=1.0, first_look=8),
            ValueError,
            "superchains of Phase must be None when travel is given",
        ),
        (
            lambda: pn.Warmup((Phase(8, superchains=4, first_look=8), Phase(8, superchains=5, first_look=8))),
            ValueError,
            r"phases of Warmup must have one number of superchains; got \[4, 5\]",
        ),
        (lambda: pn.Warmup.many_chains("pcnl"), TypeError, "kernel must be a kernel such as"),
        (lambda: pn.Warmup.many_chains(pn.Exact()), ValueError, "kernel must be one of a Markov chain"),
        (lambda: pn.Warmup.many_chains(pn.PCNL(), at_most=399), ValueError, "at_most must be at least 400; got 399"),
        (
            lambda: run(posterior(), pn.PCNL(), pn.Warmup.many_chains(pn.PCNL()).phases, chains=24),
            ValueError,
            "chains must be a multiple of the 16 superchains of the warm-up, at least twice as many; got 24",
        ),
        (
            lambda: run(posterior(), pn.PCNL(), pn.Warmup.many_chains(pn.PCNL()).phases, chains=16),
            ValueError,
            "chains must be a multiple of the 16 superchains of the warm-up, at least twice as many; got 16",
        ),
        (lambda: pn.Warmup((200,)), TypeError, "phases of Warmup must hold Phase objects; got int"),
        (
            lambda: pn.Warmup((), step_size=0.0),
            ValueError,
            r"step_size of Warmup must be positive and finite; got 0\.0",
        ),
        (lambda: pn.Warmup.default(pn.PCNL(), 0), ValueError, "steps must be at least 1; got 0"),
        (lambda: pn.paper_warmup().scaled(0), ValueError, "factor must be positive and finite; got 0"),
    ],
)
def test_bad_schedules_are_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(("kernel", "first"), [(pn.PCNL(), 2.5), (pn.PCN(), 1.5)])
def test_a_schedules_step_size_must_suit_the_kernel(kernel: Any, first: float) -> None:
    """delta outside (0, 2] and beta outside (0, 1] are refused wherever they come from."""
    with pytest.raises(ValueError, match=rf"step_size of .*must be in \(0, {kernel.step_size_max:g}\].*got {first}"):
        run(posterior(), kernel, [Phase(200)], first)


def test_a_kernels_own_step_size_goes_before_the_schedules() -> None:
    draws = run(posterior(), pn.PCNL(0.3), [Phase(200)], 0.01)
    assert (draws.stats["step_size"] == 0.3).all()


def test_an_averaging_phase_ends_with_the_geometric_mean_of_its_second_half() -> None:
    """The same seed gives the same steps until the phase ends, so windows of a plain run say what was averaged."""
    band, windows = (0.5, 0.7), 30
    ends = [
        run(posterior(), pn.PCNL(), [Phase(200, band)] * count).stats["warmup_step_size"][:, -1]
        for count in range(windows // 2 + 1, windows + 1)
    ]
    averaged = run(posterior(), pn.PCNL(), [Phase(200 * windows, band, average=True)]).stats["warmup_step_size"]
    assert not np.isclose(ends[0], ends[-1]).all(), "the step size must have moved"
    np.testing.assert_allclose(averaged[:, 0], np.exp(np.mean(np.log(ends), axis=0)), rtol=1e-12)


def test_a_warmup_too_short_to_adapt_is_warned_of() -> None:
    for schedule in (pn.Warmup((Phase(199, (0.4, 0.9)),)), 9):
        with pytest.warns(
            UserWarning, match=r"no phase of the warm-up adapts for 200 steps \(10 with a target\) or more"
        ):
            pn.sample(posterior(), warmup=schedule, chains=1, draws=1, seed=1)
