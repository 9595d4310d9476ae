"""How much k matters: scores, mixing and time of Mix(k) and Sep(k) from one Bayesian node a layer to all.

`python bench/quality/k_study.py --sets sine yacht --data uci --out FOLDER` prints a table for each set and writes
report.html, summary.json and results.csv, as `patrac study` does; finished pieces in the folder are not run again.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from matplotlib.figure import Figure
from uci_sets import SETS, Split, load_split, standardised

import patrac_native as pn
from patrac_native import plots
from patrac_native.report import Report
from patrac_native.studies import figures, output
from patrac_native.studies.experiment import Architecture
from patrac_native.studies.options import StudyOptions, StudySize
from patrac_native.studies.problems import Problem, sine_problem
from patrac_native.studies.replicates import Study, run_study
from patrac_native.studies.tables import print_table, score_table, value_of

SIZE = StudySize(
    replicates=3, steps=500_000, quick_steps=100_000, quick_warmup=0.1, auto_steps=50_000, quick_auto_steps=10_000
)
# Rows of a UCI set at which mixing of f is measured.
GRID_ROWS = 21
# The simulated problem, which needs no data.
SINE = "sine"
# Numbers of Bayesian nodes in each hidden layer; the networks have 50, so the last Mix is Full.
KS = (1, 2, 5, 10, 20, 50)
_FAMILIES = {"Mix": pn.Mix, "Sep": pn.Sep}
# Panels of the figure: heading, score, whether its axis is logarithmic.
_PANELS = (
    ("NLPD", "nlpd", False),
    ("% in 95% intervals", "coverage:0.95", False),
    ("ESS/s (Geyer)", "ess_per_second", True),
    ("seconds", "seconds", True),
)
# Distance of a family's points from the tick of k, in ticks.
_OFFSET = 0.1


def run_k(options: StudyOptions, sets: Sequence[str], data: Path | None = None) -> None:
    """Run the study on "sine" and UCI sets of the folder `data`, print its tables and write its files."""
    problems: dict[str, Callable[[int], Problem]] = {}
    for name in sets:
        if name == SINE:
            problems[name] = sine_problem
        elif data is None:
            raise ValueError(f"--sets {name} needs --data, the folder that holds a folder for each UCI set.")
        else:
            problems[name] = partial(uci_problem, data, name)
        problems[name](0)  # raises for missing files before the folder is created
    report = Report("How much k matters")
    report.text(
        "Mix(k) and Sep(k) with k Bayesian nodes in each of two hidden layers of 50; Mix(50) is Full, and the trained "
        "network is k = 0. Means (standard deviations) over data sets."
    )
    rows, summaries = [], {}
    for name, problem_of in problems.items():
        study = run_study(
            problem_of,
            options,
            SIZE,
            candidates=candidates(),
            identity=options.identity("k", name),
            folder=f"pieces/{name}",
        )
        table = score_table(
            study.models,
            {
                "K": ("dim", 0),
                "NLL": ("nll", 1),
                "NLPD": ("nlpd", 4),
                "in 95%": ("coverage:0.95", 1),
                "ESS/s (Geyer)": ("ess_per_second", 0),
                "seconds": ("seconds", 2),
                "R-hat": ("max_rhat", 3),
            },
        )
        what = "in 95% is the coverage of " + (
            "sin(x) by intervals of f"
            if name == SINE
            else "y by its intervals; random splits, 90% for training, standardised target, sampled noise"
        )
        print_table(f"{name}: {what}", table)
        report.heading(name)
        report.figure(k_figure(study), f"Against k, mean and standard error over data sets: {what}.")
        report.table(*table)
        output.say(study, report)
        rows += output.results(study.models, f"k/{name}")
        summaries[name] = output.study_summary(study, "k", options)
        if study.interrupted:
            break
    output.write_files(options.out, report, summaries, rows, study.interrupted)


def uci_problem(data: Path, name: str, seed: int) -> Problem:
    """Read a UCI set and split its rows at random, 90% for training; inputs and target are standardised by those."""
    whole = load_split(data, name, 0)
    X, y = np.concatenate([whole.X, whole.X_test]), np.concatenate([whole.y, whole.y_test])
    train, test = np.split(np.random.default_rng(seed).permutation(len(y)), [len(whole.y)])
    rows = standardised(Split(X[train], y[train], X[test], y[test]))
    return Problem(
        name=name,
        layer_sizes=(rows.X.shape[1], 50, 50, 1),
        X=rows.X,
        y=rows.y,
        X_test=rows.X_test,
        y_test=rows.y_test,
        grid=rows.X_test[:GRID_ROWS],
        variance=None,
    )


def candidates() -> list[Architecture]:
    """Return Mix(k) and Sep(k) for every k, the slowest first, so that the longest chain does not start last."""
    return [family(k) for k in reversed(KS) for family in _FAMILIES.values()]


def k_figure(study: Study) -> Figure:
    """Plot NLPD, coverage, ESS per second and seconds against k, a line for each family, with standard errors."""
    fig = Figure(figsize=(11.5, 3.2), layout="constrained")
    for ax, (heading, score, logarithmic) in zip(fig.subplots(1, len(_PANELS)), _PANELS, strict=True):
        for index, family in enumerate(_FAMILIES):
            runs = [study.records[f"{family}({k})"] for k in KS]
            values = np.array([[value_of(one, score) for one in of] for of in runs])
            error = values.std(axis=1, ddof=1) / math.sqrt(values.shape[1]) if values.shape[1] > 1 else None
            # Beside each other, so that error bars do not hide one another.
            at = np.arange(1, len(KS) + 1) + _OFFSET * (2 * index - 1)
            style = {"fmt": f"o{plots.STYLES[index]}", "color": plots.CYCLE[index], "markersize": 4}
            ax.errorbar(at, values.mean(axis=1), error, **style, label=family)
        if score == "nlpd":
            ax.plot(0, np.mean([one["nlpd"] for one in study.networks]), "kD", markersize=4, label="network")
        if score.startswith("coverage"):
            ax.axhline(95, color="black", linewidth=0.8)
        if logarithmic:
            ax.set_yscale("log")
        ax.set_xlim(-0.5, len(KS) + 0.5)
        ax.set_xticks(range(len(KS) + 1), ["0", *map(str, KS)])
        plots.tidy(ax, "k", "")
        ax.set_title(heading, fontsize="medium")
    figures.legend_of(fig, fig.axes[0], ncols=3)
    return fig


def main(words: Sequence[str] | None = None) -> None:
    """Run the study that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[SINE, *SETS], default=[SINE])
    parser.add_argument("--data", type=Path, help="the folder of the UCI sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kernel", choices=("pcnl", "auto"), default="auto")
    for name, default in {"replicates": SIZE.replicates, "seed": 0, "draws": 500}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("steps", "threads", "max-epochs"):
        parser.add_argument(f"--{name}", type=int)
    args = vars(parser.parse_args(words))
    sets, data = args.pop("sets"), args.pop("data")
    run_k(StudyOptions(**args), sets, data)


if __name__ == "__main__":
    main()
