"""How much k matters: scores, mixing and time of Mix(k) and Sep(k) from one Bayesian node a layer to all."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from patrac_native.architectures import Architecture, Mix, Sep
from patrac_native.studies.options import StudyOptions, StudySize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from patrac_native.network.network import Network
    from patrac_native.studies.experiment import Problem
    from patrac_native.studies.replicates import Study

SIZE = StudySize(
    replicates=3, steps=500_000, quick_steps=100_000, quick_warmup=0.1, auto_steps=50_000, quick_auto_steps=10_000
)
# The simulated problem, which needs no data.
SINE = "sine"
# Numbers of Bayesian nodes in each hidden layer; the networks have 50, so the last Mix is Full.
KS = (1, 2, 5, 10, 20, 50)
_FAMILIES = {"Mix": Mix, "Sep": Sep}
# Panels of the figure: heading, field of Record, whether its axis is logarithmic.
_PANELS = (
    ("NLPD", "nlpd", False),
    ("% in 95% intervals", "coverage", False),
    ("ESS/s (Geyer)", "ess_per_second", True),
    ("seconds", "seconds", True),
)
# Distance of a family's points from the tick of k, in ticks.
_OFFSET = 0.1


def run_k(options: StudyOptions, sets: Sequence[str], data: Path | None = None) -> None:
    """Run the study, print its tables, and write report.html, summary.json and results.csv.

    Parameters
    ----------
    options : StudyOptions
    sets : sequence of str
        "sine" and names of UCI sets.
    data : Path, optional
        The folder of the UCI sets.

    Raises
    ------
    ValueError, FileNotFoundError
        If an option is invalid or a set is missing; before any work.
    """
    from patrac_native.report.report import Report, write_json
    from patrac_native.studies.pieces import Pieces
    from patrac_native.studies.problems import sine_problem, uci_problem
    from patrac_native.studies.replicates import run_replicates
    from patrac_native.studies.scheduling import check_scheduler
    from patrac_native.studies.study_output import (
        print_table,
        results,
        settings_text,
        study_summary,
        study_table,
        verdict,
        write_csv,
    )
    from patrac_native.studies.tables import wrapped

    check_scheduler(options.scheduler)
    sampling = options.sampling(SIZE)
    problems: dict[str, functools.partial[Problem]] = {}
    for name in sets:
        if name == SINE:
            problems[name] = functools.partial(sine_problem)
        elif data is None:
            raise ValueError(f"--sets {name} needs --data, the folder that holds a folder for each UCI set.")
        else:
            problems[name] = functools.partial(uci_problem, data, name)
        problems[name](0)  # raises for missing files before the folder is created
    report = Report("patrac study k")
    intro = (
        "Mix(k) and Sep(k) with k Bayesian nodes in each of two hidden layers of 50; Mix(50) is Full, and the trained "
        "network is k = 0. Means (standard deviations) over data sets."
    )
    report.text(intro)
    rows, summaries = [], {}
    for name, problem_of in problems.items():
        study = run_replicates(
            problem_of,
            functools.partial(_train, options=options),
            sampling,
            replicates=options.replicates,
            seed=options.seed,
            threads=options.threads,
            architectures=architectures(),
            scheduler=options.scheduler,
            pieces=Pieces(options.out / "pieces" / name, options.identity("k", name)),
        )
        table = study_table(
            study,
            {
                "K": ("dim", 0),
                "NLL": ("nll", 1),
                "NLPD": ("nlpd", 4),
                "in 95%": ("coverage:0.95", 1),
                "ESS/s (Geyer)": ("ess_per_second", 0),
                "seconds": ("seconds", 2),
                "R-hat": ("max_rhat", 3),
            },
            network={"NLL": "nll", "NLPD": "nlpd"},
        )
        what = _WHAT[name == SINE]
        print_table(f"{name}: {what}", table)
        print(f"\n{wrapped(settings_text(study))}\n\n{wrapped(verdict(study))}")
        report.heading(name)
        report.figure(k_figure(study), f"Against k, mean and standard error over data sets: {what}.")
        report.table(*table)
        report.text(verdict(study))
        report.text(settings_text(study))
        rows += results(study, f"k/{name}")
        summaries[name] = study_summary(study, "study k", options.to_dict())
    report.write(options.out / "report.html")
    write_json(options.out / "summary.json", summaries)
    write_csv(options.out / "results.csv", rows)
    print(f"\nReport: {options.out / 'report.html'}; numbers: summary.json and results.csv beside it.", flush=True)


_WHAT = {
    True: "in 95% is the coverage of sin(x) by intervals of f",
    False: "random splits, 90% for training, standardised target, sampled noise; in 95% is the coverage of y by its "
    "intervals",
}


def architectures() -> list[Architecture]:
    """Return Mix(k) and Sep(k) for every k, the slowest first, so that the longest chain does not start last."""
    return [family(k) for k in reversed(KS) for family in _FAMILIES.values()]


def k_figure(study: Study) -> Figure:
    """Plot NLPD, coverage, ESS per second and seconds against k, a line for each family, with standard errors."""
    from matplotlib.figure import Figure

    from patrac_native.plots import _canvas as canvas

    fig = Figure(figsize=(11.5, 3.2), layout="constrained")
    for ax, (heading, field, logarithmic) in zip(fig.subplots(1, len(_PANELS)), _PANELS, strict=True):
        for index, family in enumerate(_FAMILIES):
            runs = [study.records[f"{family}({k})"] for k in KS]
            values = np.array([[100 * r.coverage["0.95"] if field == "coverage" else getattr(r, field) for r in one]
                               for one in runs])  # fmt: skip
            error = values.std(axis=1, ddof=1) / math.sqrt(values.shape[1]) if values.shape[1] > 1 else None
            style = canvas.STYLES[index % len(canvas.STYLES)]
            # Beside each other, so that error bars do not hide one another.
            at = np.arange(1, len(KS) + 1) + _OFFSET * (2 * index - 1)
            colour = canvas.CYCLE[index]
            ax.errorbar(at, values.mean(axis=1), error, fmt=f"o{style}", color=colour, markersize=4, label=family)
        if field == "nlpd":
            ax.plot(0, np.mean([one.nlpd for one in study.networks]), "kD", markersize=4, label="network")
        if field == "coverage":
            ax.axhline(95, color="black", linewidth=0.8)
        if logarithmic:
            ax.set_yscale("log")
        ax.set_xlim(-0.5, len(KS) + 0.5)
        ax.set_xticks(range(len(KS) + 1), ["0", *map(str, KS)])
        canvas.tidy(ax, "k", "")
        ax.set_title(heading, fontsize="medium")
    handles, labels = fig.axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    return fig


def _train(problem: Problem, seed: int, options: StudyOptions) -> Network:
    """Train as the sine study does or, where the noise is not known, with penalty and epochs by validation rows."""
    from patrac_native.studies.sine import train_network
    from patrac_native.training.training import train

    if problem.variance is not None:
        return train_network(problem, seed, options)
    return train(
        problem.layer_sizes,
        problem.X,
        problem.y,
        likelihood=problem.likelihood,
        seed=seed,
        max_epochs=options.max_epochs,
        progress=False,
    )
