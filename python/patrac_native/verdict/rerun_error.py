"""How far another complete run would move predictions: Monte Carlo standard errors whose unit is the replicate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.validation.checks import FloatArray, check_probability

# What the replicates are, what a rerun repeats, and what would lower the error, in words.
UNITS = {
    "networks": ("{} networks", "training and chains", "more networks with chains of their own"),
    "starts": ("{} starts", "starts and chains", "more starts with chains of their own"),
    "dispersed": ("{} chains", "the chains around the same network", "more chains, or longer ones"),
    "chains": ("{} chains", "the chains", "more chains, or longer ones"),
    "one start": ("{} chains", "the chains from the same start", "chains from other starts, and longer ones"),
    "parts": ("{} parts of the chain", "this chain from where it ended", "several chains, and longer ones"),
    "draws": ("{} parts of independent draws", "the draws", "more draws"),
    "given": ("{} replicates", "the replicates", "more replicates"),
}
# Units that do not show what another start would change.
_BLIND = ("one start", "parts")
# From fewer replicates the error itself is known too poorly for a grade: with five degrees of freedom, up to a factor
# of two.
FEW_REPLICATES = 6


@dataclass(frozen=True)
class Scatter:
    """The rerun error over all rows, relative to what it changes.

    Attributes
    ----------
    median, percentile_90 : float
        Of the rows: root mean square of both ends in units of the interval's width or, for classes, the largest
        standard error of a probability. NaN if it is not known.
    lower, upper : float
        The ends of a 90% interval for `median`, which so few replicates know roughly only.
    """

    median: float
    percentile_90: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class RerunError:
    """Standard deviations, over complete reruns, of predictions at n inputs; `rerun_error` of draws returns it.

    A rerun repeats everything that tells one replicate from another (`unit`): with a network for each, training, the
    choice among the penalties that were tried, and chains. What was chosen once for all of them, such as architecture
    and noise, and the rows themselves are not repeated. The numbers measure repeatability, not correctness: what all
    replicates have in common, such as a bias of the training, does not appear in them.

    Attributes
    ----------
    mean : ndarray of float64, shape (n, t), or (n, m) for classes
        Of the predicted mean, or of the probability of each class.
    lower, upper : ndarray of float64, shape (n, t), or None
        Of the ends of central intervals of y, noise included; those of counts as if their distribution function were
        linear between whole numbers. None for classes.
    band_lower, band_upper : ndarray of float64, shape (n, t), or (n, m) for classes
        Of the ends of central intervals of f, or of the probabilities.
    width, band_width : ndarray of float64, shape (n, t), or (n, m) for classes
        Widths of the intervals of y (None for classes) and of f.
    coverage : float
        Probability of the intervals.
    replicates : int
        Number of replicates.
    effective : float
        Their effective number G, one over the sum of squares of their shares.
    kurtosis : dict of ndarray of float64, each of shape (n, t) or (n, m)
        Excess kurtosis of the replicates in what the errors `mean`, `lower`, `upper`, `band_lower` and `band_upper`, by
        name, rest on; NaN where they do not differ.
    unit : str
        What a replicate is: "networks", "starts", "dispersed" (chains of one network), "chains", "one start", "parts"
        (of one chain), "draws" (independent ones) or "given".
    """

    mean: FloatArray
    lower: FloatArray | None
    upper: FloatArray | None
    band_lower: FloatArray
    band_upper: FloatArray
    width: FloatArray | None
    band_width: FloatArray
    kurtosis: Mapping[str, FloatArray]
    coverage: float
    replicates: int
    effective: float
    unit: str

    @property
    def of_predictions(self) -> Scatter:
        """The error of intervals of y in units of their width or, for classes, of the probabilities."""
        if self.lower is None or self.upper is None or self.width is None:
            return self._scatter(self.mean.max(axis=1))
        return self._scatter(_relative(self.lower, self.upper, self.width))

    @property
    def of_bands(self) -> Scatter:
        """The error of bands of f in units of their width or, for classes, of bands of the probabilities."""
        if self.lower is None:
            return self._scatter(np.sqrt(0.5 * (self.band_lower**2 + self.band_upper**2)).max(axis=1))
        return self._scatter(_relative(self.band_lower, self.band_upper, self.band_width))

    @property
    def is_class(self) -> bool:
        """Whether the errors are of probabilities of classes."""
        return self.lower is None

    @property
    def is_blind(self) -> bool:
        """Whether the replicates share their start, so that what another start would change does not appear."""
        return self.unit in _BLIND

    @property
    def is_rough(self) -> bool:
        """Whether there are effectively fewer than six replicates, too few to grade bands by."""
        return not self.effective > FEW_REPLICATES - 0.5

    def degrees_of_freedom(self, of: str) -> float:
        """Return the degrees of freedom of an error: at most G - 1, fewer where numbers rest on few of the replicates.

        The variance s^2 of G values with excess kurtosis k has itself a variance of s^4 (k / G + 2 / (G - 1)), as that
        of a chi-squared variable with 2 / (k / G + 2 / (G - 1)) degrees of freedom has (Satterthwaite 1946, Biometrics
        Bulletin 2:110-114). k is the mean over rows if positive, since few values hardly tell that of one row.

        Parameters
        ----------
        of : {"mean", "lower", "upper", "band_lower", "band_upper"}

        Raises
        ------
        ValueError
            If `of` is none of these that the targets have.
        """
        if of not in self.kurtosis:
            raise ValueError(f"of must be one of {', '.join(map(repr, self.kurtosis))}; got {of!r}.")
        if self.replicates < 2:
            return math.nan
        known = self.kurtosis[of][np.isfinite(self.kurtosis[of])]
        excess = max(0.0, float(known.mean())) if len(known) else 0.0
        return 2.0 / (excess / self.effective + 2.0 / (self.effective - 1.0))

    def margin(self, of: str, confidence: float = 0.9) -> FloatArray:
        """Return the half-widths of confidence intervals for what infinitely many replicates would give.

        Each is the error times a quantile of Student's t distribution with its `degrees_of_freedom`.

        Parameters
        ----------
        of : {"mean", "lower", "upper", "band_lower", "band_upper"}
            The quantity that the intervals are around.
        confidence : float
            Probability of the intervals, in (0, 1); default 0.9.

        Returns
        -------
        ndarray of float64, shape (n, t), or (n, m) for classes
            In the units of the errors.

        Raises
        ------
        ValueError
            If `of` is none of these that the targets have, or `confidence` outside (0, 1).
        """
        from scipy.special import stdtrit

        tail = 0.5 * (1.0 + check_probability(confidence, "confidence"))
        margin: FloatArray = float(stdtrit(self.degrees_of_freedom(of), tail)) * getattr(self, of)
        return margin

    def replicates_for(self, target: float) -> int:
        """Return how many replicates would lower the median error of predictions to `target`, > 0.

        The error falls with the square root of their number. Raises ValueError if the error is not known.
        """
        if not target > 0:
            raise ValueError(f"target must be positive; got {target}.")
        if math.isnan(self.of_predictions.median):
            raise ValueError("the rerun error is not known: there are fewer than two replicates.")
        return max(2, math.ceil(self.replicates * (self.of_predictions.median / target) ** 2))

    def scaled(self, scale: npt.ArrayLike) -> RerunError:
        """Return the errors in other units of y, of which `scale`, one number or one for each target, make one."""
        factors = np.asarray(scale, dtype=np.float64)
        values: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        scaled: dict[str, Any] = {name: None if one is None else one * factors for name, one in values.items()}
        return replace(self, **scaled)

    def describe_predictions(self) -> str:
        """Return the error of predictions of y in words."""
        what, repeats, _ = UNITS[self.unit]
        moved = "probabilities of classes" if self.is_class else f"the ends of {100 * self.coverage:g}% intervals of y"
        share = self._share(self.of_predictions, f"; from {what.format(self.replicates)}")
        return f"a rerun of {repeats} would move {moved} by {share}"

    def describe_bands(self) -> str:
        """Return the error of bands in words."""
        return f"a rerun would move the ends of {100 * self.coverage:g}% bands by {self._share(self.of_bands)}"

    def remedy(self, target: float) -> str:
        """Return what would lower the median error of predictions to `target`, in words."""
        times = self.replicates_for(target) / self.replicates
        return f"{UNITS[self.unit][2]}: about {times:.2g} times as many would make it {100 * target:g}{self.sign}."

    @property
    def caveat(self) -> str:
        """What the errors are not, in words."""
        shared = "what all replicates share, such as noise and architecture, does not show"
        return f"that is repeatability, not correctness: {shared}"

    @property
    def sign(self) -> str:
        """The unit of errors, a hundredth of the width or of probability, in words."""
        return " points" if self.is_class else "%"

    def _share(self, scatter: Scatter, more: str = "") -> str:
        """Return median and 90th percentile in words."""
        if math.isnan(scatter.median):
            return "an unknown amount"
        unit = "" if self.is_class else " of their width"
        typical = f"{100 * scatter.median:.{int(scatter.median < 0.1)}f}{self.sign}{unit}"
        tail = f"{100 * scatter.percentile_90:.0f}{self.sign} for one in ten"
        return f"{typical} (standard deviation, median of rows; {tail}{more})"

    def __str__(self) -> str:
        known = self.of_predictions
        between = f"{100 * known.lower:.1f} and {100 * known.upper:.1f}{self.sign}"
        roughly = "" if math.isnan(known.median) else f"\n  the true median is between {between} (90%)"
        return f"{self.describe_predictions()}{roughly}\n  {self.describe_bands()}\n  {self.caveat}"

    def to_dict(self) -> dict[str, Any]:
        """Return the errors over all rows as JSON-able values."""
        return {
            "coverage": self.coverage,
            "replicates": self.replicates,
            "effective": self.effective,
            "unit": self.unit,
            "predictions": asdict(self.of_predictions),
            "bands": asdict(self.of_bands),
        }

    def _scatter(self, values: FloatArray) -> Scatter:
        """Return median and 90th percentile of values (n, ...), with the interval of the median.

        NaN are left out; if they are more than half, nothing is known.
        """
        from scipy.special import chdtri

        known = values[np.isfinite(values)]
        if 2 * known.size < values.size or known.size == 0:
            return Scatter(math.nan, math.nan, math.nan, math.nan)
        # The rows share their replicates, so that all of them err alike.
        middle, df = float(np.median(known)), self.effective - 1.0
        low, high = (math.sqrt(df / float(chdtri(df, tail))) for tail in (0.05, 0.95))
        return Scatter(middle, float(np.quantile(known, 0.9)), low * middle, high * middle)


_ARRAYS = ("mean", "lower", "upper", "band_lower", "band_upper", "width", "band_width")


def joined(parts: Sequence[RerunError]) -> RerunError:
    """Return the errors of blocks of rows as those of all rows."""
    values = {name: [getattr(part, name) for part in parts] for name in _ARRAYS}
    whole: dict[str, Any] = {name: None if some[0] is None else np.concatenate(some) for name, some in values.items()}
    whole["kurtosis"] = {of: np.concatenate([part.kurtosis[of] for part in parts]) for of in parts[0].kurtosis}
    return replace(parts[0], **whole)


def _relative(lower: FloatArray, upper: FloatArray, width: FloatArray) -> FloatArray:
    """Return the root mean square of the errors of both ends over the width; NaN where there is none."""
    both = np.sqrt(0.5 * (lower**2 + upper**2))
    return np.divide(both, width, out=np.full_like(both, np.nan), where=width > 0)
