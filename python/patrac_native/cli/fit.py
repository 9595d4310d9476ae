"""`patrac fit`: an estimator on a table of data, with scores of held-out rows."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

import patrac_native as pn
from patrac_native.cli.options import add_parameters, parameters_of
from patrac_native.cli.table import WORDS, Layout, TableFile, add_layout, layout_of
from patrac_native.files import commit, replacing, say, staging
from patrac_native.fit.candidates import RunInterrupted
from patrac_native.fit.pieces import Pieces
from patrac_native.fit.preprocessor import FloatArray, Preprocessor, place, some_of, unlike_numbers
from patrac_native.fit.report import identity_of, printed, report_of, summary_content
from patrac_native.fit.rows import hold_out

REPORT, SUMMARY, ESTIMATOR, TABLE = _FILES = "report.html", "summary.json", "estimator.npz", "table.json"
# What a fit with --store was asked for, in its folder, by which `patrac resume` completes it.
COMMAND = "command.json"
# Defaults of the command where those of the estimators differ.
_DEFAULTS: dict[str, Any] = {"minutes": 2.0, "impute": "median", "random_state": 0}
# Parameters that name columns.
_COLUMNS = ("drop", "ids", "categorical", "dates")
_TASKS = ("regression", "classification")
# Text with more labels than this, and whole numbers with at most so many values, are told to the user.
_MANY_LABELS, _FEW_NUMBERS = 100, 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `patrac fit`."""
    add = parser.add_argument
    formats = "text file of rows and columns, also .gz, .bz2, .xz or .zip, or another format that pandas knows by name"
    add("data", metavar="DATA", help=f"{formats}, such as .parquet; - is standard input")
    add("--target", required=True, metavar="COL", help="the column to predict, by name or by number from 0")
    bounds = "the target's upper bound, where it is censored: the target column then holds the lower one"
    add("--upper", metavar="COL", help=f"{bounds}; equal bounds are a known value, an empty one is infinite")
    seen = "1 or true where the target is the time of an event, 0 or false where the event would have come later"
    add("--event", metavar="COL", help=f"{seen} (the row is censored): survival regression")
    add("--task", choices=_TASKS, help="default: classification for text, Booleans and two different numbers")
    share = "share of the rows that are held out and scored, in [0, 1); default 0.3"
    add("--test-fraction", type=float, default=0.3, metavar="F", help=f"{share}; with 0, leave-one-out scores")
    add("--group", metavar="COL", help="rows with the same value here are never divided, as those of one patient")
    add("--time", metavar="COL", help="numbers or dates, of which the latest are held out, in place of random rows")
    add(
        "--keep",
        nargs="+",
        default=[],
        metavar="COL",
        help="columns of row numbers, groups or times that are inputs all the same",
    )
    add("--out", default="patrac-fit", metavar="DIR", help="where the results go; default ./patrac-fit")
    add("--overwrite", action="store_true", help="replace the results of an earlier run")
    add_layout(parser, "it is found from the first lines, which must hold the names of the columns")
    add_parameters(parser, (pn.PatracRegressor, pn.PatracClassifier), _DEFAULTS)


def run(args: argparse.Namespace) -> int:
    """Run `patrac fit` with parsed arguments; return the exit code.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C ended the run, after the results of the draws so far are written, if there are enough.
    """
    if not 0 <= args.test_fraction < 1:
        raise ValueError(f"test_fraction must be at least 0 and below 1; got {args.test_fraction}.")
    if args.time is not None and args.test_fraction == 0:
        raise ValueError("time holds out the latest rows, and test_fraction=0 holds out none; leave one of them out.")
    _check_folder(args.out, args.overwrite)
    if getattr(args, "store", None) is not None and not getattr(args, "is_resumed", False):
        _keep_command(args)
    with staging(args.out, _FILES) as staged:
        return _fitted(args, staged)


def _fitted(args: argparse.Namespace, staged: str) -> int:
    """Fit, and replace the results by those that are written to the folder `staged`."""
    table, estimator, frame, targets, task = rows_of(args)
    target, columns = targets["target"], [*targets.values()]
    X, labels = frame.drop(columns=columns), frame[target].astype(str) if task == "classification" else None
    inputs, seed = X.drop(columns=[*estimator.drop, *estimator.ids]), estimator.random_state
    of_copies = frame[target] if len(targets) == 1 else frame[columns]
    groups = None if args.group is None else _complete(frame[args.group], "group").to_numpy()
    times = None if args.time is None else _times(frame[args.time])
    of_split: dict[str, Any] = {"seed": seed, "labels": labels, "groups": groups, "times": times}
    train, test, note = hold_out(inputs, of_copies, args.test_fraction, **of_split)
    note = f"\n  note: {note}" if note else ""
    say(f"  {len(train)} training rows, {len(test)} held out (random_state {seed}){note}")
    given, unseen = (target_values(frame.iloc[rows], targets, task) for rows in (train, test))
    held_out = (X.iloc[test], *unseen.values()) if len(test) else None
    try:
        with pn.Note.collect("verdict"):  # which is printed below
            groups = None if groups is None else groups[train]
            estimator.fit(X.iloc[train], **given, groups=groups, held_out=held_out)
    except RunInterrupted as error:
        raise KeyboardInterrupt(f"before there was anything to write: {error}{_remedy(args)}") from None
    evaluation = estimator.result_.evaluation if len(test) else estimator.evaluate()
    say(f"\n{printed(estimator, evaluation)}")
    try:
        _write(staged, estimator, evaluation, table, targets)
        commit(staged, args.out, _FILES)
        if getattr(args, "store", None) is not None:
            write_command(args.store, {**read_command(args.store), "is_written": True})
    except OSError as error:
        kept = tempfile.mkdtemp(prefix="patrac-fit-")
        _write(kept, estimator, evaluation, table, targets)
        reason = f"{error.strerror or error}. Nothing is lost: the results are in {kept}"
        raise OSError(error.errno, reason, error.filename) from error
    say(f"\nwrote {', '.join(os.path.join(args.out, name) for name in (REPORT, SUMMARY, ESTIMATOR, TABLE))}")
    for part in estimator.report_.verdict.parts:
        say(f"{part.subject}: {part.grade}; {part.facts}")
    if estimator.result_.reached is not None:
        say(estimator.result_.reached.text)
    if estimator.result_.interruption:
        raise KeyboardInterrupt(
            f"{estimator.result_.interruption}, which the results in {args.out} rest on{_remedy(args)}"
        )
    return 0


def rows_of(args: argparse.Namespace) -> tuple[TableFile, Any, pd.DataFrame, dict[str, str], str]:
    """Return the table of a fit, its estimator, its rows, the columns of the target by their options, and the task."""
    table = TableFile(args.data, layout_of(args, Layout()))
    frame, targets, task = _read(table, args)
    made = pn.PatracClassifier if task == "classification" else pn.PatracRegressor
    own = {"verbose": True, "warm_start": getattr(args, "warm_start", False)}
    return table, made(**{**_DEFAULTS, **own, **parameters_of(args, made)}), frame, targets, task


def _keep_command(args: argparse.Namespace) -> None:
    """Write what a fit is asked for to its folder, and say how it is completed; ValueError if that cannot be."""
    if args.data == "-":
        raise ValueError("store needs a table that can be read again after a kill; write standard input to a file.")
    args.store = os.path.abspath(args.store)
    if Pieces(args.store).has_begun:
        raise FileExistsError(f"{args.store} holds a fit; {_completing(args.store)} goes on with it.")
    given = {name: value for name, value in vars(args).items() if name not in ("run", "words", "traceback")}
    given |= {"data": os.path.abspath(args.data), "out": os.path.abspath(args.out)}
    content = {"arguments": given, "table": file_hash(args.data), "is_written": False}
    os.makedirs(args.store, exist_ok=True)
    write_command(args.store, content)
    say(f"a kill costs little: {_completing(args.store)} completes this fit")


def _completing(store: str) -> str:
    """Return the command that completes the fit in a folder."""
    return f"patrac resume {shlex.quote(store)}"


def _remedy(args: argparse.Namespace) -> str:
    """Return how an interrupted fit is completed, if it can be."""
    return "" if getattr(args, "store", None) is None else f"; {_completing(args.store)} completes it"


def file_hash(path: str) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_command(store: str) -> dict[str, Any]:
    """Return what the fit in a folder was asked for; empty if no command made it."""
    with suppress(FileNotFoundError), open(os.path.join(store, COMMAND), encoding="utf-8") as stream:
        return dict(json.load(stream))
    return {}


def write_command(store: str, content: dict[str, Any]) -> None:
    """Write what the fit in a folder was asked for."""
    with replacing(os.path.join(store, COMMAND)) as stream:
        stream.write(json.dumps(content))


def target_values(frame: pd.DataFrame, targets: Mapping[str, str], task: str) -> dict[str, Any]:
    """Return the arguments `y` and, of times, `event` of an estimator's methods.

    y are numbers (n,), labels as they are written, or the bounds (n, 2) of censored targets; infinite where empty.
    """
    y = frame[targets["target"]]
    if task == "classification":
        return {"y": y.astype(str).to_numpy(dtype=str)}
    if "upper" in targets:
        bounds = frame[[*targets.values()]].to_numpy(dtype=np.float64)
        return {"y": np.where(np.isnan(bounds), [-np.inf, np.inf], bounds)}
    return {"y": y.to_numpy()} | ({"event": frame[targets["event"]]} if "event" in targets else {})


def has_target(frame: pd.DataFrame, targets: Mapping[str, str]) -> npt.NDArray[np.bool_]:
    """Return whether each row has a target (n,); of two bounds, either may be missing."""
    known = frame[[*targets.values()]].notna()
    return np.asarray(known.any(axis=1) if "upper" in targets else known.all(axis=1))


def _read(table: TableFile, args: argparse.Namespace) -> tuple[pd.DataFrame, dict[str, str], str]:
    """Return the rows, the columns of the target and the task; the options that name columns become their names."""
    of_target = ("target", "upper", "event")
    targets = {name: table.column(getattr(args, name), name) for name in of_target if getattr(args, name) is not None}
    target, censored = targets["target"], [name for name in of_target[1:] if name in targets]
    if len(censored) > 1:
        raise ValueError("upper and event both tell which targets are censored; give one of them.")
    if censored and getattr(args, "likelihood", "censored") != "censored":
        raise ValueError(f"{censored[0]} belongs to likelihood censored; got likelihood {args.likelihood}.")
    if censored:
        args.likelihood = "censored"
    elif getattr(args, "likelihood", None) == "censored":
        raise ValueError(
            "likelihood censored needs --event COL, whether the event was seen, or --upper COL, the upper bounds."
        )
    for option in ("group", "time"):
        if getattr(args, option) is not None:
            setattr(args, option, table.column(getattr(args, option), option))
    apart = [name for name in (args.group, args.time) if name is not None]
    if len(apart) > 1 or set(apart) & {*targets.values()}:
        raise ValueError(f"give group or time, not both, and neither may be the target; got {' and '.join(apart)}.")
    args.keep = [table.column(column, "keep") for column in args.keep]
    for option in _COLUMNS:
        if hasattr(args, option):
            setattr(args, option, [table.column(column, option) for column in getattr(args, option)])
    if hasattr(args, "exposure"):
        args.exposure = table.column(args.exposure, "exposure")
    named = {option: getattr(args, option, []) for option in _COLUMNS}
    exposure = [args.exposure] if hasattr(args, "exposure") else []
    purposes = {**{name: [column] for name, column in targets.items()}, **named, "exposure": exposure}
    for (option, columns), (other, others) in combinations(purposes.items(), 2):
        for name in set(columns) & set(others):
            raise ValueError(f"{other} names {name!r}, which {option} names too; name it in one of them.")
    text = {column: None for columns in named.values() for column in columns} | dict.fromkeys(named["dates"], ())
    frame = table.frame(text)
    asked = args.task or ("regression" if hasattr(args, "likelihood") else None)
    if frame[target].isna().all():
        raise ValueError(f"the target {target!r} is missing in every row.")
    task, reason = _task(frame[target].dropna(), "regression" if censored else asked)
    if task == "classification":
        of_numbers = {*pn.PatracRegressor().get_params()} - {*pn.PatracClassifier().get_params()}
        foreign = [name for name in vars(args) if name in {"likelihood", *of_numbers}]
        if foreign:
            raise ValueError(
                f"{foreign[0]} belongs to a regression, and the task is classification ({reason}); leave it out, or "
                "give --task regression."
            )
        # Labels are as they are written: 007 and 7 are two.
        frame = table.frame({**text, target: None})
    say(f"{table.name}: {len(frame)} rows, {len(table.names)} columns; target {target!r}: {task} ({reason})")
    if task == "classification":
        counts = frame[target].value_counts()
        shown = ", ".join(f"{label} ({count})" for label, count in counts.head(20).items())
        say(f"  classes: {shown}{', ...' * (len(counts) > 20)}")
        if words := sorted({*counts.index} & {*WORDS}):
            say(f"  note: {', '.join(words)} is a class; --missing {' '.join(words)} leaves out the rows that have it")
    known = has_target(frame, targets)
    if not known.all():
        count = int((~known).sum())
        rows = f"{count} rows without a target are" if count > 1 else "a row without a target is"
        say(f"  note: {rows} left out ({place(frame[target], ~known)})")
    used = {*targets.values(), *text, *exposure, *args.keep}
    apart = [name for name in apart if name not in used]
    used |= {*apart}
    numbering = [name for name in table.names if name not in used and _numbers_rows(frame[name])]
    if apart or numbering:
        args.drop = [*named["drop"], *apart, *numbering]
    if apart:
        say(f"  note: {apart[0]} splits the rows and is left out; --keep takes it as an input")
    if numbering:
        many = len(numbering) > 1
        verbs, kept = (
            ("number the rows and are", "them as inputs") if many else ("numbers the rows and is", "it as an input")
        )
        say(f"  note: {some_of(numbering)} {verbs} left out; --keep takes {kept}")
    return frame[known], targets, task


def _complete(series: pd.Series, option: str) -> pd.Series:
    """Return a column that an option names; raise ValueError if a value is missing."""
    gone = series.isna()
    if gone.any():
        raise ValueError(f"{option} names {series.name!r}, which is missing at {place(gone, gone)}; remove those rows.")
    return series


def _times(series: pd.Series) -> FloatArray:
    """Return a column of numbers or dates as numbers (n,); raise ValueError if it holds neither, or is not complete."""
    _complete(series, "time")
    dates = [] if is_numeric_dtype(series) else [series.name]
    try:
        made = Preprocessor.fit(series.to_frame(), dates=dates, standardize=False)
    except ValueError as error:
        raise ValueError(str(error).replace("dates names", "time names")) from None
    return made.transform(series.to_frame())[:, 0]


def _numbers_rows(series: pd.Series) -> bool:
    """Return whether a column is 1, 2, 3 ... in the order of the rows, or from 0, with at most a tenth left out."""
    if len(series) < 3 or not is_numeric_dtype(series) or is_bool_dtype(series) or series.isna().any():
        return False
    values = series.to_numpy(dtype=np.float64)
    least, most = values[0], values[-1]
    in_order = (np.diff(values) >= 1).all() and (values % 1 == 0).all()
    return bool(in_order and 0 <= least <= 1 + 0.1 * len(values) and most <= 1.1 * len(values))


def _task(series: pd.Series, asked: str | None) -> tuple[str, str]:
    """Return the task for a target, and why; raise ValueError if its text can neither be numbers nor labels."""
    distinct, is_number = series.nunique(), is_numeric_dtype(series) and not is_bool_dtype(series)
    if asked == "classification" and distinct > _MANY_LABELS:
        raise ValueError(
            f"the target {series.name!r} has {distinct} classes, more than {_MANY_LABELS}; give --task regression if "
            "it is a number, or group the classes."
        )
    if asked is not None and (is_number or asked == "classification"):
        return asked, "as asked"
    if not is_number and (asked is not None or distinct > max(20, min(_MANY_LABELS, 0.05 * len(series)))):
        raise ValueError(
            f"the target {series.name!r} holds text of {distinct} different values, such as "
            f"{', '.join(map(repr, unlike_numbers(series)[:3]))}; convert it to numbers, or give --task classification "
            "if they are labels."
        )
    if not is_number:
        return "classification", f"it holds {distinct} different labels"
    if distinct == 2:
        return "classification", "it holds two different numbers"
    labels = (
        "; --task classification if they are labels" if distinct <= _FEW_NUMBERS and (series % 1 == 0).all() else ""
    )
    return "regression", f"it holds numbers, {distinct} different ones{labels}"


def _check_folder(out: str, overwrite: bool) -> None:
    """Raise FileExistsError before the work if a folder holds results that may not be replaced."""
    for name in _FILES:
        path = os.path.join(out, name)
        if os.path.lexists(path) and not (overwrite and os.path.isfile(path)):
            raise FileExistsError(f"{path} exists; give --overwrite, or another folder with --out.")


def _write(folder: str, estimator: Any, evaluation: Any, table: TableFile, targets: Mapping[str, str]) -> None:
    """Write estimator, layout of the table, numbers and report to a folder, what predictions need first."""
    estimator.save(os.path.join(folder, ESTIMATOR), overwrite=True)
    content = {"layout": asdict(table.layout), "names": table.names, "targets": {**targets}}
    content |= {"class": type(estimator).__name__, "draws": identity_of(estimator.draws_)}
    pn.report.write_json(os.path.join(folder, TABLE), content)
    name = os.path.basename(table.name)
    content = {"data": name, "target": targets["target"], **summary_content(estimator, evaluation)}
    pn.report.write_json(os.path.join(folder, SUMMARY), content)
    report_of(estimator, evaluation, name=name, target=targets["target"]).write(os.path.join(folder, REPORT))
