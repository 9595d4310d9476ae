"""Exact rank test of reversible kernels (Gandy & Scott 2020, arXiv:2001.06465).

With theta_0 from the prior and y from p(y | theta_0), theta_0 is an exact draw from the posterior given y. Put it at a
uniformly chosen place M of a chain of n_states: M states by running the kernel away from it (a reversible kernel run
backwards is itself), the rest by running it away from it once more. Where theta_0 stands then says nothing, so the rank
of any number computed from it among those of all states is uniform, whatever the step size, however short the chain.

A sampled noise variance makes the composed step on (theta, sigma^2) non-reversible: theta given sigma^2, then sigma^2
given theta. Run backwards it is the reversed scan: sigma^2 given theta, then theta given sigma^2. On theta alone both
directions are the same chain, "draw sigma^2 given theta, then move theta given that sigma^2", which is reversible since
the move M_s is, for p(theta | s):

    p(theta) p(s | theta) M_s(theta, theta') = p(s) p(theta | s) M_s(theta, theta'),

which is symmetric in theta and theta'.

So the theta of a run that first draws sigma^2 given its starting point is tested as above, with numbers computed from
theta and y; sigma^2 given theta is tested by its own distribution (tests/test_sampled_variance.py). Sampled scales of
the prior are such a variable too (tests/test_sampled_scales.py has their distribution), and every run draws them first,
given its starting point. A step whose noise persists, the reverse of itself with the noise turned round, satisfies the
same equation with the noise turned round on its right side, so that blocks of such steps stay reversible. Collapsed
output weights do not change this: moving theta_h by a kernel reversible for its marginal and redrawing a given theta_h
is reversible for (theta_h, a).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

import patrac_native as pn

Array = npt.NDArray[Any]
# (posterior, theta of shape (K,), states wanted, generator) -> the next states, (states, K).
Chain = Callable[[pn.Posterior, Array, int, np.random.Generator], Array]

QUANTITIES = (
    "log_likelihood",
    "log_prior",
    "log_prior of the first half",
    "first parameter",
    "last parameter",
    "f at a point",
)
N_STATES = 16
# False-alarm probability of one test; shared among the test quantities (Bonferroni).
LEVEL = 1e-4 / len(QUANTITIES)


def network(sizes: Sequence[int], seed: int, scale: float = 1.0) -> pn.Network:
    """Network with normal weights and biases of standard deviation `scale`."""
    rng = np.random.default_rng(seed)
    weights = [scale * rng.standard_normal(shape) for shape in zip(sizes[1:], sizes[:-1], strict=True)]
    return pn.Network(weights, [scale * rng.standard_normal(size) for size in sizes[1:]])


@dataclass(frozen=True)
class Problem:
    """Everything of a posterior but the targets.

    Attributes
    ----------
    X : ndarray, shape (n, d)
        Inputs of the data.
    point : ndarray, shape (1, d)
        Where the last test quantity, the first output f, is looked at.
    noise : (a, b), optional
        The data's noise variance is drawn from the inverse gamma with density x^(-a - 1) exp(-b / x), and chains sample
        it; else it is that of `likelihood`. A sequence b has an entry for each output, with a variance of its own.
    offset : ndarray, shape (n,), optional
        What is added to the outputs.

    Scales of the prior that are sampled are drawn from their law with theta; the test quantities have them fixed.
    """

    net: pn.Network
    architecture: pn.Architecture
    prior: pn.TraceClassPrior | pn.GaussianPrior
    likelihood: pn.Likelihood
    X: Array
    point: Array
    dtype: str = "float64"
    noise: tuple[float, Any] | None = None
    offset: Array | None = None

    def posterior(self, y: Array) -> pn.Posterior:
        """Posterior given the targets y."""
        return self.template.with_targets(y)

    def judge(self, y: Array) -> pn.Posterior:
        """Posterior that the test quantities are computed with: of theta alone, noise variance and scales fixed."""
        return self.judge_template.with_targets(y)

    def _any_posterior(self, prior: pn.Prior, likelihood: pn.Likelihood) -> pn.Posterior:
        """Posterior given targets that mean nothing."""
        t = self.likelihood.n_targets(self.net.layer_sizes[-1])
        n, labels = len(self.X), isinstance(self.likelihood, pn.Categorical)
        parts = (self.net, self.architecture, prior, likelihood, self.X, np.zeros(n if labels else (n, t)))
        return pn.Posterior(*parts, offset=self.offset, dtype=self.dtype)

    @cached_property
    def template(self) -> pn.Posterior:
        """A posterior from which `posterior` makes those of other targets."""
        return self._any_posterior(self.prior, self.likelihood)

    @cached_property
    def judge_template(self) -> pn.Posterior:
        """A posterior from which `judge` makes those of other targets."""
        likelihood = self.likelihood if self.noise is None else pn.Gaussian(1.0)
        return self._any_posterior(replace(self.prior, scales=None), likelihood)

    def simulate(self, count: int, seed: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw `count` pairs: theta from the prior, (count, K), and y given it, (count, n, t) or (count, n)."""
        theta = self.template.sample_prior(count, seed=seed)
        f = self.template.network.predict(theta, self.X)
        if self.noise is None:
            return theta, self.likelihood.sample(self.likelihood.with_offset(f, self.offset), rng)
        b = np.atleast_1d(self.noise[1])
        variance = b / rng.gamma(self.noise[0], size=(count, 1, len(b)))
        return theta, f + np.sqrt(variance) * rng.standard_normal(f.shape)


@dataclass(frozen=True)
class NativeChain:
    """Chain run by `pn.sample` without warm-up, every `thin`-th state kept; a multiple of `scales_every`."""

    kernel: pn.Kernel
    thin: int
    device: str = "cpu"
    scales_every: int = 1
    variance_every: int | str = "auto"

    def __call__(self, post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        """Run from theta (K,) and return the next states, (states, K)."""
        return self.runs(post, theta, [states], rng)[0]

    def runs(self, post: pn.Posterior, theta: Array, lengths: list[int], rng: np.random.Generator) -> list[Array]:
        """Independent runs from theta, of these lengths: the chains of one call, which takes less time than several."""
        draws = pn.sample(
            post,
            self.kernel,
            chains=len(lengths),
            draws=max(lengths),
            thin=self.thin,
            scales_every=self.scales_every,
            variance_every=self.variance_every,
            warmup=None,
            init=np.repeat(theta[None], len(lengths), axis=0),
            seed=int(rng.integers(2**63)),
            threads=1,
            device=self.device,
            progress=False,
        )
        return [np.asarray(states[:length]) for states, length in zip(draws.theta, lengths, strict=True)]


def native_chain(kernel: pn.Kernel, thin: int, device: str = "cpu", scales_every: int = 1) -> Chain:
    """`NativeChain`, for a noise variance that is not sampled."""
    return NativeChain(kernel, thin, device, scales_every)


def native_blocks(kernel: pn.Kernel, thin: int, device: str = "cpu", scales_every: int = 1) -> Chain:
    """Chain of runs of `thin` steps by `pn.sample`, each with noise and accept threshold of its own.

    A step whose noise persists is not reversible; the block is. The step's reverse is itself with the noise turned
    round, and a block starts from noise and a threshold that are as likely turned round.
    """

    def run(post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        kept = [theta]
        for seed in rng.integers(2**63, size=states):
            draws = pn.sample(
                post,
                kernel,
                chains=1,
                draws=1,
                thin=thin,
                scales_every=scales_every,
                warmup=None,
                init=kept[-1][None],
                seed=int(seed),
                threads=1,
                device=device,
                progress=False,
            )
            kept.append(draws.theta[0, 0])
        return np.asarray(kept[1:])

    return run


def starting_at(likelihood: pn.Likelihood, start: Array) -> pn.Likelihood:
    """The likelihood, its chains starting at these variances rather than at their modes given the trained network."""
    changed: Any = copy.copy(likelihood)
    changed.fitted = lambda *_: likelihood.at(start.item() if start.size == 1 else start)
    # That of the best constant takes long for some, and runs only report it.
    changed.constant_log_likelihood = lambda *_: 0.0
    return changed  # type: ignore[no-any-return]


def native_variance_chain(kernel: pn.Kernel, thin: int, device: str = "cpu", every: int = 1) -> Chain:
    """`native_chain` that first draws sigma^2 given the starting point, as the test of a sampled variance asks for.

    With `every` > 1, a divisor of `thin`, a block is "draw sigma^2 given theta, then move theta that many times given
    that sigma^2": powers of a reversible move are reversible, so the argument above holds for blocks.
    """
    assert thin % every == 0
    inner = NativeChain(kernel, thin, device, variance_every=every)

    def run(post: pn.Posterior, theta: Array, states: int, rng: np.random.Generator) -> Array:
        likelihood = post.likelihood
        assert isinstance(likelihood, pn.Gaussian) and likelihood.a is not None and likelihood.b is not None
        a, b = likelihood.variance_prior(post.data.y.shape[1])
        squares = ((post.data.y - post.network.predict(theta[None], post.data.X, threads=1)[0]) ** 2).sum(axis=0)
        terms = post.data.y.size / len(b)
        start = (b + 0.5 * squares.reshape(len(b), -1).sum(axis=1)) / rng.gamma(a + 0.5 * terms, size=len(b))
        return inner(post.with_targets(post.data.y, likelihood=starting_at(likelihood, start)), theta, states, rng)

    return run


def ranks(problem: Problem, chain: Chain, *, replicates: int, n_states: int, seed: int) -> Array:
    """Ranks of theta_0 among n_states states, 0..n_states - 1, ties broken at random.

    Returns
    -------
    ndarray of int, shape (replicates, len(QUANTITIES))
    """
    rng = np.random.default_rng(seed)
    starts, targets = problem.simulate(replicates, seed, rng)
    found = np.empty((replicates, len(QUANTITIES)), dtype=np.int64)
    for replicate, (theta, y) in enumerate(zip(starts, targets, strict=True)):
        post = problem.posterior(y)
        backward = int(rng.integers(n_states))
        lengths = [count for count in (backward, n_states - 1 - backward) if count]
        if isinstance(chain, NativeChain):
            parts = chain.runs(post, theta, lengths, rng)
        else:
            parts = [chain(post, theta, count, rng).astype(post.network.dtype) for count in lengths]
        states, judge = np.concatenate([theta[None], *parts]), problem.judge(y)
        half = (judge.dim + 1) // 2
        # One batch, so that equal states have equal numbers to the last bit and count as ties. Chains in rotated
        # coordinates give back the state that they started from but for rounding: that is a tie as well.
        numbers = np.column_stack(
            [
                judge.log_likelihood(states, threads=1),
                judge.log_prior(states),
                -(states[:, :half] ** 2 / judge.prior_variance[:half]).sum(axis=1),
                states[:, 0],
                states[:, -1],
                judge.network.predict(states, problem.point, threads=1)[:, 0, 0],
            ]
        )
        rounding = 32 * np.finfo(judge.network.dtype).eps * np.abs(numbers[0])
        below = (numbers < numbers[0] - rounding).sum(axis=0)
        equal = (np.abs(numbers - numbers[0]) <= rounding).sum(axis=0)
        found[replicate] = below + rng.integers(equal)
    return found


def p_values(found: Array, n_states: int) -> Array:
    """P-values of uniformity, one for each column of ranks.

    The smaller, doubled, of two: the chi-square test, which sees any shape, and the smooth test (Neyman 1937) on mean
    and spread of the ranks, which sees the usual faults with far fewer replicates.
    """
    from scipy.stats import chi2, chisquare

    counts = np.array([np.bincount(column, minlength=n_states) for column in found.T])
    any_shape = chisquare(counts, axis=1).pvalue
    # Polynomials of degree 1 and 2 in the rank, orthonormal under the uniform distribution and to the constant.
    places = np.arange(n_states) - (n_states - 1) / 2
    basis = np.linalg.qr(np.stack([places**0, places, places**2], axis=1))[0][:, 1:] * np.sqrt(n_states)
    scores = counts @ basis / np.sqrt(len(found))
    smooth = chi2.sf((scores**2).sum(axis=1), 2)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(any_shape, smooth)))


def smallest_p(problem: Problem, chain: Chain, *, replicates: int = 1000, seed: int, n_states: int = N_STATES) -> float:
    """Smallest p-value of the rank test over the test quantities."""
    return float(p_values(ranks(problem, chain, replicates=replicates, n_states=n_states, seed=seed), n_states).min())
