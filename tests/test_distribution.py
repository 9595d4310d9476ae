"""Predictive distributions: each number against sums over draws, for one posterior and for mixtures."""

from __future__ import annotations

import copy
import functools
import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

import patrac_native as pn
import problems
from patrac_native.diagnostics import class_nlpd, crps, entropy_decomposition, leave_one_out, nlpd
from patrac_native.likelihoods.real import PredictiveMixture, standard_normal

LIKELIHOODS = {
    "gaussian": (pn.Gaussian([0.2, 0.5]), 2),
    "sampled": (pn.Gaussian("sampled", a=2.0, b=0.2), 2),
    "heteroscedastic": (pn.HeteroscedasticGaussian(), 2),
    "poisson": (pn.Poisson(), 1),
    "categorical": (pn.Categorical(), 3),
}
NUMBERS = [name for name in LIKELIHOODS if name != "categorical"]
N = 12


def rows(name: str) -> tuple[Any, Any]:
    rng = problems.rng_of("distribution", name)
    X = rng.normal(size=(N, 2))
    if name == "poisson":
        return X, rng.poisson(2.0, N)
    if name == "categorical":
        return X, rng.integers(0, 3, N)
    return X, rng.normal(size=N if name == "heteroscedastic" else (N, 2))


@cache
def draws_of(name: str, seed: int) -> pn.Draws:
    likelihood, m = LIKELIHOODS[name]
    net = problems.random_network(problems.rng_of("distribution", seed), (2, 5, m))
    post = pn.Posterior(net, pn.Mix(3), problems.PRIOR, likelihood, *rows(name))
    return pn.sample(post, chains=2, draws=40, thin=5, warmup=500, seed=seed, progress=False)


def both(name: str) -> list[tuple[Any, Any]]:
    """Draws and a mixture with unequal weights, each with the weights of its draws (M,)."""
    one, other = draws_of(name, 1), draws_of(name, 2)
    return [
        (one, np.full(80, 1 / 80)),
        (pn.DrawsMixture([one, other], [0.3, 0.7]), np.repeat([0.3 / 80, 0.7 / 80], 80)),
    ]


def laws(of: Any, name: str, X: Any) -> Any:
    """The distribution of scipy.stats of each target in each draw of each member, parameters (M, n, t)."""
    members = of.members if isinstance(of, pn.DrawsMixture) else (of,)
    f = np.concatenate([one.distribution(X).outputs() for one in members]).astype(float)
    if name == "poisson":
        return stats.poisson(np.exp(f))
    if name == "heteroscedastic":
        return stats.norm(f[..., :1], np.exp(0.5 * f[..., 1:]))
    if name == "gaussian":
        return stats.norm(f, np.sqrt([0.2, 0.5]))
    return stats.norm(f, np.sqrt(np.concatenate([one.stats["variance"].reshape(80, 1, 2) for one in members])))


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_sums_over_weighted_draws(name: str) -> None:
    X, y = rows(name)
    for of, weights in both(name):
        at_X, law = of.distribution(X), laws(of, name, X)
        targets = np.asarray(y, dtype=float).reshape(N, -1)

        def average(values: Any, weights: Any = weights) -> Any:
            return np.einsum("i,int->nt", weights, values)

        mean, noise = average(law.mean()), average(law.var())
        spread = average((law.mean() - mean) ** 2)
        found = [at_X.mean(), at_X.sd_f(), at_X.noise_variance(), at_X.sd(), at_X.cdf(y)]
        expected = [mean, np.sqrt(spread), noise, np.sqrt(spread + noise), average(law.cdf(targets))]
        for ours, theirs in zip(found, expected, strict=True):
            # Outputs are float32, sums of a dozen terms.
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
        density = law.pmf(targets) if name == "poisson" else law.pdf(targets)
        np.testing.assert_allclose(at_X.nlpd(y, per_row=True), -np.log(weights @ density.prod(axis=2)), rtol=1e-5)
        by_draw = at_X.log_density_by_draw(y)
        np.testing.assert_allclose(by_draw, np.log(density).sum(axis=2), rtol=1e-4, atol=1e-5)
        lower, upper = at_X.interval(0.8)
        np.testing.assert_allclose(at_X.quantiles([0.1, 0.9]), np.stack([lower, upper], axis=-1), rtol=1e-9)
        if isinstance(of, pn.Draws):
            np.testing.assert_array_equal(of.quantiles(X, 0.5), of.quantiles(X, np.array([0.1, 0.5]))[..., 1:])
        inside = (lower <= targets) & (targets <= upper)
        if name == "poisson":  # a count at an end counts in part
            steps = np.stack([average(law.cdf(targets - one)) for one in (1, 0)])
            held = np.diff(np.clip(steps, 0.1, 0.9), axis=0)[0] / np.diff(steps, axis=0)[0]
            assert (held <= inside).all() and held.mean() < inside.mean()
            inside = held
        assert at_X.coverage(y, 0.8) == pytest.approx(inside.mean(), rel=1e-4)
        weight = np.arange(1.0, N + 1)
        assert at_X.coverage(y, 0.8, sample_weight=weight) == pytest.approx(
            (weight @ inside / weight.sum()).mean(), rel=1e-4
        )
        noisy = at_X.sample(3)
        np.testing.assert_array_equal(
            noisy.reshape(of.n_chains, of.n_draws, *noisy.shape[1:]), of.predictive(X, seed=3)
        )
        of_rows = at_X.nlpd(y, per_row=True), at_X.crps(y, seed=3, per_row=True)
        np.testing.assert_allclose(of_rows[1], crps(noisy[None], targets, per_row=True))
        for values, score in zip(of_rows, (at_X.nlpd, functools.partial(at_X.crps, seed=3)), strict=True):
            assert score(y) == pytest.approx(values.mean(), rel=1e-12)
            expected = (weight @ values / weight.sum()).mean()
            assert score(y, sample_weight=weight) == pytest.approx(expected, rel=1e-12)
        step = average(law.cdf(targets) - law.cdf(targets - 1)) if name == "poisson" else 0.0
        ties = np.random.default_rng(0).uniform(size=targets.shape)
        np.testing.assert_allclose(at_X.pit(y, ties=ties), average(law.cdf(targets)) - (1 - ties) * step, rtol=2e-5)
        several = at_X.inside(y, [0.5, 0.8])
        np.testing.assert_array_equal(several, np.stack([at_X.inside(y, 0.5), at_X.inside(y, 0.8)], axis=-1))
        with pytest.raises(ValueError, match=r"coverage\[1\] must be"):
            at_X.inside(y, [0.5, 1.0])
        with pytest.raises(TypeError, match="has no class probabilities"):
            at_X.probabilities()


def test_classes_are_weighted_means_of_probabilities() -> None:
    X, y = rows("categorical")
    for of, weights in both("categorical"):
        at_X = of.distribution(X)
        members = of.members if isinstance(of, pn.DrawsMixture) else (of,)
        p = np.concatenate([one.predict_proba(X).reshape(80, N, 3) for one in members])
        np.testing.assert_allclose(at_X.probabilities(), np.einsum("i,inc->nc", weights, p), rtol=1e-12)
        np.testing.assert_allclose(
            at_X.nlpd(y, per_row=True), -np.log(at_X.probabilities()[np.arange(N), y]), rtol=1e-6
        )
        np.testing.assert_array_equal(at_X.entropy().total, entropy_decomposition(of.predict_proba(X)).total)
        for refused in (at_X.mean, at_X.quantiles, lambda at_X=at_X: at_X.crps(y), lambda at_X=at_X: at_X.pit(y)):
            with pytest.raises(TypeError, match="Categorical"):
                refused()


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_left_out_rows_are_predicted_by_reweighted_draws(name: str) -> None:
    X, y = rows(name)
    power = np.linspace(0.5, 1.5, N)
    for of, weights in both(name):
        without = of.distribution(X).left_out(y, row_weights=power)
        by_draw, shares = of.distribution(X).log_density_by_draw(y), []
        for first in range(0, len(weights), 80):
            own = leave_one_out((by_draw[first : first + 80] * power)[None])
            shares.append(80 * weights[first] * own.weights)
        share = np.concatenate(shares)
        np.testing.assert_allclose(without.log_density(y), np.log((share * np.exp(by_draw)).sum(axis=0)), rtol=1e-9)
        if name == "categorical":
            p = np.exp([of.distribution(X).log_density_by_draw(np.full(N, label)) for label in range(3)])
            np.testing.assert_allclose(without.probabilities(), np.einsum("in,cin->nc", share, p), rtol=1e-6)
        else:
            expected = np.einsum("in,int->nt", share, laws(of, name, X).mean())
            np.testing.assert_allclose(without.mean(), expected, rtol=2e-5, atol=1e-6)
        assert without.khat.shape == without.is_unreliable.shape == (N,)
        assert without.calibration(y).kind == "leave one out" and without.sample().shape[1] == N


@pytest.mark.parametrize("name", ["sampled", "categorical"])
def test_copies_and_pickles_predict_the_same(name: str) -> None:
    X, y = rows(name)
    for of, _ in both(name):
        at_X = of.distribution(X)
        for one in (at_X, at_X.network(), at_X.left_out(y)):
            for other in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
                np.testing.assert_array_equal(other.log_density(y), one.log_density(y))
                np.testing.assert_array_equal(other.sample(seed=3), one.sample(seed=3))


def test_the_network_alone_is_a_distribution_too() -> None:
    X, y = rows("gaussian")
    one, other = draws_of("gaussian", 1), draws_of("gaussian", 2)
    nets = [draws.network.net for draws in (one, other)]
    np.testing.assert_allclose(one.distribution(X).network().mean(), nets[0].predict(X), rtol=1e-12)
    together = pn.DrawsMixture([one, other], [0.3, 0.7]).distribution(X)
    mean = 0.3 * nets[0].predict(X) + 0.7 * nets[1].predict(X)
    np.testing.assert_allclose(together.network().mean(), mean, rtol=1e-12)
    equal = one.distribution(X).network(nets)
    np.testing.assert_allclose(equal.mean(), 0.5 * (nets[0].predict(X) + nets[1].predict(X)), rtol=1e-12)
    found = together.calibration(y)
    assert found.nlpd_network == pytest.approx(together.network().nlpd(y)) and found.kind == "held out"


def test_public_members_are_few() -> None:
    """A reader of the class meets at most 24."""
    public = {name for name in dir(draws_of("gaussian", 1)) if not name.startswith("_")}
    assert len(public) <= 24, sorted(public)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_bits_of_a_row_do_not_depend_on_the_other_rows(name: str) -> None:
    """NumPy adds a single column over draws in another order than several; `crps` and `sample` draw noise by rows."""
    X, y = rows(name)
    is_class = name == "categorical"
    of_X = ["probabilities", "entropy"] if is_class else ["mean", "sd", "sd_f", "noise_variance", "quantiles"]
    of_y = ["log_density"] if is_class else ["log_density", "cdf", "pit", "inside"]

    def values(of: Any, some: slice) -> dict[str, Any]:
        at, seen = of.distribution(X[some]), y[some]
        left_out, found = at.left_out(seen), {}
        for kind, one in (("", at), ("left out: ", left_out)):
            found |= {kind + what: getattr(one, what)() for what in of_X}
            found |= {kind + what: getattr(one, what)(seen) for what in of_y}
        if not is_class:
            error = of.rerun_error(X[some])
            found |= {f"rerun: {what}": getattr(error, what) for what in ("mean", "lower", "upper", "band_lower")}
        return {what: np.stack(value, axis=-1) if isinstance(value, tuple) else value for what, value in found.items()}

    for of, _ in both(name):
        whole = values(of, slice(None))
        for row in range(N):
            for what, value in values(of, slice(row, row + 1)).items():
                np.testing.assert_array_equal(value, whole[what][row : row + 1], err_msg=what)


def test_scores_of_a_row_from_arrays_do_not_depend_on_the_other_rows() -> None:
    rng = problems.rng_of("distribution", "arrays")
    f, y, labels = rng.normal(size=(2, 67, N, 1)), rng.normal(size=N), rng.integers(0, 3, N)
    p = rng.dirichlet([1, 2, 3], size=(2, 67, N))

    def scores(some: slice) -> Any:
        at, seen = f[:, :, some], y[some]
        left_out = leave_one_out(at[..., 0])
        return [
            nlpd(at, seen, 0.3, per_row=True),
            crps(at, seen, per_row=True),
            class_nlpd(p[:, :, some], labels[some], per_row=True),
            left_out.elpd_rows,
            left_out.weights.T,
        ]

    whole = scores(slice(None))
    for row in range(N):
        for one, other in zip(scores(slice(row, row + 1)), whole, strict=True):
            np.testing.assert_array_equal(one, other[row : row + 1])


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_slices_of_rows_on_threads_change_no_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(name)
    is_class = name == "categorical"
    methods = ["probabilities"] if is_class else ["mean", "sd", "quantiles"]
    for of, _ in both(name):
        found = []
        for numbers, threads in ((2**17, 1), (of.distribution(X).n_draws * 5, 3)):  # slices of 5, 5 and 2 rows
            monkeypatch.setattr("patrac_native.draws.distribution._SLICE_NUMBERS", numbers)
            at = of.distribution(X, threads=threads)
            assert [rows.stop for rows, _ in at._slices] == ([5, 10, 12] if threads > 1 else [])
            values = {what: getattr(at, what)() for what in methods}
            values |= {"log_density": at.log_density(y), "left out": at.left_out(y).nlpd(y, per_row=True)}
            values |= {} if is_class else {"cdf": at.cdf(y), "inside": at.inside(y), "crps": at.crps(y, per_row=True)}
            found.append(values)
        for what, value in found[0].items():
            np.testing.assert_array_equal(found[1][what], value, err_msg=what)


@pytest.mark.parametrize("df", [1.0, 4.0, np.inf])
def test_a_quantile_takes_few_evaluations_of_all_draws(df: float) -> None:
    """Each of them is the time of a prediction; Newton's steps would need one or two more."""
    noise, sizes = standard_normal() if df == np.inf else pn.StudentT(df).noise(), []

    def counted(u: Any) -> Any:
        sizes.append(len(u))
        return noise.cdf(u)

    rng = np.random.default_rng(0)
    scale = rng.uniform(0.2, 0.4, (2_000, 1))
    location = 0.3 * rng.normal(size=(2_000, 50)) + rng.normal(size=50)
    mixture = PredictiveMixture(location, replace(noise, scale=scale, cdf=counted))
    for probability in (0.025, 0.5, 0.9):
        sizes.clear()
        found = mixture.quantile(probability)
        assert sizes.count(2_000) <= 3
        # Twice the rounding of a mean of 2,000 numbers of at most one.
        np.testing.assert_allclose(mixture.cdf(found), probability, atol=4e-13)


def test_the_table_of_counts_evaluates_the_predictor_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exponential for each count and draw took most of the time of an interval of counts."""
    calls = []
    share = pn.NegativeBinomial.next_share
    monkeypatch.setattr(pn.NegativeBinomial, "next_share", lambda *given: calls.append(1) or share(*given))
    f = np.random.default_rng(0).normal(1.0, 0.5, size=(40, 6, 1))
    mixture = pn.NegativeBinomial(0.5).mixture(f)
    lower, upper = mixture.interval(0.9)
    assert len(calls) == 1 and (lower <= upper).all()
    size = 1 / 0.5
    expected = stats.nbinom(size, size / (size + np.exp(f[..., 0]))).cdf(upper).mean(axis=0)
    np.testing.assert_allclose(mixture.cdf(upper), expected, rtol=1e-12)
