"""Joint effective draws of several chains, the end of the way into the posterior, and differences of moments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics import convergence
from patrac_native.diagnostics.ess import geyer_ess_of

FloatArray = npt.NDArray[Any]

# The trace of a chain is averaged over blocks that grow by this factor, the first of so many states.
FIRST_BLOCK, BLOCK_GROWTH = 10, 1.25


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

    Parameters
    ----------
    traces : dict of str to ndarray, shape (chain, draw)
        Statistics of each kept draw, such as the held-out NLPD.
    per_draw, before : float
        Gradients of a chain for each kept draw, and before the first of them.
    long_run : LongRun

    Returns
    -------
    float
        The end of the first block of draws in which the mean of every statistic lies within one long-run standard
        deviation of its long-run mean, of the slowest chain; `before` if that is the first block; infinite if a chain
        has no such block.
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
