"""The options of a study, and the sampling settings that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from patrac_native.diagnostics.regression import QuantileMethod
from patrac_native.kernels import PCNL, Kernel
from patrac_native.sampling.warmup import paper_warmup
from patrac_native.studies.experiment import ESS_THIN, SamplingSettings

# Number of steps of the paper's warm-up; a quick study runs a share of them.
PAPER_WARMUP = 650_000
_QUANTILES: dict[str, QuantileMethod] = {"weibull": "weibull", "paper": "inverted_cdf"}


@dataclass(frozen=True)
class StudySize:
    """The default length of a study.

    Attributes
    ----------
    replicates : int
        Number of independent data sets.
    steps, quick_steps : int
        Number of steps of each chain after its warm-up, for the full and for the quick study.
    quick_warmup : float
        Share of the paper's warm-up that the quick study runs.
    auto_steps, quick_auto_steps : int
        The same as `steps` and `quick_steps` for `kernel="auto"`.
    auto_steps_by_model : mapping of str to int
        Numbers of steps, by label, in place of `auto_steps`.
    """

    replicates: int
    steps: int
    quick_steps: int
    quick_warmup: float
    auto_steps: int
    quick_auto_steps: int
    auto_steps_by_model: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyOptions:
    """The options of a study.

    Attributes
    ----------
    out : Path
        Folder for report.html, summary.json and results.csv.
    replicates : int
        Number of independent data sets, at least 1; default 1.
    quick : bool
        Whether to run shorter chains; default False.
    seed : int
        Seed of data, training and chains, >= 0; default 0.
    threads : int, optional
        Number of chains that run at the same time on this machine; by default the number of processors that this
        process may use.
    steps : int, optional
        Number of steps of each chain after its warm-up, a multiple of `draws`; by default that of the `StudySize`.
    draws : int
        Number of draws for the scores; default 500.
    paper_training : bool
        Whether to train networks with the paper's settings, which is very slow; default False.
    kernel : {"pcnl", "auto"}
        "pcnl", the default, is the paper's kernel with its warm-up; "auto" is the package's choice for each posterior,
        with the warm-up that ends by itself.
    quantiles : {"weibull", "paper"}
        How the ends of intervals are estimated: "weibull", the default, at position b (M + 1) of M sorted draws;
        "paper", the estimator of its section 4.2, at position b M rounded up.
    scheduler : str
        "threads", the default, "processes" or "dask://host:port": where networks are trained and chains run.
    adapt_always : bool
        Whether to adapt the step size while sampling, as the paper does; default False.
    warmup_factor : float, optional
        Length of the warm-up as a multiple of the paper's.
    max_epochs : int, optional
        Maximum number of training epochs.
    """

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
        """Check numbers before anything is written, since a folder with pieces refuses other settings.

        Raises
        ------
        ValueError
            If a number is out of its range; the message names its option.
        """
        for name, least in {"replicates": 1, "seed": 0, "threads": 1, "steps": 1, "draws": 1, "max_epochs": 1}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"--{name.replace('_', '-')} must be at least {least}; got {value}.")
        if self.seed >= 2**63:
            raise ValueError(f"--seed must be below 2^63; got {self.seed}.")
        if self.steps is not None and self.steps % self.draws:
            raise ValueError(f"--steps must be a multiple of --draws; got {self.steps} and {self.draws}.")

    def sampling(self, size: StudySize) -> SamplingSettings:
        """Return the settings of the chains: the paper's but for the lengths of quick chains, or those of "auto".

        Raises
        ------
        ValueError
            If the kernel is "auto" and an option of the paper's kernel is given.
        """
        if self.kernel == "auto":
            for given, option in ((self.adapt_always, "--adapt-always"), (self.warmup_factor, "--warmup-factor")):
                if given:
                    raise ValueError(f"{option} needs --kernel pcnl: it changes the paper's kernel or warm-up.")
            steps = size.quick_auto_steps if self.quick else size.auto_steps
            return SamplingSettings(
                steps=self.steps or steps,
                draws=self.draws,
                kernel="auto",
                quantiles=_QUANTILES[self.quantiles],
                steps_by_model={} if self.steps or self.quick else size.auto_steps_by_model,
            )
        factor = self.warmup_factor or (size.quick_warmup if self.quick else 1.0)
        kernel: Kernel = PCNL(adapt="always" if self.adapt_always else "warmup")
        return SamplingSettings(
            steps=self.steps or (size.quick_steps if self.quick else size.steps),
            draws=self.draws,
            warmup=paper_warmup().scaled(factor),
            kernel=kernel,
            quantiles=_QUANTILES[self.quantiles],
        )

    def identity(self, study: str, data: str | None = None) -> dict[str, Any]:
        """Return what determines a finished piece of the study beside its number, as JSON-able values."""
        names = ("quick", "seed", "steps", "draws", "paper_training", "kernel", "adapt_always", "warmup_factor")
        content = {name: getattr(self, name) for name in (*names, "max_epochs", "quantiles")}
        content |= {"ess_thin": ESS_THIN, "version": version("patrac_native")}
        return {"study": study, "data": data, **content}

    def to_dict(self) -> dict[str, Any]:
        """Return the options that were given or have a default."""
        return {name: value for name, value in asdict(self).items() if value is not None}
