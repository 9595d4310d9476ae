"""The rows of a fit as arrays, and the units of their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from patrac_native import diagnostics
from patrac_native.files import check_entries, check_numbers
from patrac_native.fit.bins import Bins
from patrac_native.fit.preprocessor import mean_and_scale, place
from patrac_native.report import RerunError

FloatArray = npt.NDArray[np.float64]
# A share of held-out rows that differs from the wanted one by more than this is said.
_SHARE_SAID = 0.05
# Scales of targets whose squares, by a factor of 1e8 to either side, are normal numbers of float64.
_SMALLEST, _LARGEST = 1e-150, 1e150


class Moments(NamedTuple):
    """Mean (n, t) of targets in their units, and their variance in two parts: of the noise, and of its mean's draws."""

    mean: FloatArray
    noise_variance: FloatArray
    epistemic_variance: FloatArray

    @property
    def variance(self) -> FloatArray:
        """Variance of the targets, (n, t)."""
        return self.noise_variance + self.epistemic_variance


@dataclass(frozen=True)
class TargetScaling:
    """The conversion of the targets y to those of the network, (y - mean) / scale, and back.

    Attributes
    ----------
    mean, scale : ndarray of float64, shape (t,)
        One for each target; 0 and 1 for counts and classes, which stay as they are.
    log : bool
        Whether log y takes the place of y, of which `mean` and `scale` then are; default False.
    """

    mean: FloatArray
    scale: FloatArray
    log: bool = False

    @classmethod
    def identity(cls, targets: int = 1) -> TargetScaling:
        """Return the conversion that leaves targets as they are."""
        return cls(np.zeros(targets), np.ones(targets))

    @classmethod
    def fit(cls, y: FloatArray, weights: FloatArray | None, *, standardize: bool, log: bool = False) -> TargetScaling:
        """Compute the moments of the columns of y (n, t), or of its logarithm; raise ValueError if one is constant."""
        y = _logarithm(y) if log else y
        names = ["y"] if y.shape[1] == 1 else [f"y[:, {index}]" for index in range(y.shape[1])]
        moments = np.array([mean_and_scale(column, weights) for column in y.T])
        for name, column, (_, scale) in zip(names, y.T, moments, strict=True):
            if scale == 0:
                raise ValueError(f"{name} is {column[0]:g} in every row; give rows in which it varies.")
            # Variances are in the square of its units.
            if not _SMALLEST <= scale <= _LARGEST:
                raise ValueError(f"{name} varies by {scale:.3g}, whose square float64 cannot hold; change its unit.")
        mean, scale = moments.T if standardize else (np.zeros(y.shape[1]), np.ones(y.shape[1]))
        return cls(mean, scale, log)

    @property
    def target_scale(self) -> Any:
        """The scale, as a number if there is one target."""
        return float(self.scale[0]) if len(self.scale) == 1 else self.scale

    def transform(self, y: FloatArray) -> FloatArray:
        """Return the targets of the network for y (n, t), (n,) for one target; or, of q numbers each, (n, t, q)."""
        y = _logarithm(y) if self.log else y
        if y.ndim == 3:
            return np.ascontiguousarray((y - self.mean[:, None]) / self.scale[:, None])
        values: FloatArray = (y - self.mean) / self.scale
        return np.ascontiguousarray(values[:, 0] if len(self.scale) == 1 else values)

    def inverse(self, values: FloatArray) -> FloatArray:
        """Convert targets of the network (..., t) to the units of y."""
        found = np.asarray(values * self.scale + self.mean)
        return np.exp(found) if self.log else found

    def slope(self, values: FloatArray) -> FloatArray:
        """Return by how much y changes with the targets of the network, dy / dz, where these are `values` (n, t)."""
        slope = self.scale * self.inverse(values) if self.log else self.scale
        return np.asarray(np.broadcast_to(slope, values.shape))

    def scaled(self, error: RerunError, distribution: Any) -> RerunError:
        """Return a rerun error of predictions of a distribution in the units of y, by the slope at each end."""
        if not self.log:
            return error.scaled(self.scale)
        f, tail = distribution.outputs()[..., : len(self.scale)], 0.5 * (1 - error.coverage)
        ends = {"": distribution.interval(error.coverage), "band_": np.quantile(f, (tail, 1 - tail), axis=0)}
        found: dict[str, Any] = {"mean": error.mean * self.scale * self.moments(distribution).mean}
        for name, (lower, upper) in ends.items():
            found[f"{name}lower"] = getattr(error, f"{name}lower") * self.slope(lower)
            found[f"{name}upper"] = getattr(error, f"{name}upper") * self.slope(upper)
            found[f"{name}width"] = self.inverse(upper) - self.inverse(lower)
        return replace(error, **found)

    def mean_of(self, part: Any) -> FloatArray:
        """Return the mean of `moments` alone."""
        return self.moments(part).mean if self.log else self.inverse(part.mean())

    def moments(self, part: Any) -> Moments:
        """Return the moments of y (n, t) of which a predictive distribution has the targets of the network.

        Those of the exponential of Student-t noise are without its outermost tails, 0.25% on each side.
        """
        if not self.log:
            squares = self.scale**2
            return Moments(self.inverse(part.mean()), part.noise_variance() * squares, part.sd_f() ** 2 * squares)
        blocks = [self._exponential_moments(block) for _, block in part.blocks()]
        return Moments(*(np.concatenate(values) for values in zip(*blocks, strict=True)))

    def _exponential_moments(self, part: Any) -> Moments:
        """Return the moments of y for a block of rows of which a distribution has log y."""
        found = []
        for mixture, mean, scale in zip(part.mixtures, self.mean, self.scale, strict=True):
            location, c = mixture.location * scale + mean, scale * np.asarray(mixture.noise.scale)
            # Given a draw, y is exp(location + c u).
            of_noise = mixture.noise.log_mean_exp(c)
            means = np.exp(location + of_noise)
            # E exp(2 c u) / (E exp(c u))^2 - 1 in the form that keeps the digits of little noise.
            variances = means**2 * np.expm1(mixture.noise.log_mean_exp(2 * c) - 2 * of_noise)
            of_y = mixture.average(means)
            found.append((of_y, mixture.average(variances), mixture.average((means - of_y) ** 2)))
        return Moments(*(np.stack(values, axis=1) for values in zip(*found, strict=True)))

    def crps(self, part: Any, targets: npt.NDArray[Any]) -> FloatArray:
        """Return the continuous ranked probability score (n, t), in the units of y, of targets of the network."""
        if not self.log:
            return np.asarray(part.crps(targets, per_row=True) * self.scale)
        seen = part.check_targets(targets)
        # Bounds (n, t, q) are converted one after the other.
        of_y = self.inverse(seen) if seen.ndim == 2 else np.moveaxis(self.inverse(np.moveaxis(seen, -1, 0)), 0, -1)
        return np.asarray(part.likelihood.crps_rows(self.inverse(part.sample()), of_y))

    def describe(self) -> str:
        """Return the conversion in words."""
        of = "log y" if self.log else "y"
        if (self.scale == 1).all() and (self.mean == 0).all():
            return f"{of}: {len(self.scale)} targets, as they are" if len(self.scale) > 1 else f"{of}: as it is"
        shown = [f"mean {m:.5g}, standard deviation {sd:.5g}" for m, sd in zip(self.mean, self.scale, strict=True)]
        return f"{of}: standardised by {'; '.join([*shown[:5], *(['...'] if len(shown) > 5 else [])])}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-able values, whose numbers are exact."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist(), "log": self.log}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> TargetScaling:
        """Rebuild from what `to_dict` returned."""
        check_entries(content, {"mean": list, "scale": list, "log": bool}, "the scaling of the targets")
        for name in ("mean", "scale"):
            check_numbers(content[name], f"{name} of the targets")
        if len(content["mean"]) != len(content["scale"]) or not all(scale > 0 for scale in content["scale"]):
            raise ValueError("the scales of the targets are not one positive number for each mean")
        mean, scale = (np.array(content[name], dtype=np.float64) for name in ("mean", "scale"))
        return cls(mean, scale, content["log"])


def _logarithm(y: FloatArray) -> FloatArray:
    """Return log y, also of bounds that are zero or infinite; raise ValueError if a number is not positive."""
    wrong = (y[..., 0] < 0) | (y[..., 1] <= 0) if y.ndim == 3 else y <= 0
    if wrong.any():
        row = int(np.argmax(wrong.reshape(len(y), -1).any(axis=1)))
        raise ValueError(
            f"y must be positive: the fit is one of log y; got {y[row].reshape(-1)[0]:g} in row {row} (counted from "
            "0). Leave such rows out, or fit with log_target=False."
        )
    with np.errstate(divide="ignore"):
        return np.log(y)


def bounds_of_events(y: FloatArray, event: Any) -> FloatArray:
    """Return the bounds (n, 2) of times y (n,): equal where the event was seen, else the time and infinity.

    Raises ValueError unless each entry of `event` (n,) is 1 or 0, or a Boolean.
    """
    if np.ndim(y) != 1 or np.shape(event) != np.shape(y):
        raise ValueError(
            f"event must have one entry for each of the times y, (n,); got shapes {np.shape(event)} and {np.shape(y)}."
        )
    given = event if isinstance(event, pd.Series) else pd.Series(np.asarray(event))
    seen = pd.to_numeric(given, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    odd = ~np.isin(seen, (0.0, 1.0))
    if odd.any():
        raise ValueError(
            "event must be 1 or True where y is the time of an event, and 0 or False where the row is censored at y; "
            f"got {given[odd].iloc[0]!s} at {place(given, odd)}."
        )
    return np.stack([y, np.where(seen == 1.0, y, np.inf)], axis=1)


class Rows(NamedTuple):
    """Rows of a fit: inputs (n, d), targets (n,) or (n, t), and, if given, weights, log exposures and groups (n,).

    `may_be_copies` is False where rows with equal inputs are known to agree by chance.
    """

    X: FloatArray
    y: Any
    sample_weight: FloatArray | None = None
    offset: FloatArray | None = None
    groups: npt.NDArray[np.intp] | None = None
    may_be_copies: bool = True

    def copies(self) -> npt.NDArray[np.intp] | None:
        """Return the groups of rows that splits keep together: those given, or of equal rows if rows were copied."""
        if self.groups is not None or not self.may_be_copies:
            return self.groups
        return diagnostics.copy_groups(np.reshape(self.y, (len(self.X), -1)), self.X, self.offset)

    def binned(self, bins: Bins) -> Rows:
        """Return the rows with the inputs of bins in the place of theirs.

        These depend on each other, so that by them rows would seem copied that agree by chance.
        """
        made = self._replace(X=bins.transform(self.X))
        return made._replace(may_be_copies=self.copies() is not None or made.copies() is None)

    def take(self, rows: npt.NDArray[np.intp]) -> Rows:
        """Return some of the rows."""
        weights, offset = (None if part is None else part[rows] for part in (self.sample_weight, self.offset))
        groups = None if self.groups is None else self.groups[rows]
        return Rows(self.X[rows], self.y[rows], weights, offset, groups, self.may_be_copies)

    def spread(self, max_rows: int) -> Rows:
        """Return at most `max_rows` of the rows, evenly spread."""
        return self.take(np.linspace(0, len(self.X) - 1, min(max_rows, len(self.X))).round().astype(np.intp))


@dataclass(frozen=True)
class FitData:
    """What a fit is made from: standardised targets, counts, or labels 0..m-1 (int64).

    Attributes
    ----------
    training : Rows
    held_out : Rows or None
        Rows that are not trained on.
    n_targets : int
        Number of targets, or of classes.
    units : TargetScaling
    """

    training: Rows
    held_out: Rows | None
    n_targets: int
    units: TargetScaling

    def layer_sizes(self, hidden: Sequence[int], outputs_per_target: int) -> list[int]:
        """Return the layer sizes of a network."""
        return [self.training.X.shape[1], *hidden, outputs_per_target * self.n_targets]


def hold_out(
    inputs: Any,
    y: Any,
    fraction: float,
    *,
    seed: int,
    labels: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | None = None,
    times: FloatArray | None = None,
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], str]:
    """Return training and held-out rows of a table, each sorted, and a note if they are not split at random.

    `labels` (n,) are classes, of which each part gets its share, and `groups` (n,) are not divided; by default copies
    of a row are not. With `times` (n,) the latest rows are held out, those of one time together, but for the earliest.
    Raises ValueError if a part would be empty.
    """
    if times is not None and fraction:
        first = np.sort(times)[min(-1, -round(fraction * len(times)))]
        held_out = (times >= first) & (times > times.min())
        if not held_out.any():
            raise ValueError(f"time splits no rows: all {len(times)} have the same one.")
        note, share = "the latest rows are held out", held_out.mean()
        if abs(share - fraction) > _SHARE_SAID:
            note = f"{note}: {share:.0%} of all, as rows of one time are not divided"
        return np.flatnonzero(~held_out), np.flatnonzero(held_out), note
    found = diagnostics.copy_groups(y, inputs)
    if groups is not None:
        found = diagnostics.check_groups(groups, len(y))
    *held, rows = diagnostics.split_rows(
        len(y),
        [fraction] if fraction else [],
        seed=seed,
        labels=labels,
        groups=found,
        whole=groups is not None,
    )
    note, kinds = "", 0 if found is None else len(np.unique(found))
    if groups is not None:
        note = f"rows of one of the {kinds} groups are trained on, held out or validated together"
    elif found is not None:
        count = len(found) - kinds
        what = f"{count} rows have the inputs of others, and some were" if count > 1 else "a row was"
        note = f"{what} copied; rows with equal inputs are trained on, held out or validated together"
    return rows, (held[0] if held else rows[:0]), note
