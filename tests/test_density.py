"""The log densities for other libraries: values, gradients, coordinates, sampled noise, threads and messages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

import patrac_native as pn
import problems
from patrac_native.engine.density import Density

EPS = np.finfo(np.float64).eps
SAMPLED = {
    "gaussian": pn.Gaussian("sampled", a=2.0, b=1.0),
    "gaussian_by_output": pn.Gaussian("sampled", a=2.0, b=np.array([1.0, 0.4])),
    "gaussian_pooled": pn.Gaussian("sampled", a=2.0, b=1.0, pooled=True),
    "student_t": pn.StudentT(4.0, "sampled", a=2.0, b=1.0),
}


def sampled_problem(name: str, dtype: str = "float64") -> pn.Posterior:
    """Return a posterior with two outputs, or one for "gaussian", whose noise variances are sampled."""
    rng = problems.rng_of("sampled", name)
    m = 1 if name == "gaussian" else 2
    net = problems.random_network(rng, (3, 7, 6, m))
    X, y, weight = rng.normal(size=(50, 3)), rng.normal(size=(50, m)), rng.uniform(0.2, 2.0, 50)
    return pn.Posterior(net, pn.Mix(4), problems.PRIOR, SAMPLED[name], X, y, sample_weight=weight, dtype=dtype)


def scaled(post: pn.Posterior, values: Any) -> float:
    """Return the rounding error of a sum of l and the log prior, of which the terms are at most these."""
    return float((post.dim + 10) * EPS * np.abs(values).sum())


def assert_gradient(density: Density, point: npt.NDArray[np.float64]) -> None:
    """Compare a float64 gradient with central differences.

    With a step h the truncation is of order h^2 = 1e-10 times third derivatives, which for these problems are below
    1e3 times the largest gradient, and the rounding of two values over 2 h is 1e5 eps |value| times the depth of the
    sums, about a hundred.
    """
    step = 1e-5
    value, gradient = density.value_and_grad(point)
    shifted = point + step * np.concatenate([np.eye(density.dim), -np.eye(density.dim)])
    above, below = np.split(np.asarray(density.value(shifted)), 2)
    allowed = 1e-7 * np.abs(gradient).max() + 1e7 * EPS * abs(float(value))
    np.testing.assert_allclose(gradient, (above - below) / (2 * step), rtol=0, atol=allowed)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("likelihood", problems.LIKELIHOODS)
@pytest.mark.parametrize("architecture", problems.ARCHITECTURES)
def test_densities_are_those_of_the_posterior(architecture: str, likelihood: str, dtype: str) -> None:
    rng = problems.rng_of("density", architecture, likelihood)
    made = problems.problem(rng, (3, 6, 5, 2), 30, architecture, likelihood, dtype=dtype)
    post = made.post
    points = (post.theta_map + 0.3 * rng.normal(size=(5, post.dim))).astype(post.network.dtype)
    value, gradient = post.log_likelihood_and_grad(points)
    density = post.density()
    for threads in (1, 2):
        found, slope = density.value_and_grad(points, threads=threads)
        np.testing.assert_array_equal(found, value)
        np.testing.assert_array_equal(slope, gradient)
    np.testing.assert_array_equal(density.value(points[0]), value[0])

    found, slope = post.density("posterior").value_and_grad(points)
    prior, precision = np.asarray(post.log_prior(points)), 1 / post.prior_variance
    terms = np.abs(value).max() + np.abs(points**2 * precision).sum(axis=1).max() + np.abs(np.log(precision)).sum()
    np.testing.assert_allclose(found, value + prior, rtol=0, atol=scaled(post, terms))
    # One rounding of the posterior's gradient to dtype, and the rounding of theta / C in float64.
    own = gradient.astype(np.float64) - points * precision
    unit = np.finfo(post.network.dtype).eps
    np.testing.assert_allclose(slope, own, rtol=unit, atol=4 * EPS * np.abs(points * precision).max())


@pytest.mark.parametrize("kind", ["likelihood", "posterior"])
def test_whitened_coordinates(kind: Any) -> None:
    """theta = sqrt(C) z: the same l, the prior N(0, I), and the chain rule."""
    post = problems.problem(problems.rng_of("whitened"), (3, 6, 5, 2), 30, "mix").post
    density = post.density(kind, "whitened")
    z = problems.rng_of("z").normal(size=post.dim)
    theta = np.sqrt(post.prior_variance) * z
    np.testing.assert_array_equal(density.theta(z), theta)
    value, gradient = density.value_and_grad(z)
    wanted, slope = post.log_likelihood_and_grad(theta)
    slope = slope * np.sqrt(post.prior_variance)
    if kind == "posterior":
        wanted, slope = wanted + stats.norm.logpdf(z).sum(), slope - z
    np.testing.assert_allclose(value, wanted, rtol=0, atol=scaled(post, [wanted, (z**2).sum(), post.dim]))
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=8 * EPS * (np.abs(slope) + np.abs(z)).max())


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic_gaussian"])
@pytest.mark.parametrize("coordinates", ["theta", "whitened"])
def test_collapsed_densities(coordinates: Any, likelihood: str) -> None:
    rng = problems.rng_of("collapsed", likelihood)
    post = problems.problem(rng, (3, 6, 5, 2), 30, "mix", likelihood).post
    density, whole = post.density("collapsed", coordinates), post.density("collapsed_posterior", coordinates)
    deviation = np.sqrt(post.prior_variance[density.entries])
    point = rng.normal(size=len(deviation))
    factor, spread = (deviation, np.ones_like(deviation)) if coordinates == "whitened" else (1.0, deviation)
    np.testing.assert_array_equal(density.theta(point), point * factor)
    value, gradient = post.density("collapsed").value_and_grad(point * factor)
    found, slope = density.value_and_grad(point)
    assert found == value
    np.testing.assert_array_equal(slope, gradient * factor)
    prior = stats.norm.logpdf(point, scale=spread).sum()
    np.testing.assert_allclose(whole.value(point), value + prior, rtol=0, atol=scaled(post, [value, 10 * prior]))
    assert_gradient(whole, point)
    np.testing.assert_allclose(whole.start * factor, post.theta_map[density.entries], rtol=1e-12)
    assert whole.spread.shape == whole.start.shape == (whole.dim,)


@pytest.mark.parametrize("name", ["gaussian", "gaussian_by_output", "gaussian_pooled"])
def test_collapsed_densities_at_a_given_variance(name: str) -> None:
    """The variance that a density stands at is that of a posterior in which it is fixed."""
    post = sampled_problem(name)
    variance = np.linspace(0.5, 0.9, len(post.sampled.law.initial)).squeeze()
    fixed = pn.Posterior(
        post.network.net, pn.Mix(4), problems.PRIOR, pn.Gaussian(variance), post.data.X, post.data.y,
        sample_weight=post.data.row_weights, dtype="float64",
    )  # fmt: skip
    point = problems.rng_of(name).normal(size=post.sampled.facts.hidden_dim)
    value, gradient = post.density("collapsed", variance=variance).value_and_grad(point)
    wanted, slope = fixed.density("collapsed").value_and_grad(point)
    # Sums over 50 rows, in the residuals and in the determinant, and the inverse of a well-conditioned matrix.
    np.testing.assert_allclose(value, wanted, rtol=1e3 * EPS)
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=1e4 * EPS * np.abs(slope).max())


def law_of_output_weights(post: pn.Posterior, hidden: npt.NDArray[Any], **variance: Any) -> tuple[Any, Any]:
    """Mean and covariance of the output weights given theta_h, from gradients of the quadratic log-likelihood."""
    at = np.concatenate([np.zeros((1, post.dim - len(hidden))), np.eye(post.dim - len(hidden))])
    points = np.concatenate([np.tile(hidden, (len(at), 1)), at], axis=1)
    slopes = post.log_likelihood_and_grad(points, **variance)[1][:, len(hidden) :]
    precision = slopes[0] - slopes[1:] + np.diag(1 / post.prior_variance[len(hidden) :])
    return np.linalg.solve(precision, slopes[0]), np.linalg.inv(precision)


@pytest.mark.parametrize("coordinates", ["theta", "whitened"])
@pytest.mark.parametrize("name", ["fixed", "gaussian", "gaussian_by_output"])
def test_completed_points_have_the_law_of_the_output_weights(name: str, coordinates: Any) -> None:
    """It is linear in the normals: at zeros the mean, at unit vectors a root of the covariance."""
    if name == "fixed":
        post = problems.problem(problems.rng_of("complete"), (3, 6, 5, 2), 30, "mix").post
        fixed: dict[str, Any] = {}
    else:
        post = sampled_problem(name)
        fixed = {"variance": np.linspace(0.5, 0.9, len(post.sampled.law.initial)).squeeze()}
    density = post.density("collapsed", coordinates, **fixed)
    point = problems.rng_of("complete", name).normal(size=post.sampled.facts.hidden_dim)
    hidden, drawn = density.theta(point), post.dim - post.sampled.facts.hidden_dim
    mean, covariance = law_of_output_weights(post, hidden, **fixed)
    normals = np.concatenate([np.zeros((1, drawn)), np.eye(drawn)])
    theta = density.core.complete(np.tile(point, (len(normals), 1)), normals, 1)
    np.testing.assert_array_equal(theta[:, : post.sampled.facts.hidden_dim], np.tile(hidden, (len(normals), 1)))
    # The inverse of a well-conditioned matrix of sums over 30 or 50 rows.
    weights = theta[:, post.sampled.facts.hidden_dim :]
    np.testing.assert_allclose(weights[0], mean, rtol=0, atol=1e5 * EPS * np.abs(mean).max())
    root = weights[1:] - weights[0]
    np.testing.assert_allclose(root.T @ root, covariance, rtol=0, atol=1e5 * EPS * np.abs(covariance).max())

    found = density.complete(np.tile(point, (3, 4, 1)), seed=5, threads=2)
    drawn_normals = np.random.default_rng(5).standard_normal((12, drawn))
    np.testing.assert_array_equal(
        found.reshape(12, -1), density.core.complete(np.tile(point, (12, 1)), drawn_normals, 1)
    )
    assert density.complete(point).shape == (post.dim,)


def test_only_collapsed_densities_are_completed() -> None:
    post = sampled_problem("gaussian")
    with pytest.raises(ValueError, match=r"density='posterior' integrates no output weights out: its theta\(points\)"):
        post.density("posterior", variance=0.5).complete(np.zeros(post.dim))
    collapsed = post.density("collapsed", variance=0.5)
    with pytest.raises(
        ValueError, match=f"points must have {post.sampled.facts.hidden_dim} entries on their last axis"
    ):
        collapsed.complete(np.zeros(post.dim))
    with pytest.raises(ValueError, match="points must be finite"):
        collapsed.complete(np.full(post.sampled.facts.hidden_dim, np.nan))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SAMPLED)
def test_a_given_variance_is_that_of_log_likelihood(name: str, dtype: str) -> None:
    post = sampled_problem(name, dtype)
    variance = np.linspace(0.3, 0.9, len(post.sampled.law.initial)).squeeze()
    points = problems.rng_of(name).normal(size=(3, post.dim)).astype(dtype)
    found, slope = post.density(variance=variance).value_and_grad(points, threads=2)
    value, gradient = post.log_likelihood_and_grad(points, variance=variance)
    np.testing.assert_array_equal(found, value)
    np.testing.assert_array_equal(slope, gradient)


@pytest.mark.parametrize("place", ["theta", "whitened"])
@pytest.mark.parametrize("kind", ["likelihood", "posterior"])
@pytest.mark.parametrize("name", SAMPLED)
def test_logarithms_of_variances_as_coordinates(name: str, kind: Any, place: str) -> None:
    """The joint density of theta and log variance: inverse-gamma prior and Jacobian under a posterior, else neither."""
    post = sampled_problem(name)
    density = post.density(kind, place + "+log_variance")  # type: ignore[arg-type]
    q = len(post.sampled.law.initial)
    assert density.dim == post.dim + q
    point = 0.7 * problems.rng_of(name, place).normal(size=density.dim)
    theta, variance = density.theta(point), density.variance(point)
    np.testing.assert_array_equal(variance, np.exp(point[-q:]))
    wanted = post.log_likelihood(theta, variance=variance if q > 1 else variance[0])
    if kind == "posterior":
        shape, rate = post.likelihood.variance_prior(post.network.net.layer_sizes[-1])
        wanted += stats.invgamma.logpdf(variance, shape, scale=rate).sum() + np.log(variance).sum()
        wanted += stats.norm.logpdf(point[:-q]).sum() if place == "whitened" else post.log_prior(theta)
    # exp of the compiler's library and of NumPy may differ in the last place, which l magnifies by its slope.
    allowed = scaled(post, wanted) + 4 * EPS * np.abs(density.value_and_grad(point)[1][-q:]).sum()
    np.testing.assert_allclose(density.value(point), wanted, rtol=0, atol=allowed)
    assert_gradient(density, point)


def test_points_without_a_density() -> None:
    """A point that is not finite gives NaN, a variance outside float64 -infinity, and neither harms its neighbours."""
    core = sampled_problem("gaussian").density("posterior", "theta+log_variance").core
    points = np.zeros((5, core.dim))
    points[1, 0], points[2, 3], points[3, -1], points[4, -1] = np.nan, np.inf, 800.0, -800.0
    value, gradient = core.value_and_grad(points, 1)
    assert np.isfinite(value[0]) and np.isfinite(gradient[0]).all()
    np.testing.assert_array_equal(value[1:], [np.nan, np.nan, -np.inf, -np.inf])
    assert np.isnan(gradient[1:]).all()


@pytest.mark.parametrize("kind", ["posterior", "collapsed_posterior"])
def test_calls_from_several_threads(kind: Any) -> None:
    """One density evaluated by eight threads at the same time gives the values of one thread."""
    post = problems.problem(problems.rng_of("threads"), (3, 9, 8, 2), 200, "mix").post
    density = post.density(kind, "whitened")
    points = problems.rng_of("points").normal(size=(64, density.dim))
    wanted = [density.value_and_grad(point) for point in points]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for (value, gradient), (found, slope) in zip(wanted, pool.map(density.value_and_grad, points), strict=True):
                assert found == value
                np.testing.assert_array_equal(slope, gradient)


def test_the_density_outlives_the_posterior() -> None:
    post = sampled_problem("gaussian")
    density, point = post.density(variance=0.5), np.zeros(post.dim)
    value = density.value(point)
    del post
    assert density.value(point) == value


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("fixed", {"density": "prior"}, "density must be one of 'likelihood', 'posterior'"),
        ("fixed", {"coordinates": "z"}, "coordinates must be one of 'theta', 'whitened'"),
        ("fixed", {"variance": 1.0}, "variance must be left out"),
        ("fixed", {"coordinates": "theta+log_variance"}, 'coordinates must be "theta" or "whitened"'),
        ("sampled", {}, "variance must be given, since it is sampled: a positive number; or make its logarithm"),
        ("sampled", {"variance": -1.0}, "variance must be positive"),
        ("sampled", {"variance": [1.0, 2.0]}, "variance must be a number"),
        ("sampled", {"variance": 1.0, "coordinates": "theta+log_variance"}, "its logarithm is among the coordinates"),
        ("sampled", {"density": "collapsed", "coordinates": "theta+log_variance"}, "is not supported by density="),
        ("classes", {"density": "collapsed"}, "needs a Gaussian likelihood"),
        ("scales", {"density": "posterior"}, 'whose scales are sampled; choose density="likelihood"'),
        ("scales", {"coordinates": "whitened"}, "whose scales are sampled"),
        ("scales", {"density": "collapsed"}, "whose scales are sampled"),
    ],
)
def test_messages(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("+", r"\+")):
        posterior_of(name).density(**arguments)


def posterior_of(name: str) -> pn.Posterior:
    """Return a posterior of one of the kinds about which messages speak."""
    net, X, y = problems.regression(problems.rng_of(name), (2, 4, 1), 9)
    if name == "scales":
        prior = pn.GaussianPrior(scales="sampled")
        return pn.Posterior(net, pn.Full(), prior, pn.Gaussian(1.0), X, y)
    if name == "classes":
        return pn.Posterior(net, pn.Full(), problems.PRIOR, pn.Bernoulli(), X, y > 0)
    likelihood = pn.Gaussian("sampled", a=2.0, b=1.0) if name == "sampled" else pn.Gaussian(1.0)
    return pn.Posterior(net, pn.Full(), problems.PRIOR, likelihood, X, y)


def test_sampled_scales_leave_the_likelihood() -> None:
    post = posterior_of("scales")
    point = np.zeros(post.dim)
    assert post.density().value(point) == post.log_likelihood(point)


@pytest.mark.parametrize(
    ("points", "message"),
    [(np.zeros(3), "points must have"), (np.zeros((1, 1, 17)), "points must have"), (np.full(17, np.nan), "finite")],
)
def test_points_are_checked(points: npt.NDArray[np.float64], message: str) -> None:
    density = posterior_of("fixed").density()
    assert density.dim == 17
    with pytest.raises(ValueError, match=message):
        density.value(points)
