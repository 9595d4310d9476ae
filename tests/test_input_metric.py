"""metric="inputs": the first layer along the principal axes of the inputs, with a step size for each axis."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import patrac_native as pn
import problems
import reference
from patrac_native.kernels import kernel_from_dict
from patrac_native.kernels.choice import MIN_SPREAD
from patrac_native.posterior.data import Data
from patrac_native.posterior.input_metric import MAX_FACTOR, POWER, PrincipalAxes
from patrac_native.sampling.warmup import Phase
from problems import Problem
from replay import accepts, proposal_normals

FloatArray = npt.NDArray[np.float64]
# Those whose nodes have all of their first-layer weights Bayesian, or none.
ROTATABLE = ("full", "mix", "mix_by_layer", "sep", "sep_by_layer")


def problem_of(architecture: str = "mix", likelihood: str = "gaussian") -> Problem:
    """15 rows, 3-5-4-3."""
    rng = problems.rng_of("input metric", architecture, likelihood)
    return problems.problem(rng, (3, 5, 4, 3), 15, architecture, likelihood)


def correlated(n: int, d: int) -> FloatArray:
    """Inputs that vary mostly along one axis."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 1)) + 0.2 * rng.normal(size=(n, d))


def posterior(
    X: Any, architecture: Any = None, prior: Any = problems.PRIOR, likelihood: Any = None, **more: Any
) -> pn.Posterior:
    """A posterior of a d-6-5-1 network on inputs."""
    n, d = X.shape
    rng = np.random.default_rng(1)
    net = problems.random_network(rng, (d, 6, 5, 1))
    y = rng.normal(size=n)
    return pn.Posterior(net, architecture or pn.Full(), prior, likelihood or pn.Gaussian(0.5), X, y, **more)


def matrix(problem: Problem) -> FloatArray:
    """T with rotated theta = T theta, (K, K), from the definition: w becomes R'w for every node of the first layer."""
    parameters, rotation = problem.post.parameters, problem.post.sampled.input_metric.axes.rotation
    T = np.eye(problem.post.dim)
    first = (parameters["layer"] == 1) & (parameters["column"] >= 0)
    for row in set(parameters["row"][first].tolist()):
        at = np.flatnonzero(first & (parameters["row"] == row))
        T[np.ix_(at, at)] = rotation.T
    return T


# The axes and the rotated model


def axes_of(X: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> PrincipalAxes:
    """Return the axes of inputs of any size, which a posterior in float32 would refuse."""
    inputs: Any = SimpleNamespace(host=X, n_rows=len(X))
    return PrincipalAxes.of(Data(inputs, X[:, :1], weights, None, None))


def test_the_axes_are_those_of_the_weighted_second_moments() -> None:
    rng = np.random.default_rng(3)
    X, weights = rng.normal(size=(40, 4)) @ rng.normal(size=(4, 4)) + 1.0, rng.uniform(0.1, 2.0, 40)
    axes = axes_of(X, weights)
    moments = (X * weights[:, None]).T @ X / weights.sum()
    # A decomposition is exact for a matrix that differs by some eps of its norm.
    error = 100 * np.finfo(float).eps * np.linalg.norm(moments)
    np.testing.assert_allclose(axes.rotation @ np.diag(axes.moments) @ axes.rotation.T, moments, atol=error)
    np.testing.assert_allclose(axes.rotation.T @ axes.rotation, np.eye(4), atol=1e-14)
    np.testing.assert_allclose(axes.factors, (axes.moments.mean() / axes.moments) ** POWER, rtol=1e-12)
    assert axes.spread == pytest.approx(axes.moments.max() / axes.moments.mean())


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_axes_without_extent_get_the_capped_factor(scale: float) -> None:
    X = np.zeros((5, 3))
    X[:, 1] = scale * np.arange(1, 6)
    axes = axes_of(X, np.ones(5))
    np.testing.assert_allclose(axes.factors, [MAX_FACTOR**POWER] * 2 + [3.0**-POWER], rtol=1e-12)
    assert (axes_of(np.zeros((5, 3)), np.ones(5)).factors == 1).all()
    assert axes_of(np.zeros((5, 3)), np.ones(5)).spread == 1


@pytest.mark.parametrize("likelihood", ["gaussian", "categorical"])
@pytest.mark.parametrize("architecture", ROTATABLE)
def test_the_rotation_leaves_densities_as_they_are(architecture: str, likelihood: str) -> None:
    """l and the prior of rotated theta in the rotated model are those of theta; gradients rotate with it."""
    problem = problem_of(architecture, likelihood)
    post, metric = problem.post, problem.post.sampled.input_metric
    theta = np.stack([problem.theta, -0.3 * problem.theta])
    rotated = metric.rotated(theta)
    np.testing.assert_allclose(rotated, theta @ matrix(problem).T, rtol=0, atol=1e-14 * np.abs(theta).max())
    value, gradient = post.log_likelihood_and_grad(theta)
    found, slope = metric.compiled.host.log_likelihood_and_grad(rotated, 1)
    # Some 60 roundings on the way to f, 15 rows: below 1e3 eps of the sizes.
    error = 1e3 * np.finfo(float).eps
    np.testing.assert_allclose(found, value, rtol=error)
    np.testing.assert_allclose(slope, gradient @ matrix(problem).T, rtol=0, atol=error * np.abs(gradient).max() * 10)
    np.testing.assert_allclose(post.log_prior(rotated), post.log_prior(theta), rtol=error)
    metric.restore(rotated)
    np.testing.assert_allclose(rotated, theta, rtol=0, atol=1e-14 * np.abs(theta).max())


# The transition


def factors(problem: Problem, kernel: pn.Kernel) -> FloatArray:
    """q of every coordinate, from the definition in docs/method.md, section 6."""
    post = problem.post
    axes, C = post.sampled.input_metric.axes, np.asarray(post.prior_variance)
    ratio = np.minimum(axes.moments.mean() / axes.moments, MAX_FACTOR) ** POWER
    at = (post.parameters["layer"] == 1) & (post.parameters["column"] >= 0)
    q = np.ones(post.dim)
    q[at] = ratio[post.parameters["column"][at]]
    return q * np.sqrt(C / C.mean()) if kernel.name == "mgrad" else q


def log_density(kernel: pn.Kernel, v: FloatArray, u: FloatArray, g: FloatArray, C: FloatArray, step: Any) -> float:
    """Log q(u, v) with a step size for each coordinate."""
    of = reference.mgrad_log_density if kernel.name == "mgrad" else reference.pcnl_log_density
    return of(v, u, g, C, step)


@pytest.mark.parametrize("architecture", ["full", "mix", "sep"])
@pytest.mark.parametrize("kernel", [pn.PCNL(0.2, metric="inputs"), pn.MGrad(0.3, metric="inputs")], ids=str)
def test_acceptance_is_detailed_balance(kernel: Any, architecture: str) -> None:
    """log_acceptance is log pi(v) q(v,u) - log pi(u) q(u,v) in rotated coordinates; without q in one it is not."""
    problem = problem_of(architecture)
    post, T, C = problem.post, matrix(problem), np.asarray(problem.post.prior_variance)
    q = factors(problem, kernel)
    np.testing.assert_allclose(post.sampled.input_metric.step_factor(kernel), q, rtol=1e-12)
    assert q.max() > 1.5 * q.min() > 0
    rng = problems.rng_of("metric balance", architecture, kernel)
    u = T @ problem.theta
    v = u + 0.3 * np.sqrt(C) * rng.normal(size=len(u))

    def target(x: FloatArray) -> float:
        return problem.reference_value(T.T @ x) + reference.log_normal(x, np.zeros_like(x), C)

    def exact(back: Any) -> float:
        gu, gv = (T @ problem.reference_gradient(T.T @ x) for x in (u, v))
        there = log_density(kernel, v, u, gu, C, kernel.delta * q)
        return target(v) + log_density(kernel, u, v, gv, C, back) - target(u) - there

    wanted = exact(kernel.delta * q)
    host = post.sampled.input_metric.compiled.host
    got = host.log_acceptance(u, v, C, kernel.name, kernel.delta, False, q)
    tolerance = 1e-10 * (1 + abs(wanted))
    assert abs(got - wanted) <= tolerance
    assert abs(exact(kernel.delta) - wanted) > 1e6 * tolerance
    assert abs(host.log_acceptance(u, v, C, kernel.name, kernel.delta) - wanted) > 1e6 * tolerance
    assert host.log_acceptance(u, v, C, kernel.name, kernel.delta, False, np.ones(len(u))) == host.log_acceptance(
        u, v, C, kernel.name, kernel.delta
    )


def assert_native_steps(problem: Problem, kernel: Any, to_theta: FloatArray, C: FloatArray, step_size: Any) -> None:
    """30 steps, rejections included, of a kernel in x ~ N(0, C), theta = `to_theta` x; as in tests/test_sampling.py."""
    seed, steps, post = 7, 30, problem.post
    start = np.stack([problem.theta, problem.theta + 0.1])
    draws = pn.sample(post, kernel, chains=2, draws=steps, warmup=None, init=start, seed=seed)
    for chain in range(2):
        u = np.linalg.solve(to_theta, start[chain])
        for step in range(steps):
            w = proposal_normals(post, seed, chain, step, len(u))
            g = to_theta.T @ problem.reference_gradient(to_theta @ u)
            if kernel.name == "mgrad":
                v = reference.mgrad_proposal(u, g, C, w, step_size)
            else:
                s = 2 * step_size / (2 + step_size)
                v = u + s * (C * g - u) + np.sqrt(C * s * (2 - s)) * w
            back = to_theta.T @ problem.reference_gradient(to_theta @ v)
            log_ratio = problem.reference_value(to_theta @ v) + reference.log_normal(v, np.zeros_like(v), C)
            log_ratio -= problem.reference_value(to_theta @ u) + reference.log_normal(u, np.zeros_like(u), C)
            log_ratio += log_density(kernel, u, v, back, C, step_size) - log_density(kernel, v, u, g, C, step_size)
            accepted = accepts(seed, chain, step, log_ratio)
            u = v if accepted else u
            assert draws.stats["acceptance_rate"][chain, step] == accepted
            np.testing.assert_allclose(draws.theta[chain, step], to_theta @ u, rtol=0, atol=1e-9)
    assert 0 < draws.stats["acceptance_rate"].mean() < 1, "both outcomes must have been seen"


@pytest.mark.parametrize("kernel", [pn.PCNL(0.05, metric="inputs"), pn.MGrad(0.05, metric="inputs")], ids=str)
@pytest.mark.parametrize("architecture", ["full", "mix", "sep"])
def test_native_steps_are_the_reference_steps(architecture: str, kernel: Any) -> None:
    problem = problem_of(architecture)
    C = np.asarray(problem.post.prior_variance)
    assert_native_steps(problem, kernel, matrix(problem).T, C, kernel.delta * factors(problem, kernel))


def test_pcnl_never_overshoots() -> None:
    """delta q is cut at 2, where the proposal forgets the state: a flat likelihood is always accepted there."""
    post = posterior(correlated(8, 3), likelihood=pn.Gaussian(1e40), dtype="float64")
    draws = pn.sample(post, pn.PCNL(2.0, metric="inputs"), chains=2, draws=200, warmup=None, seed=1)
    assert (draws.stats["acceptance_rate"] == 1).all()
    fast = post.sampled.input_metric.step_factor(pn.PCNL()) > 1
    assert fast.any()
    z = post.sampled.input_metric.rotated(draws.theta.reshape(-1, post.dim))[:, fast].reshape(2, 200, -1)
    z = z / np.sqrt(np.asarray(post.prior_variance)[fast])
    correlation = (z[:, 1:] * z[:, :-1]).mean(axis=(0, 1))
    assert (np.abs(correlation) < 5 / np.sqrt(2 * 199)).all()  # five standard errors of independent draws


# Runs


@pytest.mark.parametrize(
    "kernel",
    [
        pn.PCNL(0.02, metric="inputs"),
        pn.MGrad(0.02, metric="inputs"),
        pn.MGrad(0.02, metric="inputs", persistence=0.9),
        pn.MGrad(0.02, metric="inputs", persistence=0.9, collapse=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("architecture", ["full", "mix", "sep"])
def test_chains_on_a_device_are_the_cpus(architecture: str, kernel: pn.Kernel, device: str) -> None:
    """As in tests/test_device_chains.py: the same moves, and states that differ by rounding."""
    post = problem_of(architecture).post
    arguments: dict[str, Any] = {"chains": 2, "draws": 10, "thin": 2, "warmup": None, "seed": 4, "threads": 1}
    on_cpu, found = (pn.sample(post, kernel, device=where, **arguments) for where in ("cpu", device))
    np.testing.assert_array_equal(found.stats["acceptance_rate"], on_cpu.stats["acceptance_rate"])
    np.testing.assert_allclose(found.theta, on_cpu.theta, rtol=0, atol=1e-7 * np.abs(on_cpu.theta).max())


def test_several_posteriors_of_one_launch_have_axes_of_their_own(device: str) -> None:
    """One posterior of the two has the metric of its inputs by kernel="auto", the other that of the prior."""
    rng = np.random.default_rng(5)
    posts = [posterior(X, dtype="float64") for X in (correlated(20, 4), rng.normal(size=(20, 4)))]
    arguments: dict[str, Any] = {"draws": 5, "warmup": pn.Warmup((Phase(20, target=0.8),)), "progress": False}
    together = pn.sample_many(posts, device=device, seed=3, **arguments)
    assert [draws.settings["kernel"]["metric"] for draws in together] == ["inputs", "prior"]
    for index, post in enumerate(posts):
        alone = pn.sample(post, chains=1, device="cpu", seed=3 + index, **arguments)
        np.testing.assert_allclose(together[index].theta, alone.theta, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_are_in_the_posteriors_own_coordinates(dtype: str) -> None:
    """The recorded log-likelihood is that of the recorded theta; starting points are the user's."""
    post = posterior(correlated(50, 4), dtype=dtype)
    kernel = pn.MGrad(1e-12, metric="inputs", persistence=0.5)
    start = np.asarray(post.theta_map)[None] + 0.3
    still = pn.sample(post, kernel, chains=1, draws=2, warmup=None, init=start, seed=1)
    np.testing.assert_allclose(still.theta[0, -1], start[0], atol=1e-4)
    draws = pn.sample(post, pn.MGrad(metric="inputs"), chains=2, draws=20, warmup=300, seed=1)
    # float32: 300 roundings of 2^-24 of residuals of order one, and as many in theta.
    error = 1e-10 if dtype == "float64" else 2e-4
    values = post.log_likelihood(draws.theta.reshape(-1, post.dim))
    np.testing.assert_allclose(draws.stats["log_likelihood"].ravel(), values, rtol=error)


# The choice


def test_auto_takes_the_metric_of_the_inputs_where_one_axis_dominates() -> None:
    post = posterior(correlated(50, 6))
    assert post.sampled.facts.input_spread is not None and post.sampled.facts.input_spread > MIN_SPREAD
    draws = pn.sample(post, chains=1, draws=3, warmup=50, seed=1)
    assert draws.settings["kernel"]["metric"] == "inputs"
    reason = draws.settings["kernel_reason"]
    assert "principal axes of the inputs" in reason and reason in post.describe()
    assert "metric='inputs'" in post.describe()


@pytest.mark.parametrize(
    "make",
    [
        lambda: posterior(np.random.default_rng(0).normal(size=(50, 6))),
        lambda: posterior(correlated(50, 1)),
        lambda: posterior(correlated(50, 6).astype(np.float32), copy=False),
        lambda: posterior((100 + 5 * correlated(50, 6)).astype(np.uint8)),
        lambda: posterior(correlated(50, 6), pn.Out(3)),
        lambda: posterior(correlated(50, 6), prior=pn.GaussianPrior(scales=pn.SampledScales(by_input=True))),
    ],
    ids=["uncorrelated", "one input", "in place", "bytes", "last layer", "scales by input"],
)
def test_auto_keeps_the_metric_of_the_prior_elsewhere(make: Any) -> None:
    draws = pn.sample(make(), chains=1, draws=3, warmup=50, seed=1)
    assert draws.settings["kernel"].get("metric", "prior") == "prior"


def split() -> pn.Posterior:
    masks = [np.zeros(shape, dtype=bool) for shape in ((6, 4), (5, 6), (1, 5))]
    masks[0][0, 1] = masks[1][0, 0] = True
    return posterior(correlated(20, 4), pn.Custom(masks, [np.ones(n, dtype=bool) for n in (6, 5, 1)]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: posterior(correlated(20, 1)), "there is a single input"),
        (lambda: posterior(correlated(20, 4), pn.Out(3)), "no weight of a first hidden layer is Bayesian"),
        (split, "some weights into a node are Bayesian and others fixed"),
        (
            lambda: posterior(correlated(20, 4), prior=pn.GaussianPrior(scales=pn.SampledScales(by_input=True))),
            "prior variances of their own",
        ),
    ],
)
def test_a_first_layer_that_cannot_be_rotated_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"kernel=MGrad\(.*metric='inputs'\) rotates.*{message}.*metric=\"prior\""):
        pn.sample(make(), pn.MGrad(0.1, metric="inputs"), draws=1, warmup=None)


def test_theta_does_not_stay_on_a_device(device: str) -> None:
    post = posterior(correlated(20, 4))
    with pytest.raises(ValueError, match=r"keep_on_device=True keeps theta as the chains have it"):
        pn.sample(post, pn.MGrad(0.1, metric="inputs"), warmup=None, device=device, keep_on_device=True)
    draws = pn.sample(post, chains=1, draws=2, warmup=20, device=device, keep_on_device=True, seed=1)
    assert draws.settings["kernel"]["metric"] == "prior"


def test_the_name_is_checked_and_kept() -> None:
    for kernel in (pn.PCNL, pn.MGrad):
        with pytest.raises(ValueError, match=rf'metric of {kernel.__name__} must be .* or "curvature"; got \'data\''):
            kernel(metric="data")
    kernel = pn.MGrad(0.1, collapse=True, metric="inputs", persistence=0.9)
    assert kernel_from_dict(kernel.to_dict()) == kernel
    old = {name: value for name, value in kernel.to_dict().items() if name != "metric"}
    assert kernel_from_dict(old).metric == "prior"
