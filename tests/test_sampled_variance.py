"""A sampled noise variance: the Gibbs step replayed from its noise, its distributions, and its records."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

import noise_reference
import patrac_native as pn
import problems
import reference
from chains import (
    WeightedRows,
    assert_draws_depend_on_nothing_else,
    assert_log_likelihoods,
    assert_standard_normal,
    run,
)
from replay import accepts, proposal_normals, proposed
from rounding import assert_log_priors

FloatArray = npt.NDArray[np.float64]
A, B = 2.5, 0.8
VARIANCE_NORMAL, VARIANCE_UNIFORM = 6, 7  # purposes of the noise
KERNELS: dict[str, pn.Kernel] = {
    "pcn": pn.PCN(0.2),
    "pcnl": pn.PCNL(0.05),
    "mgrad": pn.MGrad(0.02),
    "elliptical slice": pn.EllipticalSlice(),
    "collapsed pcnl": pn.PCNL(0.2, collapse=True),
    "collapsed mgrad": pn.MGrad(0.3, collapse=True),
}


class Case(WeightedRows):
    """Rows of two outputs on 2-5-4-2, with one sampled variance (`pooled`) or one for each."""

    def __init__(self, name: str, architecture: str, n: int = 14, *, pooled: bool = True) -> None:
        rng = problems.rng_of("sampled variance", name, architecture, n)
        sampled = pn.Gaussian("sampled", a=A, b=B, pooled=pooled)
        super().__init__(rng, (2, 5, 4, 2), architecture, n, sampled)


# The chain, step by step


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("architecture", ["full", "mix", "sep", "custom"])
@pytest.mark.parametrize("kernel", ["pcn", "pcnl", "mgrad", "collapsed pcnl", "collapsed mgrad"])
def test_every_step_uses_the_variance_drawn_before_it(kernel: str, architecture: str, pooled: bool) -> None:
    """Each move of the chain follows from its noise with l and g at the current variance, taken afresh.

    A cached l or g that was not refreshed after the variance changed would give other proposals and decisions.
    """
    case = Case("replay", architecture, pooled=pooled)
    post, chosen, steps, seed = case.posterior(), KERNELS[kernel], 60, 8
    collapse = kernel.startswith("collapsed")
    draws = run(post, chosen, chains=1, draws=steps, seed=seed, variance_every=1 if pooled else 3)
    theta, variance = draws.theta[0], draws.stats["variance"][0]
    dim = post.sampled.facts.hidden_dim if collapse else post.dim
    C = np.asarray(post.prior_variance[:dim])
    moves = 0
    for step in range(1, steps):
        fixed = case.posterior(pn.Gaussian(variance[step - 1]))
        evaluate: Any = fixed.density("collapsed").value_and_grad if collapse else fixed.log_likelihood_and_grad
        u = theta[step - 1, :dim]
        v, _, log_ratio = proposed(chosen, u, C, proposal_normals(post, seed, 0, step, dim), evaluate)
        moved = accepts(seed, 0, step, log_ratio)
        moves += moved
        # One step from a recorded state: rounding of the gradient and the sums of a proposal.
        np.testing.assert_allclose(theta[step, :dim], v if moved else u, rtol=0, atol=1e-10)
    assert 0 < moves < steps - 1


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize(
    ("kernel", "architecture"),
    [(kernel, "mix") for kernel in KERNELS]
    + [(kernel, "out") for kernel in (*KERNELS, "exact") if not kernel.startswith("collapsed")],
)
def test_the_variance_has_its_conditional_distribution(kernel: str, architecture: str, pooled: bool) -> None:
    """Inverse gamma with the residuals of the theta that is kept with it: uniform through its distribution function."""
    case = Case("conditional", architecture, pooled=pooled)
    post = case.posterior()
    draws = run(post, pn.Exact() if kernel == "exact" else KERNELS[kernel], draws=400)
    assert draws.stats["variance"].shape == ((2, 400) if pooled else (2, 400, 2))
    theta, variance = draws.theta.reshape(-1, post.dim), draws.stats["variance"].reshape(800, -1)
    outputs = [slice(None)] if pooled else [slice(0, 1), slice(1, 2)]
    levels = []
    for row, values in zip(theta, variance, strict=True):
        f = case.partial.predict(row, case.X)
        conditional = [reference.variance_conditional(A, B, f[:, c], case.y[:, c], case.weight) for c in outputs]
        levels.append([stats.invgamma.cdf(x, a, scale=b) for x, (a, b) in zip(values, conditional, strict=True)])
    for of_output in np.array(levels).T:
        _check_independent_uniforms(of_output)
    if not pooled:  # nor do the draws of two outputs at one step
        first, second = np.array(levels).T - 0.5
        assert abs(12 * (first * second).mean()) < 4 / np.sqrt(len(first))


@pytest.mark.parametrize("a", [0.1, 1.5])
def test_the_variance_follows_from_its_noise(a: float) -> None:
    """A gamma variable of a shape below or above one in NumPy: a test that errs in a rejection gives others."""
    case = Case("noise", "mix", 1)
    draws = run(case.posterior(pn.Gaussian("sampled", a=a, b=B)), pn.PCN(0.2), chains=1, draws=300, seed=6)
    tries = 0
    for step, (theta, variance) in enumerate(zip(draws.theta[0], draws.stats["variance"][0], strict=True)):
        f = case.partial.predict(theta, case.X)
        law = [reference.variance_conditional(a, B, f[:, c : c + 1], case.y[:, c : c + 1], case.weight) for c in (0, 1)]
        assert all((shape < 1) == (a < 1) for shape, _ in law)
        normals = noise_reference.normals(6, 0, step, VARIANCE_NORMAL, 40, "float64")[::2]
        words = (noise_reference.words(6, 0, step, VARIANCE_UNIFORM, block) for block in range(20))
        uniforms = iter([((x[0] << 32 | x[1]) >> 12) * 2.0**-52 + 2.0**-53 for x in words])
        left = iter(normals.tolist())
        expected = [reference.inverse_gamma(left, uniforms, *one) for one in law]
        # Rounding of the residuals, and of a logarithm that is raised to the power 1 / shape.
        np.testing.assert_allclose(variance, expected, rtol=1e-10)
        tries += 20 - len(list(left))
    assert tries > 600  # some candidates were rejected


def _check_independent_uniforms(levels: FloatArray) -> None:
    """Check the levels of two chains, one after the other: uniform, and uncorrelated in time and between chains."""
    assert stats.kstest(levels, "uniform").pvalue > 1e-4
    # Draws at different steps do not hang together: products of standardised uniforms, 4 standard errors.
    level = levels.reshape(2, -1) - 0.5
    assert abs(12 * (level[:, 1:] * level[:, :-1]).mean()) < 4 / np.sqrt(level.size)
    assert abs(12 * (level[0] * level[1]).mean()) < 4 / np.sqrt(level.shape[1])


@pytest.mark.parametrize("kernel", ["collapsed pcnl", "collapsed mgrad"])
def test_output_weights_have_their_conditional_given_the_variance_before_them(kernel: str) -> None:
    """a is drawn between theta_h and the new variance: whitened with the old one it is standard normal."""
    case = Case("weights", "mix")
    post = case.posterior()
    draws = run(post, KERNELS[kernel], chains=1, draws=500)
    C, split = post.prior_variance, post.sampled.facts.hidden_dim
    whitened = []
    for step in range(1, 500):
        theta, variance = draws.theta[0, step], draws.stats["variance"][0, step - 1]
        mean, covariance = reference.output_conditional(
            case.partial, theta[:split], C, variance, case.X, case.y, case.weight
        )
        whitened.append(np.linalg.solve(np.linalg.cholesky(covariance), theta[split:] - mean))
    assert_standard_normal(np.array(whitened))


# Against the closed form


def variance_posterior(case: Case, output: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Grid of log sigma^2 and its posterior probabilities: the evidence of a last layer times the inverse gamma.

    With `output`, that of the variance of one output, whose evidence is a factor: the other's variance stays at 1.
    """
    C = case.partial.prior_variances(problems.PRIOR, case.net.layer_sizes)
    grid = np.linspace(math.log(1e-3), math.log(1e3), 600)
    log_density = []
    for t in grid:
        variance = np.full(2, math.exp(t)) if output is None else np.where(np.arange(2) == output, math.exp(t), 1.0)
        evidence = reference.collapsed_log_likelihood(
            case.partial, np.zeros(0), C, variance, case.X, case.y, case.weight
        )
        # Density of log sigma^2: one factor sigma^2 more.
        log_density.append(evidence - A * t - B * math.exp(-t))
    density = np.exp(np.array(log_density) - max(log_density))
    assert density[0] < 1e-12 > density[-1]
    return grid, density / density.sum()


@pytest.mark.parametrize(("dtype", "output"), [("float32", None), ("float64", None), ("float32", 0), ("float32", 1)])
@pytest.mark.parametrize("kernel", ["pcn", "pcnl", "mgrad", "elliptical slice", "exact"])
def test_the_variance_of_a_last_layer_model_has_its_exact_posterior(
    kernel: str, dtype: str, output: int | None
) -> None:
    """Moments of log sigma^2 and probabilities below its exact 5, 50 and 95% quantiles, within 4.5 standard errors."""
    case = Case("exact posterior", "out", pooled=output is None)
    grid, density = variance_posterior(case, output)
    chosen = pn.Exact() if kernel == "exact" else KERNELS[kernel]
    thin, every = (1, 1) if kernel == "exact" else (20, 1 if output is None else 4)
    draws = run(
        case.posterior(dtype=dtype), chosen, chains=8, draws=2000, thin=thin, init="prior", seed=9, variance_every=every
    )
    # The first tenth is forgotten: chains start at prior draws.
    variance = draws.stats["variance"][:, 200:]
    log_variance = np.log(variance if output is None else variance[..., output])
    mean = float(density @ grid)
    centred = log_variance - mean
    below = [log_variance < grid[np.searchsorted(np.cumsum(density), q)] for q in (0.05, 0.5, 0.95)]
    exact = [0.0, float(density @ (grid - mean) ** 2)]
    exact += [float(density[: np.searchsorted(np.cumsum(density), q)].sum()) for q in (0.05, 0.5, 0.95)]
    for values, expected in zip([centred, centred**2, *below], exact, strict=True):
        # 9 batches of 200 kept draws in each chain; a batch is much longer than the autocorrelation.
        means = np.asarray(values, dtype=np.float64).reshape(8 * 9, 200).mean(axis=1)
        # A grid cell more or less: 0.023 of log sigma^2, at most its density times that.
        cell = float(density.max())
        assert abs(means.mean() - expected) < 4.5 * means.std(ddof=1) / math.sqrt(len(means)) + 0.5 * cell


# What is reported


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_log_likelihoods_are_those_of_the_returned_theta_and_variance(kernel: str, dtype: str, pooled: bool) -> None:
    case = Case("stats", "mix", pooled=pooled)
    post = case.posterior(dtype=dtype)
    draws = run(post, KERNELS[kernel], variance_every=1 if pooled else 3)
    variance = draws.stats["variance"]
    assert variance.shape == ((2, 50) if pooled else (2, 50, 2)) and (variance > 0).all()
    assert_log_likelihoods(draws, post)
    assert_log_priors(draws, post)


def test_variances_are_drawn_given_a_single_output_weight_too() -> None:
    """One weight is integrated out, above a node whose two weights are sampled: its squares differ from those of 0."""
    rng = problems.rng_of("single output weight")
    net = problems.random_network(rng, (2, 4, 2))
    X, masks = rng.normal(size=(14, 2)), [np.arange(4)[:, None] == [0, 0], np.arange(8).reshape(2, 4) == 0]
    architecture = pn.Custom(masks, [np.zeros(4, dtype=bool), np.zeros(2, dtype=bool)])
    post = pn.Posterior(net, architecture, problems.PRIOR, pn.Gaussian("sampled", a=A, b=B), X, 3 * X)
    assert (post.dim, post.sampled.facts.hidden_dim) == (3, 2)
    draws = run(post, KERNELS["collapsed pcnl"])
    assert draws.stats["variance"].shape == (2, 50, 2)
    assert_log_likelihoods(draws, post)


def test_the_log_likelihood_at_a_variance_is_that_of_a_fixed_one() -> None:
    case = Case("fixed", "mix")
    post = case.posterior()
    theta = post.theta_map + 0.1 * problems.rng_of("theta").normal(size=(3, post.dim))
    for variance in (0.05, 1.0, 40.0):
        fixed = case.posterior(pn.Gaussian(variance))
        expected, gradient = fixed.log_likelihood_and_grad(theta)
        got, slope = post.log_likelihood_and_grad(theta, variance=variance)
        np.testing.assert_allclose(got, expected, rtol=1e-13)
        np.testing.assert_allclose(slope, gradient, rtol=1e-12, atol=1e-12 * np.abs(gradient).max())
        np.testing.assert_allclose(post.log_likelihood(theta, variance=variance), expected, rtol=1e-13)
    each = np.array([0.05, 1.0, 40.0])
    one_by_one = [post.log_likelihood(row, variance=value) for row, value in zip(theta, each, strict=True)]
    np.testing.assert_array_equal(post.log_likelihood(theta, variance=each), one_by_one)


def test_the_log_likelihood_at_a_variance_of_each_output_is_that_of_fixed_ones() -> None:
    case = Case("fixed", "mix", pooled=False)
    post = case.posterior()
    theta = post.theta_map + 0.1 * problems.rng_of("theta").normal(size=(2, post.dim))
    each = np.array([[0.05, 3.0], [2.0, 0.4]])
    values, gradients = post.log_likelihood_and_grad(theta, variance=each)
    for point, variance, value, gradient in zip(theta, each, values, gradients, strict=True):
        expected, slope = case.posterior(pn.Gaussian(variance)).log_likelihood_and_grad(point)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(gradient, slope, rtol=1e-12, atol=1e-12 * np.abs(slope).max())
        np.testing.assert_allclose(post.log_likelihood(point, variance=variance), expected, rtol=1e-13)
    with pytest.raises(ValueError, match=r"variance must have shape \(2,\).* or have shape \(2, 2\)"):
        post.log_likelihood(theta, variance=1.0)


def test_variances_are_reported_if_and_only_if_they_are_sampled() -> None:
    case = Case("present", "mix")
    assert "variance" in run(case.posterior(), pn.MGrad(0.1)).stats
    assert "variance" not in run(case.posterior(pn.Gaussian(1.0)), pn.MGrad(0.1)).stats


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("kernel", [*KERNELS, "exact"])
def test_draws_depend_neither_on_thinning_nor_on_chains_or_threads(kernel: str, pooled: bool) -> None:
    post = Case("shape", "out" if kernel == "exact" else "mix", pooled=pooled).posterior()
    chosen = pn.Exact() if kernel == "exact" else KERNELS[kernel]
    assert_draws_depend_on_nothing_else(post, chosen, variance_every=1 if pooled else 4)


# Bad input


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["a", "b"])
def test_shape_and_scale_must_be_positive(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"\b{name}\b.* positive"):
        pn.Gaussian(variance="sampled", **{name: value})


def test_a_sampled_variance_must_be_given_to_log_likelihood_and_a_fixed_one_must_not() -> None:
    case = Case("arguments", "mix")
    post = case.posterior()
    with pytest.raises(ValueError, match="variance"):
        post.log_likelihood(post.theta_map)
    with pytest.raises(ValueError, match="variance"):
        post.log_likelihood(post.theta_map, variance=-1.0)
    fixed = case.posterior(pn.Gaussian(1.0))
    with pytest.raises((TypeError, ValueError), match="variance"):
        fixed.log_likelihood(fixed.theta_map, variance=1.0)
