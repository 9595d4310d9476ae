"""Autocorrelation of function draws, and effective sample sizes computed from it (paper, Appendix C)."""

from __future__ import annotations

import warnings
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patrac_native.diagnostics._arrays import FloatArray, chain_draws, processors, row_slices
from patrac_native.validation.checks import check_count

# With three draws the formulas have one lag, N - 2 = 1, with divisor N - k - 1 = 1; a pair of lags needs one more draw.
_MIN_DRAWS = 4


def autocorrelation(f: ArrayLike, max_lag: int = 1000) -> FloatArray:
    """Return the autocorrelation of function draws, averaged over grid points, of each chain (paper, Appendix C).

    With N draws in a chain, a grid R and the chain's own mean mu(r),
    rho_k = 1/|R| sum_r 1/(N-k-1) 1/s2_r sum_{n=1}^{N-k} (f_n(r) - mu(r)) (f_{n+k}(r) - mu(r)),
    s2_r = 1/(N-1) sum_n (f_n(r) - mu(r))^2, and rho_0 = 1. The sums are formed by FFT.

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
        warnings.warn(
            f"the autocorrelations up to lag {rho.shape[1] - 1} of chain {int(np.isnan(ess).argmax())} sum to less "
            "than nothing, so the paper's ESS is undefined (nan): the chain is too short for this max_lag; keep "
            "more draws, pass a smaller max_lag or use ess_geyer",
            UserWarning,
            stacklevel=2,
        )
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
        warnings.warn(
            f"max_lag={max_lag} is lowered to {n_draws - 2}: {n_draws} draws in each chain have no longer lag. Sums "
            "over all lags of a short chain are mostly noise; keep more draws, pass a smaller max_lag or use ess_geyer",
            UserWarning,
            stacklevel=3,
        )
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
