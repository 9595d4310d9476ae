"""Compares kinds of noise by networks alone, on rows that these have not seen: seconds for any number of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

import patrac_native as pn
from patrac_native.fit.rows import FitData, FloatArray, Rows, TargetScaling
from patrac_native.fit.settings import Likelihood, Settings
from patrac_native.fit.training import left_out, nominal_seconds, train_networks

# Kinds of noise differ on so many rows if they differ at all.
_MAX_ROWS = 5_000
# Noise of each row is not tried where values of a target stand further apart than this share of its standard deviation.
_COARSE_GAP = 0.5
# Bounds of an estimated dispersion: at the lower one, a mean count of a hundred has a variance that exceeds the Poisson
# distribution's by a hundredth.
_DISPERSIONS = (1e-4, 1e3)


@dataclass(frozen=True)
class NoiseTrial:
    """A network that was trained under a likelihood, scored on a fifth of the training rows, which it has not seen."""

    likelihood: Likelihood  # with variance or dispersion as the scored rows have them around the network
    nlpd: FloatArray  # (n,), of the scored rows, in the units of y
    weights: FloatArray | None  # of these rows
    seconds: float  # nominal, of the training

    def __str__(self) -> str:
        mean, _ = pn.diagnostics.mean_with_error(self.nlpd, self.weights)
        return f"{self.likelihood.label} {mean:.3f}"


def try_noise(likelihood: Likelihood, data: FitData, settings: Settings) -> NoiseTrial | None:
    """Train a network on four fifths of at most 5,000 training rows, and score it on the others; None if they are few.

    Networks of counts are trained under the Poisson likelihood, and the dispersion is the most likely one given their
    means. Part of it is the error of that one network, which makes the estimate careful.
    """
    is_count = likelihood.targets == "count"
    few = FitData(data.training.spread(_MAX_ROWS), None, data.n_targets, data.units)
    parts = left_out(few, settings)
    if parts is None:
        return None
    held, kept = parts
    by = pn.Poisson() if is_count else likelihood
    with pn.Note.collect():  # notes on a training are about its use; this network is scored
        nets = train_networks(data.layer_sizes(settings.hidden_layer_sizes, by.outputs_per_target), kept, by, settings)
    f = by.with_offset(nets[0].predict(held.X), held.offset)
    y, weights = by.check_targets(held.y, *f.shape), by.row_weights(held.sample_weight, len(f))
    if is_count:
        fitted: Likelihood = pn.NegativeBinomial(most_likely_dispersion(f, y, weights))
    else:
        fitted = likelihood.fitted(f, y, weights) if likelihood.is_sampled else likelihood
    nlpd = likelihood.log_units(y, np.atleast_1d(data.units.scale)) - fitted.log_likelihood_rows(f, y)
    return NoiseTrial(fitted, nlpd, held.sample_weight, nominal_seconds(nets, len(kept.X)))


def best_noise(trials: Sequence[NoiseTrial], say: Callable[[str], None]) -> NoiseTrial:
    """Return the first trial, or the best of those that are better than it by more than a standard error; say why."""
    first = trials[0]

    def gain_over_first(trial: NoiseTrial) -> tuple[float, float]:
        return pn.diagnostics.mean_with_error(first.nlpd - trial.nlpd, first.weights)

    better = [trial for trial in trials[1:] if np.subtract(*gain_over_first(trial)) > 0]
    best = max(better, key=lambda trial: gain_over_first(trial)[0], default=first)
    rows = len(first.nlpd)
    scores = ", ".join(map(str, trials))
    say(f"  NLPD of {rows:,} left-out rows by a network alone: {scores}; {best.likelihood.label} is taken")
    return best


def is_better_as_counts(
    rows: Rows, counts: Likelihood, others: Sequence[Likelihood], settings: Settings, say: Callable[[str], None]
) -> bool:
    """Return whether a network of counts predicts whole numbers y (n, 1) better than others.

    The others are likelihoods of real targets, the simplest last. Log probabilities of whole numbers and log densities
    are compared as they are: the density of a whole number stands for the probability of the unit around it.
    """
    say("the target holds whole numbers, none negative; networks alone tell whether they are counts")
    scaling = TargetScaling.fit(rows.y, rows.sample_weight, standardize=True)
    scaled = FitData(rows._replace(y=scaling.transform(rows.y)), None, 1, scaling)
    kinds = [(one.for_scaled_targets(scaling.scale), scaled) for one in reversed(others)]
    if is_coarse(rows.y):
        kinds = [(one, data) for one, data in kinds if not one.noise_by_row]
    kinds.append((counts, FitData(rows, None, 1, TargetScaling.identity())))
    trials = [trial for one, data in kinds if (trial := try_noise(one, data, settings)) is not None]
    return bool(trials) and best_noise(trials, say).likelihood.targets == "count"


def are_counts(y: npt.NDArray[np.float64]) -> bool:
    """Return whether all numbers are whole, and none is negative."""
    return bool((y >= 0).all() and (y == np.floor(y)).all())


def is_coarse(targets: FloatArray) -> bool:
    """Return whether a target, (n,) or one of several (n, t), takes few values, such as whole numbers from 3 to 8.

    On rows whose target the mean can meet exactly, noise of each row raises the density without bound.
    """
    columns = np.asarray(targets, dtype=np.float64).reshape(len(targets), -1).T
    gaps = [np.diff(np.unique(column)).min(initial=np.inf) for column in columns]
    return bool(np.any(np.array(gaps) > _COARSE_GAP * columns.std(axis=1)))


def estimate_dispersion(data: FitData, settings: Settings) -> tuple[float, float, str]:
    """Estimate the dispersion of counts, whose variance is mean + dispersion mean^2, on a fifth of the training rows.

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
    value = float(trial.likelihood.arguments()["dispersion"])
    little = "" if value > _DISPERSIONS[0] else ": counts vary as Poisson's or less"
    text = (
        f"dispersion {value:.3g}, the most likely one on {len(trial.nlpd)} training rows around a network of the "
        f"others{little}"
    )
    return value, trial.seconds, text


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
