"""Comparison of the draws of several posteriors by leave-one-out predictions of the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.diagnostics.weights import WeightMethod
from patrac_native.draws.draws import Draws
from patrac_native.draws.left_out import check_row_weights
from patrac_native.validation.checks import FloatArray, check_inputs

# With a larger share of unreliable leave-one-out predictions, weights that rest on them get a warning.
_UNRELIABLE_SHARE = 0.05


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
    inputs = check_inputs(X, first.network.n_inputs, columns=first.network.input_names)
    n = len(inputs)
    targets = first.likelihood.check_targets(y, n, first.n_outputs)
    powers = check_row_weights(row_weights, n, len(members))
    added = first.likelihood.check_offset(offset, n, first.n_outputs)
    found = [draws.left_out(inputs, targets, power, added) for draws, power in zip(members, powers, strict=True)]
    comparison = Comparison(method, tuple(one.elpd for one in found), tuple(one.unreliable for one in found), n)
    return diagnostics.model_weights(np.stack([one.elpd_rows for one in found]), method), comparison
