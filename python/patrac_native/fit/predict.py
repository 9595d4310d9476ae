"""Predictions for new rows from the files of a fit."""

from __future__ import annotations

import csv
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from patrac_native.draws.draws import Draws
from patrac_native.draws.draws_mixture import DrawsMixture, load_predictions
from patrac_native.fit.evaluation import evaluate
from patrac_native.fit.fit_data import DataRows
from patrac_native.fit.fit_report import score_lines
from patrac_native.fit.fit_settings import DRAWS, PREPROCESSING, REPORT, SUMMARY
from patrac_native.fit.identity import check_identity, check_unchanged, different_fits
from patrac_native.fit.number_columns import check_same_units
from patrac_native.fit.preprocessing import Preprocessor
from patrac_native.fit.ranges import describe_outside, names_of
from patrac_native.fit.row_predictions import predict_classes, predict_regression
from patrac_native.fit.table_text import check_readable
from patrac_native.fit.tables import TableFormat, find_column, read_table
from patrac_native.fit.target_column import check_target
from patrac_native.report.report import write_json
from patrac_native.validation.checks import FloatArray, check_probability
from patrac_native.validation.output import check_folder, check_replaceable, replacing

if TYPE_CHECKING:
    import pandas as pd


def predict_table(
    directory: str,
    data: str,
    *,
    header: bool | None = None,
    separator: str | None = None,
    ids: Sequence[str] = (),
    out: str = "predictions.csv",
    coverage: float = 0.95,
    scores: str | None = None,
    overwrite: bool = False,
) -> int:
    """Write predictions for the rows of a table to a CSV file, and print what was done.

    Parameters
    ----------
    directory : str
        The folder to which `fit_table` wrote its results.
    data : str
        Path of a table with the columns of the fitted one in any order; the target may be missing. "-" is standard
        input.
    header : bool, optional
        Whether the first line holds the names of the columns; by default as in the fitted table.
    separator : str, optional
        The separator of fields; by default that of the fitted table.
    ids : sequence of str
        Columns of the table that are copied beside the predictions, further to those that the fit named; default none.
    out : str
        Path of the CSV file; default "predictions.csv".
    coverage : float
        Probability of the intervals of y, noise included, in (0, 1); default 0.95.
    scores : str, optional
        Path of a JSON file for the scores of the predictions, which are printed too; the table must then hold the
        target. By default nothing is scored.
    overwrite : bool
        Whether existing files may be replaced; default False.

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    ValueError
        If `coverage` is outside (0, 1), a file of the fit or the table is invalid, the files are of different fits,
        the table has other columns, or `scores` is given for a table without the target.
    OSError
        If a file does not exist, exists and may not be replaced, or cannot be written.

    Warns
    -----
    UserWarning
        If rows are outside the range of the training rows in some column.
    """
    check_probability(coverage, "--coverage")
    check_readable(data, "NEW")
    _check_outputs(data, directory, {"--out": out, "--scores": scores}, overwrite)
    preprocessor, layout = load_preprocessing(directory)
    draws = load_predictions(os.path.join(directory, DRAWS))
    check_identity(draws, directory)
    if draws.n_inputs != preprocessor.n_inputs:
        raise ValueError(different_fits(directory))
    header = layout.header if header is None else header
    frame, table = read_table(
        data,
        header=header,
        separator=separator or layout.separator,
        verbatim=[*ids, *preprocessor.unused],
        least_columns=1,
        column_names=preprocessor.column_names,
    )
    beside = _told_apart(_beside(frame, preprocessor, ids), [*_output_names(draws, preprocessor), "outside"])
    check_same_units(preprocessor.amounts(frame, with_target=scores is not None), layout.units, table.units)
    X, offset = preprocessor.transform(frame), preprocessor.offset(frame)
    observed: Any = None if scores is None else _observed(preprocessor, frame)
    for note in (*table.notes, *preprocessor.imputed(frame)):
        print(f"note: {note}")
    outside = preprocessor.outside(frame)
    if outside is None:
        print("note: this fit was made by an earlier version and does not know the range of its training rows")
    count = write_predictions(
        out,
        draws,
        preprocessor,
        X,
        coverage,
        offset=offset,
        beside=beside,
        outside=None if outside is None else names_of(outside, len(X)),
    )
    if outside:
        warnings.warn(describe_outside(outside, frame, preprocessor), UserWarning, stacklevel=2)
    what = f"mean and {100 * coverage:.4g}% intervals of y" if preprocessor.task == "regression" else "probabilities"
    print(f"wrote {out}: {what} of {preprocessor.target!r} for {count} rows")
    if scores is not None:
        evaluation = evaluate(draws, preprocessor, DataRows(X, observed, offset=offset))
        write_json(scores, {"rows": count, **evaluation.scores})
        print(f"\n{score_lines(f'rows: {count}', evaluation.scores, preprocessor.targets)}\n\nwrote {scores}")
    return count


def _check_outputs(data: str, directory: str, outputs: Mapping[str, str | None], overwrite: bool) -> None:
    """Raise OSError or ValueError if a file cannot be written, or is one of the fit, before any work."""
    given = {option: path for option, path in outputs.items() if path is not None}
    of_fit = {os.path.realpath(os.path.join(directory, name)) for name in (REPORT, SUMMARY, DRAWS, PREPROCESSING)}
    for option, path in given.items():
        if path in ("", "-") or "\0" in path:
            raise ValueError(f"{option} must be the path of a file; got {path!r}.")
        if os.path.realpath(path) in of_fit:
            raise ValueError(f"{option} {path!r} is a file of the fit itself; give another path.")
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"{option} {path!r} is in {folder!r}, which is no folder; make it first.")
        check_replaceable(path)
        if os.path.exists(data) and os.path.realpath(path) == os.path.realpath(data):
            raise ValueError(f"{option} {path!r} is the table of new rows itself; give another path.")
        if os.path.exists(path) and not overwrite:
            raise FileExistsError(f"{path} exists; pass --overwrite or another {option}.")
        check_folder(folder, option)
    if len({os.path.realpath(path) for path in given.values()}) < len(given):
        raise ValueError(f"{' and '.join(given)} are the same file; give different paths.")


def _beside(frame: pd.DataFrame, preprocessor: Preprocessor, ids: Sequence[str]) -> dict[str, list[Any]]:
    """Return the columns that stand beside the predictions; raise ValueError for columns that the fit did not know."""
    asked = [find_column(frame, column, "--id") for column in ids]
    unknown = [name for name in map(str, frame.columns) if name not in preprocessor.table_columns and name not in asked]
    if unknown:
        lacking = [column.name for column in preprocessor.columns if column.name not in frame.columns]
        hint = f", and it lacks {', '.join(map(repr, lacking))}" if lacking else ""
        raise ValueError(
            f"the table has columns that the fitted one had not: {', '.join(map(repr, unknown))}{hint}. Correct their "
            "names, leave them out, or keep them beside the predictions with --id."
        )
    names = [name for name in preprocessor.ids if name in frame.columns]
    return {
        name: frame[name].astype(object).where(frame[name].notna(), "").tolist()
        for name in dict.fromkeys([*names, *asked])
    }


def _observed(preprocessor: Preprocessor, frame: pd.DataFrame) -> Any:
    """Return the targets of a table that is to be scored; raise ValueError if it has none."""
    if preprocessor.target not in frame.columns:
        raise ValueError(
            f"--scores needs observed targets, but the table has no column {preprocessor.target!r}; leave --scores out."
        )
    check_target(frame[preprocessor.target])
    return preprocessor.transform_target(frame)


def load_preprocessing(directory: str) -> tuple[Preprocessor, TableFormat]:
    """Read the preprocessing that `patrac fit` stored, and the layout of its table.

    Returns
    -------
    preprocessor : Preprocessor
    layout : TableFormat

    Raises
    ------
    FileNotFoundError
        If the directory does not contain the file.
    ValueError
        If the file is damaged, was edited or has another version of the format.
    """
    path = os.path.join(directory, PREPROCESSING)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{directory} holds no {PREPROCESSING}; give a directory that `patrac fit` wrote.")
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
        check_unchanged(content, path)
        layout = TableFormat(**content["table"])
        for name, kind in (("separator", str), ("decimal", str), ("header", bool)):
            if not isinstance(getattr(layout, name), kind):
                raise TypeError(f"table.{name} is {getattr(layout, name)!r}")
        return Preprocessor.from_dict(content["preprocessor"]), layout
    except (UnicodeDecodeError, json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); fit again.") from error


def write_predictions(
    path: str,
    draws: Draws | DrawsMixture,
    preprocessor: Preprocessor,
    X: FloatArray,
    coverage: float,
    *,
    offset: FloatArray | None = None,
    beside: Mapping[str, Sequence[Any]] | None = None,
    outside: Sequence[str] | None = None,
) -> int:
    """Write a CSV file of predictions for the rows of X (n, d), and return their number.

    For regression the columns are mean, sd, lower and upper of y with the noise, and sd_f without it, in the target's
    units; where the noise depends on the row, sd_noise too. The ends of intervals of counts are whole numbers, and
    `offset` (n,) has the logarithms of their exposures. For classes they are the label with the largest probability,
    the probability of each class, and the total, aleatoric and epistemic entropy in nats. Numbers have six significant
    digits, or more if the standard deviation is small beside the mean. The columns `beside` come first; the last one,
    `outside`, names the inputs that are outside the range of the training rows, and is left out if that is not known.
    """
    columns = {} if beside is None else dict(beside)
    with replacing(path) as stream:
        writer = csv.writer(stream)
        names = _output_names(draws, preprocessor)
        if preprocessor.task == "regression":
            lines = _regression_lines(draws, preprocessor, X, coverage, offset)
        else:
            lines = _class_lines(draws, preprocessor, X)
        writer.writerow([*columns, *names, *([] if outside is None else ["outside"])])
        count = 0
        for line in lines:
            last = [] if outside is None else [outside[count]]
            writer.writerow([*(values[count] for values in columns.values()), *line, *last])
            count += 1
    return count


def _output_names(draws: Draws | DrawsMixture, preprocessor: Preprocessor) -> list[str]:
    """Return the columns of predictions, without `outside`."""
    if preprocessor.task == "regression":
        return ["mean", "sd", "lower", "upper", "sd_f", *(["sd_noise"] if _has_noise_of_rows(draws) else [])]
    return ["label", *(f"p_{label}" for label in preprocessor.classes), "entropy", "aleatoric", "epistemic"]


def _told_apart(beside: dict[str, list[Any]], outputs: Sequence[str]) -> dict[str, list[Any]]:
    """Return the columns beside the predictions, renamed where a column of the predictions has their name."""
    named: dict[str, list[Any]] = {}
    for name, values in beside.items():
        new = name
        while new in outputs or (new != name and new in beside):
            new = f"id_{new}"
        if new != name:
            print(f"note: the column {name!r} of the table is {new!r} in the result, whose {name!r} is predicted")
        named[new] = values
    return named


def _regression_lines(
    draws: Draws | DrawsMixture, preprocessor: Preprocessor, X: FloatArray, coverage: float, offset: FloatArray | None
) -> Iterator[list[Any]]:
    of_rows, of_counts = _has_noise_of_rows(draws), preprocessor.counts
    for block in predict_regression(draws, preprocessor, X, coverage, offset=offset):
        columns = (block.mean, block.sd, block.lower, block.upper, block.sd_f, block.sd_noise)
        for mean, sd, lower, upper, sd_f, sd_noise in zip(*(column.tolist() for column in columns), strict=True):
            ends = [int(lower), int(upper)] if of_counts else [_shown(end, min(sd, sd_f)) for end in (lower, upper)]
            noise = [_shown(sd_noise, min(sd, sd_f))] if of_rows else []
            yield [*(_shown(value, min(sd, sd_f)) for value in (mean, sd)), *ends, _shown(sd_f, min(sd, sd_f)), *noise]


def _has_noise_of_rows(draws: Draws | DrawsMixture) -> bool:
    """Return whether the network predicts the noise of each row."""
    return draws.likelihood.targets == "real" and draws.likelihood.outputs_per_target > 1


def _class_lines(draws: Draws | DrawsMixture, preprocessor: Preprocessor, X: FloatArray) -> Iterator[list[Any]]:
    for block in predict_classes(draws, X):
        labels = [preprocessor.classes[index] for index in block.probability.argmax(axis=1)]
        entropies = zip(*(part.tolist() for part in block.entropy), strict=True)
        for label, probability, entropy in zip(labels, block.probability.tolist(), entropies, strict=True):
            yield [label, *map(_shown, probability), *map(_shown, entropy)]


def _shown(value: float, spread: float = 0.0) -> float:
    """Round to six significant digits, or to a ten-thousandth of the spread if that is more accurate."""
    digits = 6
    if 0 < spread < abs(value):
        digits = max(digits, 5 + math.floor(math.log10(abs(value) / spread)))
    return float(f"{value:.{min(digits, 17)}g}")
