"""What `patrac fit` shows of a fitted estimator: printed scores, the report with its figures, and numbers as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from patrac_native import plots
from patrac_native.files import contents_hash
from patrac_native.fit.base import PatracEstimator
from patrac_native.fit.choice import best_of, describe_choice
from patrac_native.fit.effects import permutation_effects, summary_words
from patrac_native.fit.evaluation import COVERAGES, VALIDATION, Evaluation, members_of, of_fits, typical
from patrac_native.fit.fitting import describe_noise, squared_scales
from patrac_native.fit.rows import FloatArray
from patrac_native.fit.training import Choice, describe_training
from patrac_native.report import (
    Report,
    add_convergence,
    add_run_sections,
    format_number,
    page_figure,
)

# Residuals are plotted against at most so many inputs, those that correlate most with them in absolute rank.
_INPUTS = 12
# Intervals with the rerun error of their ends are plotted of at most so many rows.
_RERUN_ROWS = 60
# A single input is plotted as a curve if it has so many different values, at so many places.
_FEWEST_VALUES, _PLACES = 6, 200
# Kinds of targets whose distribution function has steps.
_STEPS = ("count", "value")
# The confusion matrix of more classes than this has a figure of its own.
_CLASSES_BESIDE = 8


def score_rows(scores: Mapping[str, Any], targets: str) -> list[list[Any]]:
    """Return table rows (name of the score, of the posterior, of the trained network) for targets of a kind."""
    left_out = [
        ["rows left out by unreliable weights", scores[name], None] for name in ("unreliable_rows",) if name in scores
    ]
    if targets == "class":
        network = scores["network"] or {}
        rows: list[list[Any]] = [
            ["accuracy", scores["accuracy"], network.get("accuracy")],
            ["NLL a row (mean over draws)", scores["nll"], network.get("nlpd")],
            ["NLPD a row (of mean probabilities)", scores["nlpd"], network.get("nlpd")],
            ["Brier score", scores["brier"], network.get("brier")],
            ["ECE, 15 bins", scores["ece"], network.get("ece")],
            *left_out,
        ]
        rows += [[f"entropy, {part} (nats)", value, None] for part, value in scores["entropy"].items()]
        wrong = scores["entropy_of_wrong_rows"]
        return rows + ([["entropy, epistemic, of wrong rows (nats)", wrong["epistemic"], None]] if wrong else [])
    if "unseen_values" in scores:
        left_out.append(["rows whose target is none of the values", scores["unseen_values"], None])
    of_target = "" if targets in _STEPS else ", standardised target"
    ends, decided = " (ends in part)" if targets in _STEPS else "", scores.get("coverage_decided")
    if decided is not None:
        ends = " (D-calibration)"
        left_out += [
            ["censored rows", scores["censored"], None],
            ["inside 90% intervals, as far as decided", "{:.1%} to {:.1%}".format(*decided), None],
        ]
    order = ("RMSE", "rmse") if decided is None else ("concordance of pairs whose order is known", "concordance")
    return [
        [order[0], scores[order[1]], scores[f"{order[1]}_network"]],
        ["NLPD a row" + of_target, scores["nlpd"], scores["nlpd_network"]],
        *([["NLPD a row, target's units", scores["nlpd_in_units"], None]] if of_target else []),
        ["CRPS", scores["crps"], None],
        *(
            [f"coverage of {c:.0%} intervals of y{ends}", f"{scores['coverage'][f'{c:g}']:.1%}", None]
            for c in COVERAGES
        ),
        ["mean width of 95% intervals", scores["interval_width"], None],
        *left_out,
        ["PIT mean (uniform: 0.5)", scores["pit_mean"], None],
        ["PIT sd (uniform: 0.289)", scores["pit_sd"], None],
    ]


def score_lines(heading: str, scores: Mapping[str, Any], targets: str) -> str:
    """Return the scores as a table for the terminal, under a heading such as "held-out rows: 40"."""
    rows = [[heading, "posterior", "network"]]
    rows += [
        [name, format_number(value), "" if other is None else format_number(other)]
        for name, value, other in score_rows(scores, targets)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}".rstrip() for row in rows]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def printed(estimator: PatracEstimator, evaluation: Evaluation) -> str:
    """Return the scores as text for the terminal."""
    targets, scores = estimator.draws_.likelihood.targets, evaluation.scores
    if "too_good" not in scores:
        kind = "held-out rows" if _held_out_rows(estimator) else "leave-one-out predictions of rows"
        return score_lines(f"{kind}: {len(evaluation.arrays['y'])}", scores, targets)
    reason = f"leave-one-out scores, which the report has, are {scores['too_good']}"
    known = estimator.result_.evaluation
    if known.scores["kind"] != VALIDATION:
        return f"no scores of unseen rows: {reason}"
    of_rows = f"coverage of 90% intervals {known.calibration.coverage:.1%}"
    if targets == "class":
        of_rows = f"accuracy {known.scores['accuracy']:.1%}"
    rows = f"{known.calibration.rows} validation rows, which a shorter run left out"
    return f"{rows}: NLPD a row {known.calibration.nlpd:.3f}, {of_rows}\n{reason}"


def identity_of(draws: Any) -> str:
    """Return the identity of draws, by which the files of one fit are known to belong together."""
    thetas = {str(index): member.theta for index, member in enumerate(members_of(draws))}
    return contents_hash(thetas).tobytes().hex()[:16]


def summary_content(estimator: PatracEstimator, evaluation: Evaluation) -> dict[str, Any]:
    """Return the content of summary.json, beside what the command adds."""
    result, first = estimator.result_, members_of(estimator.draws_)[0]
    summary, summaries = result.summary, _summaries(result.summary)
    net, scale, squares = first.network.net, estimator.target_scaling_.scale, squared_scales(estimator.draws_)
    choice = Choice.of(net)
    return {
        "draws": identity_of(estimator.draws_),
        "task": "classification" if hasattr(estimator, "classes_") else "regression",
        "inputs": estimator.preprocessor_.names,
        "columns": estimator.preprocessor_.facts,
        "classes": [] if not hasattr(estimator, "classes_") else estimator.classes_.tolist(),
        "rows": {"training": len(result.data.training.X), "held_out": _held_out_rows(estimator)},
        "architecture": first.network.architecture.to_dict(),
        "likelihood": estimator.draws_.likelihood.to_dict(),
        "layer_sizes": net.layer_sizes,
        "networks": len(members_of(estimator.draws_)),
        "dim": first.network.dim,
        "l2": choice.l2,
        "epochs": choice.epochs,
        "noise_sd": None if squares is None else (np.sqrt(squares) * scale).tolist(),
        "validation": [{"l2": l2, "loss": loss} for l2, loss in choice.trials],
        "prior": first.network.prior.to_dict(),
        "trials": [trial.to_dict() for trial in result.trials],
        "scores": evaluation.scores,
        "convergence": {
            summary.quantity: _worst([one.function for one in summaries]),
            "log_likelihood": _worst([one.log_likelihood for one in summaries]),
            "verdict": summary.verdict().to_dict(),
            "rerun_error": None if summary.rerun_error is None else summary.rerun_error.to_dict(),
            "ess_geyer": sum(one.ess_geyer for one in summaries),
            "acceptance_rate": [float(rate) for one in summaries for rate in one.acceptance_rate],
            "step_size": [float(size) for one in summaries for size in one.step_size],
            "steps_per_second": sum(one.steps_per_second for one in summaries),
        },
        "sampling": first.settings,
        "precision": None if result.reached is None else result.reached.to_dict(),
        "seconds": result.seconds,
        "random_state": result.settings.random_state,
    }


def report_of(estimator: PatracEstimator, evaluation: Evaluation, *, name: str, target: str) -> Report:
    """Return the report on a fit of the table `name`, whose column `target` is y."""
    result, members = estimator.result_, members_of(estimator.draws_)
    label, held_out = members[0].network.architecture.label(), _held_out_rows(estimator)
    report = Report(f"{name}: {label} posterior of {target!r}")
    if result.interruption:
        report.text(f"Interrupted {result.interruption}. Everything below rests on these draws alone.")
    scored = result.data.held_out or result.data.training.spread(len(evaluation.arrays["y"]))
    classes = estimator.classes_.tolist() if hasattr(estimator, "classes_") else None
    verdict = result.summary.verdict()
    effects = permutation_effects(estimator.draws_, scored, estimator.preprocessor_, estimator.target_scaling_)
    report.text("\n\n".join(summary_words(evaluation, verdict, effects, target, classes)))
    for part in verdict.parts:
        report.banner(part.grade, str(part))
    if result.reached is not None:
        report.text(f"{result.reached.text[:1].upper()}{result.reached.text[1:]}.")
    report.heading("Scores on held-out rows" if held_out else "Leave-one-out scores")
    if "too_good" in evaluation.scores:
        report.text(f"These scores are {evaluation.scores['too_good']}.")
    rows = (
        f"{held_out} rows that neither training nor sampling saw."
        if held_out
        else f"{len(evaluation.arrays['y'])} training rows, each predicted by draws that are reweighted as if it had "
        f"not been among them; for {evaluation.scores['unreliable_rows']} of them the weights are unreliable "
        "(Pareto-smoothed importance sampling)."
    )
    report.table(
        ["score", "posterior", "trained network"],
        score_rows(evaluation.scores, estimator.draws_.likelihood.targets),
        f"{rows} {_units_of_scores(estimator)}",
    )
    of_rows = _class_figures(evaluation, classes) if classes else _figures(estimator, evaluation, target, scored.X)
    for figure, caption in of_rows:
        report.figure(figure, caption)
    report.heading("What drives the predictions")
    report.table(
        ["column", "effect", "5%", "95%"],
        [[one.column, one.size, one.lower, one.upper] for one in effects],
        "Mean change of the prediction when the values of the column are exchanged between rows, "
        + ("as the share of probability that moves to other classes" if classes else "in the target's units")
        + ", with its 90% interval over draws. Columns that say the same share their effect.",
    )
    _add_trials(report, estimator)
    summaries = _summaries(result.summary)
    names = [label] if len(members) == 1 else [f"member {index + 1}" for index in range(len(members))]
    if len(members) > 1:
        report.heading(f"The chains of {len(members)} networks")
        add_convergence(report, dict(zip(names, summaries, strict=True)))
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
        description=result.posteriors[0].describe(),
        classes=classes,
        verdict=False,
    )
    _add_training(report, estimator)
    report.heading("Data")
    about = f"{len(result.data.training.X)} training rows, {held_out or 'none'} held out"
    about += f"; random_state {result.settings.random_state}."
    about += f" Draws {identity_of(estimator.draws_)}, as in summary.json and table.json."
    report.text("\n".join([about, *estimator.report_.lines[: 2 + len(estimator.preprocessor_.notes)]]))
    report.table(["column", "kind", "of the training rows"], estimator.preprocessor_.table())
    report.table(["stage", "seconds"], [[stage, f"{value:.1f}"] for stage, value in result.seconds.items()])
    return report


def _held_out_rows(estimator: PatracEstimator) -> int:
    """Return the number of held-out rows."""
    held_out = estimator.result_.data.held_out
    return 0 if held_out is None else len(held_out.X)


def _summaries(summary: Any) -> tuple[Any, ...]:
    """Return the summary of each network's draws."""
    return tuple(getattr(summary, "members", (summary,)))


def _worst(parts: Sequence[Any]) -> dict[str, float]:
    """Return the worst convergence among several posteriors, by name."""
    values = [part.worst() for part in parts]
    return {name: (max if name.startswith("max") else min)([value[name] for value in values]) for name in values[0]}


def _units_of_scores(estimator: PatracEstimator) -> str:
    """Return what the scores are in, and how the network's own NLPD has its noise."""
    likelihood = estimator.draws_.likelihood
    if likelihood.targets == "class":
        return "NLL, NLPD and entropies are in nats; the Brier score runs from 0 to 2."
    intervals = "RMSE, CRPS and widths are in the target's units; intervals of y include the noise."
    if likelihood.targets in _STEPS:
        units, ends = {"count": ("counts", "whole numbers"), "value": ("in the target's units", "its values")}[
            likelihood.targets
        ]
        intervals = (
            f"RMSE, CRPS and widths are {units}; intervals end at {ends}, so they cover at least what they are named "
            "by, while the verdict's coverage and the PIT values divide a target at their end."
        )
    if estimator.report_.scores.get("censored"):
        intervals += (
            " Of a censored row, NLPD has the log probability of what was seen, such as a later time, and coverage and "
            "PIT have the predicted probability given that (D-calibration): many such rows draw coverage towards its "
            "name. As far as decided: the share that is inside, and that is not outside, whatever the target was."
        )
    return f"{intervals} {likelihood.describe_network_noise()}"


def _add_trials(report: Report, estimator: PatracEstimator) -> None:
    """Add a section with the pilot runs by which the posterior was chosen, if there were any."""
    trials = estimator.result_.trials
    if not trials:
        return
    is_class = estimator.draws_.likelihood.targets == "class"
    report.heading("Choice of the posterior")
    rows = []
    for trial in trials:
        scores = trial.evaluation.calibration
        coverage = [] if is_class else [f"{scores.coverage:.1%}"]
        rows.append([str(trial.candidate), trial.steps, scores.nlpd, scores.nlpd_network, *coverage])
    report.table(
        ["posterior", "steps of a chain", "NLPD", "NLPD of its networks alone"]
        + ([] if is_class else ["coverage of 90% intervals"]),
        rows,
        f"Runs on the other training rows, scored on {trials[0].evaluation.calibration.rows} validation rows. "
        f"Chosen: {best_of(trials).candidate}; {describe_choice(trials)}.",
    )


def _add_training(report: Report, estimator: PatracEstimator) -> None:
    """Add a section with the history of the loss and the search for penalty and noise variance."""
    nets, units = [one.network.net for one in members_of(estimator.draws_)], estimator.target_scaling_
    net = nets[0]
    choice, history = Choice.of(net), net.history
    assert history is not None  # the network was trained here
    report.heading("Training")
    noise = describe_noise(estimator.draws_, units)
    report.text(
        f"Network {list(net.layer_sizes)}, {net.activation}: {describe_training(nets, units)}. Trained on all "
        f"{len(estimator.result_.data.training.X)} training rows: {len(history.loss)} epochs, ended by "
        f"{history.stopped}; negative log-likelihood {history.data_loss:,.1f}, of the best constant predictor "
        f"{history.constant_loss:,.1f}. {noise[:1].upper()}{noise[1:]}".strip()
    )
    if choice.trials:
        report.table(["l2", "negative log-likelihood a row"], choice.trials, f"Chosen on {choice.validation}.")
    figure = page_figure(3.4)
    ax = figure.subplots()
    ax.plot(history.loss, color=plots.CYCLE[0], linewidth=1.0)
    ax.axvline(history.best_epoch, color="#666666", linewidth=0.8, linestyle="--")
    # A penalised loss of densities can be negative, where a logarithm has no value.
    ax.set_yscale("log" if (history.loss > 0).all() else "symlog")
    plots.tidy(ax, "epoch", "penalised loss")
    report.figure(figure, "Loss by epoch on a logarithmic axis; dashed: the parameters that were kept.")


def _figures(est: PatracEstimator, evaluation: Evaluation, target: str, X: FloatArray) -> Iterator[tuple[Figure, str]]:
    """Yield figures and captions for a fitted estimator of numbers whose rows of inputs X (n, d) were scored."""
    yield from _curve(est, target)
    arrays = evaluation.arrays
    shown, of_rows = np.full(len(arrays["y"]), True), ""
    if "known" in arrays:
        shown = np.asarray(arrays["known"].reshape(len(shown), -1).all(axis=1))
        of_rows = " Only rows that are not censored: long times are missing among them."
    y, mean, lower, upper = (arrays[name][shown] for name in ("y", "mean", "lower", "upper"))
    if shown.any():
        figure = page_figure(4.2)
        wide, square = figure.subplots(1, 2, width_ratios=(1.7, 1.0))
        plots.sorted_intervals(y, mean, lower, upper, wide)
        plots.predicted_vs_observed(y, mean, lower, upper, square)
        ends = (min(lower.min(), y.min()), max(upper.max(), y.max()))
        square.set(xlim=ends, ylim=ends, aspect="equal")
        yield (
            figure,
            "95% intervals of y in the order of the prediction, and predicted means with these intervals against the "
            "observations on equal axes, in the target's units; diamonds: observations outside their interval."
            f"{of_rows}",
        )
    yield from _rerun_error(est)
    figure = page_figure(4.4)
    left, right = figure.subplots(1, 2)
    plots.pit_histogram(arrays["pit"], left)
    plots.coverage_curve(arrays["pit"], right)
    yield (
        figure,
        "PIT values, the noise included, and the coverage of central intervals. Grey: where 95% of calibrated "
        "predictions lie. A hump in the middle of the histogram means intervals too wide, a U too narrow.",
    )
    figure, varies = page_figure(3.2), est.draws_.likelihood.noise_by_row
    axes = figure.subplots(1, 2 if varies else 1, squeeze=False)[0]
    plots.epistemic_share(arrays["mean"], arrays["epistemic"], axes[0])
    caption = "Epistemic share: the variance of f over that of y in each row, the part that more data would remove."
    if varies:
        alpha = float(np.clip(150 / arrays["mean"].size, 0.15, 0.7))
        axes[1].scatter(arrays["mean"], arrays["noise_sd"], s=9, color="#0072B2", alpha=alpha, linewidths=0)
        axes[1].set_ylim(bottom=0.0)
        plots.tidy(axes[1], "predicted mean", "noise sd")
        caption += " Right: the standard deviation of the noise of each row, which the network predicts."
    yield figure, caption
    if shown.any():
        figure, caption = _residuals(est, y - mean, X[shown])
        yield figure, f"{caption}{of_rows}"


def _rerun_error(est: PatracEstimator) -> Iterator[tuple[Figure, str]]:
    """Yield a figure of intervals with the rerun error of their ends, of one target, if it is known."""
    data, units = est.result_.data, est.target_scaling_
    rows = (data.training if data.held_out is None else data.held_out).spread(_RERUN_ROWS)
    y = typical(est.draws_.likelihood, rows.y)
    if y.shape[1] > 1:
        return
    at = est.draws_.distribution(rows.X, offset=rows.offset)
    error = units.scaled(of_fits(est.draws_.rerun_error(rows.X, offset=rows.offset, progress=False)), at)
    if error.lower is None or error.upper is None or not np.isfinite(error.lower).all():
        return
    seen, lower, upper = (units.inverse(one)[:, 0] for one in (y, *at.interval(error.coverage)))
    mean = units.mean_of(at)[:, 0]
    figure, said = page_figure(3.6), error.describe_predictions()
    plots.sorted_intervals(seen, mean, lower, upper, figure.subplots(), errors=(error.lower[:, 0], error.upper[:, 0]))
    yield (
        figure,
        f"{error.coverage:.0%} intervals of y of {len(y)} rows; bars: one standard deviation of each end over reruns. "
        f"{said[:1].upper()}{said[1:]}; {error.caveat}.",
    )


def _curve(est: PatracEstimator, target: str) -> Iterator[tuple[Figure, str]]:
    """Yield a figure of f and y over the input, if there is one with enough different values."""
    data, preprocessor, units = est.result_.data.training, est.preprocessor_, est.target_scaling_
    if len(preprocessor.names) != 1 or data.offset is not None:
        return
    encoding = preprocessor.encoding
    inputs = data.X if encoding is None else encoding.inverse(data.X)
    if len(np.unique(inputs)) < _FEWEST_VALUES:
        return
    places = np.linspace(inputs.min(), inputs.max(), _PLACES)[:, None]
    places = places if encoding is None else encoding.transform(places)
    lower, upper = est.draws_.distribution(places).interval(0.95)
    figure = page_figure(4.4)
    ax = plots.posterior_bands(
        preprocessor.in_units(places),
        units.inverse(np.asarray(est.draws_.predict(places), dtype=np.float64)),
        data=(preprocessor.in_units(data.X), units.inverse(typical(est.draws_.likelihood, data.y))[:, 0]),
        y_interval=(units.inverse(lower)[:, 0], units.inverse(upper)[:, 0]),
        ax=figure.subplots(),
    )
    ax.set(xlabel=preprocessor.names[0], ylabel=target)
    curve = {"count": "The mean count", "value": "The mean"}.get(est.draws_.likelihood.targets, "f")
    yield (
        figure,
        f"{curve} over {preprocessor.names[0]}, the only input, with its 95% interval, inside the 95% interval of new "
        "observations, and the training rows; in the units of the table.",
    )


def _residuals(est: PatracEstimator, error: Any, X: FloatArray) -> tuple[Figure, str]:
    """Return a figure of residuals against the inputs that are most related to them."""
    names, values = est.preprocessor_.names, est.preprocessor_.in_units(X)
    ranks = np.argsort(np.argsort(values, axis=0), axis=0) - (len(values) - 1) / 2
    of_error = np.argsort(np.argsort(error)) - (len(X) - 1) / 2
    related = np.argsort(-np.abs(ranks.T @ of_error), kind="stable")[:_INPUTS]
    rows = -(-len(related) // 3)
    figure = page_figure(2.6 * rows)
    axes = np.atleast_1d(figure.subplots(rows, min(3, len(related)), squeeze=False)).ravel()
    for ax, index in zip(axes, related, strict=False):
        plots.residuals(values[:, index], error, np.zeros_like(error), names[index], ax)
    for ax in axes[len(related) :]:
        ax.set_visible(False)
    which = "each input" if len(related) == len(names) else f"the {len(related)} inputs that they are most related to"
    return (
        figure,
        f"Residuals against {which}, in the units of the table; line: medians of tenths of the rows, which stay "
        "near zero where the network follows the data.",
    )


def _class_figures(evaluation: Evaluation, classes: Sequence[Any]) -> Iterator[tuple[Figure, str]]:
    """Yield figures and captions for a classification."""
    probability, y = evaluation.arrays["probability"], np.asarray(evaluation.arrays["y"], dtype=np.intp)
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (y, probability.argmax(axis=1)), 1)
    of_counts = "observed classes by the predicted ones (colour: share of the observed class; numbers: rows)."
    figure, beside = page_figure(4.8), len(classes) <= _CLASSES_BESIDE
    axes = figure.subplots(1, 2 if beside else 1, squeeze=False)[0]
    plots.reliability(probability[None, None], y, axes[0])
    if beside:
        plots.confusion(counts, classes, axes[1])
        yield figure, f"Reliability of the mean probabilities on these rows, and the {of_counts}"
    else:
        yield figure, "Reliability of the mean probabilities on these rows."
        figure = page_figure(8.0)
        plots.confusion(counts, classes, figure.subplots())
        yield figure, f"The {of_counts}"
    if len(classes) == 2 and len(np.unique(y)) == 2:
        figure = page_figure(4.4)
        plots.roc_and_precision_recall(np.clip(probability[:, 1], 0, 1), y, figure.subplots(1, 2))
        yield figure, f"ROC curve, and precision against recall, for the class {classes[1]!r} on these rows."
