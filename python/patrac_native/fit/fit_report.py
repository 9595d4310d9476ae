"""The output of `patrac fit`: the printed scores, the report with its figures, JSON, draws and preprocessing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from patrac_native.diagnostics import ConvergenceSummary
from patrac_native.draws.mixture_summary import MixtureSummary
from patrac_native.draws.summary import Summary
from patrac_native.fit.descriptions import (
    describe_function,
    describe_network_score,
    describe_noise,
    describe_training,
    noise_scales,
    noise_variance,
)
from patrac_native.fit.evaluation import COVERAGES
from patrac_native.fit.fit_result import FitResult
from patrac_native.fit.fit_settings import DRAWS, PREPROCESSING, REPORT, SUMMARY
from patrac_native.fit.identity import DIGEST, IDENTITY, content_digest, fit_identity
from patrac_native.fit.pilots import best_of, describe_choice
from patrac_native.fit.score_figures import class_figures, regression_figures
from patrac_native.fit.table_text import name_of
from patrac_native.fit.tables import TableFormat
from patrac_native.fit.tuning import Choice
from patrac_native.report.report import PAGE_WIDTH, Report, format_number, write_json
from patrac_native.report.run_sections import (
    CONVERGENCE_CAPTION,
    CONVERGENCE_HEADERS,
    add_run_sections,
    convergence_rows,
)
from patrac_native.validation.checks import FloatArray
from patrac_native.verdict.findings import ESS_GOOD, RHAT_GOOD


def score_rows(scores: Mapping[str, Any], targets: str) -> list[list[Any]]:
    """Return table rows (name of the score, of the posterior, of the trained network) for rows scored by `evaluate`.

    `targets` is "real", "count" or "class".
    """
    if targets == "class":
        network = scores["network"] or {}
        rows: list[list[Any]] = [
            ["accuracy", scores["accuracy"], network.get("accuracy")],
            ["NLL a row (mean over draws)", scores["nll"], network.get("nlpd")],
            ["NLPD a row (of mean probabilities)", scores["nlpd"], network.get("nlpd")],
            ["Brier score", scores["brier"], network.get("brier")],
            ["ECE, 15 bins", scores["ece"], network.get("ece")],
        ]
        if "unreliable_rows" in scores:
            rows.append(["rows left out by unreliable weights", scores["unreliable_rows"], None])
        for part, value in scores["entropy"].items():
            rows.append([f"entropy, {part} (nats)", value, None])
        if scores["entropy_of_wrong_rows"]:
            rows.append(
                ["entropy, epistemic, of wrong rows (nats)", scores["entropy_of_wrong_rows"]["epistemic"], None]
            )
        return rows
    of_target = "" if targets == "count" else ", standardised target"
    rows = [
        ["RMSE", scores["rmse"], scores["rmse_network"]],
        ["NLPD a row" + of_target, scores["nlpd"], scores["nlpd_network"]],
        *([["NLPD a row, target's units", scores["nlpd_in_units"], None]] if of_target else []),
        ["CRPS", scores["crps"], None],
    ]
    for coverage in COVERAGES:
        rows.append([f"coverage of {coverage:.0%} intervals of y", f"{scores['coverage'][f'{coverage:g}']:.1%}", None])
    rows.append(["mean width of 95% intervals", scores["interval_width"], None])
    if "unreliable_rows" in scores:
        rows.append(["rows left out by unreliable weights", scores["unreliable_rows"], None])
    rows.append(["PIT mean (uniform: 0.5)", scores["pit_mean"], None])
    rows.append(["PIT sd (uniform: 0.289)", scores["pit_sd"], None])
    return rows


def score_lines(heading: str, scores: Mapping[str, Any], targets: str) -> str:
    """Return the scores as a table for the terminal, under a heading such as "held-out rows: 40"."""
    rows = [[heading, "posterior", "network"]]
    rows += [
        [row[0], format_number(row[1]), "" if row[2] is None else format_number(row[2])]
        for row in score_rows(scores, targets)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}".rstrip() for row in rows]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def printed(result: FitResult) -> str:
    """Return the scores and the summary of the chains as text for the terminal."""
    kind = "held-out rows" if len(result.data.X_test) else "leave-one-out predictions of rows"
    rows = len(result.evaluation.arrays["y"])
    table = score_lines(f"{kind}: {rows}", result.evaluation.scores, result.data.preprocessor.targets)
    return f"{table}\n\n{_chains_heading(result)}\n{result.summary}"


def reached(result: FitResult) -> str:
    """Return the last line of a fit: its verdict, and convergence beside what a good one needs."""
    verdict = result.summary.verdict()
    return f"verdict: {verdict.grade}; reached: {verdict.facts} (aims: R-hat {RHAT_GOOD}, ESS {ESS_GOOD})"


def _chains_heading(result: FitResult) -> str:
    """Return a heading that states the units of the summary of the chains, which differ from those of the scores."""
    about = describe_function(result.draws.likelihood, result.data.preprocessor)
    if result.data.preprocessor.exposure is not None:
        about += ", for an exposure of one"
    return f"Chains, judged at {len(result.grid)} of these rows{f'. Here {about}' if about else ''}:"


def write_results(result: FitResult, table: TableFormat) -> None:
    """Write report, summary, draws and preprocessing to the folder `settings.out`, replacing existing files.

    Raises
    ------
    OSError
        If that fails; the message says to which other folder draws and preprocessing were saved, so that none is lost.
    """
    try:
        _write_to(result, table, result.settings.out)
    except OSError as error:
        for folder in (tempfile.gettempdir(), os.path.expanduser("~")):
            try:
                kept = tempfile.mkdtemp(prefix="patrac-fit-", dir=folder)
                _write_fit(result, table, kept)
            except OSError:
                continue
            reason = error.strerror or str(error)
            raise OSError(
                error.errno, f"{reason}. The draws are not lost: predict with {kept}", error.filename
            ) from error
        raise


def _write_to(result: FitResult, table: TableFormat, out: str) -> None:
    """Write all results to a folder, the draws first."""
    os.makedirs(out, exist_ok=True)
    _write_fit(result, table, out)
    write_json(os.path.join(out, SUMMARY), summary_content(result))
    _report(result).write(os.path.join(out, REPORT))


def _write_fit(result: FitResult, table: TableFormat, out: str) -> None:
    """Write draws and preprocessing, what predictions need, with the identity of the fit."""
    preprocessor = result.data.preprocessor.to_dict()
    identity = fit_identity(result.draws, preprocessor)
    for member in result.draws.members:
        member.settings[IDENTITY] = identity
    result.draws.save(os.path.join(out, DRAWS), overwrite=True)
    content = {IDENTITY: identity, "table": table.to_dict(), "preprocessor": preprocessor}
    write_json(os.path.join(out, PREPROCESSING), content | {DIGEST: content_digest(content)})


def summary_content(result: FitResult) -> dict[str, Any]:
    """Return the content of summary.json."""
    preprocessor, summary, first = result.data.preprocessor, result.summary, result.draws.members[0]
    net, summaries = first.network.net, _summaries(summary)
    choice, variance, scales = Choice.of(net), noise_variance(result.draws), noise_scales(result.draws)
    return {
        "data": os.path.basename(name_of(result.settings.data)),
        "task": preprocessor.task,
        "target": preprocessor.target,
        "inputs": preprocessor.names,
        "classes": preprocessor.classes,
        "rows": {"training": len(result.data.X), "held_out": len(result.data.X_test)},
        "architecture": first.network.architecture.to_dict(),
        "likelihood": result.draws.likelihood.to_dict(),
        "layer_sizes": net.layer_sizes,
        "networks": len(result.draws.members),
        "dim": first.network.dim,
        "l2": choice.l2,
        "epochs": choice.epochs,
        "noise_variance": None if variance is None else preprocessor.variance_in_units(variance),
        "noise_variance_standardised": variance,
        "noise_scale": None if scales is None else float(scales[0]) * preprocessor.target_scale,
        "exposure": preprocessor.exposure,
        "validation": [{"l2": l2, "loss": loss} for l2, loss in choice.trials],
        "prior": first.network.prior.to_dict(),
        "trials": [trial.to_dict() for trial in result.trials],
        "scores": result.evaluation.scores,
        "convergence": {
            summary.quantity: _worst([one.function for one in summaries]),
            "log_likelihood": _worst([one.log_likelihood for one in summaries]),
            "verdict": summary.verdict().to_dict(),
            "ess_geyer": sum(one.ess_geyer for one in summaries),
            "acceptance_rate": [rate for one in summaries for rate in _by_chain(one.acceptance_rate)],
            "step_size": [size for one in summaries for size in _by_chain(one.step_size)],
            "steps_per_second": sum(one.steps_per_second for one in summaries),
        },
        "sampling": first.settings,
        "seconds": result.seconds,
        "seed": result.settings.seed,
    }


def _summaries(summary: Summary | MixtureSummary) -> tuple[Summary, ...]:
    """Return the summary of each network's draws."""
    return summary.members if isinstance(summary, MixtureSummary) else (summary,)


def _by_chain(values: FloatArray | None) -> list[float]:
    """Return a statistic of each chain, which chains of this package record."""
    assert values is not None
    return [float(value) for value in values]


def _worst(parts: Sequence[ConvergenceSummary]) -> dict[str, float]:
    """Return the worst convergence among several posteriors, by name."""
    values = [part.worst() for part in parts]
    return {name: (max if name.startswith("max") else min)([value[name] for value in values]) for name in values[0]}


def _report(result: FitResult) -> Report:
    """Build the report."""
    settings, preprocessor = result.settings, result.data.preprocessor
    members = result.draws.members
    label = members[0].network.architecture.label()
    report = Report(f"{os.path.basename(name_of(settings.data))}: {label} posterior of {preprocessor.target!r}")
    if result.interruption:
        report.text(f"Interrupted {result.interruption}. Everything below rests on these draws alone.")
    verdict = result.summary.verdict()
    report.banner(verdict.grade, f"Verdict on the chains: {verdict}")
    held_out = len(result.data.X_test) > 0
    report.heading("Scores on held-out rows" if held_out else "Leave-one-out scores")
    report.table(
        ["score", "posterior", "trained network"],
        score_rows(result.evaluation.scores, preprocessor.targets),
        (
            f"{len(result.data.X_test)} rows that neither training nor sampling saw. "
            if held_out
            else f"{len(result.evaluation.arrays['y'])} training rows, each predicted by draws that are reweighted as "
            f"if it had not been among them; for {result.evaluation.scores['unreliable_rows']} of them the weights are "
            "unreliable (Pareto-smoothed importance sampling). "
        )
        + _units_of_scores(result),
    )
    for figure, caption in (class_figures if preprocessor.targets == "class" else regression_figures)(result):
        report.figure(figure, caption)
    _add_trials(report, result)
    summaries = _summaries(result.summary)
    names = [label] if len(members) == 1 else [f"network {index + 1}" for index in range(len(members))]
    if len(members) > 1:
        report.heading(f"The chains of {len(members)} networks")
        rows = convergence_rows(dict(zip(names, summaries, strict=True)))
        report.table(CONVERGENCE_HEADERS, rows, CONVERGENCE_CAPTION)
        report.text(
            "Predictions are those of the equally weighted mixture of the networks' posteriors. The chains of each "
            "network are compared with one another; the networks need not agree. The network whose chains agree least "
            "is shown in full."
        )
    shown = int(np.argmax([summary.function.max_rhat for summary in summaries]))
    add_run_sections(
        report,
        members[shown],
        result.grid,
        summary=summaries[shown],
        name=names[shown],
        description=result.description,
        classes=preprocessor.classes or None,
        verdict=False,
    )
    _add_training(report, result)
    _add_data(report, result)
    return report


def _units_of_scores(result: FitResult) -> str:
    """Return what the scores are in, and how the network's own NLPD has its noise."""
    targets = result.data.preprocessor.targets
    if targets == "class":
        return "NLL, NLPD and entropies are in nats; the Brier score runs from 0 to 2."
    intervals = (
        "RMSE, CRPS and widths are counts; intervals end at whole numbers, so they cover at least what they are named "
        "by, while the verdict's coverage and the PIT values divide a count at their end."
        if targets == "count"
        else "RMSE, CRPS and widths are in the target's units; intervals of y hold the noise."
    )
    return f"{intervals} {describe_network_score(result.draws.likelihood)}"


def _add_trials(report: Report, result: FitResult) -> None:
    """Add a section with the pilot runs by which the posterior was chosen, if there were any."""
    if not result.trials:
        return
    is_class = result.data.preprocessor.task == "classification"
    report.heading("Choice of the posterior")
    rows = []
    for trial in result.trials:
        scores = trial.evaluation.calibration
        coverage = [] if is_class else [f"{scores.coverage:.1%}"]
        rows.append([str(trial.candidate), trial.steps, scores.nlpd, scores.nlpd_network, *coverage])
    report.table(
        ["posterior", "steps of a chain", "NLPD", "NLPD of its networks alone"]
        + ([] if is_class else ["coverage of 90% intervals"]),
        rows,
        f"Runs on the other training rows, scored on {result.trials[0].evaluation.calibration.rows} validation rows. "
        f"Chosen: {best_of(result.trials).candidate}; {describe_choice(result.trials)}.",
    )


def _add_training(report: Report, result: FitResult) -> None:
    """Add a section with the history of the loss and the search for penalty and noise variance."""
    from matplotlib.figure import Figure

    net = result.draws.members[0].network.net
    choice = Choice.of(net)
    report.heading("Training")
    text = f"Network {list(net.layer_sizes)}, {net.activation}: {describe_training(net, result.data.preprocessor)}."
    if net.history is not None:
        history = net.history
        text += (
            f" Trained on all {len(result.data.X)} training rows: {len(history.loss)} epochs, ended by "
            f"{history.stopped}; negative log-likelihood {history.data_loss:,.1f}, of the best constant predictor "
            f"{history.constant_loss:,.1f}."
        )
    noise = describe_noise(result.draws, result.data.preprocessor)
    report.text(f"{text} {noise[:1].upper()}{noise[1:]}".strip())
    if choice.trials:
        report.table(["l2", "negative log-likelihood a row"], choice.trials, f"Chosen on {choice.validation}.")
    if net.history is not None:
        figure = Figure(figsize=(PAGE_WIDTH, 3.4), layout="constrained")
        ax = figure.subplots()
        loss = net.history.loss
        ax.plot(loss, color="#0072B2", linewidth=1.0)
        ax.axvline(net.history.best_epoch, color="#666666", linewidth=0.8, linestyle="--")
        # A penalised loss of densities can be negative, where a logarithm has no value.
        ax.set_yscale("log" if (loss > 0).all() else "symlog")
        ax.set_xlabel("epoch")
        ax.set_ylabel("penalised loss")
        ax.spines[["top", "right"]].set_visible(False)
        report.figure(figure, "Loss by epoch on a logarithmic axis; dashed: the parameters that were kept.")


def _add_data(report: Report, result: FitResult) -> None:
    """Add a section with columns, split of the rows and times."""
    preprocessor, settings = result.data.preprocessor, result.settings
    report.heading("Data")
    about = (
        f"{len(result.data.X)} training rows, {len(result.data.X_test)} held out at random with seed {settings.seed}."
        if len(result.data.X_test)
        else f"{len(result.data.X)} training rows, none held out."
    )
    if preprocessor.targets == "count":
        about += " Counts are not standardised: the network's output is the logarithm of their mean"
        about += "." if preprocessor.exposure is None else f", divided by the exposure {preprocessor.exposure!r}."
    elif preprocessor.targets == "real":
        about += (
            f" The target is standardised by the training rows' mean {preprocessor.target_mean:.5g} and standard "
            f"deviation {preprocessor.target_scale:.5g}."
        )
    else:
        about += f" Classes: {', '.join(map(str, preprocessor.classes))}."
    report.text(" ".join([about, *(f"{note[0].upper()}{note[1:]}." for note in preprocessor.notes)]))
    rows = [
        [c.name, "number", f"mean {c.mean:.4g}, sd {c.scale:.4g}"]
        if c.categories is None
        else [c.name, "categories", ", ".join(c.categories)]
        for c in preprocessor.columns
    ]
    report.table(["column", "kind", "of the training rows"], rows)
    report.table(["stage", "seconds"], [[stage, f"{value:.1f}"] for stage, value in result.seconds.items()])
