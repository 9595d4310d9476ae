"""Student-t noise with the output weights integrated out given a precision of each row: steps, draws and refusals."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

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
from patrac_native.kernels.choice import choose_kernel
from replay import accepts, proposal_normals, proposed

Array = npt.NDArray[np.float64]
A, B, DF = 2.5, 0.3, 3.0
KERNELS: dict[str, pn.Kernel] = {
    "pcnl": pn.PCNL(0.02, collapse=True),
    "mgrad": pn.MGrad(0.02, collapse=True),
    "persistent": pn.MGrad(0.02, collapse=True, persistence=0.9),
    "inputs": pn.MGrad(0.02, collapse=True, metric="inputs"),
    "curvature": pn.MGrad(0.02, collapse=True, metric="curvature"),
}
ARCHITECTURES = ("full", "mix", "sep", "custom")
# Purposes of the noise: candidates and accept tests of the precisions of rows, and of the square of the scale.
OF_ROWS, OF_SQUARE = (11, 12), (6, 7)
BEFORE_THE_FIRST = 2**64 - 1


class Case(WeightedRows):
    """One target with outliers on 2-5-4-1 and row weights, one of which is zero."""

    def __init__(self, architecture: str = "mix", n: int = 14) -> None:
        rng = problems.rng_of("student collapsed", architecture, n)
        sampled = pn.StudentT(DF, "sampled", a=A, b=B)
        draw_y = functools.partial(np.random.Generator.standard_t, df=DF)
        super().__init__(rng, (2, 5, 4, 1), architecture, n, sampled, draw_y=draw_y)
        self.weight[3] = 0.0

    def precisions(self, theta: Array, square: float, step: int, seed: int) -> Array:
        """The precisions (n,) that chain 0 draws at a step, given theta and the square of the scale."""
        squares = (self.y - self.partial.predict(theta, self.X))[:, 0] ** 2
        gammas = _Gammas(seed, step, OF_ROWS)
        draws = (
            gammas.draw(0.5 * weight * (DF + 1), 0.5 * (DF + e / square)) if weight else 0.0
            for weight, e in zip(self.weight, squares, strict=True)
        )
        return np.fromiter(draws, np.float64)


class _Gammas:
    """Gamma draws of one step of chain 0 by Marsaglia & Tsang (2000), one after the other from the chain's noise."""

    def __init__(self, seed: int, step: int, purposes: tuple[int, int]) -> None:
        self._normals, self._uniforms = (_values(seed, step, purpose) for purpose in purposes)

    def draw(self, shape: float, rate: float) -> float:
        """Draw one number."""
        boost = math.log(next(self._uniforms)[0]) / shape if shape < 1 else 0.0
        d = (shape + 1 if shape < 1 else shape) - 1 / 3
        while True:
            x, (u, _) = next(self._normals)[1], next(self._uniforms)
            v = (1 + x / math.sqrt(9 * d)) ** 3
            if v > 0 and math.log(u) < 0.5 * x * x + d * (1 - v + math.log(v)):
                return d * v * math.exp(boost) / rate


def _values(seed: int, step: int, purpose: int) -> Iterator[tuple[float, float]]:
    """The uniform and the first normal of each block of a purpose."""
    for block in itertools.count():
        count = 2 * (block + 1)
        u = noise_reference.uniforms(seed, 0, step, purpose, count, "float64")[0][block]
        yield float(u), float(noise_reference.normals(seed, 0, step, purpose, count, "float64")[2 * block])


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kernel", ["pcnl", "mgrad"])
def test_a_step_is_that_of_normal_noise_given_the_precisions(kernel: str, architecture: str) -> None:
    """Every move and every square of the scale follow from the noise in NumPy, given the theta before them.

    theta_h moves under the marginal density of y as a normal vector, whose rows have the variances square / precision;
    then the rows' precisions and the square are drawn from gamma distributions.
    """
    case, seed, steps = Case(architecture), 4, 12
    post = case.posterior()
    split, C, chosen = post.sampled.facts.hidden_dim, np.asarray(post.prior_variance), KERNELS[kernel]
    theta = post.theta_map + 0.1 * problems.rng_of("start").normal(size=post.dim)
    square = float(post.sampled.law.initial[0])
    draws = run(post, chosen, chains=1, draws=steps, init=theta[None], seed=seed)
    precisions, moves, kept = case.precisions(theta, square, BEFORE_THE_FIRST, seed), 0, case.weight > 0
    for step in range(steps):
        data = (C, square, case.X[kept], case.y[kept], precisions[kept])

        def value_and_slope(at: Array, data: tuple[Array, float, Array, Array, Array] = data) -> tuple[float, Array]:
            slope = [reference.collapsed_slope(case.partial, at, unit, *data) for unit in np.eye(split)]
            return reference.collapsed_log_likelihood(case.partial, at, *data), np.array(slope)

        u = theta[:split]
        v, _, log_ratio = proposed(chosen, u, C[:split], proposal_normals(post, seed, 0, step, split), value_and_slope)
        moved = accepts(seed, 0, step, log_ratio)
        moves += moved
        theta = draws.theta[0, step]
        # One step from a recorded state: rounding of the gradient and the sums of a proposal.
        np.testing.assert_allclose(theta[:split], v if moved else u, rtol=0, atol=1e-9)
        precisions = case.precisions(theta, square, step, seed)
        e = (case.y - case.partial.predict(theta, case.X))[:, 0]
        shape, rate = A + 0.5 * case.weight.sum(), B + 0.5 * precisions @ e**2
        square = float(draws.stats["variance"][0, step])
        np.testing.assert_allclose(square, 1 / _Gammas(seed, step, OF_SQUARE).draw(shape, rate), rtol=1e-9)
    assert moves > 0


def test_output_weights_have_their_conditional_given_the_precisions() -> None:
    """Whitened with the precisions and the square that the chain had at the step, they are standard normal."""
    case, seed, whitened = Case(), 4, []
    post = case.posterior()
    draws = run(post, KERNELS["mgrad"], chains=1, draws=400, seed=seed)
    split, kept = post.sampled.facts.hidden_dim, case.weight > 0
    for step in range(1, 400):
        before, theta = draws.theta[0, step - 1 : step + 1]
        # Those of the step before follow from the square before that.
        square = draws.stats["variance"][0, step - 2] if step > 1 else post.sampled.law.initial[0]
        precisions = case.precisions(before, square, step - 1, seed)
        mean, covariance = reference.output_conditional(
            case.partial,
            theta[:split],
            post.prior_variance,
            draws.stats["variance"][0, step - 1],
            case.X[kept],
            case.y[kept],
            precisions[kept],
        )
        whitened.append(np.linalg.solve(np.linalg.cholesky(covariance), theta[split:] - mean))
    assert_standard_normal(np.array(whitened))


@pytest.mark.parametrize("architecture", ["full", "mix"])
def test_moments_are_those_of_chains_on_all_parameters(architecture: str) -> None:
    """Means and mean squares of f and of log scale^2 differ by less than 4.5 of their standard errors.

    Those are of the means of chains from their warm-up on, so that they hold whatever the autocorrelation.
    """
    case, found = Case(architecture, n=40), []
    post = case.posterior()
    for collapse in (True, False):
        draws = pn.sample(
            post,
            pn.MGrad(collapse=collapse, persistence=0.9),
            chains=32,
            draws=400,
            thin=10,
            warmup=2000,
            variance_every=2,
            seed=7,
            threads=1,
            progress=False,
        )
        numbers = [draws.predict(case.X[:4])[..., 0], np.log(draws.stats["variance"])[..., None]]
        both = np.concatenate(numbers, axis=2)
        found.append(np.concatenate([both, both**2], axis=2).mean(axis=1))
    means, errors = zip(*[(of.mean(axis=0), of.var(axis=0, ddof=1) / len(of)) for of in found], strict=True)
    assert (np.abs(means[0] - means[1]) < 4.5 * np.sqrt(errors[0] + errors[1])).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("architecture", ["full", "mix"])
def test_log_likelihoods_are_those_of_the_returned_theta_and_scale(architecture: str, kernel: str, dtype: str) -> None:
    """Over the precisions of the rows, which are not among the draws."""
    post = Case(architecture, n=300).posterior(dtype=dtype)
    draws = run(post, KERNELS[kernel], variance_every=3)
    assert len(np.unique(draws.stats["variance"])) == 2 * 16 + 1
    assert_log_likelihoods(draws, post)


@pytest.mark.parametrize(
    ("architecture", "n", "kernel"), [("mix", 14, "persistent"), ("sep", 400, "persistent"), ("full", 400, "curvature")]
)
def test_draws_depend_neither_on_thinning_nor_on_chains_or_threads(architecture: str, n: int, kernel: str) -> None:
    post = Case(architecture, n).posterior(dtype="float32")
    assert_draws_depend_on_nothing_else(post, KERNELS[kernel], variance_every=4)


def test_draws_do_not_depend_on_threads_that_share_rows() -> None:
    post = Case("full", n=120_000).posterior(dtype="float32")
    one, three = (run(post, KERNELS["mgrad"], chains=1, draws=5, variance_every=2, threads=n) for n in (1, 3))
    np.testing.assert_array_equal(one.theta, three.theta)
    np.testing.assert_array_equal(one.stats["variance"], three.stats["variance"])


def test_an_infinite_scale_is_refused() -> None:
    """Of a vague prior near the largest number; the chain goes on, with the precisions before."""
    case = Case()
    case.weight[1:] = 0.0
    post = case.posterior(pn.StudentT(DF, "sampled", a=0.02, b=1e307))
    with pytest.warns(UserWarning, match="not finite and were rejected"):
        draws = run(post, KERNELS["mgrad"], draws=300)
    assert (draws.stats["nonfinite"] > 0).all()
    assert np.isfinite(draws.stats["variance"]).all() and np.isfinite(draws.stats["log_likelihood"]).all()
    assert_log_likelihoods(draws, post)


def test_the_choice_of_a_kernel() -> None:
    kernel, reason = choose_kernel(Case().posterior().sampled.facts)
    assert kernel.collapse
    assert reason.startswith("student-t likelihood, normal given a precision of each row: ")


def test_what_it_refuses() -> None:
    case = Case()
    with pytest.raises(
        ValueError, match=r'collapse=True.* StudentT\(df, "sampled"\), whose .* got StudentT\(df=3\.0, s'
    ):
        run(case.posterior(pn.StudentT(DF, 1.0)), KERNELS["mgrad"])
    with pytest.raises(
        ValueError, match=r"density='collapsed' is one given a precision of each row, .* density=\"posterior\""
    ):
        case.posterior().density("collapsed", variance=1.0)
