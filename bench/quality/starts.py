"""The number of starts of a fit at equal counted budget: few long chains, or many short ones.

`python bench/quality/starts.py --data FOLDER --out FILE` fits `Full` with 4, 8, 16 and 32 networks, each with a chain
of its own and 2,000 draws in all, within the same `minutes`, out of which the training of the networks is paid too.
It prints of each set for each number the NLPD of the held-out rows (split 0 of a UCI set, a fifth of another table)
in the standardised target, the coverage of their 90% intervals, the rerun error of at most 100 of them (median and 90th
percentile, in units of the interval's width), the largest R-hat of f and the number of steps of a chain. Means are over
the seeds. Results do not depend on the load of the machine.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from comparison import Results
from reruns import spread_rows
from sklearn.model_selection import train_test_split
from uci_sets import SETS, load_split

import patrac_native as pn
from patrac_native.studies.tables import format_table

DRAWS = 2_000
# Tables beside the UCI sets, with their targets.
TABLES = {"car_prices": "Price", "house_prices": "price", "carseats": "Sales"}
DEFAULT = ["yacht", "boston", "energy", "concrete", "wine", *TABLES]
# Where a fit at its defaults takes the same noise for all rows; for the others it takes noise of each row.
NOISE = dict.fromkeys(("wine", "power", "kin8nm", "naval"), "gaussian")
COLUMNS = {
    "NLPD": "{:.3f}",
    "in 90%": "{:.1%}",
    "rerun error": "{:.1%}",
    "one in ten": "{:.1%}",
    "R-hat": "{:.2f}",
    "steps": "{:,.0f}",
}


def split_of(name: str, data: Path) -> list[Any]:
    """Return rows, targets, and those held out."""
    if name in SETS:
        return list(load_split(data / "uci", name, 0)[:4])
    table = pd.read_csv(data / "tables" / f"{name}.csv.gz")
    y = table.pop(TABLES[name]).to_numpy(dtype=float)
    X, X_test, y, y_test = train_test_split(table, y, test_size=0.2, random_state=0)
    return [X, y, X_test, y_test]


def measure(name: str, starts: int, seed: int, data: Path, minutes: float) -> dict[str, float]:
    """Fit with so many starts; return the columns of the table."""
    X, y, X_test, y_test = split_of(name, data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what the verdict says
        reg = pn.PatracRegressor(
            architecture="full",
            likelihood=NOISE.get(name, "heteroscedastic"),
            chains=starts,
            draws=DRAWS // starts,
            minutes=minutes,
            random_state=1_000 * seed,  # the networks of a fit have its seed and the next ones
        ).fit(X, y)
    scores = reg.evaluate(X_test, y_test).scores
    inputs = spread_rows(reg.preprocessor_.transform(X_test))
    error = reg.draws_.rerun_error(inputs).of_predictions
    run = reg.draws_.settings
    return {
        "NLPD": scores["nlpd"],
        "in 90%": scores["coverage"]["0.9"],
        "rerun error": error.median,
        "one in ten": error.percentile_90,
        "R-hat": pn.diagnostics.convergence(reg.draws_.predict(inputs)).max_rhat,
        "steps": float(run["warmup_steps"] + run["thin"] * reg.draws_.n_draws),
    }


def main() -> None:
    """Run all numbers of starts of all sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds uci/ and tables/")
    parser.add_argument("--sets", nargs="+", choices=[*SETS, *TABLES], default=DEFAULT, metavar="NAME")
    parser.add_argument("--starts", type=int, nargs="+", default=[4, 8, 16, 32], help="default 4 8 16 32")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="default 0")
    parser.add_argument("--minutes", type=float, default=0.5, help="of each fit; default 0.5")
    parser.add_argument("--out", type=Path, help="JSON file of all results; a later run goes on from it")
    options = parser.parse_args()
    results, rows = Results(options.out), []
    for name in options.sets:
        for starts in options.starts:
            found = []
            for seed in options.seeds:
                one = partial(measure, name, starts, seed, options.data, options.minutes)
                found.append(results.get(f"{name} {starts} {options.minutes:g} {seed}", one))
            means = [form.format(np.mean([run[column] for run in found])) for column, form in COLUMNS.items()]
            rows.append([name, str(starts), *means])
            print(" ".join(rows[-1]), flush=True)
    print(format_table(["", "starts", *COLUMNS], rows))


if __name__ == "__main__":
    main()
