"""Mixing and convergence of function draws: autocorrelation and ESS (paper, Appendix C), R-hat and MCSE of ArviZ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.diagnostics._arrays import FloatArray, chain_draws, processors, row_slices
from patrac_native.validation.checks import check_count, check_probabilities
from patrac_native.validation.notes import Note

# ArviZ splits each chain into halves, which requires four draws. The formulas of autocorrelations have one lag with
# three draws, N - 2 = 1 with divisor N - k - 1 = 1; a pair of lags needs one more.
_MIN_DRAWS = 4
# Tail ESS is the smaller ESS of the 5% and 95% quantiles (Vehtari et al., Bayesian Analysis 2021, section 4.3).
_TAIL = (0.05, 0.95)
_STATISTICS = ("rhat", "ess_bulk", "ess_tail", "mcse_mean", "mean", "sd")


def autocorrelation(f: ArrayLike, max_lag: int = 1000) -> FloatArray:
    """Return the autocorrelation of function draws, averaged over grid points, of each chain (paper, Appendix C).

    With N draws in a chain, a grid R and the chain's own mean mu(r)::

        rho_k = 1/|R| sum_r 1/(N-k-1) 1/s2_r sum_{n=1}^{N-k} (f_n(r) - mu(r)) (f_{n+k}(r) - mu(r)),
        s2_r = 1/(N-1) sum_n (f_n(r) - mu(r))^2, and rho_0 = 1.

    The sums are formed by FFT.

    Parameters
    ----------
    f : array_like, shape (chain, draw, ...)
        At least 4 draws in each chain. Every combination of trailing indices (row and output) is one grid point; an
        array (chain, draw) holds a scalar such as the log-likelihood.
    max_lag : int, default 1000
        Largest lag in kept draws, at least 1. For lags above N - 2 the divisor is not positive; a larger `max_lag` is
        reduced to N - 2 with a warning.

    Returns
    -------
    ndarray of float64, shape (chain, min(max_lag, draw - 2) + 1)
        rho_0 .. rho_max_lag of each chain. A grid point at which a chain never changes has no autocorrelation and is
        left out of that chain's average; a chain that changes at no point has NaN, also for rho_0.

    Raises
    ------
    TypeError
        If `f` does not hold real numbers.
    ValueError
        If `f` has fewer than two axes or fewer than 4 draws, holds NaN or infinity, or `max_lag` is below 1.

    Warns
    -----
    UserWarning
        If `max_lag` is reduced.

    Examples
    --------
    >>> autocorrelation([[1.0, -1.0, 1.0, -1.0, 1.0, -1.0]], max_lag=2)
    array([[ 1.        , -1.04166667,  1.11111111]])
    """
    draws = chain_draws("f", f, min_draws=_MIN_DRAWS)
    return _autocorrelation(draws, _capped(max_lag, draws.shape[1]))


@overload
def ess_paper(f: ArrayLike, max_lag: int = ..., *, per_chain: Literal[False] = ...) -> float: ...
@overload
def ess_paper(f: ArrayLike, max_lag: int = ..., *, per_chain: Literal[True]) -> FloatArray: ...
def ess_paper(f: ArrayLike, max_lag: int = 1000, *, per_chain: bool = False) -> float | FloatArray:
    """Evaluate the paper's effective sample size, N / (-1 + 2 sum_{k=0}^{max_lag} rho_k), summed over chains.

    The fixed maximum lag overestimates the ESS of a chain whose autocorrelation extends beyond it. If a chain has fewer
    than some tens of `max_lag` draws, the value is noisy and biased upwards (each rho_k is biased by about -1/ESS). Use
    `ess_geyer` for claims; this function is for comparison with the paper's Appendix C, whose chains have 500,000 kept
    draws.

    Parameters
    ----------
    f : array_like, shape (chain, draw, ...)
        Draws on a grid of inputs, see `autocorrelation`.
    max_lag : int, default 1000
        Maximum lag, the paper's 1000, at least 1; reduced with a warning for shorter chains.
    per_chain : bool, default False
        Whether to return the value of each chain instead of their sum.

    Returns
    -------
    float, or ndarray of shape (chain,) when `per_chain`
        NaN for a chain that never changes, and for one whose integrated autocorrelation time is not positive, which
        means that the chain is too short for `max_lag`. The sum is NaN if the value of one chain is.

    Raises
    ------
    TypeError, ValueError
        As `autocorrelation`.

    Warns
    -----
    UserWarning
        If `max_lag` is reduced, or the integrated autocorrelation time of a chain is not positive.
    """
    draws = chain_draws("f", f, min_draws=_MIN_DRAWS)
    rho = _autocorrelation(draws, _capped(max_lag, draws.shape[1]))
    ess = paper_ess_of(rho, draws.shape[1])
    if np.isnan(ess).any():
        Note(
            "too short",
            f"the autocorrelations up to lag {rho.shape[1] - 1} of chain {int(np.isnan(ess).argmax())} sum to less "
            "than nothing, so the paper's ESS is undefined (nan): the chain is too short for this max_lag; keep "
            "more draws, pass a smaller max_lag or use ess_geyer",
        ).give(stacklevel=2)
    return ess if per_chain else float(ess.sum())


def paper_ess_of(rho: FloatArray, n_draws: int) -> FloatArray:
    """Return `ess_paper` of each chain, or NaN, from its mean autocorrelation up to the largest lag, (chain, lags)."""
    time = -1.0 + 2.0 * rho.sum(axis=1)
    found: FloatArray = n_draws / np.where(time > 0, time, np.nan)
    return found


@overload
def ess_geyer(f: ArrayLike, *, per_chain: Literal[False] = ...) -> float: ...
@overload
def ess_geyer(f: ArrayLike, *, per_chain: Literal[True]) -> FloatArray: ...
def ess_geyer(f: ArrayLike, *, per_chain: bool = False) -> float | FloatArray:
    """Evaluate the effective sample size from the mean autocorrelation and Geyer's initial monotone sequence.

    The sum runs over pairs rho_{2t} + rho_{2t+1} up to the first that is not positive, each replaced by the minimum of
    itself and the pairs before it (Geyer, Statistical Science 1992, section 3.3); so it includes all lags of a slow
    chain and excludes the noise of the tail. The integrated autocorrelation time is at least 1/log10(N), as in Stan,
    which bounds the ESS of a chain of alternating draws. Speed claims use this value (docs/method.md, section 8).

    Parameters
    ----------
    f : array_like, shape (chain, draw, ...)
        Draws on a grid of inputs, see `autocorrelation`; at least 4 draws in each chain.
    per_chain : bool, default False
        Whether to return the value of each chain instead of their sum.

    Returns
    -------
    float, or ndarray of shape (chain,) when `per_chain`
        NaN for a chain that never changes; the sum is NaN if the value of one chain is. The value does not show whether
        the chains agree with each other, which `convergence` does.

    Raises
    ------
    TypeError, ValueError
        As `autocorrelation`.
    """
    draws = chain_draws("f", f, min_draws=_MIN_DRAWS)
    ess = geyer_ess_of(_autocorrelation(draws, draws.shape[1] - 2), draws.shape[1])
    return ess if per_chain else float(ess.sum())


def geyer_ess_of(rho: FloatArray, n_draws: int) -> FloatArray:
    """Return `ess_geyer` of each chain from autocorrelations that have been computed already.

    Parameters
    ----------
    rho : ndarray of float64, shape (chain, n_draws - 1)
        The autocorrelation of each chain at all lags, `autocorrelation(f, n_draws - 2)`.
    n_draws : int
        Number of draws of each chain.

    Returns
    -------
    ndarray of float64, shape (chain,)
        NaN for a chain that never changes.
    """
    floor = 1.0 / np.log10(n_draws)
    return np.array([n_draws / max(_geyer_time(chain), floor) if np.isfinite(chain[0]) else np.nan for chain in rho])


def _capped(max_lag: int, n_draws: int) -> int:
    """Return `max_lag`, reduced to N - 2 with a warning that points at the caller of the public function."""
    max_lag = check_count(max_lag, "max_lag")
    if max_lag > n_draws - 2:
        Note(
            "too short",
            f"max_lag={max_lag} is lowered to {n_draws - 2}: {n_draws} draws in each chain have no longer lag. Sums "
            "over all lags of a short chain are mostly noise; keep more draws, pass a smaller max_lag or use ess_geyer",
        ).give(stacklevel=3)
    return min(max_lag, n_draws - 2)


def _geyer_time(rho: FloatArray) -> float:
    """Return -1 + 2 times the sum of Geyer's initial monotone sequence of one chain's autocorrelations (lags,)."""
    even = rho.shape[0] // 2 * 2
    pairs = rho[0:even:2] + rho[1:even:2]
    negative = np.flatnonzero(pairs <= 0)
    stop = int(negative[0]) if negative.size else pairs.size
    return float(-1.0 + 2.0 * np.minimum.accumulate(pairs[:stop]).sum())


def _autocorrelation(draws: NDArray[Any], max_lag: int) -> FloatArray:
    """Evaluate `autocorrelation`, shape (chain, max_lag + 1), for checked draws and 1 <= max_lag <= N - 2."""
    mean = MeanAutocorrelation(draws.shape[0], draws.shape[1], max_lag)
    mean.add(draws)
    return mean.result()


class MeanAutocorrelation:
    """The autocorrelation of each chain up to a lag, averaged over grid points that are added in blocks."""

    def __init__(self, n_chains: int, n_draws: int, max_lag: int) -> None:
        from scipy.fft import next_fast_len

        # Zero padding by max_lag keeps the circular correlation equal to the linear one at lags 0..max_lag.
        self._length = int(next_fast_len(n_draws + max_lag, real=True))
        self._n_draws = n_draws
        self._total = np.zeros((n_chains, max_lag + 1))
        self._used = np.zeros(n_chains, dtype=int)

    def add(self, draws: NDArray[Any]) -> None:
        """Add the grid points of draws (chain, draw, ...)."""
        from scipy.fft import irfft, rfft

        grid = draws.reshape(*draws.shape[:2], -1)
        for points in row_slices(grid.shape[2], 32 * self._length):
            for chain in range(len(grid)):
                x = np.ascontiguousarray(grid[chain, :, points].T, dtype=np.float64)
                # Constant points are found by their range, because subtracting the mean can leave rounding errors.
                x = x[np.ptp(x, axis=1) > 0]
                if x.shape[0] == 0:
                    continue
                x -= x.mean(axis=1, keepdims=True)
                x /= np.abs(x).max(axis=1, keepdims=True)  # leaves rho unchanged and keeps squares from underflowing
                spectrum = rfft(x, n=self._length, axis=1, workers=processors())
                power = spectrum.real**2
                power += spectrum.imag**2
                # By Parseval, the products at lag 0 are the sums of squares; one transform then serves all points.
                power /= np.einsum("pn,pn->p", x, x)[:, None]
                self._total[chain] += irfft(power.sum(axis=0), n=self._length)[: self._total.shape[1]]
                self._used[chain] += x.shape[0]

    def result(self) -> FloatArray:
        """Return rho (chain, max_lag + 1); NaN for chains that change at no point."""
        n = self._n_draws
        scale = (n - 1.0) / (n - np.arange(self._total.shape[1]) - 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            rho: FloatArray = scale * self._total / self._used[:, None]
        rho[self._used > 0, 0] = 1.0
        return rho


@dataclass(frozen=True)
class ConvergenceSummary:
    """Convergence statistics at each grid point, and the worst value of each.

    Attributes
    ----------
    rhat, ess_bulk, ess_tail, mcse_mean, mean, sd : ndarray
        Rank-normalised split R-hat, bulk and tail effective sample size, Monte Carlo standard error of the mean,
        mean and standard deviation of the pooled draws. The shape is that of the draws without (chain, draw):
        (n, m) for function draws, () for a scalar such as the log-likelihood.
    mcse_quantiles : ndarray, shape (len(quantiles), ...)
        Monte Carlo standard error of each requested quantile.
    quantiles : tuple of float
        The requested quantiles.
    n_chains, n_draws : int
        Number of chains, and of draws in each.
    n_constant : int
        Number of grid points at which all draws of all chains are equal. There all statistics except mean and sd are
        NaN, because draws that never change contain no information about convergence.
    """

    rhat: FloatArray
    ess_bulk: FloatArray
    ess_tail: FloatArray
    mcse_mean: FloatArray
    mean: FloatArray
    sd: FloatArray
    mcse_quantiles: FloatArray
    quantiles: tuple[float, ...]
    n_chains: int
    n_draws: int
    n_constant: int

    @property
    def max_rhat(self) -> float:
        """Largest R-hat; NaN only if no point has one."""
        return worst(self.rhat, np.max)

    @property
    def min_ess_bulk(self) -> float:
        """Smallest bulk ESS; NaN only if no point has one."""
        return worst(self.ess_bulk, np.min)

    @property
    def min_ess_tail(self) -> float:
        """Smallest tail ESS; NaN only if no point has one."""
        return worst(self.ess_tail, np.min)

    @property
    def max_mcse(self) -> float:
        """Largest Monte Carlo standard error of a mean; NaN only if no point has one."""
        return worst(self.mcse_mean, np.max)

    def worst(self) -> dict[str, float]:
        """Return the four worst values by name, for reports and JSON files."""
        return {
            "max_rhat": self.max_rhat,
            "min_ess_bulk": self.min_ess_bulk,
            "min_ess_tail": self.min_ess_tail,
            "max_mcse": self.max_mcse,
        }


def convergence(f: ArrayLike, *, quantiles: float | Sequence[float] = ()) -> ConvergenceSummary:
    """Evaluate R-hat, bulk and tail ESS and MCSE at each row and output, as `arviz_stats` does.

    Function values are identified, network weights are not. So convergence should be checked on a grid of inputs and on
    the log-likelihood, not on the weights (docs/method.md, section 8). The memory is bounded, whatever the number of
    points.

    Parameters
    ----------
    f : array_like, shape (chain, draw, ...)
        Function draws (chain, draw, n, m), or a scalar of each draw such as the log-likelihood, (chain, draw). Each
        chain has at least 4 draws.
    quantiles : sequence of float in (0, 1), default ()
        Quantiles whose Monte Carlo standard errors are to be computed too.

    Returns
    -------
    ConvergenceSummary
        R-hat needs two chains and splits each. A single chain is first cut into two halves, without the middle draw of
        an odd number; so for one chain R-hat compares quarters, and it is NaN below 8 draws.

    Raises
    ------
    TypeError
        If `f` or `quantiles` are no real numbers.
    ValueError
        If `f` has fewer than two axes or fewer than 4 draws, holds NaN or infinity, or a quantile lies outside (0, 1).

    Notes
    -----
    Vehtari, Gelman, Simpson, Carpenter and Bürkner, Rank-normalization, folding, and localization, Bayesian Analysis
    16(2), 2021.
    """
    return convergence_reporting(f, quantiles, int)


def convergence_reporting(
    f: ArrayLike, quantiles: float | Sequence[float], advance: Callable[[int], object]
) -> ConvergenceSummary:
    """Evaluate `convergence`, and call `advance` with the number of rows and outputs after each block of them."""
    draws = chain_draws("f", f, min_draws=_MIN_DRAWS)
    levels = tuple(check_probabilities(quantiles, "quantiles", may_be_empty=True))
    n_chains, n_draws = draws.shape[:2]
    shape = draws.shape[2:]
    points = np.moveaxis(draws.reshape(n_chains, n_draws, -1), 2, 0)
    found = {name: np.full(len(points), np.nan) for name in _STATISTICS}
    at_quantiles = np.full((len(levels), len(points)), np.nan)
    n_constant = 0
    scores = _NormalScores(n_chains * 2 * (n_draws // 2))
    for rows in row_slices(len(points), 64 * n_chains * n_draws):
        block = np.ascontiguousarray(points[rows], dtype=np.float64)
        flat = block.reshape(len(block), -1)
        found["mean"][rows], found["sd"][rows] = flat.mean(axis=1), flat.std(axis=1, ddof=1)
        changes = np.ptp(flat, axis=1) > 0
        n_constant += int((~changes).sum())
        at = rows.start + np.flatnonzero(changes)
        # Chains that are constant but differ have the variance zero within them and an infinite R-hat, which is right.
        with np.errstate(divide="ignore", invalid="ignore"):
            if len(at):
                block, flat = block[changes], flat[changes]
                _add_statistics(found, at, block, scores)
            if len(at) and levels:
                array_stats: Any = import_module("arviz_stats.base").array_stats
                at_quantiles[:, at] = [array_stats.mcse(block, method="quantile", prob=level) for level in levels]
        advance(rows.stop - rows.start)
    return ConvergenceSummary(
        **{name: values.reshape(shape) for name, values in found.items()},
        mcse_quantiles=at_quantiles.reshape((len(levels), *shape)),
        quantiles=levels,
        n_chains=n_chains,
        n_draws=n_draws,
        n_constant=n_constant,
    )


def _add_statistics(
    found: dict[str, FloatArray], at: NDArray[np.intp], block: FloatArray, scores: _NormalScores
) -> None:
    """Set the statistics of the points `at`, whose draws (point, chain, draw) change, to those of ArviZ, to the bit."""
    halves = _halves(block)
    bulk, folded = scores.of(halves)
    found["ess_bulk"][at] = _ess(bulk)
    if block.shape[1] > 1:
        found["rhat"][at] = np.fmax(_rhat(bulk), _rhat(folded))
    elif halves.shape[2] >= _MIN_DRAWS:
        again = _halves(halves)
        bulk, folded = _NormalScores(again[0].size).of(again)
        found["rhat"][at] = np.fmax(_rhat(bulk), _rhat(folded))
    del bulk, folded  # of long chains each takes much memory
    found["mcse_mean"][at] = found["sd"][at] / np.sqrt(_ess(halves))
    ends = np.quantile(block.reshape(len(block), -1), _TAIL, axis=1)
    found["ess_tail"][at] = np.min([_ess(_halves(block <= end[:, None, None]).astype(np.float64)) for end in ends], 0)


def _halves(chains: NDArray[Any]) -> NDArray[Any]:
    """Return `chain_halves` of chains (point, chain, draw)."""
    half = chains.shape[2] // 2
    return np.concatenate([chains[..., :half], chains[..., chains.shape[2] - half :]], axis=1)


def _rhat(chains: FloatArray) -> FloatArray:
    """Return R-hat (point,) of chains (point, chain, draw), as they are."""
    n = chains.shape[2]
    between, within = n * chains.mean(axis=2).var(axis=1, ddof=1), chains.var(axis=2, ddof=1).mean(axis=1)
    return np.asarray(np.sqrt((between / within + n - 1) / n))


def _ess(chains: FloatArray) -> FloatArray:
    """Return the effective number of draws (point,) of chains (point, chain, draw), as they are (Geyer 1992)."""
    from scipy.fft import irfft, next_fast_len, rfft

    _, n_chains, n = chains.shape
    size, length = n_chains * n, next_fast_len(2 * n)
    means = chains.mean(axis=2)
    spectrum = rfft(chains - means[..., None], n=length, axis=2)
    spectrum *= np.conjugate(spectrum)
    products = irfft(spectrum, n=length, axis=2)[..., :n]
    products /= n
    # The order of a sum is that of contiguous numbers.
    covariance = np.ascontiguousarray(np.moveaxis(products, 1, 2)).mean(axis=2)
    variance = covariance[:, 0] * n / (n - 1.0)
    total = variance * (n - 1.0) / n
    if n_chains > 1:
        total = total + means.var(axis=1, ddof=1)
    rho = 1.0 - (variance[:, None] - covariance) / total[:, None]
    rho[:, 0] = 1.0
    ess = np.array([size / max(_monotone_time(one), 1.0 / np.log10(size)) for one in rho])
    ess[np.isnan(rho).any(axis=1)] = np.nan
    flat = chains.reshape(len(chains), -1)
    ess[np.ptp(flat, axis=1) < np.finfo(np.float64).resolution] = size
    return ess


def _monotone_time(rho: FloatArray) -> float:
    """Return the autocorrelation time of ArviZ: `_geyer_time`, with the even lag after the last pair if positive."""
    even = len(rho) // 2 * 2
    pairs, last = rho[0:even:2] + rho[1:even:2], max(0, (len(rho) - 3) // 2)
    stop = np.flatnonzero(~(pairs[: last + 1] > 0))
    count = int(stop[0]) if len(stop) else last
    kept, lowest = rho[: 2 * count].copy(), np.minimum.accumulate(pairs[:count])
    for pair in np.flatnonzero(pairs[1:count] > lowest[:-1]) + 1 if count else ():
        kept[2 * pair : 2 * pair + 2] = 0.5 * lowest[pair - 1]
    # A pair of the sum zero was kept before the search ended, and so was a positive even lag of a negative one.
    after = rho[2 * count] if pairs[count] >= 0 or rho[2 * count] > 0 else 0.0
    return float(-1.0 + 2.0 * np.sum(kept) + after)


class NestedRhat(NamedTuple):
    """Nested R-hat and the R-hat within superchains at each grid point, of the shape of draws without (chain, draw)."""

    nested: FloatArray
    within: FloatArray


def nested_rhat(f: ArrayLike, superchains: ArrayLike) -> NestedRhat:
    """Evaluate R-hat between superchains, groups of chains that share a start, and R-hat within them.

    With N draws x_nmk of chain m of superchain k, M_k chains in it and K superchains, and dots for averages::

        B = 1/(K-1) sum_k (x_..k - x_...)^2        W_k = 1/M_k sum_m 1/(N-1) sum_n (x_nmk - x_.mk)^2
        B_k = 1/(M_k-1) sum_m (x_.mk - x_..k)^2    nested R-hat = sqrt(1 + B / (1/K sum_k (B_k + W_k)))

    where `x_...` is the average over superchains, B_k is 0 for one chain and W_k is 0 for one draw (Margossian,
    Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman, Nested R-hat, Bayesian Analysis 2024, arXiv 2110.13017). Within
    them, R-hat is sqrt(1 + sum_k B_k / sum_k W_k), over superchains of several chains. Chains of one start that differ
    are too short. If they agree and superchains differ, each start has a region of its own, which longer chains do not
    leave: more starts show more of these regions.

    Parameters
    ----------
    f : array_like, shape (chain, draw, ...)
        Function draws (chain, draw, n, m), or a scalar of each draw, (chain, draw).
    superchains : array_like, shape (chain,)
        The superchain of each chain, by any labels. Halves of chains as chains of one superchain compare each chain
        with itself.

    Returns
    -------
    NestedRhat
        Both are at least 1. `nested` is NaN for one superchain, `within` if each has one chain, and both are NaN where
        all draws are equal; they are infinite where chains that never change differ.

    Raises
    ------
    TypeError
        If `f` does not hold real numbers.
    ValueError
        If `f` has fewer than two axes or holds NaN or infinity, or `superchains` has another shape.

    Examples
    --------
    Two chains at each of two starts, apart by 4 (B = 8, B_k + W_k = 0.5 + 2) and by 1 within each:

    >>> import numpy as np
    >>> found = nested_rhat([[0.0, 2.0], [1.0, 3.0], [4.0, 6.0], [5.0, 7.0]], ["a", "a", "b", "b"])
    >>> np.allclose(found, np.sqrt([1 + 8 / 2.5, 1 + 0.5 / 2]))
    True
    """
    draws = chain_draws("f", f, min_draws=1)
    labels = np.asarray(superchains)
    if labels.shape != (len(draws),):
        raise ValueError(f"superchains must have shape ({len(draws)},), a label of each chain; got {labels.shape}.")
    member = (labels == np.unique(labels)[:, None]).astype(np.float64)  # (superchain, chain)
    count = member.sum(axis=1, keepdims=True)
    n_draws, points = draws.shape[1], draws.reshape(*draws.shape[:2], -1)
    found = np.full((2, points.shape[2]), np.nan)
    for part in row_slices(points.shape[2], 16 * len(draws) * n_draws):
        chains = points[:, :, part].astype(np.float64)
        chains -= chains[0, 0]  # exact zeros where nothing ever changes
        means = chains.mean(axis=1)
        of_superchains = member @ means / count
        apart = (means - member.T @ of_superchains) ** 2
        between = member @ apart / np.maximum(count - 1, 1)
        variances = np.where(np.ptp(chains, axis=1) > 0, chains.var(axis=1) * n_draws / max(1, n_draws - 1), 0.0)
        inside, several = member @ variances / count, count[:, 0] > 1
        with np.errstate(divide="ignore", invalid="ignore"):
            if len(count) > 1:
                found[0, part] = of_superchains.var(axis=0, ddof=1) / (between + inside).mean(axis=0)
            if several.any():
                found[1, part] = between[several].sum(axis=0) / inside[several].sum(axis=0)
    nested, within = np.sqrt(1.0 + found).reshape(2, *draws.shape[2:])
    return NestedRhat(nested, within)


class _NormalScores:
    """Normal scores of `size` values by their average ranks, as ArviZ forms them, for R-hat and bulk ESS together."""

    # ArviZ ranks the values again for each of the two, by slower sorts, which took half of the time of a summary.

    def __init__(self, size: int) -> None:
        from scipy.special import ndtri

        ranks = 0.5 * np.arange(2, 2 * size + 1)  # 1, 1.5, ..., size: an average rank is a multiple of 1/2
        self._of_rank = ndtri((ranks - 3 / 8) / (size - 2 * 3 / 8 + 1))  # Blom (1958), as in ArviZ

    def of(self, chains: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the scores of values (point, chain, draw), and those of distances from their median, likewise."""
        values = chains.reshape(len(chains), -1)
        order = np.argsort(values, axis=1)
        ordered = np.take_along_axis(values, order, axis=1)
        bulk, folded = np.empty_like(values), np.empty_like(values)
        np.put_along_axis(bulk, order, self._of_ordered(ordered), axis=1)
        ordered -= np.median(ordered, axis=1, keepdims=True)
        distances = np.abs(ordered, out=ordered)
        again = np.argsort(distances, axis=1)
        scores = self._of_ordered(np.take_along_axis(distances, again, axis=1))
        np.put_along_axis(folded, np.take_along_axis(order, again, axis=1), scores, axis=1)
        return bulk.reshape(chains.shape), folded.reshape(chains.shape)

    def _of_ordered(self, ordered: FloatArray) -> FloatArray:
        """Return the scores of values (point, size) in ascending order; equal values have the mean of their ranks."""
        starts = np.ones(ordered.shape, dtype=bool)
        np.not_equal(ordered[:, 1:], ordered[:, :-1], out=starts[:, 1:])
        first = np.flatnonzero(starts)
        count = np.diff(first, append=ordered.size)
        # The ranks first + 1 .. first + count of a point's values have the mean first + (count + 1) / 2.
        found = np.repeat(self._of_rank[2 * (first % ordered.shape[1]) + count - 1], count)
        return found.reshape(ordered.shape)


def chain_halves(chains: NDArray[Any]) -> NDArray[Any]:
    """Return the halves of chains (chain, draw, ...) as chains, without the middle draw of an odd number."""
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, chains.shape[1] - half :]])


def joined(parts: Sequence[ConvergenceSummary]) -> ConvergenceSummary:
    """Return the statistics of blocks of grid points, each of shape (rows, ...), as those of all points."""
    points: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _STATISTICS}
    return replace(
        parts[0],
        **points,
        mcse_quantiles=np.concatenate([part.mcse_quantiles for part in parts], axis=1),
        n_constant=sum(part.n_constant for part in parts),
    )


def worst(values: FloatArray, worst_of: Callable[[FloatArray], Any]) -> float:
    """Return the largest or smallest entry that is not NaN; NaN if there is none."""
    known = values[~np.isnan(values)]
    return float(worst_of(known)) if known.size else math.nan
