"""R-hat, ESS and MCSE of many quantities at a time: rank-normalised, split, as Vehtari et al. (2021) define them.

The numbers are those of `arviz_stats`, which evaluates one quantity at a time; here a block of quantities shares its
sorts and Fourier transforms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patrac_native.diagnostics._arrays import FloatArray, processors

# Tail ESS is the smaller ESS of the 5% and 95% quantiles (Vehtari et al., Bayesian Analysis 2021, section 4.3).
TAIL = (0.05, 0.95)
# A quantity whose draws differ by less than this has the ESS of independent draws, as in arviz_stats.
_RESOLUTION = float(np.finfo(np.float64).resolution)


@dataclass(frozen=True)
class RankStatistics:
    """Statistics of each of p quantities, shape (p,)."""

    rhat: FloatArray
    ess_bulk: FloatArray
    ess_tail: FloatArray
    mcse_mean: FloatArray


def rank_statistics(x: FloatArray, with_rhat: FloatArray | None) -> RankStatistics:
    """Evaluate statistics of p quantities (p, chain, draw), not all equal, and R-hat of `with_rhat` or NaN."""
    halves = split_chains(x)
    ranked = _Ranked(halves)
    bulk = ranked.normal_scores()
    if with_rhat is None:
        rhat = np.full(len(x), np.nan)
    elif with_rhat is x:
        rhat = _larger(_rhat(bulk), _rhat(ranked.folded_scores()))
    else:
        other = _Ranked(split_chains(with_rhat))
        rhat = _larger(_rhat(other.normal_scores()), _rhat(other.folded_scores()))
    # With an odd number of draws, the halves lack the middle one, and quantiles are those of all draws.
    ordered = ranked.ordered if 2 * halves.shape[2] == x.shape[2] else np.sort(x.reshape(len(x), -1), axis=1)
    tails = [ess(split_chains((x <= _quantile(ordered, level)[:, None, None]).astype(np.float64))) for level in TAIL]
    spread = x.reshape(len(x), -1).std(axis=1, ddof=1)
    return RankStatistics(rhat, ess(bulk), np.minimum(*tails), spread / np.sqrt(ess(halves)))


def split_chains(x: FloatArray) -> FloatArray:
    """Cut each chain into halves, (p, 2 * chain, draw // 2), without the middle draw of an odd number."""
    half = x.shape[2] // 2
    return np.concatenate([x[:, :, :half], x[:, :, x.shape[2] - half :]], axis=1)


def ess(x: FloatArray) -> FloatArray:
    """Effective sample size (p,) of the mean over chains (p, chain, draw), by Geyer's initial monotone sequence."""
    p, chains, draws = x.shape
    covariance = _autocovariance(x)
    mean_variance = covariance[:, 0] * draws / (draws - 1.0)
    variance = mean_variance * (draws - 1.0) / draws
    if chains > 1:
        variance = variance + x.mean(axis=2).var(axis=1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 - (mean_variance[:, None] - covariance) / variance[:, None]
    rho[:, 0] = 1.0
    pairs = rho[:, 0 : draws // 2 * 2 : 2] + rho[:, 1 : draws // 2 * 2 : 2]
    # Pairs 0..last-1 are summed, each at most the one before it; of pair `last` its first entry alone.
    longest = max(0, (draws - 3) // 2)
    stops = pairs[:, : longest + 1] <= 0
    last = np.where(stops.any(axis=1), stops.argmax(axis=1), longest)
    pairs[:, longest + 1 :] = 0.0
    monotone = np.minimum.accumulate(pairs, axis=1)
    monotone[np.arange(monotone.shape[1]) >= last[:, None]] = 0.0
    row = np.arange(p)
    even = rho[row, 2 * last]
    even = np.where((even > 0) | (pairs[row, last] >= 0), even, 0.0)
    size = chains * draws
    time = np.maximum(-1.0 + 2.0 * monotone.sum(axis=1) + even, 1.0 / np.log10(size))
    flat = x.reshape(p, -1)
    found: FloatArray = np.where(np.ptp(flat, axis=1) < _RESOLUTION, float(size), size / time)
    return found


def _autocovariance(x: FloatArray) -> FloatArray:
    """Autocovariance at every lag, averaged over chains: (p, draw) of (p, chain, draw), with the divisor draw."""
    from scipy.fft import irfft, next_fast_len, rfft

    draws = x.shape[2]
    length = next_fast_len(2 * draws, real=True)
    transformed = rfft(x - x.mean(axis=2, keepdims=True), n=length, axis=2, workers=processors())
    power = np.einsum("pcf,pcf->pf", transformed.real, transformed.real)
    power += np.einsum("pcf,pcf->pf", transformed.imag, transformed.imag)
    found: FloatArray = irfft(power, n=length, axis=1, workers=processors())[:, :draws] / (draws * x.shape[1])
    return found


def _rhat(x: FloatArray) -> FloatArray:
    """R-hat (p,) of chains (p, chain, draw)."""
    draws = x.shape[2]
    between = draws * x.mean(axis=2).var(axis=1, ddof=1)
    within = x.var(axis=2, ddof=1).mean(axis=1)
    # Chains that are constant but differ have the variance zero within them and an infinite R-hat, which is right.
    with np.errstate(divide="ignore", invalid="ignore"):
        found: FloatArray = np.sqrt((between / within + draws - 1) / draws)
    return found


def _larger(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.where(b > a, b, a)


def _quantile(ordered: FloatArray, level: float) -> FloatArray:
    """Quantile (p,) of sorted rows (p, s), by linear interpolation as `numpy.quantile` rounds it."""
    at = level * (ordered.shape[1] - 1)
    low = int(np.floor(at))
    a, b, t = ordered[:, low], ordered[:, min(low + 1, ordered.shape[1] - 1)], at - low
    found: FloatArray = b - (b - a) * (1 - t) if t >= 0.5 else a + (b - a) * t
    return found


class _Ranked:
    """The draws of each quantity in order: (p, chain, draw) pooled to (p, s), and sorted as `ordered`."""

    def __init__(self, x: FloatArray) -> None:
        self._shape = x.shape
        pooled = x.reshape(len(x), -1)
        self._order = np.argsort(pooled, axis=1)
        self.ordered: FloatArray = np.take_along_axis(pooled, self._order, axis=1)
        self._scores = _score_table(pooled.shape[1])

    def normal_scores(self) -> FloatArray:
        """Normal quantiles of the ranks, ties at their mean rank, (p, chain, draw)."""
        return self._placed(self._order, self._scores[_tied_places(self.ordered)])

    def folded_scores(self) -> FloatArray:
        """Normal scores of the distances from the median."""
        middle = self.ordered.shape[1] // 2
        low = self.ordered[:, middle - (self.ordered.shape[1] % 2 == 0)]
        distance = np.abs(self.ordered - (0.5 * (low + self.ordered[:, middle]))[:, None])
        # The distances fall and then rise, which a merge sort handles in one pass.
        order = np.argsort(distance, axis=1, kind="stable")
        places = _tied_places(np.take_along_axis(distance, order, axis=1))
        return self._placed(np.take_along_axis(self._order, order, axis=1), self._scores[places])

    def _placed(self, order: NDArray[Any], values: FloatArray) -> FloatArray:
        """Return values of sorted draws in the order of the draws."""
        out = np.empty_like(values)
        for row, (places, of_row) in enumerate(zip(order, values, strict=True)):
            out[row, places] = of_row
        return out.reshape(self._shape)


def _tied_places(ordered: FloatArray) -> NDArray[np.intp]:
    """Twice the mean position of each sorted entry (p, s) among those equal to it, counted from 0."""
    size = ordered.shape[1]
    positions = np.arange(size)
    differs = ordered[:, 1:] != ordered[:, :-1]
    if differs.all():
        return np.broadcast_to(2 * positions, ordered.shape)
    edge = np.ones((len(ordered), 1), dtype=bool)
    first = np.maximum.accumulate(np.where(np.concatenate([edge, differs], axis=1), positions, 0), axis=1)
    ends = np.where(np.concatenate([differs, edge], axis=1), positions, size - 1)
    last = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    places: NDArray[np.intp] = first + last
    return places


@lru_cache(maxsize=4)
def _score_table(size: int) -> FloatArray:
    """Normal scores of the ranks 1, 1.5, 2, ..., size (Blom's offset 3/8), shape (2 * size - 1,)."""
    from scipy.special import ndtri

    ranks = 1.0 + 0.5 * np.arange(2 * size - 1)
    found: FloatArray = ndtri((ranks - 3 / 8) / (size + 1 / 4))
    return found
