"""The options of a study, and the sampling settings that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import patrac_native as pn

Quantiles = Literal["weibull", "inverted_cdf"]

# Number of steps of the paper's warm-up; a quick study runs a share of them.
PAPER_WARMUP = 650_000
_QUANTILES: dict[str, Quantiles] = {"weibull": "weibull", "paper": "inverted_cdf"}
# The ESS is computed from every fourth state, or from fewer if their theta would take more than this many bytes. Fewer
# states have a smaller ESS where chains integrate output weights out, since they draw them independently for each state
# that is kept.
ESS_THIN = 4
MAX_KEPT_BYTES = 192 * 2**20


@dataclass(frozen=True)
class SamplingSettings:
    """How each posterior is sampled."""

    steps: int  # of each chain after its warm-up, a multiple of `draws`
    draws: int  # of each chain, for scores, intervals and plots
    chains: int = 1
    warmup: str | int | pn.Warmup = "auto"
    kernel: str | pn.PCNL = field(default_factory=pn.PCNL)
    threads: int = 1
    progress: bool | None = False
    quantiles: Quantiles = "weibull"  # the estimator of the ends of intervals, as in `diagnostics.coverage`
    steps_by_model: Mapping[str, int] = field(default_factory=dict)  # that differ from `steps`, by label

    def __post_init__(self) -> None:
        if self.steps % self.draws:
            raise ValueError(f"steps must be a multiple of draws; got steps={self.steps}, draws={self.draws}.")

    @property
    def thin(self) -> int:
        """Number of steps for each scored draw."""
        return self.steps // self.draws

    def of_model(self, label: str) -> SamplingSettings:
        """Return the settings of one model, with its own number of steps."""
        return replace(self, steps=self.steps_by_model.get(label, self.steps), steps_by_model={})

    def ess_thin(self, dim: int, itemsize: int = 4) -> int:
        """Return the least divisor of `thin` for which theta takes at most MAX_KEPT_BYTES, or `thin` itself."""
        minimum = self.chains * self.steps * dim * itemsize / MAX_KEPT_BYTES
        divisors = (value for value in range(min(ESS_THIN, self.thin), self.thin) if self.thin % value == 0)
        return next((value for value in divisors if value >= minimum), self.thin)


@dataclass(frozen=True)
class StudySize:
    """The default length of a study; "quick" is that of `--quick`, "auto" that of `kernel="auto"`."""

    replicates: int
    steps: int  # of each chain after its warm-up
    quick_steps: int
    quick_warmup: float  # share of the paper's warm-up
    auto_steps: int
    quick_auto_steps: int
    auto_steps_by_model: Mapping[str, int] = field(default_factory=dict)  # in place of `auto_steps`, by label


@dataclass(frozen=True)
class StudyOptions:
    """The options of a study, each the option of the command line of the same name, which documents it."""

    out: Path
    replicates: int = 1
    quick: bool = False
    seed: int = 0
    threads: int | None = None
    steps: int | None = None
    draws: int = 500
    paper_training: bool = False
    kernel: str = "pcnl"
    quantiles: str = "weibull"
    scheduler: str = "threads"
    adapt_always: bool = False
    warmup_factor: float | None = None
    max_epochs: int | None = None

    def __post_init__(self) -> None:
        """Check numbers before anything is written, since a folder with pieces refuses other settings."""
        for name in ("replicates", "seed", "threads", "steps", "draws", "max_epochs"):
            value, least = getattr(self, name), 0 if name == "seed" else 1
            if value is not None and value < least:
                raise ValueError(f"--{name.replace('_', '-')} must be at least {least}; got {value}.")
        if self.seed >= 2**63:
            raise ValueError(f"--seed must be below 2^63; got {self.seed}.")
        if self.steps is not None and self.steps % self.draws:
            raise ValueError(f"--steps must be a multiple of --draws; got {self.steps} and {self.draws}.")

    def sampling(self, size: StudySize) -> SamplingSettings:
        """Return the settings of the chains: the paper's but for the lengths of quick chains, or those of "auto"."""
        quantiles = _QUANTILES[self.quantiles]
        if self.kernel == "auto":
            for given, option in ((self.adapt_always, "--adapt-always"), (self.warmup_factor, "--warmup-factor")):
                if given:
                    raise ValueError(f"{option} needs --kernel pcnl: it changes the paper's kernel or warm-up.")
            steps = self.steps or (size.quick_auto_steps if self.quick else size.auto_steps)
            by_model = {} if self.steps or self.quick else size.auto_steps_by_model
            return SamplingSettings(steps, self.draws, kernel="auto", quantiles=quantiles, steps_by_model=by_model)
        return SamplingSettings(
            self.steps or (size.quick_steps if self.quick else size.steps),
            self.draws,
            warmup=pn.paper_warmup().scaled(self.warmup_factor or (size.quick_warmup if self.quick else 1.0)),
            kernel=pn.PCNL(adapt="always" if self.adapt_always else "warmup"),
            quantiles=quantiles,
        )

    def identity(self, study: str, data: str | None = None) -> dict[str, Any]:
        """Return what determines a finished piece of the study beside its number, as JSON-able values."""
        anywhere = ("out", "replicates", "threads", "scheduler")  # a piece is the same whatever these are
        content = {name: value for name, value in asdict(self).items() if name not in anywhere}
        return {"study": study, "data": data, **content, "ess_thin": ESS_THIN}

    def to_dict(self) -> dict[str, Any]:
        """Return the options that were given or have a default."""
        return {name: value for name, value in asdict(self).items() if value is not None}
