"""Rerun error: against the spread of simulated reruns, by hand, and in the words of the verdict."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import kurtosis, norm, t

import patrac_native as pn
import problems
from patrac_native.draws.replicates import Replicates, _Groups, rerun_error
from patrac_native.verdict.rerun_error import RerunError

X = np.linspace(-1.0, 1.0, 5)[:, None]
NOISE = 0.25  # variance


def linear(likelihood: pn.Likelihood | None = None, outputs: int = 1) -> pn.Posterior:
    """Return a posterior of f = w x + b, whose theta is (w, b), or several such outputs."""
    net = pn.Network([np.zeros((outputs, 1))], [np.zeros(outputs)])
    likelihood = pn.Gaussian(NOISE) if likelihood is None else likelihood
    targets = likelihood.n_targets(outputs)
    y: Any = np.zeros((5, targets)) if likelihood.targets != "class" else np.arange(5) % outputs
    return pn.Posterior(net, pn.Full(), pn.GaussianPrior(), likelihood, X, y, dtype="float64")


def chains(rng: np.random.Generator, count: int, draws: int, between: float) -> Any:
    """Return draws (count, draws, 2), of chains whose means differ with a standard deviation, and 1 within them."""
    return between * rng.normal(size=(count, 1, 2)) + rng.normal(size=(count, draws, 2))


def of(theta: Any, **arguments: Any) -> RerunError:
    return pn.Draws.from_array(linear(), theta, sampler="test").rerun_error(X, **arguments)


def test_the_error_is_that_of_probabilities_without_each_chain() -> None:
    """The jackknife of the mean and of the probability below each end, and the quantiles around, by a root search."""
    theta = chains(problems.rng_of("rerun by hand"), 5, 30, 0.7)
    found = of(theta, coverage=0.8)
    f = (theta[..., :1] * X[:, 0] + theta[..., 1:]).reshape(150, 5)

    def jackknife(values: Any) -> Any:
        without = np.stack([np.delete(values.reshape(5, 30, 5), chain, axis=0).mean(axis=(0, 1)) for chain in range(5)])
        return np.sqrt(4 / 5 * ((without - without.mean(axis=0)) ** 2).sum(axis=0))

    def of_y(p: Any) -> Any:
        pairs = zip(f.T, np.broadcast_to(p, 5), strict=True)
        return np.array([brentq(lambda y, c=c, q=q: norm.cdf(y, c, NOISE**0.5).mean() - q, -20, 20) for c, q in pairs])

    def of_f(p: Any) -> Any:
        pairs = zip(f.T, np.broadcast_to(p, 5), strict=True)
        return np.array([np.quantile(column, q, method="weibull") for column, q in pairs])

    np.testing.assert_allclose(found.mean[:, 0], jackknife(f), rtol=1e-9)
    for quantile, below, lower, upper, width in (
        (of_y, lambda y: norm.cdf(y, f, NOISE**0.5), found.lower, found.upper, found.width),
        (of_f, lambda y: (f <= y).astype(float), found.band_lower, found.band_upper, found.band_width),
    ):
        np.testing.assert_allclose(np.asarray(width)[:, 0], quantile(0.9) - quantile(0.1), rtol=1e-6)
        for p, got in ((0.1, lower), (0.9, upper)):
            error = jackknife(below(quantile(p)))
            assert (error < 0.08).all()  # nowhere near 0 or 1
            expected = (quantile(p + error) - quantile(p - error)) / 2
            np.testing.assert_allclose(np.asarray(got)[:, 0], expected, rtol=1e-6)
    assert (found.replicates, found.unit, found.coverage) == (5, "chains", 0.8)
    # The degrees of freedom by SciPy's unbiased kurtosis of the means of the chains.
    excess = kurtosis(f.reshape(5, 30, 5).mean(axis=1), axis=0, bias=False)
    np.testing.assert_allclose(found.kurtosis["mean"][:, 0], excess, rtol=1e-6)
    df = 2 / (max(excess.mean(), 0) / 5 + 2 / 4)
    assert found.degrees_of_freedom("mean") == pytest.approx(df, rel=1e-6)
    np.testing.assert_allclose(found.margin("mean", 0.8), t.ppf(0.9, df) * found.mean, rtol=1e-6)
    with pytest.raises(ValueError, match=r"of must be one of 'mean', 'band_lower'.*got 'width'"):
        found.margin("width")


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.0, 1.0])
def test_the_stated_error_is_the_spread_of_reruns(between: float) -> None:
    """200 reruns of eight chains, met and unmet; the twin whose unit is the draw fails where they have not met."""
    rng, lower, stated, twins = problems.rng_of("reruns", between), [], [], []
    for rerun in range(200):
        draws = pn.Draws.from_array(linear(), chains(rng, 8, 50, between), sampler="test")
        at = draws.distribution(X)
        lower.append([at.quantiles(0.05)[:, 0, 0], np.quantile(at.outputs()[:, :, 0], 0.05, axis=0), at.mean()[:, 0]])
        errors = [draws.rerun_error(X)]
        if rerun % 5 == 0:
            twin = Replicates([draws])
            twin.labels = (np.arange(400) // 10,)  # tenths of a chain: forty for eight replicates
            errors.append(rerun_error(at, twin, 0.9))
        for error, those in zip(errors, (stated, twins), strict=False):
            those.append([np.asarray(one)[:, 0] for one in (error.lower, error.band_lower, error.mean)])
    # The variance of 200 reruns has a standard error of a tenth, and the mean of 200 stated variances, each of seven
    # degrees of freedom, of less: ratios of standard deviations are known to 6%. The jackknife's own bias adds a few.
    ratio = np.sqrt(np.mean(np.square(stated), axis=(0, 2)) / np.var(lower, axis=0).mean(axis=1))
    assert (np.abs(ratio - 1) < 0.18).all(), ratio
    of_twin = np.sqrt(np.mean(np.square(twins), axis=(0, 2)) / np.var(lower, axis=0).mean(axis=1))
    assert (of_twin < 0.7).all() if between else (np.abs(of_twin - 1) < 0.18).all()


def test_independent_draws_have_the_usual_monte_carlo_error() -> None:
    """Of the mean sd / sqrt(draws), whatever the number of chains; one chain of another kernel is cut into parts."""
    post = linear()
    for count in (1, 4):
        draws = pn.sample(post, pn.Exact(), chains=count, draws=4000 // count, seed=2)
        found = draws.rerun_error(X)
        assert (found.replicates, found.unit) == (16, "draws")
        usual = draws.predict(X)[..., 0].std(axis=(0, 1)) / 4000**0.5
        # Fifteen degrees of freedom: a standard error of a fifth, much the same for all rows.
        assert np.sqrt(np.mean(found.mean**2) / np.mean(usual**2)) == pytest.approx(1.0, abs=0.5)
    alone = pn.sample(post, pn.PCNL(), chains=1, draws=400, warmup=100, seed=1).rerun_error(X)
    assert (alone.replicates, alone.unit, alone.is_blind) == (8, "parts", True)
    assert "a rerun of this chain from where it ended would move" in str(alone) and "from 8 parts" in str(alone)
    assert str(alone).splitlines()[-1].startswith("  that is repeatability, not correctness: what all replicates share")
    # Parts of few draws would differ by chance alone: nothing is known, without any warning of arithmetic.
    with warnings.catch_warnings(action="error", category=RuntimeWarning):
        few = pn.sample(post, pn.PCNL(), chains=1, draws=20, warmup=100, seed=1).summary(X)
    assert few.rerun_error is not None and np.isnan(few.rerun_error.mean).all()
    assert "how far a rerun would move predictions is not known" in str(few.verdict())


def test_chains_that_share_a_start_are_one_replicate() -> None:
    post = linear()

    def unit(**arguments: Any) -> tuple[int, str]:
        draws = pn.sample(post, pn.PCNL(), draws=20, warmup=50, seed=1, **arguments)
        found = draws.rerun_error(X)
        loaded = draws[slice(None), slice(None)].rerun_error(X)
        assert loaded.unit == found.unit and loaded.replicates == found.replicates
        return found.replicates, found.unit

    starts = np.arange(8.0).reshape(4, 2)
    assert unit(chains=4) == (4, "dispersed")
    assert unit(chains=4, init="map") == (4, "one start")
    assert unit(chains=4, init=starts) == (4, "starts")
    assert unit(chains=4, init=starts[[0, 1, 0, 1]]) == (2, "starts")
    assert unit(chains=4, init=starts[[0, 0, 0, 0]]) == (4, "one start")


def test_members_with_a_network_of_their_own_are_replicates() -> None:
    posts = [linear(), linear()]
    nets = [pn.Network([[[weight]]], [[0.0]]) for weight in (0.5, 1.0)]
    other = [pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Gaussian(NOISE), X, X[:, 0]) for net in nets]
    for members, expected in ((posts, (4, "dispersed")), (other, (2, "networks"))):
        draws = pn.sample_many(members, pn.PCNL(), chains=2, draws=20, warmup=50, seed=1)
        found = pn.DrawsMixture(draws).rerun_error(X)
        assert (found.replicates, found.unit) == expected
    # A member without weight shows nothing of another run.
    hardly = pn.DrawsMixture(draws, [1.0, 1e-3]).rerun_error(X)
    assert hardly.replicates == 1 and np.isnan(hardly.mean).all() and "an unknown amount" in str(hardly)
    labelled = pn.DrawsMixture(draws).rerun_error(X, replicates=["a", "b", "a", "c"])
    assert (labelled.replicates, labelled.unit) == (3, "given")


@pytest.mark.parametrize(
    ("likelihood", "outputs", "shape"),
    [
        (pn.Poisson(), 2, (5, 2)),
        (pn.HeteroscedasticGaussian(), 2, (5, 1)),
        (pn.StudentT(4.0, 0.5), 1, (5, 1)),
        (pn.Categorical(), 3, (5, 3)),
        (pn.Bernoulli(), 2, (5, 2)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, pn.Likelihood) else "",
)
def test_each_kind_of_target(likelihood: pn.Likelihood, outputs: int, shape: tuple[int, ...]) -> None:
    rng = problems.rng_of("rerun targets", type(likelihood).__name__)
    theta = 0.3 * rng.normal(size=(6, 1, 2 * outputs)) + 0.1 * rng.normal(size=(6, 40, 2 * outputs))
    draws = pn.Draws.from_array(linear(likelihood, outputs), theta, sampler="test")
    found = draws.rerun_error(X)
    assert found.mean.shape == found.band_lower.shape == found.band_width.shape == shape
    is_class = likelihood.targets in ("class", "binary")
    assert found.is_class == is_class == (found.lower is None)
    assert 0 < found.of_predictions.lower < found.of_predictions.median < found.of_predictions.upper
    assert ("points" in str(found)) == is_class
    values = draws.predict_proba(X) if is_class else draws.predict(X)
    by_chain = values.mean(axis=1, dtype=np.float64)
    np.testing.assert_allclose(found.mean, by_chain.std(axis=0, ddof=1) / 6**0.5, rtol=1e-6)


def test_counts_move_between_whole_numbers() -> None:
    """The ends of both chains are the same counts, and yet another run might have others."""
    theta = np.tile([0.0, np.log(20.0)], (8, 50, 1)) + 0.02 * np.arange(-4, 4)[:, None, None] * [0.0, 1.0]
    draws = pn.Draws.from_array(linear(pn.Poisson()), theta, sampler="test")
    found = draws.rerun_error(X)
    ends = [draws[chain : chain + 1, :].interval(X, 0.9).lower[0, 0] for chain in range(8)]
    # The slope of the 5% quantile of a Poisson count of mean 20 is about one.
    means = 20 * np.exp(0.02 * np.arange(-4, 4))
    assert np.asarray(found.lower)[0, 0] == pytest.approx(means.std(ddof=1) / 8**0.5, rel=0.3) and len(set(ends)) > 1


@pytest.mark.parametrize("log_mean", [45.0, 900.0])
def test_counts_beyond_what_numbers_resolve_end(log_mean: float) -> None:
    """At inputs far from the data means exceed 2^53, where neighbouring counts are no numbers, or overflow."""
    rng = problems.rng_of("far counts")
    theta = [1.0, 0.0] + 1e-4 * rng.normal(size=(8, 1, 2)) + 1e-4 * rng.normal(size=(8, 30, 2))
    draws, far = pn.Draws.from_array(linear(pn.Poisson()), theta, sampler="test"), np.full((5, 1), log_mean)
    with np.errstate(all="ignore"):
        found = draws.rerun_error(far)
        assert found.mean.shape == (5, 1) and np.isfinite(found.mean).all() == (log_mean == 45.0)
        assert draws.summary(far).verdict().posterior.grade


def test_unequal_weights_have_the_error_of_a_weighted_mean() -> None:
    """Of means that differ with variance one, sum w^2: over 400 mixtures, whose mean square is known to 7%."""
    rng, shares, squares = problems.rng_of("unequal"), np.array([0.5, 0.25, 0.125, 0.125]), []
    for _ in range(400):
        labels = np.repeat(np.arange(4), 5)
        groups = _Groups(labels, np.repeat(shares / 5, 5))
        squares.append(groups.error(np.repeat(rng.normal(size=4), 5)[:, None])[0] ** 2)
    assert groups.effective == pytest.approx(1 / (shares**2).sum())
    # A square of at least 1.9 degrees of freedom has a relative standard deviation of at most one: 3 / sqrt(400).
    assert np.mean(squares) == pytest.approx((shares**2).sum(), rel=0.15)


def test_a_summary_of_many_rows_has_the_error_of_a_hundred_from_the_first_to_the_last() -> None:
    draws = pn.Draws.from_array(linear(), chains(problems.rng_of("few rows"), 4, 25, 1.0), sampler="test")
    many = np.linspace(-3, 3, 199)[:, None]
    found, expected = draws.summary(many).rerun_error, draws.rerun_error(many[::2])
    assert found is not None and expected.mean.shape == (100, 1)
    np.testing.assert_array_equal(found.mean, expected.mean)


def test_an_error_that_more_than_half_of_the_rows_lack_is_not_known() -> None:
    found = of(chains(problems.rng_of("lacking"), 8, 50, 1.0))
    assert found.lower is not None
    for lacking, is_known in ((0, True), (2, True), (3, False), (5, False)):
        lower = np.where(np.arange(5)[:, None] < lacking, np.nan, found.lower)
        partly = replace(found, lower=lower).of_predictions
        assert np.isfinite([partly.median, partly.percentile_90, partly.lower, partly.upper]).tolist() == [is_known] * 4


def test_replicates_for_a_precision() -> None:
    found = of(chains(problems.rng_of("precision"), 8, 50, 1.0))
    wanted = found.replicates_for(0.5 * found.of_predictions.median)
    assert wanted == 32
    assert found.replicates_for(1e3) == 2  # one replicate knows no error
    scaled = found.scaled(10.0)
    np.testing.assert_allclose(np.asarray(scaled.lower), 10 * np.asarray(found.lower))
    assert scaled.of_predictions.median == pytest.approx(found.of_predictions.median)
    assert found.to_dict()["predictions"]["median"] == found.of_predictions.median


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"coverage": 1.0}, "coverage must be"),
        ({"replicates": [0, 1]}, r"replicates must have shape \(4,\), a label for each chain; got \(2,\)"),
        ({"replicates": [1, 1, 1, 1]}, "replicates must name at least two"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        of(chains(problems.rng_of("bad"), 4, 10, 1.0), **arguments)


# Planted faults, in the words of the verdict


def judged(theta: Any) -> pn.report.Verdict:
    draws = pn.Draws.from_array(linear(), theta, sampler="test")
    draws.settings["fit"] = None  # theta is made up, whatever y
    return draws.summary(X).verdict()


def test_a_converged_posterior_is_good_in_both_parts() -> None:
    verdict = judged(chains(problems.rng_of("converged"), 8, 500, 0.0))
    assert verdict.predictions is not None and verdict.findings == ()
    assert verdict.predictions.facts.startswith("a rerun of the chains would move the ends of 90% intervals of y by 0.")
    assert "which is repeatability, not correctness; they were not scored" in verdict.predictions.facts


def test_chains_in_modes_of_their_own_are_an_ensemble() -> None:
    """Predictions and bands repeat, because there are many modes: no posterior of f, but no reason not to predict."""
    theta = chains(problems.rng_of("ensemble"), 40, 100, 0.8)
    verdict = judged(theta)
    assert verdict.predictions is not None and verdict.predictions.grade == "good"
    assert verdict.posterior.grade == "look"
    assert "bands are those of an ensemble of 40 members" in verdict.posterior.findings[0].what
    few = judged(theta[:4]).posterior
    assert few.grade == "do not use"
    assert "4 chains are too few to know whether a rerun would give the same bands; 6 are enough." in str(few)


def test_two_chains_of_eight_in_a_wrong_mode() -> None:
    """Leaving out one of the two changes little, as neither ends of intervals: their log-likelihood shows them."""
    theta = chains(problems.rng_of("wrong mode"), 8, 300, 0.0)
    theta[6:] += 12.0
    verdict = judged(theta)
    assert verdict.predictions is not None and verdict.predictions.grade == "look"
    (finding,) = [one for one in verdict.predictions.findings if one.kind == "worse mode"]
    assert finding.what.startswith("chains 7 and 8 of 8 are in a worse mode: log-likelihood -")
    (disagree,) = verdict.posterior.findings
    assert disagree.grade == "do not use" and disagree.what.startswith("the chains disagree")
    # Each chain stays where it is: longer ones would not help.
    assert "longer chains would hardly meet" in disagree.what and disagree.longer is None
    assert disagree.remedy.startswith("more chains, each from a start of its own")


def test_one_frozen_chain() -> None:
    post = linear()
    draws = pn.sample(post, pn.PCNL(), chains=8, draws=300, thin=5, warmup=500, seed=1)
    assert draws.summary(X).verdict().posterior.grade == "good"
    draws.theta[3] = draws.theta[3, 0] + 4.0
    draws.stats["acceptance_rate"][3] = 0.0
    verdict = draws.summary(X).verdict()
    assert verdict.posterior.grade == "do not use" and "chain 4 of 8 is stuck" in str(verdict.posterior)
    assert verdict.predictions is not None and verdict.predictions.grade != "good"


def test_chains_of_one_start_are_said_to_be_that() -> None:
    draws = pn.sample(linear(), pn.PCNL(), chains=8, draws=100, thin=5, warmup=500, seed=1, init="map")
    facts = draws.summary(X).verdict().predictions.facts  # type: ignore[union-attr]
    assert "a rerun of the chains from the same start would move" in facts
    apart = draws.theta + 3.0 * np.random.default_rng(0).normal(size=(8, 1, 2))
    draws.theta[:] = apart
    assert draws.summary(X).verdict().posterior.grade == "do not use"  # however well its bands might repeat


def test_more_starts_are_told_from_longer_chains() -> None:
    """Two chains of each of four starts: that stay at theirs, and that leave it for what no other chain of it finds."""
    rng, post, starts = problems.rng_of("nested"), linear(), np.arange(8.0).reshape(4, 2)
    draws = pn.sample(
        post, pn.PCNL(), chains=8, draws=200, thin=5, warmup=500, seed=1, init=np.repeat(starts, 2, axis=0)
    )
    draws.settings["fit"] = None  # theta is made up, whatever y

    def disagreement(means: Any) -> Any:
        draws.theta[:] = means[:, None] + rng.normal(size=draws.theta.shape)
        verdict = draws.summary(X).verdict()
        (found,) = [one for one in verdict.posterior.findings if one.kind == "disagreement"]
        return found

    stay = disagreement(np.repeat(3.0 * rng.normal(size=(4, 2)), 2, axis=0))
    assert "Halves of the chains of one start agree (R-hat up to 1.0" in stay.what and "starts do not" in stay.what
    assert stay.remedy.startswith("more chains, each from a start of its own") and stay.longer is None
    leave = disagreement(3.0 * rng.normal(size=(8, 2)))
    assert "Halves of the chains of one start differ (R-hat up to" in leave.what and leave.longer is not None
    assert leave.remedy.startswith("run longer, thin=")
    # The starts of the chains are what tells the two.
    draws.settings["starts"] = list(range(8))
    alone = draws.summary(X).verdict().posterior
    assert "starts do not" in alone.findings[0].what and "bands are those of an ensemble of 8" in str(alone)


def test_estimators_state_it_in_the_units_of_y() -> None:
    rng = problems.rng_of("estimator")
    inputs = rng.uniform(-2, 2, (60, 1))
    y = 1000 + 100 * np.sin(inputs[:, 0]) + 10 * rng.normal(size=60)
    reg = pn.PatracRegressor(8, architecture="full", thin=20, draws=50, max_iter=200, random_state=0).fit(inputs, y)
    found = reg.rerun_error(inputs[:7])
    own = reg.draws_.rerun_error(reg.preprocessor_.transform(inputs[:7]))
    np.testing.assert_allclose(found.mean, own.mean * y.std(), rtol=1e-12)
    lower, upper = reg.predict_interval(inputs[:7], 0.9)
    np.testing.assert_allclose(np.asarray(found.width)[:, 0], upper - lower, rtol=1e-6)
    # Its chains start at networks of their own.
    assert (found.replicates, found.unit, own.unit) == (4, "networks", "starts")
    labels = np.where(y > 1000, "high", "low")
    classes = pn.PatracClassifier(8, thin=20, draws=25, max_iter=200, networks=2, random_state=0).fit(inputs, labels)
    error = classes.rerun_error(inputs[:7])
    assert error.mean.shape == (7, 2) and error.unit == "networks" and (error.mean <= 0.5).all()
