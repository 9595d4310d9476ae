"""The output of a study: tables over replicates, CSV files, summaries, report sections."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from patrac_native.kernels import Kernel
from patrac_native.studies.baselines import Baseline, NetworkScores
from patrac_native.studies.experiment import Record
from patrac_native.studies.replicates import Study
from patrac_native.studies.tables import Row, format_table, mean_sd, plural
from patrac_native.verdict.findings import DO_NOT_USE, RHAT_USABLE

if TYPE_CHECKING:
    from patrac_native.report.report import Report

# Columns for `study_table`: heading to (field of Record, number of decimals).
MIXING = {
    "ESS (App. C)": ("ess_paper", 0),
    "ESS (Geyer)": ("ess", 0),
    "seconds": ("seconds", 1),
    "ESS/s (App. C)": ("ess_paper_per_second", 1),
    "ESS/s (Geyer)": ("ess_per_second", 1),
}
CHAINS = {
    "K": ("dim", 0),
    "R-hat": ("max_rhat", 3),
    "acceptance": ("acceptance_rate", 2),
    "step size": ("step_size", 4),
    "steps/s": ("steps_per_second", 0),
}


def study_table(
    study: Study,
    columns: Mapping[str, tuple[str, int]],
    *,
    network: Mapping[str, str] | None = None,
    paper: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[Row, list[Row]]:
    """Return a table of means and standard deviations over replicates, with a row for each architecture.

    Parameters
    ----------
    study : Study
    columns : mapping of heading to (field of Record, decimals)
        The columns. A field "coverage:0.95" is that entry of `coverage`, in percent.
    network : mapping of heading to a field of NetworkScores, optional
        If given, the first rows are for the trained networks and the baselines; cells of other headings are empty.
    paper : mapping of heading to (label to text), optional
        Further columns with the paper's results.

    Returns
    -------
    headers : list of str
    rows : list of lists of str
    """
    paper = {} if paper is None else paper
    headers = ["model", *columns, *paper]
    rows = []
    if network is not None:
        cells = [
            mean_sd([getattr(s, network[name]) for s in study.networks], decimals) if name in network else ""
            for name, (_, decimals) in columns.items()
        ]
        rows.append(["network", *cells, *(figures.get("network", "") for figures in paper.values())])
        for label, scores in study.baselines.items():
            cells = [
                mean_sd([_value(score, name) for score in scores], decimals) if _has(scores[0], name) else ""
                for name, decimals in columns.values()
            ]
            rows.append([label, *cells, *(figures.get(label, "") for figures in paper.values())])
    for label, records in study.records.items():
        cells = [mean_sd([_value(r, name) for r in records], decimals) for name, decimals in columns.values()]
        rows.append([label, *cells, *(figures.get(label, "") for figures in paper.values())])
    return headers, rows


def print_table(title: str, table: tuple[Row, list[Row]]) -> None:
    """Print a table under its title."""
    print(f"\n{title}")
    print(format_table(*table), flush=True)


def differences(study: Study, field: str, paper: Mapping[str, tuple[float, float]], replicates: int) -> dict[str, str]:
    """Return our means less the paper's in combined standard errors, as text by label.

    Parameters
    ----------
    study : Study
    field : str
        Of Record and Baseline.
    paper : mapping of label to (mean, standard deviation)
    replicates : int
        The paper's number of data sets.

    Returns
    -------
    dict of str to str
        Empty with one replicate, whose spread is not known.
    """
    scores: dict[str, Sequence[Baseline | Record]] = {**study.baselines, **study.records}
    found = {}
    for label, (mean, sd) in paper.items():
        values = np.array([_value(score, field) for score in scores.get(label, [])])
        if len(values) > 1:
            error = math.hypot(values.std(ddof=1) / math.sqrt(len(values)), sd / math.sqrt(replicates))
            found[label] = f"{(values.mean() - mean) / error:+.1f}"
    return found


def results(study: Study, name: str) -> list[dict[str, Any]]:
    """Return every number of a study as rows with the columns study, replicate, model, metric and value."""
    rows = []
    models: dict[str, Sequence[NetworkScores | Baseline | Record]] = {
        "network": study.networks,
        **study.baselines,
        **study.records,
    }
    for model, scores in models.items():
        for replicate, one in enumerate(scores):
            values = asdict(one)
            coverage = values.pop("coverage", {})
            values |= {f"coverage_{level}": share for level, share in coverage.items()}
            rows += [
                {"study": name, "replicate": replicate, "model": model, "metric": metric, "value": value}
                for metric, value in values.items()
                if not isinstance(value, str)
            ]
    return rows


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of `results` to a CSV file."""
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, ["study", "replicate", "model", "metric", "value"])
        writer.writeheader()
        writer.writerows(rows)


def study_summary(study: Study, command: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of summary.json."""
    history = study.first_network.history
    return {
        "command": command,
        "options": dict(options),
        "replicates": study.replicates,
        "interrupted": study.interrupted,
        "training": dict(history.settings) if history else {},
        "kernel": study.first[0].record.kernel,
        "networks": [asdict(score) for score in study.networks],
        "baselines": {label: [asdict(score) for score in scores] for label, scores in study.baselines.items()},
        "runs": {label: [record.to_dict() for record in records] for label, records in study.records.items()},
    }


def settings_text(study: Study) -> str:
    """Return a paragraph on how networks were trained and posteriors sampled."""
    history: Any = study.first_network.history
    training, settings, record = history.settings, study.settings, study.first[0].record
    numbers = sorted({runs[0].steps for runs in study.records.values()})
    steps = " to ".join(f"{number:,}" for number in dict.fromkeys((numbers[0], numbers[-1])))
    quantiles = "the paper's estimator" if settings.quantiles == "inverted_cdf" else "Weibull's position"
    always = isinstance(settings.kernel, Kernel) and settings.kernel.adapt_always
    adapt = "keeps adapting, as in the paper" if always else "then stays"
    thins = {label: runs[0].ess_thin for label, runs in study.records.items()}
    usual = min(thins.values())
    kernels = ", ".join(dict.fromkeys(runs[0].kernel for runs in study.records.values()))
    others = ", ".join(f"{thin}th for {label}" for label, thin in thins.items() if thin != usual)
    auto = settings.kernel == "auto"
    warmups = [runs[0].warmup_steps for runs in study.records.values()]
    warmup = f"{min(warmups):,} to {max(warmups):,}" if auto else f"{record.warmup_steps:,}"
    every = f"every {usual}th step" + (f" ({others})" if others else "")
    return (
        f"{plural(study.replicates, 'replicate')}. Training: Adam, learning rate {training['learning_rate']:g}, l2 "
        f"{training['l2']:g}, patience {training['patience']}, at most {training['max_epochs'] or 'any number of'} "
        f"epochs (the paper: 1e-6, patience 20). Sampling: {kernels}, one chain, {warmup} steps of "
        f"warm-up and {steps} more (the paper: 650,000 and 500,000); the step size {adapt}. "
        f"{record.draws} draws for the scores; ESS from {every}, that of Appendix C with lags to 1000 steps. Ends of "
        f"intervals: {quantiles}. Seconds: "
        "the sampler's clock, warm-up included, one thread."
    )


def verdict(study: Study) -> str:
    """Return a sentence on which architectures' chains have converged, by the largest R-hat over replicates."""
    worst = {label: max(record.max_rhat for record in records) for label, records in study.records.items()}
    # R-hat is NaN for chains that never changed.
    apart = [f"{label} {rhat:.3f}" for label, rhat in worst.items() if not rhat <= RHAT_USABLE]
    if not apart:
        return (
            f"Chains: the largest R-hat of f in any replicate is {max(worst.values()):.3f}; up to {RHAT_USABLE} "
            "serves for the means above."
        )
    return (
        f"Chains: an R-hat of f above {RHAT_USABLE} says that a chain has not settled: {DO_NOT_USE} them as posteriors "
        f"(largest of each: {', '.join(apart)}). Take their rows as rough; more steps (a larger --steps, no --quick) "
        "settle them."
    )


def add_chain_sections(report: Report, study: Study, point: Any, label: str) -> None:
    """Add traces and autocorrelations of the first replicate; f is traced at the input `point` (d,), named `label`."""
    from patrac_native.studies import figures

    report.heading("Chains of the first replicate")
    report.figure(
        figures.trace_figure(study.first, point, label),
        f"Traces of {study.settings.draws} draws. They should look like one band without trends.",
    )
    report.figure(
        figures.autocorrelation_figure(study.first),
        "Autocorrelation of f, averaged over the grid, against the lag in steps.",
    )


def finish(study: Study, report: Report, command: str, options: Mapping[str, Any], out: Path) -> None:
    """Write report.html, summary.json and results.csv to a folder, and print their paths."""
    from patrac_native.report.report import write_json

    report.write(out / "report.html")
    write_json(out / "summary.json", study_summary(study, command, options))
    write_csv(out / "results.csv", results(study, command.split()[-1]))
    print(f"\nReport: {out / 'report.html'}; numbers: summary.json and results.csv beside it.", flush=True)


def _has(record: Record | Baseline, name: str) -> bool:
    """Return whether a record has the field of a column."""
    return hasattr(record, name.partition(":")[0])


def _value(record: Record | Baseline, name: str) -> float:
    """Return a field of a record, or an entry of its coverage in percent."""
    field, _, level = name.partition(":")
    value = getattr(record, field)
    return 100 * value[level] if level else float(value)
