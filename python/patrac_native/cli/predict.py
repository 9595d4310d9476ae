"""`patrac predict`: predictions for new rows from the files that `patrac fit` wrote."""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import warnings
from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd

import patrac_native as pn
from patrac_native.cli.fit import ESTIMATOR, REPORT, SUMMARY, TABLE, has_target, target_values
from patrac_native.cli.table import Layout, TableFile, add_layout, layout_of
from patrac_native.files import check_entries, replacing, say
from patrac_native.fit.preprocessor import some_of
from patrac_native.fit.report import identity_of, score_lines

# The entries of table.json and of the layout in it, and what makes a cell of a spreadsheet a formula.
_ENTRIES = {"layout": dict, "names": list, "targets": dict, "class": str, "draws": str}
_LAYOUT: dict[str, Any] = {"sep": (str, NoneType), "header": (bool, NoneType), "decimal": str, "missing": list}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `patrac predict`."""
    add = parser.add_argument
    add("directory", metavar="DIR", help="where `patrac fit` wrote its results")
    add(
        "data",
        metavar="NEW",
        help="table of new rows, with the columns of the fit and perhaps the target; - is standard input",
    )
    add("--ids", nargs="+", default=[], metavar="COL", help="further columns of NEW that stand beside the predictions")
    add("--out", default="predictions.csv", metavar="FILE", help="default ./predictions.csv")
    add("--coverage", type=float, default=0.95, help="of the intervals of y, noise included; default 0.95")
    add("--scores", metavar="FILE", help="score the predictions, where NEW holds the target: printed, and as JSON here")
    add("--overwrite", action="store_true", help="replace existing files")
    add_layout(parser, "that of the fitted table")


def run(args: argparse.Namespace) -> int:
    """Run `patrac predict` with parsed arguments; return the exit code."""
    if not 0 < args.coverage < 1:
        raise ValueError(f"coverage must be above 0 and below 1; got {args.coverage}.")
    _check_outputs(args)
    estimator, fitted, layout = _load(args.directory)
    targets, columns = fitted["targets"], [*fitted["targets"].values()]
    target = targets["target"]

    def named(count: int) -> list[str]:
        """Return the names of so many columns without header: those of the fit, with or without the target."""
        names = [name for name in fitted["names"] if count == len(fitted["names"]) or name not in columns]
        if len(names) != count:
            raise ValueError(f"{args.data} has {count} columns, and the fitted table has {len(fitted['names'])}.")
        return names

    table = TableFile(args.data, layout_of(args, layout), named)
    ids = [table.column(column, "ids") for column in args.ids]
    is_class = isinstance(estimator, pn.PatracClassifier)
    frame = rows_of(table, estimator, columns, ids)
    if args.scores is not None:
        if absent := [name for name in columns if name not in frame]:
            raise ValueError(f"scores needs observed targets, and the table has no column {absent[0]!r}; leave it out.")
        if not has_target(frame, targets).any():
            raise ValueError("scores needs observed targets, and no row has one; leave it out.")
    X = frame.drop(columns=[*columns, *(name for name in ids if name not in fitted["names"])], errors="ignore")
    known_columns = estimator.preprocessor_.table_columns
    unknown = [name for name in X if name not in known_columns]
    if unknown and {column.name for column in estimator.preprocessor_.columns} <= set(X):  # else a name may be misspelt
        say(f"  note: {some_of(unknown)} {'are' if unknown[1:] else 'is'} ignored: no column of the fitted table")
        X = X.drop(columns=unknown)
    problems = np.array(estimator.problems(X), dtype=object)
    is_read = problems == ""
    # Where no row can be read, that of all rows is the error.
    X = X[is_read] if is_read.any() else X
    found = _of_classes(estimator, X) if is_class else _of_numbers(estimator, X, args.coverage)
    found["remarks"] = estimator.preprocessor_.remarks(X)
    of_predictions = estimator.report_.verdict.predictions
    # As objects, whole numbers stay so beside the empty cells of rows that are not predicted.
    predicted = pd.DataFrame(found, index=np.flatnonzero(is_read), dtype=object).reindex(range(len(frame)))
    predicted["status"] = ["predicted" if not problem else problem for problem in problems]
    predicted["verdict"] = of_predictions.grade
    beside = {}
    for name in dict.fromkeys([*estimator.ids, *ids]):
        # A column of the table may have the name of one of the predictions.
        beside[f"id_{name}" if name in predicted else name] = frame[name].to_numpy() if name in frame else ""
    _write(pd.DataFrame({**beside, **predicted}), args.out)
    what = "probabilities" if is_class else f"mean and {100 * args.coverage:.4g}% intervals of y"
    say(f"wrote {args.out}: {what} of {target!r} for {len(X)} rows")
    rows = f"of {len(frame)} rows"
    if not is_read.all():
        warnings.warn(
            f"{len(frame) - len(X)} {rows} cannot be predicted, as their status says, such as: {problems[~is_read][0]}",
            stacklevel=2,
        )
    unseen = sum(" is unknown" in remark for remark in found["remarks"])
    if unseen:
        warnings.warn(f"{unseen} {rows} have a category that no training row has", stacklevel=2)
    marked = sum(map(bool, found["remarks"]))
    if marked:
        first = next(remark for remark in found["remarks"] if remark)
        warnings.warn(f"{marked} {rows} have a remark, such as: {first}", stacklevel=2)
    if of_predictions.grade == "do not use":
        warnings.warn(f"the verdict on this fit was: {of_predictions}", stacklevel=2)
    if args.scores is not None:
        known = has_target(frame, targets)[is_read]
        if not known.all():
            say(f"  note: {len(X) - int(known.sum())} of the predicted rows have no target and are not scored")
        X, observed = X[known], frame[is_read][known]
        of_rows = target_values(observed, targets, "classification" if is_class else "regression")
        scores = estimator.evaluate(X, **of_rows).scores
        pn.report.write_json(args.scores, {"rows": len(X), "verdict": of_predictions.grade, **scores})
        kind = estimator.draws_.likelihood.targets
        say(f"\n{score_lines(f'rows: {len(X)}', scores, kind)}\n\nwrote {args.scores}")
    return 0


def rows_of(table: TableFile, estimator: Any, targets: Sequence[str], ids: Sequence[str] = ()) -> pd.DataFrame:
    """Return the rows of a table, in which the types of the fit decide what a field is."""
    preprocessor, text = estimator.preprocessor_, dict.fromkeys([*estimator.ids, *ids])
    if isinstance(estimator, pn.PatracClassifier):
        text |= dict.fromkeys(targets, estimator.classes_.tolist())
    return table.frame({**text, **preprocessor.text_columns}, [*preprocessor.table_columns, *targets])


def _check_outputs(args: argparse.Namespace) -> None:
    """Raise OSError or ValueError, before the work, if a file cannot be written or would replace what is read."""
    taken = {os.path.realpath(os.path.join(args.directory, name)) for name in (REPORT, SUMMARY, ESTIMATOR, TABLE)}
    taken.add(os.path.realpath(args.data))
    for option, path in (("out", args.out), ("scores", args.scores)):
        if path is None:
            continue
        if os.path.realpath(path) in taken:
            raise ValueError(f"{option} {path!r} is a file that is read or is written already; give another path.")
        if os.path.lexists(path) and not (args.overwrite and os.path.isfile(path)):
            raise FileExistsError(f"{path} exists; give --overwrite, or another path for {option}.")
        with tempfile.TemporaryFile(dir=os.path.dirname(path) or ".") as stream:
            stream.write(b"room")
        taken.add(os.path.realpath(path))


def _load(directory: str) -> tuple[Any, dict[str, Any], Layout]:
    """Return the estimator of a fit, what its table was, and the layout of the file; raise ValueError if damaged."""
    path = os.path.join(directory, TABLE)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{directory} holds no {TABLE}; give a directory that `patrac fit` wrote.")
    try:
        with open(path, encoding="utf-8") as stream:
            fitted = json.load(stream)
        check_entries(fitted, _ENTRIES, "it")
        check_entries(fitted["layout"], _LAYOUT, "its layout")
        columns = [*fitted["targets"].values()]
        if not {*map(type, [*fitted["names"], *columns, *fitted["layout"]["missing"]])} <= {str}:
            raise ValueError("its names are no text")
        made = {one.__name__: one for one in (pn.PatracRegressor, pn.PatracClassifier)}[fitted["class"]]
        layout, _ = Layout(**fitted["layout"]), (fitted["targets"]["target"], fitted["names"][0])
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); fit again.") from error
    estimator = made.load(os.path.join(directory, ESTIMATOR))
    if fitted.get("draws") != identity_of(estimator.draws_):
        raise ValueError(f"{path} and {ESTIMATOR} are of different fits; fit again.")
    return estimator, fitted, layout


def _of_numbers(estimator: Any, X: pd.DataFrame, coverage: float) -> dict[str, list[Any]]:
    """Return columns of mean, sd and ends of the interval of y, and the sd of f and, if it varies, of the noise."""
    mean, sd = estimator.predict(X, return_std=True)
    lower, upper = estimator.predict_interval(X, coverage)
    parts, likelihood = estimator.predict_uncertainty(X), estimator.draws_.likelihood
    sd_f, sd_noise = np.sqrt(parts.epistemic), np.sqrt(parts.aleatoric)
    columns = {"mean": mean, "sd": sd, "lower": lower, "upper": upper, "sd_f": sd_f}
    columns |= {"sd_noise": sd_noise} if likelihood.noise_by_row else {}
    spread = np.minimum(sd, sd_f)
    shown = {name: list(map(_shown, values.tolist(), spread.tolist())) for name, values in columns.items()}
    if likelihood.targets == "count":
        shown |= {name: columns[name].astype(np.int64).tolist() for name in ("lower", "upper")}
    return shown


def _of_classes(estimator: Any, X: pd.DataFrame) -> dict[str, list[Any]]:
    """Return columns of the most probable label, the probabilities, and the entropy and its parts in nats."""
    probability, parts = estimator.predict_proba(X), estimator.predict_uncertainty(X)
    columns = {f"p_{label}": probability[:, index] for index, label in enumerate(estimator.classes_)}
    columns |= {"entropy": parts.total, "aleatoric": parts.aleatoric, "epistemic": parts.epistemic}
    labels = estimator.classes_[probability.argmax(axis=1)].tolist()
    return {"label": labels, **{name: list(map(_shown, values.tolist())) for name, values in columns.items()}}


def _shown(value: float, spread: float = 0.0) -> float:
    """Round to six significant digits, or to a ten-thousandth of the spread if that is more accurate."""
    digits = 6
    if 0 < spread < abs(value):
        digits = max(digits, 5 + math.floor(math.log10(abs(value) / spread)))
    return float(f"{value:.{min(digits, 17)}g}")


def _write(table: pd.DataFrame, path: str) -> None:
    """Write a table as CSV, whole or not at all, in which no text is a formula."""
    text = table.select_dtypes(include=["object", "string"]).columns
    safe = table.assign(**{name: table[name].map(_as_text) for name in text}).rename(columns=_as_text)
    with replacing(path) as stream:
        safe.to_csv(stream, index=False)


def _as_text(cell: Any) -> Any:
    """Return a cell with an apostrophe before text, other than a number, that a spreadsheet would run as a formula."""
    if not (isinstance(cell, str) and cell.startswith(_FORMULA)):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
