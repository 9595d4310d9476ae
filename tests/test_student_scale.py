"""Student-t noise with sampled scales: its law given theta, what chains report, predictions, files and refusals."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

import patrac_native as pn
import problems
from chains import WeightedRows, assert_draws_depend_on_nothing_else, assert_log_likelihoods, run
from replay import accepts, proposal_normals, proposed

FloatArray = npt.NDArray[np.float64]
A, B, DF = 2.5, (0.3, 1.2), 3.0
KERNELS: dict[str, pn.Kernel] = {
    "pcn": pn.PCN(0.2),
    "pcnl": pn.PCNL(0.02),
    "mgrad": pn.MGrad(0.02, persistence=0.9),
    "elliptical slice": pn.EllipticalSlice(),
}


class Case(WeightedRows):
    """Targets with outliers on 2-5-4-m and row weights, one of which is zero."""

    def __init__(self, architecture: str = "mix", n: int = 14, m: int = 2) -> None:
        rng = problems.rng_of("student scale", architecture, n, m)
        sampled = pn.StudentT(DF, "sampled", a=A, b=B[:m])
        draw_y = functools.partial(np.random.Generator.standard_t, df=DF)
        super().__init__(rng, (2, 5, 4, m), architecture, n, sampled, draw_y=draw_y)
        self.weight[3] = 0.0


@pytest.mark.parametrize("n", [14, 400])
def test_the_scale_has_its_conditional_distribution(n: int) -> None:
    """With theta fixed, moments of log scale^2 and probabilities below its exact quantiles, within 4.5 standard errors.

    The law is that of the prior times the weighted t density, on a grid; its mixture is not used.
    """
    case = Case(n=n)
    post = case.posterior()
    # pCN with this step size moves theta by 1e-9 of itself in all.
    draws = run(post, pn.PCN(1e-12), draws=3000, chains=4, init="map")
    residuals = case.y - post.network.predict(draws.theta[0, 0], case.X)
    for output, b in enumerate(B):
        grid = np.linspace(math.log(1e-3), math.log(1e3), 4000)
        scale = np.exp(0.5 * grid)
        terms = stats.t.logpdf(residuals[:, output, None] / scale, DF) - np.log(scale)
        log_density = stats.invgamma.logpdf(scale**2, A, scale=b) + grid + case.weight @ terms
        density = np.exp(log_density - log_density.max())
        density /= density.sum()
        assert density[0] < 1e-12 > density[-1]
        found = np.log(draws.stats["variance"][:, 200:, output])
        mean, below = float(density @ grid), np.cumsum(density)
        quantities = [(found - mean, 0.0), ((found - mean) ** 2, float(density @ (grid - mean) ** 2))]
        for q in (0.05, 0.5, 0.95):
            at = int(np.searchsorted(below, q))
            quantities.append((found < grid[at] + 0.5 * (grid[1] - grid[0]), float(below[at])))
        for values, expected in quantities:
            means = np.asarray(values, dtype=np.float64).reshape(4 * 14, 200).mean(axis=1)  # batches of one chain
            # A grid cell more or less: at most its probability.
            error = 4.5 * means.std(ddof=1) / math.sqrt(len(means)) + float(density.max())
            assert abs(means.mean() - expected) < error


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("architecture", "m"), [("full", 1), ("mix", 2), ("sep", 2), ("out", 2)])
def test_log_likelihoods_are_those_of_the_returned_theta_and_scale(
    architecture: str, m: int, kernel: str, dtype: str
) -> None:
    post = Case(architecture, m=m).posterior(dtype=dtype)
    draws = run(post, KERNELS[kernel], variance_every=3)
    variance = draws.stats["variance"]
    assert variance.shape == ((2, 50) if m == 1 else (2, 50, 2)) and len(np.unique(variance)) == 2 * 16 * m + m
    assert_log_likelihoods(draws, post)


@pytest.mark.parametrize("m", [1, 2])
def test_the_log_likelihood_at_a_scale_is_that_of_a_fixed_one(m: int) -> None:
    case = Case(m=m)
    post = case.posterior()
    theta = post.theta_map + 0.1 * problems.rng_of("theta").normal(size=(3, post.dim))
    squares = np.array([[0.05, 3.0], [2.0, 0.4], [1.0, 1.0]])[:, :m]
    given = squares[:, 0] if m == 1 else squares
    values, gradients = post.log_likelihood_and_grad(theta, variance=given)
    np.testing.assert_array_equal(post.log_likelihood(theta, variance=given), values)
    for point, square, value, gradient in zip(theta, squares, values, gradients, strict=True):
        expected, slope = case.posterior(pn.StudentT(DF, np.sqrt(square))).log_likelihood_and_grad(point)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(gradient, slope, rtol=1e-12, atol=1e-12 * np.abs(gradient).max())


@pytest.mark.parametrize("kernel", [pn.PCNL(0.02), pn.MGrad(0.02)], ids=str)
def test_a_step_uses_the_scale_drawn_before_it(kernel: pn.Kernel) -> None:
    """A chain that draws its scales in every step goes on, for one step, as one with these scales fixed.

    pCNL and mGrad use g at the state: a stale one would give another proposal. The chains share step and noise.
    """
    case = Case()
    draws = run(case.posterior(), kernel, chains=1, draws=40)
    for step in range(1, 40):
        state, square = draws.theta[0, step - 1], draws.stats["variance"][0, step - 1]
        fixed = case.posterior(pn.StudentT(DF, np.sqrt(square)))
        w = proposal_normals(fixed, 4, 0, step, fixed.dim)
        v, _, log_ratio = proposed(kernel, state, fixed.prior_variance, w, fixed.log_likelihood_and_grad)
        expected = v if accepts(4, 0, step, log_ratio) else state
        np.testing.assert_allclose(draws.theta[0, step], expected, rtol=0, atol=1e-10)
    assert 0.2 < draws.stats["acceptance_rate"].mean() < 1


@pytest.mark.parametrize("n", [14, 400])
def test_draws_depend_neither_on_thinning_nor_on_chains_or_threads(n: int) -> None:
    assert_draws_depend_on_nothing_else(Case(n=n).posterior(), KERNELS["mgrad"], variance_every=4)


def test_an_infinite_scale_is_refused() -> None:
    """Of a vague prior near the largest number; the chain goes on."""
    case = Case()
    case.weight[1:] = 0.0
    post = case.posterior(pn.StudentT(DF, "sampled", a=0.02, b=1e307))
    with pytest.warns(UserWarning, match="not finite and were rejected"):
        draws = run(post, pn.PCN(0.3), draws=300)
    assert (draws.stats["nonfinite"] > 0).all()
    assert np.isfinite(draws.stats["variance"]).all() and np.isfinite(draws.stats["log_likelihood"]).all()
    assert draws.stats["acceptance_rate"][:, -100:].mean() > 0.9


# The prior


@pytest.mark.parametrize(("df", "share"), [(1.0, 0.25), (2.5, 0.25), (4.0, 0.5), (10.0, 0.8)])
def test_the_default_prior_knows_the_scale(df: float, share: float) -> None:
    """b = a v / 2 with v the mean squared residual times (df - 2) / df, at least a quarter; the source is said."""
    case = Case()
    with pytest.warns(UserWarning, match=r'give a and b, as in StudentT\(.*, "sampled", a=2, b=\.\.\.\)'):
        post = case.posterior(pn.StudentT(df, "sampled"))
        pn.sample(post, pn.PCN(0.1), draws=1, warmup=None, progress=False)
    assert post.sampled.law.source == "training"
    mean = case.weight @ (case.y - case.net.predict(case.X)) ** 2 / case.weight.sum()
    a, b = post.likelihood.variance_prior(2)
    assert a == 2.0
    np.testing.assert_allclose(b, share * mean, rtol=1e-12)


def test_the_fitted_scale_is_the_mode() -> None:
    case = Case()
    residuals = case.y - case.net.predict(case.X)
    at = case.likelihood.fitted(np.zeros_like(residuals), residuals, case.weight).variance_vector(2)

    def log_density(square: FloatArray) -> float:
        """Density of scale^2, unnormalised."""
        rows = pn.StudentT(DF, np.sqrt(square)).log_likelihood_rows(residuals * 0, residuals)
        return float(case.weight @ rows - ((A + 1) * np.log(square) + np.array(B) / square).sum())

    for factor in (0.99, 1.01):
        for output in range(2):
            moved = at * np.where(np.arange(2) == output, factor, 1.0)
            assert log_density(moved) < log_density(at)


# Predictions and files


def test_predictions_mix_over_the_scales(tmp_path: Path) -> None:
    case = Case()
    draws = run(case.posterior(), KERNELS["mgrad"], draws=200)
    draws.save(tmp_path / "draws.npz")
    again = pn.Draws.load(tmp_path / "draws.npz")
    assert repr(again.likelihood) == repr(draws.likelihood) == repr(case.likelihood)
    X, y = case.X[:4], case.y[:4]
    f, scale = draws.predict(X), np.sqrt(draws.stats["variance"])[:, :, None, :]
    each = (stats.t.logpdf((y - f) / scale, DF) - np.log(scale)).sum(axis=-1)
    for one in (draws, again):
        np.testing.assert_allclose(one.log_likelihood_rows(X, y), each, rtol=1e-10)
    mixed = np.log(np.mean(np.exp(each.reshape(-1, 4)), axis=0))
    np.testing.assert_allclose(draws.distribution(X).nlpd(y, per_row=True), -mixed, rtol=1e-10)
    low, high = draws.interval(X, 0.8)
    inside = stats.t.cdf((high - f) / scale, DF).reshape(-1, 4, 2).mean(axis=0)
    np.testing.assert_allclose(inside, 0.9, atol=1e-6)
    assert (low < high).all()
    # Noise over scale is t noise: of 3,200 numbers, a fifth of which lies beyond the deciles.
    noise = (draws.predictive(X, seed=1) - f) / scale
    beyond = (np.abs(noise) > stats.t.ppf(0.9, DF)).mean()
    assert abs(beyond - 0.2) < 4.5 * math.sqrt(0.16 / noise.size)
    assert np.isfinite(draws.summary(X, y).evidence.calibration.nlpd)


def test_members_of_a_mixture_keep_their_scales() -> None:
    case = Case()
    members = [run(case.posterior(), KERNELS["mgrad"], seed=seed) for seed in (1, 2)]
    mixture = pn.DrawsMixture(members)
    rows = [np.exp(one.log_likelihood_rows(case.X, case.y)).mean(axis=(0, 1)) for one in members]
    np.testing.assert_allclose(
        mixture.distribution(case.X).nlpd(case.y, per_row=True), -np.log(np.mean(rows, axis=0)), rtol=1e-10
    )


# Bad input


def test_a_device_refuses_it() -> None:
    with pytest.raises(
        ValueError, match=r'^device="emulated:1" samples the variance of Gaussian noise alone; got Stud'
    ):
        run(Case().posterior(), KERNELS["mgrad"], device="emulated:1")


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match='scale must be a positive number, one for each output, or "sampled"'):
        pn.StudentT(4.0, "drawn")
    for name in ("a", "b"):
        with pytest.raises(ValueError, match=rf"\b{name}\b.* positive"):
            pn.StudentT(4.0, "sampled", **{name: -1.0})
        with pytest.raises(ValueError, match="a and b are the prior of a sampled scale"):
            pn.StudentT(4.0, 1.0, **{name: 1.0})
    with pytest.raises(ValueError, match="b has 3 entries, but the network has 2 outputs"):
        Case().posterior(pn.StudentT(4.0, "sampled", b=[1.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match="the scale is sampled"):
        pn.StudentT(4.0, "sampled").scale_vector(1)
    with pytest.raises(ValueError, match=r"collapse=True.* needs a Gaussian likelihood"):
        run(Case().posterior(), pn.MGrad(collapse=True))
