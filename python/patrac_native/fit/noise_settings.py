"""The likelihoods that `patrac fit --likelihood` names, and the settings of their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patrac_native.fit.model_settings import ModelSettings
from patrac_native.likelihoods import (
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from patrac_native.likelihoods.negative_binomial import LEAST_DISPERSION
from patrac_native.likelihoods.student_t import MAX_DF

# The values of `likelihood`, and those of them whose targets are counts.
LIKELIHOODS = ("gaussian", "student-t", "heteroscedastic", "poisson", "negative-binomial")
COUNTS = ("poisson", "negative-binomial")
# Four degrees of freedom have tails that are heavy enough for outliers, and a variance.
DF = 4.0
# Between these `fit_arrays` chooses for a target of numbers, in the order in which it tries them. The last is the
# default where it has no choice.
NOISE_CHOICES = (HeteroscedasticGaussian(), Gaussian("sampled"))
# The likelihoods to which a setting belongs.
_OWNERS = {
    "noise_variance": ("gaussian",),
    "df": ("student-t",),
    "dispersion": ("negative-binomial",),
    "exposure": COUNTS,
}


@dataclass(frozen=True, kw_only=True)
class NoiseSettings(ModelSettings):
    """The settings of the noise of a fit to a table, beside those of `ModelSettings`.

    Attributes
    ----------
    likelihood : {"gaussian", "student-t", "heteroscedastic", "poisson", "negative-binomial"}, optional
        The distribution of a target that is a number; the last two are of counts. By default `choose_posterior`
        chooses between "heteroscedastic" and "gaussian" with the architecture; without a choice it is "gaussian".
    noise_variance : float, optional
        Of "gaussian": the variance in the target's units squared, > 0; by default it is sampled, under a prior that is
        worth four residuals of validation rows.
    df : float, optional
        Of "student-t": degrees of freedom, from 1 to 1e8; default 4. The scale is sampled.
    dispersion : float, optional
        Of "negative-binomial", whose variance is mean + dispersion mean^2: at least 1e-8; by default it is estimated
        (`estimate_dispersion`).
    exposure : str, optional
        Of counts: the column of the exposure, positive numbers to which the mean count is proportional; by name or by
        number from 0.
    """

    likelihood: str | None = None
    noise_variance: float | None = None
    df: float | None = None
    dispersion: float | None = None
    exposure: str | None = None

    @property
    def noise_option(self) -> str:
        """How a known noise variance is given, for messages."""
        alone = self.likelihood in (None, "gaussian")
        variance = self.option("noise_variance")
        return variance if alone else f"{self.option('likelihood', 'gaussian')} with {variance}"

    @property
    def of_counts(self) -> bool:
        """Whether the targets are counts."""
        return self.likelihood in COUNTS

    def outputs_per_target(self, task: str) -> int:
        """Return the largest number of outputs of the network for each target."""
        if task == "classification" or self.of_counts:
            return 1
        return max(one.outputs_per_target for one in self.likelihoods_of(task))

    def check_noise(self) -> None:
        """Raise ValueError if a setting is outside its range, or belongs to another likelihood."""
        if self.likelihood is not None and self.likelihood not in LIKELIHOODS:
            raise ValueError(
                f"{self.option('likelihood')} must be one of {', '.join(LIKELIHOODS)}; got {self.likelihood!r}."
            )
        for name, owners in _OWNERS.items():
            if getattr(self, name) is None or (self.likelihood or "gaussian") in owners:
                continue
            meant = " or ".join(self.option("likelihood", owner) for owner in owners)
            got = "not given" if self.likelihood is None else self.option("likelihood", self.likelihood)
            raise ValueError(
                f"{self.option(name)} belongs to {meant}, and the likelihood is {got}; give {meant}, or leave "
                f"{self.option(name)} out."
            )
        if self.noise_variance is not None and not 0 < self.noise_variance < float("inf"):
            raise ValueError(f"{self.option('noise_variance')} must be positive and finite; got {self.noise_variance}.")
        if self.df is not None and not 1 <= self.df <= MAX_DF:
            raise ValueError(f"{self.option('df')} must be from 1 to {MAX_DF:g}; got {self.df:g}.")
        if self.dispersion is not None and not LEAST_DISPERSION <= self.dispersion < float("inf"):
            raise ValueError(
                f"{self.option('dispersion')} must be at least {LEAST_DISPERSION:g} and finite; got "
                f"{self.dispersion:g}. {self.option('likelihood', 'poisson')} is the limit of dispersion 0."
            )

    def check_task(self, task: str) -> None:
        """Raise ValueError if a setting has no meaning for a task."""
        if task != "classification":
            return
        if self.likelihood is not None:
            raise ValueError(
                f"{self.option('likelihood', self.likelihood)} is a distribution of numbers, and this is a "
                f"classification; leave it out, or give {self.option('task', 'regression')} if the target holds "
                "numbers."
            )
        if self.noise_variance is not None:
            raise ValueError(
                f"{self.option('noise_variance')} is the variance of the noise of a regression, and this is a "
                f"classification; leave it out, or give {self.option('task', 'regression')}."
            )

    def likelihoods_of(self, task: str, dispersion: float | None = None) -> Sequence[Likelihood]:
        """Return the likelihoods of the targets in their units between which `fit_arrays` chooses; often one.

        Parameters
        ----------
        task : {"regression", "classification"}
        dispersion : float, optional
            Of "negative-binomial": what was estimated, if the settings give none.
        """
        if task == "classification":
            return [Categorical()]
        if self.likelihood is None and self.noise_variance is None:
            return NOISE_CHOICES
        if self.likelihood == "student-t":
            return [StudentT(DF if self.df is None else self.df, "sampled")]
        if self.likelihood == "heteroscedastic":
            return [HeteroscedasticGaussian()]
        if self.likelihood == "poisson":
            return [Poisson()]
        if self.likelihood == "negative-binomial":
            found = self.dispersion if dispersion is None else dispersion
            assert found is not None  # it is given or was estimated
            return [NegativeBinomial(found)]
        return [Gaussian("sampled" if self.noise_variance is None else self.noise_variance)]
