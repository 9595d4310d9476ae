"""Leave-one-out predictions of the rows of a posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.psis import khat_limit
from patrac_native.draws.distribution import PredictiveDistribution, check_row_weights
from patrac_native.validation.checks import FloatArray


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


def leave_out(distribution: PredictiveDistribution, y: npt.ArrayLike, row_weights: npt.ArrayLike | None) -> LeftOut:
    """Return leave-one-out predictions of the rows of a posterior's own data, evaluated in blocks of rows."""
    targets, powers = distribution.check_targets(y), check_row_weights(row_weights, distribution.n_rows)
    elpd_rows, lpd_rows, khat = (np.empty(distribution.n_rows) for _ in range(3))
    for rows, part in distribution.blocks():
        without = part.left_out(targets[rows], row_weights=powers[rows])
        elpd_rows[rows], khat[rows] = without.log_density(targets[rows]), without.khat
        lpd_rows[rows] = part.log_density(targets[rows])
    return LeftOut(elpd_rows, lpd_rows, khat, distribution.n_draws)
