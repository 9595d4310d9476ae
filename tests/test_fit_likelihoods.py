"""The likelihoods of a fit: the dispersion of counts, and every candidate under every likelihood."""

import numpy as np
import pytest

import patrac_native as pn
from fits import quietly
from patrac_native.fit.budget import steps_within
from patrac_native.fit.candidates import fewer_parameters, possible_candidates
from patrac_native.fit.evaluation import evaluate
from patrac_native.fit.noise import most_likely_dispersion
from patrac_native.fit.rows import Rows, TargetScaling
from patrac_native.fit.settings import LIKELIHOODS, Settings


def test_the_most_likely_dispersion_is_found() -> None:
    """Its standard error is 1 / sqrt(information), about sqrt(2) dispersion / sqrt(rows) where means are large."""
    rng = np.random.default_rng(1)
    f = rng.uniform(2, 5, size=(2000, 1))
    rates = np.exp(f) * rng.gamma(1 / 0.3, 0.3, size=f.shape)
    ones = np.ones(len(f))
    error = 0.3 * np.sqrt(2 / 2000) * 1.5
    assert most_likely_dispersion(f, rng.poisson(rates), ones) == pytest.approx(0.3, abs=5 * error)
    assert most_likely_dispersion(f, rng.poisson(np.exp(f)), ones) < 0.01
    # Counts that do not vary at all.
    assert most_likely_dispersion(f, np.round(np.exp(f)), ones) == 1e-4


def test_every_candidate_takes_every_likelihood() -> None:
    """The choice is the same for all numbers: each posterior can be built, and the budget counts its steps."""
    rng = np.random.default_rng(0)
    X, chosen = rng.normal(size=(40, 3)), Settings(hidden_layer_sizes=(8, 8), minutes=2.0)
    for name in LIKELIHOODS:
        (likelihood,) = Settings(likelihood=name, noise_variance=None).likelihoods(dispersion=0.5)
        y = rng.normal(size=40) if likelihood.targets == "real" else rng.poisson(2.0, 40).astype(float)
        likelihood = likelihood.with_prior_guess([1.0]).for_training_targets(y[:, None])
        if likelihood.numbers_per_target > 1:
            y = np.repeat(y[:, None], likelihood.numbers_per_target, axis=1)
        found = possible_candidates(chosen, [likelihood])
        expected = [("Full", "gaussian", 1), ("Full", "trace-class", 1), ("Mix(5)", "trace-class", 4)]
        if likelihood.has_classes:
            expected = [("Out(8)", "gaussian", 8), ("Full", "gaussian", 1)]
        assert [(one.architecture.label(), one.prior, one.networks) for one in found] == expected
        m = likelihood.outputs_per_target
        nets = [
            pn.Network(
                [rng.normal(size=(8, 3)), rng.normal(size=(8, 8)), rng.normal(size=(m, 8))],
                [rng.normal(size=8), rng.normal(size=8), np.zeros(m)],
            )
        ]
        for one in [*found, *fewer_parameters(found[0], chosen, trained=4)]:
            (post,) = one.posteriors(nets, Rows(X, y), chosen)
            variance = {"variance": 1.0} if likelihood.is_sampled else {}
            assert np.isfinite(post.log_likelihood(post.theta_map, **variance))
            assert steps_within(1.0, post, one.n_chains) > 1000


@pytest.mark.parametrize("likelihood", ["poisson", "negative-binomial"])
def test_counts_have_one_coverage_in_table_verdict_and_draws(likelihood: str) -> None:
    """Small counts, whose intervals cover far more than their probability: a count at an end counts in part."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 1))
    y = rng.poisson(np.exp(0.3 * X[:, 0]))
    size: dict[str, object] = {"hidden_layer_sizes": 4, "max_iter": 60, "l2": 1.0, "chains": 2, "draws": 40, "thin": 5}
    given: dict[str, object] = {} if likelihood == "poisson" else {"dispersion": 0.5}
    reg = pn.PatracRegressor(likelihood=likelihood, architecture="full", random_state=0, **size, **given)
    quietly(reg, X[:40], y[:40])
    found = reg.evaluate(X[40:], y[40:])
    inputs = reg.preprocessor_.transform(reg._checked_rows(X[40:], reset=False))
    distribution = reg.draws_.distribution(inputs)
    judged = reg.draws_.summary(inputs, y[40:]).evidence.calibration
    for coverage in (judged.coverage, found.calibration.coverage, distribution.coverage(y[40:], 0.9)):
        assert coverage == pytest.approx(found.scores["coverage"]["0.9"], rel=1e-12)
    for level, coverage in found.scores["coverage"].items():
        assert distribution.coverage(y[40:], float(level)) == pytest.approx(coverage, rel=1e-12)
    lower, upper = reg.predict_interval(X[40:], 0.9)
    assert np.mean((lower <= y[40:]) & (y[40:] <= upper)) > found.scores["coverage"]["0.9"]


def test_censored_rows_count_in_coverage_by_what_is_known() -> None:
    """Under the truth, coverage has its name's expectation however many rows are censored; what is decided has not."""
    rng = np.random.default_rng(0)
    n = 40_000
    net = pn.Network([[[0.0]], [[0.0]]], [[0.0], [0.0]])
    for sd, expected in ((1.0, 0.9), (0.7, None)):
        likelihood = pn.CensoredGaussian(sd**2)
        post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), likelihood, [[0.0]], [[0.0, 0.0]])
        draws = pn.Draws.from_array(post, np.zeros((1, 4, post.dim)), sampler="none")
        t, end = rng.normal(size=n), rng.normal(0.3, 1, n)
        bounds = np.stack([np.minimum(t, end), np.where(t < end, t, np.inf)], axis=1)
        found = evaluate(draws, TargetScaling.identity(), Rows(np.zeros((n, 1)), bounds), nets=[net])
        covered, (inside, not_outside) = found.scores["coverage"]["0.9"], found.scores["coverage_decided"]
        truth = np.mean(np.abs(t) < 1.6449 * sd)
        error = 4 * np.sqrt(0.09 / n)
        assert inside < truth < not_outside and found.scores["censored"] == (t >= end).sum()
        if expected is not None:
            assert abs(covered - expected) < error and abs(truth - expected) < error
        else:  # too narrow: the censored rows hide some of it
            assert truth + error < covered < 0.9 - error
        assert found.scores["concordance"] == 0.5  # equal predictions
