"""The paper's real-data study of abalone ages (its section 5.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde, norm

from patrac_native import plots
from patrac_native.report import Report
from patrac_native.studies import figures, output
from patrac_native.studies.experiment import ARCHITECTURES, Outcome, SampledNoise
from patrac_native.studies.options import StudyOptions, StudySize
from patrac_native.studies.problems import ABALONE_EPOCHS, abalone_problem
from patrac_native.studies.replicates import Study, run_study
from patrac_native.studies.tables import CHAINS, COVERAGE, MIXING, print_table, score_table

SIZE = StudySize(
    replicates=1, steps=500_000, quick_steps=50_000, quick_warmup=0.03, auto_steps=50_000, quick_auto_steps=5_000
)
# Number of points at which densities are evaluated.
_DENSITY_POINTS = 400
_INPUTS = {
    "onehot": "Sex as three 0/1 columns and seven measurements, 10 in all for the paper's 8 features",
    "coded": "Sex as one column (F 0, I 1, M 2) and seven measurements, the paper's 8 features",
}
_NOTES = (
    "Inputs: {inputs}, standardised. Target: rings, in their own units, because the variance of 36 is printed without "
    "a scale; the residuals have a variance near 4.5, so intervals of y are far wider than they need be. Rows with "
    "sampled noise sample the variance with the parameters. L2 penalty "
    "0.01; training stops after {epochs} epochs, before it overfits, in place of the paper's learning rate of 1e-6."
)


def run_abalone(data: str, options: StudyOptions, sex: str = "onehot") -> None:
    """Run the study on the file `data`, with Sex as `abalone_problem` has it, print its tables and write its files."""
    problem_of = partial(abalone_problem, data, sex=sex)
    problem_of(0)  # raises for a wrong file before the folder is created
    content = hashlib.sha256(Path(data).read_bytes()).hexdigest()[:8]
    study = run_study(
        problem_of,
        options,
        SIZE,
        candidates=(*ARCHITECTURES, *map(SampledNoise, ARCHITECTURES)),
        laplace=True,
        identity=options.identity("abalone", f"{content}, {sex}"),
    )
    columns = {"NLL": ("nll", 1), "NLPD": ("nlpd", 4), "RMSE": ("rmse", 3), **COVERAGE}
    scores, mixing = score_table(study.models, columns), score_table(study.records, MIXING)
    checks = score_table(study.records, CHAINS)
    print_table("Scores on 1254 test rows; coverage of the rings, noise included, in percent of rows", scores)
    print_table("Mixing of f on 21 test rows", mixing)
    print_table("Chains", checks)

    report = Report("patrac study abalone")
    report.text(
        "The abalone study of Partial Trace-Class Bayesian Neural Networks (Carter & Sell 2025), section 5.2: the "
        "number of rings, 2923 rows for training and 1254 for testing, split at random."
    )
    output.say(study, report, _NOTES.format(inputs=_INPUTS[sex], epochs=ABALONE_EPOCHS))
    report.heading("Scores")
    report.table(
        *scores,
        caption="NLL: sum over test rows of (y - f)^2 / 72, mean over draws (sampled noise: over twice the variance of "
        "the draw in place of 72); NLPD: mean negative log predictive "
        "density; RMSE in rings; in 99/95/65%: percent of test rows whose rings lie in that interval of y.",
    )
    report.heading("Predictions (Figure 5)")
    rings = study.first_problem.y_test
    row = int(np.argmin(np.abs(rings - rings.mean())))  # the test row whose target is nearest to the mean
    fixed, sampled = study.first[: len(ARCHITECTURES)], study.first[len(ARCHITECTURES) :]
    report.figure(
        density_figure(study, fixed, row),
        "One test row. Red: its rings. Blue: the trained network. Left: posterior density of f. Right: posterior "
        "predictive density of y, noise of variance 36 included.",
    )
    report.figure(density_figure(study, sampled, row), "The same with sampled noise.")
    report.figure(
        figures.pit_figure(fixed, of="f"),
        "The paper's statistic: the share of draws of f below each observation. The noise is not in f, so heaps at "
        "both ends are expected even from a right posterior.",
    )
    report.figure(
        figures.pit_figure(fixed, of="y"),
        "The same with the noise: flat is right, a hump means intervals too wide. With a variance of 36 where the "
        "residuals have about 4.5 it is a hump.",
    )
    report.figure(figures.pit_figure(sampled, of="y"), "The same with sampled noise.")
    report.heading("Mixing and time")
    report.table(*mixing)
    report.table(*checks, caption="R-hat compares the quarters of the one chain: 1.05 or less is wanted.")
    output.add_chain_sections(report, study, study.first_problem.X_test[row], "the row above")
    summary = output.study_summary(study, "abalone", options, data=data)
    rows = output.results(study.models, "abalone")
    output.write_files(options.out, report, summary, rows, study.interrupted)


def density_figure(study: Study, outcomes: Sequence[Outcome], row: int) -> Figure:
    """Plot densities of f and of y at one test row, a line for each architecture (the paper's Figure 5, left)."""
    problem = study.first_problem
    fig = Figure(figsize=(9.6, 3.9), layout="constrained")
    left, right = fig.subplots(1, 2)
    here = problem.X_test[row : row + 1]
    draws = {outcome.label: outcome.draws.predict(here).ravel() for outcome in outcomes}
    everything = np.concatenate(list(draws.values()))
    observed, network = float(problem.y_test[row]), float(study.first_network.predict(here)[0, 0])
    noises = {
        outcome.label: np.sqrt(outcome.draws.stats.get("variance", np.array([problem.variance]))).ravel()
        for outcome in outcomes
    }
    widest = max(float(np.max(noise)) for noise in noises.values())
    for ax, spread, name in ((left, 0.0, "f"), (right, widest, "y")):
        # The range covers all draws of f; for y, the central part of the mixture.
        low = min(everything.min(), observed, network) - 0.5 - 2.5 * spread
        high = max(everything.max(), observed, network) + 0.5 + 2.5 * spread
        at = np.linspace(low, high, _DENSITY_POINTS)
        for index, (label, f) in enumerate(draws.items()):
            density = norm.pdf(at[:, None], f, noises[label]).mean(axis=1) if spread else gaussian_kde(f)(at)
            colour, style = plots.CYCLE[index % len(plots.CYCLE)], plots.STYLES[index % len(plots.STYLES)]
            ax.plot(at, density, style, color=colour, linewidth=1.5, label=label)
        ax.axvline(observed, color="red", linewidth=1.4, label="rings")
        ax.axvline(network, color="blue", linewidth=1.4, label="network")
        ax.set_ylim(bottom=0.0)
        plots.tidy(ax, f"{name} (rings)", "density")
    figures.legend_of(fig, left, ncols=5)
    return fig
