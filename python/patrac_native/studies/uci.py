"""The UCI benchmark: this package's models beside a network, Laplace and ensembles on standard splits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from patrac_native.studies.tables import Row

STUDY = "uci"
SPLITS = 5
# The columns of the tables: heading, decimals.
_METRICS = {
    "rmse": ("RMSE", 4),
    "nlpd": ("NLPD", 3),
    "crps": ("CRPS", 4),
    "coverage": ("in 90%", 3),
    "width": ("95% width", 4),
    "seconds": ("seconds", 0),
    "do_not_use": ("do not use", 2),
}


@dataclass(frozen=True)
class UciOptions:
    """The options of the study.

    Attributes
    ----------
    data : Path
        The folder that holds a folder for each set.
    out : Path
        Folder for report.html, summary.json, results.csv and the finished pieces.
    sets : sequence of str
        Names of sets.
    splits : int
        Number of splits of each set, from the first; at most 20.
    minutes : float, optional
        Budget of each fit of this package's models, as for `patrac fit`.
    seed : int
        Added to the number of the split.
    threads : int
        Number of pieces at the same time on this machine; default 1: a fit uses all processors itself.
    scheduler : str
        As for `StudyOptions`.
    """

    data: Path
    out: Path
    sets: Sequence[str]
    splits: int = SPLITS
    minutes: float | None = None
    seed: int = 0
    threads: int = 1
    scheduler: str = "threads"


Results = dict[tuple[str, int, str], dict[str, float]]


def run_uci(options: UciOptions) -> None:
    """Run what is not finished, print the tables, and write report.html, summary.json and results.csv.

    Raises
    ------
    ValueError, FileNotFoundError
        If an option is invalid or a set is missing; before any work.
    """
    from patrac_native.fit.model_settings import ModelSettings
    from patrac_native.plots.progress import progress_bar, shows_progress
    from patrac_native.studies.pieces import Pieces
    from patrac_native.studies.scheduling import check_scheduler, executor_of
    from patrac_native.studies.uci_models import GROUPS, run_group
    from patrac_native.studies.uci_sets import SETS, digest, load_split

    if not 1 <= options.splits <= 20:
        raise ValueError(f"--splits must be from 1 to 20, the number of standard splits; got {options.splits}.")
    check_scheduler(options.scheduler)
    settings = {
        split: ModelSettings(
            minutes=options.minutes,
            seed=options.seed + split,
            progress=False,
            threads=None if options.threads == 1 and options.scheduler == "threads" else 1,
        )
        for split in range(options.splits)
    }
    settings[0].check_model()
    rows = {(name, split): load_split(options.data, name, split) for name in options.sets for split in settings}
    identity = {"study": STUDY, "seed": options.seed, "minutes": options.minutes, "version": version("patrac_native")}
    # Of each set, so that a study of other sets may use the folder too.
    data = {name: digest(options.data / SETS[name]) for name in options.sets}
    pieces = Pieces(options.out / "pieces", identity)
    found: Results = {}

    def take(name: str, split: int, scores: Mapping[str, Mapping[str, float]]) -> None:
        found.update({(name, split, model): dict(values) for model, values in scores.items()})

    left = []
    for name in options.sets:
        for split in range(options.splits):
            for group in GROUPS:
                kept = pieces.read(f"{name}-{data[name]}-{split}-{group}.json")
                if kept is None:
                    left.append((name, split, group))
                else:
                    take(name, split, kept)
    total = len(options.sets) * options.splits * len(GROUPS)
    print(f"{total - len(left)} of {total} pieces were finished before.", flush=True)
    with executor_of(options.scheduler, options.threads) as executor:
        jobs: dict[Future[Any], tuple[str, int, str]] = {
            executor.submit(run_group, group, rows[name, split], settings[split]): (
                name,
                split,
                group,
            )
            for name, split, group in left
        }
        done = as_completed(list(jobs))
        hidden = not shows_progress(None)
        for job in progress_bar(iterable=done, total=len(jobs), desc="fitting", unit="piece", disable=hidden):
            name, split, group = jobs.pop(job)
            scores = job.result()
            pieces.write(f"{name}-{data[name]}-{split}-{group}.json", scores)
            take(name, split, scores)
    _write(found, options)


def table(found: Results, name: str) -> tuple[Row, list[Row]]:
    """Return the table of a set: means (standard errors) over splits, and differences from the rival's NLPD."""
    from patrac_native.studies.uci_models import MODELS, RIVAL

    models = [model for model in MODELS if any(key[0] == name and key[2] == model for key in found)]
    splits = sorted({split for one, split, _ in found if one == name})
    rows = []
    for model in models:
        cells = [
            mean_se([found[name, split, model][metric] for split in splits], decimals)
            if metric in found[name, splits[0], model]
            else ""
            for metric, (_, decimals) in _METRICS.items()
        ]
        paired = [found[name, split, model]["nlpd"] - found[name, split, RIVAL]["nlpd"] for split in splits]
        rows.append([model, *cells, "" if model == RIVAL else mean_se(paired, 3, sign=True)])
    return ["model", *(heading for heading, _ in _METRICS.values()), "NLPD less rival's"], rows


def mean_se(values: Sequence[float], decimals: int, *, sign: bool = False) -> str:
    """Format mean and standard error of the mean as "2.31 (0.05)"; the mean alone of a single value.

    Examples
    --------
    >>> mean_se([1.0, 3.0], 1)
    '2.0 (1.0)'
    """
    array = np.asarray(values)
    mean = f"{array.mean():{'+' if sign else ''},.{decimals}f}"
    if array.size < 2:
        return mean
    return f"{mean} ({array.std(ddof=1) / math.sqrt(array.size):,.{decimals}f})"


def counted(found: Results, model: str) -> str:
    """Return in words on how many sets a model's mean NLPD is below the rival's, and on how many by two errors."""
    from patrac_native.studies.uci_models import RIVAL

    names = list(dict.fromkeys(name for name, _, _ in found))
    below, clearly, above = [], 0, 0
    for name in names:
        splits = [split for one, split, of in found if one == name and of == model]
        paired = np.array([found[name, s, model]["nlpd"] - found[name, s, RIVAL]["nlpd"] for s in splits])
        error = paired.std(ddof=1) / math.sqrt(len(paired)) if len(paired) > 1 else math.inf
        if paired.mean() <= 0:
            below.append(name)
        clearly += paired.mean() < -2 * error
        above += paired.mean() > 2 * error
    return (
        f"{model}: NLPD not above that of the {RIVAL} on {len(below)} of {len(names)} sets ({', '.join(below)}); by "
        f"more than two standard errors lower on {clearly} and higher on {above}"
    )


def results(found: Results) -> list[dict[str, Any]]:
    """Return every number as rows with the columns study, replicate, model, metric and value."""
    return [
        {"study": f"{STUDY}/{name}", "replicate": split, "model": model, "metric": metric, "value": value}
        for (name, split, model), scores in found.items()
        for metric, value in scores.items()
    ]


def _write(found: Results, options: UciOptions) -> None:
    """Print the tables and write the report and the numbers."""
    from patrac_native.report.report import Report, write_json
    from patrac_native.studies.study_output import print_table, write_csv
    from patrac_native.studies.uci_models import RIVAL
    from patrac_native.studies.uci_sets import PUBLISHED_NLPD

    report = Report("patrac study uci")
    intro = (
        f"Standard splits of UCI sets (Hernandez-Lobato & Adams 2015), {options.splits} of each; means with standard "
        "errors over splits. Scores are of the test rows in the target's units; NLPD, CRPS: lower is better. "
        f"Differences are paired, from the {RIVAL}. Full, Mix(5) and auto are those of patrac fit; do not use: "
        "the share of fits with that verdict."
    )
    report.text(intro)
    print(f"\n{intro}")
    for name in options.sets:
        headers, rows = table(found, name)
        print_table(name, (headers, rows))
        report.heading(name)
        published = ", ".join(f"{who} {figures[name]}" for who, figures in PUBLISHED_NLPD.items())
        report.table(
            headers, rows, caption=f"Published NLPD over 20 splits (Lakshminarayanan et al. 2017): {published}."
        )
    lines = [counted(found, model) for model in ("Full", "Mix(5)", "auto")]
    print("\n" + "\n".join(lines))
    published_table = (
        ["published NLPD", *options.sets],
        [[who, *(figures[name] for name in options.sets)] for who, figures in PUBLISHED_NLPD.items()],
    )
    print_table("Lakshminarayanan et al. (2017), Table 1, 20 splits", published_table)
    report.text(" ".join(f"{line}." for line in lines))
    report.write(options.out / "report.html")
    content = {name: value for name, value in asdict(options).items() if value is not None}
    content["results"] = results(found)
    write_json(options.out / "summary.json", {"command": "study uci", **content})
    write_csv(options.out / "results.csv", results(found))
    print(f"\nReport: {options.out / 'report.html'}; numbers: summary.json and results.csv beside it.", flush=True)
