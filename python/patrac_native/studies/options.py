"""What a study is asked to do, and the sampling settings that this stands for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from patrac_native.model.kernels import PCNL
from patrac_native.sampling.warmup import paper_warmup
from patrac_native.studies.experiment import SamplingSettings

# Steps of the paper's warm-up, of which a quick study takes a share.
PAPER_WARMUP = 650_000


@dataclass(frozen=True)
class StudySize:
    """How long a study runs by default.

    Attributes
    ----------
    replicates : int
        Independent data sets.
    steps, quick_steps : int
        Of each chain after its warm-up, in full and in the quick form.
    quick_warmup : float
        Share of the paper's warm-up in the quick form.
    """

    replicates: int
    steps: int
    quick_steps: int
    quick_warmup: float


@dataclass(frozen=True)
class StudyOptions:
    """What a study is asked to do.

    Attributes
    ----------
    out : Path
        Folder for report.html, summary.json and replicates.csv.
    replicates : int
        Independent data sets.
    quick : bool
        Whether chains are shorter.
    seed : int
        Of data, training and chains.
    threads : int, optional
        Chains that run side by side; by default all processors.
    steps : int, optional
        Of each chain after its warm-up, a multiple of `draws`; by default as the study's size has it.
    draws : int
        Used for scores.
    paper_training : bool
        Whether networks are trained as in the paper: very slow.
    adapt_always : bool
        Whether the step size keeps adapting while sampling, as in the paper.
    warmup_factor : float, optional
        Multiple of the paper's warm-up.
    max_epochs : int, optional
        Of the training.
    """

    out: Path
    replicates: int = 1
    quick: bool = False
    seed: int = 0
    threads: int | None = None
    steps: int | None = None
    draws: int = 500
    paper_training: bool = False
    adapt_always: bool = False
    warmup_factor: float | None = None
    max_epochs: int | None = None

    def sampling(self, size: StudySize) -> SamplingSettings:
        """Return the settings of the chains: the paper's, or in the quick form a share of them."""
        factor = self.warmup_factor or (size.quick_warmup if self.quick else 1.0)
        return SamplingSettings(
            steps=self.steps or (size.quick_steps if self.quick else size.steps),
            draws=self.draws,
            warmup=paper_warmup().scaled(factor),
            kernel=PCNL(adapt="always" if self.adapt_always else "warmup"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the options that were given or have a default."""
        return {name: value for name, value in asdict(self).items() if value is not None}
