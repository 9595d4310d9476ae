"""What to do about a finding, in the arguments of whoever made the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from patrac_native.likelihoods import LIKELIHOODS_BY_LABEL, Likelihood, NoiseChange
from patrac_native.verdict.evidence import Evidence, StepRecord


def _other_noise(likelihood: Likelihood | None) -> tuple[str, str]:
    """Return noise to choose where intervals are too narrow and where they are too wide; either may be empty."""
    if likelihood is None:
        return "", ""
    return ", or ".join(map(_call, likelihood.wider())), ", or ".join(map(_call, likelihood.narrower()))


def _call(change: NoiseChange) -> str:
    """Return a change of the noise with the call that makes the other likelihood."""
    if change.likelihood is None:
        return change.advice
    return f"{change.advice}, {LIKELIHOODS_BY_LABEL[change.likelihood].example}"


@dataclass(frozen=True)
class Remedies:
    """Advice as arguments of `sample` and `Posterior`; a subclass names those of another caller."""

    def option(self, name: str, value: Any) -> str:
        """Return how the caller of the run gives an argument of `sample`."""
        return f"{name}={value!r}"

    @property
    def double_precision(self) -> str:
        """How to compute in double precision."""
        return 'Posterior(..., dtype="float64")'

    def for_narrow_intervals(self, e: Evidence) -> str:
        """Return what makes intervals of new targets wider where they cover too little."""
        advice = [_other_noise(e.likelihood)[0]]
        if e.architecture is not None and not e.architecture.fixes_nodes:
            advice.append("predict by several networks where there is one, DrawsMixture(sample_many(...))")
        else:
            advice.append("train with validation rows, so that the network does not fit the noise")
            advice.append("take a larger architecture, such as Full(), which does not rest on fixed nodes")
        return "; ".join(filter(None, advice)) + "."

    def for_wide_intervals(self, e: Evidence) -> str:
        """Return what makes intervals of new targets narrower where they cover too much."""
        return f"{_other_noise(e.likelihood)[1]}."

    def for_poor_predictions(self) -> str:
        """Return what to do where converged chains predict worse than the trained network."""
        return (
            "prior or noise do not suit: sample the noise variance and the scales of the prior, or choose another "
            "architecture."
        )

    @property
    def train_again(self) -> str:
        """What to do about a network that fits its training rows badly."""
        return "train again (more epochs, another learning_rate, smaller l2, standardised X and y)"

    def better_start(self, e: Evidence) -> str:
        """Return where chains should start, and `and`; empty where they start there, or nothing is better."""
        if e.architecture is None:
            return "give starting points where the density is high, init=..., and "
        if e.architecture.is_separate:
            return ""
        if e.steps is None:
            return "start every chain at post.theta_map and "
        return "" if e.steps.init == "map" else 'start every chain at init="map" and '

    def for_draws_that_do_not_fit(self) -> str:
        """Return what to do where draws of chains with a good start fit worse than a constant."""
        return "prior or noise variance do not suit: TraceClassPrior.fit(net), post.prior_predict(X, 200)."

    def longer_run(self, e: Evidence, factor: int, *, warmup: bool = False) -> str:
        """Return the advice to run `factor` times as long, with a longer warm-up if so asked."""
        if e.steps is None:
            run = f"run {e.sampler} longer, {factor * e.n_draws} draws of each chain or as many steps between them"
        elif e.is_independent:
            run = f"run longer, {self.option('draws', factor * e.n_draws)}"
        else:
            run = f"run longer, {self.option('thin', factor * e.steps.thin)}"
        return f"{run}, after a longer warm-up{self.warmup_argument(e)}" if warmup else run

    def more_draws(self, e: Evidence, draws: int) -> str:
        """Return the number of draws to take."""
        return f"{draws} of each chain" if e.steps is None else self.option("draws", draws)

    def longer_warmup(self, steps: StepRecord) -> str:
        """Return a warm-up of twice the number of steps, at least 20,000."""
        return self.option("warmup", max(20_000, 2 * steps.warmup_steps))

    def warmup_argument(self, e: Evidence) -> str:
        """Return the argument of a longer warm-up after a comma, if it is one of this package."""
        return "" if e.steps is None else f", {self.longer_warmup(e.steps)}"

    def more_chains(self, e: Evidence) -> str:
        """Return the advice to run several chains."""
        return "run several" if e.steps is None else f"run several, {self.option('chains', 4)}"
