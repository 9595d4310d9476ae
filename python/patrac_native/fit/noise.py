"""Compares kinds of noise by networks alone, on rows that these have not seen: seconds for any number of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

import patrac_native as pn
from patrac_native.fit.rows import FitData, FloatArray, Rows, TargetScaling
from patrac_native.fit.settings import Likelihood, Settings
from patrac_native.fit.training import Choice, folds, nominal_seconds, train_networks

# Kinds of noise differ on so many rows if they differ at all; so many are scored, if there are as many.
_MAX_ROWS, _SCORED_ROWS = 5_000, 1_000
# The logarithm of a target is tried if its largest value is more than so many times its smallest.
_WIDE = 2.0
# The degrees of freedom between which residuals choose.
_DEGREES_OF_FREEDOM = (2.5, 4.0, 8.0)
# Noise of each row is not tried where values of a target stand further apart than this share of its standard deviation.
_COARSE_GAP = 0.5
# Targets have a probability for each value where at most so many differ, which a network's outputs can tell apart, and
# each is that of so many rows: as many as there are folds, so that the other rows of a fold hardly ever lack one.
_MOST_VALUES, _FEWEST_OF_VALUE = 20, 5
# Bounds of an estimated dispersion: at the lower one, a mean count of a hundred has a variance that exceeds the Poisson
# distribution's by a hundredth.
_DISPERSIONS = (1e-4, 1e3)


@dataclass(frozen=True)
class NoiseTrial:
    """Networks that were trained under a likelihood, scored on training rows that each has not seen."""

    kind: Likelihood  # as it was tried
    fitted: Likelihood  # with variance or dispersion as the scored rows have them around their networks
    of_log: bool  # whether it is one of log y
    nlpd: FloatArray  # (n,), of the scored rows, in the units of y
    residuals: FloatArray  # (n,), of the first target of the network
    weights: FloatArray | None  # of these rows
    seconds: float  # nominal, of the training

    @property
    def label(self) -> str:
        """What was tried, in words."""
        return f"{self.kind.label} of log y" if self.of_log else self.kind.label

    def __str__(self) -> str:
        return f"{self.label} {pn.diagnostics.mean_with_error(self.nlpd, self.weights)[0]:.3f}"


class LeftOut(NamedTuple):
    """What networks predict of training rows that each has not seen."""

    fitted: Likelihood  # with variance or dispersion as these rows have them around their networks
    f: FloatArray  # (n, m), offset included
    y: npt.NDArray[Any]  # targets of these rows, as checked by the likelihood
    weights: FloatArray  # (n,)
    seconds: float  # nominal, of the training

    @property
    def nlpd(self) -> FloatArray:
        """The negative log density, or probability, of each of the targets (n,) of the network."""
        return np.asarray(-self.fitted.log_likelihood_rows(self.f, self.y))


def predict_left_out(likelihood: Likelihood, data: FitData, settings: Settings, scored: int) -> LeftOut | None:
    """Train networks on four fifths of the training rows, and predict the rest by each; None if rows are too few.

    As many networks, at most five, are trained as leave out `scored` rows in turn, or all; the first one's validation
    chooses penalty and number of epochs of all. Networks of counts are trained under the Poisson likelihood, and the
    dispersion is the most likely one given their means. Part of it is the error of each network, which makes the
    estimate careful.
    """
    settings, is_count = settings.for_choices, likelihood.targets == "count"
    by, seconds = pn.Poisson() if is_count else likelihood, 0.0
    parts: list[tuple[Any, ...]] = []
    for held, kept in folds(data, rows=scored):
        sizes = data.layer_sizes(settings.hidden_layer_sizes, by.outputs_per_target)
        with pn.Note.collect():  # notes on a training are about its use; these networks are scored
            nets = train_networks(sizes, kept, by, settings)
        if not parts:
            chosen = Choice.of(nets[0])
            settings = replace(settings, l2=chosen.l2, max_iter=chosen.epochs, validation_fraction=0)
        seconds += nominal_seconds(nets, len(kept.X))
        f = by.with_offset(nets[0].predict(held.X), held.offset)
        parts.append((f, by.check_targets(held.y, *f.shape), by.row_weights(held.sample_weight, len(f))))
    if not parts:
        return None
    f, y, weights = (np.concatenate(of_rows) for of_rows in zip(*parts, strict=True))
    if is_count:
        fitted: Likelihood = pn.NegativeBinomial(most_likely_dispersion(f, y, weights))
    else:
        fitted = likelihood.fitted(f, y, weights) if likelihood.is_sampled else likelihood
    return LeftOut(fitted, f, y, weights, seconds)


def try_noise(likelihood: Likelihood, data: FitData, settings: Settings) -> NoiseTrial | None:
    """Score networks under a likelihood by at most 5,000 training rows; None if there are too few.

    They are scored on 1,000 rows, see `predict_left_out`.
    """
    few = FitData(data.training.spread(_MAX_ROWS), None, data.n_targets, data.units)
    found = predict_left_out(likelihood, few, settings, _SCORED_ROWS)
    if found is None:
        return None
    typical = likelihood.typical(found.y)
    nlpd = found.nlpd + likelihood.log_units(found.y, data.units.slope(typical))
    residuals = (typical - likelihood.predicted(found.f))[:, 0]
    weights = found.weights if data.training.sample_weight is not None else None
    return NoiseTrial(likelihood, found.fitted, data.units.log, nlpd, residuals, weights, found.seconds)


def best_noise(trials: Sequence[NoiseTrial], say: Callable[[str], None]) -> NoiseTrial:
    """Return the first trial whose mean score is at most a standard error above the lowest one; say why.

    The error is that of the difference between the two (the one-standard-error rule; Breiman et al. 1984).
    """
    scores = ", ".join(map(str, trials))
    best = min(trials, key=lambda trial: pn.diagnostics.mean_with_error(trial.nlpd, trial.weights)[0])
    # Of the best itself both are zero.
    taken = next(
        trial
        for trial in trials
        if np.subtract(*pn.diagnostics.mean_with_error(trial.nlpd - best.nlpd, trial.weights)) <= 0
    )
    say(f"  NLPD of {len(best.nlpd):,} left-out rows by networks alone: {scores}; {taken.label} is taken")
    return taken


def noise_trials(
    rows: Rows,
    scalings: Sequence[TargetScaling],
    likelihoods: Sequence[Likelihood],
    counts: Likelihood | None,
    settings: Settings,
) -> list[NoiseTrial]:
    """Try kinds of noise of one target y (n, 1), the simplest first; there are no trials if there are too few rows.

    Kinds are likelihoods of real targets, the simplest last, on each of the scalings, Student-t noise where the
    residuals of a network have its tails, that of `counts` if y may be counts and, as the one with the most outputs
    last, a probability for each of few values. Log probabilities of whole numbers and log densities are compared as
    they are: the density of a whole number stands for the probability of the unit around it, and that of one of few
    values for the probability of a cell as wide as their smallest distance. If nothing rivals the likelihoods
    themselves on a single scaling, only the simplest is tried. If one of two scalings is worse under the simplest by
    more than two standard errors, the others are not tried on it.
    """
    *others, simplest = likelihoods
    scaled = [FitData(rows._replace(y=scaling.transform(rows.y)), None, 1, scaling) for scaling in scalings]

    def tried(likelihood: Likelihood, data: FitData) -> NoiseTrial | None:
        return try_noise(likelihood.for_scaled_targets(data.units.scale), data, settings)

    trials = [tried(simplest, data) for data in scaled]
    # On rows whose target the network can meet exactly, neither noise of each row nor tails are bounded.
    rich = [(data, trial) for data, trial in zip(scaled, trials, strict=True) if trial and not is_coarse(rows.y)]
    if len(rich) > 1:
        (_, first), (_, second) = rich
        gain, error = pn.diagnostics.mean_with_error(first.nlpd - second.nlpd, first.weights)
        rich = rich if abs(gain) <= 2 * error else rich[1:] if gain > 0 else rich[:1]
    tails = [(df, data) for data, trial in rich if (df := heavier_tails(trial))]
    as_they_are = FitData(rows, None, 1, TargetScaling.identity())
    if counts is not None:
        trials.append(try_noise(counts, as_they_are, settings))
    trials += [tried(pn.StudentT(df, "sampled"), data) for df, data in tails]
    of_values = []
    if takes_few_values(rows.y) and not scalings[0].log:
        of_values = [try_noise(pn.DiscreteValues().for_training_targets(rows.y), as_they_are, settings)]
    if len(trials) > 1 or of_values:
        trials += [tried(one, data) for one in reversed(others) for data, _ in rich]
    trials += of_values
    return [trial for trial in trials if trial is not None]


def heavier_tails(trial: NoiseTrial) -> float | None:
    """Return the degrees of freedom of Student-t noise that fits a network's residuals; None where normal noise does.

    Each has the most likely scale. Student-t noise must raise the mean log density by more than a standard error.
    """
    residuals = trial.residuals[:, None]
    weights = np.ones(len(residuals)) if trial.weights is None else trial.weights
    zeros = np.zeros_like(residuals)

    def density(likelihood: Likelihood) -> FloatArray:
        return np.asarray(likelihood.fitted(zeros, residuals, weights).log_likelihood_rows(zeros, residuals))

    by_df = {df: density(pn.StudentT(df, "sampled")) for df in _DEGREES_OF_FREEDOM}
    best = max(by_df, key=lambda df: float(weights @ by_df[df]))
    gain = pn.diagnostics.mean_with_error(by_df[best] - density(pn.Gaussian("sampled")), trial.weights)
    return best if np.subtract(*gain) > 0 else None


def may_take_log(y: FloatArray) -> bool:
    """Return whether the logarithm of targets may tell more than themselves: all are positive, and they vary widely."""
    return bool((y > 0).all() and y.max() > _WIDE * y.min())


def are_counts(y: npt.NDArray[np.float64]) -> bool:
    """Return whether all numbers are whole, and none is negative."""
    return bool((y >= 0).all() and (y == np.floor(y)).all())


def takes_few_values(y: FloatArray) -> bool:
    """Return whether few numbers differ, each that of several rows, which single precision tells apart."""
    values, rows = np.unique(y, return_counts=True)
    is_exact = np.array_equal(np.unique(values.astype(np.float32)), values.astype(np.float32))
    return bool(1 < len(values) <= _MOST_VALUES and rows.min() >= _FEWEST_OF_VALUE and is_exact)


def is_coarse(targets: FloatArray) -> bool:
    """Return whether a target, (n,) or one of several (n, t), takes few values, such as whole numbers from 3 to 8.

    On rows whose target the mean can meet exactly, noise of each row raises the density without bound.
    """
    columns = np.asarray(targets, dtype=np.float64).reshape(len(targets), -1).T
    gaps = [np.diff(np.unique(column)).min(initial=np.inf) for column in columns]
    return bool(np.any(np.array(gaps) > _COARSE_GAP * columns.std(axis=1)))


def estimate_dispersion(data: FitData, settings: Settings) -> tuple[float, float, str]:
    """Estimate the dispersion of counts, whose variance is mean + dispersion mean^2, on left-out training rows.

    Returns
    -------
    dispersion : float
    seconds : float
        Nominal seconds of the training.
    text : str
        The estimate in words.
    """
    trial = try_noise(pn.NegativeBinomial(1.0), data, settings)
    if trial is None:
        raise ValueError(
            f"{len(data.training.X)} training rows are too few to estimate the dispersion on a fifth of them; give "
            "dispersion, or more rows."
        )
    value, text = dispersion_of(trial)
    return value, trial.seconds, text


def dispersion_of(trial: NoiseTrial) -> tuple[float, str]:
    """Return the dispersion that a trial of counts found, and the estimate in words."""
    value = float(trial.fitted.arguments()["dispersion"])
    little = "" if value > _DISPERSIONS[0] else ": counts vary as Poisson's or less"
    return value, (
        f"dispersion {value:.3g}, the most likely one on {len(trial.nlpd)} training rows around networks of "
        f"the others{little}"
    )


def most_likely_dispersion(f: FloatArray, y: npt.NDArray[np.float64], weights: FloatArray) -> float:
    """Return the most likely dispersion, from 1e-4 to 1000, of counts y (n, m) with log means f and row weights."""

    def loss(log_dispersion: float) -> float:
        return -float((weights * pn.NegativeBinomial(math.exp(log_dispersion)).log_likelihood_rows(f, y)).sum())

    low, high = (math.log(bound) for bound in _DISPERSIONS)
    # The loss is flat near the lower bound, where a search would stop anywhere: a grid comes first.
    grid = np.linspace(low, high, 33)
    best = int(np.argmin([loss(point) for point in grid]))
    if best == 0:
        return _DISPERSIONS[0]
    around = (grid[best - 1], grid[min(best + 1, len(grid) - 1)])
    return math.exp(minimize_scalar(loss, bounds=around, method="bounded").x)
