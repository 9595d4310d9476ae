"""Summaries of draws and of mixtures of them: means, intervals, convergence in function space, and the verdict."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics import ConvergenceSummary, convergence, credible_interval, nested_rhat
from patrac_native.diagnostics.mixing import (
    MeanAutocorrelation,
    chain_halves,
    convergence_reporting,
    geyer_ess_of,
    joined,
    paper_ess_of,
    worst,
)
from patrac_native.draws.chain_draws import PER_DRAW, ChainDraws, listed, sampler_of
from patrac_native.likelihoods import Likelihood
from patrac_native.plots.table import html_table
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.posterior.sampled_density import FitQuality
from patrac_native.validation.checks import FloatArray
from patrac_native.verdict.calibration import Calibration
from patrac_native.verdict.evidence import Evidence, FittedNoise, StepRecord
from patrac_native.verdict.rerun_error import RerunError
from patrac_native.verdict.verdict import WHOLE_KINDS, Finding, Verdict, judge, verdict_of

# The verdict on a mixture leaves out members of less weight than this, which hardly contribute to predictions.
_LEAST_WEIGHT = 0.01
# Fewest draws of a chain for R-hat, and to tell whether it moves as the others do.
_FEWEST_DRAWS, _FEWEST_OF_CHAIN = 4, 20


class _Table(ABC):
    """What summaries have in common: a table of labels and values under a title, with the verdict at its end."""

    @abstractmethod
    def verdict(self) -> Verdict:
        """Return the verdict."""

    @abstractmethod
    def _title(self) -> str:
        """Return what was run, in a line."""

    @abstractmethod
    def _rows(self) -> list[tuple[str, str]]:
        """Return labels and values of the table."""

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
class Summary(_Table):
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
    superchains : int or None
        Number of superchains (`Warmup.many_chains`), in which the chains that began at one point count as one chain
        for R-hat and ESS; None where each chain counts.
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
        Means over draws, of superchains if there are any; None for draws of another sampler.
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
    superchains: int | None = None

    def verdict(self) -> Verdict:
        """Return the verdict on predictions and on the posterior, with every reason and its remedy."""
        return judge(self.evidence, self.advice)

    @property
    def rerun_error(self) -> RerunError | None:
        """How far a rerun would move 90% intervals at up to 100 of the inputs; None of a density without targets."""
        return self.evidence.rerun

    def with_rerun_error(self, error: RerunError) -> Summary:
        """Return the summary with the errors of predictions over reruns, which its verdict then considers."""
        return replace(self, evidence=replace(self.evidence, rerun=error))

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
        duration = f", {self.seconds:.1f} s" if np.isfinite(self.seconds) else ""
        size = f"{self.n_chains} chains x {self.n_draws} draws (thin {self.thin})"
        if self.superchains is not None:
            size += f", {self.superchains} superchains"
        return f"{self.label} by {self.sampler}: {size}{duration}"

    def _rows(self) -> list[tuple[str, str]]:
        spread = self.upper - self.lower
        if self.acceptance_rate is None:
            steps = ("steps", "not recorded")
        else:
            speed = f"; {self.steps_per_second:,.0f} steps/s" if np.isfinite(self.steps_per_second) else ""
            unit = "chain" if self.superchains is None else "superchain"
            steps = (f"acceptance by {unit}", listed(self.acceptance_rate) + speed)
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


def _compared_superchains(settings: Mapping[str, Any]) -> int | None:
    """Return the number of superchains that the warm-up of a run compared; None if it compared chains, or none."""
    phases = settings.get("warmup", {}).get("phases", ())
    return next((phase["superchains"] for phase in phases if phase.get("superchains")), None)


def _superchains_of(run: ChainDraws) -> int | None:
    """Return the number of superchains if the warm-up of a run compared such; else None.

    Raises ValueError if they are incomplete and chains too short to be judged one by one.
    """
    starts = np.asarray(run.settings.get("starts", ()))
    if len(starts) != run.n_chains or _compared_superchains(run.settings) is None:
        return None
    sizes = np.unique(starts, return_counts=True)[1]
    if len(sizes) > 1 and np.all(sizes == sizes[0]) and np.all(np.diff(starts) >= 0):
        return len(sizes)
    if run.n_draws < _FEWEST_DRAWS:
        raise ValueError(
            f"these draws have {len(sizes)} superchains of {sizes.min()} to {sizes.max()} chains, and too few draws of "
            f"each chain ({run.n_draws}) to judge chains one by one; take several whole superchains of one size, "
            "draws[:n, :]."
        )
    return None


def _joined(stats: Mapping[str, npt.NDArray[Any]], superchains: int) -> dict[str, npt.NDArray[Any]]:
    """Return statistics of draws and counts of chains with the chains of each superchain as one chain."""
    of_draws = {name: stats[name] for name in PER_DRAW if name in stats}
    found = {name: values.reshape(superchains, -1, *values.shape[2:]) for name, values in of_draws.items()}
    counts = {name: stats[name].reshape(superchains, -1).sum(axis=1) for name in ("nonfinite",) if name in stats}
    return found | counts


def _convergence_of(
    values: npt.NDArray[Any], superchains: int | None, advance: Callable[[int], object] = int
) -> ConvergenceSummary:
    """Evaluate convergence of draws (chain, draw, ...), with the chains of each superchain as one chain.

    Joined one after the other, chains of one start show by the autocorrelation how far they depend on each other. R-hat
    is the larger of this order and of the order in time, whose halves show a drift that all chains share.
    """
    if superchains is None:
        return convergence_reporting(values, (), advance)
    n_draws, groups = values.shape[1], values.reshape(superchains, -1, *values.shape[1:])
    found = convergence_reporting(groups.reshape(superchains, -1, *values.shape[2:]), (), advance)
    if n_draws == 1:
        return found
    in_time = convergence(groups.swapaxes(1, 2).reshape(superchains, -1, *values.shape[2:]))
    return replace(found, rhat=np.maximum(found.rhat, in_time.rhat))


def summarise(
    run: ChainDraws,
    blocks: Iterable[npt.NDArray[Any]],
    quantity: str,
    coverage: float,
    *,
    network: PartialNetwork | None = None,
    likelihood: Likelihood | None = None,
    superchains: npt.ArrayLike | None = None,
    points: str = "inputs",
    advance: Callable[[int], object] = int,
) -> Summary:
    """Build the summary of a run from draws (chain, draw, rows, m) of a quantity, for blocks of inputs.

    `superchains` (chain,) are labels of the chains' starts, by default one for each. `advance` is called with the
    number of entries of (rows, m) that are done.
    """
    stats, settings, n_chains, n_draws = run.stats, run.settings, run.n_chains, run.n_draws
    groups = _superchains_of(run)
    # Whether a chain moves is told by its own draws, if there are enough of them.
    moves_alone = groups is None or n_draws >= _FEWEST_OF_CHAIN
    if groups is not None:
        stats, n_chains, n_draws, superchains = _joined(stats, groups), groups, n_chains * n_draws // groups, None
    of_moves = run.stats if moves_alone else stats
    converged, intervals, nested, squares = [], [], [], np.zeros(run.n_chains if moves_alone else n_chains)
    # Halves of chains tell whether a chain agrees with itself where it shares its start with no other.
    starts = np.tile(np.arange(n_chains) if superchains is None else np.asarray(superchains), 2)
    autocorrelation = MeanAutocorrelation(n_chains, n_draws, max(1, n_draws - 2))
    for block in blocks:
        values = block.reshape(n_chains, n_draws, *block.shape[2:])
        converged.append(_convergence_of(block, groups, advance))
        intervals.append(credible_interval(values, coverage))
        autocorrelation.add(values)
        nested.append(nested_rhat(chain_halves(values), starts))
        moving = block if moves_alone else values
        for row in range(moving.shape[2]):  # a row at a time, for NumPy sums in a copy of float64
            squares += moving[:, :, row].var(axis=1, dtype=np.float64).sum(axis=1)
    function, log_likelihood = joined(converged), _convergence_of(run.stats["log_likelihood"], groups)
    lower, upper = (np.concatenate(ends) for ends in zip(*intervals, strict=True))
    rhat_nested, rhat_within = (worst(np.concatenate(one), np.max) for one in zip(*nested, strict=True))
    rho = autocorrelation.result()
    # Lags above a tenth of the draws are mostly noise, which would dominate the paper's plain sum.
    lags = max(1, min(1000, n_draws // 10))
    total = n_chains * n_draws
    means = {name: stats[name].mean(axis=1) for name in ("acceptance_rate", "step_size") if name in stats}
    seconds, speed = settings.get("seconds", math.nan), math.nan
    if settings.get("completed"):
        speed = run.n_chains * (settings["warmup_steps"] + run.n_draws * settings["thin"]) / seconds
    fit, noise, role = settings.get("fit"), settings.get("fitted_noise"), None
    if network is not None:
        role = network.role_of_network
        if role is None and settings.get("noise_prior") in ("training", "validation"):
            role = "the prior of the noise variance rests on its residuals"
    evidence = Evidence(
        quantity=quantity,
        architecture=None if network is None else type(network.architecture),
        n_chains=n_chains,
        n_draws=n_draws,
        max_rhat=function.max_rhat,
        min_ess_bulk=function.min_ess_bulk,
        max_mcse=function.max_mcse,
        rhat_nested=rhat_nested,
        rhat_within=rhat_within,
        rhat_log_likelihood=log_likelihood.max_rhat,
        log_likelihood=of_moves["log_likelihood"].mean(axis=1),
        # Of few draws it is too small; of a posterior that is normal it is sqrt(K / 2).
        log_likelihood_sd=max(float(np.median(stats["log_likelihood"].std(axis=1))), math.sqrt(0.5 * run._shape[-1])),
        spread=squares / function.mean.size,
        steps=(
            StepRecord.of_run(of_moves, settings, run.n_draws, _compared_superchains(settings))
            if "kernel" in settings
            else None
        ),
        sampler=sampler_of(settings),
        fit=None if fit is None else FitQuality.from_dict(fit),
        role_of_network=role,
        noise=None if noise is None else FittedNoise(**noise),
        likelihood=likelihood,
        fixes_parameters=network is not None and network.fixes_parameters,
    )
    return Summary(
        label=f"Target(K={run.theta.shape[-1]})" if network is None else network.architecture.label(),
        sampler=evidence.sampler,
        quantity=quantity,
        n_chains=run.n_chains,
        n_draws=run.n_draws,
        thin=settings["thin"],
        mean=function.mean,
        sd=function.sd * np.sqrt((total - 1) / total),
        lower=lower,
        upper=upper,
        coverage=coverage,
        function=function,
        log_likelihood=log_likelihood,
        ess_paper=float(paper_ess_of(rho[:, : lags + 1], n_draws).sum()),
        ess_geyer=float(geyer_ess_of(rho, n_draws).sum()),
        acceptance_rate=means.get("acceptance_rate"),
        step_size=means.get("step_size"),
        prior_scales=None if network is None else _summarise_scales(stats, network.scale_names, coverage),
        seconds=seconds,
        steps_per_second=speed,
        gradients=int(stats["gradients"].sum()) if "gradients" in stats else None,
        evidence=evidence,
        points=points,
        superchains=groups,
    )


def _summarise_scales(
    stats: Mapping[str, npt.NDArray[Any]], names: tuple[str, ...], coverage: float
) -> ScaleSummary | None:
    """Return the summary of sampled variances of the prior, (chain, draw, G), if it samples them."""
    if not names:
        return None
    scales = stats["prior_scales"]
    lower, upper = np.quantile(scales, [(1 - coverage) / 2, (1 + coverage) / 2], axis=(0, 1))
    return ScaleSummary(names, scales.mean(axis=(0, 1)), lower, upper, coverage, convergence(np.log(scales)))


@dataclass(frozen=True, repr=False)
class MixtureSummary(_Table):
    """The summary of a mixture, as `DrawsMixture.summary` returns it; its string is a table.

    Attributes
    ----------
    quantity : str
        What is summarised, as in `Summary`.
    weights : ndarray of float64, shape (members,)
    members : tuple of Summary
        The summary of each member at the same inputs.
    mean, sd, lower, upper : ndarray of float64, shape (n, m)
        Mean, standard deviation and ends of the central interval of the quantity under the mixture.
    sd_between : ndarray of float64, shape (n, m)
        Standard deviation of the means of the members: the part of `sd` that one member would not show.
    coverage : float
        Posterior probability of the interval.
    """

    quantity: str
    weights: FloatArray
    members: tuple[Summary, ...]
    mean: FloatArray
    sd: FloatArray
    lower: FloatArray
    upper: FloatArray
    sd_between: FloatArray
    coverage: float

    def with_calibration(self, calibration: Calibration) -> MixtureSummary:
        """Return the summary with scores of the mixture on unseen rows, which its verdict then considers."""
        return replace(self, members=tuple(member.with_calibration(calibration) for member in self.members))

    @property
    def rerun_error(self) -> RerunError | None:
        """How far a rerun would move 90% intervals of the mixture at up to 100 of the inputs."""
        return self.members[0].rerun_error

    def with_rerun_error(self, error: RerunError) -> MixtureSummary:
        """Return the summary with the errors of the mixture's predictions over reruns, as `Summary`."""
        return replace(self, members=tuple(member.with_rerun_error(error) for member in self.members))

    def with_advice(self, advice: Mapping[str, str]) -> MixtureSummary:
        """Return the summary with other remedies in its verdict, as `Summary.with_advice`."""
        return replace(self, members=tuple(member.with_advice(advice) for member in self.members))

    def verdict(self) -> Verdict:
        """Return the verdict on the mixture, that of its worst member, with every finding and its remedy.

        The chains of each member are judged among themselves: members need not agree. Members of less than 1% of the
        weight are left out.
        """
        used = [member for member in range(len(self.members)) if self.weights[member] >= _LEAST_WEIGHT]
        grouped: dict[tuple[str, str], list[tuple[int, Finding]]] = {}
        for member in used:
            for finding in self.members[member].verdict().findings:
                grouped.setdefault((finding.grade, finding.kind), []).append((member, finding))
        # The scores are those of the mixture, and the same in the evidence of each member.
        findings = [
            group[0][1] if group[0][1].kind in WHOLE_KINDS else _of_members(group, len(used))
            for group in grouped.values()
        ]
        rhat = max((self.members[member].function.max_rhat for member in used), default=np.nan)
        ess = min((self.members[member].function.min_ess_bulk for member in used), default=np.nan)
        facts = f"within the {len(used)} members, R-hat is at most {rhat:.3f} and bulk ESS at least {ess:.0f}"
        return verdict_of(self.members[0].evidence, findings, facts)

    def _title(self) -> str:
        first = self.members[0]
        return (
            f"mixture of {len(self.members)} posteriors: {first.label} by {first.sampler}, {first.n_chains} chains x "
            f"{first.n_draws} draws each"
        )

    def _rows(self) -> list[tuple[str, str]]:
        width = self.upper - self.lower
        share = float((self.sd_between**2).mean() / max((self.sd**2).mean(), np.finfo(float).tiny))
        spread = (
            f"posterior sd {self.sd.min():.3g} to {self.sd.max():.3g}, {self.coverage:.0%} interval width "
            f"{width.min():.3g} to {width.max():.3g}\n"
            f"{share:.0%} of the variance of {self.quantity} is between the members"
        )
        of_members = [
            (
                f"member {index + 1}",
                f"weight {weight:.3f}, max R-hat {member.function.max_rhat:.3f}, min bulk ESS "
                f"{member.function.min_ess_bulk:.0f}",
            )
            for index, (weight, member) in enumerate(zip(self.weights, self.members, strict=True))
        ]
        return [(f"{self.quantity} at {self.mean.shape[0]} inputs", spread), *of_members]


def _of_members(group: Sequence[tuple[int, Finding]], count: int) -> Finding:
    """Return findings of one kind as one, which names the members, counted from 1, and shows the first's numbers."""
    members = [str(member + 1) for member, _ in group]
    first = group[0][1]
    if len(group) == 1:
        who = f"member {members[0]}: "
    elif len(group) == count:
        who = f"all {count} members (here member {members[0]}): "
    else:
        who = f"members {', '.join(members[:-1])} and {members[-1]} (here member {members[0]}): "
    return replace(first, what=who + first.what)


def summarise_mixture(
    members: tuple[Summary, ...], weights: FloatArray, blocks: Iterable[npt.NDArray[Any]], coverage: float
) -> MixtureSummary:
    """Build the summary of a mixture from those of its members and equally weighted draws (chain, draw, rows, m)."""
    means = np.stack([member.mean for member in members])
    shares = weights[:, None, None]
    mean = (shares * means).sum(axis=0)
    between = (shares * (means - mean) ** 2).sum(axis=0)
    within = (shares * np.stack([member.sd**2 for member in members])).sum(axis=0)
    intervals = [credible_interval(values, coverage) for values in blocks]
    lower, upper = (np.concatenate(ends) for ends in zip(*intervals, strict=True))
    return MixtureSummary(
        quantity=members[0].quantity,
        weights=weights,
        members=members,
        mean=mean,
        sd=np.sqrt(within + between),
        lower=lower,
        upper=upper,
        sd_between=np.sqrt(between),
        coverage=coverage,
    )
