"""Comparison of the draws of several posteriors by leave-one-out predictions of the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.diagnostics.psis import weighted_log_mean
from patrac_native.diagnostics.weights import WeightMethod
from patrac_native.draws.draws import Draws
from patrac_native.validation.checks import FloatArray, as_real_array, check_inputs

# With a larger share of unreliable leave-one-out predictions, weights that rest on them get a warning.
_UNRELIABLE_SHARE = 0.05
# Maximum size of the log-likelihoods of one member in a block of rows.
_LOO_BYTES = 64 * 2**20


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


def compare(
    members: Sequence[Draws],
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    method: WeightMethod,
    row_weights: npt.ArrayLike | None,
    offset: npt.ArrayLike | None,
) -> tuple[FloatArray, Comparison]:
    """Return the weights of members (k,) by their leave-one-out predictions; see `DrawsMixture.weighted`."""
    first = members[0]
    inputs = check_inputs(X, first.network.n_inputs)
    n = len(inputs)
    targets = first.likelihood.check_targets(y, n, first.n_outputs)
    powers = np.ones(n) if row_weights is None else as_real_array(row_weights, "row_weights")
    if powers.shape not in {(n,), (len(members), n)} or not (np.isfinite(powers) & (powers >= 0)).all():
        raise ValueError(
            f"row_weights must be finite, nonnegative and of shape ({n},) or ({len(members)}, {n}); got shape "
            f"{powers.shape}."
        )
    powers = np.broadcast_to(powers, (len(members), n))
    added = first.likelihood.check_offset(offset, n, first.n_outputs)
    found = [
        left_out_density(draws, inputs, targets, power, added) for draws, power in zip(members, powers, strict=True)
    ]
    elpd_rows = np.stack([rows for rows, _ in found])
    elpd = tuple(float(rows.sum()) for rows in elpd_rows)
    comparison = Comparison(method, elpd, tuple(unreliable for _, unreliable in found), n)
    return diagnostics.model_weights(elpd_rows, method), comparison


def left_out_density(
    draws: Draws, X: FloatArray, y: npt.NDArray[Any], row_weights: FloatArray, offset: FloatArray | None = None
) -> tuple[FloatArray, int]:
    """Return the leave-one-out log predictive density of each row (n,), and the number of unreliable ones."""
    rows = max(1, _LOO_BYTES // (8 * draws.n_chains * draws.n_draws))
    density, unreliable = np.empty(len(X)), 0
    for first in range(0, len(X), rows):
        block = slice(first, first + rows)
        values = draws.log_likelihood_rows(X[block], y[block], offset=None if offset is None else offset[block])
        # The posterior holds the row's log-likelihood times its weight, which is what leaving it out takes away.
        left_out = diagnostics.leave_one_out(values * row_weights[block])
        density[block] = weighted_log_mean(values.reshape(-1, values.shape[2]), left_out.weights)
        unreliable += left_out.unreliable
    return density, unreliable
