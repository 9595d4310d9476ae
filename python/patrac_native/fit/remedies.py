"""What to do about a finding on a fit, in its settings as the caller gives them: options or parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from patrac_native.architectures import Full
from patrac_native.fit.model_settings import MINUTES, ModelSettings
from patrac_native.likelihoods import Gaussian, Likelihood, NegativeBinomial, Poisson
from patrac_native.likelihoods.sampled_noise import SampledNoiseLikelihood
from patrac_native.verdict.evidence import Evidence
from patrac_native.verdict.remedies import Remedies


@dataclass(frozen=True)
class FitRemedies(Remedies):
    """Advice as settings of a fit.

    Attributes
    ----------
    settings : ModelSettings
    likelihood : Likelihood
        That of the fit.
    tried : sequence of Likelihood
        Those that the fit has tried; default none.
    """

    settings: ModelSettings
    likelihood: Likelihood
    tried: Sequence[Likelihood] = ()

    def option(self, name: str, value: Any = None) -> str:
        """Return how the caller gives a setting, with a value if there is one."""
        return self.settings.option(name, value)

    @property
    def double_precision(self) -> str:
        """How to compute in double precision."""
        return self.option("dtype", "float64")

    @property
    def train_again(self) -> str:
        """What to do about a network that fits its training rows badly."""
        return f"train longer, {self.option('epochs')}, or with a smaller penalty, {self.option('l2')}"

    def better_start(self, e: Evidence) -> str:
        """Return nothing: no setting of a fit says where chains start."""
        return ""

    def for_draws_that_do_not_fit(self) -> str:
        """Return what to do where draws of chains with a good start fit worse than a constant."""
        return self.for_poor_predictions()

    def for_narrow_intervals(self, e: Evidence) -> str:
        """Return what makes intervals wider: other noise, a larger architecture or several networks, if there are."""
        advice = [self._wider_noise()]
        if e.architecture is not Full:
            advice.append(f"take a larger architecture, {self.option('architecture', 'full')}, without fixed nodes")
        elif (self.settings.networks or 1) == 1:
            # With noise of each row, chains of one network start at up to eight.
            networks = 4 if self.likelihood.outputs_per_target == 1 else 8
            advice.append(f"predict by several networks, {self.option('networks', networks)}")
        return "; or ".join(filter(None, advice)) + "." if any(advice) else "take more rows."

    def for_wide_intervals(self, e: Evidence) -> str:
        """Return what makes intervals narrower: other noise."""
        varying, heavy = (self.option("likelihood", name) for name in ("heteroscedastic", "student-t"))
        if isinstance(self.likelihood, NegativeBinomial):
            return f"give a smaller {self.option('dispersion')}, or {self.option('likelihood', 'poisson')}."
        if isinstance(self.likelihood, Poisson):
            return f"counts vary less than Poisson's: try {self.option('likelihood', 'gaussian')}."
        if isinstance(self.likelihood, Gaussian):
            sampled = "" if self.likelihood.is_sampled else "sample the noise variance; "
            inputs = "" if self._varying_was_tried else f" depend on the inputs, {varying}, or"
            return f"{sampled}let the noise{inputs} have outliers, {heavy}."
        return f"try other noise, {heavy if self.likelihood.outputs_per_target > 1 else varying}."

    def for_poor_predictions(self) -> str:
        """Return which settings to change where converged chains predict worse than the trained network."""
        names = ["prior", "architecture", *([] if self.likelihood.targets == "class" else ["likelihood"])]
        *others, last = map(self.option, names)
        return f"the model does not suit: choose another {', '.join(others)} or {last}."

    @property
    def _varying_was_tried(self) -> bool:
        """Whether noise that depends on the inputs was tried, and another was chosen."""
        return any(one.outputs_per_target > 1 for one in self.tried)

    def _wider_noise(self) -> str:
        """Return what lets the noise be larger, or larger in some rows; empty if nothing does."""
        if isinstance(self.likelihood, Poisson):
            return f"let counts vary more than Poisson's, {self.option('likelihood', 'negative-binomial')}"
        if isinstance(self.likelihood, NegativeBinomial):
            return f"give a larger {self.option('dispersion')}"
        if isinstance(self.likelihood, Gaussian) and not self.likelihood.is_sampled:
            return "sample the noise variance in place of giving it"
        if isinstance(self.likelihood, SampledNoiseLikelihood) and not self._varying_was_tried:
            return f"let the noise depend on the inputs, {self.option('likelihood', 'heteroscedastic')}"
        return ""

    def longer_run(self, e: Evidence, factor: int, *, warmup: bool = False) -> str:
        """Return the advice to run `factor` times as long; a budget pays for the warm-up too."""
        if e.is_independent or self.settings.thin is not None:
            return super().longer_run(e, factor, warmup=warmup)
        minutes = float(f"{factor * (self.settings.minutes or MINUTES):.2g}")
        return f"run longer, {self.option('minutes', int(minutes) if minutes.is_integer() else minutes)}"
