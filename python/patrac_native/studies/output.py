"""The output of a study: report.html, summary.json and results.csv, and the paragraphs that go with its tables."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from patrac_native.files import replacing
from patrac_native.report import Report, write_json
from patrac_native.studies import figures
from patrac_native.studies.options import StudyOptions
from patrac_native.studies.replicates import Study
from patrac_native.studies.tables import plural, wrapped

# With an R-hat of 1.05 the variance of all draws exceeds that within chains by a tenth, too much for a credible band.
RHAT_USABLE = 1.05


def results(models: Mapping[str, Sequence[Mapping[str, Any]]], name: str) -> list[dict[str, Any]]:
    """Return every number of the models as rows with the columns study, replicate, model, metric and value.

    What does not apply, as the step size of independent draws, is NaN in the scores and has no row.
    """
    rows = []
    for model, scores in models.items():
        for replicate, one in enumerate(scores):
            coverage = {f"coverage_{level}": share for level, share in one.get("coverage", {}).items()}
            rows += [
                {"study": name, "replicate": replicate, "model": model, "metric": metric, "value": value}
                for metric, value in {**one, **coverage}.items()
                if isinstance(value, (int, float)) and not math.isnan(value)
            ]
    return rows


def write_files(
    out: Path, report: Report, summary: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], interrupted: bool = False
) -> None:
    """Write report.html, summary.json and results.csv to a folder, and print their paths.

    Raises KeyboardInterrupt afterwards if the study was interrupted.
    """
    report.write(out / "report.html")
    write_json(out / "summary.json", summary)
    with replacing(out / "results.csv") as stream:
        writer = csv.DictWriter(stream, ["study", "replicate", "model", "metric", "value"])
        writer.writeheader()
        writer.writerows(rows)
    print(f"\nReport: {out / 'report.html'}; numbers: summary.json and results.csv beside it.", flush=True)
    if interrupted:
        raise KeyboardInterrupt("after some of the replicates; the same command goes on where it was")


def study_summary(study: Study, name: str, options: StudyOptions, **more: Any) -> dict[str, Any]:
    """Return the content of summary.json."""
    history = study.first_network.history
    return {
        "command": f"study {name}",
        "options": {**options.to_dict(), **more},
        "replicates": study.replicates,
        "interrupted": study.interrupted,
        "training": dict(history.settings) if history else {},
        "kernel": study.first[0].scores["kernel"],
        "networks": study.networks,
        "baselines": study.baselines,
        "runs": study.records,
    }


def say(study: Study, report: Report, *more: str) -> None:
    """Print and report how the study was run and whether its chains have converged."""
    texts = [*more, settings_text(study), verdict(study)]
    print("\n" + "\n\n".join(map(wrapped, texts)))
    for text in reversed(texts):
        report.text(text)


def settings_text(study: Study) -> str:
    """Return a paragraph on how networks were trained and posteriors sampled."""
    history: Any = study.first_network.history
    training, settings, runs = history.settings, study.settings, {label: of[0] for label, of in study.records.items()}
    first = next(iter(runs.values()))
    steps = spread(run["steps"] for run in runs.values())
    thins = {label: run["ess_thin"] for label, run in runs.items()}
    usual = min(thins.values())
    others = ", ".join(f"{thin}th for {label}" for label, thin in thins.items() if thin != usual)
    quantiles = "the paper's estimator" if settings.quantiles == "inverted_cdf" else "Weibull's position"
    always = not isinstance(settings.kernel, str) and settings.kernel.adapt == "always"
    return (
        f"{plural(study.replicates, 'replicate')}. Training: Adam, learning rate {training['learning_rate']:g}, l2 "
        f"{training['l2']:g}, patience {training['patience']}, at most {training['max_epochs'] or 'any number of'} "
        "epochs (the paper: 1e-6, patience 20). Sampling: "
        f"{', '.join(dict.fromkeys(run['kernel'] for run in runs.values()))}, one chain, "
        f"{spread(run['warmup_steps'] for run in runs.values())} steps of warm-up and {steps} more (the paper: 650,000 "
        f"and 500,000); the step size {'keeps adapting, as in the paper' if always else 'then stays'}. "
        f"{first['draws']} draws for the scores; ESS from every {usual}th step{f' ({others})' if others else ''}, that "
        "of Appendix C with lags to 1000 steps. Ends of intervals: "
        f"{quantiles}. Seconds: the sampler's clock, warm-up included, one thread."
    )


def spread(counts: Iterable[int]) -> str:
    """Return "5,000", or "5,000 to 6,000" where counts differ."""
    known = list(counts)
    return " to ".join(f"{count:,}" for count in dict.fromkeys((min(known), max(known))))


def verdict(study: Study) -> str:
    """Return a sentence on which architectures' chains have converged, by the largest R-hat over replicates."""
    worst = {label: max(one["max_rhat"] for one in scores) for label, scores in study.records.items()}
    # R-hat is NaN for chains that never changed.
    apart = [f"{label} {rhat:.3f}" for label, rhat in worst.items() if not rhat <= RHAT_USABLE]
    if not apart:
        return (
            f"Chains: the largest R-hat of f in any replicate is {max(worst.values()):.3f}; up to {RHAT_USABLE} "
            "serves for the means above."
        )
    return (
        f"Chains: an R-hat of f above {RHAT_USABLE} says that a chain has not settled: do not use them as posteriors "
        f"(largest of each: {', '.join(apart)}). Take their rows as rough; more steps (a larger --steps, no --quick) "
        "settle them."
    )


def add_chain_sections(report: Report, study: Study, point: Any, label: str) -> None:
    """Add traces and autocorrelations of the first replicate; f is traced at the input `point` (d,), named `label`."""
    report.heading("Chains of the first replicate")
    report.figure(
        figures.trace_figure(study.first, point, label),
        f"Traces of {study.settings.draws} draws. They should look like one band without trends.",
    )
    report.figure(
        figures.autocorrelation_figure(study.first),
        "Autocorrelation of f, averaged over the grid, against the lag in steps.",
    )
