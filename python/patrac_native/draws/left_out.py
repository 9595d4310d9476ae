"""Leave-one-out predictions of the rows of a posterior, in blocks of rows that bound the memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.diagnostics.psis import khat_limit, weighted_log_mean
from patrac_native.draws.scored_predictions import ScoredPredictions
from patrac_native.validation.checks import FloatArray, as_real_array

# Maximum size of the log-likelihoods of one block of rows.
_BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Leave-one-out predictions, as `Draws.loo` returns them; its string is a table.

    Attributes
    ----------
    elpd_rows : ndarray of float64, shape (n,)
        Log predictive density of each row given all others.
    lpd_rows : ndarray of float64, shape (n,)
        Log predictive density of each row given all rows, its own included.
    khat : ndarray of float64, shape (n,)
        Shape of the tail of each row's importance ratios.
    n_draws : int
        Number of draws of all chains.
    """

    elpd_rows: FloatArray
    lpd_rows: FloatArray
    khat: FloatArray
    n_draws: int

    @property
    def elpd(self) -> float:
        """Sum of `elpd_rows`: the expected log predictive density of Vehtari, Gelman and Gabry (2017)."""
        return float(self.elpd_rows.sum())

    @property
    def se(self) -> float:
        """Standard error of `elpd` as an estimate for other rows: sqrt(n) times the standard deviation of `elpd_rows`.

        NaN of a single row.
        """
        n = len(self.elpd_rows)
        return float(np.sqrt(n) * self.elpd_rows.std(ddof=1)) if n > 1 else float("nan")

    @property
    def p_loo(self) -> float:
        """Sum of `lpd_rows` minus `elpd`: the effective number of parameters."""
        return float(self.lpd_rows.sum()) - self.elpd

    @property
    def is_unreliable(self) -> npt.NDArray[np.bool_]:
        """Whether the `khat` of each row is too large for its estimate to be trusted, shape (n,)."""
        return np.asarray(self.khat > khat_limit(self.n_draws))

    @property
    def unreliable(self) -> int:
        """Number of rows whose estimate is unreliable."""
        return int(self.is_unreliable.sum())

    def __str__(self) -> str:
        return (
            f"leave-one-out of {len(self.khat)} rows from {self.n_draws} draws\n"
            f"  elpd {self.elpd:.2f} (se {self.se:.2f}), p_loo {self.p_loo:.2f}\n"
            f"  Pareto k: largest {self.khat.max():.2f}, {self.unreliable} rows above {khat_limit(self.n_draws):.2f}"
        )


def check_row_weights(row_weights: npt.ArrayLike | None, n: int, members: int | None = None) -> FloatArray:
    """Return the row weights of one posterior, shape (n,), or of several, shape (members, n); by default ones.

    Raises
    ------
    TypeError
        If they are not real numbers.
    ValueError
        If they have another shape, or one is negative or not finite.
    """
    powers = np.ones(n) if row_weights is None else as_real_array(row_weights, "row_weights")
    shapes = [(n,)] if members is None else [(n,), (members, n)]
    if powers.shape not in shapes or not (np.isfinite(powers) & (powers >= 0)).all():
        wanted = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"row_weights must be finite, nonnegative and of shape {wanted}; got shape {powers.shape}.")
    return powers if members is None else np.broadcast_to(powers, (members, n))


def _left_out(log_likelihood: Callable[[slice], FloatArray], n: int, n_draws: int, row_weights: FloatArray) -> LeftOut:
    """Return leave-one-out predictions of n rows.

    Parameters
    ----------
    log_likelihood : callable
        From a slice of rows to the log-likelihood of each in each draw, shape (chain, draw, rows).
    n, n_draws : int
        Numbers of rows, and of draws of all chains.
    row_weights : ndarray, shape (n,)
        The factor of each row's log-likelihood in the posterior.
    """
    from scipy.special import logsumexp

    elpd_rows, lpd_rows, khat = np.empty(n), np.empty(n), np.empty(n)
    rows = max(1, _BLOCK_BYTES // (8 * n_draws))
    for first in range(0, n, rows):
        block = slice(first, min(first + rows, n))
        values = log_likelihood(block)
        # The posterior holds the row's log-likelihood times its weight, which is what leaving it out takes away.
        found = diagnostics.leave_one_out(values * row_weights[block])
        flat = values.reshape(-1, values.shape[2])
        elpd_rows[block] = weighted_log_mean(flat, found.weights)
        lpd_rows[block] = logsumexp(flat, axis=0) - np.log(len(flat))
        khat[block] = found.khat
    return LeftOut(elpd_rows, lpd_rows, khat, n_draws)


class LeaveOneOutPredictions(ScoredPredictions):
    """Base class of `Draws` with predictions of the posterior's own rows."""

    def loo(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        row_weights: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
    ) -> LeftOut:
        """Predict each row of the posterior's data as if it had not been part of them, without refitting.

        Draws are reweighted by Pareto-smoothed importance sampling (`diagnostics.leave_one_out`, with ArviZ's
        functions). The trained network has seen the row all the same: of partial architectures, the predictions are
        those of the posterior without the row, around a network that was trained with it.

        Parameters
        ----------
        X : array_like, shape (n, d)
            The inputs of the posterior, `post.X`.
        y : array_like
            Their targets, `post.y`.
        row_weights : array_like, shape (n,), optional
            `post.row_weights`, if the posterior was given sample weights or a scale; default ones.
        offset : array_like, shape (n,) or (n, m), optional
            `post.offset`, if the posterior has one.

        Returns
        -------
        LeftOut
            Log predictive density and Pareto k of each row, and their sum `elpd`; its string is a table.

        Raises
        ------
        TypeError, ValueError
            As `log_likelihood_rows`, or if `row_weights` are not as described or there are fewer than 25 draws.

        Warns
        -----
        UserWarning
            If the predictions of some rows are unreliable (large Pareto k), or `offset` is missing, though the
            posterior has one.
        """
        inputs = self._inputs(X)
        targets = self.likelihood.check_targets(y, len(inputs), self.n_outputs)
        offset = self._offset_of_targets(offset, len(inputs))
        added = self.likelihood.check_offset(offset, len(inputs), self.n_outputs)
        found = self.left_out(inputs, targets, check_row_weights(row_weights, len(inputs)), added)
        if found.unreliable:
            warnings.warn(
                f"Draws.loo: the predictions of {found.unreliable} of {len(inputs)} rows are unreliable (Pareto k up "
                f"to {found.khat.max():.2f}), and so is their sum. Run more draws, or score held-out rows.",
                UserWarning,
                stacklevel=2,
            )
        return found

    def left_out(
        self, X: FloatArray, y: npt.NDArray[Any], row_weights: FloatArray, offset: FloatArray | None
    ) -> LeftOut:
        """Return what `loo` does, without a warning, for arguments that have been checked."""

        def values(block: slice) -> FloatArray:
            return self.log_likelihood_rows(X[block], y[block], offset=None if offset is None else offset[block])

        return _left_out(values, len(X), self.n_chains * self.n_draws, row_weights)
