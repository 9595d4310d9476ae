"""The choice of bins for columns of numbers, by networks and rows that these have not seen."""

from __future__ import annotations

from dataclasses import replace

from patrac_native.diagnostics import mean_with_error
from patrac_native.fit.bins import Bins, knots_of, number_of_inputs
from patrac_native.fit.noise import predict_left_out
from patrac_native.fit.rows import FitData
from patrac_native.fit.settings import Likelihood, Settings

# Of fewer rows, no bins were better by two standard errors on any table (docs/tried.md). What they gain grows with the
# number of rows, all of which are used up to a number that trains as long as 5,000 do, by as many updates of batches.
_MIN_ROWS, _MAX_ROWS, _SCORED_ROWS = 1_000, 100_000, 5_000
# Numbers of bins that are tried: the first that gives a network at most so many inputs, which keeps a training short.
_TRIED, _MAX_INPUTS = (16, 8), 250


def choose_bins(data: FitData, likelihood: Likelihood, settings: Settings, bins: int | str) -> tuple[Bins | None, str]:
    """Return the bins whose inputs a network gets in place of its own, None for its own, and why in words.

    `bins` is a number, 0 for none, or "auto": 16, or 8 where there are many inputs, are taken where networks predict
    left-out rows better by more than two standard errors of the difference. They are compared with 1,000 rows or more,
    if the network then has at most 250 inputs, and not where the penalty is not validated either.
    """
    inputs, weights = data.training.X, data.training.sample_weight
    if bins == 0:
        return None, ""
    if bins != "auto":
        made = Bins.fit(inputs, knots_of(inputs, int(bins)))
        if not made.n_binned:
            return None, "no input has more than two values, so that none gets bins"
        return made, f"at most {bins} bins of {_of(made)}, as asked"
    if len(inputs) < _MIN_ROWS or settings.validation_fraction == 0:
        return None, ""
    knots, count = next(
        ((found, n) for n in _TRIED if number_of_inputs(found := knots_of(inputs, n)) <= _MAX_INPUTS), ([], 0)
    )
    if not any(map(len, knots)):
        return None, ""
    made = Bins.fit(inputs, knots)
    rows = data.training.spread(_MAX_ROWS)
    before, after = (
        predict_left_out(likelihood, replace(data, training=one), settings, _SCORED_ROWS)
        for one in (rows, rows.binned(made))
    )
    if before is None or after is None:
        return None, ""
    gain, error = mean_with_error(before.nlpd - after.nlpd, before.weights if weights is not None else None)
    text = (
        f"bins of inputs: networks predict {len(before.nlpd):,} left-out rows with an NLPD"
        f"{' of log y' if data.units.log else ''} {'lower' if gain > 0 else 'higher'} by {abs(gain):.3f} (standard "
        f"error {error:.3f}) by at most {count} bins of {_of(made)} than without, and they are "
    )
    return (made, f"{text}taken") if gain > 2 * error else (None, f"{text}not taken")


def _of(made: Bins) -> str:
    """Return which inputs have bins, in words."""
    return "the input" if len(made.knots) == 1 else f"each of {made.n_binned} inputs"
