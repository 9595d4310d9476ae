"""The result of a fit to a table, with everything that its report and files contain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture
from patrac_native.draws.mixture_summary import MixtureSummary
from patrac_native.draws.summary import Summary
from patrac_native.fit.evaluation import Evaluation
from patrac_native.fit.fit_data import FitData
from patrac_native.fit.fit_settings import FitSettings
from patrac_native.fit.pilots import Trial
from patrac_native.validation.checks import FloatArray


@dataclass(frozen=True)
class FitResult:
    """The result of a fit.

    Attributes
    ----------
    settings : FitSettings
    data : FitData
    description : str
        `Posterior.describe()`, of the first network.
    draws : Draws or DrawsMixture
        A mixture if there are several networks.
    evaluation : Evaluation
        Scores of the held-out rows; if there are none, leave-one-out scores of training rows.
    summary : Summary
        Summary of the draws at the inputs `grid`.
    grid : ndarray of float64, shape (rows, d)
    seconds : dict of str to float
        Wall-clock time of each stage.
    trials : sequence of Trial
        The pilot runs by which the posterior was chosen; empty if there was no choice.
    networks : int
        Number of networks whose posteriors were to be sampled.
    """

    settings: FitSettings
    data: FitData
    description: str
    draws: Draws | DrawsMixture
    evaluation: Evaluation
    summary: Summary | MixtureSummary
    grid: FloatArray
    seconds: dict[str, float]
    trials: Sequence[Trial]
    networks: int = 1

    @property
    def interruption(self) -> str:
        """What Ctrl-C left of the run, in words; empty if the run was completed."""
        members = self.draws.members
        if all(member.settings["completed"] for member in members) and len(members) == self.networks:
            return ""
        asked = members[0].settings["draws_asked"]
        of_networks = f" of {len(members)} of {self.networks} networks" if self.networks > 1 else ""
        return f"after {self.draws.n_draws} of {asked} draws of each chain{of_networks}"
