"""Mixtures of the posteriors of several networks: weighted draws that predict as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.diagnostics.psis import WeightMethod
from patrac_native.draws.distribution import check_row_weights, leave_out, warn_caller
from patrac_native.draws.draws import Draws, Predictions, summary_bar, summary_points
from patrac_native.draws.replicates import Replicates, rerun_error
from patrac_native.draws.summary import MixtureSummary, summarise_mixture
from patrac_native.files.archive import (
    PathOrStream,
    check_arrays,
    check_entries,
    check_numbers,
    load_arrays,
    rebuilding,
    save_arrays,
)
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.validation.checks import FloatArray, as_real_array
from patrac_native.validation.notes import Note
from patrac_native.verdict.calibration import COVERAGE

# What files of mixtures hold, in words.
_KIND = "mixture of draws"
# Arguments of likelihoods in which members may differ: each draw keeps the noise of its own member.
_NOISE_ARGUMENTS = frozenset({"variance", "scale", "a", "b"})
# With a larger share of unreliable leave-one-out predictions, weights that rest on them get a warning.
_UNRELIABLE_SHARE = 0.05


@dataclass(frozen=True)
class Comparison:
    """How the members of a mixture were weighted by predictions of held-out rows, or of rows left out one at a time.

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


class DrawsMixture(Predictions):
    """The mixture sum_k w_k p_k(y | x) of the posterior predictive distributions of several members.

    The members are the draws of posteriors of different networks (`train_many`, `sample_many`) with one kind of
    likelihood and the same inputs and outputs. Chains of different members explore different posteriors, so they need
    not agree: convergence is judged within each member, predictions are those of the mixture. Its methods take their
    arguments and raise their errors as those of `Draws`.

    Parameters
    ----------
    members : sequence of Draws
        At least one; all with the same number of draws for each chain.
    weights : array_like, shape (members,), optional
        Nonnegative weights, which are scaled to a sum of one; by default they are equal. `DrawsMixture.weighted` finds
        them by leave-one-out predictions.

    Attributes
    ----------
    members : tuple of Draws
        The draws of each network.
    weights : ndarray of float64, shape (members,)
        Read-only: a mixture with other weights is another mixture.
    comparison : Comparison or None
        How `weighted` found the weights.
    likelihood : Likelihood
        That of the first member; fixed variances and scales of noise may differ between members.

    Raises
    ------
    TypeError, ValueError
        If the members do not belong together, or the weights are not as described.
    """

    def __init__(
        self,
        members: Sequence[Draws],
        weights: npt.ArrayLike | None = None,
        *,
        comparison: Comparison | None = None,
    ) -> None:
        if isinstance(members, Draws):
            raise TypeError("members must be a sequence of Draws, such as [first, second]; got one Draws.")
        self.members = tuple(members)
        _check_members(self.members)
        self._weights = _check_weights(weights, len(self.members))
        self.comparison = comparison

    @property
    def weights(self) -> FloatArray:
        """Weights of the members, shape (members,), read-only."""
        return self._weights

    @classmethod
    def weighted(
        cls,
        members: Sequence[Draws],
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        method: WeightMethod = "stacking",
        row_weights: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
    ) -> DrawsMixture:
        """Combine draws with weights from their predictions of the same rows, held out or left out one at a time.

        Rows that neither the networks nor the posteriors have seen, of `row_weights` zero, compare any members. Rows of
        the posteriors' data are predicted by draws that are reweighted as if the row had not been among them
        (`diagnostics.leave_one_out`); that compares members that fix no parameters of trained networks (`Full`), or
        the same ones. It is refused for others: fixed parameters were trained on the row, and leave-one-out then
        favours the network that follows its rows most closely, which was measured to predict new rows worst. For
        networks that were trained on other rows, `diagnostics.model_weights` of each `draws.loo(X, y).elpd_rows` gives
        the weights.

        Parameters
        ----------
        members : sequence of Draws
            As for `DrawsMixture`; at least 25 draws each.
        X : array_like, shape (n, d)
            The inputs of all posteriors.
        y : array_like
            Their targets, as the likelihood describes them.
        method : {"stacking", "pseudo-bma+", "equal"}
            As for `diagnostics.model_weights`; default "stacking".
        row_weights : array_like, shape (n,) or (members, n), optional
            The `row_weights` of each posterior, if it was given sample weights or a scale; default ones. A row whose
            weight is zero in a posterior was not in its data, and is predicted by all its draws alike: for held-out
            rows, `np.zeros(n)`.
        offset : array_like, shape (n,) or (n, m), optional
            The offset of all posteriors, if they have one.

        Returns
        -------
        DrawsMixture
            Its `comparison` has the predictive density of each member.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, a member gives a row a density that is not finite, or rows are left out
            of posteriors of members that fix different parameters, unless the weights are equal.

        Warns
        -----
        UserWarning
            If members fix parameters and rows are left out of their posteriors, the leave-one-out predictions of more
            than a twentieth of the rows are unreliable for a member, or `offset` is missing, though a posterior has
            one.
        """
        equal = cls(members)
        together = equal.distribution(X, offset=offset)
        targets, powers = together.check_targets(y), check_row_weights(row_weights, together.n_rows, len(equal.members))
        if method != "equal":
            _check_fixed([member.network for member, power in zip(equal.members, powers, strict=True) if power.any()])
        found = [
            leave_out(together.of_member(index), targets, power, member.network)
            for index, (member, power) in enumerate(zip(equal.members, powers, strict=True))
        ]
        weights = diagnostics.model_weights(np.stack([one.elpd_rows for one in found]), method)
        comparison = Comparison(
            method, tuple(one.elpd for one in found), tuple(one.unreliable for one in found), together.n_rows
        )
        if reason := next((one.too_good for one in found if one.too_good), ""):
            warn_caller("too good", f"DrawsMixture.weighted: the predictive densities of its comparison are {reason}.")
        if comparison.is_unreliable:
            Note(
                "unreliable",
                f"DrawsMixture.weighted: leave-one-out predictions of up to {max(comparison.unreliable)} of "
                f"{comparison.rows} rows are unreliable (large Pareto k), and so are the weights. Use equal weights, "
                "DrawsMixture(members), or score held-out rows.",
            ).give(stacklevel=2)
        return cls(equal.members, weights, comparison=comparison)

    @property
    def likelihood(self) -> Likelihood:  # type: ignore[override]
        """The likelihood of the first member."""
        return self.members[0].likelihood

    @property
    def n_chains(self) -> int:
        """Number of chains of all members."""
        return sum(draws.n_chains for draws in self.members)

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain."""
        return self.members[0].n_draws

    def __getitem__(self, index: tuple[slice, slice]) -> DrawsMixture:
        """Return the mixture of some chains and draws of each member; see `Draws`."""
        return DrawsMixture([draws[index] for draws in self.members], self.weights, comparison=self.comparison)

    def _weighted_members(self) -> Sequence[tuple[Draws, float]]:
        """Return the members with their weights."""
        return list(zip(self.members, self.weights.tolist(), strict=True))

    def summary(
        self,
        X: npt.ArrayLike | None = None,
        y: npt.ArrayLike | None = None,
        *,
        coverage: float = 0.95,
        offset: npt.ArrayLike | None = None,
        progress: bool | None = None,
    ) -> MixtureSummary:
        """Summarise the mixture, and each member, at X; parameters and errors as `Draws.summary`.

        Returns
        -------
        MixtureSummary
            Its string is a table; its verdict judges convergence within each member.
        """
        X = summary_points(X)
        distribution = self.distribution(X, offset=offset)
        calibration = None if y is None else distribution.calibration(y)
        with summary_bar(distribution, len(self.members), progress) as bar:
            members = tuple(
                draws._summary_of(draws.distribution(X, offset=offset), coverage, bar.update) for draws in self.members
            )
        summary = summarise_mixture(members, self.weights, self._summarised(distribution), coverage)
        summary = summary.with_rerun_error(
            rerun_error(self._few_rows(distribution), Replicates(self.members), COVERAGE, progress)
        )
        return summary if calibration is None else summary.with_calibration(calibration)

    def save(self, path: PathOrStream, *, overwrite: bool = False) -> None:
        """Write members and weights in the format .npz (no pickle), without the data; as `Draws.save`."""
        save_arrays(path, _KIND, *self._to_arrays(), overwrite=overwrite)

    def _to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the mixture as JSON-able values and arrays by name, as in files."""
        headers, arrays = [], {"weights": self.weights}
        for index, draws in enumerate(self.members):
            header, own = draws._to_arrays()
            headers.append(header)
            arrays |= {f"member{index}_{name}": array for name, array in own.items()}
        comparison = None if self.comparison is None else asdict(self.comparison)
        return {"members": headers, "comparison": comparison}, arrays

    @classmethod
    def load(cls, path: PathOrStream) -> DrawsMixture:
        """Read a mixture written by `save`; parameters and errors as `Draws.load`."""
        header, arrays = load_arrays(path, _KIND)
        with rebuilding(path):
            check_entries(header, {"members": list, "comparison": (dict, NoneType)}, "its header")
            members = []
            for index, own in enumerate(header["members"]):
                prefix = f"member{index}_"
                part = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
                members.append(Draws._from_arrays(own, part))
            found = header["comparison"]
            if found is not None:
                known: dict[str, Any] = {"method": str, "elpd": list, "unreliable": list, "rows": int}
                check_entries(found, known, "its comparison")
                for name in ("elpd", "unreliable"):
                    check_numbers(found[name], f"{name} of its comparison", finite=False)
                found = Comparison(found["method"], tuple(found["elpd"]), tuple(found["unreliable"]), found["rows"])
            made = cls(members, arrays["weights"], comparison=found)
            check_arrays(arrays, made._to_arrays()[1])
        return made

    def __repr__(self) -> str:
        weights = ", ".join(f"{weight:.3g}" for weight in self.weights)
        return f"DrawsMixture({len(self.members)} members, weights=[{weights}], of {self.members[0]!r})"


def _check_members(members: tuple[Draws, ...]) -> None:
    """Raise unless the members are draws that can predict the same targets."""
    if not members:
        raise ValueError("members must hold at least one Draws; got none.")
    first = members[0]
    for index, draws in enumerate(members):
        if not isinstance(draws, Draws):
            raise TypeError(f"members[{index}] must be Draws, as sample_many returns them; got {type(draws).__name__}.")
        if draws.n_draws == 0:
            raise ValueError(f"members[{index}] has no draws: its run was interrupted before the first.")
        sizes = [f"{one.network.n_inputs} and {one.network.n_outputs}" for one in (draws, first)]
        for what, own, expected in (
            ("one number of draws for each chain (leave out interrupted runs)", draws.n_draws, first.n_draws),
            ("the same inputs and outputs", *sizes),
            ("the same inputs in the same order", draws.network.input_names, first.network.input_names),
            ("one kind of likelihood", _kind(draws.likelihood), _kind(first.likelihood)),
        ):
            if own != expected:
                raise ValueError(f"members must have {what}; members[{index}] has {own}, the first {expected}.")


def _check_fixed(networks: Sequence[PartialNetwork]) -> None:
    """Raise ValueError if rows that are left out of their posteriors cannot compare members of these networks."""
    if all(networks[0].fixes_the_same(one) for one in networks):
        return
    raise ValueError(
        "DrawsMixture.weighted: the members fix different parameters of trained networks, which leave-one-out "
        "predictions cannot compare: they favour networks that follow their rows too closely. Give X and y of rows "
        "that neither the networks nor the posteriors have seen with row_weights=np.zeros(len(X)), or use equal "
        "weights, DrawsMixture(members)."
    )


def _kind(likelihood: Likelihood) -> dict[str, Any]:
    """Return what members must have in common: the likelihood without the variance or scale of its noise."""
    return {name: value for name, value in likelihood.to_dict().items() if name not in _NOISE_ARGUMENTS}


def _check_weights(weights: npt.ArrayLike | None, count: int) -> FloatArray:
    """Return weights of the members (count,), scaled to a sum of one, read-only."""
    values = np.ones(count) if weights is None else as_real_array(weights, "weights")
    if values.shape != (count,):
        raise ValueError(f"weights must have shape ({count},), one for each member; got {values.shape}.")
    if not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise ValueError(f"weights must be finite and nonnegative with a positive sum; got {values.tolist()}.")
    scaled: FloatArray = values / values.sum()
    scaled.flags.writeable = False
    return scaled
