"""What to do about a finding on a fit, in the parameters of an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patrac_native.fit.candidates import Candidate
from patrac_native.fit.settings import Likelihood, Settings


def with_advice(
    summary: Any, settings: Settings, candidate: Candidate, tried: Sequence[Likelihood], warmup_steps: int
) -> Any:
    """Return a summary whose verdict advises parameters of an estimator, and no likelihood that was tried."""
    likelihood = candidate.likelihood
    classes = likelihood.targets == "class"
    unsuited = f"the model does not suit: choose another prior{' or' if classes else ','} architecture" + (
        "." if classes else " or likelihood."
    )
    wider = _noise(likelihood.wider(), likelihood, tried)[:1]
    if candidate.architecture.fixes_nodes:
        wider.append("take a larger architecture, architecture='full', without fixed nodes")
    elif candidate.networks == 1:
        # With noise of each row, chains of one network start at up to eight.
        wider.append(f"predict by several networks, networks={8 if likelihood.noise_by_row else 4}")
    wider_noise = "; or ".join(wider) + "." if wider else "take more rows."
    train = "train longer, max_iter, or with a smaller penalty, l2."
    warm_up = f"warm up longer, warmup={max(20_000, 2 * warmup_steps)}"
    advice = {
        "not finite": "scale X and y to unit variance, or compute with dtype='float64'.",
        "stuck chains": f"{warm_up}; a smaller step size lets a chain leave a bad start.",
        "undertrained network": train,
        "poor network": train,
        "poor fit": train,
        "poor draws": f"{warm_up}; if the draws stay there, {unsuited}",
        "narrow intervals": wider_noise,
        "fitted noise": wider_noise,
        "wide intervals": ", or ".join(_noise(likelihood.narrower(), likelihood, tried)) + ".",
        "poor predictions": f"run longer; if the chains have converged, {unsuited}",
    }
    # A budget pays for the warm-up too.
    if settings.thin is None and warmup_steps > 0:
        longer = sorted((one.longer, one.kind) for one in summary.verdict().findings if one.longer is not None)
        for times, kind in longer:
            advice[kind] = f"run longer, minutes={float(f'{times * settings.minutes:.2g}'):g}."
    return summary.with_advice(advice)


def _noise(changes: Sequence[Any], likelihood: Likelihood, tried: Sequence[Likelihood]) -> list[str]:
    """Return changes of the noise in words, without likelihoods that were tried."""
    gone = {one.label for one in tried} - {likelihood.label}
    return [
        f"{change.advice}, likelihood='{change.likelihood}'" if change.likelihood else change.advice
        for change in changes
        if change.likelihood not in gone
    ]
