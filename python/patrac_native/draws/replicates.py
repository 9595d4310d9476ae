"""The replicates of a run, and the standard deviations of predictions over complete reruns that they show."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.averages import over_draws
from patrac_native.files.archive import contents_hash
from patrac_native.kernels import kernel_from_dict
from patrac_native.likelihoods import TargetMixture
from patrac_native.plots.progress import evaluation_bar
from patrac_native.validation.checks import FloatArray, check_probability
from patrac_native.verdict.rerun_error import RerunError, joined

if TYPE_CHECKING:
    from patrac_native.draws.distribution import PredictiveDistribution
    from patrac_native.posterior.partial_network import PartialNetwork

# Draws that share everything but their noise are cut into so many consecutive parts: independent ones in all, where
# more parts know the error better, and those of a single chain, whose parts must be long for its autocorrelation.
_PARTS_OF_DRAWS, _PARTS_OF_CHAIN, _LEAST_PART = 16, 8, 20
# Quantiles, which take many steps, are solved for by at least so many of the draws.
_QUANTILE_DRAWS = 4_000
# Replicates of less than this share of the largest one's weight are none: they hardly contribute to predictions.
_LEAST_SHARE = 0.01


class Member(Protocol):
    """What tells the replicates of the draws of one posterior."""

    @property
    def network(self) -> PartialNetwork:
        """Trained network, architecture and prior."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the run."""

    @property
    def n_chains(self) -> int:
        """Number of chains."""

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain."""


class Replicates:
    """Which draws belong to one replicate.

    Parameters
    ----------
    members : sequence of Draws
        Those of one posterior, or of each member of a mixture.
    given : array_like, shape (chains of all members,), optional
        The replicate of each chain, by any labels.

    Attributes
    ----------
    labels : tuple of ndarray of int, each of shape (chain * draw,)
        The replicate of each draw of each member, counted from 0.
    unit : str
        What a replicate is, see `RerunError`.
    superchains : ndarray of int, shape (chains of all members,)
        Chains of one start or network have one label.
    """

    def __init__(self, members: Sequence[Member], given: npt.ArrayLike | None = None) -> None:
        self.unit, labels = _of_chains(members) if given is None else ("given", _checked(members, given))
        self.superchains = np.zeros_like(labels) if self.unit == "one start" else labels
        ends = np.cumsum([member.n_chains for member in members])[:-1]
        by_member = [
            np.repeat(one, member.n_draws) for one, member in zip(np.split(labels, ends), members, strict=True)
        ]
        if self.unit in ("parts", "draws"):
            least, parts = (1, _PARTS_OF_DRAWS) if self.unit == "draws" else (_LEAST_PART, _PARTS_OF_CHAIN)
            parts = max(1, min(parts, min(map(len, by_member)) // least))
            # Each member is cut alike: a part of one alone would differ by what its model has of its own.
            by_member = [np.arange(len(one)) * parts // len(one) for one in by_member]
        self.labels = tuple(by_member)


def _of_chains(members: Sequence[Member]) -> tuple[str, npt.NDArray[np.intp]]:
    """Return what a replicate is, and that of each chain: what shares a network or a start is one."""
    if len(members) > 1:
        networks = [contents_hash(member.network.net.to_arrays()[1]).tobytes() for member in members]
        if len(set(networks)) > 1:
            of_members = np.unique(networks, return_inverse=True)[1]
            return "networks", np.repeat(of_members, [member.n_chains for member in members])
    settings, chains = [member.settings for member in members], np.arange(sum(one.n_chains for one in members))
    if all("kernel" in one and kernel_from_dict(one["kernel"]).is_independent for one in settings):
        return "draws", np.zeros_like(chains)
    if len(chains) == 1:
        return "parts", chains
    if any("starts" in one and one["init"] != "given" for one in settings):  # superchains, of each member its own
        labels, first = [], 0
        for member in members:
            labels.append(first + np.asarray(member.settings.get("starts", range(member.n_chains))))
            first = labels[-1].max() + 1
        return "starts", np.concatenate(labels)
    if any("kernel" not in one or one["init"] == "prior" for one in settings):
        return "chains", chains
    if len(members) == 1 and settings[0]["init"] == "given":
        starts = np.asarray(settings[0].get("starts", chains))
        return ("starts", starts) if len(set(starts.tolist())) > 1 else ("one start", chains)
    return ("one start" if all(one["init"] == "map" for one in settings) else "dispersed"), chains


def _checked(members: Sequence[Member], given: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Return the user's replicates of chains as numbers from 0; raise ValueError unless there are two or more."""
    labels, chains = np.asarray(given), sum(member.n_chains for member in members)
    if labels.shape != (chains,):
        raise ValueError(f"replicates must have shape ({chains},), a label for each chain; got {labels.shape}.")
    found = np.unique(labels, return_inverse=True)[1].reshape(-1)
    if found.max() == 0:
        raise ValueError("replicates must name at least two; got one, which shows nothing of another run.")
    return found


def rerun_error(
    distribution: PredictiveDistribution, replicates: Replicates, coverage: float, progress: bool | None = None
) -> RerunError:
    """Return the standard deviations of predictions over reruns, by leaving out each replicate, in blocks of rows."""
    check_probability(coverage, "coverage")
    found = []
    with evaluation_bar(progress, total=distribution.n_rows, desc="rerun error", unit=" inputs") as bar:
        for _, part in distribution.blocks():
            found.append(_of_block(part, replicates, coverage))
            bar.update(part.n_rows)
    return joined(found)


def _of_block(part: PredictiveDistribution, replicates: Replicates, coverage: float) -> RerunError:
    """Return what `rerun_error` does, for a distribution whose outputs are one block."""
    is_class = part.likelihood.targets in ("class", "binary")
    tails = 0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)
    # The function, in equally weighted draws.
    outputs, chosen = part.outputs(), zip(replicates.labels, part._which(), strict=True)
    # Mean counts may overflow at inputs far from the data, where their error is not known.
    values = np.asarray(part.likelihood.probabilities(outputs) if is_class else part.likelihood.predicted(outputs))
    of_f = _Groups(np.concatenate([one[which] for one, which in chosen]), None)
    ordered = np.sort(values[:: _thinning(len(values))], axis=0)
    band = [_of_sorted(ordered, np.full(values.shape[1:], tail)) for tail in tails]
    of_sorted = functools.partial(_of_sorted, ordered)
    errors, kurtosis = {}, {}
    errors["mean"], kurtosis["mean"] = of_f.error(values)
    for name, tail, end in zip(("band_lower", "band_upper"), tails, band, strict=True):
        of_probability, kurtosis[name] = of_f.error(values <= end)
        errors[name] = _of_end(tail, of_probability, of_sorted)
    of_y, ends = _Groups(np.concatenate(replicates.labels), part._weights), []
    for name, tail in zip(("lower", "upper"), tails, strict=True) if not is_class else ():
        found = zip(*(_of_quantile(mixture, tail, of_y) for mixture in part.mixtures), strict=True)
        end, errors[name], kurtosis[name] = (np.stack(values, axis=1) for values in found)
        ends.append(end)
    return RerunError(
        mean=errors["mean"],
        lower=errors.get("lower"),
        upper=errors.get("upper"),
        band_lower=errors["band_lower"],
        band_upper=errors["band_upper"],
        width=None if is_class else ends[1] - ends[0],
        band_width=band[1] - band[0],
        kurtosis=kurtosis,
        coverage=coverage,
        replicates=of_y.count,
        effective=of_y.effective,
        unit=replicates.unit,
    )


class _Groups:
    """The replicates of draws, and the standard error of means over draws by leaving out each in turn."""

    def __init__(self, labels: npt.NDArray[np.intp], weights: FloatArray | None) -> None:
        self._order, self._weights = np.argsort(labels, kind="stable"), weights
        self._starts = np.flatnonzero(np.diff(labels[self._order], prepend=-1))
        sums = np.bincount(labels, weights)[np.unique(labels)]
        # What hardly contributes says nothing about another run.
        self._used, self._shares = sums > _LEAST_SHARE * sums.max(), sums / sums.sum()
        self.count = int(np.count_nonzero(self._used))
        self.effective = 1.0 / float((self._shares[self._used] ** 2).sum())

    def error(self, values: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Return the standard error of the mean over draws of values (M, ...), and the replicates' excess kurtosis.

        With shares w_g of the replicates and means T_g without them, the variance is sum_g (1 - w_g) (T_g - T)^2 about
        the mean T of all: the delete-one jackknife, which for equal shares is the variance of the replicates' means
        over their number (Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 11). For unequal shares it
        is scaled to have the right expectation for a mean, s^2 sum_g w_g^2. NaN if there are fewer than two replicates.

        The kurtosis is Fisher's unbiased one (Joanes & Gill 1998, The Statistician 47:183-189) of what each replicate
        adds; zero, as of normal ones, if there are fewer than four.
        """
        if self.count < 2:
            return np.full(values.shape[1:], np.nan), np.full(values.shape[1:], np.nan)
        found = over_draws(self._error, values)
        return found[..., 0], found[..., 1]

    def _error(self, values: npt.NDArray[Any]) -> FloatArray:
        """Return what `error` does along a last axis, of at least two replicates."""
        w, total = self._shares[self._used], 1.0 / self.effective
        inflation = total / (w**2 * (1.0 - 2.0 * w + total) / (1.0 - w)).sum()
        ordered = values[self._order].astype(np.float64)
        if self._weights is None:
            ordered /= len(values)
        else:
            ordered *= self._weights[self._order].reshape(-1, *[1] * (values.ndim - 1))
        sums = np.add.reduceat(ordered, self._starts, axis=0)
        whole, rest = sums.sum(axis=0), 1.0 - w.reshape(-1, *[1] * (values.ndim - 1))
        without = (whole - sums[self._used]) / rest
        parts, n = np.sqrt(rest) * (without - whole), len(w)
        error: FloatArray = np.sqrt(inflation * (parts**2).sum(axis=0))
        excess = np.zeros_like(error)
        if n > 3:
            centred = parts - parts.mean(axis=0)
            second, fourth = (centred**2).mean(axis=0), (centred**4).mean(axis=0)
            biased = np.divide(fourth, second**2, out=np.full_like(error, np.nan), where=second > 0) - 3.0
            excess = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * biased + 6.0)
        return np.stack([error, excess], axis=-1)


def _of_quantile(mixture: TargetMixture, tail: float, groups: _Groups) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a quantile (n,) of a mixture over draws, its error and kurtosis; quantiles are those of some draws."""
    some = mixture.thinned(_thinning(len(mixture.means)))
    end = some.continuous_quantile(tail)
    of_probability, kurtosis = groups.error(mixture.continuous_cdf(end))
    error = _of_end(tail, of_probability, lambda probability: some.continuous_quantile(probability, end))
    return end, error, kurtosis


def _of_end(tail: float, error: FloatArray, quantile: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return the error of a quantile from that of the probability below it, by the quantiles around (Woodruff 1952).

    Half the distance between the quantiles at the probability plus and minus its error; where these would leave (0, 1)
    by nearer ones, in proportion.
    """
    low, high = np.maximum(tail - error, 0.2 * tail), np.minimum(tail + error, 1.0 - 0.2 * (1.0 - tail))
    if np.isnan(error).all():
        return error
    span = np.where(high > low, high - low, 1.0)
    found: FloatArray = (quantile(high) - quantile(low)) * error / span
    return found


def _of_sorted(ordered: npt.NDArray[Any], probability: FloatArray) -> FloatArray:
    """Return quantiles (...) of sorted values (M, ...), at position p (M + 1) as `credible_interval` does."""
    position = np.clip(probability * (len(ordered) + 1) - 1.0, 0.0, len(ordered) - 1.0)
    below = np.floor(position).astype(np.intp)
    first, second = (
        np.take_along_axis(ordered, np.minimum(index, len(ordered) - 1)[None], axis=0)[0].astype(np.float64)
        for index in (below, below + 1)
    )
    found: FloatArray = first + (position - below) * (second - first)
    return found


def _thinning(draws: int) -> int:
    """Return every which draw is enough for quantiles; all of them take part in the errors of probabilities."""
    return max(1, draws // _QUANTILE_DRAWS)
