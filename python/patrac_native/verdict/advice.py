"""What to do about a finding, as parameters of `train`, `Posterior` and `sample`."""

from __future__ import annotations

from collections.abc import Sequence

from patrac_native.likelihoods import LIKELIHOODS_BY_LABEL, NoiseChange
from patrac_native.verdict.evidence import Evidence, StepRecord

TRAIN_AGAIN = "train again (more epochs, another learning_rate, smaller l2, standardised X and y)"


def wider_intervals(e: Evidence) -> str:
    """Return what makes intervals of new targets wider where they cover too little."""
    advice = [] if e.likelihood is None else [_noise(e.likelihood.wider())]
    if e.architecture is not None and not e.architecture.fixes_nodes:
        advice.append("predict by several networks where there is one, DrawsMixture(sample_many(...))")
    else:
        advice.append("train with validation rows, so that the network does not fit the noise")
        advice.append("take a larger architecture, such as Full(), which does not rest on fixed nodes")
    return "; ".join(filter(None, advice)) + "."


def narrower_intervals(e: Evidence) -> str:
    """Return what makes intervals of new targets narrower where they cover too much."""
    advice = "" if e.likelihood is None else _noise(e.likelihood.narrower())
    return f"{advice or 'sample the scales of the prior'}."


def _noise(changes: Sequence[NoiseChange]) -> str:
    """Return changes of the noise in words, with the calls that make other likelihoods."""
    calls = [None if one.likelihood is None else LIKELIHOODS_BY_LABEL[one.likelihood].example for one in changes]
    return ", or ".join(
        one.advice if call is None else f"{one.advice}, {call}" for one, call in zip(changes, calls, strict=True)
    )


def better_start(e: Evidence) -> str:
    """Return what to do about chains that started far from the posterior or stayed there."""
    start = ""
    if e.architecture is None:
        start = "give starting points where the density is high, init=..., and "
    elif e.steps is None and not e.architecture.is_separate:
        start = "start every chain at post.theta_map and "
    elif e.steps is not None and e.steps.init != "map" and not e.architecture.is_separate:
        start = 'start every chain at init="map" and '
    return f"{start}warm up longer{_warmup_argument(e)}"


def longer_run(e: Evidence, factor: int, *, warmup: bool = False) -> str:
    """Return the advice to run `factor` times as long, with a longer warm-up if so asked."""
    if e.steps is None:
        run = f"run {e.sampler} longer, {factor * e.n_draws} draws of each chain or as many steps between them"
    elif e.is_independent:
        run = f"run longer, draws={factor * e.n_draws}"
    else:
        run = f"run longer, thin={factor * e.steps.thin}"
    return f"{run}, after a longer warm-up{_warmup_argument(e)}" if warmup else run


def longer_warmup(steps: StepRecord) -> str:
    """Return a warm-up of twice the number of steps, at least 20,000."""
    return f"warmup={max(20_000, 2 * steps.warmup_steps)}"


def _warmup_argument(e: Evidence) -> str:
    """Return the argument of a longer warm-up after a comma, if it is one of this package."""
    return "" if e.steps is None else f", {longer_warmup(e.steps)}"
