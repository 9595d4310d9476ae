"""The likelihoods: densities against scipy and torch, weights, noise, and every refusal of bad targets."""

from __future__ import annotations

import json
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import patrac_native as pn
import problems
from patrac_native.likelihoods import (
    Bernoulli,
    Categorical,
    CensoredGaussian,
    DiscreteValues,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    NegativeBinomial,
    Poisson,
    RealLikelihood,
    StudentT,
    likelihood_from_dict,
)

torch = pytest.importorskip("torch")

EPS = np.finfo(np.float64).eps
N, M = 7, 4

CASES: list[Likelihood] = [
    Gaussian(0.3),
    Gaussian([0.5, 1.0, 2.0, 3.0]),
    Categorical(),
    Categorical(scale=1000.0),
    DiscreteValues([3.0, 0.0, 0.3, 12.0]),
    Bernoulli(),
    StudentT(4.0, 0.7),
    StudentT(1.0, [0.5, 1.0, 2.0, 3.0]),
    HeteroscedasticGaussian(),
    Poisson(),
    NegativeBinomial(0.4),
    NegativeBinomial([0.2, 0.5, 1.0, 3.0]),
    CensoredGaussian(0.3),
    CensoredGaussian([0.5, 1.0, 2.0, 3.0]),
]


def targets_for(likelihood: Likelihood, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    raw = {
        "gaussian": lambda: rng.normal(size=(N, M)),
        "categorical": lambda: rng.integers(0, M, N),
        "discrete_values": lambda: rng.choice([0.0, 0.3, 3.0, 12.0], N),
        "bernoulli": lambda: rng.integers(0, 2, (N, M)),
        "student_t": lambda: rng.standard_t(2.0, (N, M)),
        "poisson": lambda: rng.poisson(3.0, (N, M)),
        "negative_binomial": lambda: rng.negative_binomial(1.5, 0.3, (N, M)),
        "censored_gaussian": lambda: problems.random_bounds(rng, (N, M)),
        "heteroscedastic_gaussian": lambda: rng.normal(size=(N, M // 2)),
    }[likelihood.name]()
    return likelihood.check_targets(raw, N, M)


def reference_rows(likelihood: Likelihood, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log densities of one (n, m) array by scipy.stats."""
    if isinstance(likelihood, Gaussian):
        return stats.norm.logpdf(y, f, np.sqrt(likelihood.variance)).sum(axis=-1)
    if isinstance(likelihood, DiscreteValues):
        shares = np.exp(f) / np.exp(f).sum(axis=-1, keepdims=True)
        return np.log(np.select([y == value for value in (0.0, 0.3, 3.0, 12.0)], [*shares.T[..., None]]))[:, 0]
    if isinstance(likelihood, Bernoulli):
        return stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-f))).sum(axis=-1)
    if isinstance(likelihood, StudentT):
        return stats.t.logpdf(y, likelihood.df, f, likelihood.scale).sum(axis=-1)
    if isinstance(likelihood, Poisson):
        return stats.poisson.logpmf(y, np.exp(f)).sum(axis=-1)
    if isinstance(likelihood, NegativeBinomial):
        size = 1 / np.asarray(likelihood.dispersion)
        return stats.nbinom.logpmf(y, size, size / (size + np.exp(f))).sum(axis=-1)
    if isinstance(likelihood, HeteroscedasticGaussian):
        return stats.norm.logpdf(y, f[:, : M // 2], np.exp(0.5 * f[:, M // 2 :])).sum(axis=-1)
    if isinstance(likelihood, CensoredGaussian):
        law = stats.norm(f, np.sqrt(likelihood.variance))
        lower, upper = y[..., 0], y[..., 1]
        beyond = lower > f  # differences of survival functions do not cancel there
        probability = np.where(beyond, law.sf(lower) - law.sf(upper), law.cdf(upper) - law.cdf(lower))
        known = lower == upper
        return np.where(known, law.logpdf(np.where(known, lower, 0)), np.log(np.where(known, 1, probability))).sum(-1)
    p = np.exp(f) / np.exp(f).sum(axis=-1, keepdims=True)
    return np.log(p[np.arange(len(y)), y])


@pytest.mark.parametrize("likelihood", CASES, ids=repr)
def test_densities_agree_with_scipy_and_torch(likelihood: Likelihood) -> None:
    y = targets_for(likelihood)
    f = 2 * np.random.default_rng(1).normal(size=(2, 3, N, M))
    rows = likelihood.log_likelihood_rows(f, y)
    assert rows.shape == (2, 3, N)
    assert rows.dtype == np.float64
    total = likelihood.log_likelihood(f, y)
    weight = {Categorical(scale=1000.0): 1000.0 / N}.get(likelihood, 1.0)
    for index in np.ndindex(2, 3):
        expected = reference_rows(likelihood, f[index], y)
        # The plain formulas lose up to e^|f| <= e^10 ulp where they take the log of a probability near 1.
        np.testing.assert_allclose(rows[index], expected, rtol=64 * EPS, atol=EPS * np.exp(np.abs(f[index]).max()))
        assert total[index] == pytest.approx(weight * rows[index].sum(), rel=16 * EPS)


def test_large_outputs_neither_overflow_nor_cancel() -> None:
    f = np.array([[800.0, 0.0], [0.0, 800.0]])
    np.testing.assert_array_equal(Categorical().log_likelihood_rows(f, np.array([0, 0])), [0.0, -800.0])
    np.testing.assert_array_equal(Categorical().probabilities(f), [[1.0, 0.0], [0.0, 1.0]])
    z = np.array([[40.0], [-40.0], [800.0], [-800.0]])
    y = np.array([[1.0], [0.0], [0.0], [1.0]])
    # log(1 + e^-40) = e^-40 to double precision; y f - log(1 + e^f) would give 0.
    expected = [-np.exp(-40.0), -np.exp(-40.0), -800.0, -800.0]
    # exp and log1p within an ulp each; the argument -40 is exact.
    np.testing.assert_allclose(Bernoulli().log_likelihood_rows(z, y), expected, rtol=8 * EPS)


@pytest.mark.parametrize("likelihood", CASES, ids=repr)
def test_sample_weight_counts_rows(likelihood: Likelihood) -> None:
    y = targets_for(likelihood)
    f = np.random.default_rng(2).normal(size=(N, M))
    weight = np.array([1, 0, 2, 3, 1, 0, 1])
    repeated = likelihood.log_likelihood(np.repeat(f, weight, axis=0), np.repeat(y, weight, axis=0))
    # Sums of 8 terms; the weighted mean of `scale` divides by the sum of weights.
    assert likelihood.log_likelihood(f, y, weight) == pytest.approx(float(repeated), rel=32 * EPS)


def test_row_weights_of_a_scale() -> None:
    np.testing.assert_array_equal(Gaussian(1.0).row_weights(None, 3), [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(Categorical(scale=8.0).row_weights([1.0, 0.0, 3.0], 3), [2.0, 0.0, 6.0])
    np.testing.assert_array_equal(Categorical().row_weights([1.0, 0.0, 3.0], 3), [1.0, 0.0, 3.0])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(2), r"sample_weight must have shape \(3,\).*got \(2,\)"),
        ([1.0, -1.0, 1.0], r"finite and nonnegative; got -1\.0 at row 1"),
        ([1.0, 1.0, np.nan], "finite and nonnegative; got nan at row 2"),
        (np.zeros(3), "zero for every row"),
    ],
)
def test_bad_sample_weight(weight: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Gaussian(1.0).row_weights(weight, 3)


@pytest.mark.parametrize("likelihood", CASES, ids=repr)
def test_constant_predictor_is_the_best_one(likelihood: Likelihood) -> None:
    y = targets_for(likelihood)

    def loss(constant: np.ndarray) -> float:
        return -float(likelihood.log_likelihood(np.broadcast_to(constant, (N, M)), y)) / 1000

    found = minimize(loss, np.zeros(M), tol=1e-12)
    # BFGS with difference quotients ends where the gradient is about sqrt(eps): the loss is then within 1e-6 of its
    # minimum, and never below it. A class or 0/1 frequency of zero would be reached only in the limit: absent here.
    best = -likelihood.constant_log_likelihood(y) / 1000
    assert best <= found.fun + 64 * EPS * abs(best)
    assert found.fun == pytest.approx(best, rel=1e-6)


def test_constant_predictor_of_one_class() -> None:
    assert Categorical().constant_log_likelihood(np.array([2, 2, 2])) == 0.0
    assert Bernoulli().constant_log_likelihood(np.ones((3, 1))) == 0.0


def test_noise_has_its_distribution() -> None:
    draws = 20_000
    f = np.array([[0.5, -1.0], [2.0, 0.0]])
    many = np.broadcast_to(f, (draws, 2, 2))
    variance = np.array([0.25, 4.0])
    y = Gaussian(variance).sample(many, np.random.default_rng(0))
    # Five standard errors of a mean and of a variance (relative error sqrt(2 / draws)) of normals.
    assert (np.abs(y.mean(axis=0) - f) < 5 * np.sqrt(variance / draws)).all()
    assert (np.abs(y.var(axis=0) / variance - 1) < 5 * np.sqrt(2 / draws)).all()

    labels = Categorical().sample(many, np.random.default_rng(1))
    assert labels.shape == (draws, 2)
    assert labels.dtype == np.int64
    p = Categorical().probabilities(f)
    frequency = np.stack([(labels == c).mean(axis=0) for c in range(2)], axis=-1)
    assert (np.abs(frequency - p) < 5 * np.sqrt(p * (1 - p) / draws)).all()

    ones = Bernoulli().sample(many, np.random.default_rng(2))
    q = Bernoulli().probabilities(f)
    assert set(np.unique(ones)) == {0, 1}
    assert (np.abs(ones.mean(axis=0) - q) < 5 * np.sqrt(q * (1 - q) / draws)).all()


def test_probabilities() -> None:
    f = np.random.default_rng(3).normal(size=(2, N, M))
    np.testing.assert_allclose(Categorical().probabilities(f).sum(axis=-1), 1.0, rtol=8 * EPS)
    np.testing.assert_allclose(Bernoulli().probabilities(f), 1 / (1 + np.exp(-f)), rtol=16 * EPS)
    with pytest.raises(TypeError, match="a gaussian likelihood has no class probabilities"):
        Gaussian(1.0).probabilities(f)


def test_accepted_targets() -> None:
    y = Gaussian(1.0).check_targets([1, 2, 3], 3, 1)
    assert y.shape == (3, 1)
    assert y.dtype == np.float64
    assert y.flags.c_contiguous
    assert Bernoulli().check_targets([True, False], 2, 1).tolist() == [[1.0], [0.0]]
    labels = Categorical().check_targets([0.0, 2.0, 1.0], 3, 3)
    assert labels.dtype == np.int64
    assert labels.tolist() == [0, 2, 1]
    assert Categorical().check_targets([[0], [2], [1]], 3, 3).tolist() == [0, 2, 1]  # a column, as from a data frame


@pytest.mark.parametrize(
    ("likelihood", "y", "m", "error", "message"),
    [
        (
            Gaussian(1.0),
            [1.0, np.nan, np.inf],
            1,
            ValueError,
            r"y must be finite; column 0 has nan first at row 1 \(2 bad",
        ),
        (Gaussian(1.0), np.ones(2), 1, ValueError, r"y must have shape \(3,\) or \(3, 1\).*got \(2,\)"),
        (Gaussian(1.0), np.ones(3), 2, ValueError, r"y must have shape \(3, 2\).*got \(3,\)"),
        (Gaussian([1.0, 2.0]), np.ones(3), 1, ValueError, "variance has 2 entries, but the network has 1 outputs"),
        (Gaussian(1.0), ["a", "b", "c"], 1, TypeError, "y must hold real numbers"),
        (Categorical(), [0, 1, 0], 1, ValueError, "at least 2; got 1. Use Bernoulli"),
        (Categorical(), [0, 3, -1], 3, ValueError, r"labels that are in 0\.\.2; got 3 at row 1 \(2 bad rows"),
        (Categorical(), [0, 1, -1], 3, ValueError, r"labels that are in 0\.\.2; got -1 at row 2"),
        (Categorical(), [0, 1.5, 1], 3, ValueError, r"labels that are whole numbers; got 1\.5 at row 1"),
        (Categorical(), [0, 1, np.nan], 3, ValueError, "labels that are whole numbers; got nan at row 2"),
        (Categorical(), np.eye(3), 3, ValueError, r"y must have shape \(3,\).*got \(3, 3\)"),
        (
            Categorical(),
            ["cat", "dog", "cat"],
            3,
            TypeError,
            r"y must hold real numbers.*np\.unique\(y, return_inverse",
        ),
        (Categorical(), np.array(["cat", "dog", "cat"], dtype=object), 3, TypeError, r"np\.unique\(y, return_inverse"),
        (Bernoulli(), ["no", "yes", "no"], 1, TypeError, r"y must hold real numbers.*np\.unique\(y, return_inverse"),
        (Bernoulli(), [0, 1, 2], 1, ValueError, "y must be 0 or 1 .* got 2 at row 2, output 0"),
        (Bernoulli(), [0, np.nan, 1], 1, ValueError, "y must be 0 or 1 .* got nan at row 1"),
        (Bernoulli(), [0, 1], 1, ValueError, r"y must have shape \(3,\) or \(3, 1\)"),
    ],
)
def test_bad_targets(likelihood: Likelihood, y: Any, m: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        likelihood.check_targets(y, 3, m)


@pytest.mark.parametrize(
    ("variance", "error", "message"),
    [
        (0.0, ValueError, r"variance must be positive and finite; got 0\.0"),
        (np.inf, ValueError, "variance must be positive and finite; got inf"),
        ([1.0, -1.0], ValueError, r"variance must be positive and finite; got -1\.0 for output 1"),
        (np.ones((1, 1)), ValueError, r"number or have shape \(m,\); got shape \(1, 1\)"),
        ("sample", ValueError, 'positive number, one for each output, or "sampled"; got .sample.'),
        (None, TypeError, "variance must be a number; got None"),
    ],
)
def test_bad_variance(variance: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Gaussian(variance)


def test_bad_scale() -> None:
    with pytest.raises(ValueError, match=r"scale must be positive and finite; got -1\.0"):
        Categorical(scale=-1.0)


@pytest.mark.parametrize("likelihood", CASES, ids=repr)
def test_dictionary_round_trip(likelihood: Likelihood) -> None:
    back = likelihood_from_dict(json.loads(json.dumps(likelihood.to_dict())))
    assert back == likelihood
    assert hash(back) == hash(likelihood)
    assert repr(back) == repr(likelihood)


def test_unequal_likelihoods_and_unknown_name() -> None:
    assert Gaussian(1.0) != Gaussian(2.0)
    assert Categorical() != Categorical(scale=1.0)
    with pytest.raises(ValueError, match=r"one of .*gaussian, .*, censored_gaussian; got 'weibull'"):
        likelihood_from_dict({"name": "weibull"})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_log_sum_exp_of_the_engine_is_accurate_relative_to_its_largest_input(level: str, dtype: str) -> None:
    """A network without hidden layers and the identity for weights makes f = x, so l = x_y - log sum_c exp x_c.

    With u the unit roundoff: centring costs 2 u max|x| in the exponent of each term and again in the chosen one; each
    exponential 2 u and the sum m u of a number between 1 and m; the logarithm 2 u of at most log m < m.
    """
    m = 7
    prior = pn.TraceClassPrior(1.5, 2.0, 0.5)
    net = pn.Network([np.eye(m)], [np.zeros(m)])
    rng = problems.rng_of("log-sum-exp")
    unit = float(np.finfo(dtype).eps) / 2
    rows = [scale * rng.normal(size=m) for scale in (1e-6, 0.1, 1.0, 30.0, 1e3, 1e6) for _ in range(20)]
    rows += [
        np.zeros(m),
        np.full(m, 88.0),
        np.full(m, -1e4),
        np.r_[np.zeros(m - 1), 1e4],
        np.r_[0.0, np.full(m - 1, -1e30)],
    ]
    for row in rows:
        x = row.astype(dtype)
        post = pn.Posterior(net, pn.Full(), prior, pn.Categorical(), x[None], [2], dtype=dtype)
        assert post.network.level == level
        with mpmath.workprec(200):
            exact = float(float(x[2]) - mpmath.log(mpmath.fsum(mpmath.exp(float(v)) for v in x)))
        bound = unit * (4 * float(np.abs(x).max()) + 2 * m + 4)
        assert abs(float(post.log_likelihood(post.theta_map)) - exact) <= bound


@pytest.mark.parametrize("device", ["cpu", "emulated:4"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_confident_classes_leave_no_subnormal_numbers(dtype: str, device: str) -> None:
    """Softmax shares among the subnormals of the type are 0, and l is right.

    Processors take up to a hundred cycles for each operation on subnormal numbers: a step of a network whose classes
    are that sure took 27 times as long.
    """
    largest = -np.log(float(np.finfo(dtype).tiny))
    # No hidden layer, f = W x: the logits of the other classes are below that of the label by x and 2 x.
    net = pn.Network([np.zeros((3, 1))], [np.zeros(3)])
    X = np.linspace(1.0, 1.2, 40)[:, None] * largest
    post = pn.Posterior(net, pn.Full(), pn.GaussianPrior(), pn.Categorical(), X, np.zeros(40, dtype=int), dtype=dtype)
    theta = np.array([[0.0, -1.0, -2.0, 0.0, 0.0, 0.0]]).astype(dtype)
    if device == "cpu":
        value, gradient = post.log_likelihood_and_grad(theta)
    else:
        value, gradient = post.sampled.compiled.on_device(device).log_likelihood_and_grad(theta)
    assert float(value[0]) == 0.0
    np.testing.assert_array_equal(gradient, np.zeros((1, 6)))


REAL = [one for one in CASES if isinstance(one, RealLikelihood) and one.numbers_per_target == 1]


@pytest.mark.parametrize("likelihood", REAL, ids=repr)
def test_scaled_targets_have_the_density_of_the_change_of_variables(likelihood: RealLikelihood) -> None:
    """log p(y | f) = log p'(y / s | f / s) - sum log s, with log variances of outputs lower by 2 log s."""
    t = likelihood.n_targets(M)
    scale = np.array([0.25, 3.0, 700.0, 1.5])[:t]
    y, f = targets_for(likelihood), np.random.default_rng(1).normal(size=(N, M))
    outputs = np.concatenate([f[:, :t] / scale, f[:, t:] - 2 * np.log(scale)[: M - t]], axis=1)
    scaled = likelihood.for_scaled_targets(scale).log_likelihood_rows(outputs, y / scale) - np.log(scale).sum()
    np.testing.assert_allclose(scaled, likelihood.log_likelihood_rows(f, y), rtol=1e-13)


def test_the_prior_of_sampled_noise_of_scaled_targets() -> None:
    """An inverse-gamma variance divided by s^2 is inverse-gamma with the rate divided by s^2."""
    scale = np.array([0.5, 10.0])
    for kind in (lambda **prior: Gaussian("sampled", **prior), lambda **prior: StudentT(4.0, "sampled", **prior)):
        assert kind().for_scaled_targets(scale) == kind()  # the rate is still to be chosen
        assert kind(a=3.0, b=2.0).for_scaled_targets(scale) == kind(a=3.0, b=[8.0, 0.02])
        assert kind(a=3.0, b=[2.0, 5.0]).for_scaled_targets(scale) == kind(a=3.0, b=[8.0, 0.05])
        assert kind(b=2.0).for_scaled_targets(scale[:1]) == kind(b=8.0)
        with pytest.raises(ValueError, match="b has 3 entries, but the network has 2 outputs"):
            kind(b=[1.0, 1.0, 1.0]).for_scaled_targets(scale)
    pooled = Gaussian("sampled", b=2.0, pooled=True)
    assert pooled.for_scaled_targets(np.array([0.5, 0.5])) == Gaussian("sampled", b=8.0, pooled=True)
    with pytest.raises(ValueError, match=r"one variance for targets .* scales, from 0\.5 to 10: leave pooled out"):
        pooled.for_scaled_targets(scale)
    for fixed in (Gaussian([1.0, 2.0, 3.0]), StudentT(4.0, [1.0, 2.0, 3.0])):
        with pytest.raises(ValueError, match="has 3 entries, but the network has 2 outputs"):
            fixed.for_scaled_targets(scale)
