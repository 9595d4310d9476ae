"""The sections that the reports of all runs have in common: convergence, traces, autocorrelation, step sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from patrac_native.diagnostics.mixing import MeanAutocorrelation
from patrac_native.draws.draws import Draws
from patrac_native.draws.summary import Summary
from patrac_native.plots import autocorrelation_plot, trace
from patrac_native.report.report import Report, page_figure

# Chains are shown apart if there are at most so many.
_APART = 8

_HEADERS = (
    "model",
    "chains x draws (thin)",
    "max R-hat",
    "min bulk ESS",
    "min tail ESS",
    "R-hat of log-likelihood",
    "ESS (Geyer)",
    "acceptance",
    "step size",
    "seconds",
    "steps/s",
)
_CAPTION = (
    "Convergence of f (for classes: of the class probabilities) at a set of inputs, and of the log-likelihood of the "
    "training data. R-hat (rank-normalised, split) compares the chains: 1.01 or less is what one wants for reported "
    "quantiles, 1.05 or less serves for means; above that, bands are not to be used, and predictions only if scores "
    "show that they are good. ESS is the number of independent draws that the draws are worth; 400 or more is good."
)


def add_convergence(report: Report, summaries: Mapping[str, Summary]) -> None:
    """Add a table of the convergence of runs, a row for each named summary of draws."""

    def rounded(ess: float) -> int | None:
        return round(ess) if np.isfinite(ess) else None

    rows = [
        [
            name,
            f"{summary.n_chains} x {summary.n_draws} ({summary.thin})",
            f"{summary.function.max_rhat:.3f}",
            rounded(summary.function.min_ess_bulk),
            rounded(summary.function.min_ess_tail),
            f"{summary.log_likelihood.max_rhat:.3f}",
            rounded(summary.ess_geyer),
            None if summary.acceptance_rate is None else f"{summary.acceptance_rate.mean():.2f}",
            None if summary.step_size is None else float(summary.step_size.mean()),
            f"{summary.seconds:.1f}" if np.isfinite(summary.seconds) else None,
            summary.steps_per_second,
        ]
        for name, summary in summaries.items()
    ]
    report.table(_HEADERS, rows, _CAPTION)


def add_run_sections(
    report: Report,
    draws: Draws,
    X: npt.ArrayLike,
    *,
    summary: Summary | None = None,
    description: str | None = None,
    name: str | None = None,
    point: int | None = None,
    point_label: str | None = None,
    classes: Sequence[Any] | None = None,
    level: int = 2,
    verdict: bool = True,
) -> Summary:
    """Add the sections of a run: convergence table, traces, autocorrelation, step sizes, the model in words.

    Parameters
    ----------
    report : Report
    draws : Draws
    X : array_like, shape (n, d)
        Inputs at which f is summarised, tens to a few hundred.
    summary : Summary, optional
        `draws.summary(X)`, if it has been computed already.
    description : str, optional
        `post.describe()`, which is shown unchanged; by default it is left out.
    name : str, optional
        Name of the run; by default the architecture's label.
    point : int, optional
        Row of X for the trace of f; by default the one with the largest R-hat. With classes, the trace is that of the
        probability of the class that is most likely in this row, because a common shift of the logits changes no
        probability.
    point_label : str, optional
        Name of that input in the trace; by default "row <point>".
    classes : sequence, optional
        Names of the classes; by default their numbers.
    level : int
        Level of the heading, 2 (the default) or 3.
    verdict : bool
        Whether to add `summary.verdict()`; default True.

    Returns
    -------
    Summary
        `summary` if it was given, else the one computed here.
    """
    inputs = np.asarray(X, dtype=np.float64)
    name = draws.network.architecture.label() if name is None else name
    summary = draws.summary(inputs) if summary is None else summary
    by_class = draws.likelihood.has_classes
    what = summary.quantity
    worst = point is None
    if point is None:
        rhat = np.nan_to_num(summary.function.rhat, nan=0.0, posinf=np.inf)
        point = int((rhat if rhat.any() else summary.sd).max(axis=1).argmax())
    where = point_label or f"row {point}"
    (traced,) = (f[:, :, 0] for f in draws._summarised(draws.distribution(inputs[[point]])))
    if by_class:
        likeliest = int(traced.mean(axis=(0, 1)).argmax())
        names = draws.likelihood.values if classes is None else classes
        label = f"P({likeliest if names is None else names[likeliest]} | {where})"
        traced = traced[:, :, likeliest]
    else:
        label = f"f({where}) less its mean"
        traced = traced[:, :, 0] - traced[:, :, 0].mean()

    report.heading(f"{name}: chains", level=level)
    add_convergence(report, {name: summary})
    report.text(f"{name}: {_kernel_words(summary.sampler, draws.settings)}")
    if verdict:
        report.text(f"{name}: {summary.verdict()}")
    report.figure(
        _trace_figure(draws, traced, label),
        f"{name}: traces of the kept draws, one colour for each chain. Judge by the log-likelihood and by "
        f"{'the class probability' if by_class else 'f'}: single weights are not identified (several settings of them "
        "make the same function), so a weight may wander or differ between chains in a good run."
        f"{' The row is the one where the chains agree least (largest R-hat).' if worst else ''}",
    )
    if 1 < draws.n_chains <= _APART:
        report.figure(
            _chains_apart(traced, label), f"{name}: the same trace with the chains apart, {label}, on one scale."
        )
    max_lag = min(1000, max(1, draws.n_draws // 3))
    if draws.n_draws >= 4:
        report.figure(
            _autocorrelation_figure(draws, inputs, max_lag, what),
            f"{name}: autocorrelation of {what}, averaged over {len(inputs)} inputs.",
        )
    if "kernel" in draws.settings:
        _add_chain_table(report, draws, name)
    if description:
        report.preformatted(description)
    return summary


def _kernel_words(sampler: str, settings: Mapping[str, Any]) -> str:
    """Return a sentence on the kernel and why it was chosen, how its warm-up ended, and the device."""
    if "kernel" not in settings:
        return f"draws of {sampler}; its step sizes, acceptance rates and warm-up are not known here."
    text = f"kernel {sampler} ({settings['kernel_reason']}), "
    text += f"{settings['warmup_steps']:,} steps of warm-up"
    if settings["warmup_stable"] is not None:
        text += ", which ended when the chains were stable" if settings["warmup_stable"] else ", not stable"
    return f"{text}; device {settings['device']} ({settings['device_reason']})."


def _trace_figure(draws: Draws, values: npt.NDArray[Any], label: str) -> Any:
    """Plot the paper's four traces; without a Bayesian output weight, the first entry of theta replaces it."""
    weight = draws.network.first_output_weight()
    panels = (
        ("log-likelihood", draws.stats["log_likelihood"]),
        ("log prior", draws.stats["log_prior"]),
        ("first entry of theta" if weight is None else "first output weight", draws._entry(weight or 0)),
        (label, values),
    )
    fig = page_figure(5.2)
    axes = fig.subplots(2, 2, sharex=True).ravel()
    for ax, (name, series) in zip(axes, panels, strict=True):
        trace(series, label=name, legend=False, ax=ax)
    for ax in axes[:2]:
        ax.set_xlabel("")
    return fig


def _chains_apart(values: npt.NDArray[Any], label: str) -> Any:
    """Plot the trace of each chain in axes of its own, one above the other."""
    fig = page_figure(0.6 + 0.9 * len(values))
    axes = fig.subplots(len(values), 1, sharex=True, sharey=True, squeeze=False).ravel()
    for chain, (ax, series) in enumerate(zip(axes, values, strict=True)):
        trace(series[None], label=f"chain {chain + 1}", legend=False, ax=ax)
        if chain < len(values) - 1:
            ax.set_xlabel("")
    fig.suptitle(label, fontsize="medium")
    return fig


def _autocorrelation_figure(draws: Draws, X: npt.NDArray[Any], max_lag: int, what: str) -> Any:
    """Plot the autocorrelation of f, or of class probabilities, up to `max_lag`; a block of inputs is in memory."""
    mean = MeanAutocorrelation(draws.n_chains, draws.n_draws, max_lag)
    for f in draws._summarised(draws.distribution(X)):
        mean.add(f)
    fig = page_figure(3.4)
    ax = autocorrelation_plot(mean.result(), fig.subplots(), max_lag=max_lag)
    ax.set_ylabel("autocorrelation" if what != "f" else "autocorrelation of f")
    return fig


def _add_chain_table(report: Report, draws: Draws, name: str) -> None:
    """Add a table with one row for each chain."""
    stats = draws.stats
    headers = ["chain", "step size", "acceptance"]
    phases = stats["warmup_acceptance_rate"].shape[1]
    headers += [f"acceptance in warm-up phase {phase + 1}" for phase in range(phases)] + ["non-finite proposals"]
    rates = np.column_stack([stats["acceptance_rate"].mean(axis=1), stats["warmup_acceptance_rate"]])
    rows = [
        [
            chain + 1,
            float(stats["step_size"][chain].mean()),
            *map("{:.2f}".format, of_chain),
            int(stats["nonfinite"][chain]),
        ]
        for chain, of_chain in enumerate(rates)
    ]
    report.table(headers, rows, f"{name}: step size and acceptance rate of each chain.")
