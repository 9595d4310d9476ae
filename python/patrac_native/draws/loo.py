"""Leave-one-out predictions of the rows of a posterior, and the weights of several posteriors that rest on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.psis import khat_limit
from patrac_native.draws.distribution import PredictiveDistribution, check_row_weights
from patrac_native.validation.checks import FloatArray

# With a larger share of unreliable leave-one-out predictions, weights that rest on them get a warning.
_UNRELIABLE_SHARE = 0.05


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


@dataclass(frozen=True)
class Comparison:
    """How the members of a mixture were weighted by leave-one-out predictions.

    Attributes
    ----------
    method : str
        "stacking", "pseudo-bma+" or "equal".
    elpd : tuple of float
        Expected log predictive density of each member, a sum over rows.
    unreliable : tuple of int
        Number of rows of each member whose leave-one-out prediction is unreliable (large Pareto k).
    rows : int
        Number of rows.
    """

    method: str
    elpd: tuple[float, ...]
    unreliable: tuple[int, ...]
    rows: int

    @property
    def is_unreliable(self) -> bool:
        """Whether the weights rest on unreliable predictions of more than a twentieth of the rows."""
        return self.method != "equal" and max(self.unreliable) > _UNRELIABLE_SHARE * self.rows

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Comparison:
        """Rebuild a comparison from what `to_dict` returned."""
        return cls(content["method"], tuple(content["elpd"]), tuple(content["unreliable"]), content["rows"])
