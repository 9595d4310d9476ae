"""The verdict: good runs, runs with a known problem, every check at its threshold, and the comparison of fits."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
import problems
from patrac_native.posterior.sampled_density import FitQuality
from patrac_native.verdict.evidence import Evidence, StepRecord, longest_run
from patrac_native.verdict.rerun_error import RerunError
from patrac_native.verdict.verdict import Finding, Verdict, judge

GRID = np.linspace(-3, 3, 7)[:, None]
SLOPES = np.array([[1.0], [0.9], [1.2], [0.7], [1.1], [0.8]])
OFFSETS = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
PRIOR = pn.TraceClassPrior(1.5, 1.0, 0.5)


def sine() -> tuple[Any, Any]:
    """Return 40 rows of 3 sin(x) with noise of variance 1."""
    rng = problems.rng_of("verdict, sine")
    X = rng.uniform(-3, 3, (40, 1))
    return X, 3 * np.sin(X[:, 0]) + rng.normal(size=40)


def network(factor: float = 1.0) -> pn.Network:
    """Return a network of six hidden nodes, with output weights from ridge regression times `factor`."""
    X, y = sine()
    features = np.column_stack([np.tanh(X @ SLOPES.T + OFFSETS), np.ones(len(X))])
    output = factor * np.linalg.solve(features.T @ features + 0.5 * np.eye(7), features.T @ y)
    return pn.Network([SLOPES, output[None, :6]], [OFFSETS, output[6:]])


def posterior(architecture: pn.Architecture, net: pn.Network | None = None) -> pn.Posterior:
    return pn.Posterior(network() if net is None else net, architecture, PRIOR, pn.Gaussian(1.0), *sine())


def run(post: pn.Posterior, kernel: pn.Kernel | None = None, **arguments: Any) -> Verdict:
    """Return the verdict on four chains of 100,000 steps, with 500 draws each."""
    settings: dict[str, Any] = {"chains": 4, "draws": 500, "thin": 200, "warmup": 4000, "seed": 1, "threads": 1}
    draws = pn.sample(post, kernel or pn.PCNL(), **(settings | arguments))
    return draws.summary(GRID).verdict()


def the(verdict: Verdict, words: str) -> Finding:
    """Return the only finding whose fact contains these words."""
    (found,) = [finding for finding in verdict.findings if words in finding.what]
    return found


# Real runs


@pytest.mark.parametrize("architecture", [pn.Full(), pn.Mix(3), pn.Out(6), pn.Sep(2)], ids=lambda a: a.label())
def test_a_good_run_is_good_without_findings(architecture: pn.Architecture) -> None:
    verdict = run(posterior(architecture))
    assert (verdict.grade, verdict.findings) == ("good", ())
    assert verdict.predictions is not None
    assert (verdict.predictions.grade, verdict.posterior.grade) == ("good", "good")
    assert str(verdict.posterior).startswith("posterior of f: good. Largest R-hat 1.00")
    assert str(verdict.predictions).startswith("predictions of y: good. A rerun of the chains around the same network")


def test_a_fixed_network_far_beyond_a_constant_is_not_to_be_used() -> None:
    """The output weights are scaled up, which Sep's separate network cannot compensate."""
    verdict = run(posterior(pn.Sep(1), network(20.0)))
    finding = the(verdict, "neither the trained network nor the draws fit the training data better than a constant")
    assert verdict.grade == finding.grade == "do not use"
    assert verdict.findings[0] == finding
    assert "train again" in finding.remedy and "part of every draw of f" in finding.remedy
    assert "the inputs may say nothing" not in finding.remedy


@pytest.mark.parametrize(
    ("architecture", "grade", "kept"),
    [
        (pn.Full(), "look", "ranks and prior variances"),
        (pn.Out(6), "look", "fixed parameters"),
        (pn.Mix(3), "look", "fixed parameters"),
        (pn.Sep(1), "do not use", "part of every draw of f"),
    ],
    ids=["Full", "Out", "Mix", "Sep"],
)
def test_a_negated_network_that_the_draws_repair(architecture: pn.Architecture, grade: str, kept: str) -> None:
    """Where the wrong values are sampled away the run is worth a look; Sep keeps them in every draw."""
    verdict = run(posterior(architecture, network(-1.0)))
    (finding,) = verdict.findings
    assert verdict.grade == finding.grade == grade
    assert "the trained network fits the training data no better than a constant, though the draws do" in finding.what
    assert "train again" in finding.remedy and kept in finding.remedy


def test_an_undertrained_network_that_still_beats_a_constant() -> None:
    verdict = run(posterior(pn.Full(), network(0.3)))
    (finding,) = verdict.findings
    assert verdict.grade == finding.grade == "look"
    assert "the trained network fits the training data far worse than the draws do" in finding.what
    assert "more epochs" in finding.remedy


def test_a_network_from_which_the_posterior_takes_nothing_may_fit_as_it_likes() -> None:
    """Under a prior that is the same for all nodes, Full has neither fixed parameters, ranks nor variances from it."""
    post = posterior(pn.Full(), network(0.3))
    same = pn.Posterior(post.network.net, pn.Full(), pn.GaussianPrior(), post.likelihood, *sine())
    assert not [finding for finding in run(same).findings if "trained network" in finding.what]
    # A prior of sampled noise that rests on its residuals is something.
    rests = pn.Posterior(post.network.net, pn.Full(), pn.GaussianPrior(), pn.Gaussian("sampled"), *sine())
    given = pn.Posterior(post.network.net, pn.Full(), pn.GaussianPrior(), pn.Gaussian("sampled", a=2, b=1), *sine())
    with pytest.warns(UserWarning, match="rests on the trained network's residuals"):
        draws = pn.sample(rests, chains=2, draws=20, warmup=100, seed=0)
    assert draws.summary(GRID).evidence.role_of_network == "the prior of the noise variance rests on its residuals"
    assert pn.sample(given, chains=2, draws=20, warmup=100, seed=0).summary(GRID).evidence.role_of_network is None


def test_noise_is_no_poor_fit() -> None:
    """Inputs that say nothing about y: a network near the constant is all that training can find, and no error."""
    X = sine()[0]
    y = problems.rng_of("verdict, noise").normal(size=40)
    net = pn.Network([SLOPES, np.zeros((1, 6))], [OFFSETS, [y.mean()]])
    verdict = run(pn.Posterior(net, pn.Full(), PRIOR, pn.Gaussian(1.0), X, y))
    assert all(finding.grade == "look" and "constant" in finding.what for finding in verdict.findings)


def test_one_stuck_chain_among_three_that_move() -> None:
    """Output weights a hundred times the trained ones: the step that suits the others overshoots there every time."""
    post = posterior(pn.Mix(3))
    start = np.tile(post.theta_map, (4, 1))
    start[2, post.parameters["layer"] == 2] *= 100
    verdict = run(post, pn.PCNL(0.01), thin=50, warmup=None, init=start)
    finding = verdict.posterior.findings[0]
    assert verdict.grade == finding.grade == "do not use"
    assert "chain 3 of 4 is stuck: every proposal of 25,000 steps on end was rejected, 100% of the run" in finding.what
    assert 'init="map"' in finding.remedy and "warmup=20000" in finding.remedy
    disagree = the(verdict, "the chains disagree")
    assert disagree.grade == "do not use" and disagree.remedy.startswith("see the finding on step size or stuck chains")
    assert len(verdict.posterior.findings) == 2
    # Three chains share their start, so there are two replicates, one of which is the stuck chain.
    moved = the(verdict, "a rerun of starts and chains would move the ends of 90% intervals of y")
    assert moved.kind == "scattered predictions" and "from 2 starts" in moved.what


@pytest.mark.parametrize(
    ("delta", "accepts", "size", "other"),
    [
        (2.0, "almost no proposal (acceptance rate 0.0%", "large", "smaller"),
        (1e-6, "nearly every proposal (acceptance rate 100.0%", "small", "larger"),
    ],
)
def test_a_step_size_far_off(delta: float, accepts: str, size: str, other: str) -> None:
    verdict = run(posterior(pn.Mix(3)), pn.PCNL(delta), thin=5, warmup=None)
    finding, *symptoms = verdict.posterior.findings
    assert verdict.grade == finding.grade == "do not use"
    assert f"all 4 chains accept {accepts}, step size {delta:g})" in finding.what
    assert f"the step size is far too {size}" in finding.what
    assert (
        finding.remedy == f"leave the step size to the warm-up, PCNL(), or give a far {other} one than PCNL({delta:g})."
    )
    # Chains that take a step now and then also disagree.
    assert all(symptom.remedy.startswith("see the finding on step size") for symptom in symptoms)
    assert delta == 2.0 or [symptom.what.split(":")[0] for symptom in symptoms] == ["the chains disagree"]


def test_steps_that_are_too_small_only_because_the_warmup_was_short() -> None:
    """The warm-up chose the step size, so the remedy is a longer warm-up."""
    with pytest.warns(UserWarning, match="step size stays at its first value"):
        verdict = run(posterior(pn.Mix(3)), warmup=10, thin=1)
    finding = the(verdict, "the step size is far too small")
    assert finding.remedy.startswith("adapt the step size for longer, warmup=20000")


def test_draws_that_fit_worse_than_a_constant_beside_a_good_network() -> None:
    """All chains start far from the posterior and stay there."""
    post = posterior(pn.Out(6))
    verdict = run(post, pn.PCNL(1e-6), init=np.tile(20.0 * post.theta_map, (4, 1)), thin=1, draws=100, warmup=None)
    finding = the(verdict, "the draws fit the training data no better than a constant, though the trained network does")
    assert finding.grade == "do not use" and 'init="map"' in finding.remedy


def test_one_chain_and_few_draws() -> None:
    post = posterior(pn.Sep(2))
    verdict = run(post, chains=1)
    assert verdict.grade == "look"
    assert the(verdict, "there is one chain").remedy == "run several, chains=4."
    verdict = run(post, chains=1, draws=5)
    assert verdict.grade == "look" and the(verdict, "R-hat cannot be judged").remedy.startswith(
        "take more draws, draws"
    )


def test_a_kernel_that_keeps_adapting_is_not_good() -> None:
    with pytest.warns(UserWarning, match="not exactly invariant"):
        verdict = run(posterior(pn.Sep(2)), pn.PCNL(adapt="always"))
    assert verdict.grade == "look" and 'adapt="warmup"' in the(verdict, "adapted while sampling").remedy


def test_class_probabilities_are_judged_under_their_name() -> None:
    rng = problems.rng_of("verdict, classes")
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=60) > 0).astype(int)
    net = pn.Network([[[1.0, 0.0]], [[-2.0], [2.0]]], [[0.0], [0.0, 0.0]])
    post = pn.Posterior(net, pn.Full(), PRIOR, pn.Categorical(), X, y)
    draws = pn.sample(post, pn.PCNL(), chains=4, draws=20, thin=10, warmup=2000, seed=1, threads=1)
    verdict = draws.summary(X[:5]).verdict()
    assert verdict.posterior.findings[-1].what.count("of class probabilities is") == 2
    assert "constant" not in str(verdict)


# Every check at its threshold

CHAINS = np.ones(4)
SOUND = Evidence(
    quantity="f",
    architecture=pn.Mix,
    n_chains=4,
    n_draws=1000,
    max_rhat=1.01,
    min_ess_bulk=400.0,
    max_mcse=0.02,
    rhat_log_likelihood=1.05,
    log_likelihood=-100.0 * CHAINS,
    spread=CHAINS,
    steps=StepRecord(
        kernel=pn.PCNL(),
        thin=10,
        acceptance_rate=0.6 * CHAINS,
        step_size=0.1 * CHAINS,
        longest_still=np.array([10, 20, 10, 30]),
        nonfinite=0 * CHAINS,
        init="auto",
        warmup_steps=20_000,
        warmup_stable=True,
        length=10_000,
        draws_of_chain=1000,
    ),
    sampler="PCNL()",
    fit=FitQuality(network=-98.0, constant=-150.0, rows=100.0, values=100.0),
    role_of_network="ranks are taken from it",
)
WORST = math.sqrt(200.0)  # two standard deviations of half a chi-square of 100 degrees of freedom


def sound(evidence: Evidence = SOUND, **change: Any) -> Evidence:
    """Return evidence with other values, also of what the steps recorded."""
    assert evidence.steps is not None
    of_steps = {field.name for field in fields(StepRecord)}
    steps = replace(evidence.steps, **{name: value for name, value in change.items() if name in of_steps})
    return replace(evidence, **{name: value for name, value in change.items() if name not in of_steps}, steps=steps)


def one(values: float, others: float = 0.6) -> Any:
    """The second of four chains is different."""
    return np.array([others, values, others, others])


@pytest.mark.parametrize(
    ("change", "grade", "words"),
    [
        ({}, "good", ""),
        ({"max_rhat": 1.011}, "look", "1.011 (up to 1.01 is good)"),
        ({"max_rhat": 1.05}, "look", "means and bands serve"),
        ({"max_rhat": 1.051}, "do not use", "the chains disagree: the largest R-hat of f is 1.051"),
        ({"max_rhat": 1.051, "n_chains": 1}, "do not use", "the parts of the chain disagree: the largest R-hat of f"),
        ({"max_rhat": math.inf, "min_ess_bulk": math.nan}, "do not use", "R-hat of f is infinite"),
        ({"max_rhat": math.nan, "min_ess_bulk": math.nan}, "look", "R-hat cannot be judged"),
        ({"min_ess_bulk": 399.0}, "look", "the smallest bulk ESS of f is 399 (400 or more is good)"),
        ({"rhat_log_likelihood": 1.06}, "look", "R-hat of the log-likelihood is 1.060"),
        ({"acceptance_rate": one(0.05)}, "good", ""),
        ({"acceptance_rate": one(0.049)}, "look", "chain 2 of 4 accepts almost no proposal"),
        ({"acceptance_rate": 0.049 * CHAINS}, "look", "all 4 chains accept almost no proposal"),
        ({"acceptance_rate": one(0.99)}, "good", ""),
        ({"acceptance_rate": one(0.99), "max_rhat": 1.02}, "look", "chain 2 of 4 accepts nearly every proposal"),
        ({"acceptance_rate": one(0.98), "max_rhat": 1.02}, "look", "the largest R-hat"),
        ({"acceptance_rate": one(0.99), "max_rhat": 1.2}, "do not use", "chain 2 of 4 accepts nearly every proposal"),
        ({"longest_still": one(999, 10)}, "good", ""),
        ({"longest_still": one(1000, 10)}, "look", "every proposal of 1,000 steps on end was rejected, 10% of the run"),
        ({"longest_still": one(5000, 10)}, "do not use", "chain 2 of 4 is stuck"),
        ({"spread": one(0.0101, 1.0)}, "good", ""),
        ({"spread": one(0.0396, 4.0)}, "do not use", "the standard deviation of f along it is 9.9% of the other"),
        ({"nonfinite": one(1e-4, 0.0)}, "look", "up to 0.01% of a chain's proposals"),
        ({"nonfinite": one(0.01, 0.0)}, "look", "not finite"),
        ({"nonfinite": one(0.011, 0.0)}, "do not use", "up to 1.1% of a chain's proposals"),
        ({"warmup_stable": False}, "look", "not yet stable when the warm-up ended, after 20,000 steps"),
        ({"warmup_stable": None, "fit": None}, "good", ""),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_each_threshold(change: dict[str, Any], grade: str, words: str) -> None:
    verdict = judge(sound(**change))
    assert verdict.grade == grade
    if grade == "good":
        assert verdict.findings == ()
    else:
        assert words in verdict.findings[0].what and verdict.findings[0].grade == grade


@pytest.mark.parametrize(
    ("network", "draws", "grade", "words"),
    [
        (-98.0, -100.0, "good", ""),
        (-149.9, -149.9, "good", ""),
        # Draws may gain the larger of two standard deviations, 14.1, and a tenth of what the network gains.
        (-100.0, -100.0 + 0.99 * WORST, "good", ""),
        (-100.0, -100.0 + 1.01 * WORST, "look", "far worse than the draws do"),
        (-151.0, -149.0, "look", "the trained network fits the training data no better than a constant, though"),
        (-math.inf, -149.0, "look", "the trained network fits the training data no better than a constant, though"),
        (-150.0, -150.0, "look", "neither the trained network nor the draws"),
        (-150.0 - 1.01 * WORST, -150.0, "do not use", "neither the trained network nor the draws"),
        (-150.0, -150.0 - 0.99 * WORST, "look", "neither the trained network nor the draws"),
        (-150.0, -150.0 - WORST, "look", "neither the trained network nor the draws"),
        (-150.0 - WORST, -150.0, "look", "neither the trained network nor the draws"),
        (-150.0, -150.0 - 1.01 * WORST, "do not use", "neither the trained network nor the draws"),
        (-149.0, -150.0 - 0.99 * WORST, "look", "the draws fit the training data no better than a constant, though"),
        (-149.0, -150.0 - 1.01 * WORST, "do not use", "the draws fit the training data no better than a constant"),
    ],
)
def test_each_threshold_of_the_fit(network: float, draws: float, grade: str, words: str) -> None:
    fit = FitQuality(network=network, constant=-150.0, rows=100.0, values=100.0)
    verdict = judge(replace(SOUND, fit=fit, log_likelihood=draws * CHAINS))
    assert verdict.grade == grade
    assert len(verdict.findings) == (grade != "good")
    assert words in str(verdict)


def test_a_large_gain_of_the_network_lets_the_draws_gain_a_tenth_of_it() -> None:
    fit = FitQuality(network=-1000.0, constant=-2000.0, rows=100.0, values=100.0)
    assert judge(replace(SOUND, fit=fit, log_likelihood=-901.0 * CHAINS)).grade == "good"
    assert judge(replace(SOUND, fit=fit, log_likelihood=-899.0 * CHAINS)).grade == "look"


def test_a_stuck_chain_does_not_hide_how_the_others_fit() -> None:
    """The median over chains is compared, not the mean."""
    verdict = judge(replace(SOUND, log_likelihood=one(-1e9, -100.0)))
    assert verdict.grade == "good"


@pytest.mark.parametrize(
    ("error", "replicates", "is_class", "grade", "words"),
    [
        (0.0999, 40, False, "good", ""),
        (0.1001, 40, False, "look", "would move the ends of 90% intervals of y by 10% of their width"),
        # Forty replicates know their error to 0.85 to 1.23 times, six to 0.67 to 2.09 times.
        (0.236, 40, False, "look", "by 24% of their width"),
        (0.238, 40, False, "do not use", "by 24% of their width"),
        (0.095, 6, False, "good", ""),
        (0.097, 6, False, "look", "which so few leave open: up to 20%."),
        (0.0499, 40, True, "good", ""),
        (0.0501, 40, True, "look", "would move probabilities of classes by 5.0 points"),
        (0.176, 40, True, "look", "by 18 points"),
        (0.178, 40, True, "do not use", "by 18 points"),
    ],
)
def test_each_threshold_of_the_rerun_error(
    error: float, replicates: int, is_class: bool, grade: str, words: str
) -> None:
    of_rows, width = np.full((5, 1), error), np.ones((5, 1))
    ends = None if is_class else of_rows
    rerun = RerunError(
        mean=of_rows,
        lower=ends,
        upper=ends,
        band_lower=of_rows,
        band_upper=of_rows,
        width=None if is_class else width,
        band_width=width,
        kurtosis={},
        coverage=0.9,
        replicates=replicates,
        effective=float(replicates),
        unit="networks",
    )
    verdict = judge(replace(SOUND, rerun=rerun))
    assert verdict.predictions is not None and (verdict.predictions.grade, verdict.posterior.grade) == (grade, "good")
    assert [one.kind for one in verdict.findings] == ["scattered predictions"] * (grade != "good")
    assert all(words in one.what for one in verdict.findings)
    # More replicates lower an error that is too large, and know better one that is not.
    begins = f"{rerun.remedy(0.05 if is_class else 0.1)}" if error > 0.0999 or is_class else "more networks, or starts"
    assert all(one.remedy.startswith(begins) for one in verdict.findings)


@pytest.mark.parametrize("kernel", [pn.Exact(), pn.EllipticalSlice()])
def test_kernels_that_never_reject_are_not_judged_by_acceptance(kernel: pn.Kernel) -> None:
    evidence = sound(kernel=kernel, acceptance_rate=CHAINS, step_size=np.nan * CHAINS, max_rhat=1.02)
    verdict = judge(evidence)
    if kernel.is_independent:  # independent draws: an R-hat of 1.02 is chance, and more draws, not thinning, help
        assert verdict.grade == "good" and verdict.posterior.facts.startswith("independent draws")
        few = judge(replace(evidence, min_ess_bulk=200.0))
        assert few.findings[0].remedy == "run longer, draws=2000." and "R-hat" not in few.findings[0].what
    else:
        assert [finding.what.split(" of f")[0] for finding in verdict.findings] == ["the largest R-hat"]


def test_accepting_everything_at_the_largest_step_is_no_finding() -> None:
    """On a flat likelihood pCNL takes every proposal, at delta = 2 each an independent draw."""
    evidence = sound(acceptance_rate=CHAINS, step_size=2.0 * CHAINS, min_ess_bulk=100.0)
    (finding,) = judge(evidence).findings
    assert "the smallest bulk ESS of f is 100" in finding.what and "thin=40" in finding.remedy
    assert "far too small" in judge(sound(evidence, step_size=1.0 * CHAINS)).findings[0].what


def test_a_start_of_ones_own_is_advised_against_only_where_there_was_one() -> None:
    stuck = sound(longest_still=one(5000, 10), warmup_steps=50_000, init="map")
    assert judge(stuck).findings[0].remedy.startswith("warm up longer, warmup=100000;")
    remedy = judge(sound(stuck, init="prior")).findings[0].remedy
    assert remedy.startswith('start every chain at init="map" and warm up longer, warmup=100000;')


@pytest.mark.parametrize(
    ("architecture", "start"), [(pn.Mix, "start every chain at post.theta_map and "), (pn.Sep, "")]
)
def test_draws_of_another_sampler_should_start_at_the_network_unless_it_is_separate(
    architecture: type[pn.Architecture], start: str
) -> None:
    """The trained values are a start of all architectures but one, whose own network is beside the trained one."""
    log_likelihood = one(-400.0, -100.0)
    worse = replace(SOUND, steps=None, architecture=architecture, log_likelihood=log_likelihood, log_likelihood_sd=10.0)
    remedies = [finding.remedy for finding in judge(worse).findings if finding.kind == "worse mode"]
    assert [remedy.partition(";")[0] for remedy in remedies] == [f"{start}warm up longer"]


def test_a_caller_may_replace_the_remedy_of_a_kind() -> None:
    """The finding says how many times as long a run would have to be, from which the caller makes its own words."""
    disagree = sound(max_rhat=1.2, min_ess_bulk=50.0, warmup_steps=50_000, kernel=pn.MGrad())
    (finding,) = judge(disagree).posterior.findings
    assert finding.remedy == "run longer, thin=80, after a longer warm-up, warmup=100000."
    assert (finding.kind, finding.longer) == ("disagreement", 8)
    advice = {finding.kind: f"run longer, minutes={2 * finding.longer}.", "one chain": "never shown"}
    (other,) = judge(disagree, advice).posterior.findings
    assert other == replace(finding, remedy="run longer, minutes=16.")


def test_a_verdict_is_rebuilt_from_its_content() -> None:
    verdict = judge(sound(warmup_stable=False, max_rhat=1.02))
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


def test_short_runs_need_fifty_rejections_in_a_row_to_be_called_stuck() -> None:
    evidence = sound(n_draws=100, thin=1, length=100)
    assert judge(sound(evidence, longest_still=one(49, 3))).grade == "good"
    assert judge(sound(evidence, longest_still=one(50, 3))).grade == "do not use"


def test_the_worst_finding_decides_and_stands_first() -> None:
    verdict = judge(sound(warmup_stable=False, nonfinite=one(0.5, 0.0), max_rhat=1.02))
    assert [finding.grade for finding in verdict.posterior.findings] == ["do not use", "look", "look"]
    lines = str(verdict.posterior).splitlines()
    assert lines[0].startswith("posterior of f: do not use. Largest R-hat 1.020")
    assert lines[1].startswith("- do not use: up to 50% of a chain's proposals") and "Remedy: scale X and y" in lines[1]
    content = json.loads(json.dumps(verdict.to_dict()))
    assert content["grade"] == content["posterior"]["grade"] == "do not use"
    # Chains that do not represent the posterior need unseen rows to vouch for what they predict.
    assert [one["kind"] for one in content["predictions"]["findings"]] == ["unscored predictions"]
    assert set(content["posterior"]["findings"][0]) == {
        "kind",
        "grade",
        "what",
        "remedy",
        "longer",
    }


def test_longest_run_of_flags() -> None:
    flags = np.array([[1, 1, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0], [1] * 7, [0, 0, 0, 0, 0, 1, 1]], dtype=bool)
    assert longest_run(flags).tolist() == [3, 0, 7, 2]
    assert longest_run(np.zeros((2, 0), dtype=bool)).tolist() == [0, 0]


# The fit that is compared


@pytest.mark.parametrize(
    ("likelihood", "architecture"),
    problems.balanced([(name,) for name in problems.LIKELIHOODS * 2], problems.ARCHITECTURES),
)
def test_fit_quality_is_that_of_the_trained_network(likelihood: str, architecture: str) -> None:
    rng = problems.rng_of("fit quality", architecture, likelihood)
    problem = problems.problem(rng, (2, 6, 5, 3), 30, architecture, likelihood)
    post, data = problem.post, problem.data
    fit = post.sampled.fit_quality
    f = data.likelihood.with_offset(post.network.net.predict(data.X), data.offset)
    rows = data.likelihood.log_likelihood_rows(f, post.data.y)
    # Sums of 30 rows, each of some hundred roundings of numbers of order one.
    assert fit.network == pytest.approx(float(post.data.row_weights @ rows), rel=1e-12)
    assert fit.rows == pytest.approx(post.data.row_weights.sum(), rel=1e-15)
    assert fit.values == pytest.approx(fit.rows * (1 if data.likelihood.has_classes else 3), rel=1e-15)


@pytest.mark.parametrize("name", problems.LIKELIHOODS)
def test_the_constant_is_the_best_one_under_weights(name: str) -> None:
    """Without weights that of the likelihood; whole weights repeat rows; a row without weight does not count."""
    rng = problems.rng_of("constant", name)
    data = problems.random_data(name, rng, 25, 2, 3)
    m = 3 * problems.outputs_per_target(name)
    net = problems.random_network(rng, (2, 4, m))

    def constant(X: Any, y: Any, weight: Any = None) -> float:
        post = pn.Posterior(net, pn.Full(), PRIOR, data.likelihood, X, y, sample_weight=weight)
        return post.sampled.fit_quality.constant

    plain = data.likelihood.check_targets(data.y, 25, m)
    assert constant(data.X, data.y) == pytest.approx(data.likelihood.constant_log_likelihood(plain), rel=1e-13)
    weight = rng.integers(0, 4, 25)
    repeated = constant(np.repeat(data.X, weight, axis=0), np.repeat(data.y, weight, axis=0))
    assert constant(data.X, data.y, weight) == pytest.approx(repeated, rel=1e-13)


def test_a_sampled_variance_is_put_where_it_is_likeliest() -> None:
    """Given the residuals of each predictor: against a search over the variance."""
    fixed = posterior(pn.Full(), network(0.5))
    post = pn.Posterior(
        fixed.network.net,
        pn.Full(),
        fixed.network.prior,
        pn.Gaussian("sampled", a=2.0, b=1.5),
        fixed.data.X,
        fixed.data.y,
    )
    log_variance = np.linspace(-3, 3, 60_001)
    variance, fit = np.exp(log_variance), post.sampled.fit_quality
    f = post.network.predict(post.theta_map, post.data.X).astype(np.float64)
    for value, residual in ((fit.network, post.data.y - f), (fit.constant, post.data.y - post.data.y.mean())):
        log_likelihood = -0.5 * (np.sum(residual**2) / variance + 40 * np.log(2 * np.pi * variance))
        best = np.argmax(log_likelihood - 3.0 * log_variance - 1.5 / variance)
        # The grid's mode is off by 1e-4 in log variance, where l has a slope of at most 40 / 2.
        assert value == pytest.approx(log_likelihood[best], abs=20 * 1e-4)


def test_draws_keep_the_fit_through_a_file(tmp_path: Path) -> None:
    post = posterior(pn.Sep(1))
    draws = pn.sample(post, pn.PCNL(), chains=2, draws=8, warmup=400, seed=1, threads=1)
    draws.save(tmp_path / "draws.npz")
    loaded = pn.Draws.load(tmp_path / "draws.npz")
    assert FitQuality.from_dict(loaded.settings["fit"]) == post.sampled.fit_quality
    assert str(loaded.summary(GRID).verdict()) == str(draws.summary(GRID).verdict())
    assert FitQuality.from_dict({"network": None, "constant": 1.0, "rows": 2.0, "values": 3.0}).network == -math.inf
