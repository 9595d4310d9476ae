"""The summary of a run: means, intervals and convergence in function space."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics import ConvergenceSummary, convergence, credible_interval, ess_geyer, ess_paper
from patrac_native.draws.calibration import Calibration
from patrac_native.draws.evidence import Evidence, gather
from patrac_native.draws.verdict import Verdict, judge
from patrac_native.model.architectures import Architecture
from patrac_native.validation.checks import FloatArray


@dataclass(frozen=True)
class ScaleSummary:
    """The sampled variances of a prior: posterior means, intervals and convergence.

    Attributes
    ----------
    names : tuple of G str
        Such as "layer 1 weights".
    mean, lower, upper : ndarray, shape (G,)
        Posterior mean of sigma2 and the ends of its central interval.
    coverage : float
        Posterior probability of the interval.
    log : ConvergenceSummary
        R-hat, ESS and MCSE of log sigma2, shape (G,).
    """

    names: tuple[str, ...]
    mean: FloatArray
    lower: FloatArray
    upper: FloatArray
    coverage: float
    log: ConvergenceSummary

    def lines(self) -> list[str]:
        """Return the lines of the summary's table."""
        width = max(len(name) for name in self.names)
        return [
            f"  sampled sigma2 of the prior (max R-hat {self.log.max_rhat:.3f}, min bulk ESS "
            f"{self.log.min_ess_bulk:.0f}): mean and {self.coverage:.0%} interval",
            *(
                f"    {name:<{width}}  {mean:.3g} ({lower:.3g} to {upper:.3g})"
                for name, mean, lower, upper in zip(self.names, self.mean, self.lower, self.upper, strict=True)
            ),
        ]


@dataclass(frozen=True)
class Summary:
    """The summary of a run, as `Draws.summary` returns it; its string is a table.

    Attributes
    ----------
    label : str
        Label of the architecture, or of the target.
    sampler : str
        The kernel of the run, such as "MGrad(collapse=True)", or the name of another sampler.
    quantity : str
        What is summarised: the network's outputs, such as "f", or "class probabilities" for Categorical, whose logits
        are determined only up to a common shift; of a Target, "theta" or "predictions".
    n_chains, n_draws, thin : int
        Numbers of chains, of draws of each chain, and of steps for each draw; with draws from elsewhere, the number of
        given draws for each kept one.
    mean, sd, lower, upper : ndarray, shape (n, m)
        Mean, standard deviation and ends of the central interval of the quantity at the summarised inputs.
    coverage : float
        Posterior probability of the interval.
    function : ConvergenceSummary
        R-hat, ESS and MCSE of the quantity at every input.
    log_likelihood : ConvergenceSummary
        R-hat, ESS and MCSE of the log-likelihood.
    ess_paper, ess_geyer : float
        Effective sample size of the quantity, from its autocorrelation averaged over the inputs: by the paper's sum
        over lags up to 1000 or a tenth of the draws, and by Geyer's initial monotone sequence.
    acceptance_rate, step_size : ndarray of shape (chain,), or None
        Means over draws; None for draws of another sampler.
    prior_scales : ScaleSummary or None
        The sampled variances of the prior; None if they are fixed.
    seconds, steps_per_second : float
        Wall-clock time of the run and its speed, warm-up included; NaN if not known.
    evidence : Evidence
        The numbers that determine the verdict.
    points : str
        What the quantity is summarised at: "inputs", or "entries" of theta.
    """

    label: str
    sampler: str
    quantity: str
    n_chains: int
    n_draws: int
    thin: int
    mean: FloatArray
    sd: FloatArray
    lower: FloatArray
    upper: FloatArray
    coverage: float
    function: ConvergenceSummary
    log_likelihood: ConvergenceSummary
    ess_paper: float
    ess_geyer: float
    acceptance_rate: FloatArray | None
    step_size: FloatArray | None
    prior_scales: ScaleSummary | None
    seconds: float
    steps_per_second: float
    evidence: Evidence
    points: str = "inputs"

    def verdict(self) -> Verdict:
        """Return the verdict on the run, "good", "look" or "do not use", with every reason and its remedy."""
        return judge(self.evidence)

    def with_calibration(self, calibration: Calibration) -> Summary:
        """Return the summary with scores of rows that the draws have not seen, which its verdict then considers."""
        return replace(self, evidence=replace(self.evidence, calibration=calibration))

    def __str__(self) -> str:
        spread = self.upper - self.lower
        speed = f"; {self.steps_per_second:,.0f} steps/s" if np.isfinite(self.steps_per_second) else ""
        duration = f", {self.seconds:.1f} s" if np.isfinite(self.seconds) else ""
        if self.acceptance_rate is None:
            steps = "steps: not recorded"
        else:
            steps = f"acceptance by chain: {', '.join(f'{rate:.2f}' for rate in self.acceptance_rate)}{speed}"
        lines = [
            f"{self.label} by {self.sampler}: {self.n_chains} chains x {self.n_draws} draws (thin {self.thin})"
            f"{duration}",
            f"  {self.quantity} at {self.mean.shape[0]} {self.points}: posterior sd {self.sd.min():.3g} to "
            f"{self.sd.max():.3g}, {self.coverage:.0%} interval width {spread.min():.3g} to {spread.max():.3g}",
            f"  {self.quantity}: max R-hat {self.function.max_rhat:.3f}, min bulk ESS "
            f"{self.function.min_ess_bulk:.0f}, min tail ESS {self.function.min_ess_tail:.0f}, "
            f"max MCSE {self.function.max_mcse:.2g}",
            f"  log-likelihood: R-hat {self.log_likelihood.max_rhat:.3f}, "
            f"bulk ESS {self.log_likelihood.min_ess_bulk:.0f}",
            f"  ESS averaged over {self.points}: {self.ess_geyer:.0f} (Geyer), {self.ess_paper:.0f} (the paper's sum "
            "of lags)",
            f"  {steps}",
            *([] if self.prior_scales is None else self.prior_scales.lines()),
            "  verdict: " + str(self.verdict()).replace("\n", "\n    "),
        ]
        return "\n".join(lines)


def summarise(
    values: npt.NDArray[Any],
    quantity: str,
    coverage: float,
    *,
    label: str,
    architecture: Architecture | None,
    scale_names: tuple[str, ...],
    stats: Mapping[str, npt.NDArray[Any]],
    settings: Mapping[str, Any],
    sampler: str,
    steps_per_second: float,
    points: str = "inputs",
) -> Summary:
    """Build the summary of a run.

    Parameters
    ----------
    values : ndarray, shape (chain, draw, n, m)
        Draws of the quantity at n inputs.
    quantity : str
        Name of the quantity, such as "f".
    coverage : float
        Posterior probability of the central intervals, in (0, 1).
    label : str
        Label of what was sampled.
    architecture : Architecture or None
        None for a density without a network.
    scale_names : tuple of str
        Names of the sampled variances of the prior; empty if they are fixed.
    stats, settings : mapping
        As in `Draws`.
    sampler : str
        Name of what made the draws.
    steps_per_second : float
    points : str
        What the second axis but one of `values` counts, in words; default "inputs".

    Returns
    -------
    Summary

    Raises
    ------
    ValueError
        If `coverage` is outside (0, 1), or there are fewer than 4 draws.
    """
    lower, upper = credible_interval(values, coverage)
    function, log_likelihood = convergence(values), convergence(stats["log_likelihood"])
    n_chains, n_draws = values.shape[:2]
    flat = values.reshape(-1, *values.shape[2:]).astype(np.float64)
    return Summary(
        label=label,
        sampler=sampler,
        quantity=quantity,
        n_chains=n_chains,
        n_draws=n_draws,
        thin=settings["thin"],
        mean=flat.mean(axis=0),
        sd=flat.std(axis=0),
        lower=lower,
        upper=upper,
        coverage=coverage,
        function=function,
        log_likelihood=log_likelihood,
        # Lags above a tenth of the draws are mostly noise, which would dominate the paper's plain sum.
        ess_paper=ess_paper(values, max_lag=max(1, min(1000, n_draws // 10))),
        ess_geyer=ess_geyer(values),
        acceptance_rate=stats["acceptance_rate"].mean(axis=1) if "acceptance_rate" in stats else None,
        step_size=stats["step_size"].mean(axis=1) if "step_size" in stats else None,
        prior_scales=_summarise_scales(stats["prior_scales"], scale_names, coverage) if scale_names else None,
        seconds=settings.get("seconds", math.nan),
        steps_per_second=steps_per_second,
        evidence=gather(
            values,
            quantity,
            function,
            log_likelihood.max_rhat,
            architecture=architecture,
            sampler=sampler,
            stats=stats,
            settings=settings,
        ),
        points=points,
    )


def _summarise_scales(scales: FloatArray, names: tuple[str, ...], coverage: float) -> ScaleSummary:
    """Return the summary of sampled variances of the prior, (chain, draw, G)."""
    lower, upper = np.quantile(scales, [(1 - coverage) / 2, (1 + coverage) / 2], axis=(0, 1))
    return ScaleSummary(names, scales.mean(axis=(0, 1)), lower, upper, coverage, convergence(np.log(scales)))
