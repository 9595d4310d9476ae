"""The tables of `tables.py`: columns of all kinds, missing values, counts and censored times, and their test rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

Array = npt.NDArray[np.float64]
REAL, COUNT, CLASS, CENSORED = "real", "count", "class", "censored"
# Target and kind of each table, of a censored time also the column that is 1 for an event. Smaller ones first.
TABLES = {
    "auto_mpg": ("mpg", REAL),
    "carseats": ("Sales", REAL),
    "cps1985": ("wage", REAL),
    "house_prices": ("price", REAL),
    "biomass": ("HHV", REAL),
    "car_prices": ("Price", REAL),
    "permeability": ("permeability", REAL),
    "stackoverflow": ("Salary", REAL),
    "deliveries": ("time_to_delivery", REAL),
    "storms": ("pressure", REAL),
    "flights": ("arr_delay", REAL),
    "affairs": ("affairs", COUNT),
    "medpar": ("los", COUNT),
    "rwm5yr": ("docvis", COUNT),
    "scat": ("Species", CLASS),
    "alzheimer": ("Class", CLASS),
    "credit": ("Status", CLASS),
    "wa_churn": ("churn", CLASS),
    "lending_club": ("Class", CLASS),
    "taxi": ("tip", CLASS),
    "gbsg": ("rfstime", CENSORED, "status"),
    "rotterdam": ("dtime", CENSORED, "death"),
}
# Columns that are no inputs: time to and event of relapse are known no sooner than the target, with which they end.
_OUTCOMES = {"rotterdam": ["rtime", "recur"]}


@dataclass(frozen=True)
class TableRows:
    """Training and test rows of a table.

    Targets are numbers, class labels from 0, or logarithms of times, whose `event`, all ones elsewhere, says whether
    they were seen; of others a lower bound is known.
    """

    name: str
    kind: str
    X: pd.DataFrame
    y: Array
    event: Array
    X_test: pd.DataFrame
    y_test: Array
    event_test: Array
    classes: int = 0

    def parted(self, seed: int) -> TableRows:
        """Return four fifths of the training rows, with the others as test rows, by which models are tuned."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        held, rest = order[: len(order) // 5], order[len(order) // 5 :]
        parts = [(self.X.iloc[rows], self.y[rows], self.event[rows]) for rows in (rest, held)]
        return TableRows(self.name, self.kind, *parts[0], *parts[1], self.classes)

    @property
    def held(self) -> TableRows:
        """The test rows, as training rows."""
        return replace(self, X=self.X_test, y=self.y_test, event=self.event_test)

    @property
    def n_counts(self) -> int:
        """The number of counts from 0 to which probabilities are given."""
        return 5 * int(max(self.y.max(), self.y_test.max())) + 50


def load_table(data: Path, name: str) -> TableRows:
    """Read a table from the folder of tables; raise FileNotFoundError if it is not there."""
    path = data / f"{name}.csv.gz"
    if not path.is_file():
        raise FileNotFoundError(f"--data: there is no file {path}; give the folder that holds the tables.")
    frame = pd.read_csv(path, keep_default_na=False, na_values=["", "NA"])
    target, kind, *event = TABLES[name]
    classes = 0
    if kind == CLASS:
        labels, codes = np.unique(frame[target], return_inverse=True)
        y, classes = codes.astype(float), len(labels)
    else:
        y = frame[target].to_numpy(float)
    y = np.log(y) if kind == CENSORED else y
    seen = frame[event[0]].to_numpy(float) if event else np.ones(len(y))
    X = frame.drop(columns=[target, *event, *_OUTCOMES.get(name, [])])
    is_test = np.random.default_rng(0).permutation(len(y)) < len(y) // 5
    parts = [(X[rows], y[rows], seen[rows]) for rows in (~is_test, is_test)]
    return TableRows(name, kind, *parts[0], *parts[1], classes)


def is_text(column: pd.Series) -> bool:
    """Return whether a column holds categories."""
    return not pd.api.types.is_numeric_dtype(column)


def as_numbers(rows: TableRows) -> tuple[Array, Array]:
    """Return the inputs of training and test rows as rivals get them that know no categories.

    Categories become columns of 0 and 1, a missing one is a category, and one that no training row has is all zeros.
    Missing numbers are the median, beside a column that marks them. Columns are standardised, constant ones left out.
    """
    found: list[list[Array]] = []
    for name in rows.X:
        column, other = rows.X[name], rows.X_test[name]
        if is_text(column):
            texts = [part.fillna("missing").astype(str) for part in (column, other)]
            found += [[(part == label).to_numpy(float) for part in texts] for label in sorted(texts[0].unique())]
        else:
            parts = [part.to_numpy(float) for part in (column, other)]
            found.append([np.where(np.isnan(part), np.nanmedian(parts[0]), part) for part in parts])
            found.append([np.isnan(part).astype(float) for part in parts])
    found = [pair for pair in found if np.ptp(pair[0]) > 0]
    moments = [(pair[0].mean(), pair[0].std()) for pair in found]
    X, X_test = (
        np.stack([(pair[part] - mean) / sd for pair, (mean, sd) in zip(found, moments, strict=True)], axis=1)
        for part in (0, 1)
    )
    return X, X_test
