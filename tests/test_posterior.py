"""The posterior: its prior, batches, prior predictive, description, and every refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import patrac_native as pn
import problems
import reference
from patrac_native.engine import _core
from patrac_native.network.ranking import rank_nodes
from patrac_native.posterior.partial_network import PartialNetwork
from problems import ARCHITECTURES, PRIOR
from rounding import error_bounds

EPS64 = float(np.finfo(np.float64).eps)


def simple(**changes: Any) -> pn.Posterior:
    """A 2-4-3-1 Gaussian posterior with some arguments replaced."""
    net, X, y = problems.regression(problems.rng_of("simple"), (2, 4, 3, 1), 6)
    parts = {"net": net, "architecture": pn.Mix(2), "prior": PRIOR, "likelihood": pn.Gaussian(0.5), "X": X, "y": y}
    return pn.Posterior(**parts | changes)


# Prior


@pytest.mark.parametrize("output_decay", [None, True, False])
@pytest.mark.parametrize("sizes", [(2, 6, 5, 1), (1, 4, 3), (3, 7, 6, 5, 2)])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_prior_variance_is_the_formula_rescaled(name: str, sizes: tuple[int, ...], output_decay: bool | None) -> None:
    """One parameter at a time, times phi / phi_partial; sums of at most 200 positive terms."""
    rng = problems.rng_of("variance", name, sizes)
    prior = pn.TraceClassPrior(1.8, 1.4, 0.3, output_decay)
    net = problems.random_network(rng, sizes)
    network = PartialNetwork(net, problems.architecture(name, rng, net), prior)
    partial = reference.partial(net, network.architecture)
    expected = partial.prior_variances(prior, sizes)
    np.testing.assert_allclose(network.prior_variance, expected, rtol=200 * EPS64)
    if name in ("full", "mix", "out", "custom"):
        # Rescaled so that the partial network has the total variance of the full one.
        np.testing.assert_allclose(network.prior_variance.sum(), prior.total_variance(sizes), rtol=200 * EPS64)
    assert network.prior_variance.dtype == np.float64


def test_log_prior_is_the_normal_density() -> None:
    post = simple()
    theta = problems.rng_of("log prior").normal(size=(2, 3, post.dim))
    expected = stats.norm.logpdf(theta, scale=np.sqrt(post.prior_variance)).sum(axis=-1)
    # K terms of size |log p| each rounded a few times.
    np.testing.assert_allclose(post.log_prior(theta), expected, rtol=20 * post.dim * EPS64)
    assert post.log_prior(theta[0, 0]) == post.log_prior(theta)[0, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_prior_draws_have_a_stream_of_their_own(dtype: str) -> None:
    """Their moments: tests/statistical/test_prior_moments.py."""
    post = simple(dtype=dtype)
    draws = post.sample_prior(50, seed=3)
    assert draws.shape == (50, post.dim) and draws.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(draws[:10], post.sample_prior(10, seed=3))
    assert not np.isin(draws, post.sample_prior(50, seed=4)).any()
    normals: Any = getattr(_core, f"standard_normals{dtype[-2:]}")
    proposal = normals(
        seed=3, chain=0, step=0, purpose=_core.Purpose.proposal, steps=1, count=post.dim, level=post.network.level
    )
    assert not np.isin((draws[0] / np.sqrt(post.prior_variance)).astype(dtype), proposal).any()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_prior_predictive_is_the_network_at_prior_draws(name: str) -> None:
    problem = problems.problem(problems.rng_of("prior predict", name), (2, 5, 4, 3), 8, name)
    post = problem.post
    f = post.prior_predict(problem.X, 6, seed=9)
    assert f.shape == (6, 8, 3)
    for draw, theta in zip(f, post.sample_prior(6, seed=9), strict=True):
        problem.theta = theta
        bound = 2 * error_bounds(problem, 0.5 * EPS64).f
        assert (np.abs(draw - problem.partial.predict(theta, problem.X)) <= bound).all()


def test_prior_predictive_noise_of_a_sampled_variance_is_students() -> None:
    """Normal noise whose variance is inverse gamma (a, b) has 2a degrees of freedom and the scale sqrt(b / a)."""
    post, X = simple(likelihood=pn.Gaussian("sampled", a=5.0, b=0.2)), np.zeros((1, 2))
    noise = post.prior_predictive(X, 4000, seed=1) - post.prior_predict(X, 4000, seed=1)
    assert stats.kstest(noise.ravel() / 0.04**0.5, "t", args=(10.0,)).pvalue > 1e-4


def test_prior_predictive_targets_add_the_likelihoods_noise() -> None:
    post = simple(likelihood=pn.Gaussian(0.25))
    X = np.zeros((1, 2))
    noise = post.prior_predictive(X, 4000, seed=1) - post.prior_predict(X, 4000, seed=1)
    assert noise.shape == (4000, 1, 1)
    assert abs(noise.mean()) <= 4 * 0.5 / np.sqrt(4000)
    assert abs(noise.var() / 0.25 - 1) <= 4 * np.sqrt(2 / 4000)
    labels = simple(
        net=problems.random_network(problems.rng_of("labels"), (2, 4, 3)),
        likelihood=pn.Categorical(),
        y=[0, 1, 2, 0, 1, 2],
    ).prior_predictive(X, 50)
    assert labels.shape == (50, 1) and set(labels.ravel()) == {0, 1, 2}


# Evaluation


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_batch_is_its_points_one_by_one_for_any_number_of_threads(dtype: str) -> None:
    post = simple(dtype=dtype, architecture=pn.Full())
    theta = problems.rng_of("batch").normal(size=(7, post.dim))
    single = [post.log_likelihood_and_grad(point) for point in theta]
    for threads in (None, 1, 3, 20):
        values, gradients = post.log_likelihood_and_grad(theta, threads=threads)
        assert values.dtype == np.float64 and gradients.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(values, [value for value, _ in single])
        np.testing.assert_array_equal(gradients, [gradient for _, gradient in single])
        np.testing.assert_array_equal(post.log_likelihood(theta, threads=threads), values)
        f = post.network.predict(theta, post.data.X, threads=threads)
        np.testing.assert_array_equal(f, post.network.predict(theta, post.data.X))
    assert isinstance(single[0][0], float)
    assert isinstance(post.log_likelihood(theta[0]), float)


def test_sample_weights_multiply_each_rows_term() -> None:
    """A weight of two is the row twice, and a weight of zero no row; also in the normalising constant."""
    rng = problems.rng_of("weights")
    X, y = rng.normal(size=(5, 2)), rng.normal(size=5)
    weighted = simple(X=X, y=y, sample_weight=[2.0, 1.0, 0.0, 1.0, 3.0], dtype="float64")
    rows = [0, 0, 1, 3, 4, 4, 4]
    repeated = simple(X=X[rows], y=y[rows], dtype="float64")
    theta = weighted.theta_map + 0.1
    (value_a, gradient_a), (value_b, gradient_b) = (p.log_likelihood_and_grad(theta) for p in (weighted, repeated))
    # Seven terms of size |l| in two orders.
    np.testing.assert_allclose(value_a, value_b, rtol=20 * EPS64)
    np.testing.assert_allclose(gradient_a, gradient_b, rtol=0, atol=100 * EPS64 * np.abs(gradient_b).max())


def test_categorical_scale_is_a_weighted_mean() -> None:
    """Multiplying all weights changes nothing, and the weights sum to `scale`."""
    rng = problems.rng_of("scale")
    net, weight = problems.random_network(rng, (2, 4, 3)), rng.uniform(0.5, 2, 6)
    posts = [
        simple(net=net, likelihood=pn.Categorical(30.0), y=[0, 1, 2, 2, 1, 0], sample_weight=w, dtype="float64")
        for w in (weight, 8 * weight)
    ]
    np.testing.assert_allclose(posts[0].data.row_weights.sum(), 30.0, rtol=8 * EPS64)
    assert posts[0].log_likelihood(posts[0].theta_map) == posts[1].log_likelihood(posts[1].theta_map)


def test_describe_says_what_is_sampled_and_what_is_cached() -> None:
    net = problems.random_network(problems.rng_of("describe"), (1, 50, 50, 1))
    X = np.linspace(-1, 1, 100)[:, None]
    text, of_sep, of_out = (
        pn.Posterior(net, architecture, PRIOR, pn.Gaussian(1.0), X, X[:, 0]).describe()
        for architecture in (pn.Mix(5), pn.Sep(5), pn.Out(5))
    )
    assert "46 of 2701 parameters" in text
    assert "5 of 50 nodes vary" in text
    assert "50 cached offsets a row" in text
    ranked = ", ".join(str(node) for node in rank_nodes(net)[0][:5])
    assert f"by your numbering from 0: {ranked}\n" in text
    assert "separate network [1, 5, 5, 1]" in of_sep
    assert "50 nodes are constants of the data" in of_out


# Bad input: each message names the argument, what it got and what to do

X0, Y0 = np.zeros((6, 2)), np.zeros(6)


def changed(array: np.ndarray, row: int, value: float, column: int | None = None) -> np.ndarray:
    copy = array.copy()
    copy[row if column is None else (row, column)] = value
    return copy


CLASSES: dict[str, Any] = {
    "net": problems.random_network(problems.rng_of("classes"), (2, 4, 3)),
    "likelihood": pn.Categorical(),
}
ONE_LAYER: dict[str, Any] = {"net": problems.random_network(problems.rng_of("flat"), (2, 1))}
BAD_ARGUMENTS: dict[type[Exception], list[tuple[str, dict[str, Any]]]] = {
    TypeError: [
        (r"net must be a Network, such as train or Network\.from_torch returns; got str", {"net": "net.pt"}),
        (r"architecture must be an architecture such as Mix\(5\) or Full\(\); got int", {"architecture": 5}),
        (
            r"prior must be a prior, such as TraceClassPrior\.fit\(net\) or GaussianPrior\(\); got float",
            {"prior": 1.5},
        ),
        (
            "likelihood must be one of Gaussian, Categorical, DiscreteValues, Bernoulli, StudentT, "
            "HeteroscedasticGaussian, Poisson, NegativeBinomial, CensoredGaussian; got float",
            {"likelihood": 1.0},
        ),
        ("X must hold real numbers; got dtype <U1. Encode it as numbers", {"X": [["a", "b"]] * 6}),
        ("y must hold real numbers; got dtype <U1", {"y": list("abcdef")}),
    ],
    ValueError: [
        ("dtype must be one of float32, float64; got 'float16'", {"dtype": "float16"}),
        (r"X must have shape \(n, 2\); got \(6,\)", {"X": Y0}),
        ("X must have 2 columns, one for each input of the net.*3", {"X": np.zeros((6, 3))}),
        (r"X has no rows \(shape \(0, 2\)\); give at least", {"X": np.zeros((0, 2)), "y": []}),
        (
            r"X must be finite; column 1 has nan first at row 4 \(1 bad values in all\)\. Remove or impute",
            {"X": changed(X0, 4, np.nan, 1)},
        ),
        (r'X must fit float32; got 1e\+39.*dtype="float64"', {"X": changed(X0, 2, 1e39, 0)}),
        (r"y must have shape \(6,\) or \(6, 1\).*got \(5,\)", {"y": np.zeros(5)}),
        ("y must be finite; column 0 has nan first at row 3", {"y": changed(Y0, 3, np.nan)}),
        (r"y must fit float32; got -1e\+300", {"y": changed(Y0, 1, -1e300)}),
        (
            r"y must hold class labels that are in 0\.\.2; got 3 at row 3 \(1 bad rows in all\)\. Encode the classes",
            CLASSES | {"y": [0, 1, 2, 3, 0, 1]},
        ),
        (
            "variance has 2 entries, but the network has 1 outputs; give one number or 1",
            {"likelihood": pn.Gaussian([1.0, 2.0])},
        ),
        ("scale has 2 entries, but the network has 1 outputs", {"likelihood": pn.StudentT(3.0, [1.0, 2.0])}),
        (
            "dispersion has 2 entries, but the network has 1 outputs",
            {"likelihood": pn.NegativeBinomial([1.0, 2.0]), "y": np.ones(6)},
        ),
        (r"sample_weight must have shape \(6,\)", {"sample_weight": [1.0]}),
        ("k of Mix is 4, but hidden layer 2 has 3 nodes; choose k <= 3 there", {"architecture": pn.Mix(4)}),
        ("k of Sep is 5, but hidden layer 1 has 4 nodes", {"architecture": pn.Sep([5, 1])}),
        (r"each of the 2 hidden layers; got \[2\]", {"architecture": pn.Sep([2])}),
        (
            r"k of Mix must hold one number for each of the 2 hidden layers; got \[1, 1, 1\]",
            {"architecture": pn.Mix([1, 1, 1])},
        ),
        (
            r"Custom: weight_masks must have the network's shapes \[\(4, 2\), \(3, 4\), \(1, 3\)\]; got \[\(1, 2\)\]",
            {"architecture": pn.Custom([[[True, True]]], [[True]])},
        ),
        (
            r"Mix needs a network with a hidden layer; this one has layer_sizes \(2, 1\)\. Use Full or Custom",
            ONE_LAYER,
        ),
        ("Out needs a network with a hidden", ONE_LAYER | {"architecture": pn.Out(1)}),
        ("Sep needs a network with a hidden", ONE_LAYER | {"architecture": pn.Sep(1)}),
    ],
}


@pytest.mark.parametrize(("error", "message", "changes"), problems.refusals(BAD_ARGUMENTS))
def test_posterior_refuses(error: type[Exception], message: str, changes: dict[str, Any]) -> None:
    with pytest.raises(error, match=message):
        simple(**changes)


def test_k_of_the_whole_layer_is_allowed() -> None:
    assert simple(architecture=pn.Mix([4, 3])).dim == simple(architecture=pn.Full()).dim
    with pytest.raises(ValueError, match="k of Mix must be at least 1; got 0"):
        pn.Mix(0)


BAD_THETA: dict[type[Exception], list[tuple[str, Any]]] = {
    ValueError: [
        (r"theta must have shape \(15,\) or \(B, 15\); got \(3,\)", np.zeros(3)),
        (r"theta must have shape \(15,\) or \(B, 15\); got \(2, 2, 15\)", np.zeros((2, 2, 15))),
        (
            r"theta must be finite; column 7 has nan first at row 0 .*Rows count the points of the batch",
            changed(np.zeros(15), 7, np.nan),
        ),
        ("theta must be finite; column 2 has inf first at row 1", changed(np.zeros((2, 15)), 1, np.inf, 2)),
        (r'theta must fit float32; got 1e\+39.*dtype="float64"', np.full(15, 1e39)),
    ],
    TypeError: [("theta must hold real numbers; got dtype <U1", ["a"] * 15)],
}


@pytest.mark.parametrize(("error", "message", "theta"), problems.refusals(BAD_THETA))
@pytest.mark.parametrize("method", ["log_likelihood", "log_likelihood_and_grad"])
def test_bad_theta_is_refused(method: str, error: type[Exception], message: str, theta: Any) -> None:
    post = simple()
    assert post.dim == 15
    with pytest.raises(error, match=message):
        getattr(post, method)(theta)


BAD_CALLS: dict[type[Exception], list[tuple[str, Callable[[pn.Posterior], object]]]] = {
    ValueError: [
        (r"theta must have 15 entries on its last axis; got shape \(3,\)", lambda post: post.log_prior(np.zeros(3))),
        ("draws must be at least 1; got 0", lambda post: post.sample_prior(0)),
        ("seed must be at least 0; got -1", lambda post: post.sample_prior(1, seed=-1)),
        ("threads must be at least 1; got 0", lambda post: post.log_likelihood(post.theta_map, threads=0)),
        (
            r"X must have shape \(n, 2\); got \(2,\)",
            lambda post: post.network.predict(post.theta_map, np.zeros(2)),
        ),
    ],
    TypeError: [(r"draws must be an integer; got 2\.5", lambda post: post.sample_prior(2.5))],  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("error", "message", "call"), problems.refusals(BAD_CALLS))
def test_other_arguments_of_the_methods_are_checked(
    error: type[Exception], message: str, call: Callable[[pn.Posterior], object]
) -> None:
    with pytest.raises(error, match=message):
        call(simple())


def test_the_posterior_keeps_its_own_copy_of_what_it_was_given() -> None:
    """If the caller changes its arrays afterwards, the posterior does not change."""
    rng = problems.rng_of("copy")
    X, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    post = simple(X=X, y=y, dtype="float64")
    before = post.log_likelihood(post.theta_map)
    X[:] = y[:] = 0
    assert post.log_likelihood(post.theta_map) == before


def same(one: pn.Posterior, other: pn.Posterior) -> None:
    """Compare two posteriors of equal arguments, to the last bit."""
    theta, variance = one.network.sample_prior(3, seed=1), 0.7 if one.likelihood.is_sampled else None
    pairs = (post.log_likelihood_and_grad(theta, variance=variance) for post in (one, other))
    for found, expected in zip(*pairs, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(one.data.y, other.data.y)
    np.testing.assert_array_equal(one.data.row_weights, other.data.row_weights)
    assert one.sampled.facts == other.sampled.facts and one.sampled.fit_quality == other.sampled.fit_quality
    assert repr(one) == repr(other) and one.sampled.law.source == other.sampled.law.source


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("likelihood", problems.LIKELIHOODS)
def test_other_targets_give_the_posterior_that_is_constructed_with_them(likelihood: str, dtype: str) -> None:
    """Of every likelihood, with weights and offset; the first posterior stays as it is."""
    rng = problems.rng_of("with targets", likelihood)
    m = 3 * problems.outputs_per_target(likelihood)
    net = problems.random_network(rng, (2, 4, m))
    first, second = (problems.random_data(likelihood, rng, 9, 2, 3) for _ in range(2))

    def build(y: Any) -> pn.Posterior:
        parts = (net, pn.Mix(2), PRIOR, first.likelihood, first.X, y)
        return pn.Posterior(*parts, sample_weight=first.sample_weight, offset=first.offset, dtype=dtype)

    post = build(first.y)
    other = post.with_targets(second.y)
    assert other.network is post.network and other.data.inputs is post.data.inputs
    same(other, build(second.y))
    same(post, build(first.y))
    same(other.with_targets(first.y), post)


def test_noise_left_open_is_chosen_anew_for_other_targets() -> None:
    """With the sample weights as they were given, whatever the caller does with its array."""
    rng = problems.rng_of("open noise")
    weight, y = rng.uniform(0.5, 2.0, 6), 10 * rng.normal(size=6)
    given = weight.copy()
    post = simple(likelihood=pn.Gaussian("sampled"), sample_weight=given, dtype="float64")
    given[:] = 1.0
    expected = simple(likelihood=pn.Gaussian("sampled"), sample_weight=weight, y=y, dtype="float64")
    same(post.with_targets(y), expected)
    assert expected.sampled.law.source == "training" and expected.likelihood.to_dict() != post.likelihood.to_dict()


def test_another_likelihood_with_other_targets() -> None:
    y = problems.rng_of("another likelihood").normal(size=6)
    post = simple(likelihood=pn.Gaussian("sampled"), dtype="float64")
    same(post.with_targets(y, likelihood=pn.StudentT(4.0)), simple(y=y, likelihood=pn.StudentT(4.0), dtype="float64"))
    with pytest.raises(TypeError, match=r"likelihood must be one of .*; got float"):
        post.with_targets(y, likelihood=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="y must"):
        post.with_targets(y[:5])


def test_what_float32_cannot_hold_of_the_likelihood_is_refused_by_name() -> None:
    net = problems.random_network(problems.rng_of("range"), (2, 3, 1))
    X, y = np.ones((3, 2)), np.zeros(3)

    def build(variance: float, weight: float, dtype: str) -> pn.Posterior:
        weights = np.full(3, weight)
        return pn.Posterior(net, pn.Full(), PRIOR, pn.Gaussian(variance), X, y, sample_weight=weights, dtype=dtype)

    for variance, weight, name in (
        (1e-40, 1.0, "variance of Gaussian"),
        (1e50, 1.0, "variance of Gaussian"),
        (1.0, 1e39, "sample_weight"),
        (1.0, 1e-50, "sample_weight"),
    ):
        with pytest.raises(ValueError, match=f"{name} is beyond what float32 holds; .*float64"):
            build(variance, weight, "float32")
        assert np.isfinite(build(variance, weight, "float64").log_likelihood(np.zeros(13)))
