"""Likelihoods of counts: refused arguments and targets, offsets, extreme rates, and predictions."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

import patrac_native as pn
import problems
from patrac_native import diagnostics
from patrac_native.likelihoods import CountMixture

Array = np.ndarray[Any, Any]
COUNTS = [pn.Poisson(), pn.NegativeBinomial(0.4)]
ids = {"argvalues": COUNTS, "ids": repr}


def law(likelihood: pn.Likelihood, mean: Array) -> Any:
    """Return the distribution of scipy.stats with given means."""
    if isinstance(likelihood, pn.Poisson):
        return stats.poisson(mean)
    assert isinstance(likelihood, pn.NegativeBinomial)
    size = 1 / np.asarray(likelihood.dispersion)
    return stats.nbinom(size, size / (size + mean))


@pytest.mark.parametrize(
    ("dispersion", "error", "message"),
    [
        (0.0, ValueError, "dispersion must be positive and finite"),
        (np.inf, ValueError, "dispersion must be positive and finite"),
        (1e-9, ValueError, r"dispersion must be at least 1e-08.*Poisson\(\) is the limit"),
        ([1.0, -1.0], ValueError, "dispersion must be positive and finite; got -1.0 for output 1"),
        ([1.0, np.nan], ValueError, "got nan for output 1"),
        ([[1.0]], ValueError, r"dispersion must be a number or have shape \(m,\)"),
        ("much", TypeError, "dispersion"),
    ],
)
def test_bad_dispersions_are_refused(dispersion: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pn.NegativeBinomial(dispersion)


@pytest.mark.parametrize("likelihood", **ids)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 2, -1], r"y must hold counts 0, 1, 2, \.\.\. for .*; got -1 at row 2, output 0 \(1 bad"),
        ([0, 0.5, 1.5], r"got 0\.5 at row 1, output 0 \(2 bad"),
        ([0, np.nan, 1], "got nan at row 1"),
        ([np.inf, 1, 1], "got inf at row 0"),
        ([1, 2], r"y must have shape \(3,\) or \(3, 1\)"),
    ],
)
def test_bad_counts_are_refused(likelihood: pn.Likelihood, y: Any, message: str) -> None:
    net = problems.random_network(problems.rng_of("counts"), (2, 3, 1))
    for refused in (
        lambda: pn.Posterior(net, pn.Full(), problems.PRIOR, likelihood, np.ones((3, 2)), y),
        lambda: pn.train((2, 3, 1), np.ones((3, 2)), y, likelihood=likelihood),
    ):
        with pytest.raises(ValueError, match=message):
            refused()


@pytest.fixture(scope="module")
def small() -> pn.Draws:
    """Draws of two outputs of counts."""
    post = problems.problem(problems.rng_of("small"), (2, 4, 2), 9, likelihood="poisson").post
    return pn.sample(post, pn.MGrad(), chains=1, draws=5, warmup=200, seed=1, progress=False)


@pytest.mark.parametrize(
    ("offset", "error", "message"),
    [
        (np.ones(2), ValueError, r"offset must have shape \(3,\) or \(3, 2\), one row for each row of X; got \(2,\)"),
        (np.ones((3, 1)), ValueError, r"offset must have shape \(3,\) or \(3, 2\).*got \(3, 1\)"),
        ([0.0, -np.inf, 0.0], ValueError, "offset must be finite; column 0 has -inf first at row 1.*exposure"),
        (["a", "b", "c"], TypeError, "offset must hold real numbers"),
    ],
)
def test_bad_offsets_are_refused_everywhere(small: pn.Draws, offset: Any, error: type[Exception], message: str) -> None:
    X, y = np.ones((3, 2)), np.ones((3, 2))
    net, prior = small.network.net, problems.PRIOR
    post = pn.Posterior(net, pn.Full(), prior, pn.Poisson(), X, y)
    for refused in (
        lambda: pn.Posterior(net, pn.Full(), prior, pn.Poisson(), X, y, offset=offset),
        lambda: pn.train((2, 3, 2), X, y, likelihood=pn.Poisson(), offset=offset),
        lambda: small.predict(X, offset=offset),
        lambda: small.predictive(X, offset=offset),
        lambda: small.distribution(X, offset=offset),
        lambda: post.prior_predict(X, 2, offset=offset),
        lambda: post.prior_predictive(X, 2, offset=offset),
    ):
        with pytest.raises(error, match=message):
            refused()


def test_bad_inputs_are_named_before_offsets(small: pn.Draws) -> None:
    for X, message in ((5.0, r"X must have shape \(n, 2\)"), (np.ones((3, 4)), "X must have 2 columns")):
        for use in (small.predict, small.distribution, pn.DrawsMixture([small]).distribution):
            for offset in (None, np.zeros(3)):
                with pytest.raises(ValueError, match=message):
                    use(X, offset=offset)


def test_an_offset_is_refused_by_other_likelihoods() -> None:
    net, X = problems.random_network(problems.rng_of("counts"), (2, 3, 1)), np.ones((3, 2))
    for likelihood in (pn.Gaussian(1.0), pn.Bernoulli(), pn.StudentT(3.0)):
        for refused in (
            lambda given: pn.Posterior(net, pn.Full(), problems.PRIOR, given, X, np.ones(3), offset=np.zeros(3)),
            lambda given: pn.train((2, 3, 1), X, np.ones(3), likelihood=given, offset=np.zeros(3)),
        ):
            with pytest.raises(ValueError, match=r"offset must be left out: .* takes none. Poisson and NegativeBin"):
                refused(likelihood)


@pytest.mark.parametrize("likelihood", **ids)
def test_the_law_is_that_of_scipy(likelihood: Any) -> None:
    f = np.log(np.array([[1e-3], [0.7], [12.0], [3e3]]))
    mean, y = np.exp(f[:, 0]), np.array([0.0, 2.0, 9.0, 2900.0])
    expected = law(likelihood, mean)
    np.testing.assert_allclose(likelihood.variance(f)[:, 0], expected.var(), rtol=1e-12)
    np.testing.assert_allclose(likelihood.cdf(f, y[:, None])[:, 0], expected.cdf(y), rtol=1e-9)
    np.testing.assert_array_equal(likelihood.cdf(f, -1.0), 0.0)
    total = np.exp(likelihood.log_likelihood_rows(np.full((400, 1), np.log(3.0)), np.arange(400.0)[:, None])).sum()
    assert total == pytest.approx(1.0, abs=1e-12)
    assert likelihood.of_output(0) == likelihood


@pytest.mark.parametrize("likelihood", **ids)
def test_noise_is_drawn_with_the_right_distribution(likelihood: Any) -> None:
    f = np.log(np.broadcast_to([0.3, 20.0], (20_000, 2)))
    y = likelihood.sample(f, np.random.default_rng(0))
    assert y.dtype == np.int64
    for c, mean in enumerate((0.3, 20.0)):
        expected = law(likelihood, np.asarray(mean))
        edges = np.unique(expected.ppf(np.linspace(0, 1, 9)[1:-1]))
        counts = np.histogram(y[:, c], [-0.5, *(edges + 0.5), np.inf])[0]
        shares = np.diff([0.0, *expected.cdf(edges), 1.0])
        # A correct sampler fails one time in a million.
        assert stats.chisquare(counts, len(y) * shares).pvalue > 1e-6
    with warnings.catch_warnings(action="error"):  # no rate is too large to draw
        large = likelihood.sample(np.full((50, 1), 800.0), np.random.default_rng(0))
        assert (large > 2**61).all()
        assert (pn.NegativeBinomial(1e4).sample(np.full((50, 1), 800.0), np.random.default_rng(0)) >= 0).all()


def test_as_the_dispersion_vanishes_it_is_poisson() -> None:
    rng = np.random.default_rng(0)
    f, y = rng.normal(2, 1, (50, 1)), rng.poisson(8.0, (50, 1)).astype(float)
    np.testing.assert_allclose(
        pn.NegativeBinomial(1e-8).log_likelihood_rows(f, y), pn.Poisson().log_likelihood_rows(f, y), rtol=1e-5
    )


@pytest.mark.parametrize("place", ["host", "emulated:2"])
@pytest.mark.parametrize("likelihood", [*COUNTS, pn.NegativeBinomial(1e-8), pn.NegativeBinomial(50.0)], ids=repr)
def test_float32_keeps_the_digits_of_large_counts(likelihood: Any, place: str) -> None:
    """Without inputs f is the bias: l near counts of 10^6 and far from them, against float64 and exact shifts."""
    net = pn.Network([np.zeros((1, 1))], [np.zeros(1)])
    bias = pn.Custom([np.zeros((1, 1), dtype=bool)], [np.ones(1, dtype=bool)])
    y = np.array([0.0, 1.0, 40.0, 1e6])
    for count in y:
        offset = np.log(np.array([max(count, 1.0)]))
        post = pn.Posterior(net, bias, problems.PRIOR, likelihood, np.zeros((1, 1)), [count], offset=offset)
        model = post.sampled.compiled.host if place == "host" else post.sampled.compiled.on_device(place)
        for f in (-0.125, 0.0, 2.0**-10, 0.25, 3.0):
            theta = np.array([[f]], dtype=np.float32)
            value = model.log_likelihood(theta, 1) if place == "host" else model.log_likelihood(theta)
            expected = float(likelihood.log_likelihood_rows(f + offset[:, None], np.array([[count]]))[0])
            mean = max(count, 1.0) * np.exp(f)
            slope = abs(count - mean) / (1 + getattr(likelihood, "dispersion", 0.0) * mean)
            curvature = min(mean, 2 / getattr(likelihood, "dispersion", 1e-300) + count)
            # The shift is rounded (22 is its largest size), then come a few roundings of the sizes that the terms have.
            rounding = 2.0**-24 * 22
            dispersion = getattr(likelihood, "dispersion", 0.0)
            terms = (count + 1) * 20 if dispersion else count * abs(f) + mean
            bound = slope * rounding + curvature * rounding**2 + 2.0**-24 * 12 * (terms + abs(expected) + 1)
            assert abs(float(value[0]) - expected) <= bound


@pytest.mark.parametrize("likelihood", **ids)
def test_rates_beyond_the_range_are_rejected_and_counted(likelihood: Any) -> None:
    """With a prior sd of 1e4 for f, half of pCN's proposals have rates beyond float32; log odds never overflow."""
    net = pn.Network([np.zeros((1, 1))], [np.zeros(1)])
    bias = pn.Custom([np.zeros((1, 1), dtype=bool)], [np.ones(1, dtype=bool)])
    wide = pn.GaussianPrior(sigma2_w=1.0, sigma2_b=1e8)
    post = pn.Posterior(net, bias, wide, likelihood, np.zeros((2, 1)), np.array([0.0, 3.0]))
    overflows = isinstance(likelihood, pn.Poisson)
    for device in ("cpu", "emulated:2"):
        settings: dict[str, Any] = {"warmup": None, "init": np.zeros((1, 1)), "seed": 1, "device": device}
        if overflows:
            with pytest.warns(UserWarning, match="not finite"):
                draws = pn.sample(post, pn.PCN(1.0), chains=1, draws=200, **settings)
        else:
            draws = pn.sample(post, pn.PCN(1.0), chains=1, draws=200, **settings)
        assert (int(draws.stats["nonfinite"][0]) > 50) == overflows
        assert np.isfinite(draws.theta).all() and np.isfinite(draws.stats["log_likelihood"]).all()


def test_a_single_count_of_a_row_of_little_weight_has_a_rate() -> None:
    """Its weight times the count is below one, and not nothing."""
    y, weights = np.array([[0.0], [0.0], [1.0]]), np.array([1.0, 1.0, 0.5])
    expected = weights @ stats.poisson(0.5 / 2.5).logpmf(y[:, 0])
    assert pn.Poisson().best_constant(y, weights, None) == pytest.approx(expected, rel=1e-12)


def test_the_constant_under_offsets_is_the_most_likely_one() -> None:
    from scipy.optimize import minimize_scalar

    rng = np.random.default_rng(2)
    offset, weights = rng.normal(size=(30, 2)), rng.uniform(0, 2, 30)
    y = rng.negative_binomial(2, 0.3, (30, 2)).astype(float)
    y[:, 1] = 0  # no rate explains this better than zero
    for likelihood in (pn.Poisson(), pn.NegativeBinomial([0.7, 2.0])):
        first = likelihood.of_output(0)

        def loss(f: float, first: Any = first) -> float:
            return -first.weighted_log_likelihood(f + offset[:, :1], y[:, :1], weights)

        best = minimize_scalar(loss, bounds=(-3, 6), method="bounded", options={"xatol": 1e-9}).fun
        assert likelihood.constant_log_likelihood(y, weights, offset) == pytest.approx(-best, rel=1e-9)


def accidents(n: int, seed: int) -> tuple[Array, Array, Array]:
    """X, counts of mean exposure e^(1 + sin 2x) with NB2 noise of dispersion 0.3, and log exposure of 0.1 to 30."""
    rng = np.random.default_rng(seed)
    X, offset = rng.uniform(-2, 2, (n, 1)), np.log(10.0) * rng.uniform(-1, 1.5, n)
    mean = np.exp(1 + np.sin(2 * X[:, 0]) + offset)
    return X, rng.poisson(mean * 0.3 * rng.gamma(1 / 0.3, size=n)).astype(float), offset


@pytest.fixture(scope="module")
def fitted() -> pn.Draws:
    pytest.importorskip("torch")
    X, y, offset = accidents(300, 0)
    likelihood = pn.NegativeBinomial(0.3)
    net = pn.train([1, 12, 1], X, y, likelihood=likelihood, offset=offset, l2=0.1, seed=0, progress=False)
    assert net.history is not None and net.history.data_loss < net.history.constant_loss - 30
    post = pn.Posterior(net, pn.Mix(4), pn.TraceClassPrior(1.2, 1.0, 1.0), likelihood, X, y, offset=offset)
    assert post.sampled.fit_quality.network == pytest.approx(-net.history.data_loss, rel=1e-5)
    assert post.sampled.fit_quality.constant == pytest.approx(-net.history.constant_loss, rel=1e-12)
    return pn.sample(post, chains=2, draws=300, thin=5, warmup=3000, seed=1, progress=False)


def mixture_at(draws: pn.Draws, X: Array, offset: Array) -> Any:
    """Return the distribution of the counts at X by the likelihood of the draws."""
    return draws.likelihood.mixture(draws.distribution(X, offset=offset).outputs())


def test_predictions(fitted: pn.Draws) -> None:
    """Rates, means, predictive counts, intervals, PIT and scores have the offset and the law of the counts."""
    X, y, offset = accidents(400, 1)
    rate, mean, at_X = fitted.predict(X), fitted.predict(X, offset=offset), fitted.distribution(X)
    outputs = at_X.outputs().reshape(rate.shape)
    assert rate.shape == mean.shape == (2, 300, 400, 1)
    np.testing.assert_array_equal(rate, np.exp(outputs))
    # exp in float32, of a sum in float32.
    np.testing.assert_allclose(mean, rate * np.exp(offset)[:, None], rtol=2e-6)
    truth = np.exp(1 + np.sin(2 * X[:, 0]))
    assert np.median(np.abs(np.log(rate.mean(axis=(0, 1))[:, 0] / truth))) < 0.2

    noisy = fitted.predictive(X, offset=offset, seed=2)
    assert noisy.dtype == np.int64 and noisy.shape == mean.shape
    mixture = mixture_at(fitted, X, offset)
    assert isinstance(mixture, CountMixture)
    np.testing.assert_allclose(mixture.mean(), mean.mean(axis=(0, 1))[:, 0], rtol=1e-5)
    of_draws = noisy.reshape(600, 400)
    # Five standard errors of the mean of 600 counts.
    assert (np.abs(of_draws.mean(axis=0) - mixture.mean()) <= 5 * mixture.sd() / np.sqrt(600)).all()

    # At least 90%, and more by the probability of the ends; within five standard errors of what the model says.
    lower, upper = mixture.interval(0.9)
    inside = mixture.cdf(upper) - mixture.cdf(lower - 1)
    assert (inside >= 0.9 - 1e-12).all()
    covered = (lower <= y) & (y <= upper)
    assert abs(covered.mean() - inside.mean()) <= 5 * np.sqrt(0.09 / 400)
    # Quantiles of draws that are attained, beside those of the mixture: as probabilities, within five standard errors.
    drawn = diagnostics.credible_interval(noisy, 0.9, method="inverted_cdf")
    assert (drawn.lower == np.floor(drawn.lower)).all()
    assert (mixture.cdf(drawn.upper[:, 0]) >= 0.95 - 5 * np.sqrt(0.05 * 0.95 / 600)).all()

    # A count at an end counts in part, so that the probability itself is covered.
    below, upto = mixture.step(y)
    np.testing.assert_array_equal(upto, mixture.cdf(y))
    shares = mixture.inside(y, 0.9)
    assert ((0 <= shares) & (shares <= 1)).all() and (shares <= covered).all()
    ends = np.clip(np.stack([below, upto]), 0.05, 0.95)
    np.testing.assert_allclose(shares, (ends[1] - ends[0]) / (upto - below), rtol=1e-12)
    assert abs(shares.mean() - 0.9) <= 5 * np.sqrt(0.09 / 400) and shares.mean() < covered.mean()
    assert fitted.distribution(X, offset=offset).calibration(y).coverage == pytest.approx(shares.mean(), rel=1e-9)

    pit = 0.5 * (below + upto)
    # The mid-PIT has mean 1/2 and a variance below the uniform one's.
    assert abs(pit.mean() - 0.5) <= 5 * np.sqrt(1 / 12 / 400)
    randomised = diagnostics.pit(noisy, y, ties="random", seed=3)
    assert stats.kstest(randomised, "uniform").pvalue > 1e-4
    half = diagnostics.pit(noisy, y, ties="half")
    assert (np.abs(half - pit) <= 5 * np.sqrt(0.25 / 600)).all()
    assert 0 < diagnostics.crps(noisy, y) < np.abs(y - np.median(y)).mean()

    rows = fitted.distribution(X, offset=offset).nlpd(y, per_row=True)
    np.testing.assert_allclose(-mixture.log_density(y), rows, rtol=1e-5)
    assert rows.mean() < -law(fitted.likelihood, truth * np.exp(offset)).logpmf(y).mean() + 0.1
    with pytest.raises(TypeError, match="negative-binomial likelihood has no class probabilities"):
        fitted.predict_proba(X)


@pytest.mark.parametrize("probability", [1e-6, 0.025, 0.5, 0.9, 0.999])
def test_quantiles_of_mixtures_are_the_least_counts(probability: float) -> None:
    rng = np.random.default_rng(0)
    f = np.stack([rng.normal(-3, 1, 60), rng.normal(1, 0.5, 60), rng.normal(7, 0.1, 60)], axis=1)
    for weights in (None, rng.dirichlet(np.ones(60)), rng.dirichlet(np.ones(60), 3).T):
        for likelihood in COUNTS:
            mixture = CountMixture(f, likelihood, weights)
            found = mixture.quantile(probability)
            shares = np.full((60, 3), 1 / 60) if weights is None else np.broadcast_to(weights.reshape(60, -1), (60, 3))
            for c in range(3):
                below = (shares[:, c, None] * law(likelihood, np.exp(f[:, c, None])).cdf(np.arange(6000))).sum(axis=0)
                assert found[c] == np.argmax(below >= probability)


@pytest.mark.parametrize("likelihood", COUNTS, ids=repr)
def test_quantiles_are_the_least_counts_where_neighbours_differ_by_more_than_one(likelihood: Any) -> None:
    """Alone and among others, also where one draw is far from the rest and the mean far from the quantile."""
    f = np.array([[0.0, 38.0, 1.0], [1.0, 39.0, 1.0], [2.0, 40.0, 1.0], [3.0, 41.0, 1.0], [44.0, 42.0, 1.0]])

    def least(outputs: np.ndarray, probability: float) -> float:
        low, high = -1.0, 2.0**80
        while low < (middle := np.floor((low + high) / 2)) < high:
            reached = likelihood.cdf(outputs[:, None], np.full((5, 1), middle)).mean() >= probability
            low, high = (low, middle) if reached else (middle, high)
        return high

    for probability in (0.1, 0.5, 0.75, 0.9):
        expected = [least(f[:, c], probability) for c in range(3)]
        together = CountMixture(f, likelihood, None).quantile(probability)
        alone = [CountMixture(f[:, [c]], likelihood, None).quantile(probability)[0] for c in range(3)]
        # Of neighbours the distribution function is the same but for rounding.
        np.testing.assert_allclose(together, expected, rtol=1e-14)
        np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("likelihood", COUNTS, ids=repr)
def test_distribution_functions_from_tables_are_those_of_special_functions(likelihood: Any) -> None:
    """At inputs with tables of all lengths and without one, among others and alone, within the rounding of sums."""
    rng = np.random.default_rng(1)
    f = rng.normal(np.log([0.01, 0.5, 3, 40, 200, 450, 700, 1e5, 2e8]), 0.3, (50, 9))
    per_draw = np.log(np.maximum(np.exp(f).mean(axis=0), 1e-3))
    for weights in (None, rng.dirichlet(np.ones(50)), rng.dirichlet(np.ones(50), 9).T):
        mixture = CountMixture(f, likelihood, weights)
        shares = np.full((50, 9), 1 / 50) if weights is None else np.broadcast_to(weights.reshape(50, -1), (50, 9))
        for factor in (-1.0, 0.0, 0.5, 1.0, 2.0, 30.0):
            counts = np.floor(factor * np.exp(per_draw))
            expected = (shares * likelihood.cdf(f[..., None], counts[..., None])[..., 0]).sum(axis=0)
            np.testing.assert_allclose(mixture.cdf(counts), expected, rtol=1e-11, atol=1e-14)
            for c in range(9):
                own = weights if weights is None or weights.ndim == 1 else weights[:, [c]]
                assert CountMixture(f[:, [c]], likelihood, own).cdf(counts[[c]]) == mixture.cdf(counts)[c]


def test_scores_and_mixtures_of_networks_take_offsets(fitted: pn.Draws) -> None:
    X, y, offset = accidents(60, 5)
    mixture = mixture_at(fitted, X, offset)
    rows = fitted.log_likelihood_rows(X, y, offset=offset)
    np.testing.assert_allclose(rows.reshape(600, 60), mixture.log_density_by_draw(y), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        fitted.distribution(X, offset=offset).nlpd(y, per_row=True), -mixture.log_density(y), rtol=1e-6
    )
    lower, upper = fitted.interval(X, 0.9, offset=offset)
    np.testing.assert_array_equal(np.stack([lower, upper])[..., 0], np.stack(mixture.interval(0.9)))
    assert fitted.distribution(X, offset=offset).coverage(y, 0.9) == pytest.approx(mixture.inside(y, 0.9).mean())
    noisy = fitted.predictive(X, offset=offset, seed=3)
    assert fitted.distribution(X, offset=offset).crps(y, seed=3) == diagnostics.crps(noisy, y)

    # Two members with unequal weights: the mixture's means are weighted means of the members'.
    other = fitted[:, 1::2]
    both = pn.DrawsMixture([fitted[:, 1::2], other], [0.25, 0.75])
    joined, (first, second) = both.distribution(X, offset=offset), (mixture_at(one, X, offset) for one in both.members)
    np.testing.assert_allclose(joined.cdf(y)[:, 0], 0.25 * first.cdf(y) + 0.75 * second.cdf(y), rtol=1e-12)
    densities = 0.25 * np.exp(first.log_density(y)) + 0.75 * np.exp(second.log_density(y))
    np.testing.assert_allclose(joined.log_density(y), np.log(densities), rtol=1e-6)
    mean = both.predict(X, offset=offset)
    np.testing.assert_allclose(mean, both.predict(X) * np.exp(offset)[:, None], rtol=2e-6)
    noisy = both.predictive(X, offset=offset, seed=1)
    assert noisy.shape == mean.shape and noisy.dtype == np.int64
    # As in the test of one posterior; the draws are 600.
    error = np.abs(noisy.reshape(-1, 60).mean(axis=0) - joined.mean()[:, 0])
    assert (error <= 5 * joined.sd()[:, 0] / np.sqrt(600)).all()
    weighted = pn.DrawsMixture.weighted([fitted[:, 1::2], other], X, y, offset=offset, method="equal")
    assert weighted.comparison is not None and np.isfinite(weighted.comparison.elpd).all()
    with pytest.raises(ValueError, match=r"offset must have shape \(60,\) or \(60, 1\)"):
        pn.DrawsMixture.weighted([other], X, y, offset=offset[:5])


def test_the_summary_is_of_the_log_mean(fitted: pn.Draws) -> None:
    summary = fitted.summary(accidents(5, 4)[0])
    assert summary.quantity == "log mean" and summary.mean.shape == (5, 1)
    assert json.dumps(summary.verdict().to_dict())
