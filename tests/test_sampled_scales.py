"""Sampled scales of the prior: the Gibbs step replayed from its noise, its distributions, records and arguments."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
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
from patrac_native.network.ranking import rank_nodes
from patrac_native.priors import prior_from_dict
from replay import accepts, proposal_normals, proposed

FloatArray = npt.NDArray[np.float64]
A = 1.5
RESCALE_NORMAL, RESCALE_UNIFORM = 13, 14  # purposes of the noise
KERNELS: dict[str, pn.Kernel] = {
    "pcn": pn.PCN(0.2),
    "pcnl": pn.PCNL(0.05),
    "mgrad": pn.MGrad(0.02),
    "persistent mgrad": pn.MGrad(0.02, persistence=0.9),
    "elliptical slice": pn.EllipticalSlice(),
    "collapsed pcnl": pn.PCNL(0.2, collapse=True),
    "collapsed mgrad": pn.MGrad(0.3, collapse=True),
    "collapsed persistent mgrad": pn.MGrad(0.3, collapse=True, persistence=0.9),
}
TRACE_CLASS = pn.TraceClassPrior(1.5, (1.0, 0.6, 2.0), 0.5, scales=pn.SampledScales(A))
GAUSSIAN = pn.GaussianPrior(1.5, (0.3, 0.5, 0.2), fan_in=True, scales=pn.SampledScales(A, by_input=True))


class Case(WeightedRows):
    """Rows of two outputs on 2-5-4-2, with sampled scales.

    The architecture "narrow" is Full on 2-4-4-1, whose evaluations have loops of known width.
    """

    def __init__(self, name: str, architecture: str, n: int = 14, prior: pn.Prior = TRACE_CLASS) -> None:
        rng = problems.rng_of("sampled scales", name, architecture, n)
        sizes = (2, 4, 4, 1) if architecture == "narrow" else (2, 5, 4, 2)
        super().__init__(rng, sizes, architecture.replace("narrow", "full"), n, pn.Gaussian(0.5), prior)


def group_of(case: Case, by_input: bool) -> list[tuple[int, bool, int]]:
    """Layer, whether it is a bias, and the input (or -1) of each entry of theta, from the oracle's positions."""
    return [(layer, j < 0, j if by_input and layer == 1 and j >= 0 else -1) for layer, _, j in case.partial.locations()]


def prior_variance(case: Case, scales: FloatArray) -> FloatArray:
    """C given the scales (G,): the oracle's variance of each entry times its group's scale over its centre."""
    law = case.prior.sampled_scales
    assert law is not None
    own = group_of(case, law.by_input)
    groups = sorted(set(own))
    layers = case.partial.n_layers
    centres = [np.broadcast_to(getattr(case.prior, name), layers) for name in ("sigma2_w", "sigma2_b")]
    base = case.posterior().prior_variance
    factor = [scales[groups.index(one)] / centres[one[1]][one[0] - 1] for one in own]
    return np.asarray(base * np.array(factor))


class Replay:
    """What the replay of a chain of one run needs: its noise, and l and g at a point under a prior covariance."""

    def __init__(self, kernel: str, architecture: str, prior: pn.Prior, steps: int, scales_every: int = 1) -> None:
        self.case = Case("replay", architecture, prior=prior)
        self.post, self.kernel, self.seed = self.case.posterior(), KERNELS[kernel], 8
        self.collapse = self.kernel.collapse
        draws = run(self.post, self.kernel, chains=1, draws=steps, seed=self.seed, scales_every=scales_every)
        self.dim = self.post.sampled.facts.hidden_dim if self.collapse else self.post.dim
        self.theta = draws.theta[0, :, : self.dim]
        self.variance = [prior_variance(self.case, scales) for scales in draws.stats["prior_scales"][0]]

    def normals(self, step: int) -> FloatArray:
        """The normals of a step's proposal."""
        return proposal_normals(self.post, self.seed, 0, step, self.dim)

    def step(self, step: int) -> tuple[FloatArray, float, float]:
        """Return the proposal of a step from the state before it, l there, and the log acceptance ratio."""
        u, C = self.theta[step - 1], self.variance[step - 1]
        return proposed(self.kernel, u, C[: self.dim], self.normals(step), lambda x: self.value_and_slope(x, C))

    def value_and_slope(self, point: FloatArray, C: FloatArray) -> tuple[float, FloatArray]:
        """l and g at a point; collapsed, under the prior C (K,) of the output weights."""
        if self.collapse:
            values, slopes = self.post.sampled.compiled.host.collapsed(point[None], C, True)
            return float(values[0]), slopes[0]
        value, slope = self.post.log_likelihood_and_grad(point)
        assert isinstance(value, float)
        return value, slope

    def rescaling(
        self, draw: int, at: FloatArray, l_at: float, C: FloatArray, deviations: FloatArray
    ) -> tuple[int, float, float, FloatArray]:
        """Return the group of a move of a scale with its parameters, the log ratio, its uniform and the point."""
        choice, threshold = (
            ((x[0] << 32 | x[1]) >> 12) * 2.0**-52 + 2.0**-53
            for x in (noise_reference.words(self.seed, 0, draw, RESCALE_UNIFORM, block) for block in (0, 1))
        )
        groups = self.post.sampled.scales
        assert groups is not None
        group = int(choice * len(groups.names))
        log_step = deviations[group] * noise_reference.normals(self.seed, 0, draw, RESCALE_NORMAL, 1, "float64")[0]
        own = groups.group == group
        scale = (C / self.post.prior_variance)[own][0]
        point = np.where(own, np.exp(0.5 * log_step) * at, at)
        log_ratio = self.value_and_slope(point, C)[0] - l_at - A * log_step - A * np.expm1(-log_step) / scale
        return group, float(log_ratio), threshold, point


# The chain, step by step


@pytest.mark.parametrize("prior", [TRACE_CLASS, GAUSSIAN], ids=["trace class", "gaussian"])
@pytest.mark.parametrize(
    ("kernel", "architecture"),
    [
        (kernel, architecture)
        for kernel in ("pcn", "pcnl", "mgrad", "collapsed pcnl", "collapsed mgrad")
        for architecture in ("full", "mix", "sep", "custom", "out", "narrow")
        if not (architecture == "out" and kernel.startswith("collapsed"))
    ],
)
def test_every_step_uses_the_scales_drawn_before_it(kernel: str, architecture: str, prior: pn.Prior) -> None:
    """Each move of the chain follows from its noise under the prior of the scales drawn before it, in NumPy.

    A coefficient of the kernel or a deviation of the collapsed output weights that was not that of the present scales
    would give other proposals and decisions.
    """
    replay, steps = Replay(kernel, architecture, prior, 60), 60
    moves = 0
    for step in range(1, steps):
        u = replay.theta[step - 1]
        v, _, log_ratio = replay.step(step)
        moved = accepts(replay.seed, 0, step, log_ratio)
        moves += moved
        # One step from a recorded state: rounding of the gradient and the sums of a proposal.
        np.testing.assert_allclose(replay.theta[step], v if moved else u, rtol=0, atol=1e-10)
    assert 0 < moves < steps - 1


@pytest.mark.parametrize("architecture", ["full", "mix"])
@pytest.mark.parametrize("kernel", ["persistent mgrad", "collapsed persistent mgrad"])
def test_the_momentum_keeps_its_whitened_coordinates_when_the_scales_change(kernel: str, architecture: str) -> None:
    """The momentum of the first recorded move gives all the later moves, each under the scales drawn before it."""
    replay, steps, moves = Replay(kernel, architecture, TRACE_CLASS, 60), 60, 0
    delta, a, p = replay.kernel.step_size or 0.0, replay.kernel.persistence, None
    for step in range(1, steps):
        u, after, C_all = replay.theta[step - 1], replay.theta[step], replay.variance[step - 1]
        C = C_all[: replay.dim]
        s = delta / (delta + 2 * C)
        c, k, sine = 1 - s, np.sqrt(C * s / (2 - s)), np.sqrt(s * (2 - s))
        _, g_u = replay.value_and_slope(u, C_all)
        drift = u + s * (C * g_u - u)
        moved = not np.array_equal(u, after)
        if p is None:
            if not moved:
                continue
            p = (after - drift) / (np.sqrt(C) * sine)
        else:
            p = a * c * p + np.sqrt(1 - (a * c) ** 2) * replay.normals(step)
            if moved:
                moves += 1
                # Rounding of the gradients and of the inverted first move, which c < 1 forgets.
                np.testing.assert_allclose(after, drift + np.sqrt(C) * sine * p, rtol=0, atol=1e-9)
        if moved:
            _, g_v = replay.value_and_slope(after, C_all)
            p = c * (p + k * g_u) - sine * u / np.sqrt(C) + k * g_v
        else:
            p = -p
    assert moves > 5


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("architecture", ["full", "mix", "out", "narrow"])
@pytest.mark.parametrize("kernel", ["pcn", "pcnl", "mgrad"])
def test_scales_move_together_with_their_parameters(kernel: str, architecture: str, every: int) -> None:
    """Each step is the kernel's move and then, where scales are due, that of one scale with its parameters, in NumPy.

    l, g and C of the next step are those at the moved point: other ones would give other proposals and decisions.
    """
    law, steps = pn.SampledScales(A, interweave=True), 60
    replay = Replay(kernel, architecture, dataclasses.replace(TRACE_CLASS, scales=law), steps, scales_every=every)
    groups = replay.post.sampled.scales
    assert groups is not None
    moves = rescalings = 0
    for step in range(1, steps):
        u, C = replay.theta[step - 1], replay.variance[step - 1]
        v, l_v, log_ratio = replay.step(step)
        moved = accepts(replay.seed, 0, step, log_ratio)
        moves += moved
        at, l_at = (v, l_v) if moved else (u, replay.value_and_slope(u, C)[0])
        draw = step + 1
        if draw % every == 0:
            _, log_ratio, threshold, point = replay.rescaling(draw, at, l_at, C, np.full(len(groups.names), 0.5))
            if math.log(threshold) < log_ratio:
                at, rescalings = point, rescalings + 1
        # One step from a recorded state: rounding of the gradient and the sums of a proposal.
        np.testing.assert_allclose(replay.theta[step], at, rtol=0, atol=1e-10)
    assert 0 < moves < steps - 1 and 0 < rescalings < steps // every


@pytest.mark.parametrize("architecture", ["full", "narrow"])
def test_the_walk_of_each_scale_finds_its_own_width_in_the_warm_up(architecture: str) -> None:
    """Each log width moves by a decreasing gain times (acceptance probability - 0.44), in NumPy.

    The states of the warm-up are the first draws after warm-ups of one step, two, and so on.
    """
    law, steps = pn.SampledScales(A, interweave=True), 80
    replay = Replay("pcn", architecture, dataclasses.replace(TRACE_CLASS, scales=law), 2)
    settings: dict[str, Any] = {"chains": 1, "draws": 1, "seed": replay.seed, "scales_every": 2}
    phases = [pn.Warmup.Phase(n) for n in range(steps)]
    runs = [run(replay.post, replay.kernel, **settings, warmup=pn.Warmup((phase,))) for phase in phases]
    replay.theta = np.concatenate([one.theta[0] for one in runs])
    replay.variance = [prior_variance(replay.case, one.stats["prior_scales"][0, 0]) for one in runs]
    groups = replay.post.sampled.scales
    assert groups is not None
    deviations, tries = np.full(len(groups.names), 0.5), np.zeros(len(groups.names))
    for step in range(1, steps, 2):  # no scale moves in the first step, before which there is no draw
        u, C = replay.theta[step - 1], replay.variance[step - 1]
        v, l_v, log_ratio = replay.step(step)
        at, l_at = (v, l_v) if accepts(replay.seed, 0, step, log_ratio) else (u, replay.value_and_slope(u, C)[0])
        group, log_ratio, threshold, point = replay.rescaling(step + 1, at, l_at, C, deviations)
        # One step from a recorded state, and the rounding of the widths, which earlier steps leave.
        expected = point if math.log(threshold) < log_ratio else at
        np.testing.assert_allclose(replay.theta[step], expected, rtol=0, atol=1e-9)
        deviations[group] *= np.exp((1 + tries[group]) ** -0.6 * (min(1.0, math.exp(log_ratio)) - 0.44))
        tries[group] += 1
    assert tries.min() >= 3 and np.ptp(deviations) > 0.1


# Conditional distributions


@pytest.mark.parametrize("noise", ["fixed", "sampled"])
@pytest.mark.parametrize("architecture", ["mix", "out"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_scales_have_their_conditional_distribution(kernel: str, architecture: str, noise: str) -> None:
    """Inverse gamma with the squares of the theta that is kept with them: uniform through its distribution function."""
    if architecture == "out" and kernel.startswith("collapsed"):
        pytest.skip("Out has no hidden parameters to collapse onto")
    case = Case("conditional", architecture, prior=GAUSSIAN)
    likelihood = pn.Gaussian(0.5) if noise == "fixed" else pn.Gaussian("sampled", a=2.5, b=0.8)
    post = case.posterior(likelihood)
    draws = run(post, KERNELS[kernel], draws=300)
    theta, scales = draws.theta.reshape(-1, post.dim), draws.stats["prior_scales"].reshape(600, -1)
    own = group_of(case, True)
    groups = sorted(set(own))
    assert scales.shape[1] == len(groups) == len(post.network.scale_names)
    for g, group in enumerate(groups):
        members = np.array([one == group for one in own])
        centre = np.broadcast_to(getattr(GAUSSIAN, "sigma2_b" if group[1] else "sigma2_w"), 3)[group[0] - 1]
        decay = post.prior_variance[members] / centre
        rate = A * centre + 0.5 * (theta[:, members] ** 2 / decay).sum(axis=1)
        level = stats.invgamma.cdf(scales[:, g], A + 0.5 * members.sum(), scale=rate)
        assert stats.kstest(level, "uniform").pvalue > 1e-5
        # Draws at different steps and of different chains do not hang together: 4.5 standard errors.
        centred = level.reshape(2, -1) - 0.5
        assert abs(12 * (centred[:, 1:] * centred[:, :-1]).mean()) < 4.5 / np.sqrt(level.size)
        assert abs(12 * (centred[0] * centred[1]).mean()) < 4.5 / np.sqrt(level.size / 2)


@pytest.mark.parametrize("kernel", ["collapsed pcnl", "collapsed mgrad", "collapsed persistent mgrad"])
def test_output_weights_have_their_conditional_given_the_scales_before_them(kernel: str) -> None:
    """a is drawn between theta_h and the new scales: whitened with the old ones it is standard normal."""
    case = Case("weights", "mix")
    post = case.posterior()
    draws = run(post, KERNELS[kernel], chains=1, draws=500)
    split, whitened = post.sampled.facts.hidden_dim, []
    for step in range(1, 500):
        theta = draws.theta[0, step]
        C = prior_variance(case, draws.stats["prior_scales"][0, step - 1])
        mean, covariance = reference.output_conditional(
            case.partial, theta[:split], C, 0.5, case.X, case.y, case.weight
        )
        whitened.append(np.linalg.solve(np.linalg.cholesky(covariance), theta[split:] - mean))
    assert_standard_normal(np.array(whitened))


# Marginal distributions


def fraction_below(values: FloatArray, quantile: float, batches: int) -> tuple[float, float]:
    """Share of values (chain, draw) below a quantile, and its standard error from batch means."""
    means = (values < quantile).reshape(len(values) * batches, -1).mean(axis=1)
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))


@pytest.mark.parametrize("kernel", ["pcn", "mgrad", "persistent mgrad", "elliptical slice", "collapsed mgrad"])
def test_a_flat_likelihood_gives_the_student_t_of_the_prior(kernel: str) -> None:
    """Quantiles of parameters over the deviation at their centre, t of 2 a degrees of freedom: 4.5 standard errors."""
    rng = problems.rng_of("student t")
    net = problems.random_network(rng, (1, 2, 1))
    prior = pn.GaussianPrior((0.5, 2.0), 1.5, scales=pn.SampledScales(A))
    # A noise variance of 1e8 leaves a log-likelihood that is constant to 1e-6.
    X = rng.normal(size=(4, 1))
    post = pn.Posterior(net, pn.Full(), prior, pn.Gaussian(1e8), X, X[:, 0], dtype="float64")
    wide = {
        "pcn": pn.PCN(0.9),
        "mgrad": pn.MGrad(20.0),
        "persistent mgrad": pn.MGrad(20.0, persistence=0.9),
        "elliptical slice": pn.EllipticalSlice(),
        "collapsed mgrad": pn.MGrad(20.0, collapse=True),
    }[kernel]
    draws = run(post, wide, chains=8, draws=6000, init="prior", seed=7)
    assert draws.stats["acceptance_rate"].min() > 0.99 or kernel == "elliptical slice"
    # The first tenth is forgotten: chains start with scales given a normal theta.
    z = draws.theta[:, 600:] / np.sqrt(post.prior_variance)
    law = stats.invgamma(A, scale=A)
    factors = draws.stats["prior_scales"][:, 600:] / np.array([0.5, 1.5, 2.0, 1.5])
    for level in (0.05, 0.25, 0.5, 0.9):
        for index in range(post.dim):
            share, error = fraction_below(z[..., index], stats.t.ppf(level, 2 * A), 20)
            assert abs(share - level) < 4.5 * error
        for index in range(4):
            share, error = fraction_below(factors[..., index], law.ppf(level), 20)
            assert abs(share - level) < 4.5 * error


def test_prior_draws_are_student_t() -> None:
    case = Case("prior draws", "mix", prior=GAUSSIAN)
    theta = case.posterior().sample_prior(3000, seed=2) / np.sqrt(case.posterior().prior_variance)
    for column in theta.T:
        assert stats.kstest(column, stats.t(2 * A).cdf).pvalue > 1e-5
    # Parameters of a group share a scale, so their squares hang together; those of two groups do not.
    groups = case.posterior().network.scales
    assert groups is not None
    logs = np.log(theta**2)
    together = np.corrcoef(logs.T)
    same = groups.group[:, None] == groups.group
    off = ~np.eye(len(same), dtype=bool)
    assert together[same & off].min() > 0.05 and np.abs(together[~same]).max() < 5 / np.sqrt(3000)


def scales_posterior(case: Case, post: pn.Posterior) -> tuple[FloatArray, FloatArray]:
    """Grid of the log of both scales of a last layer, over their centres, and its posterior probabilities."""
    grid = np.linspace(math.log(2e-2), math.log(2e3), 70)
    groups = post.network.scales
    assert groups is not None and len(groups.names) == 2
    log_density = np.empty((70, 70))
    for i, first in enumerate(grid):
        for j, second in enumerate(grid):
            factor = np.exp(np.array([first, second]))
            C = post.prior_variance * factor[groups.group]
            evidence = reference.collapsed_log_likelihood(
                case.partial, np.zeros(0), C, 0.5, case.X, case.y, case.weight
            )
            # Density of the logarithms: one factor more of each scale.
            log_density[i, j] = evidence - A * (first + second) - A * (1 / factor).sum()
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    for axis in (0, 1):
        edges = density.sum(axis=axis)
        assert max(edges[0], edges[-1]) < 1e-4
    return grid, density


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_scales_of_a_last_layer_have_their_exact_posterior(dtype: str) -> None:
    """Means and mean squares of the log scales against quadrature of the evidence, within 4.5 standard errors."""
    case = Case("exact posterior", "out")
    post = case.posterior(dtype=dtype)
    grid, density = scales_posterior(case, post)
    for kernel in ("pcn", "pcnl", "mgrad", "persistent mgrad", "elliptical slice"):
        draws = run(post, KERNELS[kernel], chains=8, draws=2000, thin=20, init="prior", seed=9)
        groups = post.network.scales
        assert groups is not None
        logs = np.log(draws.stats["prior_scales"][:, 200:] / groups.centres)
        for axis, values in enumerate(np.moveaxis(logs, -1, 0)):
            marginal = density.sum(axis=1 - axis)
            for power in (1, 2):
                means = (values**power).reshape(8 * 9, 200).mean(axis=1)
                error = 4.5 * means.std(ddof=1) / math.sqrt(len(means))
                # The tails beyond the grid have 1e-4 of the mass, at logarithms of up to 9.
                assert abs(means.mean() - marginal @ grid**power) < error + 2e-3 * 9 ** (power - 1), (kernel, power)


def test_scales_under_which_l_is_not_finite_are_refused() -> None:
    """The collapsed output bias has a variance near the largest double: M = 1 + S n / sigma^2 overflows above a scale.

    The chain keeps the scale before, which leaves the law of the scales restricted to those below invariant.
    """
    net = problems.random_network(problems.rng_of("overflow"), (1, 3, 1))
    masks = (
        [np.ones((3, 1), dtype=bool), np.zeros((1, 3), dtype=bool)],
        [np.zeros(3, dtype=bool), np.ones(1, dtype=bool)],
    )
    prior, X = pn.GaussianPrior(1.0, (1.0, 1e305), scales=pn.SampledScales(1.0)), np.linspace(-1, 1, 9)[:, None]
    post = pn.Posterior(net, pn.Custom(*masks), prior, pn.Gaussian(0.01), X, X[:, 0], dtype="float64")
    with pytest.warns(UserWarning, match="proposals had a log-likelihood or gradient that is not finite"):
        draws = run(post, pn.MGrad(1e-3, collapse=True), draws=2000, init="map")
    assert all(np.isfinite(draws.stats[name]).all() for name in ("log_likelihood", "log_prior", "prior_scales"))
    # The bias says nothing against 1e305, so a draw is from IG(a + 1/2, a) whatever the state is.
    factor, law = draws.stats["prior_scales"][..., 1] / 1e305, stats.invgamma(1.5, scale=1.0)
    limit = np.finfo(np.float64).max / (9 / 0.01) / 1e305
    assert factor.max() < limit
    refused = draws.stats["nonfinite"].sum() / 4000
    assert abs(refused - law.sf(limit)) < 4.5 * np.sqrt(law.sf(limit) * law.cdf(limit) / 4000)
    for level in (0.1, 0.5, 0.9):
        below, error = fraction_below(factor, law.ppf(level * law.cdf(limit)), 20)
        assert abs(below - level) < 4.5 * error


# What is reported


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_densities_are_those_of_the_returned_theta_and_scales(kernel: str, dtype: str) -> None:
    case = Case("stats", "mix")
    post = case.posterior(dtype=dtype)
    draws = run(post, KERNELS[kernel], thin=3, scales_every=2)
    scales = draws.stats["prior_scales"]
    assert scales.shape == (2, 50, len(post.network.scale_names)) and (scales > 0).all()
    assert_log_likelihoods(draws, post)
    deviation = np.sqrt([[prior_variance(case, one) for one in chain] for chain in scales])
    prior = stats.norm.logpdf(draws.theta.astype(np.float64), scale=deviation).sum(axis=-1)
    np.testing.assert_allclose(draws.stats["log_prior"], prior, rtol=1e-11)
    np.testing.assert_allclose(post.log_prior(draws.theta, scales=scales), prior, rtol=1e-11)


@pytest.mark.parametrize("kernel", KERNELS)
def test_draws_depend_neither_on_thinning_nor_on_chains_or_threads(kernel: str) -> None:
    """And the scales change at every `scales_every`-th step alone."""
    post = Case("shape", "mix").posterior(dtype="float32")
    every = assert_draws_depend_on_nothing_else(post, KERNELS[kernel], scales_every=4)
    scales = every.stats["prior_scales"]
    changed = (np.diff(scales, axis=1) != 0).all(axis=-1)
    np.testing.assert_array_equal(changed, np.tile(np.arange(2, 61) % 4 == 0, (3, 1)))
    np.testing.assert_array_equal(every[:, 9::10].stats["prior_scales"], scales[:, 9::10])


def test_names_files_and_texts(tmp_path: Path) -> None:
    post = Case("files", "mix", prior=GAUSSIAN).posterior()
    assert post.network.scale_names == (
        "layer 1 weights from input 0",
        "layer 1 weights from input 1",
        "layer 1 biases",
        "layer 2 weights",
        "layer 2 biases",
        "output weights",
        "output biases",
    )
    assert Case("files", "out").posterior().network.scale_names == ("output weights", "output biases")
    assert "the variances of each layer are sampled (inverse-gamma, a 1.5, one for" in post.describe()
    draws = run(post, pn.MGrad(0.1))
    draws.save(tmp_path / "draws.npz")
    again = pn.Draws.load(tmp_path / "draws.npz")
    assert again.network.prior == GAUSSIAN
    assert again.network.scales is not None and again.network.scales.names == post.network.scale_names
    np.testing.assert_array_equal(again.stats["prior_scales"], draws.stats["prior_scales"])
    text = str(again.summary(np.zeros((3, 2))))
    assert all(name in text for name in post.network.scale_names)
    for prior in (GAUSSIAN, TRACE_CLASS):
        assert prior_from_dict(json.loads(json.dumps(prior.to_dict()))) == prior
    fixed = run(Case("files", "mix").posterior(prior=problems.PRIOR), pn.MGrad(0.1))
    assert "prior_scales" not in fixed.stats and "sigma2" not in str(fixed.summary(np.zeros((3, 2))))


def test_fit_centres_each_layer_at_its_own_least_squares() -> None:
    net = problems.random_network(problems.rng_of("fit"), (3, 10, 7, 1))
    fitted = pn.TraceClassPrior.fit(net, alpha=1.6, scales="sampled")
    assert fitted.scales == pn.SampledScales()
    ranked = net.permuted(rank_nodes(net))
    for layer, (w, b) in enumerate(zip(ranked.weights, ranked.biases, strict=True)):
        i, j = np.arange(1, w.shape[0] + 1.0) ** -1.6, np.arange(1, w.shape[1] + 1.0) ** -1.6
        s = np.outer(np.ones(len(i)) if layer == 2 else i, np.ones(len(j)) if layer == 0 else j)
        # Sums of at most 77 products, each within two roundings.
        assert np.asarray(fitted.sigma2_w)[layer] == pytest.approx(4 * (w**2 * s).sum() / (s * s).sum(), rel=1e-13)
        assert np.asarray(fitted.sigma2_b)[layer] == pytest.approx(4 * (b**2 @ i) / (i @ i), rel=1e-13)
    one = pn.TraceClassPrior.fit(net, alpha=1.6)
    assert one.scales is None and isinstance(one.sigma2_w, float)
    searched = pn.TraceClassPrior.fit(net, scales=pn.SampledScales(3.0))
    assert searched.scales == pn.SampledScales(3.0) and searched.alpha == 1.001


# What does not go together


def test_kernels_and_devices_that_need_fixed_scales_say_so() -> None:
    out, mix = Case("refusal", "out").posterior(), Case("refusal", "mix").posterior()
    with pytest.raises(
        ValueError, match=r"kernel=Exact\(\) draws in the basis of one prior.*use MGrad\(persistence=0.9\)"
    ):
        run(out, pn.Exact())
    draws = pn.sample(out, chains=2, draws=10, warmup=1000, seed=1, progress=False)
    assert draws.settings["kernel"]["name"] == "mgrad" and "scales of the prior" in draws.settings["kernel_reason"]
    with pytest.raises(ValueError, match=r"needs Bayesian parameters below.*use MGrad\(persistence=0.9\)"):
        run(out, pn.MGrad(0.1, collapse=True))
    law = pn.GaussianPrior(scales=pn.SampledScales(interweave=True))
    joint = Case("refusal", "mix", prior=law).posterior()
    with pytest.raises(ValueError, match=r"integrates output weights out.*use MGrad\(\), or interweave=False"):
        run(joint, pn.MGrad(0.1, collapse=True))
    draws = pn.sample(joint, chains=2, draws=10, warmup=1000, seed=1, progress=False)
    assert not draws.settings["kernel"]["collapse"] and "move together" in draws.settings["kernel_reason"]
    for device in ("emulated:4",):
        with pytest.raises(ValueError, match='device="emulated:4" runs priors with fixed scales'):
            run(mix, pn.MGrad(0.1), device=device)
    for evaluate in (out.exact, lambda: mix.density("collapsed").value(np.zeros(mix.sampled.facts.hidden_dim))):
        with pytest.raises(ValueError, match=r"scales (of the prior )?are sampled.*make a posterior"):
            evaluate()


def test_scales_must_be_given_to_log_prior_and_fixed_ones_must_not() -> None:
    case = Case("arguments", "mix")
    post, fixed = case.posterior(), case.posterior(prior=dataclasses.replace(TRACE_CLASS, scales=None))
    theta, scales = np.tile(post.theta_map, (3, 1)), np.ones(6)
    assert np.shape(post.log_prior(theta, scales=scales)) == (3,)
    with pytest.raises(ValueError, match=r'scales must be given.*draws.stats\["prior_scales"\]'):
        post.log_prior(theta)
    with pytest.raises(ValueError, match="scales must be left out"):
        fixed.log_prior(theta, scales=scales)
    with pytest.raises(ValueError, match=r"scales must have 6 entries.*layer 1 weights.*got shape \(5,\)"):
        post.log_prior(theta, scales=np.ones(5))
    with pytest.raises(ValueError, match="scales must be positive and finite"):
        post.log_prior(theta, scales=np.zeros(6))
    with pytest.raises(ValueError, match=r"scales must have shape \(G,\) or that of theta.*\(3,\)"):
        post.log_prior(theta, scales=np.ones((2, 6)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: pn.SampledScales(a=0.0), ValueError, "a of SampledScales must be positive"),
        (lambda: pn.SampledScales(by_input=2), TypeError, "by_input of SampledScales must be True or False; got 2"),
        (lambda: pn.SampledScales(interweave=1), TypeError, "interweave of SampledScales must be True or False; got 1"),
        (lambda: pn.GaussianPrior(scales="free"), ValueError, "scales must be None .fixed., \"sampled\".*got 'free'"),
        (lambda: pn.GaussianPrior(scales=2), TypeError, 'scales must be None .fixed., "sampled".*got 2'),
        (lambda: pn.GaussianPrior((1.0, -1.0)), ValueError, r"sigma2_w\[1\] must be positive and finite; got -1\.0"),
        (
            lambda: pn.TraceClassPrior(1.5, (1.0, 1.0), 1.0).variances([1, 2, 2, 1]),
            ValueError,
            "sigma2_w must be a number or have one for each of 3 layers; got 2",
        ),
        (lambda: run(Case("every", "mix").posterior(), pn.MGrad(0.1), scales_every=0), ValueError, "scales_every must"),
    ],
)
def test_bad_arguments(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
