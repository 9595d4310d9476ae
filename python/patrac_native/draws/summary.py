"""The summary of a run: means, intervals and convergence in function space."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics import ConvergenceSummary, Interval, convergence, credible_interval
from patrac_native.diagnostics.ess import MeanAutocorrelation, geyer_ess_of, paper_ess_of
from patrac_native.diagnostics.rhat import joined
from patrac_native.draws.chain_draws import sampler_of
from patrac_native.likelihoods import Likelihood
from patrac_native.plots.table import html_table
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.validation.checks import FloatArray
from patrac_native.verdict.calibration import Calibration
from patrac_native.verdict.evidence import Evidence, gather
from patrac_native.verdict.verdict import Verdict, judge


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

    def row(self) -> tuple[str, str]:
        """Return label and value of the summary's table, with a line for each variance."""
        width = max(len(name) for name in self.names)
        lines = [f"mean and {self.coverage:.0%} interval"] + [
            f"{name:<{width}}  {mean:.3g} ({lower:.3g} to {upper:.3g})"
            for name, mean, lower, upper in zip(self.names, self.mean, self.lower, self.upper, strict=True)
        ]
        convergence_of_log = f"max R-hat {self.log.max_rhat:.3f}, min bulk ESS {self.log.min_ess_bulk:.0f}"
        return f"sampled sigma2 of the prior ({convergence_of_log})", "\n".join(lines)


@dataclass(frozen=True, repr=False)
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
    gradients : int or None
        Number of gradients of all chains after the warm-up; None for draws of another sampler.
    evidence : Evidence
        The numbers that determine the verdict.
    points : str
        What the quantity is summarised at: "inputs", or "entries" of theta.
    advice : mapping of str to str
        Texts that replace the remedies of findings of some kinds.
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
    gradients: int | None
    evidence: Evidence
    points: str = "inputs"
    advice: Mapping[str, str] = field(default_factory=dict)

    def verdict(self) -> Verdict:
        """Return the verdict on the run, "good", "look" or "do not use", with every reason and its remedy."""
        return judge(self.evidence, self.advice)

    def with_calibration(self, calibration: Calibration) -> Summary:
        """Return the summary with scores of rows that the draws have not seen, which its verdict then considers."""
        return replace(self, evidence=replace(self.evidence, calibration=calibration))

    def with_advice(self, advice: Mapping[str, str]) -> Summary:
        """Return the summary with other remedies in its verdict.

        Parameters
        ----------
        advice : mapping of str to str
            The remedy of each kind of finding (`Finding.kind`) that is not to have the default one; a sentence.

        Examples
        --------
        >>> def in_minutes(summary, minutes):
        ...     longer = {one.kind: one.longer for one in summary.verdict().findings if one.longer}
        ...     return summary.with_advice({kind: f"run longer, minutes={n * minutes}." for kind, n in longer.items()})
        """
        return replace(self, advice={**self.advice, **advice})

    def _title(self) -> str:
        """Return what was run, in a line."""
        duration = f", {self.seconds:.1f} s" if np.isfinite(self.seconds) else ""
        size = f"{self.n_chains} chains x {self.n_draws} draws (thin {self.thin})"
        return f"{self.label} by {self.sampler}: {size}{duration}"

    def _rows(self) -> list[tuple[str, str]]:
        """Return labels and values of the table."""
        spread = self.upper - self.lower
        if self.acceptance_rate is None:
            steps = ("steps", "not recorded")
        else:
            speed = f"; {self.steps_per_second:,.0f} steps/s" if np.isfinite(self.steps_per_second) else ""
            steps = ("acceptance by chain", ", ".join(f"{rate:.2f}" for rate in self.acceptance_rate) + speed)
        return [
            (
                f"{self.quantity} at {self.mean.shape[0]} {self.points}",
                f"posterior sd {self.sd.min():.3g} to {self.sd.max():.3g}, {self.coverage:.0%} interval width "
                f"{spread.min():.3g} to {spread.max():.3g}",
            ),
            (
                self.quantity,
                f"max R-hat {self.function.max_rhat:.3f}, min bulk ESS {self.function.min_ess_bulk:.0f}, min tail ESS "
                f"{self.function.min_ess_tail:.0f}, max MCSE {self.function.max_mcse:.2g}",
            ),
            (
                "log-likelihood",
                f"R-hat {self.log_likelihood.max_rhat:.3f}, bulk ESS {self.log_likelihood.min_ess_bulk:.0f}",
            ),
            (
                f"ESS averaged over {self.points}",
                f"{self.ess_geyer:.0f} (Geyer), {self.ess_paper:.0f} (the paper's sum of lags)",
            ),
            steps,
            *self._efficiency(),
            *([] if self.prior_scales is None else [self.prior_scales.row()]),
        ]

    def _efficiency(self) -> list[tuple[str, str]]:
        """Return the row with effective draws per gradient and per second, as far as they are known."""
        parts = []
        if self.gradients:
            parts.append(f"{1000 * self.ess_geyer / self.gradients:.3g} per 1,000 gradients after the warm-up")
        if np.isfinite(self.steps_per_second):
            parts.append(f"{self.ess_geyer / self.seconds:.3g} per second of the whole run")
        return [("effective draws (Geyer)", ", ".join(parts))] if parts and np.isfinite(self.ess_geyer) else []

    def __str__(self) -> str:
        rows = [*self._rows(), ("verdict", str(self.verdict()))]
        return "\n".join([self._title(), *(f"  {label}: " + text.replace("\n", "\n    ") for label, text in rows)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the string instead of all arrays in IPython."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return html_table(self._title(), self._rows(), after=self.verdict()._repr_html_())


def summarise(
    blocks: Iterable[npt.NDArray[Any]],
    quantity: str,
    coverage: float,
    *,
    label: str,
    network: PartialNetwork | None,
    likelihood: Likelihood | None,
    scale_names: tuple[str, ...],
    stats: Mapping[str, npt.NDArray[Any]],
    settings: Mapping[str, Any],
    points: str = "inputs",
) -> Summary:
    """Build the summary of a run from draws (chain, draw, rows, m) of a quantity at blocks of inputs."""
    parts = _Parts(coverage)
    for block in blocks:
        parts.add(block)
    function, log_likelihood = joined(parts.convergence), convergence(stats["log_likelihood"])
    (n_chains, n_draws), sampler = parts.shape, sampler_of(settings)
    lower, upper = (np.concatenate(ends) for ends in zip(*parts.intervals, strict=True))
    rho = parts.autocorrelation.result()
    # Lags above a tenth of the draws are mostly noise, which would dominate the paper's plain sum.
    lags = max(1, min(1000, n_draws // 10))
    return Summary(
        label=label,
        sampler=sampler,
        quantity=quantity,
        n_chains=n_chains,
        n_draws=n_draws,
        thin=settings["thin"],
        mean=function.mean,
        sd=np.concatenate(parts.sd),
        lower=lower,
        upper=upper,
        coverage=coverage,
        function=function,
        log_likelihood=log_likelihood,
        ess_paper=float(paper_ess_of(rho[:, : lags + 1], n_draws).sum()),
        ess_geyer=float(geyer_ess_of(rho, n_draws).sum()),
        acceptance_rate=stats["acceptance_rate"].mean(axis=1) if "acceptance_rate" in stats else None,
        step_size=stats["step_size"].mean(axis=1) if "step_size" in stats else None,
        prior_scales=_summarise_scales(stats["prior_scales"], scale_names, coverage) if scale_names else None,
        seconds=settings.get("seconds", math.nan),
        steps_per_second=_steps_per_second(settings, n_chains, n_draws),
        gradients=int(stats["gradients"].sum()) if "gradients" in stats else None,
        evidence=gather(
            (n_chains, n_draws),
            parts.spread,
            quantity,
            function,
            log_likelihood.max_rhat,
            network=network,
            likelihood=likelihood,
            sampler=sampler,
            stats=stats,
            settings=settings,
        ),
        points=points,
    )


class _Parts:
    """What a summary keeps of blocks of rows, each seen once."""

    def __init__(self, coverage: float) -> None:
        self._coverage = coverage
        self._squares: FloatArray | None = None
        self._points = 0
        self.convergence: list[ConvergenceSummary] = []
        self.intervals: list[Interval] = []
        self.sd: list[FloatArray] = []

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add a block, (chain, draw, rows, m)."""
        chains, draws = values.shape[:2]
        if not self.convergence:
            self.shape = (chains, draws)
            self.autocorrelation = MeanAutocorrelation(chains, draws, max(1, draws - 2))
            self._squares = np.zeros(chains)
        self.convergence.append(convergence(values))
        self.intervals.append(credible_interval(values, self._coverage))
        total = chains * draws
        self.sd.append(self.convergence[-1].sd * np.sqrt((total - 1) / total))
        self.autocorrelation.add(values)
        assert self._squares is not None
        for row in range(values.shape[2]):  # a row at a time, for NumPy sums in a copy of float64
            self._squares += values[:, :, row].var(axis=1, dtype=np.float64).sum(axis=1)
        self._points += values.shape[2] * values.shape[3]

    @property
    def spread(self) -> FloatArray:
        """Variance of each chain over its draws, averaged over rows and outputs, shape (chain,)."""
        assert self._squares is not None
        return self._squares / self._points


def _steps_per_second(settings: Mapping[str, Any], n_chains: int, n_draws: int) -> float:
    """Return the steps of all chains, warm-up included, for each second; NaN if interrupted or of another sampler."""
    if not settings.get("completed"):
        return math.nan
    steps = n_chains * (settings["warmup_steps"] + n_draws * settings["thin"])
    return float(steps / settings["seconds"])


def _summarise_scales(scales: FloatArray, names: tuple[str, ...], coverage: float) -> ScaleSummary:
    """Return the summary of sampled variances of the prior, (chain, draw, G)."""
    lower, upper = np.quantile(scales, [(1 - coverage) / 2, (1 + coverage) / 2], axis=(0, 1))
    return ScaleSummary(names, scales.mean(axis=(0, 1)), lower, upper, coverage, convergence(np.log(scales)))
