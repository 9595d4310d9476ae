"""Mixtures of posteriors: their predictions, weights, files, summary and verdict."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import patrac_native as pn
from patrac_native.diagnostics import leave_one_out, model_weights
from patrac_native.draws import distribution

N, GRID = 60, np.linspace(-2, 2, 7)[:, None]


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (60, 1) and noisy targets (60,)."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N, 1))
    return X, np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(N)


def posterior(seed: int, likelihood: pn.Likelihood | None = None, *, scale: float = 2.0, **more: Any) -> pn.Posterior:
    """Return a posterior of the last layer of a random network with 8 hidden nodes; larger scales bend more."""
    rng = np.random.default_rng(seed)
    likelihood = likelihood or pn.Gaussian(0.09)
    m = 3 if likelihood.targets == "class" else likelihood.outputs_per_target
    net = pn.Network(
        [scale * rng.standard_normal((8, 1)), 0.1 * rng.standard_normal((m, 8))], [rng.standard_normal(8), np.zeros(m)]
    )
    X, y = data()
    targets = np.digitize(y, [-0.3, 0.3]) if likelihood.targets == "class" else y
    prior = pn.TraceClassPrior(1.1, 2.0, 2.0)
    return pn.Posterior(net, pn.Out(8), prior, likelihood, X, targets, dtype="float64", **more)


def trained(seed: int) -> pn.Posterior:
    """Return the posterior of the last layer of a trained network."""
    X, y = data()
    net = pn.train([1, 8, 1], X, y, l2=0.1, validation_fraction=0, max_epochs=500, seed=seed, progress=False)
    return pn.Posterior(net, pn.Out(8), pn.TraceClassPrior(1.1, 2.0, 2.0), pn.Gaussian(0.09), X, y, dtype="float64")


def sampled(seed: int, likelihood: pn.Likelihood | None = None, **more: Any) -> pn.Draws:
    """Return 2 chains of 100 draws of a posterior."""
    options: dict[str, Any] = {"chains": 2, "draws": 100, "seed": seed, "progress": False, "threads": 1}
    if likelihood is not None and not likelihood.is_quadratic:
        options |= {"thin": 5, "warmup": 500}
    with warnings.catch_warnings(action="ignore"):
        return pn.sample(posterior(seed, likelihood, **more), **options)


def line(likelihood: pn.Likelihood | None = None) -> pn.Draws:
    """Return draws of a line, all of whose parameters are Bayesian."""
    X, y = data()
    likelihood = likelihood or pn.Gaussian(0.5)
    m = 3 if likelihood.targets == "class" else 1
    targets = np.digitize(y, [-0.3, 0.3]) if m == 3 else y
    net = pn.Network([np.ones((m, 1))], [np.zeros(m)])
    post = pn.Posterior(net, pn.Full(), pn.TraceClassPrior(1.1, 2.0, 2.0), likelihood, X, targets, dtype="float64")
    with warnings.catch_warnings(action="ignore"):
        return pn.sample(post, chains=2, draws=100, seed=len(repr(likelihood)), progress=False, threads=1)


LIKELIHOODS = [pn.Gaussian(0.09), pn.Gaussian("sampled"), pn.StudentT(4.0, 0.3), pn.HeteroscedasticGaussian()]


@pytest.mark.parametrize("likelihood", [*LIKELIHOODS, pn.Categorical()], ids=lambda one: repr(one)[:20])
def test_log_likelihood_rows_add_up_to_that_of_each_draw(likelihood: pn.Likelihood) -> None:
    post = posterior(1, likelihood)
    draws = sampled(1, likelihood)
    rows = draws.log_likelihood_rows(post.data.X, post.data.y)
    assert rows.shape == (2, 100, N)
    np.testing.assert_allclose(rows.sum(axis=-1), draws.stats["log_likelihood"], rtol=1e-8)


def test_blocks_of_rows_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data()
    mixture, lines = pn.DrawsMixture([sampled(1), sampled(2)], [0.7, 0.3]), [line(), line(pn.Gaussian(1.5))]

    def values() -> list[Any]:
        at_X = mixture.distribution(X)
        scores = [
            at_X.nlpd(y, per_row=True),
            at_X.inside(y, 0.5),
            at_X.left_out(y).log_density(y),
            at_X.network().mean(),
        ]
        return [*scores, *at_X.interval(), pn.DrawsMixture.weighted(lines, X, y).weights]

    before = values()
    whole = mixture.predict(X)
    monkeypatch.setattr(distribution, "_BLOCK_BYTES", 400 * 8 * 7)
    parts = [part.outputs() for _, part in mixture.distribution(X).blocks()]
    assert len(parts) > 5
    np.testing.assert_allclose(np.concatenate(parts, axis=1).reshape(whole.shape), whole, rtol=1e-12)
    np.testing.assert_allclose(mixture.predict(X), whole, rtol=1e-12)
    for one, other in zip(before, values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_predictions_hold_members_in_proportion_to_their_weights() -> None:
    members = [sampled(1), sampled(2)]
    mixture = pn.DrawsMixture(members, [3.0, 1.0])
    np.testing.assert_array_equal(mixture.weights, [0.75, 0.25])
    f = mixture.predict(GRID)
    assert f.shape == (4, 100, 7, 1)
    counts = [int(np.isin(f[..., 0, 0], draws.predict(GRID)[..., 0, 0]).sum()) for draws in members]
    assert counts == [300, 100]
    # All 200 draws of the first member appear, half of them twice; half of those of the second.
    assert len(np.unique(f[..., 0, 0])) == 300
    noisy = mixture.predictive(GRID, seed=1)
    assert noisy.shape == f.shape
    residuals = noisy - f
    # 2,800 draws of noise with variance 0.09: their mean square has a relative standard error of sqrt(2 / 2800).
    assert (residuals**2).mean() == pytest.approx(0.09, rel=4 * np.sqrt(2 / 2800))
    np.testing.assert_array_equal(noisy, mixture.predictive(GRID, seed=1))
    assert (noisy != mixture.predictive(GRID, seed=2)).all()


def test_a_mixture_of_one_member_is_as_that_member() -> None:
    """What is read from a member is not that of a second one, and shares of one are all of its draws."""
    member = sampled(1)
    alone = pn.DrawsMixture([member])
    assert (alone.n_chains, alone.n_draws, alone.likelihood) == (2, 100, member.likelihood)
    np.testing.assert_array_equal(alone.predict(GRID), member.predict(GRID))


def test_noise_of_each_member_is_its_own() -> None:
    members = [sampled(1, pn.Gaussian(0.01)), sampled(2, pn.Gaussian(1.0))]
    mixture = pn.DrawsMixture(members)
    residuals = (mixture.predictive(GRID, seed=3) - mixture.predict(GRID)).reshape(2, -1)
    # 1,400 draws each: the relative standard error of their mean square is sqrt(2 / 1400).
    np.testing.assert_allclose((residuals**2).mean(axis=1), [0.01, 1.0], rtol=4 * np.sqrt(2 / 1400))
    drawn = [sampled(seed, pn.Gaussian("sampled")) for seed in (1, 2)]
    variance = np.concatenate([draws.stats["variance"].reshape(2, 100, -1) for draws in drawn])
    together = pn.DrawsMixture(drawn)
    squares = ((together.predictive(GRID, seed=4) - together.predict(GRID)) ** 2 / variance[..., None]).mean()
    assert squares == pytest.approx(1.0, abs=4 * np.sqrt(2 / 2800))


def test_classes_are_mixed() -> None:
    X, y = data()
    labels = np.digitize(y, [-0.3, 0.3])
    members = [sampled(seed, pn.Categorical()) for seed in (1, 2)]
    mixture = pn.DrawsMixture.weighted(members, X, labels, row_weights=np.zeros(N))
    assert pn.DrawsMixture.weighted([line(pn.Categorical())], X, labels).weights == 1
    p = mixture.predict_proba(X)
    assert p.shape == (4, 100, N, 3)
    np.testing.assert_allclose(p.sum(axis=-1), 1)
    assert mixture.predictive(X, seed=1).shape == (4, 100, N)
    with pytest.raises(TypeError, match="must be one of real numbers"):
        mixture.interval(X)
    assert mixture.summary(GRID).quantity == "class probabilities"


def test_weighted_members_are_compared_by_leave_one_out() -> None:
    X, y = data()
    good, poor = line(), line(pn.Gaussian(50.0))
    for method in ("stacking", "pseudo-bma+"):
        mixture = pn.DrawsMixture.weighted([poor, good], X, y, method=method)  # type: ignore[arg-type]
        assert mixture.weights.sum() == pytest.approx(1) and (mixture.weights >= 0).all()
        assert mixture.weights[1] > 0.9
        comparison = mixture.comparison
        assert comparison is not None and comparison.method == method and comparison.rows == N
        rows = [draws.log_likelihood_rows(X, y) for draws in (poor, good)]
        np.testing.assert_allclose(comparison.elpd, [leave_one_out(of_one).elpd for of_one in rows], rtol=1e-10)
        assert comparison.unreliable == tuple(leave_one_out(of_one).unreliable for of_one in rows)
    equal = pn.DrawsMixture.weighted([poor, good], X, y, method="equal")
    np.testing.assert_array_equal(equal.weights, [0.5, 0.5])
    np.testing.assert_allclose(pn.DrawsMixture.weighted([good, good], X, y).weights, [0.5, 0.5], atol=1e-6)


def test_unreliable_leave_one_out_predictions_are_said() -> None:
    X, y = data()
    # Hardly any noise: single rows decide where the draws lie.
    members = [line(pn.Gaussian(variance)) for variance in (1e-6, 2e-6)]
    with pytest.warns(
        UserWarning, match=r"predictions of up to \d+ of 60 rows are unreliable.*Use equal weights"
    ) as raised:
        mixture = pn.DrawsMixture.weighted(members, X, y)
    assert [warning.filename for warning in raised] == [__file__]
    assert mixture.comparison is not None and max(mixture.comparison.unreliable) > 3
    with warnings.catch_warnings(action="error"):
        pn.DrawsMixture.weighted(members, X, y, method="equal")


def stacked(density: np.ndarray) -> np.ndarray:
    """Return the weights that maximise the log score of a mixture, by the EM algorithm; density (models, n)."""
    weights = np.full(len(density), 1 / len(density))
    for _ in range(20_000):
        weights = weights * (density / (weights @ density)).mean(axis=1)
    return weights


@pytest.mark.parametrize("shift", [0.0, 2000.0, -2000.0])
def test_stacking_maximises_the_log_score(shift: float) -> None:
    rng = np.random.default_rng(3)
    elpd = rng.normal(size=(4, 300)) + np.array([0.0, -0.1, -0.2, -1.0])[:, None]
    weights = model_weights(elpd + shift)
    assert weights.sum() == pytest.approx(1) and (weights >= 0).all()
    best = stacked(np.exp(elpd))
    score = [np.log(of @ np.exp(elpd)).mean() for of in (weights, best)]
    # The optimiser stops at a change of the score of 1e-12; the score is flat at its maximum.
    assert score[0] == pytest.approx(score[1], abs=1e-9)
    np.testing.assert_allclose(weights, best, atol=1e-3)


def test_pseudo_bma_averages_over_bootstrap_samples() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=50)
    np.testing.assert_allclose(model_weights([rows, rows], "pseudo-bma+"), 0.5)
    weights = model_weights([rows, rows + 1.0], "pseudo-bma+")
    np.testing.assert_allclose(weights, [0, 1], atol=1e-9)
    noisy = model_weights([rows, rows + rng.normal(size=50)], "pseudo-bma+")
    assert 0.01 < noisy.min() and noisy.sum() == pytest.approx(1)


@pytest.mark.parametrize("count", [1, 2, 15])
def test_any_number_of_models_is_weighted_without_warnings(count: int) -> None:
    rows = np.random.default_rng(1).normal(size=(count, 40))
    with warnings.catch_warnings(action="error"):
        for method in ("stacking", "pseudo-bma+", "equal"):
            weights = model_weights(rows, method)  # type: ignore[arg-type]
            assert weights.shape == (count,) and weights.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("rows", "method", "message"),
    [
        (np.zeros(3), "stacking", r"must have shape \(models, n\).*got \(3,\)"),
        (np.zeros((0, 3)), "stacking", r"got \(0, 3\)"),
        ([[0.0, -np.inf], [0.0, 0.0]], "stacking", "must be finite"),
        (np.zeros((2, 3)), "best", "method must be .*got 'best'"),
    ],
)
def test_wrong_densities_are_refused(rows: Any, method: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model_weights(rows, method)


def test_files(tmp_path: Path) -> None:
    X, y = data()
    mixture = pn.DrawsMixture.weighted(
        [sampled(seed, pn.Gaussian("sampled")) for seed in (1, 2)], X, y, row_weights=np.zeros(N)
    )
    path = tmp_path / "mixture.npz"
    mixture.save(path)
    again = pn.DrawsMixture.load(path)
    np.testing.assert_array_equal(again.weights, mixture.weights)
    assert again.comparison == mixture.comparison
    np.testing.assert_array_equal(again.predict(GRID), mixture.predict(GRID))
    np.testing.assert_array_equal(again.predictive(GRID, seed=2), mixture.predictive(GRID, seed=2))
    np.testing.assert_array_equal(again.interval(GRID), mixture.interval(GRID))
    assert again.members[1].settings["seed"] == 2
    np.testing.assert_array_equal(again.members[1].theta, mixture.members[1].theta)
    with pytest.raises(FileExistsError):
        mixture.save(path)
    mixture.save(path, overwrite=True)
    with pytest.raises(ValueError, match="holds mixture of draws, not draws"):
        pn.Draws.load(path)
    alone = tmp_path / "draws.npz"
    mixture.members[0].save(alone)
    with pytest.raises(ValueError, match="holds draws, not mixture of draws"):
        pn.DrawsMixture.load(alone)
    stream = io.BytesIO()
    mixture.save(stream)
    stream.seek(0)
    np.testing.assert_array_equal(pn.DrawsMixture.load(stream).predict(GRID), mixture.predict(GRID))
    equal = pn.DrawsMixture(mixture.members)
    equal.save(path, overwrite=True)
    assert pn.DrawsMixture.load(path).comparison is None


def test_summary_mixes_members_and_judges_each() -> None:
    members = [sampled(1), sampled(2), sampled(3)]
    weights = np.array([0.5, 0.5, 0.0])
    summary = pn.DrawsMixture(members, weights).summary(GRID, coverage=0.9)
    means = np.stack([draws.predict(GRID).mean(axis=(0, 1)) for draws in members[:2]])
    both = np.concatenate([draws.predict(GRID) for draws in members[:2]]).reshape(-1, 7, 1)
    np.testing.assert_allclose(summary.mean, means.mean(axis=0))
    np.testing.assert_allclose(summary.sd, both.std(axis=0))
    np.testing.assert_allclose(summary.sd_between, means.std(axis=0))
    assert (summary.lower < summary.mean).all() and (summary.mean < summary.upper).all()
    own = [draws.summary(GRID).verdict() for draws in members]
    verdict = summary.verdict()
    assert [one.grade for one in own[:2]] == ["look", "look"]
    assert verdict.grade == "look"
    # One kind of finding in both members is one finding, with the numbers of the first.
    kinds = ("poor network", "undertrained network", "few draws")
    expected = [f"all 2 members (here member 1): {one.what}" for one in own[0].findings if one.kind in kinds]
    assert [one.what for one in verdict.findings if one.kind in kinds] == expected and len(expected) == 2
    text = str(summary)
    assert (
        "mixture of 3 posteriors: Out(8)" in text
        and "member 3: weight 0.000" in text
        and "posterior of f: look" in text
    )


def test_calibration_of_a_mixture_is_beside_the_ensemble_of_its_networks() -> None:
    X, y = data()
    members = [sampled(seed, pn.Gaussian("sampled")) for seed in (1, 2)]
    mixture = pn.DrawsMixture(members, [0.25, 0.75])
    found = mixture.distribution(X).calibration(y)
    assert found.nlpd == pytest.approx(mixture.distribution(X).nlpd(y)) and found.rows == N
    assert found.coverage == mixture.distribution(X).coverage(y, 0.9)
    densities = [np.exp(-member.distribution(X).network().nlpd(y, per_row=True)) for member in members]
    expected = -np.log(0.25 * densities[0] + 0.75 * densities[1])
    np.testing.assert_allclose(mixture.distribution(X).network().nlpd(y, per_row=True), expected, rtol=1e-12)
    # By hand: the variance is the posterior mean, because these networks have no validation rows.
    variance = members[0].stats["variance"].mean()
    residual = members[0].network.net.predict(X)[:, 0] - y
    normal = 0.5 * (np.log(2 * np.pi * variance) + residual**2 / variance)
    np.testing.assert_allclose(members[0].distribution(X).network().nlpd(y, per_row=True), normal, rtol=1e-12)
    assert mixture.summary(X, y).members[0].evidence.calibration == found


def test_members_that_disagree_are_no_finding_but_a_bad_member_is() -> None:
    members = [pn.sample(trained(seed), chains=4, draws=500, seed=seed, progress=False) for seed in (1, 2)]
    mixture = pn.DrawsMixture(members)
    verdict = mixture.summary(GRID).verdict()
    assert verdict.grade == "good"
    assert "Within the 2 members, R-hat is at most 1.0" in str(verdict)
    stuck = pn.sample(trained(2), pn.MGrad(), chains=4, draws=500, warmup=500, seed=2, progress=False)
    stuck.theta[0] = stuck.theta[0, 0] + 100.0
    verdict = pn.DrawsMixture([members[0], stuck]).summary(GRID).verdict()
    assert verdict.grade == "do not use"
    assert all(finding.what.startswith("member 2: ") for finding in verdict.posterior.findings)
    assert [finding.kind for finding in verdict.predictions.findings] == ["unscored predictions"]
    # With hardly any weight it does not count, and there is one network only.
    verdict = pn.DrawsMixture([members[0], stuck], [1.0, 0.001]).summary(GRID).verdict()
    assert verdict.posterior.grade == "good"
    assert "how far a rerun would move predictions is not known" in verdict.predictions.findings[0].what


def test_thinning_and_the_first_draws_keep_weights() -> None:
    mixture = pn.DrawsMixture([sampled(1), sampled(2)], [0.25, 0.75])
    thin, first = mixture[:, 9::10], mixture[:, :10]
    assert thin.n_draws == first.n_draws == 10 and thin.n_chains == first.n_chains == 4 and len(thin.members) == 2
    np.testing.assert_array_equal(thin.weights, mixture.weights)
    np.testing.assert_array_equal(thin.members[0].theta, mixture.members[0].theta[:, 9::10])
    np.testing.assert_array_equal(first.weights, mixture.weights)
    np.testing.assert_array_equal(first.members[1].theta, mixture.members[1].theta[:, :10])
    assert repr(thin).startswith("DrawsMixture(2 members, weights=[0.25, 0.75], of Draws(Out(8)")


def other(seed: int) -> Sequence[pn.Draws]:
    """Return draws that do not belong to those of `sampled`."""
    X = np.random.default_rng(0).standard_normal((20, 2))
    net = pn.Network([np.ones((4, 2)), np.ones((1, 4))], [np.zeros(4), np.zeros(1)])
    post = pn.Posterior(net, pn.Out(4), pn.TraceClassPrior(1.1, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
    return [pn.sample(post, chains=2, draws=100, seed=seed, progress=False)]


@pytest.mark.parametrize(
    ("members", "weights", "message"),
    [
        (lambda one: [], None, "members must hold at least one Draws"),
        (lambda one: [one, one[:, 1::2]], None, r"members\[1\] has 50, the first 100"),
        (lambda one: [one, *other(1)], None, r"members\[1\] has 2 and 1, the first 1 and 1"),
        (lambda one: [one, sampled(2, pn.StudentT(4.0))], None, r"one kind of likelihood; members\[1\]"),
        (lambda one: [one, one], [1.0], r"weights must have shape \(2,\).*got \(1,\)"),
        (lambda one: [one, one], [1.0, -1.0], "weights must be finite and nonnegative"),
        (lambda one: [one, one], [0.0, 0.0], "with a positive sum"),
        (lambda one: [one, one], [np.nan, 1.0], "weights must be finite"),
    ],
)
def test_wrong_members_and_weights_are_refused(members: Any, weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pn.DrawsMixture(members(sampled(1)), weights)
    with pytest.raises(TypeError, match=r"members\[1\] must be Draws.*got str"):
        pn.DrawsMixture([sampled(1), "draws.npz"])  # type: ignore[list-item]


def test_wrong_rows_are_refused() -> None:
    X, y = data()
    members = [sampled(1), sampled(2)]
    with pytest.raises(ValueError, match=r"row_weights must be .* of shape \(60,\) or \(2, 60\); got shape \(3,\)"):
        pn.DrawsMixture.weighted(members, X, y, row_weights=np.ones(3))
    with pytest.raises(ValueError, match="y must have shape"):
        pn.DrawsMixture.weighted(members, X, y[:-1])
    with pytest.raises(ValueError, match="coverage must be between 0 and 1; got 1"):
        members[0].interval(X, 1.0)
