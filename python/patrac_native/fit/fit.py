"""Fits a table: trains a network, samples its partial posterior, scores held-out rows, writes report and draws."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from patrac_native.fit.array_fit import fit_arrays
from patrac_native.fit.columns import holds_numbers
from patrac_native.fit.dispersion import estimate_dispersion
from patrac_native.fit.fit_data import FitData
from patrac_native.fit.fit_report import printed, reached, write_results
from patrac_native.fit.fit_result import FitResult
from patrac_native.fit.fit_settings import DRAWS, PREPROCESSING, REPORT, SUMMARY, FitSettings
from patrac_native.fit.preprocessing import Preprocessor
from patrac_native.fit.roles import Roles
from patrac_native.fit.table_text import name_of
from patrac_native.fit.tables import read_table
from patrac_native.fit.target_column import guess_task
from patrac_native.fit.tuning import nominal_seconds
from patrac_native.training.folds import IndexArray, copy_groups, split_rows

if TYPE_CHECKING:
    import pandas as pd


def fit_table(settings: FitSettings) -> FitResult:
    """Train a network on a table, sample its posterior, score held-out rows and write everything to `settings.out`.

    Progress and scores are printed.

    Parameters
    ----------
    settings : FitSettings

    Returns
    -------
    FitResult

    Raises
    ------
    TypeError, ValueError, OSError
        If a setting or the table is invalid; settings are checked before any work.
    RuntimeError
        If the run was interrupted before each chain had enough draws for the scores.
    """
    settings.check()
    clock = time.perf_counter()

    frame, table = read_table(
        settings.data,
        header=settings.header,
        separator=settings.separator,
        verbatim=[*settings.ids, *settings.drop],
    )
    data = _prepare(frame, table.notes, settings)
    task, arrays = data.preprocessor.task, data.arrays
    settings.check_room(arrays.X.shape[1], settings.outputs_per_target(task) * arrays.n_targets)
    dispersion, spent = None, 0.0
    if settings.likelihood == "negative-binomial" and settings.dispersion is None:
        _say("estimating the dispersion ...")
        found = estimate_dispersion(arrays, settings)
        _say(f"  {found}")
        dispersion, spent = found.value, nominal_seconds([found.net], len(arrays.X))
    seconds = time.perf_counter() - clock
    likelihoods = settings.likelihoods_of(task, dispersion)
    fit = fit_arrays(arrays, likelihoods, settings, spent=spent, say=_say)
    fit.seconds["training"] += seconds
    result = FitResult(
        settings,
        data,
        fit.posteriors[0].describe(),
        fit.draws,
        fit.evaluation,
        fit.summary,
        fit.grid,
        fit.seconds,
        fit.trials,
        len(fit.posteriors),
    )

    _say(f"\n{printed(result)}")
    write_results(result, table)
    _say(f"\nwrote {', '.join(os.path.join(settings.out, name) for name in (REPORT, SUMMARY, DRAWS, PREPROCESSING))}")
    _say(reached(result))
    return result


def _say(line: str) -> None:
    """Print a line, or nothing where standard output is closed or full: finished draws are not lost for that."""
    try:
        print(line, flush=True)
    except OSError:
        pass


def _prepare(frame: pd.DataFrame, notes: Sequence[str], settings: FitSettings) -> FitData:
    """Split the rows and convert them to arrays; print what was found in the table."""
    roles = Roles.of(frame, settings)
    target = roles.target
    if settings.task is not None:
        task, reason = settings.task, "as asked"
    elif settings.likelihood is not None and holds_numbers(frame[target]):
        task, reason = "regression", f"as {settings.option('likelihood', settings.likelihood)} asks"
    else:
        task, reason = guess_task(frame[target])
    settings.check_task(task)
    labels = frame[target].fillna("").astype(str).to_numpy() if task == "classification" else None
    shares = [settings.test_fraction] if settings.test_fraction else []
    copies = copy_groups(frame[target], frame.drop(columns=[target, *roles.drop, *roles.ids], errors="ignore"))
    try:
        *held, rows = split_rows(len(frame), shares, seed=settings.seed, labels=labels, groups=copies)
    except ValueError as error:
        classes = 0 if labels is None else len(set(labels.tolist()))
        if 2 * classes > len(frame) > 2:
            raise ValueError(
                f"the target {target!r} has {classes} classes in {len(frame)} rows, too many to learn; use --task "
                "regression if it is a number, or group the classes."
            ) from error
        raise ValueError(
            f"--test-fraction {settings.test_fraction:g} of {len(frame)} rows leaves none to hold out or none to train "
            "on; give a table of more rows, or another --test-fraction."
        ) from error
    if len(rows) < 2:
        raise ValueError(
            f"--test-fraction {settings.test_fraction:g} of {len(frame)} rows leaves {len(rows)} to train on; give a "
            "table of more rows, or a smaller --test-fraction."
        )
    test = held[0] if held else rows[:0]
    preprocessor = Preprocessor.fit(
        frame,
        target,
        task=task,
        rows=rows,
        impute=settings.impute,
        drop=roles.drop,
        categorical=roles.categorical,
        ids=roles.ids,
        dates=roles.dates,
        counts=settings.of_counts,
        exposure=roles.exposure,
    )
    X, y, offset = preprocessor.transform(frame), preprocessor.transform_target(frame), preprocessor.offset(frame)
    _say(f"{name_of(settings.data)}: {len(frame)} rows, {frame.shape[1]} columns; target {target!r}: {task} ({reason})")
    if task == "classification":
        counts = np.bincount(y, minlength=len(preprocessor.classes))
        _say("  classes: " + ", ".join(f"{c} ({n})" for c, n in zip(preprocessor.classes, counts, strict=True)))
    _say(f"  {preprocessor.n_inputs} inputs, {len(rows)} training rows, {len(test)} held out (seed {settings.seed})")
    for note in (*notes, *preprocessor.notes, *_note_on_copies(copies)):
        _say(f"  note: {note}")
    offsets = (None, None) if offset is None else (offset[rows], offset[test])
    return FitData(preprocessor, X[rows], y[rows], X[test], y[test], *offsets)


def _note_on_copies(groups: IndexArray | None) -> Sequence[str]:
    """Return a line on rows with the inputs of others, if rows were copied."""
    if groups is None:
        return []
    count = len(groups) - len(np.unique(groups))
    what = f"{count} rows have the inputs of others, and some were" if count > 1 else "a row was"
    return [f"{what} copied; rows with equal inputs are trained on, held out or validated together"]
