"""The posterior predictive distribution of targets, new or left out: a mixture over draws, in blocks of rows."""

from __future__ import annotations

import copy
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from patrac_native import diagnostics
from patrac_native.diagnostics._arrays import processors
from patrac_native.diagnostics.averages import log_mean_over_draws, mean_over_draws
from patrac_native.diagnostics.psis import LeftOutRows
from patrac_native.likelihoods import Likelihood, TargetMixture
from patrac_native.network.network import Network
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.validation.checks import (
    FloatArray,
    as_real_array,
    check_probabilities,
    check_probability,
    check_seed,
)
from patrac_native.validation.memory import release_memory
from patrac_native.validation.notes import Note
from patrac_native.verdict.calibration import (
    COVERAGE,
    HELD_OUT,
    LEAVE_ONE_OUT,
    VALIDATION,
    Calibration,
    calibrate,
    network_likelihood,
)

# Maximum size of the outputs of all draws in one block of rows.
_BLOCK_BYTES = 64 * 2**20
# A block is evaluated in slices of rows with about so many numbers: these fit the caches, and threads share them.
_SLICE_NUMBERS = 2**17
# What compares models that fix parameters.
SCORE_NEW_ROWS = (
    "Score rows that neither the network nor the posterior has seen: draws.distribution(X_new).log_density(y_new)."
)


@dataclass(frozen=True, eq=False)
class Component:
    """Equally weighted draws of the outputs of one posterior, or the outputs of one trained network."""

    outputs: Callable[[FloatArray], npt.NDArray[Any]]  # inputs (n, d) to f (M, n, m), without offset
    n_draws: int
    n_outputs: int
    itemsize: int
    likelihood: Likelihood
    variance: FloatArray | None  # sampled variances of the noise, (M,) or (M, m)
    weight: float
    net: Network
    block_bytes: int | None = None  # of the outputs of all draws in a block of rows, where not the usual number
    read_bytes: int = 0  # of the outputs of rows that are evaluated together, where a block has fewer

    def alone(self, net: Network, weight: float) -> Component:
        """Return what a trained network predicts by itself, with the noise of `network_likelihood`."""
        likelihood = network_likelihood(net, self.likelihood, self.variance)
        return Component(functools.partial(_as_draw, net), 1, self.n_outputs, 8, likelihood, None, weight, net)


class PredictiveDistribution:
    """The posterior predictive distribution of new targets y at n inputs, their noise included.

    `Draws.distribution` and `DrawsMixture.distribution` return it. Given the draws it is a mixture that is known up to
    rounding, so only `sample` and `crps` draw noise. Networks are evaluated in blocks of rows, whose outputs take at
    most 64 MiB. Every method evaluates them again if there are several blocks: compute several quantities of many rows
    within `blocks`.

    Methods that take targets y accept them as the likelihood describes them, of shape (n,) for one target or classes,
    or (n, t); they raise TypeError or ValueError for others, and warn if the posterior has an offset and none was
    given here. Methods on numbers, such as `mean` and `quantiles`, raise TypeError for classes, and `probabilities`
    and `entropy` raise it for numbers. Scores (`nlpd`, `crps`, `coverage`) are numbers, means over rows and targets, as
    those of `diagnostics`; `sample_weight` weights the rows, and `per_row` returns the value of each. Probabilities
    (`coverage`, `probabilities`) are in (0, 1), seeds in 0 <= seed < 2^64, weights of rows (`sample_weight`,
    `row_weights`) nonnegative of shape (n,) with default ones; others raise ValueError. Results are arrays of float64
    unless said otherwise.

    Attributes
    ----------
    likelihood : Likelihood
    X : ndarray of float64, shape (n, d)
    offset : ndarray of float64, shape (n, m), or None
    n_rows, n_outputs, n_targets, n_draws : int
        Numbers n of rows, m of outputs of the network, t of targets and M of draws of all chains.
    """

    def __init__(
        self,
        components: Sequence[Component],
        X: FloatArray,
        offset: npt.ArrayLike | None,
        *,
        is_mixture: bool,
        expects_offset: bool,
        threads: int | None = None,
    ) -> None:
        self.likelihood = components[0].likelihood
        self.n_rows = len(X)
        self.n_outputs = components[0].n_outputs
        self.n_targets = self.likelihood.n_targets(self.n_outputs)
        self.n_draws = sum(one.n_draws for one in components)
        self._components = tuple(components)
        self.X = X
        self.offset = self.likelihood.check_offset(offset, self.n_rows, self.n_outputs)
        self._lacks_offset = expects_offset and offset is None
        self._threads = threads or processors()
        self._first = 0  # of these rows within those of the caller
        self._left_out: tuple[npt.NDArray[Any], FloatArray] | None = None
        self._draw_weights: FloatArray | None = None  # (M,), or None for equal ones
        if is_mixture:
            self._draw_weights = np.concatenate(
                [one.weight * np.full(one.n_draws, 1 / one.n_draws) for one in components]
            )

    def blocks(self) -> Iterator[tuple[slice, PredictiveDistribution]]:
        """Evaluate the distribution for blocks of rows, each of which keeps its outputs for several methods.

        Yields
        ------
        rows : slice
            The rows of this block.
        distribution : PredictiveDistribution
            That of these rows.
        """
        row_bytes = self.n_draws * self.n_outputs * max(one.itemsize for one in self._components)
        most = min(_BLOCK_BYTES, *(one.block_bytes or _BLOCK_BYTES for one in self._components))
        size = max(1, most // max(1, row_bytes))
        if self.n_rows <= size:
            yield slice(0, self.n_rows), self
            return
        # Draws in a folder are read once for the rows of several blocks.
        blocks = max(1, max(one.read_bytes for one in self._components) // max(1, row_bytes) // size)
        together = None
        for number, first in enumerate(range(0, self.n_rows, size)):
            rows = slice(first, min(first + size, self.n_rows))
            part = self._of_rows(rows)
            if blocks > 1:
                own = number % blocks * size
                if own == 0:
                    together = self._of_rows(slice(first, min(first + blocks * size, self.n_rows)))
                assert together is not None
                release_memory()  # what was computed from the block before
                # Copies, as the caller may hold the last block while the next rows are evaluated.
                part._evaluated = [(one, f[:, own : own + part.n_rows].copy()) for one, f in together._evaluated]
            yield rows, part

    @cached_property
    def _slices(self) -> list[tuple[slice, PredictiveDistribution]]:
        """Slices of a block's rows with their outputs, each of which keeps what it computes; none of few rows."""
        size, evaluated = max(1, _SLICE_NUMBERS // self.n_draws), self._evaluated
        if self.n_rows <= size:
            return []  # the distribution itself would hold itself
        found = []
        for first in range(0, self.n_rows, size):
            rows = slice(first, min(first + size, self.n_rows))
            part = self._of_rows(rows)
            part._evaluated = [(one, np.ascontiguousarray(f[:, rows])) for one, f in evaluated]
            found.append((rows, part))
        return found

    def _of_rows(self, rows: slice) -> PredictiveDistribution:
        """Return the distribution of a block of rows."""
        left_out = self._left_out
        if left_out is not None:
            left_out = left_out[0][rows], left_out[1][rows]
        X, offset = self.X[rows], None if self.offset is None else self.offset[rows]
        first = self._first + rows.start
        return self._changed(X=X, n_rows=len(X), offset=offset, _lacks_offset=False, _first=first, _left_out=left_out)

    def of_member(self, index: int) -> PredictiveDistribution:
        """Return the distribution by the draws of one member of a mixture alone, counted from 0."""
        one = replace(self._components[index], weight=1.0)
        return self._changed(_components=(one,), _draw_weights=None, likelihood=one.likelihood, n_draws=one.n_draws)

    def _changed(self, *, keep_outputs: bool = False, **attributes: Any) -> PredictiveDistribution:
        """Return a copy with other attributes, without what has been computed, except for the outputs if asked."""
        found = copy.copy(self)
        for name in ("_weights", "_importance", "_slices", "mixtures", *([] if keep_outputs else ["_evaluated"])):
            found.__dict__.pop(name, None)
        found.__dict__.update(attributes)
        return found

    # -- of numbers and counts -------------------------------------------------------------------------------------

    def mean(self) -> FloatArray:
        """Return the mean of y, or of f where the noise has no mean, shape (n, t)."""
        return self._each(lambda mixture: mixture.mean())

    def sd(self) -> FloatArray:
        """Return the standard deviation of y, shape (n, t); infinite where the noise has no variance."""
        return self._each(lambda mixture: mixture.sd())

    def sd_f(self) -> FloatArray:
        """Return the standard deviation of f, or of the mean of counts, over the draws: without noise, shape (n, t)."""
        return self._each(lambda mixture: mixture.sd_f())

    def noise_variance(self) -> FloatArray:
        """Return the mean over the draws of the variance of the noise, shape (n, t); infinite where it has none."""
        return self._each(lambda mixture: mixture.noise_variance())

    def quantiles(self, probabilities: float | Sequence[float] = (0.05, 0.5, 0.95)) -> FloatArray:
        """Return quantiles of y of one or q probabilities, shape (n, t, q).

        Those of counts are the smallest k for which P(y <= k) is at least the probability.
        """
        wanted = check_probabilities(probabilities, "probabilities")
        return self._each(lambda mixture: np.stack([mixture.quantile(one) for one in wanted], axis=-1))

    def interval(self, coverage: float = 0.95) -> diagnostics.Interval:
        """Return the lower and upper ends, each (n, t), of central intervals of y of a probability.

        Those of counts end at counts, and their probability is at least `coverage`.
        """
        tail = 0.5 * (1.0 - check_probability(coverage, "coverage"))
        ends = self.quantiles((tail, 1.0 - tail))
        return diagnostics.Interval(ends[..., 0], ends[..., 1])

    def cdf(self, y: npt.ArrayLike) -> FloatArray:
        """Return the probability of at most y, shape (n, t)."""
        return self._each_at(y, lambda mixture, seen: mixture.cdf(seen))

    def pit(self, y: npt.ArrayLike, *, ties: npt.ArrayLike | None = None) -> FloatArray:
        """Return the PIT values of observed targets (n, t), which are uniform if the predictions are calibrated.

        Parameters
        ----------
        y : array_like
        ties : array_like, shape (n, t), optional
            Where within the step from P(Y < y) to P(Y <= y) the value of each count lies, from 0 to 1: uniform random
            numbers make the values uniform. Default 1/2, the mid-PIT, whose mean is that of uniform values (Czado,
            Gneiting & Held 2009, Predictive model assessment for count data). Numbers without steps do not need it.
        """
        targets = self.check_targets(y)
        shape = targets.shape[:2]
        shares = np.full(shape, 0.5) if ties is None else as_real_array(ties, "ties")
        if shares.shape != shape:
            raise ValueError(f"ties must have shape {shape}, one for each target; got {shares.shape}.")

        ends = self._each_at(targets, lambda mixture, seen: np.stack(mixture.step(seen), axis=-1))
        found: FloatArray = ends[..., 0] + shares * (ends[..., 1] - ends[..., 0])
        return found

    def inside(self, y: npt.ArrayLike, coverage: float | Sequence[float] = 0.95) -> FloatArray:
        """Return the share of each target (n, t), of several probabilities (n, t, q), inside its central intervals.

        That is 1 or 0, except for counts: their intervals end at counts and cover more than their probability, so a
        count at the end counts in part. The expected mean of these shares, which `coverage` returns, is the probability
        itself if the predictions are calibrated.
        """
        if np.ndim(coverage) == 0:
            check_probability(coverage, "coverage")
        else:
            check_probabilities(coverage, "coverage")
        return self._each_at(y, lambda mixture, seen: mixture.inside(seen, coverage))

    def coverage(
        self, y: npt.ArrayLike, coverage: float = 0.95, *, sample_weight: npt.ArrayLike | None = None
    ) -> float:
        """Return the share of targets that is inside central intervals of the given probability, the mean of `inside`.

        It is to be compared with the probability, for counts too: those at the end of their interval count in part.
        This is the coverage of verdicts and of the estimators' scores.
        """
        return self._mean(self.inside(y, coverage), sample_weight)

    @overload
    def crps(
        self,
        y: npt.ArrayLike,
        *,
        seed: int = ...,
        per_row: Literal[False] = ...,
        sample_weight: npt.ArrayLike | None = ...,
    ) -> float: ...
    @overload
    def crps(self, y: npt.ArrayLike, *, seed: int = ..., per_row: Literal[True]) -> FloatArray: ...
    def crps(
        self,
        y: npt.ArrayLike,
        *,
        seed: int = 0,
        per_row: bool = False,
        sample_weight: npt.ArrayLike | None = None,
    ) -> float | FloatArray:
        """Return the mean continuous ranked probability score, in the units of y; smaller is better.

        It is computed from one draw of y for each posterior draw, with noise from `seed`. With `per_row`, the score of
        each target, shape (n, t).
        """
        if self.likelihood.targets in ("class", "binary"):
            raise TypeError(f"crps: the targets of {self.likelihood!r} are classes; use diagnostics.brier.")
        check_seed(seed)
        if self.n_draws < 2:
            raise ValueError(f"crps needs at least 2 draws; there is {self.n_draws}.")
        targets = self.check_targets(y)

        # The noise is drawn for a block.
        noisy = ((rows, part.sample((seed + part._first) % 2**64)) for rows, part in self.blocks())
        scores = np.concatenate([self.likelihood.crps_rows(one, targets[rows]) for rows, one in noisy])
        return scores if per_row else self._mean(scores, sample_weight)

    # -- of classes ------------------------------------------------------------------------------------------------

    def probabilities(self) -> FloatArray:
        """Return the probability of each class or, for Bernoulli, of a 1 at each output, shape (n, m)."""

        def mean(part: PredictiveDistribution, _: slice) -> FloatArray:
            p, weights = _joined([one.likelihood.probabilities(f) for one, f in part._evaluated]), part._weights
            if weights is None or weights.ndim == 1:
                return mean_over_draws(p, weights)
            return mean_over_draws(p, np.broadcast_to(weights[..., None], p.shape))

        return self._rowwise(mean)

    def entropy(self) -> diagnostics.EntropyDecomposition:
        """Return the entropy of the class of each row, and its aleatoric and epistemic parts, each of shape (n,).

        See `diagnostics.entropy_decomposition`. Rows that are left out are predicted by all draws alike here.
        """
        parts = [
            diagnostics.entropy_decomposition(self.likelihood.probabilities(part.outputs())[None])
            for _, part in self.blocks()
        ]
        return diagnostics.EntropyDecomposition(*(np.concatenate(values) for values in zip(*parts, strict=True)))

    # -- of any targets --------------------------------------------------------------------------------------------

    def log_density_by_draw(self, y: npt.ArrayLike) -> FloatArray:
        """Return the log density, or log probability, of each row's targets in each of the M draws, shape (M, n)."""
        targets = self.check_targets(y)
        parts = [part._log_density_by_draw(targets[rows]) for rows, part in self.blocks()]
        return np.concatenate(parts, axis=1)

    def log_density(self, y: npt.ArrayLike) -> FloatArray:
        """Return the log predictive density, or log probability, of all targets of each row, shape (n,)."""
        targets = self.check_targets(y)
        return self._rowwise(
            lambda part, rows: log_mean_over_draws(part._log_density_by_draw(targets[rows]), part._weights)
        )

    @overload
    def nlpd(
        self, y: npt.ArrayLike, *, per_row: Literal[False] = ..., sample_weight: npt.ArrayLike | None = ...
    ) -> float: ...
    @overload
    def nlpd(self, y: npt.ArrayLike, *, per_row: Literal[True]) -> FloatArray: ...
    def nlpd(
        self, y: npt.ArrayLike, *, per_row: bool = False, sample_weight: npt.ArrayLike | None = None
    ) -> float | FloatArray:
        """Return the mean negative log predictive density of the rows or, with `per_row`, that of each, shape (n,)."""
        rows = -self.log_density(y)
        return rows if per_row else self._mean(rows, sample_weight)

    def outputs(self) -> npt.NDArray[Any]:
        """Evaluate the outputs f, offset included, in M equally weighted draws: (M, n, m) of the posterior's dtype.

        Those are the draws of all chains or, of a mixture with unequal weights, M draws of which each member has a
        number in proportion to its weight, spread evenly over its own.
        """
        return _joined([f for _, f in self._chosen()])

    def sample(self, seed: int = 0) -> npt.NDArray[Any]:
        """Draw y at all rows, (M, n, t) or class labels (M, n): with independent noise for each posterior draw.

        The posterior draws are those of `outputs`; rows that are left out are drawn again with their own weights.
        """
        rng = np.random.Generator(np.random.Philox(check_seed(seed)))
        if self._left_out is None:
            return _joined([_noisy(one, f, rng) for one, f in self._chosen()])
        noisy, weights = np.concatenate([_noisy(one, f, rng) for one, f in self._evaluated]), self._weights
        assert weights is not None
        again = np.random.default_rng(seed)
        rows = [again.choice(len(noisy), len(noisy), p=weights[:, row]) for row in range(self.n_rows)]
        return np.stack([noisy[which, row] for row, which in enumerate(rows)], axis=1)

    def left_out(self, y: npt.ArrayLike, *, row_weights: npt.ArrayLike | None = None) -> PredictiveDistribution:
        """Return the distribution of rows of the posterior's own data as if each had not been part of them.

        The draws of each posterior are reweighted for each row by Pareto-smoothed importance sampling
        (`diagnostics.leave_one_out`). Parameters of the trained network that the architecture fixes do not change:
        where the network was trained on the rows, these predictions are too good, see `Draws.loo`.

        Parameters
        ----------
        y : array_like
            The rows' targets, which the posterior knows.
        row_weights : array_like, optional
            The rows' factors in the log-likelihood, `post.data.row_weights`.

        Returns
        -------
        PredictiveDistribution
            Its `khat` and `is_unreliable` tell which rows to trust.

        Raises
        ------
        ValueError
            If there are fewer than 25 draws, when the distribution is evaluated.
        """
        powers = check_row_weights(row_weights, self.n_rows)
        targets = self.check_targets(y)
        return self._changed(keep_outputs=True, _left_out=(targets, powers))

    @property
    def khat(self) -> FloatArray:
        """Shape of the tail of the importance ratios of each row, the largest of several posteriors, shape (n,).

        Minus infinity where no row is left out.
        """
        return self._rowwise(lambda part, _: part._importance[1])

    @property
    def is_unreliable(self) -> npt.NDArray[np.bool_]:
        """Whether the prediction of each left-out row is unreliable, shape (n,)."""
        return self._rowwise(lambda part, _: part._importance[2])

    def network(self, nets: Sequence[Network] | None = None) -> PredictiveDistribution:
        """Return what the trained network predicts by itself, or the ensemble of several.

        Sampled variances of `Gaussian` are replaced by the network's mean squared residuals on rows that it was not
        trained on or, if these are not known, by the posterior means; other sampled scales by the posterior means.

        Parameters
        ----------
        nets : sequence of Network, optional
            The networks, with equal weights, where the chains of one posterior started at several; by default that of
            each member, with its weight.
        """
        if nets is None:
            alone = [one.alone(one.net, one.weight) for one in self._components]
        else:
            alone = [self._components[0].alone(net, 1.0 / len(nets)) for net in nets]
        return PredictiveDistribution(
            alone,
            self.X,
            self.offset,
            is_mixture=len(alone) > 1,
            expects_offset=self._lacks_offset,
            threads=self._threads,
        )

    def calibration(
        self,
        y: npt.ArrayLike,
        *,
        kind: str | None = None,
        nets: Sequence[Network] | None = None,
        network_nlpd: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Calibration:
        """Score predictions of rows that the draws have not seen, beside those of the trained networks alone.

        Parameters
        ----------
        y : array_like
            The rows' targets.
        kind : {"held out", "validation", "leave one out"}, optional
            What rows they are; by default "leave one out" for a distribution of left-out rows, else "held out".
        nets : sequence of Network, optional
            As for `network`.
        network_nlpd : float or array_like of shape (n,), optional
            Negative log density under the trained network, NaN if it is unknown; by default that of `network(nets)`,
            or unknown for left-out rows, on which the network was trained.
        sample_weight : array_like, optional
            Weights of the rows.

        Returns
        -------
        Calibration
            Log density of both, and coverage of 90% intervals of targets that are numbers (`inside`).
        """
        if kind not in (None, HELD_OUT, VALIDATION, LEAVE_ONE_OUT):
            raise ValueError(f"kind must be {HELD_OUT!r}, {VALIDATION!r} or {LEAVE_ONE_OUT!r}; got {kind!r}.")
        weights = None if sample_weight is None else self.likelihood.row_weights(sample_weight, self.n_rows)
        targets = self.check_targets(y)
        is_left_out = self._left_out is not None
        if network_nlpd is None and not is_left_out:
            network_nlpd = self.network(nets).nlpd(targets, per_row=True)
        of_network = None if network_nlpd is None else np.asarray(network_nlpd, dtype=np.float64)
        return calibrate(
            kind or (LEAVE_ONE_OUT if is_left_out else HELD_OUT),
            self.nlpd(targets, per_row=True),
            of_network,
            None if self.likelihood.targets in ("class", "binary") else self.inside(targets, COVERAGE),
            unreliable=int(self.is_unreliable.sum()) if is_left_out else 0,
            weights=weights,
        )

    def __repr__(self) -> str:
        return f"PredictiveDistribution({self.likelihood!r}, {self.n_rows} rows, {self.n_draws} draws)"

    def check_targets(self, y: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return targets as the likelihood stores them: float64 (n, t), or int64 (n,) of classes."""
        if self._lacks_offset:
            warn_caller(
                "offset",
                "the posterior has an offset, and these targets are scored at an offset of zero; give theirs, "
                "offset=..., or zeros to mean that.",
            )
            self._lacks_offset = False
        return self.likelihood.check_targets(y, self.n_rows, self.n_outputs)

    # -- evaluation ------------------------------------------------------------------------------------------------

    @cached_property
    def _evaluated(self) -> list[tuple[Component, npt.NDArray[Any]]]:
        """Each component with its outputs plus offset (M, n, m) at all rows, of which a block keeps its own."""
        outputs = [(one, one.outputs(self.X)) for one in self._components]
        return [(one, self.likelihood.with_offset(f, self.offset)) for one, f in outputs]

    def _chosen(self) -> list[tuple[Component, npt.NDArray[Any]]]:
        """Return `_evaluated` with as many draws as there are in all, of each component by weight, evenly spread."""
        # The outputs are kept only if all rows are one block.
        _, part = next(self.blocks())
        whole = part if part is self else self._of_rows(slice(0, self.n_rows))
        return [_some(one, f, which) for (one, f), which in zip(whole._evaluated, self._which(), strict=True)]

    def _which(self) -> list[npt.NDArray[np.intp]]:
        """Return which draws of each component `outputs` has."""
        # Rounded, so that weights that differ in the last bit only do not decide about a draw.
        shares = (np.asarray([one.weight for one in self._components]) * self.n_draws).round(6)
        counts = np.floor(shares).astype(int)
        for member in np.argsort(counts - shares, kind="stable")[: self.n_draws - counts.sum()]:
            counts[member] += 1
        sizes = zip(counts.tolist(), (one.n_draws for one in self._components), strict=True)
        return [((np.arange(count) + 0.5) * size / max(count, 1)).astype(np.intp) for count, size in sizes]

    @cached_property
    def _weights(self) -> FloatArray | None:
        """Weights of the draws, (M,) or, of left-out rows, (M, n); None if they are equal."""
        return self._draw_weights if self._left_out is None else self._importance[0]

    @cached_property
    def _importance(self) -> tuple[FloatArray | None, FloatArray, npt.NDArray[np.bool_]]:
        """Weights (M, n) of left-out rows, shapes of the tails and which are unreliable, both (n,)."""
        if self._left_out is None:
            return None, np.full(self.n_rows, -np.inf), np.zeros(self.n_rows, dtype=bool)
        targets, powers = self._left_out
        # The posterior holds the row's log-likelihood times its weight, which is what leaving it out takes away.
        values = self._log_density_by_draw(targets) * powers
        ends = np.cumsum([one.n_draws for one in self._components])[:-1]
        found = [diagnostics.leave_one_out(own[None]) for own in np.split(values, ends)]
        weights = [one.weights * part.weight for one, part in zip(found, self._components, strict=True)]
        return (
            np.concatenate(weights),
            np.max([one.khat for one in found], axis=0),
            np.any([one.is_unreliable for one in found], axis=0),
        )

    @cached_property
    def mixtures(self) -> list[TargetMixture]:
        """Return the distribution of each target at all rows."""
        found: list[Any] = []
        for target in range(self.n_targets):
            parts: list[Any] = [one.likelihood.mixture(f, one.variance, target) for one, f in self._evaluated]
            if self._weights is None:
                found += parts
            elif len(parts) == 1:
                found.append(replace(parts[0], weights=self._weights))
            else:
                found.append(type(parts[0]).combined(parts, self._weights))
        return found

    def _log_density_by_draw(self, targets: npt.NDArray[Any]) -> FloatArray:
        """Return what `log_density_by_draw` does, for targets that have been checked and one block."""
        parts: list[Any] = []
        for one, f in self._evaluated:
            if one.variance is None:
                parts.append(one.likelihood.log_likelihood_rows(f, targets))
            else:
                mixtures = [one.likelihood.mixture(f, one.variance, index) for index in range(targets.shape[1])]
                parts.append(sum(each.log_density_by_draw(targets[:, index]) for index, each in enumerate(mixtures)))
        return _joined(parts)

    def _mean(self, values: FloatArray, sample_weight: npt.ArrayLike | None) -> float:
        """Return the mean of values (n, ...), of rows with the given weights."""
        weights = self.likelihood.row_weights(sample_weight, self.n_rows)
        return float(np.average(values, axis=0, weights=weights).mean())

    def _rowwise(self, value_of: Callable[[PredictiveDistribution, slice], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return values of all rows, which `value_of` computes for slices of them, several at a time."""

        def of_slice(part: PredictiveDistribution, first: int, rows: slice) -> npt.NDArray[Any]:
            return value_of(part, slice(first + rows.start, first + rows.stop))

        found: list[npt.NDArray[Any]] = []
        with ThreadPoolExecutor(self._threads) as pool:
            for block, whole in self.blocks():
                if whole._slices:
                    rows, parts = zip(*whole._slices, strict=True)
                    found += pool.map(of_slice, parts, itertools.repeat(block.start), rows)
                else:
                    found.append(value_of(whole, block))
        return np.concatenate(found)

    def _each(self, value_of: Callable[[TargetMixture], FloatArray]) -> FloatArray:
        """Return values (n, t, ...) of each target's distribution."""
        return self._rowwise(lambda part, _: np.stack([value_of(one) for one in part.mixtures], axis=1))

    def _each_at(self, y: npt.ArrayLike, value_of: Callable[[TargetMixture, FloatArray], FloatArray]) -> FloatArray:
        """Return values (n, t, ...) of each target's distribution at y."""
        targets = self.check_targets(y)
        return self._rowwise(
            lambda part, rows: np.stack(
                [value_of(one, targets[rows, index]) for index, one in enumerate(part.mixtures)], axis=1
            )
        )


@dataclass(frozen=True, eq=False)
class LeftOut(LeftOutRows):
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
    too_good : str
        Why the predictions are too good, in words, if parameters of the trained network are fixed; else empty.
    """

    lpd_rows: FloatArray
    too_good: str = ""

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

    def __str__(self) -> str:
        first = f"{self.too_good}\n" if self.too_good else ""
        return (
            f"{first}leave-one-out of {len(self.khat)} rows from {self.n_draws} draws\n"
            f"  elpd {self.elpd:.2f} (se {self.se:.2f}), p_loo {self.p_loo:.2f}\n"
            f"  Pareto k: largest {self.khat.max():.2f}, {self.unreliable} rows above {self.khat_limit:.2f}"
        )


def too_good(network: PartialNetwork) -> str:
    """Return why leave-one-out predictions around a trained network are too good; empty if nothing of it is fixed."""
    if not network.fixes_parameters:
        return ""
    return (
        f"too good: the fixed parameters of {network.architecture.label()} were trained on the rows, which are left "
        "out of the posterior alone; no measure of new rows, and no comparison with what fixes other parameters"
    )


def leave_out(
    distribution: PredictiveDistribution, y: npt.ArrayLike, row_weights: npt.ArrayLike | None, network: PartialNetwork
) -> LeftOut:
    """Return leave-one-out predictions of the rows of a posterior's own data, evaluated in blocks of rows."""
    targets, powers = distribution.check_targets(y), check_row_weights(row_weights, distribution.n_rows)
    elpd_rows, lpd_rows, khat = (np.empty(distribution.n_rows) for _ in range(3))
    for rows, part in distribution.blocks():
        without = part.left_out(targets[rows], row_weights=powers[rows])
        elpd_rows[rows], khat[rows] = without.log_density(targets[rows]), without.khat
        lpd_rows[rows] = part.log_density(targets[rows])
    return LeftOut(elpd_rows, khat, distribution.n_draws, lpd_rows, too_good(network) if powers.any() else "")


def check_row_weights(row_weights: npt.ArrayLike | None, n: int, members: int | None = None) -> FloatArray:
    """Return the row weights of one posterior, (n,), or of several, (members, n); by default ones."""
    powers = np.ones(n) if row_weights is None else as_real_array(row_weights, "row_weights")
    shapes = [(n,)] if members is None else [(n,), (members, n)]
    if powers.shape not in shapes or not (np.isfinite(powers) & (powers >= 0)).all():
        wanted = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"row_weights must be finite, nonnegative and of shape {wanted}; got shape {powers.shape}.")
    return powers if members is None else np.broadcast_to(powers, (members, n))


def warn_caller(kind: str, text: str) -> None:
    """Give a note at the line outside this folder that called."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("patrac_native.draws"):
        frame, level = frame.f_back, level + 1
    Note(kind, text).give(stacklevel=level)


def _as_draw(net: Network, X: FloatArray) -> npt.NDArray[Any]:
    """Return the outputs of a trained network (1, n, m), as those of a single draw."""
    return net.predict(X)[None]


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return arrays of several components along their first axis, without a copy of a single one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _noisy(component: Component, f: npt.NDArray[Any], rng: np.random.Generator) -> npt.NDArray[Any]:
    """Draw targets for outputs f (M, n, m) of all draws of a component."""
    if component.variance is None:
        return component.likelihood.sample(f, rng)
    return component.likelihood.sample_at(f, rng, component.variance)


def _some(component: Component, f: npt.NDArray[Any], which: npt.NDArray[np.intp]) -> tuple[Component, npt.NDArray[Any]]:
    """Return a component and its outputs f (M, n, m) with some of its draws."""
    if len(which) == component.n_draws:
        return component, f
    variance = None if component.variance is None else component.variance[which]
    return replace(component, n_draws=len(which), variance=variance), f[which]
