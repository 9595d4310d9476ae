"""Effective draws of one chain and of several jointly, the end of the way into the posterior, differences of means."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

import patrac_native as pn
from patrac_native.diagnostics import autocorrelation, convergence, ess_geyer, geyer_ess_of

FloatArray = npt.NDArray[Any]

PAPER_LAGS = 1000  # in steps
MAX_FOR_ARVIZ = 20_000  # draws for ArviZ, which takes milliseconds for a thousand draws of one point
CONDITIONAL_CHUNK = 2**22  # maximum number of entries of the largest array
# The trace of a chain is averaged over blocks that grow by this factor, the first of so many states.
FIRST_BLOCK, BLOCK_GROWTH = 10, 1.25


def geyer(values: FloatArray) -> float:
    """Return the ESS by Geyer's initial monotone sequence of the mean autocorrelation, which speed claims use."""
    return ess_geyer(values[None])


def paper(values: FloatArray, thin: int) -> float:
    """Return the paper's ESS with lags up to 1,000 steps; the autocorrelation is interpolated between kept states.

    The value is NaN if the run is too short for these lags.
    """
    lags = PAPER_LAGS // thin
    if len(values) < 10 * lags:
        return float("nan")
    rho = autocorrelation(values[None], lags)[0]
    steps = np.arange(PAPER_LAGS + 1)
    time = -1 + 2 * np.interp(steps, thin * np.arange(lags + 1), rho).sum()
    return len(values) * thin / time if time > 0 else float("nan")


def bulk(values: FloatArray) -> float:
    """Return the median over the grid of ArviZ's bulk ESS."""
    from importlib import import_module

    array_stats: Any = import_module("arviz_stats.base").array_stats
    kept = values[:MAX_FOR_ARVIZ].reshape(1, min(len(values), MAX_FOR_ARVIZ), -1).astype(np.float64)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = array_stats.ess(kept, chain_axis=0, draw_axis=1, method="bulk")
    return float(np.median(found)) * len(values) / kept.shape[1]


def longest_stay(theta: FloatArray) -> int:
    """Return the largest number of consecutive equal states."""
    moves = np.flatnonzero((theta[1:] != theta[:-1]).any(axis=1))
    return int(np.diff(np.concatenate([[-1], moves, [len(theta) - 1]])).max())


def conditional_mean(post: pn.Posterior, theta: FloatArray, X: FloatArray) -> FloatArray:
    """Return f at inputs X, (draw, n), with the Bayesian output weights at their mean given all other parameters.

    In float64, for one output (docs/method.md, section 6): y = o + Phi a + e, a ~ N(0, S), and the mean of a is
    (S^-1 + Phi'Phi/s2)^-1 Phi'(y - o)/s2.
    """
    assert isinstance(post.likelihood, pn.Gaussian) and post.network.net.layer_sizes[-1] == 1
    variance = float(np.asarray(post.likelihood.variance).ravel()[0])
    weights, bias = post.network.weight_masks[-1][0], post.network.bias_masks[-1][0]
    n_output = int(weights.sum()) + int(bias)
    prior_precision = np.diag(1 / post.prior_variance[len(post.prior_variance) - n_output :])
    both = np.concatenate([post.data.X, X])
    n, widest = len(post.data.X), len(both) * max(post.network.net.layer_sizes)
    found = []
    for part in np.array_split(theta, max(1, len(theta) * widest // CONDITIONAL_CHUNK)):
        features, offset = output_features(post, part.astype(np.float64), both)
        phi, residual = features[:, :n], post.data.y[:, 0] - offset[:, :n]
        gram = prior_precision + phi.transpose(0, 2, 1) @ phi / variance
        mean = np.linalg.solve(gram, phi.transpose(0, 2, 1) @ residual[..., None] / variance)
        found.append((features[:, n:] @ mean)[..., 0] + offset[:, n:])
    return np.concatenate(found)


def output_features(post: pn.Posterior, theta: FloatArray, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the factors of the Bayesian output weights and bias, (draw, n, ...), and the rest of f, (draw, n)."""
    network = post.network
    separate = network.separate
    h, at = np.broadcast_to(X, (len(theta), *X.shape)), 0
    shapes = [mask.shape for mask in network.weight_masks]
    fixed = list(zip(network.ranked.weights, network.ranked.biases, strict=True))
    if separate:
        fixed = [(np.zeros(shape), np.zeros(shape[0])) for shape in shapes]
    masks = list(zip(network.weight_masks, network.bias_masks, strict=True))
    for (w, b), (wm, bm) in zip(fixed[:-1], masks[:-1], strict=True):
        weights, biases = np.tile(w, (len(theta), 1, 1)), np.tile(b, (len(theta), 1))
        weights[:, wm] = theta[:, at : at + wm.sum()]
        at += wm.sum()
        biases[:, bm] = theta[:, at : at + bm.sum()]
        at += bm.sum()
        h = np.tanh(h @ weights.transpose(0, 2, 1) + biases[:, None])
    (w, b), (wm, bm) = fixed[-1], masks[-1]
    offset = h[:, :, ~wm[0]] @ w[0, ~wm[0]] + (0.0 if bm[0] else b[0])
    if separate:
        offset = offset + post.network.net.predict(X)[:, 0]
    features = h[:, :, wm[0]]
    if bm[0]:
        features = np.concatenate([features, np.ones((*features.shape[:2], 1))], axis=2)
    return features, offset


def joint_ess(f: FloatArray) -> float:
    """Return the effective draws of chains together, f (chain, draw, ...): chains that disagree score low.

    The autocovariances are those around the mean of all chains, averaged over the chains and, in units of the variance
    over all chains, over the points; their sum is Geyer's initial monotone sequence.
    """
    from scipy.fft import irfft, next_fast_len, rfft

    chains, draws = f.shape[:2]
    flat = f.reshape(chains, draws, -1)
    length = int(next_fast_len(2 * draws, real=True))
    total, used = np.zeros(draws), 0
    for point in range(flat.shape[2]):
        x = flat[:, :, point].astype(np.float64)
        x -= x.mean()
        power = (x**2).mean()
        if power == 0:
            continue
        spectrum = rfft(x, n=length, axis=1)
        total += irfft((np.abs(spectrum) ** 2).mean(axis=0), n=length)[:draws] / power
        used += 1
    if used == 0:
        return float("nan")
    rho = total[: draws - 1] / (draws - np.arange(draws - 1)) / used
    return float(chains * geyer_ess_of(rho[None] / rho[0], draws)[0])


def ess_of_means(f: FloatArray) -> float:
    """Return the effective draws of all chains from the spread of the chains' means, which no estimate of lags enters.

    The variance of a chain's mean is that of all draws over the effective draws of one chain, so many chains give it
    without bias; both are summed over the points in units of the variance of all draws.
    """
    chains = len(f)
    flat = f.reshape(chains, f.shape[1], -1).astype(np.float64)
    variance = flat.var(axis=(0, 1))
    spread = flat.mean(axis=1).var(axis=0, ddof=1)[variance > 0] / variance[variance > 0]
    return float(chains / spread.mean())


def max_rhat(f: FloatArray) -> float:
    """Return the largest split R-hat over the points of f (chain, draw, ...)."""
    return float(convergence(f.astype(np.float64)).max_rhat)


@dataclass(frozen=True)
class LongRun:
    """Long-run means of a statistic of each draw, and its standard deviations, by name."""

    mean: dict[str, float]
    sd: dict[str, float]

    @classmethod
    def of(cls, traces: dict[str, FloatArray]) -> LongRun:
        """Take means and standard deviations over the second halves of traces (chain, draw)."""
        late = {name: trace[:, trace.shape[1] // 2 :] for name, trace in traces.items()}
        means = {name: float(part.mean()) for name, part in late.items()}
        return cls(means, {name: float(part.std()) for name, part in late.items()})


def transient(traces: dict[str, FloatArray], per_draw: float, before: float, long_run: LongRun) -> float:
    """Return the gradients of a chain, from its starting point on, until all chains are where they stay.

    `traces` are statistics (chain, draw) of each kept draw; a chain has `per_draw` gradients for each, and `before` the
    first of them. It is the end of the first block of draws in which the mean of every statistic lies within one
    long-run standard deviation of its long-run mean, of the slowest chain; `before` if that is the first block, and
    infinite if a chain has no such block.
    """
    draws = next(iter(traces.values())).shape[1]
    edges = [0]
    while edges[-1] < draws:
        edges.append(min(draws, edges[-1] + max(FIRST_BLOCK, int((BLOCK_GROWTH - 1) * edges[-1]))))
    ends = []
    for chain in range(len(next(iter(traces.values())))):
        for first, last in pairwise(edges):
            offs = [
                abs(trace[chain, first:last].mean() - long_run.mean[name]) / long_run.sd[name]
                for name, trace in traces.items()
            ]
            if max(offs) <= 1:
                ends.append(before + (last * per_draw if first else 0.0))
                break
        else:
            return float("inf")
    return max(ends)


def root_mean_square_z(one: FloatArray, other: FloatArray, effective: tuple[float, float]) -> float:
    """Return the differences of the means of f (chain, draw, ...) of two sides, in standard errors of both.

    The root mean square over the points, which is near 1 where both sample one posterior.
    """
    a, b = (side.reshape(-1, *side.shape[2:]).astype(np.float64) for side in (one, other))
    error = np.sqrt(a.var(axis=0) / effective[0] + b.var(axis=0) / effective[1])
    varies = error > 0
    return float(np.sqrt((((a.mean(axis=0) - b.mean(axis=0))[varies] / error[varies]) ** 2).mean()))
