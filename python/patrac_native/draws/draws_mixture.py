"""Mixtures of the posteriors of several networks: weighted draws that predict as one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.weights import WeightMethod
from patrac_native.draws.distribution import PredictiveDistribution
from patrac_native.draws.draws import Draws
from patrac_native.draws.members import apportion, check_members, check_weights
from patrac_native.draws.mixture_summary import MixtureSummary, summarise_mixture
from patrac_native.draws.model_comparison import Comparison, compare
from patrac_native.draws.scored_predictions import ScoredPredictions
from patrac_native.likelihoods import CountMixture, Likelihood, PredictiveMixture, TargetMixture
from patrac_native.network.files import load_any_arrays, load_arrays, rebuilding, refuse_unknown, save_arrays
from patrac_native.validation.checks import FloatArray, check_seed

# What files of mixtures hold, in words.
_KIND = "mixture of draws"


class DrawsMixture(ScoredPredictions):
    """The mixture sum_k w_k p_k(y | x) of the posterior predictive distributions of several members.

    The members are the draws of posteriors of different networks (`train_many`, `sample_many`) with one kind of
    likelihood and the same inputs and outputs. Chains of different members explore different posteriors, so they need
    not agree: convergence is judged within each member, predictions are those of the mixture.

    Parameters
    ----------
    members : sequence of Draws
        At least one; all with the same number of draws for each chain.
    weights : array_like, shape (members,), optional
        Nonnegative weights, which are scaled to a sum of one; by default they are equal. `DrawsMixture.weighted` finds
        them by leave-one-out predictions.

    Attributes
    ----------
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
        self._members = tuple(members)
        check_members(self._members)
        self._weights = check_weights(weights, len(self._members))
        self.comparison = comparison
        self._selected = apportion(self._weights, [draws.n_chains * draws.n_draws for draws in self.members])

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
        """Combine draws with weights from their leave-one-out predictions of the same rows.

        Each row is predicted by draws that are reweighted as if the row had not been in the data of the posterior
        (`diagnostics.leave_one_out`). This does not undo that the network was trained on the row, so the weights of
        partial architectures favour networks that fit closer.

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
            weight is zero in a posterior was not in its data, and is predicted by all its draws alike.
        offset : array_like, shape (n,) or (n, m), optional
            The offset of all posteriors, if they have one.

        Returns
        -------
        DrawsMixture
            Its `comparison` has the predictive density of each member.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or a member gives a row a density that is not finite.

        Warns
        -----
        UserWarning
            If the leave-one-out predictions of more than a twentieth of the rows are unreliable for a member, or
            `offset` is missing, though a posterior has one.
        """
        equal = cls(members)
        offset = equal._offset_of_targets(offset, len(equal._inputs(X)))
        weights, comparison = compare(equal.members, X, y, method=method, row_weights=row_weights, offset=offset)
        if comparison.is_unreliable:
            warnings.warn(
                f"DrawsMixture.weighted: leave-one-out predictions of up to {max(comparison.unreliable)} of "
                f"{comparison.rows} rows are unreliable (large Pareto k), and so are the weights. Use equal weights, "
                "DrawsMixture(members), or score held-out rows.",
                UserWarning,
                stacklevel=2,
            )
        return cls(equal.members, weights, comparison=comparison)

    @property
    def likelihood(self) -> Likelihood:  # type: ignore[override]
        """The likelihood of the first member."""
        return self.members[0].likelihood

    @property
    def members(self) -> tuple[Draws, ...]:
        """The draws of each network."""
        return self._members

    @property
    def n_members(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def n_chains(self) -> int:
        """Number of chains of all members."""
        return sum(draws.n_chains for draws in self.members)

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain."""
        return self.members[0].n_draws

    @property
    def n_outputs(self) -> int:
        """Number m of outputs of the networks."""
        return self.members[0].n_outputs

    @property
    def draw_weights(self) -> FloatArray:
        """Weight of each draw, shape (chain, draw), the chains of the members one after the other; they sum to one."""
        return np.concatenate(
            [weight * draws.draw_weights for weight, draws in zip(self.weights, self.members, strict=True)]
        )

    def thinned(self, every: int) -> DrawsMixture:
        """Return the mixture of every `every`-th draw of each member, as `Draws.thinned`."""
        return DrawsMixture([draws.thinned(every) for draws in self.members], self.weights, comparison=self.comparison)

    def head(self, draws: int) -> DrawsMixture:
        """Return the mixture of the first draws of each chain of each member, as `Draws.head`."""
        return DrawsMixture([one.head(draws) for one in self.members], self.weights, comparison=self.comparison)

    def predict_outputs(self, X: npt.ArrayLike, *, threads: int | None = None) -> npt.NDArray[Any]:
        """Evaluate all outputs f of the networks for equally weighted draws of the mixture.

        Parameters
        ----------
        X, threads
            As for `predict`.

        Returns
        -------
        ndarray, shape (chain, draw, n_new, m)
            With equal weights and equal numbers of chains, the draws of all chains of all members. Otherwise as many
            draws, of which each member has a number in proportion to its weight, spread evenly over its own draws; the
            first two axes then have no meaning.

        Raises
        ------
        TypeError, ValueError
            As `predict`.
        """
        inputs = self._inputs(X)
        chosen = [outputs for _, _, outputs in self._chosen_outputs(inputs, threads)]
        return np.concatenate(chosen).reshape(self.n_chains, self.n_draws, len(inputs), -1)

    def distribution(self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None) -> PredictiveDistribution:
        """Return the predictive distribution of the mixture at X, as `Draws.distribution`; all draws take part."""
        return PredictiveDistribution(
            [one.component(float(weight)) for one, weight in zip(self.members, self.weights, strict=True)],
            self.draw_weights.reshape(-1),
            self._inputs(X),
            self.n_outputs,
            offset,
            expects_offset=any(one.settings.get("has_offset") for one in self.members),
        )

    def predictive(self, X: npt.ArrayLike, *, offset: npt.ArrayLike | None = None, seed: int = 0) -> npt.NDArray[Any]:
        """Draw targets y at X from the predictive distribution of the mixture, as `Draws.predictive`.

        Parameters
        ----------
        X : array_like, shape (n_new, d)
            Finite inputs, n_new >= 1.
        offset : array_like, shape (n_new,) or (n_new, m), optional
            As for `Draws.predict`.
        seed : int
            0 <= seed < 2^64, for the noise; default 0.

        Returns
        -------
        ndarray, shape (chain, draw, n_new, t)
            Targets of the draws that `predict` returns; for Categorical, class labels of shape (chain, draw, n_new).
        """
        rng = np.random.Generator(np.random.Philox(check_seed(seed)))
        inputs = self._inputs(X)
        parts = []
        for draws, chosen, outputs in self._chosen_outputs(inputs):
            f = self.likelihood.with_offset(outputs, offset)
            variance = draws.stats.get("variance")
            if variance is None:
                parts.append(draws.likelihood.sample(f, rng))
            else:
                flat = variance.reshape(-1, *variance.shape[2:])
                parts.append(draws.likelihood.sample_at(f, rng, flat[chosen]))
        together = np.concatenate(parts)
        return together.reshape(self.n_chains, self.n_draws, *together.shape[1:])

    def predictive_mixtures(
        self, X: npt.ArrayLike, output: int = 0, *, offset: npt.ArrayLike | None = None
    ) -> Iterator[tuple[slice, TargetMixture]]:
        """Evaluate the predictive distribution of one target for blocks of rows of X, as `Draws.predictive_mixtures`.

        All draws of all members take part, with their weights.
        """
        weights = self.draw_weights.reshape(-1)
        added = self.likelihood.check_offset(offset, len(self._inputs(X)), self.n_outputs)
        for block, inputs in self.input_blocks(X):
            # A block of the mixture fits in one block of each member.
            own = None if added is None else added[block]
            parts = [next(draws.predictive_mixtures(inputs, output, offset=own))[1] for draws in self.members]
            of_numbers = [part for part in parts if isinstance(part, PredictiveMixture)]
            of_counts = [part for part in parts if isinstance(part, CountMixture)]
            if of_counts:
                yield block, CountMixture.combined(of_counts, weights)
            else:
                yield block, PredictiveMixture.combined(of_numbers, weights)

    def log_likelihood_rows(
        self, X: npt.ArrayLike, y: npt.ArrayLike, *, offset: npt.ArrayLike | None = None
    ) -> FloatArray:
        """Evaluate the log-likelihood of each row in each draw of each member, as `Draws.log_likelihood_rows`.

        Returns
        -------
        ndarray of float64, shape (chain, draw, n)
            The chains of the members one after the other; `draw_weights` has their weights.

        Warns
        -----
        UserWarning
            As `Draws.log_likelihood_rows`.
        """
        inputs = self._inputs(X)
        offset = self._offset_of_targets(offset, len(inputs))
        return np.concatenate([draws.log_likelihood_rows(inputs, y, offset=offset) for draws in self.members])

    def summary(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike | None = None,
        *,
        coverage: float = 0.95,
        offset: npt.ArrayLike | None = None,
    ) -> MixtureSummary:
        """Summarise the mixture, and each member, at X.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Finite inputs at which the quantity is summarised.
        y : array_like, optional
            Targets at X, if these rows were held out, for the verdict; as for `Draws.summary`.
        coverage : float
            Posterior probability of the central intervals, in (0, 1); default 0.95.
        offset : array_like, shape (n,) or (n, m), optional
            As for `Draws.summary`.

        Returns
        -------
        MixtureSummary
            Its string is a table; its verdict judges convergence within each member.

        Raises
        ------
        TypeError, ValueError
            As `Draws.summary`.

        Warns
        -----
        UserWarning
            As `Draws.summary`.
        """
        inputs = self._inputs(X)
        if y is not None:
            offset = self._offset_of_targets(offset, len(inputs))
        members = tuple(draws.summary(inputs, coverage=coverage, offset=offset) for draws in self.members)
        is_class = self.likelihood.targets == "class"
        outputs = (f for _, f in self._predictor_blocks(inputs, offset))
        blocks = (self.likelihood.probabilities(f) for f in outputs) if is_class else outputs
        summary = summarise_mixture(members, self.weights, blocks, coverage)
        return summary if y is None else summary.with_calibration(self.calibration(inputs, y, offset=offset))

    def to_datatree(self, *_: object, **__: object) -> NoReturn:
        """Refuse: draws of a mixture have weights and belong to several posteriors, which ArviZ has no groups for.

        Raises
        ------
        TypeError
            Always; the message says what to use instead.
        """
        raise TypeError(
            "to_datatree: ArviZ has no groups for weighted draws of several posteriors; give it one member, such as "
            "mixture.members[0].to_datatree(X, y), or all of them to its function compare."
        )

    to_inferencedata = to_datatree

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write members and weights to one .npz file (no pickle); the data are not part of it.

        Parameters, errors
        ------------------
        As `Draws.save`.
        """
        content, arrays = self.to_arrays()
        save_arrays(path, _KIND, content, arrays, overwrite=overwrite)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return members and weights as JSON-able values and arrays by name, as they are written to files."""
        headers, arrays = [], {"weights": self.weights}
        for index, draws in enumerate(self.members):
            header, own = draws.to_arrays()
            headers.append(header)
            arrays |= {f"member{index}_{name}": array for name, array in own.items()}
        comparison = None if self.comparison is None else self.comparison.to_dict()
        return {"members": headers, "comparison": comparison}, arrays

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DrawsMixture:
        """Read a mixture written by `save`; parameters and errors as `Draws.load`."""
        content = load_arrays(path, _KIND)
        with rebuilding(path):
            return cls.from_arrays(*content)

    @classmethod
    def from_arrays(cls, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> DrawsMixture:
        """Rebuild a mixture from header and arrays of its file."""
        refuse_unknown(header, ("members", "comparison"), "its header")
        members = []
        for index, own in enumerate(header["members"]):
            prefix = f"member{index}_"
            part = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            members.append(Draws.from_arrays(own, part))
        found = header["comparison"]
        return cls(members, arrays["weights"], comparison=None if found is None else Comparison.from_dict(found))

    def _chosen_outputs(
        self, inputs: FloatArray, threads: int | None = None
    ) -> Iterator[tuple[Draws, npt.NDArray[np.intp], npt.NDArray[Any]]]:
        """Yield each member, its chosen draws (s,) and their outputs (s, n, m)."""
        for draws, chosen in zip(self.members, self._selected, strict=True):
            f = draws.predict_outputs(inputs, threads=threads)
            yield draws, chosen, f.reshape(-1, *f.shape[2:])[chosen]

    def __repr__(self) -> str:
        weights = ", ".join(f"{weight:.3g}" for weight in self.weights)
        return f"DrawsMixture({self.n_members} members, weights=[{weights}], of {self.members[0]!r})"


def load_predictions(path: str | os.PathLike[str]) -> Draws | DrawsMixture:
    """Read draws or a mixture of draws, whichever the file holds.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    Draws or DrawsMixture

    Raises
    ------
    FileNotFoundError, ValueError
        As `Draws.load`.
    """
    kind, header, arrays = load_any_arrays(path)
    if kind not in (_KIND, Draws.file_kind):
        raise ValueError(f"{os.fspath(path)} holds {kind}; give the path of a file with draws.")
    with rebuilding(path):
        return (DrawsMixture if kind == _KIND else Draws).from_arrays(header, arrays)
