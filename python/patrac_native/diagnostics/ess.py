"""Autocorrelation of function draws and the effective sample sizes summed from it (paper, Appendix C)."""

from __future__ import annotations

import warnings
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.diagnostics._arrays import FloatArray, chain_draws, row_blocks

# Three draws give the formulas one lag, (N - 2), with divisor N - k - 1 = 1; a pair of lags needs one more.
_MIN_DRAWS = 4


def autocorrelation(f: ArrayLike, max_lag: int = 1000) -> FloatArray:
    """Mean autocorrelation of function draws over grid points, chain by chain (paper, Appendix C).

    With N draws in a chain, a grid R and the chain's own mean mu(r),
    rho_k = 1/|R| sum_r 1/(N-k-1) 1/s2_r sum_{n=1}^{N-k} (f_n(r) - mu(r)) (f_{n+k}(r) - mu(r)),
    s2_r = 1/(N-1) sum_n (f_n(r) - mu(r))^2, and rho_0 = 1. The sums are formed by FFT.

    Parameters
    ----------
    f : array_like, shape (chain, draw, ...)
        Draws; every trailing entry (row and output) is one grid point. (chain, draw) is a scalar such as the
        log-likelihood. At least 4 draws.
    max_lag : int, default 1000
        Largest lag, in kept draws. Lags above N - 2 have no divisor; when `max_lag` is larger it is lowered to
        N - 2 with a warning.

    Returns
    -------
    ndarray, shape (chain, min(max_lag, draw - 2) + 1)
        rho_0 .. rho_max_lag for each chain. A grid point at which a chain never changes has no autocorrelation and is
        left out of that chain's average; a chain that changes at no point gives NaN (rho_0 included).

    Raises
    ------
    ValueError
        If `f` has fewer than two axes or fewer than 4 draws, holds NaN or infinity, or `max_lag` is below 1.

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
    """Effective sample size of the paper's Appendix C, N / (-1 + 2 sum_{k=0}^{max_lag} rho_k), summed over chains.

    The fixed cap on the lags flatters a chain whose autocorrelation reaches beyond it, and a chain of fewer than some
    tens of `max_lag` draws gets a noisy figure that is biased upwards (each rho_k is biased by about -1/ESS). Use
    `ess_geyer` for claims; this one is for comparison with the paper, whose chains have 500,000 kept draws.

    Parameters
    ----------
    f : array_like, shape (chain, draw, ...)
        Draws on a grid of inputs, see `autocorrelation`.
    max_lag : int, default 1000
        The cap on the lags, the paper's 1000. Lowered with a warning in shorter chains.
    per_chain : bool, default False
        Return the value of each chain instead of their sum.

    Returns
    -------
    float, or ndarray of shape (chain,) when `per_chain`
        NaN for a chain that never moves, and (with a warning) for one whose sum of autocorrelations is not positive,
        which means that the chain is too short for the cap. The sum is NaN if any chain's is.

    Raises
    ------
    ValueError
        As `autocorrelation`.
    """
    draws = chain_draws("f", f, min_draws=_MIN_DRAWS)
    rho = _autocorrelation(draws, _capped(max_lag, draws.shape[1]))
    time = -1.0 + 2.0 * rho.sum(axis=1)
    if (time <= 0).any():
        warnings.warn(
            f"the autocorrelations up to lag {rho.shape[1] - 1} of chain {int(np.flatnonzero(time <= 0)[0])} sum to "
            "less than nothing, so the paper's ESS is undefined (nan): the chain is too short for this max_lag; keep "
            "more draws, pass a smaller max_lag or use ess_geyer",
            UserWarning,
            stacklevel=2,
        )
    ess = draws.shape[1] / np.where(time > 0, time, np.nan)
    return ess if per_chain else float(ess.sum())


@overload
def ess_geyer(f: ArrayLike, *, per_chain: Literal[False] = ...) -> float: ...
@overload
def ess_geyer(f: ArrayLike, *, per_chain: Literal[True]) -> FloatArray: ...
def ess_geyer(f: ArrayLike, *, per_chain: bool = False) -> float | FloatArray:
    """Effective sample size from the paper's mean autocorrelation and Geyer's initial monotone sequence.

    The pair sums rho_{2t} + rho_{2t+1} are added up to the first that is not positive, each lowered to the smallest
    before it (Geyer, Statistical Science 1992, section 3.3), so slow chains are summed as far as they reach and noise
    in the tail is not. The integrated time is kept above 1/log10(N), as in Stan, so that a chain of alternating
    draws cannot claim an unbounded ESS. Speed claims use this number (docs/method.md, section 8).

    Parameters
    ----------
    f : array_like, shape (chain, draw, ...)
        Draws on a grid of inputs, see `autocorrelation`. At least 4 draws; all lags up to N - 2 are available.
    per_chain : bool, default False
        Return the value of each chain instead of their sum.

    Returns
    -------
    float, or ndarray of shape (chain,) when `per_chain`
        NaN for a chain that never moves; the sum is NaN if any chain's is. Chains that sit in different places are
        not noticed here: read `convergence` beside it.

    Raises
    ------
    ValueError
        As `autocorrelation`.
    """
    draws = chain_draws("f", f, min_draws=_MIN_DRAWS)
    n_draws = draws.shape[1]
    rho = _autocorrelation(draws, n_draws - 2)
    floor = 1.0 / np.log10(n_draws)
    ess = np.array([n_draws / max(_geyer_time(chain), floor) if np.isfinite(chain[0]) else np.nan for chain in rho])
    return ess if per_chain else float(ess.sum())


def _capped(max_lag: int, n_draws: int) -> int:
    """`max_lag`, lowered to N - 2 with a warning that points at the caller of the public function."""
    if max_lag < 1:
        raise ValueError(f"max_lag must be at least 1, got {max_lag}")
    if max_lag > n_draws - 2:
        warnings.warn(
            f"max_lag={max_lag} is lowered to {n_draws - 2}: {n_draws} draws in each chain have no longer lag. Sums "
            "over all lags of a short chain are mostly noise; keep more draws, pass a smaller max_lag or use ess_geyer",
            UserWarning,
            stacklevel=3,
        )
    return min(max_lag, n_draws - 2)


def _geyer_time(rho: FloatArray) -> float:
    """-1 + 2 sum of Geyer's initial monotone sequence of one chain's autocorrelations (lags,)."""
    even = rho.shape[0] // 2 * 2
    pairs = rho[0:even:2] + rho[1:even:2]
    negative = np.flatnonzero(pairs <= 0)
    stop = int(negative[0]) if negative.size else pairs.size
    return float(-1.0 + 2.0 * np.minimum.accumulate(pairs[:stop]).sum())


def _autocorrelation(draws: NDArray[Any], max_lag: int) -> FloatArray:
    """`autocorrelation` for checked draws and 1 <= max_lag <= N - 2; shape (chain, max_lag + 1)."""
    from scipy.fft import irfft, next_fast_len, rfft

    n_chains, n_draws = draws.shape[:2]
    grid = draws.reshape(n_chains, n_draws, -1)
    n_points = grid.shape[2]
    # Zero padding by max_lag keeps the circular correlation equal to the linear one at lags 0..max_lag.
    length = int(next_fast_len(n_draws + max_lag, real=True))
    scale = (n_draws - 1.0) / (n_draws - np.arange(max_lag + 1) - 1.0)
    rho = np.full((n_chains, max_lag + 1), np.nan)
    for chain in range(n_chains):
        total, used = np.zeros(max_lag + 1), 0
        for block in row_blocks(n_points, 32 * length):
            x = np.ascontiguousarray(grid[chain, :, block].T, dtype=np.float64)
            # Constancy is read from the range: after the mean is subtracted, rounding hides it.
            x = x[np.ptp(x, axis=1) > 0]
            if x.shape[0] == 0:
                continue
            x -= x.mean(axis=1, keepdims=True)
            x /= np.abs(x).max(axis=1, keepdims=True)  # rho does not change, and squares cannot underflow
            spectrum = rfft(x, n=length, axis=1)
            power = spectrum.real**2 + spectrum.imag**2
            products = irfft(power, n=length, axis=1)[:, : max_lag + 1]
            total += (products / products[:, :1]).sum(axis=0)
            used += x.shape[0]
        if used:
            rho[chain] = scale * total / used
            rho[chain, 0] = 1.0
    return rho
