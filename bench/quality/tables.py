"""Twenty-two tables of every shape: the estimators beside CatBoost, NGBoost, a Gaussian process, an ensemble, and GLMs.

`python bench/quality/tables.py --data FOLDER --out tables.jsonl` fits each table by each side, all to the same rows,
and prints the mean loss of the test rows: the negative log density of numbers and times (of the logarithm of a time; of
a censored one the log probability of a later time), the negative log probability of counts and classes. Continuous
predictions of counts are rounded. `--out` gets a line for each table and side, with the loss of each row; a later run
goes on from it. It needs `pip install catboost ngboost statsmodels lifelines`.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import resource
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from table_rows import CENSORED, CLASS, TABLES, load_table
from table_sides import SIDES, Settings

from patrac_native.studies.tables import format_table

Found = dict[str, Any]
# Differences of mean losses within so many standard errors are ties.
TIE = 2.0
TOO_SLOW = "too slow"
WANTED_COVERAGE = (0.86, 0.94)


def _measure(pipe: Connection, data: Path, name: str, side: str, settings: Settings, limit: float) -> None:
    """Fit and score a pair, and send the result, or the error in words."""
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), resource.getrlimit(resource.RLIMIT_CPU)[1]))
    rows = load_table(data, name)
    started, used = time.perf_counter(), time.process_time()
    run, kinds, most = SIDES[side]
    if rows.kind not in kinds or len(rows.y) > most:
        pipe.send({"skipped": "not for this table"})
        return
    try:
        found = run(rows, settings)
    except Exception as error:  # of any package; the table shows it
        pipe.send({"error": f"{type(error).__name__}: {error}"})
        raise
    losses = [float(f"{loss:.7g}") for loss in found.losses]
    scores = {"loss": float(np.mean(found.losses)), **found.scores, "seconds": round(time.process_time() - used, 1)}
    scores["wall_seconds"] = round(time.perf_counter() - started, 1)
    pipe.send({**scores, "remarks": found.remarks, "losses": losses})


def measure(data: Path, name: str, side: str, settings: Settings, limit: float) -> Found:
    """Fit and score a pair in a process of its own, which ends after `limit` seconds of processor time."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(theirs, data, name, side, settings, limit))
    process.start()
    theirs.close()
    try:
        found: Found = ours.recv()
        process.join()
    except EOFError:
        process.join()
        is_slow = process.exitcode == -signal.SIGXCPU
        found = {"error": TOO_SLOW if is_slow else f"the process ended with exit code {process.exitcode}"}
    return found


def read(paths: list[Path]) -> dict[tuple[str, str, int], Found]:
    """Return the results of files by table, side and seed."""
    lines = [json.loads(line) for path in paths if path.exists() for line in path.read_text().splitlines()]
    return {(one["table"], one["side"], one["seed"]): one for one in lines}


def compared(of_table: dict[str, Found]) -> dict[str, tuple[float, float, float]]:
    """Return mean loss, its difference to the lowest, and the difference's standard error over rows, of each side."""
    losses = {side: np.array(found["losses"]) for side, found in of_table.items() if "losses" in found}
    if not losses:
        return {}
    best = min(losses.values(), key=lambda of: float(of.mean()))
    gaps = {side: of - best for side, of in losses.items()}
    n = len(best)
    return {side: (losses[side].mean(), gap.mean(), gap.std(ddof=1) / np.sqrt(n)) for side, gap in gaps.items()}


def loss_rows(found: dict[str, dict[str, Found]], sides: list[str]) -> list[list[str]]:
    """Return the rows of the table of losses: the lowest and ties of two standard errors are marked."""
    rows = []
    for name, of_table in found.items():
        compare, cells = compared(of_table), []
        for side in sides:
            if side not in compare:
                error = of_table.get(side, {}).get("error")
                cells.append("-" if error is None else TOO_SLOW if error == TOO_SLOW else "failed")
                continue
            mean, gap, se = compare[side]
            tie = " =" if gap <= TIE * se else ""
            cells.append(f"**{mean:.3f}**" if gap == 0 else f"{mean:.3f} (+{gap:.3f} ± {se:.3f}){tie}")
        rows.append([name, *cells])
    return rows


def totals(found: dict[str, dict[str, Found]], sides: list[str]) -> list[list[str]]:
    """Return a row for each side: tables with the lowest loss, ties with it, and intervals that cover as wanted."""
    rows = []
    compare = {name: compared(of_table) for name, of_table in found.items()}
    for side in sides:
        of_side = {name: of[side] for name, of in compare.items() if side in of}
        lowest = sum(gap == 0 for _, gap, _ in of_side.values())
        ties = sum(gap <= TIE * error for _, gap, error in of_side.values())
        covers = [
            of[side]["coverage"]
            for name, of in found.items()
            if TABLES[name][1] not in (CLASS, CENSORED) and name in of_side and len(of[side]["losses"]) > 100
        ]
        good = sum(WANTED_COVERAGE[0] <= one <= WANTED_COVERAGE[1] for one in covers)
        seconds = [of[side]["seconds"] for name, of in found.items() if name in of_side]
        cells = [f"{lowest} of {len(found)}", f"{ties} of {len(found)}", f"{good} of {len(covers)}"]
        rows.append([side, str(len(of_side)), *cells, f"{np.median(seconds):.0f}" if seconds else "-"])
    return rows


def score_rows(found: dict[str, dict[str, Found]], sides: list[str], score: str, digits: int) -> list[list[str]]:
    """Return the rows of a table of another score."""
    rows = [
        [name, *(f"{of[side][score]:.{digits}g}" if score in of.get(side, {}) else "-" for side in sides)]
        for name, of in found.items()
    ]
    return [row for row in rows if set(row[1:]) != {"-"}]


def summary(found: dict[str, dict[str, Found]], sides: list[str]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return the tables of all results, each a title, its headers and its rows; first the counts, then the losses."""
    low, high = WANTED_COVERAGE
    headers = ["", "tables", "lowest loss", f"within {TIE:g} s.e. of it", f"coverage {low:.0%} to {high:.0%}"]
    counts = "Number of tables; coverage is of 90% intervals of numbers and counts, with over 100 test rows"
    losses = f"Mean loss of the test rows (difference to the lowest ± its standard error, = if within {TIE:g} of them)"
    others = {"coverage": ("Coverage of 90% intervals", 3), "width": ("Mean width of 90% intervals", 4)}
    others |= {"crps": ("CRPS", 4), "accuracy": ("Accuracy", 3), "seconds": ("Processor seconds", 3)}
    return [
        (counts, [*headers, "median processor seconds"], totals(found, sides)),
        (losses, ["", *sides], loss_rows(found, sides)),
        *((title, ["", *sides], score_rows(found, sides, name, digits)) for name, (title, digits) in others.items()),
    ]


def seed_rows(results: dict[tuple[str, str, int], Found]) -> list[list[str]]:
    """Return a row for each table that patrac fitted with two seeds: both losses, and by how much a rerun moves them.

    The mean loss has a rerun error in each of the results, whose root of the mean square stands for both.
    """
    rows = []
    for name in TABLES:
        of = [results[key] for key in sorted(results) if key[:2] == (name, "patrac") and "losses" in results[key]][:2]
        errors = [one["remarks"]["rerun_error"] for one in of if "rerun_error" in one["remarks"]]
        if len(of) == 2 and errors:
            first, second = (np.array(one["losses"]) for one in of)
            gap, error = second - first, np.sqrt(2 * np.mean(np.square(errors)))
            numbers = (first.mean(), second.mean(), gap.mean(), error, gap.std() / len(gap) ** 0.5)
            kinds = [one["remarks"]["posterior"].split("(")[0] for one in of]
            rows.append([name, *(f"{number:.4f}" for number in numbers), *kinds])
    return rows


def failures(found: dict[str, dict[str, Found]]) -> list[str]:
    """Return a line for each side that failed on a table."""
    return [
        f"{name}, {side}: {one['error']}" for name, of in found.items() for side, one in of.items() if "error" in one
    ]


def page(parts: list[tuple[str, list[str], list[list[str]]]], note: str) -> str:
    """Return the counts and the losses as a page in Markdown."""
    lines = ["# Tables of every shape", "", *__doc__.strip().splitlines(), "", note]
    for title, headers, rows in [*parts[:2], *(part for part in parts if "seeds" in part[0])]:
        lines += ["", f"{title}:", "", f"| {' | '.join(headers)} |", "|" + "---|" * len(headers)]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds auto_mpg.csv.gz and the others")
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES), help="default all")
    parser.add_argument("--sides", nargs="*", choices=list(SIDES), default=list(SIDES), help="default all; none prints")
    parser.add_argument(
        "--out", type=Path, required=True, help="JSON lines of all results; a later run goes on from it"
    )
    parser.add_argument("--beside", type=Path, nargs="+", default=[], help="results of other runs, for the summary")
    parser.add_argument("--seed", type=int, default=0, help="of the sides; test rows are the same; default 0")
    parser.add_argument("--minutes", type=float, default=2.0, help="budget of patrac; default 2, as `patrac fit`")
    parser.add_argument("--threads", type=int, default=2, help="threads of each side; default 2")
    parser.add_argument("--limit", type=float, default=3600, help="processor seconds after which a side is too slow")
    parser.add_argument("--page", type=Path, help="write the counts and the losses as Markdown")
    parser.add_argument("--note", default="", help="a line of the page, such as the machine, the budget and the date")
    options = parser.parse_args()
    # Of threads that linear algebra starts by itself, in the processes of the sides.
    os.environ |= {name: str(options.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    settings = Settings(options.seed, options.minutes, options.threads)
    done = read([options.out])
    for name in options.tables:
        for side in options.sides:
            key = (name, side, options.seed)
            if key in done:
                continue
            found = measure(options.data, name, side, settings, options.limit)
            done[key] = {"table": name, "side": side, "seed": options.seed, "minutes": options.minutes, **found}
            with options.out.open("a") as stream:
                stream.write(json.dumps(done[key]) + "\n")
            what = found.get("error") or found.get("skipped") or f"loss {found['loss']:.4f}, {found['seconds']:.0f} s"
            print(f"{name:<14}{side:<10}{what}", flush=True)
    of_seeds = read([options.out, *options.beside])
    results = {key: one for key, one in of_seeds.items() if key[2] == options.seed}
    names = [name for name in TABLES if any(key[0] == name for key in results)]
    sides = [side for side in SIDES if any(key[1] == side for key in results)]
    of_tables = {
        name: {side: results[key] for side in sides if (key := (name, side, options.seed)) in results} for name in names
    }
    parts = summary(of_tables, sides)
    if again := seed_rows(of_seeds):
        title = "Mean loss of patrac with two seeds, and the standard deviation of their difference that the runs state"
        parts.append((title, ["", "first", "second", "difference", "by reruns", "s.e. over rows", "", ""], again))
    for title, headers, rows in parts:
        print(f"\n{title}\n{format_table(headers, rows)}")
    print("\n" + "\n".join(failures(of_tables)))
    if options.page:
        options.page.write_text(page(parts, options.note))


if __name__ == "__main__":
    main()
