"""What to do about a finding on a fit, in its settings as the caller gives them: options or parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from patrac_native.draws.evidence import Evidence
from patrac_native.draws.remedies import Remedies
from patrac_native.tabular.model_settings import MINUTES, ModelSettings


@dataclass(frozen=True)
class FitRemedies(Remedies):
    """Advice as settings of a fit.

    Attributes
    ----------
    settings : ModelSettings
    """

    settings: ModelSettings

    def option(self, name: str, value: Any) -> str:
        """Return how the caller gives a setting."""
        return self.settings.option(name, value)

    @property
    def double_precision(self) -> str:
        """How to compute in double precision."""
        return self.option("dtype", "float64")

    def longer_run(self, e: Evidence, factor: int, *, warmup: bool = False) -> str:
        """Return the advice to run `factor` times as long; a budget pays for the warm-up too."""
        if e.is_independent or self.settings.thin is not None:
            return super().longer_run(e, factor, warmup=warmup)
        minutes = float(f"{factor * (self.settings.minutes or MINUTES):.2g}")
        return f"run longer, {self.option('minutes', int(minutes) if minutes.is_integer() else minutes)}"
