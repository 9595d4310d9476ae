"""`patrac predict`: predictions of new rows from the files that `patrac fit` wrote."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
from collections.abc import Iterator
from typing import Any

from patrac_native.draws.draws import Draws
from patrac_native.tabular.evaluation import predict_classes, predict_regression
from patrac_native.tabular.fit import DRAWS, PREPROCESSING, add_table_arguments
from patrac_native.tabular.preprocessing import Preprocessor
from patrac_native.tabular.tables import read_table
from patrac_native.validation.checks import FloatArray


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `patrac predict`."""
    add = parser.add_argument
    add("directory", metavar="DIR", help="where `patrac fit` wrote its results")
    add("data", metavar="NEW", help="text file of new rows, laid out as the fitted one; it may lack the target")
    add_table_arguments(parser)
    add("--out", default="predictions.csv", metavar="FILE", help="default ./predictions.csv")
    add("--coverage", type=float, default=0.95, help="of the intervals of y, noise included; default 0.95")
    add("--overwrite", action="store_true", help="replace an existing file")


def run(args: argparse.Namespace) -> int:
    """Run `patrac predict` with parsed arguments; return the exit code."""
    if not 0 < args.coverage < 1:
        raise ValueError(f"--coverage must be between 0 and 1; got {args.coverage}.")
    folder = os.path.dirname(args.out) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"--out {args.out!r} is in {folder!r}, which is no folder; make it first.")
    if os.path.exists(args.out) and not args.overwrite:
        raise FileExistsError(f"{args.out} exists; pass --overwrite or another --out.")
    preprocessor, layout = load_preprocessing(args.directory)
    draws = Draws.load(os.path.join(args.directory, DRAWS))
    if os.path.isdir(args.data):
        raise IsADirectoryError(f"NEW must be a file of rows and columns; {args.data!r} is a folder.")
    if not os.path.isfile(args.data):
        raise FileNotFoundError(f"there is no file {args.data!r}.")
    header = layout["header"] if args.header is None else args.header
    frame, table = read_table(args.data, header=header, separator=args.sep or layout["separator"])
    if not table.header:
        frame = preprocessor.name_columns(frame)
    X = preprocessor.transform(frame)
    for note in preprocessor.imputed(frame):
        print(f"note: {note}")
    count = write_predictions(args.out, draws, preprocessor, X, args.coverage)
    what = (
        f"mean and {100 * args.coverage:.4g}% intervals of y" if preprocessor.task == "regression" else "probabilities"
    )
    print(f"wrote {args.out}: {what} of {preprocessor.target!r} for {count} rows")
    return 0


def load_preprocessing(directory: str) -> tuple[Preprocessor, dict[str, Any]]:
    """Read the preprocessing that `patrac fit` stored, and the layout of its table.

    Raises
    ------
    FileNotFoundError
        If the directory holds none.
    ValueError
        If the file is damaged or of another version.
    """
    path = os.path.join(directory, PREPROCESSING)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{directory} holds no {PREPROCESSING}; give a directory that `patrac fit` wrote.")
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
        return Preprocessor.from_dict(content["preprocessor"]), dict(content["table"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); fit again.") from error


def write_predictions(path: str, draws: Draws, preprocessor: Preprocessor, X: FloatArray, coverage: float) -> int:
    """Write a CSV file of predictions, block by block of rows, and return their number.

    Regression: mean, sd, lower, upper of y with the noise, and sd_f without it, in the target's units. Classes: the
    label with the largest probability, the probability of each, and the total, aleatoric and epistemic entropy in nats.
    Numbers have six significant digits, and more where the spread of the row asks for it.
    """
    partial = f"{path}.partial"
    count = 0
    try:
        with open(partial, "w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            if preprocessor.task == "regression":
                writer.writerow(["mean", "sd", "lower", "upper", "sd_f"])
                lines = _regression_lines(draws, preprocessor, X, coverage)
            else:
                classes = [f"p_{label}" for label in preprocessor.classes]
                writer.writerow(["label", *classes, "entropy", "aleatoric", "epistemic"])
                lines = _class_lines(draws, preprocessor, X)
            for line in lines:
                writer.writerow(line)
                count += 1
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)
    return count


def _regression_lines(draws: Draws, preprocessor: Preprocessor, X: FloatArray, coverage: float) -> Iterator[list[Any]]:
    for block in predict_regression(draws, preprocessor, X, coverage):
        columns = (block.mean, block.sd, block.lower, block.upper, block.sd_f)
        for mean, sd, lower, upper, sd_f in zip(*(column.tolist() for column in columns), strict=True):
            yield [_shown(value, min(sd, sd_f)) for value in (mean, sd, lower, upper, sd_f)]


def _class_lines(draws: Draws, preprocessor: Preprocessor, X: FloatArray) -> Iterator[list[Any]]:
    for block in predict_classes(draws, X):
        labels = [preprocessor.classes[index] for index in block.probability.argmax(axis=1)]
        entropies = zip(*(part.tolist() for part in block.entropy), strict=True)
        for label, probability, entropy in zip(labels, block.probability.tolist(), entropies, strict=True):
            yield [label, *map(_shown, probability), *map(_shown, entropy)]


def _shown(value: float, spread: float = 0.0) -> float:
    """Round to six significant digits, or to a ten-thousandth of the spread where a large mean would swallow it."""
    digits = 6
    if 0 < spread < abs(value):
        digits = max(digits, 5 + math.floor(math.log10(abs(value) / spread)))
    return float(f"{value:.{min(digits, 17)}g}")
